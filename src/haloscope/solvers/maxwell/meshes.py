"""The mesh of a Maxwell case, and each rank's elements, found without a rank that has all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.mesh_files import count_elements, read_mesh
from haloscope.mesh.hexes.hex_boxes import box_elements
from haloscope.mesh.hexes.hex_generators import cylinder_parts, sphere_parts
from haloscope.mesh.hexes.hexes import FACES, Floats, HexMesh, Integers, point_text
from haloscope.mesh.hexes.mesh_parts import ElementRows, MeshPart
from haloscope.mesh.hexes.shared_meshes import (
    Surroundings,
    check_boundaries,
    move,
    range_of,
    range_ranks,
    surroundings,
)
from haloscope.mesh.hexes.shared_periodic import join_periodic
from haloscope.mesh.partition import LARGEST_GRAPH, graph_of, partition, require_parts
from haloscope.numerics.elements.element_maps import check_jacobians
from haloscope.solvers.maxwell.case import MaxwellTable, generated_elements
from haloscope.solvers.maxwell.elements import ALLOWED_KINDS, Material
from haloscope.solvers.maxwell.terms.additions import PlacedAdditions, place_on_ranks
from haloscope.solvers.maxwell.terms.layers import PlacedLayer

_OF_BOX = {"lower", "upper", "grading", "warp"}


def open_rows(table: MaxwellTable, world: World) -> ElementRows:
    """The range of elements of a case's mesh with which a rank begins; all ranks call this.

    Generated meshes are made in these parts. Rank 0 reads a file, and gives the others theirs.
    """
    if table.box is not None:
        brick = table.box
        x, y, z = (axis in brick.periodic for axis in "xyz")
        own = range_of(world, math.prod(brick.elements))
        shape = brick.model_dump(include=_OF_BOX)
        rows = box_elements(own, brick.elements, **shape, periodic=(x, y, z))
    elif table.cylinder is not None:
        rows = cylinder_parts(**table.cylinder.model_dump()).rows(world)
    elif table.sphere is not None:
        rows = sphere_parts(**table.sphere.model_dump()).rows(world)
    else:
        assert table.mesh is not None
        rows = read_mesh(world, table.mesh.file, table.mesh.scale, *_names(table))
        for pair in table.mesh.periodic:
            rows = join_periodic(world, rows, (pair.first, pair.second, pair.translation))
        check_boundaries(world, rows)
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
            f"warning: surface {name!r}: it lies inside the mesh and has no effect, since walls inside "
            "are not supported"
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
                f"the surface {name!r} lies inside the mesh, where walls are not supported",
                location=f"maxwell.boundaries.{name}",
                remedy="remove the key, or cut the mesh open along the surface",
            )
        if name not in mesh.boundary_names:
            raise InputError(
                f"the mesh has no surface {name!r}",
                location=f"maxwell.boundaries.{name}",
                allowed=known,
            )
    for name in mesh.boundary_names:
        if name not in table.boundaries:
            raise InputError(
                f"the surface {name!r} of the mesh has no kind",
                location=f"maxwell.boundaries.{name}",
                allowed=ALLOWED_KINDS,
                remedy="add the key",
            )
    only = len(mesh.region_names) == 1
    for material in table.materials:
        if material.region not in mesh.region_names and not (only and material.region == ""):
            raise InputError(
                f"the mesh has no region {material.region!r}",
                location="maxwell.materials",
                allowed=", ".join(mesh.region_names),
            )


# Work of elements to which something is added over that of others.
_WEIGHT_OF_ADDITIONS = 1.5


@dataclass(frozen=True, eq=False)
class Share:
    """A rank's share of a mesh."""

    rows: ElementRows  # Its elements, ascending
    ranks: Integers  # The rank of what lies behind each of their faces, (own, 6)
    concerned: NDArray[np.bool_]  # Whether anything is added in each, (own,)
    layer: PlacedLayer | None  # The absorbing layer, where it lies in the whole mesh
    materials: list[Material]  # One for each region of the mesh
    notices: list[str]  # What to tell of the partition

    def surroundings(self, world: World, part: MeshPart) -> Surroundings:
        """Look behind the faces of these elements, put in order as a part; all ranks call this."""
        row = np.searchsorted(self.rows.elements, part.elements)
        return surroundings(world, part, self.ranks[row])


@dataclass(frozen=True, eq=False)
class SetUp:
    """A rank's laid-out share, for the outputs of a run."""

    # Its elements and their nodes (own, N + 1, N + 1, N + 1, 3).
    part: MeshPart
    places: Floats
    around: Surroundings  # What lies behind their faces, too; meant to be dropped after set-up
    added: PlacedAdditions  # What is added, in the numbers of `around`
    # The ranks, and where the fields are.
    world: World
    device: Device


def share_out(table: MaxwellTable, world: World) -> Share:
    """Share the elements of a case out; all ranks call this.

    A rank has no more of the mesh at any time than the range of elements that it begins with, what
    the partition gives it, and one layer of others around each; see :func:`open_rows` for files.
    """
    rows = open_rows(table, world)
    require_parts(world.size, rows.whole)
    only = len(rows.mesh.region_names) == 1
    materials = [table.material(name, only) for name in rows.mesh.region_names]
    notices = mesh_notices(table, rows.mesh)
    share = rows.part()
    del rows
    check_jacobians(world, share, table.order)
    element = np.where(share.behind >= 0, share.behind // FACES, -1)
    around = surroundings(world, share, range_ranks(world, share.whole, element))
    placed = place_in(table, world, around, materials)
    concerned, layer = placed.concerned[: around.own], placed.layer
    del around, placed
    if world.size == 1:
        to = np.zeros(share.mesh.count, np.int32)
    else:
        if table.partition == "auto" and share.whole > LARGEST_GRAPH:
            notices.append(
                f"the mesh is partitioned by coordinates, since it has more than {LARGEST_GRAPH} elements; "
                'with maxwell.partition = "graph" METIS partitions it on rank 0, which needs about 0.4 kB an '
                "element there"
            )
        weights = np.where(concerned, _WEIGHT_OF_ADDITIONS, 1.0)
        shared = partition(world, graph_of(share), weights, table.partition)
        notices.append(shared.describe())
        to = shared.parts
    moved, ranks, (added,) = move(world, share, to, [concerned])
    return Share(moved, ranks, added, layer, materials, notices)


def place_in(
    table: MaxwellTable,
    world: World,
    around: Surroundings,
    materials: Sequence[Material],
    known: PlacedLayer | None = None,
) -> PlacedAdditions:
    """Find to which of a rank's elements a case adds anything; all ranks call this."""
    layer, currents, waves = table.additions()
    return place_on_ranks(
        world,
        around,
        table.order,
        media=materials,
        layer=known or layer,
        currents=currents,
        waves=waves,
    )


def first_of(
    world: World, around: Surroundings, chosen: NDArray[np.generic]
) -> tuple[int, int, str]:
    """How many of own elements are chosen on all ranks, and the number and place of the first.

    `chosen`: elements, or whether each is; all ranks call this.
    """
    rows = np.column_stack(
        [around.numbers[: around.own][chosen], around.mesh.centres[: around.own][chosen]]
    )
    rows = all_rows(world, rows.astype(np.float64))
    if not len(rows):
        return 0, -1, ""
    first = rows[rows[:, 0].argmin()]
    return len(rows), int(first[0]), f"{point_text(first[1:])} m"
