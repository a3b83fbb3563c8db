"""Claims about the recorder's profiles: the numbers are those of a trace of the same program."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_programs import (  # noqa: F401
    Recorded,
    Run,
    fixture_programs,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

from haloscope.scope.trace.profiles import analyse_profile

pytestmark = needs_gcc
Programs = Callable[..., Path]

MESSAGES = [
    *("enter:solve", "repeat:7", "send:1:100", "repeat:3", "send:1:0", "repeat:2", "send:2:1"),
    *("repeat:5", "recv:2:64", "recv:1:0", "send:2:65", "sleep:20", "leave:solve"),
    *("repeat:4", "collective:16"),
]


def by_path(run: Recorded) -> dict[str, dict]:
    """Lines of the profile's nodes by call path."""
    measurement = run.measurement()
    own = measurement.ranks[0].nodes
    return {
        "/".join(measurement.path_of(int(own[line["node"]]))): line
        for line in run.profile()
        if "pair" not in line
    }


def test_a_profile_has_the_counts_of_the_trace(record: Run, programs: Programs):
    traced = record(programs("steps"), "attach:0:4", *MESSAGES).paths()
    run = record(programs("steps"), "attach:0:4", *MESSAGES, mode="profile")
    profiled = by_path(run)
    assert {name: line["visits"] for name, line in profiled.items()} == {
        name: path.visits for name, path in traced.items()
    }
    for name, path in traced.items():
        assert profiled[name].get("sent", [0, 0, 0]) == path.sent
        assert profiled[name].get("received", [0, 0, 0]) == path.received
    assert profiled["program/MPI_Allreduce"]["collective"] == [4, 64, 64]
    assert not list(run.folder.glob("*.events"))
    assert not list(run.folder.glob("*.new"))


def test_seconds_are_exclusive_and_add_up_to_the_whole(record: Run, programs: Programs):
    steps = ["attach:0:1", "enter:a", "sleep:40", "enter:b", "sleep:30", "leave:b", "leave:a"]
    lines = by_path(record(programs("steps"), *steps, mode="profile"))
    assert 0.040 <= lines["program/a"]["seconds"] < lines["program/a"]["most"]
    assert lines["program/a/b"]["seconds"] >= 0.030
    assert lines["program/a"]["least"] == lines["program/a"]["most"]
    total = sum(line["seconds"] for line in lines.values())
    assert total == pytest.approx(lines["program"]["most"], abs=1e-8)


def test_least_and_most_are_those_of_single_visits(record: Run, programs: Programs):
    steps = ["enter:a", "leave:a", "enter:a", "sleep:30", "leave:a", "enter:a", "leave:a"]
    line = by_path(record(programs("steps"), *steps, mode="profile"))["program/a"]
    assert line["visits"] == 3
    assert line["least"] < 0.030 <= line["most"] <= line["seconds"]


def test_messages_are_told_by_receiver_and_by_size(record: Run, programs: Programs):
    run = record(programs("steps"), "attach:0:4", *MESSAGES, mode="profile")
    pairs = {
        line["pair"]: (line["messages"], line["empty"], line["bytes"])
        for line in run.profile()
        if "pair" in line
    }
    assert pairs == {1: (10, 3, 700), 2: (3, 0, 67)}
    sizes = by_path(run)["program/solve/MPI_Send"]["sizes"]
    # None, 1 byte, up to 2, 4, 8, 16, 32, 64, 128.
    assert sizes == [3, 2, 0, 0, 0, 0, 0, 0, 8]


def test_profiles_are_what_their_reader_expects(record: Run, programs: Programs):
    run = record(programs("steps"), "attach:0:1", *MESSAGES[:-2], mode="profile")
    result = analyse_profile(run.measurement())
    assert result.value("messages_sent").sum() == 13
    assert result.value("bytes_received").sum() == 5 * 64
    assert result.about["span"] >= 0.020


def test_many_receivers_are_kept_apart(record: Run, programs: Programs):
    sends = [f"send:{peer}:{peer}" for peer in range(700)]
    run = record(programs("steps"), "attach:0:1000", *sends, *sends, mode="profile")
    pairs = {line["pair"]: line["bytes"] for line in run.profile() if "pair" in line}
    assert pairs == {peer: 2 * peer for peer in range(700)}


def test_pauses_do_not_count(record: Run, programs: Programs):
    steps = ["enter:a", "pause", "sleep:60", "call:b", "resume", "leave:a", "call:c"]
    run = record(programs("steps"), *steps, mode="profile")
    lines = by_path(run)
    assert sorted(lines) == ["program", "program/a", "program/c"]
    said = run.measurement().ranks[0]
    whole = (run.lines("end")[0]["at"] - said.opening["epoch"]) / said.opening["ticks_per_second"]
    assert lines["program"]["most"] < whole - 0.060 + 1e-6


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGINT, signal.SIGFPE]
)
def test_a_fatal_signal_leaves_a_profile_and_its_usual_effect(
    record: Run, programs: Programs, number: int
):
    steps = ["attach:0:1", "enter:a", "sleep:20", "call:b", f"signal:{int(number)}", "call:c"]
    run = record(programs("steps"), *steps, mode="profile")
    assert run.status == -number
    lines = by_path(run)
    assert {name: line["visits"] for name, line in lines.items()} == {
        "program": 1,
        "program/a": 1,
        "program/a/b": 1,
    }
    assert lines["program/a"]["seconds"] >= 0.020
    assert run.lines("signal") == [{"signal": int(number)}]
    assert run.lines("heap")[0]["heap"] > 1 << 16
    assert not run.measurement().ranks[0].ended


def test_a_fatal_signal_in_a_pause_leaves_the_pause_out(record: Run, programs: Programs):
    steps = ["attach:0:1", "enter:a", "pause", "sleep:60", "signal:11"]
    run = record(programs("steps"), *steps, mode="profile")
    lines = by_path(run)
    assert lines["program/a"]["visits"] == 1
    assert lines["program/a"]["seconds"] < 0.060


def test_a_fatal_signal_before_the_rank_is_known_leaves_rank_0(record: Run, programs: Programs):
    run = record(programs("steps"), "call:b", "signal:11", mode="profile")
    assert run.status == -signal.SIGSEGV
    assert by_path(run)["program/b"]["visits"] == 1


def test_threads_are_told_apart(record: Run, programs: Programs):
    run = record(programs("threads"), 3, 2, 1000, mode="profile")
    visits = {
        (line["location"], line["node"]): line["visits"]
        for line in run.profile()
        if line["location"] > 0
    }
    assert sorted(location for location, _ in visits) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert sum(visits.values()) == 3 * 2 * (1 + 1 + 1000)


def test_ending_while_threads_record_leaves_a_profile(record: Run, programs: Programs):
    run = record(programs("running"), mode="profile")
    assert run.status == 0
    assert len({line["location"] for line in run.profile()}) == 4
