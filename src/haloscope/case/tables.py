"""What every case file shares: reading TOML, overrides, checking, and errors that name the key."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticUndefined

from haloscope.errors import InputError
from haloscope.io.text_files import decoded, insist_on_utf8

_LARGEST_FILE = 1 << 20
_MOST_DOTS = 500
# Keys within each other in one --set: no case has more.
_MOST_KEYS = 16
_LONGEST_SHOWN = 60
# Python's limit for the digits of an integer, which its TOML parser does not tell as a fault of TOML.
_TOO_LONG = (
    f"holds an integer of more than {sys.int_info.default_max_str_digits} digits; no key takes one"
)

PositiveInt = Annotated[int, Field(ge=1, le=2**40)]
_LARGEST = 1e30
# What lies beyond is a slip of the pen, and its products may be no numbers.
Coordinate = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Position = tuple[Coordinate, Coordinate, Coordinate]


class Table(BaseModel):
    """A table of a case file: unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Run(Table):
    """How long to run."""

    steps: Annotated[int, Field(ge=0, le=2**40)] = 1000
    """Most steps to take, counted from the start of the case (a restart goes on counting)."""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Stop when the residual falls below this; 0 never stops early."""
    diagnostics_interval: PositiveInt = 100
    """Steps between two looks at the solution: residual, divergence check, progress."""


class Probe(Table):
    """A point whose values are written as a table."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """Name of the CSV file (letters, digits, _ and -)."""
    position: Position
    """Where, in m: [x, y, z]; values are interpolated linearly."""


class Average(Table):
    """Averages of all fields over steps."""

    start: Annotated[int, Field(ge=0)] = 0
    """First step that may count."""
    interval: PositiveInt = 10
    """Steps between two samples."""


class Output(Table):
    """What is written beside summary.json."""

    interval: Annotated[int, Field(ge=0)] = 0
    """Steps between two field files; 0 writes the last fields only."""
    fields: bool = True
    """Write the last fields as VTKHDF."""
    picture: bool = True
    """Draw the mid-plane and the residual history as PNG."""
    probes: Annotated[tuple[Probe, ...], Field(max_length=1000)] = ()
    """Points to follow: [[output.probes]] tables."""
    probe_interval: PositiveInt = 100
    """Steps between two rows of the probes' tables."""
    average: Average | None = None
    """Average the fields: an [output.average] table."""

    @field_validator("probes")
    @classmethod
    def _names_of_their_own(cls, probes: tuple[Probe, ...]) -> tuple[Probe, ...]:
        names = [probe.name for probe in probes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two probes are named {twice!r}; give each a name of its own")
        return probes


class Checkpoint(Table):
    """When the state is saved so that a run can go on."""

    interval: Annotated[int, Field(ge=0)] = 0
    """Steps between two checkpoints; 0: not by steps."""
    minutes: Annotated[float, Field(ge=0.0)] = 10.0
    """Minutes of computing between two checkpoints; 0: not by time."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """Newest checkpoints to keep."""
    at_end: bool = False
    """Save one when the run ends as well."""


class Machine(Table):
    """What to run on.

    Results on cores do not depend on it, with exceptions on several ranks: flow agrees with one rank as far
    as the tolerances of its solvers go, sums over all elements of maxwell but for their last digits, and its
    fields with the exponential integrator as far as krylov.tolerance goes.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """cpu, cuda, or auto: a GPU when there is one."""
    threads: Annotated[int, Field(ge=0, le=4096)] = 0
    """Threads a rank on cores; 0: all the cores that the rank was given, or its part of them where ranks were
    given the same ones."""
    decomposition: Literal["auto", "1d", "2d", "3d"] | tuple[int, int, int] = "auto"
    """Of the cavity, whose grid is cut into blocks: auto, 1d, 2d, 3d (axes that are cut, slowest first) or
    blocks along x, y, z. The other solvers share their grids out by themselves and take auto alone."""
    transport: Literal["auto", "host", "staged", "mpi", "nccl", "peer", "repacked"] = "auto"
    """How messages travel: host (cores), staged (GPUs through host memory), mpi (GPU-aware MPI),
    nccl, peer (straight into the memory of the neighbour's GPU, one host), or auto: the fastest of
    those that work, measured with the case's own messages. repacked, for studies of blood: through
    host memory, where values are put into another order before and after MPI."""
    overlap: bool = True
    """Compute the interior while messages travel."""
    progress: Literal["none", "test", "thread"] = "none"
    """Of the cavity: how MPI between cores is kept going while the interior is computed: not at all, by
    tests between parts of the interior, or by a thread that tests all the time."""
    graphs: bool = True
    """Replay steps as CUDA graphs where the transport allows."""
    packing: Literal["auto", "all", "x", "none"] = "auto"
    """Of the cavity: which directions are packed into one message a neighbour; in the others each plane of each
    field is copied and sent by itself (for studies). auto: all, but where GPUs reach each other's
    memory the update fills the neighbours' ghosts itself, without messages, or messages hide behind
    the interior. Where x is cut, rows lie along an axis that is not; where all are cut or the others
    are too short, nothing overlaps on GPUs. With all, x, none and with uniform widths rows lie along x."""
    widths: Literal["fields", "uniform"] = "fields"
    """Of the cavity, for studies: exchange as many layers of each field as its stencil needs, or of all fields as
    many as the widest needs."""


@dataclass(frozen=True)
class Exclusion:
    """Keys that contradict each other: a case that gives both is refused."""

    keys: tuple[str, ...]  # The keys, as the reference lists them
    reason: str  # Why they contradict each other
    example: tuple[str, ...]  # Settings which, added to the solver's template, are refused


class CaseTable(Table):
    """The top of a case file; each solver adds the table named after it."""

    solver: str
    """Which solver the case is for."""
    title: Annotated[str, Field(max_length=200)] = ""
    """A line for pictures and summaries."""
    run: Run = Run()
    output: Output = Output()
    checkpoint: Checkpoint = Checkpoint()
    machine: Machine = Machine()

    cuts_blocks: ClassVar[bool] = False
    """Whether the solver's grid is cut into blocks for ranks."""
    exclusions: ClassVar[tuple[Exclusion, ...]] = ()
    """Keys that exclude each other, for the reference and its test."""

    @model_validator(mode="after")
    def _of_blocks(self) -> CaseTable:
        if self.cuts_blocks:
            return self
        for key in _OF_BLOCKS:
            setting, default = getattr(self.machine, key), Machine.model_fields[key].default
            if setting != default:
                raise ValueError(
                    f"machine.{key} = {_toml(setting)} is for grids that are cut into blocks, and {self.solver} "
                    f"shares its grid out in a way of its own; give {_toml(default)}, or leave machine.{key} out"
                )
        return self


# Keys of the machine that only blocks of a grid have.
_OF_BLOCKS = ("decomposition", "progress", "packing", "widths")


def read_toml(path: Path, kind: str = "case") -> dict[str, Any]:
    """Read a TOML file; errors call it by its kind."""
    try:
        if path.is_dir():
            raise InputError(f"{kind} file {path} is a folder; give the path of a TOML file in it")
        if not path.is_file():
            near = difflib.get_close_matches(
                path.name, [p.name for p in path.parent.glob("*.toml")], 1
            )
            hint = f"; there is {path.parent / near[0]}" if near else ""
            raise InputError(
                f"{kind} file {path} does not exist{hint}; give the path of a {kind} file"
            )
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(
                f"{kind} file {path} has {path.stat().st_size} bytes; at most {_LARGEST_FILE} are read"
            )
        text = decoded(path.read_bytes(), f"{kind} file {path}")
        # The parser's memory grows with the square of the dots in a key.
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(".") > _MOST_DOTS:
                raise InputError(
                    f"{path}, line {number}, holds {line.count('.')} dots; at most {_MOST_DOTS} "
                    "are read: break the line"
                )
        data = tomllib.loads(text)
        _require_no_nul(data, f"{kind} file {path}")
        return data
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}{_shown(text, str(error))}") from error
    except RecursionError as error:
        raise InputError(
            f"{path} is nested too deeply; a {kind} has tables of tables only"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} {_TOO_LONG}") from error
    except OSError as error:
        raise InputError(f"{kind} file {path} cannot be read: {error.strerror}") from error


def _require_no_nul(value: Any, name: str) -> None:
    """Refuse texts and keys with a character of value zero, which no path or name may hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            _require_no_nul(key, name)
            _require_no_nul(item, f"{name}: {key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _require_no_nul(item, f"{name}.{number}")
    elif isinstance(value, str) and "\0" in value:
        raise InputError(f"{name}: {value!r} holds a character of value zero (\\u0000); remove it")


def _shown(text: str, shown: str) -> str:
    """Show the line that a parser's message names, and say what to write."""
    named = re.search(r"\(at line (\d+), column \d+\)", shown)
    if named is None:
        return "; what is missing at its end, such as a bracket or a quote?"
    line = _shortened(text.split("\n")[int(named[1]) - 1].strip())
    advice = (
        "give each key and table once"
        if shown.startswith("Cannot")
        else "write key = value, with keys of a-z, A-Z, 0-9, _ and -, text in quotes, lists in brackets"
    )
    return f": {line!r}; {advice}"


def override(data: dict[str, Any], settings: Sequence[str]) -> None:
    """Put ``table.key=value`` settings into the data of a case; values are written as in TOML."""
    # A value that is no TOML is taken as text, so that ``machine.device=cpu`` needs no quotes.
    # Items of lists are called by their numbers, from 0: ``blood.cells.0.hematocrit=0.3``. Tables
    # are made where there are none, items are not.
    for setting in settings:
        insist_on_utf8(setting, f"--set {setting!r}")
        path, equals, text = setting.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise InputError(f"--set {setting!r} is not of the form table.key=value")
        if len(keys) > _MOST_KEYS:
            raise InputError(
                f"--set {_shortened(setting)!r} names {len(keys)} keys within each other; at most "
                f"{_MOST_KEYS} are read: give table.key=value"
            )
        if text.count(".") > _MOST_DOTS:
            raise InputError(
                f"--set {_shortened(setting)!r} holds {text.count('.')} dots in its value; at most "
                f"{_MOST_DOTS} are read: write it into the case file"
            )
        try:
            read = tomllib.loads(f"value = {text.strip()}")
        except (tomllib.TOMLDecodeError, RecursionError):
            read = {"value": text.strip()}
        except ValueError as error:
            raise InputError(f"--set {_shortened(setting)} {_TOO_LONG}") from error
        if len(read) > 1:
            raise InputError(
                f"--set {setting!r} gives more than one value; give each key a --set of its own"
            )
        _require_no_nul(read, f"--set {_shortened(setting)}")
        place: Any = data
        for depth in range(len(keys) - 1):
            name = _name_in(place, keys, depth)
            if isinstance(place, dict):
                place.setdefault(name, {})
            place = place[name]
        place[_name_in(place, keys, len(keys) - 1)] = read["value"]


def _name_in(place: Any, keys: Sequence[str], depth: int) -> str | int:
    """What one of a setting's keys is called in a table, or its number in a list."""
    key, above = keys[depth], ".".join(keys[:depth])
    if isinstance(place, dict):
        return key
    if not isinstance(place, list):
        fault = f"{above} is a value, not a table or a list; give {above}=VALUE"
    elif not place:
        fault = f"the list {above} is empty; give the whole list, {above}=[...]"
    elif key in map(str, range(len(place))):
        return int(key)
    else:
        known = f"items 0 to {len(place) - 1}" if len(place) > 1 else "item 0 alone"
        fault = (
            f"{above} is a list with {known}, and {key} is none of their numbers; give one of them, "
            f"as in {above}.0, or for more or fewer items the whole list, {above}=[...]"
        )
    raise InputError(f"--set {'.'.join(keys)}: {fault}")


def check(data: dict[str, Any], model: type[CaseTable], source: str) -> CaseTable:
    """Check the data of a case against a model."""
    try:
        for key, value in _values(data):
            if not isinstance(value, str | int | float):
                raise InputError(
                    f"{source}: {key} = {value}: no key takes a {type(value).__name__}"
                )
        text = json.dumps(data)
    except RecursionError as error:
        raise InputError(
            f"{source} is nested too deeply; a case has tables of tables only"
        ) from error
    except ValueError as error:  # of an integer in base 16, say, which has no limit when it is read
        raise InputError(f"{source} {_TOO_LONG}") from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error, model)}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _values(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All values of tables and lists, however deep, each with its key as settings have it."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _values(value, f"{key}.{name}" if key else name)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _values(value, f"{key}.{number}")
    else:
        yield key, data


def read_case(
    path: Path, settings: Sequence[str], model_of: Callable[[str], type[CaseTable]]
) -> CaseTable:
    """Read and check a case file."""
    data = read_toml(path)
    if "series" in data:
        raise InputError(
            f"{path} is a study, not a case: it has the key series; run it with: haloscope scale "
            f"{path}"
        )
    override(data, settings)
    solver = data.get("solver")
    if not isinstance(solver, str):
        raise InputError(f'{path}: the key solver is missing; write for example solver = "cavity"')
    try:
        model = model_of(solver)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    own = model.model_fields.get(solver)
    if own is not None and own.is_required() and solver not in data:
        raise InputError(
            f"{path}: the table [{solver}] is missing; write a whole case to start from with: "
            f"haloscope new {solver}"
        )
    return check(data, model, str(path))


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Let what is found wrong with a case after its check name the case file, too."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _explain(error: ValidationError, model: type[Table]) -> str:
    """One line on the first fault that pydantic found."""
    fault = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    fault = _item_at_fault(fault, error.errors()) or fault
    location = _wrong_key(fault)
    if fault["type"] == "extra_forbidden":
        # Its last part is a key, whatever it looks like: "cells[0]".
        location = (*_shown_key(fault["loc"][:-1]), fault["loc"][-1])
    key = ".".join(str(part) for part in location)
    keys = {_wrong_key(e) for e in error.errors()}
    # Of a list and its items only the one or the others are wrong.
    count = sum(
        not any(isinstance(k[n], int) and k[:n] in keys for n in range(1, len(k))) for k in keys
    )
    more = f" ({count} keys are wrong in all)" if count > 1 else ""
    if fault["type"] == "extra_forbidden":
        table = _table_at(model, location[:-1])
        allowed = sorted(table.model_fields) if table else []
        return _explain_unknown(key, str(location[-1]), allowed) + more
    if fault["type"] == "missing" and not _lacks_items(fault):
        return f"the key {key} is missing{more}"
    if fault["loc"][-1:] == ("[key]",):
        return _explain_name(fault) + more
    faults = [e for e in error.errors() if _wrong_key(e) == location]
    fault = max(faults, key=lambda e: _SAYS_MOST.get(e["type"], 1))
    if _numbers_items(fault["input"]) and any(e["type"] == "tuple_type" for e in faults):
        return (
            f"the case has no list {key}, and so no item {next(iter(fault['input']))} of it; give "
            f"the whole list, {key} = [...]{more}"
        )
    shown_input = "" if isinstance(fault["input"], dict) else _shortened(repr(fault["input"]))
    message = fault["msg"].removeprefix("Value error, ")
    if _SAYS_MOST.get(fault["type"], 1) == 0:
        wanted = list(dict.fromkeys(_wanted(e, faults) for e in faults))
        message = f"input should be {' or '.join(wanted)}"
    message = message[0].lower() + message[1:]
    limit = fault.get("ctx", {}).get(_LIMITS.get(fault["type"], ""))
    if isinstance(limit, float):
        # Without all the zeros of 1e-30.
        message = f"{message.rpartition(' ')[0]} {limit:.12g}"
    name = f"{key} = {shown_input}: " if shown_input else f"{key}: "
    name = name if key else ""
    return f"{name}{message}{more}"


def _explain_name(fault: ErrorDetails) -> str:
    """One line on a name that a table of names does not take."""
    # The name itself, whatever it looks like, stands before pydantic's mark of a key.
    *table, name, _ = fault["loc"]
    key = ".".join(map(str, _shown_key(table)))
    if fault["type"] != "literal_error":
        message = fault["msg"][0].lower() + fault["msg"][1:]
        return f"{key}: the name {_shortened(repr(name))} is not allowed: {message}"
    allowed = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
    return _explain_unknown(f"{key}.{name}", str(name), allowed)


def _explain_unknown(key: str, name: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, allowed, 1, 0.5)
    nearest = f"the nearest is {near[0]}; " if near else ""
    return f"unknown key {key}; {nearest}allowed here: {', '.join(allowed)}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def _numbers_items(items: Any) -> bool:
    """Tell tables that settings of items made where there was no list."""
    return isinstance(items, dict) and bool(items) and all(map(str.isdecimal, items))


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
# What TOML calls differently from JSON.
_IN_TOML = {"a valid array": "a list", "an object": "a table", "a valid string": "text"}


def _wanted(fault: ErrorDetails, faults: Sequence[ErrorDetails]) -> str:
    """What a branch of a union, or a key without one, takes."""
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
    """The key that is told, which for a list that is too short is that of the list."""
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


def _table_at(model: type[Table], location: Sequence[int | str]) -> type[Table] | None:
    table: type[Table] | None = model
    named = False
    for part in location:
        if table is None or isinstance(part, int) or named:
            # After a table of names comes a name.
            named = False
            continue
        field = table.model_fields.get(part)
        table = _table_in(field.annotation) if field else None
        named = field is not None and typing.get_origin(field.annotation) is dict
    return table


def _table_in(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    for argument in typing.get_args(annotation):
        table = _table_in(argument)
        if table is not None:
            return table
    return None


def describe(model: type[Table], prefix: str = "") -> list[tuple[str, str, str, str]]:
    """Rows (key, type, default, meaning) of all keys of a model, for the reference pages."""
    rows = []
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        if typing.get_origin(field.annotation) is dict:
            item_kind = _kind(typing.get_args(field.annotation)[1])
            rows.append((key, f"table of names, each {item_kind}", "{}", field.description or ""))
            continue
        inner = _table_in(field.annotation)
        if inner is not None:
            many = "tuple" in str(field.annotation)
            if field.description:
                rows.append(
                    (f"[{key}]" if not many else f"[[{key}]]", "table", "", field.description)
                )
            rows.extend(describe(inner, f"{key}."))
            continue
        default = "required" if field.default is PydanticUndefined else _toml(field.default)
        limits = [
            f"{sign} {value:g}"
            for item in field.metadata
            for sign, value in (
                (">=", getattr(item, "ge", None)),
                (">", getattr(item, "gt", None)),
                ("<=", getattr(item, "le", None)),
                ("<", getattr(item, "lt", None)),
            )
            if value is not None
        ]
        kind = _kind(field.annotation)
        if limits:
            kind += f", {' and '.join(limits)}"
        rows.append((key, kind, default, field.description or ""))
    return rows


def _toml(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value)


def _kind(annotation: Any) -> str:
    """Type of a key in a reader's words."""
    if annotation is type(None):
        return ""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " or ".join(json.dumps(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(k for k in map(_kind, arguments) if k))
    if origin is Annotated:
        return _kind(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, Table):
        keys = (f"{k} = {_kind(f.annotation)}" for k, f in annotation.model_fields.items())
        return "{ " + ", ".join(keys) + " }"
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return f"list of {_kind(arguments[0])}"
        return f"list of {len(arguments)}: {_kind(arguments[0])}"
    return {float: "number", int: "integer", str: "text", bool: "true or false"}.get(
        annotation, getattr(annotation, "__name__", str(annotation))
    )
