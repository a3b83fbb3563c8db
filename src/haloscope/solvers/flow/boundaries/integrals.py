"""Integrals over boundaries: areas, flow rates, mean pressures and forces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import area_vectors
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations.equations import UNKNOWNS

Floats = NDArray[np.float64]


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
    summed = fixed.copy()
    if not shared.alone:
        device = shared.device
        sent = device.from_host(fixed.ravel())
        shared.sums(UNKNOWNS).swap(sent)
        summed = device.to_host(sent).reshape(-1, UNKNOWNS)
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


Vector = tuple[float, float, float]


class Residual(Protocol):
    """Equations, 4 a node, whose residual gives forces."""

    @property
    def device(self) -> Device:
        """Where vectors lie."""

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put what own elements give into an array of 4 a node."""


def force_and_moment(
    equations: Residual,
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
