"""A straight periodic piece of a vessel with the cross-section of an inlet, full of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.lattice.lattice_runs import Runs, raster
from haloscope.mesh.lattice.openings import Opening
from haloscope.mesh.lattice.shapes import Grid
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case import LONGEST_SEGMENT
from haloscope.solvers.blood.case_cells import MICRO, CellsTable
from haloscope.solvers.blood.cell_kinds import filling_of
from haloscope.solvers.blood.filling.lumen import distance_from_points

Floats = NDArray[np.float64]

# Lengths of a segment over the diameter of the widest cell, of which the best is taken.
_LEAST, _MOST = 3.0, LONGEST_SEGMENT
# By how much a number of cells may be a whole one only by rounding.
_WHOLE = 1e-9


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment that ends where an opening is."""

    lattice: Lattice  # Its points, periodic along the opening's axis
    offset: NDArray[np.int64]  # Coordinates in the vessel's lattice of its first point, (3,)
    sign: int  # The way into the vessel along the axis, 1 or -1
    # Of the opening, and points along it.
    axis: int
    length: int
    # Coordinates in the segment's lattice of the points that stand for those of the opening, in the
    # order of these, (n, 3).
    section: NDArray[np.int64]

    def section_numbers(self) -> NDArray[np.int64]:
        """Raster numbers of the section's points."""
        return raster(self.lattice.shape, self.section)

    def distances(self, part: LatticePart, reach: float) -> Floats:
        """Distances of a part's points from the wall in spacings, infinite beyond a reach."""
        nx, ny, nz = self.lattice.shape
        inside = np.zeros((nz, ny, nx), bool)
        inside.ravel()[self.lattice.runs.numbers()] = True
        walls = [not is_periodic for is_periodic in self.lattice.periodic]
        beyond = [(int(wall), int(wall)) for wall in reversed(walls)]
        distances = -distance_from_points(
            np.pad(inside, beyond), 1.0, reach + 1.0, self.lattice.periodic
        ).astype(np.float64)
        x, y, z = (part.coordinates + np.array(walls)).T
        values = distances[z, y, x]
        return np.where(values <= reach, np.maximum(values, 0.0), np.inf)


def segment_of(lattice: Lattice, opening: Opening, length: int, world: World) -> Segment:
    """The segment of so many points along the axis before an opening."""
    axis, sign = opening.axis, -opening.direction
    places = lattice.coordinates(opening.numbers)
    low, high = places.min(axis=0), places.max(axis=0)
    closed = np.array(lattice.periodic)
    # Along an axis on which the vessel closes on itself, the segment does so too.
    low[closed], high[closed] = 0, np.array(lattice.shape)[closed] - 1
    section = places - low
    section[:, axis] = 0 if sign > 0 else length - 1
    low[axis] = opening.plane - length if sign > 0 else opening.plane + 1
    counts = high - low + 1
    counts[axis] = length
    closed[axis] = True
    nx, ny, nz = counts.tolist()
    periodic = (bool(closed[0]), bool(closed[1]), bool(closed[2]))
    shape = (nx, ny, nz)
    points = np.repeat(section[None], length, axis=0)
    points[:, :, axis] = np.arange(length)[:, None]
    runs = Runs.of_points(shape, np.sort(raster(shape, points.reshape(-1, 3))))
    origin = lattice.origin + lattice.spacing * low
    grid = Grid(shape, origin, lattice.spacing, periodic)
    slab = (nz * world.rank // world.size, nz * (world.rank + 1) // world.size)
    return Segment(Lattice(grid, runs, (), slab), low, sign, axis, length, section)


def best_length(opening: Opening, spacing: float, kinds: Sequence[CellsTable]) -> int:
    """Points along a segment, so that the fullest kind comes nearest to a whole number of cells.

    Three to four times the widest cell, so that none meets its own image.
    """
    widest = max(2 * kind.radius_um * MICRO for kind in kinds if kind.hematocrit)
    least, most = (math.ceil(factor * widest / spacing) for factor in (_LEAST, _MOST))
    fullest = max(kinds, key=lambda kind: kind.hematocrit)

    def surplus(length: int) -> float:
        wanted = cells_wanted(fullest, len(opening.numbers) * length, spacing)
        return math.ceil(wanted - _WHOLE) / wanted

    return min(range(least, most + 1), key=surplus)


def cells_wanted(kind: CellsTable, points: int, spacing: float) -> float:
    """How many cells fill so many points to the hematocrit of their kind; no whole number."""
    filling = filling_of(kind)
    return filling.hematocrit * points * (spacing / MICRO) ** 3 / filling.volume


def whole_cells(
    kinds: Sequence[CellsTable], points: int, spacing: float
) -> tuple[tuple[CellsTable, ...], list[float]]:
    """Kinds with hematocrits that whole numbers of cells make, and which share of them is wanted."""
    cells, shares = [], []
    for kind in kinds:
        wanted = cells_wanted(kind, points, spacing)
        count = math.ceil(wanted - _WHOLE)
        shares.append(wanted / count if count else 0.0)
        factor = count / wanted if count else 0.0
        cells.append(kind.model_copy(update={"hematocrit": kind.hematocrit * factor}))
    return tuple(cells), shares
