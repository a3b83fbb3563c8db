"""Ends this rank when another one of its host has died, for which MPI would wait for ever.

A thread of each rank looks at the processes of the other ranks of its host. One that is gone
without having said that it leaves ends all of them, whatever they are in the middle of: a wait of
MPI, a kernel that spins, a pause.

Launchers do that themselves, as a rule faster: Hydra, Open MPI and PALS kill all ranks of all
hosts when one is gone. Slurm does so only with ``srun --kill-on-bad-exit=1`` or where the machine
is set up so; else this thread is what ends the ranks of the host, and its MPI_Abort those of the
others. Where a whole host is lost, the launcher alone can notice.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import mmap
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_PERIOD_SECONDS = 1.0
# How long a launcher has to end this rank, and to name the one that died, before we do.
_LAUNCHER_SECONDS = 3.0
# How long the lowest rank has to tell of it before the others do.
_MESSAGE_SECONDS = 1.0
# How long MPI_Abort may take.
_ABORT_SECONDS = 5.0
# An error of MPI may come of a rank that has died: this long, who it was may be told instead.
_NAMING_SECONDS = _PERIOD_SECONDS + _LAUNCHER_SECONDS + _MESSAGE_SECONDS + _ABORT_SECONDS
_LEAVE_SECONDS = 0.005
_READ_SECONDS = 0.2

_MEMORY = Path("/dev/shm")
_RUNS, _LEAVES = 0, 1


@dataclass(frozen=True)
class Member:
    """A rank of this host."""

    rank: int  # Its number among all ranks
    process: int  # Number of its process
    # When that was started, see `started_at`: a later process may get the same number.
    started: int | None

    def lives(self) -> bool:
        """Whether the process is still there; also where the system cannot tell at the moment."""
        try:
            return started_at(self.process) == self.started
        except OSError:
            return True


def started_at(process: int) -> int | None:
    """Tell when a process of this host was started, and thereby whether it is there."""
    try:
        if sys.platform != "linux":
            os.kill(process, 0)
            return 0
        # The program's name, in brackets, may hold anything; state and the rest follow.
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


class Watch:
    """Watches the other ranks of this host from a thread of its own."""

    def __init__(
        self,
        members: Sequence[Member],
        own: int,
        board: mmap.mmap,
        abort: Callable[[], None] | None = None,
    ) -> None:
        self._members, self._own, self._board, self._abort = members, own, board, abort
        if len(members) > 1:
            threading.Thread(target=self._run, daemon=True, name="watch").start()

    def leave(self) -> None:
        """Say that this rank ends in good order."""
        self._board[self._own] = _LEAVES

    def end_all(self) -> None:
        """Say that this rank has told an error and is about to end all ranks."""
        self._board[-1] = 1
        self.leave()

    def _run(self) -> None:
        while not self._dead():
            time.sleep(_PERIOD_SECONDS)
        time.sleep(_LAUNCHER_SECONDS)
        dead = self._dead()
        here = [member for member in self._members if member not in dead and member.lives()]
        if self._members[self._own] != here[0]:
            time.sleep(_MESSAGE_SECONDS)
        if not self._board[-1]:
            self._board[-1] = 1
            host = platform.node()
            names = ", ".join(f"rank {m.rank} (process {m.process} on {host})" for m in dead)
            os.write(
                2,
                f"haloscope: error: {names} ended in the middle of the run; the other ranks stop; "
                "if there is a checkpoint, continue with --restart\n".encode(),
            )
        # From C, hence also when MPI_Abort does not return and keeps Python from running.
        faulthandler.dump_traceback_later(_ABORT_SECONDS, exit=True, file=_nowhere())
        if self._abort is not None:
            self._abort()
        os._exit(1)

    def _dead(self) -> list[Member]:
        """Members that have ended without leaving in good order."""
        # In this order: a member says that it leaves, and then ends.
        gone = [place for place, member in enumerate(self._members) if not member.lives()]
        return [self._members[place] for place in gone if self._board[place] == _RUNS]


@functools.cache
def watch_host() -> Watch:
    """Watch the ranks of this host from now on; all ranks call this."""
    # Set up once in a process, however many worlds are opened in it. An exception that nobody
    # catches then ends all ranks, and a rank that exits waits for the others with its thread still
    # at work, which it would no longer be within MPI_Finalize.
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def abort() -> None:
        last_words()
        world.Abort(1)

    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    process = os.getpid()
    members = [
        Member(*row) for row in local.allgather((world.Get_rank(), process, started_at(process)))
    ]
    board = _shared_board(local, len(members) + 1, all(member.lives() for member in members))
    own = local.Get_rank()
    local.Free()
    if board is None:
        if own == 0 and len(members) > 1:
            print(
                f"haloscope: the ranks on {platform.node()} cannot see each other's processes: "
                "if one dies, only the launcher can end the others",
                file=sys.stderr,
                flush=True,
            )
        members, own, board = [members[own]], 0, mmap.mmap(-1, 2)
    from_thread = MPI.Query_thread() == MPI.THREAD_MULTIPLE
    watch = Watch(members, own, board, abort if from_thread else None)
    if world.Get_size() > 1:
        atexit.register(_leave, watch, world.Dup(), MPI)
        sys.excepthook = _ending_all(watch, sys.excepthook, abort, MPI.Exception)
    return watch


def last_words() -> None:
    """Have the launcher read what has been printed, and MPI add nothing to it.

    Hydra drops what it has not read when a rank aborts, and MPI would tell of the abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(_nowhere(), 2)
    time.sleep(_READ_SECONDS)


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def _shared_board(local: Any, size: int, sees_all: bool) -> mmap.mmap | None:
    """Memory shared by the ranks of a host, of zeros; None where they cannot share any."""
    path = None
    if local.Get_rank() == 0:
        try:
            folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
            file, path = tempfile.mkstemp(prefix="haloscope-", dir=folder)
            os.write(file, bytes(size))
            os.close(file)
        except OSError:
            path = None
    path = local.bcast(path)
    board = None
    if path is not None and sees_all:
        try:
            with open(path, "r+b") as shared:
                board = mmap.mmap(shared.fileno(), size)
        except (OSError, ValueError):
            board = None
    # Also: all have opened it, so that its name can go.
    shared_by_all = all(local.allgather(board is not None))
    if path is not None and local.Get_rank() == 0:
        os.unlink(path)
    return board if shared_by_all else None


def _leave(watch: Watch, communicator: Any, mpi: Any) -> None:
    """Leave in good order, after the other ranks have come as far."""
    watch.leave()
    # mpi4py's own runner aborts after this, where one rank alone has failed.
    if mpi.Is_finalized() or "mpi4py.run" in sys.modules:
        return
    try:
        waiting = communicator.Ibarrier()
        while not waiting.Test():
            time.sleep(_LEAVE_SECONDS)
    except mpi.Exception:
        time.sleep(_NAMING_SECONDS)


_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _ending_all(
    watch: Watch, before: _Hook, abort: Callable[[], None], failure: type[Exception]
) -> _Hook:
    """Hook for uncaught exceptions: shows them and ends all ranks."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, failure):
            time.sleep(_NAMING_SECONDS)
        before(kind, error, trace)
        if not sys.flags.interactive:
            watch.end_all()
            abort()

    return hook
