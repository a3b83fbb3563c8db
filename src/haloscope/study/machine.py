"""The machine of a study: its description, and the points that do not fit on it."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from haloscope.device import open_device
from haloscope.device.cpu import available_cores
from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.study.keys import Limits, Mpi
from haloscope.study.sweep import Point

Hosts = tuple[tuple[str, int], ...]

_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?::([1-9][0-9]{0,5}))?")
_ASKING_TAKES_SECONDS = 120.0
# Asked of a process of its own: a process that has opened a GPU keeps memory on it.
_ASK_FOR_GPUS = """
from haloscope.device import open_device
from haloscope.errors import MachineError
try:
    print(open_device("cuda").count)
except MachineError as error:
    print(0, error)
"""
_ASK_FOR_MPI = "import haloscope.study.point, mpi4py"


@dataclass(frozen=True)
class Machine:
    """The machine that runs the study."""

    # Of one host.
    cores: int
    gpus: int = 0
    no_gpu: str = ""  # Why there is no GPU
    hosts: Hosts = ()  # Names and slots; empty: this host alone
    # Why several ranks cannot be started, by the name of the MPI; None is that of this Python.
    no_mpi: Mapping[str | None, str] = field(default_factory=dict)

    def lacks(self, point: Point, limits: Limits) -> str:
        """Why a point does not fit; empty where it does."""
        if point.ranks > 1 and self.no_mpi.get(point.mpi):
            return self.no_mpi[point.mpi]
        if self.hosts:
            return self._lacks_hosts(point)
        if point.ranks_per_node is not None and point.ranks > point.ranks_per_node:
            count = -(-point.ranks // point.ranks_per_node)
            return (
                f"{point.ranks} ranks with {point.ranks_per_node} a node need {count} hosts; name "
                "them with --hosts"
            )
        if point.device == "cuda":
            return self._lacks_gpus(point, limits)
        if point.ranks * point.threads > limits.oversubscribe * self.cores:
            return (
                f"{counted(point.ranks, 'rank')} of {counted(point.threads, 'thread')} exceed "
                f"{limits.oversubscribe:g} times the {counted(self.cores, 'core')} of this machine "
                "(limits.oversubscribe)"
            )
        return ""

    def lacks_inside(self, point: Point, limits: Limits, local_size: int) -> str:
        """The same where a launcher has started the ranks: who did knows how many fit."""
        if point.device == "cuda":
            return self._lacks_gpus(dataclasses.replace(point, ranks=local_size), limits)
        return ""

    def _lacks_gpus(self, point: Point, limits: Limits) -> str:
        if self.gpus == 0:
            return self.no_gpu
        if point.ranks <= self.gpus:
            return ""
        if point.case["machine"].get("transport") == "nccl":
            return f"NCCL needs a GPU for each of {point.ranks} ranks; this machine has {self.gpus}"
        if limits.share_gpus:
            return ""
        return (
            f"{point.ranks} ranks exceed the {counted(self.gpus, 'GPU')} of this machine; set "
            "limits.share_gpus = true to share them"
        )

    def _lacks_hosts(self, point: Point) -> str:
        if point.device == "cuda" and self.gpus == 0:
            return self.no_gpu
        slots = sum(count for _, count in self.hosts)
        if point.ranks > slots:
            return f"{point.ranks} ranks exceed the {counted(slots, 'slot')} of --hosts"
        if point.ranks_per_node is not None:
            needed = -(-point.ranks // point.ranks_per_node)
            share = min(point.ranks, point.ranks_per_node)
            fitting = sum(count >= share for _, count in self.hosts)
            if fitting < needed:
                return (
                    f"{point.ranks} ranks with {point.ranks_per_node} a node need "
                    f"{counted(needed, 'host')} of {counted(share, 'slot')}; --hosts names {fitting}"
                )
        return ""


def find_machine(
    mpis: Mapping[str, Mpi], folder: Path, hosts: Hosts = (), *, gpus: bool, inside: bool = False
) -> Machine:
    """Look at this machine."""
    count, no_gpu = _find_gpus(inside) if gpus else (0, "the study runs on cores")
    no_mpi: dict[str | None, str] = {}
    if not inside:
        if importlib.util.find_spec("mpi4py") is None:
            no_mpi[None] = f"several ranks need mpi4py: {install_command('mpi')}"
        no_mpi |= {name: _fault_of_python(name, python_of(mpis[name], folder)) for name in mpis}
    return Machine(available_cores(), count, no_gpu, hosts, no_mpi)


def python_of(mpi: Mpi, folder: Path) -> Path:
    """The Python of an MPI library; links are kept, since an environment's Python is one."""
    return Path(os.path.abspath(folder / Path(mpi.python).expanduser()))


def parse_hosts(text: str) -> Hosts:
    """Names and slots of ``a:4,b:4``; one slot where none are given."""
    hosts = []
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if not match:
            raise InputError(
                f"{part.strip()!r} is not a host with its slots",
                location=f"--hosts {text!r}",
                remedy="write for example node1:4,node2:4",
            )
        hosts.append((match[1], int(match[2] or 1)))
    if len({name for name, _ in hosts}) < len(hosts):
        raise InputError(
            "a host occurs twice", location=f"--hosts {text!r}", remedy="add up its slots"
        )
    return tuple(hosts)


def _find_gpus(inside: bool) -> tuple[int, str]:
    """How many GPUs there are, and why none."""
    if inside or importlib.util.find_spec("cupy") is None:
        try:
            return getattr(open_device("cuda"), "count", 1), ""
        except MachineError as error:
            return 0, str(error)
    says = _asked(sys.executable, _ASK_FOR_GPUS)
    count, _, why = (says.stdout.splitlines() or [""])[-1].partition(" ")
    if says.returncode != 0 or not count.isdigit():
        return 0, f"the query for GPUs failed: {_last_line(says)}"
    return int(count), why


def _fault_of_python(name: str, python: Path) -> str:
    """Why ranks of a named MPI cannot be started; empty where they can."""
    if not os.access(python, os.X_OK):
        return f"MPI {name}: there is no Python {python}; create it or change mpi.{name}.python"
    says = _asked(str(python), _ASK_FOR_MPI)
    if says.returncode != 0:
        return f"MPI {name}: {python} lacks haloscope or mpi4py ({_last_line(says)})"
    return ""


def _asked(python: str, program: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", program]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_TAKES_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            command, 1, "", f"no answer within {_ASKING_TAKES_SECONDS} s"
        )


def _last_line(says: subprocess.CompletedProcess[str]) -> str:
    lines = (says.stderr.strip() or says.stdout.strip()).splitlines()
    return lines[-1].strip() if lines else f"exit code {says.returncode}"
