"""Volume and mass flow through openings, and the range of the density."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.solvers.blood.compressibility import DensityRange
from haloscope.solvers.blood.units import SOUND_SPEED, LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel

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
    volumes = ", ".join(f"{name} {value * 1e12:.4g}" for name, value in flows.items())
    masses = {name: diagnostics[f"mass_flow_{name}"] for name in flows}
    texts = ", ".join(f"{name} {value * 1e9:.4g}" for name, value in masses.items())
    line = f"mass flow into the vessel in ug/s: {texts}"
    inflow = sum(value for value in masses.values() if value > 0)
    if inflow:
        line += f"; in less out {100 * sum(masses.values()) / inflow:.2g} %"
        if interpolated:
            line += ", in part by interpolated walls, which do not keep the mass exactly"
    return [f"flow into the vessel in nl/s: {volumes}", line]
