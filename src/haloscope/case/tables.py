"""Tables of case files: their keys, checks of a case against them, and rows for the reference."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from haloscope.case.faults import input_error
from haloscope.case.toml_files import (
    Settings,
    beginning,
    override,
    plain,
    read_toml,
    too_deep,
    too_many_digits,
)
from haloscope.errors import InputError, WithFields

PositiveInt = Annotated[int, Field(ge=1, le=2**40)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
# What lies beyond is a slip of the pen, and its squares and products may be no numbers.
SMALLEST, LARGEST = 1e-30, 1e30
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]
NotNegative = Annotated[float, Field(ge=0.0, le=LARGEST)]
Coordinate = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
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
            shown = value if isinstance(value, str) else toml_text(value)
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
    """Checkpoints of the state for a restart."""

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
                    location=f"machine.{key} = {toml_text(setting)}",
                    allowed=toml_text(default),
                    remedy=f"leave machine.{key} out",
                )
        return self


# Keys of the machine that only blocks of a grid have.
_OF_BLOCKS = ("decomposition", "progress", "packing", "widths")


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
        raise too_deep(source) from error
    except ValueError as error:
        raise too_many_digits(source) from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise input_error(error, model).within(source) from None
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
        missing = solver is None
        raise InputError(
            "the key is missing" if missing else "wrong type",
            location=f"{source}: solver" + ("" if missing else f" = {beginning(repr(solver))}"),
            allowed="" if missing else "the name of a solver, as text",
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


def toml_text(value: Any) -> str:
    """A value as a case file has it."""
    if value is None:
        return "not set"
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value)
