"""Counts the nodes of a step's graph of small vessels on a GPU, and times steps beside what nodes and bytes allow.

    python bench/blood_graphs.py cases/blood-tube.toml cases/blood-bifurcation.toml
    python bench/blood_graphs.py --launches cases/blood-tube.toml

A line for each case: points, vertices, nodes of one step's graph, us a step (median of blocks between hand-overs of
cells), and that over 0.7 us a node plus the least bytes at the bandwidth of a copy in the same run. With --launches
also the time of each kernel of two steps between two events.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from launch_times import LaunchTimes, TimedDevice

from haloscope.case.tables import read_case
from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.exchange.ranks.world import open_world
from haloscope.solvers import registry
from haloscope.solvers.blood.sizing import bytes_a_step

NODE_US = 0.7
BLOCKS, STEPS = 7, 20


def nodes_of(device: Any, work: Any) -> int:
    """Kernels, copies and other nodes in the graph of some work."""
    from cuda.bindings import driver

    runtime = device.xp.cuda.runtime
    device.stream.begin_capture()
    work()
    graph = runtime.streamEndCapture(device.stream.ptr)
    _, _, count = driver.cuGraphGetNodes(driver.CUgraph(graph), 0)
    runtime.graphDestroy(graph)
    return int(count)


def bytes_of(solver: Any) -> tuple[int, int, float]:
    """Points, vertices, and the least bytes of a step: vertices' state, forces and velocities once each."""
    table, points, vertices = solver._table, solver.fluid.owned, 0
    if solver.suspension is not None:
        vertices = sum(local.vertices for local in solver.suspension.kinds)
    return points, vertices, points * bytes_a_step(table) + vertices * 3 * 8 * 6


def take_steps(stepping: Any) -> None:
    """Take a block of steps, as many of them at once as a run does."""
    done = 0
    while done < STEPS:
        done += stepping.take(STEPS - done)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", type=Path)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--launches", action="store_true")
    options = parser.parse_args()
    world = open_world()
    device: Any = open_device("cuda")
    ceiling = 1e9 * measure_ceilings(device).best
    for path in options.cases:
        case = read_case(path, options.set, registry.case_model)
        taken = TimedDevice(device) if options.launches else device
        solver: Any = registry.make_solver(case, taken, world)
        solver.advance(STEPS)
        stepping = solver.medium.stepping
        times = []
        for _ in range(BLOCKS):
            if solver.suspension is not None:
                solver.suspension.migrate()

            take_steps(stepping)
            times.append(1e6 * device.seconds(partial(take_steps, stepping)) / STEPS)
        us = statistics.median(times)
        nodes = nodes_of(device, stepping._launch)
        points, vertices, size = bytes_of(solver)
        least = 1e6 * size / ceiling
        print(
            f"{path.stem}: {points} points, {vertices} vertices, {nodes} nodes, {us:.1f} us a step "
            f"({min(times):.1f} to {max(times):.1f}), bytes {least:.1f} us "
            f"({100 * least / us:.0f} % of {ceiling / 1e9:.0f} GB/s), "
            f"over 0.7 us a node and bytes {us / (NODE_US * nodes + least):.2f}",
            flush=True,
        )
        if options.launches:
            # Two steps: those in place come in turns.
            launches, whole = LaunchTimes(taken, world.barrier).of(
                lambda one=stepping: (one._launch(), one._launch())
            )
            for one in launches:
                print(
                    f"    {one.name:24} x {one.count}  {1e6 * one.seconds:7.2f} us  {one.threads}"
                )
            print(f"    {'from first to last':24}      {1e6 * whole:7.2f} us", flush=True)


main()
