"""Room for the cells of a list in a vessel: those outside, in walls and in cells before them are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.filling.packing import (
    Cells,
    LeftOut,
    Packing,
    neighbour_pairs,
    rotations,
)
from haloscope.solvers.blood.filling.shapes import CellShape, Lumen
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Cells whose vertices are looked at together.
_TOGETHER = 256
# Depth of overlaps that do not count, and least distance of centres, over the least radius.
_SLIGHT, _LEAST_APART = 0.005, 0.1
_OUTSIDE, _WALL, _OVERLAP = 1, 2, 3


@dataclass(frozen=True, eq=False)
class Body:
    """A kind of cells at rest, in um."""

    mesh: MembraneMesh
    shape: CellShape  # As packing sees it
    exact: bool  # Whether this is its shape, and not only a body around it


def choose(
    device: Device,
    lumen: Lumen,
    bodies: Sequence[Body],
    fixed: Cells,
    listed: Cells,
    inside: tuple[Floats, Floats],
) -> tuple[NDArray[np.bool_], list[LeftOut]]:
    """Flags (n,) of the listed cells that are apart from walls, fixed cells and kept ones before them.

    `inside`: lower and upper corner in um beyond which centres are outside. Returns also what was left out, by kind.
    """
    slight = _SLIGHT * min(body.shape.radius for body in bodies)
    low, high = inside
    reason = np.zeros(listed.count, np.int8)
    out = ((listed.positions < low) | (listed.positions > high)).any(axis=1)
    reason[out | (lumen.distance(listed.positions) > 0.0)] = _OUTSIDE
    for kind, body in enumerate(bodies):
        mine = np.flatnonzero((listed.kinds == kind) & (reason == 0))
        for begin in range(0, len(mine), _TOGETHER):
            together = mine[begin : begin + _TOGETHER]
            vertices = _vertices(listed, together, body.mesh).reshape(-1, 3)
            depth = lumen.distance(vertices).reshape(len(together), -1).max(axis=1)
            reason[together[depth > slight]] = _WALL
    candidates = np.flatnonzero(reason == 0)
    cells = Cells(
        np.concatenate([fixed.positions, listed.positions[candidates]]),
        np.concatenate([fixed.quaternions, listed.quaternions[candidates]]),
        np.concatenate([fixed.kinds, listed.kinds[candidates]]),
    )
    gone = np.zeros(cells.count, bool)
    for first, second, shift in _touching(device, lumen, bodies, cells, slight):
        if second < fixed.count or gone[first] or gone[second]:
            continue
        gone[second] = _overlap(bodies, cells, first, second, shift)
    reason[candidates[gone[fixed.count :]]] = _OVERLAP
    left_out = []
    for kind in range(len(bodies)):
        own = reason[listed.kinds == kind]
        outside, walls, overlaps = (int((own == why).sum()) for why in (_OUTSIDE, _WALL, _OVERLAP))
        left = np.flatnonzero(own)
        first = int(left[0]) + 1 if len(left) else 0
        left_out.append(LeftOut(len(own), outside, walls, overlaps, first))
    return reason == 0, left_out


def _vertices(cells: Cells, which: Integers, mesh: MembraneMesh) -> Floats:
    """Vertices (n, V, 3) of some of the cells in um."""
    turns = rotations(cells.quaternions[which])
    vertices: Floats = np.einsum("nij,vj->nvi", turns, mesh.vertices)
    vertices += cells.positions[which][:, None]
    return vertices


def _touching(
    device: Device, lumen: Lumen, bodies: Sequence[Body], cells: Cells, slight: float
) -> Iterator[tuple[int, int, Floats]]:
    """Pairs of cells that may overlap, with the shift of the second; by the later cell, and the earlier."""
    if not cells.count:
        return
    packing = Packing(device, lumen, [body.shape for body in bodies], cells, slight)
    first, second, shifts = packing.overlapping(2.0 * slight)
    # Of cells almost on the same spot surfaces meet everywhere and so nowhere go deep.
    least = _LEAST_APART * min(body.shape.radius for body in bodies)
    near = neighbour_pairs(cells.positions, np.full(cells.count, least / 2), lumen)
    one, other = np.concatenate([first, near[0]]), np.concatenate([second, near[1]])
    move = np.concatenate([shifts, near[2]])
    # Both orders are there: the later cell is moved.
    kept = one <= other
    one, other, move = one[kept], other[kept], move[kept]
    for pair in np.lexsort((one, other)):
        yield int(one[pair]), int(other[pair]), move[pair]


def _overlap(bodies: Sequence[Body], cells: Cells, first: int, second: int, shift: Floats) -> bool:
    """Whether two cells overlap whose bodies around them do: exact bodies, or membranes that cross."""
    from haloscope.mesh.surfaces.intersections import crossing_pairs

    kinds = cells.kinds[[first, second]]
    if all(bodies[kind].exact for kind in kinds):
        return True
    meshes = [bodies[kind].mesh for kind in kinds]
    points = [
        _vertices(cells, np.array([cell]), mesh)[0]
        for cell, mesh in zip((first, second), meshes, strict=True)
    ]
    points[1] = points[1] + shift
    if any(_inside(points[1 - k][0], points[k], meshes[k].triangles) for k in range(2)):
        return True
    triangles = np.concatenate([meshes[0].triangles, meshes[1].triangles + len(points[0])])
    surface = Surface(
        np.concatenate(points), triangles, np.zeros(len(triangles), np.int32), ("cells",)
    )
    return len(crossing_pairs(surface)) > 0


def _inside(point: Floats, points: Floats, triangles: NDArray[np.int32]) -> bool:
    """Whether a point lies inside a closed mesh: its triangles fill the view from there."""
    # A. van Oosterom, J. Strackee, IEEE Trans. Biomed. Eng. 30 (1983) 125.
    a, b, c = np.moveaxis((points - point)[triangles], 1, 0)
    p, q, r = (np.linalg.norm(v, axis=1) for v in (a, b, c))
    over = np.einsum("ei,ei->e", a, np.cross(b, c))
    under = p * q * r + (a * b).sum(1) * r + (b * c).sum(1) * p + (c * a).sum(1) * q
    return bool(np.arctan2(over, under).sum() > np.pi)
