"""Joins periodic faces, of a whole mesh and of parts on ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.plan import give_rows, refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
    FACES,
    Floats,
    HexMesh,
    Integers,
    face_nodes,
    face_permutation,
    faces_turn_away,
    orientation_of,
    outer_names,
    point_text,
)
from haloscope.mesh.hexes.mesh_parts import ElementRows, unconnected
from haloscope.mesh.hexes.shared_meshes import drop_unused_names

PeriodicPair = tuple[str, str, tuple[float, float, float] | None]
"""Names of two surfaces, and the translation from the first to the second where it is given."""

_TOLERANCE = 1e-5
_PRIMES = (73_856_093, 19_349_663, 83_492_791)


def _candidates(
    wanted: Floats, points: Floats, reach: float
) -> Iterator[tuple[Integers, Integers]]:
    """Pairs (wanted, given) of points that may lie within `reach` of each other.

    Points are sorted into cubes four times as wide, and looked for in the up to eight cubes that
    the reach touches. Cubes are known by a hash: a pair may be far apart, none is missed.
    """
    origin = np.minimum(wanted.min(axis=0), points.min(axis=0)) - reach

    def cube(points: Floats) -> Integers:
        index = np.floor((points - origin) / (4 * reach)).astype(np.int64)
        with np.errstate(over="ignore"):
            keys: Integers = (index * np.array(_PRIMES)).sum(axis=-1)
        return keys

    keys = cube(points)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    for corner in np.ndindex(2, 2, 2):
        here = cube(wanted + reach * (2 * np.array(corner) - 1))
        begin, end = np.searchsorted(keys, here, "left"), np.searchsorted(keys, here, "right")
        for step in range(int((end - begin).max(initial=0))):
            rows = np.flatnonzero(begin + step < end)
            yield rows, order[begin[rows] + step]


def _match(wanted: Floats, points: Floats, reach: Floats) -> Integers:
    """Nearest given point within the reach of each wanted one; -1 where none is."""
    partners = np.full(len(wanted), -1)
    nearest = np.full(len(wanted), np.inf)
    for rows, other in _candidates(wanted, points, float(reach.max())):
        distance = np.linalg.norm(wanted[rows] - points[other], axis=1)
        better = (distance <= reach[rows]) & (distance < nearest[rows])
        partners[rows[better]], nearest[rows[better]] = other[better], distance[better]
    return partners


def _corners(mesh: HexMesh, faces: Integers) -> Floats:
    return np.asarray(mesh.corners[faces[:, :1], FACE_CORNERS[faces[:, 1]]])


def _sizes(corners: Floats) -> Floats:
    """Shortest edge of faces (n, 4, 3)."""
    edges = corners[:, [1, 3, 2, 0]] - corners[:, [0, 1, 3, 2]]
    return np.asarray(np.linalg.norm(edges, axis=2).min(axis=1))


def join_periodic(
    mesh: HexMesh,
    first: str,
    second: str,
    translation: tuple[float, float, float] | None = None,
    tolerance: float = _TOLERANCE,
) -> HexMesh:
    """Make two outer surfaces each other's continuation.

    `tolerance`: largest distance of two points that meet, in units of the face's shortest edge.
    """
    for name in (first, second):
        if name not in mesh.boundary_names:
            raise InputError(
                f"the mesh has no boundary '{name}'",
                location=f"periodic boundary '{name}'",
                allowed=", ".join(mesh.boundary_names) or "none, since the mesh has no boundaries",
            )
    if first == second:
        raise InputError(
            "both surfaces are the same",
            location=f"periodic pair '{first}', '{second}'",
            allowed="two boundaries",
            remedy="name the opposite one as well",
        )
    here, there = mesh.outer_faces(first), mesh.outer_faces(second)
    pair = f"periodic pair '{first}', '{second}'"
    corners, others = _corners(mesh, here), _corners(mesh, there)
    centres, other_centres = corners.mean(axis=1), others.mean(axis=1)
    shift = (
        other_centres.mean(axis=0) - centres.mean(axis=0)
        if translation is None
        else np.array(translation, np.float64)
    )
    reach = tolerance * np.maximum(_sizes(corners), np.finfo(float).tiny / tolerance)
    partner = _match(centres + shift, other_centres, reach)
    _require_partners(pair, partner, centres, other_centres, shift, mesh, (here, there))
    own_ids = np.broadcast_to(np.arange(4), (len(here), 4))
    distance = np.linalg.norm(
        (corners + shift)[:, :, None] - others[partner][:, None, :, :], axis=3
    )
    partner_ids = np.full((len(here), 4), -1)
    nearest = distance.argmin(axis=2)
    np.put_along_axis(partner_ids, nearest, own_ids, axis=1)
    codes, fits = orientation_of(own_ids, partner_ids)
    joined = there[partner]
    gap = _largest_gap(mesh, here, joined, codes, shift)
    wrong = np.flatnonzero(~fits | (gap > reach))
    if len(wrong):
        face = wrong[0]
        raise InputError(
            f"{counted(len(wrong), 'face')} of another shape than the partner, the first on "
            f"element {here[face, 0]} at {point_text(centres[face])} and element {joined[face, 0]}",
            location=pair,
            allowed="surfaces that are translated copies of each other",
        )
    if not faces_turn_away(here[:, 1], joined[:, 1], codes).all():
        raise InputError(
            "both surfaces bound the mesh on the same side",
            location=pair,
            allowed="surfaces on opposite sides",
            remedy="name two opposite surfaces",
        )
    neighbours, faces = mesh.neighbours.copy(), mesh.neighbour_faces.copy()
    orientations, boundaries = mesh.orientations.copy(), mesh.boundaries.copy()
    back, _ = orientation_of(partner_ids, own_ids)
    for own, other, code in ((here, joined, codes), (joined, here, back)):
        place = (own[:, 0], own[:, 1])
        neighbours[place], faces[place] = other[:, 0], other[:, 1]
        orientations[place], boundaries[place] = code, -1
    boundaries, names = outer_names(boundaries, mesh.boundary_names)
    return replace(
        mesh,
        neighbours=neighbours,
        neighbour_faces=faces,
        orientations=orientations,
        boundaries=boundaries,
        boundary_names=names,
    )


def _require_partners(
    pair: str,
    partner: Integers,
    centres: Floats,
    other_centres: Floats,
    shift: Floats,
    mesh: HexMesh,
    faces: tuple[Integers, Integers],
) -> None:
    """Refuse a pair in which a face has no partner, or shares it with another."""
    missing = np.flatnonzero(partner < 0)
    if len(missing):
        face = missing[0]
        raise InputError(
            f"{len(missing)} of {counted(len(partner), 'face')} of the first surface have no partner; the "
            f"first is on element {faces[0][face, 0]} at {point_text(centres[face])}, and no face is at "
            f"{point_text(centres[face] + shift)} (translation {point_text(shift)})",
            location=pair,
            remedy="mesh the second surface as a translated copy of the first",
        )
    uses = np.bincount(partner, minlength=len(other_centres))
    alone = np.flatnonzero(uses != 1)
    if len(alone):
        face = alone[0]
        raise InputError(
            f"{len(alone)} of {counted(len(other_centres), 'face')} of the second surface have "
            f"{'no' if uses[face] == 0 else 'several'} partners; the first is on element "
            f"{faces[1][face, 0]} at {point_text(other_centres[face])}",
            location=pair,
            remedy="mesh the second surface as a translated copy of the first",
        )


def _largest_gap(
    mesh: HexMesh, here: Integers, there: Integers, codes: NDArray[np.int8], shift: Floats
) -> Floats:
    """Largest distance of geometry nodes that meet, for each pair of faces."""
    nodes = face_nodes(mesh.order)
    flat = mesh.coordinates.reshape(mesh.count, -1, 3)
    permutations = np.stack([face_permutation(mesh.order, code) for code in range(8)])
    own = flat[here[:, :1], nodes[here[:, 1]]] + shift
    other = flat[there[:, :1], np.take_along_axis(nodes[there[:, 1]], permutations[codes], axis=1)]
    return np.asarray(np.linalg.norm(own - other, axis=2).max(axis=1))


def join_periodic_on_ranks(world: World, rows: ElementRows, pair: PeriodicPair) -> ElementRows:
    """Make two outer surfaces each other's continuation; all ranks call this.

    Rank 0 gathers the elements at the two surfaces, and no others.
    """
    mesh, (first, second, translation) = rows.mesh, pair
    numbers = [mesh.boundary_names.index(n) for n in (first, second) if n in mesh.boundary_names]
    at_pair = np.isin(mesh.boundaries, numbers)
    own = np.flatnonzero(at_pair.any(axis=1))
    boundaries = np.where(at_pair[own], mesh.boundaries[own], -1).astype(np.int32)
    sent: list[np.ndarray] = [rows.elements[own], mesh.coordinates[own], boundaries]
    to_root = np.zeros(len(own), np.int64)
    (elements, coordinates, boundaries), counts = give_rows(world, sent, to_root)
    holder, *faces = (np.empty(0, np.int64) for _ in range(4))
    fault: InputError | None = None
    if world.is_root:
        order = np.argsort(elements, kind="stable")
        gathered = unconnected(
            coordinates[order],
            np.zeros((len(order), 8), np.int64),
            np.zeros(len(order), np.int32),
            ("volume",),
            mesh.boundary_names,
            boundaries[order],
        )
        try:
            joined = join_periodic(gathered, first, second, translation)
        except InputError as error:
            fault = error
        else:
            row, face = np.nonzero(joined.neighbours >= 0)
            behind = elements[order][joined.neighbours[row, face]] * FACES
            behind += joined.neighbour_faces[row, face]
            here = elements[order][row] * FACES + face
            faces = [here, behind, joined.orientations[row, face].astype(np.int64)]
            holder = np.repeat(np.arange(world.size), counts)[order][row]
    refuse_together(world, fault)
    (here, behind, codes), _ = give_rows(world, faces, holder)
    ascending = np.argsort(rows.elements, kind="stable")
    row = ascending[np.searchsorted(rows.elements[ascending], here // FACES)]
    place = (row, here % FACES)
    all_behind, orientations = rows.behind.copy(), mesh.orientations.copy()
    boundaries = mesh.boundaries.copy()
    all_behind[place], orientations[place], boundaries[place] = behind, codes, -1
    joined_mesh = replace(mesh, orientations=orientations, boundaries=boundaries)
    return replace(rows, mesh=drop_unused_names(world, joined_mesh), behind=all_behind)
