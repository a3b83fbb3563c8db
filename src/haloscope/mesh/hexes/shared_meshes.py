"""Meshes of hexahedra on one rank or several: faces matched by their corners, elements moved, copies of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.plan import all_rows, ask_rows, give_rows, refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
    FACES,
    Floats,
    HexMesh,
    Integers,
    corner_coordinates,
    elements_text,
    face_keys,
    faces_turn_away,
    orientation_of,
    point_text,
)
from haloscope.mesh.hexes.mesh_parts import (
    ElementRows,
    MeshPart,
    element_arrays,
    row_of,
    with_arrays,
)

# Each rank sends its faces to their owners, ranks chosen by the sorted corner numbers; owners answer
# with the other face and the name. No rank ever holds more than the faces of its own elements and
# about as many again. One rank owns all faces, and sends them to itself.

# Elements whose faces' corners are laid out at once.
_AT_ONCE = 1 << 13
# A face and the order of its corners in one number: eight bits say where each of the four stands.
_ORDER_BITS = 8
_SHIFTS = np.array([0, 2, 4, 6])
_NOTHING = -1
# Odd numbers that spread keys over ranks, from the golden ratio and from pi.
_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0x243F6A8885A308D3))


# Rows of each rank that may be named in a message.
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class NamedQuads:
    """Quadrilaterals of a rank that name faces with the same corners."""

    corners: Integers  # int64 (n, 4): numbers of vertices, in any order
    names: NDArray[np.int32]  # int32 (n,): index into the mesh's `boundary_names`
    centres: Floats  # (n, 3): middles, for messages


def connect(
    world: World,
    mesh: HexMesh,
    elements: Integers,
    whole: int,
    vertices: int,
    quads: NamedQuads | None = None,
) -> ElementRows:
    """Find the elements behind the faces of all ranks' elements; all ranks call this.

    `elements`: numbers of the rank's elements; `whole`, `vertices`: how many elements and vertices
    all ranks have; `quads`: they name faces instead of `mesh.boundaries`.
    """
    # Names of faces that turn out to lie inside go to `HexMesh.surfaces`.
    ordered = np.sort(mesh.vertices, axis=1)
    collapsed = elements[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
    del ordered
    high, low, word = _faces(mesh.vertices, elements, vertices)
    matched = _match(world, (high, low, word), vertices, quads)
    del high, low
    partner = matched.partners
    behind = np.where(partner == _NOTHING, -1, partner >> _ORDER_BITS).reshape(-1, FACES)
    orientations = np.zeros(len(word), np.int8)
    twisted, inward = [np.empty((0, 2), np.int64)], [np.empty((0, 2), np.int64)]
    for begin in range(0, len(word), _AT_ONCE * FACES):
        rows = begin + np.flatnonzero(partner[begin : begin + _AT_ONCE * FACES] != _NOTHING)
        codes, fits = orientation_of(_order(word[rows]), _order(partner[rows]))
        own, other = word[rows] >> _ORDER_BITS, partner[rows] >> _ORDER_BITS
        away = faces_turn_away(own % FACES, other % FACES, codes)
        for pairs, wrong in ((twisted, ~fits), (inward, fits & ~away)):
            at = wrong & (own < other)
            pairs.append(np.stack([own[at], other[at]], axis=1))
        orientations[rows] = codes
    misfits = (collapsed[:, None], matched.crowded, np.concatenate(twisted), np.concatenate(inward))
    if world.any(any(len(rows) for rows in misfits)):
        _refuse_misfits(world, mesh, elements, misfits)
    connected = replace(mesh, orientations=orientations.reshape(-1, FACES))
    if quads is not None:
        _refuse_stray(world, mesh, quads, matched.stray)
        connected = replace(connected, boundaries=matched.names.reshape(-1, FACES))
    return ElementRows(_name(world, connected, behind >= 0), elements, behind, whole)


def first_rows(world: World, rows: Integers) -> tuple[Integers, int]:
    """The first few of all ranks' different rows (n, k), ascending, and how many there are.

    All ranks call this, and get the same.
    """
    ordered = np.unique(rows, axis=0)
    count = int(world.sum(np.array([len(ordered)]))[0])
    return np.unique(all_rows(world, ordered[:_SHOWN]), axis=0)[:_SHOWN], count


def centres_of(world: World, mesh: HexMesh, elements: Integers, numbers: Integers) -> Floats:
    """Centres (n, 3) of elements by their numbers, on every rank; all ranks call this.

    `elements`: numbers of the rank's own elements, those of `mesh`.
    """
    ascending = np.argsort(elements, kind="stable")
    row = row_of(elements[ascending], numbers)
    own, centres = row >= 0, np.zeros((len(numbers), 3))
    corners = corner_coordinates(mesh.coordinates[ascending[row[own]]])
    centres[own] = corners.mean(axis=1)
    # One rank has each: all other terms are zero, so the sum is exact.
    return world.sum(centres)


def _refuse_misfits(
    world: World, mesh: HexMesh, elements: Integers, misfits: Sequence[Integers]
) -> None:
    """Refuse elements that do not fit together; all ranks raise the same."""

    def places(numbers: Integers, count: int | None = None) -> str:
        return elements_text(numbers, centres_of(world, mesh, elements, numbers), count)

    (collapsed, crowded, twisted, inward) = (first_rows(world, rows) for rows in misfits)
    first, count = collapsed
    if count:
        raise InputError(
            "one vertex is two corners of the element",
            location=places(first[:, 0], count),
            allowed="hexahedra with 8 distinct corners",
            remedy="mesh the place without collapsed hexahedra",
        )
    first, count = crowded
    if count:
        sharing = int(first[0, -1])
        raise InputError(
            f"{sharing} elements share one face ({counted(count, 'such face')})",
            location=places(first[0, :-1], sharing),
            allowed="at most 2 elements at a face",
        )
    (first, count), problem, remedy = twisted, _TWISTED, "correct the node order of the file"
    if not count:
        (first, count), problem = inward, _INWARD
        remedy = "correct the elements or the numbering of their corners"
    more = f" ({count} such pairs)" if count > 1 else ""
    location = places(first[0] // FACES).replace(", element", " and element")
    raise InputError(f"{problem}{more}", location=location, remedy=remedy)


_TWISTED = (
    "the elements share the four corners of a face but not their order around it: one is twisted"
)
_INWARD = (
    "the elements lie on the same side of the face that they share: they overlap, or the corners of "
    "one of them are numbered inside out"
)


def _refuse_stray(world: World, mesh: HexMesh, quads: NamedQuads, stray: NDArray[np.bool_]) -> None:
    """Refuse quadrilaterals that are no faces; all ranks call this."""
    fault: InputError | None = None
    if stray.any():
        first = int(stray.argmax())
        fault = InputError(
            f"{stray.sum()} of {len(stray)} quadrilaterals of named surfaces are no face of a "
            f"hexahedron, the first, of '{mesh.boundary_names[quads.names[first]]}', at "
            f"{point_text(quads.centres[first])}",
            remedy="put only surfaces of the meshed volumes into physical groups",
        )
    refuse_together(world, fault)


def check_boundaries(world: World, rows: ElementRows) -> None:
    """Refuse a mesh with outer faces that have no name; all ranks call this."""
    mesh = rows.mesh
    element, face = np.nonzero((rows.behind < 0) & (mesh.boundaries < 0))
    first, count = first_rows(world, rows.elements[element] * FACES + face)
    if not count:
        return
    element, face = np.divmod(first[0], FACES)
    own = rows.elements == element
    centre = np.zeros(3)
    if own.any():
        centre = mesh.face_centres(np.array([[own.argmax(), face]]))[0]
    raise InputError(
        f"{counted(count, 'face')} at the edge of the mesh without a boundary name, the first at "
        f"{point_text(world.sum(centre))} on element {element}",
        remedy="put every outer surface in a named (physical) group; where the place lies inside, "
        "merge duplicate nodes, since the elements there do not share nodes",
    )


def drop_unused_names(world: World, mesh: HexMesh) -> HexMesh:
    """Number the outer surfaces anew, without those that no rank has; all ranks call this."""
    names = mesh.boundary_names
    used = world.sum(np.bincount(mesh.boundaries.ravel() + 1, minlength=len(names) + 1)[1:]) > 0
    renumbered = np.append(np.cumsum(used) - 1, -1).astype(np.int32)
    kept = tuple(name for name, there in zip(names, used.tolist(), strict=True) if there)
    return replace(mesh, boundaries=renumbered[mesh.boundaries], boundary_names=kept)


def _name(world: World, mesh: HexMesh, inside: NDArray[np.bool_]) -> HexMesh:
    """Tell surfaces inside the mesh from outer ones."""
    surfaces = {}
    for number, name in enumerate(mesh.boundary_names):
        faces = np.argwhere(inside & (mesh.boundaries == number))
        if world.any(bool(len(faces))):
            surfaces[name] = faces
    outer = np.where(inside, -1, mesh.boundaries).astype(np.int32)
    return drop_unused_names(world, replace(mesh, boundaries=outer, surfaces=surfaces))


def _faces(corners: Integers, elements: Integers, vertices: int) -> tuple[Integers, ...]:
    """Two keys of each face of some elements, and a number that says which it is: (own * 6,)."""
    high, low, word = (np.empty(len(elements) * FACES, np.int64) for _ in range(3))
    for begin in range(0, len(elements), _AT_ONCE):
        rows = slice(begin, begin + _AT_ONCE)
        quads = corners[rows][:, FACE_CORNERS].reshape(-1, 4)
        at = slice(begin * FACES, begin * FACES + len(quads))
        high[at], low[at] = face_keys(quads, vertices)
        place = quads.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        faces = (elements[rows, None] * FACES + np.arange(FACES)).ravel()
        word[at] = (faces << _ORDER_BITS) | (place << _SHIFTS).sum(axis=1)
    return high, low, word


def _order(word: Integers) -> Integers:
    """Where the four corners of faces stand among them, ascending: (n, 4)."""
    return np.asarray((word[:, None] >> _SHIFTS) & 3)


def _owners(world: World, high: Integers, low: Integers) -> Integers:
    """The rank that owns each face."""
    mixed = high.view(np.uint64) * _SPREAD[0] ^ low.view(np.uint64) * _SPREAD[1]
    return ((mixed >> np.uint64(32)) % np.uint64(world.size)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Matched:
    """Answers of the owners about a rank's faces and quadrilaterals."""

    partners: Integers  # (faces,): word of the other face with the same corners, or _NOTHING
    names: NDArray[np.int32]  # (faces,)
    stray: NDArray[np.bool_]  # (quads,): whether it is no face
    # Faces of more than two elements that this rank owns: the first three elements, and how many.
    crowded: Integers


def _match(
    world: World, faces: tuple[Integers, ...], vertices: int, quads: NamedQuads | None
) -> _Matched:
    """Pair the faces of all ranks, and name them; all ranks call this."""
    high, low, _ = faces
    owner = _owners(world, high, low)
    (first, second, word), counts = give_rows(world, faces, owner)
    order = np.lexsort((second, first))
    starts, _ = _runs(first[order], second[order])
    lengths = np.diff(starts, append=len(order))
    begin = starts[lengths > 2]
    sharing = (word[order[begin[:, None] + np.arange(3)]] >> _ORDER_BITS) // FACES
    crowded = np.column_stack([sharing, lengths[lengths > 2]])
    partner = np.full(len(word), _NOTHING)
    pairs = starts[lengths == 2]
    one, other = order[pairs], order[pairs + 1]
    partner[one], partner[other] = word[other], word[one]
    names, stray = np.full(len(word), -1, np.int32), np.empty(0, bool)
    if quads is not None:
        key = face_keys(quads.corners, vertices)
        to = _owners(world, *key)
        (senders, more, name), came = give_rows(world, [*key, quads.names], to)
        names, stray = _name_faces((first, second), (senders, more), name)
        (stray,), _ = give_rows(world, [stray], np.repeat(np.arange(world.size), came))
        stray = stray[_places(to)]
    del first, second, word, order
    back = np.repeat(np.arange(world.size), counts)
    answers, _ = give_rows(world, [partner, names], back)
    place = _places(owner)
    return _Matched(answers[0][place], answers[1][place], stray, crowded)


def _places(ranks: Integers) -> Integers:
    """Where the answers to rows that went to `ranks` stand: they come in the order of the ranks."""
    place = np.empty(len(ranks), np.int64)
    place[np.argsort(ranks, kind="stable")] = np.arange(len(ranks))
    return place


def _runs(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """Where runs of equal keys begin, and the run of each key."""
    new = np.ones(len(high), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return np.flatnonzero(new), np.cumsum(new) - 1


def _name_faces(
    faces: tuple[Integers, Integers],
    quads: tuple[Integers, Integers],
    quad_names: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Names of faces by the quads with the same corners, or -1; whether each quad is no face."""
    count = len(faces[0])
    high, low = (np.concatenate(pair) for pair in zip(faces, quads, strict=True))
    order = np.lexsort((low, high))
    starts, in_order = _runs(high[order], low[order])
    run = np.empty(len(order), np.int64)
    run[order] = in_order
    name = np.full(len(starts), -1, np.int32)
    name[run[count:]] = quad_names
    sides = np.bincount(run[:count], minlength=len(starts))
    return name[run[:count]], sides[run[count:]] == 0


# Each rank begins with a range of the elements' numbers, in which it is known who has what. From
# there elements move to the ranks that a partition names. What lies behind faces on other ranks is
# known by its number and its rank, and copies of these elements, one layer deep, can be had.

Ranks = NDArray[np.int64]


def range_of(world: World, elements: int) -> Integers:
    """Numbers of the elements that a rank begins with."""
    return np.arange(*range_ends(world, elements, world.rank))


def range_ends(world: World, elements: int, rank: int) -> tuple[int, int]:
    """First element with which a rank begins, and the one after its last."""
    return elements * rank // world.size, elements * (rank + 1) // world.size


def range_ranks(world: World, elements: int, numbers: Integers) -> Ranks:
    """Which rank begins with each of some elements; -1 for those that do not exist."""
    starts = np.array([elements * rank // world.size for rank in range(1, world.size)], np.int64)
    ranks = np.searchsorted(starts, numbers, side="right")
    return np.where(numbers >= 0, ranks, -1)


def move(
    world: World, part: MeshPart, to: NDArray[np.integer], more: Sequence[np.ndarray] = ()
) -> tuple[ElementRows, Ranks, list[np.ndarray]]:
    """Give elements that still lie in ranges to the ranks of a partition; all ranks call this.

    `to`: the rank that gets each, (own,); `more`: further arrays (own, ...) that go with the
    elements.
    """
    # Returns: the elements that this rank has now, ascending; the rank of what lies behind each of
    # their faces, (own, 6), -1 where nothing does; and what came with them.
    behind = part.behind
    element = behind // FACES
    ascending = np.argsort(part.elements, kind="stable")
    row = row_of(part.elements[ascending], element)
    ranks = np.where(row >= 0, np.asarray(to, np.int64)[ascending[row]], -1)
    away = (behind >= 0) & (row < 0)
    wanted, back = np.unique(element[away], return_inverse=True)
    holders = range_ranks(world, part.whole, wanted)
    (values,) = ask_rows(world, wanted, holders, part.elements, [np.asarray(to, np.int64)])
    ranks[away] = values[back]
    sent = [part.elements, behind, ranks, *more, *element_arrays(part.mesh)]
    came, _ = give_rows(world, sent, np.asarray(to))
    order = np.argsort(came[0], kind="stable")
    elements, behind, ranks, *rest = (array[order] for array in came)
    surfaces = {}
    for name in sorted(part.mesh.surfaces):
        faces = part.mesh.surfaces[name]
        numbered = np.stack([part.elements[faces[:, 0]], faces[:, 1]], axis=1)
        (own,), _ = give_rows(world, [numbered], np.asarray(to)[faces[:, 0]])
        own[:, 0] = np.searchsorted(elements, own[:, 0])
        surfaces[name] = own[np.lexsort((own[:, 1], own[:, 0]))]
    mesh = with_arrays(part.mesh, rest[len(more) :], surfaces)
    return ElementRows(mesh, elements, behind, part.whole), ranks, rest[: len(more)]


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A rank's elements and copies of what lies behind their faces on other ranks."""

    # Own elements in the order of the part, and the copies behind them. A copy's neighbours are own
    # elements or none.
    mesh: HexMesh
    numbers: Integers  # int64 (own + copies,): numbers in the whole mesh
    # The own elements once more, as a part of `mesh`: its numbers of elements are those of `mesh`.
    part: MeshPart

    @property
    def own(self) -> int:
        """Number of own elements."""
        return self.part.mesh.count


def surroundings(world: World, part: MeshPart, ranks: Ranks) -> Surroundings:
    """Look behind the faces of a rank's elements; all ranks call this.

    `ranks`: the rank of what lies behind each face, (own, 6).
    """
    mesh, own = part.mesh, part.mesh.count
    outside = part.partners >= 0
    if not world.any(bool(outside.any())):
        return Surroundings(mesh, part.elements, replace(part, elements=np.arange(own), whole=own))
    numbers, first, copy = np.unique(
        part.partners[outside] // FACES, return_index=True, return_inverse=True
    )
    arrays = element_arrays(mesh)
    copies = ask_rows(world, numbers, ranks[outside][first], part.elements, arrays)
    around = with_arrays(
        mesh, [np.concatenate([mine, other]) for mine, other in zip(arrays, copies, strict=True)]
    )
    element, face = np.nonzero(outside)
    other, other_face = own + copy.reshape(-1), part.partners[outside] % FACES
    neighbours, faces = around.neighbours, around.neighbour_faces
    neighbours[:own], faces[:own] = mesh.neighbours, mesh.neighbour_faces
    neighbours[element, face], faces[element, face] = other, other_face
    neighbours[other, other_face], faces[other, other_face] = element, face
    partners = np.full(part.partners.shape, -1)
    partners[outside] = other * FACES + other_face
    return Surroundings(
        replace(around, surfaces=mesh.surfaces),
        np.concatenate([part.elements, numbers]),
        replace(part, elements=np.arange(own), whole=around.count, partners=partners),
    )


def bounds(world: World, points: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest coordinates of all ranks' points (..., 3); all ranks call this."""
    flat = points.reshape(-1, 3)
    lower, upper = (
        np.array([world.largest(float(end)) for end in ends.max(axis=0, initial=-np.inf)])
        for ends in (-flat, flat)
    )
    return -lower, upper
