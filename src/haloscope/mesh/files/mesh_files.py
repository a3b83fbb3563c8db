"""Hexahedral meshes read from files through meshio, by one rank for all."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.plan import refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.gmsh import count_gmsh_hexahedra
from haloscope.mesh.files.meshio_files import (
    HEX_ENDINGS,
    VolumeKind,
    in_file,
    read_volumes,
    read_with_meshio,
    require_meshio,
    volume_blocks,
)
from haloscope.mesh.hexes.hexes import Floats, Integers, in_tensor, node_table
from haloscope.mesh.hexes.mesh_parts import ElementRows, unconnected
from haloscope.mesh.hexes.shared_meshes import NamedQuads, connect, range_ends, range_of

# Corners of a VTK or Gmsh hexahedron in the order of ours.
_CORNERS = [0, 1, 3, 2, 4, 5, 7, 6]
_HEXAHEDRA = VolumeKind(
    "hexahedra",
    r"hexahedron\d*|VTK_LAGRANGE_HEXAHEDRON",
    "only hexahedra",
    "in Gmsh, use transfinite or extruded volumes, or Mesh.SubdivisionAlgorithm 2",
    HEX_ENDINGS,
    r"quad\d*|VTK_LAGRANGE_QUAD.*",
    4,
    "quadrilaterals",
)
# Products of three lengths must be numbers, too.
_LARGEST = 1e30


@dataclass(frozen=True, eq=False)
class FileCells:
    """The hexahedra of a file and the quadrilaterals that name their faces, not connected yet."""

    points: Floats  # (points, 3) in the file's unit of length
    scale: float  # Factor from that to metres
    cells: Integers  # int64 (elements, nodes): numbers of points in the file's order
    table: Integers  # Where these nodes stand, (nodes, 3)
    numbers: Integers  # int64 (points,): of the points that are corners, from 0; -1: others
    # As in `HexMesh`.
    regions: NDArray[np.int32]
    region_names: tuple[str, ...]
    quads: Integers  # int64 (n, 4): points of the named quadrilaterals
    # int32 (n,): index into the names of surfaces.
    quad_names: NDArray[np.int32]
    surface_names: tuple[str, ...]
    notes: tuple[str, ...] = ()  # Which groups share faces or elements, a line each

    @property
    def corners(self) -> int:
        """How many points are corners."""
        return int(self.numbers.max()) + 1

    def vertices(self, rows: slice) -> Integers:
        """Numbers of the corners of some elements, (n, 8)."""
        return np.asarray(self.numbers[self.cells[rows][:, _CORNERS]])

    def coordinates(self, rows: slice) -> Floats:
        """Geometry nodes of some elements in m, [element, k, j, i, xyz]."""
        cells = self.cells[rows]
        nodes, places = np.unique(cells, return_inverse=True)
        return in_tensor(self.points[nodes] * self.scale, places.reshape(cells.shape), self.table)

    def named_quads(self) -> NamedQuads:
        """The named quadrilaterals; a corner that no hexahedron has gets a number above all others."""
        numbers = self.numbers[self.quads]
        numbers = np.where(numbers >= 0, numbers, self.corners)
        centres = (self.points[self.quads] * self.scale).mean(axis=1)
        return NamedQuads(numbers, self.quad_names, centres)


def read_mesh(
    world: World,
    path: Path | str,
    scale: float = 1.0,
    conditions: Collection[str] = (),
    materials: Collection[str] = (),
) -> ElementRows:
    """The range of a file's elements with which a rank begins; all ranks call this.

    Rank 0 reads the file, and gives the others their parts. `scale`: factor from the file's unit of
    length to metres.
    """
    require_meshio()
    file: list[FileCells] = []
    fault: InputError | None = None
    if world.is_root:
        try:
            file.append(read_cells(path, scale, conditions, materials))
        except InputError as error:
            fault = error
    refuse_together(world, fault)
    notes = file[0].notes if file else ()
    with in_file(path):
        rows = _hand_out(world, file)
    return replace(rows, mesh=replace(rows.mesh, notes=notes))


def read_cells(
    path: Path | str,
    scale: float = 1.0,
    conditions: Collection[str] = (),
    materials: Collection[str] = (),
) -> FileCells:
    """Read what a file holds of a mesh of hexahedra."""
    # Surfaces are named by the physical groups (Gmsh) or sets of the file's quadrilaterals, regions
    # by those of its hexahedra; a group without a name goes by its number. A face or element in
    # several groups goes to the smallest for which the case has a condition or a material, else to
    # the smallest; `HexMesh.notes` says so.
    file = read_volumes(_HEXAHEDRA, path, scale, conditions, materials)
    points, cells = file.points, file.cells
    _require_finite(points, cells, file.path)
    table = node_table(points, cells, file.kind)
    if table is None:
        raise InputError(
            f"the order of cells '{file.kind}' of {cells.shape[1]} nodes is not the same along all "
            "directions",
            location=f"mesh file {path}",
            remedy="save the mesh with one order",
        )
    # Points that are no corners get no number, so that face keys stay small.
    used = np.zeros(len(points), bool)
    used[cells[:, _CORNERS]] = True
    numbers = np.where(used, np.cumsum(used) - 1, -1)
    return FileCells(
        points,
        scale,
        cells,
        table,
        numbers,
        file.zones.numbers,
        file.zones.names,
        file.faces,
        file.face_groups.numbers,
        file.face_groups.names,
        (*file.zones.notes, *file.face_groups.notes),
    )


def count_elements(path: Path | str) -> int:
    """Hexahedra of a file, which is not connected; of a Gmsh file types alone are looked at."""
    path = Path(path)
    if path.suffix.lower() == ".msh" and path.is_file():
        count = count_gmsh_hexahedra(path)
        if count:
            return count
    file = read_with_meshio(path, HEX_ENDINGS)
    with in_file(path):
        return sum(len(file.cells[block].data) for block in volume_blocks(_HEXAHEDRA, file))


def _require_finite(points: Floats, cells: Integers, path: Path) -> None:
    usable = (np.abs(points) <= _LARGEST).all(axis=1)
    bad = np.flatnonzero(~np.asarray(usable)[cells].all(axis=1))
    if len(bad):
        raise InputError(
            f"{counted(len(bad), 'element has', 'elements have')} nodes with coordinates out of "
            f"range, the first is element {bad[0]}",
            location=f"mesh file {path}",
            allowed=f"finite numbers up to {_LARGEST:g}",
        )


def _hand_out(world: World, held: list[FileCells]) -> ElementRows:
    """Give ranges of elements to the ranks, and connect them; what rank 0 holds is let go."""
    file = held.pop() if held else None
    header = ""
    if file is not None:
        sizes = (len(file.cells), int(file.table.max()), file.corners)
        header = json.dumps([*sizes, file.region_names, file.surface_names])
    elements, order, corners, regions, surfaces = json.loads(world.gather_texts(header)[0])
    own = range_of(world, elements)
    count = len(own)
    shape = (order + 1, order + 1, order + 1, 3)
    quads = NamedQuads(np.empty((0, 4), np.int64), np.empty(0, np.int32), np.empty((0, 3)))
    if file is None:
        coordinates = world.receive((count, *shape), np.float64, 0)
        vertices = world.receive((count, 8), np.int64, 0)
        numbers = world.receive((count,), np.int32, 0)
    else:
        quads = file.named_quads()
        for rank in range(1, world.size):
            begin, end = range_ends(world, elements, rank)
            rows = slice(begin, end)
            world.send(file.coordinates(rows), rank)
            world.send(file.vertices(rows), rank)
            world.send(file.regions[rows], rank)
        rows = slice(count)
        coordinates, vertices = file.coordinates(rows), file.vertices(rows)
        numbers = file.regions[rows].copy()
        del file
    mesh = unconnected(coordinates, vertices, numbers, tuple(regions), tuple(surfaces))
    # One number more, for what is no corner.
    return connect(world, mesh, own, elements, corners + 1, quads)
