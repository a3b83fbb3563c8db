"""Compiles small C programs, runs them with the recorder preloaded and reads back what it left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.scope.record import RECORDER_HEADERS, RECORDER_SOURCES
from haloscope.scope.record.build import compile_library
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.trace import Kind, iterate, read_events

PROGRAMS = Path(__file__).parent / "unit" / "recorder_programs"
TRACER = RECORDER_HEADERS[0].parent
SECONDS = 60

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None or os.uname().sysname != "Linux",
    reason="needs gcc on Linux, to compile programs that are measured",
)


@dataclass
class CallPath:
    """What a call path took: visits, inclusive seconds, and what it sent."""

    visits: int = 0
    seconds: float = 0.0
    sent: list[int] = field(default_factory=lambda: [0, 0, 0])
    received: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, other: CallPath) -> None:
        """Take in what the same call path took from another site."""
        self.visits += other.visits
        self.seconds += other.seconds
        self.sent = [a + b for a, b in zip(self.sent, other.sent, strict=True)]
        self.received = [a + b for a, b in zip(self.received, other.received, strict=True)]


@dataclass
class Recorded:
    """A program's end and what was recorded of it."""

    folder: Path
    status: int
    output: str
    error: str

    def measurement(self) -> Measurement:
        """The folder's definitions."""
        return open_measurement(self.folder)

    def lines(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        """Lines of the definitions whose first key is this one."""
        text = (self.folder / f"rank-{rank:05d}.def").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if next(iter(line)) == kind]

    def profile(self, rank: int = 0) -> list[dict[str, Any]]:
        """Lines of the profile."""
        text = (self.folder / f"rank-{rank:05d}.profile").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def events(self, location: int = 0) -> list[tuple[int, Kind, int, tuple[int, ...]]]:
        """Events of a location, which must be whole."""
        place = self.measurement().locations[location]
        assert place.events is not None
        events = read_events(place.events)
        assert events.whole
        return list(iterate(events))

    def paths(self, location: int = 0, *, closed: bool = True) -> dict[str, CallPath]:
        """Visits and times by call path as "program/solve/step", sites left out.

        Checks on the way that visits nest, that time goes forward and, if `closed`, that all ends.
        """
        measurement = self.measurement()
        place = measurement.locations[location]
        own = measurement.ranks[place.rank].nodes
        rate, _ = measurement.ticks_to_seconds(place.rank)
        assert place.events is not None
        events = read_events(place.events)
        assert events.whole
        assert (np.diff(events.ticks) >= 0).all(), "time runs backwards"
        nodes: dict[int, CallPath] = {}
        stack: list[tuple[int, int]] = []
        paused, since, away = False, 0, 0
        sizes = events.words[:, 1].tolist()
        for index, (tick, kind, payload) in enumerate(
            zip(events.ticks.tolist(), events.kinds.tolist(), events.payloads.tolist(), strict=True)
        ):
            assert not paused or kind == Kind.RESUME, f"{Kind(kind)!r} within a pause"
            if kind == Kind.ENTER:
                stack.append((payload, tick - away))
            elif kind == Kind.LEAVE:
                node, begin = stack.pop()
                assert node == payload, "visits do not nest"
                path = nodes.setdefault(node, CallPath())
                path.visits += 1
                path.seconds += (tick - away - begin) * rate
            elif kind == Kind.PAUSE:
                paused, since = True, tick
            elif kind == Kind.RESUME:
                assert paused
                paused, away = False, away + tick - since
            elif kind in (Kind.SEND, Kind.RECV):
                path = nodes.setdefault(stack[-1][0], CallPath())
                counts = path.sent if kind == Kind.SEND else path.received
                counts[0] += 1
                counts[1] += sizes[index] == 0
                counts[2] += sizes[index]
        assert not (closed and stack), "something was never left"
        call_paths: dict[str, CallPath] = {}
        for node, path in nodes.items():
            name = "/".join(measurement.path_of(int(own[node])))
            call_paths.setdefault(name, CallPath()).add(path)
        return call_paths

    def visits(self, location: int = 0, *, closed: bool = True) -> dict[str, int]:
        """Visits by call path."""
        return {name: path.visits for name, path in self.paths(location, closed=closed).items()}


Run = Callable[..., Recorded]


def compile_program(
    folder: Path, name: str, flags: Sequence[str] = (), compiler: str = "gcc"
) -> Path:
    """Compile one of the programs, or another C file given by its path."""
    source = PROGRAMS / f"{name}.c"
    program = folder / name
    subprocess.run(
        [compiler, "-O1", "-g", "-I", PROGRAMS, "-I", TRACER, "-o", program, source, "-pthread"]
        + list(flags),
        check=True,
        timeout=SECONDS,
    )
    return program


@pytest.fixture(scope="session", name="recorder")
def fixture_recorder() -> Path:
    """The recorder alone as a library to preload."""
    return compile_library(RECORDER_SOURCES, RECORDER_HEADERS)


@pytest.fixture(scope="session", name="programs")
def fixture_programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Programs by name and flags, compiled once."""
    folder = tmp_path_factory.mktemp("programs")
    made: dict[tuple[str, ...], Path] = {}

    def get(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in made:
            place = folder / str(len(made))
            place.mkdir()
            made[key] = compile_program(place, name, flags)
        return made[key]

    return get


@pytest.fixture(name="record")
def fixture_record(recorder: Path, tmp_path: Path) -> Run:
    """Run a command with the recorder: record(program, *arguments, mode=..., BUFFER=...)."""

    def run(
        *command: object, mode: str = "trace", before: Any = None, **settings: object
    ) -> Recorded:
        folder = tmp_path / f"measured-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        environment = {
            **os.environ,
            "LD_PRELOAD": str(recorder),
            "HALOSCOPE_MEASURE": str(folder),
            "HALOSCOPE_MODE": mode,
            "HALOSCOPE_BUFFER": "1",
            **{f"HALOSCOPE_{name}": str(value) for name, value in settings.items()},
        }
        process = subprocess.Popen(
            [str(part) for part in command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=before,
        )
        try:
            output, error = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, error = process.communicate()
            pytest.fail(f"{command} does not end:\n{output}\n{error}")
        return Recorded(folder, process.returncode, output, error)

    return run
