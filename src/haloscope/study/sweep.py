"""Sweeps the axes of a study: which points there are, and what each is held against."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from haloscope.case import CaseTable, Machine, check, override
from haloscope.domain.blocks import AXES, Blocks, Triple, arrange
from haloscope.errors import HaloscopeError, InputError
from haloscope.solvers import registry
from haloscope.study.keys import SWEPT, UNUSED, Series, Study

_MOST_ROWS = 10_000

# Axes that are keys of the table machine, and of the table named after the solver.
_MACHINE_KEYS = (
    *("device", "threads", "transport", "packing", "widths", "overlap", "progress", "graphs"),
)
_SOLVER_KEYS = ("nodes", "precision", "time_step")
# What one rank, which has nobody to send to, does the same way whatever is asked.
_KEYS_OF_SEVERAL_RANKS = ("transport", "packing", "widths", "overlap", "progress")
# The keys of a solver's table that hold its grid; both grow when a problem grows with its ranks.
_NODES_KEY, _SIZE_KEY = "nodes", "size"
# Which transports work with a device, and which of them can send a plane by itself.
_TRANSPORTS = {
    "cpu": ("auto", "host", "staged"),
    "cuda": ("auto", "staged", "mpi", "nccl", "peer"),
}
_BARE_TRANSPORTS = {"cpu": ("auto", "host", "staged"), "cuda": ("auto", "staged", "peer")}


@dataclass(frozen=True)
class Point:
    """One measurement, with all that matters for its result.

    Attributes
    ----------
    id
        Hash of all the rest.
    kind
        ``timed``, or ``reference``: one rank that only takes the steps of the check.
    mpi
        Name of the MPI; None for the one of this Python.
    ranks_per_node
        None: as many as fit.
    threads
        Of each rank; 0: its share of the cores.
    case
        Data of the case, checked and complete.
    """

    id: str
    kind: str
    ranks: int
    mpi: str | None
    ranks_per_node: int | None
    device: str
    threads: int
    case: dict[str, Any]
    check_steps: int
    warmup: int
    steps: int
    repeats: int

    @property
    def group(self) -> tuple[Any, ...]:
        """Points of one group can share one start of ranks; those of one rank come first."""
        return (self.ranks, self.mpi or "", self.ranks_per_node or 0, self.device, self.threads)


@dataclass(frozen=True)
class Row:
    """A point as a series sees it.

    Attributes
    ----------
    series
        Name of the series.
    asked
        Its value on each axis that the series names.
    varied
        Axes but ranks on which the series has several values.
    shown
        Values of the case's keys that the table shows, whether they matter to one rank or not.
    nodes, parts
        The grid and its blocks.
    base
        Id of the point of one rank on the grid that has not grown.
    """

    series: str
    asked: dict[str, Any]
    varied: tuple[str, ...]
    shown: dict[str, Any]
    nodes: Triple
    parts: Triple
    point: Point
    base: str


@dataclass(frozen=True)
class Sweep:
    """All rows of a study.

    Attributes
    ----------
    study
        The file.
    rows
        In the order of the file; several rows may share a point.
    """

    study: Study
    rows: tuple[Row, ...]

    @cached_property
    def references(self) -> dict[str, Point]:
        """For each point of the rows, by id, the point of one rank whose fields it must have."""
        known: dict[str, Point] = {}
        for row in self.rows:
            if row.point.ranks == 1:
                known.setdefault(_reference_key(row.point), row.point)
        found = {}
        for row in self.rows:
            key = _reference_key(row.point)
            if key not in known:
                known[key] = _reference(row.point)
            found[row.point.id] = known[key]
        return found


def sweep(study: Study, source: str, *, device: str | None = None, gpus: int = 0) -> Sweep:
    """Expand all series of a study.

    Parameters
    ----------
    study
        The file.
    source
        Its name for messages.
    device
        In place of the device of all points.
    gpus
        GPUs of this machine: with any, ``auto`` is ``cuda``.

    Raises
    ------
    InputError
        A point is impossible: names the series, the axes and the key.
    """
    rows: list[Row] = []
    for series in study.series:
        axes = {key: getattr(series, key) or (None,) for key in SWEPT}
        varied = tuple(key for key in SWEPT if key != "ranks" and len(axes[key]) > 1)
        for values in itertools.product(*axes.values()):
            chosen = {k: v for k, v in zip(axes, values, strict=True) if v is not None}
            if len(rows) == _MOST_ROWS:
                raise InputError(f"{source} sweeps to more than {_MOST_ROWS} points; split it up")
            try:
                rows.append(_row(study, series, chosen, varied, device, gpus))
            except HaloscopeError as error:
                given = ", ".join(f"{k} = {spelled(v)}" for k, v in chosen.items())
                raise InputError(f"{source}, series {series.name!r} at {given}: {error}") from None
    return Sweep(study, tuple(rows))


def spelled(value: Any) -> str:
    """A value of an axis as text: ``1x1x2`` for triples."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "x".join(map(str, value))
    return str(value)


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
    point, shown, blocks = _point(study, series, chosen, gpus)
    alone = {**chosen, "ranks": 1, "decomposition": "auto", "growth": "strong"}
    base, _, _ = _point(study, series, alone, gpus)
    return Row(
        series=series.name,
        asked=chosen,
        varied=varied,
        shown=shown,
        nodes=blocks.nodes,
        parts=blocks.parts,
        point=point,
        base=base.id,
    )


def _point(
    study: Study, series: Series, chosen: Mapping[str, Any], gpus: int
) -> tuple[Point, dict[str, Any], Blocks]:
    """The point for one value of each axis, values of keys that tables show, and the blocks."""
    data = copy.deepcopy(study.case)
    data["solver"] = study.solver
    override(data, series.set)
    _checked(data)
    machine: dict[str, Any] = data.setdefault("machine", {})
    own: dict[str, Any] = data.setdefault(study.solver, {})
    for table, keys in ((machine, _MACHINE_KEYS), (own, _SOLVER_KEYS)):
        table.update({key: _plain(chosen[key]) for key in keys if key in chosen})
    if machine.get("device", "auto") == "auto":
        machine["device"] = "cuda" if gpus else "cpu"
    if machine["device"] == "cpu":
        # A rank is to keep its share of the machine at every rank count.
        machine["threads"] = machine.get("threads") or 1
    ranks: int = chosen["ranks"]
    wanted = chosen.get("decomposition", machine.get("decomposition", "auto"))
    blocks = _grow(study.solver, data, ranks, wanted, chosen["growth"])
    case = _checked(data)
    _check_transport(case.machine, blocks.parts)
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
    )
    return _named(point), {k: v for k, v in shown.items() if k in SWEPT}, blocks


def _grow(solver: str, data: dict[str, Any], ranks: int, wanted: Any, growth: str) -> Blocks:
    """Put the grid and the blocks for a rank count into the data of a case.

    The grid grows as in Table 1 of Xue and Roy (type 1: the axes double in turn, the slowest
    first) or as in their Table 2 (type 2: each axis by the blocks along it), and the size with
    it, so that nodes keep their distance.
    """
    machine = data["machine"]
    machine["decomposition"] = "auto"
    case = _checked(data)
    nodes = _blocks(case, 1).nodes
    if isinstance(wanted, str) and wanted in AXES:
        wanted = tuple(ranks if axis == wanted else 1 for axis in AXES)
    elif not isinstance(wanted, str):
        wanted = tuple(wanted)
    factors: Triple = (1, 1, 1)
    if growth == "type1":
        factors = _doublings(nodes, ranks)
    elif growth == "type2":
        wanted = factors = arrange(nodes, ranks, wanted).parts
    if factors != (1, 1, 1):
        _enlarge(case, data[solver], nodes, factors)
    machine["decomposition"] = _plain(wanted)
    blocks = _blocks(_checked(data), ranks)
    machine["decomposition"] = list(blocks.parts)
    return blocks


def _doublings(nodes: Triple, ranks: int) -> Triple:
    """By what the axes grow, the slowest doubling first."""
    if ranks & (ranks - 1):
        raise InputError(
            f"growth = type1 doubles the grid and needs ranks that are a power of two, not {ranks}"
        )
    factors = [1, 1, 1]
    turns = itertools.cycle(axis for axis in (2, 1, 0) if nodes[axis] > 1)
    for axis in itertools.islice(turns, ranks.bit_length() - 1):
        factors[axis] *= 2
    return (factors[0], factors[1], factors[2])


def _enlarge(case: CaseTable, table: dict[str, Any], nodes: Triple, factors: Triple) -> None:
    """Multiply the nodes along each axis; nodes keep their distance.

    All that this module knows of a solver's grid: its table holds nodes and size.
    """
    size = getattr(getattr(case, case.solver), _SIZE_KEY)
    axes = [axis for axis in range(3) if nodes[axis] > 1]
    sizes = size if isinstance(size, tuple) else (size,) * len(axes)
    grown = [nodes[axis] * factors[axis] for axis in axes]
    table[_NODES_KEY] = grown
    table[_SIZE_KEY] = [
        length * (n - 1) / (nodes[axis] - 1)
        for axis, n, length in zip(axes, grown, sizes, strict=True)
    ]


def _blocks(case: CaseTable, ranks: int) -> Blocks:
    """How the solver cuts a case's grid; refused where the blocks are too thin."""
    module = importlib.import_module(f"haloscope.solvers.{case.solver}.case")
    blocks: Blocks = module.partition(case, ranks)
    return blocks


def _check_transport(machine: Machine, parts: Triple) -> None:
    """Refuse a transport that cannot do what is asked, before anything is started."""
    name, device = machine.transport, machine.device
    packed = {"auto": parts, "all": parts, "x": parts[:1], "none": ()}[machine.packing]
    bare = parts[len(packed) :]
    allowed = _TRANSPORTS[device] if max(bare, default=1) == 1 else _BARE_TRANSPORTS[device]
    if max(parts) > 1 and name not in allowed:
        raise InputError(
            f"transport = {name} does not work with device {device} and packing = "
            f"{machine.packing}; give one of {', '.join(allowed)}"
        )


def _checked(data: dict[str, Any]) -> CaseTable:
    return check(data, registry.case_model(data["solver"]), "case")


def _dumped(case: CaseTable) -> dict[str, Any]:
    """A case as data, complete with all defaults."""
    dumped: dict[str, Any] = json.loads(case.model_dump_json(exclude_none=True))
    return dumped


def _plain(value: Any) -> Any:
    """A value as TOML would give it."""
    return list(value) if isinstance(value, tuple) else value


def _named(point: Point) -> Point:
    """The point with the hash of all that matters for its result as its id."""
    content = {k: v for k, v in dataclasses.asdict(point).items() if k != "id"}
    return dataclasses.replace(point, id=_hash(content))


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _reference_key(point: Point) -> str:
    """What two points must have in common to give the same fields."""
    return _hash([point.case[point.case["solver"]], point.device, point.check_steps])


def _reference(point: Point) -> Point:
    """One rank that takes the steps of a point's check."""
    machine = {"device": point.device, "threads": point.threads, "decomposition": [1, 1, 1]}
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
        )
    )
