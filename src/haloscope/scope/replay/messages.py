"""The messages of a trace as a table: both ends of each, matched as in the analysis."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.record.build import EVENTS_HEADER, compile_library
from haloscope.scope.replay.inputs import HEADERS, make_inputs
from haloscope.scope.trace.measurement import Measurement

_HERE = Path(__file__).parent
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
    library = _library()
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
def _library() -> Any:
    """The compiled matcher, with its functions' types set."""
    path = compile_library(
        [_HERE / "messages.cpp"],
        [*HEADERS, _HERE / "channels.h", _HERE / "causal.h", EVENTS_HEADER],
        flags=("-fvisibility-inlines-hidden",),
    )
    library = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    library.match_messages.restype = pointer
    library.match_messages.argtypes = (pointer, ctypes.c_int64, pointer)
    library.messages_copy.restype = None
    library.messages_copy.argtypes = (pointer, pointer, pointer)
    library.messages_free.restype = None
    library.messages_free.argtypes = (pointer,)
    return library
