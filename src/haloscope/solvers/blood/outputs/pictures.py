"""Pictures of a blood run: its geometry, cells in their vessel, a plane of lattice points, and outlines of cells on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.plan import to_root
from haloscope.exchange.ranks.world import World
from haloscope.io.figures.geometry_views import Geometry, Part, box_side
from haloscope.io.figures.surface_pictures import SurfaceImage, Walls, merge_images, picture_view
from haloscope.mesh.blocks import SIDES
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.mesh.lattice.openings import Opening
from haloscope.mesh.lattice.shapes import Box, Tube
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.surfaces.crossings import cut_by_plane
from haloscope.mesh.surfaces.surface_openings import walls_of
from haloscope.mesh.surfaces.surfaces import Surface, edges_of
from haloscope.numerics.elements.element_fields import plane_axis
from haloscope.solvers.blood.case import Slice
from haloscope.solvers.blood.cells.local_cells import LocalCells, own_cells
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.units import MICRO, LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel

if TYPE_CHECKING:
    from haloscope.io.figures.field_pictures import SlicesPicture

Floats = NDArray[np.float64]

_MOST_TRIANGLES = 1_000_000  # of cells of one kind on a rank: more are not drawn
_WALLS, _ENDS = "walls", "ends"  # as in the conditions of a case


def vessel_geometry(
    medium: FluidWithCells, vessel: Vessel, conditions: Mapping[str, str]
) -> Geometry:
    """Walls, openings and cells; all ranks call this.

    Rank 0 alone has the vessel, since all of it is on each rank.
    """
    surfaces = dict.fromkeys(conditions, np.zeros((0, 3, 3)))
    if medium.world.is_root:
        surfaces |= _vessel(vessel, conditions)
    # Openings first: their numbers and colours stay the same whatever the walls are.
    names = sorted(conditions, key=lambda name: name == _WALLS)
    parts = [
        Part(name, conditions[name], surfaces[name], kind="wall" if name == _WALLS else "boundary")
        for name in names
    ]
    for local, vertices, triangles in _own_surfaces(medium):
        every = -(-len(vertices) * len(triangles) // _MOST_TRIANGLES) or 1
        places = vertices[::every] * vessel.lattice.spacing + vessel.lattice.origin
        corners = places[:, triangles].reshape(-1, 3, 3)
        cells = np.repeat(np.arange(len(places)), len(triangles))
        count, drawn = medium.world.sum(np.array([len(vertices), len(places)], np.int64)).tolist()
        about = f"cells at the start: {count:,}" if count else "no cell at the start"
        about += f", {drawn:,} drawn" if drawn < count else ""
        parts.append(Part(local.kind.name, about, corners, kind="body", faces=cells))
    return Geometry(tuple(parts), unit="um")


def _own_surfaces(medium: FluidWithCells) -> Iterator[tuple[LocalCells, Floats, Integers]]:
    """Kinds with the vertices (n, V, 3) of own cells, moved into the box, and their triangles."""
    for local in () if medium.suspension is None else medium.suspension.kinds:
        membranes = local.membranes
        vertices = membranes.on_host(membranes.positions, local.count)[local.own]
        centres = vertices.mean(axis=1)
        vertices = vertices + (medium.region.wrapped(centres) - centres)[:, None]
        yield local, vertices, local.kind.mesh.triangles.astype(np.int64)


def _vessel(vessel: Vessel, conditions: Mapping[str, str]) -> dict[str, Floats]:
    """Triangles (n, 3, 3) in m of all walls, ends and openings by name, seen from outside."""
    geometry, lattice = vessel.geometry, vessel.lattice
    if isinstance(geometry, Box):
        surfaces = dict(_box_triangles(geometry, conditions))
    elif isinstance(geometry, Tube):
        surfaces = dict(_tube_triangles(geometry))
    else:
        assert isinstance(geometry, Surface)
        corners = walls_of(lattice, geometry).corners
        surfaces = {_WALLS: corners if geometry.volume > 0 else corners[:, ::-1]}
        if geometry.joined:
            own = np.concatenate([geometry.group(name) for name in geometry.joined])
            surfaces[_ENDS] = geometry.corners[own]
    for table, opening in zip(vessel.openings, lattice.openings, strict=True):
        surfaces[table.name] = (
            opening.corners
            if isinstance(opening, TiltedOpening)
            else opening_squares(lattice, opening)
        )
    return {name: corners for name, corners in surfaces.items() if name in conditions}


def _box_triangles(box: Box, conditions: Mapping[str, str]) -> Iterator[tuple[str, Floats]]:
    sides: dict[str, list[Floats]] = {}
    for side in SIDES:
        moving = f"wall {side.name}"
        ends = box.ends[side.axis]
        name = _ENDS if ends == "periodic" else moving if moving in conditions else _WALLS
        if ends != "open":
            triangles = box_side(np.zeros(3), np.array(box.lengths), side.axis, side.direction)
            sides.setdefault(name, []).append(triangles)
    for name, triangles_of in sides.items():
        yield name, np.concatenate(triangles_of)


def _tube_triangles(tube: Tube) -> Iterator[tuple[str, Floats]]:
    turns = np.arange(_AROUND + 1) * (2 * np.pi / _AROUND)
    ring = np.zeros((_AROUND + 1, 3))
    ring[:, (tube.axis + 1) % 3] = np.cos(turns) * tube.radius
    ring[:, (tube.axis + 2) % 3] = np.sin(turns) * tube.radius
    end = ring.copy()
    end[:, tube.axis] = tube.length
    a, b, c, d = ring[:-1], ring[1:], end[1:], end[:-1]
    wall = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    yield _WALLS, wall
    middles = np.zeros((2, _AROUND, 3))
    middles[1, :, tube.axis] = tube.length
    caps = [np.stack([middles[0], b, a], axis=1), np.stack([middles[1], d, c], axis=1)]
    yield _ENDS, np.concatenate(caps)


def opening_squares(lattice: Lattice, opening: Opening) -> Floats:
    """Triangles (n, 3, 3) in m of squares around an opening's points, seen from outside.

    Squares that follow each other along a line are one rectangle.
    """
    one, two = ((opening.axis + turn) % 3 for turn in (1, 2))
    places = lattice.coordinates(opening.numbers).astype(np.int64)
    places = places[np.lexsort((places[:, one], places[:, two]))]
    follows = (np.diff(places[:, two]) == 0) & (np.diff(places[:, one]) == 1)
    begins = np.flatnonzero(np.concatenate([[True], ~follows]))
    ends = np.append(begins[1:], len(places)) - 1
    low, high = places[begins].astype(np.float64), places[ends].astype(np.float64)
    for axis in (one, two):
        low[:, axis] -= 0.5
        high[:, axis] += 0.5
    rectangles = [
        box_side(a, b, opening.axis, opening.direction) for a, b in zip(low, high, strict=True)
    ]
    corners: Floats = np.concatenate([np.zeros((0, 3, 3)), *rectangles])
    return corners * lattice.spacing + lattice.origin


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
            ends += opening.normal * _BEFORE * widest * spacing
            before.append(ends)
    return np.concatenate([places - beyond, places + beyond, *before])


# Of a spacing: what rounding may put beyond a wall.
_ROUNDING = 1e-6


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


def flow_picture(
    medium: FluidWithCells, fields: Floats, wanted: Slice, title: str, subtitle: str
) -> SlicesPicture | None:
    """Velocity and pressure on a plane, with the outlines of cells; all ranks call this.

    `fields`: u, v, w in m/s and p in Pa of own points, (4, owned).
    """
    axis = slice_axis(medium.lattice, wanted)
    normal = "xyz".index(axis)
    offset = None if wanted.offset_um is None else wanted.offset_um * 1e-6
    world, lattice, part = medium.world, medium.lattice, medium.part
    index = plane_index(lattice, normal, offset)
    coordinates = part.coordinates[: part.owned]
    chosen = np.flatnonzero(coordinates[:, normal] == index)
    across = [other for other in range(3) if other != normal]
    places = to_root(world, np.ascontiguousarray(coordinates[chosen][:, across], np.int32))
    values = to_root(world, np.ascontiguousarray(fields[:, chosen].T, np.float64))
    outlines = cell_outlines(medium, normal, offset)
    if not world.is_root:
        return None
    width, height = (lattice.shape[other] for other in across)
    plane = np.full((len(fields), height, width), np.nan)
    plane[:, places[:, 1], places[:, 0]] = values.T
    x, y = (
        np.float64(lattice.origin[other]) + lattice.spacing * np.arange(lattice.shape[other])
        for other in across
    )
    place = float(lattice.origin[normal]) + lattice.spacing * index
    speed = np.sqrt((plane[:3] ** 2).sum(axis=0))
    return {
        "x": x * 1e6,
        "y": y * 1e6,
        "x_label": f"{'xyz'[across[0]]} (um)",
        "y_label": f"{'xyz'[across[1]]} (um)",
        "panels": [
            {
                "values": speed * 1e3,
                "label": "speed (mm/s)",
                "quantity": "speed",
                "scale": "magnitude",
            },
            {"values": plane[3], "label": "pressure (Pa)", "scale": "range"},
        ],
        "outlines": outlines * 1e6,
        "title": title or "Blood flow",
        "subtitle": f"{axis} = {place * 1e6:.4g} um, {subtitle}",
    }


# Triangles cut at a time.
_OUTLINES_PORTION = 1 << 20


def cell_outlines(medium: FluidWithCells, axis: int, offset: float | None) -> Floats:
    """Lines (n, 2, 2) in m along which a plane of points cuts cells, on rank 0; all ranks call this.

    `axis`, `offset`: normal of the plane and its position in m (None: the middle). Cells beyond a
    periodic side are drawn on both sides.
    """
    world, lattice = medium.world, medium.lattice
    pieces = [np.empty((0, 2, 2))]
    height = plane_index(lattice, axis, offset)
    for _, vertices, triangles in _own_surfaces(medium):
        for shift in _images(lattice):
            pieces += _cut_cells(vertices + shift, triangles, axis, height, lattice)
    across = [other for other in range(3) if other != axis]
    segments = np.concatenate(pieces) * lattice.spacing + lattice.origin[across]
    lines = to_root(world, segments.reshape(-1, 4))
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
