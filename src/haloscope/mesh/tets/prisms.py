"""Flat triangulations drawn out along z: layers of prisms, each cut into three tetrahedra.

A prism over a triangle a, b, c is cut as Dompierre, Labbe, Vallet and Camarero ("How to subdivide
pyramids, prisms and hexahedra into tetrahedra", 1999) do it: with a < b < c in an order of the
nodes that is the same for the whole plane, its elements are a b c c', a b b' c' and a a' b' c',
where ' is the layer above. Every upright side is cut from its lower node below to its higher node
above, seen from either of its prisms, so that the elements meet face to face whatever the plane's
triangulation is. Over a lattice of squares this is Kuhn's division of each cube into six.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.hexes.hex_boxes import MOST_ELEMENTS
from haloscope.mesh.tets.tet_faces import Floats, Integers, NamedTriangles, named_triangles


@dataclass(frozen=True, eq=False)
class Plane:
    """A triangulation of a plane domain."""

    points: Floats  # (n, 2): x and y in m
    triangles: Integers  # int64 (m, 3): points, counter-clockwise
    # int64 (n,): in which order a prism's edges are looked at; equal ones go by their numbers.
    ranks: Integers
    edges: Mapping[str, Integers]  # Pieces of the edge of the domain by name: int64 (k, 2), points


def squares(numbers: Integers) -> Integers:
    """Quadrangles (n, 4) of a lattice of points [j, i]: from the first point along i, then j."""
    corners = (numbers[:-1, :-1], numbers[:-1, 1:], numbers[1:, 1:], numbers[1:, :-1])
    return np.stack(corners, axis=-1).reshape(-1, 4)


def pairs(line: Integers) -> Integers:
    """Pieces (n - 1, 2) of a line of points (n,)."""
    return np.stack([line[:-1], line[1:]], axis=-1)


def triangles_of_squares(corners: Integers, falling: NDArray[np.bool_]) -> Integers:
    """Cut quadrangles into two triangles each.

    `corners`: (n, 4): points, counter-clockwise; `falling`: bool (n,): whether the cut runs from
    the second point to the fourth; otherwise it runs from the first to the third.
    """
    rising = corners[:, [[0, 1, 2], [0, 2, 3]]]
    other = corners[:, [[0, 1, 3], [1, 2, 3]]]
    return np.where(falling[:, None, None], other, rising).reshape(-1, 3)


def draw_out(
    plane: Plane, heights: Floats, ends: tuple[str, str], *, mirrored: bool = False
) -> tuple[Floats, Integers, NamedTriangles]:
    """Draw a plane out along z.

    `heights`: ascending z of the layers of nodes, in m.
    """
    points, layers = len(plane.points), len(heights) - 1
    if 3 * len(plane.triangles) * layers >= MOST_ELEMENTS:
        raise InputError(
            f"{layers} layers of {len(plane.triangles)} prisms make 2^31 tetrahedra or more; use "
            "fewer"
        )
    levels = np.empty((layers + 1, points, 3))
    levels[:, :, :2] = plane.points
    levels[:, :, 2] = np.asarray(heights)[:, None]
    nodes: Floats = levels.reshape(-1, 3)
    below = np.arange(layers) * points
    above = below + points
    if mirrored:
        turned = np.arange(layers) >= math.ceil(layers / 2)
        below, above = np.where(turned, above, below), np.where(turned, below, above)
    place = np.empty(points, np.int64)
    place[np.lexsort((np.arange(points), plane.ranks))] = np.arange(points)
    a, b, c = _sorted(plane.triangles, place).T
    low, high = below[:, None], above[:, None]
    rows = [
        (low + a, low + b, low + c, high + c),
        (low + a, low + b, high + b, high + c),
        (low + a, high + a, high + b, high + c),
    ]
    tets = np.stack([np.stack(row, axis=-1) for row in rows], axis=2).reshape(-1, 4)
    named: dict[str, list[Integers]] = {}
    for name, edges in plane.edges.items():
        a, b = _sorted(edges, place).T
        sides = [(low + a, low + b, high + b), (low + a, high + a, high + b)]
        upright = np.stack([np.stack(row, axis=-1) for row in sides], axis=2)
        named.setdefault(name, []).append(upright.reshape(-1, 3))
    for name, first in zip(ends, (0, layers * points), strict=True):
        named.setdefault(name, []).append(plane.triangles + first)
    triangles = {name: np.concatenate(parts) for name, parts in named.items()}
    return nodes, _right_handed(nodes, tets), named_triangles(triangles)


def _sorted(rows: Integers, place: Integers) -> Integers:
    """Points of each row in ascending order of their places."""
    return np.take_along_axis(rows, np.argsort(place[rows], axis=1, kind="stable"), axis=1)


def _right_handed(nodes: Floats, tets: Integers) -> Integers:
    """Elements with corners 2 and 3 exchanged where their volumes were negative."""
    a, b, c = (nodes[tets[:, corner]] - nodes[tets[:, 0]] for corner in (1, 2, 3))
    left = np.einsum("ex,ex->e", np.cross(a, b), c) < 0
    tets[left] = tets[left][:, [0, 1, 3, 2]]
    return tets
