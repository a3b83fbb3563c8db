"""Folds between neighbouring triangles of a membrane: from where on they are resisted, and told."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.membranes.meshes import MembraneMesh

Floats = NDArray[np.float64]

# In radians: where folds begin, but at least so far beyond those of the shape at rest.
_ONSET, _BEYOND_REST, _LATEST = math.pi / 2, math.pi / 6, 0.95 * math.pi
# Triangles have more than this of their area at rest only after an unstable step.
_TORN = 10.0
# In spacings: beyond all vessels.
_FARTHEST = 1e30


def fold_onset(mesh: MembraneMesh) -> float:
    """Angle in radians between neighbouring triangles' normals from which a fold is resisted."""
    # A right angle: a capsule of 642 vertices in shear has up to 40 degrees between triangles of
    # its mesh, a red cell 70, one that is stretched by 193 pN 95. Meshes of sharper edges have 30
    # degrees beyond the shape at rest.
    at_rest = _largest_fold(triangle_normals(mesh.vertices, mesh.triangles)[0], mesh)
    return min(max(_ONSET, at_rest + _BEYOND_REST), _LATEST)


def fault(x: Floats, mesh: MembraneMesh) -> str:
    """What is wrong with a cell at x, (V, 3), that has an inverted element, and what to do."""
    none = "a vertex is no number; smaller moduli bear it longer"
    # Of what has gone that far squares are no numbers, either.
    if not (np.abs(x) <= _FARTHEST).all():
        return none
    normals, area = triangle_normals(x, mesh.triangles)
    if not np.isfinite(normals).all():
        return none
    ratio = float((area / triangle_normals(mesh.vertices, mesh.triangles)[1]).max())
    if ratio > _TORN:
        return (
            f"an element is inverted, one has {ratio:.3g} times its area at rest; smaller moduli bear "
            "it longer"
        )
    return (
        f"a crease of {math.degrees(_largest_fold(normals, mesh)):.0f} degrees between neighbouring "
        "triangles; take a larger fold_guard or bending modulus, a finer spacing or a weaker drive"
    )


def triangle_normals(x: Floats, triangles: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Unit normals (E, 3) and areas (E,) of triangles with corners among x, (V, 3)."""
    a, b, c = (x[triangles[:, k]] for k in range(3))
    S = np.cross(b - a, c - a) / 2
    area = np.linalg.norm(S, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return S / area[:, None], area


def _largest_fold(normals: Floats, mesh: MembraneMesh) -> float:
    """Largest angle in radians between the normals (E, 3) of neighbouring triangles."""
    least = float((normals[:, None] * normals[mesh.neighbours]).sum(axis=2).min())
    return math.acos(min(max(least, -1.0), 1.0))
