"""Content of the page: one measurement, or two on one call tree, and the grids of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import METRICS, NUMBER
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis.conditions import LARGE
from haloscope.scope.diagnosis.findings import headings
from haloscope.scope.explorer.stored import Stored
from haloscope.scope.maps import SUMMED
from haloscope.scope.report.gpus import breakdown
from haloscope.scope.trace.measurement import Location, Region

_MOST = 8
MOST_CELLS = 512  # along a side of the map of messages


def topologies(results: Sequence[Result], size: int) -> list[dict[str, Any]]:
    """Cartesian communicators and blocks of a grid, those of most ranks first."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for result in results:
        for one in [*_cartesian(result, size), *_blocks(result)]:
            seen.setdefault((tuple(one["dims"]), tuple(one["members"])), one)
    return sorted(seen.values(), key=lambda one: -len(one["members"]))[:_MOST]


def _cartesian(result: Result, size: int) -> list[dict[str, Any]]:
    topologies = []
    for comm in result.comms:
        try:
            dims = [int(length) for length in comm.dims]
            members = [int(rank) for rank in comm.members]
            periods = [bool(period) for period in comm.periods]
        except (TypeError, ValueError):
            continue
        fits = dims and all(length > 0 for length in dims) and prod(dims) == len(members)
        if not fits or any(not 0 <= rank < size for rank in members):
            continue
        topologies.append(
            {"name": str(comm.name), "dims": dims, "periods": periods, "members": members}
        )
    return topologies


def _blocks(result: Result) -> list[dict[str, Any]]:
    """The blocks of a run of Haloscope's, one a rank; x is fastest."""
    blocks = result.about.get("blocks")
    if not isinstance(blocks, list) or not all(isinstance(one, int) and one > 0 for one in blocks):
        return []
    if len(blocks) > 3 or not 1 < result.size == prod(blocks):
        return []
    return [
        {
            "name": "blocks, z × y × x",
            "dims": blocks[::-1],
            "axes": ["x", "y", "z"][: len(blocks)][::-1],
            "periods": [False] * len(blocks),
            "members": list(range(result.size)),
        }
    ]


# The call trees of two measurements are put together by the names along each path, their
# locations by rank, kind and order; what only one of them has counts as zero in the other.

_MOST_WAITS = 200_000
_REPORTED: tuple[str, ...] = (
    *("command", "mode", "seconds", "exit_code", "program", "options", "versions"),
    *("span", "begin", "partial", "warnings", "violations", "critical_path", "pop"),
)
_MOST_WARNINGS = 200
_RUNS_FOLDER = "measurement"  # that a run of Haloscope's keeps inside its own


@dataclass(frozen=True)
class Side:
    """One of the measurements."""

    stored: Stored  # Its result
    node_of: NDArray[np.int64]  # Node of the report for each of its own, shape (own nodes,)
    place_of: NDArray[np.int64]  # Location of the report for each of its own

    @property
    def result(self) -> Result:
        """Its result, without values."""
        return self.stored.result


class Report:
    """One measurement, or two to compare."""

    def __init__(self, *folders: Path) -> None:
        stored = [Stored(folder) for folder in folders]
        self.region_table: list[Region] = []
        # Of the nodes of the common call tree, parents before children.
        self.parents: NDArray[np.int64] = np.zeros(0, np.int64)
        self.regions: NDArray[np.int64] = np.zeros(0, np.int64)
        # Where each node is called; empty in a comparison, where sites of calls mean little.
        self.sites: list[str] = []
        self.places: list[Location] = []  # Common locations, by rank and number
        nodes_of = self._join_trees([one.result for one in stored])
        places_of = self._join_places([one.result for one in stored])
        # The measurements.
        self.sides = [
            Side(one, nodes, places)
            for one, nodes, places in zip(stored, nodes_of, places_of, strict=True)
        ]
        self.size = max(side.result.size for side in self.sides)
        self.metrics = [
            metric.name
            for metric in METRICS
            if any(metric.name in side.stored.present for side in self.sides)
        ]

    def close(self) -> None:
        """Close the files."""
        for side in self.sides:
            side.stored.close()

    def _join_trees(self, results: list[Result]) -> list[NDArray[np.int64]]:
        comparing = len(results) > 1
        regions: dict[Any, int] = {}
        nodes: dict[tuple[int, int, str], int] = {}
        parents: list[int] = []
        region_of: list[int] = []
        tables = []
        for result in results:
            own = np.zeros(len(result.nodes), np.int64)
            for number, node in enumerate(result.nodes):
                region = result.regions[node.region]
                # A phase and the kernel that it launches may have one name.
                known = (region.name, region.role == "kernel") if comparing else region
                if known not in regions:
                    regions[known] = len(self.region_table)
                    self.region_table.append(region)
                parent = -1 if node.parent < 0 else int(own[node.parent])
                key = (parent, regions[known], "" if comparing else str(node.site))
                if key not in nodes:
                    nodes[key] = len(parents)
                    parents.append(parent)
                    region_of.append(regions[known])
                    self.sites.append(key[2])
                own[number] = nodes[key]
            tables.append(own)
        self.parents = np.array(parents, np.int64)
        self.regions = np.array(region_of, np.int64)
        return tables

    def _join_places(self, results: list[Result]) -> list[NDArray[np.int64]]:
        common: dict[tuple[int, ...], Location] = {}
        tables = [_place_keys(result, comparing=len(results) > 1) for result in results]
        for result, keys in zip(results, tables, strict=True):
            for place, key in zip(result.locations, keys, strict=True):
                common.setdefault(key, place)
        self.places = [common[key] for key in sorted(common)]
        number = {key: index for index, key in enumerate(sorted(common))}
        return [np.array([number[key] for key in keys], np.int64) for keys in tables]

    def chosen(self, node: int, own: bool) -> NDArray[np.bool_]:
        """Nodes that a selection stands for, shape (nodes,): one alone, or with all below it."""
        inside = np.zeros(len(self.parents), bool)
        inside[node] = True
        for number in range(node + 1, 0 if own else len(self.parents)):
            inside[number] = (parent := self.parents[number]) >= 0 and inside[parent]
        return inside

    def row(
        self, side: int, metric: str, nodes: NDArray[np.bool_], exclusive: bool
    ) -> NDArray[np.float64]:
        """Values of a metric by location of the report, summed over chosen nodes."""
        one = self.sides[side]
        values = one.stored.row(metric, nodes[one.node_of], exclusive=exclusive)
        return np.asarray(np.bincount(one.place_of, values, len(self.places)), np.float64)

    def find_path(self, names: list[str], side: int) -> int:
        """The node at the end of a path of names, or of the longest part of it that exists; -1.

        Of several, which differ in the sites of their calls, the one with most time.
        """
        one = self.sides[side]
        time = np.bincount(one.node_of, one.stored.sums("time")[0], len(self.parents))
        here = np.flatnonzero(self.parents < 0).tolist()
        if names and not any(self.name_of(root) == names[0] for root in here):
            here = np.flatnonzero(np.isin(self.parents, here)).tolist()
        node = -1
        for name in names:
            matching = [node for node in here if self.name_of(node) == name]
            if not matching:
                break
            node = max(matching, key=lambda node: float(time[node]))
            here = np.flatnonzero(np.isin(self.parents, matching)).tolist()
        return node

    def name_of(self, node: int) -> str:
        """Name of the region at the end of a call path."""
        return str(self.region_table[int(self.regions[node])].name)

    def meta(self) -> dict[str, Any]:
        """All names and remarks of the page, as JSON."""
        return {
            "metrics": [
                {**asdict(metric), "parent": NUMBER.get(metric.parent, -1)} for metric in METRICS
            ],
            "present": [NUMBER[name] for name in self.metrics],
            "regions": [[r.name, r.paradigm, r.role, r.file, r.line] for r in self.region_table],
            "sites": {str(n): site for n, site in enumerate(self.sites) if site},
            "places": [[p.rank, p.number, p.kind, p.name, p.device] for p in self.places],
            "size": self.size,
            "sides": [self._side_meta(number) for number in range(len(self.sides))],
            "topologies": topologies([side.result for side in self.sides], self.size),
        }

    def _side_meta(self, number: int) -> dict[str, Any]:
        side = self.sides[number]
        about = dict(side.result.about)
        meta = {key: about[key] for key in _REPORTED if key in about}
        if isinstance(meta.get("warnings"), list):
            meta["warnings"] = meta["warnings"][:_MOST_WARNINGS]
        hosts = about.get("hosts")
        fits = isinstance(hosts, list) and len(hosts) == side.result.size
        return {
            "folder": self._called(number),
            "about": meta,
            "hosts": [str(host) for host in hosts] if fits and isinstance(hosts, list) else [],
            "size": side.result.size,
            "left_out": side.stored.left_out,
            "notes": side.stored.notes,
            "answer": side.stored.answer,
            "measuring": _measuring(side.stored.measuring),
            "findings": self._findings(number),
            "gpus": _gpus(side.stored),
        }

    def _called(self, number: int) -> str:
        """Name of a folder; with the one that holds it where the name alone says too little."""
        folders = [side.stored.folder.resolve() for side in self.sides]
        folder = folders[number]
        alike = [other.name for other in folders].count(folder.name) > 1
        if folder.parent.name and (alike or folder.name == _RUNS_FOLDER):
            return f"{folder.parent.name}/{folder.name}"
        return folder.name

    def _findings(self, number: int) -> list[dict[str, Any]]:
        """The findings of a side, each with what stands above it."""
        findings = self.sides[number].stored.findings
        above = headings(finding.get("once") is True for finding in findings)
        return [
            {**self._finding(finding, number), "heading": heading}
            for finding, heading in zip(findings, above, strict=True)
        ]

    def _finding(self, finding: dict[str, Any], number: int) -> dict[str, Any]:
        side = self.sides[number]
        path = finding.get("call_path")
        names = [str(name) for name in path] if isinstance(path, (list, tuple)) else []
        node = finding.get("node")
        if isinstance(node, int) and 0 <= node < len(side.node_of):
            node_number = int(side.node_of[node])
        else:
            node_number = self.find_path(names, number) if names else -1
        listed = finding.get("ranks")
        ranks = {
            rank
            for rank in (listed if isinstance(listed, list) else [])
            if isinstance(rank, int) and 0 <= rank < self.size
        }
        seconds = finding.get("seconds")
        return {
            "metric": NUMBER.get(str(finding.get("metric")), -1),
            "seconds": float(seconds) if isinstance(seconds, (int, float)) else None,
            # Of all ranks none stands out.
            "ranks": sorted(ranks) if len(ranks) < side.result.size else [],
            "path": names,
            "node": node_number,
            "instance": self._instance(finding.get("instance"), side),
            **{
                key: str(finding.get(key) or "")
                for key in ("title", "figure", "cause", "remedy", "text")
            },
        }

    def _instance(self, instance: Any, side: Side) -> dict[str, float] | None:
        """The wait that shows a finding: location of the report, begin and end."""
        if not isinstance(instance, dict):
            return None
        place, begin, end = (instance.get(key) for key in ("location", "begin", "end"))
        if not isinstance(place, int) or not 0 <= place < len(side.place_of):
            return None
        if not isinstance(begin, (int, float)) or not isinstance(end, (int, float)):
            return None
        return {"place": int(side.place_of[place]), "begin": float(begin), "end": float(end)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The tree, and of each side sums by call path (metrics, nodes) and by location."""
        arrays: dict[str, NDArray[Any]] = {
            "parents": self.parents.astype(np.int32),
            "regions": self.regions.astype(np.int32),
        }
        for number, side in enumerate(self.sides):
            by_node = np.zeros((len(self.metrics), len(self.parents)))
            by_place = np.zeros((len(self.metrics), len(self.places)))
            for row, name in enumerate(self.metrics):
                nodes, places = side.stored.sums(name)
                by_node[row] = np.bincount(side.node_of, nodes, len(self.parents))
                by_place[row] = np.bincount(side.place_of, places, len(self.places))
            arrays[f"nodes{number}"] = by_node
            arrays[f"places{number}"] = by_place
            arrays.update(self._sizes(number))
        return arrays

    def _sizes(self, number: int) -> dict[str, NDArray[Any]]:
        """Messages by size, of the nodes that sent any."""
        side = self.sides[number]
        sizes = side.result.sizes
        rows = np.flatnonzero(sizes.any(axis=1)) if sizes.size else np.zeros(0, np.int64)
        return {
            f"size_nodes{number}": side.node_of[rows].astype(np.int32),
            f"sizes{number}": np.asarray(sizes[rows], np.float64),
        }

    def waits(self, number: int, most: int = _MOST_WAITS) -> tuple[int, dict[str, NDArray[Any]]]:
        """How many wait states there are, and the columns of the longest, by begin."""
        side = self.sides[number]
        waits = side.result.waits
        total = len(waits)
        waits = longest(waits, waits["end"] - waits["begin"], most)
        waits = waits[np.argsort(waits["begin"], kind="stable")]
        columns = {"metric": waits["metric"].astype(np.int32)}
        for name, column, table in (
            ("node", "node", side.node_of),
            ("place", "location", side.place_of),
            ("cause", "cause", side.place_of),
            ("cause_node", "cause_node", side.node_of),
            ("delay_node", "delay_node", side.node_of),
        ):
            own = waits[column]
            columns[name] = np.where(own >= 0, table[np.maximum(own, 0)], -1).astype(np.int32)
        return total, {**columns, "begin": waits["begin"], "end": waits["end"]}


def longest(rows: NDArray[Any], length: NDArray[Any], most: int) -> NDArray[Any]:
    """At most so many rows, those of the greatest length, in their order."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.argpartition(length, len(rows) - most)[len(rows) - most :])]


def _place_keys(result: Result, *, comparing: bool) -> list[tuple[int, ...]]:
    """Keys that identify the locations of a result, in their order.

    That is rank and number. Two runs number threads and streams as these turn up: there the third
    thread of a rank is compared with the third thread, and its first stream with the first.
    """
    if not comparing:
        return [(place.rank, place.number) for place in result.locations]
    seen: dict[tuple[int, int], int] = {}
    keys: dict[int, tuple[int, ...]] = {}
    order = sorted(range(len(result.locations)), key=lambda index: result.locations[index].number)
    for index in order:
        place = result.locations[index]
        kind = place.rank, int(place.kind == "stream")
        seen[kind] = seen.get(kind, -1) + 1
        keys[index] = *kind, seen[kind]
    return [keys[index] for index in range(len(result.locations))]


def _measuring(recording: dict[str, Any]) -> dict[str, Any] | None:
    """Cost of the measurement, and whether it is large; None if unknown."""
    text, share = recording.get("text"), recording.get("share")
    if not isinstance(text, str) or not text:
        return None
    return {"text": text, "is_large": isinstance(share, (int, float)) and share >= LARGE}


def _gpus(stored: Stored) -> dict[str, Any] | None:
    """Seconds of each rank by part, None where no GPU was seen."""
    if not stored.result.on_stream.any():
        return None
    shown = breakdown(stored.result, lambda metric: stored.sums(metric)[1])
    if not shown.parts:
        return None
    return {
        "parts": list(shown.parts),
        "titles": list(shown.titles),
        "seconds": shown.seconds.tolist(),
    }


def of_nodes(report: Report, side: int, nodes: NDArray[np.bool_]) -> NDArray[Any]:
    """Rows of the table of pairs whose sends belong to the chosen call paths."""
    one = report.sides[side]
    pairs = one.result.pairs
    return np.asarray(pairs if nodes.all() else pairs[nodes[one.node_of][pairs["node"]]])


def cells(
    pairs: NDArray[Any], senders: tuple[int, int], receivers: tuple[int, int], most: int
) -> dict[str, NDArray[Any]]:
    """Sums over the cells of a window of the map that hold any message."""
    width, height = senders[1] - senders[0], receivers[1] - receivers[0]
    columns, rows = min(most, width), min(most, height)
    inside = (
        (pairs["sender"] >= senders[0])
        & (pairs["sender"] < senders[1])
        & (pairs["receiver"] >= receivers[0])
        & (pairs["receiver"] < receivers[1])
    )
    kept = pairs if inside.all() else pairs[inside]
    sender = kept["sender"].astype(np.int64) - senders[0]
    receiver = kept["receiver"].astype(np.int64) - receivers[0]

    def cell_of(sender: NDArray[np.int64], receiver: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(receiver * rows // height * columns + sender * columns // width)

    keys, place = np.unique(cell_of(sender, receiver), return_inverse=True)
    different = np.unique(receiver * width + sender)
    of_pair = np.searchsorted(keys, cell_of(different % width, different // width))
    arrays: dict[str, NDArray[Any]] = {
        "cell": keys.astype(np.int32),
        "pairs": np.bincount(of_pair, minlength=len(keys)).astype(np.float64),
    }
    for name in SUMMED:
        arrays[name] = np.bincount(place.ravel(), kept[name].astype(np.float64), len(keys))
    return arrays


def by_receiver(pairs: NDArray[Any], size: int) -> dict[str, NDArray[Any]]:
    """Sums by receiving rank, shape (size,) each.

    ``senders`` are ranks that send it data, ``empty_senders`` those that send it nothing but
    empty messages.
    """
    link = pairs["receiver"].astype(np.int64) * size + pairs["sender"]
    different, place = np.unique(link, return_inverse=True)
    full = np.bincount(place.ravel(), pairs["messages"] - pairs["empty"], len(different)) > 0
    receiver = different // size
    arrays: dict[str, NDArray[Any]] = {
        "senders": np.bincount(receiver[full], minlength=size).astype(np.float64),
        "empty_senders": np.bincount(receiver[~full], minlength=size).astype(np.float64),
    }
    for name in SUMMED:
        arrays[name] = np.bincount(pairs["receiver"], pairs[name].astype(np.float64), size)
    return arrays
