"""Claims about OpenMP: teams, their work and their barriers, where the runtime tells of them."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from recorded_programs import (  # noqa: F401
    PROGRAMS,
    Recorded,
    Run,
    fixture_record,
    fixture_recorder,
    needs_gcc,
)

from haloscope.scope.trace.trace import Kind

pytestmark = needs_gcc
TASK = "program/main/solve/omp parallel/omp implicit task"


def compile_team(folder: Path, *command: str) -> Path | None:
    """The program with teams; None where this compiler or its runtime is not there."""
    program = folder / "team"
    done = subprocess.run(
        [*command, "-O1", "-fopenmp", "-o", program, PROGRAMS / "team.c"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    return program if done.returncode == 0 else None


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with a runtime that has OMPT."""
    names = ["clang", *(f"clang-{version}" for version in range(21, 11, -1)), "icx"]
    for name in filter(shutil.which, names):
        program = compile_team(tmp_path_factory.mktemp("team"), name)
        if program is not None:
            return program
    pytest.skip("needs clang with libomp (Debian: apt install clang libomp-dev)")


def by_location(run: Recorded) -> list[dict[str, int]]:
    return [run.visits(number) for number in range(len(run.measurement().locations))]


def test_each_thread_of_a_team_has_its_implicit_task_at_the_same_call_path(record: Run, team: Path):
    run = record(team, 3, UNWIND=16)
    visits = by_location(run)
    assert len(visits) == 3
    assert [counts[TASK] for counts in visits] == [3, 3, 3]
    assert [counts[f"{TASK}/omp for"] for counts in visits] == [3, 3, 3]
    assert [counts[f"{TASK}/omp barrier"] for counts in visits] == [3, 3, 3]
    assert [counts.get("program/main/solve/omp parallel", 0) for counts in visits] == [3, 0, 0]
    assert run.measurement().warnings == []


def test_the_time_after_a_team_is_not_its_barrier(record: Run, team: Path):
    # Each turn ends with 40 ms of the main thread alone.
    run = record(team, 3, UNWIND=16)
    whole = run.paths(0)["program/main/solve/omp parallel"].seconds
    for number in (1, 2):
        paths = run.paths(number)
        assert paths[TASK].seconds <= whole
        assert paths["program"].seconds - paths[TASK].seconds > 0.070


def test_forks_and_joins_stand_within_the_parallel_region(record: Run, team: Path):
    events = record(team, 2).events()
    kinds = [event[1] for event in events]
    assert Counter(kinds)[Kind.FORK] == Counter(kinds)[Kind.JOIN] == 2
    fork = kinds.index(Kind.FORK)
    assert kinds[fork - 1] == Kind.ENTER
    assert events[fork][2] == 3
    join = kinds.index(Kind.JOIN)
    assert kinds[join + 1] == Kind.LEAVE
    assert events[join + 1][2] == events[fork - 1][2]


def test_tasks_count_where_they_run(record: Run, team: Path):
    run = record(team, 4)
    tasks = sum(
        count
        for visits in by_location(run)
        for name, count in visits.items()
        if name.endswith("/omp task")
    )
    assert tasks == 2 * 4


def test_profiles_know_teams_too(record: Run, team: Path):
    run = record(team, 3, mode="profile")
    own = run.measurement().ranks[0].nodes
    names = {
        (line["location"], run.measurement().path_of(int(own[line["node"]]))[-1]): line["visits"]
        for line in run.profile()
    }
    assert [names[(number, "omp implicit task")] for number in range(3)] == [3, 3, 3]


def test_teams_within_pauses_are_not_recorded(record: Run, team: Path):
    run = record(team, 2, PHASE="never")
    assert [counts for counts in by_location(run) if set(counts) != {"program"}] == []


def test_patterns_leave_openmp_out(record: Run, team: Path):
    run = record(team, 2, FILTER="omp *")
    assert all(set(counts) == {"program"} for counts in by_location(run))


def test_a_runtime_without_this_interface_runs_as_always(record: Run, tmp_path: Path):
    program = compile_team(tmp_path, "gcc")
    if program is None:
        pytest.skip("needs GNU's OpenMP runtime")
    run = record(program, 2)
    assert (run.status, run.error) == (0, "")
    assert list(run.folder.iterdir()) == [], "nobody has called the recorder"
