"""Walls at which the far field's surface ends: planes whose image sources close it, or a refusal.

Faces of the surface that lie on a conductor carry no current of their own sources and are left out
(see :func:`wall_faces`). If the rest is closed, the conductor is an enclosed body. If it is open,
its rim must lie in one, two or three complete planes, normal to each other, each electric (PEC) or
magnetic (PMC): image currents then stand for the other half space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import FACE_CORNERS, HexMesh, face_nodes, point_text
from haloscope.mesh.hexes.shared_meshes import Surroundings
from haloscope.solvers.maxwell.outputs.far_field import MirrorPlane
from haloscope.solvers.maxwell.terms.terms import Floats, Integers

# Kinds of outer faces.
OPEN, ELECTRIC, MAGNETIC, LOSSY = 0, 1, 2, 3
_KINDS = {"absorbing": OPEN, "pec": ELECTRIC, "pmc": MAGNETIC}
_KIND_NAMES = {OPEN: "absorbing", ELECTRIC: "pec", MAGNETIC: "pmc", LOSSY: "a lossy wall"}
# Pairs (a, b) of a face's corners 00, 10, 01, 11 that its edges join.
_EDGES = np.array([[0, 1], [1, 3], [3, 2], [2, 0]])
# Distance from a plane over the mesh's extent, and differences of normals, that count as none.
_FLAT, _PARALLEL = 1e-6, 1e-5
_MOST_PLANES = 3
_REMEDY = (
    "move the surface off the wall (maxwell.far_field.box or regions), or extend the wall to a "
    "complete plane side of the mesh"
)


@dataclass(frozen=True, eq=False)
class _WallFaces:
    """Wall faces that touch the rim, of all ranks: a row each."""

    kinds: Integers
    names: Integers
    normals: Floats
    offsets: Floats
    bends: Floats
    centres: Floats


def face_kinds(mesh: HexMesh, kinds: Mapping[str, str | float]) -> Integers:
    """Kind of each face, (elements, 6): :data:`OPEN` inside the mesh and where waves leave."""
    of_name = [
        _KINDS[kind] if isinstance(kind := kinds[name], str) else LOSSY
        for name in mesh.boundary_names
    ]
    # The last entry is for faces without a boundary.
    lookup = np.array([*of_name, OPEN])
    return np.where(mesh.neighbours < 0, lookup[mesh.boundaries], OPEN)


def wall_faces(mesh: HexMesh, kinds: Integers, inside: NDArray[np.bool_], own: int) -> Integers:
    """Own wall faces (n, 2) of the elements that the surface encloses."""
    return np.argwhere(inside[:own, None] & (kinds[:own] != OPEN))


def mirror_planes(
    world: World,
    around: Surroundings,
    kinds: Integers,
    surface_faces: Integers,
    walls: Integers,
) -> list[MirrorPlane]:
    """Planes whose image sources close an open surface; all ranks call this."""
    mesh = around.mesh
    edges = _edges(mesh, surface_faces)
    rim = _odd(all_rows(world, edges.reshape(-1, 2)))
    if not len(rim):
        return []
    base = int(rim.max()) + 1
    wall_edges = _edges(mesh, walls)
    at_rim = _within(wall_edges, rim, base)
    covered = all_rows(world, wall_edges[at_rim])
    bare = _within(edges, rim, base) & ~_within(edges, covered, base)
    _refuse_bare(world, mesh, surface_faces, bare)
    touching = _describe(world, mesh, kinds, walls[at_rim.any(axis=1)])
    extent = _extent(world, mesh)
    planes = _distinct_planes(mesh, touching, extent)
    for plane, name in planes:
        _require_complete(world, around, kinds, plane, name, extent)
    return [plane for plane, _ in planes]


def _edges(mesh: HexMesh, faces: Integers) -> Integers:
    """Edges of faces (n, 2) as ascending pairs of vertex numbers, (n, 4, 2)."""
    corners = mesh.vertices[faces[:, :1], FACE_CORNERS[faces[:, 1]]]
    return np.sort(corners[:, _EDGES], axis=-1)


def _odd(edges: Integers) -> Integers:
    """Edges (n, 2) that occur an odd number of times: a closed surface has none."""
    different, counts = np.unique(edges, axis=0, return_counts=True)
    return np.asarray(different[counts % 2 == 1])


def _within(edges: Integers, chosen: Integers, base: int) -> NDArray[np.bool_]:
    """Whether edges (..., 2) are among others (n, 2), whose vertex numbers are below `base`."""
    keys = np.where(edges.max(axis=-1) < base, edges[..., 0] * base + edges[..., 1], -1)
    return np.isin(keys, chosen[:, 0] * base + chosen[:, 1])


def _refuse_bare(world: World, mesh: HexMesh, faces: Integers, bare: NDArray[np.bool_]) -> None:
    """Refuse a rim that meets no wall: the surface ends at a periodic side."""
    places = all_rows(world, mesh.face_centres(faces[bare.any(axis=1)]))
    if len(places):
        first = places[np.lexsort(places.T[::-1])[0]]
        raise InputError(
            f"the surface is open: it ends at a periodic side of the mesh near {point_text(first)} m",
            location="maxwell.far_field",
            remedy="enclose a body (box or regions) that does not reach through periodic sides",
        )


def _describe(world: World, mesh: HexMesh, kinds: Integers, faces: Integers) -> _WallFaces:
    """Planes of wall faces, of all ranks; normals point into the mesh."""
    element, face = faces.T
    corners = mesh.corners[element[:, None], FACE_CORNERS[face]]
    normals = np.cross(corners[:, 3] - corners[:, 0], corners[:, 2] - corners[:, 1])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    centres = corners.mean(axis=1)
    inward = np.einsum("fx,fx->f", normals, mesh.centres[element] - centres)
    normals *= np.where(inward < 0, -1.0, 1.0)[:, None]
    nodes = mesh.coordinates.reshape(mesh.count, -1, 3)[
        element[:, None], face_nodes(mesh.order)[face]
    ]
    bends = np.abs(np.einsum("fnx,fx->fn", nodes - centres[:, None], normals)).max(axis=1)
    offsets = np.einsum("fx,fx->f", normals, centres)
    # -0.0 and 0.0 are one.
    rows = np.column_stack(
        [kinds[element, face], mesh.boundaries[element, face], normals, offsets, bends, centres]
    )
    rows = all_rows(world, rows + 0.0)
    rows = rows[np.lexsort(rows.T[::-1])]
    return _WallFaces(
        rows[:, 0].astype(np.int64),
        rows[:, 1].astype(np.int64),
        rows[:, 2:5],
        rows[:, 5],
        rows[:, 6],
        rows[:, 7:],
    )


def _extent(world: World, mesh: HexMesh) -> float:
    """Diagonal of the whole mesh's bounding box."""
    points = mesh.coordinates.reshape(-1, 3)
    ends = np.stack([points, -points]).max(axis=1, initial=-np.inf).ravel()
    widths = np.array([world.largest(float(end)) for end in ends]).reshape(2, 3).sum(axis=0)
    return float(np.linalg.norm(widths))


def _distinct_planes(
    mesh: HexMesh, touching: _WallFaces, extent: float
) -> list[tuple[MirrorPlane, str]]:
    """The planes in which the rim lies, each with the name of a boundary in it."""
    planes: list[tuple[MirrorPlane, str]] = []
    for row in range(len(touching.kinds)):
        kind, name = int(touching.kinds[row]), mesh.boundary_names[touching.names[row]]
        where = f"near {point_text(touching.centres[row])} m"
        begin = f"the surface ends at {name!r} ({_KIND_NAMES[kind]}) {where}"
        if kind == LOSSY:
            raise InputError(
                begin,
                location="maxwell.far_field",
                allowed="pec and pmc planes, which have image sources",
                remedy=_REMEDY,
            )
        if touching.bends[row] > _FLAT * extent:
            raise InputError(
                f"{begin}, where the wall is curved",
                location="maxwell.far_field",
                allowed="plane walls",
                remedy=_REMEDY,
            )
        normal, offset = touching.normals[row], float(touching.offsets[row])
        for plane, _ in planes:
            cosine = float(plane.direction @ normal)
            same = cosine > 1 - _PARALLEL**2 and abs(plane.offset - offset) <= _FLAT * extent
            if same and plane.magnetic == (kind == MAGNETIC):
                break
            if same or abs(cosine) > _PARALLEL:
                relation = "in the same plane as" if same else "not normal to"
                raise InputError(
                    f"{begin}, which is {relation} another wall that the surface touches",
                    location="maxwell.far_field",
                    allowed="up to three planes normal to each other, each of one kind",
                    remedy=_REMEDY,
                )
        else:
            x, y, z = normal.tolist()
            planes.append((MirrorPlane((x, y, z), offset, kind == MAGNETIC), name))
    assert len(planes) <= _MOST_PLANES
    return planes


def _require_complete(
    world: World,
    around: Surroundings,
    kinds: Integers,
    plane: MirrorPlane,
    name: str,
    extent: float,
) -> None:
    """Refuse a plane that the mesh crosses, or in which something else than the wall lies."""
    mesh, own = around.mesh, around.own
    kind = MAGNETIC if plane.magnetic else ELECTRIC
    begin = f"the surface ends at the plane wall {name!r} ({_KIND_NAMES[kind]})"
    points = mesh.coordinates.reshape(mesh.count, -1, 3)[:own]
    heights = points @ plane.direction - plane.offset
    lowest = -world.largest(-float(heights.min(initial=np.inf)))
    if lowest < -_FLAT * extent:
        raise InputError(
            f"{begin}, but the mesh continues behind it, up to {-lowest:.4g} m",
            location="maxwell.far_field",
            allowed="an unbroken plane, for image sources",
            remedy=_REMEDY,
        )
    outer = np.argwhere(mesh.neighbours[:own] < 0)
    nodes = np.abs(heights[outer[:, :1], face_nodes(mesh.order)[outer[:, 1]]])
    others = outer[(nodes.max(axis=1) <= _FLAT * extent) & (kinds[*outer.T] != kind)]
    rows = np.column_stack([mesh.boundaries[*others.T], mesh.face_centres(others)])
    rows = all_rows(world, rows)
    if len(rows):
        first = rows[np.lexsort(rows.T[::-1])[0]]
        other = mesh.boundary_names[int(first[0])]
        raise InputError(
            f"{begin}, but {other!r} lies in the same plane, at {point_text(first[1:])} m, and is "
            "of another kind",
            location="maxwell.far_field",
            allowed="a complete plane of one kind, for image sources",
            remedy="give both one kind, or move the surface off the wall (maxwell.far_field.box or "
            "regions)",
        )


def unmirrored_walls(
    world: World,
    around: Surroundings,
    kinds: Integers,
    outside: NDArray[np.bool_],
    planes: Sequence[MirrorPlane],
) -> list[str]:
    """Names of walls beyond the surface that reflect and that no image stands for."""
    mesh = around.mesh
    extent = _extent(world, mesh)
    faces = np.argwhere(outside[:, None] & (kinds[: around.own] != OPEN))
    centres = mesh.face_centres(faces)
    bare = np.ones(len(faces), bool)
    for plane in planes:
        bare &= np.abs(centres @ plane.direction - plane.offset) > _FLAT * extent
    present = np.zeros(len(mesh.boundary_names), np.int64)
    present[mesh.boundaries[*faces[bare].T]] = 1
    total = world.sum(present)
    return [name for name, count in zip(mesh.boundary_names, total, strict=True) if count]
