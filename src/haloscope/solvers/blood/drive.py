"""What drives the flow over time: the pressure gradient, and signals of openings."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.units import SOUND_SPEED

# Steps in which pressures come up.
_COMING_UP = 100


class Drive:
    """Sets the factors of a step where they have changed.

    `starting`: pressures in Pa at the openings at the start.
    """

    # Pressures of openings come up from those of the fluid at the start. A jump there would set off
    # momentum that changes its sign from point to point and from step to step, which halfway walls
    # keep for ever.

    def __init__(
        self,
        table: BloodTable,
        openings: Sequence[OpeningTable],
        fluid: Fluid,
        starting: Sequence[float],
        set_by_feeders: Collection[str] = (),
    ) -> None:
        self._set_by_feeders = set_by_feeders
        self._starting = starting
        self._units, self._openings, self._fluid = table.units, openings, fluid
        self._factor = table.drive_signal()
        self._signals = [opening.time_signal() for opening in openings]
        self._gradient = np.array(table.pressure_gradient_pa_m) / self._units.force_density
        self._now: tuple[float, ...] = ()
        self._unchanging = all(signal.steady for signal in (self._factor, *self._signals))
        jumps = (
            opening.kind == "pressure" and opening.value * signal(0.0) != start
            for opening, signal, start in zip(openings, self._signals, starting, strict=True)
        )
        self._until = _COMING_UP if any(jumps) else 0
        # Whether all factors are the same in all steps from the one on that was set last.
        self.steady = self._unchanging and not self._until

    def set(self, step: int) -> None:
        """Set the factors of a step."""
        if self.steady and self._now:
            return
        self.steady = self._unchanging and step >= self._until
        t = step * self._units.time_step
        factor = self._factor(t)
        values = [factor]
        share = 0.5 - 0.5 * math.cos(math.pi * min(step / self._until, 1.0)) if self._until else 1.0
        rows = zip(self._openings, self._signals, self._starting, strict=True)
        for table, signal, start in rows:
            value = signal(t)
            if table.kind == "pressure":
                # p = rho c_s^2.
                pressure = start + share * (value * table.value - start)
                value = 1.0 + pressure / self._units.pressure / SOUND_SPEED**2
            values.append(value)
        if tuple(values) == self._now:
            return
        if not self._now or self._now[0] != factor:
            self._fluid.set_body_force((factor * self._gradient).tolist())
        for number, (table, value) in enumerate(zip(self._openings, values[1:], strict=True)):
            self._fluid.drive(number, 1.0 if table.name in self._set_by_feeders else value)
        self._now = tuple(values)

    def inflow(self) -> dict[str, float]:
        """Mean velocities into the vessel now, in m/s, by opening where they are given."""
        return {
            table.name: factor * table.value
            for table, factor in zip(self._openings, self._now[1:], strict=True)
            if table.kind == "velocity"
        }
