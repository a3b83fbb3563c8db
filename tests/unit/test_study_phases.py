"""Claims about phases of studies: what a step's parts take, of which points they are told, and how."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.device import open_device
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import World
from haloscope.numerics.shared_nodes import open_node_sums
from haloscope.regions import Region
from haloscope.study import point as phases
from haloscope.study.campaign import plan, scale
from haloscope.study.point import run_point
from haloscope.study.sweep import Sweep, read_study, sweep

_HEAD = """
title = "A study for tests"
solver = "blood"
steps = 2
repeats = 1
check_steps = 1
phases = true
energy = false

[case.blood]
spacing_um = 1.0
channel = {size_um = [6.0, 6.0, 6.0], periodic = ["x", "y", "z"]}
"""
_OUTER, _INNER = Region("outer of these tests"), Region("inner of these tests")


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Path]:
    """Write a study file."""

    def write(*series: str) -> Path:
        path = tmp_path / "small.toml"
        path.write_text("\n".join((_HEAD, *(f"[[series]]\n{text}" for text in series))))
        return path

    return write


def _swept(path: Path, **options: Any) -> Sweep:
    return sweep(read_study(path), str(path), **options)


class _Other(World):
    """A rank of two, of which the other one says the same but for a phase of its own."""

    size = 2

    def gather_texts(self, text: str) -> list[str]:
        return [text, json.dumps({"outer of these tests": 0.5, "theirs": 0.25})]


def test_a_phase_ends_when_the_device_has_done_what_it_asked_for():
    asked, seconds = [0], 0.02

    def synchronise() -> None:
        time.sleep(asked[0] * seconds)
        asked[0] = 0

    def advance(steps: int) -> None:
        for _ in range(steps):
            with _OUTER:
                asked[0] += 1
                with _INNER:
                    asked[0] += 2
            asked[0] += 1

    begin = time.perf_counter()
    phase_seconds = phases.measure(World(), synchronise, advance, 2)
    whole = time.perf_counter() - begin
    assert set(phase_seconds) == {_OUTER.name, _INNER.name, phases.REST}
    # What is asked for before a phase is not that phase's; sleeping takes a little longer than asked.
    assert phase_seconds[_INNER.name] >= 2 * seconds
    assert phase_seconds[_OUTER.name] >= seconds
    assert phase_seconds[phases.REST] >= seconds / 2
    assert 2 * sum(phase_seconds.values()) <= whole
    assert 2 * (phase_seconds[_INNER.name] + phase_seconds[_OUTER.name]) <= whole - seconds


def test_phases_are_means_of_all_ranks():
    def advance(steps: int) -> None:
        with _OUTER:
            pass

    phase_seconds = phases.measure(_Other(), lambda: None, advance, 5)
    assert phase_seconds["theirs"] == pytest.approx(0.25 / 10)
    assert phase_seconds[_OUTER.name] == pytest.approx(0.05, abs=0.01)


def test_points_whose_steps_are_graphs_have_no_phases(study):
    path = study('name = "a"\ndevice = ["cpu", "cuda"]\ngraphs = [true, false]')
    phases_of_points = {
        (row.point.device, row.asked["graphs"]): row.point.phases for row in _swept(path).rows
    }
    assert phases_of_points == {
        ("cpu", True): True,
        ("cpu", False): True,
        ("cuda", True): False,
        ("cuda", False): True,
    }
    swept = _swept(path)
    assert not any(point.phases for point in swept.references.values() if point.kind == "reference")


def test_ways_of_streaming_are_compared_with_one_reference(study):
    path = study(
        'name = "a"\ndevice = "cuda"\nranks = [1, 2]\ngrowth = "type1"',
        'name = "b"\ndevice = "cuda"\nranks = [1, 2]\ngrowth = "type1"\nset = "blood.streaming=push"',
        'name = "c"\ndevice = "cuda"\nranks = [1, 2]\ngrowth = "type1"\nset = "blood.collision=bgk"',
    )
    swept = _swept(path)
    of = {(row.series, row.point.ranks): swept.references[row.point.id].id for row in swept.rows}
    assert of["a", 1] == of["b", 1] != of["c", 1]
    assert of["a", 2] == of["b", 2] != of["c", 2]
    assert len({row.point.id for row in swept.rows}) == 6


def test_a_study_tells_its_phases_in_its_report_and_in_a_table(study, tmp_path):
    path = study('name = "one rank"\ndevice = "cpu"')
    result = scale(path, out=tmp_path / "out")
    assert result["ok"]
    with Path(result["files"]["phases"]).open() as file:
        rows = list(csv.DictReader(file))
    assert {"collide and stream", phases.REST} <= {row["phase"] for row in rows}
    seconds = sum(float(row["seconds_per_step"]) for row in rows)
    for row in rows:
        assert float(row["share"]) == pytest.approx(
            float(row["seconds_per_step"]) / seconds, rel=1e-4
        )
    text = Path(result["files"]["report"]).read_text()
    assert f"## {phases.HEADING}" in text
    assert "| point | ms a step | movement of data |" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| one rank, 1 rank |")]
    assert line.split(" | ")[2] == "0.0 %"


def test_data_movement_is_the_sum_of_the_phases_that_moved_data(study):
    (row,) = _swept(study('name = "a"\ndevice = "cpu"')).rows
    shares = {"spread": 0.5, "repack": 0.25, "MPI": 0.2, "walls": 0.05 - 0.004, "rest": 0.004}
    text = phases.describe([row], {row.point.id: {"phases": shares, "movement": ["MPI", "repack"]}})
    lines = [line for line in text.splitlines() if line.startswith("|")]
    # The rest is below 1 %.
    assert lines == [
        "| point | ms a step | movement of data | spread | repack | MPI | walls |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| a, 1 rank | 1000 | 45.0 % | 50.0 % | 25.0 % | 20.0 % | 4.6 % |",
    ]
    assert phases.describe([row], {}) == ""
    # Points of an older version have phases only.
    assert "| 1000 | not noted | 50.0 % |" in phases.describe(
        [row], {row.point.id: {"phases": shares}}
    )


def test_all_that_flow_exchanges_moves_data_and_is_counted_once(study):
    device = open_device("cpu")
    sums = open_node_sums(World(), device, find_sharing(World(), np.array([1, 2, 2])), 1)
    values = device.from_host(np.array([1.0, 2.0, 3.0]))

    def advance(steps: int) -> None:
        with _OUTER:
            sums.start(values)
            sums.finish(values)
            sums.gather(values)

    phase_seconds = phases.measure(World(), lambda: None, advance, 1)
    parts = ("pack", "exchange", "add")
    names = {way: {way, *(f"{way} {part}" for part in parts)} for way in ("scatter", "gather")}
    assert set(phases.moving(phase_seconds)) == names["scatter"] | names["gather"]
    assert set(phase_seconds) == {*phases.moving(phase_seconds), _OUTER.name, phases.REST}
    (row,) = _swept(study('name = "a"\ndevice = "cpu"')).rows
    text = phases.describe(
        [row], {row.point.id: {"phases": phase_seconds, "movement": phases.moving(phase_seconds)}}
    )
    moved = sum(phase_seconds.values()) - phase_seconds[_OUTER.name] - phase_seconds[phases.REST]
    assert f" | {100 * moved / sum(phase_seconds.values()):.1f} % | " in text.splitlines()[-1]


def test_energy_is_measured_only_where_it_is_wanted(study, monkeypatch):
    def refuse(*arguments: Any) -> float:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr("haloscope.study.point._joules", refuse)
    (row,) = _swept(study('name = "a"\ndevice = "cpu"')).rows
    record = run_point(row.point, World())
    assert record["joules_per_step"] is None
    assert record["phases"]
    assert record["movement"] == []


def test_without_steps_of_a_check_nothing_is_set_up_twice_or_compared(study, tmp_path):
    path = study('name = "a"\ndevice = "cpu"\nranks = [1, 2]\ngrowth = "type1"')
    path.write_text(path.read_text().replace("check_steps = 1", "check_steps = 0"))
    planned = plan(path)
    assert [point.kind for point in planned.points()] == ["timed", "timed"]
    result = scale(path, out=tmp_path / "out", ranks=1)
    first, second = result["points"]
    assert (first["status"], first["ok"], second["status"]) == ("done", None, "waiting")
    assert result["checks"] == {}
    report = Path(result["files"]["report"]).read_text()
    assert "Nothing was compared with one rank: check_steps = 0." in report
