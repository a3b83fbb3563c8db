"""Tetrahedra by their corners: numbering, volumes, centres, normals of triangles.

Conventions, used wherever tetrahedra appear:

- The corners 0, 1, 2, 3 of an element stand so that the edges from corner 0 to 1, 2 and 3 make a
  right-handed system: volumes are positive.
- Face ``f`` lies opposite corner f. Its nodes run so that (b - a) x (c - a) points outwards.
- Elements, nodes and triangles count from 0.

Faces are matched by node numbers alone. Coordinates say where things are, in messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.hexes.hexes import elements_text

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = NDArray[np.int32]

CORNERS = 4
FACE_NODES = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])
"""Corners of each face; seen from outside they run counter-clockwise."""


def tet_volumes(nodes: Floats, tets: NDArray[np.integer]) -> Floats:
    """Volumes of tetrahedra (n, 4), negative where corners stand left-handed: (n,)."""
    return np.asarray(six_volumes(nodes, tets)[0] / 6)


def tet_centres(nodes: Floats, tets: NDArray[np.integer]) -> Floats:
    """Mean of the corners of tetrahedra (n, 4): (n, 3)."""
    return np.asarray(sum(nodes[tets[:, corner]] for corner in range(CORNERS)) / CORNERS)


def area_vectors(nodes: Floats, triangles: NDArray[np.integer]) -> Floats:
    """Normals of triangles (n, 3), as long as their areas in m^2: (n, 3)."""
    a, b, c = (nodes[triangles[:, corner]] for corner in range(3))
    return np.asarray(np.cross(b - a, c - a) / 2)


def six_volumes(nodes: Floats, tets: NDArray[np.integer]) -> tuple[Floats, Floats]:
    """Six volumes of tetrahedra (n, 4), and their longest edge at corner 0, cubed: (n,) each."""
    origin = nodes[tets[:, 0]]
    a, b, c = (nodes[tets[:, corner]] - origin for corner in (1, 2, 3))
    sixfold = np.einsum("ex,ex->e", a, np.cross(b, c))
    squares = [np.einsum("ex,ex->e", edge, edge) for edge in (a, b, c)]
    return sixfold, np.max(squares, axis=0) ** 1.5


def tets_text(nodes: Floats, tets: Integers, elements: Integers) -> str:
    """The first few of some elements, and where they are, for messages."""
    centres = tet_centres(nodes, tets[elements])
    return elements_text(np.arange(len(elements)), centres, elements)
