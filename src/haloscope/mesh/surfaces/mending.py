"""Mends a vessel's surface: closes holes, caps open ends flat, and makes each flat end a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.surfaces.crossings import cut_by_plane
from haloscope.mesh.surfaces.surface_openings import SurfaceEnd, flat_ends, vessel_direction
from haloscope.mesh.surfaces.surfaces import (
    LEVEL,
    Floats,
    Integers,
    Surface,
    clipped_ears,
    connected_parts,
    edges_of,
    flat_triangles,
    in_plane,
    make_surface,
)

# A loop of open edges is a hole, not an end, if its cap would continue the surface around it: by the
# mean cosine between their normals, 1 in a smooth wall and 0 at the end of a tube.
_LEVEL = 0.5
# Root mean square of the distances of an end's rim from its plane, over its diameter: above it the
# end is cut off.
_FLAT_RIM = 0.02
# Where an end is cut, in diameters from its rim; and how far a cut stays from points.
_CUT = 1.0
# From there to the planes on which the vessel's direction is looked at, in diameters.
_BESIDE = 0.25
_CLEAR = 1e-6
# Areas that differ by less count as equal: then the place gives the order.
_EQUAL_AREAS = 1e-3
# Of coordinates of their middles, over the diameter of the largest.
_EQUAL_PLACES = 1e-2
# Corners nearer to the plane of a section than this share of the sides that it cuts are moved into it.
_CLOSE = 0.02
# Length of the sum of all normals over the area, above which the triangles lie in a plane.
_ONE_PLANE = 0.999
_REPAIR = "close it with a mesh repair tool"


def mended(surface: Surface) -> Surface:
    """A surface without holes, whose open ends are capped flat; each repair is a notice.

    Flat ends that are only a part of their group become groups named cap-1, cap-2, ... by falling
    area.
    """
    notices = list(surface.notices)
    caps: list[str] = []
    loops = open_loops(surface)
    if loops:
        _require_several_faces(surface)
    for loop in sorted(loops, key=lambda loop: loop.is_end):
        if loop.is_end:
            surface, line, name = _capped(surface, loop)
            caps.append(name)
        else:
            surface, line = _closed(surface, loop)
        notices.append(f"{surface.location}: {line}")
    surface, renamed = _named(surface, caps)
    for old, new in renamed:
        if old in caps:
            notices = [line.replace(f"'{old}'", f"'{new}'") for line in notices]
    for old, new in renamed:
        if old not in caps:
            about = end_text(surface, _end_of(surface, new))
            line = f"a flat end of the group '{old}' is called '{new}': {about}"
            notices.append(f"{surface.location}: {line}")
    return replace(surface, notices=tuple(notices))


def _require_several_faces(surface: Surface) -> None:
    """Refuse one flat face, which no cap closes."""
    area = float(np.linalg.norm(surface.normals, axis=1).sum())
    if float(np.linalg.norm(surface.normals.sum(axis=0))) > _ONE_PLANE * area:
        raise InputError(
            "all its triangles lie in one plane: it is one face of a vessel",
            location=surface.location,
            remedy="give the file of the whole surface or of its walls, or a folder with a VTP file for each face",
        )


def end_text(surface: Surface, end: SurfaceEnd) -> str:
    """Diameter, place and direction of an end, in messages."""
    x, y, z = (0.0 if abs(part) < 5e-4 else part for part in end.normal)
    diameter = surface.unit.length(float(f"{end.diameter:.3g}"))
    scale = float(np.linalg.norm(np.ptp(surface.points, axis=0)))
    middle = np.where(np.abs(end.middle) < 1e-6 * scale, 0.0, end.middle)
    return f"{diameter} wide at {surface.unit.place(middle)}, facing ({x:.3f}, {y:.3f}, {z:.3f})"


def surface_ends(surface: Surface) -> list[SurfaceEnd]:
    """Flat ends, the largest first; of equal ones those at smaller x, y, z."""
    return ends_in_order(flat_ends(surface))


def ends_in_order(ends: Sequence[SurfaceEnd]) -> list[SurfaceEnd]:
    """Ends, the largest first; of equal ones those at smaller x, y, z."""
    # Coordinates that are equal but for rounding must not decide: they differ with the unit of the file.
    unit = _EQUAL_PLACES * max((end.diameter for end in ends), default=0.0)
    falling = sorted(ends, key=lambda end: -end.area)
    result: list[SurfaceEnd] = []
    while falling:
        alike = [end for end in falling if end.area >= falling[0].area * (1 - _EQUAL_AREAS)]
        result += sorted(alike, key=lambda end: tuple(np.rint(end.middle / unit).tolist()))
        falling = falling[len(alike) :]
    return result


@dataclass(frozen=True, eq=False)
class Loop:
    """A closed line of edges that have a triangle on one side only."""

    points: Integers  # In the order in which a cap has them, seen from outside
    middle: Floats  # Position in m
    normal: Floats  # Of the plane next to its points, out of the vessel
    diameter: float  # In m, of a circle of its area
    roughness: float  # Root mean square of its points' distances from the plane, in m
    is_end: bool  # Whether it is the open end of a vessel, not a hole in its wall
    group: int  # Group of most of the triangles around it


def open_loops(surface: Surface) -> list[Loop]:
    """Loops of open edges, in the order of their first points."""
    tail, head, key = edges_of(surface.triangles.astype(np.int64), len(surface.points))
    _, inverse, met = np.unique(key, return_inverse=True, return_counts=True)
    open_edges = np.flatnonzero(met[inverse.reshape(-1)] == 1)
    # A cap has the edges the other way round.
    begins, ends = head[open_edges], tail[open_edges]
    order = np.argsort(begins, kind="stable")
    begins, ends, triangle = begins[order], ends[order], open_edges[order] // 3
    twice = np.flatnonzero(np.diff(begins) == 0)
    if len(twice) or len(np.unique(ends)) != len(ends):
        at = begins[twice[0]] if len(twice) else ends[0]
        raise InputError(
            f"holes touch at {surface.unit.place(surface.points[at])}",
            location=surface.location,
            remedy=f"{_REPAIR}, or remesh the surface there",
        )
    following = np.searchsorted(begins, ends)
    unseen = np.ones(len(begins), bool)
    loops = []
    for first in range(len(begins)):
        if not unseen[first]:
            continue
        members = [first]
        while (new := int(following[members[-1]])) != first:
            members.append(new)
        unseen[members] = False
        loops.append(_loop(surface, begins[members], triangle[members]))
    return loops


def _loop(surface: Surface, points: Integers, triangles: Integers) -> Loop:
    places = surface.points[points]
    middle = places.mean(axis=0)
    spokes = places - middle
    after = np.roll(spokes, -1, axis=0)
    area = np.cross(spokes, after).sum(axis=0) / 2
    normal = np.linalg.svd(spokes)[2][2]
    normal = normal if normal @ area >= 0 else -normal
    lengths = np.linalg.norm(after - spokes, axis=1)
    around = surface.normals[triangles]
    sizes = np.linalg.norm(around, axis=1)
    around = around / np.where(sizes > 0, sizes, 1.0)[:, None]
    level = float(lengths @ (around @ normal)) / (float(lengths.sum()) or 1.0)
    return Loop(
        points,
        middle,
        normal,
        2 * math.sqrt(float(np.linalg.norm(area)) / math.pi),
        float(np.sqrt(np.mean((spokes @ normal) ** 2))),
        level < _LEVEL,
        int(np.bincount(surface.groups[triangles]).argmax()),
    )


def _closed(surface: Surface, loop: Loop) -> tuple[Surface, str]:
    """The surface with a hole filled, and its notice."""
    width, place = _sizes(surface, loop)
    filled = _filled(surface, loop, loop.group)
    if filled is None:
        raise InputError(
            f"a hole {width} wide at {place} is too crooked to be closed",
            location=surface.location,
            remedy=_REPAIR,
        )
    edges = counted(len(loop.points), "open edge")
    return filled, f"closed a hole of {edges}, {width} wide, at {place}"


def _capped(surface: Surface, loop: Loop) -> tuple[Surface, str, str]:
    """The surface with an end capped flat, its notice, and the name of the cap's group for now."""
    width, place = _sizes(surface, loop)
    cut = ""
    if loop.roughness > _FLAT_RIM * loop.diameter:
        surface, loop = _cut_flat(surface, loop)
        cut = (
            f", cut off {surface.unit.length(float(f'{loop.diameter:.3g}'))} before its uneven rim"
        )
    surface, moved = _levelled(surface, loop)
    if moved:
        cut += f", its rim moved by up to {surface.unit.length(float(f'{moved:.2g}'))} into a plane"
    name = _free_name(surface.names, "open end")
    capped = _filled(replace(surface, names=(*surface.names, name)), loop, len(surface.names))
    if capped is None:
        raise InputError(
            f"an open end {width} wide at {place} has a crooked rim that cannot be capped flat",
            location=surface.location,
            remedy="cut it flat, or close it with a mesh repair tool",
        )
    return capped, f"capped an open end '{name}' flat, {width} wide, at {place}{cut}", name


def _levelled(surface: Surface, loop: Loop) -> tuple[Surface, float]:
    """The surface with a rim moved into its plane, and how far at most in m; 0 where it is in it."""
    height = (surface.points[loop.points] - loop.middle) @ loop.normal
    most = float(np.abs(height).max())
    if most <= LEVEL / 2 * loop.diameter:
        return surface, 0.0
    points = surface.points.copy()
    points[loop.points] -= height[:, None] * loop.normal
    return replace(surface, points=points), most


def _sizes(surface: Surface, loop: Loop) -> tuple[str, str]:
    scale = float(np.linalg.norm(np.ptp(surface.points, axis=0)))
    middle = np.where(np.abs(loop.middle) < 1e-6 * scale, 0.0, loop.middle)
    return surface.unit.length(float(f"{loop.diameter:.3g}")), surface.unit.place(middle)


def _filled(surface: Surface, loop: Loop, group: int) -> Surface | None:
    """The surface with triangles over a loop; None if the loop crosses itself seen along its normal."""
    places = surface.points[loop.points]
    flat = in_plane(places - loop.middle, loop.normal)
    ears = clipped_ears(flat)
    points, rim = surface.points, loop.points
    if ears is None or flat_triangles(flat, ears).any():
        # Sides of a section can lie on a line; then triangles around its middle are sounder.
        fan = np.stack(
            [np.arange(len(rim)), np.roll(np.arange(len(rim)), -1), np.full(len(rim), len(rim))],
            axis=1,
        )
        around = np.concatenate([flat, flat.mean(axis=0)[None]])
        if not flat_triangles(around, fan).any():
            ears = fan
            points = np.concatenate([points, places.mean(axis=0)[None]])
            rim = np.append(rim, len(surface.points))
    if ears is None:
        return None
    triangles = rim[ears].astype(surface.triangles.dtype)
    return replace(
        surface,
        points=points,
        triangles=np.concatenate([surface.triangles, triangles]),
        groups=np.concatenate([surface.groups, np.full(len(ears), group, surface.groups.dtype)]),
    )


def _cut_flat(surface: Surface, loop: Loop) -> tuple[Surface, Loop]:
    """The surface cut off a diameter before an uneven end, and the new end."""
    scale = loop.diameter
    base = loop.middle - _CUT * scale * loop.normal
    # Across the vessel there: the plane next to an uneven rim may be askew.
    normal = vessel_direction(surface, base + _BESIDE * scale * loop.normal, loop.normal, scale / 2)
    normal = loop.normal if normal is None else normal
    height = _heights(surface, base, normal, scale)
    if (height[loop.points] <= 0).any():
        raise _cannot_cut(surface, loop)
    surface, ends = _cut_off(surface, height, normal, loop.points)
    if len(ends) != 1 or ends[0].roughness > _FLAT_RIM * scale:
        raise _cannot_cut(surface, loop)
    return surface, ends[0]


def _heights(surface: Surface, base: Floats, normal: Floats, scale: float) -> Floats:
    """Distances of points beyond a plane, moved a little where one is on it: no triangle is to have no area."""
    height = (surface.points - base) @ normal
    while (np.abs(height) < _CLEAR * scale).any():
        height += 2 * _CLEAR * scale
    return np.asarray(height)


def _cut_off(
    surface: Surface, height: Floats, normal: Floats, start: Integers
) -> tuple[Surface, list[Loop]]:
    """The surface without what is connected with points beyond a plane, and its new loops.

    `height`: of its points beyond the plane; `normal`: of length 1.
    """
    triangles = surface.triangles.astype(np.int64)
    removed_points = _reached(triangles, start, height > 0)
    removed = removed_points[triangles]
    count = removed.sum(axis=1)
    # Turned so that the corner that is alone on its side comes first.
    mixed = (count == 1) | (count == 2)
    alone = np.where(count == 1, removed.argmax(axis=1), (~removed).argmax(axis=1))[mixed]
    turned = triangles[mixed][np.arange(len(alone))[:, None], (alone[:, None] + np.arange(3)) % 3]
    ends = np.stack([turned[:, [0, 1]], turned[:, [0, 2]]], axis=1)
    pairs, new = np.unique(np.sort(ends.reshape(-1, 2), axis=1), axis=0, return_inverse=True)
    new = new.reshape(-1, 2) + len(surface.points)
    low, high = height[pairs].T
    share = (low / (low - high))[:, None]
    points = surface.points[pairs[:, 0]] + share * np.diff(surface.points[pairs], axis=1)[:, 0]
    points, same = _joined(surface, pairs, points, height, removed_points, normal)
    one_kept = count[mixed] == 2
    tip, left, right = turned.T
    parts = [
        np.stack([tip, new[:, 0], new[:, 1]], axis=1)[one_kept],
        np.stack([new[:, 0], left, right], axis=1)[~one_kept],
        np.stack([new[:, 0], right, new[:, 1]], axis=1)[~one_kept],
    ]
    own = np.flatnonzero(mixed)
    before = {loop.points.min() for loop in open_loops(surface)}
    groups = surface.groups
    cut = same[np.concatenate([triangles[count == 0], *parts])]
    left_over = [groups[own[one_kept]], *[groups[own[~one_kept]]] * 2]
    whole = (cut != np.roll(cut, 1, axis=1)).all(axis=1)
    surface = replace(
        surface,
        points=points,
        triangles=cut[whole].astype(surface.triangles.dtype),
        groups=np.concatenate([groups[count == 0], *left_over])[whole],
    )
    return surface, [one for one in open_loops(surface) if one.points.min() not in before]


def _joined(
    surface: Surface,
    pairs: Integers,
    new: Floats,
    height: Floats,
    removed: NDArray[np.bool_],
    normal: Floats,
) -> tuple[Floats, Integers]:
    """All points with those of a section behind them, and which of them each became.

    Points of the section on sides (between pairs) of a corner that is close to its plane are joined where that
    corner meets the plane, and with the corner if it stays.
    """
    old = surface.points
    sides = np.linalg.norm(old[pairs[:, 1]] - old[pairs[:, 0]], axis=1)
    least = _CLOSE * float(np.median(sides))
    away = np.abs(height[pairs])
    nearest = away.argmin(axis=1)
    numbers = np.arange(len(new))
    close = away[numbers, nearest] <= least
    corners, member = np.unique(pairs[numbers, nearest][close], return_inverse=True)
    # Corners as close to each other are one, too: the first that stays, or the first.
    place = np.full(len(old), -1)
    place[corners] = np.arange(len(corners))
    tail, head, _ = edges_of(surface.triangles.astype(np.int64), len(old))
    both = (place[tail] >= 0) & (place[head] >= 0)
    tail, head = tail[both], head[both]
    short = np.linalg.norm(old[tail] - old[head], axis=1) <= least
    part = connected_parts(len(corners), place[tail[short]], place[head[short]])
    order = np.lexsort((corners, removed[corners], part))
    first = order[np.unique(part[order], return_index=True)[1]][part]
    points = np.concatenate([old, new])
    same = np.arange(len(points))
    # A corner that goes leaves the first point of the section on its sides in its place.
    stand_in = np.full(len(corners), len(points))
    np.minimum.at(stand_in, member, len(old) + numbers[close])
    stand_in = np.where(removed[corners], stand_in, corners)
    target = stand_in[first]
    same[len(old) + numbers[close]] = target[member]
    same[corners] = np.where(removed[corners], corners, target)
    points[target] = (old[corners] - height[corners, None] * normal)[first]
    return points, same


def opened(surface: Surface, name: str, point: Floats, normal: Floats) -> Surface:
    """Cut a vessel by a plane at a point, and cap it there with a group of that name.

    `point`, `normal`: in m, and out of the vessel; what lies beyond the plane goes.
    """
    normal = normal / np.linalg.norm(normal)
    triangles = surface.triangles.astype(np.int64)
    scale = float(np.linalg.norm(np.ptp(surface.points, axis=0)))
    height = _heights(surface, point, normal, _CLEAR * scale)
    beyond = height[triangles] > 0
    crossed = np.flatnonzero(beyond.any(axis=1) & ~beyond.all(axis=1))
    location = f"opening '{name}'"
    at = surface.unit.place(point)
    if not len(crossed):
        raise InputError(
            f"its plane at {at} does not meet the {surface.location}",
            location=location,
            remedy="move it into the vessel",
        )
    # Of the sections that the plane makes the one around the point, or next to it.
    part = connected_parts(
        len(surface.points),
        triangles[crossed][:, [0, 1]].ravel(),
        triangles[crossed][:, [1, 2]].ravel(),
    )[triangles[crossed, 0]]
    lines = cut_by_plane(surface.corners[crossed], height[triangles[crossed]], 0.0)
    distances = np.linalg.norm(lines.mean(axis=1) - point, axis=1)
    section = np.unique(part)
    nearest = section[np.argmin([distances[part == number].mean() for number in section])]
    own = crossed[part == nearest]
    start = np.unique(triangles[own][beyond[own]])
    cut, loops = _cut_off(surface, height, normal, start)
    if len(loops) != 1:
        raise InputError(
            f"its plane at {at} cuts the vessel {len(loops)} times"
            if loops
            else "it cuts nothing off",
            location=location,
            remedy="move it, or turn its normal, so that it cuts one branch across",
        )
    whole = _filled(replace(cut, names=(*cut.names, name)), loops[0], len(cut.names))
    if whole is None:
        raise InputError(
            f"its section at {at} crosses itself",
            location=location,
            remedy="move it, or turn its normal",
        )
    # Groups that went with what was cut off have no triangles left.
    return whole


def end_at(surface: Surface, point: Floats) -> SurfaceEnd | None:
    """The flat end whose middle is nearest to a point, if the point is within its radius."""
    ends = surface_ends(surface)
    if not ends:
        return None
    nearest = min(ends, key=lambda end: float(np.linalg.norm(end.middle - point)))
    return nearest if np.linalg.norm(nearest.middle - point) <= nearest.diameter / 2 else None


def _cannot_cut(surface: Surface, loop: Loop) -> InputError:
    width, place = _sizes(surface, loop)
    return InputError(
        f"the open end {width} wide at {place} has an uneven rim and cannot be cut flat a diameter before it",
        location=surface.location,
        remedy="cut the vessel flat across its axis",
    )


def _reached(triangles: Integers, start: Integers, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Points connected with `start` by edges between allowed points."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    count = len(allowed)
    tail, head, _ = edges_of(triangles, count)
    both = allowed[tail] & allowed[head]
    # A node beside all points of the start.
    rows = np.concatenate([tail[both], np.full(len(start), count)])
    columns = np.concatenate([head[both], start])
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (count + 1, count + 1))
    order = breadth_first_order(graph.tocsr(), count, directed=False, return_predecessors=False)
    reached = np.zeros(count + 1, bool)
    reached[order] = True
    return reached[:count]


def with_end(surface: Surface, end: SurfaceEnd, name: str) -> Surface:
    """A surface one of whose flat ends is a group of its own with a name."""
    if end.group == name:
        return surface
    names = surface.names if name in surface.names else (*surface.names, name)
    groups = surface.groups.copy()
    groups[end.triangles] = names.index(name)
    return replace(surface, groups=groups, names=names)


def _free_name(names: Sequence[str], stem: str) -> str:
    number = 1
    while f"{stem}-{number}" in names:
        number += 1
    return f"{stem}-{number}"


def _named(surface: Surface, caps: Sequence[str]) -> tuple[Surface, list[tuple[str, str]]]:
    """Give caps and flat ends within larger groups groups of their own, and list old and new names."""
    parts = [
        end for end in flat_ends(surface) if end.group not in caps and not end.is_group(surface)
    ]
    parts += [_end_of(surface, name) for name in caps]
    kept = [name for name in surface.names if name not in caps]
    names = list(kept)
    groups = np.array([kept.index(n) if n in kept else -1 for n in surface.names])[surface.groups]
    renamed = []
    for end in ends_in_order(parts):
        name = _free_name(names, "cap")
        groups[end.triangles] = len(names)
        names.append(name)
        renamed.append((end.group, name))
    return replace(surface, groups=groups.astype(np.int32), names=tuple(names)), renamed


def _end_of(surface: Surface, group: str) -> SurfaceEnd:
    """A group as an end."""
    own = surface.group(group)
    normals = surface.normals[own]
    areas = np.linalg.norm(normals, axis=1)
    middle = areas @ surface.corners[own].mean(axis=1) / areas.sum()
    normal = normals.sum(axis=0)
    area = float(np.linalg.norm(normal))
    return SurfaceEnd(group, middle, normal / area, area, own)


def extended(surface: Surface, radii: float) -> Surface:
    """Lengthen a vessel along the normals of its flat ends by so many radii of each."""
    if not radii:
        return surface
    corners, groups = [surface.corners.copy()], [surface.groups]
    for end in surface_ends(surface):
        own = end.triangles
        shift = radii * end.diameter / 2 * end.normal
        triangles = surface.triangles.astype(np.int64)
        tail, head, key = edges_of(triangles[own], len(surface.points))
        _, inverse, met = np.unique(key, return_inverse=True, return_counts=True)
        rim = met[inverse.reshape(-1)] == 1
        low, high = surface.points[tail[rim]], surface.points[head[rim]]
        corners[0][own] += shift
        corners.append(np.stack([low, high, high + shift], axis=1))
        corners.append(np.stack([low, high + shift, low + shift], axis=1))
        beside = _group_beside(surface, own, key[rim])
        groups += [beside, beside]
    result = make_surface(
        np.concatenate(corners),
        np.concatenate(groups),
        surface.names,
        file=surface.file,
        unit=surface.unit,
    )
    return replace(result, notices=(*surface.notices, *result.notices))


def _group_beside(surface: Surface, own: Integers, keys: Integers) -> NDArray[np.int32]:
    """Groups of the triangles on the other side of edges of an end."""
    others = np.setdiff1d(np.arange(len(surface.triangles)), own)
    _, _, key = edges_of(surface.triangles[others].astype(np.int64), len(surface.points))
    order = np.argsort(key, kind="stable")
    return surface.groups[others[order[np.searchsorted(key[order], keys)] // 3]]
