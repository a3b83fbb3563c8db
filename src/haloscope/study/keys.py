"""The keys of a study file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, field_validator, model_validator

from haloscope.case.tables import CaseFault, CaseTable, PositiveInt, Table, check
from haloscope.case.toml_files import read_toml
from haloscope.errors import FIELDS, InputError
from haloscope.solvers import registry

# Tables of a case that a study has no use for.
UNUSED = ("title", "run", "output", "checkpoint")

# Keys at the top of a case that no study has there.
_ONLY_OF_CASES = (*registry.NAMES, "run", "output", "checkpoint", "machine")

_MOST_RANKS = 1 << 20

T = TypeVar("T")
# The values of an axis.
Several = tuple[T, ...]

Ranks = Annotated[int, Field(ge=1, le=_MOST_RANKS)]
Threads = Annotated[int, Field(ge=1, le=4096)]
Cut = Literal["auto", "1d", "2d", "3d", "x", "y", "z"] | tuple[Ranks, Ranks, Ranks]
Kind = Literal["auto", "cpu", "cuda"]
Growth = Literal["strong", "type1", "type2"]
Grid = PositiveInt | tuple[PositiveInt, PositiveInt] | tuple[PositiveInt, PositiveInt, PositiveInt]
Length = Annotated[float, Field(gt=0.0, le=1e9)]
SeriesName = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^|\n\r]+$")]
MpiName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]


class Series(Table):
    """A sweep over axes, each with one value or a list of values."""

    name: SeriesName
    """Name in tables and pictures."""
    ranks: Several[Ranks] = (1,)
    """Number of ranks."""
    decomposition: Several[Cut] | None = None
    """auto, 1d, 2d, 3d; x, y, z: cut along one axis only; or blocks along x, y, z."""
    growth: Several[Growth] = ("strong",)
    """strong: one problem for all rank counts; type1, type2: as Tables 1 and 2 of Xue and Roy."""
    nodes: Several[Grid] | None = None
    """Nodes along each axis: a value is one number for all axes, or a list with a number for each axis."""
    elements: Several[Grid] | None = None
    """Elements of a box along each axis, in the same form as nodes."""
    order: Several[PositiveInt] | None = None
    """Polynomial order of the elements."""
    size: Several[tuple[Length, Length, Length]] | None = None
    """Side lengths of a channel in um: a value is a list of three."""
    spacing: Several[Length] | None = None
    """Lattice spacing in um."""
    hematocrit: Several[Annotated[float, Field(ge=0.0, lt=1.0)]] | None = None
    """Volume fraction of the first kind of cells."""
    delta: Several[str] | None = None
    """As blood.delta."""
    messages: Several[str] | None = None
    """As flow.messages."""
    preconditioner: Several[str] | None = None
    """As flow.linear.preconditioner."""
    precision: Several[str] | None = None
    """Type of the fields."""
    time_step: Several[str] | None = None
    """How the solver chooses its time step."""
    device: Several[Kind] | None = None
    """cpu, cuda, or auto."""
    threads: Several[Threads] | None = None
    """Threads a rank on cores; default: machine.threads of the case, else 1."""
    ranks_per_node: Several[Ranks] | None = None
    """Ranks on each host."""
    mpi: Several[MpiName] | None = None
    """Name of a table [mpi.NAME]."""
    transport: Several[str] | None = None
    """As machine.transport."""
    packing: Several[str] | None = None
    """As machine.packing."""
    widths: Several[str] | None = None
    """As machine.widths."""
    overlap: Several[bool] | None = None
    """As machine.overlap."""
    progress: Several[str] | None = None
    """As machine.progress."""
    graphs: Several[bool] | None = None
    """As machine.graphs."""
    set: tuple[str, ...] = ()
    """Further keys of the case for the whole series: "table.key=value"."""

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, table: Any) -> Any:
        """One value is a list of one; three numbers are one value of the decomposition."""
        if not isinstance(table, dict):
            return table
        swept = {}
        for key, value in table.items():
            if value == [] and key != "set":
                raise CaseFault(
                    "an axis needs a value",
                    location=f"{key} = []",
                    remedy="give one, or remove the key",
                )
            alone = not isinstance(value, list)
            if key == "decomposition" and not alone:
                alone = all(isinstance(part, int) for part in value)
            wrapped = [value] if alone and key != "name" else value
            swept[key] = _tuples(wrapped)
        return swept


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# In the order of the sweep: the last varies fastest.
SWEPT = tuple(key for key in Series.model_fields if key not in ("name", "set"))


class Mpi(Table):
    """Another MPI library."""

    python: str
    """Path of a Python that has haloscope and an mpi4py of this library; relative to the study file."""


class Limits(Table):
    """Limits on the points that run on this machine."""

    oversubscribe: Annotated[float, Field(ge=1.0, le=1000.0)] = 2.0
    """Largest ratio of threads of all ranks to cores."""
    share_gpus: bool = False
    """Let several ranks share a GPU."""
    point_seconds: Annotated[float, Field(gt=0.0, le=1e7)] = 1800.0
    """Time limit of a point in s; a point that exceeds it fails and the other points run."""


class Published(Table):
    """Published numbers to compare with the measured numbers."""

    file: str
    """CSV with the columns label, decomposition, ranks, ssspnt, efficiency; relative to the study.
    A row belongs to the series of its label."""
    name: Annotated[str, Field(min_length=1, max_length=60)] = "published"
    """Name of the published numbers in tables and pictures."""


class Study(Table):
    """A study file."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    """Heading of the report."""
    about: Annotated[str, Field(max_length=5000)] = ""
    """Description in the report."""
    solver: str = "cavity"
    """Name of the solver."""
    steps: PositiveInt = 20
    """Steps of a timed block."""
    warmup: Annotated[int, Field(ge=0, le=2**40)] | None = None
    """Steps before the first timed block; default: steps. Kernels are compiled, graphs recorded and
    transports measured in these steps."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 5
    """Timed blocks of a point."""
    phases: bool = False
    """Run one more block after the timed blocks, in which the host waits for the device at the begin and
    end of each phase, and report the time of a step by phase. Points on GPUs that replay steps as graphs
    are left out: set graphs = false."""
    energy: bool = True
    """Measure the energy of a step if the machine has a meter; takes a second a point."""
    check_steps: Annotated[int, Field(ge=0, le=2**40)] = 20
    """Steps after which the fields are compared with the fields of one rank; 0: no comparison, and no
    set-up of the same problem on one rank."""
    case: dict[str, Any] = Field(default_factory=dict)
    """Tables of a case: the solver's own and machine."""
    mpi: dict[MpiName, Mpi] = Field(default_factory=dict)
    """MPI libraries: [mpi.NAME] tables."""
    limits: Limits = Limits()
    """Limits on the points that run."""
    published: Published | None = None
    """Published numbers."""
    series: tuple[Series, ...]
    """[[series]] tables."""

    @field_validator("case")
    @classmethod
    def _only_keys_of_studies(cls, case: dict[str, Any]) -> dict[str, Any]:
        for key in ("solver", *UNUSED):
            if key in case:
                raise CaseFault(
                    "a study does not use it: title and solver are at the top of the study, its steps are "
                    "steps, warmup and repeats, and it writes no fields",
                    location=key,
                    remedy="remove it",
                )
        return case

    @model_validator(mode="after")
    def _names_that_fit(self) -> Study:
        if not self.series:
            raise CaseFault(
                "a study needs a series", location="series = []", remedy="add a table [[series]]"
            )
        names = [series.name for series in self.series]
        for series in self.series:
            if names.count(series.name) > 1:
                raise CaseFault(
                    f"two series are named {series.name!r}", remedy="give each series its own name"
                )
            for name in series.mpi or ():
                if name not in self.mpi:
                    known = ", ".join(self.mpi) or "none"
                    raise CaseFault(
                        f"there is no table [mpi.{name}]",
                        location=f"series {series.name!r}: mpi = {name!r}",
                        allowed=known,
                    )
        return self


def read_study(path: Path) -> Study:
    """Read and check a study file."""
    data = read_toml(path, "study")
    of_a_case = [key for key in _ONLY_OF_CASES if key in data]
    if of_a_case and "series" not in data:
        raise InputError(
            f"it is a case, not a study: it has the key {of_a_case[0]} and no series",
            location=str(path),
            remedy=f"run it with: haloscope run {path}",
        )
    try:
        study = cast("Study", check(data, cast("type[CaseTable]", Study), str(path)))
    except InputError as error:
        fields = {field: _with_names(getattr(error, field), data.get("series")) for field in FIELDS}
        raise InputError(**fields) from None
    try:
        registry.check_name(study.solver)
    except InputError as error:
        raise error.within(path) from None
    return study


def _with_names(message: str, series: Any) -> str:
    """A part of a message that calls a series by its name instead of its number."""

    def name(match: re.Match[str]) -> str:
        table = series[int(match[1])] if isinstance(series, list) else None
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            return match[0]
        return f"series {table['name']!r}" + (", key " if match[2] else "")

    return re.sub(r"\bseries\.(\d+)(\.?)", name, message)
