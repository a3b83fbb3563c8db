"""The controlled logical clock: shifts events so that nothing comes before its cause."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import MachineError
from haloscope.scope.record.build import EVENTS_HEADER, compile_library
from haloscope.scope.replay.inputs import HEADERS, make_inputs
from haloscope.scope.trace.measurement import Measurement, RankDefinitions

_HERE = Path(__file__).parent


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
    # A receive is put to ``max(own time, time of the send + latency)``. From there on the shift
    # shrinks by a hundredth of the time that goes by (forward amplification), so that later
    # intervals keep their lengths and the clock comes back to the measured one. The events before
    # are shifted along a ramp of a fiftieth (backward amortisation), less where a send would
    # overtake its receive. In a collective whoever gets data leaves after all those that give them
    # have entered: all of them in a barrier or an all-to-all, the root of a broadcast, the senders
    # of a reduction, the lower ranks in a scan. Operations of which a trace does not say which rank
    # needs which (``MPI_Alltoallv``, neighbourhood collectives, creation of communicators) are left
    # out. Threads and streams of a rank share its clock.
    # Rabenseifner, Euromicro PDP 1997, 477-484; Becker, Rabenseifner, Wolf and Linford, Parallel
    # Computing 35 (2009) 595, for collectives and the replay; Becker, Geimer, Rabenseifner and
    # Wolf, Cluster Computing 16 (2013) 3, for threads.
    # `latency`: least time from the begin of a send to the end of its receive in seconds; 0 is
    # taken between ranks of one host, whose clock is the same. Where messages went to and fro
    # between two hosts in less than twice that, it is half of what the fastest took.
    if _is_one_clock(measurement) or not any(place.events for place in measurement.locations):
        return Correction()
    inputs = make_inputs(measurement)
    library = _load()
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


def _load() -> Any:
    """The compiled replay, with its functions' types set."""
    path = compile_library(
        [_HERE / "logical_clock.cpp"],
        [*HEADERS, _HERE / "channels.h", _HERE / "causal.h", _HERE / "ramps.h", EVENTS_HEADER],
        flags=("-fvisibility-inlines-hidden",),
    )
    library = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    library.clock_correct.restype = pointer
    library.clock_correct.argtypes = (pointer, pointer, ctypes.c_double, pointer, pointer)
    library.clock_knots.restype = ctypes.c_int64
    library.clock_knots.argtypes = (pointer, ctypes.c_int32, pointer)
    library.clock_free.restype = None
    library.clock_free.argtypes = (pointer,)
    return library
