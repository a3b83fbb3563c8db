"""Claims about hardware counters: counted where the system allows it, told where it does not."""

from __future__ import annotations

import itertools
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

from haloscope.scope.trace.trace import Kind

pytestmark = needs_gcc
Programs = Callable[..., Path]
STEPS = [
    "enter:a",
    "repeat:2000",
    "call:b",
    "pause",
    "repeat:100000",
    "call:c",
    "resume",
    "leave:a",
]


def test_a_trace_has_the_values_at_each_enter_and_leave(record: Run, programs: Programs):
    run = record(programs("steps"), *STEPS, COUNTERS="task-clock,page-faults")
    named = run.measurement().ranks[0].counters
    if not named:
        pytest.skip(f"this system counts nothing: {run.error}")
    assert [(one["name"], one["unit"]) for one in named] == [
        ("task-clock", "ns"),
        ("page-faults", "#"),
    ]
    events = run.events()
    values = [event[3][0] for event in events if event[1] == Kind.COUNTER and event[2] == 0]
    moves = [event for event in events if event[1] in (Kind.ENTER, Kind.LEAVE)]
    assert len(values) == len(moves) - 1, "all but the begin of the program, where all are zero"
    assert values == sorted(values)
    for before, event in itertools.pairwise(events):
        if event[1] == Kind.COUNTER:
            assert event[0] == before[0]
            assert before[1] in (Kind.ENTER, Kind.LEAVE, Kind.COUNTER)


def test_a_profile_has_exclusive_sums_without_pauses(record: Run, programs: Programs):
    run = record(programs("steps"), *STEPS, COUNTERS="task-clock", mode="profile")
    if not run.measurement().ranks[0].counters:
        pytest.skip(f"this system counts nothing: {run.error}")
    counted = {line["node"]: line["counters"]["task-clock"] * 1e-9 for line in run.profile()}
    seconds = {line["node"]: line["seconds"] for line in run.profile()}
    assert min(counted.values()) >= 0
    # On a processor of its own or not: the time on it is not longer than the time that passes.
    assert sum(counted.values()) <= sum(seconds.values()) + 0.002


def test_unknown_counters_are_said_once_and_the_rest_is_recorded(record: Run, programs: Programs):
    run = record(programs("steps"), *STEPS, COUNTERS="flops,task-clock")
    assert run.status == 0
    assert run.error.count("flops") == 1
    assert "instructions, cycles" in run.error
    assert run.visits()["program/a/b"] == 2000


def test_what_the_machine_does_not_count_is_said_or_counted(record: Run, programs: Programs):
    run = record(programs("steps"), *STEPS, COUNTERS="instructions")
    assert run.status == 0
    counters = run.measurement().ranks[0].counters
    assert bool(counters) != ("instructions is left out" in run.error)
    assert run.visits()["program/a/b"] == 2000
