"""Claims about steps on several streams: no launch writes what another touches in no order."""

from __future__ import annotations

from pathlib import Path

import pytest
from digests import REDUCTIONS

_CASES = Path(__file__).resolve().parents[2] / "cases"
_HERE = Path(__file__).parent
_TESTS = {"PYTHONPATH": str(_CASES.parent / "tests")}


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("cavity-demo", 2),
        ("cavity-2d", 3),
        ("maxwell-antenna", 2),
        ("flow-lid", 2),
        ("blood-tube", 2),
        ("blood-bifurcation", 3),
    ],
)
def test_steps_leave_no_hazard_open(run_ranks, name, ranks):
    _, settings = REDUCTIONS[name]
    steps = 1 if name.startswith("flow") else 4
    case = _CASES / f"{name}.toml"
    script = _HERE / "hazards_contract.py"
    done = run_ranks(ranks, [script, case, steps, *settings], environment=_TESTS)
    launches, *hazards = done.stdout.splitlines()
    streams = launches.split(" launches on ")[1].split()
    # Flow takes its steps on one stream.
    assert streams == (["main"] if name.startswith("flow") else ["main", "side"])
    assert hazards == ["end"]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks", "kernels"),
    [
        ("cavity-demo", 2, "pack_boxes unpack_boxes update walls"),
        ("maxwell-antenna", 2, "pack_entries stage unpack_entries"),
        (
            "blood-tube",
            2,
            "advance correct_walls forces interpolate pack_entries pack_rows unpack_entries unpack_rows",
        ),
        (
            "blood-bifurcation",
            3,
            "advance forces interpolate openings pack_entries pack_rows unpack_entries unpack_rows",
        ),
    ],
)
def test_launches_touch_the_parts_that_they_declare_and_no_others(run_ranks, name, ranks, kernels):
    _, settings = REDUCTIONS[name]
    case, script = _CASES / f"{name}.toml", _HERE / "poison_contract.py"
    done = run_ranks(ranks, [script, case, 3, *settings], environment=_TESTS)
    checked, *faults = done.stdout.splitlines()
    assert checked == kernels
    assert faults == ["end"]


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["cavity-demo", "maxwell-antenna", "blood-tube"])
def test_any_order_that_the_streams_allow_gives_the_same_bits(run_ranks, name):
    _, settings = REDUCTIONS[name]
    case, script = _CASES / f"{name}.toml", _HERE / "permute_contract.py"
    done = run_ranks(2, [script, case, 6, 3, *settings], environment=_TESTS)
    moved, *differences = done.stdout.splitlines()
    assert int(moved) > 5
    assert differences == ["end"]
