"""A rank's own elements of a mesh of hexahedra, in an order that suits the exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.hexes.hexes import FACES, BlockMapping, Floats, HexMesh, Integers


@dataclass(frozen=True)
class Range:
    """Elements of a part that follow each other and are treated alike."""

    # The first element, in the part's numbers, and how many.
    first: int
    count: int
    kind: int  # What the caller has told of them
    waited_for: bool  # Whether these are the elements with a face on another rank


@dataclass(frozen=True, eq=False)
class MeshPart:
    """Elements of one rank: those with a face on other ranks first, then by kind."""

    # These elements alone. Faces to other ranks have no neighbour and no boundary there.
    mesh: HexMesh
    elements: Integers  # int64 (own,): their numbers in the whole mesh
    whole: int  # Elements of the whole mesh
    # int64 (own, 6): ``6 element + face`` in the whole mesh of what lies behind a face on another
    # rank; -1 elsewhere.
    partners: Integers
    ranges: tuple[Range, ...]  # The order of the elements

    @property
    def waited_for(self) -> int:
        """Elements with a face on another rank; they come first."""
        return sum(span.count for span in self.ranges if span.waited_for)

    @property
    def behind(self) -> Integers:
        """int64 (own, 6): ``6 element + face`` in the whole mesh behind each face, or -1."""
        near = self.mesh.neighbours
        numbers = self.elements[near] * FACES + self.mesh.neighbour_faces
        return np.where(near >= 0, numbers, self.partners)

    @property
    def face_numbers(self) -> Integers:
        """A number from 1 for each face to another rank, the same there; 0 elsewhere: (own, 6)."""
        own = self.elements[:, None] * FACES + np.arange(FACES)
        return np.where(self.partners >= 0, np.minimum(own, self.partners) + 1, 0)


@dataclass(frozen=True, eq=False)
class ElementRows:
    """Some elements of a mesh, before their neighbours among them are looked up."""

    mesh: HexMesh  # These elements alone; what it says of neighbours means nothing yet
    elements: Integers  # int64 (own,): their numbers in the whole mesh
    # int64 (own, 6): ``6 element + face`` in the whole mesh of what lies behind each face, or -1.
    behind: Integers
    whole: int  # Elements of the whole mesh

    def whole_mesh(self) -> HexMesh:
        """All elements as a mesh, where one rank has them in the order of their numbers."""
        real = self.behind >= 0
        return replace(
            self.mesh,
            neighbours=np.where(real, self.behind // FACES, -1),
            neighbour_faces=np.where(real, self.behind % FACES, -1).astype(np.int8),
        )

    def part(self, kinds: NDArray[np.integer] | None = None) -> MeshPart:
        """These elements as a rank's part of the mesh.

        `kinds`: a number from 0 for each of these elements; those of a kind follow each other.
        None: all are of kind 0.
        """
        elements, behind = self.elements, self.behind
        ascending = np.argsort(elements, kind="stable")
        row = row_of(elements[ascending], behind // FACES)
        here = row >= 0
        row = np.where(here, ascending[row], -1)
        outside = (behind >= 0) & ~here
        kind = np.zeros(len(elements), np.int64) if kinds is None else np.asarray(kinds)
        inner: NDArray[np.bool_] = np.logical_not(outside.any(axis=1))
        order: Integers = np.lexsort((elements, kind, inner))
        kind, inner, behind = kind[order], inner[order], behind[order]
        local = np.empty(len(elements), np.int64)
        local[order] = np.arange(len(elements))
        row, here, outside = row[order], here[order], outside[order]
        part = replace(
            mesh_of(self.mesh, order),
            neighbours=np.where(here, local[row], -1),
            neighbour_faces=np.where(here, behind % FACES, -1).astype(np.int8),
        )
        changes = np.flatnonzero((np.diff(kind) != 0) | (np.diff(inner.astype(int)) != 0)) + 1
        starts = [0, *changes.tolist()] if len(order) else []
        ends = [*starts[1:], len(order)]
        ranges = tuple(
            Range(first, end - first, int(kind[first]), not inner[first])
            for first, end in zip(starts, ends, strict=True)
        )
        partners = np.where(outside, behind, -1)
        return MeshPart(part, elements[order], self.whole, partners, ranges)


def unconnected(
    coordinates: Floats,
    vertices: Integers,
    regions: NDArray[np.int32],
    region_names: tuple[str, ...],
    boundary_names: tuple[str, ...] = (),
    boundaries: NDArray[np.int32] | None = None,
    mapping: BlockMapping | None = None,
) -> HexMesh:
    """Elements that know nothing of each other yet, as a mesh; see `HexMesh` for the parameters."""
    none = np.full((len(vertices), FACES), -1)
    return HexMesh(
        order=coordinates.shape[1] - 1,
        coordinates=coordinates,
        vertices=vertices,
        neighbours=none,
        neighbour_faces=none.astype(np.int8),
        orientations=np.zeros((len(vertices), FACES), np.int8),
        boundaries=none.astype(np.int32) if boundaries is None else boundaries,
        boundary_names=boundary_names,
        regions=regions,
        region_names=region_names,
        mapping=mapping,
    )


def row_of(ascending: Integers, numbers: Integers) -> Integers:
    """Where numbers stand in a list that ascends; -1 where they do not."""
    if not len(ascending):
        return np.full(numbers.shape, -1)
    at = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    return np.where(ascending[at] == numbers, at, -1)


def element_arrays(mesh: HexMesh) -> list[NDArray[Any]]:
    """All arrays with a row for each element by itself."""
    arrays: list[NDArray[Any]] = [mesh.coordinates, mesh.vertices, mesh.orientations]
    arrays += [mesh.boundaries, mesh.regions]
    if mesh.mapping is not None:
        arrays += [mesh.mapping.blocks, mesh.mapping.lower, mesh.mapping.upper]
    return arrays


def with_arrays(
    like: HexMesh,
    arrays: Sequence[NDArray[Any]],
    surfaces: Mapping[str, Integers] = MappingProxyType({}),
) -> HexMesh:
    """A mesh of elements without neighbours from their :func:`element_arrays`; the rest as in `like`."""
    coordinates, vertices, orientations, boundaries, regions, *shape = arrays
    return replace(
        like,
        coordinates=coordinates,
        vertices=vertices,
        orientations=orientations,
        boundaries=boundaries,
        regions=regions,
        neighbours=np.full((len(vertices), FACES), -1),
        neighbour_faces=np.full((len(vertices), FACES), -1, np.int8),
        surfaces=surfaces,
        mapping=like.mapping and BlockMapping(shape[0], shape[1], shape[2], like.mapping.maps),
    )


def mesh_of(mesh: HexMesh, elements: Integers) -> HexMesh:
    """Elements of a mesh, in the order of `elements`, as a mesh in which none has a neighbour yet."""
    place = np.full(mesh.count, -1)
    place[elements] = np.arange(len(elements))
    surfaces = {}
    for name, faces in mesh.surfaces.items():
        own = faces[place[faces[:, 0]] >= 0]
        surfaces[name] = np.stack([place[own[:, 0]], own[:, 1]], axis=1)
    return with_arrays(mesh, [array[elements] for array in element_arrays(mesh)], surfaces)


def rows_of(mesh: HexMesh, elements: Integers) -> ElementRows:
    """Elements of a whole mesh, in the given order."""
    neighbours = mesh.neighbours[elements]
    behind = neighbours * FACES + mesh.neighbour_faces[elements]
    behind = np.where(neighbours >= 0, behind, -1)
    return ElementRows(mesh_of(mesh, elements), elements, behind, mesh.count)


def take(mesh: HexMesh, elements: Integers, kinds: NDArray[np.integer] | None = None) -> MeshPart:
    """A rank's part of a mesh.

    `kinds`: a number from 0 for each element of the whole mesh; those of a kind follow each other.
    None: all are of kind 0.
    """
    own = None if kinds is None else np.asarray(kinds)[elements]
    return rows_of(mesh, elements).part(own)
