"""Shared by exports: roles of regions, call trees, the clock of a run, and the receive of each send."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.analysis.result import Result
from haloscope.scope.record import prototypes
from haloscope.scope.replay.logical_clock import correct
from haloscope.scope.trace.measurement import Location, Measurement
from haloscope.scope.trace.trace import (
    NOBODY,
    SKIPPED_COUNT,
    SKIPPED_RECEIVED,
    SKIPPED_SENT,
    SKIPPED_UNSURE,
    Events,
    Kind,
    read_pieces,
)


def check_call_tree(result: Result) -> None:
    """See that parents come before their children and that all name a region."""
    for number, node in enumerate(result.nodes):
        if not (-1 <= node.parent < number and 0 <= node.region < len(result.regions)):
            raise InputError(
                f"node {number} of the call tree of the analysis has no valid parent or region",
                remedy="run haloscope analyze on the measurement again",
            )


_NANOSECONDS = 10**9  # in a second


class RunClock:
    """Ticks of each rank's clock as ticks of one clock, which begins with the run."""

    # Offsets between the ranks are taken out, and where messages between hosts would arrive before
    # they were sent, the logical clock shifts them (:func:`haloscope.scope.replay.logical_clock.correct`), as the
    # analysis does.

    def __init__(self, measurement: Measurement) -> None:
        ranks = measurement.ranks.values()
        rates = {float(said.opening["ticks_per_second"]) for said in ranks}
        self.ticks_per_second = max(1, round(max(rates)))
        self._measurement = measurement
        is_one = rates == {float(self.ticks_per_second)} and not any(
            said.offsets or said.rate for said in ranks
        )
        # Whole numbers need no rounding where all ranks share one clock.
        epochs = [int(said.opening.get("epoch", 0)) for said in ranks]
        self._shift = min(epochs) if is_one else None
        self._knots = {
            measurement.locations[index].rank: knots
            for index, knots in correct(measurement).knots.items()
        }

    def ticks(self, rank: int, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks since the begin of the run, never negative, in the order of the events."""
        knots = self._knots.get(rank)
        if knots is not None:
            shifts = np.interp(ticks, knots[:, 0], knots[:, 1])
            ticks = ticks + np.rint(shifts).astype(np.int64)
        if self._shift is not None:
            return np.asarray(np.maximum(ticks - self._shift, 0), np.int64)
        rate, zero = self._measurement.ticks_to_seconds(rank)
        epoch = int(self._measurement.ranks[rank].opening.get("epoch", 0))
        # Few digits are left of a product of absolute ticks: count from the epoch.
        seconds = (ticks - epoch) * rate + (epoch * rate + zero)
        rounded = np.maximum(np.rint(seconds * self.ticks_per_second), 0)
        return np.asarray(rounded, np.int64)

    def nanoseconds(self, rank: int, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nanoseconds since the begin of the run, rounded, never negative."""
        whole = self.ticks(rank, ticks)
        if self.ticks_per_second == _NANOSECONDS:
            return whole
        seconds, rest = np.divmod(whole, self.ticks_per_second)
        part = np.rint(rest * (_NANOSECONDS / self.ticks_per_second))
        return np.asarray(seconds * _NANOSECONDS + part.astype(np.int64), np.int64)


# For what the tracer does not measure itself. The first pattern that fits the whole name, in
# lower case and without MPI_, decides.
_MPI = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        ("(session_)?init", "init"),
        ("(session_)?finalize", "finalize"),
        ("i?neighbor_.*_init|grequest_.*|request_.*|p(ready|arrived).*", "request"),
        ("test_cancelled|.*_init", "request"),
        ("ineighbor_.*", "icollective"),
        ("neighbor_.*", "neighbour"),
        ("file_.*|register_datarep", "io"),
        ("win_.*", "rma_sync"),
        ("(comm|group|cart|graph|dist_graph|intercomm|topo|dims)_.*", "comm"),
    )
)
_CUDA = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r".*launch.*", "launch"),
        (r".*(synchronize|streamwait|eventwait).*", "sync"),
        (r".*(memcpy|memset|memprefetch).*", "copy"),
        (r".*(malloc|free|alloc|hostregister|hostunregister).*", "memory"),
    )
)

# Roles of regions in OTF2 by our paradigm and role; by paradigm alone where the role is "".
OTF2_ROLES = {
    ("program", ""): "ARTIFICIAL",
    ("measurement", ""): "ARTIFICIAL",
    ("mpi", "barrier"): "BARRIER",
    ("mpi", "broadcast"): "COLL_ONE2ALL",
    ("mpi", "scatter"): "COLL_ONE2ALL",
    ("mpi", "reduce"): "COLL_ALL2ONE",
    ("mpi", "gather"): "COLL_ALL2ONE",
    ("mpi", "allreduce"): "COLL_ALL2ALL",
    ("mpi", "allgather"): "COLL_ALL2ALL",
    ("mpi", "alltoall"): "COLL_ALL2ALL",
    ("mpi", "reduce_scatter"): "COLL_ALL2ALL",
    ("mpi", "scan"): "COLL_OTHER",
    ("mpi", "exscan"): "COLL_OTHER",
    ("mpi", "neighbour"): "COLL_OTHER",
    ("mpi", "icollective"): "COLL_OTHER",
    ("mpi", "send"): "POINT2POINT",
    ("mpi", "isend"): "POINT2POINT",
    ("mpi", "recv"): "POINT2POINT",
    ("mpi", "irecv"): "POINT2POINT",
    ("mpi", "sendrecv"): "POINT2POINT",
    ("mpi", "wait"): "POINT2POINT",
    ("mpi", "test"): "POINT2POINT",
    ("mpi", "probe"): "POINT2POINT",
    ("mpi", "start"): "POINT2POINT",
    ("mpi", "rma"): "RMA",
    ("mpi", "rma_sync"): "RMA",
    ("mpi", "io"): "FILE_IO",
    ("openmp", "parallel"): "PARALLEL",
    ("openmp", "barrier"): "BARRIER",
    ("openmp", "work"): "WORKSHARE",
    ("cuda", "kernel"): "KERNEL",
    ("cuda", "copy"): "DATA_TRANSFER",
}
# And back, where a name does not tell.
_FROM_OTF2 = {
    ("openmp", "PARALLEL"): "parallel",
    ("openmp", "BARRIER"): "barrier",
    ("openmp", "IMPLICIT_BARRIER"): "barrier",
    ("openmp", "WORKSHARE"): "work",
    ("openmp", "LOOP"): "work",
    ("openmp", "SECTIONS"): "work",
    ("openmp", "SECTION"): "work",
    ("openmp", "SINGLE"): "work",
    ("openmp", "SINGLE_SBLOCK"): "work",
    ("openmp", "MASTER"): "work",
    ("openmp", "TASK"): "work",
    ("cuda", "KERNEL"): "kernel",
    ("cuda", "DATA_TRANSFER"): "copy",
}


@cache
def _measured() -> dict[str, str]:
    """Roles of the functions that the tracer measures, by their names in lower case."""
    return {function.shown.lower(): function.role for function in prototypes.functions()}


def role_of(name: str, paradigm: str, otf2_role: str = "") -> str:
    """Role of a region, by what it is called and by its role in OTF2.

    `name`: such as ``MPI_Send``; forms of Fortran (``mpi_send_``), of the profiling interface
    (``PMPI_Send``) and of large counts (``MPI_Send_c``) are the same.
    """
    plain = name.lower().rstrip("_")
    if paradigm == "mpi":
        plain = re.sub("^p?mpi_", "", plain).removesuffix("_c")
        return _measured().get(f"mpi_{plain}") or next(
            (role for fits, role in _MPI if fits.fullmatch(plain)), "other"
        )
    if paradigm == "measurement":
        return "flush" if "flush" in plain else "clock" if "clock" in plain else "other"
    role = _FROM_OTF2.get((paradigm, otf2_role))
    if role is None and paradigm == "cuda":
        role = next((role for fits, role in _CUDA if fits.fullmatch(plain)), None)
    return role or "other"


def otf2_role_of(paradigm: str, role: str) -> str:
    """Name of the role in OTF2 for one of ours."""
    return OTF2_ROLES.get((paradigm, role)) or OTF2_ROLES.get((paradigm, ""), "FUNCTION")


# Messages match in order by sender, receiver, communicator and tag; a non-blocking receive takes its
# turn where it was posted. Messages that were not recorded take their turns, too. Launches of kernels
# and their execution match by correlation.

_LAUNCHES = -1  # stands for a communicator
_SENT = (Kind.SEND, Kind.ISEND, Kind.LAUNCH)
_RECEIVED = (Kind.RECV, Kind.IRECV_DONE, Kind.EXECUTE)
ENDS = frozenset((*_SENT, *_RECEIVED))
# Columns of a table of ends of messages: what they match by, when they were posted (a rank's first
# event has number 0), and which end of which location they are.
# The last column counts messages that were not recorded; it is 0 for one that was.
_SENDER, _RECEIVER, _COMM, _TAG, _IS_SENT, _TURN, _POSTED, _PLACE, _INDEX, _INSIDE = range(10)
_SKIPPED = 10
_COLUMNS = 11
_Table = NDArray[np.int64]


def match_messages(
    measurement: Measurement, places: list[Location], clock: RunClock, begin: int, end: int
) -> list[NDArray[np.int64]]:
    """Number the messages whose both ends lie in a window of time.

    `begin`, `end`: nanoseconds on it.
    """
    by_rank: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        by_rank.setdefault(place.rank, []).append(number)
    counts = [0] * len(places)
    tables: list[_Table] = []
    for numbers in by_rank.values():
        tables_here = []
        for number in numbers:
            table = _ends_of(measurement, places[number], number, clock, begin, end)
            counts[number] = int((table[:, _SKIPPED] == 0).sum())
            tables_here.append(table)
        table = _with_turns(np.concatenate(tables_here))
        tables.append(table[table[:, _INSIDE] != 0])
    empty = np.zeros((0, _COLUMNS), np.int64)
    ends = _matched(np.concatenate(tables) if tables else empty)
    numbers_of = [np.zeros(count, np.int64) for count in counts]
    for number, table in enumerate(numbers_of):
        here = ends[ends[:, 0] == number]
        table[here[:, 1]] = here[:, 2]
    return numbers_of


def _ends_of(
    measurement: Measurement,
    place: Location,
    number: int,
    clock: RunClock,
    begin: int,
    end: int,
) -> _Table:
    """All ends of messages of one location, in order."""
    if place.events is None:
        return np.zeros((0, _COLUMNS), np.int64)
    comms = measurement.ranks[place.rank].comms
    posted: dict[int, int] = {}  # ticks by request
    pieces = []
    for events in read_pieces(place.events):
        is_skipped, is_skipped_send = _skipped(events)
        is_end = np.isin(events.kinds, list(ENDS)) | is_skipped
        table = np.zeros((int(is_end.sum()), _COLUMNS), np.int64)
        kinds, payloads = events.kinds[is_end], events.payloads[is_end]
        words = events.words[is_end]
        skipped = is_skipped[is_end]
        is_sent = np.isin(kinds, _SENT) | is_skipped_send[is_end]
        is_gpu = (kinds == Kind.LAUNCH) | (kinds == Kind.EXECUTE)
        own = (words[:, 0] & np.uint64(NOBODY)).astype(np.int64)
        known = (own < len(comms)) & ~is_gpu
        comm = np.where(is_gpu, _LAUNCHES, np.where(known, 0, -2))
        comm[known] = comms[own[known]]
        peers = np.where(is_gpu, place.rank, payloads)
        table[:, _SENDER] = np.where(is_sent, place.rank, peers)
        table[:, _RECEIVER] = np.where(is_sent, peers, place.rank)
        table[:, _COMM] = comm
        tags = (words[:, 0] >> np.uint64(32)).astype(np.int64)
        table[:, _TAG] = np.where(is_gpu, np.where(is_sent, words[:, 0], payloads), tags)
        table[:, _IS_SENT] = is_sent
        table[:, _POSTED] = events.ticks[is_end]
        _post(events, is_end, table, posted)
        table[:, _PLACE] = number
        times = clock.nanoseconds(place.rank, events.ticks[is_end])
        table[:, _INSIDE] = (times >= begin) & (times <= end) & (comm != -2) & ~skipped
        count = (words[:, 1] & np.uint64(SKIPPED_COUNT)).astype(np.int64)
        table[:, _SKIPPED] = np.where(skipped, count, 0)
        pieces.append(table)
    table = np.concatenate(pieces)
    recorded = table[:, _SKIPPED] == 0
    table[:, _INDEX] = np.cumsum(recorded) - recorded
    return table


def _skipped(events: Events) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which events are of messages that were not recorded, and which of these of sends."""
    word = events.words[:, 1]
    sent = (word & np.uint64(SKIPPED_SENT)) != 0
    is_skipped = events.kinds == Kind.SKIPPED
    is_skipped &= sent | ((word & np.uint64(SKIPPED_RECEIVED)) != 0)
    is_skipped &= (word & np.uint64(SKIPPED_UNSURE)) == 0
    is_skipped &= (word & np.uint64(SKIPPED_COUNT)) > 0
    return is_skipped, is_skipped & sent


def _post(events: Events, is_end: NDArray[np.bool_], table: _Table, posted: dict[int, int]) -> None:
    """Give receives that are completed the time at which they were posted."""
    is_done = (events.kinds == Kind.IRECV_DONE) | (
        _skipped(events)[0] & (events.words[:, 2] < np.uint64(NOBODY))
    )
    wanted = np.flatnonzero((events.kinds == Kind.IRECV) | is_done)
    is_posted = (events.kinds[wanted] == Kind.IRECV).tolist()
    requests = np.where(
        is_posted, events.payloads[wanted], events.words[wanted, 2].astype(np.int64)
    )
    ticks = events.ticks[wanted].tolist()
    rows = (np.cumsum(is_end) - 1)[wanted].tolist()
    for first, request, tick, row in zip(is_posted, requests.tolist(), ticks, rows, strict=True):
        if first:
            posted[request] = tick
        elif request in posted:
            table[row, _POSTED] = posted.pop(request)


def _with_turns(table: _Table) -> _Table:
    """Count each end among those of its rank that match by the same."""
    if len(table) == 0:
        return table
    order = np.lexsort(
        (
            table[:, _SKIPPED] == 0,
            table[:, _INDEX],
            table[:, _PLACE],
            table[:, _POSTED],
            *(table[:, column] for column in (_IS_SENT, _TAG, _COMM, _RECEIVER, _SENDER)),
        )
    )
    table = table[order]
    keys = table[:, [_SENDER, _RECEIVER, _COMM, _TAG, _IS_SENT]]
    begins = np.ones(len(table), bool)
    begins[1:] = np.any(keys[1:] != keys[:-1], axis=1)
    first = np.flatnonzero(begins)
    before = np.cumsum(np.maximum(table[:, _SKIPPED], 1)) - np.maximum(table[:, _SKIPPED], 1)
    table[:, _TURN] = before - before[first[np.cumsum(begins) - 1]]
    return table


def _matched(table: _Table) -> _Table:
    """Rows (location, index, number) of ends that have another one."""
    columns = [_SENDER, _RECEIVER, _COMM, _TAG, _TURN]
    order = np.lexsort((table[:, _IS_SENT], *(table[:, column] for column in reversed(columns))))
    table = table[order]
    keys = table[:, columns]
    pair = np.all(keys[1:] == keys[:-1], axis=1) & (table[1:, _IS_SENT] > table[:-1, _IS_SENT])
    first = np.flatnonzero(pair)
    numbers = np.arange(1, len(first) + 1)
    both = np.concatenate([first, first + 1])
    return np.column_stack(
        [table[both, _PLACE], table[both, _INDEX], np.concatenate([numbers, numbers])]
    )
