"""The machine of a study: its description, and the points that do not fit on it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from haloscope.device import open_device
from haloscope.device.cpu import available_cores
from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.exchange.ranks.launch import descendants, launch, started_by_launcher
from haloscope.exchange.ranks.world import World
from haloscope.io.atomic import write_json
from haloscope.io.interrupts import SAME_REQUEST_SECONDS
from haloscope.study.point import run_points
from haloscope.study.sweep import Limits, Mpi, Point
from haloscope.study.table import Ledger, Record

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


COMMAND = "scale-points"

_POLL_SECONDS = 0.2
_START_SECONDS = 300.0
_GRACE_SECONDS = 30.0
_STDERR = 2
_ERROR = "haloscope: error: "
_PR_SET_PDEATHSIG = 1


class Stop:
    """Notes SIGINT and SIGTERM and passes them on to the ranks; a second Ctrl-C kills them."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None  # What was received first; None so far
        self._at = 0.0
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        now = time.monotonic()
        if self.signal is None:
            self.signal, self._at = signal.Signals(number), now
            if self._child is not None:
                self._child.terminate()
        elif number == signal.SIGINT and now - self._at > SAME_REQUEST_SECONDS and self._child:
            kill(self._child)

    @contextlib.contextmanager
    def watching(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Pass signals on to a child, which does not outlive the block."""
        self._child = child
        try:
            if self.signal is not None:
                child.terminate()
            yield
        finally:
            self._child = None
            if child.poll() is None:
                kill(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """End a child, which leads a group of its own, and all that it has started."""
    below = descendants(child.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.wait()


@dataclasses.dataclass
class Runner:
    """Runs groups of points."""

    ledger: Ledger  # Where the ranks note results; failures that they cannot note are noted here
    hosts: Hosts  # Where to start; empty: this host
    point_seconds: float  # Longest time of a point
    stop: Stop  # Ends the ranks when asked to
    on_record: Callable[[Record], None]  # Called with the record of each point that has ended

    def run(self, points: Sequence[Point], python: str) -> None:
        """Run points of one group, in one start of ranks or, where a point ends them, in several."""
        left = list(points)
        log = self.ledger.path.with_name("ranks.log")
        while left:
            size = log.stat().st_size if log.exists() else 0
            with log.open("ab") as output:
                code, ended = self._start(left, python, output)
            if self.stop.signal is not None:
                return
            stuck = [point for point in left if point.id in self.ledger.started]
            if not stuck and not ended:
                stuck = left  # the ranks did not get as far as the first point
            for point in stuck:
                self._fail(point, code, log, size)
            ended |= self._take_in()
            left = [point for point in left if point.id not in ended]
            if log.stat().st_size == 0:
                log.unlink()

    def _start(
        self, points: Sequence[Point], python: str, output: IO[bytes]
    ) -> tuple[int, set[str]]:
        """Start ranks and follow them to their end: their exit code, and the points that ended."""
        # Ranks of other hosts may start in another folder.
        task = self.ledger.path.with_name("task.json").absolute()
        write_json(
            task,
            {
                "ledger": str(self.ledger.path.absolute()),
                "points": [dataclasses.asdict(point) for point in points],
                "hosts": self.hosts,
                "point_seconds": self.point_seconds,
            },
        )
        child = subprocess.Popen(
            [python, "-m", "haloscope", COMMAND, str(task)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        ended: set[str] = set()
        news = time.monotonic()
        patience = _START_SECONDS + self.point_seconds + _GRACE_SECONDS
        with self.stop.watching(child):
            while child.poll() is None and time.monotonic() - news < patience:
                time.sleep(_POLL_SECONDS)
                fresh = self._take_in()
                if fresh:
                    news = time.monotonic()
                ended |= fresh
        task.unlink(missing_ok=True)
        return child.returncode, ended | self._take_in()

    def _take_in(self) -> set[str]:
        """Take in what the ranks have noted: the points that ended."""
        ended = set()
        for record in self.ledger.follow():
            if record["status"] != "started":
                ended.add(record["id"])
                self.on_record(record)
        return ended

    def _fail(self, point: Point, code: int, log: Path, begin: int) -> None:
        """Note the failure of a point that did not end, and why."""
        started = self.ledger.started.get(point.id)
        if started is not None and time.time() - started["time"] >= self.point_seconds:
            reason = f"took longer than limits.point_seconds = {self.point_seconds:g} s"
        elif started is not None:
            reason = f"its ranks ended with {_meaning(code)}"
        else:
            reason = (
                f"its ranks could not be started: {_last_log_line(log, begin) or _meaning(code)}"
            )
        reason += f" (see {log.name})"
        self.ledger.add({"id": point.id, "kind": point.kind, "status": "failed", "reason": reason})


def serve(task: Path, open_world: Callable[[], World]) -> int:
    """Do the task that a :class:`Runner` has written: start its ranks or, as one of them, run."""
    data = json.loads(task.read_text())
    points = [Point(**point) for point in data["points"]]
    first = points[0]
    hosts = [(name, slots) for name, slots in data["hosts"]]
    alone = first.ranks == 1 and not hosts
    if not started_by_launcher():
        _end_with_parent()
        if not alone:
            threads = first.threads or max(1, available_cores() // first.ranks)
            over: dict[str, Any] = {}
            if hosts:
                over = {"hosts": hosts, "per_host": first.ranks_per_node}
            arguments = [COMMAND, str(task)]
            return launch(first.ranks, arguments, threads_per_rank=threads, **over)
    faulthandler.dump_traceback_later(_START_SECONDS, exit=True, file=_STDERR)
    world = open_world()
    run_points(points, Ledger(Path(data["ledger"])), world, point_seconds=data["point_seconds"])
    faulthandler.cancel_dump_traceback_later()
    return 0


def _end_with_parent() -> None:
    """Be ended when the process that started this one is killed outright; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _meaning(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return f"exit code {code} ({signal.Signals(number).name})"
    except ValueError:
        return f"exit code {code}"


def _last_log_line(log: Path, begin: int) -> str:
    """The error that ranks have printed since the log had a size; empty where there is none."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith(_ERROR)]
    return errors[-1].removeprefix(_ERROR) if errors else ""
