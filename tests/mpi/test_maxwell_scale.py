"""Claims about the small Maxwell study: two ranks give the bits of one in each way it tries."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from measuring import run

STUDY = Path(__file__).parents[2] / "studies" / "maxwell-small.toml"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_small_study_of_maxwell_gives_the_bits_of_one_rank(tmp_path):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    command = [sys.executable, "-m", "haloscope", "scale", STUDY, "--out", "out", "--json"]
    done = run(command, 180.0, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["failed"] == result["left_out"] == []
    rows = result["points"]
    assert all(row["ok"] is True for row in rows)
    assert {row["transport_used"] for row in rows if row["ranks"] == 2} == {"host", "staged"}
    grown = [row for row in rows if row["growth"] == "type1" and row["ranks"] == 2]
    assert [row["elements"] for row in grown] == ["3x3x8"]
    assert {row["curl"] for row in rows} == {"covariant", "chain-rule"}
    assert "n_1/2" in (tmp_path / "out" / "report.md").read_text()
