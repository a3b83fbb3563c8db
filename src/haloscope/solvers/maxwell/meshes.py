"""The mesh that a Maxwell case asks for."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from haloscope.domain.hex_boxes import some_of_box
from haloscope.domain.hex_generators import box, cylinder, sphere
from haloscope.domain.hexes import HexMesh, check_boundaries
from haloscope.domain.mesh_files import read_mesh
from haloscope.domain.mesh_parts import ElementRows, rows_of
from haloscope.domain.periodic import join_periodic
from haloscope.domain.shared_meshes import range_of
from haloscope.errors import InputError
from haloscope.exchange.world import World
from haloscope.solvers.maxwell.case import MaxwellTable

_OF_BOX = {"lower", "upper", "grading", "warp"}


def open_mesh(table: MaxwellTable) -> HexMesh:
    """Make or read the mesh of a case; the last one is kept until :func:`forget_mesh`.

    Raises
    ------
    InputError
        The mesh cannot be made or read, an outer face has no name, or a name of the case is not
        one of the mesh's.
    """
    text = table.model_dump_json(include={"box", "cylinder", "sphere", "mesh"})
    changed = None
    if table.mesh is not None and Path(table.mesh.file).is_file():
        changed = Path(table.mesh.file).stat().st_mtime_ns
    mesh = _opened(text, changed)
    _require_names(table, mesh)
    return mesh


def open_rows(table: MaxwellTable, world: World) -> ElementRows:
    """The range of elements of a case's mesh with which a rank begins; all ranks call this.

    A box is made in these parts. Other meshes are made or read as a whole on every rank, which then
    forgets the rest.

    Raises
    ------
    InputError
        As :func:`open_mesh`; the same on every rank.
    """
    if table.box is not None:
        brick = table.box
        x, y, z = (axis in brick.periodic for axis in "xyz")
        own = range_of(world, math.prod(brick.elements))
        shape = brick.model_dump(include=_OF_BOX)
        rows = some_of_box(own, brick.elements, **shape, periodic=(x, y, z))
        _require_names(table, rows.mesh)
        return rows
    mesh = open_mesh(table)
    forget_mesh()
    return rows_of(mesh, range_of(world, mesh.count))


def forget_mesh() -> None:
    """Keep no mesh any more."""
    _opened.cache_clear()


@lru_cache(maxsize=1)
def _opened(text: str, changed: int | None) -> HexMesh:
    table = MaxwellTable.model_validate_json(text)
    if table.box is not None:
        brick = table.box
        x, y, z = (axis in brick.periodic for axis in "xyz")
        shape = brick.model_dump(include=_OF_BOX)
        mesh = box(brick.elements, **shape, periodic=(x, y, z))
    elif table.cylinder is not None:
        mesh = cylinder(**table.cylinder.model_dump())
    elif table.sphere is not None:
        mesh = sphere(**table.sphere.model_dump())
    else:
        assert table.mesh is not None
        mesh = read_mesh(table.mesh.file, table.mesh.scale)
        for pair in table.mesh.periodic:
            mesh = join_periodic(mesh, pair.first, pair.second, pair.translation)
    check_boundaries(mesh)
    return mesh


def _require_names(table: MaxwellTable, mesh: HexMesh) -> None:
    """Refuse names that the mesh does not have, and surfaces without a kind."""
    known = ", ".join(mesh.boundary_names) or "none: the mesh has no outer surfaces"
    for name in table.boundaries:
        if name not in mesh.boundary_names:
            raise InputError(
                f"maxwell.boundaries.{name}: the mesh has no such surface; it has {known}"
            )
    for name in mesh.boundary_names:
        if name not in table.boundaries:
            raise InputError(
                f"the surface {name!r} of the mesh has no kind; give maxwell.boundaries.{name} as "
                "pec, pmc, absorbing or { impedance = ... }"
            )
    only = len(mesh.region_names) == 1
    for material in table.materials:
        if material.region not in mesh.region_names and not (only and material.region == ""):
            raise InputError(
                f"maxwell.materials: region {material.region!r} is not one of the mesh's; it has "
                f"{', '.join(mesh.region_names)}"
            )
