"""Causes and effects in a trace: corrected clocks, and messages with both ends."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import MachineError
from haloscope.scope.replay.inputs import POINTER, load_replay, make_inputs
from haloscope.scope.trace.measurement import Measurement, RankDefinitions

_CONTRADICTION = 2  # among the counts of the library


@dataclass(frozen=True)
class Correction:
    """Correction of a run's clocks by the controlled logical clock."""

    # By index of location arrays (n, 2) of tick and shift in ticks, as
    # :func:`haloscope.scope.replay.inputs.make_inputs` takes them: linear between knots, constant
    # outside. Locations that keep their times are left out.
    knots: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    # Receives and collectives that end before what they wait for, as measured and corrected.
    before: int = 0
    after: int = 0
    largest: float = 0.0  # Largest shift, in seconds
    # True where ranks wait for each other in a circle, as in a trace that is broken.
    contradictory: bool = False


def correct(measurement: Measurement, latency: float = 1e-6) -> Correction:
    """Shift events so that nothing comes before its cause: the controlled logical clock."""
    # replay/logical_clock.cpp says how. Operations of which a trace does not say which rank needs
    # which (``MPI_Alltoallv``, neighbourhood collectives, creation of communicators) are left out.
    # `latency`: least time from the begin of a send to the end of its receive in seconds; 0 is
    # taken between ranks of one host, whose clock is the same. Where messages went to and fro
    # between two hosts in less than twice that, it is half of what the fastest took.
    if _is_one_clock(measurement) or not any(place.events for place in measurement.locations):
        return Correction()
    inputs = make_inputs(measurement)
    library = _clock()
    counts = (ctypes.c_int64 * 3)()
    largest = ctypes.c_double()
    hosts = _host_numbers(measurement)
    status = library.clock_correct(
        ctypes.byref(inputs.run), hosts.ctypes.data, latency, counts, ctypes.byref(largest)
    )
    if not status:
        raise MachineError(
            "the replay of the trace does not fit into memory",
            location=str(measurement.folder),
            remedy="use a machine with more memory",
        )
    try:
        by_rank: dict[int, NDArray[np.int64]] = {}
        for rank in measurement.ranks:
            count = int(library.clock_knots(status, rank, None))
            if count:
                by_rank[rank] = np.zeros((count, 2), np.int64)
                library.clock_knots(status, rank, by_rank[rank].ctypes.data)
                # The replay counts ticks from the rank's first one; knots stand at absolute ticks.
                by_rank[rank][:, 0] += int(measurement.ranks[rank].opening.get("epoch", 0))
    finally:
        library.clock_free(status)
    return Correction(
        {
            index: by_rank[place.rank]
            for index, place in enumerate(measurement.locations)
            if place.rank in by_rank
        },
        int(counts[0]),
        int(counts[1]),
        float(largest.value),
        bool(counts[_CONTRADICTION]),
    )


def _host_of(said: RankDefinitions) -> str:
    return str(said.opening.get("host") or "")


def _is_one_clock(measurement: Measurement) -> bool:
    """The ranks of a host share its clock, and the tracer compares clocks where there are more."""
    ranks = measurement.ranks.values()
    hosts = {_host_of(said) for said in ranks}
    return len(hosts) == 1 and "" not in hosts and not any(said.offsets for said in ranks)


def _host_numbers(measurement: Measurement) -> NDArray[np.int32]:
    """A number for the host of each rank, -1 where it is not known."""
    numbers: dict[str, int] = {}
    hosts = np.full(measurement.size, -1, np.int32)
    for rank, said in measurement.ranks.items():
        host = _host_of(said)
        if host:
            hosts[rank] = numbers.setdefault(host, len(numbers))
    return hosts


_NO_MEMORY = 1  # the `Failure` of team.h
LAUNCHES = -2  # stands for the communicator of launches of kernels, whose tag is their correlation

MESSAGES = np.dtype(
    [
        ("sender", "<i4"),  # indices of locations
        ("receiver", "<i4"),
        ("sent", "<i8"),  # absolute ticks of the two events
        ("received", "<i8"),
        ("send_number", "<i8"),  # among the ends of messages of the location
        ("receive_number", "<i8"),
        ("bytes", "<u8"),  # as sent
        ("comm", "<i4"),  # number of the run
        ("tag", "<u4"),
    ]
)


@dataclass(frozen=True)
class MessageTable:
    """Messages whose both ends were recorded, and launches of kernels that were executed."""

    messages: NDArray[np.void]  # Dtype `MESSAGES`; those of a channel in order
    ends: NDArray[np.int64]  # How many ends each location has, shape (locations,)
    # Recorded sends and receives, matched or not, without launches.
    sends: int
    receives: int


def match_messages(measurement: Measurement, most: int = 1 << 62) -> MessageTable:
    """Match the messages of a trace; of one with more than `most` sends only count them."""
    inputs = make_inputs(measurement, 1)
    library = _matcher()
    counts = np.zeros(3, np.int64)
    handle = library.match_messages(ctypes.byref(inputs.run), most, counts.ctypes.data)
    if not handle:
        raise inputs.error_of(_NO_MEMORY)
    try:
        messages = np.zeros(counts[0], MESSAGES)
        ends = np.zeros(len(measurement.locations), np.int64)
        library.messages_copy(handle, messages.ctypes.data, ends.ctypes.data)
    finally:
        library.messages_free(handle)
    # The replay counts ticks from the first one of each rank.
    origins = [
        int(measurement.ranks[place.rank].opening.get("epoch", 0))
        for place in measurement.locations
    ]
    for end, time in (("sender", "sent"), ("receiver", "received")):
        messages[time] += np.array(origins, np.int64)[messages[end]]
    return MessageTable(messages, ends, *counts[1:].tolist())


def by_location(locations: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each location that occurs in a column of messages, and the rows that have it."""
    order = np.argsort(locations, kind="stable")
    numbers, starts = np.unique(locations[order], return_index=True)
    if len(order):
        yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


@cache
def _clock() -> Any:
    return load_replay(
        {
            "clock_correct": (POINTER, POINTER, POINTER, ctypes.c_double, POINTER, POINTER),
            "clock_knots": (ctypes.c_int64, POINTER, ctypes.c_int32, POINTER),
            "clock_free": (None, POINTER),
        },
        "logical_clock.cpp",
    )


@cache
def _matcher() -> Any:
    return load_replay(
        {
            "match_messages": (POINTER, POINTER, ctypes.c_int64, POINTER),
            "messages_copy": (None, POINTER, POINTER, POINTER),
            "messages_free": (None, POINTER),
        },
        "messages.cpp",
    )
