"""Blood through an open tube that is fed: whether it keeps the hematocrit that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haloscope.solvers.blood.verification.plasma import case_of

Solve = Callable[[dict[str, Any]], Any]

_DENSITY = 25 * 1025.0
"""In kg/m^3: inertia plays next to no part, and heavy fluid takes long steps at the same viscosity."""
_SPEED = 1.25e-3
_RADIUS, _LENGTH = 8.0, 30.0
"""In um."""
_STEPS, _FIRST = 60_000, 30_000
"""In the first half of which the flow goes once through the tube."""


@dataclass(frozen=True)
class Fed:
    """What a fed tube shows."""

    hematocrit: float  # Share of the tube that is cells, mean of the later steps
    # Cells that are there less those of the start and those that came in, plus those that left.
    missing: int
    passed: float  # Cells that left over those that came in
    flow: float  # Volume that leaves over what enters, at the end


def measure(hematocrit: float, solve: Solve) -> Fed:
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
