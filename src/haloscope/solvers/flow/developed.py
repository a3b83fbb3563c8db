"""Velocities across a plane opening that have a given mean: uniform, or as in a long straight pipe."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import all_rows
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tet_faces import area_vectors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Share of its area by which an opening's vector area may be shorter: 2.5 degrees between normals.
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
                f"flow.boundaries.{name}: speed and flow_rate are for plane boundaries, and this "
                "one is not; give its velocity as expressions of x, y, z"
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
                f"flow.boundaries.{self.name}: the mesh has no node inside this boundary, which a "
                'developed profile needs; refine it, or give profile = "uniform"'
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
        "the developed profile of an opening was not found; its triangles are too flat, mesh it anew"
    )
