"""Integrals over boundaries: areas, flow rates, mean pressures and forces; developed profiles of openings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import area_vectors
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations.equations import UNKNOWNS, Forces, Vector

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def exact_sums(world: World, terms: Floats) -> Floats:
    """Sums of columns over all rows of all ranks, rounded once: the same for any number of ranks."""
    pairs = np.empty((terms.shape[1], 2))
    for pair, column in zip(pairs, terms.T.tolist(), strict=True):
        pair[0] = math.fsum(column)
        pair[1] = math.fsum([*column, -pair[0]]) if math.isfinite(pair[0]) else 0.0
    if world.size == 1:
        return pairs[:, 0]
    everyone = world.alltoall(np.tile(pairs.ravel(), (world.size, 1))).reshape(world.size, -1, 2)
    columns = np.swapaxes(everyone, 0, 1).reshape(len(pairs), -1)
    sums = [math.fsum(c) if np.isfinite(c).all() else math.nan for c in columns.tolist()]
    return np.array(sums)


@dataclass(frozen=True)
class BoundaryAreas:
    """The shares of a rank's nodes in the area of a boundary."""

    # Own nodes on the boundary, whoever has the triangles, ascending, (nodes,).
    nodes: NDArray[np.int64]
    # What own triangles give to each: thirds of their outward normals, as long as their areas in
    # m^2, (nodes, 3).
    own: Floats
    # The same of all ranks' triangles: integrals of the node's shape function times the outward
    # normal.
    vectors: Floats
    areas: Floats  # Thirds of the triangles' areas in m^2, all ranks', (nodes,)
    counted: NDArray[np.bool_]  # Nodes that this rank counts in sums over all, (nodes,)


def boundary_areas(part: NodePart, shared: SharedNodes, name: str) -> BoundaryAreas:
    """Shares of nodes in the area of a boundary; all ranks call this together."""
    triangles = part.boundaries[name].astype(np.int64)
    normals = area_vectors(part.nodes, triangles)
    thirds = np.column_stack([normals, np.linalg.norm(normals, axis=1)]) / 3
    fixed = np.zeros((len(part.nodes), UNKNOWNS))
    for corner in range(3):
        np.add.at(fixed, triangles[:, corner], thirds)
    summed = shared.summed(fixed)
    nodes = np.flatnonzero(summed[:, 3] > 0)
    return BoundaryAreas(
        nodes, fixed[nodes, :3], summed[nodes, :3], summed[nodes, 3], shared.owned[nodes]
    )


@dataclass(frozen=True)
class BoundaryMeans:
    """Flow rate through a boundary, and mean pressure on it."""

    area: float  # In m^2
    flow_rate: float  # Outward, in m^3/s
    pressure: float  # Mean over the area, in Pa
    inflow: float  # Of the flow rate the part of nodes at which fluid enters, in m^3/s, at most 0


def boundary_means(shared: SharedNodes, areas: BoundaryAreas, state: Array) -> BoundaryMeans:
    """Area, flow rate and mean pressure of a boundary, exact for linear elements.

    All ranks call this together, and get the same bits.
    """
    mine = areas.counted
    at = values_at(shared, areas.nodes[mine], state)
    share = areas.areas[mine]
    crossing = areas.vectors[mine] * at[:, :3]
    entering = np.minimum(crossing.sum(axis=1), 0.0)
    terms = np.column_stack([crossing, share * at[:, 3], share, entering])
    x, y, z, pressed, area, inflow = exact_sums(shared.world, terms).tolist()
    return BoundaryMeans(area, math.fsum((x, y, z)), pressed / area, inflow)


def values_at(shared: SharedNodes, nodes: NDArray[np.integer], state: Array) -> Floats:
    """Velocity and pressure at some nodes of this rank, on the host, (nodes, 4)."""
    device = shared.device
    rows = state.reshape(-1, UNKNOWNS)[device.from_host(np.asarray(nodes, np.int64))]
    return device.to_host(rows)


def force_and_moment(
    equations: Forces,
    shared: SharedNodes,
    state: Array,
    past: Array,
    positions: Floats,
    nodes: NDArray[np.integer],
    centre: Vector = (0.0, 0.0, 0.0),
    load: Array | None = None,
) -> tuple[Floats, Floats]:
    """Force and moment of the flow on a boundary with prescribed velocity; all ranks call this.

    `positions`: of this rank's nodes in m, (own, 3); `centre`: about which moments are taken, in m;
    Returns: (3,) in N and (3,) in N m; the same on every rank.
    """
    # The residual of a node on it is the force that it would take to hold the flow there: no
    # gradient at the wall is needed, and the forces on all boundaries balance to rounding (P. M.
    # Gresho, R. L. Sani, Incompressible Flow and the Finite Element Method (1998), consistent
    # forces).
    residual = equations.device.zeros((UNKNOWNS * len(positions),), np.float64)
    equations.residual(state, past, residual)
    if load is not None:
        residual += load
    if not shared.alone:
        shared.sums(UNKNOWNS).swap(residual)
    mine = nodes[shared.owned[nodes]]
    forces = -equations.device.to_host(residual).reshape(-1, UNKNOWNS)[mine, :3]
    moments = np.cross(positions[mine] - np.array(centre), forces)
    sums = exact_sums(shared.world, np.hstack([forces, moments]))
    return sums[:3], sums[3:]


_PLANE = 1e-3
_TOLERANCE = 1e-12
_MOST_ITERATIONS = 10_000


class Opening:
    """A plane boundary as all ranks know it, whole."""

    def __init__(self, world: World, part: NodePart, name: str) -> None:
        self.name = name
        corners = all_rows(world, part.nodes[part.boundaries[name]].reshape(-1, 9)).reshape(-1, 3)
        # Numbers by place: the same on every rank, and for any number of ranks.
        self._places, numbers = np.unique(corners, axis=0, return_inverse=True)
        triangles = numbers.reshape(-1, 3)
        self._triangles = triangles[np.lexsort(triangles.T)]
        vectors = area_vectors(self._places, self._triangles)
        self._areas = np.linalg.norm(vectors, axis=1)
        whole = vectors.sum(axis=0)
        self.area = float(self._areas.sum())  # In m^2
        if np.linalg.norm(whole) < (1 - _PLANE) * self.area:
            raise InputError(
                "speed and flow_rate are for plane boundaries, and this one is not plane",
                location=f"flow.boundaries.{name}",
                remedy="give its velocity as expressions of x, y, z",
            )
        self.inward = -whole / np.linalg.norm(whole)  # Unit normal into the fluid, (3,)

    def profile(self, developed: bool) -> Floats:
        """Speeds at the boundary's nodes whose mean over the area is 1; uniform ones are all 1."""
        if not developed:
            return np.ones(len(self._places))
        profile = self._poiseuille()
        mean = float((self._areas * profile[self._triangles].mean(axis=1)).sum()) / self.area
        if not mean > 0:
            raise InputError(
                "a developed profile needs a node inside this boundary, and the mesh has none",
                location=f"flow.boundaries.{self.name}",
                remedy='refine the mesh there, or set profile = "uniform"',
            )
        return profile / mean

    def find(self, places: Floats) -> Integers:
        """Numbers of nodes of the boundary, whose places are given to the last bit, (n, 3)."""
        both, back = np.unique(np.concatenate([self._places, places]), axis=0, return_inverse=True)
        assert len(both) == len(self._places)
        return np.asarray(back.ravel()[len(self._places) :], np.int64)

    def _poiseuille(self) -> Floats:
        """Solution of -Laplace(s) = 1 with s = 0 along the edge, by linear elements."""
        nodes, triangles = self._places, self._triangles
        corners = nodes[triangles]
        # Edges opposite to each corner: gradients of shape functions are those turned, over 2 A.
        opposite = np.roll(corners, -2, axis=1) - np.roll(corners, -1, axis=1)
        stiffness = np.einsum("tax,tbx->tab", opposite, opposite) / (4 * self._areas)[:, None, None]
        sides = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        sides, count = np.unique(sides, axis=0, return_counts=True)
        free = np.ones(len(nodes))
        free[sides[count == 1]] = 0.0

        def summed(values: Floats) -> Floats:
            return np.asarray(np.bincount(triangles.ravel(), values.ravel(), len(nodes)) * free)

        def product(x: Floats) -> Floats:
            return summed(np.einsum("tab,tb->ta", stiffness, x[triangles]))

        diagonal: Floats = np.bincount(
            triangles.ravel(), np.einsum("taa->ta", stiffness).ravel(), len(nodes)
        ).astype(np.float64)
        load = summed(np.repeat(self._areas[:, None] / 3, 3, axis=1))
        return _conjugate_gradients(product, diagonal, load)


def _conjugate_gradients(
    product: Callable[[Floats], Floats], diagonal: Floats, b: Floats
) -> Floats:
    """Solve A x = b with Jacobi's preconditioner; rows of b that are 0 stay so."""
    x = np.zeros_like(b)
    r, z = b.copy(), b / diagonal
    p, rz, wanted = z.copy(), float(b @ z), _TOLERANCE**2 * float(b @ b)
    for _ in range(_MOST_ITERATIONS):
        if float(r @ r) <= wanted:
            return x
        Ap = product(p)
        step = rz / float(p @ Ap)
        x += step * p
        r -= step * Ap
        z = r / diagonal
        rz, before = float(r @ z), rz
        p = z + rz / before * p
    raise SolutionError(
        "the equation for the developed profile of an opening was not solved; the triangles "
        "of the opening are too flat",
        remedy="mesh it anew",
    )
