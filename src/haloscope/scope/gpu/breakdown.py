"""Time of each rank by kernels, transfers, MPI and host; late senders by host or GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.result import Result
from haloscope.scope.gpu.reading import (
    Floats,
    Integers,
    Launches,
    Union,
    Waits,
    Work,
    distinct,
    joined,
    stream_of,
    union,
)
from haloscope.scope.trace.measurement import Location
from haloscope.scope.trace.trace import NOBODY

# While a rank waits for a message, its sender does something else. Going back from the send: where
# the sender's host came out of a call that waited for a stream, and that stream had work when the
# call was entered, the GPU held it up, for as long as that stream had had work without a break. All
# else is the host's. A stream has work from the launch of a kernel or copy to its end, so that the
# gaps between kernels in a queue are the GPU's, and the time before a launch is the host's.


@dataclass(frozen=True)
class Queues:
    """When the streams of a rank had work, started or not."""

    by_place: Mapping[int, Union]  # By the rank's number of a location, that of its stream
    all_streams: Union  # Of any stream


def queues(work: Sequence[tuple[Location, Work]], launches: Sequence[Launches]) -> Queues:
    """Find when the streams of a rank had work."""
    correlations = _concatenated([one.correlations for one in launches], np.int64)
    times = _concatenated([one.times for one in launches], np.float64)
    order = np.lexsort((times, correlations))
    correlations, times = correlations[order], times[order]
    begins: dict[str, list[Floats]] = defaultdict(list)
    ends: dict[str, list[Floats]] = defaultdict(list)
    for place, done in work:
        started = done.begins.copy()
        at = np.searchsorted(correlations, done.correlations)
        known = at < len(correlations)
        known[known] = correlations[at[known]] == done.correlations[known]
        started[known] = np.minimum(times[at[known]], started[known])
        begins[stream_of(place)].append(started)
        ends[stream_of(place)].append(done.ends)
    by_stream = {
        name: union(np.concatenate(begins[name]), np.concatenate(ends[name])) for name in begins
    }
    return Queues(
        {place.number: by_stream[stream_of(place)] for place, _ in work},
        joined(list(by_stream.values())),
    )


def _concatenated(parts: list[NDArray[np.generic]], kind: type) -> NDArray[np.generic]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def held_up(waits: Waits, rank: Queues) -> Union:
    """When a thread was held up by a GPU: the stretches of work that end in its waits."""
    begins: list[Floats] = []
    ends: list[Floats] = []
    for number in distinct(waits.places).tolist():
        of = waits.places == number
        busy = rank.all_streams if number == NOBODY else rank.by_place.get(int(number))
        if busy is None or not len(busy.starts):
            continue
        entered, left = waits.begins[of], waits.ends[of]
        # The last stretch that begins before the wait ends holds it up, if it reaches into it.
        last = np.searchsorted(busy.starts, left) - 1
        held = (last >= 0) & (busy.ends[np.maximum(last, 0)] > entered)
        begins.append(busy.starts[last[held]])
        ends.append(left[held])
    if not begins:
        return union(np.zeros(0), np.zeros(0))
    return union(np.concatenate(begins), np.concatenate(ends))


def split(begins: Floats, ends: Floats, causes: Integers, held: Mapping[int, Union]) -> Floats:
    """How much of each wait is due to the sender's GPU.

    `begins`, `ends`: of the waits, seconds, shape (n,); `causes`: locations that sent, shape (n,).
    """
    due = np.zeros(len(begins))
    for location, stretches in held.items():
        of = causes == location
        due[of] = stretches.within(begins[of], ends[of])
    return np.minimum(due, ends - begins)


# Every moment of a rank's run counts once. Where its GPU works, the moment is the GPU's, whatever the
# host does meanwhile: kernels come first, then communication by NCCL, then transfers between device
# and host, then copies on devices. The rest is divided by what the host does, and so is the whole time
# of a rank without a GPU.

PARTS = ("kernels", "nccl", "transfers", "copies", "mpi", "gpu_calls", "host")
TITLES = {
    "kernels": "Kernels",
    "nccl": "NCCL",
    "transfers": "Device-host transfer",
    "copies": "Copies on devices",
    "mpi": "MPI",
    "gpu_calls": "GPU calls",
    "host": "Host",
}


@dataclass(frozen=True)
class Breakdown:
    """Seconds by rank and part."""

    # Names, as in :data:`PARTS`; those that are zero on all ranks are left out.
    parts: tuple[str, ...]
    seconds: NDArray[np.float64]  # Shape (ranks, parts)

    @property
    def titles(self) -> tuple[str, ...]:
        """Parts as people read them."""
        return tuple(TITLES[part] for part in self.parts)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of each rank's time, shape (ranks, parts)."""
        whole = self.seconds.sum(axis=1, keepdims=True)
        shares = np.zeros_like(self.seconds)
        np.divide(self.seconds, whole, out=shares, where=whole > 0)
        return shares


Sums = Callable[[str], NDArray[np.float64]]


def breakdown(result: Result, sums: Sums | None = None) -> Breakdown:
    """Tell where the time of each rank goes.

    `sums`: sums of a metric over call paths, shape (locations,), where the result comes without
    values.
    """
    seconds = _of_hosts(result, sums or (lambda metric: result.value(metric).sum(axis=0)))
    of_gpus = _of_gpus(result)
    if of_gpus is not None:
        # Ranks that have no GPU, where others do.
        seconds = np.where(of_gpus.any(axis=1, keepdims=True), of_gpus, seconds)
    used = [number for number in range(len(PARTS)) if np.any(seconds[:, number])]
    return Breakdown(tuple(PARTS[number] for number in used), seconds[:, used])


def _of_gpus(result: Result) -> NDArray[np.float64] | None:
    gpu = result.about.get("gpu")
    rows = gpu.get("breakdown") if isinstance(gpu, dict) else None
    if not isinstance(rows, list):
        return None
    try:
        seconds = np.array(rows, np.float64)
    except (TypeError, ValueError):
        return None
    return seconds if seconds.shape == (result.size, len(PARTS)) else None


def devices(result: Result) -> list[dict[str, float]]:
    """Of each GPU of each rank: ``rank``, ``device``, and seconds ``busy`` and ``idle``."""
    gpu = result.about.get("gpu")
    rows = gpu.get("devices") if isinstance(gpu, dict) else None
    entries = []
    for row in rows if isinstance(rows, list) else []:
        try:
            one = {key: float(row[key]) for key in ("rank", "device", "busy", "idle")}
        except (KeyError, TypeError, ValueError):
            continue
        if 0 <= one["rank"] < result.size:
            entries.append(one)
    return entries


def _of_hosts(result: Result, sums: Sums) -> NDArray[np.float64]:
    """The time of each rank's first thread, by what it calls."""
    first = np.array([p.kind != "stream" and p.number == 0 for p in result.locations], bool)
    ranks = np.array([place.rank for place in result.locations], np.int64)

    def of(metric: str) -> NDArray[np.float64]:
        return np.asarray(np.bincount(ranks[first], sums(metric)[first], result.size), np.float64)

    seconds = np.zeros((result.size, len(PARTS)))
    seconds[:, PARTS.index("mpi")] = of("mpi")
    seconds[:, PARTS.index("gpu_calls")] = of("gpu")
    seconds[:, PARTS.index("host")] = np.maximum(of("time") - of("mpi") - of("gpu"), 0.0)
    return seconds


def kernels(result: Result, most: int = 20) -> list[dict[str, Any]]:
    """The kernels that take most time, over all call paths and ranks.

    Returns: ``name``, ``visits``, ``seconds``, and ``share`` of the time of all kernels.
    """
    seconds = result.value("gpu_kernels")
    visits = result.value("visits")
    streams = np.array([place.kind == "stream" for place in result.locations], bool)
    durations: dict[str, list[float]] = {}
    for node in np.flatnonzero(seconds[:, streams].any(axis=1)).tolist():
        row = durations.setdefault(result.regions[result.nodes[node].region].name, [0.0, 0.0])
        row[0] += float(visits[node, streams].sum())
        row[1] += float(seconds[node, streams].sum())
    whole = sum(row[1] for row in durations.values()) or 1.0
    listed = sorted(durations.items(), key=lambda item: (-item[1][1], item[0]))[:most]
    return [
        {"name": name, "visits": round(count), "seconds": time, "share": time / whole}
        for name, (count, time) in listed
    ]
