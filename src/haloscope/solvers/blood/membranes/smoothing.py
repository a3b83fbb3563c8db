"""Smooths creases out of membranes that live longer than their mesh bears."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.membranes.folds import triangle_normals
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

Floats = NDArray[np.float64]

CREASED, COLLAPSING = 0.15, 0.06
"""Quality of its worst triangle, 1 at best, below which creases are smoothed out of a cell that stays for a
whole run, and of others, which bear 0.06 to 0.1 for thousands of steps: each time momentum is left behind."""
SMOOTHING_STEPS = 100
"""Steps after which that is looked for."""

# Triangles are good from this quality on, 1 being equilateral, and up to this cosine of a fold.
_GOOD, _FLAT = 0.25, -0.3
# Rounds, in each of which vertices go so far to the middle of those around them.
_ROUNDS, _PART = 50, 0.5


def smoothed(x: Floats, mesh: MembraneMesh) -> Floats:
    """The cell at x, (V, 3), without thin or folded triangles.

    Vertices of such triangles, and those around them, go to the middle of their neighbours until none is
    left, or for so many rounds, and outward or inward so that the volume stays; all others stay.
    """
    x = x.copy()
    volume = _volume(x, mesh)
    triangles, vertices = mesh.triangles, len(x)
    start, end = np.concatenate([mesh.edges, mesh.edges[:, ::-1]]).T
    count = np.bincount(start, minlength=vertices)
    for _ in range(_ROUNDS):
        bad = _bad_triangles(x, mesh)
        if not bad.any():
            break
        chosen = np.zeros(vertices, bool)
        chosen[triangles[bad]] = True
        chosen[end[chosen[start]]] = True
        around = np.stack([np.bincount(start, x[end, d], vertices) for d in range(3)], axis=1)
        middle = around / count[:, None]
        x[chosen] += _PART * (middle - x)[chosen]
        # To first order in how far they go.
        normals, area = triangle_normals(x, triangles)
        outward = np.zeros_like(x)
        np.add.at(outward, triangles, (normals * area[:, None] / 3)[:, None])
        outward *= chosen[:, None]
        size = float((outward**2).sum())
        if size > 0.0:
            x += (volume - _volume(x, mesh)) / size * outward
    return x


def _volume(x: Floats, mesh: MembraneMesh) -> float:
    a, b, c = (x[mesh.triangles[:, k]] - x[0] for k in range(3))
    return float((a * np.cross(b, c)).sum()) / 6


def _bad_triangles(x: Floats, mesh: MembraneMesh) -> NDArray[np.bool_]:
    """Which triangles are thin, or folded against one beside them."""
    normals, area = triangle_normals(x, mesh.triangles)
    corners = x[mesh.triangles]
    sides = ((corners - np.roll(corners, 1, axis=1)) ** 2).sum(axis=(1, 2))
    quality = 4 * math.sqrt(3.0) * area / sides
    along = (normals[:, None] * normals[mesh.neighbours]).sum(axis=2)
    bad: NDArray[np.bool_] = (quality < _GOOD) | (along < _FLAT).any(axis=1)
    return bad
