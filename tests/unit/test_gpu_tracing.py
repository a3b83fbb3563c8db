"""Claims about the tracer of GPUs: what CUPTI tells becomes events, calls, locations and call paths.

CUPTI is played by a library of the tests (gpu_programs/cupti): no GPU is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_programs import (  # noqa: F401
    PROGRAMS,
    TRACER,
    Recorded,
    Run,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

from haloscope.device.cache import Cache
from haloscope.errors import MachineError
from haloscope.scope.measurement import Location
from haloscope.scope.trace import NOBODY, Kind
from haloscope.scope.tracer import gpu_build

pytestmark = needs_gcc
HERE = Path(__file__).with_name("gpu_programs")
SECONDS = 60
MICROSECOND = 1e-6
TO_DEVICE, TO_HOST, WITHIN, PEER, FILL = 1, 2, 3, 4, 5

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


@pytest.fixture(scope="module", name="cupti")
def fixture_cupti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of CUPTI: headers and library."""
    home = tmp_path_factory.mktemp("cupti")
    shutil.copytree(HERE / "cupti" / "include", home / "include")
    (home / "lib").mkdir()
    compile_c(
        home / "lib" / "libcupti.so.99",
        HERE / "cupti" / "fake_cupti.c",
        flags=("-shared", "-fPIC", "-fvisibility=hidden"),
    )
    return home


@pytest.fixture(scope="module", name="program")
def fixture_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(
        tmp_path_factory.mktemp("program") / "gpu_steps",
        HERE / "gpu_steps.c",
        flags=("-rdynamic", "-Wno-unused-value"),
    )


@pytest.fixture(scope="module", name="tracer")
def fixture_tracer(cupti: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    return gpu_build.gpu_library({"HALOSCOPE_CUPTI": str(cupti)}, cache)


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
    found: list[Work] = []
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
            found.append((path, begin * rate + zero, tick * rate + zero, correlation, copied))
    assert not opened
    return found


def relative(work: list[Work]) -> list[tuple[str, float, float]]:
    """Path, begin and end in microseconds, from the first begin on."""
    first = work[0][1]
    return [(path, (b - first) / MICROSECOND, (e - first) / MICROSECOND) for path, b, e, *_ in work]


# --- work of streams -------------------------------------------------------------------------


def test_kernels_and_copies_become_visits_on_their_stream(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 kernel:stretch:7:1:1000:3000 "
        "call:cuMemcpyDtoHAsync_v2:7:2 copy:to_host:7:2:3000:3500:4096 "
        "call:cuLaunchKernel:9:3 kernel:shrink:9:3:1200:1300 deliver"
    )
    assert streams(run).keys() == {"GPU 0 stream 7", "GPU 0 stream 9"}
    assert {place.device for place in streams(run).values()} == {0}
    seven = work_of(run)
    assert [(w[0], w[3], w[4]) for w in seven] == [
        ("program/cuLaunchKernel/stretch", 1, None),
        ("program/cuMemcpyDtoHAsync/copy to host", 2, (TO_HOST, 4096)),
    ]
    # A tick of rounding at each end is all that the clocks may add.
    times = [time for _, *two in relative(seven) for time in two]
    assert times == pytest.approx([0, 2000, 2000, 2500], rel=1e-4, abs=0.01)
    nine = work_of(run, "GPU 0 stream 9")
    assert nine[0][1] - seven[0][1] == pytest.approx(200 * MICROSECOND, abs=1e-8)
    assert run.measurement().warnings == []


def test_each_direction_of_a_copy_is_told(play: Callable[..., Recorded]):
    run = play(
        "load copy:to_device:7:1:10:20:1 copy:to_host:7:2:20:30:2 copy:within:7:3:30:40:3 "
        "copy:peer:7:4:40:50:4 copy:fill:7:5:50:60:5"
    )
    found = [(path.split("/")[-1], copied) for path, _, _, _, copied in work_of(run)]
    assert found == [
        ("copy to device", (TO_DEVICE, 1)),
        ("copy to host", (TO_HOST, 2)),
        ("copy within device", (WITHIN, 3)),
        ("copy between devices", (PEER, 4)),
        ("fill", (FILL, 5)),
    ]
    roles = {(r["paradigm"], r["role"]) for r in run.lines("region") if r["name"] != "program"}
    assert roles == {("cuda", "copy")}


def test_records_out_of_order_are_written_in_the_order_of_begin(play: Callable[..., Recorded]):
    run = play(
        "load kernel:c:7:3:300:390 kernel:a:7:1:100:190 deliver kernel:b:7:2:200:290 deliver"
    )
    assert [path for path, *_ in work_of(run)] == ["program/a", "program/b", "program/c"]
    assert len(streams(run)) == 1


def test_more_records_than_are_held_keep_their_order_and_none_is_lost(
    play: Callable[..., Recorded],
):
    run = play("load many:60000:7", HALOSCOPE_BUFFER="1")
    work = work_of(run)
    assert len(work) == 60000
    assert [w[3] for w in work] == list(range(1, 60001))
    assert len(streams(run)) == 1
    # Windows rolled over on the way leave no mark on a stream.
    counted = {line["counted"]: line for line in run.lines("counted")}
    assert counted[streams(run)["GPU 0 stream 7"].number]["flushes"] > 0
    assert run.measurement().warnings == []


def test_work_that_overlaps_on_one_stream_goes_to_a_location_beside(
    play: Callable[..., Recorded],
):
    run = play(
        "load kernel:a:7:1:100:200 kernel:b:7:1:150:250 kernel:c:7:1:160:180 kernel:d:7:1:210:240"
    )
    assert [w[0] for w in work_of(run)] == ["program/a", "program/d"]
    assert [w[0] for w in work_of(run, "GPU 0 stream 7 +1")] == ["program/b"]
    assert [w[0] for w in work_of(run, "GPU 0 stream 7 +2")] == ["program/c"]


def test_clocks_that_overlap_by_a_few_nanoseconds_make_no_location_beside(
    play: Callable[..., Recorded],
):
    run = play("load kernel:a:7:1:100:200.05 kernel:b:7:2:200:300")
    assert len(streams(run)) == 1
    (_, _, first), (_, begin, end) = relative(work_of(run))
    assert (first, begin) == pytest.approx((100.05, 100.05), abs=0.01)
    assert end == pytest.approx(200, abs=0.01)


def test_a_name_in_the_place_of_another_is_another_kernel(play: Callable[..., Recorded]):
    run = play("load reused:a:7:1:10:20 deliver reused:b:7:2:20:30 deliver")
    assert [w[0] for w in work_of(run)] == ["program/a", "program/b"]


def test_every_node_of_a_graph_appears_below_its_launch(play: Callable[..., Recorded]):
    run = play(
        "load enter:step call:cuGraphLaunch:7:5 leave:step kernel:a:7:5:100:200:11 "
        "kernel:b:7:5:200:300:12 copy:to_host:7:5:300:400:8 enter:step call:cuGraphLaunch:7:6 "
        "leave:step kernel:a:7:6:500:600:11 kernel:b:7:6:600:700:12 copy:to_host:7:6:700:800:8"
    )
    found = [(path, correlation) for path, _, _, correlation, _ in work_of(run)]
    path = "program/step/cuGraphLaunch/"
    assert found == [
        *((path + name, 5) for name in ("a", "b", "copy to host")),
        *((path + name, 6) for name in ("a", "b", "copy to host")),
    ]


def test_streams_of_contexts_and_devices_are_told_apart(play: Callable[..., Recorded]):
    run = play("load kernel:a:7:1:10:20 context:2:1 kernel:b:7:2:15:30")
    assert {name: p.device for name, p in streams(run).items()} == {
        "GPU 0 stream 7": 0,
        "GPU 1 context 2 stream 7": 1,
    }


def test_names_are_readable_and_those_of_nccl_are_its_own(
    play: Callable[..., Recorded], tmp_path: Path
):
    linked = compile_c(
        tmp_path / "gpu_steps",
        HERE / "gpu_steps.c",
        flags=("-rdynamic", "-Wno-unused-value", "-Wl,--no-as-needed", "-lstdc++"),
    )
    run = play(
        "load kernel:_Z7stretchPdi:7:1:10:20 "
        "kernel:_Z31ncclDevKernel_AllReduce_Sum_f32v:7:2:20:30 kernel:plain:7:3:30:40",
        program=linked,
    )
    found = {r["name"]: r["paradigm"] for r in run.lines("region") if r["role"] == "kernel"}
    assert found == {
        "stretch(double*, int)": "cuda",
        "ncclDevKernel_AllReduce_Sum_f32()": "nccl",
        "plain": "cuda",
    }


def test_a_filter_leaves_kernels_out(play: Callable[..., Recorded]):
    run = play("load kernel:keep:7:1:10:20 kernel:drop_this:7:2:20:30", HALOSCOPE_FILTER="drop_*")
    assert [w[0] for w in work_of(run)] == ["program/keep"]


def test_work_launched_in_a_pause_is_left_out(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 sleep:2 pause call:cuLaunchKernel:7:2 now:second:7:2:10 "
        "sleep:2 resume call:cuLaunchKernel:7:3 kernel:first:7:1:100:200 now:third:7:3:10"
    )
    assert [w[0].split("/")[-1] for w in work_of(run)] == ["first", "third"]


# --- calls of the host -----------------------------------------------------------------------


def host_events(run: Recorded) -> list[tuple[str, ...]]:
    """Events of the first thread, with names in place of numbers; the program left out."""
    measurement = run.measurement()
    nodes = measurement.ranks[0].nodes
    told: list[tuple[str, ...]] = []
    names = {p.number: name for name, p in streams(run).items()} | {NOBODY: "all"}
    for _, kind, payload, words in run.events(0):
        if kind in (Kind.ENTER, Kind.LEAVE):
            name = measurement.path_of(int(nodes[payload]))[-1]
            if name != "program":
                told.append((kind.name.lower(), name))
        elif kind == Kind.LAUNCH:
            told.append(("launch", names[payload], str(words[0])))
        elif kind == Kind.DEVICE_WAIT:
            told.append(("waited", names[payload]))
    return told


def test_a_launch_tells_its_stream_and_correlation_at_the_time_of_its_call(
    play: Callable[..., Recorded],
):
    run = play("load begin:cuLaunchKernel:7:41 sleep:5 end:cuLaunchKernel:7:41")
    assert host_events(run) == [
        ("enter", "cuLaunchKernel"),
        ("launch", "GPU 0 stream 7", "41"),
        ("leave", "cuLaunchKernel"),
    ]
    ticks = {kind: tick for tick, kind, *_ in run.events(0)}
    enters = [tick for tick, kind, *_ in run.events(0) if kind == Kind.ENTER]
    assert ticks[Kind.LAUNCH] == enters[1]


def test_a_call_of_the_runtime_is_one_region_and_one_launch(play: Callable[..., Recorded]):
    run = play(
        "load begin:cudaLaunchKernel_v7000:9:5 call:cuLaunchKernelEx:9:5 end:cudaLaunchKernel_v7000:9:5 "
        "begin:cudaStreamSynchronize_v3020:9:6 call:cuStreamSynchronize:9:6 "
        "end:cudaStreamSynchronize_v3020:9:6"
    )
    assert host_events(run) == [
        ("enter", "cudaLaunchKernel"),
        ("launch", "GPU 0 stream 9", "5"),
        ("leave", "cudaLaunchKernel"),
        ("enter", "cudaStreamSynchronize"),
        ("waited", "GPU 0 stream 9"),
        ("leave", "cudaStreamSynchronize"),
    ]


def test_a_call_of_the_runtime_that_shows_no_inner_one_is_a_launch_too(
    play: Callable[..., Recorded],
):
    run = play("load call:cudaLaunchKernel_v7000:9:5 kernel:a:9:5:10:20")
    assert ("launch", "all", "5") in host_events(run)
    assert work_of(run, "GPU 0 stream 9")[0][0] == "program/cudaLaunchKernel/a"


def test_what_a_synchronisation_waits_for_is_told(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 call:cuLaunchKernel:9:2 call:cuEventRecord:9:3:0xabcd0 "
        "call:cuStreamSynchronize:7:4 call:cuEventSynchronize:0:5:0xabcd0 "
        "call:cuCtxSynchronize:0:6 call:cuMemcpyDtoH_v2:0:7 call:cuEventSynchronize:0:8:0x1230 "
        "call:cuStreamSynchronize:33:9"
    )
    told = host_events(run)
    waits = [(told[i - 1][1], e[1]) for i, e in enumerate(told) if e[0] == "waited"]
    assert waits == [
        ("cuStreamSynchronize", "GPU 0 stream 7"),
        ("cuEventSynchronize", "GPU 0 stream 9"),
        ("cuCtxSynchronize", "all"),
        ("GPU 0 stream 7", "GPU 0 stream 7"),  # a copy that blocks: its launch stands between
        ("cuEventSynchronize", "all"),
        ("cuStreamSynchronize", "all"),  # of a stream that has never worked
    ]
    # What only records an event is no region.
    assert all(event[1] != "cuEventRecord" for event in told)


def test_the_stream_of_the_thread_itself_is_another_than_the_common_one(
    play: Callable[..., Recorded],
):
    run = play(
        "load kernel:a:7:1:10:20 kernel:b:8:2:10:20 deliver call:cuStreamSynchronize:0:3 "
        "call:cuStreamSynchronize_ptsz:0:4"
    )
    waited = [event[1] for event in host_events(run) if event[0] == "waited"]
    assert waited == ["GPU 0 stream 7", "GPU 0 stream 8"]


def test_roles_of_calls_are_those_of_the_reference(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 call:cuMemcpyDtoHAsync_v2:7:2 call:cuMemcpyDtoH_v2:0:3 "
        "call:cuMemAlloc_v2:0:4 call:cuStreamSynchronize:7:5"
    )
    found = {r["name"]: r["role"] for r in run.lines("region") if r["paradigm"] == "cuda"}
    assert found == {
        "cuLaunchKernel": "launch",
        "cuMemcpyDtoHAsync": "copy",
        "cuMemcpyDtoH": "sync",
        "cuMemAlloc": "memory",
        "cuStreamSynchronize": "sync",
    }


def test_what_mpi_does_with_the_gpu_is_the_time_of_mpi(play: Callable[..., Recorded]):
    run = play(
        "load enter:MPI_Send mpi:begin call:cuMemcpyDtoH_v2:0:4 mpi:end leave:MPI_Send "
        "copy:to_host:7:4:10:20:8 call:cuLaunchKernel:7:5"
    )
    assert host_events(run)[:3] == [
        ("enter", "MPI_Send"),
        ("leave", "MPI_Send"),
        ("enter", "cuLaunchKernel"),
    ]
    assert work_of(run)[0][0] == "program/MPI_Send/copy to host"


def test_nothing_is_recorded_of_a_program_that_only_asks_for_its_gpus(
    play: Callable[..., Recorded],
):
    assert not list(play("find").folder.iterdir())


def test_a_process_may_learn_later_that_it_is_measured(play: Callable[..., Recorded]):
    run = play(
        "forget load begin:cuLaunchKernel:7:1 remember end:cuLaunchKernel:7:1 "
        "call:cuLaunchKernel:7:2 kernel:a:7:2:10:20"
    )
    assert host_events(run) == [
        ("enter", "cuLaunchKernel"),
        ("launch", "GPU 0 stream 7", "2"),
        ("leave", "cuLaunchKernel"),
    ]
    assert [w[0] for w in work_of(run)] == ["program/cuLaunchKernel/a"]


# --- clocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["the recorder's", "own"])
def test_kernels_lie_where_the_host_was_when_they_ran(play: Callable[..., Recorded], clock: str):
    settings = {"FAKE_CUPTI_CLOCK": "own"} if clock == "own" else {}
    run = play(
        "load sleep:20 enter:a sleep:5 now:first:7:1:2000 sleep:5 leave:a deliver sleep:30 "
        "enter:b sleep:5 now:second:7:2:2000 sleep:5 leave:b sleep:10",
        **settings,
    )
    measurement = run.measurement()
    rate, zero = measurement.ticks_to_seconds(0)
    host = [tick * rate + zero for tick, kind, *_ in run.events(0) if kind in (2, 3)][1:-1]
    work = work_of(run)
    for (_, begin, end, *_), enter, leave in zip(work, host[::2], host[1::2], strict=True):
        assert enter + 0.004 < begin < enter + 0.1
        assert end - begin == pytest.approx(0.002, rel=1e-3)
        assert begin < leave - 0.004
    said = run.lines("gpu")[0]
    assert said["own_clock"] is (clock != "own")


# --- how runs end ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exit", "_exit"])
def test_records_that_cupti_still_has_at_the_end_are_kept(play: Callable[..., Recorded], how: str):
    run = play(f"load kernel:a:7:1:10:20 overhead:0:7 exit:{how}")
    assert [w[0] for w in work_of(run)] == ["program/a"]
    assert run.lines("gpu")[0]["overhead_ns"] == 7000
    assert run.measurement().ranks[0].ended


def test_what_a_slow_program_did_is_there_when_it_is_killed(play: Callable[..., Recorded]):
    # Asked for each second, kept for three.
    run = play("load attach:0:1 kernel:a:7:1:10:20 sleep:6000 exit:kill", status=-9)
    assert [w[0] for w in work_of(run)] == ["program/a"]
    assert not run.measurement().ranks[0].ended


def test_what_was_told_before_the_rank_is_known_gets_its_name(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 kernel:a:7:1:10:20 deliver attach:2:3 kernel:b:7:2:20:30"
    )
    assert {path.name for path in run.folder.iterdir()} == {
        "rank-00002.def",
        "rank-00002.0.events",
        "rank-00002.1.events",
    }
    assert [w[0].split("/")[-1] for w in work_of(run)] == ["a", "b"]


def test_records_that_cupti_lost_make_the_measurement_partial(play: Callable[..., Recorded]):
    run = play("load kernel:a:7:1:10:20 kernel:untimed:7:1:0:0 drop:4 deliver")
    assert [w[0] for w in work_of(run)] == ["program/a"]
    warnings = run.measurement().warnings
    assert len(warnings) == 1
    assert "5 kernels and copies" in warnings[0]


def test_a_profile_counts_what_streams_did(play: Callable[..., Recorded]):
    run = play(
        "load call:cuLaunchKernel:7:1 call:cuLaunchKernel:7:2 kernel:a:7:1:100:200 "
        "kernel:a:7:2:300:600 copy:to_host:7:3:600:700:64 copy:to_host:7:4:700:800:36",
        mode="profile",
    )
    measurement = run.measurement()
    place = streams(run)["GPU 0 stream 7"].number
    rows = {
        measurement.path_of(int(measurement.ranks[0].nodes[line["node"]]))[-1]: line
        for line in run.profile()
        if line.get("location") == place
    }
    assert rows.keys() == {"a", "copy to host"}
    assert rows["a"]["visits"] == 2
    assert rows["a"]["seconds"] == pytest.approx(400e-6, rel=1e-3)
    assert rows["a"]["least"] == pytest.approx(100e-6, rel=1e-3)
    assert rows["a"]["most"] == pytest.approx(300e-6, rel=1e-3)
    assert rows["copy to host"]["accesses"] == [2, 100]


# --- no CUPTI --------------------------------------------------------------------------------


def test_a_missing_cupti_is_said_once_by_programs_that_use_a_gpu(
    record: Run, program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(gpu_build, "find_cupti", lambda _: None)
    library = gpu_build.gpu_library({}, Cache(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_INJECTION64_PATH", str(library))
    run = record(program, "load", "load", "enter:a", "leave:a")
    assert run.status == 0
    assert run.output == "loaded 1\nloaded 1\n"
    assert run.error.count("\n") == 1
    assert run.error.startswith("haloscope: GPUs are not measured: found no CUPTI; install")
    assert run.visits() == {"program": 1, "program/a": 1}
    assert record(program, "enter:a", "leave:a").error == ""


def test_only_the_first_rank_says_what_is_missing(
    play: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch
):
    refused = {"FAKE_CUPTI_REFUSES": "cuptiSubscribe"}
    assert "CUPTI_ERROR_NOT_SUPPORTED" in play("load", PMI_RANK="0", **refused).error
    assert play("load", PMI_RANK="1", **refused).error == ""


@pytest.mark.parametrize("function", ["cuptiSubscribe", "cuptiActivityEnable"])
def test_a_cupti_that_refuses_is_told_and_the_rest_is_measured(
    play: Callable[..., Recorded], function: str
):
    run = play("load enter:a leave:a", FAKE_CUPTI_REFUSES=function)
    assert run.error.count("\n") == 1
    assert "GPUs are not measured: CUPTI does not tell of" in run.error
    assert "no other tool" in run.error
    assert run.visits() == {"program": 1, "program/a": 1}


def test_a_library_that_is_gone_is_told(
    record: Run, program: Path, cupti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "cupti"
    shutil.copytree(cupti, home)
    cache = Cache(tmp_path / "cache")
    library = gpu_build.gpu_library({"HALOSCOPE_CUPTI": str(home)}, cache)
    (home / "lib" / "libcupti.so.99").unlink()
    monkeypatch.setenv("CUDA_INJECTION64_PATH", str(library))
    run = record(program, "load", "enter:a", "leave:a")
    assert "libcupti.so.99 cannot be loaded" in run.error
    assert run.visits()["program/a"] == 1


def test_a_process_that_is_not_measured_is_left_alone(program: Path, tracer: Path):
    done = subprocess.run(
        [program, "load"],
        env={**os.environ, "CUDA_INJECTION64_PATH": str(tracer)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded 1\n", "")


# --- ranges of NVTX --------------------------------------------------------------------------


@pytest.fixture(scope="module", name="ranges")
def fixture_ranges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("program") / "nvtx_steps", HERE / "nvtx_steps.c")


@pytest.fixture(name="mark")
def fixture_mark(
    record: Run, ranges: Path, tracer: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Recorded]:
    def mark(*steps: str, **settings: str) -> Recorded:
        monkeypatch.setenv("NVTX_INJECTION64_PATH", str(tracer))
        run = record(ranges, *steps, **settings)
        assert run.status == 0, run.error
        return run

    return mark


def test_ranges_of_nvtx_are_regions_of_their_thread(mark: Callable[..., Recorded]):
    run = mark("push:outer", "push_ex:inner part", "pop", "push_wide:größer", "pop", "pop")
    assert run.visits() == {
        "program": 1,
        "program/outer": 1,
        "program/outer/inner part": 1,
        "program/outer/größer": 1,
    }
    assert {r["paradigm"] for r in run.lines("region")} == {"program", "user"}


def test_ranges_of_domains_nest_by_themselves_and_those_of_nccl_are_its_calls(
    mark: Callable[..., Recorded],
):
    run = mark("domain:NCCL", "push_domain:ncclAllReduce", "pop_domain", "domain:mine")
    regions = {r["name"]: (r["paradigm"], r["role"]) for r in run.lines("region")}
    assert regions["ncclAllReduce"] == ("nccl", "launch")
    run = mark("domain:mine", "push_registered:kept", "pop", "pop_domain", "pop_domain")
    assert run.visits() == {"program": 1, "program/kept": 1}


def test_ranges_that_end_with_a_payload_end_there(mark: Callable[..., Recorded]):
    run = mark("domain:NCCL", "push_domain:init", "pop_payload", "push:next", "push_payload", "pop")
    assert run.visits() == {"program": 1, "program/init": 1, "program/next": 1,
                            "program/next/range": 1}  # fmt: skip


def test_more_names_than_a_program_should_have_share_one(mark: Callable[..., Recorded]):
    run = mark("numbered:10100")
    names = [r["name"] for r in run.lines("region")]
    assert len(names) == 10002  # program, 10000 ranges, the rest
    assert run.visits()["program/further ranges"] == 100


def test_marks_without_a_begin_and_messages_without_a_text_do_no_harm(
    mark: Callable[..., Recorded],
):
    run = mark("pop", "push_empty", "pop", "pop")
    assert run.visits() == {"program": 1, "program/range": 1}


# --- building --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "role", "starts"),
    [
        ("cuLaunchKernel", "LAUNCH", True),
        ("cuLaunchKernelEx_ptsz", "LAUNCH", True),
        ("cudaLaunchKernelExC_ptsz_v11060", "LAUNCH", True),
        ("cuGraphLaunch", "LAUNCH", True),
        ("cuMemcpyHtoDAsync_v2_ptsz", "COPY", True),
        ("cudaMemcpyAsync_v3020", "COPY", True),
        ("cuMemsetD8_v2_ptds", "COPY", True),
        ("cuMemcpyDtoH_v2_ptds", "SYNC", True),
        ("cudaMemcpyToSymbol_v3020", "SYNC", True),
        ("cuStreamSynchronize_ptsz", "SYNC", False),
        ("cudaDeviceSynchronize_v3020", "SYNC", False),
        ("cuEventRecordWithFlags", "RECORD", False),
        ("cuMemAllocAsync", "MEMORY", False),
        ("cudaFreeHost_v3020", "MEMORY", False),
        ("cuModuleLoadData", "MEMORY", False),
        ("cuGraphInstantiateWithFlags", "MEMORY", False),
    ],
)
def test_a_call_of_cuda_has_its_role(name: str, role: str, starts: bool):
    assert gpu_build.role_of_call(name) == (role, starts)


@pytest.mark.parametrize(
    "name",
    [
        "cuCtxGetCurrent", "cuStreamQuery", "cuEventQuery", "cudaGetLastError_v3020",
        "cuGraphAddMemcpyNode", "cuLaunchHostFunc", "cuMemHostGetFlags", "cuFuncGetAttribute",
    ],
)  # fmt: skip
def test_calls_that_do_nothing_on_a_gpu_are_left_out(name: str):
    assert gpu_build.role_of_call(name) is None


def test_the_newest_layout_of_a_record_is_taken():
    header = "} CUpti_ActivityKernel;\n} CUpti_ActivityKernel9;\n} CUpti_ActivityKernel13;\n"
    assert gpu_build._newest(header, "CUpti_ActivityKernel") == "CUpti_ActivityKernel13"
    assert gpu_build._newest("} CUpti_ActivityMemset;", "CUpti_ActivityMemset") is not None
    assert gpu_build._newest("", "CUpti_ActivityMemset") is None


def test_a_named_folder_without_cupti_is_an_error_that_says_what_belongs_there(tmp_path: Path):
    with pytest.raises(MachineError, match=r"HALOSCOPE_CUPTI names .* include/cupti_activity\.h"):
        gpu_build.find_cupti({"HALOSCOPE_CUPTI": str(tmp_path)})


def test_wheels_of_cuda_12_and_13_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def lay(folder: str, *names: str) -> None:
        for name in names:
            path = tmp_path / "nvidia" / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#define CUPTI_API_VERSION 28\n")

    monkeypatch.setattr(gpu_build.sys, "path", [str(tmp_path)])
    lay("cuda_cupti", "include/cupti_activity.h", "include/cupti_version.h", "lib/libcupti.so.12")
    assert all(
        found is None or tmp_path not in found.library.parents
        for found in [gpu_build.find_cupti({})]
    )
    lay("cuda_runtime", "include/cuda.h")
    monkeypatch.setattr(gpu_build, "_driver_version", lambda: 12080)
    found = gpu_build.find_cupti({})
    assert found is not None
    assert (found.major, found.version, len(found.includes)) == (12, 28, 2)
    lay("cu13", "include/cupti_activity.h", "include/cuda.h", "lib/libcupti.so.13")
    assert gpu_build.find_cupti({}).major == 12
    monkeypatch.setattr(gpu_build, "_driver_version", lambda: 13000)
    assert gpu_build.find_cupti({}).major == 13


def test_headers_that_do_not_compile_leave_the_rest_measured(
    cupti: Path, tmp_path: Path, record: Run, program: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "cupti"
    shutil.copytree(cupti, home)
    with (home / "include" / "cupti_callbacks.h").open("a") as file:
        file.write("\n#error not today\n")
    library = gpu_build.gpu_library({"HALOSCOPE_CUPTI": str(home)}, Cache(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_INJECTION64_PATH", str(library))
    run = record(program, "load", "enter:a", "leave:a")
    assert run.error.count("\n") == 1
    assert "cannot be used" in run.error
    assert run.visits()["program/a"] == 1


def test_programs_are_told_where_the_tracer_lies_and_other_tools_keep_their_place(
    cupti: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cache = Cache(tmp_path / "cache")
    base = {"HALOSCOPE_CUPTI": str(cupti)}
    found = gpu_build.gpu_environment(base, cache)
    assert found.keys() == {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}
    assert len(set(found.values())) == 1
    # A measured command that starts measured ranks.
    assert gpu_build.gpu_environment({**base, **found}, cache) == found
    assert capsys.readouterr().err == ""
    other = {**base, "CUDA_INJECTION64_PATH": "/opt/other.so"}
    assert gpu_build.gpu_environment(other, cache).keys() == {"NVTX_INJECTION64_PATH"}
    assert capsys.readouterr().err.count("CUDA_INJECTION64_PATH is set already") == 1


def test_the_cupti_of_this_machine_compiles(tmp_path: Path):
    found = gpu_build.find_cupti()
    if found is None:
        pytest.skip("there is no CUPTI on this machine")
    assert gpu_build._with_cupti(found, Cache(tmp_path / "cache")).is_file()
