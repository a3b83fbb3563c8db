"""Claims about the ranks that run a study's points, in this process and in those of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_studies import (  # noqa: F401
    HEAD,
    STRONG,
    WEAK,
    fixture_study,
    sweep_file,
)

from haloscope.errors import MachineError
from haloscope.exchange.ranks.launch import descendants
from haloscope.exchange.ranks.world import World
from haloscope.study.point import run_points
from haloscope.study.sweep import Point
from haloscope.study.table import Ledger


def _small_points(study: Callable[..., Path], *parts: str) -> list[Point]:
    swept = sweep_file(study(HEAD, *parts))
    alone = [row.point for row in swept.rows if row.point.ranks == 1]
    references = {p.id: p for p in swept.references.values() if p.kind == "reference"}
    return [*{point.id: point for point in alone}.values(), *references.values()]


def test_one_rank_notes_times_and_digests_of_each_point(study, tmp_path):
    ledger = Ledger(tmp_path / "points.jsonl")
    calls = []
    points = _small_points(study, STRONG, WEAK)
    run_points(
        points, ledger, World(), point_seconds=60.0, on_done=lambda *args: calls.append(args)
    )
    ledger.read()
    timed, reference = (ledger.records[point.id] for point in points)
    assert (timed["kind"], reference["kind"]) == ("timed", "reference")
    assert len(timed["seconds"]) == 3
    assert min(timed["seconds"]) > 0
    assert "seconds" not in reference
    assert reference["nodes"] == [16, 16, 32]
    assert set(timed["digest"]) == {"p", "u", "v", "w", "T"}
    assert timed["digest"] != reference["digest"]
    assert len(calls) == 2
    assert not ledger.started
    again = Ledger(tmp_path / "again.jsonl")
    run_points(points, again, World(), point_seconds=60.0)
    again.read()
    assert again.records[points[0].id]["digest"] == timed["digest"]


def test_a_solution_that_breaks_fails_its_point_and_what_the_machine_lacks_does_not(
    study, tmp_path, monkeypatch
):
    breaks = (
        '[[series]]\nname = "breaks"\ntime_step = "global"\n'
        'set = ["cavity.kappa=1e-9", "cavity.cfl=1.0"]\n'
    )
    head = HEAD.replace("steps = 4", "steps = 800")
    path = study(head, breaks, '[[series]]\nname = "large"\nnodes = 20000\n', STRONG)
    rows = sweep_file(path).rows
    points = list({row.point.id: row.point for row in rows if row.point.ranks == 1}.values())
    ledger = Ledger(tmp_path / "points.jsonl")
    run_points(points, ledger, World(), point_seconds=60.0)
    ledger.read()
    broken, large, good = (ledger.records[point.id] for point in points)
    assert broken["status"] == "failed"
    assert "the solution broke" in broken["reason"]
    assert large["status"] == "left out"
    assert "GB a rank" in large["reason"]
    assert good["status"] == "done"

    def lacking(*arguments: object) -> None:
        raise MachineError("the machine\nlacks it")

    monkeypatch.setattr("haloscope.study.point.run_point", lacking)
    run_points(points[:1], ledger, World(), point_seconds=60.0)
    ledger.read()
    assert ledger.records[points[0].id]["status"] == "left out"
    assert ledger.records[points[0].id]["reason"] == "the machine lacks it"


def _command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "haloscope", "scale", *map(str, arguments)]


def test_a_point_that_takes_too_long_is_ended_and_the_next_one_is_run(study):
    # The first point would take minutes; the second a moment.
    head = HEAD.replace("steps = 4\n", "steps = 300\nwarmup = 0\n", 1).replace("16", "6")
    limits = "[limits]\npoint_seconds = 4.0\n"
    slow = '[[series]]\nname = "slow"\nnodes = 256\n'
    path = study(head, limits, slow, '[[series]]\nname = "quick"\n')
    done = subprocess.run(
        _command(path, "--out", "out", "--json"), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done
    result = json.loads(done.stdout)
    (failed,) = result["failed"]
    assert failed["series"] == "slow"
    assert "limits.point_seconds = 4 s" in failed["reason"]
    assert "Timeout" in (path.parent / "out" / "ranks.log").read_text()
    assert [row["status"] for row in result["points"]] == ["failed", "done"]


def test_one_rank_needs_no_mpi_and_a_signal_stops_in_order_with_nothing_left_behind(study):
    path = study(HEAD.replace("steps = 4\n", "steps = 100000000\n"), STRONG)
    out = path.parent / "out"
    process = subprocess.Popen(
        _command(path, "--out", out, "--only", "strong"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _wait_for(lambda: (out / "points.jsonl").exists(), process)
        below = descendants(process.pid)
        assert below
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        _kill(process)
    assert process.returncode == 143, err
    assert f"--out {out}" in err
    assert not any(Path(f"/proc/{number}").exists() for number in below)
    assert (out / "table.csv").exists()


def test_ranks_do_not_outlive_a_study_that_was_killed(study):
    if sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's end")
    path = study(HEAD.replace("steps = 4\n", "steps = 100000000\n"), STRONG)
    out = path.parent / "out"
    process = subprocess.Popen(_command(path, "--out", out), start_new_session=True)
    try:
        _wait_for(lambda: (out / "points.jsonl").exists(), process)
        below = descendants(process.pid)
        process.kill()
        process.wait(timeout=60)
        deadline = time.monotonic() + 30
        while any(_runs(number) for number in below):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        _kill(process)


def _runs(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.05)


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        below = descendants(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        for number in below:
            if _runs(number):
                os.kill(number, signal.SIGKILL)
        process.wait()
