"""Claims about the flows that runs find: shear, what comes in and goes out, rotation, steady states."""

from __future__ import annotations

import math

import h5py
import pytest
from short_channels import STEPS, WALLS, channel, opened

from haloscope.case.tables import check
from haloscope.run import Simulation
from haloscope.solvers.flow.case import FlowCase


def test_shear_of_a_plane_flow_is_that_of_a_parabola(tmp_path):
    parabola = {"velocity": ["4*y*(1-y)", 0.0, 0.0]}
    walls = {"y_low": "no-slip", "y_high": "no-slip", "z_low": "slip", "z_high": "slip"}
    data = channel(
        box={"cells": [4, 12, 2], "upper": [1.0, 1.0, 0.5]},
        boundaries={**walls, "x_low": parabola, "x_high": {"velocity": ["4*y*(1-y)", 0.0, 0.0]}},
        pressure_at=[0.0, 0.0, 0.0],
        shear={"thresholds": [1.0], "stagnation_speed": 0.5},
        forces=[],
    )
    summary = opened(data).run(out=tmp_path, ceilings=False)
    # mu du/dy = 0.5 * 4 (1 - 2 y): half of the volume has less than 1 Pa.
    shear = summary["shear"]
    assert shear["largest_wall_shear"]["y_low"] == pytest.approx(2.0, rel=0.1)
    assert shear["volume_shares_of_shear_stress"]["volume"] == pytest.approx([0.5, 0.5], abs=0.05)
    assert shear["stagnation"]["volume"] == pytest.approx(1 - math.sqrt(0.5), abs=0.06)
    with h5py.File(tmp_path / "shear.vtkhdf") as file:
        points = file["VTKHDF/Points"][:]
        pull = file["VTKHDF/PointData/wall_shear"][:]
    inner = (points[:, 1] == 0.0) & (points[:, 0] > 0.3) & (points[:, 0] < 0.7)
    assert pull[inner, 0] == pytest.approx(2.0, rel=0.15)
    assert (pull[(points[:, 1] > 0.01) & (points[:, 1] < 0.99)] == 0.0).all()


def test_flow_that_comes_in_follows_its_signal(tmp_path):
    signal = tmp_path / "pulse.csv"
    signal.write_text("time,factor\n0.0,0.0\n0.2,1.0\n0.4,0.5\n")
    inlet = {"flow_rate": "2 + t", "signal": str(signal), "profile": "developed"}
    boundaries = {**WALLS, "x_low": inlet, "x_high": {"pressure": "10*t", "backflow": 0.5}}
    simulation = opened(channel(boundaries=boundaries, time=STEPS))
    for step, factor in ((1, 0.5), (2, 1.0), (3, 0.75)):
        simulation.run(step, ceilings=False)
        openings = simulation.solver.results.openings(simulation.solver.state)
        expected = -(2 + 0.1 * step) * factor
        assert openings["x_low"]["flow_rate"] == pytest.approx(expected, rel=1e-12)
        assert openings["x_high"]["flow_rate"] == pytest.approx(-expected, rel=2e-2)


def test_a_resistance_raises_the_pressure_with_what_flows_out():
    openings = []
    for outlet in ("open", {"resistance": {"proximal": 50.0, "outside": 7.0}}):
        boundaries = {**WALLS, "x_low": {"speed": 1.0}, "x_high": outlet}
        simulation = opened(channel(boundaries=boundaries))
        assert simulation.run(ceilings=False)["converged"]
        openings.append(simulation.solver.results.openings(simulation.solver.state))
    free, held = openings
    raised = 7.0 + 50.0 * held["x_high"]["flow_rate"]
    assert raised == pytest.approx(57.0, rel=1e-2)
    for name in ("x_low", "x_high"):
        assert held[name]["pressure"] - free[name]["pressure"] == pytest.approx(raised, rel=1e-6)


def test_what_turns_with_its_walls_and_its_frame_is_a_solid_rotation():
    turning = {"moving": {"rotation": [0.0, 0.0, 2.0], "centre": [0.5, 0.5, 0.0]}}
    sides = ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")
    data = channel(
        box={"cells": [3, 3, 3]},
        boundaries=dict.fromkeys(sides, turning),
        zones={"volume": {"rotation": [0.0, 0.0, 2.0], "centre": [0.5, 0.5, 0.0]}},
        pressure_at=[0.5, 0.5, 0.5],
        forces=[],
    )
    simulation = opened(data, run={"tolerance": 1e-9})
    simulation.run(ceilings=False)
    part = simulation.solver.system.part
    own = simulation.solver.layout.own_nodes
    x, y, _ = part.nodes[own].T
    # The pressure is a parabola, which linear elements miss a little.
    assert simulation.field("u") == pytest.approx(-2.0 * (y - 0.5), abs=5e-3)
    assert simulation.field("v") == pytest.approx(2.0 * (x - 0.5), abs=5e-3)
    assert simulation.field("w") == pytest.approx(0.0, abs=5e-3)


def test_steady_flow_that_starts_from_its_solution_is_found_at_once():
    """Its residual is rounding from the start, and cannot fall any more."""
    wall = {"moving": {"velocity": [1.0, 0.0, 0.0]}}
    shear = {"velocity": ["y", 0.0, 0.0]}
    data = {
        "solver": "flow",
        "flow": {
            "box": {"cells": [3, 3, 3]},
            "fluid": {"density": 1.0, "viscosity": 0.1},
            "boundaries": {
                "x_low": shear,
                "x_high": shear,
                "y_low": "no-slip",
                "y_high": wall,
                **dict.fromkeys(("z_low", "z_high"), "slip"),
            },
            "pressure_at": [0.0, 0.0, 0.0],
        },
        "run": {"steps": 10},
    }
    residuals = {}
    for start in ("y", "y + 0.01*sin(pi*x)*sin(pi*y)", "0"):
        data["flow"]["initial"] = {"u": start}
        simulation = Simulation(check(data, FlowCase, "case"), name="shear", device="cpu")
        assert simulation.run(ceilings=False)["converged"]
        rows = simulation.solver.results.newton_rows
        residuals[start] = [row[3] for row in rows if row[2] == 0] + [rows[-1][3]]
    # From elsewhere it falls as far as it was asked to, however near that is.
    exact, near, rest = residuals.values()
    assert len(exact) == 2 < len(near)
    assert exact[0] < 1e-12 * rest[0]
    assert near[-1] < 1e-8 * near[0]


def test_steady_flow_from_rest_needs_pseudo_time_at_a_high_reynolds_number():
    sides = ("x_low", "x_high", "y_low", "z_low", "z_high")
    lid = {"y_high": {"moving": {"velocity": [1.0, 0.0, 0.0]}}}
    data = channel(
        box={"cells": [6, 6, 6], "to_walls": 0.5},
        fluid={"density": 1.0, "viscosity": 1e-3},
        boundaries={**dict.fromkeys(sides, "no-slip"), **lid},
        pressure_at=[0.0, 0.0, 0.0],
        forces=[],
        time={"pseudo_time_step": 0.5},
    )
    simulation = opened(data, run={"steps": 40, "tolerance": 1e-6})
    assert simulation.run(ceilings=False)["converged"]
    assert simulation.diagnostics()["largest_speed"] == pytest.approx(1.0)
    assert math.isfinite(simulation.diagnostics()["kinetic_energy"])
