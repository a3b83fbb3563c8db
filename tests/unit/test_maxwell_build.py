"""Claims about the manifest of Maxwell cases: it holds each kernel file that a solver asks for, and few others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from absent_device import AbsentDevice
from thread_gpus import on_ranks

from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.targets import KernelFile, KnownTarget
from haloscope.exchange.ranks.world import World
from haloscope.numerics.time_integration import KrylovSpace
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.kernels import manifest
from haloscope.solvers.maxwell.solver import MaxwellSolver

_SIDES = ("x-", "x+", "y-", "y+", "z-", "z+")
_BOX: dict[str, Any] = {
    "order": 3,
    "time_step": 1e-12,
    "box": {"elements": [4, 4, 4]},
    "boundaries": dict.fromkeys(_SIDES, "pec"),
}
_BALL = {
    "order": 3,
    "time_step": 1e-12,
    "sphere": {"radius": 0.1, "rings": 1, "outer_rings": 1, "box_half_width": 0.2},
    "boundaries": dict.fromkeys(_SIDES, "absorbing"),
}
_PULSE = {"kind": "gaussian", "centre": 1e-9, "width": 3e-10}
_MEDIUM = {
    "conductivity": 0.1,
    "poles": [
        {"kind": "drude", "plasma_frequency": 1e9},
        {"kind": "lorentz", "strength": 1.0, "resonance": 1e9},
        {"kind": "lorentz", "strength": 2.0, "resonance": 2e9},
    ],
}
_DIPOLE = {"kind": "dipole", "position": [0.3, 0.3, 0.3], "moment": [0, 0, 1], "waveform": _PULSE}
_WAVE = {
    "direction": [0, 0, 1],
    "polarisation": [1, 0, 0],
    "waveform": _PULSE,
    "inside": ["inner"],
}
_CASES = {
    "bricks": _BOX,
    "warped": _BOX | {"box": {"elements": [4, 4, 4], "warp": 0.03}, "flux": "central"},
    "single": _BOX | {"precision": "single", "order": 7, "sources": [_DIPOLE]},
    "chain rule": _BOX | {"curl": "chain-rule"},
    "exponential": _BOX | {"integrator": "exponential", "order": 9},
    "lossy": _BOX | {"materials": [_MEDIUM]},
    "layer": _BOX | {"layer": {"thickness": {"x+": 0.25}}},
    "ball": _BALL | {"materials": [{"region": "inner", **_MEDIUM}]},
    "ball in a wave": _BALL | {"waves": [_WAVE]},
    "margin": _BALL | {"order": 9, "sphere": _BALL["sphere"] | {"margin": 0.1, "margin_layers": 1}},
}


def _case(table: dict[str, Any], **machine: Any) -> MaxwellCase:
    data = {"solver": "maxwell", "maxwell": table, "run": {"steps": 1}, "machine": machine}
    case = check(data, MaxwellCase, "test")
    assert isinstance(case, MaxwellCase)
    return case


class _Unfilled(MaxwellSolver):
    """The solver without its fields: on a device that runs nothing they would be no numbers."""

    def _set_initial(self) -> None:
        self._has_initial_field = True

    def _find_bound(self) -> float:
        KrylovSpace(self._device, 1, 1, self.dtype)
        return self._with_additions(self._guess)


def _rows(files: Any) -> set[tuple[str, str]]:
    return {(file.name, json.dumps(dict(constants), sort_keys=True)) for file, constants in files}


def _listed(table: dict[str, Any], target: str, ranks: int = 1) -> set[tuple[str, str]]:
    return _rows(manifest(_case(table), KnownTarget(target), ranks))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[KernelFile]:
    """What absent devices are asked for, in place of compiling it."""
    files: list[KernelFile] = []
    for name in ("compile_for_cores", "compile_for_gpu"):
        monkeypatch.setattr(jit, name, lambda *file: files.append(KernelFile(*file[:2])))
    return files


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", _CASES)
def test_all_that_a_solver_asks_for_is_listed(name, target, asked):
    _Unfilled(_case(_CASES[name]), AbsentDevice(target), World())
    listed = _listed(_CASES[name], target)
    assert _rows(asked) <= listed
    # How elements are known depends on the mesh, unless all of them are bricks.
    if name not in ("warped", "ball", "ball in a wave", "margin"):
        assert _rows(asked) == listed


@pytest.mark.parametrize(("target", "transport"), [("cpu", "host"), ("sm_90", "peer")])
@pytest.mark.parametrize("name", ["lossy", "ball in a wave"])
def test_all_that_each_of_several_ranks_asks_for_is_listed(name, target, transport, asked):
    case = _case(_CASES[name], transport=transport)
    on_ranks(3, lambda world: _Unfilled(case, AbsentDevice(target), world))
    assert _rows(asked) <= _listed(_CASES[name], target, 3)
    assert "exchange.cpp" in {file.source.name for file in asked}


@pytest.mark.parametrize(
    ("mesh", "types"),
    [
        ({"box": {"elements": [100, 100, 100]}}, {"int"}),
        ({"box": {"elements": [200, 200, 200]}}, {"int", "long"}),
        ({"mesh": {"file": "unknown.msh"}}, {"int", "long"}),
    ],
)
def test_positions_are_long_only_where_messages_may_be(mesh, types):
    table = {key: value for key, value in _BOX.items() if key != "box"} | mesh
    files = manifest(_case(table), KnownTarget("cpu"), 2)
    assert {constants["index"] for _, constants in files if "index" in constants} == types


def test_elements_of_a_file_may_be_known_in_all_ways():
    table = {key: value for key, value in _BOX.items() if key != "box"}
    table |= {"order": 9, "mesh": {"file": "unknown.msh"}}
    for target, ways in (("cpu", {0, 2, 3}), ("sm_90", {0, 2})):
        files = manifest(_case(table), KnownTarget(target), 1)
        known = {constants["GEOMETRY"] for _, constants in files if "GEOMETRY" in constants}
        assert known == ways
