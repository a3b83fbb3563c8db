"""Sets of lattice points as runs along x: small, quick to join, and the same on every rank.

Raster number of point (i, j, k) in a box of (nx, ny, nz) points: i + nx (j + ny k). A run is the
raster numbers from its first up to its stop, exclusive, and never leaves its row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.mesh.blocks import Triple
from haloscope.mesh.surfaces.surfaces import connected_parts, spread

Integers = NDArray[np.int64]
Flags = tuple[bool, bool, bool]

# Rows around a row, one of each opposite pair, that links of the lattice reach: (y, z).
_ROWS = ((1, 0), (0, 1), (1, 1), (1, -1))


def raster(shape: Triple, coordinates: NDArray[np.integer]) -> Integers:
    """Raster numbers of points with coordinates (n, 3) in a box."""
    x, y, z = np.asarray(coordinates, np.int64).T
    return np.asarray(x + shape[0] * (y + shape[1] * z))


def unraster(shape: Triple, numbers: ArrayLike) -> Integers:
    """Coordinates (n, 3) of raster numbers in a box."""
    rows, x = np.divmod(np.asarray(numbers, np.int64), shape[0])
    z, y = np.divmod(rows, shape[1])
    return np.stack([x, y, z], axis=-1)


@dataclass(frozen=True, eq=False)
class Runs:
    """Points of a box of lattice points."""

    shape: Triple  # Points of the box along x, y, z
    # Raster numbers of the runs' first points and of those after their last, ascending and not
    # overlapping, shape (runs,).
    first: Integers
    stop: Integers

    @classmethod
    def of_points(cls, shape: Triple, numbers: ArrayLike) -> Runs:
        """Runs of points with ascending raster numbers."""
        numbers = np.asarray(numbers, np.int64)
        if not len(numbers):
            return cls(shape, numbers, numbers)
        begins = np.ones(len(numbers), bool)
        begins[1:] = (np.diff(numbers) > 1) | (numbers[1:] % shape[0] == 0)
        ends = np.append(begins[1:], True)
        return cls(shape, numbers[begins], numbers[ends] + 1)

    @classmethod
    def between(cls, shape: Triple, toggles: Integers) -> Runs:
        """Runs between crossings in pairs."""
        row, x = np.divmod(toggles.reshape(-1, 2), shape[0] + 1)
        numbers = row * shape[0] + x
        first, stop = numbers[x[:, 0] < x[:, 1]].T
        if not len(first):
            return cls(shape, first.copy(), stop.copy())
        # Runs that touch within a row become one.
        begins = np.ones(len(first), bool)
        begins[1:] = (first[1:] > stop[:-1]) | (first[1:] % shape[0] == 0)
        ends = np.append(begins[1:], True)
        return cls(shape, first[begins], stop[ends])

    @property
    def points(self) -> int:
        """How many points there are."""
        return int((self.stop - self.first).sum())

    def numbers(self) -> Integers:
        """Raster numbers of all points, ascending."""
        run, place = spread(self.stop - self.first)
        return self.first[run] + place

    def contains(self, numbers: ArrayLike) -> NDArray[np.bool_]:
        """Whether raster numbers are those of points of the set."""
        numbers = np.asarray(numbers, np.int64)
        run = np.searchsorted(self.first, numbers, "right") - 1
        if not len(self.first):
            return np.zeros(numbers.shape, bool)
        return np.asarray((run >= 0) & (numbers < self.stop[run]))

    def chosen(self, keep: NDArray[np.bool_]) -> Runs:
        """Some of the runs."""
        return Runs(self.shape, self.first[keep], self.stop[keep])

    def slab(self, start: int, stop: int) -> Runs:
        """Runs with z from start up to stop, exclusive."""
        plane = self.shape[0] * self.shape[1]
        low, high = np.searchsorted(self.first, [start * plane, stop * plane])
        return Runs(self.shape, self.first[low:high], self.stop[low:high])

    def plane(self, axis: int, index: int) -> Integers:
        """Raster numbers of the points with a given coordinate along an axis, ascending."""
        if axis == 2:
            return self.slab(index, index + 1).numbers()
        rows = self.first // self.shape[0]
        if axis == 1:
            return self.chosen(rows % self.shape[1] == index).numbers()
        wanted = rows * self.shape[0] + index
        return wanted[(self.first <= wanted) & (wanted < self.stop)]

    def changed(self, removed: Integers, added: Integers) -> Runs:
        """Take points away, then add others; raster numbers in any order, each added once."""
        nx, ny, nz = self.shape
        touched = np.zeros(ny * nz, bool)
        touched[removed // nx] = True
        touched[added // nx] = True
        inside = touched[self.first // nx]
        numbers = self.chosen(inside).numbers()
        numbers = numbers[~np.isin(numbers, removed) & ~np.isin(numbers, added)]
        made = Runs.of_points(self.shape, np.sort(np.concatenate([numbers, added])))
        kept = self.chosen(~inside)
        first = np.concatenate([kept.first, made.first])
        order = np.argsort(first, kind="stable")
        return Runs(self.shape, first[order], np.concatenate([kept.stop, made.stop])[order])

    def extent(self) -> tuple[Integers, Integers]:
        """Lowest and highest coordinates along x, y, z, each (3,); there must be points."""
        begins, ends = unraster(self.shape, self.first), unraster(self.shape, self.stop - 1)
        return begins.min(axis=0), ends.max(axis=0)

    def parts(self, periodic: Flags) -> Integers:
        """Part of each run, of those that the 18 links of a point connect; from 0, shape (runs,).

        A link goes along one axis or along two at once.
        """
        nx, ny, nz = self.shape
        row, start = np.divmod(self.first, nx)
        stop = start + self.stop - self.first
        ones, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        rows = [(0, 0), *_ROWS]
        if periodic[0]:
            # What looks round the end of a row has no opposite that finds the same pair.
            rows += [(-dy, -dz) for dy, dz in _ROWS]
        for dy, dz in rows:
            z, y = np.divmod(row, ny)
            y, z = y + dy, z + dz
            if periodic[1]:
                y %= ny
            if periodic[2]:
                z %= nz
            there = np.flatnonzero((y >= 0) & (y < ny) & (z >= 0) & (z < nz))
            origin = nx * (y + ny * z)[there]
            reach = 0 if dy and dz else 1
            if (dy, dz) in _ROWS:
                low = origin + np.maximum(start[there] - reach, 0)
                high = origin + np.minimum(stop[there] + reach, nx)
                begin = np.searchsorted(self.stop, low, "right")
                end = np.searchsorted(self.first, high, "left")
                member, place = spread(np.maximum(end - begin, 0))
                ones.append(there[member])
                others.append(begin[member] + place)
            if periodic[0] and reach:
                wanted = origin + nx - 1
                met = (start[there] == 0) & self.contains(wanted)
                ones.append(there[met])
                others.append(np.searchsorted(self.first, wanted[met], "right") - 1)
        return connected_parts(len(row), np.concatenate(ones), np.concatenate(others))
