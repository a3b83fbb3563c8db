"""Links of lattice points that meet walls, all of a slab at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.lattice_runs import raster
from haloscope.mesh.lattice.shapes import Shape
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.lattice.wall_links import link_fractions
from haloscope.mesh.surfaces.surfaces import Floats, Integers, Surface


@dataclass(frozen=True, eq=False)
class WallLinks:
    """Points with links that meet a wall."""

    numbers: Integers  # Raster numbers of the points, ascending, shape (points,)
    # Part of each link that lies within the fluid, in (0, 1], and 0 for a link that meets no wall;
    # shape (points, directions).
    fractions: Floats


def wall_links(
    lattice: Lattice, geometry: Surface | Shape, directions: NDArray[np.integer]
) -> WallLinks:
    """Find the fractions of links at which walls are met, for the points of the lattice's slab.

    `directions`: links of a point in spacings, each along one axis or along two at once, shape (n,
    3).
    """
    missing = [_missing(lattice, direction) for direction in directions]
    numbers = np.sort(np.concatenate(missing))
    numbers = numbers[np.diff(numbers, prepend=-1) > 0]
    fractions = np.zeros((len(numbers), len(directions)))
    column = np.repeat(np.arange(len(directions)), [len(points) for points in missing])
    points = np.concatenate(missing)
    fractions_met = link_fractions(lattice, geometry, points, np.asarray(directions)[column])
    fractions[np.searchsorted(numbers, points), column] = fractions_met
    return WallLinks(numbers, fractions)


def _missing(lattice: Lattice, direction: NDArray[np.integer]) -> Integers:
    """Points of the slab whose neighbour along a direction is neither fluid nor past an opening."""
    points, shape = lattice.points, np.array(lattice.shape)
    ends = lattice.coordinates(points) + direction
    ends = np.where(lattice.periodic, ends % shape, ends)
    inside = ((ends >= 0) & (ends < shape)).all(axis=1)
    served = inside & lattice.contains(raster(lattice.shape, np.where(inside[:, None], ends, 0)))
    points = points[~served]
    for opening in lattice.openings:
        if direction[opening.axis] * opening.direction > 0:
            points = points[~np.isin(points, opening.numbers)]
    return points
