"""Starts ranks with mpiexec, passes on requests to stop, reports ranks that a signal ended.

Only the standard library is used here: a launcher must not load what its ranks load, MPI above
all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from haloscope.errors import InputError
from haloscope.exchange.ranks.guard import ENDINGS
from haloscope.exchange.ranks.mpiexec import (
    HYDRA_FLAVOURS,
    check_hosts,
    find_mpiexec,
    start_command,
)
from haloscope.io.interrupts import SAME_REQUEST_SECONDS, handled_by

# In the folder of endings: number of the signal that the launcher received.
_REQUEST = "request"

# A launcher whose parent was killed outright would run on: Linux can send it SIGTERM instead.
# Done by a process that then becomes the launcher, since code between fork and exec is unsafe
# in a program with threads.
_PR_SET_PDEATHSIG = 1
_END_WITH_PARENT = (
    "import ctypes, os, sys; "
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)

# Variables that only a launcher sets, and only for its ranks.
_RANK_VARIABLES = (
    "HALOSCOPE_LAUNCHED",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
)
# Variables of the PMI protocols, which Slurm sets for an interactive shell of one task, too.
_PMI_VARIABLES = ("PMI_RANK", "PMI_SIZE", "PMIX_RANK")
# Slurm numbers the steps that are no program's from here on: batch script, interactive shell.
_SLURM_SPECIAL_STEPS = 0xFFFFFFF0


def started_by_launcher() -> bool:
    """Tell whether this process is already a rank that some launcher started."""
    environment = os.environ
    if any(name in environment for name in _RANK_VARIABLES):
        return True
    step = environment.get("SLURM_STEP_ID", "")
    if step.isdecimal():
        if int(step) < _SLURM_SPECIAL_STEPS and _number(environment, "SLURM_STEP_NUM_TASKS") > 1:
            return True
        # Hydra within a Slurm allocation starts one proxy a node as a step, and ranks below it.
        return _number(environment, "PMI_SIZE") > 1
    return any(name in environment for name in _PMI_VARIABLES)


def own_ranks(size: int) -> int:
    """`size` if `--ranks` started these ranks; 1 under a launcher of the user, or without one."""
    return size if "HALOSCOPE_LAUNCHED" in os.environ else 1


def tasks_of_launcher() -> int:
    """Count the ranks that a launcher says it has started; 0 where none says so."""
    counts = [_number(os.environ, name) for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")]
    step = os.environ.get("SLURM_STEP_ID", "")
    if step.isdecimal() and int(step) < _SLURM_SPECIAL_STEPS and "PMI_SIZE" not in os.environ:
        counts.append(_number(os.environ, "SLURM_STEP_NUM_TASKS"))
    return max(counts)


def launch(
    ranks: int,
    arguments: Sequence[str],
    *,
    threads_per_rank: int,
    environment: Mapping[str, str] | None = None,
    hosts: Sequence[tuple[str, int]] | None = None,
    per_host: int | None = None,
) -> int:
    """Run ``haloscope ARGUMENTS`` on several ranks and wait until they have ended.

    `ranks`: how many ranks, at least 1; `threads_per_rank`: OMP_NUM_THREADS of each rank, at least
    1.
    """
    # SIGTERM and SIGINT reach every rank as one SIGTERM, of which :func:`requested_signal` says what
    # it was, and the ranks are then given all the time that they take, since a checkpoint may be
    # long. A second Ctrl-C ends them at once.
    #
    # Which rank it was that a signal ended, such as that of the system where memory ran out, is
    # told here last, below what mpiexec has to say. Ranks of other hosts tell it themselves.
    for name, number in (("ranks", ranks), ("threads_per_rank", threads_per_rank)):
        if number < 1:
            raise InputError("out of range", location=f"{name} = {number}", allowed="1 or more")
    check_hosts(hosts, per_host)
    mpiexec = find_mpiexec()
    program = [sys.executable, "-m", "haloscope", *arguments]
    # A folder that only this user may enter. Others may clean up there: then the guards' own lines
    # have to do.
    folder = tempfile.TemporaryDirectory(prefix="haloscope-", ignore_cleanup_errors=True)
    with folder as endings, handled_by(stop := _Stop(mpiexec.flavour, Path(endings))):
        variables = {
            **(environment or {}),
            "OMP_NUM_THREADS": str(threads_per_rank),
            "HALOSCOPE_LAUNCHED": "1",
            ENDINGS: endings,
        }
        command = start_command(mpiexec, ranks, program, variables, hosts=hosts, per_host=per_host)
        if sys.platform == "linux":
            command = [sys.executable, "-ISc", _END_WITH_PARENT, *command]
        # A session of its own: a terminal sends Ctrl-C to every process of the foreground, and
        # mpiexec would pass it on a second time, or, Open MPI's, kill the ranks.
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        stop.started(process)
        code = process.wait()
        paths = [path for path in Path(endings).glob("*") if path.name != _REQUEST]
        messages = [path.read_text() for path in sorted(paths)]
    if messages and not stop.killed:
        print("".join(messages), end="", file=sys.stderr, flush=True)
        return 1
    ended = {signal.SIGTERM, -signal.SIGTERM, 128 + signal.SIGTERM}
    if mpiexec.flavour not in HYDRA_FLAVOURS:
        ended.add(1)  # of Open MPI's mpiexec, where its ranks were not under way yet
    if stop.number is not None and code in ended:
        # The ranks got SIGTERM whatever came here; Hydra gives its number where it ended them.
        return 128 + stop.number
    return code if code >= 0 else 128 - code


def requested_signal(number: int) -> int:
    """The signal that :func:`launch` received and passed on to this rank as `number`."""
    # Ranks of other hosts do not have the folder.
    folder = os.environ.get(ENDINGS)
    if folder and number == signal.SIGTERM:
        with contextlib.suppress(OSError):
            if Path(folder, _REQUEST).read_text() == str(int(signal.SIGINT)):
                return signal.SIGINT
    return number


def descendants(ancestor: int) -> list[int]:
    """List the processes of this machine that stem from one, which is not listed itself."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        parent = _parent_of(int(folder.name))
        if parent is not None:
            children.setdefault(parent, []).append(int(folder.name))
    below_all: list[int] = []
    ahead = [ancestor]
    while ahead:
        below = children.get(ahead.pop(0), [])
        below_all += below
        ahead += below
    return below_all


class _Stop:
    """Passes a request to stop on to the ranks: as handler of SIGTERM and SIGINT."""

    # Hydra passes SIGTERM on to all ranks and waits. (SIGINT it would announce on stdout, where
    # ``--json`` allows nothing else.) Open MPI kills its ranks a quarter of a second after any
    # request, so there the ranks of this host are told directly, and agree with those of others at
    # their next step.

    def __init__(self, flavour: str, endings: Path) -> None:
        self._flavour = flavour
        self._request = endings / _REQUEST
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: float | None = None
        self.number: int | None = None  # The signal that came first; None where none came
        self.killed = False  # Whether the ranks were killed on request

    def started(self, process: subprocess.Popen[bytes]) -> None:
        """Name the launcher; a request that came before it was started is made up for."""
        self._process = process
        if self._asked is not None:
            self._ask(process)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        process, now = self._process, time.monotonic()
        if self._asked is None:
            self._asked, self.number = now, number
            with contextlib.suppress(OSError):  # ranks then name SIGTERM
                self._request.write_text(str(number))
            # Not print: the handler may have interrupted a print.
            os.write(
                2,
                b"haloscope: stopping after the current steps; Ctrl-C again ends the ranks at once\n",
            )
            if process is not None:
                self._ask(process)
        elif number == signal.SIGINT and now - self._asked > SAME_REQUEST_SECONDS and process:
            self._end(process)

    def _ask(self, process: subprocess.Popen[bytes]) -> None:
        if self._flavour in HYDRA_FLAVOURS or not _signal_ranks(process.pid, signal.SIGTERM):
            process.terminate()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self.killed = True
        if self._flavour in HYDRA_FLAVOURS:
            process.kill()  # its proxies then end the ranks, on every host
        else:
            _signal_ranks(process.pid, signal.SIGKILL)
            process.terminate()  # not kill, which would leave the ranks of other hosts running


def _signal_ranks(launcher: int, number: signal.Signals) -> bool:
    """Signal Open MPI's ranks on this host, and nothing that they started; False without any."""
    ranks = []
    for process in descendants(launcher):
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes()
            if b"OMPI_COMM_WORLD_RANK=" in environment and _parent_of(process) not in ranks:
                os.kill(process, number)
                ranks.append(process)
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return bool(ranks)


def _parent_of(process: int) -> int | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        return None
    # The program's name, in brackets, may hold anything; the parent follows the state.
    return int(text.rpartition(")")[2].split()[1])


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else 0
