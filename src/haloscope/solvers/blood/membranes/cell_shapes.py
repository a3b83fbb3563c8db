"""Shapes of cells: volumes, folds and creases, and their smoothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.membranes.meshes import MembraneMesh


@dataclass(frozen=True)
class CellShapes:
    """Shapes of n cells."""

    # (n,) of the polyhedron of the vertices.
    volume: np.ndarray
    area: np.ndarray
    centre: np.ndarray  # (n, 3) centroid of the volume
    covariance: np.ndarray  # (n, 3, 3) second moments of the volume about the centre, by the volume
    # (n,) of the worst triangle: 4 sqrt(3) area over the sum of squared sides, 1 for an equilateral
    # one; negative if one is turned over against those around it, -1 if one is no number.
    quality: np.ndarray

    @classmethod
    def from_moments(cls, moments: np.ndarray, first: np.ndarray) -> CellShapes:
        """From what the kernel sums, (12, n), about the first vertices (n, 3)."""
        area, volume = moments[0], moments[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (moments[2:5] / volume).T
            second = (moments[5:11] / volume).T
        covariance = second[:, [[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
        covariance = covariance - mean[:, :, None] * mean[:, None, :]
        return cls(volume, area, first + mean, covariance, moments[11])

    def taylor_deformation(self, flow: int = 0, gradient: int = 1) -> np.ndarray:
        """(n,) D = (L - B)/(L + B) from the axes of the ellipsoid in the plane of a shear flow."""
        long, short = self._in_plane(flow, gradient)
        deformation: np.ndarray = (long - short) / (long + short)
        return deformation

    def inclination(self, flow: int = 0, gradient: int = 1) -> np.ndarray:
        """(n,) angle in radians from the flow to the long axis in the plane of a shear flow."""
        c = self.covariance
        xx, yy, xy = c[:, flow, flow], c[:, gradient, gradient], c[:, flow, gradient]
        angle: np.ndarray = np.arctan2(2 * xy, xx - yy) / 2
        return angle

    def _in_plane(self, flow: int, gradient: int) -> tuple[np.ndarray, np.ndarray]:
        c = self.covariance
        xx, yy, xy = c[:, flow, flow], c[:, gradient, gradient], c[:, flow, gradient]
        mean, half = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
        return np.sqrt(5 * (mean + half)), np.sqrt(5 * np.maximum(mean - half, 0))


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


def fault(x: Floats, mesh: MembraneMesh) -> tuple[str, str]:
    """Problem and remedy of a cell at x, (V, 3), that has an inverted element."""
    lower = "lower the moduli"
    none = ("the position of a vertex is NaN", lower)
    # Of what has gone that far squares are no numbers, either.
    if not (np.abs(x) <= _FARTHEST).all():
        return none
    normals, area = triangle_normals(x, mesh.triangles)
    if not np.isfinite(normals).all():
        return none
    ratio = float((area / triangle_normals(mesh.vertices, mesh.triangles)[1]).max())
    if ratio > _TORN:
        return f"an element is inverted, and one has {ratio:.3g} times its area at rest", lower
    return (
        f"two neighbouring triangles form a crease of {math.degrees(_largest_fold(normals, mesh)):.0f} degrees",
        "raise fold_guard or the bending modulus, lower blood.spacing_um, or weaken the driving force",
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
