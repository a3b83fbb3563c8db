"""Which space cells take near an inlet, so that one which comes in meets none."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from haloscope.domain.voxels import Lattice
from haloscope.exchange.world import World

Floats = NDArray[np.float64]


class TakenSpace:
    """A box in blocks, of which those on and beside surfaces of cells are marked.

    Parameters
    ----------
    low, high
        Corners of the box, (3,). Cells beyond it are not looked at.
    edge
        Of a block: who meets no marked one is at least so far from all points that were marked.
    """

    def __init__(self, low: Floats, high: Floats, edge: float) -> None:
        self._low, self._edge = np.asarray(low, np.float64), edge
        # A rim of blocks takes what is beyond.
        self._shape = np.ceil((np.asarray(high) - low) / edge).astype(int) + 4
        self._marked = np.zeros(self._shape, bool)
        self._cells: list[tuple[Floats, NDArray[np.integer]]] = []

    def add_walls(self, lattice: Lattice) -> None:
        """Mark what is nearer to other points than to those of a lattice, and what is beside that."""
        axes = [
            np.rint(low + (np.arange(n) - 1.5) * self._edge).astype(int)
            for low, n in zip(self._low, self._shape, strict=True)
        ]
        within = [(at >= 0) & (at < n) for at, n in zip(axes, lattice.shape, strict=True)]
        x, y, z = (np.clip(at, 0, n - 1) for at, n in zip(axes, lattice.shape, strict=True))
        numbers = (z * lattice.shape[1] + y[:, None]) * lattice.shape[0] + x[:, None, None]
        fluid = lattice.contains(numbers.ravel()).reshape(self._shape)
        fluid &= within[0][:, None, None] & within[1][:, None] & within[2]
        for axis in range(3):
            there = np.moveaxis(fluid, axis, 0)
            there[1:-1] = there[1:-1] & there[2:] & there[:-2]
        self._marked |= ~fluid

    def share(self, world: World) -> None:
        """Mark what is marked on any rank; all ranks call this."""
        if world.size > 1:
            self._marked = world.sum(self._marked.astype(np.int16)) > 0

    def copy(self) -> TakenSpace:
        """Another one with the same marks, to which cells can be added."""
        other = copy.copy(self)
        other._marked, other._cells = self._marked.copy(), list(self._cells)
        return other

    def count(self, points: Floats) -> NDArray[np.int64]:
        """How many points of each row (n, k, 3) are near what was marked."""
        x, y, z = np.moveaxis(self._blocks(points), -1, 0)
        found: NDArray[np.int64] = self._marked[x, y, z].sum(axis=1, dtype=np.int64)
        return found

    def add(self, vertices: Floats, triangles: NDArray[np.integer]) -> None:
        """Mark the surfaces of cells with vertices (n, V, 3)."""
        blocks = self._blocks(_points(vertices, triangles).reshape(-1, 3))
        # What is beyond the box may be far from it.
        x, y, z = blocks[((blocks > 1) & (blocks < self._shape - 2)).all(axis=1)].T
        for i, j, k in np.ndindex(3, 3, 3):
            self._marked[x + i - 1, y + j - 1, z + k - 1] = True
        self._cells.append((vertices, triangles))

    def meets(self, vertices: Floats, triangles: NDArray[np.integer]) -> bool:
        """Whether a cell with vertices (V, 3) meets one that is there, or lies within one."""
        x, y, z = self._blocks(_points(vertices[None], triangles)[0]).T
        if self._marked[x, y, z].any():
            return True
        centre = vertices.mean(axis=0)
        return any(_within(centre, *cells) for cells in self._cells)

    def _blocks(self, points: Floats) -> NDArray[np.int64]:
        # What is far beyond, or no number, is found by those who look at cells.
        far = np.nan_to_num((points - self._low) / self._edge, nan=-4.0)
        found: NDArray[np.int64] = np.clip(np.floor(far) + 2, 1, self._shape - 2).astype(np.int64)
        return found


def _points(vertices: Floats, triangles: NDArray[np.integer]) -> Floats:
    """Vertices and centres of triangles, (n, V + T, 3)."""
    return np.concatenate([vertices, vertices[:, triangles].mean(axis=2)], axis=1)


def _within(point: Floats, vertices: Floats, triangles: NDArray[np.integer]) -> bool:
    """Whether a point is inside one of the cells (n, V, 3).

    By the solid angle of their triangles (van Oosterom, Strackee, IEEE Trans. Biomed. Eng. 30 (1983)).
    """
    around = ((vertices.min(axis=1) < point) & (vertices.max(axis=1) > point)).all(axis=1)
    if not around.any():
        return False
    a, b, c = np.moveaxis(vertices[around][:, triangles] - point, 2, 0)
    p, q, r = (np.linalg.norm(each, axis=2) for each in (a, b, c))
    volume = np.einsum("nti,nti->nt", a, np.cross(b, c))
    ab, bc, ca = (np.einsum("nti,nti->nt", *pair) for pair in ((a, b), (b, c), (c, a)))
    angles = 2.0 * np.arctan2(volume, p * q * r + ab * r + bc * p + ca * q)
    return bool((np.abs(angles.sum(axis=1)) > 2.0 * np.pi).any())
