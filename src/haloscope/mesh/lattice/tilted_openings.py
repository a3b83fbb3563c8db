"""Openings of a lattice on planes askew to the axes: the links that a flat end of the surface cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.lattice.lattice_runs import Runs, raster, unraster
from haloscope.mesh.lattice.link_crossings import first_crossings
from haloscope.mesh.lattice.shapes import Grid
from haloscope.mesh.surfaces.surfaces import Surface, edges_of, level_triangles

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A normal's components beside an axis, over its length, below which it is along the axis.
_ALONG = 1e-3
# Of an end: cosine between its normal and those of its triangles.
_FLAT = 1 - 0.5e-4
# A group is meant to be an end if the sum of its normals has this share of its area.
_MEANT = 0.5
# Spacings around an end in which its points are looked for.
_AROUND = 2
# Of a link: what rounding may put beside its ends or a triangle's sides.
_ROUNDING = 1e-9

# Links to the 18 nearest neighbours, of length 1 and sqrt(2).
_LINKS = np.array([c for c in np.ndindex(3, 3, 3) if 1 <= sum(abs(a - 1) for a in c) <= 2]) - 1


@dataclass(frozen=True, eq=False)
class TiltedOpening:
    """An opening at a flat end of a surface whose normal is along no axis."""

    name: str  # Of the surface's group
    middle: Floats  # Position in m, (3,)
    normal: Floats  # Out of the vessel, of length 1, (3,)
    size: float  # Area in m^2
    corners: Floats  # Of the triangles of the end in m, (triangles, 3, 3)
    sides: Floats  # Of its outline in m, around the normal, (sides, 2, 3)
    numbers: Integers  # Raster numbers of points with links through it, ascending
    # Links through it by the raster numbers of their points, ascending, and where they go: (links,),
    # (links, 3) in spacings.
    points: Integers
    links: NDArray[np.int8]

    def heights(self, positions: Floats) -> Floats:
        """How far positions (..., 3) in m lie beyond its plane, in m."""
        # Term by term: the sum is the same however many there are.
        parts = [(positions[..., a] - self.middle[a]) * self.normal[a] for a in range(3)]
        return np.asarray(parts[0] + parts[1] + parts[2])

    def is_beside(self, positions: Floats, margin: float) -> NDArray[np.bool_]:
        """Whether positions (..., 3), seen along the normal, lie within its reach and a margin, in m."""
        reach = float(np.linalg.norm(self.sides - self.middle, axis=2).max()) + margin
        squares = ((positions - self.middle) ** 2).sum(axis=-1) - self.heights(positions) ** 2
        return np.asarray(squares <= reach**2)

    def diameter(self, spacing: float) -> float:
        """Of a circle with its area, in m; `spacing`: of the lattice, without effect."""
        del spacing
        return 2 * math.sqrt(self.size / math.pi)


def is_tilted(surface: Surface, name: str) -> bool:
    """Whether a group of a surface is a flat end askew to the axes."""
    normals = surface.normals[surface.group(name)]
    normal, area = normals.sum(axis=0), float(np.linalg.norm(normals, axis=1).sum())
    length = float(np.linalg.norm(normal))
    others = np.delete(normal, np.abs(normal).argmax())
    is_end = math.isfinite(length) and length > _MEANT * area
    return bool(is_end and np.abs(others).max() > _ALONG * length)


def find_tilted(surface: Surface, grid: Grid, runs: Runs, name: str) -> TiltedOpening:
    """The links of fluid points that meet a flat end of the surface before they meet its walls."""
    own = surface.group(name)
    normals = surface.normals[own]
    areas = np.linalg.norm(normals, axis=1)
    size = float(np.linalg.norm(normals.sum(axis=0)))
    normal = normals.sum(axis=0) / size
    corners = surface.corners[own]
    level = level_triangles(corners, normals, normal, _FLAT)
    if not level.all():
        first = surface.unit.place(corners[level.argmin()].mean(axis=0))
        raise InputError(
            f"it is not flat: {int((~level).sum())} of its {len(level)} triangles face another way, the "
            f"first at {first}",
            location=f"opening '{name}'",
            remedy=f"cut the {surface.location} flat across the vessel",
        )
    scaled = (corners - grid.origin) / grid.spacing
    low = np.floor(scaled.min(axis=(0, 1))).astype(np.int64) - _AROUND
    high = np.ceil(scaled.max(axis=(0, 1))).astype(np.int64) + _AROUND + 1
    low, high = np.maximum(low, 0), np.minimum(high, np.array(grid.shape))
    numbers = runs.slab(int(low[2]), max(int(low[2]), int(high[2]))).numbers()
    places = unraster(grid.shape, numbers)
    places = places[((places >= low) & (places < high)).all(axis=1)]
    points, links = [np.empty((0, 3), np.int64)], [np.empty((0, 3), np.int64)]
    for link in _LINKS[_LINKS @ normal > 0]:
        beyond = places + link
        inside = ((beyond >= 0) & (beyond < np.array(grid.shape))).all(axis=1)
        is_fluid = np.zeros(len(places), bool)
        is_fluid[inside] = runs.contains(raster(grid.shape, beyond[inside]))
        points.append(places[~is_fluid])
        links.append(np.broadcast_to(link, points[-1].shape))
    place, link = np.concatenate(points), np.concatenate(links)
    at_end = np.isin(np.arange(len(surface.triangles)), own)
    ends, walls = (_part(surface, mask, grid, low, high) for mask in (at_end, ~at_end))
    at_cap = first_crossings(grid, ends, place, link)
    at_wall = first_crossings(grid, walls, place, link)
    # By rounding a link may meet neither; then the plane decides.
    lost = np.flatnonzero(np.isinf(at_cap) & np.isinf(at_wall))
    at_cap[lost] = _met_in_plane(place[lost], link[lost], scaled, normal)
    through = np.flatnonzero(at_cap < at_wall)
    place, link = place[through], link[through]
    if not len(place):
        middle = corners.mean(axis=(0, 1))
        raise InputError(
            f"no link of a fluid point passes it near {surface.unit.place(middle)} at the spacing "
            f"{surface.unit.length(grid.spacing)}",
            location=f"opening '{name}'",
            remedy="use a smaller spacing if the vessel is this narrow",
        )
    number = raster(grid.shape, place)
    order = np.lexsort((*link.T, number))
    number, link = number[order], link[order].astype(np.int8)
    middle = areas @ corners.mean(axis=1) / areas.sum()
    sides = outline(surface, own)
    return TiltedOpening(
        name, middle, normal, size, corners, sides, np.unique(number), number, link
    )


def outline(surface: Surface, own: Integers) -> Floats:
    """Sides of triangles that no other of them has."""
    tail, head, key = edges_of(surface.triangles[own].astype(np.int64), len(surface.points))
    _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    alone = count[inverse.reshape(-1)] == 1
    return np.asarray(surface.points[np.stack([tail[alone], head[alone]], axis=1)])


def _part(
    surface: Surface, mask: NDArray[np.bool_], grid: Grid, low: Integers, high: Integers
) -> Surface:
    """Some triangles of a surface, of those that reach into a box of the lattice."""
    scaled = (surface.corners - grid.origin) / grid.spacing
    near = (scaled.max(axis=1) >= low - 1) & (scaled.min(axis=1) <= high)
    chosen = mask & near.all(axis=1)
    return replace(surface, triangles=surface.triangles[chosen], groups=surface.groups[chosen])


def _met_in_plane(places: Integers, links: Integers, corners: Floats, normal: Floats) -> Floats:
    """Fractions of links at which they pass a plane's triangles, infinite where they pass beside."""
    result = np.full(len(places), np.inf)
    height = (corners.mean(axis=(0, 1)) - places) @ normal / (links @ normal)
    reached = np.flatnonzero((height >= -_ROUNDING) & (height <= 1 + _ROUNDING))
    at = places[reached] + height[reached, None] * links[reached]
    a, b, c = np.moveaxis(corners, 1, 0)
    inside = np.ones((len(at), len(corners)), bool)
    for begin, end in ((a, b), (b, c), (c, a)):
        inside &= np.cross(end - begin, at[:, None] - begin) @ normal >= -_ROUNDING
    result[reached[inside.any(axis=1)]] = height[reached[inside.any(axis=1)]]
    return result
