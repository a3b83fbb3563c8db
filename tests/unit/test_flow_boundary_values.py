"""Claims about what is given on the boundaries of a flow, and the forces on them."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import cylinder_channel, tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundary_integrals import force_and_moment
from haloscope.solvers.flow.conditions import (
    BoundaryValues,
    NoFlow,
    OutsidePressure,
    Velocity,
)
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings

SIDES = ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")


class Flow:
    """A steady flow in a mesh, from rest."""

    def __init__(self, make, medium, conditions, threads=2, **settings):
        world, device = World(), CpuDevice(threads=threads)
        self.part, _ = node_part_on_ranks(world, make)
        self.shared = SharedNodes(world, device, self.part.node_numbers)
        rows = BlockRows(device, pattern_of(device, self.part.tets, len(self.part.nodes)), 4)
        self.equations = FlowEquations(rows, self.part.nodes, [medium])
        self.boundary_values = BoundaryValues(self.part, self.shared, conditions)
        self.newton = Newton(
            self.equations, self.shared, BlockIlu(rows, self.shared), NewtonSettings(**settings)
        )
        self.state, self.past = rows.vector(), np.zeros(3 * rows.nodes)

    def solve(self):
        self.equations.set_time(0.0, 0.0)
        self.state[self.boundary_values.numbers] = self.boundary_values.values(0.0)
        self.newton.solve(
            self.state, self.past, self.boundary_values.numbers, self.boundary_values.loads(0.0)
        )
        return self.state.reshape(-1, 4)

    def force(self, name, centre=(0.0, 0.0, 0.0)):
        return force_and_moment(
            *(self.equations, self.shared, self.state, self.past),
            *(self.part.nodes, self.boundary_values.nodes[name], centre),
        )


def test_an_outside_pressure_holds_a_fluid_at_rest():
    conditions = {side: Velocity() for side in SIDES} | {"x_high": OutsidePressure(7.0)}
    flow = Flow(
        lambda: tet_box((3, 2, 2), (0, 0, 0), (1.0, 0.5, 0.5)),
        Medium(1.2, 0.3),
        conditions,
        iterations=6,
        linear_tolerance=1e-8,
    )
    state = flow.solve()
    assert flow.boundary_values.has_pressure
    assert np.abs(state[:, :3]).max() < 1e-9
    assert state[:, 3] == pytest.approx(7.0, rel=1e-8)
    # It pushes the opposite wall outward, evenly about its middle.
    force, moment = flow.force("x_low", (0.0, 0.25, 0.25))
    assert force[0] == pytest.approx(-7.0 * 0.25, rel=1e-9)
    assert np.abs(moment[1:]).max() < 1e-9


def test_where_boundaries_meet_walls_rule_over_inlets_and_these_over_symmetry():
    conditions = {
        **{side: Velocity() for side in SIDES},
        "x_low": Velocity(lambda x, t: np.tile([1.0 + t, 2.0, 3.0], (len(x), 1))),
        "x_high": OutsidePressure(),
        "z_low": NoFlow(2),
        "z_high": NoFlow(2),
    }
    flow = Flow(lambda: tet_box((2, 2, 2), (0, 0, 0), (1, 1, 1)), Medium(1.0, 1.0), conditions)
    numbers, values = flow.boundary_values.numbers, flow.boundary_values.values(0.5)
    value_of = dict(zip(numbers.tolist(), values.tolist(), strict=True))
    x, y, z = flow.part.nodes.T
    for node in range(len(x)):
        have = [value_of.get(4 * node + axis) for axis in range(4)]
        if y[node] in (0, 1):
            assert have == [0, 0, 0, None]
        elif x[node] == 0:
            assert have == [1.5, 2, 3, None]
        elif z[node] in (0, 1):
            assert have == [None, None, 0, None]
        else:
            assert have == [None] * 4
    flow.boundary_values.fix_pressure(3)
    assert len(flow.boundary_values.numbers) == len(numbers) + 1


def test_a_cylinder_in_a_channel_is_dragged_as_published():
    """DFG benchmark 3D-1Z: M. Schaefer, S. Turek, Notes Numer. Fluid Mech. 52 (1996) 547."""
    height, fastest, viscosity = 0.41, 0.45, 1e-3

    def inflow(x, time):
        y, z = x[:, 1], x[:, 2]
        along = 16 * fastest * y * z * (height - y) * (height - z) / height**4
        return np.stack([along, 0 * along, 0 * along], axis=1)

    flow = Flow(
        lambda: cylinder_channel(6),
        Medium(1.0, viscosity),
        {
            "inlet": Velocity(inflow),
            "outlet": OutsidePressure(),
            "walls": Velocity(),
            "cylinder": Velocity(),
        },
        iterations=8,
        tolerance=1e-6,
        restart=80,
    )
    flow.solve()
    force, _ = flow.force("cylinder")
    mean, diameter = 4 / 9 * fastest, 0.1
    coefficients = 2 * force / (mean**2 * diameter * height)
    # 6.185 and 0.0094; the mesh is coarse.
    assert coefficients[0] == pytest.approx(6.185, rel=0.12)
    assert abs(coefficients[1]) < 0.05
    assert abs(coefficients[2]) < 1e-3
