"""Claims about studies of Maxwell cases: what is swept, how a box grows, rates, half of the peak."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haloscope.solvers import registry
from haloscope.study import plots, table
from haloscope.study.sweep import Sweep, read_study, sweep

_HEAD = """
title = "A study for tests"
solver = "maxwell"
steps = 2
warmup = 1
repeats = 2
check_steps = 2

[case.maxwell]
order = 2

[case.maxwell.box]
elements = [2, 2, 3]
lower = [1.0, 0.0, 0.0]
upper = [2.0, 1.0, 3.0]
periodic = ["x", "y", "z"]

[case.maxwell.initial]
Ez = "sin(2*pi*x)"

[case.machine]
device = "cpu"
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a study file of one series; the test works in its folder."""
    monkeypatch.chdir(tmp_path)

    def write(series: str, head: str = _HEAD) -> Path:
        path = tmp_path / "small.toml"
        path.write_text(f'{head}\n[[series]]\nname = "a"\n{series}\n')
        return path

    return write


def _swept(path: Path) -> Sweep:
    return sweep(read_study(path), str(path))


def test_elements_and_orders_are_swept_and_tables_have_their_points(study):
    path = study("elements = [1, [1, 2, 4]]\norder = [2, 3]\nthreads = 2\ntransport = 'staged'")
    rows = _swept(path).rows
    points = {tuple(row.layout.columns.values()) for row in rows}
    assert points == {
        ("1x1x1", 2, 27),
        ("1x1x1", 3, 64),
        ("1x2x4", 2, 8 * 27),
        ("1x2x4", 3, 8 * 64),
    }
    assert rows[-1].point.case["maxwell"]["box"]["elements"] == [1, 2, 4]
    assert rows[0].varied == ("elements", "order")
    assert table.line_of(rows[0]) == "1x1x1 elements, order 2"
    assert {row.point.threads for row in rows} == {2}


def test_a_box_doubles_along_z_first_and_its_elements_keep_their_size(study):
    rows = _swept(study("ranks = [1, 2, 4, 8, 16]\ngrowth = 'type1'")).rows
    assert [row.nodes for row in rows] == [
        (2, 2, 3),
        (2, 2, 6),
        (2, 4, 6),
        (4, 4, 6),
        (4, 4, 12),
    ]
    for row in rows:
        box = row.point.case["maxwell"]["box"]
        widths = zip(box["lower"], box["upper"], box["elements"], strict=True)
        assert [(high - low) / n for low, high, n in widths] == [0.5, 0.5, 1.0]
        assert row.base == rows[0].point.id


@pytest.mark.parametrize(
    ("series", "head", "words"),
    [
        ("nodes = 8", _HEAD, (": nodes: the solver maxwell has no such axis", "elements, order")),
        ("decomposition = 'z'", _HEAD, (": decomposition: the solver maxwell has no such axis",)),
        ("ranks = 2\ngrowth = 'type2'", _HEAD, ("growth = type2", "strong, type1")),
        ("ranks = 3\ngrowth = 'type1'", _HEAD, ("power of two",)),
        ("ranks = 13", _HEAD, ("13", "12 elements")),
        ("ranks = 2\ntransport = 'nccl'", _HEAD, ("transport = nccl", "device cpu")),
        ("elements = [[2, 2]]", _HEAD, ("elements = [2, 2]", "three")),
        ("order = 99", _HEAD, ("maxwell.order = 99",)),
        (
            "ranks = 2\ngrowth = 'type1'",
            _HEAD.replace("periodic", "grading = [1.0, 2.0, 1.0]\nperiodic"),
            ("grading",),
        ),
        (
            "elements = 2",
            _HEAD.replace("[case.maxwell.box]", "[case.maxwell.nobox]"),
            ("nobox", "box"),
        ),
    ],
)
def test_what_a_maxwell_study_cannot_do_is_told_in_one_line(study, call, series, head, words):
    code, out, err = call("scale", study(series, head))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for word in ("'a'", *words):
        assert word in err, err


def test_a_cavity_has_no_elements(study, call):
    head = 'title = "t"\n[case.cavity]\nnodes = 16\n'
    code, _, err = call("scale", study("elements = 2", head))
    assert code == 2
    assert ": elements: the solver cavity has no such axis" in err


def test_a_study_on_one_rank_has_rates_from_its_times_and_tells_half_of_the_peak(study, call):
    path = study("elements = [1, 2, [2, 2, 4]]")
    code, out, err = call("scale", path, "--out", "out", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert {"sizes", "report", "table"} <= set(result["files"])
    with (path.parent / "out" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(table.columns("maxwell"))
    for row in rows:
        seconds, points = float(row["seconds_per_step"]), int(row["points"])
        assert (row["ok"], row["curl"], row["flux"]) == ("true", "covariant", "upwind")
        assert float(row["mpoints_s"]) == pytest.approx(1e-6 * points / seconds)
        assert float(row["gdof_s"]) == pytest.approx(30e-9 * points / seconds)
        assert float(row["gflop_s"]) == pytest.approx((180 * 3 + 420) * 1e-9 * points / seconds)
    report = (path.parent / "out" / "report.md").read_text()
    assert "| a, 1 rank | " in report.partition("n_1/2")[2]
    assert table.read_table(path.parent / "out", "maxwell")[2]["elements"] == "2x2x4"


def _measured(points: int, seconds: float, **changes: Any) -> dict[str, Any]:
    row = {
        "series": "a",
        "line": f"{points}x1x1 elements, order 2",
        "status": "done",
        "ranks": 1,
        "growth": "strong",
        "host": "here",
        "device_name": "it",
        "points": points,
        "seconds_per_step": seconds,
        "gflop_s": points / seconds,
    }
    return {**row, **changes}


def test_a_step_without_a_fixed_number_of_stages_has_no_rate_of_stages():
    module = registry.sweeping("maxwell")
    case = {"maxwell": {"order": 7, "integrator": "exponential"}}
    assert module.rates(case, 4096, 1e-3) == {"mpoints_s": pytest.approx(4.096)}


def test_half_of_the_peak_is_where_a_start_up_time_and_a_cost_a_point_have_it():
    own = registry.sweeping("maxwell").COLUMNS
    start, peak = 1000.0, 64000
    rows = [_measured(n, n + start) for n in (16000, 64, 256, peak, 4000, 1000)]
    rows.append(_measured(1000, 500.0, status="failed"))
    rows.append(_measured(1000, 500.0, ranks=2))
    rows.append(_measured(1000, 500.0, gflop_s=None))
    ((label, line),) = plots.lines_over_sizes(rows, own).items()
    assert label == "a: order 2, 1 rank"
    assert [row["points"] for row in line] == [64, 256, 1000, 4000, 16000, peak]
    # n / (n + s) is half of what it is at the peak.
    rate = 0.5 * peak / (peak + start)
    assert plots.half_of_peak(line, own) == pytest.approx(rate * start / (1 - rate), rel=1e-12)
    assert plots.half_of_peak(line[3:], own) is None
    assert "below 4000" in plots.describe_peaks(rows[:1] + rows[3:5], own)
    assert plots.describe_peaks(rows[:2], own) == ""
