"""A mesh of hexahedra that no rank has as a whole: elements move between ranks, faces are matched by their corners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.plan import ask_rows, give_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_mappings import BlockMapping
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
    FACES,
    HexMesh,
    Integers,
    face_keys,
    faces_turn_away,
    orientation_of,
)
from haloscope.mesh.hexes.mesh_parts import ElementRows, MeshPart, row_of

# Each rank tells the owner of a face, a rank chosen by its sorted corner numbers, of all faces that it
# has; owners answer who has them too, and how they are called. No rank ever holds more than the faces
# of its own elements and about as many again.

# Elements whose faces' corners are laid out at once.
_AT_ONCE = 1 << 13
# A face and the order of its corners in one number: eight bits say where each of the four stands.
_ORDER_BITS = 8
_SHIFTS = np.array([0, 2, 4, 6])
_NOTHING = -1
# Odd numbers that spread keys over ranks, from the golden ratio and from pi.
_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0x243F6A8885A308D3))


@dataclass(frozen=True, eq=False)
class NamedQuads:
    """Quadrilaterals that name faces with the same corners."""

    corners: Integers  # int64 (n, 4): numbers of vertices, in any order
    names: NDArray[np.int32]  # int32 (n,): index into the mesh's `boundary_names`


def connect_on_ranks(
    world: World,
    mesh: HexMesh,
    elements: Integers,
    whole: int,
    vertices: int,
    quads: NamedQuads | None = None,
) -> ElementRows:
    """Find what lies behind the faces of all ranks' elements; all ranks call this."""
    ordered = np.sort(mesh.vertices, axis=1)
    faulty = bool((ordered[:, 1:] == ordered[:, :-1]).any())
    del ordered
    high, low, word = _faces(mesh.vertices, elements, vertices)
    partner, named, wrong = _ask(world, (high, low, word), vertices, quads)
    del high, low
    faulty |= wrong
    behind = np.where(partner == _NOTHING, -1, partner >> _ORDER_BITS).reshape(-1, FACES)
    orientations = np.zeros(len(word), np.int8)
    for begin in range(0, len(word), _AT_ONCE * FACES):
        rows = begin + np.flatnonzero(partner[begin : begin + _AT_ONCE * FACES] != _NOTHING)
        codes, fits = orientation_of(_order(word[rows]), _order(partner[rows]))
        own, other = (word[rows] >> _ORDER_BITS) % FACES, (partner[rows] >> _ORDER_BITS) % FACES
        faulty |= not (fits.all() and faces_turn_away(own, other, codes).all())
        orientations[rows] = codes
    if world.any(faulty):
        raise InputError(
            "the elements of the mesh do not fit together: a face is twisted, collapsed, shared by more "
            "than two elements, or in a named surface but in no element",
            remedy="correct the mesh",
        )
    connected = replace(mesh, orientations=orientations.reshape(-1, FACES))
    if quads is not None:
        connected = replace(connected, boundaries=named.reshape(-1, FACES))
    return ElementRows(_name(world, connected, behind >= 0), elements, behind, whole)


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
    """The rank to which each face is told."""
    mixed = high.view(np.uint64) * _SPREAD[0] ^ low.view(np.uint64) * _SPREAD[1]
    return ((mixed >> np.uint64(32)) % np.uint64(world.size)).astype(np.int64)


def _ask(
    world: World, faces: tuple[Integers, ...], vertices: int, quads: NamedQuads | None
) -> tuple[Integers, NDArray[np.int32], bool]:
    """The word of what lies behind each face, its name, and whether an owner found a fault."""
    high, low, _ = faces
    owner = _owners(world, high, low)
    (first, second, word), counts = give_rows(world, faces, owner)
    order = np.lexsort((second, first))
    starts, run = _runs(first[order], second[order])
    lengths = np.diff(starts, append=len(order))
    faulty = bool((lengths > 2).any())
    partner = np.full(len(word), _NOTHING)
    pairs = starts[lengths == 2]
    one, other = order[pairs], order[pairs + 1]
    partner[one], partner[other] = word[other], word[one]
    names = np.full(len(word), -1, np.int32)
    if quads is not None:
        key = face_keys(quads.corners, vertices)
        (senders, more, name), _ = give_rows(world, [*key, quads.names], _owners(world, *key))
        # Quads sort behind the faces with the same corners, and so into their runs.
        faulty |= _take_names(names, (first, second), (senders, more), name)
    back = np.repeat(np.arange(world.size), counts)
    del first, second, word, order, run
    answers, _ = give_rows(world, [partner, names], back)
    place = np.empty(len(owner), np.int64)
    place[np.argsort(owner, kind="stable")] = np.arange(len(owner))
    return answers[0][place], answers[1][place], faulty


def _runs(high: Integers, low: Integers) -> tuple[Integers, Integers]:
    """Where runs of equal keys begin, and the run of each key."""
    new = np.ones(len(high), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return np.flatnonzero(new), np.cumsum(new) - 1


def _take_names(
    names: NDArray[np.int32],
    faces: tuple[Integers, Integers],
    quads: tuple[Integers, Integers],
    name_numbers: NDArray[np.int32],
) -> bool:
    """Enter the names of quads into those of faces; whether a quad is no face, or a face has two."""
    high, low = (np.concatenate(pair) for pair in zip(faces, quads, strict=True))
    order = np.lexsort((low, high))
    starts, run = _runs(high[order], low[order])
    is_quad = order >= len(names)
    of_run = run[is_quad]
    name = name_numbers[order[is_quad] - len(names)]
    best = np.full(len(starts), -1, np.int32)
    best[of_run] = name
    faulty = bool((best[of_run] != name).any())
    names[order[~is_quad]] = best[run[~is_quad]]
    held = np.bincount(run[~is_quad], minlength=len(starts)) > 0
    return faulty or not bool(held[of_run].all())


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
    sent = [part.elements, behind, ranks, *more, *_arrays(part.mesh)]
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
    mesh = replace(_mesh_of(part.mesh, rest[len(more) :]), surfaces=surfaces)
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
    if not outside.any() and world.size == 1:
        return Surroundings(mesh, part.elements, replace(part, elements=np.arange(own), whole=own))
    numbers, first, copy = np.unique(
        part.partners[outside] // FACES, return_index=True, return_inverse=True
    )
    arrays = _arrays(mesh)
    copies = ask_rows(world, numbers, ranks[outside][first], part.elements, arrays)
    around = _mesh_of(
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


def _arrays(mesh: HexMesh) -> list[NDArray[Any]]:
    """All that is known of each element by itself."""
    arrays: list[NDArray[Any]] = [mesh.coordinates, mesh.vertices, mesh.orientations]
    arrays += [mesh.boundaries, mesh.regions]
    if mesh.mapping is not None:
        if not isinstance(mesh.mapping, BlockMapping):
            raise TypeError("only the shapes of generated blocks can be sent to other ranks")
        arrays += [mesh.mapping.blocks, mesh.mapping.lower, mesh.mapping.upper]
    return arrays


def _mesh_of(like: HexMesh, arrays: Sequence[NDArray[Any]]) -> HexMesh:
    """Elements out of their :func:`_arrays`, without neighbours; the rest is that of another mesh."""
    coordinates, vertices, orientations, boundaries, regions, *shape = arrays
    mapping = like.mapping
    if isinstance(mapping, BlockMapping):
        mapping = BlockMapping(shape[0], shape[1], shape[2], mapping.maps)
    return replace(
        like,
        coordinates=coordinates,
        vertices=vertices,
        orientations=orientations,
        boundaries=boundaries,
        regions=regions,
        neighbours=np.full((len(vertices), FACES), -1),
        neighbour_faces=np.full((len(vertices), FACES), -1, np.int8),
        surfaces={},
        mapping=mapping,
    )
