"""Guards a rank: waits for its process and says which rank it was when a signal has ended it.

Hydra, the mpiexec of MPICH and its kin, kills all ranks the moment it sees one gone, and names a
process that need not be the one that died. So the process that it has started forks before MPI is
touched: the child becomes the rank, and the parent waits for it. As long as the parent is there
Hydra sees nothing missing, and there is time to say what happened.

This file is the parent's whole program, too: started afresh it is small, and neither its command
nor its environment can be taken for a rank's. Only the standard library is used here.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time

# A folder in which `launch.launch` looks for what guards have to say; it prints that last.
ENDINGS = "HALOSCOPE_ENDINGS"

# Launchers give each rank its number in one of these.
RANK_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
# What Python needs to start; -I keeps the rest of the environment out.
_KEPT = ("PATH", "LD_LIBRARY_PATH")
# Ways to ask a program to end. Launchers send them to a rank's whole process group.
_REQUESTS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# Who kills all ranks kills guards, too, if not at the same instant: only a guard that outlives
# its rank by this long has something to say.
_SWEEP_SECONDS = 0.3


def go_on_guarded() -> None:
    """Go on in a child process, with this one as its guard, where that names ranks that die."""
    # That is under Hydra and under `launch.launch`; other launchers name such a rank themselves.
    # Call this before any thread is started and before MPI is loaded, whose set-up a fork would
    # break; it does nothing after that.
    environment = os.environ
    wanted = "MPI_LOCALNRANKS" in environment or "HALOSCOPE_LAUNCHED" in environment
    too_late = threading.active_count() > 1 or "mpi4py.MPI" in sys.modules
    if not wanted or too_late or not sys.executable:
        return
    rank = next((environment[name] for name in RANK_NUMBERS if name in environment), "?")
    folder = environment.get(ENDINGS, "")
    guard = os.getpid()
    # Nothing is ever written: the end of the guard is the end of the file.
    reader, writer = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    process = os.fork()
    if process == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
        about = (reader, guard, rank, folder)
        threading.Thread(target=_end_with_guard, args=about, daemon=True, name="guard").start()
        return
    os.set_inheritable(writer, True)
    for number in _REQUESTS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    command = [sys.executable, "-IS", __file__, str(process), rank, folder]
    kept = {name: environment[name] for name in _KEPT if name in environment}
    os.execve(sys.executable, command, kept)


def _end_with_guard(reader: int, guard: int, rank: str, folder: str) -> None:
    """End this rank when its guard is gone: the launcher knows only the guard."""
    os.read(reader, 1)
    time.sleep(_SWEEP_SECONDS)
    _report(f"{_name(rank, os.getpid())} lost its guard, process {guard}", rank, folder)
    os._exit(1)


def _guard(process: int, rank: str, folder: str) -> int:
    """Wait for a rank and end as it did: with the exit code that is given back, or by a signal.

    Hydra now and then lets the other ranks run when one has exited with a code, however bad.
    """

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code >= 0:
        return code
    if -code not in _REQUESTS:
        time.sleep(_SWEEP_SECONDS)
        name = signal.Signals(-code).name
        _report(f"{_name(rank, process)} was ended by signal {-code} ({name})", rank, folder)
    if -code != signal.SIGKILL:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 1


def _name(rank: str, process: int) -> str:
    return f"rank {rank} (process {process} on {os.uname().nodename})"


def _report(advice: str, rank: str, folder: str) -> None:
    """Leave an error in the launch's folder, which another host has not; print it there."""
    text = (
        f"haloscope: error: {advice}; the other ranks stop; if there is a checkpoint, continue with "
        "--restart\n"
    ).encode()
    file = 2
    if os.path.isdir(folder):
        file = os.open(os.path.join(folder, rank), os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, text)


if __name__ == "__main__":
    os._exit(_guard(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
