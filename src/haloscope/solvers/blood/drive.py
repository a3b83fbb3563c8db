"""The drive of the flow: forces, the pressure gradient and signals over time; faults of undriven cases."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import Channel, OpeningTable, SurfaceFile, Tube
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.units import SOUND_SPEED
from haloscope.solvers.blood.vessels.vessels import Vessel

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
        self._coming = -1.0
        self._unchanging = all(signal.steady for signal in (self._factor, *self._signals))
        # Pressures that follow the flow come up, too, whatever they start from.
        self._reacting = fluid.outlets
        jumps = (
            opening.reacts or (opening.kind == "pressure" and opening.value * signal(0.0) != start)
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
        share = self._come_up(step)
        rows = zip(self._openings, self._signals, self._starting, strict=True)
        for table, signal, start in rows:
            value = signal(t)
            if table.kind == "pressure":
                # p = rho c_s^2.
                pressure = start + share * (value * table.value - start)
                value = 1.0 + pressure / self._units.pressure / SOUND_SPEED**2
            values.append(value)
        # Pressures of the next step that follow the flow are set by what passes in this one.
        coming = self._come_up(step + 1)
        waves = [number for number, one in enumerate(self._openings) if one.profile == "womersley"]
        for number in waves:
            self._fluid.set_waves(number, self._signals[number].phasors(t))
        if tuple(values) == self._now and coming == self._coming:
            return
        if not self._now or self._now[0] != factor:
            self._fluid.set_body_force((factor * self._gradient).tolist())
        for number, (table, value) in enumerate(zip(self._openings, values[1:], strict=True)):
            fixed = table.name in self._set_by_feeders or number in waves
            if not table.reacts:
                self._fluid.drive(number, 1.0 if fixed else value)
        if self._reacting is not None:
            self._reacting.come_up(coming)
        self._now, self._coming = tuple(values), coming

    def _come_up(self, step: int) -> float:
        """Share of the pressures of openings that has come up in a step."""
        if not self._until:
            return 1.0
        return 0.5 - 0.5 * math.cos(math.pi * min(step / self._until, 1.0))

    def inflow(self) -> dict[str, float]:
        """Mean velocities into the vessel now, in m/s, by opening where they are given."""
        return {
            table.name: factor * table.value
            for table, factor in zip(self._openings, self._now[1:], strict=True)
            if table.kind == "velocity"
        }


class Tweezers:
    """Sets the forces that pull cells apart at a step."""

    def __init__(self, table: BloodTable, suspension: Suspension | None) -> None:
        pulls = [] if suspension is None else suspension.pulls
        self._step_s = table.units.time_step
        pairs = [
            (pull, kind.stretch.time_signal())
            for pull, kind in zip(pulls, table.cells, strict=suspension is not None)
            if pull is not None and kind.stretch is not None
        ]
        for pull, signal in pairs:
            pull.set(signal(0.0))
        self._changing = [(pull, signal) for pull, signal in pairs if not signal.steady]

    def set(self, step: int) -> None:
        """Set the forces on cells where they are after a step."""
        for pull, signal in self._changing:
            pull.set(signal(step * self._step_s))


Floats = NDArray[np.float64]


def hydrostatic_pressures(
    table: BloodTable, vessel: Vessel, until: float = 0.0
) -> list[tuple[str, float]]:
    """Pressures in Pa that the gradient only builds up, along each axis on which the vessel is closed.

    `until`: time in s up to which the drive counts with its largest value.
    """
    factor = table.drive_signal().largest(until)
    low, high = vessel.lattice.bounds
    return [
        (axis, abs(component) * factor * float(high[number] - low[number]))
        for number, (axis, component) in enumerate(
            zip("xyz", table.pressure_gradient_pa_m, strict=True)
        )
        if component * factor and axis not in _free_axes(table, vessel)
    ]


def driving_gradient(table: BloodTable, vessel: Vessel) -> tuple[float, ...]:
    """The pressure gradient in Pa/m without components along which the vessel is closed."""
    free = _free_axes(table, vessel)
    return tuple(
        component if axis in free else 0.0
        for axis, component in zip("xyz", table.pressure_gradient_pa_m, strict=True)
    )


def on_driving_forces(table: BloodTable, vessel: Vessel, until: float = 0.0) -> list[str]:
    """Warnings of a flow that nothing drives, and of a vessel that is closed along its gradient.

    `until`: time in s up to which signals count with their largest value.
    """
    lines = [
        f"blood.pressure_gradient_pa_m along {axis}: the vessel is closed along {axis}, so this component drives no "
        f"flow and raises the pressure at one end by {pascals:.3g} Pa; {_remedy_for_closed(table, axis)}"
        for axis, pascals in hydrostatic_pressures(table, vessel, until)
    ]
    if not _driven(table, vessel, until):
        lines.append(f"nothing drives the flow: {_remedy_for_undriven(table, vessel)}")
    return lines


def _free_axes(table: BloodTable, vessel: Vessel) -> tuple[str, ...]:
    """Axes along which a gradient drives a flow."""
    shape = table.vessel
    if isinstance(shape, Channel):
        return (*shape.periodic, *shape.open)
    if isinstance(shape, Tube):
        return (shape.axis,)
    if vessel.openings:
        return ("x", "y", "z")
    return tuple(
        axis for axis, joined in zip("xyz", vessel.lattice.periodic, strict=True) if joined
    )


def _driven(table: BloodTable, vessel: Vessel, until: float) -> bool:
    """Whether something moves the fluid, or did at the start."""
    factor = table.drive_signal().largest(until)
    if factor and any(driving_gradient(table, vessel)):
        return True
    if any(any(velocity) for velocity in table.walls.velocity_m_s.values()):
        return True
    pressures = set()
    for opening in vessel.openings:
        signal = opening.time_signal()
        if opening.kind == "velocity" and opening.value and signal.largest(until):
            return True
        if opening.resistance is not None:
            law = opening.resistance
            pressures.add((law.outside + (law.start or 0.0), ""))
        elif opening.kind == "pressure":
            pressures.add((opening.value, str(opening.signal)) if opening.value else (0.0, ""))
    if len(pressures) > 1:
        return True
    # A flow of the start decays; cells that are pulled or whose membranes are not at rest move the fluid.
    initial = table.initial
    if any(getattr(initial, name) not in (0, 0.0) for name in ("u", "v", "w", "p")):
        return True
    return any(
        kind.stretch or (kind.spontaneous_curvature == "none" and kind.bending_modulus_j)
        for kind in table.cells
    )


def _remedy_for_closed(table: BloodTable, axis: str) -> str:
    if isinstance(table.vessel, Channel):
        return f'add "{axis}" to blood.channel.periodic or open, or set this component to 0'
    if isinstance(table.vessel, Tube):
        return f"set the gradient along {table.vessel.axis}, the axis of the tube"
    if isinstance(table.vessel, SurfaceFile) and table.vessel.periodic:
        return "set the gradient along the axis of the ends in blood.surface.periodic"
    return "replace it by [[blood.openings]]"


def _remedy_for_undriven(table: BloodTable, vessel: Vessel) -> str:
    shape = table.vessel
    if vessel.openings:
        return (
            "no opening has a velocity other than 0, and no two have different pressures; set a "
            "value in blood.openings"
        )
    if isinstance(shape, Channel):
        return (
            "set blood.pressure_gradient_pa_m along an axis of blood.channel.periodic or open, or "
            "blood.walls.velocity_m_s"
        )
    if not isinstance(shape, SurfaceFile):
        return "set blood.pressure_gradient_pa_m along the axis of the tube"
    if shape.periodic:
        return f"set blood.pressure_gradient_pa_m along {_free_axes(table, vessel)[0]}, the periodic axis"
    return f"the vessel in {shape.file} is closed; leave blood.surface.closed out, and add [[blood.openings]]"
