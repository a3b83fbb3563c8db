"""Settings: values by dotted key that replace those of a case, as `--set` and Python give them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from haloscope.case.toml_files import (
    MOST_DOTS,
    beginning,
    insist_on_utf8,
    require_no_nul,
    too_deep,
    too_many_digits,
)
from haloscope.errors import InputError

# Keys within each other in one setting: no case has more.
_MOST_KEYS = 16

Settings = Mapping[str, Any] | Sequence[str]
"""Values by dotted key (``{"cavity.nodes": 33}``), or texts (``"cavity.nodes=33"``)."""


def override(data: dict[str, Any], settings: Settings) -> None:
    """Put settings into the data of a case: values by dotted key, or ``table.key=value`` texts."""
    # A value that is no TOML is taken as text, so that ``machine.device=cpu`` needs no quotes.
    # Items of lists are called by their numbers, from 0: ``blood.cells.0.hematocrit=0.3``. Tables
    # are made where there are none, items are not.
    if isinstance(settings, str | bytes) or not isinstance(settings, Mapping | Iterable):
        raise _wrong_settings(f"it is of the type {type(settings).__name__}")
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            location = f"settings {beginning(repr(key))}"
            if not isinstance(key, str):
                raise _wrong_settings(f"the key {beginning(repr(key))} is not text")
            _put(data, _keys_of(key, location), plain(value, f"settings {key}"), "settings")
        return
    for setting in settings:
        if not isinstance(setting, str):
            raise _wrong_settings(f"the item {beginning(repr(setting))} is not text")
        _put(data, *_read_setting(setting), "--set")


def _wrong_settings(problem: str) -> InputError:
    return InputError(
        problem,
        location="settings",
        allowed="a dict of dotted keys or a list of texts",
        remedy='write settings={"cavity.nodes": 33} or settings=["cavity.nodes=33"]',
    )


def plain(value: Any, location: str, depth: int = 0) -> Any:
    """A Python value as TOML would hold it: tuples and arrays become lists, paths texts."""
    if depth > _MOST_KEYS:
        raise too_deep(location)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"the key {beginning(repr(key))} is not text", location=location)
        return {key: plain(item, f"{location}.{key}", depth + 1) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item, f"{location}.{n}", depth + 1) for n, item in enumerate(value)]
    if isinstance(value, PurePath):
        value = str(value)
    if not isinstance(value, str | int | float):
        raise InputError(
            f"the value is of the type {type(value).__name__}",
            location=location,
            allowed="numbers, text, True, False, lists and dicts",
        )
    if isinstance(value, str):
        insist_on_utf8(value, location)
    require_no_nul(value, location)
    return value


def _keys_of(path: str, location: str) -> list[str]:
    keys = path.strip().split(".")
    if not all(keys):
        raise InputError("wrong form", location=location, allowed="table.key")
    if len(keys) > _MOST_KEYS:
        raise InputError(
            f"it names {len(keys)} keys within each other",
            location=location,
            allowed=f"at most {_MOST_KEYS}",
            remedy="give table.key=value",
        )
    return keys


def _read_setting(setting: str) -> tuple[list[str], Any]:
    """Keys and value of a ``table.key=value`` text; the value is written as in TOML."""
    insist_on_utf8(setting, f"--set {setting!r}")
    path, equals, text = setting.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise InputError("wrong form", location=f"--set {setting!r}", allowed="table.key=value")
    shortened = f"--set {beginning(setting)!r}"
    keys = _keys_of(path, shortened)
    if text.count(".") > MOST_DOTS:
        raise InputError(
            f"it holds {text.count('.')} dots in its value",
            location=shortened,
            allowed=f"at most {MOST_DOTS}",
            remedy="write it into the case file",
        )
    try:
        read = tomllib.loads(f"value = {text.strip()}")
    except (tomllib.TOMLDecodeError, RecursionError):
        read = {"value": text.strip()}
    except ValueError as error:
        raise too_many_digits(shortened) from error
    if len(read) > 1:
        raise InputError(
            "it gives more than one value",
            location=f"--set {setting!r}",
            remedy="give each key its own --set",
        )
    require_no_nul(read, f"--set {beginning(setting)}")
    return keys, read["value"]


def _put(data: dict[str, Any], keys: Sequence[str], value: Any, option: str) -> None:
    """Put a value into the data of a case at a path; errors begin with the option."""
    place: Any = data
    for depth in range(len(keys) - 1):
        name = _name_in(place, keys, depth, option)
        if isinstance(place, dict):
            place.setdefault(name, {})
        place = place[name]
    place[_name_in(place, keys, len(keys) - 1, option)] = value


def _name_in(place: Any, keys: Sequence[str], depth: int, option: str) -> str | int:
    """Name of a setting's key in a table, or its number in a list."""
    key, above = keys[depth], ".".join(keys[:depth])
    if isinstance(place, dict):
        return key
    location = f"{option} {'.'.join(keys)}"
    if not isinstance(place, list):
        raise InputError(
            f"{above} is a value, not a table or a list",
            location=location,
            remedy=f"give {above}=VALUE",
        )
    if not place:
        raise InputError(
            f"the list {above} is empty",
            location=location,
            remedy=f"give the whole list, {above}=[...]",
        )
    if key in map(str, range(len(place))):
        return int(key)
    raise InputError(
        f"the list {above} has no item {key}",
        location=location,
        allowed=f"items 0 to {len(place) - 1}" if len(place) > 1 else "item 0",
        remedy=f"give one of them, as in {above}.0, or for more or fewer items the whole list, "
        f"{above}=[...]",
    )
