"""Closed surfaces with known insides, and links of lattices, for tests of what fills them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haloscope.mesh.surfaces.surface_generators import Vessel, vessels_surface
from haloscope.mesh.surfaces.surfaces import Surface, make_surface

# Eighteen links: six along one axis, twelve along two.
DIRECTIONS = np.array([c for c in np.ndindex(3, 3, 3) if 0 < sum(i != 1 for i in c) < 3]) - 1


def random_turn(seed: int) -> np.ndarray:
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else -q


def moved(surface: Surface, turn: np.ndarray, shift: Sequence[float] = (0, 0, 0)) -> Surface:
    return Surface(
        surface.points @ turn.T + np.asarray(shift),
        surface.triangles,
        surface.groups,
        surface.names,
    )


def sphere(rounds: int) -> Surface:
    """Octahedron of radius 1 whose sides are halved again and again and moved to the sphere."""
    x, y, z = np.eye(3)
    signs = [(i, j, k) for i in (1, -1) for j in (1, -1) for k in (1, -1)]
    faces = np.array([[i * x, j * y, k * z][:: i * j * k] for i, j, k in signs])
    for _ in range(rounds):
        a, b, c = np.moveaxis(faces, 1, 0)
        ab, bc, ca = a + b, b + c, c + a
        faces = np.concatenate(
            [np.stack(t, axis=1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        )
        faces /= np.linalg.norm(faces, axis=2, keepdims=True)
    return make_surface(faces, np.zeros(len(faces)), ("wall",))


def cuboid(lengths: Sequence[float], low: Sequence[float] = (0, 0, 0)) -> Surface:
    """Twelve triangles; the ends of x are the groups 'inlet' and 'outlet'."""
    p = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]
    quads = [(0, 4, 6, 2), (1, 3, 7, 5), (0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3)]
    triangles = [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]
    corners = np.array(p)[np.array(triangles)] * np.asarray(lengths, float) + np.asarray(low)
    return make_surface(corners, np.repeat([1, 2, 0, 0, 0, 0], 2), ("wall", "inlet", "outlet"))


def tube(radius: float, length: float, step: float | None = None) -> Surface:
    """Make a straight round tube along x from the origin.

    `radius`, `length`: in m; `step`: about the length of the triangles' sides in m; without it an
    eighth of the diameter.
    """
    line = np.array([[-2 * radius, 0.0, 0.0], [length + 2 * radius, 0.0, 0.0]])
    return vessels_surface([Vessel(line, np.full(2, radius))], length, step)
