"""The mesh that a Maxwell case asks for."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.mesh_files import count_elements, read_mesh
from haloscope.mesh.files.shared_files import read_mesh_on_ranks
from haloscope.mesh.hexes.hex_boxes import box_elements
from haloscope.mesh.hexes.hex_generators import box, cylinder, cylinder_parts, sphere, sphere_parts
from haloscope.mesh.hexes.hexes import HexMesh, check_boundaries
from haloscope.mesh.hexes.mesh_parts import ElementRows, rows_of
from haloscope.mesh.hexes.shared_meshes import range_of
from haloscope.mesh.hexes.shared_periodic import join_periodic
from haloscope.solvers.maxwell.case import MaxwellTable, generated_elements

_OF_BOX = {"lower", "upper", "grading", "warp"}


def open_mesh(table: MaxwellTable) -> HexMesh:
    """Make or read the mesh of a case; the last one is kept until :func:`forget_mesh`."""
    text = table.model_dump_json(include={"box", "cylinder", "sphere", "mesh"})
    changed = None
    if table.mesh is not None and Path(table.mesh.file).is_file():
        changed = Path(table.mesh.file).stat().st_mtime_ns
    mesh = _opened(text, changed, *_names(table))
    _require_names(table, mesh)
    return mesh


def open_rows(table: MaxwellTable, world: World) -> ElementRows:
    """The range of elements of a case's mesh with which a rank begins; all ranks call this.

    Generated meshes are made in these parts. Rank 0 reads a file and gives the others theirs; where
    there are no others, the mesh is that of :func:`open_mesh`.
    """
    if table.box is not None:
        brick = table.box
        x, y, z = (axis in brick.periodic for axis in "xyz")
        own = range_of(world, math.prod(brick.elements))
        shape = brick.model_dump(include=_OF_BOX)
        rows = box_elements(own, brick.elements, **shape, periodic=(x, y, z))
        _require_names(table, rows.mesh)
        return rows
    if world.size == 1 or not world.present:
        mesh = open_mesh(table)
        forget_mesh()
        return rows_of(mesh, range_of(world, mesh.count))
    if table.cylinder is not None:
        rows = cylinder_parts(**table.cylinder.model_dump()).on_ranks(world)
    elif table.sphere is not None:
        rows = sphere_parts(**table.sphere.model_dump()).on_ranks(world)
    else:
        assert table.mesh is not None
        pairs = [(pair.first, pair.second, pair.translation) for pair in table.mesh.periodic]
        rows = read_mesh_on_ranks(world, table.mesh.file, table.mesh.scale, pairs, *_names(table))
    _require_names(table, rows.mesh)
    return rows


def elements_of(table: MaxwellTable) -> int:
    """Elements of a case's mesh, which is not made; a file's are counted without connecting them."""
    elements = generated_elements(table)
    if elements is None:
        assert table.mesh is not None
        path = Path(table.mesh.file)
        elements = _counted(path, path.stat().st_mtime_ns if path.is_file() else None)
    return elements


@lru_cache(maxsize=1)
def _counted(path: Path, changed: int | None) -> int:
    return count_elements(path)


def forget_mesh() -> None:
    """Keep no mesh any more."""
    _opened.cache_clear()


@lru_cache(maxsize=1)
def _opened(
    text: str, changed: int | None, surfaces: tuple[str, ...], regions: tuple[str, ...]
) -> HexMesh:
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
        mesh = read_mesh(table.mesh.file, table.mesh.scale, surfaces, regions)
        for pair in table.mesh.periodic:
            mesh = join_periodic(mesh, pair.first, pair.second, pair.translation)
    check_boundaries(mesh)
    return mesh


def _names(table: MaxwellTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Surfaces and regions that the case names."""
    surfaces = {*table.boundaries}
    for pair in () if table.mesh is None else table.mesh.periodic:
        surfaces |= {pair.first, pair.second}
    surfaces |= {source.surface for source in table.sources if source.surface is not None}
    regions = {material.region for material in table.materials}
    return tuple(sorted(surfaces)), tuple(sorted(regions))


def mesh_notices(table: MaxwellTable, mesh: HexMesh) -> list[str]:
    """Notices about the mesh: notes of its reader, and surfaces inside that have no effect."""
    used = {source.surface for source in table.sources}
    return [
        *mesh.notes,
        *(
            f"warning: the surface {name!r} lies inside the mesh and has no effect: walls inside are "
            "not supported"
            for name in mesh.surfaces
            if name not in used
        ),
    ]


def _require_names(table: MaxwellTable, mesh: HexMesh) -> None:
    """Refuse names that the mesh does not have, and surfaces without a kind."""
    known = ", ".join(mesh.boundary_names) or "none: the mesh has no outer surfaces"
    for name in table.boundaries:
        if name in mesh.surfaces:
            raise InputError(
                f"maxwell.boundaries.{name}: the surface {name!r} lies inside the mesh, where walls "
                "are not supported; leave the key out, or cut the mesh open along the surface"
            )
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
