"""Checks the runs that verify the blood solver: on coarse lattices, and that wrong physics fails."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

from haloscope.checks.verify import select, solve_with
from haloscope.device.cpu import CpuDevice
from haloscope.run.state import Silent
from haloscope.solvers.blood import checks
from haloscope.solvers.blood.coupling.coupling import KERNELS
from haloscope.solvers.blood.verification import flows, single_cells
from haloscope.solvers.blood.verification.flows import error_of_layers

CORE = CpuDevice(threads=1)


def solve(data):
    return solve_with("cpu", Silent())({**data, "machine": {"threads": 1}})


def test_every_check_has_its_own_name_and_quick_ones_come_first_to_hand():
    names = [check.name for check in checks.CHECKS]
    assert len(set(names)) == len(names)
    assert set(select(["blood"], slow=True)) == set(checks.CHECKS)
    slow = {check.name for check in checks.CHECKS if check.slow}
    assert slow >= {"blood-viscosity-10um", "blood-viscosity-20um", "blood-tank-treading"}


def test_pulsating_flow_obeys_its_equation():
    y, h = np.linspace(0.0, 1.0, 201), 1e-3
    arguments = (1.0, 3.0, 0.4, 1.7, 0.9)
    before, now, after = (
        flows.pulsating_between_plates(y, t, *arguments) for t in (0.3 - h, 0.3, 0.3 + h)
    )
    drive = 3.0 * math.cos(2 * math.pi * 0.9 * 0.3)
    bent = np.diff(now, 2) / np.diff(y)[0] ** 2
    missed = 1.7 * (after - before)[1:-1] / (2 * h) - drive - 0.4 * bent
    assert np.abs(missed).max() < 1e-3
    assert np.abs(now[[0, -1]]).max() < 1e-15


def test_tank_treading_of_a_sphere_is_rigid_rotation():
    assert flows.tank_treading(1.0, 1.0) == pytest.approx((math.pi / 4, 1 / (4 * math.pi)))
    angle, turns = flows.tank_treading(2.0, 1.0)
    assert (angle, turns) == pytest.approx((math.atan(0.5), 0.2 / math.pi))


def test_channels_are_exact_and_another_magic_number_is_not():
    assert flows.channel_error(5, solve) < 1e-12
    assert flows.channel_error(5, solve, magic=0.25) > 1e-3
    assert flows.couette_error(5, solve) < 1e-12


def test_tubes_are_better_with_walls_where_they_are():
    interpolated, halfway = (
        flows.tube_error(8, walls, solve) for walls in ("interpolated", "halfway")
    )
    assert interpolated < 0.01 < 0.03 < halfway


def test_pulsating_and_open_channels_follow_the_exact_flow(monkeypatch):
    assert flows.pulsating_error(8, solve) < 0.015
    error, fall = flows.open_channel(6, solve)
    assert error < 0.02
    assert fall == pytest.approx(1.0, abs=0.02)
    # With a gradient half as steep the same run fails.
    right = flows.pulsating_between_plates
    monkeypatch.setattr(flows, "pulsating_between_plates", lambda *a: 0.5 * right(*a))
    assert flows.pulsating_error(8, solve) > 0.5


def test_drag_on_spheres_is_as_published_and_that_on_half_of_them_is_not():
    published = flows.published()
    assert len(published) == 4
    # Hasimoto's expansion for few spheres: J. Fluid Mech. 5 (1959) 317.
    c = 0.027
    dilute = 1 / (1 - 1.7601 * c ** (1 / 3) + c - 1.5593 * c**2)
    assert published[c] == pytest.approx(dilute, rel=2e-3)
    drag = flows.sphere_drag(CORE, 0.216, 12)
    assert drag == pytest.approx(published[0.216], rel=0.1)
    assert flows.sphere_drag(CORE, 0.125, 12) < 0.65 * drag


@pytest.mark.parametrize("ratio", [5.0, 0.2])
def test_layers_flow_as_viscous_as_they_are_and_not_as_others(ratio, monkeypatch):
    assert error_of_layers(CORE, ratio, 8) < 1e-11
    right = flows.layers
    monkeypatch.setattr(flows, "layers", lambda *a: right(*a[:-1], 1.1 * a[-1]))
    assert error_of_layers(CORE, ratio, 8) > 1e-3


def test_forces_that_are_not_spread_are_missed():
    simulation = solve(single_cells.pulled_cell())
    assert single_cells.missed_in_a_run(simulation) < 1e-14
    for kernel in KERNELS:
        assert 0 <= max(single_cells.missed_with(simulation, kernel)) < 1e-14
    simulation.solver.fluid.force[:] *= 1 + 1e-3
    simulation.solver.fluid.force[0, 0] += 1e-3
    assert single_cells.missed_in_a_run(simulation) > 1e-8


def test_a_soft_capsule_is_strained_with_the_fluid():
    flow = single_cells.capsule(
        "neo-hookean", 200.0, 4.0, box=(6.0, 6.0, 5.0), reynolds=0.05, strain=0.6
    )
    simulation = solve(flow.case)
    shape = single_cells.shape_of(simulation)
    # A sphere in homogeneous simple shear: its longest axis grows as L - 1/L = strain.
    assert shape.deformation == pytest.approx(0.6 / math.hypot(2, 0.6), rel=0.02)
    assert shape.volume == pytest.approx(single_cells.volume_at_rest(4.0), rel=0.005)
    assert 0 < shape.angle < 0.25
    stiff = single_cells.capsule(
        "skalak", 0.05, 4.0, box=(6.0, 6.0, 5.0), reynolds=0.05, strain=0.6
    )
    assert single_cells.shape_of(solve(stiff.case)).deformation < 0.6 * shape.deformation


def test_membranes_that_turn_are_timed(monkeypatch):
    """A rigid ellipse of points that goes around once in 10 units of strain."""
    flow = single_cells.capsule("skalak", 0.1, 4.0)
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)

    class Solver:
        strain = 0.0

        def advance(self, steps):
            self.strain += steps / flow.steps(1.0)

    def vertices(solver):
        at = angle - 2 * np.pi * solver.strain / 10
        return np.stack([2 * np.cos(at), np.sin(at), 0 * at], axis=1)

    monkeypatch.setattr(single_cells, "_vertices", vertices)
    monkeypatch.setattr(single_cells, "shape_of", lambda simulation: None)
    turning = single_cells.turning(flow, SimpleNamespace(solver=Solver()), 20.0)
    assert turning.turns == pytest.approx(0.1, rel=0.01)
    with refused(
        single_cells.SolutionError,
        problem="less than half a revolution at a strain of 4",
        remedy="higher shear rate",
    ):
        single_cells.turning(flow, SimpleNamespace(solver=Solver()), 4.0)


def test_values_that_fall_with_the_spacing_are_followed_to_their_limit():
    resolutions = (6.0, 9.0)
    assert single_cells.at_no_spacing(resolutions, [3 + 2 / r for r in resolutions]) == (
        pytest.approx(3.0)
    )


def test_stretched_cells_outside_the_measured_range_fail(monkeypatch):
    true = single_cells.measured()
    axial, transverse = (
        np.mean(ranges, axis=0) for ranges in (true.axial_range, true.transverse_range)
    )

    def pulled(factor):
        shapes = SimpleNamespace(axial=factor * axial, transverse=transverse)
        monkeypatch.setattr(single_cells, "stretch", lambda *_: shapes)
        return [comparison.ok for comparison in checks.stretching_check(solve).values()]

    assert all(pulled(1.0))
    assert len(pulled(1.0)) == 18
    assert not all(pulled(1.2))
