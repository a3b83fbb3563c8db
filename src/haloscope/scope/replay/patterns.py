"""Runs the wait-state replay and puts its waits into a result."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import NUMBER, children
from haloscope.scope.analysis.result import PAIRS, WAITS, Result
from haloscope.scope.replay.inputs import POINTER, Inputs, PeersOf, Processes, load_replay
from haloscope.scope.trace.measurement import Measurement

_SIZES = 66
_KINDS = ("p2p", "collective", "rma")  # of MPI's communication and synchronisation
# Names of wait_analysis.h's slots.
_SLOTS = (
    *("time", "visits", "p2p_synchronisation", "late_sender"),
    *("wrong_order_same_source", "wrong_order_different_sources", "late_receiver"),
    "wait_at_barrier",
    *("barrier_completion", "wait_at_nxn", "nxn_completion", "late_broadcast"),
    *("early_reduce", "early_scan", "scan_completion", "init_completion"),
    *("wait_at_finalize", "wait_at_fence", "early_fence", "late_post"),
    *("early_wait", "late_complete", "lock_contention", "messages_sent"),
    *("empty_messages_sent", "messages_received", "empty_messages_received", "bytes_sent"),
    *("bytes_received", "collectives", "bytes_collective", "bytes_rma"),
    *("late_senders", "late_receivers", "idle_threads", "delay_short"),
    *("delay_long", "critical_path", "imbalance"),
)
_PAIR = np.dtype([*PAIRS.descr[:3], ("unused", "<i4"), *PAIRS.descr[3:]])
_PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_double)
_MOST_WAITS_KEPT = 1_000_000


def load() -> Any:
    """The compiled replay."""
    integer = ctypes.c_int64
    arrays = ("values", "begins", "ends", "sizes", "open")
    return load_replay(
        {
            "find_waits": (POINTER, POINTER, ctypes.c_int, _PROGRESS, POINTER, POINTER),
            "find_causes": (ctypes.c_int, POINTER, POINTER, ctypes.c_double, POINTER),
            "drop_analysis": (None, POINTER),
            **{f"analysis_{name}": (POINTER, POINTER) for name in arrays},
            "analysis_pairs": (POINTER, POINTER, ctypes.POINTER(integer)),
            "analysis_wait_count": (integer, POINTER),
            "analysis_waits": (None, POINTER, integer, POINTER, POINTER),
            "analysis_delays": (None, POINTER, integer, POINTER),
            "analysis_counts": (None, POINTER, POINTER),
        },
        "waits.cpp",
        "causes.cpp",
    )


def _copy(address: int | None, dtype: Any, count: int) -> NDArray[Any]:
    """Copy of an array of the library's."""
    whole = np.dtype(dtype)
    if not address or not count:
        return np.zeros(0, whole)
    buffer = (ctypes.c_char * (whole.itemsize * count)).from_address(address)
    return np.frombuffer(buffer, whole).copy()


def as_pairs(waits: NDArray[Any]) -> NDArray[Any]:
    """Pairs as results keep them."""
    pairs = np.zeros(len(waits), PAIRS)
    for name in PAIRS.names or ():
        pairs[name] = waits[name]
    return pairs


def _waits(library: Any, handle: Any) -> NDArray[Any]:
    """Wait states as results keep them: the longest ones, by begin."""
    most = _MOST_WAITS_KEPT
    metrics = np.array([NUMBER.get(name, -1) for name in _SLOTS], np.int32)
    waits = np.zeros(min(most, library.analysis_wait_count(handle)), WAITS)
    library.analysis_waits(handle, most, metrics.ctypes.data, waits.ctypes.data)
    return waits


def _find_waits(
    library: Any,
    inputs: Inputs,
    causes: bool,
    progress: Callable[[float], None] | None,
    processes: Processes | None,
) -> Any:
    callback = _PROGRESS(progress) if progress is not None else _PROGRESS()
    peers = None if processes is None else PeersOf(processes)
    address = None if peers is None else ctypes.byref(peers.structure)
    failure = ctypes.c_int()
    waits = library.find_waits(
        ctypes.byref(inputs.run), int(causes), callback, address, ctypes.byref(failure)
    )
    if not waits:
        raise inputs.error_of(failure.value)
    return waits


def take_part(inputs: Inputs, causes: bool, processes: Processes) -> None:
    """Replay this process' part of the ranks, for the first process."""
    library = load()
    library.drop_analysis(_find_waits(library, inputs, causes, None, processes))


class Replayed:
    """Arrays of a replay."""

    def __init__(
        self,
        inputs: Inputs,
        causes: bool = True,
        progress: Callable[[float], None] | None = None,
        processes: Processes | None = None,
    ) -> None:
        library = load()
        run = ctypes.byref(inputs.run)
        waits = _find_waits(library, inputs, causes, progress, processes)
        try:
            self.critical_path = 0.0
            self.explained = 0.0
            with ThreadPoolExecutor(1) as beside:
                # Root causes begin with what one thread does alone: the list is made meanwhile.
                listed = beside.submit(_waits, library, waits)
                if causes and inputs.run.threads == 1:
                    listed.result()
                if causes:
                    answer = (ctypes.c_double * 2)()
                    budget = max(2e7, 8.0 * inputs.events)
                    failure = library.find_causes(
                        run, waits, budget, ctypes.cast(answer, ctypes.c_void_p)
                    )
                    if failure:
                        raise inputs.error_of(failure)
                    self.critical_path, self.explained = answer[0], answer[1]
                self.waits = listed.result()  # Wait states as results keep them: the longest ones
                library.analysis_delays(waits, len(self.waits), self.waits.ctypes.data)
            nodes, locations = inputs.run.node_count, inputs.run.location_count
            shape = locations, nodes, len(_SLOTS)
            values = _copy(library.analysis_values(waits), "<f8", math.prod(shape)).reshape(shape)
            # By name, shape (nodes, locations).
            self.slots = {
                name: np.ascontiguousarray(values[:, :, number].T)
                for number, name in enumerate(_SLOTS)
            }
            # Of the locations, seconds on the run's clock.
            self.begins = _copy(library.analysis_begins(waits), "<f8", locations)
            self.ends = _copy(library.analysis_ends(waits), "<f8", locations)
            # Calls of each location that are not left at its end.
            self.open = _copy(library.analysis_open(waits), "<i8", locations)
            sizes = _copy(library.analysis_sizes(waits), "<i8", nodes * _SIZES)
            self.sizes = sizes.reshape(nodes, _SIZES)
            count = ctypes.c_int64()
            address = library.analysis_pairs(waits, ctypes.byref(count))
            self.pairs = _copy(address, _PAIR, count.value)
            counts = np.zeros(11, np.int64)
            library.analysis_counts(waits, counts.ctypes.data)
        finally:
            library.drop_analysis(waits)
        names = (
            *("events", "broken", "unmatched_sends", "unmatched_receives"),
            *("incomplete_collectives", "scans", "scans_synchronising", "unknown"),
            *("skipped_sends", "skipped_receives", "skipped_collectives"),
        )
        # Events, broken locations, unmatched sends and receives, and the like.
        self.counts = dict(zip(names, counts.tolist(), strict=True))


def fill(result: Result, measurement: Measurement, replayed: Replayed) -> None:
    """Put values into the tree of metrics: each contains what lies below it."""
    from haloscope.scope.analysis.metrics import metric_of_role

    slots = replayed.slots
    time = slots["time"]
    values = result.values
    values["time"] = time
    for name in _SLOTS:
        if name not in ("time", "idle_threads") and np.any(slots[name]):
            values[name] = slots[name]
    home = [metric_of_role(region.paradigm, region.role) for region in result.node_regions]
    host = np.where(result.on_stream[None, :], 0.0, time)
    for name in sorted(set(home)):
        rows = np.array([here == name for here in home])
        values[name] = values.get(name, np.zeros_like(time)) + np.where(rows[:, None], host, 0.0)
    zero = np.zeros_like(time)

    def of(name: str) -> NDArray[np.float64]:
        return values.get(name, zero)

    # Calls whose messages are all empty synchronise.
    empty = slots["p2p_synchronisation"]
    values["p2p_communication"] = of("p2p_communication") - empty
    values["p2p_synchronisation"] = empty
    for whole, first, *others in (
        ("late_sender_wrong_order", "wrong_order_same_source", "wrong_order_different_sources"),
        ("delay", "delay_short", "delay_long"),
        ("mpi_communication", *(f"{kind}_communication" for kind in _KINDS)),
        ("mpi_synchronisation", *(f"{kind}_synchronisation" for kind in _KINDS)),
        ("mpi", "mpi_management", "mpi_synchronisation", "mpi_communication", "mpi_io"),
    ):
        values[whole] = sum(map(of, others), of(first))
    values["gpu"] = of("gpu") + sum((of(one.name) for one in children("gpu")), zero)
    values["omp"] = of("omp") + of("omp_management") + of("omp_barrier_wait")
    values["execution"] = of("computation") + of("mpi") + of("gpu") + of("omp")
    result.values = {name: array for name, array in values.items() if np.any(array)}
    result.pairs = as_pairs(replayed.pairs)
    result.sizes = replayed.sizes
    result.waits = replayed.waits
