"""The mesh of a Maxwell case: each rank's elements, found without a rank that has all, and its picture before a run."""

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
from haloscope.io.figures.geometry_views import Geometry, Kind, Lines, Marks, Part, box_edges
from haloscope.mesh.files.mesh_files import count_elements, read_mesh
from haloscope.mesh.hexes.hex_boxes import box_elements
from haloscope.mesh.hexes.hex_generators import cylinder_parts, sphere_parts
from haloscope.mesh.hexes.hexes import (
    FACES,
    Floats,
    HexMesh,
    Integers,
    corner_coordinates,
    face_nodes,
    point_text,
)
from haloscope.mesh.hexes.mesh_parts import ElementRows, MeshPart
from haloscope.mesh.hexes.shared_meshes import (
    Surroundings,
    bounds,
    check_boundaries,
    move,
    range_of,
    range_ranks,
    surroundings,
)
from haloscope.mesh.hexes.shared_periodic import join_periodic
from haloscope.mesh.partition import LARGEST_GRAPH, graph_of, partition, require_parts
from haloscope.numerics.elements.element_maps import check_jacobians
from haloscope.solvers.maxwell.case import MaxwellCase, MaxwellTable, generated_elements
from haloscope.solvers.maxwell.case_tables import MaterialTable
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
    materials: list[Material]  # One for each region of the mesh
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


# Faces of a rank up to which those of curved elements are drawn with all their nodes.
_MOST_CURVED = 2000
_STRAIGHT = 1e-6  # of the size of a face


def mesh_geometry(case: MaxwellCase, mesh: HexMesh, places: Floats, world: World) -> Geometry:
    """Own part of the geometry; all ranks call this.

    `places`: nodes (own, N + 1, N + 1, N + 1, 3) of the elements.
    """
    table = case.maxwell
    conditions = case.boundary_conditions()
    parts = []
    for name in mesh.boundary_names:
        faces = mesh.outer_faces(name)
        parts.append(_part(name, conditions.get(name, ""), faces, mesh, places))
    parts += _regions(table, mesh, places)
    for name in mesh.surfaces:
        faces = mesh.surfaces[name]
        parts.append(_part(name, "surface inside the mesh", faces, mesh, places, kind="body"))
    lower, upper = bounds(world, places)
    marks, notes = _sources(table)
    marks += _waves(table, lower, upper)
    return Geometry(tuple(parts), tuple(marks), _lines(table, lower, upper), tuple(notes))


def _part(
    name: str, about: str, faces: Integers, mesh: HexMesh, places: Floats, kind: Kind = "boundary"
) -> Part:
    corners, owners = face_triangles(faces, mesh, places)
    return Part(name, about, corners, kind, owners)


def face_triangles(faces: Integers, mesh: HexMesh, places: Floats) -> tuple[Floats, Integers]:
    """Triangles (m, 3, 3) of faces (n, 2) that look out of their elements, and the face of each."""
    if not len(faces):
        return np.zeros((0, 3, 3)), np.zeros(0, np.int64)
    order = places.shape[1] - 1
    elements, sides = faces.T
    nodes = places.reshape(len(places), -1, 3)[elements[:, None], face_nodes(order)[sides]]
    nodes = nodes.reshape(len(faces), order + 1, order + 1, 3)
    if order > 1 and (len(faces) > _MOST_CURVED or not _curved(nodes)):
        nodes = nodes[:, ::order, ::order]
    a, b = nodes[:, :-1, :-1], nodes[:, :-1, 1:]
    c, d = nodes[:, 1:, 1:], nodes[:, 1:, :-1]
    corners = np.stack([np.stack([a, b, c], axis=-2), np.stack([a, c, d], axis=-2)], axis=3)
    corners = corners.reshape(len(faces), -1, 3, 3)
    middles = corner_coordinates(mesh.coordinates[elements]).mean(axis=1)
    normals = np.cross(corners[:, :, 1] - corners[:, :, 0], corners[:, :, 2] - corners[:, :, 0])
    outward = (normals.sum(axis=1) * (nodes.mean(axis=(1, 2)) - middles)).sum(axis=1) > 0
    corners = np.where(outward[:, None, None, None], corners, corners[:, :, ::-1])
    owners = np.repeat(np.arange(len(faces)), corners.shape[1])
    return corners.reshape(-1, 3, 3), owners


def _curved(nodes: Floats) -> bool:
    """Whether the middles of faces (n, N + 1, N + 1, 3) lie off those of their corners."""
    last = nodes.shape[1] - 1
    flat = nodes[:, ::last, ::last].mean(axis=(1, 2))
    size = np.linalg.norm(nodes[:, 0, 0] - nodes[:, last, last], axis=-1)
    away = np.linalg.norm(nodes.mean(axis=(1, 2)) - flat, axis=-1)
    return bool((away > _STRAIGHT * size).any())


def _regions(table: MaxwellTable, mesh: HexMesh, places: Floats) -> list[Part]:
    """Surfaces of the regions that have a medium of their own.

    A region that is all of the mesh is left out: nothing would be seen in it.
    """
    parts = []
    for number, name in enumerate(mesh.region_names):
        material = next((one for one in table.materials if one.region == name), None)
        if material is None or len(mesh.region_names) == 1:
            continue
        own = mesh.regions == number
        behind = mesh.neighbours
        same = (behind >= 0) & (mesh.regions[np.maximum(behind, 0)] == number)
        faces = np.argwhere(own[:, None] & ~same)
        parts.append(_part(f"region {name}", medium_text(material), faces, mesh, places, "body"))
    return parts


def medium_text(material: MaterialTable) -> str:
    """Numbers of a medium that differ from those of vacuum."""
    numbers = {
        "permittivity": (material.permittivity, 1.0, ""),
        "permeability": (material.permeability, 1.0, ""),
        "conductivity": (material.conductivity, 0.0, " S/m"),
        "magnetic conductivity": (material.magnetic_conductivity, 0.0, " ohm/m"),
    }
    words = [f"{name} {n:g}{unit}" for name, (n, vacuum, unit) in numbers.items() if n != vacuum]
    if material.poles:
        words.append(f"poles: {', '.join(pole.kind for pole in material.poles)}")
    return ", ".join(words) or "vacuum"


def _lines(table: MaxwellTable, lower: Floats, upper: Floats) -> tuple[Lines, ...]:
    """Boxes within the mesh: where absorbing layers begin, total fields and the far field's surface."""
    lines = []
    if table.layer is not None:
        low, high = lower.copy(), upper.copy()
        for side, depth in table.layer.thickness.items():
            ends, sign = (high, -1) if side[1] == "+" else (low, 1)
            ends["xyz".index(side[0])] += sign * depth
        lines.append(Lines("absorbing layers begin here", box_edges(low, high)))
    for wave in table.waves:
        if wave.box is not None:
            low, high = (np.array(corner) for corner in wave.box)
            lines.append(Lines("total field of the wave", box_edges(low, high)))
    return tuple(lines)


def _sources(table: MaxwellTable) -> tuple[list[Marks], list[str]]:
    """Dipoles as marks; a note for currents in regions and on surfaces."""
    dipoles, notes = [], []
    for source in table.sources:
        kind = f"{'magnetic ' if source.magnetic else ''}{source.kind}"
        if source.position is not None:
            dipoles.append((source.position, kind))
        elif source.surface is not None:
            notes.append(f"{kind} current on {source.surface}")
        else:
            notes.append(f"{kind} current in {', '.join(source.regions or ('all regions',))}")
    if not dipoles:
        return [], notes
    points = np.array([place for place, _ in dipoles])
    return [Marks("sources", points, tuple(kind for _, kind in dipoles), symbol="*")], notes


def _waves(table: MaxwellTable, lower: Floats, upper: Floats) -> list[Marks]:
    """An arrow for each wave, from outside the mesh to its middle."""
    marks = []
    middle, half = (lower + upper) / 2, float(np.linalg.norm(upper - lower)) / 2
    for number, wave in enumerate(table.waves, 1):
        along = np.array(wave.direction) / np.linalg.norm(wave.direction)
        reach = min(((upper - lower) / 2 / np.maximum(np.abs(along), 1e-9)).min(), half)
        tail = middle - along * reach
        text = f"wave {number}" if len(table.waves) > 1 else "wave"
        about = f"{text}: along {_vector(wave.direction)}, E along {_vector(wave.polarisation)}"
        marks.append(Marks(about, (tail + 0.5 * reach * along)[None], (text,), tails=tail[None]))
    return marks


def _vector(components: tuple[float, float, float]) -> str:
    return f"({', '.join(f'{value:g}' for value in components)})"
