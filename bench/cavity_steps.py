"""Times whole steps of cavities on the ranks it is started with, one line a case.

    python bench/cavity_steps.py --nodes 512
    python bench/cavity_steps.py --cubes 96 220 384
    mpiexec -n 4 python bench/cavity_steps.py --nodes 256 --set machine.decomposition=[1,2,2]

Medians of seven blocks of a hundred steps on the slowest rank, as graphs where that is possible: a step
by itself, a step with its share of the global time step's renewal, and the host's part.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

from haloscope.case.tables import check
from haloscope.case.toml_files import override
from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World, open_world
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver

STEPS = 100
REPEATS = 7


def seconds(world: World, device: Device, work: Callable[[int], None]) -> tuple[float, float]:
    """Seconds of a step on the slowest rank, and of the host for it."""
    steps, host = [], []
    for _ in range(REPEATS):
        device.synchronise()
        world.barrier()
        begun = time.perf_counter()
        work(STEPS)
        host.append((time.perf_counter() - begun) / STEPS)
        device.synchronise()
        steps.append(world.largest(time.perf_counter() - begun) / STEPS)
    return statistics.median(steps), statistics.median(host)


def print_times(world: World, device: Device, nodes: int | list[int], settings: list[str]) -> None:
    """Print a line on rank 0."""
    data = {"solver": "cavity", "cavity": {"nodes": nodes, "time_step": "global"}}
    override(data, settings)
    case = check(data, CavityCase, "options")
    assert isinstance(case, CavityCase)
    solver = CavitySolver(case, device, world)
    solver.advance(STEPS)
    step, host = seconds(world, device, solver.stepping.take)
    renewed, _ = seconds(world, device, solver.advance)
    if world.is_root:
        shape = "x".join(map(str, solver.blocks.nodes))
        parts = "x".join(map(str, solver.blocks.parts))
        print(
            f"{shape} as {parts} over {solver.transport}: {1e6 * step:.1f} us a step, "
            f"{solver.work.cells / step / 1e9:.2f} Gcells/s; {1e6 * renewed:.1f} us with the "
            f"time step's renewal; {1e6 * host:.2f} us of the host",
            flush=True,
        )
        for notice in solver.notices:
            print(notice)


def main() -> None:
    """Time the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--nodes", type=int, nargs="+", default=[256], help="one number or three")
    parser.add_argument("--cubes", type=int, nargs="+", default=[], help="nodes of some, in turn")
    parser.add_argument("--set", action="append", default=[], help="table.key=value, repeatable")
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank)
    nodes = options.nodes[0] if len(options.nodes) == 1 else options.nodes
    for node_counts in options.cubes or [nodes]:
        print_times(world, device, node_counts, options.set)
        # What others have mapped goes when all have let go of it.
        gc.collect()
        world.barrier()
        device.release_shared()


if __name__ == "__main__":
    main()
