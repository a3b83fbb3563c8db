"""The flow equations with all boundary terms: open ends whose load depends on the flow, slip walls, all together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel
from haloscope.device.targets import KernelFile
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import area_vectors
from haloscope.numerics.krylov.flexible_gmres import Product
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.solvers.flow.boundary_integrals import (
    BoundaryAreas,
    Floats,
    boundary_areas,
    exact_sums,
)
from haloscope.solvers.flow.conditions import (
    BoundaryValues,
    OutsidePressure,
    Resistance,
    Slip,
    Traction,
)
from haloscope.solvers.flow.equations.equations import UNKNOWNS, Equations, FlowEquations
from haloscope.solvers.windkessel import Windkessel


class Outlet:
    """One end with a resistance.

    `acts`: what a pressure of 1 Pa adds to the equations of its nodes, those that are left after what
    is given and slip, like `areas.vectors`; `law`: its pressure.
    """

    def __init__(self, device: Device, areas: BoundaryAreas, acts: Floats, law: Windkessel) -> None:
        self.law, places = law, UNKNOWNS * areas.nodes[:, None] + np.arange(3)
        # Velocities that this rank counts in sums, and their shares of area.
        self.counted = places[areas.counted].ravel()
        self.shares = areas.vectors[areas.counted].ravel()
        arrays = (places, areas.own, acts)
        self.at, self.own, self.acts = (device.from_host(one.ravel()) for one in arrays)


class Resistances:
    """All outlets with a resistance; all ranks make one together, and call it together."""

    def __init__(self, shared: SharedNodes, outlets: Sequence[Outlet]) -> None:
        self.outlets, self._shared = tuple(outlets), shared
        counted = [np.empty(0, np.int64), *(one.counted for one in outlets)]
        self._counted = shared.device.from_host(np.concatenate(counted))
        # Shares of area that belong to the counted velocities, a column for each outlet.
        self._columns = np.zeros((sum(map(len, counted)), len(outlets)))
        begin = 0
        for number, one in enumerate(outlets):
            self._columns[begin : begin + len(one.shares), number] = one.shares
            begin += len(one.shares)

    def flows(self, vector: Array) -> list[tuple[Outlet, float]]:
        """Outlets, and flow rates of a vector of unknowns through them."""
        if not self.outlets:
            return []
        taken = self._shared.device.to_host(vector[self._counted])
        rates = exact_sums(self._shared.world, self._columns * taken[:, None])
        return list(zip(self.outlets, rates.tolist(), strict=True))

    def add_to(self, state: Array, residual: Array) -> None:
        """Add the pressures at a state to the residual of own elements."""
        for one, flow in self.flows(state):
            residual[one.at] += (one.law.offset + one.law.resistance * flow) * one.own

    def begin(self, span: float) -> None:
        """Prepare pressures for equations that hold `span` seconds after the last step's end."""
        for one in self.outlets:
            one.law.begin(span)

    def end(self, time_step: float, state: Array) -> None:
        """Take the flow rates at the end of a step."""
        for one, flow in self.flows(state):
            one.law.end(time_step, flow)


class CoupledProduct:
    """``y = A x + sum over outlets of resistance (b.x) b``: Newton's matrix with all derivatives.

    A preconditioner of A alone does: each outlet adds one direction, found by one iteration more.
    """

    def __init__(self, product: Product, resistances: Resistances) -> None:
        self._product, self._resistances = product, resistances

    def __call__(self, x: Array, y: Array) -> None:
        """Multiply, as :class:`haloscope.numerics.shared_nodes.SharedProduct` does."""
        self._product(x, y)
        for one, flow in self._resistances.flows(x):
            y[one.at] += one.law.resistance * flow * one.acts


_SOURCE = Path(__file__).with_name("boundaries.cpp")


def kernel_file() -> KernelFile:
    """Kernels of outlets and of slip."""
    return KernelFile(_SOURCE, {})


class _Extended(Equations):
    """Equations with terms beside those of other ones."""

    def __init__(self, inner: Equations) -> None:
        self.device, self.rows, self._inner = inner.device, inner.rows, inner

    def _kernel(self, name: str) -> Kernel:
        source, constants = kernel_file()
        return self.device.kernel(source, name, constants)

    def set_time(self, alpha: float, by_dt: float) -> None:
        """See :class:`Equations`."""
        self._inner.set_time(alpha, by_dt)

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """See :class:`Equations`."""
        self._inner.residual(state, past, residual)
        self._add(state, residual)

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """See :class:`Equations`."""
        self._inner.linearise(state, past, residual)
        self._add(state, residual)
        self._add_derivatives(state)

    @abstractmethod
    def _add(self, state: Array, residual: Array) -> None: ...

    @abstractmethod
    def _add_derivatives(self, state: Array) -> None: ...


class LoadedEquations(_Extended):
    """Equations with terms of open ends; all ranks make one together, and call it together.

    `nodes`, `pushes`: own nodes that this rank owns on outlets with stabilisation, and b rho times
    their shares of outward area in kg/m, (nodes, 3).
    """

    # Where fluid enters through an outlet, an outside pressure alone lets its kinetic energy grow
    # without limit. The stress b rho (u.n)_- u, with (u.n)_- the velocity if it is inward, takes
    # out what enters if b is 1/2 or more (M. Esmaily Moghadam and others, Comput. Mech. 48 (2011)
    # 277, eq. 8). Its integral is a sum over nodes here, each with its share of the area.
    #
    # Derivatives by velocities at the same node go to the matrix; those of resistances, which join
    # all nodes of an outlet, are added in products:
    # :class:`haloscope.solvers.flow.boundary_equations.CoupledProduct`.

    def __init__(
        self,
        equations: Equations,
        nodes: NDArray[np.integer],
        pushes: Floats,
        resistances: Resistances,
    ) -> None:
        super().__init__(equations)
        self._resistances, self._count = resistances, len(nodes)
        self._nodes = {
            "extent": (len(nodes),),
            "nodes": self.device.from_host(np.asarray(nodes, np.int32)),
            "pushes": self.device.from_host(np.ascontiguousarray(pushes, np.float64).ravel()),
            "count": len(nodes),
        }
        self._backflow = self._kernel("add_backflow")
        self._derivatives = self._kernel("add_backflow_derivatives")

    def _add(self, state: Array, residual: Array) -> None:
        self._resistances.add_to(state, residual)
        if self._count:
            self._backflow.bind(**self._nodes, q=state, R=residual)()

    def _add_derivatives(self, state: Array) -> None:
        if self._count:
            rows = self.rows
            self._derivatives.bind(**self._nodes, q=state, diagonal=rows.diagonal, A=rows.values)()


# Walls that turn by more than twice asin(sqrt(1/5)), 53 degrees, meet in an edge.
_EDGE = 0.25
_LEAST_PART = 0.1


@dataclass(frozen=True)
class SlipNodes:
    """Where velocities keep to some directions."""

    nodes: NDArray[np.int64]  # Of this rank, (nodes,)
    projectors: Floats  # On the open directions, symmetric, (nodes, 3, 3)
    walls: NDArray[np.int64]  # Own triangles of walls without friction, (triangles, 3)


def find_slip(
    part: NodePart,
    shared: SharedNodes,
    walls: Sequence[str],
    straight: Sequence[str],
    fixed: NDArray[np.bool_],
) -> SlipNodes:
    """Find the open directions of the nodes on walls without friction; all ranks call this together."""
    # The normal of a node is the mean of its triangles' by their angles there, so that neither
    # their sizes nor how quadrangles were cut tilts it (G. Thuermer, C. A. Wuethrich, J. Graph.
    # Tools 3 (1998) 43). Where walls meet in an edge the velocity keeps to the edge, and in a
    # corner it is zero. Edges are told by the tensor of the triangles' normals, likewise by angles.
    count = len(part.nodes)
    tensors, normals = np.zeros((count, 3, 3)), np.zeros((count, 3))
    open_end = np.zeros(count, bool)
    for name in walls:
        tensor, normal = _shape(part, shared, name)
        # On the smooth inside of a wall one normal stands for all.
        values = np.linalg.eigvalsh(tensor)
        length = np.linalg.norm(normal, axis=1)
        angle = np.einsum("nii->n", tensor)
        smooth = (length > _LEAST_PART * angle) & (values[:, 1] <= _EDGE * values[:, 2])
        unit = normal[smooth] / length[smooth, None]
        tensor[smooth] = np.einsum("n,ni,nj->nij", angle[smooth], unit, unit)
        tensors += tensor
        normals += normal
    for name in straight:
        tensor, _ = _shape(part, shared, name)
        angle = np.einsum("nii->n", tensor)
        # At the rim of an end the triangles of a curved wall lean inwards or outwards: the end rules.
        tensors[(angle > 0) & ~open_end] = 0.0
        tensors += angle[:, None, None] * np.eye(3) - tensor
        open_end |= angle > 0
    nodes = np.flatnonzero((np.einsum("nii->n", tensors) > 0) & ~fixed.all(axis=1))
    free = np.asarray(~fixed[nodes], np.float64)
    largest = np.linalg.eigvalsh(tensors[nodes])[:, 2]
    values, directions = np.linalg.eigh(tensors[nodes] * free[:, :, None] * free[:, None, :])
    barred = values > _EDGE * largest[:, None]
    mean = normals[nodes] * free
    length = np.linalg.norm(mean, axis=1)
    one = (barred.sum(axis=1) == 1) & ~open_end[nodes]
    one &= length > _LEAST_PART * np.einsum("nii->n", tensors[nodes])
    directions[one, :, 2] = mean[one] / length[one, None]
    kept = directions * barred[:, None, :]
    projectors = np.eye(3) - np.einsum("nik,njk->nij", kept, kept)
    is_barred = barred.any(axis=1)
    triangles = [part.boundaries[name].astype(np.int64) for name in walls]
    return SlipNodes(
        nodes[is_barred],
        projectors[is_barred],
        np.concatenate([np.empty((0, 3), np.int64), *triangles]),
    )


def _shape(part: NodePart, shared: SharedNodes, name: str) -> tuple[Floats, Floats]:
    """Of each node: sums of unit normals' squares and of unit normals, by angles."""
    triangles = part.boundaries[name].astype(np.int64)
    vectors = area_vectors(part.nodes, triangles)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    six = unit[:, [0, 0, 0, 1, 1, 2]] * unit[:, [0, 1, 2, 1, 2, 2]]
    sums = np.zeros((len(part.nodes), 12))
    for corner in range(3):
        angles = _angles(part.nodes, np.roll(triangles, -corner, axis=1))
        np.add.at(sums[:, :6], triangles[:, corner], angles[:, None] * six)
        np.add.at(sums[:, 6:9], triangles[:, corner], angles[:, None] * unit)
    parts = (sums[:, begin : begin + UNKNOWNS] for begin in range(0, sums.shape[1], UNKNOWNS))
    sums = np.concatenate([shared.summed(part) for part in parts], axis=1)
    return sums[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3), sums[:, 6:9]


def _angles(x: Floats, triangles: NDArray[np.int64]) -> Floats:
    """Angles of triangles at their first corners."""
    a, b = (x[triangles[:, k]] - x[triangles[:, 0]] for k in (1, 2))
    across = np.linalg.norm(np.cross(a, b), axis=1)
    return np.asarray(np.arctan2(across, np.einsum("td,td->t", a, b)))


class SlipEquations(_Extended):
    """Equations of which the parts across walls are replaced by u.n = 0.

    `nodes`: positions in m, (own, 3).
    """

    # Rows are projected, columns stay, as for prescribed velocities: the projection is linear, so
    # each rank projects what its own elements add. A direction along a curved wall is not along its
    # flat triangles; so the fluid's own pressure acts on these, (v, p n), lest a constant pressure
    # pushes (M. S. Engelman, R. L. Sani, P. M. Gresho, Int. J. Numer. Methods Fluids 2 (1982) 225,
    # tilt the normals instead, which costs an order where triangles differ).

    def __init__(
        self, equations: Equations, nodes: Floats, shared: SharedNodes, slip: SlipNodes
    ) -> None:
        super().__init__(equations)
        give = self.device.from_host
        self._count = len(slip.nodes)
        # Arguments of all kernels: where velocities keep to which directions.
        self._slip: dict[str, Any] = {
            "extent": (self._count,),
            "nodes": give(slip.nodes.astype(np.int32)),
            "projectors": give(np.ascontiguousarray(slip.projectors).ravel()),
            "count": self._count,
        }
        starts, blocks, pushes = self._wall_pushes(nodes, slip)
        # Those that the equations' kernels have, too.
        self._terms = {
            **self._slip,
            "ones": give(shared.owned[slip.nodes].astype(np.float64)),
            "push_starts": give(starts),
            "push_blocks": give(blocks),
            "pushes": give(np.ascontiguousarray(pushes).ravel()),
        }
        names = ("slip_residual", "slip_rows", "slip_velocities")
        self._project, self._project_rows, self._enforce = map(self._kernel, names)

    def _wall_pushes(
        self, nodes: Floats, slip: SlipNodes
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """Terms of nodes' pressures in the equations of nodes with slip, by their blocks.

        Where those of each such node start, the numbers of the blocks, and vectors in m^2.
        """
        pattern = self.rows.pattern
        # Integrals of N_a N_b over a triangle are (1 + delta_ab)/12 of its area.
        share = area_vectors(nodes, slip.walls) / 12
        pairs = [(a, b) for a in range(3) for b in range(3)]
        keys = np.concatenate(
            [slip.walls[:, a] * pattern.nodes + slip.walls[:, b] for a, b in pairs]
        )
        vectors = np.concatenate([(1 + (a == b)) * share for a, b in pairs])
        unique, back = np.unique(keys, return_inverse=True)
        pushes = np.zeros((len(unique), 3))
        np.add.at(pushes, back, vectors)
        chosen = np.isin(unique // pattern.nodes, slip.nodes)
        unique, pushes = unique[chosen], pushes[chosen]
        held = pattern.rows.astype(np.int64) * pattern.nodes + pattern.columns
        bounds = np.append(slip.nodes * pattern.nodes, np.iinfo(np.int64).max)
        starts = np.searchsorted(unique, bounds).astype(np.int32)
        return starts, np.searchsorted(held, unique).astype(np.int32), pushes

    def _add(self, state: Array, residual: Array) -> None:
        if self._count:
            self._project.bind(columns=self.rows.columns, q=state, R=residual, **self._terms)()

    def _add_derivatives(self, state: Array) -> None:
        rows = self.rows
        if self._count:
            self._project_rows.bind(
                starts=rows.starts, diagonal=rows.diagonal, A=rows.values, **self._terms
            )()

    def enforce(self, state: Array) -> None:
        """Take out of a state what passes walls."""
        if self._count:
            self._enforce.bind(q=state, **self._slip)()


class BoundaryConditions:
    """The equations with boundary conditions; all ranks make one together."""

    # `begin` and `end` of resistances enclose a step: UnsteadySteps.advance of steps.py. Terms that depend on
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
                shared.device,
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
        count, at = len(part.nodes), part.tets.T.ravel()
        sums = np.zeros((count, UNKNOWNS))
        sums[:, 0] = np.bincount(at, np.tile(of_elements, part.tets.shape[1]), count)
        sums[:, 1] = np.bincount(at, minlength=count)
        sums = self._shared.summed(sums)
        return np.asarray(sums[:, 0] / sums[:, 1])

    @property
    def product(self) -> Product | None:
        """Product for Newton's method in place of the matrix alone, if any."""
        if not self.resistances.outlets:
            return None
        return CoupledProduct(SharedProduct(self.equations.rows, self._shared), self.resistances)

    def enforce(self, state: Array) -> None:
        """Take out of a state what passes walls with slip: before the first step."""
        if self._slipping is not None:
            self._slipping.enforce(state)


def _left(areas: BoundaryAreas, fixed: np.ndarray, slip: SlipNodes, count: int) -> Floats:
    """Shares of an outlet's area in the equations that are left, (outlet's nodes, 3)."""
    whole = np.zeros((count, 3))
    whole[areas.nodes] = areas.vectors
    whole[slip.nodes] = np.einsum("nij,nj->ni", slip.projectors, whole[slip.nodes])
    whole[fixed[:, :3]] = 0.0
    return whole[areas.nodes]
