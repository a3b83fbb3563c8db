"""Finds the mpiexec that belongs to the MPI which mpi4py itself has loaded, and writes its command lines.

An mpiexec of another MPI, as PATH may offer it, either aborts or starts N separate programs of
one rank each. So mpi4py is asked first which MPI it binds, and a launcher is taken only where its
own ``--version`` names the same one.

Only the standard library is used here: a launcher must not load what its ranks load, MPI above
all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from haloscope.errors import InputError, MachineError, counted, install_command

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
