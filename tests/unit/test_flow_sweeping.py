"""Claims about what studies sweep of flows."""

from __future__ import annotations

from pathlib import Path

from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.study import report
from haloscope.study.point import run_points
from haloscope.study.sweep import read_study, sweep
from haloscope.study.table import Ledger, table

_STUDIES = Path(__file__).parents[2] / "studies"


def test_the_study_of_preconditioners_lists_every_choice_on_growing_ducts():
    rows = sweep(read_study(_STUDIES / "flow-preconditioners.toml"), "study").rows
    first = [row for row in rows if row.series == "preconditioners"]
    assert {row.asked["preconditioner"] for row in first} == {"two-level", "block-ilu"}
    assert {row.asked["messages"] for row in rows if row.series == "messages"} == {
        "neighbours",
        "neighbours-blocking",
        "all-pairs",
    }
    for row in first:
        assert row.layout.columns["tetrahedra"] == 6 * 16**3 * row.asked["ranks"]


def test_an_unknown_preconditioner_is_refused_with_its_place(tmp_path: Path):
    text = (_STUDIES / "flow-preconditioners.toml").read_text()
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace('"block-ilu"]', '"jacobi"]'))
    with refused(location="preconditioner = jacobi"):
        sweep(read_study(wrong), "study")


_SMALL = """
title = "Ranks agree"
solver = "flow"
steps = 1
repeats = 1
warmup = 0
check_steps = 1
energy = false
case.flow.box.cells = [2, 2, 2]
case.flow.fluid = { density = 1.0, viscosity = 1.0 }
case.flow.boundaries.x_low.velocity = [1.0, 0.0, 0.0]
case.flow.boundaries.x_high = "open"
case.flow.boundaries.y_low = "no-slip"
case.flow.boundaries.y_high = "no-slip"
case.flow.boundaries.z_low = "no-slip"
case.flow.boundaries.z_high = "no-slip"
case.flow.time = { scheme = "bdf2", time_step = 0.1, end = 1.0 }

[[series]]
name = "ranks"
device = "cpu"
ranks = [1, 2]
"""


def test_ranks_must_agree_to_the_tolerance_of_newtons_method(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(_SMALL)
    swept = sweep(read_study(path), "study")
    ledger = Ledger(tmp_path / "points.jsonl")
    one, two = (row.point for row in swept.rows)
    run_points([one], ledger, World(), point_seconds=60.0)
    ledger.read()
    alone = ledger.records[one.id]
    for miss, agrees in ((0.0, True), (1e-6, True), (0.5, False)):
        other = {**alone, "id": two.id, "ranks": 2, "digest": {}}
        other["sketch"] = {
            unit: [value * (1 + miss) for value in values]
            for unit, values in alone["sketch"].items()
        }
        rows = table(swept.rows, swept.references, {}, {one.id: alone, two.id: other})
        assert [row["ok"] for row in rows] == [True, agrees]
        assert ("DIFFER" in report.text(rows)) is not agrees
