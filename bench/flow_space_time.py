"""Times space-time slabs of the flow solver beside this machine's memory, in one run.

    python bench/flow_space_time.py --device cuda --json slabs.json
    mpiexec -n 4 python bench/flow_space_time.py --device cuda
    python bench/flow_space_time.py --device cpu --cells 12

The duct of flow_gpu.py, with 8 unknowns a node. Each slab takes four Newton iterations, each of them
reduces the linear residual by 100. Rates are the slowest rank's; fractions are those of a copy on this
rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from flow_gpu import PRECONDITIONERS, VISCOSITY, Clock, Duct, preconditioner_of

from haloscope.device import open_device
from haloscope.device.meters import CeilingProbe
from haloscope.exchange.ranks.world import open_world
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations.equations import SLAB_UNKNOWNS, Medium, SlabEquations
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import SpaceTimeSlabs


def main() -> None:
    """Print a line for each piece, then how slabs went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cells", type=int, default=67, help="across the duct")
    parser.add_argument("--cfl", type=float, default=1.5)
    parser.add_argument("--slabs", type=int, default=3, help="that are timed, after two")
    parser.add_argument("--restart", type=int, default=30)
    parser.add_argument("--preconditioner", choices=PRECONDITIONERS, default="two-level")
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank, threads=options.threads)

    def log(text: str) -> None:
        if world.is_root:
            print(text, flush=True)

    duct = Duct(options.cells, world)
    pattern = pattern_of(device, duct.tets, len(duct.nodes))
    shared = SharedNodes(world, device, duct.numbers, options.transport)
    rows = BlockRows(device, pattern, SLAB_UNKNOWNS)
    equations = SlabEquations(rows, duct.nodes, [Medium(1.0, VISCOSITY)])
    log(
        f"{world.size} x {device.name}: {duct.all_nodes} nodes, {duct.all_tets} tetrahedra, "
        f"{rows.bytes_of_product / rows.nodes:.0f} bytes a row"
    )
    time_step = options.cfl / options.cells
    copy, clock = CeilingProbe(device).measure(5).copy, Clock(world, device)
    report: dict[str, Any] = {
        "device": device.name,
        "ranks": world.size,
        "nodes": duct.all_nodes,
        "tets": duct.all_tets,
        "copy_gb_s": copy,
        "pieces": {},
    }
    start = device.from_host(duct.start)
    levels, x, y = rows.vector(), rows.vector(), rows.vector()
    levels.reshape(-1, 2, SLAB_UNKNOWNS // 2)[:] = start.reshape(-1, 1, SLAB_UNKNOWNS // 2)
    x[:] = device.from_host(np.sin(np.arange(float(len(x)))))
    equations.set_time(1 / time_step, 1 / time_step)
    for name, work, moved in (
        ("residual", lambda: equations.residual(levels, start, y), 0),
        ("residual and matrix", lambda: equations.linearise(levels, start, y), 0),
        ("product", lambda: rows.multiply(x, y), rows.bytes_of_product),
    ):
        seconds = clock(work, 1)
        report["pieces"][name] = {"ms": 1e3 * seconds, "of_copy": moved / seconds / 1e9 / copy}
        share = f"{moved / seconds / 1e9 / copy:6.2f} of copy" if moved else ""
        log(f"  {name:24s} {1e3 * seconds:9.3f} ms {share}")
    preconditioner = preconditioner_of(options.preconditioner, rows, shared, duct.nodes)
    settings = NewtonSettings(
        iterations=4, linear_tolerance=1e-2, linear_iterations=600, restart=options.restart
    )
    newton = Newton(equations, shared, preconditioner, settings)
    steps = SpaceTimeSlabs(newton, start, time_step)
    values = device.from_host(np.tile(duct.start[duct.fixed], (2, 1)))
    taken, counts = [], []
    for number in range(2 + options.slabs):
        device.synchronise()
        world.barrier()
        begun = time.perf_counter()
        history = steps.step(duct.fixed, values)
        device.synchronise()
        if number >= 2:
            taken.append(world.largest(time.perf_counter() - begun))
        counts.append([record.iterations for record in history.linear])
        fall = " ".join(f"{residual:.1e}" for residual in history.residuals)
        log(f"  slab {number + 1}: GMRES {counts[-1]}, residuals {fall}")
    median = statistics.median(taken)
    report |= {"slab_s": median, "slabs_per_hour": 3600 / median, "gmres": counts}
    log(f"{median:.3f} s a slab, {3600 / median:.0f} slabs an hour")
    if options.json and world.is_root:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
