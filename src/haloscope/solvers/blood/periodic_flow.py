"""The periodic flow of a pre-inlet: a straight piece of vessel, driven to its mean velocity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.lattice.lattice_runs import Runs, raster
from haloscope.mesh.lattice.openings import AnyOpening, Opening
from haloscope.mesh.lattice.shapes import Grid
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case import LONGEST_SEGMENT
from haloscope.solvers.blood.case_cells import CellsTable
from haloscope.solvers.blood.cells import local_cells
from haloscope.solvers.blood.cells.local_cells import Threshold
from haloscope.solvers.blood.filling.filling import filling_of
from haloscope.solvers.blood.filling.shapes import distance_from_points
from haloscope.solvers.blood.fluid.flow import permeability
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.vessels.cap_flow import points_within

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Lengths of a segment over the diameter of the widest cell, of which the best is taken.
_LEAST, _MOST = 3.0, LONGEST_SEGMENT
# By how much a number of cells may be a whole one only by rounding.
_WHOLE = 1e-9
# Spacings around an end within which points belong to the vessel behind it, or cells spread forces.
_ASIDE = 2.0


@dataclass(frozen=True, eq=False)
class Turn:
    """How a segment lies before an opening askew to the axes: X in it is at `turn` X + `shift` in the vessel."""

    turn: Floats  # A rotation, (3, 3)
    shift: Floats  # In spacings, (3,)

    @property
    def degrees(self) -> float:
        """The angle by which it turns."""
        return math.degrees(math.acos(min(1.0, (float(np.trace(self.turn)) - 1) / 2)))

    def turned(self, vectors: Floats) -> Floats:
        """Vectors (..., 3) of the segment as the vessel has them."""
        # Term by term: the sums are the same however many there are.
        x, y, z = (vectors[..., axis, None] * self.turn[:, axis] for axis in range(3))
        return np.asarray(x + y + z)

    def back(self, vectors: Floats) -> Floats:
        """The reverse."""
        return Turn(self.turn.T, self.shift).turned(vectors)


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment that ends where an opening is."""

    # Its points, periodic along the opening's axis, or the axis nearest to its normal.
    lattice: Lattice
    # Coordinates in the vessel's lattice of its first point, (3,); 0 with a turn.
    offset: NDArray[np.int64]
    sign: int  # The way into the vessel along the axis, 1 or -1
    # Of the opening, and points along it.
    axis: int
    length: int
    plane: int  # Coordinate of the opening, counted as `offset` is
    # Coordinates in the segment's lattice of the points that stand for those of the opening, in the
    # order of these, (n, 3); with a turn in the order of their numbers.
    section: NDArray[np.int64]
    turn: Turn | None = None  # Before an opening askew to the axes

    @property
    def at_opening(self) -> Opening:
        """The opening as the segment's own lattice has it."""
        numbers = self.section_numbers()
        plane = int(self.section[0, self.axis])
        return Opening("", self.axis, -self.sign, plane, np.sort(numbers))

    def threshold(self, reach: float, fade: float) -> Threshold:
        """Where cells enter the vessel; `reach`: of the support of vertices along an axis."""
        inward = self.sign * np.eye(3)[self.axis]
        point = np.where(inward, float(self.plane), 0.0)
        if self.turn is None:
            return Threshold(inward, point, np.eye(3), reach, fade)
        normal = self.turn.turned(inward)
        point = self.turn.turned(point) + self.turn.shift
        deep = reach * float(np.abs(normal).sum())
        return Threshold(normal, point, self.turn.turn, deep, fade)

    def placed(self, states: Floats, turns: Integers) -> Floats:
        """States (n, arrays, V, 3) of cells of the vessel, made of those in the segment after so many turns."""
        result = states.copy()
        result[:, 0] += self.offset.astype(np.float64)
        result[:, 0, :, self.axis] -= self.sign * self.length * turns[:, None]
        if self.turn is not None:
            # What strains are measured by is the same in any direction.
            result[:, 0] = self.turn.turned(result[:, 0]) + self.turn.shift
            result[:, 1] = self.turn.turned(result[:, 1])
        return result

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


def segment_of(lattice: Lattice, opening: AnyOpening, length: int, world: World) -> Segment:
    """The segment of so many points along the axis before an opening."""
    if isinstance(opening, TiltedOpening):
        return _turned_segment(lattice, opening, length, world)
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
    origin = lattice.origin + lattice.spacing * low
    inner = _drawn_out(section, axis, counts, closed, origin, lattice.spacing, world)
    return Segment(inner, low, sign, axis, length, opening.plane, section)


def _drawn_out(
    section: Integers,
    axis: int,
    counts: Integers,
    closed: NDArray[np.bool_],
    origin: Floats,
    spacing: float,
    world: World,
) -> Lattice:
    """The lattice of a section drawn out along an axis; `counts`: points of its box."""
    nx, ny, nz = counts.tolist()
    periodic = (bool(closed[0]), bool(closed[1]), bool(closed[2]))
    shape = (nx, ny, nz)
    points = np.repeat(section[None], shape[axis], axis=0)
    points[:, :, axis] = np.arange(shape[axis])[:, None]
    runs = Runs.of_points(shape, np.sort(raster(shape, points.reshape(-1, 3))))
    grid = Grid(shape, origin, spacing, periodic)
    slab = (nz * world.rank // world.size, nz * (world.rank + 1) // world.size)
    return Lattice(grid, runs, (), slab)


def _turned_segment(lattice: Lattice, opening: TiltedOpening, length: int, world: World) -> Segment:
    """The same before an opening askew to the axes: along the axis nearest to its normal."""
    inward = -opening.normal
    axis = int(np.abs(inward).argmax())
    sign = 1 if inward[axis] > 0 else -1
    turn = _shortest_turn(sign * np.eye(3)[axis], inward)
    section, low, counts = _turned_section(lattice, opening, axis, turn)
    section[:, axis] = 0 if sign > 0 else length - 1
    counts[axis], closed = length, np.arange(3) == axis
    plane = length if sign > 0 else -1
    inner = _drawn_out(section, axis, counts, closed, np.zeros(3), lattice.spacing, world)
    # The middle of the end lies at -low in the section, and in the plane.
    low[axis] = -plane
    middle = (opening.middle - lattice.origin) / lattice.spacing
    shift = middle + Turn(turn, middle).turned(low)
    zero = np.zeros(3, np.int64)
    return Segment(inner, zero, sign, axis, length, plane, section, Turn(turn, shift))


def require_room(lattice: Lattice, opening: TiltedOpening, reach: float) -> None:
    """Refuse an end before which another part of the vessel lies where cells come from.

    `reach`: of cells, in spacings.
    """
    h = lattice.spacing
    heights = (opening.sides[..., 2] - lattice.origin[2]) / h
    low, high = heights.min() - reach - _ASIDE, heights.max() + reach + _ASIDE
    planes = np.clip([math.floor(low), math.ceil(high)], 0, lattice.shape[2]).tolist()
    places = lattice.positions(lattice.runs.slab(*planes).numbers())
    before = opening.heights(places)
    there = (before > _ASIDE * h) & (before < (reach + _ASIDE) * h)
    there &= opening.is_beside(places, _ASIDE * h)
    if there.any():
        place = MICROMETRE.place(places[there][before[there].argmin()])
        raise InputError(
            f"part of the vessel lies before it at {place}, where cells that enter come from",
            location=f"blood.openings {opening.name}.feeds",
            allowed=f"no fluid within {MICROMETRE.length(reach * h)} before the inlet",
            remedy="move the inlet outward (blood.surface.extend_radii, or position_um), or feed cells elsewhere",
        )


def _shortest_turn(one: Floats, other: Floats) -> Floats:
    """The rotation by the least angle, below 90 degrees, that makes one direction the other."""
    across = np.cross(one, other)
    x, y, z = across
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(np.eye(3) + skew + skew @ skew / (1.0 + one @ other))


def _turned_section(
    lattice: Lattice, opening: TiltedOpening, axis: int, turn: Floats
) -> tuple[Integers, Floats, Integers]:
    """Points (n, 3) within an end's outline turned to an axis, place of the first from the end's middle, counts."""
    flat = (opening.sides - opening.middle) @ turn / lattice.spacing
    across = [other for other in range(3) if other != axis]
    flat = flat[..., across]
    middle, half = (
        (flat.max(axis=(0, 1)) + flat.min(axis=(0, 1))) / 2,
        np.ptp(flat, axis=(0, 1)) / 2,
    )
    area = opening.size / lattice.spacing**2
    # With a point or half a spacing in the middle along each axis, whichever comes nearest to the area.
    choices = []
    for beside in np.ndindex(2, 2):
        steps = np.ceil(half - np.array(beside) / 2).astype(np.int64)
        first, numbers = middle - steps - np.array(beside) / 2, 2 * steps + 1 + np.array(beside)
        choices.append((first, numbers, points_within(flat - first, numbers)))
    missed = [abs(np.count_nonzero(inside) - area) for _, _, inside in choices]
    first, numbers, inside = choices[int(np.argmin(missed))]
    section = np.zeros((np.count_nonzero(inside), 3), np.int64)
    # By numbers: the first axis is the fastest.
    section[:, across[::-1]] = np.argwhere(inside.T)
    low, counts = np.zeros(3), np.ones(3, np.int64)
    low[across], counts[across] = first, numbers
    return section, low, counts


def best_length(section: int, spacing: float, kinds: Sequence[CellsTable]) -> int:
    """Points along a segment, so that the fullest kind comes nearest to a whole number of cells.

    Three to four times the widest cell, so that none meets its own image; `section`: points across it.
    """
    widest = max(2 * kind.radius_um * MICRO for kind in kinds if kind.hematocrit)
    least, most = (math.ceil(factor * widest / spacing) for factor in (_LEAST, _MOST))
    fullest = max(kinds, key=lambda kind: kind.hematocrit)

    def surplus(length: int) -> float:
        wanted = cells_wanted(fullest, section * length, spacing)
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
