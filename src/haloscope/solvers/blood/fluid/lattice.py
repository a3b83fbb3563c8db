"""The lattice D3Q19, the lattice points of a rank, and the rows that cores take them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import Boxes, bisect
from haloscope.mesh.lattice.lattice_parts import LatticePart, Triple, distribute, take
from haloscope.mesh.lattice.openings import Opening
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice

DIRECTIONS = 19
_HALF = [
    (1, 0, 0),
    (0, 1, 0),
    (0, 0, 1),
    (1, 1, 0),
    (1, -1, 0),
    (1, 0, 1),
    (1, 0, -1),
    (0, 1, 1),
    (0, 1, -1),
]

VELOCITIES = np.array(
    [(0, 0, 0), *(tuple(sign * c for c in one) for one in _HALF for sign in (1, -1))]
)
"""Directions c_i, (19, 3) integers: rest, then pairs of opposite ones."""

OPPOSITE = np.array([0, *(i + 1 if i % 2 else i - 1 for i in range(1, DIRECTIONS))])
"""Number of the opposite of each direction, (19,)."""

WEIGHTS = np.array([1 / 3] + [1 / 18] * 6 + [1 / 36] * 12)
"""Weights w_i, (19,); the square of the speed of sound is 1/3."""


def equilibrium(density: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Equilibrium populations less their weights, in lattice units.

    `density`: (points,), about 1; `velocity`: (3, points); Returns: w_i (rho (1 + 3 c.u + 9/2
    (c.u)^2 - 3/2 u.u) - 1): Qian, d'Humieres and Lallemand, Europhys. Lett. 17 (1992) 479.
    """
    along = VELOCITIES @ velocity
    change = 3 * along + 4.5 * along**2 - 1.5 * (velocity**2).sum(axis=0)
    result: np.ndarray = WEIGHTS[:, None] * (density * change + (density - 1))
    return result


Integers = NDArray[np.int64]


# Rows along another axis than x must be fewer by so much: it is what all else goes by.
_FEWER = 0.9


def rows_and_planes(lattice: Lattice) -> tuple[int, int]:
    """Axis along which rows lie, and the one across which planes lie, where planes are to be small.

    Where a row ends at a wall askew to the axes, GPUs take one value of a line of memory that others need a plane
    later: what planes hold is to stay in their caches until then.
    """
    across = 2 - int(np.argmax(lattice.shape[::-1]))
    return (2 if across == 0 else 0), across


def share_out(
    world: World,
    lattice: Lattice,
    halo: int,
    work: tuple[Integers, Integers] | None = None,
    *,
    order: Literal["longest rows", "small planes"] | None = None,
) -> tuple[Boxes, LatticePart]:
    """Cut the lattice into a cuboid a rank, and take this rank's; all ranks call this.

    `work`: places (n, 3) and work of what there is beside points, in that of a point; `order`: of points, by
    default rows along x and planes across z.
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
        opening.normal if isinstance(opening, Opening) else np.zeros(3)
        for opening in lattice.openings
    ]
    links = {
        number: (opening.points, opening.links)
        for number, opening in enumerate(lattice.openings)
        if isinstance(opening, TiltedOpening)
    }
    part = take(
        numbers,
        lattice.shape,
        (boxes.lo[world.rank], boxes.hi[world.rank]),
        halo,
        VELOCITIES[1:],
        periodic=lattice.periodic,
        openings=tags,
        outward=outward,
        links=links,
    )
    if order == "small planes":
        axis, across = rows_and_planes(lattice)
        if across != 2:
            part = part.along(axis, across)
    if order == "longest rows":
        rows = world.sum(part.count_rows())
        fewest = int(np.argmin(rows))
        if rows[fewest] < _FEWER * rows[0]:
            part = part.along(fewest)
    return boxes, part


def whole_part(
    numbers: Integers, shape: Triple, periodic: tuple[bool, bool, bool], halo: int = 1
) -> LatticePart:
    """All points of a lattice, by their raster numbers, on one rank."""
    return take(numbers, shape, ((0, 0, 0), shape), halo, VELOCITIES[1:], periodic=periodic)


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


Indices = NDArray[np.int32]
Places = NDArray[np.int64]

# Points of a block, one core's turn: what its rows and single points share stays in its cache.
_BLOCK = 1024
# A row pays for its addresses from this length on: a vector in part filled costs as much as a full one.
_SHORTEST = 4
# Values of the longest vector.
_LANES = 16


@dataclass(frozen=True)
class RowsAndPoints:
    """Points in the order in which cores take them; see fluid_cores.hpp."""

    blocks: Indices  # (blocks + 1, 2): rows and single points before each block
    rows: Indices  # (rows, 2): first point and length
    points: Indices  # Single points, and as many more as fill a vector: kernels read whole ones
    # Flat addresses of rows (rows, 29): those that the first point's populations have if it is like
    # the second one, from which the others' follow; then what comes up the row to the first point,
    # and down the row to the last, five of each. None where they are not needed.
    row_places: Places
    # Sources of single points, block after block (18, single points of the block); none where they
    # are not needed.
    point_sources: Indices


def rows_and_points(
    chosen: NDArray[np.int64], sources: Indices | None, stride: int, axis: int = 0
) -> RowsAndPoints:
    """Divide points into rows and single points.

    `sources`: (18, points) of all points, negative where there is none; None if a point's
    populations are all its own.
    """
    starts, lengths = _rows(chosen, sources, axis)
    rows = np.stack([chosen[starts], lengths], axis=1).astype(np.int32)
    # Changes of being in a row, point by point.
    edges = np.zeros(len(chosen) + 1, np.int8)
    edges[starts] += 1
    edges[starts + lengths] -= 1
    points = chosen[np.cumsum(edges[:-1], dtype=np.int8) == 0].astype(np.int32)
    count = chosen[-1] // _BLOCK + 1 if len(chosen) else 0
    ends = np.arange(count + 1) * _BLOCK
    links_before = np.stack(
        [np.searchsorted(rows[:, 0], ends), np.searchsorted(points, ends)], axis=1
    )
    kept = np.concatenate(([True], (np.diff(links_before, axis=0) > 0).any(axis=1)))
    blocks: Indices = links_before[kept].astype(np.int32)

    padded = np.append(points, np.zeros(_LANES, np.int32))
    if sources is None:
        return RowsAndPoints(blocks, rows, padded, np.empty(0, np.int64), np.empty(0, np.int32))
    # A block's are together: kernels read no more of them than these, and all at once.
    counts = np.diff(blocks[:, 1])
    block_of_row, before = np.repeat(counts, counts), np.repeat(blocks[:-1, 1], counts)
    place = len(sources) * before + np.arange(len(points)) - before
    of_points = np.zeros(len(sources) * len(points) + _LANES, np.int32)
    for number, row in enumerate(sources):
        of_points[place + number * block_of_row] = row[points]
    return RowsAndPoints(blocks, rows, padded, _row_places(rows, sources, stride, axis), of_points)


def _rows(
    chosen: NDArray[np.int64], sources: Indices | None, axis: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where in the list of points rows begin, and their lengths."""
    # Whether neighbours in the list have sources that are neighbours, too: all of them, and all but those
    # up or down the row.
    alike = (np.diff(chosen) == 1) & (np.diff(chosen // _BLOCK) == 0)
    first, last = alike.copy(), alike.copy()
    if sources is not None:
        for row, along in zip(sources, VELOCITIES[1:, axis], strict=True):
            here = row[chosen]
            absent = here < 0
            same = np.where(absent[1:], absent[:-1], (np.diff(here) == 1) & ~absent[:-1])
            alike &= same
            if along <= 0:
                first &= same
            if along >= 0:
                last &= same
    starts = np.flatnonzero(np.concatenate(([True], ~alike)))[: len(chosen)]
    lengths = np.diff(np.append(starts, len(chosen)))
    # A point by itself before or behind a row is its end where it differs no more than ends may.
    ahead, behind = np.zeros((2, len(starts)), np.int64)
    if len(starts) > 1:
        alone, link = lengths == 1, starts[1:] - 1
        behind[:-1] = ~alone[:-1] & alone[1:] & last[link]
        ahead[1:] = ~alone[1:] & alone[:-1] & first[link]
        ahead[2:] &= ~behind[:-2]
    starts, lengths = starts - ahead, lengths + ahead + behind
    # What is by itself, or has become an end, is no row: none of these is as long.
    long = lengths >= _SHORTEST
    return starts[long], lengths[long]


def _row_places(rows: Indices, sources: Indices, stride: int, axis: int) -> Places:
    """Flat addresses of rows; see RowsAndPoints."""
    up, down = (np.flatnonzero(sign * VELOCITIES[:, axis] > 0).tolist() for sign in (1, -1))
    first, length = rows.astype(np.int64).T
    last = first + length - 1

    def places(i: int, points: Places) -> Places:
        there = sources[i - 1, points].astype(np.int64)
        return np.where(there < 0, i * stride + points, OPPOSITE[i] * stride + there)

    columns = [first, *(places(i, first + 1) - 1 for i in range(1, DIRECTIONS))]
    columns += [places(i, first) for i in up]
    columns += [places(i, last) for i in down]
    return np.stack(columns, axis=1)
