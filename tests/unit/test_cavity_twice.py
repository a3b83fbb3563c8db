"""Claims that two steps in one pass over memory give the bits of two steps one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.solvers.cavity import stepping as two_steps
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.solvers.cavity.stepping import Stepping

_BUSY = {
    "u": "0.001*sin(700*x + y*33)",
    "w": "0.001*sin(500*x - y*133)",
    "T": "300 + 3*sin(90*z)*cos(55*x)",
    "p": "1e-5*sin(900*x)*cos(400*y)*sin(300*z)",
}
_WALLS = {
    "x_low": {"temperature": "adiabatic", "velocity": [0.0, 0.01, 0.0]},
    "x_high": {"temperature": 296.0},
    "y_high": {"temperature": 305.0, "velocity": [0.01, 0.0, 0.02]},
    "z_low": {"temperature": "300 + 100*x"},
    "z_high": {"velocity": [0.01, 0.02, 0.0]},
}
_CASES: dict[str, dict[str, Any]] = {
    "local": {"nodes": [21, 35, 18]},
    "global": {"nodes": [21, 40, 13], "time_step": "global"},
    "single": {"nodes": [16, 67, 12], "precision": "single"},
    "busy walls": {"nodes": [19, 33, 15], "walls": _WALLS},
    "rows along z": {"nodes": [13, 33, 19], "walls": _WALLS},
}


def _run(table: dict[str, Any], steps: int, threads: int) -> CavitySolver:
    data = {"solver": "cavity", "cavity": {"size": [0.05, 0.04, 0.045], "initial": _BUSY, **table}}
    case = check(data, CavityCase, "this test")
    assert isinstance(case, CavityCase)
    solver = CavitySolver(case, CpuDevice(threads), World())
    solver.advance(steps)
    return solver


@pytest.mark.parametrize("steps", [3, 4, 21, 60])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", _CASES)
def test_two_steps_in_one_pass_are_two_steps_bitwise(monkeypatch, name, threads, steps):
    single = _run(_CASES[name], steps, 1)
    assert single.stepping.twice == []
    monkeypatch.setattr(two_steps, "_FROM_BYTES", 0)
    monkeypatch.setattr(Stepping, "choose_passes", lambda stepping: None)
    twice = _run(_CASES[name], steps, threads)
    assert len(twice.stepping.twice) == 2
    for field in single.fields:
        np.testing.assert_array_equal(twice.owned(field), single.owned(field))
    assert twice.follow() == single.follow()


def test_the_slower_kind_of_pass_is_not_kept(monkeypatch):
    monkeypatch.setattr(two_steps, "_FROM_BYTES", 0)
    times = iter([1.0] * two_steps._TRIALS + [0.1] * two_steps._TRIALS)
    monkeypatch.setattr(CpuDevice, "seconds", lambda device, work: next(times))
    assert _run(_CASES["local"], 0, 1).stepping.twice == []


def test_the_faster_kind_of_pass_is_kept(monkeypatch):
    monkeypatch.setattr(two_steps, "_FROM_BYTES", 0)
    times = iter([0.1] * two_steps._TRIALS + [1.0] * two_steps._TRIALS)
    monkeypatch.setattr(CpuDevice, "seconds", lambda device, work: next(times))
    assert len(_run(_CASES["local"], 0, 1).stepping.twice) == 2
