"""Cells that come in at an inlet: those of a periodic flow before it that pass its plane.

The flow is that of blood in a long vessel with the inlet's cross-section: a segment that closes on itself
is driven so that as much flows in it as into the vessel. Each cell that reaches the inlet's plane gets a
copy in the vessel, in its shape and place. What of the copy is behind the plane moves with the fluid of the
vessel, the rest as the cell does that it was made of, until all of it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from haloscope.counted import counted
from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.world import World
from haloscope.scope.regions import Region as TimedRegion
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.cell_kinds import starting_cells
from haloscope.solvers.blood.coupling import KERNELS
from haloscope.solvers.blood.d3q19 import DIRECTIONS
from haloscope.solvers.blood.entering import SOURCE as ENTERING
from haloscope.solvers.blood.entering import EnteringCells, Threshold
from haloscope.solvers.blood.feeder_segment import best_length, segment_of, whole_cells
from haloscope.solvers.blood.lattice_flow import permeability
from haloscope.solvers.blood.medium import Medium
from haloscope.solvers.blood.vessels import developed_profile, relative_velocities
from haloscope.solvers.saved_arrays import saved_counts, saved_numbers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_STEP = TimedRegion("feeder")
# Steps in which what a mean velocity lacks is made up for.
_CATCHING_UP = 20
# Way on which a cell is taken over by the vessel's fluid, over the radius of the widest.
_FADE = 1.0
# Of sums of velocities in whole numbers, which do not depend on who adds what: bits.
_BITS = 62
# As in entering.cpp.
_LANES = 256
# A cell comes in when those that are due are at least so many.
_DUE = 0.5
_FAR = 1e9


class Feeder:
    """Feeds the cells of a segment to one opening; all ranks call its methods together.

    Parameters
    ----------
    case
        What fluid and cells are like.
    device, world
        Where to compute, and the ranks.
    vessel
        Into which cells come.
    number, table
        The opening's, and what the case says of it.
    tell
        Is told what users may want to know.

    Attributes
    ----------
    name
        Of the opening.
    sets_velocities
        Whether the opening's velocities are those of the segment, as where a developed profile is asked for.
    medium
        The segment's fluid and cells.
    entering
        By kind the cells of the vessel that are on their way in.

    Raises
    ------
    InputError
        There is nothing to feed, or cells do not fit.
    """

    def __init__(
        self,
        case: BloodCase,
        device: Device,
        world: World,
        vessel: Medium,
        number: int,
        table: OpeningTable,
        tell: Callable[[str], None],
    ) -> None:
        blood = case.blood
        self.name, self._table, self._device, self._world = table.name, blood, device, world
        self._vessel = vessel
        self.opening = opening = vessel.lattice.openings[number]
        if not any(kind.hematocrit for kind in blood.cells):
            raise InputError(
                f"blood.openings {self.name} feeds cells, but no kind of blood.cells has a "
                "hematocrit; give one, or feeds = false"
            )
        spacing = blood.spacing
        length = best_length(opening, spacing, blood.cells)
        self.segment = segment = segment_of(vessel.lattice, opening, length, world)
        lattice = segment.lattice
        kinds, self._shares = whole_cells(blood.cells, lattice.count, spacing)
        try:
            cells = starting_cells(kinds, lattice, blood.seed + 1 + number, world, device, fed=True)
        except InputError as error:
            raise InputError(f"blood.openings {self.name}, which feeds cells: {error}") from None
        self.medium = Medium(
            case,
            device,
            world,
            lattice,
            cells=cells,
            distances=segment.distances,
            tell=lambda told: None,
        )
        tell(
            f"{self.name} is fed by a periodic flow of {counted(lattice.count, 'point')} and "
            f"{counted(cells.count, 'cell')}, {length * blood.spacing_um:g} um long"
        )
        assert self.medium.suspension is not None
        assert vessel.suspension is not None
        self._cells, self._there = self.medium.suspension, vessel.suspension
        self._set_openings(number, table)
        widest = max(kind.radius_um for kind in blood.cells if kind.hematocrit)
        threshold = Threshold(
            segment.axis,
            segment.sign,
            opening.plane,
            KERNELS[blood.delta] / 2,
            _FADE * widest / blood.spacing_um,
        )
        self.entering = [EnteringCells(device, threshold, given) for given in self._there.kinds]
        self._there.entering += self.entering
        self._due = np.zeros(len(self.entering))
        self._step = 0
        self._force, self._speed_before, self._wanted_before, self._steps_since = 0.0, 0.0, 0.0, 0

    def _set_openings(self, number: int, table: OpeningTable) -> None:
        """Find where velocities come from, and where they go."""
        device, part, opening = self._device, self._vessel.part, self.opening
        self._mean = float(relative_velocities(table, opening, self._vessel.lattice).mean())
        self.sets_velocities = table.profile == "parabolic"
        self._profile = developed_profile(opening, self._vessel.lattice)
        mine, points = self.medium.part, len(opening.numbers)
        # Where the section's points are among own ones of the segment; -1: on another rank.
        numbers, own = self.segment.section_numbers(), mine.numbers[: mine.owned]
        order = np.argsort(own, kind="stable")
        at = np.minimum(np.searchsorted(own[order], numbers), max(0, mine.owned - 1))
        at = order[at] if mine.owned else np.zeros(points, np.int64)
        self._section = np.where(np.isin(numbers, own), at, -1)
        in_openings = np.arange(part.bulk, part.owned)
        chosen = np.flatnonzero(part.openings[in_openings] == number)
        to = np.full(points, -1, np.int32)
        to[np.searchsorted(opening.numbers, part.numbers[in_openings[chosen]])] = chosen
        self._inflow = device.zeros((1,), "f8")
        self._inflow_now = 0.0
        fluid, segment = self.medium.fluid, self.segment
        alone = self._world.size == 1
        # On several ranks all have the section's velocities in an array of its own.
        self._gathered = device.zeros((1 if alone else 3 * points,), "f8")
        source = (fluid.velocity, fluid.stride) if alone else (self._gathered, points)
        places = self._section if alone else np.arange(points)
        given = self._vessel.fluid.opening_velocities
        real = str(fluid.constants["real"])
        self._set_inlet = device.kernel(ENTERING, "set_inlet", {"real": real}).bind(
            *(*source, device.from_host(places.astype(np.int32)), points),
            *(device.from_host(self._profile), self._inflow, segment.axis, segment.sign),
            *(device.from_host(to), given, int(given.shape[1])),
            extent=(_LANES,),
            block=(_LANES,),
        )

    def start(self, inflow: float) -> None:
        """Let the segment flow as fluid alone would at a mean inflow in m/s; cells that cross its end stay."""
        speed = self._wanted(inflow)
        part, segment = self.medium.part, self.segment
        coordinates = np.array(part.coordinates[: part.owned])
        coordinates[:, segment.axis] = segment.section[0, segment.axis]
        shape = segment.lattice.shape
        numbers = coordinates @ np.array([1, shape[0], shape[0] * shape[1]])
        section = segment.section_numbers()
        order = np.argsort(section, kind="stable")
        velocity = np.zeros((3, part.owned))
        profile = self._profile[order[np.searchsorted(section[order], numbers)]]
        velocity[segment.axis] = segment.sign * speed * profile
        self.medium.fluid.set_equilibrium(np.ones(part.owned), velocity)
        self._speed_before = self._wanted_before = speed
        viscosity = (self._table.tau - 0.5) / 3.0
        thinness = permeability(segment.lattice, segment.axis) / self._table.spacing**2
        self._force = viscosity * speed / thinness
        self._push()
        self.medium.start()
        self._turns = [self._fronts(kind)[1] for kind in range(len(self.entering))]

    def _wanted(self, inflow: float) -> float:
        """Mean speed towards the vessel in spacings a step, for a value of the opening in m/s."""
        return max(0.0, inflow * self._mean / self._table.units.velocity)

    # Steps

    def before_step(self, inflow: float) -> None:
        """Take a step of the segment, and tell the vessel what goes into it in its next step."""
        with _STEP:
            self.medium.take()
            self._step += 1
            self._steps_since += 1
            if self._step % self._table.inside_interval == 0:
                self.medium.mark_inside()
            self._tell(inflow)

    def _tell(self, inflow: float) -> None:
        """Velocities of the section go to the opening, those of vertices to the cells made of theirs."""
        if self._world.size > 1:
            self._gather()
        else:
            for cells, given in zip(self.entering, self._cells.kinds, strict=True):
                cells.fetch(given.membranes)
        for cells in self.entering:
            cells.list()
        if self.sets_velocities:
            wanted = self._wanted(inflow)
            if wanted != self._inflow_now:
                self._inflow[...] = self._inflow_now = wanted
            self._set_inlet()

    def _gather(self) -> None:
        """Let all ranks have what one of them knows, through their hosts."""
        give, take = self._device.to_host, self._device.from_host
        section = np.zeros((3, len(self._section) if self.sets_velocities else 0))
        if self.sets_velocities:
            here = np.flatnonzero(self._section >= 0)
            fluid = self.medium.fluid
            some = fluid.velocity.reshape(3, fluid.stride)[:, take(self._section[here])]
            section[:, here] = give(some)
        parts: list[np.ndarray] = [section]
        for cells, given in zip(self.entering, self._cells.kinds, strict=True):
            m = given.membranes
            found = np.zeros((3, len(cells.sources), m.vertices))
            own = given.ids[given.own]
            here = np.flatnonzero(np.isin(cells.sources, own))
            if here.size:
                rows = np.searchsorted(given.ids, cells.sources[here])
                velocities = m.velocities.reshape(3, m.capacity, m.vertices)
                found[:, here] = give(velocities[:, take(rows)])
            parts.append(found)
        # Each value is one rank's, and 0 on the others.
        values = self._world.sum(np.concatenate([part.ravel() for part in parts]))
        summed, *of_cells = (
            each.reshape(part.shape)
            for each, part in zip(
                np.split(values, np.cumsum([part.size for part in parts])[:-1]), parts, strict=True
            )
        )
        if self.sets_velocities:
            self._gathered[...] = take(np.ascontiguousarray(summed).ravel())
        for cells, found in zip(self.entering, of_cells, strict=True):
            if found.size:
                led = cells.led.reshape(3, cells.room, -1)
                led[:, : len(cells.sources)] = take(np.ascontiguousarray(found))

    def look(self, inflow: float, next_ids: list[int]) -> list[int]:
        """Let cells pass; how many of each kind came in. Numbers of the next cells are told and go on."""
        self._keep_up(inflow)
        self._let_go()
        return [self._let_in(kind, next_ids) for kind in range(len(self.entering))]

    def _keep_up(self, inflow: float) -> None:
        """Drive the segment's fluid so that as much flows as into the vessel.

        What held it back since the last look is made up for, with what the velocity lacks, and the
        inflow is followed.
        """
        speed, wanted, steps = self._speed(), self._wanted(inflow), max(1, self._steps_since)
        held_back = self._force - (speed - self._speed_before) / steps
        following = (wanted - self._wanted_before) / steps
        self._force = held_back + following + (wanted - speed) / _CATCHING_UP
        self._speed_before, self._wanted_before, self._steps_since = speed, wanted, 0
        self._push()

    def _push(self) -> None:
        force = np.zeros(3)
        force[self.segment.axis] = self.segment.sign * self._force
        self.medium.fluid.set_body_force(force.tolist())

    def _speed(self) -> float:
        """Mean velocity towards the vessel, the same bits for any number of ranks."""
        fluid, xp = self.medium.fluid, self._device.xp
        count = self.segment.lattice.count
        scale = 2.0 ** (_BITS - count.bit_length())
        along = fluid.velocity.reshape(3, fluid.stride)[self.segment.axis, : fluid.owned]
        total = xp.rint(along * scale).astype(xp.int64).sum()
        sums = self._world.sum(np.array([int(total)], np.int64))
        speed: float = self.segment.sign * float(sums[0]) / scale / count
        return speed

    def _fronts(self, kind: int) -> tuple[Floats, Integers]:
        """How far the foremost vertices of all cells are past the opening's plane, and turns of the segment."""
        given, segment = self._cells.kinds[kind], self.segment
        found = np.zeros(given.total)
        if given.count:
            m = given.membranes
            along = m.positions.reshape(3, m.capacity, m.vertices)[segment.axis, : given.count]
            foremost = along.max(axis=1) if segment.sign > 0 else along.min(axis=1)
            ahead = self._device.to_host(foremost) + segment.offset[segment.axis]
            own = given.own
            found[given.ids[own]] = segment.sign * (ahead[own] - self.opening.plane)
        fronts = self._world.sum(found)
        return fronts, np.floor(fronts / segment.length).astype(np.int64)

    def _let_in(self, kind: int, next_ids: list[int]) -> int:
        """Make copies of the cells that have come to the plane."""
        fronts, turns = self._fronts(kind)
        passing = np.flatnonzero((turns > self._turns[kind]) & (turns >= 0))
        self._turns[kind] = np.maximum(turns, self._turns[kind])
        # The one that is ahead goes first.
        ahead = fronts - turns * self.segment.length
        chosen = []
        for cell in passing[np.lexsort((passing, -ahead[passing]))].tolist():
            self._due[kind] += self._shares[kind]
            if self._due[kind] >= _DUE:
                self._due[kind] -= 1.0
                chosen.append(cell)
        if not chosen:
            return 0
        sources = np.array(chosen, np.int64)
        states = self._states(kind, sources)
        shift = self.segment.offset.astype(np.float64)
        states[:, 0] += shift
        states[:, 0, :, self.segment.axis] -= (
            self.segment.sign * self.segment.length * turns[sources][:, None]
        )
        ids = next_ids[kind] + np.arange(len(sources))
        next_ids[kind] += len(sources)
        mine = self._there.owners(states[:, 0]) == self._world.rank
        self._there.place_states(kind, ids[mine], states[mine])
        cells = self.entering[kind]
        cells.keep(np.concatenate([cells.ids, ids]), np.concatenate([cells.sources, sources]))
        return len(sources)

    def _states(self, kind: int, sources: Integers) -> Floats:
        """States (n, arrays of the state, V, 3) of cells of the segment, on every rank."""
        given = self._cells.kinds[kind]
        m = given.membranes
        found = np.zeros((len(sources), len(m.state), m.vertices, 3))
        own = given.ids[given.own]
        here = np.flatnonzero(np.isin(sources, own))
        if here.size:
            rows = np.searchsorted(given.ids, sources[here])
            for number, array in enumerate(m.state):
                found[here, number] = m.on_host(array, given.count)[rows]
        total: Floats = self._world.sum(found)
        return total

    def _let_go(self) -> None:
        """Cells that are all in the vessel, or have left it, are led no more."""
        for kind, cells in enumerate(self.entering):
            given = self._there.kinds[kind]
            if not len(cells.ids):
                continue
            # Of each: whether it is there, and whether all of it is in.
            found = np.zeros((2, len(cells.ids)), np.int64)
            here = np.flatnonzero(np.isin(cells.ids, given.ids[given.own]))
            if here.size:
                rows = np.searchsorted(given.ids, cells.ids[here])
                m = given.membranes
                along = m.positions.reshape(3, m.capacity, m.vertices)[self.segment.axis]
                some = self._device.to_host(along[self._device.from_host(rows)])
                at = cells.threshold
                least = (at.sign * (some - at.plane)).min(axis=1)
                found[0, here], found[1, here] = 1, least >= at.deep + at.fade
            there, within = self._world.sum(found)
            stay = (there > 0) & (within == 0)
            if not stay.all():
                cells.keep(cells.ids[stay], cells.sources[stay])

    def require_sound(self) -> None:
        """See that no membrane of the segment has folded over; the same on every rank."""
        self._cells.require_sound()

    # State

    def _key(self, what: str) -> str:
        return f"feeder {self.name} {what}"

    def state(self) -> dict[str, np.ndarray]:
        """What a restart needs, whole on rank 0; all ranks call this."""
        part, world = self.medium.part, self._world
        parts: list[np.ndarray] = [np.empty(0, np.uint8)] * world.size
        parts[0] = np.ascontiguousarray(part.numbers[: part.owned]).view(np.uint8)
        numbers = world.exchange(parts)
        values = self.medium.fluid.populations()
        parts[0] = np.ascontiguousarray(values.T).reshape(-1).view(np.uint8)
        rows = world.exchange(parts)
        order = np.argsort(np.frombuffer(b"".join(each.tobytes() for each in numbers), np.int64))
        every = np.frombuffer(b"".join(each.tobytes() for each in rows), values.dtype)
        populations = every.reshape(-1, DIRECTIONS)[order].T
        found = {f"{self._key('')}{key}": value for key, value in self._cells.state().items()}
        found[self._key("populations")] = np.ascontiguousarray(populations)
        found[self._key("control")] = np.array(
            [self._force, self._speed_before, self._wanted_before, float(self._steps_since)]
        )
        found[self._key("due")] = self._due.copy()
        for kind, cells in enumerate(self.entering):
            found[self._key(f"turns {kind}")] = self._turns[kind]
            found[self._key(f"entering {kind}")] = np.stack([cells.ids, cells.sources])
        return found

    def restore(self, state: Mapping[str, np.ndarray], step: int) -> None:
        """Take over on every rank what :meth:`state` gave.

        Raises
        ------
        InputError
            The state is that of another opening, or damaged.
        """
        prefix = self._key("")
        own = {
            key.removeprefix(prefix): value
            for key, value in state.items()
            if key.startswith(prefix)
        }
        if "populations" not in own:
            raise InputError(
                f"the checkpoint has no feeder {self.name!r}; restart with the case and the version it is from"
            )
        lattice, part = self.segment.lattice, self.medium.part
        named = {self._key(key): value for key, value in own.items()}
        values = saved_numbers(named, self._key("populations"), (DIRECTIONS, lattice.count))
        force, before, wanted, since = saved_numbers(
            named, self._key("control"), (4,), least=-_FAR, most=_FAR
        )
        due = saved_numbers(named, self._key("due"), (len(self.entering),), least=-1.0, most=1.0)
        turns, entering = [], []
        for kind, given in enumerate(self._cells.kinds):
            key = self._key(f"turns {kind}")
            turns.append(saved_counts(named, key, (given.total,), least=-_FAR, most=_FAR))
            pairs = saved_counts(named, self._key(f"entering {kind}"), (2, None))
            if (pairs[1] >= given.total).any():
                raise InputError(
                    f"the checkpoint is damaged: {self._key(f'entering {kind}')!r} names cells that are not "
                    "there; restart from an earlier one"
                )
            entering.append(pairs)
            numbers = saved_counts(named, self._key(f"{given.kind.name} numbers"), (given.total,))
            if not np.array_equal(np.sort(numbers), np.arange(given.total)):
                raise InputError(
                    f"the checkpoint is damaged: cells are missing in its feeder {self.name!r}; restart from "
                    "an earlier one"
                )
        self._cells.restore(own)
        every = np.sort(lattice.runs.numbers())
        at = np.searchsorted(every, part.numbers[: part.owned])
        self.medium.fluid.set_populations(values[:, at])
        self._force, self._speed_before = float(force), float(before)
        self._wanted_before, self._steps_since = float(wanted), int(since)
        self._due, self._turns, self._step = due, turns, step
        for cells, (ids, sources) in zip(self.entering, entering, strict=True):
            cells.keep(ids, sources)
        self._push()
        self.medium.mark_inside()
