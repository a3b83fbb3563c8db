"""Sweeps the axes of a study: its points, and the reference of each."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from haloscope.case.settings import override
from haloscope.case.tables import CaseTable, check
from haloscope.errors import FIELDS, HaloscopeError, InputError
from haloscope.solvers import registry
from haloscope.solvers.sweeping import Layout, plain, spelled
from haloscope.study.keys import SWEPT, UNUSED, Series, Study

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
    """A case as data, complete with all defaults."""
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
