"""The result of an analysis: metrics by call path and location, sums over subtrees, the POP efficiencies."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.io.atomic import atomic_hdf5
from haloscope.scope.analysis.metrics import BY_NAME, METRICS, children
from haloscope.scope.trace.measurement import (
    MOST_NUMBER,
    MOST_RANKS,
    Communicator,
    Location,
    Measurement,
    Node,
    Region,
    names_to,
)

# A call path gets one where it has `MANY` or more call paths below it that belong to no other sum. So
# there is at most one sum for `MANY` rows, and a whole subtree is a few sums and a few rows.

MANY = 64


class Subtrees:
    """Which call paths have a sum."""

    def __init__(self, parents: Sequence[int]) -> None:
        up = [parent if 0 <= parent < node else -1 for node, parent in enumerate(parents)]
        alone = [1] * len(up)  # at and below each node, without what belongs to a sum
        rows = []
        for node in range(len(up) - 1, -1, -1):
            if alone[node] >= MANY:
                rows.append(node)
            elif up[node] >= 0:
                alone[up[node]] += alone[node]
        self.nodes = np.array(rows[::-1], np.int64)  # Those that have one, ascending, shape (k,)
        place = {node: number for number, node in enumerate(rows[::-1])}
        self._parents = np.array(up, np.int64)
        # Of each node the innermost sum that it belongs to, and of each sum the one around it.
        self._belongs = np.full(len(up), -1, np.int64)
        self._around = np.full(len(rows), -1, np.int64)
        for node, parent in enumerate(up):
            outer = self._belongs[parent] if parent >= 0 else -1
            own = place.get(node, -1)
            if own >= 0:
                self._around[own] = outer
            self._belongs[node] = own if own >= 0 else outer

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of values, shape (nodes, locations): shape (k, locations)."""
        sums = np.zeros((len(self.nodes), values.shape[1]))
        for row in np.flatnonzero(values.any(axis=1) & (self._belongs >= 0)).tolist():
            sums[self._belongs[row]] += values[row]
        for number in range(len(sums) - 1, -1, -1):
            if self._around[number] >= 0:
                sums[self._around[number]] += sums[number]
        return sums

    def parts(self, nodes: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Which sums, and which rows beside them, make up a set of nodes.

        `nodes`: which nodes, shape (nodes,). Sums are used where all below a node of it is in it;
        Returns: numbers of the sums; rows, shape (nodes,).
        """
        below = self._parents >= 0
        if not len(self.nodes) or np.any(nodes[self._parents[below]] & ~nodes[below]):
            return np.zeros(0, np.int64), nodes
        held = nodes[self.nodes]
        outermost = held & ~((self._around >= 0) & held[self._around])
        rest = nodes & ~((self._belongs >= 0) & held[self._belongs])
        return np.flatnonzero(outermost), rest


# Kept in one HDF5 file (``analysis.h5``), which explorer, report and exports read.

FILE = "analysis.h5"
_FORMAT = 2
_DAMAGES = (  # what reading a broken file raises
    *(OSError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
)
_MOST_VALUES = 1 << 31
_RANKS = ("members", "remote", "dims", "periods")  # of communicators
_CHUNK_BYTES = 1 << 19  # of a metric's values read at once by who looks at a few call paths

# One row a pair and call path of the sender.
PAIRS = np.dtype(
    [
        ("node", "<i4"),  # call path of the send
        ("sender", "<i4"),  # ranks
        ("receiver", "<i4"),
        ("messages", "<i8"),
        ("empty", "<i8"),
        ("bytes", "<i8"),
        ("seconds", "<f8"),  # transfer: from the later of both enters to the receive's leave
        ("receive_seconds", "<f8"),  # time of the receiver in the completing calls
    ]
)
# One row a wait state, the longest ones where there are many; times on the run's clock.
WAITS = np.dtype(
    [
        ("metric", "<i4"),  # number in metrics.METRICS
        ("node", "<i4"),
        ("location", "<i4"),  # of the one that waits: index into Result.locations
        ("cause", "<i4"),  # location that it waits for
        ("cause_node", "<i4"),  # what that one did when the wait ended
        # The call path that is charged most for the wait: what that one did longer before, or where
        # it rather waited itself, what is charged for that. -1 where no root cause is known.
        ("delay_node", "<i4"),
        ("begin", "<f8"),
        ("end", "<f8"),
    ]
)


@dataclass
class Result:
    """Result of an analysis."""

    # Command, mode, seconds, versions and the like, as in ``measurement.json``, and what the
    # analysis says of itself: ``partial``, ``warnings``, ``span`` (seconds on the run's clock from
    # the first event to the last), ``begin``, ``violations`` of clocks before and after correction,
    # ``critical_path`` in seconds, ``pop`` efficiencies.
    about: dict[str, Any]
    size: int  # Ranks of the run
    # As in :class:`haloscope.scope.trace.measurement.Measurement`; parents before children.
    regions: list[Region]
    nodes: list[Node]
    comms: list[Communicator]
    locations: list[Location]
    # By metric name, shape (nodes, locations): exclusive along the call tree, inclusive along the
    # tree of metrics. Metrics that are zero everywhere may be left out.
    values: dict[str, NDArray[np.float64]]
    # Messages by sender, receiver and call path of the send; dtype :data:`PAIRS`.
    pairs: NDArray[Any] = field(default_factory=lambda: np.zeros(0, PAIRS))
    # Messages by size, shape (nodes, 66): none, 1 byte, up to 2, up to 4, ...
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 66), np.int64))
    # Wait states, dtype :data:`WAITS`, by begin.
    waits: NDArray[Any] = field(default_factory=lambda: np.zeros(0, WAITS))
    # What was left out of a file because it does not fit, one line each.
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, measurement: Measurement) -> Result:
        """A result without values for a measurement."""
        return cls(
            dict(measurement.about),
            measurement.size,
            measurement.regions,
            measurement.nodes,
            measurement.comms,
            measurement.locations,
            {},
        )

    def value(self, metric: str) -> NDArray[np.float64]:
        """Values of a metric, shape (nodes, locations); zeros where there are none."""
        if metric not in BY_NAME:
            raise KeyError(metric)
        value = self.values.get(metric)
        return value if value is not None else np.zeros((len(self.nodes), len(self.locations)))

    def exclusive(self, metric: str) -> NDArray[np.float64]:
        """Values of a metric without the metrics below it."""
        own = self.value(metric).copy()
        for child in children(metric):
            own -= self.value(child.name)
        return own

    def total(self, metric: str) -> float:
        """Sum of a metric over all call paths and locations."""
        return float(self.value(metric).sum())

    def by_rank(self, metric: str) -> NDArray[np.float64]:
        """Sums of a metric by rank, shape (size,)."""
        return self.sums_by_rank(self.value(metric).sum(axis=0))

    def sums_by_rank(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sums by rank of values by location, shape (size,)."""
        return np.asarray(np.bincount(self.rank_of, values, self.size), np.float64)

    @property
    def rank_of(self) -> NDArray[np.int64]:
        """Rank of each location."""
        return np.array([place.rank for place in self.locations], np.int64)

    @property
    def on_stream(self) -> NDArray[np.bool_]:
        """Which locations are streams of GPUs."""
        return np.array([place.kind == "stream" for place in self.locations], np.bool_)

    @property
    def is_first(self) -> NDArray[np.bool_]:
        """Which locations are the first threads of their ranks."""
        return np.array([p.kind != "stream" and p.number == 0 for p in self.locations], bool)

    def region_of(self, node: int) -> Region:
        """Region at the end of a call path."""
        return self.regions[self.nodes[node].region]

    @property
    def node_regions(self) -> list[Region]:
        """Region at the end of each call path."""
        return [self.regions[node.region] for node in self.nodes]

    def by_first_thread(self, metric: str) -> NDArray[np.float64]:
        """Sums of a metric over call paths, of the first thread of each rank, shape (size,)."""
        return self.sums_by_rank(np.where(self.is_first, self.value(metric).sum(axis=0), 0.0))

    def inclusive(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add children to their parents: values (nodes, ...) inclusive along the call tree."""
        whole = np.array(values, np.float64)
        for number in range(len(self.nodes) - 1, 0, -1):
            parent = self.nodes[number].parent
            if parent >= 0:
                whole[parent] += whole[number]
        return whole

    def path_of(self, node: int) -> tuple[str, ...]:
        """Names of the regions from the root to a node."""
        return names_to(node, self.nodes, self.regions)

    def role_of(self, node: int) -> str:
        """Role of a node's region, such as ``send``."""
        return self.region_of(node).role

    def save(self, path: Path) -> None:
        """Write the result, under a temporary name first."""
        names = {
            "format": _FORMAT,
            "about": self.about,
            "size": self.size,
            "regions": [asdict(region) for region in self.regions],
            "nodes": [[node.parent, node.region, node.site] for node in self.nodes],
            "comms": [asdict(comm) for comm in self.comms],
            "locations": [
                {**asdict(place), "events": place.events.name if place.events else None}
                for place in self.locations
            ],
        }
        with atomic_hdf5(path) as file:
            file["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
            large = Subtrees([node.parent for node in self.nodes])
            file.create_group("sums")
            file.create_group("values")
            file["subtrees/nodes"] = large.nodes
            packed = {"compression": "gzip", "shuffle": True}
            for name, values in self.values.items():
                if not np.any(values):
                    continue
                rows, columns = values.shape
                chunks = (min(max(1, _CHUNK_BYTES // (8 * columns)), rows), columns)
                file.create_dataset(f"values/{name}", data=values, chunks=chunks, **packed)
                file[f"sums/{name}/nodes"] = values.sum(axis=1)
                file[f"sums/{name}/locations"] = values.sum(axis=0)
                if len(large.nodes):
                    sums, chunks = large.sums(values), (1, columns)
                    file.create_dataset(
                        f"subtrees/values/{name}", data=sums, chunks=chunks, **packed
                    )
            file["pairs"], file["sizes"], file["waits"] = self.pairs, self.sizes, self.waits

    @classmethod
    def load(cls, path: Path, *, values: bool = True) -> Result:
        """Read a result."""
        if not path.is_file():
            raise InputError(
                "it does not exist",
                location=str(path),
                remedy=f"run haloscope analyze {path.parent} first",
            )
        try:
            with h5py.File(path, "r") as file:
                _check_file(file)
                names = json.loads(file["names"][()].tobytes())
                if names["format"] != _FORMAT:
                    raise ValueError(f"format {names['format']!r:.20}, not {_FORMAT}")
                _check_names(names)
                shape = (len(names["nodes"]), len(names["locations"]))
                if shape[0] * shape[1] > _MOST_VALUES:
                    raise ValueError(f"{shape[0] * shape[1]} values a metric are too many")
                read = {}
                for name, data in file["values"].items() if values else ():
                    if name in BY_NAME and data.shape == shape:
                        read[name] = measured(data[()])
                pairs, waits = file["pairs"], file["waits"]
                if pairs.dtype != PAIRS or waits.dtype != WAITS:
                    raise ValueError("pairs or waits have other columns")
                tables = _fitting(pairs[()], waits[()], file["sizes"][()], shape, names["size"])
                places = [Location(**place) for place in names["locations"]]
                for place in places:  # other folders are not looked into
                    place.events = path.with_name(Path(place.events).name) if place.events else None
                return cls(
                    names["about"],
                    names["size"],
                    [Region(**region) for region in names["regions"]],
                    [Node(*node) for node in names["nodes"]],
                    [
                        Communicator(**(comm | {name: tuple(comm[name]) for name in _RANKS}))
                        for comm in names["comms"]
                    ],
                    places,
                    read,
                    *tables,
                )
        except _DAMAGES as error:
            raise InputError(
                f"this version cannot read the analysis ({error})",
                location=str(path),
                remedy=f"run haloscope analyze {path.parent} again",
            ) from error


# A result may come from anywhere. What would take more memory than the file has bytes for, or lead
# to other files, is refused; so are names of another kind and numbers that lead nowhere.

_LARGEST = 1e30  # what is measured is less, and sums of it are finite
_MOST_PACKED = 1100  # bytes that gzip can make of one
_GROUPS = re.compile(r"/(values|sums|sums/[^/]+|subtrees|subtrees/values)?")


def _check_file(file: h5py.File) -> None:
    """Refuse what is no plain file of tables of the size that it takes."""
    _check_group(file)
    for name in ("names", "pairs", "sizes", "waits"):
        if not isinstance(file[name], h5py.Dataset):
            raise ValueError(f"{name} is not a table")
    for name in {"sums", "subtrees"} & set(file) | {"values"}:
        if not isinstance(file[name], h5py.Group):
            raise ValueError(f"{name} is not a group of tables")


def _check_group(group: h5py.Group) -> None:
    if not _GROUPS.fullmatch(group.name):
        raise ValueError(f"{group.name} is not a table")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError("it links to other files")
        item = group[name]
        if isinstance(item, h5py.Group):
            _check_group(item)
            continue
        if not isinstance(item, h5py.Dataset) or _GROUPS.fullmatch(item.name):
            raise ValueError(f"{item.name} is not a group of tables")
        if item.external is not None or item.is_virtual:
            raise ValueError("it links to data in other files")
        stored = item.id.get_storage_size()
        if item.nbytes > stored * (_MOST_PACKED if item.chunks else 1):
            raise ValueError(f"{item.name} is longer than the file")


def _check_names(names: Any) -> None:
    """Refuse names of another kind, and numbers of regions, parents and ranks that lead nowhere."""
    about, size = names["about"], names["size"]
    if not isinstance(about, dict) or not _is_time(about.get("span", 0.0)):
        raise ValueError("the description of the run is invalid")
    if not _is(size, int) or not 0 < size <= MOST_RANKS:
        raise ValueError(f"{size!r:.40} is not a number of ranks")
    regions, nodes, places = names["regions"], names["nodes"], names["locations"]
    if not all(
        _are(region, name=str, paradigm=str, role=str, file=str, line=int) for region in regions
    ):
        raise ValueError("a region is invalid")
    for number, (parent, region, site) in enumerate(nodes):
        fits = _is(parent, int) and _is(region, int) and _is(site, str)
        if not (fits and -1 <= parent < number and 0 <= region < len(regions)):
            raise ValueError("a node of the call tree has no valid parent or region")
    for place in places:
        fits = _are(place, rank=int, number=int, kind=str, name=str, device=int)
        if not (fits and 0 <= place["rank"] < size and 0 <= place["number"] < MOST_NUMBER):
            raise ValueError("a location is invalid")
        if place["events"] is not None and not _is(place["events"], str):
            raise ValueError("the name of an event file is not text")
    if not nodes or not places:
        raise ValueError("it holds no call path or no location")
    for comm in names["comms"]:
        if not _are(comm, key=str, name=str) or not all(_are_numbers(comm[of]) for of in _RANKS):
            raise ValueError("a communicator is invalid")


def _is(value: Any, kind: type) -> bool:
    return type(value) is kind  # which a bool, for JSON's numbers, is not


def _are(fields: Any, **kinds: type) -> bool:
    return isinstance(fields, dict) and all(_is(fields[name], kind) for name, kind in kinds.items())


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(_is(value, int) for value in values)


def _is_time(value: Any) -> bool:
    return (_is(value, int) or _is(value, float)) and abs(value) < _LARGEST


def measured(values: Any) -> NDArray[np.float64]:
    """Values of a file as numbers; what cannot have been measured counts as zero."""
    numbers = np.asarray(values, np.float64)
    good = np.abs(numbers) < _LARGEST
    return numbers if good.all() else np.where(good, numbers, 0.0)


def _fitting(
    pairs: NDArray[Any],
    waits: NDArray[Any],
    sizes: NDArray[Any],
    shape: tuple[int, int],
    ranks: int,
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], list[str]]:
    """Tables of a file without what names nothing that is there, and what was left out."""
    left_out = []
    nodes, places = shape
    good = _within(
        pairs, {"node": nodes, "sender": ranks, "receiver": ranks}, "seconds", "receive_seconds"
    )
    if not good.all():
        left_out.append(f"left out {counted((~good).sum(), 'pair')} of ranks out of range")
    pairs = pairs[good]
    limits = {"metric": len(METRICS), "node": nodes, "location": places}
    good = _within(waits, limits, "begin", "end")
    for column, limit in (("cause", places), ("cause_node", nodes), ("delay_node", nodes)):
        good &= waits[column] < limit
    if not good.all():
        left_out.append(f"left out {counted((~good).sum(), 'wait')} out of range")
    waits = waits[good]
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((0, 66), (nodes, 66)):
        left_out.append("message sizes do not fit and are left out")
        sizes = np.zeros((0, 66), np.int64)
    return pairs, sizes.astype(np.int64), waits, left_out


def _within(rows: NDArray[Any], limits: dict[str, int], *times: str) -> NDArray[np.bool_]:
    """Which rows name what is there, by columns with their limits, at times that can be."""
    good = np.ones(len(rows), bool)
    for column, limit in limits.items():
        good &= (rows[column] >= 0) & (rows[column] < limit)
    for column in times:
        good &= np.abs(rows[column]) < _LARGEST
    return good


def efficiencies(result: Result) -> dict[str, float]:
    """Efficiencies of a run as the POP project defines them, from 0 to 1."""
    # Parallel efficiency is load balance times communication efficiency, which is serialisation
    # times transfer (POP Centre of Excellence, standard metrics). They are about the time outside
    # of ``MPI_Init`` and ``MPI_Finalize``; the run's time is the longest such time of a rank. What
    # the run would take on an ideal network is taken as the time on the critical path outside of
    # MPI. Where a rank waits while a kernel of its GPUs runs, that is work. Of a rank its first
    # thread counts; ranks without data are left out.
    left_out = _starts_and_ends(result)
    time = _of_ranks(result, "time", left_out)
    useful = _of_ranks(result, "computation", left_out)
    useful += _of_ranks(result, "gpu_wait_kernels", left_out)
    useful = useful[result.by_first_thread("time") > 0]
    runtime, most = float(time.max(initial=0.0)), float(useful.max(initial=0.0))
    if runtime <= 0 or most <= 0:
        return {}
    values = {
        "parallel_efficiency": float(useful.mean()) / runtime,
        "load_balance": float(useful.mean()) / most,
        "communication_efficiency": most / runtime,
    }
    paradigms = [region.paradigm for region in result.node_regions]
    outside = ~left_out & ~np.isin(paradigms, ("mpi", "measurement"))
    ideal = float(result.value("critical_path")[outside].sum())
    if ideal > 0:
        ideal = min(max(ideal, most), runtime)
        values["serialisation_efficiency"] = most / ideal
        values["transfer_efficiency"] = ideal / runtime
    return values


def _starts_and_ends(result: Result) -> NDArray[np.bool_]:
    """Nodes (n,) that are MPI_Init or MPI_Finalize, or lie below one; parents come first."""
    marks = np.zeros(len(result.nodes), np.bool_)
    for number, (node, region) in enumerate(zip(result.nodes, result.node_regions, strict=True)):
        within = node.parent >= 0 and marks[node.parent]
        marks[number] = within or (region.paradigm == "mpi" and region.role in ("init", "finalize"))
    return marks


def _of_ranks(result: Result, metric: str, left_out: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sums of a metric by the first thread of each rank, shape (size,), without some nodes."""
    values = np.where(result.is_first, result.value(metric)[left_out].sum(axis=0), 0.0)
    return np.maximum(result.by_first_thread(metric) - result.sums_by_rank(values), 0.0)
