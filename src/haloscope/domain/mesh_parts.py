"""A rank's own elements of a mesh of hexahedra, in an order that suits the exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.domain.hexes import FACES, HexMesh, Integers


@dataclass(frozen=True)
class Range:
    """Elements of a part that follow each other and are treated alike.

    Attributes
    ----------
    first, count
        The first element, in the part's numbers, and how many.
    kind
        What the caller of :func:`take` has told of them.
    waited_for
        Whether these are the elements with a face on another rank.
    """

    first: int
    count: int
    kind: int
    waited_for: bool


@dataclass(frozen=True, eq=False)
class MeshPart:
    """Elements of one rank: those with a face on other ranks first, then by kind.

    Attributes
    ----------
    mesh
        These elements alone. Faces to other ranks have no neighbour and no boundary there.
    elements
        int64 (own,): their numbers in the whole mesh.
    whole
        Elements of the whole mesh.
    partners
        int64 (own, 6): ``6 element + face`` in the whole mesh of what lies behind a face on
        another rank; -1 elsewhere.
    ranges
        The order of the elements.
    """

    mesh: HexMesh
    elements: Integers
    whole: int
    partners: Integers
    ranges: tuple[Range, ...]

    @property
    def waited_for(self) -> int:
        """Elements with a face on another rank; they come first."""
        return sum(each.count for each in self.ranges if each.waited_for)

    @property
    def face_numbers(self) -> Integers:
        """A number from 1 for each face to another rank, the same there; 0 elsewhere: (own, 6)."""
        own = self.elements[:, None] * FACES + np.arange(FACES)
        return np.where(self.partners >= 0, np.minimum(own, self.partners) + 1, 0)


def take(mesh: HexMesh, elements: Integers, kinds: NDArray[np.integer] | None = None) -> MeshPart:
    """A rank's part of a mesh.

    Parameters
    ----------
    mesh
        The whole.
    elements
        Own elements, in any order.
    kinds
        A number from 0 for each element of the whole mesh; those of a kind follow each other.
        None: all are of kind 0.
    """
    own = np.zeros(mesh.count, bool)
    own[elements] = True
    behind = mesh.neighbours[elements]
    outside = (behind >= 0) & ~own[behind]
    kind = np.zeros(len(elements), np.int64) if kinds is None else np.asarray(kinds)[elements]
    inner: NDArray[np.bool_] = np.logical_not(outside.any(axis=1))
    order: Integers = np.lexsort((elements, kind, inner))
    chosen, kind, inner = elements[order], kind[order], inner[order]
    local = np.full(mesh.count, -1)
    local[chosen] = np.arange(len(chosen))
    behind, outside = mesh.neighbours[chosen], outside[order]
    here = (behind >= 0) & ~outside
    mapping = mesh.mapping
    part = replace(
        mesh,
        coordinates=mesh.coordinates[chosen],
        vertices=mesh.vertices[chosen],
        neighbours=np.where(here, local[behind], -1),
        neighbour_faces=np.where(here, mesh.neighbour_faces[chosen], -1).astype(np.int8),
        orientations=mesh.orientations[chosen],
        boundaries=mesh.boundaries[chosen],
        regions=mesh.regions[chosen],
        surfaces={name: _renumbered(faces, local) for name, faces in mesh.surfaces.items()},
        mapping=None if mapping is None else lambda wanted, at: mapping(chosen[wanted], at),
    )
    partners = np.where(outside, behind * FACES + mesh.neighbour_faces[chosen], -1)
    changes = np.flatnonzero((np.diff(kind) != 0) | (np.diff(inner.astype(int)) != 0)) + 1
    starts = [0, *changes.tolist()] if len(chosen) else []
    ends = [*starts[1:], len(chosen)]
    ranges = tuple(
        Range(first, end - first, int(kind[first]), not inner[first])
        for first, end in zip(starts, ends, strict=True)
    )
    return MeshPart(part, chosen, mesh.count, partners, ranges)


def _renumbered(faces: Integers, local: Integers) -> Integers:
    """Faces (n, 2) of own elements, in the part's numbers."""
    own = faces[local[faces[:, 0]] >= 0]
    return np.stack([local[own[:, 0]], own[:, 1]], axis=1)
