"""Claims about studies on real ranks: the same bits each way, ranks that die, ranks from a launcher."""

from __future__ import annotations

import csv
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

from haloscope.exchange.ranks.launch import descendants
from haloscope.study.table import columns

_SMALL = Path(__file__).parents[2] / "studies" / "cavity-small.toml"
_HEAD = """
title = "A study for tests"
steps = 4
repeats = 2
check_steps = 3

[case.cavity]
nodes = 16

[case.machine]
device = "cpu"
"""
_SERIES = """
[[series]]
name = "strong"
ranks = [1, 2, 3]
decomposition = ["x", "z"]
"""


@pytest.fixture
def scale(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command; what it starts is killed with it where it takes too long."""
    pytest.importorskip("mpi4py", exc_type=ImportError)

    def run(*arguments: str | Path, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        with _started(tmp_path, *arguments) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            finally:
                _kill(process)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


def _started(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "haloscope", "scale", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a study's own group and all that it has started, which have groups of their own."""
    if process.poll() is not None:
        return
    below = descendants(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    for number in below:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _study(folder: Path, *parts: str) -> Path:
    path = folder / "study.toml"
    path.write_text("".join(parts))
    return path


@pytest.mark.timeout(200)
def test_every_way_to_cut_pack_and_send_gives_the_bits_of_one_rank(scale, tmp_path):
    # As it is but for the size of the grid and the number of steps, which are for the clock.
    text = _SMALL.read_text()
    for usual, fewer in (("nodes = 64", "nodes = 20"), ("steps = 20 ", "steps = 4 ")):
        assert usual in text
        text = text.replace(usual, fewer)
    done = scale(_study(tmp_path, text), "--out", "out", "--json", timeout=180.0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    result = json.loads(done.stdout)
    assert result["failed"] == result["left_out"] == []
    with (tmp_path / "out" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result["points"]) >= 50
    # No meter of energy, nothing to explain, and series without a second axis.
    may_be_empty = {"joules_per_cell_step", "reason", "line"}
    for row in rows:
        assert (row["ok"], row["status"]) == ("true", "done")
        assert not [key for key in columns("cavity") if row[key] == "" and key not in may_be_empty]
    used = {row["transport_used"] for row in rows if row["ranks"] == "2"}
    assert used == {"host", "staged"}


def test_a_rank_that_dies_costs_its_point_alone(scale, tmp_path):
    # Overlapped and not are two points of one group; the first takes long enough to be killed.
    head = _HEAD.replace("steps = 4\n", "steps = 3000\n", 1)
    path = _study(tmp_path, head, '[[series]]\nname = "a"\nranks = 2\noverlap = [true, false]\n')
    with _started(tmp_path, path, "--out", "out", "--json") as process:
        try:
            ranks = _wait_for_ranks(process)
            _wait_for_start(tmp_path / "out" / "points.jsonl", 2)
            os.kill(ranks[0], signal.SIGKILL)
            out, err = process.communicate(timeout=120)
        finally:
            _kill(process)
    assert process.returncode == 1, err
    result = json.loads(out)
    (failed,) = result["failed"]
    assert "ranks ended with" in failed["reason"]
    assert sorted(row["status"] for row in result["points"]) == ["done", "failed"]
    again = scale(path, "--out", "out", "--json")
    assert again.returncode == 0, again.stderr
    assert all(row["ok"] for row in json.loads(again.stdout)["points"])


def _wait_for_ranks(process: subprocess.Popen[str]) -> list[int]:
    """Processes of two ranks, once both run."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        process_ids = []
        for number in descendants(process.pid):
            try:
                environment = Path(f"/proc/{number}/environ").read_bytes()
            except OSError:
                continue
            if any(name in environment for name in (b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK=")):
                process_ids.append(number)
        if len(process_ids) == 2:
            return process_ids
        assert process.poll() is None
        time.sleep(0.02)
    raise AssertionError("waited a minute for two ranks")


def _wait_for_start(points: Path, ranks: int) -> None:
    """Wait until a point on several ranks has begun: the reference on one has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = points.read_text().splitlines() if points.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("}")]
        ended = {r["id"] for r in records if r["status"] != "started"}
        if ended and any(r["id"] not in ended for r in records):
            return
        time.sleep(0.02)
    raise AssertionError("waited a minute for a point to begin")


def test_ranks_of_a_launcher_run_the_points_for_as_many_ranks_as_they_are(
    run_ranks, scale, tmp_path
):
    path = _study(tmp_path, _HEAD, _SERIES)
    out = tmp_path / "out"
    command = ["-m", "haloscope", "scale", path, "--out", out, "--json"]
    expected = {1: {"waiting"}, 2: {"done", "waiting"}, 3: {"done"}}
    for count, status in expected.items():
        done = run_ranks(count, command)
        rows = json.loads(done.stdout)["points"]
        assert {row["status"] for row in rows if row["ranks"] > 1} == status
        assert all(row["status"] == "done" for row in rows if row["ranks"] <= count)
    assert all(row["ok"] for row in rows)
    assert all(row["efficiency"] > 0 for row in rows)
    # Nothing is left to do for ranks that are started by the study itself.
    before = (out / "points.jsonl").read_bytes()
    done = scale(path, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert (out / "points.jsonl").read_bytes() == before


def test_a_study_under_a_launcher_needs_a_folder_and_its_own_rank_count(run_ranks, tmp_path):
    path = _study(tmp_path, _HEAD, _SERIES)
    done = run_ranks(2, ["-m", "haloscope", "scale", path], exit_code=2)
    assert "--out" in done.stderr
    arguments = ["--out", tmp_path / "out", "--ranks", "3"]
    done = run_ranks(2, ["-m", "haloscope", "scale", path, *arguments], exit_code=2)
    assert "started 2 ranks" in done.stderr
    done = run_ranks(2, ["-m", "haloscope", "scale", path, "--list", "--json"])
    for row in json.loads(done.stdout)["points"]:
        expected = "the launcher started 2 ranks" if row["ranks"] != 2 else "to be run"
        assert row["reason"] == expected
        assert row["status"] == ("waiting" if row["ranks"] == 2 else "skipped")


def test_another_mpi_is_started_with_a_python_of_its_own(scale, tmp_path):
    mpi = f'[mpi.named]\npython = "{sys.executable}"\n'
    series = '[[series]]\nname = "libraries"\nranks = [1, 2]\nmpi = "named"\n'
    done = scale(_study(tmp_path, _HEAD, mpi, series), "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["points"]
    assert [(row["mpi"], row["ok"]) for row in rows] == [("none", True), ("named", True)]
