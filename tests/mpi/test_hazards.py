"""Claims about steps on several streams: no launch writes what another touches in no order."""

from __future__ import annotations

from pathlib import Path

import pytest
from digests import REDUCTIONS

_CASES = Path(__file__).resolve().parents[2] / "cases"
_CONTRACT = Path(__file__).with_name("hazards_contract.py")


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
    tests = {"PYTHONPATH": str(_CASES.parent / "tests")}
    case = _CASES / f"{name}.toml"
    done = run_ranks(ranks, [_CONTRACT, case, steps, *settings], environment=tests)
    launches, *hazards = done.stdout.splitlines()
    streams = launches.split(" launches on ")[1].split()
    # Flow takes its steps on one stream; what others have beside their messages, flow has in GPU code alone.
    assert streams == (["main"] if name.startswith("flow") else ["main", "side"])
    assert hazards == ["end"]
