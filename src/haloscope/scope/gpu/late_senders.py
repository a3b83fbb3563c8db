"""Tells whether a sender was late because its host was late, or because its GPU was.

While a rank waits for a message, its sender does something else. Going back from the send: where
the sender's host came out of a call that waited for a stream, and that stream had work when the
call was entered, the GPU held it up, for as long as that stream had had work without a break. All
else is the host's. A stream has work from the launch of a kernel or copy to its end, so that the
gaps between kernels in a queue are the GPU's, and the time before a launch is the host's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.gpu.intervals import Union, distinct, joined, union
from haloscope.scope.gpu.reading import Floats, Integers, Launches, Waits, Work, stream_of
from haloscope.scope.trace.measurement import Location
from haloscope.scope.trace.trace import NOBODY


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
