"""Closed triangle meshes of cells: shapes at rest, volumes, folds, creases and their smoothing."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class MembraneMesh:
    """A closed surface of triangles."""

    vertices: np.ndarray  # (V, 3) positions, in whatever unit of length the caller uses
    triangles: np.ndarray  # (E, 3) vertices of each triangle, anticlockwise as seen from outside

    @functools.cached_property
    def across(self) -> np.ndarray:
        """(E, 3) vertices beyond the edges 01, 12 and 20 of each triangle."""
        third = np.roll(self.triangles, 1, axis=1)
        beyond: np.ndarray = third.ravel()[self._opposite_edges]
        return beyond.reshape(-1, 3)

    @functools.cached_property
    def neighbours(self) -> np.ndarray:
        """(E, 3) triangles beyond the edges 01, 12 and 20 of each triangle."""
        return self._opposite_edges.reshape(-1, 3) // 3

    @functools.cached_property
    def _opposite_edges(self) -> np.ndarray:
        """(3 E,) of each directed edge the one that runs the other way."""
        count = len(self.vertices)
        start, end = self._directed_edges()
        order = np.argsort(start * count + end)
        matches = np.searchsorted((start * count + end)[order], end * count + start)
        opposite: np.ndarray = order[matches]
        return opposite

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """(3 E / 2, 2) edges, each once with its lower vertex first, in ascending order."""
        return np.unique(np.sort(np.stack(self._directed_edges(), axis=1), axis=1), axis=0)

    @functools.cached_property
    def rings(self) -> list[list[int]]:
        """Neighbours of each vertex, anticlockwise as seen from outside, the lowest one first."""
        following: list[dict[int, int]] = [{} for _ in self.vertices]
        for a, b, c in self.triangles.tolist():
            following[a][b] = c
            following[b][c] = a
            following[c][a] = b
        result = []
        for after in following:
            ring = [min(after)]
            while len(ring) < len(after):
                ring.append(after[ring[-1]])
            result.append(ring)
        return result

    def volume(self) -> float:
        """Volume inside the triangles."""
        a, b, c = (self.vertices[self.triangles[:, k]] for k in range(3))
        return float(np.sum(a * np.cross(b, c)) / 6)

    def area(self) -> float:
        """Area of the triangles."""
        a, b, c = (self.vertices[self.triangles[:, k]] for k in range(3))
        return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)

    def scaled(self, factor: float) -> MembraneMesh:
        """The same mesh with all lengths multiplied, as from one unit to another."""
        return MembraneMesh(self.vertices * factor, self.triangles)

    def _directed_edges(self) -> tuple[np.ndarray, np.ndarray]:
        wide = self.triangles.astype(np.int64)
        return wide.ravel(), np.roll(wide, -1, axis=1).ravel()


def _frequency_of(vertices: int) -> int:
    """Parts f into which edges of an icosahedron are cut for a number of vertices, 10 f^2 + 2."""
    return math.isqrt((vertices - 2) // 10)


def _icosahedron() -> tuple[np.ndarray, np.ndarray]:
    """Corners on the unit sphere, symmetric in all three planes of coordinates, and faces."""
    golden = (1 + math.sqrt(5)) / 2
    signs = [(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)]
    corners = np.array([np.roll((0.0, a, b * golden), turn) for turn in range(3) for a, b in signs])
    near = np.linalg.norm(corners[:, None] - corners, axis=2) < 2.1
    faces = []
    for a in range(12):
        for b in range(a + 1, 12):
            for c in range(b + 1, 12):
                if near[a, b] and near[b, c] and near[a, c]:
                    outward = np.dot(corners[a], np.cross(corners[b], corners[c])) > 0
                    faces.append((a, b, c) if outward else (a, c, b))
    return corners / math.hypot(1, golden), np.array(faces)


def icosphere(frequency: int) -> MembraneMesh:
    """Unit sphere from an icosahedron with each edge cut into equal arcs (class I)."""
    f = frequency
    corners, faces = _icosahedron()
    arc = math.acos(float(np.dot(corners[faces[0, 0]], corners[faces[0, 1]])))
    numbers: dict[tuple[tuple[int, int], ...], int] = {((n, f),): n for n in range(12)}
    places = [tuple(corner) for corner in corners]
    triangles = []
    for face in faces.tolist():

        def number(i: int, j: int, face: list[int] = face) -> int:
            """Number of the vertex with i and j steps away from the face's first corner."""
            shares = zip(face, (f - i - j, i, j), strict=True)
            key = tuple(sorted((corner, share) for corner, share in shares if share))
            if key not in numbers:
                numbers[key] = len(places)
                # Arcs of equal length along edges, which normalised chords would not give.
                place = sum(math.sin(arc * s / f) * corners[c] for c, s in key)
                places.append(tuple(place / np.linalg.norm(place)))
            return numbers[key]

        for i in range(f):
            for j in range(f - i):
                triangles.append((number(i, j), number(i + 1, j), number(i, j + 1)))
                if i + j < f - 1:
                    triangles.append((number(i + 1, j), number(i + 1, j + 1), number(i, j + 1)))
    return MembraneMesh(np.array(places), np.array(triangles, np.int32))


def sphere(vertices: int, radius: float) -> MembraneMesh:
    """A sphere of the given radius, all vertices on it."""
    return icosphere(_frequency_of(vertices)).scaled(radius)


def red_cell(vertices: int, radius: float = 3.91) -> MembraneMesh:
    """The biconcave shape of a red cell at rest, its axis along z."""
    # The thickness is radius (0.207 + 2.003 s^2 - 1.123 s^4) sqrt(1 - s^2) at the distance s radius
    # from the axis (Evans and Fung, Microvasc. Res. 4, 1972): 94.1 um^3 and 134.1 um^2 for a radius
    # of 3.91 um.
    mesh = icosphere(_frequency_of(vertices))
    x, y, z = mesh.vertices.T
    s2 = x * x + y * y
    z = z * (0.207 + 2.003 * s2 - 1.123 * s2 * s2) / 2
    return MembraneMesh(radius * np.stack([x, y, z], axis=1), mesh.triangles)


def platelet(vertices: int, radius: float, aspect: float) -> MembraneMesh:
    """An oblate spheroid with its axis along z: `aspect` is its thickness over its diameter."""
    mesh = icosphere(_frequency_of(vertices))
    return MembraneMesh(mesh.vertices * np.array([radius, radius, radius * aspect]), mesh.triangles)


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

    def chosen(self, which: np.ndarray) -> CellShapes:
        """Shapes of some of the cells, by number or flag."""
        return CellShapes(*(getattr(self, field.name)[which] for field in fields(self)))

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
