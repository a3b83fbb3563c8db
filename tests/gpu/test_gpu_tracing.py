"""Claims about the tracer of GPUs on a GPU: work that is known is found in the trace, and when."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from measuring import haloscope, run

from haloscope.errors import MachineError
from haloscope.exchange.ranks.launch import find_mpiexec, start_command
from haloscope.scope.analysis.result import Result
from haloscope.scope.record.gpu_build import find_cupti
from haloscope.scope.report.gpus import breakdown
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.trace import NOBODY, Kind, iterate, read_events

PROGRAMS = Path(__file__).with_name("gpu_programs")
TO_DEVICE, TO_HOST, WITHIN, FILL = 1, 2, 3, 5
TURNS, LAUNCHES = 20, 7  # of known_work.cu
SPIN = 2e-3  # seconds of a kernel of known_work.cu
MARGIN = 50e-6  # seconds by which CUPTI may be wrong when it brings two clocks together
SECONDS = 200


@dataclass
class Call:
    """A call of the host: names from the root on, seconds, and what it tells of the GPU."""

    path: tuple[str, ...]
    role: str
    begin: float
    end: float = 0.0
    launches: list[tuple[str, int]] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)


@dataclass
class Work:
    """A kernel or copy: its stream, names from the root on, seconds, correlation, what it copied."""

    stream: str
    path: tuple[str, ...]
    begin: float
    end: float
    correlation: int = 0
    copied: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return self.path[-1]


@dataclass
class Traced:
    """What a program left: its measurement, its first thread's calls, and its streams' work."""

    folder: Path
    measurement: Measurement
    calls: list[Call]
    work: list[Work]
    output: str

    def of(self, *names: str) -> list[Work]:
        """Work of these names, in the order of its begin."""
        matches = [work for work in self.work if work.name in names]
        return sorted(matches, key=lambda work: work.begin)

    def within(self, name: str) -> list[Work]:
        """Work that was started within a region."""
        return [work for work in self.work if name in work.path]


def _calls_of(measurement: Measurement, names: Mapping[int, str]) -> list[Call]:
    place = next(p for p in measurement.locations if p.kind == "thread" and p.number == 0)
    rate, zero = measurement.ticks_to_seconds(place.rank)
    nodes = measurement.ranks[place.rank].nodes
    calls: list[Call] = []
    opened: list[Call] = []
    assert place.events is not None
    for tick, kind, payload, words in iterate(read_events(place.events)):
        time = tick * rate + zero
        if kind == Kind.ENTER:
            node = int(nodes[payload])
            role = measurement.regions[measurement.nodes[node].region].role
            opened.append(Call(measurement.path_of(node), role, time))
            calls.append(opened[-1])
        elif kind == Kind.LEAVE:
            opened.pop().end = time
        elif kind == Kind.LAUNCH:
            opened[-1].launches.append((names[payload], words[0]))
        elif kind == Kind.DEVICE_WAIT:
            opened[-1].waits.append(names[payload])
    assert not opened
    return calls


def _work_of(measurement: Measurement) -> list[Work]:
    gpu_work: list[Work] = []
    for place in measurement.locations:
        if place.kind != "stream" or place.events is None:
            continue
        rate, zero = measurement.ticks_to_seconds(place.rank)
        nodes = measurement.ranks[place.rank].nodes
        for tick, kind, payload, words in iterate(read_events(place.events)):
            time = tick * rate + zero
            if kind == Kind.ENTER:
                path = measurement.path_of(int(nodes[payload]))
                gpu_work.append(Work(place.name, path, time, time))
            elif kind == Kind.EXECUTE:
                gpu_work[-1].correlation = payload
            elif kind == Kind.COPY:
                gpu_work[-1].copied = payload, words[0]
            elif kind == Kind.LEAVE:
                gpu_work[-1].end = time
    return gpu_work


def trace(folder: Path, command: Sequence[str | Path], **more: str) -> Traced:
    """Trace a program of one process; insists that it and its measurement are whole."""
    done = run(
        [*haloscope("measure", "--trace", "--out", folder, "--"), *command],
        SECONDS,
        environment=more,
    )
    assert done.returncode == 0, done
    assert "GPUs are not measured" not in done.stderr, done.stderr
    measurement = open_measurement(folder)
    assert measurement.warnings == [], measurement.warnings
    names = {place.number: place.name for place in measurement.locations} | {NOBODY: "all"}
    return Traced(
        folder, measurement, _calls_of(measurement, names), _work_of(measurement), done.stdout
    )


def analysed(folder: Path) -> Result:
    """What the analysis makes of a measurement."""
    done = run(haloscope("analyze", folder), SECONDS)
    assert done.returncode == 0, done
    return Result.load(folder / "analysis.h5")


def notes(folder: Path) -> dict[str, object]:
    """What CUPTI told of itself."""
    lines = [json.loads(line) for line in (folder / "rank-00000.def").read_text().splitlines()]
    return next(line for line in lines if "gpu" in line)


def _nvcc() -> str:
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        pytest.skip("there is no nvcc here")
    return nvcc


@pytest.fixture(scope="module", name="known")
def fixture_known(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """The trace of known_work.cu."""
    folder = tmp_path_factory.mktemp("known")
    headers = folder / "headers"
    headers.mkdir()
    # NVTX may be there as a wheel only, beside headers that do not fit this nvcc.
    for base in map(Path, sys.path):
        for nvtx in base.glob("nvidia/*/include/nvtx3"):
            if not (headers / "nvtx3").exists():
                (headers / "nvtx3").symlink_to(nvtx)
    command = [_nvcc(), "-O1", "-std=c++17", "-arch=native", "-I", headers]
    done = subprocess.run(
        [*command, PROGRAMS / "known_work.cu", "-o", folder / "known_work"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    traced = trace(folder / "trace", [folder / "known_work"])
    assert "nvtx 1" in traced.output
    return traced


def test_this_machine_has_a_cupti_for_its_driver():
    cupti = find_cupti()
    assert cupti is not None
    print(f"CUPTI {cupti.version}: {cupti.library}, headers {cupti.includes[0]}")


def test_nothing_is_lost_and_cupti_takes_the_recorders_clock(known: Traced):
    recorder_notes = notes(known.folder)
    print(recorder_notes)
    assert (recorder_notes["dropped"], recorder_notes["untimed"]) == (0, 0)
    assert recorder_notes["gpu"] >= len(known.work)
    assert recorder_notes["own_clock"] is True


def test_each_kernel_and_copy_appears_once(known: Traced):
    counts = Counter(work.name for work in known.work)
    print(counts)
    assert counts["spin"] == TURNS + 1
    assert counts["first"] == LAUNCHES
    assert counts["second"] == 2 * LAUNCHES
    assert counts["third"] == LAUNCHES + 1
    assert counts["mangled(float*, int)"] == 1
    assert {work.stream.split(" stream ")[0] for work in known.work} == {"GPU 0"}


def test_copies_have_their_directions_and_bytes(known: Traced):
    copies = sorted(work.copied for work in known.within("copies") if work.copied)
    assert copies == [
        (TO_DEVICE, 1000000),
        (TO_HOST, 4096),
        (TO_HOST, 300000),
        (WITHIN, 500000),
        (FILL, 200000),
    ]
    result = analysed(known.folder)
    assert result.total("gpu_bytes_to_device") == 1000000
    assert result.total("gpu_bytes_to_host") == 304096 + 64 * LAUNCHES
    assert result.total("gpu_bytes_within") >= 500000


def test_kernels_lie_between_their_launch_and_the_end_of_the_wait_for_them(known: Traced):
    starts = {number: call for call in known.calls for _, number in call.launches}
    ends = sorted(call.end for call in known.calls if call.waits and "in step" in call.path)
    before, after = [], []
    for work in [one for one in known.of("spin") if "in step" in one.path]:
        launch = starts[work.correlation]
        synchronised = next(end for end in ends if end > launch.end)
        before.append(work.begin - launch.begin)
        after.append(synchronised - work.end)
        assert work.end - work.begin > 0.9 * SPIN
    assert len(before) == TURNS
    for name, margins in (("launch to begin", before), ("end to end of wait", after)):
        print(f"{name}: least {min(margins) * 1e6:.1f} us, most {max(margins) * 1e6:.1f} us")
    assert min(before) > -MARGIN
    assert min(after) > -MARGIN


def test_every_node_of_a_graph_appears_at_every_launch(known: Traced):
    launches = [
        number
        for call in known.calls
        if call.path[-1].startswith("cudaGraphLaunch")
        for _, number in call.launches
    ]
    assert len(set(launches)) >= LAUNCHES
    by_launch: dict[int, Counter[str]] = defaultdict(Counter)
    for work in known.within("graph"):
        assert work.path[-2] == "cudaGraphLaunch"
        by_launch[work.correlation][work.name] += 1
    wanted = {"first": 1, "second": 2, "third": 1, "copy to host": 1}
    assert [dict(counts) for counts in by_launch.values()] == [wanted] * LAUNCHES
    assert by_launch.keys() <= set(launches)


def test_waits_name_their_stream_and_streams_wait_for_each_other(known: Traced):
    (spin,) = [work for work in known.of("spin") if "two streams" in work.path]
    (third,) = [work for work in known.of("third") if "two streams" in work.path]
    assert spin.stream != third.stream
    assert third.begin > spin.end - MARGIN
    calls = [call for call in known.calls if "two streams" in call.path]
    assert [(call.path[-1], call.waits) for call in calls if call.waits] == [
        ("cudaEventSynchronize", [spin.stream]),
        ("cudaStreamSynchronize", [third.stream]),
    ]
    launches = [call for call in calls if call.role == "launch"]
    for call, work in zip(launches, (spin, third), strict=True):
        assert work.stream in [stream for stream, _ in call.launches]
        assert work.correlation in [number for _, number in call.launches]
    device = [call for call in known.calls if call.path[-1] == "cudaDeviceSynchronize"]
    assert [call.waits for call in device] == [["all"]]


def test_the_analysis_counts_the_same(known: Traced):
    result = analysed(known.folder)
    of_kernels = sum(work.end - work.begin for work in known.work if work.copied is None)
    assert result.total("gpu_kernels") == pytest.approx(of_kernels, rel=1e-6)
    # Launches of a capture start nothing; a graph is one. Here copies and fills are launches, too.
    single = 5 + TURNS + 1 + 2
    assert result.total("gpu_launches") == single + LAUNCHES
    shown = breakdown(result)
    assert "kernels" in shown.parts
    hosts = [i for i, p in enumerate(result.locations) if p.kind == "thread" and p.number == 0]
    whole = result.value("time")[:, hosts].sum()
    assert shown.seconds.sum() == pytest.approx(whole, rel=1e-6)


def test_kernels_and_graphs_of_cupy_appear_in_their_ranges(tmp_path: Path):
    recording = trace(tmp_path / "trace", [sys.executable, PROGRAMS / "known_cupy.py"])
    assert len([work for work in recording.within("five kernels") if work.name == "grow"]) == 5
    replayed = [work for work in recording.within("graphs") if work.name == "grow"]
    assert len(replayed) == 4 * 3
    assert len({work.correlation for work in replayed}) == 3
    assert len(recording.of("grow")) == 5 + 4 * 3
    copied = {work.copied for work in recording.work}
    assert {(TO_DEVICE, 8 << 16), (TO_HOST, 8 << 16)} <= copied


def test_calls_and_kernels_of_nccl_are_communication(tmp_path: Path):
    nccl = pytest.importorskip("cupy.cuda.nccl")
    cupy = pytest.importorskip("cupy")
    if not hasattr(nccl, "NcclCommunicator"):
        pytest.skip("this CuPy finds no NCCL")
    recording = trace(
        tmp_path / "trace",
        [sys.executable, PROGRAMS / "known_cupy.py", "nccl"],
        NCCL_NVLS_ENABLE="0",
    )
    calls = [region for region in recording.measurement.regions if region.paradigm == "nccl"]
    print(sorted(region.name for region in calls))
    assert any("AllReduce" in r.name and r.role == "launch" for r in calls)
    # NCCL ends the ranges of its start with a payload: what follows is not within them.
    assert ("program", "reduction", "ncclAllReduce") in {call.path for call in recording.calls}
    count = cupy.cuda.runtime.getDeviceCount()
    if count > 1:
        # NCCL on one GPU only copies.
        kernels = [work for work in recording.work if work.name.startswith("ncclDevKernel")]
        assert len({work.stream.split(" stream ")[0] for work in kernels}) == count
        result = analysed(recording.folder)
        assert result.total("gpu_nccl") > 0


def test_a_late_sender_is_told_from_a_late_gpu(tmp_path: Path):
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    paths = [os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2] / "src")]
    variables = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    program = [sys.executable, "-m", "mpi4py", str(PROGRAMS / "late_senders.py")]
    try:
        command = start_command(find_mpiexec(), 2, program, variables)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    folder = tmp_path / "trace"
    done = run(
        [*haloscope("measure", "--trace", "--out", folder, "--"), *command],
        SECONDS,
        environment=variables,
    )
    assert done.returncode == 0, done
    measurement = open_measurement(folder)
    assert (measurement.size, measurement.warnings) == (2, []), done.stderr
    result = analysed(folder)
    waited = {}
    for reason in ("late host", "late device", "large message"):
        nodes = [n for n in range(len(result.nodes)) if reason in result.path_of(n)]
        waited[reason] = [
            float(result.value(metric)[nodes].sum())
            for metric in ("late_sender", "late_sender_host", "late_sender_device")
        ]
    print(waited, result.about["gpu"]["late_sender"])
    for reason, of_host in (("late host", True), ("late device", False), ("large message", True)):
        whole, host, device = waited[reason]
        assert whole > 0.2
        assert host + device == pytest.approx(whole)
        assert (host > device) is of_host, (reason, host, device)
    # 256 MiB through the memory of the host take longer than that anywhere.
    assert result.about["gpu"]["late_sender"]["transfer"][1] > 1e-3
