"""Claims about openings askew to the axes on several ranks: the fields and flows of one rank, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

BEND = Path(__file__).parents[1] / "unit" / "bend.obj"
_CASE = f"""
solver = "blood"
[blood]
spacing_um = 1.5
storage = "STORAGE"
precision = "single"
[blood.walls]
kind = "interpolated"
[blood.surface]
file = "{BEND}"
scale_um = 1.0
[[blood.openings]]
name = "inlet"
kind = "velocity"
value = 1e-3
signal = "1 + 0.5*sin(2*pi*t/1e-5)"
[[blood.openings]]
name = "outlet"
kind = "pressure"
value = 20.0
[run]
steps = 40
[output]
picture = false
"""


@pytest.mark.parametrize(("storage", "counts"), [("full", (1, 3, 4)), ("half", (1, 2))])
def test_fields_and_flows_are_those_of_one_rank(
    run_ranks: Any, tmp_path: Path, storage: str, counts: tuple[int, ...]
) -> None:
    case = tmp_path / "bend.toml"
    case.write_text(_CASE.replace("STORAGE", storage))
    numbers: list[Any] = []
    for ranks in counts:
        out = tmp_path / str(ranks)
        run_ranks(ranks, ["-m", "haloscope", "run", str(case), "--out", str(out), "--quiet"])
        with h5py.File(out / "fields.vtkhdf") as file:
            fields = {name: data[()] for name, data in file["VTKHDF/CellData"].items()}
        summary = json.loads((out / "summary.json").read_text())
        flows = {
            key: value
            for key, value in summary["diagnostics"].items()
            if "mass_flow_" in key or key == "wall_mass_flow"
        }
        numbers.append((fields, flows))
    assert len(numbers[0][1]) == 3
    assert all(abs(value) > 0 for value in numbers[0][1].values())
    for fields, flows in numbers[1:]:
        assert flows == numbers[0][1]
        for name, values in numbers[0][0].items():
            np.testing.assert_array_equal(values, fields[name])
