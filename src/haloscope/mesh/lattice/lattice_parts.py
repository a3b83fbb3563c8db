"""A rank's own points of a sparse lattice, the ghosts around them, and what lies next to each.

A point has the raster number x + nx (y + ny z) in the whole lattice. A ghost is known by that
number: where a closed axis is so short that a rank meets another's point on two sides, it holds one
ghost, which both sides refer to; and what it meets of itself is its own point, never a ghost.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import Boxes

Integers = NDArray[np.int64]
Triple = tuple[int, int, int]

WALL = -1
"""In `sources`: no point of the lattice lies there."""
OUTSIDE = -2
"""In `sources`: opening k has the outside there, as ``OUTSIDE - k``."""
_LARGEST = 2**31 - 1
# What a direction may point outwards, over the outward vector's length, and still lie along it.
_ALONG = 1e-9


@dataclass(frozen=True)
class Region:
    """The bounding cuboid of a lattice and how ranks share it."""

    shape: tuple[int, int, int]  # Points along x, y, z
    periodic: tuple[bool, bool, bool]  # Axes along which it closes on itself
    boxes: Boxes  # Of the ranks; they tile the cuboid

    def wrapped(self, points: np.ndarray) -> np.ndarray:
        """Points (n, 3) in the cuboid, which begins half a spacing before its first lattice point."""
        result = np.array(points, np.float64)
        for axis, count in enumerate(self.shape):
            if self.periodic[axis]:
                result[:, axis] -= count * np.floor((result[:, axis] + 0.5) / count)
        return result

    def owners(self, points: np.ndarray) -> np.ndarray:
        """Ranks in whose boxes points (n, 3) lie; those outside count for the nearest box."""
        ranks: np.ndarray = self.boxes.owners(np.floor(self.wrapped(points) + 0.5))
        return ranks

    def reached(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Which boxes cells reach into, themselves or their periodic images.

        `low`, `high`: corners of the cells' bounding boxes, (n, 3), not wrapped; Returns: (n,
        ranks), bool.
        """
        result = np.ones((len(low), len(self.boxes.lo)), bool)
        for axis, count in enumerate(self.shape):
            if ((self.boxes.hi - self.boxes.lo)[:, axis] == count).all():
                # No cut goes across this axis.
                continue
            begin, end = self.boxes.lo[:, axis] - 0.5, self.boxes.hi[:, axis] - 0.5
            bottom, top = low[:, axis, None], high[:, axis, None]
            if not self.periodic[axis]:
                # What lies outside of the cuboid belongs to the boxes at its sides.
                bottom = np.minimum(bottom, count - 0.5 - 1e-9)
                top = np.maximum(top, -0.5)
                result &= (bottom < end) & (top >= begin)
                continue
            # The image whose top is the first past the box's begin.
            ahead = top - count * np.floor((top - begin) / count)
            result &= ahead - (top - bottom) < end
        return result


@dataclass(frozen=True, eq=False)
class LatticePart:
    """Points of one rank: bulk, openings, ghosts; in raster order within each of the three.

    The raster's rows lie along x and its planes across z, or as :meth:`along` was asked for.
    """

    coordinates: NDArray[np.int32]  # int32 (count, 3): x, y, z in the whole lattice
    # How many points are this rank's own, and how many of those on no opening; they come first.
    owned: int
    bulk: int
    numbers: Integers  # int64 (count,): raster numbers in the whole lattice
    openings: NDArray[np.int32]  # int32 (count,): the opening that a point is on, -1: none
    # int32 (directions, owned): local index of the point at x - c_i, :data:`WALL`, or ``OUTSIDE -
    # k``.
    sources: NDArray[np.int32]
    # First point of the rank's cuboid along x, y, z, and the one after its last.
    box: tuple[Triple, Triple]
    halo: int  # How many points beyond the cuboid there are ghosts
    # int32 (z, y, x) over the cuboid and the halo around it: local index of the point there, -1:
    # none. Closed axes are wrapped.
    table: NDArray[np.int32]
    rows: int = 0  # Axis along which points follow each other

    @property
    def count(self) -> int:
        """Own points and ghosts."""
        return len(self.numbers)

    @property
    def ghosts(self) -> int:
        """Points that other ranks own."""
        return self.count - self.owned

    def find(self, numbers: Integers, shape: Triple) -> NDArray[np.int32]:
        """Local indices of own points by their raster numbers; -1 for what is none."""
        lo, hi = (np.array(corner) for corner in self.box)
        places = raster_coordinates(numbers, shape)
        inside: NDArray[np.bool_] = np.all((places >= lo) & (places < hi), axis=1)
        x, y, z = (np.where(inside[:, None], places, lo) - lo + self.halo).T
        indices: NDArray[np.int32] = np.where(inside, self.table[z, y, x], -1)
        return indices

    def count_rows(self) -> Integers:
        """How many rows own points make along x, y and z, (3,); there is a halo."""
        places = self.coordinates[: self.owned] - np.array(self.box[0]) + self.halo
        strides = np.array([1, self.table.shape[2], self.table.shape[2] * self.table.shape[1]])
        here, flat = places @ strides, self.table.reshape(-1)
        before = [flat[here - stride] for stride in strides]
        return np.array([np.count_nonzero((of < 0) | (of >= self.owned)) for of in before])

    def along(self, axis: int, across: int | None = None) -> LatticePart:
        """The same points in raster order with rows along another axis, which changes places with x.

        `across`: another axis, plane by plane across which points follow each other then.
        """
        fastest = [0, 1, 2]
        fastest[0], fastest[axis] = axis, 0
        if across is not None:
            fastest = [axis, 3 - axis - across, across]
        x, y, z = (self.coordinates[:, a] for a in fastest)
        kind = np.zeros(self.count, np.int8)
        kind[self.bulk : self.owned], kind[self.owned :] = 1, 2
        order = np.lexsort((x, y, z, kind))
        place = np.empty(self.count, np.int32)
        place[order] = np.arange(self.count, dtype=np.int32)

        def renumber(points: NDArray[np.int32]) -> None:
            # What is negative says why there is no point. Most places of a table may have none.
            known = points >= 0
            points[known] = place[points[known]]

        sources, table = np.empty_like(self.sources), self.table.copy()
        renumber(table)
        for row, before in zip(sources, self.sources, strict=True):
            row[:] = before[order[: self.owned]]
            renumber(row)
        return replace(
            self,
            coordinates=self.coordinates[order],
            numbers=self.numbers[order],
            openings=self.openings[order],
            sources=sources,
            table=table,
            rows=axis,
        )


def raster_coordinates(numbers: Integers, shape: Triple) -> Integers:
    """Coordinates (n, 3) of points from their raster numbers."""
    rows, x = np.divmod(numbers, shape[0])
    z, y = np.divmod(rows, shape[1])
    # Columns without gaps: they are looked through one by one.
    return np.stack([x, y, z]).T


def take(
    numbers: Integers,
    shape: Triple,
    box: tuple[ArrayLike, ArrayLike],
    halo: int,
    directions: NDArray[np.integer],
    *,
    periodic: tuple[bool, bool, bool] = (False, False, False),
    openings: ArrayLike | None = None,
    outward: ArrayLike = (),
    links: Mapping[int, tuple[Integers, NDArray[np.integer]]] | None = None,
) -> LatticePart:
    """A rank's part of a lattice.

    It holds 4 bytes for each place of the cuboid and its halo, full or empty, 24 for a point and 4
    for each of an own point's directions; on the way about 100 more for a point.
    """
    # `numbers`: raster numbers of at least all points in the cuboid and within the halo around it,
    # in any order, each once; others are left out.
    # `directions`: (n, 3): x, y, z of c_i.
    # `openings`: the opening that each of the points is on, -1: none; by default there are none.
    # `outward`: (openings, 3): a vector that points out of the lattice at each opening. What is
    # missing at x - c_i of a point on an opening is its outside where -c_i points outwards. That of an
    # opening with `links` is outside along these alone, of points (n,) by their numbers and (n, 3).
    steps = np.asarray(directions, np.int64)
    lo, hi = (np.asarray(corner, np.int64) for corner in box)
    tags = _tags(len(numbers), openings)
    normals = np.asarray(outward, np.float64).reshape(-1, 3)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals / np.where(lengths > 0, lengths, 1.0)
    extent = hi - lo + 2 * halo
    _check(steps, halo, tags, normals, extent)
    order = np.argsort(numbers, kind="stable")
    numbers, tags = numbers[order], tags[order]
    places = raster_coordinates(numbers, shape)
    images = _images(places, shape, periodic, lo, hi, halo)
    near = _distinct_points(images, len(numbers))
    own = np.all((places[near] >= lo) & (places[near] < hi), axis=1)
    kind = np.where(own, np.where(tags[near] < 0, 0, 1), 2)
    chosen = near[np.argsort(kind, kind="stable")]
    bulk, owned = (int(n) for n in np.cumsum(np.bincount(kind, minlength=3))[:2])
    local = np.full(len(numbers), -1, np.int32)
    local[chosen] = np.arange(len(chosen))
    table = np.full(extent[::-1], -1, np.int32)
    flat = table.reshape(-1)
    strides = np.array([1, extent[0], extent[0] * extent[1]])
    for at, image in images:
        flat[image @ strides] = local[at]
    numbers, tags, places = numbers[chosen], tags[chosen], places[chosen]
    here = (places[:owned] - lo + halo) @ strides
    sources = np.empty((len(steps), owned), np.int32)
    on = tags[bulk:owned]
    for row, step in zip(sources, steps, strict=True):
        row[:] = flat[here - step @ strides]
        beyond = normals @ -step > _ALONG
        edge = row[bulk:]
        missing = (edge == WALL) & beyond[on]
        edge[missing] = OUTSIDE - on[missing]
    for number, (points, ways) in (links or {}).items():
        at = np.searchsorted(numbers[bulk:owned], points)
        there = at < owned - bulk
        there[there] = numbers[bulk:owned][at[there]] == points[there]
        at, ways = bulk + at[there], ways[there]
        # Not of points on an opening with a plane.
        free = np.isin(tags[at], list(links or {}))
        for row, step in zip(sources, steps, strict=True):
            mine = at[free & (ways == -step).all(axis=1)]
            mine = mine[row[mine] == WALL]
            row[mine] = OUTSIDE - number
    corners = (_triple(lo), _triple(hi))
    return LatticePart(
        places.astype(np.int32), owned, bulk, numbers, tags, sources, corners, halo, table
    )


def distribute(
    world: World,
    numbers: Integers,
    shape: Triple,
    boxes: Boxes,
    halo: int,
    *,
    periodic: tuple[bool, bool, bool] = (False, False, False),
    openings: ArrayLike | None = None,
) -> tuple[Integers, NDArray[np.int32]]:
    """Hand points from the ranks that found them to their owners and to those who hold ghosts.

    All ranks call this. A rank sends and gets 12 bytes for a point, and needs about 120 more for
    each that it brings.
    """
    tags = _tags(len(numbers), openings)
    places = raster_coordinates(numbers, shape)
    points, tagged = [], []
    for lo, hi in zip(boxes.lo, boxes.hi, strict=True):
        images = _images(places, shape, periodic, lo, hi, halo)
        chosen = _distinct_points(images, len(numbers))
        points.append(np.ascontiguousarray(numbers[chosen], np.int64).view(np.uint8))
        tagged.append(tags[chosen].view(np.uint8))
    # Bytes that arrive may begin anywhere.
    came = np.frombuffer(b"".join(part.tobytes() for part in world.exchange(points)), np.int64)
    on = np.frombuffer(b"".join(part.tobytes() for part in world.exchange(tagged)), np.int32)
    return came, on


def _tags(points: int, openings: ArrayLike | None) -> NDArray[np.int32]:
    return np.full(points, -1, np.int32) if openings is None else np.asarray(openings, np.int32)


def _check(
    directions: Integers,
    halo: int,
    tags: NDArray[np.int32],
    normals: NDArray[np.float64],
    extent: Integers,
) -> None:
    reach = int(np.abs(directions).max(initial=0))
    if halo < reach:
        raise InputError(
            f"the directions reach {counted(reach, 'point')}",
            location=f"halo = {halo}",
            allowed=f"{reach} or more",
        )
    most = int(tags.max(initial=-1))
    if most >= len(normals):
        raise InputError(
            f"points lie on opening {most}, but there are outward vectors for "
            f"{counted(len(normals), 'opening')}",
            remedy="give a vector for each opening",
        )
    if int(extent.prod()) > _LARGEST:
        raise InputError(
            f"the cuboid of a rank with its halo has {' x '.join(map(str, extent))} points",
            allowed=f"at most {_LARGEST} points",
            remedy="start more ranks or use a larger spacing",
        )


def _images(
    places: Integers,
    shape: Triple,
    periodic: tuple[bool, bool, bool],
    lo: Integers,
    hi: Integers,
    halo: int,
) -> list[tuple[Integers, Integers]]:
    """Which points lie in a cuboid with its halo, and where in it, for each way to wrap axes."""
    begin, end = lo - halo, hi + halo
    shifts = []
    for axis in range(3):
        # Points from 0 to n - 1, shifted by n times a whole number, meet begin to end - 1.
        n = shape[axis]
        least, most = -((n - 1 - begin[axis]) // n), (end[axis] - 1) // n
        shifts.append(range(int(least), int(most) + 1) if periodic[axis] else range(1))
    images = []
    for by_z in shifts[2]:
        # Raster order is ascending in z.
        planes = np.array([begin[2], end[2]]) - by_z * shape[2]
        in_z = np.arange(*np.searchsorted(places[:, 2], planes))
        for by_y, by_x in itertools.product(shifts[1], shifts[0]):
            y = places[in_z, 1] + by_y * shape[1]
            in_y = in_z[(y >= begin[1]) & (y < end[1])]
            x = places[in_y, 0] + by_x * shape[0]
            at = in_y[(x >= begin[0]) & (x < end[0])]
            by = np.array([by_x, by_y, by_z]) * np.array(shape)
            images.append((at, places[at] + by - begin))
    return images


def _distinct_points(images: list[tuple[Integers, Integers]], points: int) -> Integers:
    """Points that have images, ascending."""
    wanted = np.zeros(points, bool)
    for at, _ in images:
        wanted[at] = True
    return np.flatnonzero(wanted)


def _triple(values: Integers) -> Triple:
    x, y, z = values.tolist()
    return x, y, z
