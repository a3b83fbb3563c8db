"""Openings of a closed surface: flat ends of vessels, and the triangles that remain as walls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.lattice_runs import Runs, raster
from haloscope.mesh.lattice.openings import ALONG, Opening
from haloscope.mesh.lattice.voxels import Lattice, inside_runs
from haloscope.mesh.surfaces.crossings import cut_by_plane
from haloscope.mesh.surfaces.surfaces import (
    Integers,
    Surface,
    connected_parts,
    edges_of,
    paired,
)

Floats = NDArray[np.float64]

# Cosine between normals of triangles of one plane, and length of the sum of a plane's normals over its area.
_COPLANAR, _FLAT = 1 - 1e-4, 0.9999
# 4 pi area over the square of the perimeter: 1 for a circle, 0.79 for a square; strips of a wall have less.
_LEAST_COMPACT = 0.6
# Mean cosine between the normal of an end and those of the wall around it: 1 within a wall.
_MOST_LEVEL = 0.5
_MERGED = 1e-9
# Heights, over the largest coordinate, of triangles that rounding to single precision turns by more than planes may
# differ.
_NARROW = 100 * 2.0**-23
# Share of its group's area from which on an end is its group.
_WHOLE_GROUP = 0.99
# Planes across a vessel on which its wall is looked at, in radii of the opening from its plane.
_PLANES = (0.3, 0.6, 0.9)
# Radii of the opening from its middle within which the wall is that of its vessel.
_NEAR = 2.0
# The least second moment of a wall's normals over the next: about 0 in a tube, 1 in a sphere's cap.
_MOST_ROUND = 0.25


@dataclass(frozen=True, eq=False)
class SurfaceEnd:
    """A flat end of a vessel."""

    group: str  # Name of the group that holds most of its area
    # Position in m, and the direction out of the vessel, of length 1.
    middle: Floats
    normal: Floats
    area: float  # In m^2
    triangles: Integers  # Its triangles, shape (n,)

    @property
    def diameter(self) -> float:
        """In m, of a circle of that area."""
        return 2 * math.sqrt(self.area / math.pi)

    def is_group(self, surface: Surface) -> bool:
        """Whether its group holds nothing else, so that the group's name can stand for it."""
        areas = np.linalg.norm(surface.normals[surface.group(self.group)], axis=1)
        return self.area >= _WHOLE_GROUP * float(areas.sum())


def flat_ends(surface: Surface) -> list[SurfaceEnd]:
    """Flat compact parts of a surface with sharp edges all around, the largest first."""
    triangles = surface.triangles.astype(np.int64)
    count, points = len(triangles), len(surface.points)
    areas = np.linalg.norm(surface.normals, axis=1)
    units = surface.normals / np.where(areas > 0, areas, 1.0)[:, None]
    tail, head, key = edges_of(triangles, points)
    one, other = paired(key)
    a, b = one // 3, other // 3
    units = units[_beside_narrow(surface, units, one, other)]
    cosine = np.einsum("ij,ij->i", units[a], units[b])
    within = cosine > _COPLANAR
    part = connected_parts(count, a[within], b[within])
    parts = int(part.max()) + 1
    area = np.bincount(part, areas, parts)
    normal = np.stack([np.bincount(part, n, parts) for n in surface.normals.T], axis=1)
    length = np.linalg.norm(surface.points[tail] - surface.points[head], axis=1)[one]
    edges = part[a] != part[b]
    perimeter, level = np.zeros(parts), np.zeros(parts)
    for side in (a, b):
        perimeter += np.bincount(part[side[edges]], length[edges], parts)
        level += np.bincount(part[side[edges]], (length * cosine)[edges], parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        compact = 4 * math.pi * area / perimeter**2
        ends = (
            (np.linalg.norm(normal, axis=1) >= _FLAT * area)
            & (compact >= _LEAST_COMPACT)
            & (level / perimeter <= _MOST_LEVEL)
            & (area > _MERGED * area.max())
        )
    corners = surface.corners.mean(axis=1)
    result = []
    for number in np.flatnonzero(ends)[np.argsort(-area[ends], kind="stable")]:
        own = np.flatnonzero(part == number)
        groups = np.bincount(surface.groups[own], areas[own], len(surface.names))
        middle = (areas[own, None] * corners[own]).sum(axis=0) / area[number]
        direction = normal[number] / np.linalg.norm(normal[number])
        group = surface.names[int(groups.argmax())]
        result.append(SurfaceEnd(group, middle, direction, float(area[number]), own))
    return result


def _beside_narrow(surface: Surface, units: Floats, one: Integers, other: Integers) -> Integers:
    """For narrow triangles within a plane, whose normals rounding turns, one beside them; else the triangle itself.

    `units`: normals of length 1; `one`, `other`: edges that two triangles share.
    """
    count = len(surface.triangles)
    sides = np.linalg.norm(np.roll(surface.corners, -1, axis=1) - surface.corners, axis=2)
    least = _NARROW * float(np.abs(surface.bounds).max())
    narrow = 2 * np.linalg.norm(surface.normals, axis=1) < least * sides.max(axis=1)
    across = np.full(3 * count, -1)
    across[one], across[other] = other // 3, one // 3
    # Across the longest side, and across the two others, of which one faces the same way: else they are at an edge.
    own = np.arange(count)
    order = np.argsort(-sides, axis=1, kind="stable")
    near = across[3 * own[:, None] + order]
    alike = np.einsum("ij,ikj->ik", units[near[:, 0]], units[near[:, 1:]]) > _COPLANAR
    within = narrow & (near[:, 0] >= 0) & (alike & (near[:, 1:] >= 0)).any(axis=1)
    return np.where(within, near[:, 0], own)


def wall_diameter(surface: Surface) -> float:
    """Four times the volume over the area, in m: the diameter of a long tube."""
    return 4 * abs(surface.volume) / float(np.linalg.norm(surface.normals, axis=1).sum())


def vessel_direction(
    surface: Surface, middle: Floats, normal: Floats, radius: float
) -> Floats | None:
    """Direction in which a vessel goes beside an opening; None where its wall does not tell.

    The normals of a tube's wall have no component along its axis: it is the direction of the least
    second moment of the normals around the vessel, on planes a little inside the opening.
    """
    # `middle`, `normal`, `radius`: of the opening; the normal, of length 1, points out of the
    # vessel. In m.
    areas = np.linalg.norm(surface.normals, axis=1)
    units = surface.normals / np.where(areas > 0, areas, 1.0)[:, None]
    moments = np.zeros((3, 3))
    for share in _PLANES:
        centre = middle - share * radius * normal
        height = (surface.corners - centre) @ normal
        crossed = np.flatnonzero((height.min(axis=1) < 0) & (height.max(axis=1) > 0))
        # A corner on the plane counts as inside.
        ends = cut_by_plane(surface.corners[crossed], -height[crossed], 0.0)
        length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
        distance = np.linalg.norm(ends.mean(axis=1) - centre, axis=1)
        near = distance < _NEAR * radius
        own = units[crossed[near]]
        moments += np.einsum("i,ij,ik->jk", length[near], own, own)
    values, vectors = np.linalg.eigh(moments)
    if not values[1] > 0 or values[0] > _MOST_ROUND * values[1]:
        return None
    direction: Floats = vectors[:, 0]
    return direction if direction @ normal >= 0 else -direction


# Spacings beyond an opening within which a cap is its own, and beyond joined ends within which a wall
# goes on: farther than walls are looked for.
_BEYOND = 8.0
# Before it, as an opening lies on the plane of points that is nearest to where it was asked for.
_BEFORE = 0.5 + 1e-6
# Of a triangle that lies on a plane of points: rounding must not put these outside.
_ON_PLANE = 1e-6


def walls_of(lattice: Lattice, surface: Surface) -> Surface:
    """The surface less the caps of openings and joined ends."""
    caps = np.isin(surface.groups, [surface.names.index(name) for name in surface.joined])
    for opening in lattice.openings:
        if opening.name in surface.names:
            caps |= surface.groups == surface.names.index(opening.name)
        elif isinstance(opening, Opening):
            caps[_caps(lattice, surface, opening)] = True
    if not caps.any():
        return surface
    return replace(surface, triangles=surface.triangles[~caps], groups=surface.groups[~caps])


def continued_walls(lattice: Lattice, surface: Surface) -> Surface:
    """The same with the walls of the next periods, near the joined ends."""
    walls = walls_of(lattice, surface)
    reach = _BEYOND * lattice.spacing
    points, triangles, groups = [walls.points], [walls.triangles], [walls.groups]
    for axis in np.flatnonzero(lattice.periodic) if surface.joined else ():
        length = lattice.shape[axis] * lattice.spacing
        low = lattice.origin[axis] - lattice.spacing / 2
        for sign in (-1, 1):
            corners = walls.corners[:, :, axis] + sign * length
            near = (corners.max(axis=1) > low - reach) & (
                corners.min(axis=1) < low + length + reach
            )
            shifted = walls.points.copy()
            shifted[:, axis] += sign * length
            triangles.append(walls.triangles[near] + sum(map(len, points)))
            points.append(shifted)
            groups.append(walls.groups[near])
    if len(points) == 1:
        return walls
    return replace(
        walls,
        points=np.concatenate(points),
        triangles=np.concatenate(triangles).astype(walls.triangles.dtype),
        groups=np.concatenate(groups),
    )


def _caps(lattice: Lattice, surface: Surface, opening: Opening) -> NDArray[np.int64]:
    """Triangles that close a vessel at an opening, or a little beyond it."""
    axis = opening.axis
    along = (surface.corners[:, :, axis] - lattice.origin[axis]) / lattice.spacing
    beyond = (along - opening.plane) * opening.direction
    normals = surface.normals
    faces = normals[:, axis] * opening.direction >= (1 - ALONG) * np.linalg.norm(normals, axis=1)
    near = (beyond.min(axis=1) >= -_BEFORE) & (beyond.max(axis=1) <= _BEYOND)
    chosen = np.flatnonzero(near & faces)
    middles = (surface.corners[chosen].mean(axis=1) - lattice.origin) / lattice.spacing
    pixels = np.floor(middles + 0.5).astype(np.int64)
    pixels[:, axis] = opening.plane
    hit = np.zeros(len(chosen), bool)
    if not len(chosen):
        return chosen
    shape = np.array(lattice.shape)
    # The first way out is the cap: behind a stretch that is outside lie walls of other limbs.
    steps_out = np.clip(np.floor(beyond[chosen].mean(axis=1) - _ON_PLANE), 0, None).astype(np.int64)
    planes = np.sort([opening.plane, opening.plane + opening.direction * int(steps_out.max())])
    low, high = (
        (pixels[:, 2].min() - 1, pixels[:, 2].max() + 2)
        if axis != 2
        else (planes[0], planes[1] + 1)
    )
    inside = inside_runs(surface, lattice.grid, *np.clip([low, high], 0, shape[2]).tolist())
    one, two = (other for other in range(3) if other != axis)
    # A triangle at the rim may have its middle next to the points of the opening.
    for steps in np.ndindex(3, 3):
        beside = pixels.copy()
        beside[:, [one, two]] += np.array(steps) - 1
        within = ((beside >= 0) & (beside < shape)).all(axis=1)
        hit |= (
            within
            & np.isin(raster(lattice.shape, beside), opening.numbers)
            & _all_inside(inside, beside, axis, opening.direction, steps_out)
        )
    return chosen[hit]


def _all_inside(
    inside: Runs, pixels: NDArray[np.int64], axis: int, direction: int, counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether so many points beyond each pixel lie inside; where the grid ends nothing is known, nor needed."""
    good = np.ones(len(pixels), bool)
    for step in range(1, int(counts.max(initial=0)) + 1):
        beyond = pixels.copy()
        beyond[:, axis] += direction * step
        known = (beyond[:, axis] >= 0) & (beyond[:, axis] < inside.shape[axis]) & (step <= counts)
        good[known] &= inside.contains(raster(inside.shape, beyond[known]))
    return good
