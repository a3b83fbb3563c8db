"""The sparse lattice of fluid points inside a surface or a shape, made by all ranks together.

Each rank finds the runs of points in its slab of planes z; the runs, a few bytes for a row of the
lattice, are then gathered, so that what hangs together is known to all. Points themselves are
listed only for the slab that is asked for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import AXES, Triple
from haloscope.mesh.files.meshio_files import METRE, LengthUnit
from haloscope.mesh.lattice.lattice_runs import Flags, Runs, unraster
from haloscope.mesh.lattice.openings import (
    AnyOpening,
    Opening,
    OpeningPlane,
    cut_openings,
    grid_of,
    joint_of,
    narrow_place,
    require_joint,
)
from haloscope.mesh.lattice.shapes import Grid, Shape
from haloscope.mesh.surfaces.crossings import crossings
from haloscope.mesh.surfaces.surfaces import Surface, check, require_closed, require_ends

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_ACROSS = 5
"""Default of the fewest points across a vessel."""

_MOST_ROWS = 2**31
# Of a spacing: what two parts may share by rounding where they touch.
_TOUCHING = 1e-6
# Points of a shape that are tested at a time.
_CHUNK = 2**21
# Of a spacing that is too coarse, for one that may do; and most points of a box in which that is tried.
_FINER, _MOST_TRIED = 0.95, 3e7


@dataclass(frozen=True, eq=False)
class Lattice:
    """Fluid points of a lattice; walls lie between them and their missing neighbours."""

    # The box of points: shape, origin, spacing, periodic axes. Point (i, j, k) is at origin +
    # spacing * (i, j, k).
    grid: Grid
    runs: Runs  # The fluid points of the whole, as runs of raster numbers; the same on every rank
    # Inlets and outlets in the order asked for; their points are fluid points.
    openings: tuple[AnyOpening, ...]
    slab: tuple[int, int]  # First plane z of this rank, and the one after its last
    notices: tuple[str, ...] = ()  # For the user, one line each

    @property
    def shape(self) -> Triple:
        """Points of the box along x, y, z."""
        return self.grid.shape

    @property
    def spacing(self) -> float:
        """Distance between points in m."""
        return self.grid.spacing

    @property
    def origin(self) -> Floats:
        """Position in m of point (0, 0, 0), shape (3,)."""
        return self.grid.origin

    @property
    def periodic(self) -> Flags:
        """Whether the box closes on itself along x, y, z."""
        return self.grid.periodic

    @property
    def count(self) -> int:
        """Fluid points of the whole."""
        return self.runs.points

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Corners in m of the box around the fluid points, half a spacing beyond them, each (3,)."""
        low, high = self.runs.extent()
        return self.origin + self.spacing * (low - 0.5), self.origin + self.spacing * (high + 0.5)

    @property
    def points(self) -> Integers:
        """Raster numbers of the fluid points in the slab, ascending; made anew at each call."""
        return self.runs.slab(*self.slab).numbers()

    def contains(self, numbers: ArrayLike) -> NDArray[np.bool_]:
        """Whether raster numbers, of any slab, are those of fluid points."""
        return self.runs.contains(numbers)

    def coordinates(self, numbers: ArrayLike) -> Integers:
        """Coordinates (n, 3) of raster numbers, in spacings from the first point of the box."""
        return unraster(self.shape, numbers)

    def positions(self, numbers: ArrayLike) -> Floats:
        """Positions (n, 3) in m of raster numbers."""
        return self.origin + self.spacing * self.coordinates(numbers)

    def opening_numbers(self, numbers: ArrayLike) -> NDArray[np.int32]:
        """Opening on which points lie, by its place in `openings`; -1 elsewhere."""
        numbers = np.asarray(numbers, np.int64)
        tags = np.full(numbers.shape, -1, np.int32)
        for tag, opening in enumerate(self.openings):
            place = np.searchsorted(opening.numbers, numbers)
            place = np.minimum(place, len(opening.numbers) - 1)
            tags[opening.numbers[place] == numbers] = tag
        return tags


def voxelise(
    geometry: Surface | Shape,
    spacing: float,
    openings: Sequence[str | OpeningPlane] = (),
    least_across: int = LEAST_ACROSS,
    world: World | None = None,
    unit: LengthUnit = METRE,
) -> Lattice:
    """Fill a geometry with lattice points. Collective over the ranks.

    `geometry`: a closed surface, or a shape; `spacing`: distance between points in m; `openings`:
    of a surface: names of its flat groups, or planes. A shape has its own.
    """
    # `unit`: in which messages give lengths of a shape; a surface has its own.
    world = world or World()
    if not (math.isfinite(spacing) and spacing > 0):
        raise InputError(
            "out of range", location=f"spacing = {spacing:g} m", allowed="lengths above 0"
        )
    if isinstance(geometry, Surface):
        return _Vessel(geometry, openings, least_across, world).fill(spacing)
    if openings:
        raise InputError(
            "a box or a tube has openings only at its own ends",
            location="openings",
            remedy="choose the ends of its axes",
        )
    return _from_shape(geometry, spacing, least_across, world, unit)


def inside_runs(surface: Surface, grid: Grid, start: int, stop: int) -> Runs:
    """Points of a slab of a grid that lie inside a closed surface, by the parity of crossings."""
    return Runs.between(grid.shape, _toggles(surface, grid, start, stop)[0])


def _toggles(
    surface: Surface, grid: Grid, start: int, stop: int, *, depths: bool = False
) -> tuple[Integers, Integers]:
    """Where rows of a slab cross a surface, ascending: row (nx + 1) + first x beyond.

    With `depths` also what tells how many parts a point is in: 2 (row (nx + 1) + first x beyond), and 1 more
    where the row goes in there. Parts are a little smaller then, so that those that touch do not overlap.
    """
    nx, ny, _ = grid.shape
    points = (surface.points - grid.origin) / grid.spacing
    outward = surface.volume >= 0
    toggles, doubled = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for points_hit in crossings(points, surface.triangles, (0, ny), (start, stop)):
        row = (points_hit.v + ny * points_hit.w) * (nx + 1)
        toggles.append(row + np.clip(np.ceil(points_hit.u), 0, nx).astype(np.int64))
        if depths:
            enters = points_hit.enters == outward
            inner = np.ceil(points_hit.u + np.where(enters, _TOUCHING, -_TOUCHING))
            doubled.append(2 * (row + np.clip(inner, 0, nx).astype(np.int64)) + enters)
    return np.sort(np.concatenate(toggles)), np.sort(np.concatenate(doubled))


def _require_no_overlap(depths: Integers, grid: Grid, surface: Surface, world: World) -> None:
    """Refuse a surface of whose parts several hold a point; by parity those points would be outside."""
    depth = np.cumsum(2 * (depths & 1) - 1)[:-1]
    mine = np.zeros(3, np.int64)
    if (depth > 1).any():
        row, x = np.divmod(depths >> 1, grid.shape[0] + 1)
        inside = np.where(depth > 1, np.diff(x), 0)
        longest = int(inside.argmax())
        middle = row[longest] * grid.shape[0] + x[longest] + inside[longest] // 2
        mine[:] = inside.sum(), inside[longest], middle
    sums, lengths, middles = np.stack(_everyones(world, mine)).T
    count = int(sums.sum())
    if not count:
        return
    place = _place(grid, int(middles[lengths.argmax()]))
    raise InputError(
        f"it overlaps itself: {counted(count, 'lattice point')} {'lies' if count == 1 else 'lie'} in two or "
        f"more of its parts, one at {surface.unit.place(place)}",
        location=surface.location,
        remedy="unite the parts with a boolean union in a mesh program, remove duplicate parts, or turn the "
        "triangles around a hole inward",
    )


@dataclass(frozen=True, eq=False)
class _Vessel:
    """A closed surface to fill, whose openings end the fluid. Methods are collective over the ranks."""

    surface: Surface
    openings: Sequence[str | OpeningPlane]
    least_across: int
    world: World

    def fill(self, spacing: float) -> Lattice:
        """The lattice inside."""
        unit = self.surface.unit
        require_closed(self.surface)
        report = check(self.surface)
        notices = [*self.surface.notices, *map(str, report.faults)]
        require_ends(
            self.surface, [opening for opening in self.openings if isinstance(opening, str)]
        )
        if self.surface.joined:
            require_ends(self.surface, self.surface.joined)
            joint = require_joint(self.surface, spacing)
            one, other = joint.names
            notices.append(
                f"joined '{one}' and '{other}': periodic along {AXES[joint.axis]} over {unit.length(joint.length)}"
            )
        grid = grid_of(self.surface, spacing, self.openings)
        _require_rows(grid)
        slab = _slab(grid, self.world)
        toggles, depths = _toggles(self.surface, grid, *slab, depths=report.oriented)
        if report.oriented:
            _require_no_overlap(depths, grid, self.surface, self.world)
        runs = _gathered(grid, Runs.between(grid.shape, toggles), self.world)
        if not runs.points:
            raise InputError(
                f"no lattice point lies inside it at the spacing {unit.length(spacing)}; its bounding box is "
                f"{unit.place(np.ptp(self.surface.bounds, axis=0))}",
                location=self.surface.location,
                remedy="use a smaller spacing, or check the unit of the surface",
            )
        try:
            runs, cut = cut_openings(runs, grid, self.surface, self.openings)
        except InputError:
            # On a lattice that is too coarse openings meet; then the spacing is the fault to report.
            narrow = self._narrowest(runs, grid, ())
            if narrow is None:
                raise
            raise self._too_coarse(narrow, grid) from None
        runs, said = _connected(runs, grid, cut, unit)
        notices += said
        narrow = self._narrowest(runs, grid, cut)
        if narrow is not None:
            raise self._too_coarse(narrow, grid)
        return Lattice(grid, runs, cut, slab, tuple(notices))

    def _narrowest(
        self, runs: Runs, grid: Grid, cut: tuple[AnyOpening, ...]
    ) -> tuple[int, int] | None:
        """Points across the narrowest vessel, and a raster number in it; None where all have enough."""
        mine = narrow_place(runs, grid.shape, cut, _slab(grid, self.world), self.least_across)
        packed = np.array([-1, 0] if mine is None else mine, np.int64)
        narrowest = [
            (int(points), int(number)) for number, points in _everyones(self.world, packed)
        ]
        return min(((points, number) for points, number in narrowest if number >= 0), default=None)

    def _too_coarse(self, narrow: tuple[int, int], grid: Grid) -> InputError:
        """The refusal of vessels with fewer points across than asked for."""
        points, number = narrow
        unit = self.surface.unit
        enough = self._fine_enough(grid.spacing, points)
        if enough is None:
            guess = float(f"{grid.spacing * points / (self.least_across + 1):.3g}")
            remedy = f"use about {unit.length(guess)} or less (an estimate from this spacing)"
        else:
            remedy = f"use at most about {unit.length(enough)}"
        return InputError(
            f"too coarse: a vessel is only about {points} points across at {unit.place(_place(grid, number))}",
            location=f"spacing = {unit.length(grid.spacing)}",
            allowed=f"at least {self.least_across} points",
            remedy=remedy,
        )

    def _fine_enough(self, spacing: float, points: int) -> float | None:
        """A spacing that gives vessels enough points, of three digits; None where to try is too much work.

        The points across depend a little on where the lattice begins, so a somewhat coarser spacing may do, too.
        """
        box = float(np.prod(np.ptp(self.surface.bounds, axis=0)))
        before = False
        while True:
            # A vessel of n points across is narrower than n + 1 spacings.
            share = _FINER if not points else min(_FINER, (points + 1) / self.least_across)
            spacing = float(f"{spacing * share:.3g}")
            if self.surface.joined:
                length = joint_of(self.surface).length
                spacing = length / math.ceil(length / spacing)
            if box / spacing**3 > _MOST_TRIED:
                return None
            points = self._points_across(spacing)
            if before and not points:
                return spacing
            before = not points

    def _points_across(self, spacing: float) -> int:
        """Points across the narrowest vessel of a lattice; 0 where all have enough."""
        grid = grid_of(self.surface, spacing, self.openings)
        runs = inside_runs(self.surface, grid, *_slab(grid, self.world))
        runs = _gathered(grid, runs, self.world)
        if not runs.points:
            return 1
        cut: tuple[AnyOpening, ...] = ()
        # Faults of openings on a finer lattice are reported when that lattice is made.
        with contextlib.suppress(InputError):
            runs, cut = cut_openings(runs, grid, self.surface, self.openings)
        runs, _ = _connected(runs, grid, cut, self.surface.unit)
        narrow = self._narrowest(runs, grid, cut)
        return 0 if narrow is None else narrow[0]


def _from_shape(
    shape: Shape, spacing: float, least_across: int, world: World, unit: LengthUnit
) -> Lattice:
    across = shape.across / spacing
    if across < least_across * (1 - 1e-9):
        raise InputError(
            f"too coarse: the walls are {unit.length(shape.across)} apart, {across:.3g} spacings",
            location=f"spacing = {unit.length(spacing)}",
            allowed=f"at least {least_across} spacings",
            remedy=f"use at most {unit.length(shape.across / least_across)}",
        )
    grid = shape.grid(spacing, unit)
    _require_rows(grid)
    slab = _slab(grid, world)
    runs = _gathered(grid, _shape_runs(shape, grid, *slab), world)
    openings: list[Opening] = []
    for side in shape.open_sides:
        plane = 0 if side.direction < 0 else grid.shape[side.axis] - 1
        numbers = runs.plane(side.axis, plane)
        # Points where two open sides meet belong to the first.
        for other in openings:
            numbers = numbers[~np.isin(numbers, other.numbers)]
        openings.append(Opening(side.name, side.axis, side.direction, plane, numbers))
    return Lattice(grid, runs, tuple(openings), slab)


def _shape_runs(shape: Shape, grid: Grid, start: int, stop: int) -> Runs:
    nx, ny, _ = grid.shape
    row = grid.origin[0] + grid.spacing * np.arange(nx)
    parts = [np.empty(0, np.int64)]
    rows = max(1, _CHUNK // nx)
    for first in range(start * ny, stop * ny, rows):
        z, y = np.divmod(np.arange(first, min(first + rows, stop * ny)), ny)
        positions = np.empty((len(z), nx, 3))
        positions[..., 0] = row
        positions[..., 1] = (grid.origin[1] + grid.spacing * y)[:, None]
        positions[..., 2] = (grid.origin[2] + grid.spacing * z)[:, None]
        parts.append(first * nx + np.flatnonzero(shape.inside(positions)))
    return Runs.of_points(grid.shape, np.concatenate(parts))


def _require_rows(grid: Grid) -> None:
    if grid.shape[1] * grid.shape[2] > _MOST_ROWS or grid.shape[0] > _MOST_ROWS:
        raise InputError(
            f"the box has {' x '.join(map(str, grid.shape))} points, too many to number",
            location=f"spacing = {grid.spacing:.6g} m",
            remedy="use a larger spacing, or check the unit of the geometry",
        )


def _slab(grid: Grid, world: World) -> tuple[int, int]:
    planes = grid.shape[2]
    return world.rank * planes // world.size, (world.rank + 1) * planes // world.size


def _everyones(world: World, values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Arrays of all ranks, in their order, on every rank."""
    packed = np.ascontiguousarray(values).view(np.uint8)
    return [part.view(np.int64) for part in world.exchange([packed] * world.size)]


def _gathered(grid: Grid, runs: Runs, world: World) -> Runs:
    first = np.concatenate(_everyones(world, runs.first))
    stop = np.concatenate(_everyones(world, runs.stop))
    return Runs(grid.shape, first, stop)


def _connected(
    runs: Runs, grid: Grid, openings: tuple[AnyOpening, ...], unit: LengthUnit
) -> tuple[Runs, list[str]]:
    """Keep the parts with openings, or without any the largest; report the parts left out."""
    part = runs.parts(grid.periodic)
    sizes = np.bincount(part, runs.stop - runs.first).astype(np.int64)
    keep = np.zeros(len(sizes), bool)
    for opening in openings:
        keep[part[np.searchsorted(runs.first, opening.numbers, "right") - 1]] = True
    if not openings:
        keep[sizes.argmax()] = True
    notices = []
    if not keep.all():
        why = "without an opening" if openings else "apart from the largest"
        place = _place(grid, int(runs.first[~keep[part]][0]))
        notices.append(
            f"left out {counted((~keep).sum(), 'part')} of the fluid {why}, with "
            f"{int(sizes[~keep].sum())} of {int(sizes.sum())} points, the first at "
            f"{unit.place(place)}"
        )
    if keep.sum() > 1:
        notices.append(f"the fluid consists of {int(keep.sum())} parts that are not connected")
    return runs.chosen(keep[part]), notices


def _place(grid: Grid, number: int) -> Floats:
    """Position in m of a raster number, for messages: without what rounding makes of 0."""
    place = grid.origin + grid.spacing * unraster(grid.shape, [number])[0]
    return np.where(np.abs(place) < _TOUCHING * grid.spacing, 0.0, place)
