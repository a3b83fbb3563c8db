"""A checker for the JSON schemas of docs/reference/schemas: the keywords that they use, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
KEYWORDS = frozenset(
    {"$schema", "$defs", "$ref", "title", "description", "type", "enum", "minimum", "items"}
    | {"required", "properties", "additionalProperties", "anyOf", "not"}
)


def schema(name: str) -> dict[str, Any]:
    """A schema by its name."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def faults(name: str, instance: Any) -> list[str]:
    """Where a document does not fit a schema, or has keys that the schema does not describe."""
    root = schema(name)
    return list(_faults(root, instance, root, "$"))


def _is_of(instance: Any, name: str) -> bool:
    if isinstance(instance, bool) and name != "boolean":
        return False
    return isinstance(instance, _TYPES[name])


def _faults(part: Any, instance: Any, root: dict[str, Any], path: str) -> Iterator[str]:
    if unknown := set(part) - KEYWORDS:
        raise AssertionError(f"{path}: the checker does not know {sorted(unknown)}")
    if "$ref" in part:
        yield from _faults(root["$defs"][part["$ref"].split("/")[-1]], instance, root, path)
    if "type" in part:
        names = [part["type"]] if isinstance(part["type"], str) else part["type"]
        if not any(_is_of(instance, name) for name in names):
            yield f"{path}: {instance!r:.40} is no {' or '.join(names)}"
            return
    if "enum" in part and instance not in part["enum"]:
        yield f"{path}: {instance!r:.40} is none of {part['enum']}"
    if "minimum" in part and isinstance(instance, int | float) and not instance >= part["minimum"]:
        yield f"{path}: {instance} is below {part['minimum']}"
    if "anyOf" in part:
        choices = [list(_faults(choice, instance, root, path)) for choice in part["anyOf"]]
        if all(choices):
            yield f"{path}: fits none of {len(choices)} forms: {choices}"
    if "not" in part and not list(_faults(part["not"], instance, root, path)):
        yield f"{path}: has the form that is excluded"
    if isinstance(instance, dict):
        yield from _faults_of_object(part, instance, root, path)
    if isinstance(instance, list) and "items" in part:
        for number, entry in enumerate(instance):
            yield from _faults(part["items"], entry, root, f"{path}[{number}]")


def _faults_of_object(
    part: Any, instance: dict[str, Any], root: dict[str, Any], path: str
) -> Iterator[str]:
    yield from (
        f"{path}: {key} is missing" for key in part.get("required", []) if key not in instance
    )
    properties, others = part.get("properties"), part.get("additionalProperties")
    for key, value in instance.items():
        if properties and key in properties:
            yield from _faults(properties[key], value, root, f"{path}.{key}")
        elif others is not None:
            yield from _faults(others, value, root, f"{path}.{key}")
        elif properties is not None:
            # Readers must accept such keys: later versions may add them. Here they are undocumented.
            yield f"{path}: {key} is not described"
