"""Ranks of a run: one process, or those of a launcher; their cores; a thread that keeps MPI going."""

from __future__ import annotations

import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from haloscope.device.cpu import available_cores
from haloscope.errors import MachineError, install_command
from haloscope.exchange.ranks.watch import last_words, watch_host


class World:
    """One process on its own; the interface that :class:`MpiWorld` fills for many.

    Attributes
    ----------
    rank, size
        Number of this rank, and of ranks.
    local_rank, local_size
        The same among the ranks of this host.
    """

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    library = "no MPI (one process)"

    @property
    def is_root(self) -> bool:
        """Whether this rank writes files and talks to the user."""
        return self.rank == 0

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum over ranks; exact, hence the same at any rank count, for integers."""
        return values

    def largest(self, value: float) -> float:
        """Largest value of any rank."""
        return value

    def broadcast(self, values: np.ndarray, root: int = 0) -> np.ndarray:
        """Values of `root` on every rank; all pass arrays of one shape and type."""
        return values

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return flag

    def alltoall(self, values: np.ndarray) -> np.ndarray:
        """Row r, of shape (size, k), goes to rank r; the rows that came in, in the same shape."""
        return values.copy()

    def allgather(self, values: np.ndarray) -> np.ndarray:
        """Row r: the values of rank r, which all ranks give as many of; the same on every rank."""
        return self.alltoall(np.tile(values, (self.size, 1)))

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Give bytes ``parts[r]`` to rank r; returns what each has given to this one."""
        return [parts[0].copy()]

    def gather_texts(self, text: str) -> list[str]:
        """The texts of all ranks, on every rank."""
        return [text]

    def sharing(self, identity: str) -> int:
        """How many ranks name the same device as theirs, this one included; all ranks call this.

        A launcher may show each rank no GPU but its own: devices are told apart by what they are.
        """
        return self.gather_texts(identity).count(identity)

    def allows_threads(self) -> bool:
        """Whether threads other than the first may wait for messages."""
        return True

    def barrier(self) -> None:
        """Wait for all ranks."""

    def send(self, values: np.ndarray, to: int) -> None:
        """Send an array to another rank."""
        raise RuntimeError("a single process has no rank to send to")

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int) -> np.ndarray:
        """Receive an array of known shape from another rank."""
        raise RuntimeError("a single process has no rank to receive from")

    def abort(self, code: int) -> None:
        """End all ranks with an exit code."""
        sys.exit(code)


class MpiWorld(World):
    """The ranks of MPI's world communicator, through mpi4py."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise MachineError(
                f"an MPI launcher started this process, but mpi4py cannot be loaded ({error})",
                remedy=f"run {install_command('mpi')}",
            ) from error
        from haloscope.exchange.ranks.launch import tasks_of_launcher

        self._mpi = MPI
        self.communicator = MPI.COMM_WORLD
        self.rank = self.communicator.Get_rank()
        self.size = self.communicator.Get_size()
        self.library = MPI.Get_library_version().splitlines()[0].strip("\x00 ")
        tasks = tasks_of_launcher()
        if self.size == 1 and tasks > 1:
            raise MachineError(
                f"the launcher started {tasks} ranks, but this MPI ({self.library}) runs each as a separate "
                "program",
                remedy="use the launcher of this MPI, or select its connection with srun (--mpi=pmi2 or "
                "--mpi=pmix)",
            )
        local = self.communicator.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank = local.Get_rank()
        self.local_size = local.Get_size()
        local.Free()
        self._watch = watch_host()

    def sum(self, values: np.ndarray) -> np.ndarray:
        result = np.empty_like(values)
        self.communicator.Allreduce(np.ascontiguousarray(values), result, op=self._mpi.SUM)
        return result

    def largest(self, value: float) -> float:
        result = np.empty(1)
        self.communicator.Allreduce(np.array([value], "f8"), result, op=self._mpi.MAX)
        return float(result[0])

    def broadcast(self, values: np.ndarray, root: int = 0) -> np.ndarray:
        result = np.ascontiguousarray(values).copy()
        self.communicator.Bcast(result, root=root)
        return result

    def any(self, flag: bool) -> bool:
        return self.largest(float(flag)) > 0

    def alltoall(self, values: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(values)
        result = np.empty_like(array)
        self.communicator.Alltoall(array.view(np.uint8), result.view(np.uint8))
        return result

    def allgather(self, values: np.ndarray) -> np.ndarray:
        array = np.ascontiguousarray(values)
        result = np.empty((self.size, *array.shape), array.dtype)
        # Copies are handed on from rank to rank: fewer messages than if each sent its own to all.
        self.communicator.Allgather(array.view(np.uint8), result.reshape(-1).view(np.uint8))
        return result

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        counts = np.array([[len(part)] for part in parts], np.int64)
        sizes = self.alltoall(counts)[:, 0]
        came = np.empty(int(sizes.sum()), np.uint8)
        self.communicator.Alltoallv(
            [np.concatenate(list(parts)), counts[:, 0].tolist()], [came, sizes.tolist()]
        )
        return np.split(came, np.cumsum(sizes)[:-1])

    def gather_texts(self, text: str) -> list[str]:
        packed = text.encode()
        longest = int(self.largest(len(packed)))
        if longest == 0:
            return [""] * self.size
        mine = np.frombuffer(packed.ljust(longest, b"\0"), np.uint8)
        rows = np.empty((self.size, longest), np.uint8)
        self.communicator.Allgather(mine, rows)
        return [row.tobytes().rstrip(b"\0").decode() for row in rows]

    def allows_threads(self) -> bool:
        return bool(self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED)

    def barrier(self) -> None:
        self.communicator.Barrier()

    def send(self, values: np.ndarray, to: int) -> None:
        self.communicator.Send(np.ascontiguousarray(values), dest=to, tag=7)

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int) -> np.ndarray:
        result = np.empty(shape, dtype)
        self.communicator.Recv(result, source=source, tag=7)
        return result

    def abort(self, code: int) -> None:
        self._watch.end_all()
        last_words()
        self.communicator.Abort(code)


def open_world() -> World:
    """The ranks that this process was started with: MPI's where a launcher started it.

    MPI is not touched otherwise: a plain run starts without its start-up time.
    """
    from haloscope.exchange.ranks.launch import started_by_launcher

    return MpiWorld() if started_by_launcher() else World()


def ranks_on_these_cores(world: World) -> int:
    """How many ranks run on the cores of this one; all ranks call this."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    # Hosts may have the same name, but not the same memory.
    return min(world.sharing(f"{platform.node()} cores {cores}"), world.local_size)


def threads_of_rank(world: World) -> int:
    """Threads of this rank where nothing says how many; all ranks call this.

    Returns: what ``OMP_NUM_THREADS`` says; else this rank's part of the cores that it may run on,
    at least 1.
    """
    # Launchers give each rank cores of its own, or let all that they start on a host run on all of
    # its cores. Then these share them: more threads than cores hold each other up at the end of
    # every loop.
    together = ranks_on_these_cores(world)
    variable = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if variable.isdigit() and int(variable) > 0:
        return int(variable)
    return max(1, available_cores() // together)


class ProgressThread:
    """Calls a function over and over within a ``with`` block, from a thread of its own."""

    # MPI libraries move large messages only while the program is inside an MPI call. The function
    # must let other threads run while it waits, as calls of MPI do; MPI must allow calls from
    # several threads, one at a time. Outside the block the thread sleeps.

    def __init__(self, world: World, call: Callable[[], None]) -> None:
        if not world.allows_threads():
            raise MachineError(
                f"it needs an MPI that allows threads, and {world.library} was started without",
                location="machine.progress = 'thread'",
                remedy="use 'test' or 'none'",
            )
        self._wanted = threading.Event()
        self._inside = threading.Lock()
        ended = threading.Event()
        arguments = (call, self._wanted, self._inside, ended)
        threading.Thread(target=_run, args=arguments, daemon=True, name="progress").start()
        weakref.finalize(self, _end, self._wanted, ended)

    def __enter__(self) -> None:
        self._wanted.set()

    def __exit__(self, *_: object) -> None:
        self._wanted.clear()
        # Once the lock is free the thread is not within MPI, and will not go there.
        with self._inside:
            pass


def _run(
    call: Callable[[], None],
    wanted: threading.Event,
    inside: threading.Lock,
    ended: threading.Event,
) -> None:
    while True:
        wanted.wait()
        if ended.is_set():
            return
        with inside:
            if wanted.is_set():
                call()


def _end(wanted: threading.Event, ended: threading.Event) -> None:
    ended.set()
    wanted.set()
