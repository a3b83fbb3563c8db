"""Closed surfaces of triangles with named parts: connected parts, orientation, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.files.meshio_files import METRE, LengthUnit

Integers = NDArray[np.int64]


def connected_parts(count: int, one: ArrayLike, other: ArrayLike) -> Integers:
    """Number the connected parts of a graph.

    `one`, `other`: nodes at the two ends of each edge, shape (edges,); Returns: part of each node;
    parts are numbered from 0 in the order of their first nodes.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.asarray(one, np.int64), np.asarray(other, np.int64)
    edges = coo_array((np.ones(len(ends[0])), ends), (count, count))
    return np.asarray(connected_components(edges, directed=False)[1], np.int64)


def spread(counts: ArrayLike) -> tuple[Integers, Integers]:
    """Number the members of groups of given sizes.

    `counts`: members of each group, shape (groups,); Returns: group of each member and its number
    within the group, both of shape (sum of counts,).
    """
    counts = np.asarray(counts, np.int64)
    group = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return group, np.arange(len(group)) - first[group]


def edges_of(triangles: Integers, points: int) -> tuple[Integers, Integers, Integers]:
    """Tails, heads and keys of the three edges of each triangle, flat; an edge has one key both ways."""
    tail, head = triangles.ravel(), np.roll(triangles, -1, axis=1).ravel()
    return tail, head, np.minimum(tail, head) * points + np.maximum(tail, head)


def paired(key: Integers) -> tuple[Integers, Integers]:
    """Places of edges that exactly two triangles have: in one of them, and in the other."""
    order = np.argsort(key, kind="stable")
    ascending = key[order]
    first = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))
    pairs = first[np.diff(np.append(first, len(key))) == 2]
    return order[pairs], order[pairs + 1]


Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Orientation:
    """The triangles to turn."""

    # Triangles that face another way than most of their connected part by area, (triangles,).
    turned: Flags
    # A triangle of a part that cannot be oriented, as of a Moebius strip; None without one.
    twisted: int | None


def orientation(triangles: Integers, areas: NDArray[np.float64], points: int) -> Orientation:
    """Find the triangles that face another way than their neighbours.

    `triangles`: points of each, (triangles, 3).
    """
    # Triangles are neighbours across edges that exactly two of them share. Each triangle is two
    # nodes of a graph, as it is and turned; an edge joins the two pairs of nodes that face the same
    # way. A part is then two components that mirror each other, and one if it is twisted.
    count = len(triangles)
    tail, head, key = edges_of(triangles, points)
    one, other = paired(key)
    forward = tail < head
    opposed = forward[one] == forward[other]
    none = np.zeros(count, bool)
    if not opposed.any():
        return Orientation(none, None)
    a, b = one // 3, other // 3
    shift = np.where(opposed, count, 0)
    part = connected_parts(
        2 * count, np.concatenate([a, a + count]), np.concatenate([b + shift, b + count - shift])
    )
    as_is, mirrored = part[:count], part[count:]
    twisted = as_is == mirrored
    if twisted.any():
        return Orientation(none, int(twisted.argmax()))
    weight = np.bincount(as_is, areas, part.max() + 1)
    return Orientation(weight[as_is] < weight[mirrored], None)


Floats = NDArray[np.float64]

LEVEL = 1e-3
"""Distance from the plane of an end over its diameter within which its points are in it."""


def level_triangles(corners: Floats, normals: Floats, normal: Floats, cosine: float) -> Flags:
    """Which triangles of an end lie in its plane, (triangles,).

    `normal`: of the end, of length 1; `cosine`: least one between normals of larger triangles. Of small or narrow
    ones rounding of the corners turns the normals, so that only their distances from the plane tell.
    """
    areas = np.linalg.norm(normals, axis=1)
    middle = areas @ corners.mean(axis=1) / (areas.sum() or 1.0)
    diameter = 2 * np.sqrt(areas.sum() / np.pi)
    near = np.abs((corners - middle) @ normal).max(axis=1) <= LEVEL * diameter
    return np.asarray((normals @ normal >= cosine * areas) | near)


# Share of the diagonal of the bounding box within which two points are one: single precision,
# in which most files are written, keeps about seven digits.
MERGE_TOLERANCE = 1e-6
# A triangle is degenerate if its height is below this share of its longest side.
_FLATTEST = 1e-9
# A group is flat if normals of its triangles make up this share of its area, and meant to be if they make up the other.
_FLAT, _FLAT_MEANT = 0.999, 0.9
_MOST_NAMED = 12
_MOST_LOOPS = 4


@dataclass(frozen=True, eq=False)
class Surface:
    """A surface of triangles."""

    points: Floats  # Positions in m, shape (points, 3)
    # Points of each triangle, counter-clockwise seen from outside, shape (triangles, 3).
    triangles: NDArray[np.int32]
    groups: NDArray[np.int32]  # Group of each triangle, shape (triangles,)
    names: tuple[str, ...]  # Names of the groups
    notices: tuple[str, ...] = ()  # What was mended when the surface was made, one line each
    file: str = ""  # The file from which it was read, for messages
    unit: LengthUnit = METRE  # Of lengths and places in messages
    # Groups of two flat ends at which the vessel goes on into itself; empty: none.
    joined: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """The surface in messages, with the file from which it was read."""
        return f"surface file {self.file}" if self.file else "surface"

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper corner of the bounding box."""
        used = self.points[self.triangles.ravel()]
        return used.min(axis=0), used.max(axis=0)

    @cached_property
    def corners(self) -> Floats:
        """Positions of the corners, shape (triangles, 3, 3): triangle, corner, component."""
        return self.points[self.triangles]

    @cached_property
    def normals(self) -> Floats:
        """Outward normals times area, shape (triangles, 3)."""
        a, b, c = np.moveaxis(self.corners, 1, 0)
        return np.asarray(np.cross(b - a, c - a) / 2)

    @property
    def volume(self) -> float:
        """Enclosed volume, negative where triangles face inward."""
        # About the middle of the box: far from it the tetrahedra would cancel badly.
        corners = self.corners - np.mean(self.bounds, axis=0)
        return float(np.einsum("ij,ij->i", corners[:, 0], self.normals).sum() / 3)

    def group(self, name: str) -> Integers:
        """Triangles of a group."""
        if name not in self.names:
            raise InputError(
                f"there is no group '{name}'",
                location=self.location,
                allowed=", ".join(self.names),
                # A binary STL file has one group, as it holds no names.
                remedy="give a position and a normal of the opening, or save the surface with a group for "
                "it, as text STL (one solid for each group) or OBJ; binary STL holds no names"
                if len(self.names) == 1
                else "give one of its groups",
            )
        return np.flatnonzero(self.groups == self.names.index(name))


@dataclass(frozen=True)
class SurfaceFault:
    """A fault of a surface, with its place, and its remedy."""

    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


@dataclass(frozen=True)
class SurfaceCheck:
    """Faults and parts of a surface."""

    faults: tuple[SurfaceFault, ...]  # Empty for a closed surface without bad triangles
    # The faults that let a fluid out: edges met by an odd number of triangles.
    leaks: tuple[SurfaceFault, ...]
    parts: int  # How many parts of the surface do not touch
    # Whether triangles that meet face the same way, so that crossings tell how often a point is
    # inside.
    oriented: bool


def make_surface(
    corners: ArrayLike,
    groups: ArrayLike,
    names: tuple[str, ...],
    tolerance: float | None = None,
    file: str = "",
    unit: LengthUnit = METRE,
) -> Surface:
    """Build a surface from triangles that do not know their neighbours.

    `corners`: positions in m, shape (triangles, 3, 3): triangle, corner, component; `groups`: group
    of each triangle, shape (triangles,).
    """
    # Points closer than the tolerance become one, triangles that collapse by that are dropped,
    # those that face another way than most of their part are turned, and all if the surface
    # encloses a negative volume.
    corners = np.asarray(corners, np.float64)
    groups = np.asarray(groups, np.int32)
    points, triangles = merged(corners.reshape(-1, 3), tolerance)
    triangles = triangles.reshape(-1, 3)
    a, b, c = triangles.T
    whole = (a != b) & (b != c) & (c != a)
    notices = []
    if not whole.all():
        lost = int((~whole).sum())
        notices.append(
            f"dropped {counted(lost, 'triangle')} with coinciding corners, the first at "
            f"{unit.place(corners[~whole][0, 0])}"
        )
    surface = Surface(
        points, triangles[whole].astype(np.int32), groups[whole], names, file=file, unit=unit
    )
    if not len(surface.triangles):
        raise InputError(
            "no triangle has an area", location=surface.location, remedy="give a closed surface"
        )
    surface, turned = _oriented(surface)
    notices += turned
    if surface.volume < 0:
        notices.append("turned all triangles: they faced inward")
        surface = replace(surface, triangles=np.ascontiguousarray(surface.triangles[:, ::-1]))
    return replace(surface, notices=tuple(notices))


def _oriented(surface: Surface) -> tuple[Surface, list[str]]:
    """Turn the triangles that face another way than most of their part, and report it."""
    areas = np.linalg.norm(surface.normals, axis=1)
    facing = orientation(surface.triangles.astype(np.int64), areas, len(surface.points))
    if facing.twisted is not None:
        place = surface.unit.place(surface.corners[facing.twisted].mean(axis=0))
        raise InputError(
            f"a part at {place} has only one side, like a Moebius strip: its triangles cannot all face outward",
            location=surface.location,
            remedy="remesh the surface there",
        )
    if not facing.turned.any():
        return surface, []
    count = int(facing.turned.sum())
    place = surface.unit.place(surface.corners[facing.turned.argmax()].mean(axis=0))
    triangles = surface.triangles.copy()
    triangles[facing.turned] = triangles[facing.turned, ::-1]
    surface = replace(surface, triangles=triangles)
    volume = abs(surface.volume) / surface.unit.metres**3
    return surface, [
        f"{surface.location}: turned {count} of {counted(len(triangles), 'triangle')} that faced opposite to "
        f"their neighbours, the first at {place}; the surface encloses {volume:.6g} {surface.unit.name}^3"
    ]


def merged(points: Floats, tolerance: float | None = None) -> tuple[Floats, Integers]:
    """Make one of points that lie together.

    `points`: shape (n, 3); Returns: the points left, shape (m, 3), and which of them each given
    point became, shape (n,).
    """
    if not len(points):
        return points, np.empty(0, np.int64)
    # Adding 0 makes -0 equal to 0 in every bit.
    rows = np.ascontiguousarray(points + 0.0)
    _, first, exact = np.unique(
        rows.view(np.dtype((np.void, 24))).ravel(), return_index=True, return_inverse=True
    )
    distinct = points[first]
    if tolerance is None:
        tolerance = MERGE_TOLERANCE * float(np.linalg.norm(np.ptp(distinct, axis=0)))
    if tolerance <= 0:
        return distinct, exact.reshape(-1)
    one, other = _close_pairs(distinct, tolerance)
    part = connected_parts(len(distinct), one, other)
    keep = np.unique(part, return_index=True)[1]
    return distinct[keep], part[exact.reshape(-1)]


def _close_pairs(points: Floats, distance: float) -> tuple[Integers, Integers]:
    """Pairs of points within a distance: each is looked for in the cells around its own."""
    cells = np.floor((points - points.min(axis=0)) / distance).astype(np.int64)
    hashes = _mix(cells)
    order = np.argsort(hashes, kind="stable")
    keys = hashes[order]
    first_triangles, second_triangles = [], []
    for shift in np.ndindex(3, 3, 3):
        wanted = _mix(cells + (np.array(shift) - 1))
        begin, end = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        one, number = spread(end - begin)
        other = order[begin[one] + number]
        near = (one < other) & (((points[one] - points[other]) ** 2).sum(axis=1) <= distance**2)
        first_triangles.append(one[near])
        second_triangles.append(other[near])
    return np.concatenate(first_triangles), np.concatenate(second_triangles)


def _mix(cells: Integers) -> NDArray[np.uint64]:
    """Hash of cells; that two cells share one costs time only."""
    x, y, z = cells.astype(np.uint64).T
    return np.asarray(
        x * np.uint64(0x9E3779B97F4A7C15)
        ^ y * np.uint64(0xC2B2AE3D27D4EB4F)
        ^ z * np.uint64(0x165667B19E3779F9)
    )


def check(surface: Surface) -> SurfaceCheck:
    """Find the faults that keep a surface from enclosing a volume."""
    triangles = surface.triangles.astype(np.int64)
    count = len(surface.points)
    tail, head, key = edges_of(triangles, count)
    edges, inverse, met = np.unique(key, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    middle = surface.points[np.stack([edges // count, edges % count])].mean(axis=0)

    def described(bad: NDArray[np.bool_], problem: str, remedy: str) -> list[SurfaceFault]:
        if not bad.any():
            return []
        place = surface.unit.place(middle[bad.argmax()])
        edge_count = counted(bad.sum(), "edge")
        return [SurfaceFault(f"{edge_count} {problem}, the first at {place}", remedy)]

    remedy = "close the holes with a mesh repair tool"
    if (met == 1).any():
        remedy += _loops(surface, np.stack([edges // count, edges % count], axis=1)[met == 1])
    leaks = described(met == 1, "with a triangle on one side only", remedy)
    leaks += described(
        (met > 2) & (met % 2 == 1),
        "met by an odd number of triangles",
        "remove inner or duplicate sheets",
    )
    faults = described(
        (met > 2) & (met % 2 == 0),
        "met by four or more triangles",
        "separate the parts that touch there",
    )
    balance = np.bincount(inverse, np.where(tail < head, 1.0, -1.0), len(edges))
    faults += described(
        (balance != 0) & (met == 2),
        "between triangles that face opposite ways",
        "orient all triangles outward",
    )
    corners = surface.corners
    sides = np.linalg.norm(corners - np.roll(corners, -1, axis=1), axis=2).max(axis=1)
    flat = 2 * np.linalg.norm(surface.normals, axis=1) <= _FLATTEST * sides**2
    if flat.any():
        place = surface.unit.place(corners[flat.argmax()].mean(axis=0))
        faults.append(
            SurfaceFault(
                f"{counted(flat.sum(), 'triangle')} without area, the first at {place}",
                "remesh the surface there",
            )
        )
    part = connected_parts(count, tail, head)
    parts = int((np.bincount(part[tail]) > 0).sum())
    oriented = not leaks and not balance.any()
    return SurfaceCheck((*leaks, *faults), tuple(leaks), parts, oriented)


def _loops(surface: Surface, edges: Integers) -> str:
    """Where open edges lie: around holes or open ends, the longest loop first."""
    part = connected_parts(len(surface.points), edges[:, 0], edges[:, 1])
    loops, loop = np.unique(part[edges[:, 0]], return_inverse=True)
    ends = surface.points[edges]
    lengths = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    around = np.bincount(loop, lengths, len(loops))
    texts = []
    for number in np.argsort(-around, kind="stable")[:_MOST_LOOPS]:
        middle = np.average(
            ends[loop == number].mean(axis=1), axis=0, weights=lengths[loop == number]
        )
        # Without what rounding makes of 0.
        middle = np.where(np.abs(middle) < MERGE_TOLERANCE * around[number], 0.0, middle)
        width = surface.unit.length(float(f"{around[number] / np.pi:.3g}"))
        texts.append(f"{width} wide at {surface.unit.place(middle)}")
    more = f" and {len(loops) - _MOST_LOOPS} more" if len(loops) > _MOST_LOOPS else ""
    return f", in {counted(len(loops), 'place')}: {', '.join(texts)}{more}"


def require_closed(surface: Surface) -> None:
    """Refuse a surface that leaks."""
    leaks = check(surface).leaks
    if leaks:
        raise InputError(
            f"it leaks: {', and '.join(leak.problem for leak in leaks)}",
            location=surface.location,
            remedy="; ".join(leak.remedy for leak in leaks),
        )


def require_ends(surface: Surface, names: Sequence[str]) -> None:
    """Refuse as openings groups that go around a vessel, as its wall does, instead of across it."""
    for name in names:
        if _flatness(surface, name) >= _FLAT_MEANT:
            continue
        flat = [other for other in surface.names if _flatness(surface, other) >= _FLAT]
        if len(flat) > _MOST_NAMED:
            flat = [*flat[:_MOST_NAMED], "..."]
        raise InputError(
            f"this group of the {surface.location} is not a flat end of a vessel: its triangles face in many "
            "directions",
            location=f"opening '{name}'",
            allowed=f"flat groups: {', '.join(flat) or 'this surface has none'}",
            remedy=(
                "give one of these groups"
                if flat
                else "save the surface with a group for each flat end"
            )
            + ", or give a position and a normal of a plane that cuts the vessel",
        )


def _flatness(surface: Surface, name: str) -> float:
    """Length of the sum of a group's normals over its area: 1 where it is flat, 0 where it is closed."""
    normals = surface.normals[surface.group(name)]
    area = float(np.linalg.norm(normals, axis=1).sum())
    return float(np.linalg.norm(normals.sum(axis=0))) / area if area > 0.0 else 0.0


# Polygons

# Twice the area of three corners on a line, over the square of the side between the outer two.
_STRAIGHT = 1e-7


def in_plane(places: Floats, normal: Floats) -> Floats:
    """Coordinates (n, 2) of places (n, 3) across a normal of length 1, counter-clockwise seen from its tip."""
    one = np.cross(normal, np.eye(3)[np.abs(normal).argmin()])
    one /= np.linalg.norm(one)
    return np.asarray(places @ np.stack([one, np.cross(normal, one)], axis=1))


def mended_fans(points: Floats, triangles: Integers, polygon: Integers) -> Integers:
    """Triangles of polygons, from fans around their first corners: those of polygons that are not convex anew.

    `triangles`: of the fans, (n, 3); `polygon`: number of the polygon of each, ascending from 0, (n,).
    """
    if not len(polygon) or polygon[-1] + 1 == len(polygon):
        return triangles
    a, b, c = np.moveaxis(points[triangles], 1, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        normals = np.cross(b - a, c - a)
        count = int(polygon[-1]) + 1
        whole = np.stack([np.bincount(polygon, axis, count) for axis in normals.T], axis=1)
        sides = np.maximum(((b - a) ** 2).sum(axis=1), ((c - a) ** 2).sum(axis=1))
        size = np.linalg.norm(whole, axis=1)[polygon]
        turned = np.einsum("ij,ij->i", normals, whole[polygon]) < _STRAIGHT * sides * size
    several = np.bincount(polygon)[polygon] > 1
    result = triangles.copy()
    for number in np.unique(polygon[turned & several & (size > 0)]):
        fan = np.flatnonzero(polygon == number)
        loop = np.concatenate([triangles[fan[0]], triangles[fan[1:], 2]])
        normal = whole[number] / np.linalg.norm(whole[number])
        ears = clipped_ears(in_plane(points[loop] - points[loop].mean(axis=0), normal))
        if ears is not None:
            result[fan] = loop[ears]
    return result


def flat_triangles(points: Floats, triangles: Integers) -> NDArray[np.bool_]:
    """Which triangles (n, 3) of points in a plane are turned over, or have no area."""
    corners = points[triangles]
    sides = ((corners - np.roll(corners, 1, axis=1)) ** 2).sum(axis=2).max(axis=1)
    return np.asarray(_turn(*np.moveaxis(corners, 1, 0)) <= _STRAIGHT * sides)


def clipped_ears(polygon: Floats) -> Integers | None:
    """Triangles (n - 2, 3) of a counter-clockwise polygon (n, 2); None where it crosses itself.

    The ear with the shortest third side goes first (G. H. Meisters, Am. Math. Mon. 82 (1975) 648).
    """
    ring = np.arange(len(polygon))
    ears = []
    while len(ring) > 3:
        before, after = polygon[np.roll(ring, 1)], polygon[np.roll(ring, -1)]
        here = polygon[ring]
        turn = _turn(before, here, after)
        third = ((after - before) ** 2).sum(axis=1)
        # First without corners that are on a line but for rounding: their ears have no area.
        at = _ear(polygon, ring, turn, third, _STRAIGHT * third)
        if at is None:
            at = _ear(polygon, ring, turn, third, np.zeros(len(ring)))
        if at is None:
            return None
        ears.append(np.array([ring[at - 1], ring[at], ring[(at + 1) % len(ring)]]))
        ring = np.delete(ring, at)
    ears.append(ring)
    return np.array(ears) if _turn(*polygon[ring]) > 0 else None


def _ear(
    polygon: Floats, ring: Integers, turn: Floats, third: Floats, straight: Floats
) -> int | None:
    """Place in a ring of the ear with the shortest third side; `straight`: turns of corners that are none."""
    reflex = ring[turn <= straight]
    for at in np.argsort(third, kind="stable"):
        if turn[at] <= straight[at]:
            continue
        ear = np.array([ring[at - 1], ring[at], ring[(at + 1) % len(ring)]])
        others = polygon[reflex[~np.isin(reflex, ear)]]
        a, b, c = polygon[ear]
        inside = (_turn(a, b, others) >= 0) & (_turn(b, c, others) >= 0)
        if not (inside & (_turn(c, a, others) >= 0)).any():
            return int(at)
    return None


def _turn(a: Floats, b: Floats, c: Floats) -> Floats:
    """Twice the area of triangles, positive where they are counter-clockwise."""
    ab, ac = b - a, c - a
    return np.asarray(ab[..., 0] * ac[..., 1] - ab[..., 1] * ac[..., 0])
