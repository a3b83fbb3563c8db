"""Claims about what studies sweep of flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from haloscope.errors import InputError
from haloscope.study.keys import read_study
from haloscope.study.sweep import sweep

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
    with pytest.raises(InputError, match="preconditioner = jacobi"):
        sweep(read_study(wrong), "study")
