"""Estimates from a profile: size and cost of a trace of the same run, functions to leave out, cost of recording."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import counted
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import findings
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.profiles import analyse_profile

VISIT_SECONDS = 100e-9  # what a visit costs, the clock's two readings included
# Nobody enters these: the whole process, the tracer's own work, callers found on the stack.
_NOT_RECORDED = ("program", "measurement", "unwound")


def costs_of_recording(measurement: Measurement) -> NDArray[np.float64] | None:
    """Cost of recording by rank, shape (ranks, 6); None if no rank states it.

    Seconds within and beyond a call, then for each event before and after what the call does. A
    rank that says nothing gets what is usual in the others.
    """
    said = [one.recording for one in measurement.ranks.values() if one.recording is not None]
    if not said:
        return None
    typical = np.median(np.array(said), axis=0)
    costs = np.tile(typical, (measurement.size, 1))
    for rank, one in measurement.ranks.items():
        if one.recording is not None:
            costs[rank] = one.recording
    return costs


def seconds_of_recording(measurement: Measurement, result: Result) -> tuple[float, bool]:
    """Estimate the time that went into recording what a run has done, all threads together.

    float: seconds: visits and messages by what the ranks have tried out, or visits by what is
    usual; 0 for a trace that another tool has recorded.
    """
    ranks = measurement.ranks.values()
    if all(one.opening.get("clock") == "otf2" for one in ranks):
        return 0.0, True
    costs = costs_of_recording(measurement)
    if costs is None:
        costs = np.zeros((measurement.size, 6))
        costs[:, 0] = VISIT_SECONDS
    entered = [region.paradigm not in _NOT_RECORDED for region in result.node_regions]
    # What a GPU does is recorded beside the program, not by it.
    host = ~result.on_stream
    is_at_least = not host.all() or any(one.counters for one in ranks)
    call, before, after = costs[result.rank_of].reshape(-1, 3, 2).sum(axis=2).T

    def count(metric: str) -> NDArray[np.float64]:
        return np.asarray(result.value(metric)[entered].sum(axis=0), np.float64)

    seconds = (
        count("visits") * call
        + count("messages_sent") * before
        + (count("messages_received") + count("collectives")) * after
    )
    return float(seconds[host].sum()), is_at_least


# A trace grows with the number of visits, not with the time of the run. Functions that are visited
# often, take little time each and lead to no MPI call make most of it and say least.

# Bytes of events, as events.h lays them out.
_VISIT = 16
_BLOCKING = 24
_NON_BLOCKING = 40  # when it is started and when it is completed
_COLLECTIVE = 32
_COUNTER = 16
_LONGEST_STEP_SECONDS = 0.025  # after so long without an event, another word is needed
_TIME = 8
_SPARE_BYTES = 1 << 16  # of a buffer

# A function may go where measuring it costs more than this of its time ...
_MOST_COST = 0.02
# ... and where it makes more than this of a trace.
_LEAST_SHARE = 0.01
_LEADS_ELSEWHERE = ("mpi", "openmp", "cuda", "nccl")
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class RegionScore:
    """One region: how often, how long, and what it would take in a trace."""

    # The region.
    name: str
    paradigm: str
    visits: int  # Of all ranks
    seconds: float  # Without inner regions, of all ranks
    bytes: int  # In traces of all ranks
    leads_to_mpi: bool  # Somewhere below it MPI, OpenMP or a GPU is called
    filtered: bool = False  # Suggested to be left out


@dataclass(frozen=True)
class Score:
    """Cost of a trace of a profiled run, whole and with the suggested filter."""

    regions: tuple[RegionScore, ...]  # By bytes, most first
    # Estimated bytes of each rank's trace, and `filtered_bytes_by_rank` with the filter.
    bytes_by_rank: dict[int, int]
    filtered_bytes_by_rank: dict[int, int]
    # MiB of a location's buffer that hold everything, so that nothing is written on the way.
    buffer: int
    filtered_buffer: int
    warnings: tuple[str, ...] = ()  # What is missing in the profile

    @property
    def filtered(self) -> tuple[str, ...]:
        """Names of the functions that may be left out."""
        return tuple(region.name for region in self.regions if region.filtered)

    def table(self, most: int = 30) -> str:
        """The regions that take most, and what follows for buffers and filters."""
        total = max(sum(self.bytes_by_rank.values()), 1)
        lines = [
            f"{'':2}{'region':<40}{'kind':<13}{'visits':>14}{'seconds':>12}{'a visit':>12}"
            f"{'trace':>10}{'share':>8}"
        ]
        for region in self.regions[:most]:
            lines.append(
                f"{'-' if region.filtered else '':2}{findings.plain(region.name, 38):<40}"
                f"{findings.plain(region.paradigm, 12):<13}{region.visits:>14,}"
                f"{region.seconds:>12.3f}"
                f"{findings.seconds(region.seconds / max(region.visits, 1)):>12}"
                f"{findings.size(region.bytes):>10}{region.bytes / total:>8.1%}"
            )
        if len(self.regions) > most:
            rest = self.regions[most:]
            lines.append(
                f"{'':2}{f'{len(rest)} more':<91}{findings.size(sum(r.bytes for r in rest)):>10}"
            )
        lines += ["", self._sentence("A trace of everything", self.bytes_by_rank, self.buffer)]
        if self.filtered:
            lines.append(
                self._sentence(
                    f"A trace without the {counted(len(self.filtered), 'function')} marked with -",
                    self.filtered_bytes_by_rank,
                    self.filtered_buffer,
                )
            )
        else:
            lines.append("No function has many short visits; the filter is empty.")
        return "\n".join(lines)

    @staticmethod
    def _sentence(condition: str, by_rank: dict[int, int], buffer: int) -> str:
        largest = max(by_rank, key=lambda rank: by_rank[rank], default=0)
        return (
            f"{condition} takes about "
            f"{findings.size(sum(by_rank.values()))}, at most "
            f"{findings.size(by_rank.get(largest, 0))} for a rank (rank {largest}); "
            f"a buffer of {buffer} MiB avoids writing during the run."
        )

    def __str__(self) -> str:
        """As the table."""
        return self.table()

    def as_json(self) -> dict[str, Any]:
        """The score as JSON, the suggested filter included."""
        return {
            "regions": [asdict(region) for region in self.regions],
            "bytes_by_rank": {str(rank): count for rank, count in self.bytes_by_rank.items()},
            "filtered_bytes_by_rank": {
                str(rank): count for rank, count in self.filtered_bytes_by_rank.items()
            },
            "buffer_mib": self.buffer,
            "filtered_buffer_mib": self.filtered_buffer,
            "filter": self.filter_text(),
        }

    def filter_text(self) -> str:
        """A filter file: patterns of names, one a line."""
        lines = ["# Functions with many short visits that lead to no MPI call."]
        return "\n".join([*lines, *map(_pattern, self.filtered)]) + "\n"


def _pattern(name: str) -> str:
    """A pattern that means this name only."""
    quoted = "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in name)
    return f"\\{quoted}" if quoted.startswith(("!", "#")) else quoted


def score(folder: Path) -> Score:
    """Estimate what a trace of a profiled run takes, and what to leave out of it."""
    measurement = open_measurement(folder)
    result = analyse_profile(measurement)
    sizes = _bytes(result)
    visits, seconds = result.value("visits"), result.value("time")
    leads = _leads_elsewhere(result)
    scores: dict[tuple[str, str], RegionScore] = {}
    for number, region in enumerate(result.node_regions):
        if region.paradigm in ("program", "unwound"):
            continue
        key = (region.name, region.paradigm)
        old = scores.get(key, RegionScore(*key, 0, 0.0, 0, False))
        scores[key] = RegionScore(
            *key,
            old.visits + round(float(visits[number].sum())),
            old.seconds + float(seconds[number].sum()),
            old.bytes + round(float(sizes[number].sum())),
            old.leads_to_mpi or bool(leads[number]),
        )
    total = sum(region.bytes for region in scores.values())
    ordered = sorted(scores.values(), key=lambda region: (-region.bytes, region.name))
    regions = tuple(replace(one, filtered=_may_go(one, total)) for one in ordered if one.visits)
    gone = {(one.name, one.paradigm) for one in regions if one.filtered}
    kept = [(region.name, region.paradigm) not in gone for region in result.node_regions]
    by_location = sizes.sum(axis=0)
    with_filter = sizes[kept].sum(axis=0)
    return Score(
        regions,
        _by_rank(result, by_location),
        _by_rank(result, with_filter),
        _buffer(by_location),
        _buffer(with_filter),
        tuple(result.about.get("warnings", ())),
    )


def _bytes(result: Result) -> NDArray[np.float64]:
    """Estimated bytes of a trace by node and location."""
    visits = result.value("visits")
    counters = len(result.about.get("counters", ()))
    sends = [region.role in ("send", "recv", "sendrecv") for region in result.node_regions]
    blocking = np.array(sends, bool)[:, None]
    messages = result.value("messages_sent") + result.value("messages_received")
    return np.asarray(
        visits * (_VISIT + 2 * _COUNTER * counters)
        + messages * np.where(blocking, _BLOCKING, _NON_BLOCKING)
        + result.value("collectives") * _COLLECTIVE
        + result.value("time") / _LONGEST_STEP_SECONDS * _TIME,
        np.float64,
    )


def _leads_elsewhere(result: Result) -> NDArray[np.bool_]:
    """Nodes with MPI, OpenMP or a GPU somewhere below them, or that are such."""
    leads = np.array([one.paradigm in _LEADS_ELSEWHERE for one in result.node_regions], bool)
    for number in range(len(result.nodes) - 1, -1, -1):
        parent = result.nodes[number].parent
        if leads[number] and parent >= 0:
            leads[parent] = True
    return leads


def _may_go(region: RegionScore, total: int) -> bool:
    return (
        region.paradigm == "function"
        and not region.leads_to_mpi
        and region.bytes > _LEAST_SHARE * total
        and region.visits * VISIT_SECONDS > _MOST_COST * region.seconds
    )


def _by_rank(result: Result, by_location: NDArray[np.float64]) -> dict[int, int]:
    ranks: dict[int, int] = {}
    for place, count in zip(result.locations, by_location.tolist(), strict=True):
        ranks[place.rank] = ranks.get(place.rank, 0) + round(count)
    return ranks


def _buffer(by_location: NDArray[np.float64]) -> int:
    """MiB for the location that needs most, rounded up."""
    largest = float(by_location.max(initial=0.0)) + _SPARE_BYTES
    return max(1, int(-(-largest // _MEBIBYTE)))
