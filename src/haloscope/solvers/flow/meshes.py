"""The mesh of a flow case."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from haloscope.errors import InputError, counted
from haloscope.mesh.files.gmsh import count_gmsh_tetrahedra
from haloscope.mesh.files.meshio_files import ENDINGS
from haloscope.mesh.hexes.hex_boxes import graded
from haloscope.mesh.hexes.hexes import point_text
from haloscope.mesh.partition import require_parts
from haloscope.mesh.tets.tet_files import TetQuality, check_quality, read_tets, tet_quality
from haloscope.mesh.tets.tet_generators import (
    BLOCK,
    ChannelCells,
    channel_plane,
    cylinder_channel,
    cylinder_slice,
    tet_box,
    tet_box_of_planes,
)
from haloscope.mesh.tets.tets import TetMesh
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.case_domain import Box
from haloscope.solvers.flow.pump_mesh import Pump, pump_mesh

_TETS_OF_A_PRISM = 3
# In a cube as wide as the pump's elements away from vanes.
_TETS_OF_A_CUBE = 16
# Elements by a file's size for each rank, above which they are not counted: lines of text are long.
_SURELY_ENOUGH = 50
# Bytes of a mesh file for each of its tetrahedra and its share of nodes: between binary and text.
_BYTES_A_TET = 40


def make_mesh(table: FlowTable) -> TetMesh:
    """Make or read the whole mesh of a case; its notes end with a report on the shape of elements."""
    quality: TetQuality | None = None
    if table.box is not None:
        mesh = _box(table.box)
    elif table.cylinder_channel is not None:
        mesh = cylinder_channel(**table.cylinder_channel.model_dump())
    elif table.cylinder_slice is not None:
        mesh = cylinder_slice(**table.cylinder_slice.model_dump())
    elif table.pump is not None:
        mesh = pump_mesh(table.pump)
    else:
        assert table.mesh is not None
        mesh = read_tets(table.mesh.file, table.mesh.scale, _surfaces(table), table.zones)
        quality = check_quality(mesh, table.mesh.smallest_quality, "flow.mesh.smallest_quality")
    check_names(table, mesh)
    quality = quality or tet_quality(mesh)
    notes = (*mesh.notes, *quality.describe().splitlines())
    if table.mesh is not None:
        notes += tuple(
            f"warning: the surface {name!r} ({counted(len(faces), 'face')}) lies inside the mesh and "
            "has no effect: fluid passes through it; walls inside the mesh are not supported"
            for name, faces in mesh.surfaces.items()
        )
    return replace(mesh, notes=notes)


def _surfaces(table: FlowTable) -> set[str]:
    """Boundaries that a case names."""
    return {name for _, name in _named(table)}


def _named(table: FlowTable) -> list[tuple[str, str]]:
    """Keys that name boundaries, and these."""
    named = [(f"flow.boundaries.{name}", name) for name in table.boundaries]
    named += [
        (f"flow.forces {force.name!r}", name) for force in table.forces for name in force.boundaries
    ]
    if table.head is not None:
        named += [("flow.head", table.head.inlet), ("flow.head", table.head.outlet)]
    return named


def _box(box: Box) -> TetMesh:
    if not box.to_walls:
        return tet_box(box.cells, box.lower, box.upper, grading=box.grading)
    planes = []
    for count, low, high, ratio in zip(box.cells, box.lower, box.upper, box.grading, strict=True):
        even = graded(count, 0.0, 1.0, ratio)
        drawn = even - box.to_walls * np.sin(2 * math.pi * even) / (2 * math.pi)
        # The ends stay what they are to the last bit.
        drawn[0], drawn[-1] = 0.0, 1.0
        planes.append(low + (high - low) * drawn)
    return tet_box_of_planes(planes)


def check_names(table: FlowTable, mesh: TetMesh) -> None:
    """Refuse zones and boundaries that the mesh does not have, and boundaries without a condition."""
    known = ", ".join(mesh.boundaries)
    for key, name in _named(table):
        if name in mesh.surfaces:
            faces = mesh.surfaces[name]
            place = point_text(mesh.nodes[faces[0]].mean(axis=0))
            every = len(mesh.boundaries.get(name, ())) + len(faces)
            raise InputError(
                f"{len(faces)} of {every} faces of {name!r} lie inside the mesh, the first at "
                f"{place}; walls inside the mesh are not supported",
                location=key,
                remedy="leave the name out, or cut the mesh open along the surface (in Gmsh: "
                "Plugin(Crack)) and name both sides",
            )
        if name not in mesh.boundaries:
            raise InputError(f"the mesh has no boundary {name!r}", location=key, allowed=known)
    bare = [name for name in mesh.boundaries if name not in table.boundaries]
    if bare:
        raise InputError(
            f"the boundaries {', '.join(bare)} of the mesh have no condition",
            location="flow.boundaries",
            remedy='set each to "no-slip", "slip", "open" or a table',
        )
    for name in table.zones:
        if name not in mesh.zone_names:
            raise InputError(
                "the mesh has no such zone",
                location=f"flow.zones.{name}",
                allowed=", ".join(mesh.zone_names),
            )


def elements_of(table: FlowTable) -> int:
    """Elements of a case's mesh, which is not made; of a file about how many its size allows."""
    if table.box is not None:
        return table.box.tetrahedra()
    if table.cylinder_channel is not None:
        channel = table.cylinder_channel
        n = channel.resolution
        cells = ChannelCells(n, channel.rings or n, channel.growth, channel.stretch)
        plane = channel_plane(cells, 0.5, 2.5)
        return _TETS_OF_A_PRISM * len(plane.triangles) * (channel.layers or n)
    if table.cylinder_slice is not None:
        thin = table.cylinder_slice
        n = thin.resolution
        plane = channel_plane(
            ChannelCells(n, thin.rings or n, thin.growth, thin.stretch), BLOCK, 2.2
        )
        return _TETS_OF_A_PRISM * len(plane.triangles) * thin.layers
    if table.pump is not None:
        return _tets_of_pump(table.pump)
    assert table.mesh is not None
    path = Path(table.mesh.file)
    if path.is_dir():
        raise InputError(
            "it is a folder",
            location=f"mesh file {path}",
            remedy=f"give a file in it that ends in {', '.join(ENDINGS)}",
        )
    if not path.is_file():
        raise InputError(
            "it does not exist", location=f"mesh file {path}", remedy="give the path of a file"
        )
    return max(1, path.stat().st_size // _BYTES_A_TET)


def require_elements(table: FlowTable, ranks: int) -> None:
    """Refuse more ranks than elements, before any rank starts.

    Elements of a file are counted where they may be too few and its form tells of them without
    reading the mesh; else its size says about how many there are.
    """
    count = elements_of(table)
    if _SURELY_ENOUGH * ranks <= count:
        return
    if table.mesh is None and table.pump is None:
        require_parts(ranks, count)
        return
    source = "by the pump's sizes"
    if table.mesh is not None:
        path = Path(table.mesh.file)
        source = f"by the size of the file {path}"
        stated = count_gmsh_tetrahedra(path) if path.suffix.lower() == ".msh" else None
        if stated:
            require_parts(ranks, stated)
            return
    if ranks > count:
        raise InputError(
            f"{ranks} parts are too many for a mesh of about {count} elements, {source}",
            allowed=f"at most about {count}",
            remedy="start fewer ranks",
        )


def _tets_of_pump(pump: Pump) -> int:
    """About how many: elements are finer along vanes and in the gap."""
    pipe = math.pi * pump.housing_radius_mm**2 * pump.ends_mm[-1]
    return max(1, int(_TETS_OF_A_CUBE * pipe / pump.mesh_size_mm**3))
