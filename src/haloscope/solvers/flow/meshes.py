"""The mesh of a flow case: generated, read from a file, or a blood pump's, made once by Gmsh and then kept."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.jit import Cache, default_folder
from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.io.figures.geometry_views import Geometry, Part
from haloscope.mesh.files.gmsh import count_gmsh_tetrahedra
from haloscope.mesh.files.meshio_files import ENDINGS
from haloscope.mesh.hexes.hex_boxes import graded
from haloscope.mesh.hexes.hexes import point_text
from haloscope.mesh.partition import require_parts
from haloscope.mesh.tets.node_parts import NodePart
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
from haloscope.solvers.flow.case_domain import BY_BLADES, PUMP_ZONES, Box, Pump, Vanes

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
    channel = table.cylinder_channel or table.cylinder_slice
    if channel is not None:
        n = channel.resolution
        cells = ChannelCells(n, channel.rings or n, channel.growth, channel.stretch)
        ends = (BLOCK, 2.2) if table.cylinder_channel is None else (0.5, 2.5)
        prisms = len(channel_plane(cells, *ends).triangles) * (channel.layers or n)
        return _TETS_OF_A_PRISM * prisms
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


PUMP_BOUNDARIES = (
    "inlet",
    "outlet",
    "housing",
    "straightener_hub",
    "straightener_vanes",
    "rotor_hub",
    "blades",
    "diffuser_hub",
    "diffuser_vanes",
)
PUMP_INTERFACES = ("straightener_to_rotor", "rotor_to_diffuser")
"""Surfaces inside the mesh, between zones."""

_PROGRAM = Path(__file__).with_name("pump_gmsh.py")
_NO_GMSH = 3  # what the program ends with where Gmsh cannot be loaded
_LONGEST_REASON = 300


def pump_mesh(pump: Pump, folder: Path | None = None, seconds: float = 7200.0) -> TetMesh:
    """Give the mesh of a pump: a kept one, or a new one made by Gmsh.

    `folder`: where meshes are kept; ``meshes`` in the cache folder by default.
    """
    # The same dimensions give the same mesh with the same version of Gmsh on the same machine: it
    # runs on one thread with nobody's settings. A kept mesh stays when Gmsh changes;
    # `TetMesh.notes` says which version made it.
    cache = Cache(folder or default_folder() / "meshes")
    plan = json.dumps(_plan(pump), sort_keys=True)
    made: list[TetMesh] = []

    def build(path: Path) -> None:
        _run_gmsh(plan, path, seconds)
        made.append(_read(path))
        check_quality(made[0])

    kept = cache.get(f"pump\n{plan}\n{_PROGRAM.read_text()}", ".msh", build)
    if made:
        return made[0]
    with tempfile.TemporaryDirectory() as place:
        # Readers of meshes would stumble over the digest behind the mesh.
        plain = Path(place) / "pump.msh"
        plain.write_bytes(cache.read(kept))
        return _read(plain)


def _plan(pump: Pump) -> dict[str, Any]:
    """Input of the program that calls Gmsh; lengths in mm, twists in radians per mm."""
    ends, gap, housing = pump.ends_mm, pump.clearance_mm, pump.housing_radius_mm
    starts = (pump.inlet_length_mm + pump.nose_length_mm, ends[1] + gap, ends[2] + gap)
    tips = (housing, housing - pump.tip_gap_mm, housing)
    names = ("straightener_vanes", "blades", "diffuser_vanes")
    faces = ("inlet", *PUMP_INTERFACES, "outlet")
    hubs = (
        (pump.inlet_length_mm, ends[1]),
        (ends[1], ends[2]),
        (ends[2], ends[3] - pump.outlet_length_mm),
    )
    zones = []
    for number, zone in enumerate(PUMP_ZONES):
        vanes: Vanes = getattr(pump, zone)
        lean = -1 if zone == "rotor" else 1
        angles = (vanes.leading_angle, vanes.trailing_angle)
        zones.append(
            {
                "name": zone,
                "low": ends[number],
                "high": ends[number + 1],
                "low_name": faces[number],
                "high_name": faces[number + 1],
                "hub": hubs[number],
                "hub_name": f"{zone}_hub",
                "nose": pump.nose_length_mm if number == 0 else 0.0,
                "tail": pump.tail_length_mm if number == 2 else 0.0,
                "vanes": {
                    "name": names[number],
                    "count": vanes.count,
                    "low": starts[number],
                    "high": starts[number] + vanes.length_mm,
                    "thickness": vanes.thickness_mm,
                    "tip_radius": tips[number],
                    "twists": [
                        lean * math.tan(math.radians(angle)) / pump.mean_radius_mm
                        for angle in angles
                    ],
                },
            }
        )
    return {
        "housing_radius": housing,
        "hub_radius": pump.hub_radius_mm,
        "mesh_size": pump.mesh_size_mm,
        "blade_mesh_size": pump.blade_mesh_size_mm or BY_BLADES * pump.mesh_size_mm,
        "gap_layers": pump.gap_layers,
        "zones": zones,
    }


def _run_gmsh(plan: str, path: Path, seconds: float) -> None:
    try:
        # -P: no module comes from the folder of the program, whose neighbours have plain names.
        done = subprocess.run(
            [sys.executable, "-P", str(_PROGRAM), str(path)],
            input=plan,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"Gmsh has not finished the pump's mesh in {seconds:g} s",
            location="flow.pump",
            remedy="raise mesh_size_mm or lower gap_layers",
        ) from None
    if done.returncode == 0:
        return
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:_LONGEST_REASON]
    if done.returncode == _NO_GMSH:
        raise MachineError(
            f"the pump's mesh needs Gmsh ({reason})",
            location="flow.pump",
            remedy=f"run {install_command('pump')}",
        )
    if done.returncode < 0:
        raise MachineError(
            f"Gmsh was ended by signal {-done.returncode} while it made the pump's mesh",
            location="flow.pump",
            remedy="if memory is short, raise mesh_size_mm",
        )
    raise InputError(
        f"Gmsh cannot make the pump's mesh: {reason}",
        location="flow.pump",
        remedy="change the dimensions or mesh_size_mm",
    )


def _read(path: Path) -> TetMesh:
    """Read a mesh and see that it is a pump's."""
    mesh = read_tets(path, 1e-3)
    for kind, names, wanted in (
        ("zones", mesh.zone_names, PUMP_ZONES),
        ("boundaries", tuple(mesh.boundaries), PUMP_BOUNDARIES),
        ("inner surfaces", tuple(mesh.surfaces), PUMP_INTERFACES),
    ):
        if sorted(names) != sorted(wanted):
            raise InputError(
                f"the pump's mesh has the {kind} {', '.join(sorted(names))}",
                location="flow.pump",
                allowed=", ".join(sorted(wanted)),
                remedy="change the dimensions or mesh_size_mm",
            )
    maker = _maker(path)
    return dataclasses.replace(mesh, notes=(*mesh.notes, f"the pump's mesh was made by {maker}"))


def _maker(path: Path) -> str:
    """Name of the program that made the file, as the file states it."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 200, 0))
        match = re.search(rb"\$Comments\n([\w. ]{1,80})\n\$EndComments", file.read())
    return match[1].decode("ascii", "replace") if match else "an unknown program"


def boundary_geometry(part: NodePart, conditions: Mapping[str, str]) -> Geometry:
    """Own triangles of each boundary with its condition; periodic ones have none."""
    names = [*conditions, *(name for name in part.boundaries if name not in conditions)]
    parts = []
    for name in names:
        triangles = part.boundaries.get(name, np.zeros((0, 3), np.int32))
        condition = conditions.get(name, "")
        parts.append(Part(name, condition, part.nodes[triangles], faces=np.arange(len(triangles))))
    zones = ", ".join(part.zone_names)
    notes = (f"zones of the mesh: {zones}",) if len(part.zone_names) > 1 else ()
    return Geometry(tuple(parts), notes=notes)
