"""Reads profiles, one file a rank, without threads of libraries, and totals of recorded counters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.scope.analysis.metrics import METRICS, metric_of_role, with_ancestors
from haloscope.scope.analysis.result import PAIRS, Result, efficiencies
from haloscope.scope.diagnosis import findings
from haloscope.scope.trace.measurement import BROKEN, TORN, Location, Measurement, json_lines
from haloscope.scope.trace.trace import Kind, read_pieces

# Events are decoded one by one to find counters: larger traces would take minutes.
_MOST_BYTES = 64 << 20


def totals(measurement: Measurement, result: Result) -> dict[str, dict[str, Any]]:
    """Each counter's increase over the run."""
    of_profile = result.about.get("counters")
    if isinstance(of_profile, dict):
        return {str(name): {"unit": "#", "total": int(count)} for name, count in of_profile.items()}
    units = {
        str(line.get("name", "")): str(line.get("unit", "#"))
        for said in measurement.ranks.values()
        for line in said.counters
    }
    if not units:
        return {}
    places = [place for place in measurement.locations if place.events is not None]
    if sum(place.events.stat().st_size for place in places if place.events) > _MOST_BYTES:
        return {name: {"unit": unit, "total": None} for name, unit in units.items()}
    by_rank = {name: [0] * measurement.size for name in units}
    for place in places:
        names = {
            int(line["counter"]): str(line.get("name", ""))
            for line in measurement.ranks[place.rank].counters
        }
        for number, increase in _increases(place.events).items():
            if number in names:
                by_rank[names[number]][place.rank] += increase
    return {
        name: {"unit": units[name], "total": sum(rows), "by_rank": rows}
        for name, rows in by_rank.items()
    }


def _increases(events: Any) -> dict[int, int]:
    """The last value of each counter of a location less its first."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for piece in read_pieces(events):
        chosen = piece.kinds == Kind.COUNTER
        numbers, values = piece.payloads[chosen].tolist(), piece.words[chosen, 0].tolist()
        for number, value in zip(numbers, values, strict=True):
            first.setdefault(number, value)
            last[number] = value
    return {number: max(0, last[number] - first[number]) for number in first}


def in_words(counters: dict[str, dict[str, Any]]) -> list[str]:
    """One line on the counters, and on where their course over time is shown."""
    if not counters:
        return []
    parts = [
        f"{findings.plain(name, 60)} {findings.count(one['total'])}"
        if one["total"] is not None
        else findings.plain(name, 60)
        for name, one in counters.items()
    ]
    unknown = any(one["total"] is None for one in counters.values())
    return [
        f"counters{' (without sums: the trace is too large)' if unknown else ''}: "
        f"{findings.joined(parts)}; metrics and explorer do not contain them; haloscope export "
        "--perfetto or --otf2 shows them over time"
    ]


# Such a thread sleeps in the library nearly always. It is in no call meanwhile, so that it would count
# as computing, from its first call to the program's end.

HELPERS = "helper_threads"
# Paradigms of regions that a library's thread may be in; "unwound" are callers found on the stack.
_OF_NOBODY = ("program", "measurement", "unwound")


def leave_helpers_out(result: Result) -> None:
    """Move the time of libraries' threads from `time` and all below it to ``helper_threads``."""
    # A thread is one where it is not its rank's first, its rank has a GPU, and all that it entered
    # are calls of CUDA that start no kernel: those of NCCL allocate, copy and wait. A second call
    # changes nothing.
    if HELPERS in result.values:
        return
    with_gpu = {place.rank for place in result.locations if place.kind == "stream"}
    further = np.isin(result.rank_of, list(with_gpu)) & ~result.on_stream & ~result.is_first
    if not further.any():
        return
    is_own = np.array(
        [
            region.paradigm not in _OF_NOBODY
            and (region.paradigm != "cuda" or region.role in ("launch", "kernel"))
            for region in result.node_regions
        ],
        bool,
    )
    enters = (result.value("visits")[is_own] > 0).any(axis=0)
    helpers = further & ~enters & (result.value("time") > 0).any(axis=0)
    if not helpers.any():
        return
    result.values[HELPERS] = np.where(helpers[None, :], result.value("time"), 0.0)
    in_time = {"time"}
    for metric in METRICS:
        if metric.parent in in_time:
            in_time.add(metric.name)
    for name in in_time & result.values.keys():
        result.values[name] = np.where(helpers[None, :], 0.0, result.values[name])
    result.about[HELPERS] = int(helpers.sum())


# A profile knows how long each call path took and what it sent, but not when: there are no wait
# states in it, and time of messages is not told apart by their pair.

SIZES = 66
_MOST_COUNT = 1 << 62
_COUNTS = {
    "sent": ("messages_sent", "empty_messages_sent", "bytes_sent"),
    "received": ("messages_received", "empty_messages_received", "bytes_received"),
}


def profile_of(folder: Path, rank: int) -> Path:
    """Where the profile of a rank lies, whether it is there or not."""
    return folder / f"rank-{rank:05d}.profile"


def analyse_profile(measurement: Measurement) -> Result:
    """Sum the profiles of all ranks into a result.

    Returns: time by call path, location and category, visits, messages, pairs and sizes of
    messages. Pairs carry no seconds. What is missing or broken is in ``about["warnings"]``.
    """
    result = Result.empty(measurement)
    result.locations = [replace(place) for place in measurement.locations]
    warnings = list(measurement.warnings)
    reader = _Reader(result, measurement, warnings)
    count = 0
    for rank in sorted(measurement.ranks):
        path = profile_of(measurement.folder, rank)
        if not path.is_file():
            warnings.append(f"rank {rank} wrote no profile ({path.name} is missing)")
            continue
        count += 1
        reader.read(rank, path)
    if not count:
        raise InputError(
            "the measurement holds neither events nor profiles",
            location=str(measurement.folder),
            remedy="measure again with haloscope measure --trace or --profile",
        )
    reader.finish()
    leave_helpers_out(result)
    heaps = {rank: said.heap for rank, said in measurement.ranks.items() if said.heap is not None}
    result.about.update(
        mode="profile",
        partial=bool(warnings),
        warnings=warnings,
        missing_ranks=measurement.missing,
        span=_longest(result),
        pop=efficiencies(result),
    )
    if heaps:
        result.about["heap_bytes_by_rank"] = [heaps.get(r, 0) for r in range(result.size)]
    return result


class _Reader:
    """Takes the lines of the profiles in."""

    def __init__(self, result: Result, measurement: Measurement, warnings: list[str]) -> None:
        self.result = result
        self.measurement = measurement
        self.warnings = warnings
        self.places = {
            (place.rank, place.number): index for index, place in enumerate(result.locations)
        }
        regions = result.node_regions
        self.metrics = [metric_of_role(region.paradigm, region.role) for region in regions]
        self.on_stream = [
            metric_of_role(region.paradigm, region.role, stream=True) for region in regions
        ]
        self.columns = len(result.locations)
        self.values: dict[str, NDArray[np.float64]] = {}
        self.pairs: dict[tuple[int, int, int], list[int]] = {}
        self.sizes = np.zeros((len(result.nodes), SIZES), np.int64)
        self.counters: dict[str, int] = {}

    def read(self, rank: int, path: Path) -> None:
        """Add the lines of one file; those that do not fit are counted and told once."""
        bad = 0
        for line in _lines(path, self.warnings):
            try:
                if "pair" in line:
                    self._pair(rank, line)
                elif "node" in line:
                    self._node(rank, line)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                bad += 1
        if bad:
            self.warnings.append(
                f"{path.name}: {counted(bad, 'line')} with invalid fields left out"
            )

    def _number_of(self, rank: int, own: Any) -> int:
        table = self.measurement.ranks[rank].nodes
        number = int(table[own]) if isinstance(own, int) and 0 <= own < len(table) else -1
        if number < 0:
            raise ValueError("a node is not defined")
        return number

    def _place_of(self, rank: int, number: int) -> int:
        key = (rank, number)
        if key not in self.places:
            if not 0 <= number < 1 << 20:
                raise ValueError("a location is out of range")
            self.places[key] = len(self.result.locations)
            self.result.locations.append(Location(rank, number, name=f"thread {number}"))
            if self.places[key] >= self.columns:
                more = 1 + self.columns // 4
                self.columns += more
                for name, values in self.values.items():
                    self.values[name] = np.pad(values, ((0, 0), (0, more)))
        return self.places[key]

    def _add(self, metric: str, node: int, place: int, value: float) -> None:
        if value:
            if metric not in self.values:
                self.values[metric] = np.zeros((len(self.result.nodes), self.columns))
            self.values[metric][node, place] += value

    def _node(self, rank: int, line: dict[str, Any]) -> None:
        node = self._number_of(rank, line["node"])
        place = self._place_of(rank, int(line.get("location", 0)))
        seconds = float(line["seconds"])
        visits = _counts([line["visits"]], 1)[0]
        fields = {key: _counts(line[key], 3) for key in _COUNTS if key in line}
        collective = _counts(line.get("collective", [0, 0, 0]), 3)
        accesses = _counts(line.get("accesses", [0, 0]), 2)
        sizes = np.array(_counts(line.get("sizes", [])), np.int64)
        counters = {str(name): int(n) for name, n in (line.get("counters") or {}).items()}
        if not (math.isfinite(seconds) and seconds >= 0) or len(sizes) > SIZES:
            raise ValueError("a number is out of range")
        stream = self.result.locations[place].kind == "stream"
        metric = (self.on_stream if stream else self.metrics)[node]
        messages, empty = (
            sum(fields[key][index] for key in fields) if fields else 0 for index in (0, 1)
        )
        if metric == "p2p_communication" and messages and messages == empty:
            metric = "p2p_synchronisation"
        for name in with_ancestors(metric):
            self._add(name, node, place, seconds)
        self._add("visits", node, place, visits)
        self._add("collectives", node, place, collective[0])
        self._add("bytes_collective", node, place, sum(collective[1:]))
        self._add("bytes_rma", node, place, accesses[1])
        for key, names in _COUNTS.items():
            for name, count in zip(names, fields.get(key, ()), strict=False):
                self._add(name, node, place, count)
        self.sizes[node, : len(sizes)] += sizes
        for name, count in counters.items():
            self.counters[name] = self.counters.get(name, 0) + count

    def _pair(self, rank: int, line: dict[str, Any]) -> None:
        receiver = int(line["pair"])
        if not 0 <= receiver < self.result.size:
            raise ValueError("a rank is out of range")
        counts = _counts([line["messages"], line.get("empty", 0), line.get("bytes", 0)], 3)
        key = (self._number_of(rank, line["node"]), rank, receiver)
        row = self.pairs.setdefault(key, [0, 0, 0])
        for index, count in enumerate(counts):
            row[index] += count

    def finish(self) -> None:
        """Put what was taken in into the result."""
        result = self.result
        result.values = {
            name: values[:, : len(result.locations)] for name, values in self.values.items()
        }
        result.pairs = np.zeros(len(self.pairs), PAIRS)
        for index, key in enumerate(sorted(self.pairs)):
            row = (*key, *self.pairs[key], 0.0, 0.0)
            result.pairs[index] = row
        result.sizes = self.sizes
        if self.counters:
            result.about["counters"] = self.counters


def _lines(path: Path, warnings: list[str]) -> Iterator[dict[str, Any]]:
    """Whole lines of a profile that are JSON objects."""
    bad = 0
    for _, line in json_lines(path):
        if line is TORN:
            warnings.append(f"{path.name} ends within a line; that line is left out")
        elif line is BROKEN:
            bad += 1
        elif isinstance(line, dict):
            yield line
    if bad:
        warnings.append(f"{path.name}: {counted(bad, 'line')} left out, not JSON")


def _counts(counters: Any, wanted: int | None = None) -> list[int]:
    """Whole numbers that are none below zero; raises ValueError on anything else."""
    if not isinstance(counters, list) or (wanted is not None and len(counters) != wanted):
        raise ValueError("a list of counts has another form or length")
    counts = [int(item) for item in counters]
    if any(count < 0 or count > _MOST_COUNT for count in counts):
        raise ValueError("a count is out of range")
    return counts


def _longest(result: Result) -> float:
    return float(result.by_first_thread("time").max(initial=0.0))
