"""Meshes of tetrahedra: what lies behind which face, names of outer surfaces, and what is refused.

See :mod:`haloscope.mesh.tets.tet_faces` for the conventions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.hexes.hexes import point_text
from haloscope.mesh.surfaces.orientation import connected_parts
from haloscope.mesh.tets.tet_faces import (
    Faces,
    Floats,
    Integers,
    NamedTriangles,
    Numbers,
    check_strays,
    named_triangles,
    six_volumes,
    tet_centres,
    tet_volumes,
    tets_text,
)

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

    def triangles(self, name: str) -> Integers:
        """Triangles (n, 3) of an outer surface."""
        if name not in self.boundaries:
            raise InputError(
                f"'{name}' is not in the mesh; its boundaries are {', '.join(self.boundaries)}"
            )
        return self.boundaries[name]

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
        raise InputError(f"the mesh has {len(tets)} tetrahedra; 1 to {MOST_ELEMENTS} are needed")
    for kind, rows in (("element", tets), ("named triangle", triangles.corners)):
        wrong = np.flatnonzero((rows.min(axis=1) < 0) | (rows.max(axis=1) >= len(nodes)))
        if len(wrong):
            row = rows[wrong[0]]
            node = row.min() if row.min() < 0 else row.max()
            raise InputError(
                f"{counted(len(wrong), kind)} with nodes that are not in the mesh, the first is number "
                f"{wrong[0]} with node {node} of {len(nodes)} (both counted from 0); save the mesh "
                "anew"
            )
    usable = np.asarray((np.abs(nodes) <= LARGEST_COORDINATE).all(axis=1))
    bad = np.flatnonzero(~usable[tets].all(axis=1))
    if len(bad):
        raise InputError(
            f"{counted(len(bad), 'element has', 'elements have')} nodes whose coordinates "
            f"are not finite numbers up to {LARGEST_COORDINATE:g}, the first is element {bad[0]} (counted "
            "from 0); make the mesh anew"
        )
    ordered = np.sort(tets, axis=1)
    collapsed = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(collapsed):
        raise InputError(
            f"{tets_text(nodes, tets, collapsed)}: the same node stands at two corners; remove "
            "collapsed elements"
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
            "corners lie in one plane; mesh the place anew"
        )
    negative = np.flatnonzero(sixfold < 0)
    if not len(negative):
        return tets, ""
    turned = tets.copy()
    turned[negative, 2:] = tets[negative, :1:-1]
    if len(negative) == len(tets):
        return turned, (
            f"all {len(tets)} elements were numbered left-handed: two corners of each have changed "
            "places"
        )
    return turned, (
        f"{len(negative)} of {len(tets)} elements were numbered left-handed, inside out against "
        f"the others: two corners of each have changed places ({tets_text(nodes, tets, negative)})"
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
            f"{counted(sizes[smallest], 'element')}, the first is {tets_text(nodes, tets, element[:1])}; leave "
            "one part, or, where they ought to touch, merge duplicate nodes (in Gmsh: Coherence)"
        )
