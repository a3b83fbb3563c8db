"""Claims about `run --check`: it prints the case with its boundaries, draws its geometry, and takes no step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusals import refused

from haloscope.case import toml_files
from haloscope.case.tables import read_case
from haloscope.commands.run import require_alone
from haloscope.device.meters import Ceilings
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
    conditions = read_case(
        toml_files.shipped_file(name), (), registry.case_model
    ).boundary_conditions()
    assert conditions[boundary]
    assert words is None or conditions[boundary] == words


def test_every_shipped_case_has_conditions():
    for name in toml_files.shipped_names():
        assert read_case(
            toml_files.shipped_file(name), (), registry.case_model
        ).boundary_conditions(), name


@pytest.mark.usefixtures("no_step")
def test_a_dry_run_prints_mesh_memory_time_and_boundaries_and_writes_one_picture(case, call):
    code, out, _ = call("run", case, "--check", "--steps", "1000")
    assert code == 0
    printed = out
    for words in (
        "15 x 13 x 14 nodes",
        " MB",
        "steps       1000, in at least",
        "16 GB/s",
        "Rayleigh number",
    ):
        assert words in out
    assert "  x_low   temperature " in out
    _, out, _ = call("run", case, "--check", "--steps", "1000", "--set", "run.tolerance=1e-5")
    assert "steps       at most 1000, in at least" in out
    code, out, err = call("run", case, "--check", "--json")
    assert (code, err) == (0, "")
    plan = json.loads(out)
    assert set(plan["boundaries"]) == {
        f"{axis}_{side}" for axis in "xyz" for side in ("low", "high")
    }
    assert plan["least_seconds"] > 0
    assert plan["memory_bytes"] > 0
    assert plan["picture"] == "runs/box-check.png"
    assert f"picture: {plan['picture']}\n" in printed
    assert sorted(path.name for path in case.parent.rglob("*") if path.is_file()) == [
        "box-check.png",
        "box.toml",
    ]
    assert Path(plan["picture"]).read_bytes().startswith(b"\x89PNG")


def test_a_dry_run_without_a_picture_writes_nothing(case, call):
    before = sorted(case.parent.rglob("*"))
    code, out, _ = call("run", case, "--check", "--set", "output.picture=false")
    assert code == 0
    assert "picture" not in out
    assert out.endswith("no step was taken and nothing was written\n")
    assert sorted(case.parent.rglob("*")) == before


def test_a_picture_that_cannot_be_written_costs_a_warning_and_not_the_numbers(case, call):
    Path("runs").write_text("")
    code, out, err = call("run", case, "--check")
    assert code == 0
    assert "Rayleigh number" in out
    assert "warning: no picture: runs: the folder cannot be created" in err


def test_a_picture_of_a_dry_run_is_no_run_to_restart(case, call):
    assert call("run", case, "--check", "--quiet") == (0, "", "")
    code, _, err = call("run", case, "--restart")
    assert code == 2
    assert "there is no run of box" in err


@pytest.mark.parametrize("more", [("--out", "there"), ("--restart",)])
def test_options_without_effect_on_a_dry_run_are_refused(case, call, more):
    code, out, err = call("run", case, "--check", *more)
    assert (code, out) == (2, "")
    assert f"--check with {more[0]}" in err
    assert not Path("there").exists()


def test_a_dry_run_is_not_measured():
    with refused(location="--check with --measure"):
        require_alone("--check", {"--out": False, "--measure": True})


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
