"""Claims about the tracer of GPUs: what CUPTI tells becomes events, calls, locations and call paths.

CUPTI is played by a library of the tests (see played_gpus.py): no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from played_gpus import (  # noqa: F401
    HERE,
    MICROSECOND,
    Work,
    compile_c,
    fixture_cupti,
    fixture_folder,
    fixture_play,
    fixture_program,
    fixture_tracer,
    streams,
    work_of,
)
from recorded_programs import (  # noqa: F401
    Recorded,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

from haloscope.scope.trace.trace import NOBODY, Kind

pytestmark = needs_gcc
TO_DEVICE, TO_HOST, WITHIN, PEER, FILL = 1, 2, 3, 4, 5


def relative(work: list[Work]) -> list[tuple[str, float, float]]:
    """Path, begin and end in microseconds, from the first begin on.

    A program of milliseconds measures the rate of its clock to some 1e-4.
    """
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
    assert times == pytest.approx([0, 2000, 2000, 2500], rel=1e-3, abs=0.01)
    nine = work_of(run, "GPU 0 stream 9")
    assert nine[0][1] - seven[0][1] == pytest.approx(200 * MICROSECOND, rel=1e-3)
    assert run.measurement().warnings == []


def test_each_direction_of_a_copy_is_told(play: Callable[..., Recorded]):
    run = play(
        "load copy:to_device:7:1:10:20:1 copy:to_host:7:2:20:30:2 copy:within:7:3:30:40:3 "
        "copy:peer:7:4:40:50:4 copy:fill:7:5:50:60:5"
    )
    copies = [(path.split("/")[-1], copied) for path, _, _, _, copied in work_of(run)]
    assert copies == [
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
    assert begin == first
    assert (first, end) == pytest.approx((100, 200), abs=0.2)


def test_a_name_in_the_place_of_another_is_another_kernel(play: Callable[..., Recorded]):
    run = play("load reused:a:7:1:10:20 deliver reused:b:7:2:20:30 deliver")
    assert [w[0] for w in work_of(run)] == ["program/a", "program/b"]


def test_every_node_of_a_graph_appears_below_its_launch(play: Callable[..., Recorded]):
    run = play(
        "load enter:step call:cuGraphLaunch:7:5 leave:step kernel:a:7:5:100:200:11 "
        "kernel:b:7:5:200:300:12 copy:to_host:7:5:300:400:8 enter:step call:cuGraphLaunch:7:6 "
        "leave:step kernel:a:7:6:500:600:11 kernel:b:7:6:600:700:12 copy:to_host:7:6:700:800:8"
    )
    graph_nodes = [(path, correlation) for path, _, _, correlation, _ in work_of(run)]
    path = "program/step/cuGraphLaunch/"
    assert graph_nodes == [
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
    paradigms = {r["name"]: r["paradigm"] for r in run.lines("region") if r["role"] == "kernel"}
    assert paradigms == {
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
    events: list[tuple[str, ...]] = []
    names = {p.number: name for name, p in streams(run).items()} | {NOBODY: "all"}
    for _, kind, payload, words in run.events(0):
        if kind in (Kind.ENTER, Kind.LEAVE):
            name = measurement.path_of(int(nodes[payload]))[-1]
            if name != "program":
                events.append((kind.name.lower(), name))
        elif kind == Kind.LAUNCH:
            events.append(("launch", names[payload], str(words[0])))
        elif kind == Kind.DEVICE_WAIT:
            events.append(("waited", names[payload]))
    return events


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
    events = host_events(run)
    waits = [(events[i - 1][1], e[1]) for i, e in enumerate(events) if e[0] == "waited"]
    assert waits == [
        ("cuStreamSynchronize", "GPU 0 stream 7"),
        ("cuEventSynchronize", "GPU 0 stream 9"),
        ("cuCtxSynchronize", "all"),
        ("GPU 0 stream 7", "GPU 0 stream 7"),  # a copy that blocks: its launch stands between
        ("cuEventSynchronize", "all"),
        ("cuStreamSynchronize", "all"),  # of a stream that has never worked
    ]
    # What only records an event is no region.
    assert all(event[1] != "cuEventRecord" for event in events)


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
    roles = {r["name"]: r["role"] for r in run.lines("region") if r["paradigm"] == "cuda"}
    assert roles == {
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
