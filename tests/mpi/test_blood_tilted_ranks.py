"""Claims about openings on several ranks, askew to the axes or with a resistance: one rank's bits."""

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


_RESISTANCE = """
[blood.openings.resistance]
proximal = 1e14
distal = 4e14
compliance = 1e-17
"""
_WAVE = """
profile = "womersley"
signal = "1 + 0.5*sin(2*pi*t/1e-5)"
period_s = 1e-5
"""
_FORK = f"""
solver = "blood"
[blood]
spacing_um = 1.0
[blood.bifurcation]
radius_um = 4.0
parent_length_um = 8.0
daughter_length_um = 12.0
[[blood.openings]]
name = "inlet"
kind = "velocity"
value = 1e-3
{_WAVE}
[[blood.openings]]
name = "outlet-1"
kind = "pressure"
{_RESISTANCE}
[[blood.openings]]
name = "outlet-2"
kind = "pressure"
{_RESISTANCE}
[run]
steps = 130
diagnostics_interval = 50
[output]
picture = false
"""
_TILTED = (
    _CASE.replace("value = 20.0", _RESISTANCE)
    .replace("STORAGE", "full")
    .replace('signal = "1 + 0.5*sin(2*pi*t/1e-5)"', _WAVE)
)


@pytest.mark.parametrize(
    ("text", "counts"),
    [(_FORK, (1, 2, 3, 4)), (_TILTED, (1, 3))],
    ids=["along an axis", "askew"],
)
def test_pressures_that_follow_the_flow_are_those_of_one_rank(
    run_ranks: Any, tmp_path: Path, text: str, counts: tuple[int, ...]
) -> None:
    case = tmp_path / "case.toml"
    case.write_text(text)
    results = []
    for ranks in counts:
        out = tmp_path / str(ranks)
        run_ranks(ranks, ["-m", "haloscope", "run", str(case), "--out", str(out), "--quiet"])
        with h5py.File(out / "fields.vtkhdf") as file:
            root = file["VTKHDF"]
            data = root["CellData"] if "CellData" in root else root["PointData"]
            fields = {name: values[()] for name, values in data.items()}
        results.append((fields, (out / "outlets.csv").read_text()))
    assert len(results[0][1].splitlines()) >= 2
    for fields, table in results[1:]:
        assert table == results[0][1]
        for name, values in results[0][0].items():
            np.testing.assert_array_equal(values, fields[name])


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
