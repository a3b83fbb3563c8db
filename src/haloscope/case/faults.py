"""Refusals of case tables: the first fault that pydantic reports, located by its key."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from haloscope.case.toml_files import beginning
from haloscope.errors import InputError, WithFields

# What pydantic calls the limits of numbers, by the kinds of faults.
_LIMITS = {
    "greater_than_equal": "ge",
    "greater_than": "gt",
    "less_than_equal": "le",
    "less_than": "lt",
}
# Of the faults that the branches of a union report, one on a value says more than one on a type.
_SAYS_MOST = dict.fromkeys(
    (
        *("int_type", "float_type", "string_type", "tuple_type", "bool_type", "model_type"),
        *("literal_error", "missing", "too_long"),
    ),
    0,
)
# Problems of the faults that say least; the others of them are wrong types.
_PROBLEMS = {
    "literal_error": "unknown value",
    "missing": "wrong length",
    "too_long": "wrong length",
}
# What TOML calls differently from JSON.
_IN_TOML = {
    "a valid array": "a list",
    "an object": "a table",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}


def input_error(error: ValidationError, model: type[BaseModel]) -> InputError:
    """The first fault that pydantic found, located by its key."""
    fault = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    fault = _item_at_fault(fault, error.errors()) or fault
    location = _wrong_key(fault)
    if fault["type"] == "extra_forbidden":
        # Its last part is a key, whatever it looks like: "cells[0]".
        location = (*_shown_key(fault["loc"][:-1]), fault["loc"][-1])
    keys = {_wrong_key(e) for e in error.errors()}
    # Of a list and its items only the one or the others are wrong.
    count = sum(
        not any(isinstance(k[n], int) and k[:n] in keys for n in range(1, len(k))) for k in keys
    )
    faults = [e for e in error.errors() if _wrong_key(e) == location]
    refusal = _refusal(fault, faults, location, model)
    if count > 1:
        refusal.problem += f" ({count} keys are wrong in all)"
    return refusal


def _refusal(
    fault: ErrorDetails,
    faults: Sequence[ErrorDetails],
    location: tuple[int | str, ...],
    model: type[BaseModel],
) -> InputError:
    """The refusal of a key for a fault; `faults`: all of this key, one for each branch of a union."""
    key = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        table = _table_at(model, location[:-1])
        allowed = sorted(table.model_fields) if table else []
        return _unknown_key(key, str(location[-1]), allowed)
    if fault["type"] == "missing" and not _lacks_items(fault):
        return InputError("the key is missing", location=key, remedy="add it")
    if fault["loc"][-1:] == ("[key]",):
        return _wrong_name(fault)
    fault = max(faults, key=lambda e: _SAYS_MOST.get(e["type"], 1))
    if _numbers_items(fault["input"]) and any(e["type"] == "tuple_type" for e in faults):
        return InputError(
            f"the case has no such list, and so no item {next(iter(fault['input']))} of it",
            location=key,
            remedy=f"give the whole list, {key} = [...]",
        )
    if key and not isinstance(fault["input"], dict):
        setting = f"{key} = {beginning(repr(fault['input']))}"
    else:
        setting = key
    if _SAYS_MOST.get(fault["type"], 1) == 0:
        problems = {_PROBLEMS.get(e["type"], "wrong type") for e in faults}
        return InputError(
            problems.pop() if len(problems) == 1 else "wrong value",
            location=setting,
            allowed=" or ".join(dict.fromkeys(_wanted(e, faults) for e in faults)),
        )
    raised = fault.get("ctx", {}).get("error")
    if isinstance(raised, WithFields):
        place = setting
        if raised.location:
            dot = "." if key and not raised.location.startswith("[") else ""
            place = f"{key}{dot}{raised.location}"
        return InputError(
            raised.problem, location=place, allowed=raised.allowed, remedy=raised.remedy
        )
    problem, allowed_values = _problem_and_allowed(fault)
    return InputError(problem, location=setting, allowed=allowed_values)


def _problem_and_allowed(fault: ErrorDetails) -> tuple[str, str]:
    """Problem and allowed values in pydantic's sentence on a fault."""
    message = fault["msg"].removeprefix("Value error, ")
    limit = fault.get("ctx", {}).get(_LIMITS.get(fault["type"], ""))
    if isinstance(limit, float):
        # Without all the zeros of 1e-30.
        message = f"{message.rpartition(' ')[0]} {limit:.12g}"
    sentence = re.fullmatch(r"(?:Input|String|Tuple|List) should (be|have|match) (.*)", message)
    if sentence is None or fault["type"] == "value_error":
        return message[0].lower() + message[1:], ""
    verb, allowed = sentence.groups()
    if verb == "match":
        return "wrong characters", _characters(allowed)
    if verb == "have":
        return "wrong length", allowed.partition(" after validation")[0]
    return "out of range" if fault["type"] in _LIMITS else "wrong value", _IN_TOML.get(
        allowed, allowed
    )


def _characters(pattern: str) -> str:
    """A pattern of names in words: ``^[a-z_-]{1,64}$`` allows 1 to 64 characters of a-z, _, -."""
    simple = re.search(r"'\^\[([^\]^]+)\](?:\+|\{1,(\d+)\})\$'", pattern)
    if simple is None:
        return f"text that matches the {pattern}"
    parts = ", ".join(re.findall(r"\w-\w|.", simple[1]))
    return f"1 to {simple[2]} characters of {parts}" if simple[2] else f"characters of {parts}"


def _wrong_name(fault: ErrorDetails) -> InputError:
    """The refusal of a name that a table of names does not take."""
    # The name itself, whatever it looks like, stands before pydantic's mark of a key.
    *table, name, _ = fault["loc"]
    key = ".".join(map(str, _shown_key(table)))
    if fault["type"] == "literal_error":
        allowed_names = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
        return _unknown_key(f"{key}.{name}", str(name), allowed_names)
    problem, allowed = _problem_and_allowed(fault)
    return InputError(
        f"the name {beginning(repr(name))} is not allowed: {problem}", location=key, allowed=allowed
    )


def _unknown_key(key: str, name: str, allowed: Sequence[str]) -> InputError:
    near = difflib.get_close_matches(name, allowed, 1, 0.5)
    return InputError(
        "unknown key",
        location=key,
        allowed=", ".join(allowed),
        remedy=f"did you mean {near[0]}?" if near else "",
    )


def _numbers_items(items: Any) -> bool:
    """Tell tables that settings of items made where there was no list."""
    return isinstance(items, dict) and bool(items) and all(map(str.isdecimal, items))


def _wanted(fault: ErrorDetails, faults: Sequence[ErrorDetails]) -> str:
    """Types that a branch of a union, or a key without one, takes."""
    if fault["type"] == "missing":
        indices = [e["loc"][-1] for e in faults if e["loc"][:-1] == fault["loc"][:-1]]
        return f"a list of {1 + max(i for i in indices if isinstance(i, int))}"
    if fault["type"] == "too_long":
        most = "" if _is_branch(fault["loc"][-1]) else "at most "
        return f"a list of {most}{fault['ctx']['max_length']}"
    said = fault["msg"].removeprefix("Input should be ")
    return _IN_TOML.get(said, said)


def _lacks_items(fault: ErrorDetails) -> bool:
    """Tell a list that is too short, whose missing items are told, from a table without a key."""
    return fault["type"] == "missing" and isinstance(fault["input"], list)


def _item_at_fault(fault: ErrorDetails, errors: Sequence[ErrorDetails]) -> ErrorDetails | None:
    """The fault of an item where a list is right but for its items."""
    if not isinstance(fault["input"], list):
        return None
    place, depth = fault["loc"][:-1], len(fault["loc"])
    below = [e for e in errors if len(e["loc"]) > depth and e["loc"][: depth - 1] == place]
    counted = {e["loc"][:depth] for e in errors if _lacks_items(e) or e["type"] == "too_long"}
    return next((e for e in below if e["loc"][:depth] not in counted), None)


def _wrong_key(fault: ErrorDetails) -> tuple[int | str, ...]:
    """The wrong key; of a list that is too short, the key of the list."""
    key = _shown_key(fault["loc"])
    return key[:-1] if _lacks_items(fault) else key


def _shown_key(location: Sequence[int | str]) -> tuple[int | str, ...]:
    return tuple(part for part in location if not _is_branch(part))


def _is_branch(part: int | str) -> bool:
    """Tell pydantic's names of union branches from keys."""
    # Names of boundaries may hold hyphens, too: "x-", "inlet-1".
    return isinstance(part, str) and (
        part in ("float", "int", "str", "bool", "Average")
        or "[" in part
        or part.startswith("constrained-")
    )


def _table_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    table: type[BaseModel] | None = model
    named = False
    for part in location:
        if table is None or isinstance(part, int) or named:
            # After a table of names comes a name.
            named = False
            continue
        field = table.model_fields.get(part)
        table = table_in(field.annotation) if field else None
        named = field is not None and typing.get_origin(field.annotation) is dict
    return table


def table_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a key of this type holds, alone or in a list; None of other types."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        table = table_in(argument)
        if table is not None:
            return table
    return None
