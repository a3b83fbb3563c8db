"""Lattices for the measurements of blood: dense boxes, tubes and trees of vessels, and cells in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.fluid.fluid import Opening, WallLinks
from haloscope.solvers.blood.fluid.lattice import VELOCITIES

Mask = NDArray[np.bool_]


@dataclass
class Points:
    """All points of a lattice as one rank has them; see LatticePart."""

    owned: int
    bulk: int
    numbers: NDArray[np.int64]
    sources: NDArray[np.int32]
    inlet: int
    rows: int = 0


def lattice(
    fluid: Mask, periodic: Sequence[bool], openings: Sequence[tuple[int, int]] = ()
) -> Points:
    """Points of a mask (z, y, x); openings are planes (axis, 0 or 1 for its lower or upper end)."""
    planes = np.zeros(fluid.shape, bool)
    for axis, side in openings:
        np.moveaxis(planes, 2 - axis, 0)[-side] = True
    chosen = [np.flatnonzero(fluid & ~planes), np.flatnonzero(fluid & planes)]
    numbers = np.concatenate(chosen)
    inner = np.full(fluid.shape, -1, np.int32)
    inner.ravel()[numbers] = np.arange(len(numbers), dtype=np.int32)
    index = np.full([n + 2 for n in fluid.shape], -1, np.int32)
    index[1:-1, 1:-1, 1:-1] = inner
    for axis in range(3):
        ends = np.moveaxis(index, 2 - axis, 0)
        if periodic[axis]:
            ends[0], ends[-1] = ends[-2], ends[1]
    for number, (axis, side) in enumerate(openings):
        np.moveaxis(index, 2 - axis, 0)[-side] = -2 - number
    sources = np.empty((18, len(numbers)), np.int32)
    nz, ny, nx = fluid.shape
    for row, (x, y, z) in zip(sources, VELOCITIES[1:].tolist(), strict=True):
        there = index[1 - z : 1 - z + nz, 1 - y : 1 - y + ny, 1 - x : 1 - x + nx]
        if len(numbers) == fluid.size and not openings:
            row.reshape(fluid.shape)[...] = there
        else:
            np.take(there.reshape(-1), numbers, out=row)
    at_inlet = 0
    if openings:
        axis, side = openings[0]
        at_inlet = int((np.moveaxis(fluid, 2 - axis, 0)[-side]).sum())
    return Points(len(numbers), len(chosen[0]), numbers, sources, at_inlet)


def openings_of(points: Points) -> list[Opening]:
    """Inflow up z at the first end, a density given at the other one; in lattices that are open."""
    if points.owned == points.bulk:
        return []
    velocity = np.zeros((points.inlet, 3))
    velocity[:, 2] = 0.01
    return [Opening(2, 1, velocity), Opening(2, -1)]


def aslant(points: Points) -> WallLinks:
    """Links to all walls, as ones that lie anywhere between two points: fractions from 0.05 to 0.95."""
    rows, at = np.nonzero(points.sources[:, : points.bulk] == -1)
    fractions = 0.5 + 0.45 * np.sin(0.7 * np.arange(len(at)))
    return WallLinks(at, rows + 1, fractions, np.zeros((len(at), 3)))


def box(n: int) -> Points:
    """A periodic box."""
    return lattice(np.ones((n, n, n), bool), (True, True, True))


def channel(n: int) -> Points:
    """A square channel along z with walls, open at both ends."""
    return lattice(np.ones((n, n, n), bool), (False, False, False), [(2, 0), (2, 1)])


def tube(n: int) -> Points:
    """A tube along z, open at both ends."""
    z, y, x = np.ogrid[:n, :n, :n]
    middle = (n - 1) / 2
    fluid = (x - middle) ** 2 + (y - middle) ** 2 < (0.5 * n - 1) ** 2 + 0 * z
    return lattice(fluid, (False, False, False), [(2, 0), (2, 1)])


def tree(n: int) -> Points:
    """Vessels that branch four times on their way up z, open at both ends."""
    return lattice(tree_mask(n), (False, False, False), [(2, 0), (2, 1)])


def tree_mask(n: int) -> Mask:
    """Where these vessels are, (2 n, n, n)."""
    fluid = np.zeros((2 * n, n, n), bool)
    _branch(fluid, np.array([n / 2, n / 2, -2.0]), 0.11 * n, 0, 0.22 * n)
    return fluid


def _branch(
    fluid: Mask, start: NDArray[np.float64], radius: float, level: int, aside: float
) -> None:
    height = fluid.shape[0] / 4.5
    last = level == 4
    for side in (1,) if level == 0 else (-1, 1):
        end = start.copy()
        end[2] = fluid.shape[0] + 2.0 if last else end[2] + height
        if level:
            end[level % 2] += side * aside
        _vessel(fluid, start, end, radius)
        if not last:
            _branch(fluid, end, radius * 0.75, level + 1, aside * (0.72 if level else 1))


def _vessel(
    fluid: Mask, start: NDArray[np.float64], end: NDArray[np.float64], radius: float
) -> None:
    low = np.maximum(np.floor(np.minimum(start, end) - radius), 0).astype(int)
    high = np.minimum(np.ceil(np.maximum(start, end) + radius) + 1, fluid.shape[::-1]).astype(int)
    if (low >= high).any():
        return
    x, y, z = np.ogrid[low[0] : high[0], low[1] : high[1], low[2] : high[2]]
    along = end - start
    t = ((x - start[0]) * along[0] + (y - start[1]) * along[1] + (z - start[2]) * along[2]) / (
        along @ along
    )
    t = np.clip(t, 0, 1)
    square = sum(
        (at - first - t * step) ** 2
        for at, first, step in zip((x, y, z), start, along, strict=True)
    )
    part = fluid[low[2] : high[2], low[1] : high[1], low[0] : high[0]]
    part |= np.moveaxis(square < radius**2, (0, 1, 2), (2, 1, 0))


def rows_of_cells(
    n: int, diameter: float, points_a_cell: float, aside: float = 1.0
) -> NDArray[np.float64]:
    """Centres (cells, 3) in a periodic box of n points, with so many points for each cell.

    The cells lie in columns along z, `diameter` apart, turn by turn a little to the side: `aside` 0
    leaves them in line, so that none touches another.
    """
    along = max(1, round(n / diameter))
    layers = max(1, round(n**3 / along**2 / points_a_cell))
    z, y, x = np.meshgrid(np.arange(layers), np.arange(along), np.arange(along), indexing="ij")
    centres = np.stack(
        [
            (x + 0.3 * aside * (z % 2)) * n / along,
            (y + 0.2 * aside * (z % 3)) * n / along,
            (z + 0.37 + 0.21 * aside * ((x + y) % 3)) * n / layers,
        ],
        axis=-1,
    )
    return centres.reshape(-1, 3)
