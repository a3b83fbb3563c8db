"""Starts groups of ranks for a study, in processes whose crash does not take the study down."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from haloscope.device.cpu import available_cores
from haloscope.exchange.ranks.launch import descendants, launch, started_by_launcher
from haloscope.exchange.ranks.world import World
from haloscope.io.atomic import write_json
from haloscope.io.interrupts import SAME_REQUEST_SECONDS
from haloscope.study.machine import Hosts
from haloscope.study.point import run_points
from haloscope.study.sweep import Point
from haloscope.study.table import Ledger, Record

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
    """An exit code in words."""
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
