"""The flow equations with all boundary terms, ready for Newton's method."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Array
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.numerics.krylov.flexible_gmres import Product
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.solvers.flow.boundaries.conditions import (
    BoundaryValues,
    OutsidePressure,
    Resistance,
    Slip,
    Traction,
)
from haloscope.solvers.flow.boundaries.integrals import BoundaryAreas, Floats, boundary_areas
from haloscope.solvers.flow.boundaries.outlets import (
    CoupledProduct,
    Equations,
    LoadedEquations,
    Outlet,
    Resistances,
    Windkessel,
)
from haloscope.solvers.flow.boundaries.slip import SlipEquations, SlipNodes, find_slip
from haloscope.solvers.flow.equations.equations import UNKNOWNS, FlowEquations


class BoundaryConditions:
    """The equations with boundary conditions; all ranks make one together."""

    # `begin` and `end` enclose a step in time: UnsteadySteps.advance of steps.py. Terms that depend on
    # the state at an outlet's nodes belong in LoadedEquations, those that are fixed in
    # BoundaryValues.loads.

    def __init__(
        self,
        equations: FlowEquations,
        part: NodePart,
        shared: SharedNodes,
        boundary_values: BoundaryValues,
    ) -> None:
        conditions, self._shared = boundary_values.conditions, shared
        # Of boundaries by name.
        self.areas = {name: boundary_areas(part, shared, name) for name in part.boundaries}
        count = len(part.nodes)
        fixed = np.zeros((count, UNKNOWNS), bool)
        fixed.ravel()[boundary_values.numbers] = True
        # Where velocities keep to some directions.
        self.slip = find_slip(
            part,
            shared,
            [name for name, one in conditions.items() if isinstance(one, Slip)],
            [
                name
                for name, one in conditions.items()
                if isinstance(one, (OutsidePressure, Resistance)) and one.straight
            ],
            fixed[:, :3],
        )
        outlets = [
            Outlet(
                self.areas[name],
                _left(self.areas[name], fixed, self.slip, count),
                Windkessel(condition),
            )
            for name, condition in conditions.items()
            if isinstance(condition, Resistance)
        ]
        self.resistances = Resistances(shared, outlets)  # Outlets with one
        pushes = self._pushes(equations, part, boundary_values)
        nodes = np.flatnonzero(pushes.any(axis=1) & shared.owned)
        # The same without slip: their residuals are the forces of walls.
        self.reactions: Equations = equations
        if outlets or shared.world.any(bool(len(nodes))):
            self.reactions = LoadedEquations(equations, nodes, pushes[nodes], self.resistances)
        self.equations: Equations = self.reactions
        self._slipping: SlipEquations | None = None
        if shared.world.any(bool(len(self.slip.nodes))):
            self._slipping = SlipEquations(self.reactions, part.nodes, shared, self.slip)
            self.equations = self._slipping

    def _pushes(
        self, equations: FlowEquations, part: NodePart, boundary_values: BoundaryValues
    ) -> Floats:
        """Backflow factor times density times share of area, of all nodes, complete, (nodes, 3)."""
        pushes = np.zeros((len(part.nodes), 3))
        for name, condition in boundary_values.conditions.items():
            if not isinstance(condition, (OutsidePressure, Traction, Resistance)):
                continue
            if condition.backflow:
                areas = self.areas[name]
                pushes[areas.nodes] += condition.backflow * areas.vectors
        return pushes * self._densities(equations, part)[:, None]

    def _densities(self, equations: FlowEquations, part: NodePart) -> Floats:
        """Mean density of the elements around each node in kg/m^3, all ranks', (nodes,)."""
        densities = np.array([medium.density for medium in equations.media])
        of_elements = densities[part.zones if len(densities) > 1 else np.zeros_like(part.zones)]
        sums = np.zeros((len(part.nodes), UNKNOWNS))
        for corner in range(part.tets.shape[1]):
            np.add.at(sums[:, 0], part.tets[:, corner], of_elements)
            np.add.at(sums[:, 1], part.tets[:, corner], 1.0)
        if not self._shared.alone:
            device = self._shared.device
            sent = device.from_host(sums.ravel())
            self._shared.sums(UNKNOWNS).swap(sent)
            sums = device.to_host(sent).reshape(-1, UNKNOWNS)
        return np.asarray(sums[:, 0] / sums[:, 1])

    @property
    def product(self) -> Product | None:
        """Product for Newton's method in place of the matrix alone, if any."""
        if not len(self.resistances):
            return None
        return CoupledProduct(SharedProduct(self.equations.rows, self._shared), self.resistances)

    def enforce(self, state: Array) -> None:
        """Take out of a state what passes walls with slip: before the first step."""
        if self._slipping is not None:
            self._slipping.enforce(state)

    def begin(self, span: float) -> None:
        """Prepare a step whose equations hold `span` seconds after the end of the last one."""
        self.resistances.begin(span)

    def end(self, time_step: float, state: Array) -> None:
        """Take what a step led to."""
        self.resistances.end(time_step, state)


def _left(areas: BoundaryAreas, fixed: np.ndarray, slip: SlipNodes, count: int) -> Floats:
    """Shares of an outlet's area in the equations that are left, (outlet's nodes, 3)."""
    whole = np.zeros((count, 3))
    whole[areas.nodes] = areas.vectors
    whole[slip.nodes] = np.einsum("nij,nj->ni", slip.projectors, whole[slip.nodes])
    whole[fixed[:, :3]] = 0.0
    return whole[areas.nodes]
