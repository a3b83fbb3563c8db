"""Where links between neighbouring lattice points cross the triangles of a surface."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.shapes import Grid
from haloscope.mesh.surfaces.crossings import crossings
from haloscope.mesh.surfaces.surfaces import Surface

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A family of parallel links lies on lines through lattice points. Sheared by whole points, the lines
# of a diagonal become lines along an axis of another lattice, so that each family is found by one
# scan conversion, whose crossings are sorted and then looked up by the links that end outside.


def first_crossings(
    grid: Grid, surface: Surface, coordinates: Integers, links: NDArray[np.integer]
) -> Floats:
    """Fractions (n,) of links at which a surface is met first, infinite where it is not up to the end.

    `coordinates`: of the points at which the links begin, (n, 3); `links`: in spacings, each along one
    axis or along two at once, (n, 3).
    """
    fractions = np.full(len(coordinates), np.inf)
    # Opposite links lie on the same lines.
    first = np.where(links[:, 0] != 0, links[:, 0], links[:, 1])
    sense = np.sign(np.where(first != 0, first, links[:, 2]))
    code = (links * sense[:, None] + 1) @ np.array([9, 3, 1])
    for family in range(27):
        mine = np.flatnonzero(code == family)
        if not len(mine):
            continue
        direction = np.array([family // 9, family // 3 % 3, family % 3]) - 1
        scan = _Scan(grid, surface, direction, coordinates[mine, 2])
        fractions[mine] = scan.fractions(coordinates[mine], sense[mine])
    return fractions


class _Scan:
    """Crossings of all lines along one direction, by the link on which they lie.

    The link from point L to the next along the direction holds a crossing at u with L < u <= L + 1:
    the rule by which the points were told to be inside.
    """

    def __init__(self, grid: Grid, surface: Surface, direction: Integers, planes: Integers) -> None:
        self.shape = grid.shape
        self.direction = direction
        # Only what may be met from points in these planes z.
        start, stop = int(planes.min()), int(planes.max()) + 1
        points = (surface.points - grid.origin) / grid.spacing
        heights = points[:, 2][surface.triangles]
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
        for hits in crossings(sheared, surface.triangles[near], (-reach, reach), (-reach, reach)):
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
