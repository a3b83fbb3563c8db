"""From the lattice of a vessel to the points of a rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart, distribute, take
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.partition.bisection import Boxes, bisect
from haloscope.solvers.blood.fluid.d3q19 import VELOCITIES

Integers = NDArray[np.int64]


# Rows along another axis than x must be fewer by so much: it is what all else goes by.
_FEWER = 0.9


def share_out(
    world: World,
    lattice: Lattice,
    halo: int,
    work: tuple[Integers, Integers] | None = None,
    *,
    longest_rows: bool = False,
) -> tuple[Boxes, LatticePart]:
    """Cut the lattice into a cuboid a rank, and take this rank's; all ranks call this.

    `work`: places (n, 3) and work of what there is beside points, in that of a point.
    """
    points = lattice.points
    boxes = bisect(
        world, lattice.coordinates(points), lattice.shape, periodic=lattice.periodic, extra=work
    )
    numbers, tags = distribute(
        world,
        points,
        lattice.shape,
        boxes,
        halo,
        periodic=lattice.periodic,
        openings=lattice.opening_numbers(points),
    )
    outward = [
        [opening.direction if axis == opening.axis else 0 for axis in range(3)]
        for opening in lattice.openings
    ]
    part = take(
        numbers,
        lattice.shape,
        (boxes.lo[world.rank], boxes.hi[world.rank]),
        halo,
        VELOCITIES[1:],
        periodic=lattice.periodic,
        openings=tags,
        outward=outward,
    )
    if longest_rows:
        rows = world.sum(part.count_rows())
        fewest = int(np.argmin(rows))
        if rows[fewest] < _FEWER * rows[0]:
            part = part.along(fewest)
    return boxes, part


def wanted_by_others(part: LatticePart) -> NDArray[np.bool_]:
    """Which own points, (owned,), are within the halo of a point that another rank owns.

    Their velocities go to that rank, as a rule: it has ghosts of all that are within the halo of its
    cuboid.
    """
    near = part.table >= part.owned
    for axis in range(near.ndim):
        along = np.moveaxis(near, axis, 0)
        one = along.copy()
        for step in range(1, part.halo + 1):
            along[step:] |= one[:-step]
            along[:-step] |= one[step:]
    wanted = np.zeros(part.count, bool)
    there = near & (part.table >= 0)
    wanted[part.table[there]] = True
    return wanted[: part.owned]
