"""Mesh files for tests: bricks as Gmsh text, also with faults; tetrahedra by meshio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from haloscope.mesh.hexes.hexes import FACE_CORNERS, HexMesh
from haloscope.mesh.tets.tets import TetMesh

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


_FORMS = {"gmsh22": "gmsh22", "gmsh41": "gmsh", "vtu": "vtu", "vtk": "vtk42"}


def write_tets(mesh: TetMesh, path: Path, form: str = "gmsh22", binary: bool = True) -> None:
    """Write a mesh with its names, zone after zone.

    Names in VTK files are numbers, from 1 in the mesh's order. meshio takes the groups of Gmsh 4.1 from
    tags of points: such a mesh has at least as many nodes as groups.
    """
    import meshio

    surfaces = list(mesh.boundaries)
    surfaces += [name for name in mesh.surfaces if name not in mesh.boundaries]
    cells: list[tuple[str, np.ndarray]] = []
    groups: list[tuple[int, int]] = []
    for number, name in enumerate(surfaces, 1):
        parts = [every[name] for every in (mesh.boundaries, mesh.surfaces) if name in every]
        cells.append(("triangle", np.concatenate(parts)))
        groups.append((number, 2))
    for number in range(len(mesh.zone_names)):
        tets = mesh.tets[mesh.zones == number]
        if len(tets):
            cells.append(("tetra", tets))
            groups.append((len(surfaces) + number + 1, 3))
    tags = [
        np.full(len(part), number, np.int32)
        for (_, part), (number, _) in zip(cells, groups, strict=True)
    ]
    data = {"gmsh:physical": tags, "gmsh:geometrical": tags}
    names = [*surfaces, *mesh.zone_names]
    fields = {names[number - 1]: np.array([number, size]) for number, size in groups}
    file = meshio.Mesh(mesh.nodes, cells, cell_data=data, field_data=fields)
    if form == "gmsh41":
        of_points = np.tile([3, groups[-1][0]], (len(mesh.nodes), 1))
        of_points[: len(groups)] = [(size, number) for number, size in groups]
        file.point_data["gmsh:dim_tags"] = of_points
    options = {"binary": binary} if form.startswith("gmsh") else {}
    file.write(path, file_format=_FORMS[form], **options)
