"""The inside of a vessel as packing sees it: distances from its wall on a grid, and its volume.

Lengths are in any unit that is the same everywhere, say micrometres. Where the vessel neither
closes on itself nor has a wall, the faces of its box count as walls: cells start inside of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Flags = tuple[bool, bool, bool]


@dataclass(frozen=True, eq=False)
class Lumen:
    """Where cells may be."""

    # Corners of its box, (3,).
    lower: np.ndarray
    upper: np.ndarray
    periodic: Flags  # Axes x, y, z along which it closes on itself
    volume: float  # What hematocrits are shares of
    # Signed distances from walls at nodes, negative inside, (nz, ny, nx); None: no walls.
    grid: np.ndarray | None
    # Place of the first node, and distances between nodes along x, y, z, (3,).
    origin: np.ndarray
    spacing: np.ndarray

    @classmethod
    def from_points(
        cls, inside: np.ndarray, spacing: float, origin: np.ndarray, periodic: Flags, reach: float
    ) -> Lumen:
        """Vessel made of lattice points, with walls halfway to points outside.

        `inside`: which points are fluid, (nz, ny, nx), bool. Beyond an axis that is not periodic
        there are walls.
        """
        origin = np.asarray(origin, np.float64)
        shape = np.array(inside.shape[::-1])
        closed = np.array(periodic)
        padded = np.pad(inside, [(0, 0) if closed[2 - axis] else (1, 1) for axis in range(3)])
        grid = distance_from_points(padded, spacing, reach, periodic)
        lower = origin - 0.5 * spacing
        first = np.where(closed, origin, origin - spacing)
        volume = float(np.count_nonzero(inside)) * spacing**3
        upper = lower + spacing * shape
        return cls(lower, upper, periodic, volume, grid, first, np.full(3, spacing))

    @classmethod
    def box(cls, sides: np.ndarray) -> Lumen:
        """Box without walls that closes on itself along all axes."""
        sides = np.asarray(sides, np.float64)
        zero = np.zeros(3)
        return cls(zero, sides, (True, True, True), float(sides.prod()), None, zero, sides)

    @property
    def sides(self) -> np.ndarray:
        """Lengths of the box, (3,)."""
        return np.asarray(self.upper - self.lower)

    @property
    def widest(self) -> float:
        """Radius of the largest sphere inside, as far as the grid shows."""
        return math.inf if self.grid is None else max(0.0, -float(self.grid.min()))

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Signed distances (n,) of points (n, 3) from walls, negative inside.

        Beyond the grid the distance from its end is added.
        """
        if self.grid is None:
            return np.full(len(points), -math.inf)
        nodes, parts, beyond = [], [], np.zeros(len(points))
        for axis in range(3):
            n = self.grid.shape[2 - axis]
            t = (points[:, axis] - self.origin[axis]) / self.spacing[axis]
            if self.periodic[axis]:
                t -= n * np.floor(t / n)
                low = np.minimum(t.astype(int), n - 1)
                nodes.append((low, (low + 1) % n))
            else:
                beyond += np.abs(t - np.clip(t, 0.0, n - 1.0)) * self.spacing[axis]
                t = np.clip(t, 0.0, n - 1.0)
                low = np.minimum(t.astype(int), n - 2)
                nodes.append((low, low + 1))
            parts.append((1.0 - (t - low), t - low))
        result = beyond
        for i in range(2):
            for j in range(2):
                for k in range(2):
                    value = self.grid[nodes[2][k], nodes[1][j], nodes[0][i]]
                    result += parts[0][i] * parts[1][j] * parts[2][k] * value
        return result


def distance_from_points(
    inside: np.ndarray, spacing: float, reach: float, periodic: Flags
) -> np.ndarray:
    """Signed distance of lattice points from a wall halfway between those in and out.

    `inside`: (nz, ny, nx), bool; Returns: as `inside`, float32, negative inside.
    """
    # Of a point inside it is the distance of the nearest point outside less half a spacing, and the
    # other way round; the nearest points are found axis by axis (P. Felzenszwalb, D. Huttenlocher,
    # Theory of Computing 8 (2012) 415).
    cells = math.ceil(reach / spacing) + 1
    distances = []
    for there in (~inside, inside):
        square = np.where(there, np.float32(0), np.float32(cells**2))
        for axis in range(3):
            square = _lowest_parabola(square, 2 - axis, cells, periodic[axis])
        distances.append(np.minimum((np.sqrt(square) - 0.5) * np.float32(spacing), reach))
    return np.asarray(np.where(inside, -distances[0], distances[1]), np.float32)


def _lowest_parabola(square: np.ndarray, axis: int, cells: int, closed: bool) -> np.ndarray:
    """Least of square(x + k) + k^2 along an axis, |k| <= cells."""
    result = square.copy()
    source, best = np.moveaxis(square, axis, 0), np.moveaxis(result, axis, 0)
    n = len(source)
    for k in range(1, cells + 1):
        if closed:
            for shift in (k, -k):
                np.minimum(best, np.roll(source, shift, axis=0) + k * k, out=best)
        elif k < n:
            np.minimum(best[:-k], source[k:] + k * k, out=best[:-k])
            np.minimum(best[k:], source[:-k] + k * k, out=best[k:])
    return result
