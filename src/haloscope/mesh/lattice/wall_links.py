"""Walls near lattice points: distances, and where the links of fluid points meet them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.blocks import Triple
from haloscope.mesh.lattice.lattice_runs import raster, unraster
from haloscope.mesh.lattice.link_crossings import first_crossings
from haloscope.mesh.lattice.shapes import Shape
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice, inside_runs
from haloscope.mesh.surfaces.surface_openings import continued_walls
from haloscope.mesh.surfaces.surfaces import Surface, spread

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bounds = tuple[Triple, Triple]

# Columns of points next to triangles that are worked on at a time: few enough for the caches.
_COLUMNS = 2**14
# Points of the box whose distances are held at a time.
_DENSE = 2**24
_SMALL = 1e-300


@dataclass(frozen=True, eq=False)
class WallDistances:
    """Signed distances at points near walls."""

    # Raster numbers of the points, ascending, on both sides of walls, shape (points,).
    numbers: Integers
    distances: Floats  # In m, positive inside, shape (points,)


def wall_distances(
    lattice: Lattice, geometry: Surface | Shape, reach: float, box: Bounds | None = None
) -> WallDistances:
    """Measure how far lattice points are from the nearest wall.

    `reach`: distance in m up to which points are listed; Returns: exact for the triangles, or for
    the shape, whose walls beyond a periodic side are not seen.
    """
    nx, ny, _ = lattice.shape
    low, high = box or ((0, 0, lattice.slab[0]), (nx, ny, lattice.slab[1]))
    planes = max(1, _DENSE // max(1, (high[0] - low[0]) * (high[1] - low[1])))
    numbers, distances = [np.empty(0, np.int64)], [np.empty(0)]
    for start in range(low[2], high[2], planes):
        stop = min(start + planes, high[2])
        part = ((low[0], low[1], start), (high[0], high[1], stop))
        if isinstance(geometry, Surface):
            number, distance = _from_surface(lattice, geometry, reach, part)
        else:
            count = math.prod(b - a for a, b in zip(*part, strict=True))
            number = _numbers(lattice, part, np.arange(count))
            distance = geometry.wall_distances(lattice.positions(number))
            near = np.abs(distance) <= reach
            number, distance = number[near], distance[near]
        numbers.append(number)
        distances.append(distance)
    return WallDistances(np.concatenate(numbers), np.concatenate(distances))


def _numbers(lattice: Lattice, box: Bounds, places: Integers) -> Integers:
    """Raster numbers in the lattice of points counted within a part of its box."""
    low, high = np.array(box[0]), np.array(box[1])
    nx, ny, nz = (int(n) for n in high - low)
    return raster(lattice.shape, unraster((nx, ny, nz), places) + low)


def _from_surface(
    lattice: Lattice, surface: Surface, reach: float, box: Bounds
) -> tuple[Integers, Floats]:
    """Points of a part of the lattice's box near the walls of a surface, and signed distances."""
    walls = continued_walls(lattice, surface)
    band = reach / lattice.spacing
    corners = (walls.corners - lattice.origin) / lattice.spacing
    low, high = np.array(box[0]), np.array(box[1])
    near = (corners.max(axis=1) >= low - band) & (corners.min(axis=1) <= high - 1 + band)
    squares = np.full(int((high - low).prod()), np.inf)
    # Counted from the corner of the box.
    _lower(squares, corners[near.all(axis=1)] - low, band, high - low)
    places = np.flatnonzero(squares <= band**2)
    numbers = _numbers(lattice, box, places)
    # By the surface, not by the fluid: what lies beyond an opening is inside the vessel, too.
    inside = inside_runs(surface, lattice.grid, box[0][2], box[1][2]).contains(numbers)
    # Points on an opening lie on a cap of the surface, or beyond it by rounding, yet are fluid.
    inside |= lattice.contains(numbers)
    distances = np.sqrt(squares[places]) * lattice.spacing
    return numbers, np.where(inside, distances, -distances)


def _lower(squares: Floats, corners: Floats, band: float, shape: Integers) -> None:
    """Lower squared distances in a box to those from triangles, where these are in the band.

    Looks at the columns of points along the axis that is nearest to a triangle's normal, and in
    each only at the points within the band around the triangle's plane.
    """
    frames = _Frames.of(corners)
    low = np.maximum(np.ceil(corners.min(axis=1) - band), 0).astype(np.int64)
    high = np.minimum(np.floor(corners.max(axis=1) + band), shape - 1).astype(np.int64)
    size = np.maximum(high - low + 1, 0)
    strides = np.array([1, shape[0], shape[0] * shape[1]])
    for main in range(3):
        one, two = (main + 1) % 3, (main + 2) % 3
        columns = size[:, one] * size[:, two] * (size[:, main] > 0)
        mine = np.flatnonzero((frames.main == main) & (columns > 0))
        for part in _parts(mine, columns[mine]):
            member, place = spread(columns[part])
            triangle = part[member]
            t, s = np.divmod(place, size[triangle, one])
            s += low[triangle, one]
            t += low[triangle, two]
            normal = frames.axes[2][:, triangle]
            middle = frames.height[triangle] - s * normal[one] - t * normal[two]
            middle /= normal[main]
            room = band / np.abs(normal[main])
            begin = np.maximum(np.ceil(middle - room), low[triangle, main]).astype(np.int64)
            end = np.minimum(np.floor(middle + room), high[triangle, main]).astype(np.int64)
            column, step = spread(np.maximum(end - begin + 1, 0))
            points = [step, step, step]
            points[main] = begin[column] + step
            points[one], points[two] = s[column], t[column]
            near, square = frames.near(points, triangle[column], band)
            number = sum(p[near] * int(stride) for p, stride in zip(points, strides, strict=True))
            np.minimum.at(squares, number, square)


def _parts(items: Integers, sizes: Integers) -> list[Integers]:
    """Parts of a list whose sizes add up to about `_COLUMNS`."""
    return np.split(items, np.flatnonzero(np.diff(np.cumsum(sizes) // _COLUMNS)) + 1)


@dataclass(frozen=True, eq=False)
class _Frames:
    """Coordinates of triangles' own: along the first side, across it, along the normal.

    In these the corners are (0, 0), (length, 0) and (x, y).
    """

    origin: Floats
    axes: tuple[Floats, Floats, Floats]
    length: Floats
    x: Floats
    y: Floats
    height: Floats
    main: Integers

    @classmethod
    def of(cls, corners: Floats) -> _Frames:
        """Frames of triangles (n, 3, 3) that have an area."""
        # The longest side first, so that the foot of the last corner falls on it.
        sides = np.linalg.norm(np.roll(corners, -1, axis=1) - corners, axis=2)
        turn = (sides.argmax(axis=1)[:, None] + np.arange(3)) % 3
        a, b, c = np.moveaxis(np.take_along_axis(corners, turn[..., None], axis=1), 1, 0)
        length = sides.max(axis=1)
        along = (b - a) / np.maximum(length, _SMALL)[:, None]
        normal = np.cross(along, c - a)
        area = np.linalg.norm(normal, axis=1)
        normal /= np.maximum(area, _SMALL)[:, None]
        # A triangle without an area is a line: any direction across it will do.
        line = area <= _SMALL
        spare = np.eye(3)[np.abs(along).argmin(axis=1)]
        normal[line] = np.cross(along, spare)[line]
        normal[line] /= np.maximum(np.linalg.norm(normal[line], axis=1), _SMALL)[:, None]
        across = np.cross(normal, along)
        return cls(
            a.T.copy(),
            (along.T.copy(), across.T.copy(), normal.T.copy()),
            length,
            np.einsum("ij,ij->i", c - a, along),
            area,
            np.einsum("ij,ij->i", a, normal),
            np.abs(normal).argmax(axis=1),
        )

    def near(
        self, points: list[Integers], triangle: Integers, band: float
    ) -> tuple[Integers, Floats]:
        """Which of the points lie within the band of their triangles, and squared distances."""
        x, y, z = (p - start[triangle] for p, start in zip(points, self.origin, strict=True))
        u, v = (x * e[0][triangle] + y * e[1][triangle] + z * e[2][triangle] for e in self.axes[:2])
        length, top = self.length[triangle], self.y[triangle]
        kept = np.flatnonzero(
            (u >= -band) & (u <= length + band) & (v >= -band) & (v <= top + band)
        )
        u, v, length, top, triangle = u[kept], v[kept], length[kept], top[kept], triangle[kept]
        normal = self.axes[2][:, triangle]
        w = x[kept] * normal[0] + y[kept] * normal[1] + z[kept] * normal[2]
        tip = self.x[triangle]
        # To the three sides, each with the point and the side's end relative to its start.
        flat = _to_side(u, v, length, np.zeros(1))
        flat = np.minimum(flat, _to_side(u, v, tip, top))
        flat = np.minimum(flat, _to_side(u - length, v, tip - length, top))
        within = (v >= 0) & (v * tip <= u * top) & (v * (tip - length) >= (u - length) * top)
        square = w**2 + np.where(within, 0.0, flat)
        close = square <= band**2
        return kept[close], square[close]


def _to_side(u: Floats, v: Floats, du: Floats, dv: Floats) -> Floats:
    """Squared distance of (u, v) from the line between (0, 0) and (du, dv)."""
    share = (u * du + v * dv) / np.maximum(du**2 + dv**2, _SMALL)
    np.clip(share, 0, 1, out=share)
    return np.asarray((u - share * du) ** 2 + (v - share * dv) ** 2)


HALFWAY = 0.5
LEAST_FRACTION = 1e-6
"""Fraction of a link of a point that lies on the wall itself."""


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
        if isinstance(opening, TiltedOpening):
            continue
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
    walls = continued_walls(lattice, geometry)
    return first_crossings(lattice.grid, walls, lattice.coordinates(numbers), links)
