"""Numbers that follow from a blood case before it runs, and the limits of its time step and settling."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import Channel, SurfaceFile
from haloscope.solvers.blood.compressibility import SOUND_CHANGE, density_change
from haloscope.solvers.blood.soundness import (
    MOST_FIRMNESS,
    MOST_MACH,
    MOST_STIFFNESS,
    Scales,
    capillary_number,
    stiffness,
)
from haloscope.solvers.blood.units import MICRO, SOUND_SPEED, SOUND_TAU
from haloscope.solvers.blood.vessels.vessels import Vessel, surface_diameter
from haloscope.solvers.interface import DerivedNumber

Floats = NDArray[np.float64]

# Share of a start-up that may be left in a steady flow, and the square of the first zero of the Bessel
# function J0: what is left falls as exp(-5.78 nu t / R^2).
_LEFT, _SLOWEST = 0.01, 5.783185962946785
# Changes a step below these are rounding, by the bytes of a stored population.
_ROUNDING = {8: 1e-9, 4: 1e-6, 2: 1e-4}


def derived_numbers(table: BloodTable, vessel: Vessel, scales: Scales) -> list[DerivedNumber]:
    """Lattice, size of the vessel, and the flow that is expected."""
    units = table.units
    numbers = [
        DerivedNumber("spacing", table.spacing_um, "um"),
        DerivedNumber("time step", units.time_step / MICRO, "us"),
        DerivedNumber("relaxation time", table.tau, "steps"),
    ]
    numbers += [
        DerivedNumber(f"extent {axis}", float(size) / MICRO, "um")
        for axis, size in zip("xyz", _extent(vessel), strict=True)
    ]
    width = vessel_width(table, vessel)
    if math.isfinite(width):
        name = "distance of walls" if isinstance(table.vessel, Channel) else "diameter"
        numbers.append(DerivedNumber(name, width / MICRO, "um"))
    if not isinstance(table.vessel, Channel):
        numbers += [
            DerivedNumber(f"diameter of {opening.name}", diameter / MICRO, "um")
            for opening, diameter in zip(vessel.openings, _diameters(vessel), strict=True)
        ]
    return [*numbers, *_expected(table, scales, width)]


def _expected(table: BloodTable, scales: Scales, width: float) -> list[DerivedNumber]:
    # Of a closed vessel of a file no flow is known.
    if not scales.speed or (isinstance(table.vessel, SurfaceFile) and not table.openings):
        return []
    kinematic = table.viscosity / table.density_kg_m3
    numbers = [
        DerivedNumber("expected speed", scales.speed * 1e3, "mm/s"),
        DerivedNumber("expected Mach number", scales.speed / table.units.velocity / SOUND_SPEED),
    ]
    if math.isfinite(width):
        numbers.append(DerivedNumber("Reynolds number", scales.speed * width / kinematic))
    if math.isfinite(scales.width):
        numbers += [
            DerivedNumber(
                f"capillary number of {kind.name}", capillary_number(table, kind, scales.shear)
            )
            for kind in table.cells
        ]
    falls = [fall.pascals for fall in scales.falls]
    if falls:
        numbers += [
            DerivedNumber("expected fall in pressure", max(falls), "Pa"),
            DerivedNumber("expected fall in density", 100 * density_change(table, max(falls)), "%"),
        ]
    return numbers


def _extent(vessel: Vessel) -> Floats:
    """Lengths of the vessel along x, y, z in m; open ends lie on points."""
    if isinstance(vessel.geometry, Surface):
        low, high = vessel.geometry.bounds
        return high - low
    low, high = vessel.lattice.bounds
    size: Floats = high - low
    for axis in {side.axis for side in vessel.geometry.open_sides}:
        size[axis] -= vessel.lattice.spacing
    return size


def _diameters(vessel: Vessel) -> list[float]:
    """Of circles as large as the openings, in m."""
    spacing = vessel.lattice.spacing
    return [2 * spacing * math.sqrt(len(o.numbers) / math.pi) for o in vessel.lattice.openings]


def vessel_width(table: BloodTable, vessel: Vessel) -> float:
    """Diameter of a vessel, or distance of a channel's nearest walls, in m; infinite without walls."""
    shape = table.vessel
    if isinstance(shape, Channel):
        walled = [
            size
            for axis, size in zip("xyz", shape.size_um, strict=True)
            if axis not in shape.periodic and axis not in shape.open
        ]
        return min(walled, default=math.inf) * MICRO
    if isinstance(shape, SurfaceFile):
        if vessel.openings:
            return max(_diameters(vessel))
        surface = vessel.geometry
        assert isinstance(surface, Surface)
        return surface_diameter(surface)
    return 2 * shape.radius_um * MICRO


def settled_change(table: BloodTable, vessel: Vessel) -> float:
    """Relative change of the velocity a step below which a flow is steady: 1 % over its start-up time."""
    width = vessel_width(table, vessel)
    if not math.isfinite(width):
        width = float(np.ptp(vessel.lattice.bounds, axis=0).max())
    startup = (width / 2) ** 2 / (_SLOWEST * table.viscosity / table.density_kg_m3)
    change = _LEFT * table.units.time_step / startup
    return float(f"{max(_ROUNDING[table.stored_bytes], min(change, 1e-3)):.1e}")


def becomes_steady(table: BloodTable, vessel: Vessel) -> bool:
    """Whether the flow of a case can become steady: without cells, under a drive that does not change."""
    signals = [table.drive_signal(), *(opening.time_signal() for opening in vessel.openings)]
    return not table.cells and all(signal.steady for signal in signals)


def time_step_limit(table: BloodTable, scales: Scales) -> str:
    """The time step, what sets it, and the part of the case that limits a longer one."""
    units = table.units
    step = units.time_step
    by = "blood.time_step_us"
    if table.time_step_us is None:
        by = f"blood.relaxation_time = {table.tau:g} with blood.spacing_um = {table.spacing_um:g}"
    # Shares by which the step may grow.
    limits = [((SOUND_TAU[1] - 0.5) / (table.tau - 0.5), f"a relaxation time of {SOUND_TAU[1]:g}")]
    if table.inside_tau is not None:
        share = (SOUND_TAU[1] - 0.5) / (table.inside_tau - 0.5)
        limits.append((share, f"a relaxation time of {SOUND_TAU[1]:g} inside cells"))
    if scales.speed:
        mach = scales.speed / units.velocity / SOUND_SPEED
        limits.append((MOST_MACH / mach, f"a Mach number of {MOST_MACH:g}"))
    for fall in scales.falls:
        share = math.sqrt(SOUND_CHANGE / density_change(table, fall.pascals))
        limits.append((share, f"the fall in pressure of {fall.cause}"))
    for kind in table.cells:
        stiff = MOST_STIFFNESS / stiffness(table, kind)
        limits.append((stiff, f"the stiffness of the membranes of {kind.name}"))
        if kind.volume_modulus_pa:
            firm = math.sqrt(MOST_FIRMNESS / kind.firmness(units))
            limits.append((firm, f"blood.cells.volume_modulus_pa of {kind.name}"))
    share, name = min(limits)
    return (
        f"time step {step / MICRO:.3g} us (set by {by}); recommended: at most {share * step / MICRO:.3g} us, limited "
        f"by {name}"
    )
