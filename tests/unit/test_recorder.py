"""Claims about the recorder's traces: what is recorded, how runs may end, and what is left then."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_programs import (  # noqa: F401
    Run,
    fixture_programs,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

from haloscope.scope.record.carriers import settle
from haloscope.scope.trace.trace import Kind

pytestmark = needs_gcc
Programs = Callable[..., Path]


def test_visits_nest_and_times_add_up(record: Run, programs: Programs):
    steps = ["enter:outer", "sleep:30", "enter:inner", "sleep:20", "leave:inner", "leave:outer"]
    run = record(programs("steps"), *steps, "attach:0:1")
    assert run.status == 0
    assert run.error == ""
    paths = run.paths()
    assert {name: path.visits for name, path in paths.items()} == {
        "program": 1,
        "program/outer": 1,
        "program/outer/inner": 1,
    }
    assert paths["program/outer/inner"].seconds >= 0.020
    assert paths["program/outer"].seconds - paths["program/outer/inner"].seconds >= 0.030
    assert paths["program"].seconds >= paths["program/outer"].seconds
    assert run.measurement().warnings == []


def test_first_line_tells_the_rank_and_its_mpi(record: Run, programs: Programs):
    run = record(programs("steps"), "enter:a", "attach:2:3", "leave:a")
    measurement = run.measurement()
    assert [place.rank for place in measurement.locations] == [2]
    opening = measurement.ranks[2].opening
    assert opening["size"] == 3
    assert opening["mpi"] == "some MPI 1.0"
    assert opening["threads"] == "single"
    assert opening["program"].endswith("/steps")
    assert opening["mode"] == "trace"
    header = (run.folder / "rank-00002.0.events").read_bytes()[:64]
    magic, whose, epoch, rate = struct.unpack("<4Q", header[:32])
    assert (magic, whose) == (0x0A31564556454C48, 2)
    assert epoch == opening["epoch"]
    assert struct.unpack("<d", struct.pack("<Q", rate))[0] == pytest.approx(
        opening["ticks_per_second"]
    )


def test_without_mpi_the_process_is_rank_0_of_1(record: Run, programs: Programs):
    run = record(programs("steps"), "enter:a", "leave:a")
    measurement = run.measurement()
    assert list(measurement.ranks) == [0]
    assert measurement.ranks[0].opening["mpi"] == ""
    assert measurement.warnings == []
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "rank-00000.0.events",
        "rank-00000.def",
    ]


def test_an_unmeasured_process_does_and_leaves_nothing(
    recorder: Path, programs: Programs, tmp_path
):
    environment = {**os.environ, "LD_PRELOAD": str(recorder)}
    environment.pop("HALOSCOPE_MEASURE", None)
    done = subprocess.run(
        [programs("steps"), "enter:a", "call:b", "recording", "leave:a", "attach:0:1"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert list(tmp_path.iterdir()) == []


def test_rate_of_the_clock_is_that_of_the_system(record: Run, programs: Programs):
    steps = programs("steps")
    before = time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    run = record(steps, "enter:a", "attach:0:1", "sleep:300", "leave:a", "rate")
    after = time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    measurement = run.measurement()
    said = measurement.ranks[0]
    assert float(run.output) == pytest.approx(said.opening["ticks_per_second"], rel=1e-9)
    if said.opening["clock"] == "monotonic":
        assert said.opening["ticks_per_second"] == 1e9
        return
    assert said.rate is not None
    # Ticks are those of the system's clock, so that ranks of a machine agree.
    begun = said.opening["epoch"] / said.opening["ticks_per_second"]
    ended = begun + (run.lines("end")[0]["at"] - said.rate[0]) / said.rate[1]
    assert before < begun < begun + 0.3 < ended < after
    assert said.rate[1] == pytest.approx(said.opening["ticks_per_second"], rel=1e-3)


def test_messages_keep_their_words(record: Run, programs: Programs):
    run = record(programs("steps"), "send:3:100", "recv:2:0", "collective:8")
    events = run.events()
    kinds = [event[1] for event in events]
    assert kinds[1:-1] == [
        *(Kind.ENTER, Kind.SEND, Kind.LEAVE),
        *(Kind.ENTER, Kind.RECV, Kind.LEAVE),
        *(Kind.ENTER, Kind.COLLECTIVE, Kind.LEAVE),
    ]
    by_kind = {event[1]: event for event in events}
    assert by_kind[Kind.SEND][2:] == (3, (5 << 32, 100))
    assert by_kind[Kind.RECV][2:] == (2, (5 << 32, 0))
    assert by_kind[Kind.COLLECTIVE][2:] == (0, (9 | 0xFFFFFFFF << 32, 8, 8))
    # A send has the time of its enter, a receive that of its leave.
    assert events[1][0] == events[2][0]
    assert events[5][0] == events[6][0]


def test_long_gaps_keep_their_length(record: Run, programs: Programs):
    run = record(programs("steps"), "enter:long", "sleep:150", "leave:long")
    assert 0.150 <= run.paths()["program/long"].seconds < 5


def test_full_windows_follow_each_other_and_show_as_flush(record: Run, programs: Programs):
    visits = 140_000
    run = record(programs("steps"), "enter:a", "repeat:140000", "call:b", "leave:a")
    visits_by_path = run.visits()
    assert visits_by_path["program/a/b"] == visits
    flushes = sum(count for name, count in visits_by_path.items() if name.endswith("/flush"))
    counted = run.lines("counted")[0]
    assert flushes == counted["flushes"] >= 2
    assert counted["events"] == len(run.events())
    assert run.measurement().regions[-1].paradigm == "measurement"
    size = (run.folder / "rank-00000.0.events").stat().st_size
    assert size < 8 * (counted["events"] + 1000), "the file is cut to its content"
    assert run.lines("heap")[0]["heap"] < 50e6, "windows are given back"


@pytest.mark.parametrize("way", ["return", "exit", "_exit", "_Exit", "quick_exit", "pthread_exit"])
def test_every_way_out_ends_the_trace_in_order(record: Run, programs: Programs, way: str):
    run = record(programs("steps"), "attach:0:1", "enter:open", "call:b", f"exit:{way}")
    assert run.status == 0
    assert run.visits() == {"program": 1, "program/open": 1, "program/open/b": 1}
    assert run.measurement().warnings == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_killed_program_loses_nothing(record: Run, programs: Programs, number: int):
    run = record(
        programs("steps"), "attach:0:1", "enter:a", "repeat:50000", "call:b", f"signal:{number}"
    )
    assert run.status == -number
    assert run.visits(closed=False)["program/a/b"] == 50_000
    warnings = run.measurement().warnings
    assert [warning for warning in warnings if "did not end in order" in warning]


def test_a_limit_of_file_sizes_ends_the_recording_in_order(record: Run, programs: Programs):
    limit = 5 << 19

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = record(
        programs("steps"),
        *("attach:0:1", "enter:a", "repeat:200000", "call:b", "leave:a", "enter:c", "leave:c"),
        before=before,
    )
    assert run.status == 0
    assert run.error.count("haloscope: ") == 1
    assert "limit of file sizes reached" in run.error
    visits_by_path = run.visits(closed=False)
    assert 100_000 < visits_by_path["program/a/b"] < 170_000
    assert run.events()[-1][1] == Kind.PAUSE
    assert [line["lost"] for line in run.lines("lost")] == ["limit of file sizes reached"]
    assert run.measurement().warnings == ["rank 0 lost events: limit of file sizes reached"]


def test_a_full_disk_ends_the_recording_in_order(record: Run, programs: Programs, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "none", small], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        run = record(
            programs("steps"),
            *("attach:0:1", "enter:a", "repeat:250000", "call:b", "leave:a"),
            MEASURE=small,
        )
        run.folder = small
        assert run.status == 0
        assert "disk full" in run.error
        assert [line["lost"] for line in run.lines("lost")] == ["disk full"]
        assert run.lines("end")
        assert run.visits(closed=False)["program/a/b"] > 100_000
    finally:
        subprocess.run(["umount", small], check=False)


def test_a_folder_that_cannot_be_written_is_said_once(record: Run, programs: Programs, tmp_path):
    missing = tmp_path / "missing"
    run = record(programs("steps"), "repeat:5", "call:a", "attach:0:1", MEASURE=missing)
    assert run.status == 0
    assert run.error.count("\n") == 1
    assert str(missing) in run.error
    assert "--out" in run.error


@pytest.mark.parametrize(
    ("setting", "value"),
    [("BUFFER", "much"), ("BUFFER", "0"), ("UNWIND", "-1"), ("MODE", "both"), ("PHASE", ":3")],
)
def test_a_setting_that_makes_no_sense_is_said(
    record: Run, programs: Programs, setting: str, value: str
):
    run = record(programs("steps"), "call:a", "attach:0:1", **{setting: value})
    assert run.status == 0
    assert f"HALOSCOPE_{setting}" in run.error
    assert "nothing is recorded" in run.error
    assert list(run.folder.iterdir()) == []


def test_a_second_program_of_one_rank_is_not_mixed_in(record: Run, programs: Programs):
    steps = programs("steps")
    command = f"{steps} enter:first attach:0:1 leave:first; {steps} call:second attach:0:1"
    run = record("sh", "-c", command)
    assert run.status == 0
    assert "already has a rank 0" in run.error
    assert run.visits() == {"program": 1, "program/first": 1}
    assert not list(run.folder.glob("process-*"))


def test_a_program_without_mpi_makes_way_for_one_with_it(record: Run, programs: Programs):
    steps = programs("steps")
    run = record("sh", "-c", f"{steps} call:tool; {steps} call:b attach:0:1; {steps} call:late")
    assert run.visits() == {"program": 1, "program/b": 1}
    assert run.error.count("haloscope: ") == 2
    assert not list(run.folder.glob("process-*"))


def test_a_program_that_closes_all_its_files_is_still_recorded(record: Run, programs: Programs):
    run = record(
        programs("steps"), "attach:0:1", "call:a", "close", "repeat:100000", "call:b", "call:c"
    )
    visits = run.visits()
    assert visits["program/b"] == 100_000
    assert visits["program/c"] == 1
    assert run.measurement().warnings == []


def test_a_child_records_nothing_into_the_files_of_its_parent(record: Run, programs: Programs):
    run = record(programs("steps"), "attach:0:1", "enter:a", "fork", "call:b", "leave:a")
    assert run.visits() == {"program": 1, "program/a": 1, "program/a/b": 1}
    assert run.measurement().warnings == []
    killed = record(programs("steps"), "attach:0:1", "enter:a", "fork", "signal:9")
    assert killed.visits(closed=False) == {}
    assert "child" not in [region.name for region in killed.measurement().regions]


def test_a_program_that_another_one_becomes_is_recorded(record: Run, programs: Programs):
    run = record(programs("steps"), "call:before", "exec:call:b")
    assert run.error == ""
    assert run.visits() == {"program": 1, "program/b": 1}
    assert len(settle(run.folder)) == 1


@pytest.mark.parametrize("limit", [1500, 3000])
def test_a_tiny_limit_of_file_sizes_kills_nobody(record: Run, programs: Programs, limit: int):
    """It is too little for the first line of the definitions, or for all of them."""

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    for mode in ("trace", "profile"):
        regions = [f"call:{number}" for number in range(50)]
        run = record(programs("steps"), *regions, "attach:0:1", mode=mode, before=before)
        assert run.status == 0
        assert "limit of file sizes reached" in run.error


def test_threads_have_locations_of_their_own_and_common_numbers(record: Run, programs: Programs):
    run = record(programs("threads"), 4, 1, 20_000)
    measurement = run.measurement()
    assert [place.number for place in measurement.locations] == [0, 1, 2, 3, 4]
    assert [place.name for place in measurement.locations][:2] == ["main", "thread 1"]
    for location in range(1, 5):
        assert run.visits(location) == {
            "program": 1,
            "program/outer": 1,
            "program/outer/inner": 20_000,
        }
    assert len(measurement.nodes) == 3
    assert len(run.lines("node")) == 3


def test_threads_that_follow_each_other_share_a_location(record: Run, programs: Programs):
    run = record(programs("threads"), 1, 50, 10)
    measurement = run.measurement()
    assert len(measurement.locations) == 2
    assert run.visits(1) == {"program": 50, "program/outer": 50, "program/outer/inner": 500}


def test_ending_while_threads_record_leaves_whole_files(record: Run, programs: Programs):
    run = record(programs("running"))
    assert run.status == 0
    assert len(run.measurement().locations) == 4
    for location in range(1, 4):
        assert run.visits(location, closed=False)["program/endless"] > 1000


def test_a_pause_leaves_out_what_happens_in_it(record: Run, programs: Programs):
    run = record(
        programs("steps"),
        *("enter:a", "pause", "recording", "repeat:10", "call:b", "sleep:50", "resume"),
        *("recording", "call:c", "leave:a"),
    )
    assert run.output == "0\n1\n"
    paths = run.paths()
    assert {name: path.visits for name, path in paths.items()} == {
        "program": 1,
        "program/a": 1,
        "program/a/c": 1,
    }
    ticks = {event[1]: event[0] for event in run.events()}
    rate, _ = run.measurement().ticks_to_seconds(0)
    assert (ticks[Kind.RESUME] - ticks[Kind.PAUSE]) * rate >= 0.050
    kinds = Counter(event[1] for event in run.events())
    assert kinds[Kind.PAUSE] == kinds[Kind.RESUME] == 1


def test_pauses_are_counted(record: Run, programs: Programs):
    run = record(
        programs("steps"), "pause", "pause", "resume", "call:a", "resume", "call:b", "recording"
    )
    assert run.output == "1\n"
    assert run.visits() == {"program": 1, "program/b": 1}


def test_what_is_left_or_entered_in_a_pause_is_so_from_its_end_on(record: Run, programs: Programs):
    run = record(
        programs("steps"),
        *("enter:a", "enter:b", "pause", "leave:b", "leave:a", "enter:c", "enter:d", "leave:d"),
        *("enter:e", "resume", "call:f", "leave:e", "leave:c", "call:g"),
    )
    assert run.visits() == {
        "program": 1,
        "program/a": 1,
        "program/a/b": 1,
        "program/c": 1,
        "program/c/e": 1,
        "program/c/e/f": 1,
        "program/g": 1,
    }
    events = run.events()
    resume = [event[1] for event in events].index(Kind.RESUME)
    following = events[resume : resume + 5]
    assert [event[1] for event in following[1:]] == [
        *(Kind.LEAVE, Kind.LEAVE),
        *(Kind.ENTER, Kind.ENTER),
    ]
    assert len({event[0] for event in following}) == 1, "all at the moment of the resume"


def test_pauses_of_one_thread_hold_for_all(record: Run, programs: Programs):
    run = record(programs("threads"), 3, 1, 2000, "pause")
    assert run.status == 0
    for location in range(4):
        run.visits(location)  # nests, and nothing lies within a pause
    kinds = Counter(event[1] for event in run.events(1))
    assert kinds[Kind.PAUSE] == kinds[Kind.RESUME] > 0


def test_only_the_wanted_visit_of_the_phase_is_recorded(record: Run, programs: Programs):
    steps = ["enter:step", "call:a", "leave:step", "call:b"]
    every = record(programs("steps"), "enter:main", *(4 * steps), "leave:main", PHASE="step")
    assert every.visits() == {
        "program": 1,
        "program/main": 1,
        "program/main/step": 4,
        "program/main/step/a": 4,
    }
    third = record(programs("steps"), "enter:main", *(4 * steps), "leave:main", PHASE="step:3")
    assert third.visits() == {
        "program": 1,
        "program/main": 1,
        "program/main/step": 1,
        "program/main/step/a": 1,
    }


def test_patterns_leave_regions_out_and_keep_exceptions(record: Run, programs: Programs):
    steps = ["call:MPI_Comm_rank", "call:MPI_Send", "call:MPI_Comm_split", "call:b"]
    run = record(programs("steps"), *steps, FILTER="MPI_Comm_*\n# a remark\n!*_split\nb")
    assert run.visits() == {"program": 1, "program/MPI_Send": 1, "program/MPI_Comm_split": 1}


def test_leaving_what_was_not_entered_changes_nothing(record: Run, programs: Programs):
    run = record(programs("steps"), "enter:a", "leave:never", "call:b", "leave:a", "leave:a")
    assert run.visits() == {"program": 1, "program/a": 1, "program/a/b": 1}


def test_leaving_an_outer_region_leaves_the_inner_ones(record: Run, programs: Programs):
    run = record(programs("steps"), "enter:a", "enter:b", "enter:c", "leave:a", "call:d")
    assert run.visits() == {
        "program": 1,
        "program/a": 1,
        "program/a/b": 1,
        "program/a/b/c": 1,
        "program/d": 1,
    }


def test_very_deep_calls_are_left_out_and_counted(record: Run, programs: Programs):
    enters = [f"enter:{i % 7}" for i in range(2500)]
    leaves = [f"leave:{i % 7}" for i in reversed(range(2500))]
    run = record(programs("steps"), *enters, *leaves, "call:after")
    visits = run.visits()
    assert visits["program/after"] == 1
    assert sum(visits.values()) == 2000 + 2
    assert run.lines("counted")[0]["too_deep"] == 500


def test_signal_handlers_that_record_break_nothing(record: Run, programs: Programs):
    for mode in ("trace", "profile"):
        run = record(programs("interrupted"), 100, mode=mode)
        assert (run.status, run.error) == (0, "")
        assert run.measurement().warnings == []
        if mode == "trace":
            assert run.visits()["program/outer/inner"] >= 50_000


def test_names_are_text_whatever_they_hold(record: Run, programs: Programs):
    strange = 'a"b\\c\td</script>é€😀'
    broken = [b"\xff\xc3x", b"\xed\xa0\x80y", b"\xe0\x80z"]  # no UTF-8
    enters = [os.fsdecode(b"enter:" + name) for name in broken]
    run = record(programs("steps"), f"enter:{strange}", *enters)
    names = [region.name for region in run.measurement().regions]
    assert strange in names
    assert [name.lstrip("\ufffd") for name in names[-3:]] == ["x", "y", "z"]
    assert run.measurement().warnings == []


def test_what_recording_costs_is_rehearsed_without_a_trace_of_it(record: Run, programs: Programs):
    run = record(
        programs("steps"),
        *("enter:a", "rehearse", "call:b", "pause", "rehearse", "resume", "leave:a"),
    )
    assert run.output == "known\nknown\n"
    assert run.visits() == {"program": 1, "program/a": 1, "program/a/b": 1}
    kinds = Counter(event[1] for event in run.events())
    assert kinds[Kind.SEND] == kinds[Kind.RECV] == 0
    run = record(programs("steps"), "rehearse", mode="profile")
    assert run.output == "unknown\n"


def test_lines_of_others_go_into_the_definitions(record: Run, programs: Programs):
    line = '{"comm": 0, "key": "00ff", "members": "world", "name": "MPI_COMM_WORLD"}'
    run = record(programs("steps"), "attach:1:2", f"define:{line}")
    assert run.measurement().comms[0].members == (0, 1)


def test_a_program_killed_before_its_rank_is_known_becomes_rank_0(record: Run, programs: Programs):
    run = record(programs("steps"), "enter:a", "repeat:1000", "call:b", f"signal:{signal.SIGKILL}")
    assert not list(run.folder.glob("rank-*"))
    assert settle(run.folder) == []
    assert run.visits(closed=False)["program/a/b"] == 1000
    assert list(run.measurement().ranks) == [0]


def test_killed_helpers_of_a_program_stay_apart_and_are_told(record: Run, programs: Programs):
    steps = programs("steps")
    command = f"{steps} enter:helper signal:9; {steps} call:b attach:0:1"
    run = record("sh", "-c", command)
    messages = settle(run.folder)
    assert len(messages) == 1
    assert "ended before it had a rank" in messages[0]
    assert run.visits() == {"program": 1, "program/b": 1}
