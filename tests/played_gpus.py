"""A GPU that a library of the tests plays, and programs that use it while the tracer looks on.

CUPTI is played (unit/gpu_programs/cupti): no GPU is needed.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_programs import TRACER, Recorded, Run

from haloscope.device.jit import Cache
from haloscope.scope.record import gpu_build
from haloscope.scope.trace.measurement import Location
from haloscope.scope.trace.trace import Kind

HERE = Path(__file__).parent / "unit" / "gpu_programs"
SECONDS = 60
MICROSECOND = 1e-6

# Event of a kernel or copy: name, begin and end in seconds since the load, correlation, copy.
Work = tuple[str, float, float, int, tuple[int, int] | None]


def compile_c(target: Path, *sources: Path, flags: tuple[str, ...] = ()) -> Path:
    cupti = HERE / "cupti"
    subprocess.run(
        ["gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-o", target, *sources]
        + [f"-I{cupti}", f"-I{cupti / 'include'}", f"-I{TRACER}", "-pthread", "-ldl", *flags],
        check=True,
        timeout=SECONDS,
    )
    return target


@functools.cache
def _cupti(folder: Path) -> Path:
    home = folder / "cupti"
    shutil.copytree(HERE / "cupti" / "include", home / "include")
    (home / "lib").mkdir()
    compile_c(
        home / "lib" / "libcupti.so.99",
        HERE / "cupti" / "fake_cupti.c",
        flags=("-shared", "-fPIC", "-fvisibility=hidden"),
    )
    return home


@functools.cache
def _program(folder: Path) -> Path:
    flags = ("-rdynamic", "-Wno-unused-value")
    return compile_c(folder / "gpu_steps", HERE / "gpu_steps.c", flags=flags)


@functools.cache
def _tracer(folder: Path) -> Path:
    return gpu_build.gpu_library({"HALOSCOPE_CUPTI": str(_cupti(folder))}, Cache(folder / "cache"))


# Functions keep what is compiled: a fixture that several files import is made anew for each of them.


@pytest.fixture(name="folder")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what is compiled once lies."""
    folder = tmp_path_factory.getbasetemp() / "played-gpus"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(name="cupti")
def fixture_cupti(folder: Path) -> Path:
    """A folder like that of CUPTI: headers and library."""
    return _cupti(folder)


@pytest.fixture(name="program")
def fixture_program(folder: Path) -> Path:
    """A program that takes the steps of its arguments."""
    return _program(folder)


@pytest.fixture(name="tracer")
def fixture_tracer(folder: Path) -> Path:
    """The tracer of GPUs, with the played CUPTI."""
    return _tracer(folder)


@pytest.fixture(name="play")
def fixture_play(
    record: Run, program: Path, tracer: Path, cupti: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Recorded]:
    """Run the program with steps as one text; settings are variables of the environment."""

    def play(
        steps: str,
        *,
        mode: str = "trace",
        program: Path = program,
        status: int = 0,
        **settings: str,
    ) -> Recorded:
        monkeypatch.setenv("CUDA_INJECTION64_PATH", str(tracer))
        monkeypatch.setenv("FAKE_CUPTI", str(cupti / "lib" / "libcupti.so.99"))
        recorder = {n[10:]: v for n, v in settings.items() if n.startswith("HALOSCOPE_")}
        for name in settings.keys() - {f"HALOSCOPE_{name}" for name in recorder}:
            monkeypatch.setenv(name, settings[name])
        run = record(program, *steps.split(), mode=mode, **recorder)
        assert run.status == status, run.error
        return run

    return play


def streams(run: Recorded) -> dict[str, Location]:
    return {p.name: p for p in run.measurement().locations if p.kind == "stream"}


def work_of(run: Recorded, name: str = "GPU 0 stream 7") -> list[Work]:
    """What a stream did, in the order of its file; checks that visits follow each other."""
    measurement = run.measurement()
    number = next(i for i, place in enumerate(measurement.locations) if place.name == name)
    rate, zero = measurement.ticks_to_seconds(measurement.locations[number].rank)
    nodes = measurement.ranks[measurement.locations[number].rank].nodes
    works: list[Work] = []
    opened: list[tuple[int, int]] = []
    correlation, copied, last = 0, None, 0
    for tick, kind, payload, words in run.events(number):
        assert tick >= last
        last = tick
        if kind == Kind.ENTER:
            assert not opened
            opened.append((payload, tick))
            correlation, copied = 0, None
        elif kind == Kind.EXECUTE:
            assert tick == opened[-1][1]
            correlation = payload
        elif kind == Kind.COPY:
            copied = payload, words[0]
        else:
            node, begin = opened.pop()
            assert (kind, payload) == (Kind.LEAVE, node)
            path = "/".join(measurement.path_of(int(nodes[node])))
            works.append((path, begin * rate + zero, tick * rate + zero, correlation, copied))
    assert not opened
    return works
