"""Claims about `run --check`: it prints the case with its boundaries, takes no step, writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusals import refused

from haloscope.case import shipped
from haloscope.case.tables import read_case
from haloscope.commands.run import require_alone
from haloscope.device.ceilings import Ceilings
from haloscope.solvers import registry
from haloscope.solvers.cavity.solver import CavitySolver

_CONDITIONS = {
    "cavity-2d": ("x_low", "temperature hot"),
    "lid-driven": ("y_high", "temperature adiabatic, velocity [1.0, 0.0, 0.0] m/s"),
    "flow-lid": ("y_high", None),
    "maxwell-antenna": ("z+", "absorbing"),
    "blood-bifurcation": ("inlet", "velocity 0.004 m/s, parabolic, cells enter"),
    "blood-red-cell": ("wall y_high", "velocity [0.0018, 0.0, 0.0] m/s"),
}


@pytest.fixture(autouse=True)
def _made_up_ceilings(monkeypatch):
    made_up = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: made_up)


@pytest.fixture
def no_step(monkeypatch):
    def advance(solver, steps):
        raise AssertionError("a step was taken")

    monkeypatch.setattr(CavitySolver, "advance", advance)


@pytest.mark.parametrize("name", _CONDITIONS)
def test_conditions_of_every_kind_of_boundary_are_in_words(name):
    boundary, words = _CONDITIONS[name]
    conditions = read_case(shipped.file_of(name), (), registry.case_model).boundary_conditions()
    assert conditions[boundary]
    assert words is None or conditions[boundary] == words


def test_every_shipped_case_has_conditions():
    for name in shipped.names():
        assert read_case(shipped.file_of(name), (), registry.case_model).boundary_conditions(), name


@pytest.mark.usefixtures("no_step")
def test_a_dry_run_prints_mesh_memory_time_and_boundaries_and_writes_nothing(case, call):
    before = sorted(case.parent.rglob("*"))
    code, out, _ = call("run", case, "--check", "--steps", "1000")
    assert code == 0
    for words in ("15 x 13 x 14 nodes", " MB", "1000, in at least", "16 GB/s", "Rayleigh number"):
        assert words in out
    assert "  x_low   temperature " in out
    code, out, err = call("run", case, "--check", "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert set(plan["boundaries"]) == {
        f"{axis}_{side}" for axis in "xyz" for side in ("low", "high")
    }
    assert plan["least_seconds"] > 0
    assert plan["memory_bytes"] > 0
    assert sorted(case.parent.rglob("*")) == before


@pytest.mark.parametrize("more", [("--out", "there"), ("--restart",)])
def test_options_without_effect_on_a_dry_run_are_refused(case, call, more):
    code, out, err = call("run", case, "--check", *more)
    assert (code, out) == (2, "")
    assert f"--check with {more[0]}" in err
    assert not Path("there").exists()


def test_a_dry_run_is_not_measured():
    with refused(location="--check with --measure"):
        require_alone({"--out": False, "--measure": True})


def test_ranks_of_a_dry_run_get_the_option_and_no_folder(case, call, monkeypatch):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    arguments: list[str] = []
    monkeypatch.setattr(
        "haloscope.exchange.ranks.launch.launch",
        lambda ranks, words, **more: arguments.extend(words) or 0,
    )
    assert call("run", case, "--ranks", 2, "--check") == (0, "", "")
    assert "--check" in arguments
    assert "--out" not in arguments
    assert not Path("runs").exists()
