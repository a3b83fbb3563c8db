"""Times steps of an open tube of blood, fed and not, and what of a fed one's step goes where.

    python bench/blood_feeding.py
    python bench/blood_feeding.py --spacing 0.25 --length 78

Medians of seven blocks of steps each, with looks at what passes openings. `in a row` has the segment's
step before the vessel's in place of beside it; `without looks` lets no cell pass. The last line has the
segment's step and what hands velocities over, each alone.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from step_times import step_times

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World, open_world
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.solver import BloodSolver

SPEED = 1.25e-3
# Heavy fluid takes long steps.
DENSITY = 25 * 1025.0
NEVER = 10**9


def solver_of(options: argparse.Namespace, device: Device, world: World, *, feeds: bool) -> Any:
    """A tube with cells at their places."""
    data = {
        "solver": "blood",
        "blood": {
            "spacing_um": options.spacing,
            "relaxation_time": 1.0,
            "viscosity_mpa_s": 1.2,
            "density_kg_m3": DENSITY,
            "tube": {"radius_um": options.radius, "length_um": options.length, "periodic": False},
            "walls": {"kind": "interpolated"},
            "openings": [
                {"name": "inlet", "kind": "velocity", "value": SPEED, "feeds": feeds},
                {"name": "outlet", "kind": "pressure"},
            ],
            "cells": [{"hematocrit": options.hematocrit, "vertices": options.vertices}],
            "seed": 3,
        },
    }
    case = check(data, BloodCase, "options")
    assert isinstance(case, BloodCase)
    return BloodSolver(case, device, world)


def main() -> None:
    """Print a line a way on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--spacing", type=float, default=0.5, help="in um")
    parser.add_argument("--radius", type=float, default=8.0, help="in um")
    parser.add_argument("--length", type=float, default=30.0, help="in um")
    parser.add_argument("--vertices", type=int, default=252)
    parser.add_argument("--hematocrit", type=float, default=0.4)
    parser.add_argument("--steps", type=int, default=200, help="of a block")
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank)

    def print_times(label: str, solver: Any) -> None:
        solver.advance(2 * options.steps)
        times = step_times(world, device, solver.advance, options.steps)
        if world.is_root:
            print(
                f"  {label}: {1e6 * statistics.median(times):.1f} us a step "
                f"({1e6 * min(times):.1f} to {1e6 * max(times):.1f})",
                flush=True,
            )

    vessel, fed = (solver_of(options, device, world, feeds=feeds) for feeds in (False, True))
    (feeder,) = fed.traffic.feeders.values()
    if world.is_root:
        there = fed.suspension.kinds[0].total
        print(
            f"{fed.medium.lattice.count} points, {there} cells of {options.vertices}; the segment "
            f"{feeder.medium.lattice.count} points, {feeder.cells} cells; {world.size} ranks over "
            f"{fed.transport or 'nothing'}",
            flush=True,
        )
    beside = feeder._alone
    for _ in range(2):
        print_times("not fed", vessel)
        feeder._alone = beside
        print_times("fed", fed)
        feeder._alone = False
        print_times("fed, in a row", fed)
    looks, fed._steps_between_checks = fed._steps_between_checks, NEVER
    feeder._alone = beside
    print_times(f"fed, without looks (each {looks} steps)", fed)
    inflow = fed._drive.inflow()["inlet"]
    parts = {
        "the segment's step": lambda steps: [feeder.medium.stepping.take() for _ in range(steps)],
        "handing over": lambda steps: [feeder._tell(inflow) for _ in range(steps)],
        f"a look over {looks}": lambda steps: [
            feeder.look(inflow, list(fed.traffic._next)) for _ in range(steps // looks)
        ],
    }
    medians = []
    for name, work in parts.items():
        work(options.steps)
        times = step_times(world, device, work, options.steps)
        medians.append(f"{name} {1e6 * statistics.median(times):.1f}")
    if world.is_root:
        print(f"  alone, in us a step: {', '.join(medians)}", flush=True)


if __name__ == "__main__":
    main()
