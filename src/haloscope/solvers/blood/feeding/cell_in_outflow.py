"""Cells that leave through openings, and cells that enter at inlets with feeding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.feeding.pre_inlet import PreInlet
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.interface import Results, saved_counts

# A cell leaves once a vertex is so near to an opening's plane that its support reaches beyond.
_GOES = 1.5
# Spacings around an opening's points in which cells near its plane count as in it.
_BESIDE = 3.0
_RESTART_WITH_ITS_CASE = "restart with the case that wrote it"


class CellInOutflow:
    """Takes cells out at openings and lets new ones in; all ranks call its methods together."""

    def __init__(
        self,
        case: BloodCase,
        device: Device,
        world: World,
        medium: FluidWithCells,
        openings: Sequence[OpeningTable],
        log: Callable[[str], None],
    ) -> None:
        assert medium.suspension is not None
        self._world, self._suspension = world, medium.suspension
        self._lattice = medium.lattice
        self._names = [table.name for table in openings]
        # Cells of each kind that were there at step 0, that went out and that came in.
        self.started = [local.total for local in self._suspension.kinds]
        self._next = list(self.started)
        self._kinds = [kind.name for kind in case.blood.cells]
        self.left, self.entered = [0] * len(self._kinds), [0] * len(self._kinds)
        # The first by opening, (openings, kinds).
        self.left_through = np.zeros((len(openings), len(self._kinds)), np.int64)
        # By the names of their openings.
        self.feeders = {
            table.name: PreInlet(case, device, world, medium, number, table, log)
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
