"""Meshes of tetrahedra in files, and the quality of their elements."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from haloscope.errors import InputError, counted
from haloscope.mesh.files.meshio_files import ENDINGS, VolumeKind, in_file, read_volumes
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


_TETRAHEDRA = VolumeKind(
    "tetrahedra",
    "tetra",
    f"only tetrahedra of {CORNERS} nodes",
    "in Gmsh, set Mesh.ElementOrder = 1 and do not recombine",
    ENDINGS,
    "triangle",
    3,
    "triangles of 3 nodes",
)


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
    file = read_volumes(_TETRAHEDRA, path, scale, conditions, settings)
    groups, zones = file.face_groups, file.zones
    named = NamedTriangles(file.faces, groups.numbers, groups.names)
    with in_file(path), np.errstate(over="ignore"):
        mesh = make_tet_mesh(file.points * scale, file.cells, named, zones.numbers, zones.names)
    return replace(mesh, notes=(*zones.notes, *groups.notes, *mesh.notes))
