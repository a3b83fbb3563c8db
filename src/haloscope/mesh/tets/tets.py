"""Meshes of tetrahedra: corners, faces, areas, outer faces, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.hexes.hexes import elements_text, point_text
from haloscope.mesh.surfaces.surfaces import connected_parts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = NDArray[np.int32]

CORNERS = 4
FACE_NODES = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])
"""Corners of each face; seen from outside they run counter-clockwise."""


def tet_volumes(nodes: Floats, tets: NDArray[np.integer]) -> Floats:
    """Volumes of tetrahedra (n, 4), negative where corners stand left-handed: (n,)."""
    return np.asarray(six_volumes(nodes, tets)[0] / 6)


def tet_centres(nodes: Floats, tets: NDArray[np.integer]) -> Floats:
    """Mean of the corners of tetrahedra (n, 4): (n, 3)."""
    return np.asarray(sum(nodes[tets[:, corner]] for corner in range(CORNERS)) / CORNERS)


def area_vectors(nodes: Floats, triangles: NDArray[np.integer]) -> Floats:
    """Normals of triangles (n, 3), as long as their areas in m^2: (n, 3)."""
    a, b, c = (nodes[triangles[:, corner]] for corner in range(3))
    return np.asarray(np.cross(b - a, c - a) / 2)


def six_volumes(nodes: Floats, tets: NDArray[np.integer]) -> tuple[Floats, Floats]:
    """Six volumes of tetrahedra (n, 4), and their longest edge at corner 0, cubed: (n,) each."""
    origin = nodes[tets[:, 0]]
    a, b, c = (nodes[tets[:, corner]] - origin for corner in (1, 2, 3))
    sixfold = np.einsum("ex,ex->e", a, np.cross(b, c))
    squares = [np.einsum("ex,ex->e", edge, edge) for edge in (a, b, c)]
    return sixfold, np.max(squares, axis=0) ** 1.5


def tets_text(nodes: Floats, tets: Integers, elements: Integers) -> str:
    """The first few of some elements, and where they are, for messages."""
    return elements_text(elements, tet_centres(nodes, tets[elements]))


# Three node numbers below this fit into one number of 63 bits.
_MOST_IN_ONE_KEY = 2**21


@dataclass(frozen=True, eq=False)
class NamedTriangles:
    """Triangles that name faces with the same nodes."""

    # int64 (n, 3): nodes, in any order.
    corners: Integers = field(default_factory=lambda: np.empty((0, 3), np.int64))
    # int32 (n,): index into `names`.
    numbers: Numbers = field(default_factory=lambda: np.empty(0, np.int32))
    names: tuple[str, ...] = ()  # Of surfaces


def named_triangles(triangles: Mapping[str, ArrayLike]) -> NamedTriangles:
    """Triangles (n, 3) by name, as :func:`haloscope.mesh.tets.tets.make_tet_mesh` takes them."""
    rows = [np.asarray(corners, np.int64).reshape(-1, 3) for corners in triangles.values()]
    if not rows:
        return NamedTriangles()
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), [len(row) for row in rows])
    return NamedTriangles(np.concatenate(rows), numbers, tuple(triangles))


def check_strays(nodes: Floats, triangles: NamedTriangles, stray: NDArray[np.bool_]) -> None:
    """Refuse named triangles that are no faces."""
    if stray.any():
        first = int(stray.argmax())
        raise InputError(
            f"{int(stray.sum())} of {len(stray)} named triangles are no face of an element, the "
            f"first, of '{triangles.names[triangles.numbers[first]]}', at "
            f"{point_text(nodes[triangles.corners[first]].mean(axis=0))}",
            remedy="put only surfaces of the meshed volumes into physical groups",
        )


class Faces:
    """All faces of elements, and the triangles that name them, with equal ones together."""

    def __init__(self, nodes: Floats, tets: Integers, triangles: NamedTriangles) -> None:
        self._nodes, self._tets, self._triangles = nodes, tets, triangles
        corners = tets[:, FACE_NODES].reshape(-1, 3)
        self._faces = len(corners)
        order, starts = _equal(np.concatenate([corners, triangles.corners]), len(nodes))
        run = np.empty(len(order), np.int64)
        run[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        self._run = run[: self._faces]
        # Sorting is stable: in a run faces stand before triangles.
        self._first, self._starts, self._order = order[starts], starts, order
        self._sides = np.bincount(self._run, minlength=len(starts))
        self._name = self._names(run[self._faces :])

    def _names(self, run: Integers) -> Numbers:
        """Name of each run, or -1."""
        triangles = self._triangles
        check_strays(self._nodes, triangles, self._sides[run] == 0)
        name = np.full(len(self._first), -1, np.int32)
        name[run] = triangles.numbers
        torn = np.flatnonzero(name[run] != triangles.numbers)
        if len(torn):
            one, other = triangles.numbers[torn[0]], name[run[torn[0]]]
            raise InputError(
                f"{counted(len(torn), 'face belongs', 'faces belong')} to two surfaces, the first to "
                f"'{triangles.names[one]}' and '{triangles.names[other]}' at {self._place(self._first[run[torn[0]]])}",
                remedy="leave each in one physical group",
            )
        return name

    def _corners(self, faces: Integers) -> Integers:
        """Nodes of faces, each ``4 element + face``, that look outwards."""
        return np.asarray(self._tets[(faces // CORNERS)[:, None], FACE_NODES[faces % CORNERS]])

    def _place(self, face: np.integer) -> str:
        return point_text(self._nodes[self._corners(np.array([face]))[0]].mean(axis=0))

    def neighbours(self) -> Numbers:
        """The element behind each face."""
        crowded = np.flatnonzero(self._sides > 2)
        if len(crowded):
            start = self._starts[crowded[0]]
            sharing = self._order[start : start + self._sides[crowded[0]]] // CORNERS
            raise InputError(
                f"{len(sharing)} elements share one face: "
                f"{tets_text(self._nodes, self._tets, sharing)} ({counted(len(crowded), 'such face')})",
                allowed="at most 2 elements a face",
                remedy="remove duplicate and overlapping elements",
            )
        one, other = self._pairs()
        same_side = np.flatnonzero(_odd(self._corners(one)) == _odd(self._corners(other)))
        if len(same_side):
            pair = np.array([one[same_side[0]], other[same_side[0]]]) // CORNERS
            raise InputError(
                f"{tets_text(self._nodes, self._tets, pair)} lie on the same side of the face they "
                f"share: they overlap ({counted(len(same_side), 'such pair')})",
                remedy="mesh the place anew",
            )
        behind = np.full(self._faces, -1, np.int32)
        behind[one], behind[other] = other // CORNERS, one // CORNERS
        return behind.reshape(-1, CORNERS)

    def _pairs(self) -> tuple[Integers, Integers]:
        """The two faces of runs inside the mesh, that of the lower element first."""
        starts = self._starts[self._sides == 2]
        return self._order[starts], self._order[starts + 1]

    def outer(self) -> tuple[dict[str, Integers], dict[str, Integers]]:
        """Triangles of outer surfaces by name, in the order of elements, and these elements."""
        faces = np.flatnonzero(self._sides[self._run] == 1)
        names = self._name[self._run[faces]]
        unnamed = faces[names < 0]
        if len(unnamed):
            known = ", ".join(self._triangles.names) or "none"
            raise InputError(
                f"{counted(len(unnamed), 'face')} at the edge of the mesh without a boundary name, the "
                f"first at {self._place(unnamed[0])} on element {unnamed[0] // CORNERS}",
                remedy="put every outer surface in a named (physical) group (now there are: "
                f"{known}); if the place lies inside, the elements there do not share nodes: merge "
                "duplicate nodes",
            )
        return self._by_name(faces, names)

    def inner(self, zones: Numbers) -> tuple[dict[str, Integers], dict[str, Integers]]:
        """Triangles of named surfaces inside the mesh, and their elements, likewise."""
        one, other = self._pairs()
        names = self._name[self._run[one]]
        named = names >= 0
        one, other, names = one[named], other[named], names[named]
        turned = zones[one // CORNERS] > zones[other // CORNERS]
        faces = np.where(turned, other, one)
        order = np.argsort(faces)
        return self._by_name(faces[order], names[order])

    def _by_name(
        self, faces: Integers, names: Numbers
    ) -> tuple[dict[str, Integers], dict[str, Integers]]:
        groups = {name: faces[names == number] for number, name in enumerate(self._triangles.names)}
        groups = {name: rows for name, rows in groups.items() if len(rows)}
        triangles = {name: self._corners(rows) for name, rows in groups.items()}
        return triangles, {name: faces // CORNERS for name, faces in groups.items()}


def _odd(triangles: Integers) -> NDArray[np.bool_]:
    """Whether sorting the nodes of triangles (n, 3) takes an odd number of swaps."""
    a, b, c = triangles.T
    return np.asarray((a > b) ^ (b > c) ^ (a > c))


def _equal(corners: Integers, nodes: int) -> tuple[Integers, Integers]:
    """Triangles in an order in which equal ones follow each other, and where each run begins."""
    low = corners.min(axis=1)
    high = corners.max(axis=1)
    middle = corners.sum(axis=1) - low - high
    key = low * nodes + middle
    if nodes <= _MOST_IN_ONE_KEY:
        key = key * nodes + high
        order = np.argsort(key, kind="stable")
        changes = np.diff(key[order]) != 0
    else:
        order = np.lexsort((high, key))
        changes = (np.diff(key[order]) != 0) | (np.diff(high[order]) != 0)
    return order, np.flatnonzero(np.concatenate([[True], changes]))


# See :mod:`haloscope.mesh.tets.tets` for the conventions.

MOST_ELEMENTS = 2**31 - 1
LARGEST_COORDINATE = 1e30
"""Products of three lengths must be numbers, too."""
# Share of the cube over an edge below which a volume is nothing but rounding.
_FLAT = 1e-13


@dataclass(frozen=True, eq=False)
class TetMesh:
    """Tetrahedra, what lies behind their faces, and names. See `tet_geometry` for conventions.

    Made by :func:`make_tet_mesh`.
    """

    nodes: Floats  # float64 (nodes, 3): places in m. Each belongs to an element.
    tets: Integers  # int64 (elements, 4): nodes of the corners
    neighbours: Numbers  # int32 (elements, 4): element behind each face, or -1
    # Outer surfaces by name: int64 (n, 3), nodes of triangles that look outwards. Each face at the
    # edge of the mesh is in one of them.
    boundaries: Mapping[str, Integers]
    boundary_tets: Mapping[str, Integers]  # The element of each of these triangles, int64 (n,)
    # Named surfaces inside the mesh, likewise: their triangles look away from the element in the
    # zone of the lower number; within a zone, from the element of the lower number.
    surfaces: Mapping[str, Integers]
    surface_tets: Mapping[str, Integers]
    zones: Numbers  # int32 (elements,): index into `zone_names`
    zone_names: tuple[str, ...]  # Names of the volumes
    notes: tuple[str, ...] = ()  # What was changed in the given mesh, a line each, for the user

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.tets)

    @property
    def volumes(self) -> Floats:
        """Volumes of the elements in m^3."""
        return tet_volumes(self.nodes, self.tets)

    @property
    def centres(self) -> Floats:
        """Mean of the corners of each element, (elements, 3)."""
        return tet_centres(self.nodes, self.tets)

    def describe(self) -> str:
        """One line for a report."""
        named = ", ".join(
            f"{name} ({len(triangles)})" for name, triangles in self.boundaries.items()
        )
        zones = f" in zones {', '.join(self.zone_names)}" if len(self.zone_names) > 1 else ""
        return f"{self.count} tetrahedra{zones}, {len(self.nodes)} nodes, boundaries {named}"


def make_tet_mesh(
    nodes: Floats,
    tets: NDArray[np.integer],
    named: NamedTriangles | Mapping[str, ArrayLike],
    zones: NDArray[np.integer] | None = None,
    zone_names: tuple[str, ...] = ("volume",),
) -> TetMesh:
    """Make a mesh: check the elements, find what lies behind their faces, and name the edge.

    Nodes that no element uses are dropped. In elements that are numbered left-handed, corners 2 and
    3 change places. `TetMesh.notes` says so.
    """
    # `nodes`: (nodes, 3): places in m.
    # `tets`: (elements, 4): nodes of the corners.
    places = np.ascontiguousarray(nodes, np.float64)
    corners = np.ascontiguousarray(tets, np.int64)
    triangles = named if isinstance(named, NamedTriangles) else named_triangles(named)
    _check_numbers(places, corners, triangles)
    used = np.zeros(len(places), np.bool_)
    used[corners] = True
    notes = []
    if not used.all():
        places, corners, triangles, note = _without(places, corners, triangles, used)
        notes.append(note)
    corners, note = _upright(places, corners)
    notes += [note] if note else []
    zone = np.zeros(len(corners), np.int32) if zones is None else zones.astype(np.int32)
    faces = Faces(places, corners, triangles)
    neighbours = faces.neighbours()
    _check_parts(places, corners, neighbours)
    boundaries, boundary_tets = faces.outer()
    surfaces, surface_tets = faces.inner(zone)
    return TetMesh(
        nodes=places,
        tets=corners,
        neighbours=neighbours,
        boundaries=boundaries,
        boundary_tets=boundary_tets,
        surfaces=surfaces,
        surface_tets=surface_tets,
        zones=zone,
        zone_names=zone_names,
        notes=tuple(notes),
    )


def _check_numbers(nodes: Floats, tets: Integers, triangles: NamedTriangles) -> None:
    if not 0 < len(tets) <= MOST_ELEMENTS:
        raise InputError(f"the mesh has {len(tets)} tetrahedra", allowed=f"1 to {MOST_ELEMENTS}")
    for kind, rows in (("element", tets), ("named triangle", triangles.corners)):
        wrong = np.flatnonzero((rows.min(axis=1) < 0) | (rows.max(axis=1) >= len(nodes)))
        if len(wrong):
            row = rows[wrong[0]]
            node = row.min() if row.min() < 0 else row.max()
            raise InputError(
                f"{counted(len(wrong), kind)} with nodes that are not in the mesh, the first is number "
                f"{wrong[0]} with node {node} of {len(nodes)} (both counted from 0)",
                remedy="save the mesh anew",
            )
    usable = np.asarray((np.abs(nodes) <= LARGEST_COORDINATE).all(axis=1))
    bad = np.flatnonzero(~usable[tets].all(axis=1))
    if len(bad):
        raise InputError(
            f"{counted(len(bad), 'element has', 'elements have')} nodes with coordinates out of "
            f"range, the first is element {bad[0]} (counted from 0)",
            allowed=f"finite numbers up to {LARGEST_COORDINATE:g}",
            remedy="make the mesh anew",
        )
    ordered = np.sort(tets, axis=1)
    collapsed = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(collapsed):
        raise InputError(
            f"{tets_text(nodes, tets, collapsed)}: the same node stands at two corners",
            remedy="remove collapsed elements",
        )


def _without(
    nodes: Floats, tets: Integers, triangles: NamedTriangles, used: NDArray[np.bool_]
) -> tuple[Floats, Integers, NamedTriangles, str]:
    """Drop unused nodes; triangles that have some are no faces."""
    unused = np.flatnonzero(~used)
    note = (
        f"dropped {counted(len(unused), 'node')} that no element uses, the first is number {unused[0]} "
        f"at {point_text(nodes[unused[0]])}"
    )
    numbers = np.where(used, np.cumsum(used) - 1, -1)
    check_strays(nodes, triangles, np.asarray((~used)[triangles.corners].any(axis=1)))
    kept = NamedTriangles(numbers[triangles.corners], triangles.numbers, triangles.names)
    return nodes[used], numbers[tets], kept, note


def _upright(nodes: Floats, tets: Integers) -> tuple[Integers, str]:
    """Right-handed elements; and a note, where all had to be turned."""
    sixfold, cubes = six_volumes(nodes, tets)
    flat = np.flatnonzero(np.abs(sixfold) <= _FLAT * cubes)
    if len(flat):
        raise InputError(
            f"{tets_text(nodes, tets, flat)} {'has' if len(flat) == 1 else 'have'} no volume: the "
            "corners lie in one plane",
            remedy="mesh the place anew",
        )
    negative = np.flatnonzero(sixfold < 0)
    if not len(negative):
        return tets, ""
    turned = tets.copy()
    turned[negative, 2:] = tets[negative, :1:-1]
    if len(negative) == len(tets):
        return turned, (
            f"all {len(tets)} elements were numbered left-handed: two corners of each were swapped"
        )
    return turned, (
        f"{len(negative)} of {len(tets)} elements were numbered left-handed, unlike the others: two "
        f"corners of each were swapped ({tets_text(nodes, tets, negative)})"
    )


def _check_parts(nodes: Floats, tets: Integers, neighbours: Numbers) -> None:
    element, face = np.nonzero(neighbours >= 0)
    behind = neighbours[element, face].astype(np.int64)
    once = behind > element
    part = connected_parts(len(tets), element[once], behind[once])
    sizes = np.bincount(part)
    if len(sizes) > 1:
        smallest = int(sizes.argmin())
        element = np.flatnonzero(part == smallest)
        raise InputError(
            f"the mesh falls into {len(sizes)} parts that share no face; the smallest has "
            f"{counted(sizes[smallest], 'element')}, the first is {tets_text(nodes, tets, element[:1])}",
            remedy="leave one part or, if the parts touch, merge duplicate nodes (in Gmsh: Coherence)",
        )
