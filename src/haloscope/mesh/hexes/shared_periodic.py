"""Joins two outer surfaces of a mesh on one rank or several to a periodic pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.plan import give_rows, refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
    FACES,
    Floats,
    Integers,
    corner_coordinates,
    face_nodes,
    face_permutation,
    faces_turn_away,
    orientation_of,
    point_text,
)
from haloscope.mesh.hexes.mesh_parts import ElementRows
from haloscope.mesh.hexes.shared_meshes import drop_unused_names

PeriodicPair = tuple[str, str, tuple[float, float, float] | None]
"""Names of two surfaces, and the translation from the first to the second where it is given."""

_TOLERANCE = 1e-5


def _match(wanted: Floats, points: Floats, reach: Floats) -> Integers:
    """Nearest given point within the reach of each wanted one; -1 where none is."""
    from scipy.spatial import cKDTree

    distance, nearest = cKDTree(points).query(wanted)
    return np.where(distance <= reach, nearest, -1)


def _sizes(corners: Floats) -> Floats:
    """Shortest edge of faces (n, 4, 3)."""
    edges = corners[:, [1, 3, 2, 0]] - corners[:, [0, 1, 3, 2]]
    return np.asarray(np.linalg.norm(edges, axis=2).min(axis=1))


@dataclass(frozen=True, eq=False)
class _Side:
    """Faces of one surface of a periodic pair."""

    elements: Integers  # (n,): numbers of their elements
    faces: Integers  # (n,)
    coordinates: Floats  # Of these elements, [face, k, j, i, xyz]

    @property
    def corners(self) -> Floats:
        """(n, 4, 3)."""
        corners = corner_coordinates(self.coordinates)
        return np.asarray(corners[np.arange(len(self.faces))[:, None], FACE_CORNERS[self.faces]])

    def of(self, rows: Integers) -> _Side:
        """The side's faces by rows."""
        return _Side(self.elements[rows], self.faces[rows], self.coordinates[rows])


def join_periodic(
    world: World, rows: ElementRows, pair: PeriodicPair, tolerance: float = _TOLERANCE
) -> ElementRows:
    """Make two outer surfaces each other's continuation; all ranks call this.

    Rank 0 gathers the elements at the two surfaces, and no others. `tolerance`: largest distance of
    two points that meet, in units of the face's shortest edge.
    """
    mesh, (first, second, translation) = rows.mesh, pair
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
    here, holders = _gather_side(world, rows, first)
    there, other_holders = _gather_side(world, rows, second)
    joined, fault = [np.empty(0, np.int64)] * 3, None
    holder = joined[0]
    if world.is_root:
        location = f"periodic pair '{first}', '{second}'"
        try:
            joined, partner = _join(location, here, there, translation, tolerance)
            holder = np.concatenate([holders, other_holders[partner]])
        except InputError as error:
            fault = error
    refuse_together(world, fault)
    (own, behind, codes), _ = give_rows(world, joined, holder)
    ascending = np.argsort(rows.elements, kind="stable")
    row = ascending[np.searchsorted(rows.elements[ascending], own // FACES)]
    place = (row, own % FACES)
    all_behind, orientations = rows.behind.copy(), mesh.orientations.copy()
    boundaries = mesh.boundaries.copy()
    all_behind[place], orientations[place], boundaries[place] = behind, codes, -1
    joined_mesh = replace(mesh, orientations=orientations, boundaries=boundaries)
    return replace(rows, mesh=drop_unused_names(world, joined_mesh), behind=all_behind)


def _gather_side(world: World, rows: ElementRows, name: str) -> tuple[_Side, Integers]:
    """All faces of a surface on rank 0, ascending, and the rank of each; all ranks call this."""
    mesh = rows.mesh
    number = mesh.boundary_names.index(name)
    element, face = np.nonzero((mesh.boundaries == number) & (rows.behind < 0))
    sent = [rows.elements[element], face, mesh.coordinates[element]]
    came, counts = give_rows(world, sent, np.zeros(len(face), np.int64))
    order = np.lexsort((came[1], came[0]))
    return _Side(*(array[order] for array in came)), np.repeat(np.arange(world.size), counts)[order]


def _join(
    pair: str,
    here: _Side,
    there: _Side,
    translation: tuple[float, float, float] | None,
    tolerance: float,
) -> tuple[list[Integers], Integers]:
    """Faces of both surfaces, the faces behind them and orientations; the partner of each first one."""
    corners, others = here.corners, there.corners
    centres, other_centres = corners.mean(axis=1), others.mean(axis=1)
    shift = (
        other_centres.mean(axis=0) - centres.mean(axis=0)
        if translation is None
        else np.array(translation, np.float64)
    )
    reach = tolerance * np.maximum(_sizes(corners), np.finfo(float).tiny / tolerance)
    partner = _match(centres + shift, other_centres, reach)
    _require_partners(pair, partner, centres, other_centres, shift, (here, there))
    own_ids = np.broadcast_to(np.arange(4), (len(partner), 4))
    distance = np.linalg.norm(
        (corners + shift)[:, :, None] - others[partner][:, None, :, :], axis=3
    )
    partner_ids = np.full((len(partner), 4), -1)
    nearest = distance.argmin(axis=2)
    np.put_along_axis(partner_ids, nearest, own_ids, axis=1)
    codes, fits = orientation_of(own_ids, partner_ids)
    joined = there.of(partner)
    gap = _largest_gap(here, joined, codes, shift)
    wrong = np.flatnonzero(~fits | (gap > reach))
    if len(wrong):
        face = wrong[0]
        raise InputError(
            f"{counted(len(wrong), 'face')} of another shape than the partner, the first on "
            f"element {here.elements[face]} at {point_text(centres[face])} and element "
            f"{joined.elements[face]}",
            location=pair,
            allowed="surfaces that are translated copies of each other",
        )
    if not faces_turn_away(here.faces, joined.faces, codes).all():
        raise InputError(
            "both surfaces bound the mesh on the same side",
            location=pair,
            allowed="surfaces on opposite sides",
            remedy="name two opposite surfaces",
        )
    back, _ = orientation_of(partner_ids, own_ids)
    own, other = (side.elements * FACES + side.faces for side in (here, joined))
    faces, behind = np.concatenate([own, other]), np.concatenate([other, own])
    return [faces, behind, np.concatenate([codes, back]).astype(np.int64)], partner


def _require_partners(
    pair: str,
    partner: Integers,
    centres: Floats,
    other_centres: Floats,
    shift: Floats,
    sides: tuple[_Side, _Side],
) -> None:
    """Refuse a pair in which a face has no partner, or shares it with another."""
    missing = np.flatnonzero(partner < 0)
    if len(missing):
        face = missing[0]
        raise InputError(
            f"{len(missing)} of {counted(len(partner), 'face')} of the first surface have no partner; the "
            f"first is on element {sides[0].elements[face]} at {point_text(centres[face])}, and no face "
            f"is at {point_text(centres[face] + shift)} (translation {point_text(shift)})",
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
            f"{sides[1].elements[face]} at {point_text(other_centres[face])}",
            location=pair,
            remedy="mesh the second surface as a translated copy of the first",
        )


def _largest_gap(here: _Side, there: _Side, codes: NDArray[np.int8], shift: Floats) -> Floats:
    """Largest distance of geometry nodes that meet, for each pair of faces."""
    order = here.coordinates.shape[1] - 1
    nodes, row = face_nodes(order), np.arange(len(codes))[:, None]
    permutations = np.stack([face_permutation(order, code) for code in range(8)])
    own, other = (side.coordinates.reshape(len(codes), -1, 3) for side in (here, there))
    turned = np.take_along_axis(nodes[there.faces], permutations[codes], axis=1)
    gaps = own[row, nodes[here.faces]] + shift - other[row, turned]
    return np.asarray(np.linalg.norm(gaps, axis=2).max(axis=1))
