"""Formats of other tools: Cube reports, OTF2 traces in and out, timelines for Perfetto.

Imported by commands and analysis; imports analysis, record, replay and trace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.analysis.result import Result
from haloscope.scope.record import prototypes
from haloscope.scope.replay.causal import by_location, correct, match_messages
from haloscope.scope.trace.measurement import Location, Measurement
from haloscope.scope.trace.trace import Events, Kind, read_pieces


def check_call_tree(result: Result) -> None:
    """See that parents come before their children and that all name a region."""
    for number, node in enumerate(result.nodes):
        if not (-1 <= node.parent < number and 0 <= node.region < len(result.regions)):
            raise InputError(
                f"node {number} of the call tree of the analysis has no valid parent or region",
                remedy="run haloscope analyze on the measurement again",
            )


def check_new(folder: Path) -> None:
    """See that a folder that is to be made has nothing in it."""
    if os.path.exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "it exists already",
            location=str(folder),
            remedy="give a new or empty folder with --out",
        )


def traced(measurement: Measurement) -> list[Location]:
    """Locations that have events."""
    places = [place for place in measurement.locations if place.events is not None]
    if not places:
        raise InputError(
            "the measurement is a profile and holds no events",
            location=str(measurement.folder),
            remedy="measure again with haloscope measure --trace",
        )
    return places


def size_of(place: Location) -> int:
    """Bytes of a location's events."""
    return place.events.stat().st_size if place.events else 0


def pieces(place: Location) -> Iterator[tuple[Events, int]]:
    """Pieces of a location's events, and how many bytes of them have been read."""
    assert place.events is not None
    size = size_of(place)
    for number, events in enumerate(read_pieces(place.events, _PIECE_WORDS), 1):
        yield events, min(size, 8 * _PIECE_WORDS * number)


_PIECE_WORDS = 1 << 16
_NANOSECONDS = 10**9  # in a second


class RunClock:
    """Ticks of each rank's clock as ticks of one clock, which begins with the run."""

    # Offsets between the ranks are taken out, and where messages between hosts would arrive before
    # they were sent, the logical clock shifts them (:func:`haloscope.scope.replay.causal.correct`), as the
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
_OTF2_ROLES = {
    (paradigm, role): otf2_role
    for paradigm, otf2_role, roles in (
        ("program", "ARTIFICIAL", ("",)),
        ("measurement", "ARTIFICIAL", ("",)),
        ("mpi", "BARRIER", ("barrier",)),
        ("mpi", "COLL_ONE2ALL", ("broadcast", "scatter")),
        ("mpi", "COLL_ALL2ONE", ("reduce", "gather")),
        ("mpi", "COLL_ALL2ALL", ("allreduce", "allgather", "alltoall", "reduce_scatter")),
        ("mpi", "COLL_OTHER", ("scan", "exscan", "neighbour", "icollective")),
        ("mpi", "POINT2POINT", ("send", "isend", "recv", "irecv", "sendrecv", "wait", "test")),
        ("mpi", "POINT2POINT", ("probe", "start")),
        ("mpi", "RMA", ("rma", "rma_sync")),
        ("mpi", "FILE_IO", ("io",)),
        ("openmp", "PARALLEL", ("parallel",)),
        ("openmp", "BARRIER", ("barrier",)),
        ("openmp", "WORKSHARE", ("work",)),
        ("cuda", "KERNEL", ("kernel",)),
        ("cuda", "DATA_TRANSFER", ("copy",)),
    )
    for role in roles
}
# And back, where a name does not tell.
_WORK = ("LOOP", "SECTIONS", "SECTION", "SINGLE", "SINGLE_SBLOCK", "MASTER", "TASK")
_FROM_OTF2 = {
    **{
        (of, theirs): ours for (of, ours), theirs in _OTF2_ROLES.items() if of in ("openmp", "cuda")
    },
    ("openmp", "IMPLICIT_BARRIER"): "barrier",
    **{("openmp", name): "work" for name in _WORK},
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
    return _OTF2_ROLES.get((paradigm, role)) or _OTF2_ROLES.get((paradigm, ""), "FUNCTION")


ENDS = frozenset(
    (Kind.SEND, Kind.ISEND, Kind.LAUNCH, Kind.RECV, Kind.IRECV_DONE, Kind.EXECUTE)
)  # of messages and launches


def number_messages(
    measurement: Measurement, clock: RunClock, begin: int, end: int
) -> list[NDArray[np.int64]]:
    """Numbers of the messages at their ends, by location: from 1, 0 where the other end is missing.

    `begin`, `end`: nanoseconds of the window that both ends must lie in.
    """
    table = match_messages(measurement)
    messages = table.messages
    is_inside = np.ones(len(messages), bool)
    for side, time in (("sender", "sent"), ("receiver", "received")):
        for location, which in by_location(messages[side]):
            rank = measurement.locations[location].rank
            times = clock.nanoseconds(rank, messages[time][which])
            is_inside[which] &= (times >= begin) & (times <= end)
    messages = messages[is_inside]
    ranks = np.array([place.rank for place in measurement.locations])
    sender, receiver = ranks[messages["sender"]], ranks[messages["receiver"]]
    messages = messages[np.lexsort((messages["tag"], messages["comm"], receiver, sender))]
    numbers = [np.zeros(count, np.int64) for count in table.ends.tolist()]
    for side, place in (("sender", "send_number"), ("receiver", "receive_number")):
        for location, which in by_location(messages[side]):
            numbers[location][messages[place][which]] = which + 1
    return numbers
