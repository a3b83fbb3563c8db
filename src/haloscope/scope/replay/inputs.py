"""Inputs of the replays: events mapped into memory as arrays, and the processes that share the ranks."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import available_cores
from haloscope.errors import MachineError
from haloscope.scope.record.build import EVENTS_HEADER, compile_library, load_library
from haloscope.scope.replay.shifts import Shifts, find_shifts
from haloscope.scope.trace.measurement import HEADER_WORDS, Measurement, line_through, run_begin
from haloscope.scope.trace.trace import DECODER

Bytes = NDArray[np.uint8]


class Processes(Protocol):
    """Processes started together, such as the ranks of an MPI launcher."""

    # Number of this process, and of processes.
    rank: int
    size: int
    local_size: int  # How many of them share this host

    def exchange(self, parts: Sequence[Bytes]) -> list[Bytes]:
        """Give part p to process p; returns what each has given to this one."""

    def allows_threads(self) -> bool:
        """Whether threads other than the first may exchange."""

    def abort(self, code: int) -> None:
        """End all processes."""


def shared(processes: Processes, record: Any) -> Any:
    """Broadcast of the first process's value, anything that JSON can hold."""
    nothing = np.zeros(0, np.uint8)
    text = json.dumps(record).encode() if processes.rank == 0 else b""
    mine = np.frombuffer(text, np.uint8) if text else nothing
    return json.loads(processes.exchange([mine] * processes.size)[0].tobytes())


def threads_per_process(processes: Processes, wanted: int) -> int:
    """Threads that every process uses: the same number in all, and together no more than cores."""
    if not processes.allows_threads():
        return 1
    own = wanted or max(1, available_cores() // processes.local_size)
    counts = processes.exchange([np.array([own], "<i8").view(np.uint8)] * processes.size)
    return int(min(part.view("<i8")[0] for part in counts))


_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p)


class Peers(ctypes.Structure):
    """`Peers` of ``records.h``."""

    _fields_ = (("count", ctypes.c_int32), ("own", ctypes.c_int32), ("exchange", _EXCHANGE))


class PeersOf:
    """The exchange of some processes as the replay calls it."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._came = np.zeros(1, np.uint8)
        self.structure = Peers(processes.size, processes.rank, _EXCHANGE(self._exchange))

    def _exchange(self, sizes: Any, data: int | None) -> int | None:
        try:
            count = self._processes.size
            lengths = [sizes[other] for other in range(count)]
            whole = np.zeros(0, np.uint8)
            if sum(lengths):
                buffer = (ctypes.c_uint8 * sum(lengths)).from_address(data or 0)
                whole = np.frombuffer(buffer, np.uint8)
            edges = np.cumsum([0, *lengths])
            parts = [whole[edges[other] : edges[other + 1]] for other in range(count)]
            came = self._processes.exchange(parts)
            for other, part in enumerate(came):
                sizes[other] = len(part)
            # One byte more: there is always something to point at.
            self._came = np.concatenate([*came, np.zeros(1, np.uint8)])
            return int(self._came.ctypes.data)
        except Exception as error:  # Nothing gets out of a callback: the others would wait forever.
            print(f"haloscope: error: the processes cannot communicate: {error}", flush=True)
            self._processes.abort(MachineError.exit_code)
            return None


# The structures are those of ``run.h`` and ``decoder.h``.

_HERE = Path(__file__).parent
_HEADERS = (*sorted(_HERE.glob("*.h")), DECODER, EVENTS_HEADER)
POINTER = ctypes.c_void_p


def load_replay(functions: Mapping[str, Sequence[Any]], *sources: str) -> Any:
    """A compiled replay; `functions`: as :func:`haloscope.scope.record.build.load_library` takes them."""
    paths = [_HERE / name for name in sources]
    return load_library(
        compile_library(paths, _HEADERS, flags=("-fvisibility-inlines-hidden",)), functions
    )


_NO_THREADS = 2
_ROLES = {
    **dict.fromkeys(("send", "isend", "recv", "irecv", "wait", "start", "probe"), 2),
    "sendrecv": 3,
    "test": 4,
    "rma": 6,
    "rma_sync": 7,
}
_COLLECTIVE = 5
_COLLECTIVE_ROLES = {
    "barrier", "broadcast", "scatter", "reduce", "gather", "allreduce", "allgather", "alltoall",
    "reduce_scatter", "scan", "exscan", "neighbour", "icollective", "init", "finalize",
}  # fmt: skip
_PARADIGMS = {"measurement": 8, "cuda": 9, "nccl": 9, "openmp": 10}


def role_number(paradigm: str, role: str) -> int:
    """``Role`` of ``run.h`` for a region's paradigm and role."""
    if paradigm == "mpi":
        return _COLLECTIVE if role in _COLLECTIVE_ROLES else _ROLES.get(role, 1)
    return _PARADIGMS.get(paradigm, 0)


class LocationInput(ctypes.Structure):
    """``LocationInput`` of ``decoder.h``."""

    _fields_ = (
        ("words", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("epoch", ctypes.c_int64),
        ("rate", ctypes.c_double),
        ("zero", ctypes.c_double),
        ("rank", ctypes.c_int32),
        ("is_stream", ctypes.c_int32),
        ("nodes", ctypes.c_void_p),
        ("node_count", ctypes.c_int64),
        ("comms", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("comm_count", ctypes.c_int64),
        ("windows", ctypes.c_void_p),
        ("window_numbers", ctypes.c_void_p),
        ("window_count", ctypes.c_int64),
        ("group_starts", ctypes.c_void_p),
        ("group_members", ctypes.c_void_p),
        ("group_count", ctypes.c_int64),
        ("knots", ctypes.c_void_p),
        ("knot_count", ctypes.c_int64),
    )


class RunInput(ctypes.Structure):
    """``RunInput`` of ``run.h``."""

    _fields_ = (
        ("locations", ctypes.POINTER(LocationInput)),
        ("location_count", ctypes.c_int64),
        ("rank_count", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("node_parents", ctypes.c_void_p),
        ("node_roles", ctypes.c_void_p),
        ("node_entered", ctypes.c_void_p),
        ("node_count", ctypes.c_int64),
        ("comm_starts", ctypes.c_void_p),
        ("comm_members", ctypes.c_void_p),
        ("comm_count", ctypes.c_int64),
    )


@dataclass
class Inputs:
    """A measurement as the replays take it."""

    measurement: Measurement
    run: RunInput  # The structure that is passed by reference
    shifts: Shifts  # What was put into the trace, as it did not count what a pause left out
    keep: list[Any] = field(default_factory=list)  # Arrays that it points into

    @property
    def events(self) -> int:
        """Words of all locations together: an upper bound of the number of events."""
        return int(sum(self.run.locations[i].count for i in range(self.run.location_count)))

    def error_of(self, failure: int) -> MachineError:
        """Error for a replay that ended with a ``Failure`` of ``team.h``."""
        folder = self.measurement.folder
        if failure == _NO_THREADS:
            return MachineError(
                f"the system refuses {self.run.threads} threads for the replay",
                location=str(folder),
                remedy="use fewer threads with --threads, or raise the limits (ulimit -u, ulimit -v)",
            )
        return MachineError(
            "the replay of the trace does not fit into memory",
            location=str(folder),
            remedy="use a machine with more memory, or more processes: mpiexec -n N haloscope analyze",
        )


def _pointer(array: NDArray[Any], keep: list[Any]) -> int | None:
    keep.append(array)
    return array.ctypes.data if array.size else None


def _starts(groups: list[tuple[int, ...]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Lists of different lengths as one array and where each begins in it."""
    starts = np.zeros(len(groups) + 1, np.int32)
    np.cumsum([len(group) for group in groups], out=starts[1:])
    members = [member for group in groups for member in group]
    return starts, np.array(members, np.int32)


def _entered(measurement: Measurement) -> NDArray[np.int32]:
    """Nearest ancestor of each node that has events of its own: callers from the stack have none."""
    entered = np.full(len(measurement.nodes), -1, np.int32)
    for number, node in enumerate(measurement.nodes):
        parent = node.parent
        if parent >= 0:
            unwound = measurement.regions[measurement.nodes[parent].region].paradigm == "unwound"
            entered[number] = entered[parent] if unwound else parent
    return entered


def _mapped(path: Path, words: int) -> NDArray[np.uint64]:
    try:
        return np.memmap(path, np.uint64, "r", shape=(words,))
    except OSError as error:
        raise MachineError(
            f"the file of {8 * words / 1e9:,.1f} GB cannot be mapped into memory "
            f"({error.strerror or error})",
            location=str(path),
            remedy="raise the limit of address space (ulimit -v), or use a machine with more memory",
        ) from error


def make_inputs(
    measurement: Measurement, threads: int = 0, knots: dict[int, NDArray[np.int64]] | None = None
) -> Inputs:
    """Put a trace into the structures of ``run.h``.

    `knots`: corrections of clocks by index of location: arrays (n, 2) of tick and shift in ticks.
    """
    keep: list[Any] = []
    places = measurement.locations
    inputs = (LocationInput * len(places))()
    numbers: dict[int, tuple[Any, ...]] = {}
    windows_of_run: dict[tuple[int, int], int] = {}
    for rank, said in measurement.ranks.items():
        comms = said.comms.astype(np.int32)
        own = np.full(len(comms), -1, np.int32)
        for number, comm in enumerate(comms):
            if comm >= 0:
                members = measurement.comms[comm].members
                whole = len(members) == measurement.size and members[:1] == (0,)
                if whole and members[rank] == rank:
                    own[number] = rank
                elif rank in members:
                    own[number] = members.index(rank)
        # Windows are made by all members together: the n-th on a communicator is the same for all.
        made: dict[int, int] = {}
        window_numbers = np.zeros(len(said.windows), np.int32)
        for number, comm in enumerate(said.windows.tolist()):
            key = (comm, made.get(comm, 0))
            made[comm] = key[1] + 1
            window_numbers[number] = windows_of_run.setdefault(key, len(windows_of_run))
        starts, members_of_groups = _starts(said.groups)
        numbers[rank] = (
            said.nodes.astype(np.int32),
            comms,
            own,
            said.windows.astype(np.int32),
            window_numbers,
            starts,
            members_of_groups,
        )
    begin = run_begin(measurement)
    shifts = measurement.shifts = measurement.shifts or find_shifts(measurement)
    for index, place in enumerate(places):
        one = inputs[index]
        one.rank = place.rank
        one.is_stream = place.kind == "stream"
        one.rate, zero = line_through(measurement, place.rank, begin)
        # Ticks count from this rank's first one: large numbers would cost the seconds digits.
        origin = int(measurement.ranks[place.rank].opening.get("epoch", 0))
        one.zero = zero + origin * one.rate
        nodes, comms, own, windows, window_numbers, starts, group_members = numbers[place.rank]
        one.nodes, one.node_count = _pointer(nodes, keep), len(nodes)
        one.comms, one.comm_count = _pointer(comms, keep), len(comms)
        one.places = _pointer(own, keep)
        one.windows, one.window_count = _pointer(windows, keep), len(windows)
        one.window_numbers = _pointer(window_numbers, keep)
        one.group_starts, one.group_count = _pointer(starts, keep), len(starts) - 1
        one.group_members = _pointer(group_members, keep)
        if place.events is not None:
            size = place.events.stat().st_size // 8
            if size > HEADER_WORDS:
                words = _mapped(place.events, size)
                keep.append(words)
                one.epoch = int(words[2]) - origin
                one.words = words.ctypes.data + 8 * HEADER_WORDS
                one.count = size - HEADER_WORDS
                edited = shifts.put_into(index, words[HEADER_WORDS:])
                if edited is not None:
                    one.words, one.count = _pointer(edited, keep), len(edited)
        if knots and index in knots:
            table = np.ascontiguousarray(knots[index] - [origin, 0], np.int64)
            one.knots, one.knot_count = _pointer(table, keep), len(table)
    run = RunInput()
    run.locations = ctypes.cast(inputs, ctypes.POINTER(LocationInput))
    keep.append(inputs)
    run.location_count = len(places)
    run.rank_count = measurement.size
    run.threads = threads or available_cores()
    parents = np.array([node.parent for node in measurement.nodes], np.int32)
    regions = [measurement.regions[node.region] for node in measurement.nodes]
    roles = np.array([role_number(one.paradigm, one.role) for one in regions], np.int32)
    run.node_parents = _pointer(parents, keep)
    run.node_roles = _pointer(roles, keep)
    run.node_entered = _pointer(_entered(measurement), keep)
    run.node_count = len(parents)
    comm_starts, comm_members = _starts([comm.members for comm in measurement.comms])
    run.comm_starts = _pointer(comm_starts, keep)
    run.comm_members = _pointer(comm_members, keep)
    run.comm_count = len(measurement.comms)
    return Inputs(measurement, run, shifts, keep)
