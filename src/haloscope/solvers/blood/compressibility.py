"""Change of the lattice's density with the pressure: predicted before a run, measured in it.

The fluid of the lattice is a gas, p = rho c_s^2. Where the pressure falls along a vessel, the density falls
and the volume flow grows, as the mass flow is the same all along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from haloscope.errors import InputError, SolutionError
from haloscope.mesh.lattice.openings import AnyOpening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import Channel, OpeningTable, SurfaceFile, Tube
from haloscope.solvers.blood.drive import hydrostatic_pressures
from haloscope.solvers.blood.outlets import expected_outlets
from haloscope.solvers.blood.remedies import rounded_down, shorter_step_or
from haloscope.solvers.blood.units import MICRO, SOUND_SPEED
from haloscope.solvers.blood.vessels.straight_vessels import duct_permeability, tube_permeability
from haloscope.solvers.blood.vessels.vessels import (
    Vessel,
    mean_of,
    opening_permeability,
    relative_velocities,
)

SOUND_CHANGE = 0.02
"""Changes of the density below this share are not reported."""
REFUSED_CHANGE = 0.1
"""Changes of the density above this share are an error."""
# Times that sound crosses the vessel: the waves of a start have gone by then.
_CROSSINGS = 10.0


@dataclass(frozen=True)
class PressureFall:
    """A difference of pressures within a vessel."""

    pascals: float  # In Pa
    cause: str  # In words
    remedy: str  # Imperative, for :func:`shorter_step_or`
    certain: bool = True  # Whether it is at least as large; else an estimate that may be too large


@dataclass(frozen=True)
class DensityRange:
    """Least and largest density of the fluid over that of rest."""

    low: float
    high: float

    @property
    def fall(self) -> float:
        """From the largest to the least, over the largest."""
        return 1.0 - self.low / self.high

    @property
    def change(self) -> float:
        """The fall, or the largest difference from the density of rest if that is more."""
        return max(self.fall, self.high - 1.0, 1.0 - self.low)

    @property
    def growth(self) -> float:
        """Volume flow at the least density over that at the largest, less 1."""
        return self.high / self.low - 1.0


def density_change(table: BloodTable, pascals: float) -> float:
    """Change of the density with a pressure in Pa, over the density of rest: p / (rho c_s^2)."""
    return abs(pascals) / table.units.pressure / SOUND_SPEED**2


def expected_falls(table: BloodTable, vessel: Vessel, until: float = 0.0) -> list[PressureFall]:
    """Estimate the falls in pressure of a case before it runs, without the part of cells.

    `until`: time in s up to which signals count with their largest value.
    """
    falls = []
    for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True):
        if opening.kind == "velocity":
            fall = _fall_of_inflow(table, vessel, opening, points, until)
            falls += [] if fall is None else [fall]
    pressures = [
        opening.value * opening.time_signal().largest(until)
        for opening in vessel.openings
        if opening.kind == "pressure" and not opening.reacts
    ]
    if pressures:
        difference = max(pressures) - min(pressures)
        remedy = (
            f"lower the difference to {_sound_value(table, difference, difference):.3g} Pa or less"
        )
        falls.append(PressureFall(difference, "blood.openings", remedy))
    for axis, pascals in hydrostatic_pressures(table, vessel, until):
        cause = f"blood.pressure_gradient_pa_m along the closed axis {axis}"
        falls.append(PressureFall(pascals, cause, "lower the gradient"))
    return [fall for fall in falls if fall.pascals]


def check_expected(table: BloodTable, falls: Sequence[PressureFall]) -> list[str]:
    """Warnings of falls in pressure that change the density by more than the recommended share."""
    lines = []
    for fall in falls:
        change = density_change(table, fall.pascals)
        if change <= SOUND_CHANGE:
            continue
        remedy = shorter_step_or(table, math.sqrt(SOUND_CHANGE / change), fall.remedy)
        refusal = InputError(
            f"the pressure falls by about {fall.pascals:.3g} Pa and the lattice density by {100 * change:.2g} % "
            "(compressibility), so flow and pressure differ by up to as much from those of an incompressible fluid",
            location=fall.cause,
            allowed=f"at most {100 * REFUSED_CHANGE:g} % (recommended: at most {100 * SOUND_CHANGE:g} %)",
            remedy=remedy,
        )
        if change > REFUSED_CHANGE and fall.certain:
            raise refusal
        lines.append(str(refusal))
    return lines


def check_outlets(table: BloodTable, vessel: Vessel, until: float) -> list[str]:
    """Warnings of outlets whose pressure, by their resistance, changes the density of the whole vessel."""
    lines = []
    for outlet in expected_outlets(vessel, until):
        change = density_change(table, outlet.pressure)
        if change <= SOUND_CHANGE:
            continue
        middle = outlet.law.outside - outlet.pressure
        remedy = shorter_step_or(
            table,
            math.sqrt(SOUND_CHANGE / change),
            f"set outside = {middle:.3g}, as only differences of pressures drive the flow",
        )
        refusal = InputError(
            f"the pressure comes to about {outlet.pressure:.3g} Pa, which changes the lattice density by "
            f"{100 * change:.2g} % (compressibility)",
            location=f"blood.openings {outlet.table.name}.resistance",
            allowed=f"at most {100 * REFUSED_CHANGE:g} % (recommended: at most {100 * SOUND_CHANGE:g} %)",
            remedy=remedy,
        )
        if change > REFUSED_CHANGE:
            raise refusal
        lines.append(str(refusal))
    return lines


def require_small_range(density: DensityRange, step: int, lattice: Lattice) -> None:
    """Refuse to go on with a flow whose density varies by more than 10 %, once the waves of the start are gone."""
    crossing = max(lattice.shape) / SOUND_SPEED
    if step < _CROSSINGS * crossing or not density.change > REFUSED_CHANGE:
        return
    raise SolutionError(
        f"the lattice density is {density.low:.4g} to {density.high:.4g} times that at rest, so flow and "
        f"pressure are wrong by up to {100 * density.change:.2g} % (compressibility)",
        allowed=f"at most {100 * REFUSED_CHANGE:g} % (recommended: at most {100 * SOUND_CHANGE:g} %)",
    )


def range_line(density: DensityRange) -> str:
    """The measured range, and its effect on flow and pressure."""
    return (
        f"density {density.low:.5g} to {density.high:.5g} times that at rest: the volume flow grows by "
        f"{100 * density.growth:.2g} % from the highest to the lowest pressure (incompressible fluid: 0 %)"
    )


def range_warnings(density: DensityRange, remedy: str) -> list[str]:
    """Warnings of a measured range."""
    if not density.change > SOUND_CHANGE:
        return []
    return [
        f"warning: compressibility: the lattice density is {density.low:.4g} to {density.high:.4g} times that at "
        f"rest, so flow and pressure are off by up to {100 * density.change:.2g} % (recommended: at most "
        f"{100 * SOUND_CHANGE:g} %); {remedy}"
    ]


def walled_sizes(channel: Channel) -> list[float]:
    """Distances in m between the walls of a channel, along x, y, z."""
    return [
        size * MICRO
        for axis, size in zip("xyz", channel.size_um, strict=True)
        if axis not in channel.periodic and axis not in channel.open
    ]


def _sound_value(table: BloodTable, value: float, pascals: float) -> float:
    """The value with which a fall in pressure that goes as it changes the density by the sound share."""
    change = density_change(table, pascals)
    return rounded_down(value * SOUND_CHANGE / change) if change else value


def _fall_of_inflow(
    table: BloodTable, vessel: Vessel, opening: OpeningTable, points: AnyOpening, until: float
) -> PressureFall | None:
    """The fall along the way of what comes in, or leaves, at an opening; None where it cannot be told."""
    lattice, shape = vessel.lattice, table.vessel
    relative = 1.0
    if opening.velocity_profile() is not None:
        relative = abs(mean_of(relative_velocities(opening, points, lattice), points, lattice))
    value = abs(opening.value)
    speed = value * relative * opening.time_signal().largest(until)
    if not speed:
        return None
    if isinstance(shape, Tube):
        length, permeability = shape.length_um * MICRO, tube_permeability(shape.radius_um * MICRO)
    elif isinstance(shape, Channel):
        if len(shape.open) != 1:
            return None
        length = shape.size_um["xyz".index(shape.open[0])] * MICRO
        walled = walled_sizes(shape)
        if not walled:
            return None
        permeability = duct_permeability(walled[0], walled[1] if len(walled) > 1 else math.inf)
    else:
        # At least: a vessel bends, and its branches are narrower.
        others = [
            lattice.positions(other.numbers).mean(axis=0)
            for other, opening in zip(lattice.openings, vessel.openings, strict=True)
            if other is not points and (opening.kind == "pressure" or len(vessel.openings) == 2)
        ]
        if not others:
            return None
        middle = lattice.positions(points.numbers).mean(axis=0)
        length = min(float(np.linalg.norm(other - middle)) for other in others)
        permeability = opening_permeability(points, lattice)
    viscosity = table.viscosity
    if table.carreau is not None:
        viscosity = table.carreau.infinite_shear_mpa_s * 1e-3
    pascals = viscosity * speed * length / permeability
    remedy = f"lower value to {_sound_value(table, value, pascals):.3g} m/s or less"
    return PressureFall(
        pascals,
        f"blood.openings {opening.name}",
        remedy,
        certain=not isinstance(shape, SurfaceFile),
    )
