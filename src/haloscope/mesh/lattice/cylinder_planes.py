"""Triangulations across a channel around a cylinder: rays and rings about it, rows up and down."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haloscope.errors import InputError
from haloscope.mesh.hexes.hex_boxes import graded, require_counts
from haloscope.mesh.tets.prisms import Plane, pairs, squares, triangles_of_squares
from haloscope.mesh.tets.tet_faces import Floats, Integers

CHANNEL_HEIGHT = 0.41
"""Height H of the channel of Schaefer and Turek's benchmark in m; in 3D its width as well."""
CYLINDER_DIAMETER = 0.1
"""Diameter D in m."""
AXIS_HEIGHT = 0.2
"""Distance of the cylinder's axis from the lower wall in m."""
BLOCK = 0.2
"""Half the length along x of the block of rays and rings in m."""

_LARGEST_RATIO = 1000.0
# The first cell of the channel over the last before the block.
_STRETCH_UPSTREAM = 2.0


@dataclass(frozen=True)
class ChannelCells:
    """How finely the plane is cut."""

    across: int  # Cells from wall to wall; as many stand on each quarter of the cylinder
    rings: int  # Cells from the cylinder to the edge of the block around it
    growth: float  # Thickness of the outermost ring over the innermost
    stretch: float  # Length of the last cell before the outlet over the first behind the block


def channel_plane(cells: ChannelCells, axis: float, length: float) -> Plane:
    """Triangulate the plane of a channel with a circular hole.

    `axis`: distance of the cylinder's axis from the inlet in m, `BLOCK` or more; `length`: of the
    channel in m.
    """
    # Pieces of its edge are ``inlet``, ``outlet``, ``walls`` and ``cylinder``. Above and below the
    # axis it is cut, and its points ranked, like mirror images: where the channel is not symmetric,
    # by the numbers of the cells.
    n, rings = cells.across, cells.rings
    require_counts("resolution", (n,), least=4)
    require_counts("rings", (rings,), least=2)
    for name, ratio in (("growth", cells.growth), ("stretch", cells.stretch)):
        if not 1 <= ratio <= _LARGEST_RATIO:
            raise InputError(
                f"{name} = {ratio:g} is out of range; allowed are 1 to {_LARGEST_RATIO:g}"
            )
    rim = _rim(n)
    circle = CYLINDER_DIAMETER / 2 * rim / np.linalg.norm(rim, axis=1, keepdims=True)
    share = graded(rings, 0.0, 1.0, cells.growth)[:, None, None]
    ring = circle * (1 - share) + rim * share + [axis, AXIS_HEIGHT]
    ring[-1, : n + 1, 0], ring[-1, 2 * n : 3 * n + 1, 0] = axis + BLOCK, axis - BLOCK
    ring[-1, n : 2 * n + 1, 1], ring[-1, [*range(3 * n, 4 * n), 0], 1] = CHANNEL_HEIGHT, 0.0
    first = (BLOCK - CYLINDER_DIAMETER / 2) * (1 - share[-2, 0, 0])
    down = _stations(axis + BLOCK, length, first, cells.stretch)[1:]
    up = np.empty(0)
    if axis > BLOCK:
        up = -_stations(BLOCK - axis, 0.0, first, _STRETCH_UPSTREAM)[1:]
    return _joined(ring, down, up)


def _rim(n: int) -> Floats:
    """Where rays end, seen from the axis: (4 n, 2), from the lower right corner upwards.

    The rays of each side of the block make equal angles.
    """
    low, high = -AXIS_HEIGHT, CHANNEL_HEIGHT - AXIS_HEIGHT
    turns = np.linspace(math.atan2(low, BLOCK), math.atan2(high, BLOCK), n + 1)
    rise = BLOCK * np.tan(turns)
    right = np.stack([np.full(n + 1, BLOCK), rise], axis=1)
    left = right[::-1] * [-1, 1]

    def level(height: float) -> Floats:
        half = math.atan2(BLOCK, abs(height))
        run = abs(height) * np.tan(np.linspace(half, -half, n + 1))
        return np.stack([run, np.full(n + 1, height)], axis=1)

    sides = (right, level(high), left, level(low)[::-1])
    return np.concatenate([side[:-1] for side in sides])


def _stations(begin: float, end: float, first: float, ratio: float) -> Floats:
    """Cut a length into cells that begin with about a given length and grow by a ratio in all."""
    mean = first * (ratio - 1) / math.log(ratio) if ratio > 1 else first
    return graded(max(1, round((end - begin) / mean)), begin, end, ratio)


def _joined(ring: Floats, down: Floats, up: Floats) -> Plane:
    """Number the points of the ring [ring, ray], then those behind and before it by columns."""
    rays = ring.shape[1]
    n, rings = rays // 4, len(ring) - 1
    around = np.arange(ring.shape[0] * rays).reshape(-1, rays)
    right, left = around[-1, : n + 1], around[-1, 3 * n : 2 * n - 1 : -1]
    behind = around.size + np.arange(len(down) * (n + 1)).reshape(-1, n + 1)
    before = around.size + behind.size + np.arange(len(up) * (n + 1)).reshape(-1, n + 1)
    rows = ring[-1, : n + 1, 1]
    columns = [np.stack(np.broadcast_arrays(x, rows), axis=-1) for x in (*down, *up)]
    points = np.concatenate([ring.reshape(-1, 2), *columns])
    closed = np.concatenate([around.T, around.T[:1]])
    tail = np.concatenate([right[None], behind])
    head = np.concatenate([before[::-1], left[None]])
    # The shorter diagonal: rays get shorter along the first half of each side of the block.
    far = 2 * (np.arange(rays) % n) >= n
    upper = 2 * np.arange(n) >= n
    falling = [
        np.repeat(far, rings),
        np.repeat(upper, len(down)),
        np.repeat(upper, len(up)),
    ]
    cut = np.concatenate([squares(closed), squares(tail.T), squares(head.T)])
    bottom, top = around[-1, [*range(3 * n, rays), 0]], around[-1, n : 2 * n + 1]
    lower = np.concatenate([head[:-1, 0], bottom, tail[1:, 0]])
    higher = np.concatenate([head[:-1, -1], top[::-1], tail[1:, -1]])
    edges = {
        "inlet": pairs(head[0]),
        "outlet": pairs(tail[-1]),
        "walls": np.concatenate([pairs(lower), pairs(higher)]),
        "cylinder": pairs(closed[:, 0]),
    }
    triangles = triangles_of_squares(cut, np.concatenate(falling))
    return Plane(points, triangles, _ranks(rays, rings, len(down), len(up)), edges)


def _ranks(rays: int, rings: int, down: int, up: int) -> Integers:
    """Ranks of the points: by the turn from the ray downstream either way, then outwards."""
    n = rays // 4
    turn = np.abs((2 * np.arange(rays) - n + rays) % (2 * rays) - rays)
    aside = np.abs(2 * np.arange(n + 1) - n)
    width = rings + max(down, up) + 2
    outward = [
        turn * width + np.arange(rings + 1)[:, None],
        aside * width + rings + 1 + np.arange(down)[:, None],
        aside * width + rings + 1 + np.arange(up)[:, None],
    ]
    return np.concatenate([component.ravel() for component in outward])
