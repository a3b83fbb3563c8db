"""Sweeps the axes of a study: its points, and the reference of each."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, field_validator, model_validator

from haloscope.case.tables import CaseFault, CaseTable, PositiveInt, Table, check
from haloscope.case.toml_files import override, read_toml
from haloscope.errors import FIELDS, HaloscopeError, InputError
from haloscope.solvers import registry
from haloscope.solvers.sweeping import Layout, plain, spelled

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


_MOST_ROWS = 10_000

# Axes that are keys of the table machine, for every solver.
_MACHINE_KEYS = ("device", "threads", "transport", "overlap", "graphs")
# And those that are none of a case, or say how ranks share its problem.
_OTHER_AXES = ("ranks", "growth", "ranks_per_node", "mpi")
_CUT = "decomposition"
# What one rank, which has nobody to send to, does the same way whatever is asked.
_KEYS_OF_SEVERAL_RANKS = ("transport", "packing", "widths", "overlap", "progress")


@dataclass(frozen=True)
class Point:
    """One measurement, with all that matters for its result."""

    id: str  # Hash of all the rest
    kind: str  # ``timed``, or ``reference``: one rank that only takes the steps of the check
    ranks: int
    mpi: str | None  # Name of the MPI; None for the one of this Python
    ranks_per_node: int | None  # None: as many as fit
    device: str
    threads: int  # Of each rank; 0: its share of the cores
    case: dict[str, Any]  # Data of the case, checked and complete
    check_steps: int
    warmup: int
    steps: int
    repeats: int
    phases: bool = False  # Tell the time of a step by phase, too
    energy: bool = True  # And what it takes, where there is a meter

    @property
    def group(self) -> tuple[Any, ...]:
        """Points of one group can share one start of ranks; those of one rank come first."""
        return (self.ranks, self.mpi or "", self.ranks_per_node or 0, self.device, self.threads)


@dataclass(frozen=True)
class Row:
    """A point as a series sees it."""

    series: str  # Name of the series
    asked: dict[str, Any]  # Its value on each axis that the series names
    varied: tuple[str, ...]  # Axes but ranks on which the series has several values
    # Keys of the case that tables may show, whether they matter to one rank or not.
    shown: dict[str, Any]
    layout: Layout  # Its problem, and how ranks share it
    point: Point
    base: str  # Id of the point of one rank on the problem that has not grown

    @property
    def nodes(self) -> tuple[int, ...]:
        """Size of the problem along each axis."""
        return self.layout.nodes

    @property
    def parts(self) -> tuple[int, ...]:
        """How it is cut, along each axis."""
        return self.layout.parts


@dataclass(frozen=True)
class Sweep:
    """All rows of a study."""

    study: Study  # The file
    rows: tuple[Row, ...]  # In the order of the file; several rows may share a point

    @cached_property
    def references(self) -> dict[str, Point]:
        """For each point of the rows, by id, the point of one rank whose fields it must have."""
        known: dict[str, Point] = {}
        for row in self.rows:
            if row.point.ranks == 1:
                known.setdefault(_reference_key(row.point), row.point)
        references = {}
        for row in self.rows:
            key = _reference_key(row.point)
            if key not in known:
                known[key] = _reference(row.point)
            references[row.point.id] = known[key]
        return references


def sweep(study: Study, source: str, *, device: str | None = None, gpus: int = 0) -> Sweep:
    """Expand all series of a study."""
    axes_of = [{key: getattr(series, key) or (None,) for key in SWEPT} for series in study.series]
    count = sum(math.prod(map(len, axes.values())) for axes in axes_of)
    if count > _MOST_ROWS:
        raise InputError(
            f"the study has {count} points",
            location=source,
            allowed=f"at most {_MOST_ROWS}",
            remedy="split it",
        )
    rows: list[Row] = []
    for series, axes in zip(study.series, axes_of, strict=True):
        _check_axes(study.solver, series, source)
        varied = tuple(key for key in SWEPT if key != "ranks" and len(axes[key]) > 1)
        for values in itertools.product(*axes.values()):
            chosen = {k: v for k, v in zip(axes, values, strict=True) if v is not None}
            try:
                rows.append(_row(study, series, chosen, varied, device, gpus))
            except HaloscopeError as error:
                settings = ", ".join(f"{k} = {spelled(v)}" for k, v in chosen.items())
                located = error.within(f"{source}, series {series.name!r} at {settings}")
                raise InputError(**{field: getattr(located, field) for field in FIELDS}) from None
    return Sweep(study, tuple(rows))


def _check_axes(solver: str, series: Series, source: str) -> None:
    """Refuse axes that a solver does not have, and values that one has twice."""
    own = registry.sweeping(solver)
    known = (*_OTHER_AXES, *own.OWN_AXES, *_MACHINE_KEYS, *own.MACHINE_AXES)
    for key in SWEPT:
        if getattr(series, key) is not None and key not in known:
            raise InputError(
                f"the solver {solver} has no such axis",
                location=f"{source}, series {series.name!r}: {key}",
                allowed=", ".join(key for key in SWEPT if key in known),
            )
        values = getattr(series, key) or ()
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise InputError(
                f"{spelled(twice)} occurs twice",
                location=f"{source}, series {series.name!r}: {key}",
                remedy="give each value once",
            )
    for growth in series.growth:
        if growth not in own.GROWTHS:
            raise InputError(
                f"the solver {solver} has no such growth",
                location=f"{source}, series {series.name!r}: growth = {growth}",
                allowed=", ".join(own.GROWTHS),
            )


def _row(
    study: Study,
    series: Series,
    chosen: dict[str, Any],
    varied: tuple[str, ...],
    device: str | None,
    gpus: int,
) -> Row:
    if device is not None:
        chosen = {**chosen, "device": device}
    point, shown, layout = _point(study, series, chosen, gpus)
    alone = {**chosen, "ranks": 1, _CUT: "auto", "growth": "strong"}
    base, _, _ = _point(study, series, alone, gpus)
    return Row(
        series=series.name,
        asked=chosen,
        varied=varied,
        shown=shown,
        layout=layout,
        point=point,
        base=base.id,
    )


def _point(
    study: Study, series: Series, chosen: Mapping[str, Any], gpus: int
) -> tuple[Point, dict[str, Any], Layout]:
    """The point for one value of each axis, keys that tables may show, and its layout."""
    solver = registry.sweeping(study.solver)
    data = copy.deepcopy(study.case)
    data["solver"] = study.solver
    override(data, series.set)
    _checked(data)
    machine: dict[str, Any] = data.setdefault("machine", {})
    own: dict[str, Any] = data.setdefault(study.solver, {})
    for key, value in chosen.items():
        if key in solver.OWN_AXES:
            solver.put(own, key, value)
        elif key in (*_MACHINE_KEYS, *solver.MACHINE_AXES):
            machine[key] = plain(value)
    if machine.get("device", "auto") == "auto":
        machine["device"] = "cuda" if gpus else "cpu"
    if machine["device"] == "cpu":
        # A rank is to keep its share of the machine at every rank count.
        machine["threads"] = machine.get("threads") or 1
    ranks: int = chosen["ranks"]
    layout = solver.lay_out(data, ranks, machine.pop(_CUT, "auto"), chosen["growth"])
    case = _checked(data)
    solver.check_transport(case.machine, layout)
    shown = {**_dumped(case)["machine"], **_dumped(case)[study.solver]}
    if ranks == 1:
        for key in _KEYS_OF_SEVERAL_RANKS:
            machine.pop(key, None)
        case = _checked(data)
    point = Point(
        id="",
        kind="timed",
        ranks=ranks,
        mpi=chosen.get("mpi") if ranks > 1 else None,
        ranks_per_node=chosen.get("ranks_per_node") if ranks > 1 else None,
        device=case.machine.device,
        threads=case.machine.threads,
        case={key: value for key, value in _dumped(case).items() if key not in UNUSED},
        check_steps=study.check_steps,
        warmup=study.steps if study.warmup is None else study.warmup,
        steps=study.steps,
        repeats=study.repeats,
        phases=study.phases and (machine["device"] == "cpu" or not case.machine.graphs),
        energy=study.energy,
    )
    return _named(point), shown, layout


def _checked(data: dict[str, Any]) -> CaseTable:
    return check(data, registry.case_model(data["solver"]), "case")


def _dumped(case: CaseTable) -> dict[str, Any]:
    dumped: dict[str, Any] = json.loads(case.model_dump_json(exclude_none=True))
    return dumped


def _named(point: Point) -> Point:
    """The point with the hash of all that matters for its result as its id."""
    content = {k: v for k, v in dataclasses.asdict(point).items() if k != "id"}
    return dataclasses.replace(point, id=_hash(content))


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _reference_key(point: Point) -> str:
    """Common settings of two points that must give the same fields."""
    solver = point.case["solver"]
    alike = registry.sweeping(solver).SAME_BITS
    own = {key: value for key, value in point.case[solver].items() if key not in alike}
    return _hash([own, point.device, point.check_steps])


def _reference(point: Point) -> Point:
    """One rank that takes the steps of a point's check."""
    alone = registry.sweeping(point.case["solver"]).ALONE
    machine = {"device": point.device, "threads": point.threads, **alone}
    return _named(
        dataclasses.replace(
            point,
            kind="reference",
            ranks=1,
            mpi=None,
            ranks_per_node=None,
            case={**point.case, "machine": machine},
            warmup=0,
            steps=0,
            repeats=0,
            phases=False,
            energy=False,
        )
    )
