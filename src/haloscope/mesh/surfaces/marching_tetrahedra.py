"""Closed surfaces of triangles around the negative values of a field on a regular grid.

Each cube of the grid is cut into the six tetrahedra around its long diagonal (Kuhn's division), so
that cubes agree on the diagonals of the faces that they share. A tetrahedron with values of both
signs gives one or two triangles with corners on its edges. Where negative values reach the first
or last plane of the grid along x, that plane closes the surface, cut along the same diagonals. All
corners are known by the edge or node of the grid on which they lie: the surface is watertight by
construction. Every corner's place on its edge follows by linear interpolation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Share of the spacing that values keep from 0, so that no triangle collapses.
_CLEAR = 1e-4


def _kuhn() -> list[list[tuple[int, int, int]]]:
    """Corners of the six tetrahedra of a cube, each with a positive volume."""
    tetrahedra = []
    for order in itertools.permutations(range(3)):
        corner = [0, 0, 0]
        path = [(0, 0, 0)]
        for axis in order:
            corner[axis] = 1
            path.append((corner[0], corner[1], corner[2]))
        if np.linalg.det(np.array(path[1:]) - np.array(path[0])) < 0:
            path[1], path[2] = path[2], path[1]
        tetrahedra.append(path)
    return tetrahedra


# Triangles of a tetrahedron of positive volume, by the number whose bit c says that corner c is
# inside: each corner of a triangle is the edge between two corners of the tetrahedron. They are
# counter-clockwise seen from outside.
def _cases() -> dict[int, list[tuple[tuple[int, int], ...]]]:
    cases: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for case in range(1, 15):
        inside = [c for c in range(4) if case >> c & 1]
        outside = [c for c in range(4) if not case >> c & 1]
        if len(inside) == 2:
            (a, b), (c, d) = inside, outside
            ring = [(a, c), (a, d), (b, d), (b, c)]
        else:
            one, others = (inside, outside) if len(inside) == 1 else (outside, inside)
            ring = [(one[0], other) for other in others]
        if _faces_inward(ring, inside, outside):
            ring.reverse()
        cases[case] = [(ring[0], b, c) for b, c in itertools.pairwise(ring[1:])]
    return cases


def _faces_inward(ring: list[tuple[int, int]], inside: list[int], outside: list[int]) -> bool:
    """Whether a ring of edges is clockwise seen from outside, on one tetrahedron."""
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    a, b, c = (corners[list(edge)].mean(axis=0) for edge in ring[:3])
    way_out = corners[outside].mean(axis=0) - corners[inside].mean(axis=0)
    return bool(np.dot(np.cross(b - a, c - a), way_out) < 0)


_TETRAHEDRA = _kuhn()
_CASES = _cases()


@dataclass(frozen=True, eq=False)
class Polygons:
    """Triangles around the negative values of a field."""

    points: Floats  # In spacings from the first node of the grid, shape (points, 3)
    triangles: Integers  # Counter-clockwise seen from outside, shape (triangles, 3)
    # 0 for the surface itself, -1 and 1 for triangles that close it at the first and last plane
    # along x, shape (triangles,).
    sides: Integers


def marching_tetrahedra(field: Floats, spacing: float) -> Polygons:
    """Make triangles around the negative values of a field.

    `field`: values at the nodes of a grid, indexed (x, y, z), about the distance from the surface;
    positive at all sides of the grid but those at the ends of x.
    """
    clear = _CLEAR * spacing
    field = np.where(np.abs(field) < clear, np.where(field < 0, -clear, clear), field)
    keys, sides = [], []
    for triangles in _between(field):
        keys.append(triangles)
        sides.append(np.zeros(len(triangles), np.int64))
    for side in (-1, 1):
        for triangles in _cap(field, side):
            keys.append(triangles)
            sides.append(np.full(len(triangles), side))
    # A key holds the two nodes of an edge; on a node itself they are the same.
    nodes = np.concatenate(keys)
    low, high = nodes.min(axis=2), nodes.max(axis=2)
    edges, triangles = np.unique(low * field.size + high, return_inverse=True)
    first, second = np.divmod(edges, field.size)
    values = field.ravel()
    one, two = values[first], values[second]
    share = np.where(first == second, 0.0, one / np.where(first == second, 1.0, one - two))
    start = np.stack(np.unravel_index(first, field.shape), axis=1)
    end = np.stack(np.unravel_index(second, field.shape), axis=1)
    points = start + share[:, None] * (end - start)
    return Polygons(points, triangles.reshape(-1, 3), np.concatenate(sides))


def _between(field: Floats) -> list[Integers]:
    """Triangles between nodes inside and outside, as pairs of nodes, shapes (n, 3, 2)."""
    inside = field < 0
    cubes = np.zeros(tuple(n - 1 for n in field.shape), np.int8)
    for corner in np.ndindex(2, 2, 2):
        cubes += inside[tuple(slice(c, c + n) for c, n in zip(corner, cubes.shape, strict=True))]
    base = np.ravel_multi_index(tuple(np.nonzero((cubes > 0) & (cubes < 8))), field.shape).astype(
        np.int64
    )
    strides = np.array([field.shape[1] * field.shape[2], field.shape[2], 1])
    flat = inside.ravel()
    made: list[Integers] = []
    for tetrahedron in _TETRAHEDRA:
        nodes = base[:, None] + (np.array(tetrahedron) @ strides)[None]
        case = (flat[nodes] * np.array([1, 2, 4, 8])).sum(axis=1)
        for number, triangles in _CASES.items():
            chosen = nodes[case == number]
            made.extend(chosen[:, np.array(triangle)] for triangle in triangles)
    return made


def _cap(field: Floats, side: int) -> list[Integers]:
    """Triangles that close the first or last plane along x, as pairs of nodes."""
    plane = 0 if side < 0 else field.shape[0] - 1
    inside = field[plane] < 0
    _, ny, nz = field.shape
    squares = inside[:-1, :-1] | inside[1:, :-1] | inside[:-1, 1:] | inside[1:, 1:]
    y, z = np.nonzero(squares)
    base = (plane * ny + y) * nz + z
    flat = field.ravel() < 0
    made: list[Integers] = []
    for steps in ((0, nz, nz + 1), (0, nz + 1, 1)):
        # Seen from the side of rising x these two go round counter-clockwise.
        nodes = base[:, None] + np.array(steps[::side])
        for number in range(1, 8):
            ring: list[tuple[int, int]] = []
            for corner in range(3):
                following = (corner + 1) % 3
                here, there = number >> corner & 1, number >> following & 1
                if here:
                    ring.append((corner, corner))
                if here != there:
                    ring.append((corner, following))
            case = (flat[nodes] * np.array([1, 2, 4])).sum(axis=1)
            chosen = nodes[case == number]
            for second, third in itertools.pairwise(ring[1:]):
                made.append(chosen[:, np.array([ring[0], second, third])])
    return made
