"""Developed flow through a flat end of any outline: steady, or oscillating (Womersley)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Shortest arm of a raster point, in raster spacings: below it the point counts as on the outline.
_SHORTEST = 1e-3


@dataclass(frozen=True, eq=False)
class CapRaster:
    """A square raster over a flat end; its points inside the outline, and their distances from it.

    Beyond an arm that the outline cuts, the profile is 0 at the cut (G. H. Shortley and R. Weller, J.
    Appl. Phys. 9 (1938) 334), so that round and elliptic ends come out exactly.
    """

    spacing: float  # In m
    origin: Floats  # Position of the first raster point in m, (3,)
    axes: Floats  # Directions of the raster's rows and columns, (2, 3)
    number: Integers  # (rows, columns): number of the point inside, -1: none
    arms: Floats  # (points, 4) in raster spacings: down and up the rows, down and up the columns
    area: float  # In m^2

    @classmethod
    def of(cls, sides: Floats, normal: Floats, spacing: float) -> CapRaster:
        """The raster over an end with the outline (n, 2, 3), whose sides go around the normal; in m."""
        one = np.cross(normal, np.eye(3)[np.abs(normal).argmin()])
        one /= np.linalg.norm(one)
        axes = np.stack([one, np.cross(normal, one)])
        base = sides.mean(axis=(0, 1))
        flat = (sides - base) @ axes.T / spacing
        low = np.floor(flat.min(axis=(0, 1))) - 1
        shape = (np.ceil(flat.max(axis=(0, 1))) + 2 - low).astype(np.int64)
        flat = flat - low
        number = np.full(shape, -1)
        along = [_arms(flat, shape, axis) for axis in (0, 1)]
        inside = _within(along)
        number[inside] = np.arange(np.count_nonzero(inside))
        arms = np.minimum(np.concatenate([part[:, inside] for part in along]), 1.0).T
        (a, b), (c, d) = np.moveaxis(flat, 0, 2)
        area = float((a * d - b * c).sum() / 2) * spacing**2
        return cls(spacing, base + spacing * (low @ axes), axes, number, arms, area)

    @property
    def count(self) -> int:
        """Points inside."""
        return len(self.arms)

    @cached_property
    def _operator(self) -> Any:
        """Minus the Laplacian, in raster spacings, as a sparse matrix."""
        from scipy.sparse import coo_array, diags_array

        at = np.argwhere(self.number >= 0)
        diagonal = np.zeros(self.count)
        rows, columns, values = [], [], []
        for axis in (0, 1):
            low, high = self.arms[:, 2 * axis : 2 * axis + 2].T
            diagonal += 2 / (low * high)
            for step, arm in ((-1, low), (1, high)):
                beside = at.copy()
                beside[:, axis] += step
                other = self.number[tuple(beside.T)]
                near = (arm >= 1.0) & (other >= 0)
                rows.append(np.flatnonzero(near))
                columns.append(other[near])
                values.append(-2 / (arm * (low + high))[near])
        place = np.concatenate(rows), np.concatenate(columns)
        beside_points = coo_array((np.concatenate(values), place), (self.count, self.count))
        return (beside_points + diags_array(diagonal)).tocsc()

    def solved(self, rate: complex = 0.0) -> NDArray[Any]:
        """Solution (points,) in m^2 of (rate - laplacian) phi = 1, phi = 0 on the outline.

        `rate`: in 1/m^2, such as i omega/nu of a flow that oscillates.
        """
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import spsolve

        if not self.count:
            return np.zeros(0)
        matrix = self._operator
        if rate:
            matrix = (matrix + rate * self.spacing**2 * eye_array(self.count)).tocsc()
        solution = spsolve(matrix, np.ones(self.count))
        return np.asarray(solution) * self.spacing**2

    def at(self, values: NDArray[Any], positions: Floats) -> NDArray[Any]:
        """Values (points,) at positions (n, 3) in m projected on the plane, bilinear; 0 outside."""
        grid = np.zeros(self.number.shape, values.dtype)
        grid[self.number >= 0] = values
        place = (positions - self.origin) @ self.axes.T / self.spacing
        shape = np.array(grid.shape)
        low = np.clip(np.floor(place), 0, shape - 2).astype(np.int64)
        share = place - low
        outside = ((share < 0) | (share > 1)).any(axis=1)
        u, v = share.T
        i, j = low.T
        mixed = (1 - u) * ((1 - v) * grid[i, j] + v * grid[i, j + 1])
        mixed = mixed + u * ((1 - v) * grid[i + 1, j] + v * grid[i + 1, j + 1])
        return np.where(outside, 0, mixed)

    def mean(self, values: NDArray[Any]) -> Any:
        """Mean over the end of values at its raster points: their sum over the area."""
        return values.sum() * self.spacing**2 / self.area


def points_within(sides: Floats, shape: Integers) -> NDArray[np.bool_]:
    """Which points of a raster of a shape lie within an outline (n, 2, 2) in raster spacings."""
    return _within([_arms(sides, shape, axis) for axis in (0, 1)])


def _within(arms: list[Floats]) -> NDArray[np.bool_]:
    """Points within an outline; one that is on it seen along one axis is none."""
    return np.asarray((arms[0].min(axis=0) > _SHORTEST) & (arms[1].min(axis=0) > _SHORTEST))


def _arms(sides: Floats, shape: Integers, axis: int) -> Floats:
    """Distances (2, *shape) down and up an axis from raster points to the outline; 0 outside it."""
    result = np.zeros((2, *shape))
    other = 1 - axis
    for line in range(int(shape[other])):
        a, b = sides[:, 0], sides[:, 1]
        # An end on the line counts as above it.
        crossed = (a[:, other] >= line) != (b[:, other] >= line)
        a, b = a[crossed], b[crossed]
        share = (line - a[:, other]) / (b[:, other] - a[:, other])
        cuts = np.sort(a[:, axis] + share * (b[:, axis] - a[:, axis]))
        places = np.arange(shape[axis])
        after = np.searchsorted(cuts, places, "right")
        inside = np.flatnonzero(after % 2 == 1)
        row = (slice(None), inside, line) if axis == 0 else (slice(None), line, inside)
        result[row] = places[inside] - cuts[after[inside] - 1], cuts[after[inside]] - places[inside]
    return result
