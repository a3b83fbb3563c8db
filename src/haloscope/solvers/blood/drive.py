"""What drives the flow over time: the pressure gradient, and signals of openings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.fluid import Fluid
from haloscope.solvers.blood.units import SOUND_SPEED


class Drive:
    """Sets the factors of a step where they have changed.

    Parameters
    ----------
    table
        The case's.
    openings
        In the order of the fluid's.
    fluid
        Is told.

    Attributes
    ----------
    steady
        Whether all factors are the same in all steps.
    """

    def __init__(self, table: BloodTable, openings: Sequence[OpeningTable], fluid: Fluid) -> None:
        self._units, self._openings, self._fluid = table.units, openings, fluid
        self._factor = table.drive_signal()
        self._signals = [each.time_signal() for each in openings]
        self._gradient = np.array(table.pressure_gradient_pa_m) / self._units.force_density
        self._now: tuple[float, ...] = ()
        self.steady = all(each.steady for each in (self._factor, *self._signals))

    def set(self, step: int) -> None:
        """Set the factors of a step."""
        if self.steady and self._now:
            return
        t = step * self._units.time_step
        factor = self._factor(t)
        values = [factor]
        for table, signal in zip(self._openings, self._signals, strict=True):
            value = signal(t)
            if table.kind == "pressure":
                # p = rho c_s^2.
                value = 1.0 + value * table.value / self._units.pressure / SOUND_SPEED**2
            values.append(value)
        if tuple(values) == self._now:
            return
        if not self._now or self._now[0] != factor:
            self._fluid.set_body_force((factor * self._gradient).tolist())
        for number, value in enumerate(values[1:]):
            self._fluid.drive(number, value)
        self._now = tuple(values)

    def inflow(self) -> dict[str, float]:
        """Mean velocities into the vessel now, in m/s, by opening where they are given."""
        return {
            table.name: factor * table.value
            for table, factor in zip(self._openings, self._now[1:], strict=True)
            if table.kind == "velocity"
        }
