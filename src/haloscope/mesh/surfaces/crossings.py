"""Planes and lines of a lattice that cross triangles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.surfaces.surfaces import Floats, Integers, spread

Flags = NDArray[np.bool_]

# Pairs of triangles and planes, or of segments and lines, that are worked on at a time.
_CHUNK = 2**20


def lone_corners(above: Flags) -> tuple[Integers, Flags]:
    """Corner (n,) that is alone on its side of a plane that crosses triangles, and whether it is above.

    `above`: which corners are on the plane or above it, (n, 3).
    """
    tip_above = above.sum(axis=1) == 1
    return np.where(tip_above, above.argmax(axis=1), (~above).argmax(axis=1)), tip_above


def cut_by_plane(corners: Floats, across: Floats, height: float) -> Floats:
    """Ends (n, 2, 3) of the lines in which a plane crosses triangles with corners (n, 3, 3).

    `across`: coordinate across the plane of the corners, (n, 3); `height`: that of the plane.
    """
    alone, _ = lone_corners(across >= height)
    rows = np.arange(len(corners))
    ends = np.empty((len(corners), 2, 3))
    for number in (0, 1):
        other = (alone + 1 + number) % 3
        share = (height - across[rows, alone]) / (across[rows, other] - across[rows, alone])
        tip = corners[rows, alone]
        ends[:, number] = tip + share[:, None] * (corners[rows, other] - tip)
    return ends


# First the surface is cut by the planes w = 0, 1, 2 ...: a triangle between whose corners a plane
# lies gives one segment, with ends on two of its edges. Then the segments are cut by the lines
# v = 0, 1, 2 ... of each plane. In both steps a corner or end that lies exactly on the plane or line
# counts as above it, and the point on an edge is computed in the same way for both its triangles.
# So the segments in a plane form closed polygons, and every line crosses a closed surface an even
# number of times, whatever it hits: a corner, an edge, or a triangle along its whole length.


@dataclass(frozen=True)
class Crossings:
    """Crossings of lines along u with a surface, in no particular order."""

    u: Floats  # Place on the line, shape (n,)
    # Line, shape (n,).
    v: Integers
    w: Integers
    # Whether the line goes in there, toward larger u, through a triangle whose corners are
    # counter-clockwise seen from outside, shape (n,).
    enters: Flags


def crossings(
    points: Floats,
    triangles: NDArray[np.integer],
    lines: tuple[int, int],
    planes: tuple[int, int],
) -> Iterator[Crossings]:
    """Cross a surface with the lines of a lattice that run along the first axis.

    `points`: (u, v, w) in spacings of the lattice, shape (points, 3); `triangles`: shape
    (triangles, 3).
    """
    height = np.floor(points[:, 2]).astype(np.int64)[triangles]
    # Plane k lies between corners if the lowest is below it and the highest is not.
    low = np.clip(height.min(axis=1) + 1, planes[0], planes[1])
    high = np.clip(height.max(axis=1) + 1, planes[0], planes[1])
    rows = np.flatnonzero(high > low)
    for part in _chunks(rows, (high - low)[rows]):
        triangle, place = spread((high - low)[part])
        plane = low[part][triangle] + place
        for segments in _chunks(np.arange(len(plane)), None):
            ends, tip_above = _segments(
                points, triangles[part[triangle[segments]]].astype(np.int64), plane[segments]
            )
            yield from _cut(ends, tip_above, plane[segments], lines)


def _chunks(items: Integers, sizes: Integers | None) -> Iterator[Integers]:
    """Parts of a list whose sizes add up to about `_CHUNK`; each item has size 1 without sizes."""
    if sizes is None:
        for start in range(0, len(items), _CHUNK):
            yield items[start : start + _CHUNK]
        return
    chunk = np.cumsum(sizes) // _CHUNK
    yield from (part for part in np.split(items, np.flatnonzero(np.diff(chunk)) + 1) if len(part))


def _segments(points: Floats, triangles: Integers, plane: Integers) -> tuple[Floats, Flags]:
    """Ends (u, v) of the cuts of triangles with planes, shape (n, 2, 2): cut, end, component.

    Also whether the corner that is alone on its side is above: then what is seen from outside, w
    upward, goes from left to right, else from right to left.
    """
    above = points[:, 2][triangles] >= plane[:, None]
    # The cut runs between the edges that meet in the corner that is alone.
    alone, tip_above = lone_corners(above)
    numbers = np.arange(len(triangles))
    tip = triangles[numbers, alone]
    ends = np.empty((len(triangles), 2, 2))
    for number in (0, 1):
        other = triangles[numbers, (alone + 1 + number) % 3]
        one, two = points[np.minimum(tip, other)], points[np.maximum(tip, other)]
        share = (plane - one[:, 2]) / (two[:, 2] - one[:, 2])
        ends[:, number] = one[:, :2] + share[:, None] * (two - one)[:, :2]
    return ends, tip_above


def _cut(
    ends: Floats, tip_above: Flags, plane: Integers, lines: tuple[int, int]
) -> Iterator[Crossings]:
    """Crossings of segments with the lines of their planes."""
    floors = np.floor(ends[:, :, 1]).astype(np.int64)
    low = np.clip(floors.min(axis=1) + 1, lines[0], lines[1])
    high = np.clip(floors.max(axis=1) + 1, lines[0], lines[1])
    # Who looks along u at a side that faces them has v on the left.
    enters = (ends[:, 1, 1] > ends[:, 0, 1]) != tip_above
    rows = np.flatnonzero(high > low)
    for part in _chunks(rows, (high - low)[rows]):
        segment, place = spread((high - low)[part])
        line = low[part][segment] + place
        (u, v), (u_end, v_end) = np.moveaxis(ends[part[segment]], 0, 2)
        at = u + (line - v) / (v_end - v) * (u_end - u)
        # Rounding must not carry a crossing off its segment.
        at = np.clip(at, np.minimum(u, u_end), np.maximum(u, u_end))
        yield Crossings(at, line, plane[part[segment]], enters[part[segment]])
