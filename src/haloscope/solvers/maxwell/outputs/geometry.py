"""Boundaries, media, layers, sources and waves of a Maxwell case for the picture of its geometry."""

from __future__ import annotations

import numpy as np

from haloscope.exchange.ranks.world import World
from haloscope.io.figures.geometry_views import (
    Geometry,
    Kind,
    Lines,
    Marks,
    Part,
    box_edges,
)
from haloscope.mesh.hexes.hexes import (
    Floats,
    HexMesh,
    Integers,
    corner_coordinates,
    face_nodes,
)
from haloscope.solvers.maxwell.case import MaxwellCase, MaxwellTable
from haloscope.solvers.maxwell.case_media import MaterialTable

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
    ends = places.reshape(-1, 3)
    lower = np.array([-world.largest(float(end)) for end in (-ends).max(axis=0, initial=-np.inf)])
    upper = np.array([world.largest(float(end)) for end in ends.max(axis=0, initial=-np.inf)])
    marks, notes = _sources(table)
    marks += _waves(table, lower, upper)
    return Geometry(tuple(parts), tuple(marks), _lines(table, lower, upper), tuple(notes))


def _part(
    name: str,
    condition: str,
    faces: Integers,
    mesh: HexMesh,
    places: Floats,
    kind: Kind = "boundary",
) -> Part:
    corners, owners = face_triangles(faces, mesh, places)
    return Part(name, condition, corners, kind, owners)


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
