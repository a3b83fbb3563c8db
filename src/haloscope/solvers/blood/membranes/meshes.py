"""Closed triangle meshes of cell membranes: refined icosahedra bent into the shapes of cells."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from haloscope.errors import InputError

_LARGEST_FREQUENCY = 141


@dataclass(frozen=True, eq=False)
class MembraneMesh:
    """A closed surface of triangles."""

    vertices: np.ndarray  # (V, 3) positions, in whatever unit of length the caller uses
    triangles: np.ndarray  # (E, 3) vertices of each triangle, anticlockwise as seen from outside

    @functools.cached_property
    def across(self) -> np.ndarray:
        """(E, 3) vertices beyond the edges 01, 12 and 20 of each triangle."""
        count = len(self.vertices)
        start, end = self._directed_edges()
        third = np.roll(self.triangles, 1, axis=1).ravel()
        order = np.argsort(start * count + end)
        keys = (start * count + end)[order]
        opposite = np.searchsorted(keys, end * count + start)
        beyond: np.ndarray = third[order[opposite]]
        return beyond.reshape(-1, 3)

    @functools.cached_property
    def neighbours(self) -> np.ndarray:
        """(E, 3) triangles beyond the edges 01, 12 and 20 of each triangle."""
        count = len(self.vertices)
        start, end = self._directed_edges()
        order = np.argsort(start * count + end)
        matches = np.searchsorted((start * count + end)[order], end * count + start)
        beyond: np.ndarray = order[matches] // 3
        return beyond.reshape(-1, 3)

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """(3 E / 2, 2) edges, each once with its lower vertex first, in ascending order."""
        start, end = self._directed_edges()
        once = start < end
        both = np.stack([start[once], end[once]], axis=1)
        return both[np.lexsort((both[:, 1], both[:, 0]))]

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


def frequency_of(vertices: int) -> int:
    """Parts f into which edges of an icosahedron are cut for a number of vertices, 10 f^2 + 2."""
    f = round(math.sqrt(max(vertices - 2, 0) / 10))
    if f < 2 or f > _LARGEST_FREQUENCY or 10 * f * f + 2 != vertices:
        low = min(max(math.floor(math.sqrt(max(vertices - 2, 0) / 10)), 2), _LARGEST_FREQUENCY - 1)
        raise InputError(
            "no mesh of a cell has this number of vertices",
            location=f"vertices = {vertices}",
            allowed=f"10 f^2 + 2 with f from 2 to {_LARGEST_FREQUENCY}",
            remedy=f"set vertices to {10 * low * low + 2} or {10 * (low + 1) ** 2 + 2}",
        )
    return f


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
    return icosphere(frequency_of(vertices)).scaled(radius)


def red_cell(vertices: int, radius: float = 3.91) -> MembraneMesh:
    """The biconcave shape of a red cell at rest, its axis along z."""
    # The thickness is radius (0.207 + 2.003 s^2 - 1.123 s^4) sqrt(1 - s^2) at the distance s radius
    # from the axis (Evans and Fung, Microvasc. Res. 4, 1972): 94.1 um^3 and 134.1 um^2 for a radius
    # of 3.91 um.
    mesh = icosphere(frequency_of(vertices))
    x, y, z = mesh.vertices.T
    s2 = x * x + y * y
    z = z * (0.207 + 2.003 * s2 - 1.123 * s2 * s2) / 2
    return MembraneMesh(radius * np.stack([x, y, z], axis=1), mesh.triangles)


def platelet(vertices: int, radius: float, aspect: float) -> MembraneMesh:
    """An oblate spheroid with its axis along z: `aspect` is its thickness over its diameter."""
    mesh = icosphere(frequency_of(vertices))
    return MembraneMesh(mesh.vertices * np.array([radius, radius, radius * aspect]), mesh.triangles)
