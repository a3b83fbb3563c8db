"""Runs cells through a bifurcation for many steps and sees that none is lost.

    python bench/blood_bifurcation.py --steps 20000

Cells come in with the flow and leave by both outlets, several times over. At each look the cells
that are there must be those of the start and those that came in, less those that left, each with a
number of its own; all must lie in the vessel; and the flow must go on. The number of membranes that
have folded over is printed. So that cells go far in few steps, the flow is faster than in life and membranes are
200 times as stiff to suit (capillary number 0.04 at the wall); with --membranes red-cell they are as they
are by themselves, in plasma 2.5 times as heavy that flows at a sixth of that speed (1.8).
Under mpiexec the ranks share the vessel. Exit code 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World, open_world
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.solver import BloodSolver


def case_data(options: argparse.Namespace) -> dict[str, object]:
    """A case of cells in a bifurcation; lengths in um."""
    real = options.membranes == "red-cell"
    speed = options.speed or (0.002 if real else 0.012)
    stiff: dict[str, object] = {
        "shear_modulus_un_m": 500.0,
        "area_ratio": 1.0,
        "bending_modulus_j": 5e-17,
        "area_modulus_un_m": 400.0,
        "volume_modulus_pa": 2000.0,
    }
    return {
        "solver": "blood",
        "blood": {
            "spacing_um": 1.0,
            "relaxation_time": 2.0,
            "density_kg_m3": 2562.5 if real else 1025.0,
            "bifurcation": {
                "radius_um": options.radius,
                "parent_length_um": 3.0 * options.radius,
                "daughter_length_um": 3.0 * options.radius,
            },
            "openings": [
                {"name": "inlet", "kind": "velocity", "value": speed, "feeds": True},
                {"name": "outlet-1", "kind": "pressure"},
                {"name": "outlet-2", "kind": "pressure"},
            ],
            "cells": [
                {
                    "shape": options.shape,
                    "radius_um": 3.91 if options.shape == "biconcave" else 2.8,
                    "vertices": 162,
                    "hematocrit": options.hematocrit,
                    **({} if real else stiff),
                }
            ],
            **({} if real else {"repulsion": {"strength_pn": 20.0, "range_um": 1.5}}),
        },
    }


def fault_of(solver: BloodSolver, started: int) -> str:
    """What is wrong with the cells; empty where nothing is. All ranks call this."""
    suspension, traffic = solver.suspension, solver.traffic
    assert suspension is not None
    assert traffic is not None
    ids, state = suspension.table(0)
    entered, left, total = traffic.entered[0], traffic.left[0], suspension.kinds[0].total
    if total != started + entered - left:
        return f"{total} cells are there; {started} + {entered} - {left} were expected"
    if solver.step and not solver.diagnostics()["largest_speed"] > 0:
        return "the flow stands still or is no number"
    if len(ids) == 0:
        return ""
    if len(ids) != total or len(np.unique(ids)) != total or ids.max() >= started + entered:
        return f"{total} cells are there, but their numbers are {ids.tolist()}"
    places = state[:, 0]
    shape = np.array(solver.vessel.lattice.shape)
    within = ((places > -1) & (places < shape)).all(axis=(1, 2))
    # Those on their way in are to some part before the inlet.
    entering = traffic.feeders["inlet"].entering[0].ids
    if not within[~np.isin(ids, entering)].all():
        return "a cell has left the box of the vessel"
    return ""


def folded(solver: BloodSolver, world: World) -> int:
    """Own cells of all ranks of which an element is inverted. All ranks call this."""
    assert solver.suspension is not None
    cells = solver.suspension.kinds[0]
    bad = 0
    if cells.count:
        bad = int((cells.membranes.shapes(cells.count).quality <= 0)[cells.own].sum())
    return int(world.sum(np.array([bad]))[0])


def main() -> int:
    """Run and print a line each tenth of the way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--radius", type=float, default=8.5, help="of the parent, um")
    parser.add_argument("--speed", type=float, help="mean at the inlet, m/s")
    parser.add_argument("--hematocrit", type=float, default=0.15)
    parser.add_argument("--shape", default="sphere", choices=["sphere", "biconcave"])
    parser.add_argument("--membranes", default="stiff", choices=["stiff", "red-cell"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    options = parser.parse_args()
    case = check(case_data(options), BloodCase, "the bifurcation")
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank, threads=options.threads)
    simulation = Simulation(case, device=device, world=world)
    solver = simulation.solver
    assert isinstance(solver, BloodSolver)
    assert solver.suspension is not None
    assert solver.traffic is not None
    started = solver.suspension.kinds[0].total
    if world.is_root:
        print(f"{solver.layout.describe()}, {started} cells, {world.size} ranks", flush=True)
    begun = time.perf_counter()
    every = max(1, options.steps // 10)
    while solver.step < options.steps:
        for _ in range(min(every, options.steps - solver.step)):
            solver.advance(1)
            if solver.step % 100 == 0 and (fault := fault_of(solver, started)):
                if world.is_root:
                    print(f"FAILED at step {solver.step}: {fault}", flush=True)
                return 1
        diagnostics = solver.diagnostics()
        inverted = folded(solver, world)
        traffic, there = solver.traffic, solver.suspension.kinds[0].total
        if world.is_root:
            print(
                f"step {solver.step}: {there} cells = {started} + {traffic.entered[0]} in - "
                f"{traffic.left[0]} out, {inverted} folded; Mach {diagnostics['mach']:.3f}, "
                f"{time.perf_counter() - begun:.0f} s",
                flush=True,
            )
    if world.is_root:
        print(f"no cell lost in {solver.step} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
