"""Results of a blood run as the solver passes them on: flow through openings, range of density, and the rest."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart, Region
from haloscope.regions import Region as TimedRegion
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.compressibility import DensityRange
from haloscope.solvers.blood.feeding.cell_in_outflow import CellInOutflow
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.outputs.cell_outputs import CellOutputs
from haloscope.solvers.blood.outputs.profile_files import profile_results
from haloscope.solvers.blood.outputs.profiles import Profiles, samples_left_out
from haloscope.solvers.blood.outputs.wall_stress import WallStress
from haloscope.solvers.blood.units import SOUND_SPEED, LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.interface import Results

Floats = NDArray[np.float64]


class Flows:
    """Sums over a rank's points, for all ranks."""

    def __init__(
        self,
        world: World,
        vessel: Vessel,
        part: LatticePart,
        units: LatticeUnits,
        *,
        with_cells: bool,
    ) -> None:
        self._world, self._vessel, self._units = world, vessel, units
        self._tags = part.openings[: part.owned]
        self._with_cells = with_cells

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
        """Volume flow in m^3/s and mass flow in kg/s into the vessel through each opening."""
        volumes, masses = {}, {}
        density = 1.0 + fields[3] / self._units.pressure / SOUND_SPEED**2
        vessel, area = self._vessel, self._units.spacing**2
        for number, (points, table) in enumerate(
            zip(vessel.lattice.openings, vessel.openings, strict=True)
        ):
            own = self._tags == number
            speeds = fields[points.axis][own]
            sums = np.array([float(speeds.sum()), float((density[own] * speeds).sum())])
            volume, mass = (-points.direction * self._world.sum(sums)).tolist()
            volumes[f"flow_{table.name}"] = volume * area
            masses[f"mass_flow_{table.name}"] = mass * area * self._units.density
        return volumes | masses


def flow_lines(diagnostics: Mapping[str, float], *, interpolated: bool) -> list[str]:
    """Lines on volume and mass flow; none of a vessel without openings."""
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
        line += f"; inflow less outflow {100 * sum(masses.values()) / inflow:.3g} %"
        if interpolated:
            line += " (interpolated walls do not conserve mass exactly)"
    return [f"flow into the vessel in nl/s: {volumes}", line]


_SAMPLE = TimedRegion("samples of profiles")

WALL_FILE = "wall-stress.vtkhdf"


class RunResults:
    """Cells, mean profiles where the case asks for them, and shear stress on walls.

    With profiles the stress is the mean of the same samples, else that of the last state.
    `law`: carreau's law in lattice units, if the case has it.
    """

    def __init__(
        self,
        case: BloodCase,
        *,
        vessel: Vessel,
        part: LatticePart,
        region: Region,
        fluid: Fluid,
        suspension: Suspension | None,
        units: LatticeUnits,
        world: World,
        device: Device,
        cell_outputs: CellOutputs | None = None,
        traffic: CellInOutflow | None = None,
        law: Carreau | None = None,
    ) -> None:
        self._case, self._units, self._world = case, units, world
        self._cell_outputs, self._traffic = cell_outputs, traffic
        table = case.blood
        self._drive = table.drive_signal()
        self._gradient = np.array(table.pressure_gradient_pa_m) / units.force_density
        self.profiles: Profiles | None = None
        """None where none are asked for."""
        if table.profile is not None:
            self.profiles = Profiles(table, vessel, part, fluid, suspension, units, world)
        self._open_walls = functools.partial(
            WallStress, device, fluid, vessel, part, region, units, world, tau=table.tau, law=law
        )

    @functools.cached_property
    def wall_stress(self) -> WallStress:
        """Set up at its first use, which all ranks share."""
        return self._open_walls()

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
