"""Claims about warnings of flow runs: implausible scales, no drive, numbers that are not final."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest
from refusals import refused
from written_meshes import write_tets

from haloscope.case.tables import check
from haloscope.device.meters import Ceilings
from haloscope.errors import SolutionError
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import make_tet_mesh
from haloscope.run import Simulation
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.results import (
    backflow_warnings,
    balance_warnings,
    newton_warnings,
    settling_warnings,
)
from haloscope.solvers.flow.scales import sample_times

_CEILINGS = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
_WALLS = {"y_low": "no-slip", "y_high": "no-slip", "z_low": "no-slip", "z_high": "no-slip"}


@pytest.fixture(autouse=True)
def _quick_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: _CEILINGS)


def _simulation(**changes: object) -> Simulation:
    flow = {
        "box": {"cells": [4, 2, 2], "upper": [2.0, 1.0, 1.0]},
        "fluid": {"density": 2.0, "viscosity": 0.5},
        "boundaries": {"x_low": {"speed": 1.0}, "x_high": "open", **_WALLS},
        **changes,
    }
    flow = {key: value for key, value in flow.items() if value is not None}
    case = check({"solver": "flow", "flow": flow, "output": {"picture": False}}, FlowCase, "test")
    return Simulation(case, device="cpu")


def _boundaries(**changes: object) -> dict[str, object]:
    return {"x_low": {"speed": 1.0}, "x_high": "open", **_WALLS, **changes}


def _warnings(simulation: Simulation) -> list[str]:
    return [line for line in simulation.solver.notices if line.startswith("warning: ")]


def test_scales_are_those_of_the_case():
    simulation = _simulation()
    numbers = {number.name: number.value for number in simulation.solver.derived()}
    # An even mesh of Kuhn's tetrahedra: the height over the largest face is 1/sqrt(2) of a cell's.
    assert numbers.pop("least element height") == pytest.approx(0.5 / math.sqrt(2))
    speed = numbers.pop("velocity scale (largest given)")
    assert 1.0 < speed < 5.0
    assert numbers == pytest.approx(
        {
            "extent x": 2.0,
            "extent y": 1.0,
            "extent z": 1.0,
            "density": 2.0,
            "viscosity": 0.5,
            "length scale (4 volume / wall area)": 1.0,
            "Reynolds number": 2.0 * speed * 1.0 / 0.5,
        }
    )
    assert _warnings(simulation) == []


def test_the_velocity_of_a_pressure_difference_is_that_of_a_pipe():
    simulation = _simulation(boundaries=_boundaries(x_low={"pressure": 1e-3}))
    numbers = {number.name: number.value for number in simulation.solver.derived()}
    scale = numbers["velocity scale (from the pressure difference)"]
    assert scale == pytest.approx(1e-3 / (32 * 0.5 * 2.0))
    assert _warnings(simulation) == []


def test_unsteady_flow_tells_its_courant_number_and_the_element_that_sets_it():
    time = {"scheme": "bdf2", "time_step": 100.0, "end": 200.0}
    simulation = _simulation(time=time)
    numbers = {number.name: number.value for number in simulation.solver.derived()}
    speed = numbers["velocity scale (largest given)"]
    height = numbers["least element height"]
    assert numbers["largest Courant number"] == pytest.approx(speed * 100.0 / height)
    limit = simulation.solver.time_step_limit()
    assert "flow.time.time_step = 100 s" in limit
    assert f"of height {height:.3g} m at (" in limit
    assert "elements of mean height in a time step" in _warnings(simulation)[0]


@pytest.mark.parametrize(
    ("boundaries", "more", "driven"),
    [
        ({"x_low": "no-slip"}, {}, False),
        ({"x_low": {"pressure": 3.0}, "x_high": {"pressure": 3.0}}, {}, False),
        ({"x_low": {"pressure": 3.0}}, {}, True),
        ({"x_low": {"traction": [0.0, 1.0, 0.0]}}, {}, True),
        ({"x_low": "open"}, {"fluid": {"density": 1.0, "viscosity": 1.0, "force": [1.0, 0.0, 0.0]}}, True),
        ({"x_low": "no-slip", "y_high": {"moving": {"velocity": [1.0, 0.0, 0.0]}}}, {}, True),
        ({"x_low": "no-slip"}, {"initial": {"u": 1.0}}, False),
        ({"x_low": "no-slip"}, {"initial": {"u": 1.0}, "time": {"scheme": "bdf2", "time_step": 0.1, "end": 0.2}}, True),
        ({"x_low": {"speed": "sin(2*pi*t)"}}, {"time": {"scheme": "bdf2", "time_step": 0.5, "end": 8.0}}, True),
        ({"x_low": "no-slip", "x_high": "no-slip"}, {"pressure_at": [0.0, 0.0, 0.0], "fluid": {"density": 1.0, "viscosity": 1.0, "force": [0.0, 0.0, -9.8]}}, False),
    ],
)  # fmt: skip
def test_a_flow_without_a_drive_is_reported(boundaries, more, driven):
    warnings = _warnings(_simulation(boundaries=_boundaries(**boundaries), **more))
    assert any("nothing drives the flow" in line for line in warnings) is not driven


@pytest.mark.parametrize(
    ("last", "words"),
    [(1000.0, "milliseconds? Times are in s"), (1.0, None), (0.5, "ends at 0.5 s, before the run at 1 s")],
)  # fmt: skip
def test_a_signal_whose_times_do_not_suit_the_run_is_questioned(tmp_path, last, words):
    signal = tmp_path / "heart.csv"
    signal.write_text(f"time,factor\n0,1\n{last},2\n")
    warnings = _warnings(
        _simulation(
            boundaries=_boundaries(x_low={"speed": 1.0, "signal": str(signal)}),
            time={"scheme": "bdf2", "time_step": 0.1, "end": 1.0},
        )
    )
    assert len(warnings) == (0 if words is None else 1)
    if words is not None:
        assert "flow.boundaries.x_low.signal" in warnings[0]
        assert words in warnings[0]


def test_times_that_are_sampled_suit_no_period():
    times = np.array(sample_times(8.0))
    assert times.min() == 0.0
    assert times.max() == 8.0
    for period in (1.0, 2.0, 4.0, 8.0):
        assert np.abs(np.sin(2 * math.pi * times / period)).max() > 0.9
    assert sample_times(0.0) == [0.0]


@pytest.mark.parametrize(
    ("size", "guess"),
    [(2000.0, "millimetres? flow.mesh.scale = 0.001 (now 1)"), (2.0, None), (3e-6, "check flow.mesh.scale")],
)  # fmt: skip
def test_a_mesh_that_is_far_too_large_or_small_is_questioned(tmp_path, size, guess):
    pytest.importorskip("meshio")
    path = tmp_path / "box.msh"
    write_tets(tet_box((2, 2, 2), upper=(size, size / 2, size / 2)), path)
    simulation = _simulation(box=None, mesh={"file": str(path)})
    warnings = _warnings(simulation)
    if guess is None:
        assert warnings == []
        return
    half = f"{size / 2:.4g} m"
    assert warnings[0].startswith(f"warning: extent {size:.4g} m x {half} x {half}; {guess}")
    out = tmp_path / "out"
    with contextlib.suppress(SolutionError):  # one iteration at such a Reynolds number
        simulation.run(1, out=out)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["notices"].count(warnings[0]) == 1


def test_a_mesh_that_resolves_nothing_of_the_flow_is_questioned():
    warnings = _warnings(_simulation(fluid={"density": 1000.0, "viscosity": 1e-3}))
    assert "does not resolve this flow" in warnings[0]
    assert "with the mean element height of" in warnings[0]
    assert "viscosity (0.001 Pa s)" in warnings[0]
    law = {"at_high_shear": 3.45e-3, "time": 3.3, "exponent": 0.36}
    warnings = _warnings(_simulation(fluid={"density": 1.0, "viscosity": 1e-3, "carreau": law}))
    assert "the viscosity rises with the shear rate" in warnings[0]


def _case_of_file(tmp_path, boundaries: dict[str, object]) -> Simulation:
    """A box of two halves with a surface between them, and a second group on one side."""
    plain = tet_box((2, 2, 2), upper=(2.0, 1.0, 1.0))
    faces = plain.tets[:, [[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]]].reshape(-1, 3)
    inside = (plain.nodes[:, 0] == 1.0)[faces].all(axis=1)
    between = np.unique(np.sort(faces[inside], axis=1), axis=0)
    path = tmp_path / "halves.msh"
    mesh = make_tet_mesh(plain.nodes, plain.tets, {**plain.boundaries, "baffle": between})
    write_tets(mesh, path)
    return _simulation(box=None, mesh={"file": str(path)}, boundaries=boundaries)


def test_a_surface_inside_is_reported_and_takes_no_condition(tmp_path):
    pytest.importorskip("meshio")
    warnings = _warnings(_case_of_file(tmp_path, _boundaries()))
    assert warnings[0].startswith("warning: the surface 'baffle' (8 faces) lies inside the mesh")
    with refused(
        location=r"flow\.boundaries\.baffle",
        problem="^8 of 8 faces of 'baffle' lie inside the mesh.*not supported",
        remedy="leave the name out",
    ):
        _case_of_file(tmp_path, _boundaries(baffle="no-slip"))


def _opening(flow_rate: float, inflow: float = 0.0) -> dict[str, float]:
    return {"area": 1.0, "flow_rate": flow_rate, "pressure": 0.0, "inflow": inflow}


def test_flows_that_do_not_balance_are_reported():
    assert balance_warnings({"a": _opening(-1.0), "b": _opening(1.009)}, 1.0) == []
    (line,) = balance_warnings({"a": _opening(-1.0), "b": _opening(1.02)}, 1.0)
    assert "outflow minus the inflow is 0.02 m^3/s, 1.96 % of the throughflow" in line
    # Rounding of a flow at rest.
    assert balance_warnings({"a": _opening(1e-20), "b": _opening(1e-20)}, 1.0) == []


def test_backflow_is_reported_with_its_remedy():
    openings = {"outlet": _opening(0.9, -0.1), "side": _opening(0.9, -0.001)}
    (line,) = backflow_warnings(openings, {"outlet": False, "side": False}, 1.0)
    assert line.startswith(
        "warning: backflow at 'outlet': 10 % of the flow through it enters again"
    )
    assert "backflow = 0.5" in line
    (line,) = backflow_warnings(openings, {"outlet": True}, 1.0)
    assert "backflow = 0.5" not in line


def test_steps_that_newton_did_not_solve_are_reported():
    solved = [(1, 0.1, 0, 1.0), (1, 0.1, 1, 1e-3), (2, 0.2, 0, 1.0), (2, 0.2, 1, 1e-4)]
    assert newton_warnings(solved, 0) == []
    # The converged steps need all of their linear systems no more.
    assert newton_warnings(solved, 2) == []
    rounding = [(3, 0.3, 0, 1e-14), (3, 0.3, 1, 1e-14)]
    assert newton_warnings([*solved, *rounding], 0) == []
    (line,) = newton_warnings([*solved, (3, 0.3, 0, 1.0), (3, 0.3, 1, 0.25)], 1)
    assert "in 1 of 3 time steps Newton's residual fell less than a hundredfold" in line
    assert "(worst: to 0.25 of its first value)" in line
    assert "GMRES missed its tolerance 1 time:" in line


def test_averages_that_still_move_are_reported():
    steps = np.arange(60)
    shedding = np.stack([3.0 + 0 * steps, np.sin(steps * math.pi / 5)], axis=1)
    assert settling_warnings("force on a", shedding.tolist()) == []
    rising = np.stack([0.1 * steps, 0.0 * steps], axis=1)
    (line,) = settling_warnings("force on a", rising.tolist())
    assert line.startswith("warning: force on a has not settled")
    assert settling_warnings("force on a", rising[:11].tolist()) == []


def test_a_run_tells_that_its_force_has_not_settled(tmp_path):
    simulation = _simulation(
        fluid={"density": 1.0, "viscosity": 1e-2},
        boundaries=_boundaries(x_low={"pressure": 1.0}),
        time={"scheme": "bdf2", "time_step": 0.5, "end": 7.0},
        forces=[{"name": "walls", "boundaries": ["y_low", "y_high"]}],
    )
    out = tmp_path / "out"
    notices = simulation.run(out=out)["notices"]
    assert any("force on walls has not settled" in line for line in notices)
    assert json.loads((out / "summary.json").read_text())["notices"] == notices


@pytest.mark.parametrize(
    ("moving", "warned"),
    [
        ({"velocity": [1.0, 0.0, 0.0]}, False),
        ({"velocity": [1.0, 0.5, 0.0]}, True),
        # About an axis across the wall, and along it.
        ({"rotation": [0.0, 1.0, 0.0]}, False),
        ({"rotation": [0.0, 0.0, 1.0]}, True),
    ],
)
def test_a_moving_wall_that_leaves_its_surface_gets_a_warning(moving, warned):
    boundaries = {**_WALLS, "y_high": {"moving": moving}, "x_low": "no-slip", "x_high": "open"}
    warnings = [line for line in _warnings(_simulation(boundaries=boundaries)) if "moving" in line]
    assert [line.partition(" %")[2][:14] for line in warnings] == [" of the motion"] * warned
    assert all(line.startswith("warning: flow.boundaries.y_high.moving: ") for line in warnings)
