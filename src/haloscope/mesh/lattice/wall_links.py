"""Where the links of fluid points meet the walls.

A family of parallel links lies on lines through lattice points. Sheared by whole points, the lines
of a diagonal become lines along an axis of another lattice, so that each family is found by one
scan conversion, whose crossings are sorted and then looked up by the links that end outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.scan_conversion import crossings
from haloscope.mesh.lattice.shapes import Shape
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.surfaces.surface_walls import walls_of
from haloscope.mesh.surfaces.surfaces import Surface

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

HALFWAY = 0.5
LEAST_FRACTION = 1e-6
"""Fraction of a link of a point that lies on the wall itself."""


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


def link_fractions(
    lattice: Lattice, geometry: Surface | Shape, numbers: Integers, links: NDArray[np.integer]
) -> Floats:
    """Fractions of given links at which walls are met.

    `numbers`: raster numbers of the fluid points at which the links begin, of any slab, shape
    (links,).
    """
    # `links`: in spacings, from the points to neighbours that are no fluid, each along one axis or
    # along two at once, shape (links, 3).
    fractions = _met(lattice, geometry, numbers, links)
    # The cross-section of an opening is that of the plane before it.
    strides = (1, lattice.shape[0], lattice.shape[0] * lattice.shape[1])
    lost = np.flatnonzero(np.isinf(fractions))
    before = numbers[lost]
    for opening in lattice.openings:
        there = np.isin(numbers[lost], opening.numbers)
        before[there] -= opening.direction * strides[opening.axis]
    lost, before = lost[before != numbers[lost]], before[before != numbers[lost]]
    fractions[lost] = _met(lattice, geometry, before, links[lost])
    return np.where(np.isinf(fractions), HALFWAY, np.clip(fractions, LEAST_FRACTION, 1))


def _met(
    lattice: Lattice, geometry: Surface | Shape, numbers: Integers, links: NDArray[np.integer]
) -> Floats:
    """Fractions of links at which walls are met, infinite where there are none up to the end."""
    if not len(numbers):
        return np.empty(0)
    if not isinstance(geometry, Surface):
        vectors = np.asarray(links * lattice.spacing, np.float64)
        fractions = geometry.link_fractions(lattice.positions(numbers), vectors)
        # A wall that goes through a point is met in spite of rounding.
        return np.where(fractions <= 1 + LEAST_FRACTION, fractions, np.inf)
    walls = walls_of(lattice, geometry)
    coordinates = lattice.coordinates(numbers)
    fractions = np.full(len(numbers), np.inf)
    # Opposite links lie on the same lines.
    first = np.where(links[:, 0] != 0, links[:, 0], links[:, 1])
    sense = np.sign(np.where(first != 0, first, links[:, 2]))
    code = (links * sense[:, None] + 1) @ np.array([9, 3, 1])
    for family in range(27):
        mine = np.flatnonzero(code == family)
        if not len(mine):
            continue
        direction = np.array([family // 9, family // 3 % 3, family % 3]) - 1
        scan = _Scan(lattice, walls, direction, coordinates[mine, 2])
        fractions[mine] = scan.fractions(coordinates[mine], sense[mine])
    return fractions


def _missing(lattice: Lattice, direction: NDArray[np.integer]) -> Integers:
    """Points of the slab whose neighbour along a direction is neither fluid nor past an opening."""
    opposite = [-int(c) for c in direction]
    # Neighbours against the direction of fluid points are the points whose neighbour is fluid.
    served = lattice.runs.shifted(opposite, lattice.periodic)
    points = lattice.runs.slab(*lattice.slab).minus(served.slab(*lattice.slab)).numbers()
    for opening in lattice.openings:
        if direction[opening.axis] * opening.direction > 0:
            points = points[~np.isin(points, opening.numbers)]
    return points


class _Scan:
    """Crossings of all lines along one direction, by the link on which they lie.

    The link from point L to the next along the direction holds a crossing at u with L < u <= L + 1:
    the rule by which the points were told to be inside.
    """

    def __init__(
        self, lattice: Lattice, walls: Surface, direction: Integers, planes: Integers
    ) -> None:
        self.shape = lattice.shape
        self.direction = direction
        # Only what may be met from points in these planes z.
        start, stop = int(planes.min()), int(planes.max()) + 1
        points = (walls.points - lattice.origin) / lattice.spacing
        heights = points[:, 2][walls.triangles]
        near = (heights.max(axis=1) >= start - 2) & (heights.min(axis=1) <= stop + 1)
        along = int(np.flatnonzero(direction)[0])
        one, two = (axis for axis in range(3) if axis != along)
        slopes = self.direction[[one, two]]
        sheared = np.stack(
            [
                points[:, along],
                points[:, one] - slopes[0] * points[:, along],
                points[:, two] - slopes[1] * points[:, along],
            ],
            axis=1,
        )
        reach = int(sum(self.shape)) + 2
        keys, places = [np.empty(0, np.int64)], [np.empty(0)]
        for hits in crossings(sheared, walls.triangles[near], (-reach, reach), (-reach, reach)):
            coordinates = np.empty((len(hits.u), 3), np.int64)
            link = np.ceil(hits.u).astype(np.int64) - 1
            coordinates[:, along] = link
            coordinates[:, one] = hits.v + slopes[0] * link
            coordinates[:, two] = hits.w + slopes[1] * link
            near_slab = (coordinates[:, 2] >= start - 1) & (coordinates[:, 2] <= stop)
            near_slab &= self._in_reach(coordinates)
            keys.append(self._keys(coordinates[near_slab]))
            places.append((hits.u - link)[near_slab])
        key, place = np.concatenate(keys), np.concatenate(places)
        order = np.lexsort((place, key))
        self.key, self.place = key[order], place[order]

    def _in_reach(self, coordinates: Integers) -> NDArray[np.bool_]:
        """Whether points lie in the box or next to it."""
        return np.asarray(((coordinates >= -1) & (coordinates <= np.array(self.shape))).all(axis=1))

    def _keys(self, coordinates: Integers) -> Integers:
        """Raster numbers in a box that is one point wider on each side."""
        nx, ny, _ = self.shape
        x, y, z = (coordinates + 1).T
        return np.asarray(x + (nx + 2) * (y + (ny + 2) * z))

    def fractions(self, coordinates: Integers, sense: Integers) -> Floats:
        """Fraction of the links of points along or, with sense -1, against the direction."""
        if not len(self.key):
            return np.full(len(coordinates), np.inf)
        forward = sense > 0
        keys = self._keys(np.where(forward[:, None], coordinates, coordinates - self.direction))
        # Of several crossings on a link the one nearest to the point.
        begin = np.searchsorted(self.key, keys, "left")
        end = np.searchsorted(self.key, keys, "right") - 1
        place = np.minimum(np.where(forward, begin, end), len(self.key) - 1)
        fractions = np.where(forward, self.place[place], 1 - self.place[place])
        return np.where(begin <= end, fractions, np.inf)
