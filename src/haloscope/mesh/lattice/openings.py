"""Inlets, outlets and joined ends of a lattice of fluid points, and places where a vessel has too few across."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.blocks import AXES, Triple
from haloscope.mesh.hexes.hexes import point_text
from haloscope.mesh.lattice.lattice_runs import Runs, raster, unraster
from haloscope.mesh.lattice.shapes import Grid
from haloscope.mesh.lattice.tilted_openings import (
    TiltedOpening,
    find_tilted,
    is_tilted,
    outline,
)
from haloscope.mesh.surfaces.surfaces import Surface, connected_parts, level_triangles, spread

# An opening lies on a plane of lattice points, the one nearest to where it was asked for. Its points
# are those of the plane before it, moved by one spacing along the axis: so every point of an opening
# has a neighbour within the fluid, and a cap of the surface that coincides with a plane of points
# gives the same opening whichever way rounding goes. What lies beyond is cut off.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ALONG = 1e-3
"""A normal is along an axis if its other components are below this share of its length."""
# Spacings from the given point within which the fluid of its opening must begin.
_NEAR = 2.0
_AROUND = ((0, 1), (1, -1), (1, 0), (1, 1))


@dataclass(frozen=True)
class OpeningPlane:
    """A plane on which an opening is to lie."""

    name: str
    point: tuple[float, float, float]  # A point in the opening, in m
    normal: tuple[float, float, float]
    # All cross-sections that reach within this distance in m of the point belong to the opening;
    # without it the one at the point.
    radius: float | None = None


@dataclass(frozen=True, eq=False)
class Opening:
    """An opening of a lattice."""

    name: str  # As given
    # Axis of its normal, and -1 or +1: the way out of the fluid along it.
    axis: int
    direction: int
    plane: int  # Coordinate of its points along the axis
    numbers: Integers  # Raster numbers of its points, ascending

    @property
    def normal(self) -> Floats:
        """Out of the fluid, of length 1, (3,)."""
        return np.asarray(self.direction * np.eye(3)[self.axis])

    def diameter(self, spacing: float) -> float:
        """Of a circle with the area of its points, a spacing squared each, in m."""
        return 2 * spacing * math.sqrt(len(self.numbers) / math.pi)


AnyOpening = Opening | TiltedOpening


@dataclass(frozen=True, eq=False)
class _Wanted:
    """An opening asked for: axis, direction and places (n, 3) in m that lie in it."""

    name: str
    axis: int
    direction: int
    places: Floats
    radius: float | None


def is_along_axis(normal: Sequence[float]) -> bool:
    """Whether a direction is along x, y or z."""
    sizes = np.sort(np.abs(normal))
    return bool(sizes[1] <= ALONG * np.linalg.norm(normal))


def _axis(name: str, normal: Floats, shown: Floats) -> tuple[int, int]:
    length = float(np.linalg.norm(normal))
    axis = int(np.abs(normal).argmax())
    others = np.delete(normal, axis)
    if not (math.isfinite(length) and length > 0 and np.abs(others).max() <= ALONG * length):
        raise InputError(
            f"its normal is {point_text(shown)}",
            location=f"opening '{name}'",
            allowed="normals along x, y or z",
            remedy="turn the geometry so that the vessel's end is along an axis",
        )
    return axis, 1 if normal[axis] > 0 else -1


def _wanted(opening: str | OpeningPlane, surface: Surface) -> _Wanted:
    if isinstance(opening, OpeningPlane):
        normal = np.asarray(opening.normal, np.float64)
        axis, direction = _axis(opening.name, normal, normal)
        place = np.asarray([opening.point], np.float64)
        if not np.isfinite(place).all() or not (opening.radius is None or opening.radius > 0):
            asked_radius = opening.radius
            radius = "none" if asked_radius is None else surface.unit.length(asked_radius)
            raise InputError(
                f"its point is {surface.unit.place(place[0])} and its radius {radius}",
                location=f"opening '{opening.name}'",
                allowed="finite coordinates, a radius above 0",
            )
        return _Wanted(opening.name, axis, direction, place, opening.radius)
    chosen = surface.group(opening)
    normals = surface.normals[chosen]
    lengths = np.linalg.norm(normals, axis=1)
    sum_of_normals = normals.sum(axis=0)
    # Of length 1 where the group is flat, 0 where it is closed; adding 0 makes 0 of -0.
    shown = np.round(sum_of_normals / (lengths.sum() or 1.0), 3) + 0.0
    axis, direction = _axis(opening, sum_of_normals, shown)
    flat = level_triangles(surface.corners[chosen], normals, direction * np.eye(3)[axis], 1 - ALONG)
    if not flat.all():
        place = surface.corners[chosen[flat.argmin()]].mean(axis=0)
        raise InputError(
            f"it is not flat: {int((~flat).sum())} of its {len(flat)} triangles do not face "
            f"{'-+'[direction > 0]}{AXES[axis]}, the first at {surface.unit.place(place)}",
            location=f"opening '{opening}'",
            remedy=f"cut the {surface.location} flat across the vessel",
        )
    return _Wanted(opening, axis, direction, surface.corners[chosen].mean(axis=1), None)


# Of a spacing: what two joined ends may differ by, beside their distance, across the vessel and along it.
_BESIDE_JOINT, _WHOLE_JOINT = 0.1, 0.01
# Points of an outline that are compared with another at a time.
_COMPARED = 2**10


@dataclass(frozen=True)
class Joint:
    """Two flat ends across an axis at which a vessel goes on into itself; lengths in m."""

    axis: int
    # Coordinates along it.
    low: float
    high: float
    names: tuple[str, str]  # Of the lower end and of the upper one

    @property
    def length(self) -> float:
        """Of a period."""
        return self.high - self.low


def joint_of(surface: Surface) -> Joint:
    """The joined ends of a surface, which must face along one axis, away from each other."""
    wanted = [_wanted(name, surface) for name in surface.joined]
    one, other = sorted(wanted, key=lambda end: end.direction)
    location = _joint_location(surface)
    if one.axis != other.axis or one.direction == other.direction:
        faces = " and ".join(
            f"{end.name} faces {'-+'[end.direction > 0]}{AXES[end.axis]}" for end in wanted
        )
        raise InputError(
            f"the ends are not opposite: {faces}",
            location=location,
            allowed="two ends that face away from each other along one axis",
            remedy="give two such ends, or leave periodic out",
        )
    low, high = (float(end.places[:, one.axis].mean()) for end in (one, other))
    return Joint(one.axis, low, high, (one.name, other.name))


def _joint_location(surface: Surface) -> str:
    return f"periodic ends {' and '.join(map(repr, surface.joined))} of the {surface.location}"


def require_joint(surface: Surface, spacing: float) -> Joint:
    """Refuse joined ends that differ, lie a part of a spacing apart, or have parts of the vessel beyond."""
    joint = joint_of(surface)
    location, unit, length = _joint_location(surface), surface.unit, joint.length
    slack = _BESIDE_JOINT * spacing
    low, high = (float(corner[joint.axis]) for corner in surface.bounds)
    if joint.low - low > slack or high - joint.high > slack or not length > 0:
        raise InputError(
            f"the vessel reaches from {unit.length(low)} to {unit.length(high)} along {AXES[joint.axis]}, beyond its "
            f"ends at {unit.length(joint.low)} and {unit.length(joint.high)}",
            location=location,
            allowed="a vessel between the planes of the two ends",
            remedy="cut it where all of it lies between the planes",
        )
    rims = [
        np.delete(outline(surface, surface.group(name)), joint.axis, axis=2) for name in joint.names
    ]
    apart = max(_farthest(rims[0], rims[1]), _farthest(rims[1], rims[0]))
    if apart > slack:
        raise InputError(
            f"the outlines of the ends differ by up to {unit.length(float(f'{apart:.3g}'))} across "
            f"{AXES[joint.axis]}",
            location=location,
            allowed=f"{_BESIDE_JOINT:g} spacings, {unit.length(slack)}",
            remedy=f"make one end a copy of the other, moved along {AXES[joint.axis]}",
        )
    count = max(1, round(length / spacing))
    if abs(length / spacing - count) > _WHOLE_JOINT:
        raise InputError(
            f"the ends are {unit.length(length)} apart, {length / spacing:.6g} spacings",
            location=f"spacing = {unit.length(spacing)}",
            allowed="a whole number of spacings between periodic ends",
            remedy=f"use a spacing of {unit.length(length / count)}",
        )
    return joint


def _farthest(one: Floats, other: Floats) -> float:
    """How far ends of the sides (n, 2, 2) of an outline lie from the sides of another at most."""
    begin, way = other[:, 0], other[:, 1] - other[:, 0]
    square = np.maximum((way**2).sum(axis=1), np.finfo(float).tiny)
    places = one.reshape(-1, 2)
    farthest = 0.0
    for first in range(0, len(places), _COMPARED):
        offset = places[first : first + _COMPARED, None] - begin
        share = np.clip((offset * way).sum(axis=2) / square, 0, 1)
        distances = np.linalg.norm(offset - share[..., None] * way, axis=2)
        farthest = max(farthest, float(distances.min(axis=1).max()))
    return farthest


def grid_of(surface: Surface, spacing: float, openings: Sequence[str | OpeningPlane]) -> Grid:
    """Box of lattice points that covers a surface.

    Along an axis with openings the planes of points are laid so that the first of these openings
    is met exactly; else, and beside joined ends, the first points lie half a spacing inside.
    """
    low, high = surface.bounds
    origin = low + spacing / 2
    if surface.joined:
        joint = joint_of(surface)
        counts = [max(1, round(float(n)) + 1) for n in (high - origin) / spacing]
        counts[joint.axis] = max(1, round(joint.length / spacing))
        origin[joint.axis] = joint.low + spacing / 2
        px, py, pz = (axis == joint.axis for axis in range(3))
        return Grid((counts[0], counts[1], counts[2]), origin, spacing, (px, py, pz))
    aligned = set()
    for opening in openings:
        if isinstance(opening, str) and is_tilted(surface, opening):
            continue
        wanted = _wanted(opening, surface)
        axis = wanted.axis
        if axis not in aligned:
            aligned.add(axis)
            cap = wanted.places[:, axis].mean()
            origin[axis] = cap - spacing * math.floor((cap - low[axis]) / spacing + 0.5)
    nx, ny, nz = (max(1, round(float(n)) + 1) for n in (high - origin) / spacing)
    return Grid((nx, ny, nz), origin, spacing)


def cut_openings(
    runs: Runs, grid: Grid, surface: Surface, openings: Sequence[str | OpeningPlane]
) -> tuple[Runs, tuple[AnyOpening, ...]]:
    """End the fluid at openings: on planes of points, or where links meet ends askew to these."""
    names = [asked if isinstance(asked, str) else asked.name for asked in openings]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(
                "two openings have this name",
                location=f"opening '{name}'",
                remedy="give each opening its own name",
            )
    cut: dict[str, AnyOpening] = {}
    tilted = [one for one in openings if isinstance(one, str) and is_tilted(surface, one)]
    for asked, name in zip(openings, names, strict=True):
        if name not in tilted:
            runs, cut[name] = _cut(runs, grid, surface, _wanted(asked, surface))
    # The others remove points, whose links are none then.
    for name in tilted:
        cut[name] = find_tilted(surface, grid, runs, name)
    for opening, other in itertools.permutations(cut.values(), 2):
        if isinstance(opening, TiltedOpening) and isinstance(other, TiltedOpening):
            continue
        gone = not runs.contains(opening.numbers).all()
        if gone or np.isin(opening.numbers, other.numbers).any():
            raise InputError(
                f"opening '{other.name}' cuts it",
                location=f"opening '{opening.name}'",
                remedy="move them apart, or make the branches of a generated vessel longer",
            )
    return runs, tuple(cut[name] for name in names)


def _cut(runs: Runs, grid: Grid, surface: Surface, wanted: _Wanted) -> tuple[Runs, Opening]:
    axis, direction = wanted.axis, wanted.direction
    places = (wanted.places - grid.origin) / grid.spacing
    plane = math.floor(float(places[:, axis].mean()) + 0.5)
    section = np.empty(0, np.int64)
    if 0 <= plane < grid.shape[axis] and 0 <= plane - direction < grid.shape[axis]:
        section = _section(runs, grid, wanted, plane - direction, places)
    if not len(section):
        raise InputError(
            f"it lies outside the {surface.location}: no fluid point is near "
            f"{surface.unit.place(wanted.places.mean(axis=0))} at the spacing "
            f"{surface.unit.length(grid.spacing)}",
            location=f"opening '{wanted.name}'",
            remedy="move it into the vessel, or use a smaller spacing if the vessel is this narrow",
        )
    stride = direction * (1, grid.shape[0], grid.shape[0] * grid.shape[1])[axis]
    opening = section + stride
    removed = [_touching(runs, grid, axis, plane, opening)]
    if 0 <= plane + direction < grid.shape[axis]:
        beyond = opening + stride
        removed.append(_touching(runs, grid, axis, plane + direction, beyond))
    runs = runs.changed(np.concatenate(removed), opening)
    return runs, Opening(wanted.name, axis, direction, plane, opening)


class _Picture:
    """The points of a plane of the lattice, as pixels with a margin of one."""

    def __init__(self, runs: Runs, grid: Grid, axis: int, plane: int) -> None:
        self.axes = [other for other in range(3) if other != axis]
        self.numbers = runs.plane(axis, plane)
        self.pixels = unraster(grid.shape, self.numbers)[:, self.axes]
        u, v = (grid.shape[other] for other in self.axes)
        self.point = np.full((u + 2, v + 2), -1)
        self.point[tuple(self.pixels.T + 1)] = np.arange(len(self.numbers))
        ones, others = [], []
        for du, dv in _AROUND:
            near = self.point[self.pixels[:, 0] + 1 + du, self.pixels[:, 1] + 1 + dv]
            ones.append(np.flatnonzero(near >= 0))
            others.append(near[near >= 0])
        self.part = connected_parts(len(self.numbers), np.concatenate(ones), np.concatenate(others))

    def parts_with(self, points: Integers) -> Integers:
        """Raster numbers of the connected parts that hold some of the points."""
        chosen = np.zeros(len(self.numbers), bool)
        chosen[self.part[points]] = True
        return self.numbers[chosen[self.part]]


def _section(runs: Runs, grid: Grid, wanted: _Wanted, plane: int, places: Floats) -> Integers:
    """Points of a plane that belong to an opening."""
    picture = _Picture(runs, grid, wanted.axis, plane)
    if not len(picture.numbers):
        return picture.numbers
    places = places[:, picture.axes]
    if len(places) > 1 or wanted.radius is not None:
        reach = 1.0 if wanted.radius is None else wanted.radius / grid.spacing
        if len(places) == 1:
            near = ((picture.pixels - places[0]) ** 2).sum(axis=1) <= reach**2
            return picture.parts_with(np.flatnonzero(near))
        # Of a group of the surface: the points at its triangles.
        pixel = np.floor(places + 0.5).astype(np.int64) + 1
        pixel = np.clip(pixel, 0, np.array(picture.point.shape) - 1)
        hit = picture.point[tuple(pixel.T)]
        if (hit >= 0).any():
            return picture.parts_with(hit[hit >= 0])
        places = places.mean(axis=0, keepdims=True)
    distance = ((picture.pixels - places[0]) ** 2).sum(axis=1)
    if distance.min() > _NEAR**2:
        return np.empty(0, np.int64)
    return picture.parts_with(distance.argmin(keepdims=True))


def _touching(runs: Runs, grid: Grid, axis: int, plane: int, section: Integers) -> Integers:
    """Points of a plane in the connected parts that a section, or its rim, touches."""
    picture = _Picture(runs, grid, axis, plane)
    pixels = unraster(grid.shape, section)[:, picture.axes] + 1
    hit = [
        picture.point[pixels[:, 0] + du, pixels[:, 1] + dv]
        for du in (-1, 0, 1)
        for dv in (-1, 0, 1)
    ]
    points = np.concatenate(hit)
    return picture.parts_with(points[points >= 0])


# The depth of a point is the number of steps along the axes to the nearest point outside. Across a
# vessel it rises to the middle: a point of depth d with no deeper one within a few points lies in the
# middle of a vessel of 2 d - 1 or 2 d points. At a corner, a rim or a bump of the wall there is a
# deeper point, so these do not count; nor does a narrow place much shorter than it is wide.

Mask = NDArray[np.bool_]

# Points in each direction within which a deeper one is looked for: the edge of a wedge, whichever
# way it is turned to the lattice, has one nearer.
_NARROW_NEAR = 2
# Points of the box of lattice points that are looked at together.
_CHUNK = 2**24


def narrow_place(
    runs: Runs,
    shape: Triple,
    openings: tuple[AnyOpening, ...],
    slab: tuple[int, int],
    least_across: int,
) -> tuple[int, int] | None:
    """Look for vessels with fewer than a number of points across.

    Returns: raster number of a point in the middle of the narrowest place, and how many points
    there are across it at most; None where the lattice is fine enough.
    """
    depths = (least_across - 1) // 2
    if depths == 0:
        return None
    margin = depths + _NARROW_NEAR
    nx, ny, _ = shape
    planes = max(1, _CHUNK // ((nx + 2 * margin) * (ny + 2 * margin)))
    worst = None
    for start in range(slab[0], slab[1], planes):
        stop = min(start + planes, slab[1])
        mask = _mask(runs, shape, openings, start, stop, margin)
        for depth in range(1, depths + 1):
            deeper = _eroded(mask)
            middle = mask & ~_dilated(deeper)
            middle = middle[margin:-margin, margin:-margin, margin:-margin]
            if middle.any():
                z, y, x = np.argwhere(middle)[0]
                number = int(raster(shape, np.array([[x, y, z + start]]))[0])
                if worst is None or 2 * depth < worst[1]:
                    worst = (number, 2 * depth)
                break
            mask = deeper
    return worst


def _mask(
    runs: Runs, shape: Triple, openings: tuple[AnyOpening, ...], start: int, stop: int, margin: int
) -> Mask:
    """Fluid in planes z from start up to stop with a margin on all sides, (z, y, x)."""
    nx, ny, _ = shape
    mask = np.zeros((stop - start + 2 * margin, ny + 2 * margin, nx + 2 * margin), bool)

    near = runs.slab(max(0, start - margin), min(shape[2], stop + margin))
    # By runs: a row of the mask is wider than one of the box.
    row, x = np.divmod(near.first, nx)
    z, y = np.divmod(row, ny)
    first = ((z + margin - start) * (ny + 2 * margin) + y + margin) * (nx + 2 * margin) + margin + x
    run, place = spread(near.stop - near.first)
    mask.ravel()[first[run] + place] = True
    for opening in openings:
        if isinstance(opening, TiltedOpening):
            # Its points are in the middle of no vessel: beside them are deeper ones.
            continue
        coordinates = unraster(shape, opening.numbers) + margin - np.array([0, 0, start])
        for _ in range(margin):
            coordinates[:, opening.axis] += opening.direction
            x, y, z = coordinates.T
            there = (z >= 0) & (z < len(mask))
            mask[z[there], y[there], x[there]] = True
    return mask


def _eroded(mask: Mask) -> Mask:
    """Points whose six neighbours along the axes are all in the mask."""
    inner = mask.copy()
    for axis in range(3):
        low = (slice(None),) * axis
        inner[(*low, slice(1, None))] &= mask[(*low, slice(None, -1))]
        inner[(*low, slice(None, -1))] &= mask[(*low, slice(1, None))]
    return inner


def _dilated(mask: Mask) -> Mask:
    """Points within the cubes of 2 `_NEAR` + 1 points around those of the mask."""
    for axis in range(3):
        low = (slice(None),) * axis
        for _ in range(_NARROW_NEAR):
            wider = mask.copy()
            wider[(*low, slice(1, None))] |= mask[(*low, slice(None, -1))]
            wider[(*low, slice(None, -1))] |= mask[(*low, slice(1, None))]
            mask = wider
    return mask
