"""Meshes of tetrahedra in files, and the quality of their elements."""

from __future__ import annotations

import importlib
import itertools
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from haloscope.errors import InputError, counted
from haloscope.mesh.files.mesh_groups import (
    CellGroups,
    choose_groups,
    dimension,
    equal_cells,
    zones_of,
)
from haloscope.mesh.files.meshio_files import block_nodes, read_with_meshio, require_meshio
from haloscope.mesh.hexes.hexes import elements_text
from haloscope.mesh.tets.tets import (
    CORNERS,
    FACE_NODES,
    Floats,
    Integers,
    NamedTriangles,
    TetMesh,
    area_vectors,
    make_tet_mesh,
    tet_centres,
)

SMALLEST_QUALITY = 0.01
"""SICN below which an element counts as a sliver."""
# Elements at once.
_AT_ONCE = 1 << 16
# From the edges of an element to what makes them those of a regular tetrahedron with edges of 1.
_REGULAR = np.linalg.inv(
    np.array([[1, 0, 0], [1 / 2, np.sqrt(3) / 2, 0], [1 / 2, np.sqrt(3) / 6, np.sqrt(2 / 3)]]).T
)


@dataclass(frozen=True, eq=False)
class TetQuality:
    """Shape of the elements of a mesh."""

    volumes: tuple[float, float, float]  # Smallest and largest volume, and their sum, in m^3
    # Inverse condition number of each element, as Gmsh's SICN: 1 is regular, 0 is flat.
    sicn: Floats
    angles: Floats  # Smallest and largest dihedral angle of each element in degrees, (elements, 2)
    smallest: float  # Quality below which an element is a sliver
    slivers: Integers  # These elements, the worst first
    sliver_centres: Floats  # Means of their corners, (n, 3)

    def describe(self) -> str:
        """Some lines for a report."""
        low, high, whole = self.volumes
        text = (
            f"{len(self.sicn)} tetrahedra of {low:.3g} to {high:.3g} m^3, {whole:.6g} m^3 in all\n"
            f"quality SICN at least {self.sicn.min():.3f}, median {np.median(self.sicn):.3f}\n"
            f"dihedral angles {self.angles[:, 0].min():.1f} to {self.angles[:, 1].max():.1f} "
            "degrees"
        )
        return f"{text}\n{self.sliver_text()}" if len(self.slivers) else text

    def sliver_text(self) -> str:
        """Which elements are slivers, and where."""
        named = elements_text(self.slivers, self.sliver_centres)
        number = counted(len(self.slivers), "sliver")
        return f"{number} with SICN below {self.smallest:g}: {named}"


def tet_quality(mesh: TetMesh, smallest: float = SMALLEST_QUALITY) -> TetQuality:
    """Look at the shape of all elements."""
    # The quality is that of Knupp, "Algebraic mesh quality metrics", SIAM J. Sci. Comput. 23, 2001:
    # 3 over the product of the Frobenius norms of A and its inverse, where A maps the regular
    # tetrahedron to the element.
    sicn, angles = np.empty(mesh.count), np.empty((mesh.count, 2))
    for begin in range(0, mesh.count, _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        sicn[rows] = _inverse_condition(mesh.nodes, mesh.tets[rows])
        angles[rows] = _dihedral_angles(mesh.nodes, mesh.tets[rows])
    slivers = np.flatnonzero(sicn < smallest)
    slivers = slivers[np.argsort(sicn[slivers], kind="stable")]
    volumes = mesh.volumes
    return TetQuality(
        (float(volumes.min()), float(volumes.max()), float(volumes.sum())),
        sicn,
        angles,
        smallest,
        slivers,
        tet_centres(mesh.nodes, mesh.tets[slivers]),
    )


def check_quality(
    mesh: TetMesh, smallest: float = SMALLEST_QUALITY, key: str = "the smallest quality"
) -> TetQuality:
    """Refuse a mesh with slivers; otherwise as :func:`tet_quality`."""
    quality = tet_quality(mesh, smallest)
    if len(quality.slivers):
        raise InputError(
            f"the mesh has {quality.sliver_text()}",
            remedy="mesh these places anew (in Gmsh: Mesh.Optimize, Mesh.OptimizeNetgen), or lower "
            f"{key} (now {smallest:g})",
        )
    return quality


def _inverse_condition(nodes: Floats, tets: Integers) -> Floats:
    edges = np.stack([nodes[tets[:, c]] - nodes[tets[:, 0]] for c in (1, 2, 3)], axis=-1)
    mapped = edges @ _REGULAR
    a, b, c = np.moveaxis(mapped, -1, 0)
    # Rows of the inverse times the determinant.
    adjugate = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=1)
    determinant = np.einsum("ex,ex->e", a, adjugate[:, 0])
    norms = np.einsum("eij,eij->e", mapped, mapped) * np.einsum("eij,eij->e", adjugate, adjugate)
    return np.asarray(3 * determinant / np.sqrt(norms))


def _dihedral_angles(nodes: Floats, tets: Integers) -> Floats:
    """Smallest and largest angle between two faces of each element, in degrees: (n, 2)."""
    normals = [area_vectors(nodes, tets[:, FACE_NODES[face]]) for face in range(CORNERS)]
    units = [normal / np.linalg.norm(normal, axis=1, keepdims=True) for normal in normals]
    cosines = [
        -np.einsum("ex,ex->e", one, other) for one, other in itertools.combinations(units, 2)
    ]
    angles = np.degrees(np.arccos(np.clip(np.stack(cosines), -1, 1)))
    return np.stack([angles.min(axis=0), angles.max(axis=0)], axis=1)


Form = Literal["gmsh22", "gmsh41", "vtu", "vtk"]

_FORMS = {"gmsh22": "gmsh22", "gmsh41": "gmsh", "vtu": "vtu", "vtk": "vtk42"}


def read_tets(
    path: Path | str,
    scale: float = 1.0,
    conditions: Collection[str] = (),
    settings: Collection[str] = (),
) -> TetMesh:
    """Read a mesh of tetrahedra."""
    # Surfaces are named by the physical groups (Gmsh) of the file's triangles, zones by those of
    # its tetrahedra. A group without a name goes by its number: so do all in VTK files, whose
    # groups are the cell data ``gmsh:physical``, ``CellEntityIds``, ``region`` or ``material``. A
    # face or element in several groups goes to the smallest for which the case has a condition or a
    # setting, else to the smallest; `TetMesh.notes` says so.
    path = Path(path)
    if not (math.isfinite(scale) and scale > 0):
        raise InputError("out of range", location=f"scale = {scale:g}", allowed="a factor above 0")
    file = read_with_meshio(path)
    points = np.asarray(file.points, np.float64)
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError("it has no points in three dimensions", location=f"mesh file {path}")
    blocks = _tetrahedra(file, path)
    tets = np.concatenate([block_nodes(file, block, path, CORNERS) for block in blocks])
    groups = CellGroups(file, path)
    try:
        tets, zones = zones_of(groups, blocks, tets, settings)
        named, notes = _named_triangles(file, groups, path, conditions)
        with np.errstate(over="ignore"):
            points = points * scale
        mesh = make_tet_mesh(points, tets, named, zones.numbers, zones.names)
        return replace(mesh, notes=(*zones.notes, *notes, *mesh.notes))
    except InputError as error:
        location = f"mesh file {path}"
        raise (error if error.location.startswith(location) else error.within(location)) from None


def write_tets(mesh: TetMesh, path: Path | str, form: Form = "gmsh22", binary: bool = True) -> None:
    """Write a mesh with its names; those of VTK files are numbers, from 1 in the mesh's order.

    Elements are written zone after zone.
    """
    if form not in _FORMS:
        raise InputError(
            "unknown format", location=f"mesh format '{form}'", allowed=", ".join(_FORMS)
        )
    require_meshio()
    meshio = importlib.import_module("meshio")
    surfaces = list(mesh.boundaries)
    surfaces += [name for name in mesh.surfaces if name not in mesh.boundaries]
    cells: list[tuple[str, Integers]] = []
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
        # Version 4.1 keeps groups with its entities, which meshio makes from tags of points: one
        # point of each group's is enough.
        if len(groups) > len(mesh.nodes):
            raise InputError(
                f"a mesh of {len(mesh.nodes)} nodes has {len(groups)} groups, and meshio cannot "
                "write more groups than nodes as Gmsh 4.1",
                remedy="write the format gmsh22",
            )
        of_points = np.tile([3, groups[-1][0]], (len(mesh.nodes), 1))
        of_points[: len(groups)] = [(size, number) for number, size in groups]
        file.point_data["gmsh:dim_tags"] = of_points
    options = {"binary": binary} if form.startswith("gmsh") else {}
    try:
        file.write(Path(path), file_format=_FORMS[form], **options)
    except OSError as error:
        raise InputError(
            f"it cannot be written ({error.strerror})",
            location=f"mesh file {path}",
            remedy="check the folder",
        ) from None


def _tetrahedra(file: Any, path: Path) -> list[int]:
    """Numbers of the blocks of tetrahedra; nothing else may fill space."""
    counts: Counter[str] = Counter()
    for block in file.cells:
        if dimension(block.type) == 3 and len(block.data):
            counts[block.type] += len(block.data)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    if not counts:
        surface = Counter(block.type for block in file.cells if len(block.data))
        raise InputError(
            f"it holds no tetrahedra, only {', '.join(sorted(surface)) or 'points'}",
            location=f"mesh file {path}",
            remedy="in Gmsh, put the volumes into a physical group, so that they are saved",
        )
    if set(counts) != {"tetra"}:
        raise InputError(
            f"it holds {listed}",
            location=f"mesh file {path}",
            allowed=f"only tetrahedra of {CORNERS} nodes",
            remedy="in Gmsh, set Mesh.ElementOrder = 1 and do not recombine",
        )
    return [n for n, block in enumerate(file.cells) if block.type == "tetra" and len(block.data)]


def _named_triangles(
    file: Any, groups: CellGroups, path: Path, conditions: Collection[str]
) -> tuple[NamedTriangles, tuple[str, ...]]:
    """Each triangle that has a group once, with one of its groups; and notes."""
    blocks = [
        number
        for number, block in enumerate(file.cells)
        if dimension(block.type) == 2 and groups.any_in(number) is not None
    ]
    for number in blocks:
        kind = file.cells[number].type
        if kind != "triangle":
            raise InputError(
                f"the surface '{groups.any_in(number)}' is made of {kind} cells",
                allowed="triangles of 3 nodes",
            )
    corners = [block_nodes(file, number, path, 3) for number in blocks]
    triangles = np.concatenate([np.empty((0, 3), np.int64), *corners])
    first, place = equal_cells(triangles)
    cells, numbers = groups.pairs(blocks)
    chosen = choose_groups(
        place[cells], numbers, groups.names, len(first), conditions, "face", "condition"
    )
    named = chosen.numbers >= 0
    faces = NamedTriangles(triangles[first[named]], chosen.numbers[named], chosen.names)
    return faces, chosen.notes
