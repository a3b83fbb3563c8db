"""Outlines of cells on a plane: where it cuts their membranes."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.cells.sharing import Region
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.outputs.pictures import plane_index

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Triangles cut at a time.
_PORTION = 1 << 20


def cell_outlines(
    world: World,
    suspension: Suspension | None,
    region: Region,
    lattice: Lattice,
    axis: int,
    offset: float | None,
) -> Floats:
    """Lines (n, 2, 2) in m along which a plane of points cuts cells, on rank 0; all ranks call this.

    `axis`, `offset`: normal of the plane and its position in m (None: the middle). Cells beyond a
    periodic side are drawn on both sides.
    """
    pieces = [np.empty((0, 2, 2))]
    height = plane_index(lattice, axis, offset)
    for local in () if suspension is None else suspension.kinds:
        membranes, own = local.membranes, local.own
        vertices = membranes.on_host(membranes.positions, local.count)[own].astype(np.float64)
        centres = vertices.mean(axis=1)
        vertices += (region.wrapped(centres) - centres)[:, None]
        triangles = local.kind.mesh.triangles.astype(np.int64)
        for shift in _images(lattice):
            pieces += _cut_cells(vertices + shift, triangles, axis, height, lattice)
    across = [other for other in range(3) if other != axis]
    segments = np.concatenate(pieces) * lattice.spacing + lattice.origin[across]
    sent = [np.empty(0, np.uint8)] * world.size
    sent[0] = np.ascontiguousarray(segments).reshape(-1).view(np.uint8)
    received = world.exchange(sent)
    lines = np.concatenate([np.frombuffer(r.tobytes()) for r in received]).reshape(-1, 4)
    # In an order that does not depend on the ranks.
    return lines[np.lexsort(lines.T)].reshape(-1, 2, 2)


def _images(lattice: Lattice) -> list[Floats]:
    """By how much cells are moved to where they are seen again beyond periodic sides."""
    turns = [(-1, 0, 1) if periodic else (0,) for periodic in lattice.periodic]
    return [np.array(turn) * np.array(lattice.shape, np.float64) for turn in product(*turns)]


def _cut_cells(
    vertices: Floats, triangles: Integers, axis: int, height: float, lattice: Lattice
) -> list[Floats]:
    """Lines of the cells (n, V, 3) that reach through the plane and into the box, some at a time."""
    low, high = vertices.min(axis=1), vertices.max(axis=1)
    inside = ((high >= -0.5) & (low <= np.array(lattice.shape) - 0.5)).all(axis=1)
    cut = np.flatnonzero(inside & (low[:, axis] <= height) & (high[:, axis] >= height))
    portion = max(1, _PORTION // len(triangles))
    return [
        cut_triangles(vertices[cut[first : first + portion]][:, triangles], axis, height)
        for first in range(0, len(cut), portion)
    ]


def cut_triangles(corners: Floats, axis: int, height: float) -> Floats:
    """Lines (m, 2, 2) along which the plane at a height on an axis cuts triangles (..., 3, 3)."""
    corners = corners.reshape(-1, 3, 3)
    above = corners[:, :, axis] >= height
    count = above.sum(axis=1)
    cut = (count == 1) | (count == 2)
    corners, above, count = corners[cut], above[cut], count[cut]
    # The corner that is alone on its side of the plane.
    alone = np.argmax(above == (count == 1)[:, None], axis=1)
    rows = np.arange(len(corners))
    tip = corners[rows, alone]
    across = [other for other in range(3) if other != axis]
    ends = []
    for turn in (1, 2):
        other = corners[rows, (alone + turn) % 3]
        share = (height - tip[:, axis]) / (other[:, axis] - tip[:, axis])
        ends.append((tip + share[:, None] * (other - tip))[:, across])
    return np.stack(ends, axis=1)
