"""Starts ranks with mpiexec, passes on requests to stop, reports ranks that a signal ended.

Only the standard library is used here: a launcher must not load what its ranks load, MPI above
all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.exchange.ranks.guard import ENDINGS
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


# How the version text of an MPI library, and that of its mpiexec, tell the MPI and its version.
# More special texts come first. Cray's MPI has no mpiexec of its own: srun or PALS starts it.
_HYDRA = r"HYDRA build details:\s*Version:\s*(\S+)"
_FLAVOURS: dict[str, tuple[str, str | None]] = {
    "intel": (r"Intel\(R\) MPI Library (\S+)", r"Intel\(R\) MPI Library[^\n]*Version (\S+)"),
    "cray": (r"CRAY MPICH version (\S+)", None),
    "mvapich": (r"MVAPICH2?(?:[- ]\S+)? Version\s*:\s*(\S+)", _HYDRA),
    "openmpi": (r"Open MPI v?(\d[\w.]*)", r"\((?:Open MPI|OpenRTE)\) v?(\d[\w.]*)"),
    "mpich": (r"MPICH Version:\s*(\S+)", _HYDRA),
}
HYDRA_FLAVOURS = ("mpich", "mvapich", "intel")
"""MPIs whose launcher is Hydra."""

# What mpi4py has to say, from a process of its own, so that this one never loads MPI.
_ASK_MPI4PY = r"""
import json, re
try:
    import mpi4py
except ImportError:
    answer = {"missing": True}
else:
    mpi4py.rc.initialize = False
    try:
        from mpi4py import MPI
    except Exception as error:
        answer = {"broken": " ".join(str(error).split())}
    else:
        libraries = []
        try:
            with open("/proc/self/maps") as maps:
                libraries = [line.rstrip("\n").split(None, 5)[-1] for line in maps]
        except OSError:
            pass
        name = re.compile(r"/lib(mpi|mpich|pmpi|mpi_abi|mpi_cray|mpi_gnu[^/.]*)\.so[^/]*$")
        answer = {
            "version": MPI.Get_library_version(),
            "library": next((path for path in libraries if name.search(path)), None),
        }
print()
print(json.dumps(answer))
"""

# Where Debian puts the launchers of several MPIs side by side, each under a name of its own.
_DEBIAN = Path("/usr/bin")

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_ASKING_TAKES_SECONDS = 60.0


@dataclass(frozen=True)
class Mpiexec:
    """A launcher that fits mpi4py's MPI."""

    path: Path  # The program
    flavour: str  # The MPI that it belongs to: 'mpich', 'openmpi', 'intel' or 'mvapich'
    version: str  # The version that the launcher itself gives


def find_mpiexec() -> Mpiexec:
    """Find the mpiexec that belongs to the MPI which mpi4py binds."""
    # Looked at, in this order: the folders beside the MPI library that mpi4py loads, the
    # environment of this Python, the names that a Debian installation gives to several MPIs side by
    # side, and PATH. Whatever is found must say that it is of the same MPI (and of the same major
    # version where that matters: Open MPI's ranks do not understand another's launcher).
    flavour, version, library = mpi_of_mpi4py()
    name_of_mpi = f"{flavour} {version}".strip()
    pattern = _FLAVOURS[flavour][1] if flavour in _FLAVOURS else None
    if pattern is None:
        raise MachineError(
            f"haloscope cannot start ranks of '{name_of_mpi}', the MPI that mpi4py uses",
            remedy="start them with the machine's own launcher, for example "
            "srun -n 4 python -m haloscope run CASE.toml",
        )
    looked_at = []
    for path in _candidates(library):
        says = _version_text(path)
        match = re.search(pattern, says)
        if match and (flavour != "openmpi" or _major(match[1]) == _major(version)):
            return Mpiexec(path, flavour, match[1])
        looked_at.append(f"{path} ({_identity(says)})")
    where = ", ".join(looked_at) or "no mpiexec or mpirun beside the library or on PATH"
    raise MachineError(
        f"there is no mpiexec of {name_of_mpi}, the MPI that mpi4py uses "
        f"({library or 'its library is not known'}); searched: {where}",
        remedy=f"install the launcher of that MPI, or reinstall both: {install_command('mpi')}",
    )


def start_command(
    mpiexec: Mpiexec,
    ranks: int,
    program: Sequence[str],
    environment: Mapping[str, str],
    *,
    hosts: Sequence[tuple[str, int]] | None = None,
    per_host: int | None = None,
) -> list[str]:
    """Give the command line that starts a program on several ranks.

    More ranks than cores are allowed, nothing is bound to a core (a rank's threads would all share
    it), and Open MPI is told that root is meant where root asks.
    """
    # `ranks`: how many ranks, at least 1.
    # `hosts`: names of hosts, and how many ranks each takes; this machine by default, or the hosts
    # of the batch job that it is part of.
    check_hosts(hosts, per_host)
    command = [str(mpiexec.path), "-n", str(ranks)]
    named = ",".join(f"{name}:{slots}" for name, slots in hosts or ())
    if mpiexec.flavour in HYDRA_FLAVOURS:
        command += ["-hosts", named] if named else []
        command += ["-ppn", str(per_host)] if per_host else []
        for name, value in environment.items():
            command += ["-genv", name, value]
    else:
        command += ["--host", named] if named else []
        spread = f"ppr:{per_host}:node" if per_host else ""
        if _major(mpiexec.version) >= 5:
            command += ["--map-by", f"{spread}:OVERSUBSCRIBE"]
        else:
            command += ["--map-by", spread] if spread else []
            command.append("--oversubscribe")
        command += ["--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        for name in environment:
            command += ["-x", name]
    return [*command, *program]


def check_hosts(hosts: Sequence[tuple[str, int]] | None, per_host: int | None) -> None:
    """Refuse what would reach the command line as something else than hosts and numbers."""
    for name, slots in hosts or ():
        if not _HOST.fullmatch(name):
            raise InputError(
                "it is not the name of a host",
                location=f"host {name!r}",
                allowed="letters, digits, dots and hyphens, a letter or digit first",
            )
        if slots < 1:
            raise InputError(
                f"it has {counted(slots, 'slot')}", location=f"host {name}", allowed="1 or more"
            )
    if per_host is not None and per_host < 1:
        raise InputError(
            "out of range", location=f"ranks per host = {per_host}", allowed="1 or more"
        )


def mpi_of_mpi4py() -> tuple[str, str, Path | None]:
    """Flavour, version and library of mpi4py's MPI; an MPI not known here has its own text."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK_MPI4PY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_TAKES_SECONDS,
        )
        answer = json.loads((asked.stdout.splitlines() or [""])[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        raise MachineError(
            "loading mpi4py ended without an answer",
            remedy=f"try {sys.executable} -c 'from mpi4py import MPI'; to reinstall it: "
            f"{install_command('mpi')} --force-reinstall",
        ) from error
    if "missing" in answer:
        raise MachineError(
            "several ranks need mpi4py and an MPI, and this Python has no mpi4py",
            remedy=f"run {install_command('mpi')}",
        )
    if "broken" in answer:
        raise MachineError(
            f"mpi4py is installed but cannot load an MPI ({answer['broken']})",
            remedy=f"run {install_command('mpi')}, which includes one",
        )
    library = Path(answer["library"]) if answer["library"] else None
    for flavour, (pattern, _) in _FLAVOURS.items():
        match = re.search(pattern, answer["version"])
        if match:
            return flavour, match[1], library
    return _first_line(answer["version"]), "", library


def _candidates(library: Path | None) -> Iterator[Path]:
    """Programs that may be the launcher, the likeliest first, each once."""
    folders = [] if library is None else [above / "bin" for above in library.parents[1:3]]
    folders.append(Path(sys.prefix) / "bin")
    names = ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.mpich", "mpiexec.openmpi")
    paths = [folder / name for folder in folders for name in names]
    paths += [_DEBIAN / name for name in ("mpiexec.mpich", "mpiexec.openmpi", "mpirun")]
    paths += [Path(folder) / name for folder in os.get_exec_path() for name in names]
    for path in dict.fromkeys(paths):
        if path.is_file() and os.access(path, os.X_OK):
            yield path


def _version_text(path: Path) -> str:
    """Output of ``--version``, or the reason why there is none."""
    try:
        asked = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_TAKES_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    return asked.stdout + asked.stderr


def _identity(says: str) -> str:
    """Name what a launcher says that it is, in a few words."""
    for flavour, (_, pattern) in _FLAVOURS.items():
        match = re.search(pattern, says) if pattern else None
        if match:
            return f"hydra {match[1]}" if pattern == _HYDRA else f"{flavour} {match[1]}"
    return _first_line(says)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no version text")


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else 0
