"""A mesh of hexahedra that no rank has as a whole: elements move between ranks, and look around.

Each rank begins with a range of the elements' numbers, in which it is known who has what. From
there elements move to the ranks that a partition names. What lies behind faces on other ranks is
known by its number and its rank, and copies of these elements, one layer deep, can be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import ask_rows, give_rows
from haloscope.mesh.hexes.hex_mappings import BlockMapping
from haloscope.mesh.hexes.hexes import FACES, HexMesh, Integers
from haloscope.mesh.hexes.mesh_parts import ElementRows, MeshPart, row_of

Ranks = NDArray[np.int64]


def range_of(world: World, elements: int) -> Integers:
    """Numbers of the elements that a rank begins with; all, where the others are not there."""
    if not world.present:
        return np.arange(elements)
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


def surroundings(
    world: World, part: MeshPart, ranks: Ranks, whole: MeshPart | None = None
) -> Surroundings:
    """Look behind the faces of a rank's elements; all ranks call this.

    `ranks`: the rank of what lies behind each face, (own, 6).
    """
    mesh, own, known = part.mesh, part.mesh.count, whole or part
    outside = part.partners >= 0
    if not outside.any() and world.size == 1:
        return Surroundings(mesh, part.elements, replace(part, elements=np.arange(own), whole=own))
    numbers, first, copy = np.unique(
        part.partners[outside] // FACES, return_index=True, return_inverse=True
    )
    arrays = _arrays(mesh)
    if world.present:
        holders = ranks[outside][first]
        copies = ask_rows(world, numbers, holders, part.elements, arrays)
    else:
        ascending = np.argsort(known.elements)
        row = ascending[np.searchsorted(known.elements[ascending], numbers)]
        copies = [array[row] for array in _arrays(known.mesh)]
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
            raise TypeError("only the shapes of generated blocks can be given to other ranks")
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
