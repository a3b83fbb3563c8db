"""Gmsh files written by hand, without a library: bricks of first order, with what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from haloscope.mesh.hexes.hexes import FACE_CORNERS, HexMesh

_ROUND = [0, 1, 3, 2]
_CORNERS = [0, 1, 3, 2, 4, 5, 7, 6]


def write_gmsh(
    path: Path,
    mesh: HexMesh,
    surfaces: Mapping[str, np.ndarray] | None = None,
    *,
    twisted: int | None = None,
) -> None:
    """Write the corners of a mesh as a text file of version 2.2, its last region first.

    Parameters
    ----------
    path, mesh
        Where, and what.
    surfaces
        Faces (n, 2) by name; None: the outer surfaces.
    twisted
        An element of which two nodes change places.
    """
    if surfaces is None:
        surfaces = {name: mesh.outer_faces(name) for name in mesh.boundary_names}
    points = np.zeros((mesh.vertices.max() + 1, 3))
    points[mesh.vertices] = mesh.corners
    names = [f'2 {number + 1} "{name}"' for number, name in enumerate(surfaces)]
    names += [f'3 {number + 1} "{name}"' for number, name in enumerate(mesh.region_names)]
    lines = []
    for number, faces in enumerate(surfaces.values()):
        for element, face in faces:
            quad = mesh.vertices[element, FACE_CORNERS[face]][_ROUND] + 1
            lines.append(f"3 2 {number + 1} 1 " + " ".join(map(str, quad)))
    cells = mesh.vertices[:, _CORNERS] + 1
    if twisted is not None:
        cells[twisted, [1, 2]] = cells[twisted, [2, 1]]
    for element in np.argsort(-mesh.regions, kind="stable"):
        lines.append(f"5 2 {mesh.regions[element] + 1} 1 " + " ".join(map(str, cells[element])))
    text = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat"]
    text += ["$PhysicalNames", str(len(names)), *names, "$EndPhysicalNames"]
    text += ["$Nodes", str(len(points))]
    text += [f"{n} {x} {y} {z}" for n, (x, y, z) in enumerate(points.tolist(), 1)]
    text += ["$EndNodes", "$Elements", str(len(lines))]
    text += [f"{number} {line}" for number, line in enumerate(lines, 1)] + ["$EndElements", ""]
    path.write_text("\n".join(text))
