"""Results of a blood run: flow through openings, range of density, mean profiles with their files, and the rest."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.spectrum_pictures import write_columns
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.regions import Region as TimedRegion
from haloscope.solvers.blood.case import BloodCase, BloodTable
from haloscope.solvers.blood.cell_in_outflow import CellInOutflow
from haloscope.solvers.blood.compressibility import DensityRange
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.outputs.cell_outputs import CellOutputs
from haloscope.solvers.blood.outputs.profiles import (
    MeanProfiles,
    Profiles,
    Steadiness,
    samples_left_out,
)
from haloscope.solvers.blood.outputs.wall_stress import WallStress
from haloscope.solvers.blood.remedies import rounded_down
from haloscope.solvers.blood.units import MICRO, SOUND_SPEED
from haloscope.solvers.blood.vessels.straight_vessels import StraightVessel, pries_viscosity
from haloscope.solvers.blood.vessels.vessels import Vessel
from haloscope.solvers.interface import Results

TABLE, PICTURE = "profile.csv", "profile.png"
_LINE_POINTS = 101


def profile_numbers(
    profiles: MeanProfiles, straight: StraightVessel, table: BloodTable
) -> dict[str, Any]:
    """Mean profiles in the summary."""
    # ``apparent_viscosity`` is over that of plasma (``blood.viscosity_mpa_s``): the mean speed that
    # plasma would have in the same vessel at the same pressure gradient, over the mean speed. With
    # cells in a tube, ``pries_viscosity`` is what experiments gave at the measured discharge
    # hematocrit. Both mean something in a steady flow alone, which ``steady`` tells. Numbers that
    # cannot be had are None.
    size = {"radius_um" if straight.across is None else "height_um": straight.height / MICRO}
    if math.isfinite(straight.width):
        size["width_um"] = straight.width / MICRO
    if straight.across is None:
        # The radius of the round tube through which plasma flows as fast.
        size["hydraulic_radius_um"] = math.sqrt(8 * straight.permeability) / MICRO
    apparent = math.nan
    driven = straight.has_gradient(profiles.gradient, profiles.speed, table.viscosity)
    if driven and not table.walls.velocity_m_s:
        apparent = straight.plasma_speed(profiles.gradient, table.viscosity) / profiles.speed
    numbers: dict[str, Any] = {
        "samples": profiles.samples,
        "first_step": profiles.first_step,
        "last_step": profiles.last_step,
        **size,
        "mean_speed_m_s": profiles.speed,
        "flow_nl_s": profiles.speed * straight.area * 1e12,
        "pressure_gradient_pa_m": profiles.gradient,
        "pseudo_shear_rate_1_s": abs(profiles.speed) / straight.diameter,
        "apparent_viscosity": apparent,
        **_steadiness_numbers(profiles),
        "wall_stress_by_balance_pa": straight.wall_stress(profiles.gradient),
    }
    if profiles.hematocrit is not None:
        numbers |= {
            "tube_hematocrit": profiles.tube_hematocrit,
            "discharge_hematocrit": profiles.discharge_hematocrit,
            "discharge_hematocrit_by_points": profiles.discharge_by_points,
            "cell_free_layer_um": profiles.free_layer / MICRO,
        }
        if straight.across is None and 0 <= profiles.discharge_hematocrit < 1:
            diameter = 2 * straight.height / MICRO
            expected = pries_viscosity(diameter, profiles.discharge_hematocrit)
            numbers["pries_viscosity"] = expected
            numbers["over_pries"] = apparent / expected - 1
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in numbers.items()
    }


def _steadiness_numbers(profiles: MeanProfiles) -> dict[str, Any]:
    judged = profiles.steadiness
    numbers = {
        "steady": judged.steady,
        "flow_change": judged.flow_change,
        "gradient_change": judged.gradient_change,
        "change_time_s": judged.change_time,
        "drive_change": judged.drive_change,
        "startup_time_s": judged.startup_time,
    }
    if judged.diameters is not None:
        numbers["diameters_passed"] = judged.diameters
    return numbers


def profile_results(
    profiles: MeanProfiles | None,
    straight: StraightVessel,
    table: BloodTable,
    out: Path | None,
    *,
    title: str,
    picture: bool,
) -> Results:
    """Numbers of mean profiles, and their files where there is a folder; for rank 0 alone."""
    if profiles is None:
        return Results({"profile": None}, {}, [], [f"warning: {_no_samples(table)}"])
    numbers = profile_numbers(profiles, straight, table)
    files = {}
    if out is not None:
        files["profile"] = out / TABLE
        _write_table(files["profile"], profiles, straight, table)
        if picture:
            files["profile picture"] = out / PICTURE
            _draw(files["profile picture"], profiles, straight, numbers, title)
    return Results(
        {"profile": numbers},
        files,
        _profile_lines(numbers, straight, profiles.steadiness),
        _not_final(numbers, profiles),
    )


def _not_final(numbers: dict[str, Any], profiles: MeanProfiles) -> list[str]:
    """A warning for the viscosity and the hematocrits of means that are too short or not steady."""
    judged = profiles.steadiness
    if judged.steady:
        return []
    names = ["apparent viscosity"] if numbers["apparent_viscosity"] is not None else []
    names += ["hematocrits"] if "tube_hematocrit" in numbers else []
    return [f"warning: {' and '.join(['mean profile', *names])} not final: {judged.describe()}"]


def _samples(profiles: MeanProfiles) -> str:
    if profiles.samples == 1:
        return f"the sample of step {profiles.first_step}"
    return f"{profiles.samples} samples of steps {profiles.first_step} to {profiles.last_step}"


def _no_samples(table: BloodTable) -> str:
    assert table.profile is not None
    return (
        f"no profiles: the run has no sample from step {table.profile.start} on; run longer or lower "
        "blood.profile.start"
    )


def _profile_lines(
    numbers: dict[str, Any], straight: StraightVessel, judged: Steadiness
) -> list[str]:
    lines = []
    viscosity = numbers["apparent_viscosity"]
    if viscosity is not None:
        line = f"apparent viscosity {viscosity:.4g} times plasma's in a {straight.describe()}"
        if straight.across is not None:
            line = line.replace(" in a ", " between ", 1) if "apart" in line else line
        if not judged.steady:
            known = "is not steady" if judged.steady is False else "may not be steady"
            line += f" (the flow {known})"
        expected = numbers.get("pries_viscosity")
        if expected is not None:
            line += f"; experiments {expected:.4g} at the discharge hematocrit (Pries et al. 1992)"
            if judged.steady:
                line += f", {100 * numbers['over_pries']:+.2g} %"
        lines += [line, judged.describe()]
    if "tube_hematocrit" in numbers:
        parts = [f"hematocrit {numbers['tube_hematocrit']:.4g} in the vessel"]
        if numbers["discharge_hematocrit"] is not None:
            parts.append(f"{numbers['discharge_hematocrit']:.4g} discharged")
        if numbers["cell_free_layer_um"] is not None:
            parts.append(f"cell-free layer {numbers['cell_free_layer_um']:.3g} um")
        lines.append(", ".join(parts))
    return lines


def _write_table(
    path: Path, profiles: MeanProfiles, straight: StraightVessel, table: BloodTable
) -> None:
    columns: dict[str, Any] = {
        "from_um": profiles.edges[:-1] / MICRO,
        "to_um": profiles.edges[1:] / MICRO,
        "points": profiles.points,
        "distance_um": profiles.distances / MICRO,
        "velocity_mm_s": profiles.velocity * 1e3,
    }
    if profiles.hematocrit is not None:
        columns["hematocrit"] = profiles.hematocrit
    where = "the axis" if straight.across is None else f"the wall at {'xyz'[straight.across]}_low"
    note = (
        f"{_samples(profiles)}; distances from {where}, distance_um the mean of the points in a bin\n"
        f"velocity along {'xyz'[straight.axis]}; hematocrit: share of the points inside cells"
    )
    if table.walls.kind == "halfway" and straight.across is None:
        note += f"\nthe cross-section has the area of a circle of radius {straight.height / MICRO:.6g} um"
    # A bin without points has no numbers.
    sampled = profiles.points > 0
    write_columns(path, {name: values[sampled] for name, values in columns.items()}, note)


def _draw(
    path: Path,
    profiles: MeanProfiles,
    straight: StraightVessel,
    numbers: dict[str, Any],
    title: str,
) -> None:
    from haloscope.io.figures.spectrum_pictures import ProfilePanel, save_profiles

    sampled = profiles.points > 0
    places = np.linspace(0.0, straight.wall, _LINE_POINTS)
    parabola = straight.parabola(places, profiles.speed)
    lines = {}
    if parabola is not None and numbers["apparent_viscosity"] is not None:
        lines["parabola of the same flow"] = (places / MICRO, parabola * 1e3)
    panels = [
        ProfilePanel(
            f"mean velocity along {'xyz'[straight.axis]} (mm/s)",
            {"mean velocity": profiles.velocity[sampled] * 1e3},
            lines,
        )
    ]
    subtitle = straight.describe()
    if profiles.hematocrit is not None:
        edges = {}
        if math.isfinite(profiles.free_layer):
            sides = [straight.wall - profiles.free_layer]
            if straight.across is not None:
                sides.append(profiles.free_layer)
            top = float(np.nanmax(profiles.hematocrit))
            for number, side in enumerate(sides):
                name = "edge of the cells" if number == 0 else "_"
                edges[name] = ([side / MICRO] * 2, [0.0, top])
        panels.append(
            ProfilePanel("hematocrit", {"hematocrit": profiles.hematocrit[sampled]}, edges)
        )
        subtitle += f", tube hematocrit {profiles.tube_hematocrit:.3g}"
        if numbers["discharge_hematocrit"] is not None:
            subtitle += f", {profiles.discharge_hematocrit:.3g} discharged"
    label = "distance from the axis (um)"
    if straight.across is not None:
        label = f"distance from the wall at {'xyz'[straight.across]}_low (um)"
    save_profiles(
        path,
        distances=profiles.distances[sampled] / MICRO,
        label=label,
        span=(0.0, straight.wall / MICRO),
        panels=panels,
        title=title or "Mean profiles",
        subtitle=f"{subtitle}; {_samples(profiles)}",
    )


Floats = NDArray[np.float64]


# Bits behind the point of what passes a link.
_FRACTION = 40
AT_WALLS = "wall_mass_flow"
"""Diagnostic: kg/s that interpolated or moving walls add to what halfway walls at rest would return."""
# Of the inflow: less is stored in a flow that counts as steady.
_STEADY = 1e-3
# Of the inflow: more is an error of its own.
_MUCH = 0.01


class Flows:
    """Sums over a rank's points, for all ranks."""

    def __init__(self, medium: FluidWithCells, vessel: Vessel) -> None:
        self._world, self._vessel, self._units = medium.world, vessel, medium.table.units
        self._tags = medium.part.openings[: medium.part.owned]
        self._with_cells = medium.suspension is not None
        self._fluid, self._walls_listed = medium.fluid, medium.table.walls.linked

    def densities(self, fields: Floats) -> DensityRange:
        """Of all points; with cells, whose membranes press on single points, of the means of openings.

        `fields`: u, v, w in m/s and p in Pa of own points, (4, owned).
        """
        pressures = fields[3]
        if self._with_cells:
            masks = [self._tags == number for number in range(len(self._vessel.openings))]
            masks.append(np.ones(len(self._tags), bool))
            sums = [(float(pressures[mask].sum()), float(mask.sum())) for mask in masks]
            total, count = self._world.sum(np.array(sums)).T
            pressures = total / count
        high = self._world.largest(float(pressures.max(initial=-math.inf)))
        low = -self._world.largest(float((-pressures).max(initial=-math.inf)))
        unit = self._units.pressure * SOUND_SPEED**2
        return DensityRange(1.0 + low / unit, 1.0 + high / unit)

    def rates(self, fields: Floats) -> dict[str, float]:
        """Volume flow in m^3/s and mass flow in kg/s into the vessel: through each opening, and the mass at walls."""
        volumes, masses = {}, {}
        density = 1.0 + fields[3] / self._units.pressure / SOUND_SPEED**2
        vessel, area = self._vessel, self._units.spacing**2
        mass_unit = area * self._units.velocity * self._units.density
        for number, (points, table) in enumerate(
            zip(vessel.lattice.openings, vessel.openings, strict=True)
        ):
            own = self._tags == number
            if isinstance(points, TiltedOpening):
                mass = -self._exact_sum(self._fluid.passed(number))
                # Links lie beside the end: its volume flow is by the mean density of its points.
                sums = np.array([float(density[own].sum()), float(own.sum())])
                total, count = self._world.sum(sums)
                volume = mass * self._units.velocity * float(count / total)
            else:
                mass = -self._exact_sum(self._fluid.passed_across(number))
                speeds = np.array([float(fields[points.axis][own].sum())])
                (volume,) = (-points.direction * self._world.sum(speeds)).tolist()
            volumes[f"flow_{table.name}"] = volume * area
            masses[f"mass_flow_{table.name}"] = mass * mass_unit
        flows = volumes | masses
        if flows or self._walls_listed:
            flows[AT_WALLS] = self._exact_sum(self._fluid.gained_at_walls()) * mass_unit
        return flows

    def _exact_sum(self, masses: Floats) -> float:
        """Sum over links of all ranks, the same on any number of ranks."""
        # Whole multiples of a small number.
        sound = np.isfinite(masses)
        whole = np.rint(np.where(sound, masses, 0.0) * 2.0**_FRACTION).astype(np.int64)
        total, broken = self._world.sum(np.array([whole.sum(), (~sound).sum()])).tolist()
        return math.nan if broken else total / 2.0**_FRACTION


def flow_lines(
    diagnostics: Mapping[str, float], *, interpolated: bool, half: bool = False
) -> list[str]:
    """Lines on volume and mass flow; none of a vessel without openings.

    `half`: whether populations are kept in half precision.
    """
    flows = {
        key.removeprefix("flow_"): value
        for key, value in diagnostics.items()
        if key.startswith("flow_")
    }
    if not flows:
        return []
    volumes = ", ".join(f"{name} {value * 1e12 + 0.0:.4g}" for name, value in flows.items())
    masses = {name: diagnostics[f"mass_flow_{name}"] for name in flows}
    texts = ", ".join(f"{name} {value * 1e9 + 0.0:.4g}" for name, value in masses.items())
    line = f"mass flow into the vessel in ug/s: {texts}"
    inflow = sum(value for value in masses.values() if value > 0)
    if inflow:
        missing, gained = sum(masses.values()) / inflow, diagnostics[AT_WALLS] / inflow
        line += f"; inflow less outflow {100 * missing:.3g} %"
        if interpolated and gained > 0:
            line += f", with {100 * gained:.3g} % gained at interpolated walls"
        elif interpolated:
            line += f", of which {-100 * gained:.3g} % were lost at interpolated walls"
        rest = missing + gained
        if abs(rest) >= _STEADY:
            why = "rounding to half precision, or " if half else ""
            line += f"; {100 * rest:.3g} % are {why}stored in a flow that is not yet steady"
    return [f"flow into the vessel in nl/s: {volumes}", line]


def wall_warnings(rates: Mapping[str, float], table: BloodTable) -> list[str]:
    """A warning of interpolated walls that gain or lose much of what comes in."""
    inflow = sum(rate for key, rate in rates.items() if key.startswith("mass_flow_") and rate > 0)
    gained = rates.get(AT_WALLS, 0.0)
    if table.walls.kind != "interpolated" or abs(gained) <= _MUCH * inflow or not inflow:
        return []
    verb, large = ("gained", "large") if gained > 0 else ("lost", "small")
    share = abs(gained) / inflow
    finer = rounded_down(table.spacing_um * math.sqrt(_MUCH / share))
    return [
        f"warning: interpolated walls {verb} {100 * share:.2g} % of the inflow, so the outflow is too {large} by as "
        f"much (recommended: below {100 * _MUCH:g} %); set blood.spacing_um = {finer:.3g} or less (the share falls "
        'with its square), or blood.walls.kind = "halfway", which conserves mass'
    ]


_SAMPLE = TimedRegion("samples of profiles")

WALL_FILE = "wall-stress.vtkhdf"


class RunResults:
    """Cells, mean profiles where the case asks for them, and shear stress on walls.

    With profiles the stress is the mean of the same samples, else that of the last state.
    """

    def __init__(
        self,
        case: BloodCase,
        medium: FluidWithCells,
        vessel: Vessel,
        *,
        cell_outputs: CellOutputs | None = None,
        traffic: CellInOutflow | None = None,
    ) -> None:
        table = case.blood
        self._case, self._units, self._world = case, table.units, medium.world
        self._cell_outputs, self._traffic = cell_outputs, traffic
        self._medium, self._vessel = medium, vessel
        self._drive = table.drive_signal()
        self._gradient = np.array(table.pressure_gradient_pa_m) / table.units.force_density
        self.profiles = None if table.profile is None else Profiles(medium, vessel)

    @functools.cached_property
    def wall_stress(self) -> WallStress:
        """Set up at its first use, which all ranks share."""
        return WallStress(self._medium, self._vessel)

    def is_due(self, step: int) -> bool:
        """Whether the state after a step is a sample."""
        return self.profiles is not None and self.profiles.is_due(step)

    def after_step(self, step: int) -> None:
        """Take the samples that are due after a step; all ranks call this after each that is one."""
        if self.profiles is None or not self.is_due(step):
            return
        with _SAMPLE:
            self.profiles.sample(step)
            self._sample_walls(step)

    def _sample_walls(self, step: int) -> None:
        # The force of the step that led here.
        factor = self._drive(max(step - 1, 0) * self._units.time_step)
        self.wall_stress.sample(factor * self._gradient)

    def extras(self) -> Mapping[str, NDArray[np.generic]]:
        """State for a checkpoint, whole on rank 0; all ranks call this."""
        if self.profiles is None:
            return {}
        return self.profiles.extras() | self.wall_stress.extras()

    def restore(self, extras: Mapping[str, NDArray[np.generic]], step: int) -> str:
        """Go on from a checkpoint of a step; all ranks call this.

        Where the case now asks for other samples than it did, means begin anew.
        """
        if self.profiles is None:
            return samples_left_out(extras)
        left_out = self.profiles.restore(extras)
        self.wall_stress.restore({} if left_out else extras)
        return left_out

    def finish(self, out: Path | None, step: int) -> Results:
        """Means and their files; all ranks call this."""
        results = []
        if self._cell_outputs is not None:
            results.append(self._cell_outputs.finish(out, step))
        if self._traffic is not None:
            results.append(self._traffic.results())
        results.append(self._finish_walls(out, step))
        if self.profiles is not None:
            means = self.profiles.means()
            if self._world.is_root:
                results.append(
                    profile_results(
                        means,
                        self.profiles.vessel,
                        self._case.blood,
                        out,
                        title=self._case.title,
                        picture=self._case.output.picture,
                    )
                )
        return Results.joined(results)

    def _finish_walls(self, out: Path | None, step: int) -> Results:
        walls = self.wall_stress
        if not walls.present:
            return Results()
        last_only = not walls.samples
        if last_only:
            self._sample_walls(step)
        files = {}
        if out is not None and self._case.output.fields:
            files["wall stress"] = out / WALL_FILE
            walls.write(files["wall stress"], step * self._units.time_step)
        numbers = walls.numbers()
        if last_only:
            walls.clear()
        if not numbers:
            return Results()
        line = (
            f"wall shear stress {numbers['mean_pa']:.4g} Pa on average over the wall points "
            f"({numbers['least_pa']:.3g} to {numbers['largest_pa']:.3g})"
        )
        return Results({"wall_stress": numbers}, files, [line])
