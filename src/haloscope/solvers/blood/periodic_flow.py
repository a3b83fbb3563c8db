"""The periodic flow of a pre-inlet: a straight piece of vessel, driven to its mean velocity, handed to the inlet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.lattice.lattice_runs import Runs, raster
from haloscope.mesh.lattice.openings import Opening
from haloscope.mesh.lattice.shapes import Grid
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case import LONGEST_SEGMENT
from haloscope.solvers.blood.case_cells import CellsTable
from haloscope.solvers.blood.cells import local_cells
from haloscope.solvers.blood.filling.filling import filling_of
from haloscope.solvers.blood.filling.shapes import distance_from_points
from haloscope.solvers.blood.fluid.flow import permeability
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.units import MICRO

Floats = NDArray[np.float64]

# Lengths of a segment over the diameter of the widest cell, of which the best is taken.
_LEAST, _MOST = 3.0, LONGEST_SEGMENT
# By how much a number of cells may be a whole one only by rounding.
_WHOLE = 1e-9


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment that ends where an opening is."""

    lattice: Lattice  # Its points, periodic along the opening's axis
    offset: NDArray[np.int64]  # Coordinates in the vessel's lattice of its first point, (3,)
    sign: int  # The way into the vessel along the axis, 1 or -1
    # Of the opening, and points along it.
    axis: int
    length: int
    # Coordinates in the segment's lattice of the points that stand for those of the opening, in the
    # order of these, (n, 3).
    section: NDArray[np.int64]

    def section_numbers(self) -> NDArray[np.int64]:
        """Raster numbers of the section's points."""
        return raster(self.lattice.shape, self.section)

    def distances(self, part: LatticePart, reach: float) -> Floats:
        """Distances of a part's points from the wall in spacings, infinite beyond a reach."""
        nx, ny, nz = self.lattice.shape
        inside = np.zeros((nz, ny, nx), bool)
        inside.ravel()[self.lattice.runs.numbers()] = True
        walls = [not is_periodic for is_periodic in self.lattice.periodic]
        beyond = [(int(wall), int(wall)) for wall in reversed(walls)]
        distances = -distance_from_points(
            np.pad(inside, beyond), 1.0, reach + 1.0, self.lattice.periodic
        ).astype(np.float64)
        x, y, z = (part.coordinates + np.array(walls)).T
        values = distances[z, y, x]
        return np.where(values <= reach, np.maximum(values, 0.0), np.inf)


def segment_of(lattice: Lattice, opening: Opening, length: int, world: World) -> Segment:
    """The segment of so many points along the axis before an opening."""
    axis, sign = opening.axis, -opening.direction
    places = lattice.coordinates(opening.numbers)
    low, high = places.min(axis=0), places.max(axis=0)
    closed = np.array(lattice.periodic)
    # Along an axis on which the vessel closes on itself, the segment does so too.
    low[closed], high[closed] = 0, np.array(lattice.shape)[closed] - 1
    section = places - low
    section[:, axis] = 0 if sign > 0 else length - 1
    low[axis] = opening.plane - length if sign > 0 else opening.plane + 1
    counts = high - low + 1
    counts[axis] = length
    closed[axis] = True
    nx, ny, nz = counts.tolist()
    periodic = (bool(closed[0]), bool(closed[1]), bool(closed[2]))
    shape = (nx, ny, nz)
    points = np.repeat(section[None], length, axis=0)
    points[:, :, axis] = np.arange(length)[:, None]
    runs = Runs.of_points(shape, np.sort(raster(shape, points.reshape(-1, 3))))
    origin = lattice.origin + lattice.spacing * low
    grid = Grid(shape, origin, lattice.spacing, periodic)
    slab = (nz * world.rank // world.size, nz * (world.rank + 1) // world.size)
    return Segment(Lattice(grid, runs, (), slab), low, sign, axis, length, section)


def best_length(opening: Opening, spacing: float, kinds: Sequence[CellsTable]) -> int:
    """Points along a segment, so that the fullest kind comes nearest to a whole number of cells.

    Three to four times the widest cell, so that none meets its own image.
    """
    widest = max(2 * kind.radius_um * MICRO for kind in kinds if kind.hematocrit)
    least, most = (math.ceil(factor * widest / spacing) for factor in (_LEAST, _MOST))
    fullest = max(kinds, key=lambda kind: kind.hematocrit)

    def surplus(length: int) -> float:
        wanted = cells_wanted(fullest, len(opening.numbers) * length, spacing)
        return math.ceil(wanted - _WHOLE) / wanted

    return min(range(least, most + 1), key=surplus)


def cells_wanted(kind: CellsTable, points: int, spacing: float) -> float:
    """How many cells fill so many points to the hematocrit of their kind; no whole number."""
    filling = filling_of(kind)
    return filling.hematocrit * points * (spacing / MICRO) ** 3 / filling.volume


def whole_cells(
    kinds: Sequence[CellsTable], points: int, spacing: float
) -> tuple[tuple[CellsTable, ...], list[float]]:
    """Kinds with hematocrits that whole numbers of cells make, and which share of them is wanted."""
    cells, shares = [], []
    for kind in kinds:
        wanted = cells_wanted(kind, points, spacing)
        count = math.ceil(wanted - _WHOLE)
        shares.append(wanted / count if count else 0.0)
        factor = count / wanted if count else 0.0
        cells.append(kind.model_copy(update={"hematocrit": kind.hematocrit * factor}))
    return tuple(cells), shares


# Least steps in which what a mean velocity lacks is made up for.
_CATCHING_UP = 20
# Drag that is sure to be there, over that of the fluid alone. Cells may add more than as much again, and a
# stress of their own, both of which show late: with all that is found in it the flow swings.
_DRAG = 1.5
# Of sums of velocities in whole numbers, which do not depend on who adds what: bits.
_BITS = 62
# As in entering.cpp.
_PIECES, _LANES = 64, 256


class PreInletDrive:
    """Sets the body force of a segment; all in lattice units, velocities towards the vessel."""

    def __init__(self, segment: Segment, medium: FluidWithCells) -> None:
        self._device, self._world = medium.device, medium.world
        self._segment, self._medium = segment, medium
        self.steps = 0
        self._force, self._before, self._wanted = 0.0, 0.0, 0.0
        thinness = permeability(segment.lattice, segment.axis) / segment.lattice.spacing**2
        # Of the fluid alone: force over mean velocity.
        self._drag = (medium.table.tau - 0.5) / 3.0 / thinness
        fluid, count = medium.fluid, segment.lattice.count
        self._scale = 2.0 ** (_BITS - count.bit_length())
        self._sums = medium.device.zeros((_PIECES,), np.int64)
        along = fluid.velocity.reshape(3, fluid.stride)[segment.axis]
        file = local_cells.kernel_file()
        self._sum = medium.device.kernel(file.source, "sum_along", file.constants).bind(
            u=along,
            count=fluid.owned,
            scale=self._scale,
            sums=self._sums,
            extent=(_PIECES * _LANES,),
            block=(_LANES,),
        )

    def start(self, speed: float, profile: Floats) -> None:
        """Let fluid alone flow as it does for good."""
        part, segment = self._medium.part, self._segment
        coordinates = np.array(part.coordinates[: part.owned])
        coordinates[:, segment.axis] = segment.section[0, segment.axis]
        shape = segment.lattice.shape
        numbers = coordinates @ np.array([1, shape[0], shape[0] * shape[1]])
        section = segment.section_numbers()
        order = np.argsort(section, kind="stable")
        velocity = np.zeros((3, part.owned))
        along = profile[order[np.searchsorted(section[order], numbers)]]
        velocity[segment.axis] = segment.sign * speed * along
        self._medium.fluid.set_equilibrium(np.ones(part.owned), velocity)
        self._before = self._wanted = speed
        self._push(self._drag * speed)

    def keep_up(self, wanted: float) -> None:
        """Set the force for a mean velocity, some `steps` after the last time; all ranks call this.

        By du/dt = F - k u - c, with the c that held the flow back since then: the velocity that is wanted next,
        if it goes on to change as it does but not backwards, is reached as many steps from now.
        """
        speed, steps = self.speed(), max(1, self.steps)
        drag = _DRAG * self._drag
        held_back = (
            self._force - (speed - self._before) / steps - drag * 0.5 * (speed + self._before)
        )
        ahead = max(steps, _CATCHING_UP)
        aim = max(0.0, wanted + (wanted - self._wanted) * ahead / steps)
        self._before, self._wanted, self.steps = speed, wanted, 0
        self._push(held_back + drag * (speed + (speed - aim) / math.expm1(-drag * ahead)))

    def _push(self, force: float) -> None:
        self._force = force
        along = np.zeros(3)
        along[self._segment.axis] = self._segment.sign * force
        self._medium.fluid.set_body_force(along.tolist())

    def speed(self) -> float:
        """Mean velocity, the same bits for any number of ranks; all of them call this."""
        self._sum()
        # What is no number is found by those who look at cells.
        sums = self._world.sum(self._device.to_host(self._sums).sum(keepdims=True))
        return self._segment.sign * float(sums[0]) / self._scale / self._segment.lattice.count

    def state(self) -> Floats:
        """State for a restart."""
        return np.array([self._force, self._before, self._wanted, float(self.steps)])

    def restore(self, state: Floats) -> None:
        """Take over what :meth:`state` gave."""
        force, self._before, self._wanted, steps = state.tolist()
        self.steps = int(steps)
        self._push(force)


# As in entering.cpp.
_INLET_LANES = 256


class FedInlet:
    """The points of an opening, and those of a segment that stand for them.

    `profile`: of what is added, that as much flows in as wanted: 1 in the mean, (points,).
    """

    def __init__(
        self,
        segment: Segment,
        source: FluidWithCells,
        vessel: FluidWithCells,
        number: int,
        profile: Floats,
    ) -> None:
        device, alone = source.device, source.world.size == 1
        self._device, self._fluid = device, source.fluid
        opening, points = vessel.lattice.openings[number], len(profile)
        # Where the section's points are among own ones of the segment; -1: on another rank.
        numbers, own = segment.section_numbers(), source.part.numbers[: source.part.owned]
        order = np.argsort(own, kind="stable")
        at = np.minimum(np.searchsorted(own[order], numbers), max(0, len(own) - 1))
        at = order[at] if len(own) else np.zeros(points, np.int64)
        self._section = np.where(np.isin(numbers, own), at, -1)
        part = vessel.part
        in_openings = np.arange(part.bulk, part.owned)
        chosen = np.flatnonzero(part.openings[in_openings] == number)
        to = np.full(points, -1, np.int32)
        to[np.searchsorted(opening.numbers, part.numbers[in_openings[chosen]])] = chosen
        self._inflow = device.zeros((1,), "f8")
        self._inflow_now = 0.0
        # On several ranks all have the section's velocities in an array of its own.
        self._gathered = device.zeros((1 if alone else 3 * points,), "f8")
        velocities = self._fluid.velocity if alone else self._gathered
        places = self._section if alone else np.arange(points)
        opening_velocities = vessel.fluid.opening_velocities
        # Points of the opening that are this rank's, and where they are among its own in openings.
        self._opening_velocities, self._mine, self._places = (
            opening_velocities,
            np.flatnonzero(to >= 0),
            to[to >= 0],
        )
        file = local_cells.kernel_file(str(vessel.fluid.constants["real"]))
        self._set = device.kernel(file.source, "set_inlet", file.constants).bind(
            u=velocities,
            stride=self._fluid.stride if alone else points,
            at=device.from_host(places.astype(np.int32)),
            points=points,
            relative=device.from_host(profile),
            wanted=self._inflow,
            axis=segment.axis,
            sign=segment.sign,
            to=device.from_host(to),
            prescribed=opening_velocities,
            own=int(opening_velocities.shape[1]),
            extent=(_INLET_LANES,),
            block=(_INLET_LANES,),
        )

    def known(self) -> Floats:
        """Velocities of the section's points that are this rank's, 0 of others, on the host, (3, points)."""
        known_velocities = np.zeros((3, len(self._section)))
        here = np.flatnonzero(self._section >= 0)
        velocities = self._fluid.velocity.reshape(3, self._fluid.stride)
        taken = velocities[:, self._device.from_host(self._section[here])]
        known_velocities[:, here] = self._device.to_host(taken)
        return known_velocities

    def gathered(self, velocities: Floats) -> None:
        """Take over the sum of what all ranks knew."""
        self._gathered[...] = self._device.from_host(np.ascontiguousarray(velocities).ravel())

    def own_velocities(self) -> Floats:
        """Velocities of the opening's points that are this rank's, 0 of others, on the host, (3, points)."""
        velocities = np.zeros((3, len(self._section)))
        velocities[:, self._mine] = self._device.to_host(self._opening_velocities)[:, self._places]
        return velocities

    def give(self, velocities: Floats) -> None:
        """Let the opening have the sum of what :meth:`own_velocities` of all ranks."""
        host = self._device.to_host(self._opening_velocities).copy()
        host[:, self._places] = velocities[:, self._mine]
        self._opening_velocities[...] = self._device.from_host(host)

    def set(self, inflow: float) -> None:
        """Set the velocities of the opening for the next step, with a mean into the vessel in lattice units."""
        if inflow != self._inflow_now:
            self._inflow[...] = self._inflow_now = inflow
        self._set()
