"""The pre-inlet: cells of its periodic flow that pass the inlet plane enter the vessel.

The flow is that of blood in a long vessel with the inlet's cross-section: a segment that closes on itself
is driven so that as much flows in it as into the vessel. Each cell that reaches the inlet's plane gets a
copy in the vessel, in its shape and place. What of the copy is behind the plane moves with the fluid of the
vessel, the rest as the cell does that it was made of, until all of it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import InputError, SolutionError, counted
from haloscope.exchange.ranks.world import World
from haloscope.regions import Region as TimedRegion
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.cell_kinds import starting_cells
from haloscope.solvers.blood.cells.entering import EnteringCells, Threshold
from haloscope.solvers.blood.coupling.coupling import KERNELS
from haloscope.solvers.blood.feeding.periodic_flow import (
    FedInlet,
    PreInletDrive,
    best_length,
    segment_of,
    whole_cells,
)
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.membranes.cell_shapes import CREASED, SMOOTHING_STEPS
from haloscope.solvers.blood.vessels.vessels import developed_profile, relative_velocities
from haloscope.solvers.interface import saved_counts, saved_numbers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_STEP = TimedRegion("feeder")
# Way on which a cell is taken over by the vessel's fluid, over the radius of the widest.
_FADE = 1.0
# A cell comes in when those that are due are at least so many.
_DUE = 0.5
_FAR = 1e9


def sharing_of(device: Device, world: World) -> World:
    """The ranks that share a segment.

    On GPUs each rank has all of it: handing over through hosts takes longer than its step.
    """
    return world if device.kind == "cpu" else World()


class PreInlet:
    """Feeds the cells of a segment to one opening; all ranks call its methods together."""

    def __init__(
        self,
        case: BloodCase,
        device: Device,
        world: World,
        vessel: FluidWithCells,
        number: int,
        table: OpeningTable,
        log: Callable[[str], None],
    ) -> None:
        blood = case.blood
        # Of the opening.
        self.name, self._table, self._device, self._world = table.name, blood, device, world
        self._sharing = sharing = sharing_of(device, world)
        self._vessel = vessel
        self.opening = opening = vessel.lattice.openings[number]
        if not any(kind.hematocrit for kind in blood.cells):
            raise InputError(
                "the opening feeds cells, but no kind of blood.cells has a hematocrit",
                location=f"blood.openings {self.name}",
                remedy="set blood.cells.hematocrit, or set feeds = false",
            )
        spacing = blood.spacing
        length = best_length(opening, spacing, blood.cells)
        self.segment = segment = segment_of(vessel.lattice, opening, length, sharing)
        lattice = segment.lattice
        kinds, self._shares = whole_cells(blood.cells, lattice.count, spacing)
        try:
            cells = starting_cells(kinds, lattice, blood.seed + 1 + number, world, device, fed=True)
        except InputError as error:
            raise error.within(
                f"blood.openings {self.name}, periodic flow that feeds cells"
            ) from None
        # The segment's fluid and cells.
        self.medium = FluidWithCells(
            case,
            device,
            sharing,
            lattice,
            cells=cells,
            distances=segment.distances,
            log=lambda line: None,
        )
        log(
            f"{self.name}: a periodic flow of {counted(lattice.count, 'point')} and "
            f"{counted(cells.count, 'cell')}, {length * blood.spacing_um:g} um long, feeds cells"
        )
        assert self.medium.suspension is not None
        assert vessel.suspension is not None
        self._cells, self._there = self.medium.suspension, vessel.suspension
        self._mean = float(relative_velocities(table, opening, vessel.lattice).mean())
        self._profile = developed_profile(opening, vessel.lattice)
        self._drive = PreInletDrive(device, sharing, segment, self.medium, blood.tau)
        self._inlet: FedInlet | None = None
        if table.profile == "parabolic":
            both = (device, segment, self.medium, vessel, number, self._profile)
            self._inlet = FedInlet(*both, alone=sharing.size == 1)
        widest = max(kind.radius_um for kind in blood.cells if kind.hematocrit)
        threshold = Threshold(
            segment.axis,
            segment.sign,
            opening.plane,
            KERNELS[blood.delta] / 2,
            _FADE * widest / blood.spacing_um,
        )
        # By kind the cells of the vessel that are on their way in.
        self.entering = [EnteringCells(device, threshold, local) for local in self._there.kinds]
        self._there.entering += self.entering
        self._due = np.zeros(len(self.entering))
        self._step = 0
        # Whether the next step was begun, beside the one of the vessel. Ranks that share it wait for each other.
        self._begun, self._alone = False, sharing.size == 1

    @property
    def cells(self) -> int:
        """How many cells the segment has."""
        return sum(local.total for local in self._cells.kinds)

    @property
    def smoothed(self) -> int:
        """How often creases were smoothed out of a cell of the segment."""
        return self._cells.smoothed

    @property
    def sets_velocities(self) -> bool:
        """Whether the opening's velocities are those of the segment: where a developed profile is asked for."""
        return self._inlet is not None

    def start(self, inflow: float) -> None:
        """Let the segment flow as fluid alone would at a mean inflow in m/s; cells that cross its end stay."""
        self._drive.start(self._wanted(inflow), self._profile)
        self.medium.start()
        self._turns = [self._fronts(kind)[1] for kind in range(len(self.entering))]

    def _inward(self, inflow: float) -> float:
        """Mean speed into the vessel in spacings a step, for a value of the opening in m/s."""
        return inflow * self._mean / self._table.units.velocity

    def _wanted(self, inflow: float) -> float:
        """Flow rate of the segment; 0 while the flow goes outward."""
        return max(0.0, self._inward(inflow))

    # Steps

    def before_step(self, inflow: float, *, another: bool) -> None:
        """Take a step of the segment, and tell the vessel what goes into it in its next step.

        `inflow`: of the opening in m/s.
        """
        with _STEP, self._named():
            if not self._begun:
                self.medium.begin()
            self.medium.end()
            self._begun = False
            self._step += 1
            self._drive.steps += 1
            if self._step % self._table.inside_interval == 0:
                self.medium.mark_inside()
            self._announce(inflow)
            if another and self._alone:
                self.medium.begin()
                self._begun = True

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the location to errors of the segment."""
        try:
            yield
        except SolutionError as error:
            raise error.within(f"periodic flow that feeds {self.name}") from None

    def _announce(self, inflow: float) -> None:
        """Velocities of the section go to the opening, those of vertices to the cells made of theirs."""
        if self._sharing.size > 1:
            self._gather()
        else:
            for cells, local in zip(self.entering, self._cells.kinds, strict=True):
                cells.fetch(local.membranes)
        for cells in self.entering:
            cells.list()
        if self._inlet is not None:
            self._inlet.set(self._inward(inflow))

    def _gather(self) -> None:
        """Let all ranks have what one of them knows, through their hosts."""
        nothing = np.zeros((3, 0))
        parts = [nothing if self._inlet is None else self._inlet.known()]
        for cells, local in zip(self.entering, self._cells.kinds, strict=True):
            parts.append(cells.known(local).reshape(3, -1))
        # Each value is one rank's, and 0 on the others.
        values = self._sharing.sum(np.concatenate(parts, axis=1))
        ends = np.cumsum([part.shape[1] for part in parts])
        if self._inlet is not None:
            self._inlet.gathered(values[:, : ends[0]])
        for cells, begin, end in zip(self.entering, ends, ends[1:], strict=False):
            cells.gathered(values[:, begin:end])

    def look(self, inflow: float, next_ids: list[int]) -> list[int]:
        """Let cells pass; how many of each kind came in. Numbers of the next cells are told and go on."""
        before = self._step - self._drive.steps
        self._drive.keep_up(self._wanted(inflow))
        self._let_go()
        if (
            self._table.smooth_creases
            and self._step // SMOOTHING_STEPS != before // SMOOTHING_STEPS
        ):
            # But not while copies follow them.
            self._cells.smooth(CREASED, [cells.sources for cells in self.entering])
        return [self._let_in(kind, next_ids) for kind in range(len(self.entering))]

    def _fronts(self, kind: int) -> tuple[Floats, Integers]:
        """How far the foremost vertices of all cells are past the opening's plane, and turns of the segment."""
        local, segment = self._cells.kinds[kind], self.segment
        own_fronts = np.zeros(local.total)
        outlines, own = self._cells.ownership.outlines(local), local.own
        foremost = outlines.high if segment.sign > 0 else outlines.low
        ahead = foremost[own, segment.axis] + segment.offset[segment.axis]
        own_fronts[local.ids[own]] = segment.sign * (ahead - self.opening.plane)
        # What is no number is found by those who look at cells.
        fronts = np.nan_to_num(self._sharing.sum(own_fronts), nan=0.0).clip(-_FAR, _FAR)
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
        states = self._cells.ownership.states_of(self._cells.kinds[kind], sources)
        shift = self.segment.offset.astype(np.float64)
        states[:, 0] += shift
        states[:, 0, :, self.segment.axis] -= (
            self.segment.sign * self.segment.length * turns[sources][:, None]
        )
        ids = next_ids[kind] + np.arange(len(sources))
        next_ids[kind] += len(sources)
        there = self._there.kinds[kind]
        self._there.ownership.place(there, ids, states[:, 0], states)
        cells = self.entering[kind]
        cells.keep(np.concatenate([cells.ids, ids]), np.concatenate([cells.sources, sources]))
        return len(sources)

    def _let_go(self) -> None:
        """Cells that are all in the vessel, or have left it, are led no more."""
        for kind, cells in enumerate(self.entering):
            local = self._there.kinds[kind]
            if not len(cells.ids):
                continue
            # Of each: whether it is there, and whether all of it is in.
            counts = np.zeros((2, len(cells.ids)), np.int64)
            here = np.flatnonzero(np.isin(cells.ids, local.ids[local.own]))
            if here.size:
                rows = np.searchsorted(local.ids, cells.ids[here])
                outlines, at = self._there.ownership.outlines(local), cells.threshold
                hindmost = outlines.low if at.sign > 0 else outlines.high
                least = at.sign * (hindmost[rows, at.axis] - at.plane)
                counts[0, here], counts[1, here] = 1, least >= at.deep + at.fade
            there, within = self._world.sum(counts)
            stay = (there > 0) & (within == 0)
            if not stay.all():
                cells.keep(cells.ids[stay], cells.sources[stay])

    def require_sound(self) -> None:
        """See that no membrane of the segment has folded over; the same on every rank."""
        with self._named():
            self._cells.require_sound()

    # State

    def _key(self, quantity: str) -> str:
        return f"feeder {self.name} {quantity}"

    def state(self) -> dict[str, np.ndarray]:
        """State for a restart, whole on rank 0; all ranks call this."""
        if self._begun:
            # The vessel broke: what is kept is one step further here.
            self._device.join(self._device.beside)
        state = {f"{self._key('')}{key}": value for key, value in self._cells.state().items()}
        state[self._key("points")] = self.medium.points()
        state[self._key("drive")] = self._drive.state()
        if self._inlet is not None:
            state[self._key("inlet")] = self._world.sum(self._inlet.own_velocities())
        state[self._key("due")] = self._due.copy()
        for kind, cells in enumerate(self.entering):
            state[self._key(f"turns {kind}")] = self._turns[kind]
            state[self._key(f"entering {kind}")] = np.stack([cells.ids, cells.sources])
        return state

    def restore(self, state: Mapping[str, np.ndarray], step: int, next_ids: Sequence[int]) -> None:
        """Take over on every rank what :meth:`state` gave after a step, with numbers of cells below the next ones."""
        prefix = self._key("")
        own = {
            key.removeprefix(prefix): value
            for key, value in state.items()
            if key.startswith(prefix)
        }
        if "points" not in own:
            raise InputError(
                f"it lacks the periodic flow that feeds {self.name!r}",
                location="checkpoint",
                remedy="restart with the case and the version that wrote it",
            )
        named = {self._key(key): value for key, value in own.items()}
        points = saved_numbers(named, self._key("points"), self.medium.points_shape)
        drive = saved_numbers(named, self._key("drive"), (4,), least=-_FAR, most=_FAR)
        due = saved_numbers(named, self._key("due"), (len(self.entering),), least=-1.0, most=1.0)
        turns, entering = [], []
        for kind, local in enumerate(self._cells.kinds):
            key = self._key(f"turns {kind}")
            turns.append(saved_counts(named, key, (local.total,), least=-_FAR, most=_FAR))
            pairs = saved_counts(named, self._key(f"entering {kind}"), (2, None))
            alone = len(np.unique(pairs[0])) == pairs.shape[1]
            if not alone or ((next_ids[kind], local.total) <= pairs.T).any():
                raise InputError(
                    f"it is damaged: {self._key(f'entering {kind}')!r} lists unknown cells, or one twice",
                    location="checkpoint",
                    remedy="restart from an earlier one",
                )
            entering.append(pairs)
            numbers = saved_counts(named, self._key(f"{local.kind.name} numbers"), (local.total,))
            if not np.array_equal(np.sort(numbers), np.arange(local.total)):
                raise InputError(
                    f"it is damaged: cells are missing in the periodic flow that feeds {self.name!r}",
                    location="checkpoint",
                    remedy="restart from an earlier one",
                )
        self._cells.restore(own)
        if self._inlet is not None:
            shape = (3, len(self.opening.numbers))
            self._inlet.give(
                saved_numbers(named, self._key("inlet"), shape, least=-_FAR, most=_FAR)
            )
        self.medium.restore_points(points)
        self._due, self._turns, self._step = due, turns, step
        for cells, (ids, sources) in zip(self.entering, entering, strict=True):
            cells.keep(ids, sources)
        self._drive.restore(drive)
