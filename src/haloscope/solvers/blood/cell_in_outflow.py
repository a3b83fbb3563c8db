"""Cells that leave through openings, and the pre-inlets from whose periodic flow cells enter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import InputError, SolutionError, counted
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.regions import Region as TimedRegion
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.cells.local_cells import EnteringCells, LocalCells
from haloscope.solvers.blood.cells.ownership import Outlines
from haloscope.solvers.blood.coupling.coupling import KERNELS
from haloscope.solvers.blood.fed_inlets import FedInlet, FedLinks, fed_inlet, section_profile
from haloscope.solvers.blood.filling.filling import starting_cells
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.membranes.meshes import CREASED, SMOOTHING_STEPS
from haloscope.solvers.blood.periodic_flow import (
    PreInletDrive,
    best_length,
    require_room,
    segment_of,
    whole_cells,
)
from haloscope.solvers.blood.vessels.vessels import developed_profile, mean_of, relative_velocities
from haloscope.solvers.interface import Results, saved_counts, saved_numbers

# A cell leaves once a vertex is so near to an opening's plane that its support reaches beyond.
_GOES = 1.5
# Spacings around an opening's points in which cells near its plane count as in it.
_BESIDE = 3.0
_RESTART_WITH_ITS_CASE = "restart with the case that wrote it"


class CellInOutflow:
    """Takes cells out at openings and lets new ones in; all ranks call its methods together."""

    def __init__(
        self, medium: FluidWithCells, openings: Sequence[OpeningTable], log: Callable[[str], None]
    ) -> None:
        assert medium.suspension is not None
        self._world, self._suspension = medium.world, medium.suspension
        self._lattice = medium.lattice
        self._names = [table.name for table in openings]
        # Cells of each kind that were there at step 0, that went out and that came in.
        self.started = [local.total for local in self._suspension.kinds]
        self._next = list(self.started)
        self._kinds = [kind.name for kind in medium.table.cells]
        self.left, self.entered = [0] * len(self._kinds), [0] * len(self._kinds)
        # The first by opening, (openings, kinds).
        self.left_through = np.zeros((len(openings), len(self._kinds)), np.int64)
        # By the names of their openings.
        self.feeders = {
            table.name: PreInlet(medium, number, table, log)
            for number, table in enumerate(openings)
            if table.feeds
        }

    @property
    def sets_velocities(self) -> set[str]:
        """Names of openings at which feeders set velocities."""
        return {name for name, feeder in self.feeders.items() if feeder.sets_velocities}

    @property
    def media(self) -> list[FluidWithCells]:
        """The flows that feed."""
        return [feeder.medium for feeder in self.feeders.values()]

    def entering(self, kind: int) -> np.ndarray:
        """Numbers of the cells of a kind that are on their way in."""
        ids = [feeder.entering[kind].ids for feeder in self.feeders.values()]
        return np.concatenate([np.zeros(0, np.int64), *ids])

    def start(self, inflow: Mapping[str, float]) -> None:
        """Set off the flows that feed, at velocities into the vessel in m/s by opening."""
        for name, feeder in self.feeders.items():
            feeder.start(inflow[name])

    def before_step(self, inflow: Mapping[str, float], *, another: bool) -> None:
        """Let the flows that feed take the step that the vessel takes next.

        `inflow`: velocities into the vessel in m/s where they are given, by opening.
        """
        for name, feeder in self.feeders.items():
            feeder.before_step(inflow[name], another=another)

    def look(self, inflow: Mapping[str, float]) -> bool:
        """Let cells out and in.

        `inflow`: velocities into the vessel in m/s where they are given, by opening.
        """
        before = *self.left, *self.entered
        for number, local in enumerate(self._suspension.kinds):
            through = self._going(number, inflow)
            gone = through >= 0
            if self._world.any(bool(gone.any())):
                counts = np.bincount(through[gone], minlength=len(self._names)).astype(np.int64)
                self.left_through[:, number] += self._world.sum(counts)
                self.left[number] += self._suspension.ownership.remove(local, local.ids[gone])
        for name, feeder in self.feeders.items():
            came = feeder.look(inflow[name], self._next)
            self.entered = [a + b for a, b in zip(self.entered, came, strict=True)]
        return before != (*self.left, *self.entered)

    def _going(self, kind: int, inflow: Mapping[str, float]) -> np.ndarray:
        """By cell of a kind the opening whose plane it touches from within and to which it moves.

        None goes where the case says that the flow comes in.

        -1: none, or it is another rank's.
        """
        local, lattice = self._suspension.kinds[kind], self._lattice
        through = np.full(local.count, -1)
        outlines = self._suspension.ownership.outlines(local)
        low, high, speeds = outlines.low.T, outlines.high.T, outlines.velocity.T
        openings = zip(self._names, lattice.openings, strict=True)
        for number, (name, opening) in enumerate(openings):
            # Nor where it stands still, as between two beats of a heart.
            if inflow.get(name, -1.0) >= 0.0:
                continue
            if isinstance(opening, TiltedOpening):
                going = self._past(local, opening, outlines)
                through[going & local.own & (through < 0)] = number
                continue
            axis, plane = opening.axis, opening.plane
            ahead = high[axis] - plane if opening.direction > 0 else plane - low[axis]
            near = (ahead > -_GOES) & (ahead < _BESIDE + (high - low)[axis])
            places = lattice.coordinates(opening.numbers)
            for other in range(3):
                if other != axis:
                    begin, end = places[:, other].min(), places[:, other].max()
                    middle = (low[other] + high[other]) / 2
                    near &= (middle > begin - _BESIDE) & (middle < end + _BESIDE)
            # What has just been put there stays, whichever way the flow will go.
            outward = opening.direction * speeds[axis] > 0.0
            through[near & outward & local.own & (through < 0)] = number
        return through

    def _past(
        self, local: LocalCells, opening: TiltedOpening, outlines: Outlines
    ) -> NDArray[np.bool_]:
        """Which cells touch an opening askew to the axes from within and move out of it."""
        lattice = self._lattice
        low, high, centre = (
            lattice.origin + lattice.spacing * part
            for part in (outlines.low, outlines.high, outlines.centre)
        )
        # No vertex is farther out than the corner of the box around the cell.
        corner = np.where(opening.normal > 0, high, low)
        margin, size = _BESIDE * lattice.spacing, np.linalg.norm(high - low, axis=1)
        past = opening.heights(corner) > -_GOES * lattice.spacing
        past &= opening.heights(centre) < margin + size
        past &= opening.is_beside(centre, margin)
        past &= (outlines.velocity * opening.normal).sum(axis=1) > 0.0
        rows = np.flatnonzero(past)
        if len(rows):
            vertices = self._suspension.ownership.states(local, rows)[:, 0]
            heights = opening.heights(lattice.origin + lattice.spacing * vertices)
            past[rows] = heights.max(axis=1) > -_GOES * lattice.spacing
        return past

    def require_sound(self) -> None:
        """See that no membrane in the flows that feed has folded over; the same on every rank."""
        for feeder in self.feeders.values():
            feeder.require_sound()

    def results(self) -> Results:
        """How many cells passed openings since step 0, on rank 0; without numbers elsewhere."""
        if not self._world.is_root:
            return Results()
        summary, lines = {}, []
        for kind, name in enumerate(self._kinds):
            by = dict(zip(self._names, self.left_through[:, kind].tolist(), strict=True))
            summary[name] = {
                "came_in": self.entered[kind],
                "left": self.left[kind],
                "left_through": by,
            }
            line = f"{name}: {self.entered[kind]} entered, {self.left[kind]} left"
            if self.left[kind]:
                line += f" ({', '.join(f'{opening} {count}' for opening, count in by.items())})"
            lines.append(line)
        feeders = {}
        for name, feeder in self.feeders.items():
            feeders[name] = {
                "points": feeder.medium.lattice.count,
                "cells": feeder.cells,
                "smoothed": feeder.smoothed,
            }
            if feeder.smoothed:
                lines.append(
                    f"{name}: creases were smoothed {counted(feeder.smoothed, 'time')} in the periodic flow "
                    "before it, whose cells stay for the whole run; lower blood.spacing_um to have fewer"
                )
        results: dict[str, object] = {"cells_through_openings": summary}
        if feeders:
            results["feeders"] = feeders
        return Results(results, {}, lines)

    def state(self) -> dict[str, np.ndarray]:
        """State for a restart, whole on rank 0; all ranks call this."""
        counts = np.array([self._next, self.left, self.entered], np.float64)
        state = {"traffic counts": counts, "traffic out": self.left_through}
        for feeder in self.feeders.values():
            state |= feeder.state()
        return state

    def restore(self, state: Mapping[str, np.ndarray], step: int) -> None:
        """Take over on every rank what :meth:`state` gave after a step."""
        counts = state.get("traffic counts")
        if counts is None or counts.shape != (3, len(self._next)):
            raise InputError(
                "it lacks the counts of cells that entered and left",
                location="checkpoint",
                remedy=_RESTART_WITH_ITS_CASE,
            )
        counts = saved_counts(state, "traffic counts", counts.shape)
        self._next, self.left, self.entered = counts.tolist()
        # Checkpoints of before have none: openings are then counted from here on.
        out = state.get("traffic out", np.zeros_like(self.left_through))
        if out.shape != self.left_through.shape:
            raise InputError(
                f"it counts cells at {counted(len(out), 'opening')} and the case has "
                f"{len(self.left_through)}",
                location="checkpoint",
                remedy=_RESTART_WITH_ITS_CASE,
            )
        self.left_through = saved_counts({"traffic out": out}, "traffic out", out.shape)
        for feeder in self.feeders.values():
            feeder.restore(state, step, self._next)
        for kind in range(len(self._kinds)):
            every = self.entering(kind)
            if len(np.unique(every)) != len(every):
                raise InputError(
                    "it is damaged: one of its cells enters at two inlets",
                    location="checkpoint",
                    remedy="restart from an earlier one",
                )


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
        self, vessel: FluidWithCells, number: int, table: OpeningTable, log: Callable[[str], None]
    ) -> None:
        blood, device, world = vessel.table, vessel.device, vessel.world
        # Of the opening.
        self.name, self._table, self._device, self._world = table.name, blood, device, world
        self._sharing = sharing = sharing_of(device, world)
        self._vessel = vessel
        opening = self.opening = vessel.lattice.openings[number]
        if not any(kind.hematocrit for kind in blood.cells):
            raise InputError(
                "the opening feeds cells, but no kind of blood.cells has a hematocrit",
                location=f"blood.openings {self.name}",
                remedy="set blood.cells.hematocrit, or set feeds = false",
            )
        spacing = blood.spacing
        section = segment_of(vessel.lattice, opening, 1, sharing).section
        length = best_length(len(section), spacing, blood.cells)
        self.segment = segment = segment_of(vessel.lattice, opening, length, sharing)
        lattice = segment.lattice
        widest = max(kind.radius_um for kind in blood.cells if kind.hematocrit)
        if isinstance(opening, TiltedOpening):
            require_room(vessel.lattice, opening, 2 * widest / blood.spacing_um)
        kinds, self._shares = whole_cells(blood.cells, lattice.count, spacing)
        try:
            cells = starting_cells(kinds, lattice, blood.seed + 1 + number, world, device, fed=True)
        except InputError as error:
            raise error.within(
                f"blood.openings {self.name}, periodic flow that feeds cells"
            ) from None
        # The segment's fluid and cells.
        self.medium = FluidWithCells(
            vessel.case,
            device,
            sharing,
            lattice,
            cells=cells,
            distances=segment.distances,
            log=lambda line: None,
        )
        turned = "" if segment.turn is None else f", turned by {segment.turn.degrees:.0f} degrees"
        log(
            f"{self.name}: a periodic flow of {counted(lattice.count, 'point')} and "
            f"{counted(cells.count, 'cell')}, {length * blood.spacing_um:g} um long{turned}, feeds cells"
        )
        assert self.medium.suspension is not None
        assert vessel.suspension is not None
        self._cells, self._there = self.medium.suspension, vessel.suspension
        relative = relative_velocities(table, opening, vessel.lattice)
        self._mean = mean_of(relative, opening, vessel.lattice)
        # Of the opening over the segment's section, so that as much flows in this.
        self._area = 1.0
        if isinstance(opening, TiltedOpening):
            self._area = opening.size / spacing**2 / len(section)
        self._profile = developed_profile(opening, vessel.lattice)
        self._drive = PreInletDrive(segment, self.medium)
        self._inlet: FedInlet | FedLinks | None = None
        if table.profile == "parabolic":
            self._inlet = fed_inlet(segment, self.medium, vessel, number, self._profile)
        threshold = segment.threshold(KERNELS[blood.delta] / 2, _FADE * widest / blood.spacing_um)
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
        profile = section_profile(self.segment, self.opening, self._vessel.lattice)
        self._drive.start(self._wanted(inflow), profile)
        self.medium.start()
        self._turns = [self._fronts(kind)[1] for kind in range(len(self.entering))]

    def _inward(self, inflow: float) -> float:
        """Mean speed into the vessel in spacings a step, for a value of the opening in m/s."""
        return inflow * self._mean / self._table.units.velocity

    def _wanted(self, inflow: float) -> float:
        """Mean speed in the segment; 0 while the flow goes outward."""
        return max(0.0, self._inward(inflow)) * self._area

    # Steps

    def before_step(self, inflow: float, *, another: bool) -> None:
        """Take a step of the segment, and tell the vessel what goes into it in its next step.

        `inflow`: of the opening in m/s.
        """
        with _STEP, self._named():
            if not self._begun:
                self.medium.stepping.begin(beside=self._alone)
            self.medium.stepping.end()
            self._begun = False
            self._step += 1
            self._drive.steps += 1
            if self._step % self._table.inside_interval == 0:
                self.medium.mark_inside()
            self._announce(inflow)
            if another and self._alone:
                self.medium.stepping.begin(beside=self._alone)
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
        own_fronts[local.ids[own]] = segment.sign * (ahead - segment.plane)
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
        states = self.segment.placed(states, turns[sources])
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
                rows, at = np.searchsorted(local.ids, cells.ids[here]), cells.threshold
                vertices = self._there.ownership.states(local, rows)[:, 0]
                least = at.depths(vertices).min(axis=1)
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
            shape = self._inlet.shape
            self._inlet.give(
                saved_numbers(named, self._key("inlet"), shape, least=-_FAR, most=_FAR)
            )
        self.medium.restore_points(points)
        self._due, self._turns, self._step = due, turns, step
        for cells, (ids, sources) in zip(self.entering, entering, strict=True):
            cells.keep(ids, sources)
        self._drive.restore(drive)
