"""The vessel of a blood case with its openings and the cells at the start, for the picture of the geometry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.io.figures.geometry_views import Geometry, Part, box_side
from haloscope.mesh.blocks import SIDES
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.mesh.lattice.openings import Opening
from haloscope.mesh.lattice.shapes import Box, Tube
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.surfaces.surface_openings import walls_of
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.vessels.vessels import Vessel

Floats = NDArray[np.float64]

_AROUND = 96  # flat faces that a round tube is drawn with
_MOST_TRIANGLES = 1_000_000  # of cells of one kind on a rank: more are not drawn
_WALLS, _ENDS = "walls", "ends"  # as in the conditions of a case


def vessel_geometry(
    vessel: Vessel,
    suspension: Suspension | None,
    region: Region,
    conditions: Mapping[str, str],
    world: World,
) -> Geometry:
    """Walls, openings and cells; all ranks call this.

    Rank 0 alone has the vessel, since all of it is on each rank.
    """
    surfaces = dict.fromkeys(conditions, np.zeros((0, 3, 3)))
    if world.is_root:
        surfaces |= _vessel(vessel, conditions)
    # Openings first: their numbers and colours stay the same whatever the walls are.
    names = sorted(conditions, key=lambda name: name == _WALLS)
    parts = [
        Part(
            name,
            conditions[name],
            surfaces[name],
            kind="wall" if name == _WALLS else "boundary",
        )
        for name in names
    ]
    for local in () if suspension is None else suspension.kinds:
        vertices = local.membranes.on_host(local.membranes.positions, local.count)[local.own]
        centres = vertices.mean(axis=1)
        shift = (region.wrapped(centres) - centres)[:, None]
        triangles = local.kind.mesh.triangles.astype(np.int64)
        every = -(-len(vertices) * len(triangles) // _MOST_TRIANGLES) or 1
        places = (vertices + shift)[::every] * vessel.lattice.spacing + vessel.lattice.origin
        corners = places[:, triangles].reshape(-1, 3, 3)
        cells = np.repeat(np.arange(len(places)), len(triangles))
        count, drawn = world.sum(np.array([len(vertices), len(places)], np.int64)).tolist()
        about = f"cells at the start: {count:,}" if count else "no cell at the start"
        about += f", {drawn:,} drawn" if drawn < count else ""
        parts.append(Part(local.kind.name, about, corners, kind="body", faces=cells))
    return Geometry(tuple(parts), unit="um")


def _vessel(vessel: Vessel, conditions: Mapping[str, str]) -> dict[str, Floats]:
    """Triangles (n, 3, 3) in m of all walls, ends and openings by name, seen from outside."""
    geometry, lattice = vessel.geometry, vessel.lattice
    if isinstance(geometry, Box):
        surfaces = dict(_box(geometry, conditions))
    elif isinstance(geometry, Tube):
        surfaces = dict(_tube(geometry))
    else:
        assert isinstance(geometry, Surface)
        corners = walls_of(lattice, geometry).corners
        surfaces = {_WALLS: corners if geometry.volume > 0 else corners[:, ::-1]}
    for table, opening in zip(vessel.openings, lattice.openings, strict=True):
        surfaces[table.name] = opening_squares(lattice, opening)
    return {name: corners for name, corners in surfaces.items() if name in conditions}


def _box(box: Box, conditions: Mapping[str, str]) -> Iterator[tuple[str, Floats]]:
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


def _tube(tube: Tube) -> Iterator[tuple[str, Floats]]:
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
