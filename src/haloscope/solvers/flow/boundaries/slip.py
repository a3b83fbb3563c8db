"""Slip along walls of any shape: which directions are open at a node, and equations that keep to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import area_vectors
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundaries.outlets import Equations, kernel_file
from haloscope.solvers.flow.equations.equations import UNKNOWNS

Floats = NDArray[np.float64]

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
    if not shared.alone:
        device, node_sums = shared.device, shared.sums(UNKNOWNS)
        for begin in range(0, sums.shape[1], UNKNOWNS):
            sent = device.from_host(sums[:, begin : begin + UNKNOWNS].ravel())
            node_sums.swap(sent)
            sums[:, begin : begin + UNKNOWNS] = device.to_host(sent).reshape(-1, UNKNOWNS)
    return sums[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3), sums[:, 6:9]


def _angles(x: Floats, triangles: NDArray[np.int64]) -> Floats:
    """Angles of triangles at their first corners."""
    a, b = (x[triangles[:, k]] - x[triangles[:, 0]] for k in (1, 2))
    across = np.linalg.norm(np.cross(a, b), axis=1)
    return np.asarray(np.arctan2(across, np.einsum("td,td->t", a, b)))


class SlipEquations:
    """Equations of which the parts across walls are replaced by u.n = 0.

    `nodes`: positions in m, (own, 3).
    """

    # Rows are projected, columns stay, as for velocities that are given: all is linear, so that
    # each rank projects what its own elements add. A direction along a curved wall is not along its
    # flat triangles; so the fluid's own pressure acts on these, (v, p n), lest a constant pressure
    # pushes (M. S. Engelman, R. L. Sani, P. M. Gresho, Int. J. Numer. Methods Fluids 2 (1982) 225,
    # tilt the normals instead, which costs an order where triangles differ).

    def __init__(
        self, equations: Equations, nodes: Floats, shared: SharedNodes, slip: SlipNodes
    ) -> None:
        # Of the equations.
        self.device, self.rows, self._inner = equations.device, equations.rows, equations
        give = self.device.from_host
        self._count = len(slip.nodes)
        # Arguments of all kernels: where velocities keep to which directions.
        self._slip: dict[str, Any] = {
            "nodes": give(slip.nodes.astype(np.int32)),
            "projectors": give(np.ascontiguousarray(slip.projectors).ravel()),
            "count": self._count,
        }
        starts, blocks, pushes = self._wall_pushes(nodes, slip)
        # Those that the equations' kernels have, too.
        self._terms = {
            "ones": give(shared.owned[slip.nodes].astype(np.float64)),
            "push_starts": give(starts),
            "push_blocks": give(blocks),
            "pushes": give(np.ascontiguousarray(pushes).ravel()),
        }
        source, constants = kernel_file()
        self._kernels = {
            name: self.device.kernel(source, name, constants)
            for name in ("slip_residual", "slip_rows", "slip_velocities")
        }

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

    def set_time(self, alpha: float, by_dt: float) -> None:
        """See :class:`haloscope.solvers.flow.boundaries.outlets.Equations`."""
        self._inner.set_time(alpha, by_dt)

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """See :class:`haloscope.solvers.flow.boundaries.outlets.Equations`."""
        self._inner.residual(state, past, residual)
        self._project(state, residual)

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """See :class:`haloscope.solvers.flow.boundaries.outlets.Equations`."""
        self._inner.linearise(state, past, residual)
        self._project(state, residual)
        if self._count:
            rows = self.rows
            self._kernels["slip_rows"].bind(
                extent=(self._count,),
                starts=rows.starts,
                diagonal=rows.diagonal,
                A=rows.values,
                **self._slip,
                **self._terms,
            )()

    def _project(self, state: Array, residual: Array) -> None:
        if self._count:
            self._kernels["slip_residual"].bind(
                extent=(self._count,),
                columns=self.rows.columns,
                q=state,
                R=residual,
                **self._slip,
                **self._terms,
            )()

    def enforce(self, state: Array) -> None:
        """Take out of a state what passes walls."""
        if self._count:
            self._kernels["slip_velocities"].bind(extent=(self._count,), q=state, **self._slip)()
