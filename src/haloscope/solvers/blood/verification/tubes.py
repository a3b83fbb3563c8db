"""Blood in tubes: apparent viscosity, discharge hematocrit, and the hematocrit of a tube that is fed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification.plasma import VISCOSITY, case_of
from haloscope.solvers.verification import Solve

_DENSITY = 25 * 1025.0
"""In kg/m^3: inertia plays next to no part, and heavy fluid takes long steps at the same viscosity.

The Reynolds number of the flow stays below 1.
"""
_FLOW = 2e-3
"""Mean velocity in m/s at which plasma would flow: 100 diameters a second in the wider tube, faster than
where aggregation matters, or than where cells tumble."""
_VERTICES = {0.5: 252, 0.4: 362}
"""Of a cell by the spacing: 1.4 spacings apart. The fluid hardly feels how nearer ones move against each other."""
_DELTA = "linear"
"""Membranes that come nearer than half its support move as one, so that the narrowest is the least too
viscous (at 0.5 um, 4 points give 1.5 times, 3 points 1.2 times what is published for 10 um)."""


@dataclass(frozen=True)
class Tube:
    """Blood in a periodic tube under a pressure gradient."""

    # In um.
    diameter: float
    length: float
    hematocrit: float  # Share of the volume that is cells
    spacing: float = 0.5
    # Distances in um that the mean flow of plasma would go before and while it is measured.
    settling: float = 500.0
    averaging: float = 150.0

    @property
    def gradient(self) -> float:
        """Fall of the pressure in Pa/m."""
        return 32 * VISCOSITY * _FLOW / (self.diameter * MICRO) ** 2

    def case(self) -> dict[str, Any]:
        """Data of the case, until the flow has settled."""
        data = case_of(
            self.spacing,
            {},
            relaxation_time=1.0,
            tube={"radius_um": self.diameter / 2, "length_um": self.length},
            walls={"kind": "interpolated"},
            pressure_gradient_pa_m=[self.gradient, 0.0, 0.0],
            delta=_DELTA,
            cells=[{"hematocrit": self.hematocrit, "vertices": _VERTICES[self.spacing]}],
        )
        data["blood"]["density_kg_m3"] = _DENSITY
        steps = self.steps(self.settling)
        data["run"] = {"steps": steps, "diagnostics_interval": max(1, steps // 20)}
        return data

    def steps(self, distance: float) -> int:
        """Steps in which the mean flow of plasma goes so far in um."""
        step = 0.5 / 3 * (self.spacing * MICRO) ** 2 * _DENSITY / VISCOSITY
        return round(distance * MICRO / _FLOW / step)


@dataclass(frozen=True)
class Measured:
    """Measured values of a tube."""

    viscosity: float  # Apparent, over that of plasma
    discharged: float  # Hematocrit at discharge: share of the flow that is cells
    hematocrit: float  # Of the tube as it was filled
    # Change of the viscosity from the first to the second half of the time of averaging.
    drift: float


def measure(tube: Tube, solve: Solve, samples: int = 200) -> Measured:
    """Run a tube and measure its flow."""
    # The apparent viscosity is that with which the whole flow would be Poiseuille's. Cells pass at
    # the rate at which their centres move; what they carry over the whole flow is the hematocrit at
    # discharge.
    simulation = solve(tube.case())
    solver = simulation.solver
    lattice, spacing = solver.vessel.lattice, tube.spacing * MICRO
    layers = lattice.shape[0]

    def cells() -> tuple[float, float]:
        """Sum of volumes times positions of centres along the tube, and of volumes, in m."""
        local = solver.suspension.kinds[0]
        shapes = local.membranes.shapes(local.count)
        volume = shapes.volume * spacing**3
        return float((volume * shapes.centre[:, 0]).sum()) * spacing, float(volume.sum())

    flows = []
    begun, (start, _) = solver.time, cells()
    steps = max(1, tube.steps(tube.averaging) // samples)
    for _ in range(samples):
        solver.advance(steps)
        u = solver.fluid.moments()[1][0] * solver.units.velocity
        flows.append(float(u.sum()) * spacing**2 / layers)
    end, volume = cells()
    length = tube.length * MICRO
    cell_flow = (end - start) / (solver.time - begun) / length
    radius = tube.diameter / 2 * MICRO
    plasma = math.pi * radius**4 * tube.gradient / (8 * VISCOSITY)
    first, second = (plasma / float(np.mean(half)) for half in np.array_split(flows, 2))
    flow = float(np.mean(flows))
    return Measured(
        plasma / flow, cell_flow / flow, volume / (math.pi * radius**2 * length), second - first
    )


"""In kg/m^3: inertia plays next to no part, and heavy fluid takes long steps at the same viscosity."""
_SPEED = 1.25e-3
_RADIUS, _LENGTH = 8.0, 30.0
"""In um."""
_STEPS, _FIRST = 60_000, 30_000
"""In the first half of which the flow goes once through the tube."""


@dataclass(frozen=True)
class Fed:
    """Measured values of a fed tube."""

    hematocrit: float  # Share of the tube that is cells, mean of the later steps
    # Cells that are there less those of the start and those that came in, plus those that left.
    missing: int
    passed: float  # Cells that left over those that came in
    flow: float  # Volume that leaves over what enters, at the end


def measure_fed_tube(hematocrit: float, solve: Solve) -> Fed:
    """Run a tube of 16 um with red cells, into which 1.25 mm/s flow."""
    data = case_of(
        0.5,
        {"steps": _STEPS, "diagnostics_interval": _STEPS // 20},
        relaxation_time=1.0,
        tube={"radius_um": _RADIUS, "length_um": _LENGTH, "periodic": False},
        walls={"kind": "interpolated"},
        openings=[
            {"name": "inlet", "kind": "velocity", "value": _SPEED, "feeds": True},
            {"name": "outlet", "kind": "pressure"},
        ],
        cells=[{"hematocrit": hematocrit, "vertices": 252}],
        profile={"start": _FIRST},
        seed=3,
    )
    data["blood"]["density_kg_m3"] = _DENSITY
    solver = solve(data).solver
    numbers = solver.diagnostics()
    traffic, there = solver.traffic, solver.suspension.kinds[0].total
    started = traffic.started[0]
    results = solver.finish(None, {}).summary
    return Fed(
        results["profile"]["tube_hematocrit"],
        there - (started + traffic.entered[0] - traffic.left[0]),
        traffic.left[0] / traffic.entered[0],
        -numbers["flow_outlet"] / numbers["flow_inlet"],
    )
