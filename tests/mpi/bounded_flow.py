"""A small flow with conditions at its boundaries, on any number of ranks, for tests of these."""

from __future__ import annotations

import numpy as np

from haloscope.device.cpu import CpuDevice
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundary_equations import BoundaryConditions
from haloscope.solvers.flow.conditions import BoundaryValues
from haloscope.solvers.flow.equations.equations import FlowEquations
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings

ROTATION = np.linalg.qr(np.array([[2.0, 1, 3], [-1, 4, 1], [1, -2, 5]]))[0]
ROTATION = ROTATION * np.sign(np.linalg.det(ROTATION))


def turned(x):
    """Points or vectors (n, 3) in axes of another direction."""
    return x @ ROTATION.T


def turned_back(x):
    return x @ ROTATION


class BoundedFlow:
    """Equations, conditions and Newton's method on a mesh; `media` by zone."""

    def __init__(
        self,
        world,
        make,
        media,
        conditions,
        *,
        preconditioner=PointBlocks,
        lsic=True,
        **settings,
    ):
        self.device = CpuDevice(threads=1)
        self.part, _ = node_part_on_ranks(world, make)
        self.x = self.part.nodes
        self.shared = SharedNodes(world, self.device, self.part.node_numbers)
        rows = BlockRows(self.device, pattern_of(self.device, self.part.tets, len(self.x)), 4)
        zones = self.part.zones if len(media) > 1 else None
        self.flow = FlowEquations(rows, self.x, media, zones, lsic=lsic)
        self.boundary_values = BoundaryValues(self.part, self.shared, conditions)
        if not self.boundary_values.has_pressure:
            self.boundary_values.fix_pressure()
        self.conditions = BoundaryConditions(
            self.flow, self.part, self.shared, self.boundary_values
        )
        self.newton = Newton(
            self.conditions.equations,
            self.shared,
            preconditioner(rows, self.shared),
            NewtonSettings(**settings),
            product=self.conditions.product,
        )
        self.state = rows.vector()

    def steady(self):
        """Solve for the steady state; velocities and pressures, (nodes, 4)."""
        self.flow.set_time(0.0, 0.0)
        self.state[self.boundary_values.numbers] = self.boundary_values.values(0.0)
        self.conditions.enforce(self.state)
        past = np.zeros(3 * len(self.x))
        self.history = self.newton.solve(
            self.state, past, self.boundary_values.numbers, self.boundary_values.loads(0.0)
        )
        return self.state.reshape(-1, 4)

    def advance(self, steps, time_step, count, start=0):
        """Take steps from number `start` on, with what is given at their times."""
        for number in range(start, start + count):
            level = steps.level
            self.conditions.resistances.begin(level * time_step)
            values = self.boundary_values.values((number + 1) * time_step)
            loads = self.boundary_values.loads((number + level) * time_step)
            self.history = steps.step(self.boundary_values.numbers, values, loads)
            self.conditions.resistances.end(time_step, steps.state)
        return steps.state.reshape(-1, 4)

    def mean_square(self, values, exact, moved=False):
        """Relative error in the mean square by the nodes' shares of volume."""
        share = np.zeros(len(self.x))
        x = self.x[self.part.tets]
        volumes = np.linalg.det(x[:, 1:] - x[:, :1]) / 24
        for corner in range(4):
            np.add.at(share, self.part.tets[:, corner], volumes)
        values, exact = (np.asarray(v).reshape(len(self.x), -1) for v in (values, exact))
        if moved:
            values = values - share @ (values - exact) / share.sum()
        wrong = share @ ((values - exact) ** 2).sum(axis=1)
        return float(np.sqrt(wrong / (share @ (exact**2).sum(axis=1))))
