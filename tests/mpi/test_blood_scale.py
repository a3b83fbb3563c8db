"""Claims about the small study of blood: two ranks give the bits of one in each way it tries."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from measuring import run

STUDY = Path(__file__).parents[2] / "studies" / "blood-small.toml"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_small_study_of_blood_gives_the_bits_of_one_rank(tmp_path):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    command = [sys.executable, "-m", "haloscope", "scale", STUDY, "--out", "out", "--json"]
    done = run(command, 180.0, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["failed"] == result["left_out"] == []
    rows = result["points"]
    assert all(row["ok"] is True for row in rows)
    used = {row["transport_used"] for row in rows if row["ranks"] == 2}
    assert used == {"host", "staged", "repacked"}
    grown = [row for row in rows if row["growth"] == "type1" and row["ranks"] == 2]
    assert [row["vessel"] for row in grown] == ["18.0x16.0x32.0 um"] * 2
    assert [row["hematocrit"] for row in grown] == [0.05, 0.1]
    assert {row["delta"] for row in rows} == {"linear", "roma"}
    with (tmp_path / result["files"]["phases"]).open() as file:
        phases = [row for row in csv.DictReader(file) if row["series"] == "published transport"]
    # On one rank, which has nobody to send to, this is a point of the first series.
    assert {row["ranks"] for row in phases} == {"2"}
    shares = {row["phase"]: float(row["share"]) for row in phases}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)
    moved = {"gather", "device to host", "repack", "MPI", "host to device", "scatter"}
    assert moved | {"collide and stream", "spread", "share velocities"} <= shares.keys()
    assert (
        "| point | ms a step | movement of data |"
        in (tmp_path / result["files"]["report"]).read_text()
    )
