"""Periodic pairs of outer surfaces: the one place where faces are matched by coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from haloscope.counted import counted
from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
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
                f"periodic boundary '{name}' is not in the mesh; its boundaries are "
                f"{', '.join(mesh.boundary_names) or 'none'}"
            )
    if first == second:
        raise InputError(
            f"a periodic pair needs two boundaries, but '{first}' is given twice; name the opposite "
            "one, too"
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
            f"{pair}: {counted(len(wrong), 'face')} of another shape than the partner, the first on "
            f"element {here[face, 0]} at {point_text(centres[face])} and element "
            f"{joined[face, 0]}; the surfaces must be translated copies of each other"
        )
    if not faces_turn_away(here[:, 1], joined[:, 1], codes).all():
        raise InputError(
            f"{pair}: both surfaces bound the mesh on the same side, so that one cannot "
            "continue the other; name two opposite surfaces"
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
            f"{pair}: no partner for {len(missing)} of {counted(len(partner), 'face')}, the first on "
            f"element {faces[0][face, 0]} at {point_text(centres[face])}; no face is at "
            f"{point_text(centres[face] + shift)}, the translation being {point_text(shift)}; mesh "
            "the second surface as a translated copy of the first"
        )
    uses = np.bincount(partner, minlength=len(other_centres))
    alone = np.flatnonzero(uses != 1)
    if len(alone):
        face = alone[0]
        raise InputError(
            f"{pair}: {'no' if uses[face] == 0 else 'several'} partners for {len(alone)} of "
            f"{counted(len(other_centres), 'face')} of the second, the first on element "
            f"{faces[1][face, 0]} at {point_text(other_centres[face])}; mesh the second surface as a "
            "translated copy of the first"
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
