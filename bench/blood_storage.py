"""Measures the error that populations in single and half precision cause in a steady flow.

    python bench/blood_storage.py --points 16 32 --speeds 0.01 0.05

Flow between plates, where two relaxation times are exact, and in a round tube with interpolated walls,
driven by a force from rest to a largest velocity on the lattice: the root of the mean squared error over
that of the exact parabola, in double, single and half precision, and how much the mean density has drifted.
Runs on cores; a GPU gives the same bits.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification import flows
from haloscope.solvers.blood.verification.flows import (
    VISCOSITY,
    WIDTH,
    case_of,
    places_and_velocities,
    step_of,
)

KEPT: dict[str, dict[str, str]] = {
    "double": {},
    "single": {"precision": "single"},
    "half": {"precision": "single", "storage": "half"},
}
# Times the square of the points across: what is left of the start is then below 1e-5.
_TIMES = 10
_THIN = 2


def errors_of(
    shape: str, points: int, speed: float, kept: str, relaxation_time: float, device: Any
) -> tuple[float, float]:
    """Error of the velocity, and drift of the mean density."""
    spacing, width = WIDTH / points, WIDTH * MICRO
    fastest = speed * spacing * MICRO / step_of(spacing, relaxation_time)
    thin, steps = _THIN * spacing, {"steps": _TIMES * points**2}
    keys: dict[str, Any]
    if shape == "channel":
        gradient = 8 * VISCOSITY * fastest / width**2
        keys = {"channel": {"size_um": [thin, WIDTH, thin], "periodic": ["x", "z"]}}
    else:
        gradient = 16 * VISCOSITY * fastest / width**2
        keys = {"tube": {"radius_um": WIDTH / 2, "length_um": thin}}
        keys["walls"] = {"kind": "interpolated"}
    keys |= {"pressure_gradient_pa_m": [gradient, 0.0, 0.0], **KEPT[kept]}
    case = check(case_of(spacing, steps, relaxation_time=relaxation_time, **keys), BloodCase, "b")
    simulation = Simulation(case, device=device, world=World())
    solver = simulation.solver
    solver.advance(solver.last_step)
    x, u = places_and_velocities(simulation)
    if shape == "channel":
        true = flows.between_plates(x[:, 1], width, gradient, VISCOSITY)
    else:
        true = flows.in_tube(np.hypot(x[:, 1], x[:, 2]), width / 2, gradient, VISCOSITY)
    error = np.sqrt(((u[:, 0] - true) ** 2).sum() / (true**2).sum())
    return float(error), float(solver.fluid.moments()[0].mean() - 1)


def main() -> None:
    """Print a line a flow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["channel", "tube"])
    parser.add_argument("--points", type=int, nargs="+", default=[16, 32], help="across")
    parser.add_argument("--speeds", type=float, nargs="+", default=[0.01, 0.05])
    parser.add_argument("--relaxation-time", type=float, default=0.9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    device = open_device("cpu", threads=options.threads)
    for shape in options.shapes:
        for speed in options.speeds:
            for points in options.points:
                began = time.perf_counter()
                errors = []
                for kept in KEPT:
                    error, drift = errors_of(
                        shape, points, speed, kept, options.relaxation_time, device
                    )
                    errors.append(f"{kept} {error:.2e} (density {drift:+.1e})")
                print(
                    f"{shape}, {points} points across, largest velocity {speed:g}: "
                    f"{', '.join(errors)}; {time.perf_counter() - began:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
