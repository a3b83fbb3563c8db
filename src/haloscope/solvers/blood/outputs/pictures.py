"""Pictures of a blood run: cells in their vessel, a plane of lattice points, and outlines of cells on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.io.figures.surface_pictures import (
    SurfaceImage,
    Walls,
    merge_images,
    picture_view,
)
from haloscope.mesh.blocks import SIDES
from haloscope.mesh.lattice.lattice_parts import LatticePart, Region
from haloscope.mesh.lattice.shapes import Box, Tube
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.surfaces.crossings import cut_by_plane
from haloscope.mesh.surfaces.surface_openings import walls_of
from haloscope.mesh.surfaces.surfaces import Surface, edges_of
from haloscope.numerics.elements.element_fields import plane_axis
from haloscope.solvers.blood.case import Slice
from haloscope.solvers.blood.cells.local_cells import own_cells
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.units import MICRO, LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Flat faces that a round tube is drawn with.
_AROUND = 96
# How far before an inlet that feeds cells may be seen, over their largest radius.
_BEFORE = 3.5
# Triangles drawn at a time.
_PORTION = 1 << 18


@dataclass(frozen=True, eq=False)
class CellView:
    """All cells in their vessel, coloured by the speed of their membranes; an image of rank 0."""

    image: SurfaceImage
    walls: Walls
    largest: float  # mm/s


LABEL, UNIT = "speed (mm/s)", "um"


def draw_cells(
    suspension: Suspension,
    vessel: Vessel,
    region: Region,
    units: LatticeUnits,
    world: World,
    most: tuple[int, int] | None = None,
) -> CellView:
    """Draw all cells on at most so many shown pixels; all ranks call this.

    Each rank draws its own cells, and rank 0 puts in front what is in front.
    """
    walls = vessel_walls(vessel)
    spacing, origin = units.spacing / MICRO, vessel.lattice.origin / MICRO
    image = SurfaceImage(picture_view(_ends(vessel, suspension, spacing, walls), most))
    largest = 0.0
    kinds = len(suspension.kinds)
    for number, local in enumerate(suspension.kinds):
        cells = own_cells(local, region)
        points = origin + spacing * cells.positions
        speeds = np.linalg.norm(cells.velocities, axis=2) * units.velocity * 1e3
        largest = max(largest, float(speeds.max(initial=0.0)))
        triangles = local.kind.mesh.triangles.astype(np.int64)
        portion = max(1, _PORTION // len(triangles))
        for first in range(0, len(cells.ids), portion):
            span = slice(first, first + portion)
            count, vertices = points[span].shape[:2]
            firsts = np.arange(count)[:, None, None] * vertices
            image.draw(
                points[span].reshape(-1, 3),
                (triangles + firsts).reshape(-1, 3),
                speeds[span].ravel(),
                np.repeat(cells.ids[span] * kinds + number, vertices),
            )
    largest = world.largest(largest)
    merge_images(world, image)
    return CellView(image, walls, largest)


def vessel_walls(vessel: Vessel) -> Walls:
    """Parts of a vessel that are drawn, in um: walls without inlets and outlets, and lines."""
    geometry = vessel.geometry
    if isinstance(geometry, Tube):
        return _tube(geometry)
    if isinstance(geometry, Box):
        return _box(geometry)
    assert isinstance(geometry, Surface)
    wall = walls_of(vessel.lattice, geometry)
    points, triangles = wall.points / MICRO, wall.triangles.astype(np.int64)
    return Walls(points, triangles, rims(points, triangles))


def _tube(tube: Tube) -> Walls:
    """Rings of points at both ends, joined; the round tube touches the flat faces from inside."""
    turns = np.arange(_AROUND) * (2 * np.pi / _AROUND)
    radius = tube.radius / MICRO / np.cos(np.pi / _AROUND)
    ring = np.zeros((_AROUND, 3))
    ring[:, (tube.axis + 1) % 3] = np.cos(turns) * radius
    ring[:, (tube.axis + 2) % 3] = np.sin(turns) * radius
    end = ring.copy()
    end[:, tube.axis] = tube.length / MICRO
    here = np.arange(_AROUND)
    there = np.roll(here, -1)
    triangles = np.concatenate(
        [
            np.stack([here, there, there + _AROUND], axis=1),
            np.stack([here, there + _AROUND, here + _AROUND], axis=1),
        ]
    )
    rings = [np.stack([points_on, points_on[there]], axis=1) for points_on in (ring, end)]
    return Walls(np.concatenate([ring, end]), triangles, np.concatenate(rings))


def _box(box: Box) -> Walls:
    """The sides that are walls, and all twelve edges."""
    lengths = np.array(box.lengths) / MICRO
    corners = np.array(list(np.ndindex(2, 2, 2))) * lengths
    edges = [
        (corners[a], corners[a + step]) for step in (4, 2, 1) for a in range(8) if not a & step
    ]
    points: list[Floats] = []
    for side in SIDES:
        if box.ends[side.axis] != "walls":
            continue
        on = corners[:, side.axis] == (lengths[side.axis] if side.direction > 0 else 0.0)
        points.append(corners[on])
    # Each side has its own points, so that it is lit as a plane: two by two in raster order.
    firsts = 4 * np.arange(len(points))[:, None, None]
    triangles = (firsts + np.array([[0, 1, 3], [0, 3, 2]])).reshape(-1, 3)
    places = np.concatenate(points) if points else np.zeros((0, 3))
    return Walls(places, triangles, np.array(edges))


def rims(points: Floats, triangles: Integers) -> Floats:
    """Edges (n, 2, 3) of a surface that have one triangle only."""
    _, _, edges = edges_of(triangles, len(points))
    keys, met = np.unique(edges, return_counts=True)
    rims: Floats = points[np.stack(np.divmod(keys[met == 1], len(points)), axis=1)]
    return rims


def _ends(vessel: Vessel, suspension: Suspension, spacing: float, walls: Walls) -> Floats:
    """Points around all that may be seen, in um: cells reach beyond the ends of a periodic axis, and inlets."""
    places = np.concatenate([walls.points, walls.segments.reshape(-1, 3)])
    widest = max(
        float(np.linalg.norm(local.kind.mesh.vertices, axis=1).max()) for local in suspension.kinds
    )
    beyond = np.where(vessel.lattice.periodic, widest * spacing, 0.0)
    before = []
    for table, opening in zip(vessel.openings, vessel.lattice.openings, strict=True):
        if table.feeds:
            ends = vessel.lattice.positions(opening.numbers) / MICRO
            ends[:, opening.axis] += opening.direction * _BEFORE * widest * spacing
            before.append(ends)
    return np.concatenate([places - beyond, places + beyond, *before])


# Of a spacing: what rounding may put beyond a wall.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Plane:
    """Values on a plane of lattice points."""

    # Positions in m along the plane's two axes.
    x: Floats
    y: Floats
    offset: float  # Position of the plane on its normal, in m
    values: Floats  # (fields, len(y), len(x)); nan where there is no point


def slice_axis(lattice: Lattice, wanted: Slice) -> str:
    """Normal of the plane: x, y or z."""
    low, high = lattice.bounds
    return plane_axis(high - low, wanted.axis, wanted.offset_um)


def require_plane(lattice: Lattice, wanted: Slice) -> None:
    """Refuse a plane that misses the vessel, before the run."""
    if wanted.offset_um is None:
        return
    axis = slice_axis(lattice, wanted)
    low, high = (float(corner["xyz".index(axis)]) / MICRO for corner in lattice.bounds)
    slack = _ROUNDING * lattice.spacing / MICRO
    if not low - slack <= wanted.offset_um <= high + slack:
        # Rounding must not make 1e-16 of 0.
        low, high = (round(end / slack) * slack for end in (low, high))
        raise InputError(
            f"the plane misses the vessel along {axis}",
            location=f"blood.slice.offset_um = {wanted.offset_um:g}",
            allowed=f"{low:.6g} to {high:.6g} um",
        )


def plane_index(lattice: Lattice, axis: int, offset: float | None) -> int:
    """Number of the plane of points nearest to an offset in m; None: the middle."""
    if offset is None:
        return lattice.shape[axis] // 2
    low, high = (int(end[axis]) for end in lattice.runs.extent())
    index = round((offset - float(lattice.origin[axis])) / lattice.spacing)
    return min(max(index, low), high)


def plane_of(
    world: World,
    lattice: Lattice,
    part: LatticePart,
    fields: Floats,
    axis: int,
    offset: float | None,
) -> Plane | None:
    """Fields on the plane of points nearest to an offset, on rank 0; all ranks call this.

    `fields`: own values, (fields, owned); `axis`, `offset`: normal of the plane and its position in
    m; None: the middle.
    """
    index = plane_index(lattice, axis, offset)
    coordinates = part.coordinates[: part.owned]
    chosen = np.flatnonzero(coordinates[:, axis] == index)
    across = [other for other in range(3) if other != axis]
    places = np.ascontiguousarray(coordinates[chosen][:, across], np.int32)
    values = np.ascontiguousarray(fields[:, chosen], np.float64)
    nothing = np.empty(0, np.uint8)
    sent = [nothing] * world.size
    sent[0] = places.reshape(-1).view(np.uint8)
    came = world.exchange(sent)
    sent[0] = values.T.reshape(-1).view(np.uint8) if values.size else nothing
    received = world.exchange(sent)
    if not world.is_root:
        return None
    width, height = (lattice.shape[other] for other in across)
    result = np.full((len(fields), height, width), np.nan)
    for where, plane_values in zip(came, received, strict=True):
        if not len(where):
            continue
        i, j = np.frombuffer(where.tobytes(), np.int32).reshape(-1, 2).T
        result[:, j, i] = np.frombuffer(plane_values.tobytes()).reshape(-1, len(fields)).T
    x, y = (
        np.float64(lattice.origin[other]) + lattice.spacing * np.arange(lattice.shape[other])
        for other in across
    )
    return Plane(x, y, float(lattice.origin[axis]) + lattice.spacing * index, result)


# Triangles cut at a time.
_OUTLINES_PORTION = 1 << 20


def cell_outlines(
    world: World,
    suspension: Suspension | None,
    region: Region,
    lattice: Lattice,
    axis: int,
    offset: float | None,
) -> Floats:
    """Lines (n, 2, 2) in m along which a plane of points cuts cells, on rank 0; all ranks call this.

    `axis`, `offset`: normal of the plane and its position in m (None: the middle). Cells beyond a
    periodic side are drawn on both sides.
    """
    pieces = [np.empty((0, 2, 2))]
    height = plane_index(lattice, axis, offset)
    for local in () if suspension is None else suspension.kinds:
        membranes, own = local.membranes, local.own
        vertices = membranes.on_host(membranes.positions, local.count)[own].astype(np.float64)
        centres = vertices.mean(axis=1)
        vertices += (region.wrapped(centres) - centres)[:, None]
        triangles = local.kind.mesh.triangles.astype(np.int64)
        for shift in _images(lattice):
            pieces += _cut_cells(vertices + shift, triangles, axis, height, lattice)
    across = [other for other in range(3) if other != axis]
    segments = np.concatenate(pieces) * lattice.spacing + lattice.origin[across]
    sent = [np.empty(0, np.uint8)] * world.size
    sent[0] = np.ascontiguousarray(segments).reshape(-1).view(np.uint8)
    received = world.exchange(sent)
    lines = np.concatenate([np.frombuffer(r.tobytes()) for r in received]).reshape(-1, 4)
    # In an order that does not depend on the ranks.
    return lines[np.lexsort(lines.T)].reshape(-1, 2, 2)


def _images(lattice: Lattice) -> list[Floats]:
    """By how much cells are moved to where they are seen again beyond periodic sides."""
    turns = [(-1, 0, 1) if periodic else (0,) for periodic in lattice.periodic]
    return [np.array(turn) * np.array(lattice.shape, np.float64) for turn in product(*turns)]


def _cut_cells(
    vertices: Floats, triangles: Integers, axis: int, height: float, lattice: Lattice
) -> list[Floats]:
    """Lines of the cells (n, V, 3) that reach through the plane and into the box, some at a time."""
    low, high = vertices.min(axis=1), vertices.max(axis=1)
    inside = ((high >= -0.5) & (low <= np.array(lattice.shape) - 0.5)).all(axis=1)
    cut = np.flatnonzero(inside & (low[:, axis] <= height) & (high[:, axis] >= height))
    portion = max(1, _OUTLINES_PORTION // len(triangles))
    return [
        cut_triangles(vertices[cut[first : first + portion]][:, triangles], axis, height)
        for first in range(0, len(cut), portion)
    ]


def cut_triangles(corners: Floats, axis: int, height: float) -> Floats:
    """Lines (m, 2, 2) along which the plane at a height on an axis cuts triangles (..., 3, 3)."""
    corners = corners.reshape(-1, 3, 3)
    above = corners[:, :, axis] >= height
    crossed = corners[above.any(axis=1) & ~above.all(axis=1)]
    ends = cut_by_plane(crossed, crossed[:, :, axis], height)
    return np.delete(ends, axis, axis=2)
