"""Limits of the method for a case: relaxation time, Mach, Reynolds, capillary number."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from haloscope.errors import InputError, SolutionError
from haloscope.mesh.lattice.openings import AnyOpening, Opening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_cells import CellsTable
from haloscope.solvers.blood.case_vessels import Channel, OpeningTable, SurfaceFile, Tube
from haloscope.solvers.blood.compressibility import (
    REFUSED_CHANGE,
    SOUND_CHANGE,
    PressureFall,
    check_expected,
    check_outlets,
    density_change,
    expected_falls,
    walled_sizes,
)
from haloscope.solvers.blood.drive import driving_gradient, on_driving_forces
from haloscope.solvers.blood.outlets import expected_outlets, on_outlets
from haloscope.solvers.blood.remedies import (
    ImplausibleNumber,
    on_fluid,
    refusal_with_cause,
    rounded_down,
    shorter_step_or,
    sound_steps,
    step_key,
    step_text,
)
from haloscope.solvers.blood.units import LEAST_TAU, MICRO, SOUND_SPEED, SOUND_TAU
from haloscope.solvers.blood.vessels.vessels import (
    Vessel,
    implausible_vessel,
    mean_of,
    on_flow_rates,
    on_surface_openings,
    opening_area,
    relative_velocities,
    surface_diameter,
)

MOST_MACH = 0.1
"""Of sound flows."""
REFUSED_MACH = 0.4
_REFUSED_TAU = 200.0
# Of a red cell's shear and bending modulus: what diseases and other laws ask for is well within.
# Fifty to a hundred times what keeps cells' areas and volumes and, of bending, what a red cell has.
_MOST_MODULI = {
    "area_modulus_un_m": (1e4, "uN/m"),
    "volume_modulus_pa": (1e5, "Pa"),
    "bending_modulus_j": (2e-17, "J"),
}
_LIKE_A_RED_CELL = {"shear_modulus_un_m": (0.25, 25.0), "bending_modulus_j": (2e-20, 2e-17)}
_FEWEST_ACROSS = 8
# Of the modulus of dilation: explicit steps of crowds bore 1.6 with two points at a relaxation time of 2, 2.1 broke them.
MOST_STIFFNESS = 0.8
# Of the modulus that holds the volume, in units of the pressure: crowds bore 0.5 at relaxation times of 0.7 to 2, and
# 1 not at 0.7, 2.3 not at 2.
MOST_FIRMNESS = 0.5
# Of springs in series with viscosity, by the smoothed delta function: the fewer points share a vertex's
# force, the more its speed answers within a step. Crowds of red cells bear less than single ones: of 642
# vertices at 0.8 um, a hematocrit of 0.3 and relaxation times of 0.6 and 1 they went wrong with 0.02 (linear)
# and 0.15 (roma), not with 0.6 (peskin).
_MOST_VISCOUS = {"linear": 0.01, "roma": 0.05, "cosine": 0.5, "peskin": 0.5}
# Red cells of 162 vertices at 1 um lived 20,000 steps at 3.7 and broke after 10,600 at 11.
_MOST_CAPILLARY = 5.0
# Grid Reynolds numbers up to which openings were sound at relaxation times of 0.51 to 2, also where a pressure lets
# fluid in, and from which on all forms of openings broke.
_MOST_GRID_REYNOLDS, _MOST_GRID_REYNOLDS_IN, _UNSTABLE = 9.0, 3.0, 18.0
# Times at which signals are looked at.
_LOOKED_AT = 101
# Pull in pN: a red cell at 3000 pN is three times as long as at rest.
_MOST_PULL = 1e3
# Delay of the viscous tension over the time in which the flow strains a cell by 1.
_MOST_LATE = 0.1


@dataclass(frozen=True)
class Scales:
    """Scales of a flow known before it is computed."""

    speed: float  # Largest, in m/s; 0 where nothing drives the flow
    width: float  # Across the vessel, in m; infinite between no walls
    shear: float  # Rate in 1/s
    falls: tuple[PressureFall, ...] = ()  # Falls in pressure


def check_mach(
    table: BloodTable,
    speed: float,
    location: str,
    speed_given: float | None = None,
    reached: str = "",
) -> float:
    """Mach number of a speed in m/s on the lattice.

    `speed`: in m/s; `speed_given`, `reached`: where the case gives another speed in m/s: that, and where
    it comes to this one.
    """
    mach = speed / table.units.velocity / SOUND_SPEED
    if mach > REFUSED_MACH:
        share = MOST_MACH / mach
        speed_text = (
            f"{speed:.3g} m/s"
            if speed_given is None
            else f"{speed_given:g} m/s, and {speed:.3g} m/s {reached}"
        )
        slow = rounded_down(share * (speed if speed_given is None else abs(speed_given)))
        raise InputError(
            f"the velocity is {speed_text}, a lattice Mach number of {mach:.3g}",
            location=location,
            allowed=f"at most {REFUSED_MACH:g} (recommended: below {MOST_MACH:g})",
            remedy=shorter_step_or(table, share, f"lower the velocity to {slow:.3g} m/s"),
        )
    return mach


def check_pressure(table: BloodTable, pressure: float, location: str) -> None:
    """Refuse a pressure in Pa that changes the density of the lattice by a large fraction."""
    change = density_change(table, pressure)
    if change > REFUSED_CHANGE:
        share = SOUND_CHANGE / change
        less = f"lower the pressure to {rounded_down(share * abs(pressure)):.3g} Pa"
        raise InputError(
            f"a pressure of {pressure:.3g} Pa changes the lattice density by a fraction of {change:.3g}",
            location=location,
            allowed=f"at most {REFUSED_CHANGE:g} (recommended: below {SOUND_CHANGE:g})",
            remedy=shorter_step_or(table, math.sqrt(share), less),
        )


def require_bearable(table: BloodTable, speed: float) -> None:
    """Refuse to go on with a flow whose Mach number is too high for the method.

    `speed`: largest, in m/s; one that is not finite is left to others.
    """
    mach = speed / table.units.velocity / SOUND_SPEED
    if math.isfinite(mach) and mach > REFUSED_MACH:
        raise SolutionError(
            f"the velocity has reached {speed:.3g} m/s, a lattice Mach number of {mach:.3g} at which the "
            "method fails",
            allowed=f"at most {REFUSED_MACH:g} (recommended: below {MOST_MACH:g})",
        )


def scales(table: BloodTable, vessel: Vessel, until: float = 0.0) -> Scales:
    """Estimate the flow: from inflow, walls that move, and pressure in plasma.

    `until`: time in s up to which signals count with their largest value.
    """
    with _naming_implausible_numbers(table, vessel):
        width = expected_width(table)
        if vessel.is_joined:
            assert isinstance(vessel.geometry, Surface)
            width = surface_diameter(vessel.geometry)
        speeds = [0.0]
        for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True):
            if opening.kind == "velocity":
                speeds.append(_inflow(table, opening, points, vessel.lattice, until))
        moving = [math.hypot(*velocity) for velocity in table.walls.velocity_m_s.values()]
        for side, speed in zip(table.walls.velocity_m_s, moving, strict=True):
            check_mach(table, speed, f"blood.walls.velocity_m_s.{side}")
        speeds += _driven(table, vessel, width, until)
        # At the wall of a tube 4 u / width, between walls that move the difference of their speeds.
        shear = max(4 * max(speeds), sum(moving)) / width
        falls = tuple(expected_falls(table, vessel, until))
        return Scales(max([*speeds, *moving]), width, shear, falls)


def _implausible(table: BloodTable, vessel: Vessel) -> list[ImplausibleNumber]:
    """Sizes and properties that no vessel or liquid has, probably in another unit."""
    surface = vessel.geometry if isinstance(vessel.geometry, Surface) else None
    implausible = implausible_vessel(table.vessel, surface)
    return [*([] if implausible is None else [implausible]), *on_fluid(table)]


@contextlib.contextmanager
def _naming_implausible_numbers(table: BloodTable, vessel: Vessel) -> Iterator[None]:
    """Put implausible numbers before a refusal, of which they are the likely cause."""
    try:
        yield
    except InputError as error:
        causes = _implausible(table, vessel)
        if not causes:
            raise
        raise refusal_with_cause(causes, error) from None


def _driven(table: BloodTable, vessel: Vessel, width: float, until: float) -> list[float]:
    """Speeds in m/s of the flows that the pressure gradient and pressures of openings drive."""
    drop, apart = _pressures(table, vessel, until)
    vessel_length = max(vessel.lattice.grid.shape) * table.spacing
    if not math.isfinite(width):
        return []
    # In the middle of a tube, G R^2 / (4 mu); between plates twice that.
    factor = 8 if isinstance(table.vessel, Channel) else 16
    developed = width**2 / (factor * table.viscosity)
    signal = table.drive_signal()
    gradient = math.hypot(*driving_gradient(table, vessel)) * signal.largest(until)
    through = [
        drop * developed / (vessel_length + resistance * developed / 2)
        for drop, resistance in _falls_to_outlets(vessel, until)
    ]
    # What a fall in pressure can give at all: Bernoulli.
    fall = min(drop / apart * developed, math.sqrt(2 * drop / table.density_kg_m3))
    # Where the width is that of the whole way, and there is time for it, the flow comes to that.
    if isinstance(table.vessel, Channel | Tube) and signal.steady:
        reached = gradient * developed
        if until:
            reached = min(reached, gradient * until / table.density_kg_m3)
        check_mach(table, reached, "blood.pressure_gradient_pa_m")
    if isinstance(table.vessel, Channel | Tube):
        check_mach(table, fall, "blood.openings, pressures")
    known = [] if isinstance(table.vessel, SurfaceFile) else [fall, *through]
    return [gradient * developed, *known]


def _falls_to_outlets(vessel: Vessel, until: float) -> list[tuple[float, float]]:
    """Falls in Pa from given pressures to those outside outlets with a resistance, and these times the area."""
    pressures = [
        opening.value * opening.time_signal().largest(until)
        for opening in vessel.openings
        if opening.kind == "pressure" and opening.resistance is None
    ]
    falls = []
    for outlet in expected_outlets(vessel, until):
        area = opening_area(vessel.lattice.openings[outlet.number], vessel.lattice)
        drop = max((abs(pressure - outlet.law.outside) for pressure in pressures), default=0.0)
        falls.append((drop, area * (outlet.law.proximal + outlet.law.distal)))
    return falls


def _pressures(table: BloodTable, vessel: Vessel, until: float) -> tuple[float, float]:
    """Largest fall of pressure between openings in Pa, and how far these are apart in m."""
    pressures = []
    for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True):
        if opening.kind == "pressure" and opening.resistance is None:
            pressure = opening.value * opening.time_signal().largest(until)
            check_pressure(table, pressure, f"blood.openings {opening.name}")
            pressures.append((pressure, points))
    if len(pressures) < 2:
        return 0.0, 1.0
    (low, one), (high, other) = (
        choose(pressures, key=lambda item: (item[0], *_plane(item[1]))) for choose in (min, max)
    )
    (axis, plane), (other_axis, other_plane) = _plane(one), _plane(other)
    planes = abs(plane - other_plane) if axis == other_axis >= 0 else 0
    # Openings side by side, as two outlets are, have a way between them that is not straight.
    return high - low, (planes or max(vessel.lattice.grid.shape)) * table.spacing


def _plane(opening: AnyOpening) -> tuple[int, int]:
    """Axis and plane of points of an opening; -1 where its normal is along no axis."""
    return (opening.axis, opening.plane) if isinstance(opening, Opening) else (-1, 0)


def _inflow(
    table: BloodTable, opening: OpeningTable, points: AnyOpening, lattice: Lattice, until: float
) -> float:
    """Largest speed in m/s of what comes in at an opening, there or once its flow has developed."""
    # Twice the mean in the middle of a tube.
    relative, largest_are = 2.0, []
    if opening.velocity_profile() is not None:
        profile = relative_velocities(opening, points, lattice)
        largest, developed = (
            float(np.abs(profile).max()),
            2 * abs(mean_of(profile, points, lattice)),
        )
        relative = max(largest, developed)
        largest_are += ["its profile"] if largest > developed else []
    signal = opening.time_signal()
    largest_are += [] if signal.steady else ["its signal"]
    verb = "is" if len(largest_are) == 1 else "are"
    where = f"where {' and '.join(largest_are)} {verb} largest" if largest_are else ""
    if "its profile" not in largest_are:
        where = f"in the middle of the vessel {where}".rstrip()
    speed = relative * abs(opening.value) * signal.largest(until)
    check_mach(table, speed, f"blood.openings {opening.name}", opening.value, where)
    return speed


def expected_width(table: BloodTable) -> float:
    """Diameter of a vessel, or distance of a channel's nearest walls, in m; infinite without walls."""
    vessel = table.vessel
    if isinstance(vessel, Channel):
        return min(walled_sizes(vessel), default=math.inf)
    if isinstance(vessel, SurfaceFile):
        # Of a sphere of that volume: a vessel is narrower, so that estimates are from above.
        return math.cbrt(6 / math.pi * vessel.points(1.0))
    return 2 * vessel.radius_um * MICRO


def spacings_across(table: BloodTable, kind: CellsTable) -> float:
    """Lattice points along the diameter of a cell."""
    return 2 * kind.radius_um / table.spacing_um


def _on_viscosity(table: BloodTable, kind: CellsTable, shear: float) -> tuple[list[str], list[str]]:
    """Notes and warnings on a membrane's viscosity, which is taken with springs in series."""
    if not kind.membrane_viscosity_un_s_m:
        return [], []
    notes, lines = [], []
    spring = kind.viscous_stiffness * table.units.surface_modulus
    late = kind.membrane_viscosity_un_s_m * MICRO / spring
    most = _MOST_VISCOUS[table.delta]
    line = f"{_key(kind)}: the viscous tension has a delay of {late / MICRO:.3g} us"
    wanted = kind.viscous_stiffness * late * shear / _MOST_LATE
    if late * shear > _MOST_LATE:
        line += f", {late * shear:.2g} times the time in which the flow strains the membrane by 1; "
        enough = wanted <= most
        line += f"set viscous_stiffness = {wanted if enough else most:.2g}"
        if not enough:
            # The unit of stiffness goes as the spacing over the square of tau - 1/2.
            share = math.sqrt(most / wanted)
            line += f" and {shorter_step_or(table, share, 'choose another blood.delta', power=2.0)}"
        lines.append(line)
    else:
        notes.append(line)
    if kind.viscous_stiffness > most:
        lines.append(
            f"{_key(kind)}: viscous_stiffness = {kind.viscous_stiffness:g} is too stiff for the time step with "
            f'blood.delta = "{table.delta}"; set viscous_stiffness = {most:g} or less'
        )
    return notes, lines


def _key(kind: CellsTable) -> str:
    """Table of a kind of cells in messages."""
    return f"blood.cells {kind.name}"


def capillary_number(table: BloodTable, kind: CellsTable, shear: float) -> float:
    """Viscous stress at walls on a cell over the shear modulus of its membrane."""
    return table.viscosity * shear * kind.radius_um / kind.shear_modulus_un_m


def too_stiff(kind: CellsTable) -> list[str]:
    """Moduli of a kind that are far above those of any known cell, with their units."""
    return [
        f"{name} = {getattr(kind, name):g} {unit}"
        for name, (most, unit) in _MOST_MODULI.items()
        if (getattr(kind, name) or 0.0) > most
    ]


def _unlike_others(table: BloodTable, kind: CellsTable) -> list[str]:
    """Warnings of cells that are coarse, of unusual moduli, or absent."""
    lines = [
        f"{_key(kind)}: {modulus} is far above that of any known cell, and the membrane may break; check the unit"
        for modulus in too_stiff(kind)
        if kind.shape != "biconcave" or not modulus.startswith(tuple(_LIKE_A_RED_CELL))
    ]
    if kind.shape == "biconcave":
        for name, (least, most) in _LIKE_A_RED_CELL.items():
            value = getattr(kind, name)
            if value and not least <= value <= most:
                lines.append(
                    f"{_key(kind)}: {name} = {value:g} is unusual for a red cell (usual: {least:g} to "
                    f"{most:g}); check the unit"
                )
    if kind.stretch is not None and kind.stretch.force_pn > _MOST_PULL:
        lines.append(
            f"{_key(kind)}: stretch.force_pn = {kind.stretch.force_pn:g} is far above what cells bear (red cells: up "
            f"to 200 pN), and the membrane may break; check the unit"
        )
    across = spacings_across(table, kind)
    crowd = kind.hematocrit and kind.shape == "biconcave"
    if crowd and across < 15:
        lines.append(
            f"{_key(kind)}: a cell is {across:.3g} spacings across; on so coarse a lattice membranes crease in "
            f"dense suspensions{', and fold_guard makes them uneven' if kind.fold_guard else ''}; use this case "
            f"for trials only, or set blood.spacing_um = {2 * kind.radius_um / 15:.2g}"
        )
    elif across < _FEWEST_ACROSS:
        lines.append(
            f"{_key(kind)}: a cell is only {across:.3g} spacings across; use this case for trials only, or set "
            f"blood.spacing_um = {2 * kind.radius_um / _FEWEST_ACROSS:.2g}"
        )
    if not kind.hematocrit and not kind.placed and kind.positions is None:
        lines.append(
            f"{_key(kind)}: the case has no cells of this kind; set hematocrit, placed or positions"
        )
    return lines


def grid_reynolds(table: BloodTable, speed: float) -> float:
    """Reynolds number of a spacing: u dx / nu, of a speed in m/s; nu is that at high shear rates."""
    viscosity = table.viscosity
    if table.carreau is not None:
        viscosity = min(viscosity, table.carreau.infinite_shear_mpa_s * 1e-3)
    return speed * table.spacing * table.density_kg_m3 / viscosity


def _takes_in(table: BloodTable, vessel: Vessel, until: float) -> list[str]:
    """Openings with a pressure through which fluid comes in at some time."""
    openings = [(opening, opening.time_signal()) for opening in vessel.openings]
    areas = [points.diameter(table.spacing) ** 2 for points in vessel.lattice.openings]
    steady = all(signal.steady for _, signal in openings)
    end = max([until, *(opening.period_s or 0.0 for opening, _ in openings)])
    names = set[str]()
    for t in [0.0] if steady else np.linspace(0.0, end, _LOOKED_AT):
        values = [opening.value * signal(float(t)) for opening, signal in openings]
        rows = list(zip(vessel.openings, values, areas, strict=True))
        pressures = {
            opening.name: value for opening, value, _ in rows if opening.kind == "pressure"
        }
        flow = sum(value * area for opening, value, area in rows if opening.kind == "velocity")
        if flow < 0:
            names |= set(pressures)
        elif not flow and pressures and min(pressures.values()) < max(pressures.values()):
            names |= {name for name, value in pressures.items() if value == max(pressures.values())}
    return [opening.name for opening in vessel.openings if opening.name in names]


def _on_grid_reynolds(table: BloodTable, vessel: Vessel, scales: Scales, until: float) -> list[str]:
    """Warnings of flows at which openings become unstable; refuses where they do for certain."""
    if not vessel.openings:
        return []
    number = grid_reynolds(table, scales.speed)
    names = _takes_in(table, vessel, until)
    most = _MOST_GRID_REYNOLDS_IN if names else _MOST_GRID_REYNOLDS
    if number <= most:
        return []
    share = most / number
    inflows = [
        (_inflow(table, opening, points, vessel.lattice, until), opening)
        for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True)
        if opening.kind == "velocity"
    ]
    speed, fastest = max(inflows, key=lambda item: item[0], default=(0.0, None))
    location = f"blood.openings {', '.join(names)}" if names else "blood.openings"
    slower = f"slow the flow down to {rounded_down(share * scales.speed):.3g} m/s"
    certain = fastest is not None and speed == scales.speed
    if certain and fastest is not None:
        location = f"blood.openings {fastest.name}"
        slower = f"lower value to {rounded_down(share * abs(fastest.value)):.3g} m/s"
    refused = certain and number >= _UNSTABLE
    where = "where fluid comes in at a pressure" if names else "at openings"
    allowed = f"recommended: at most {most:g} {where}"
    refusal = InputError(
        f"the grid Reynolds number u dx / nu is {number:.3g} where the velocity is {scales.speed:.3g} m/s, so the "
        "flow becomes unstable at openings, whatever the time step",
        location=location,
        allowed=f"below {_UNSTABLE:g} ({allowed})" if refused else allowed,
        remedy=f"set blood.spacing_um = {rounded_down(share * table.spacing_um):.3g} or less, or {slower} or less",
    )
    if refused:
        raise refusal
    return [str(refusal)]


def _on_openings(table: BloodTable, vessel: Vessel) -> list[str]:
    """Warnings of openings whose flows cannot balance."""
    has_velocity = [opening.kind == "velocity" for opening in vessel.openings]
    if has_velocity and all(has_velocity):
        return [
            "blood.openings: all openings prescribe velocities, so a surplus of inflow raises the density without "
            'limit; set kind = "pressure" for one of them'
        ]
    if not any(has_velocity) or not isinstance(table.vessel, SurfaceFile):
        return []
    # Only a surface can hold parts that do not hang together.
    lattice = vessel.lattice
    part_of_run = lattice.runs.parts(lattice.periodic)
    run_of = [
        int(np.searchsorted(lattice.runs.first, opening.numbers[0], "right")) - 1
        for opening in lattice.openings
    ]
    parts = part_of_run[run_of]
    lines = []
    for part in np.unique(parts):
        here = np.flatnonzero(parts == part)
        if all(has_velocity[number] for number in here):
            names = ", ".join(vessel.openings[number].name for number in here)
            lines.append(
                f"blood.openings {names}: no opening with a pressure is connected with these, so a surplus of "
                "inflow raises the density without limit; check that normals of blood.openings point out of the "
                'vessel, or set kind = "pressure" for one of these'
            )
    return lines


def stiffness(table: BloodTable, kind: CellsTable) -> float:
    """How far a membrane's stress moves its vertices in a step, over its strain: K dt / (mu dx)."""
    dilation = 1 + 2 * kind.area_ratio if kind.law == "skalak" else 3.0
    stiff = kind.shear_modulus_un_m * 1e-6 * dilation
    return stiff * table.units.time_step / (table.viscosity * table.spacing)


def _relaxation_times(table: BloodTable) -> list[tuple[float, str]]:
    """Relaxation times in steps, and of what they are."""
    times = [(table.tau, "")]
    inside = table.inside_tau
    if inside is not None:
        ratio = (inside - 0.5) / (table.tau - 0.5)
        if not LEAST_TAU <= inside <= _REFUSED_TAU:
            raise InputError(
                f"the relaxation time inside cells is {inside:.6g} steps",
                location=f"blood.cells, viscosity_ratio = {ratio:g}",
                allowed=f"{LEAST_TAU:g} to {_REFUSED_TAU:g} (recommended: {SOUND_TAU[0]:g} to {SOUND_TAU[1]:g})",
                remedy=f"{sound_steps(table, ratio)}, or bring viscosity_ratio nearer to 1",
            )
        times.append((inside, " inside cells"))
    if table.carreau is not None:
        at_rest = table.units.relaxation_time(table.carreau.zero_shear_mpa_s * 1e-3)
        if at_rest > _REFUSED_TAU:
            share = (_REFUSED_TAU - 0.5) / (at_rest - 0.5)
            beyond_half = share * (table.tau - 0.5)
            shorter = f", or set {step_key(table)} = {step_text(table, beyond_half)} or less"
            raise InputError(
                f"the relaxation time at rest is {at_rest:.4g} steps",
                location=f"blood.carreau.zero_shear_mpa_s = {table.carreau.zero_shear_mpa_s:g}",
                allowed=f"at most {_REFUSED_TAU:g}",
                remedy="set blood.carreau.zero_shear_mpa_s = "
                f"{rounded_down(share * table.carreau.zero_shear_mpa_s):.3g} or less"
                + (shorter if 0.5 + beyond_half >= LEAST_TAU else ""),
            )
        times.append((at_rest, " at rest (blood.carreau)"))
    return times


def report(table: BloodTable, vessel: Vessel, scales: Scales, until: float = 0.0) -> list[str]:
    """Notices and warnings about the numbers of a case, a line each.

    `until`: when the run ends, in s.
    """
    units = table.units
    # A file's vessel and what goes through it are known only from its run.
    known = table.openings or not isinstance(table.vessel, SurfaceFile) or vessel.is_joined
    mach = scales.speed / units.velocity / SOUND_SPEED if known else 0.0
    notes: list[str] = []
    lines = [str(number) for number in _implausible(table, vessel)]
    low, high = SOUND_TAU
    for tau, where in _relaxation_times(table):
        if not low <= tau <= high:
            ratio = (tau - 0.5) / (table.tau - 0.5)
            lines.append(
                f"the relaxation time{where} is {tau:.4g} steps, outside the recommended range {low:g} to "
                f"{high:g}; {sound_steps(table, ratio)}"
            )
    for kind in table.cells:
        ratio = stiffness(table, kind)
        if ratio > MOST_STIFFNESS:
            lines.append(
                f"{_key(kind)}: the membranes are too stiff for the time step: K dt / (mu dx) is {ratio:.2g} "
                f"(recommended: below {MOST_STIFFNESS:g}); "
                f"{shorter_step_or(table, MOST_STIFFNESS / ratio, 'lower the moduli')}"
            )
        firm = kind.firmness(units)
        if firm > MOST_FIRMNESS:
            softer = f"set volume_modulus_pa = {MOST_FIRMNESS * units.pressure:.3g} or less"
            lines.append(
                f"{_key(kind)}: the volume modulus is too large for the time step: kappa dt^2 / (rho dx^2) is "
                f"{firm:.2g} (recommended: below {MOST_FIRMNESS:g}); "
                f"{shorter_step_or(table, math.sqrt(MOST_FIRMNESS / firm), softer)}"
            )
        pull = capillary_number(table, kind, scales.shear)
        if pull > _MOST_CAPILLARY:
            lines.append(
                f"{_key(kind)}: the capillary number at the walls is {pull:.2g}; above {_MOST_CAPILLARY:g} the "
                "mesh creases and may break within some thousand steps; slow the flow down, or raise "
                "shear_modulus_un_m"
            )
        late, viscous = _on_viscosity(table, kind, scales.shear)
        notes += late
        lines += viscous
        lines += _unlike_others(table, kind)
    signals = [table.drive_signal(), *(opening.time_signal() for opening in vessel.openings)]
    signals += [kind.stretch.time_signal() for kind in table.cells if kind.stretch is not None]
    lines += [line for signal in signals if (line := signal.in_milliseconds(until))]
    if table.profile is not None and until and table.profile.start * units.time_step > until:
        lines.append(
            f"blood.profile.start = {table.profile.start}: it lies beyond the last step, so the run computes no "
            "profiles; lower it or run more steps"
        )
    lines += _on_openings(table, vessel)
    lines += on_surface_openings(table, vessel)
    lines += on_driving_forces(table, vessel, until)
    lines += _on_grid_reynolds(table, vessel, scales, until)
    notes += on_flow_rates(table, vessel)
    notes += [line for signal in signals if (line := signal.smoothness())]
    starts, reacting = on_outlets(table, vessel, until)
    notes += starts
    lines += reacting
    with _naming_implausible_numbers(table, vessel):
        lines += check_expected(table, scales.falls)
        lines += check_outlets(table, vessel, until)
    if mach > MOST_MACH:
        lines.append(
            f"the lattice Mach number is {mach:.2g} (recommended: below {MOST_MACH:g}); compressibility errors "
            "grow with its square; "
            f"{shorter_step_or(table, MOST_MACH / mach, 'slow the flow down')}"
        )
    return [*notes, *(f"warning: {line}" for line in lines)]
