"""Tables of case files: reading TOML, overrides, checks, and errors that name the key."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
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

from haloscope.case import shipped
from haloscope.errors import InputError, WithFields
from haloscope.io.text_files import decoded, insist_on_utf8

_LARGEST_FILE = 1 << 20
_MOST_DOTS = 500
# Keys within each other in one --set: no case has more.
_MOST_KEYS = 16
_LONGEST_SHOWN = 60
# Python's limit for the digits of an integer, which its TOML parser does not report as a fault of TOML.
_MOST_DIGITS = sys.int_info.default_max_str_digits

PositiveInt = Annotated[int, Field(ge=1, le=2**40)]
_LARGEST = 1e30
# What lies beyond is a slip of the pen, and its products may be no numbers.
Coordinate = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Position = tuple[Coordinate, Coordinate, Coordinate]


class CaseFault(WithFields, ValueError):
    """A fault that a validator finds; its location is a key relative to the table or key it checks."""


class Table(BaseModel):
    """A table of a case file: unknown keys and wrong types are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def in_words(table: Table, units: Mapping[str, str]) -> str:
    """The keys of a table that are set, with units by key: ``speed = 0.2 m/s, profile = uniform``."""
    parts = []
    for key in type(table).model_fields:
        value = getattr(table, key)
        if key not in table.model_fields_set or value is None:
            continue
        if isinstance(value, Table):
            shown = f"({in_words(value, units)})"
        else:
            shown = value if isinstance(value, str) else _toml(value)
            shown += f" {units[key]}" if key in units else ""
        parts.append(f"{key} = {shown}")
    return ", ".join(parts)


class Run(Table):
    """Length of the run."""

    steps: Annotated[int, Field(ge=0, le=2**40)] = 1000
    """Last step, counted from the start of the case (a restart continues the count)."""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Stop when the residual falls below this; 0 never stops early."""
    diagnostics_interval: PositiveInt = 100
    """Steps between two diagnostics: residual, divergence check, progress."""


class Probe(Table):
    """A point whose values are written to a table."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """Name of the CSV file (letters, digits, _ and -)."""
    position: Position
    """Position in m: [x, y, z]; values are interpolated linearly."""


class Average(Table):
    """Averages of all fields over steps."""

    start: Annotated[int, Field(ge=0)] = 0
    """First step that is sampled."""
    interval: PositiveInt = 10
    """Steps between two samples."""


class Output(Table):
    """Files written beside summary.json."""

    interval: Annotated[int, Field(ge=0)] = 0
    """Steps between two field files; 0: only the last fields."""
    fields: bool = True
    """Write the last fields as VTKHDF."""
    picture: bool = True
    """Draw the mid-plane and the residual history as PNG; with run --check, the geometry."""
    frames: Annotated[int, Field(ge=0, le=200)] = 0
    """Frames of animation.gif, of the picture's plane, and cells.gif, of cells in blood, evenly over
    the steps of the run; 0: none."""
    probes: Annotated[tuple[Probe, ...], Field(max_length=1000)] = ()
    """Points whose values are recorded: [[output.probes]] tables."""
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
            raise CaseFault(
                f"two probes are named {twice!r}", remedy="give each probe its own name"
            )
        return probes


class Checkpoint(Table):
    """When the state is saved for a restart."""

    interval: Annotated[int, Field(ge=0)] = 0
    """Steps between two checkpoints; 0: no checkpoints by steps."""
    minutes: Annotated[float, Field(ge=0.0)] = 10.0
    """Minutes between two checkpoints; 0: no checkpoints by time."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of newest checkpoints to keep."""
    at_end: bool = False
    """Save a checkpoint at the end of the run."""


class Machine(Table):
    """Device, ranks and transport of the run.

    Results on cores do not depend on this table, with three exceptions on several ranks: flow agrees with
    one rank within the tolerances of its solvers, sums over all elements of maxwell differ in their last
    digits, and fields of maxwell with the exponential integrator agree within krylov.tolerance.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """cpu, cuda, or auto: a GPU if there is one."""
    threads: Annotated[int, Field(ge=0, le=4096)] = 0
    """Threads a rank on cores; 0: the cores assigned to the rank, divided among ranks that share them."""
    decomposition: Literal["auto", "1d", "2d", "3d"] | tuple[int, int, int] = "auto"
    """Cavity only, whose grid is cut into blocks: auto, 1d, 2d, 3d (number of cut axes, slowest first) or
    blocks along x, y, z. The other solvers partition their grids themselves and accept only auto."""
    transport: Literal["auto", "host", "staged", "mpi", "nccl", "peer", "repacked"] = "auto"
    """Transport of messages: host (cores), staged (GPUs through host memory), mpi (GPU-aware MPI),
    nccl, peer (directly into the memory of the neighbour's GPU, one host), or auto: the fastest that
    works, measured with the messages of the case. repacked, for studies of blood: through host memory,
    where values are reordered before and after MPI."""
    overlap: bool = True
    """Compute the interior while messages travel."""
    progress: Literal["none", "test", "thread"] = "none"
    """Cavity only: progress of MPI between cores while the interior is computed. none: no progress;
    test: MPI tests between parts of the interior; thread: a thread that tests continuously."""
    graphs: bool = True
    """Replay steps as CUDA graphs if the transport allows it."""
    packing: Literal["auto", "all", "x", "none"] = "auto"
    """Cavity only: directions that are packed into one message a neighbour; in the other directions each
    plane of each field is copied and sent separately (for studies). auto: all directions; if GPUs can
    access each other's memory, the update writes the neighbours' ghosts without messages, or messages
    overlap with the interior. If x is cut, rows lie along an axis that is not cut; if all axes are cut
    or the other axes are too short, nothing overlaps on GPUs. With all, x, none and with uniform widths
    rows lie along x."""
    widths: Literal["fields", "uniform"] = "fields"
    """Cavity only, for studies: number of layers to exchange. fields: the layers that the stencil of each
    field needs; uniform: for all fields the layers that the widest stencil needs."""


@dataclass(frozen=True)
class Exclusion:
    """Keys that contradict each other: a case that gives both is refused."""

    keys: tuple[str, ...]  # The keys, as the reference lists them
    reason: str  # Why they contradict each other
    example: tuple[str, ...]  # Settings which, added to the solver's template, are refused


class CaseTable(Table):
    """The top of a case file; each solver adds the table named after it."""

    solver: str
    """Name of the solver."""
    title: Annotated[str, Field(max_length=200)] = ""
    """Title in pictures and summaries."""
    run: Run = Run()
    output: Output = Output()
    checkpoint: Checkpoint = Checkpoint()
    machine: Machine = Machine()

    cuts_blocks: ClassVar[bool] = False
    """Whether the solver's grid is cut into blocks for ranks."""
    exclusions: ClassVar[tuple[Exclusion, ...]] = ()
    """Keys that exclude each other, for the reference and its test."""

    def boundary_conditions(self) -> dict[str, str]:
        """Conditions for people, by the name of the boundary."""
        return {}

    @model_validator(mode="after")
    def _of_blocks(self) -> CaseTable:
        if self.cuts_blocks:
            return self
        for key in _OF_BLOCKS:
            setting, default = getattr(self.machine, key), Machine.model_fields[key].default
            if setting != default:
                raise CaseFault(
                    f"it applies to grids that are cut into blocks; {self.solver} partitions its grid otherwise",
                    location=f"machine.{key} = {_toml(setting)}",
                    allowed=_toml(default),
                    remedy=f"leave machine.{key} out",
                )
        return self


# Keys of the machine that only blocks of a grid have.
_OF_BLOCKS = ("decomposition", "progress", "packing", "widths")


def _nearest_file(path: Path, kind: str) -> str:
    """The remedy for a file that does not exist: the nearest name, or how to find one."""
    files = [file.name for file in path.parent.glob("*.toml")]
    near = difflib.get_close_matches(path.name, files, 1)
    name = shipped.closest(path.stem) if kind == "case" else None
    if name is not None and not (near and path.suffix):
        return f"did you mean the shipped case {name}?"
    if near:
        return f"did you mean {path.parent / near[0]}?"
    or_name = ", or a name that haloscope cases lists" if kind == "case" else ""
    return f"give the path of a {kind} file{or_name}"


def read_toml(path: Path, kind: str = "case") -> dict[str, Any]:
    """Read a TOML file; errors call it by its kind."""
    file = f"{kind} file {path}"
    try:
        if path.is_dir():
            raise InputError(
                "it is a folder", location=file, remedy="give the path of a TOML file in it"
            )
        if not path.is_file():
            raise InputError("it does not exist", location=file, remedy=_nearest_file(path, kind))
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(
                f"it has {path.stat().st_size} bytes",
                location=file,
                allowed=f"at most {_LARGEST_FILE} bytes",
                remedy=f"give the path of a {kind} file",
            )
        text = decoded(path.read_bytes(), file)
        # The parser's memory grows with the square of the dots in a key.
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(".") > _MOST_DOTS:
                raise InputError(
                    f"it holds {line.count('.')} dots",
                    location=f"{file}, line {number}",
                    allowed=f"at most {_MOST_DOTS} in a line",
                    remedy="break the line",
                )
        data = tomllib.loads(text)
        _require_no_nul(data, file)
        return data
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(text, error).within(file) from error
    except RecursionError as error:
        raise _too_deep(file) from error
    except ValueError as error:
        raise _too_many_digits(file) from error
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror})",
            location=file,
            remedy="check the path and its permissions",
        ) from error


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
        raise InputError(
            f"{value!r} holds a character of value zero (\\u0000)",
            location=name,
            remedy="remove it",
        )


def _syntax_error(text: str, error: tomllib.TOMLDecodeError) -> InputError:
    """The refusal of a text that is not TOML, with its line and how TOML is written."""
    message = str(error)
    position = re.search(r" \(at (line (\d+), column \d+)\)", message)
    if position is None:
        return InputError(
            f"it is not TOML: {message}",
            remedy="complete its end, where a bracket or a quote may be missing",
        )
    line = _shortened(text.split("\n")[int(position[2]) - 1].strip())
    return InputError(
        f"it is not TOML: {line!r} ({message.replace(position[0], '')})",
        location=position[1],
        remedy="give each key and table once"
        if message.startswith("Cannot")
        else "write key = value, with keys of a-z, A-Z, 0-9, _ and -, text in quotes, lists in brackets",
    )


def _too_deep(location: str) -> InputError:
    return InputError(
        "it is nested too deeply",
        location=location,
        allowed="tables of tables",
        remedy="remove the innermost brackets",
    )


def _too_many_digits(location: str) -> InputError:
    # Of an integer in base 16, say, only when it is written in base 10.
    return InputError(
        f"it holds an integer of more than {_MOST_DIGITS} digits",
        location=location,
        allowed=f"integers of at most {_MOST_DIGITS} digits",
        remedy="shorten it",
    )


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
            location = f"settings {_shortened(repr(key))}"
            if not isinstance(key, str):
                raise _wrong_settings(f"the key {_shortened(repr(key))} is not text")
            _put(data, _keys_of(key, location), plain(value, f"settings {key}"), "settings")
        return
    for setting in settings:
        if not isinstance(setting, str):
            raise _wrong_settings(f"the item {_shortened(repr(setting))} is not text")
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
        raise _too_deep(location)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"the key {_shortened(repr(key))} is not text", location=location)
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
    _require_no_nul(value, location)
    return value


def _keys_of(path: str, location: str) -> list[str]:
    """Keys of a dotted path."""
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
    shortened = f"--set {_shortened(setting)!r}"
    keys = _keys_of(path, shortened)
    if text.count(".") > _MOST_DOTS:
        raise InputError(
            f"it holds {text.count('.')} dots in its value",
            location=shortened,
            allowed=f"at most {_MOST_DOTS}",
            remedy="write it into the case file",
        )
    try:
        read = tomllib.loads(f"value = {text.strip()}")
    except (tomllib.TOMLDecodeError, RecursionError):
        read = {"value": text.strip()}
    except ValueError as error:
        raise _too_many_digits(shortened) from error
    if len(read) > 1:
        raise InputError(
            "it gives more than one value",
            location=f"--set {setting!r}",
            remedy="give each key its own --set",
        )
    _require_no_nul(read, f"--set {_shortened(setting)}")
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


def check(data: dict[str, Any], model: type[CaseTable], source: str) -> CaseTable:
    """Check the data of a case against a model."""
    try:
        for key, value in _values(data):
            if not isinstance(value, str | int | float):
                raise InputError(
                    f"no key takes a {type(value).__name__}",
                    location=f"{source}: {key} = {value}",
                    allowed="numbers, text, true and false",
                )
        text = json.dumps(data)
    except RecursionError as error:
        raise _too_deep(source) from error
    except ValueError as error:
        raise _too_many_digits(source) from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise _input_error(error, model).within(source) from None
    except InputError as error:
        raise error.within(source) from None


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
    path: Path, settings: Settings, model_of: Callable[[str], type[CaseTable]]
) -> CaseTable:
    """Read and check a case file."""
    return _checked_case(read_toml(path), str(path), settings, model_of)


def case_from(
    tables: Mapping[str, Any], settings: Settings, model_of: Callable[[str], type[CaseTable]]
) -> CaseTable:
    """Check a case in the form of a dict of its tables; the dict is not changed."""
    return _checked_case(plain(tables, "case"), "case", settings, model_of)


def _checked_case(
    data: dict[str, Any],
    source: str,
    settings: Settings,
    model_of: Callable[[str], type[CaseTable]],
) -> CaseTable:
    if "series" in data:
        raise InputError(
            "it is a study, not a case: it has the key series",
            location=source,
            remedy=f"run it with: haloscope scale {source}",
        )
    override(data, settings)
    solver = data.get("solver")
    if not isinstance(solver, str):
        raise InputError(
            "the key is missing",
            location=f"{source}: solver",
            remedy='write for example solver = "cavity"',
        )
    try:
        model = model_of(solver)
    except InputError as error:
        raise error.within(source) from None
    own = model.model_fields.get(solver)
    if own is not None and own.is_required() and solver not in data:
        raise InputError(
            "the table is missing",
            location=f"{source}: [{solver}]",
            remedy=f"write a whole case to start from with: haloscope new {solver}",
        )
    return check(data, model, source)


@contextlib.contextmanager
def naming_file(path: Path | str) -> Iterator[None]:
    """Let what is found wrong with a case after its check name the case file, too."""
    try:
        yield
    except InputError as error:
        raise error.within(path) from error


def _input_error(error: ValidationError, model: type[Table]) -> InputError:
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
    model: type[Table],
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
        setting = f"{key} = {_shortened(repr(fault['input']))}"
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
    if isinstance(raised, CaseFault):
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
        return "wrong characters", f"text that matches the {allowed}"
    if verb == "have":
        return "wrong length", allowed.partition(" after validation")[0]
    return "out of range" if fault["type"] in _LIMITS else "wrong value", allowed


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
        f"the name {_shortened(repr(name))} is not allowed: {problem}",
        location=key,
        allowed=allowed,
    )


def _unknown_key(key: str, name: str, allowed: Sequence[str]) -> InputError:
    near = difflib.get_close_matches(name, allowed, 1, 0.5)
    return InputError(
        "unknown key",
        location=key,
        allowed=", ".join(allowed),
        remedy=f"did you mean {near[0]}?" if near else "",
    )


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
# Problems of the faults that say least; the others of them are wrong types.
_PROBLEMS = {
    "literal_error": "unknown value",
    "missing": "wrong length",
    "too_long": "wrong length",
}
# What TOML calls differently from JSON.
_IN_TOML = {"a valid array": "a list", "an object": "a table", "a valid string": "text"}


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
