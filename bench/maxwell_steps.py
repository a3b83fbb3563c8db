"""Times whole steps of Maxwell's equations on the ranks it is started with, one line a case.

    python bench/maxwell_steps.py --elements 16 --order 7
    mpiexec -n 2 python bench/maxwell_steps.py --elements 16 16 32 --transport peer

A warped periodic box. Medians of seven blocks of steps on the slowest rank, as graphs where that is
possible. A degree of freedom is one of six values at a node in one of five stages.
"""

from __future__ import annotations

import argparse
import statistics

from step_times import step_times

from haloscope.case.tables import check
from haloscope.case.toml_files import override
from haloscope.device import open_device
from haloscope.exchange.ranks.world import open_world
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.solver import MaxwellSolver


def main() -> None:
    """Print a line on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--elements", type=int, nargs="+", default=[16], help="one number or three")
    parser.add_argument("--order", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--transport", nargs="+", default=["auto"])
    parser.add_argument("--set", action="append", default=[], help="table.key=value, repeatable")
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank)
    elements = options.elements * 3 if len(options.elements) == 1 else options.elements
    for transport in options.transport:
        table = {
            "order": options.order,
            "units": "natural",
            "time_step": 1e-6,
            "box": {
                "elements": elements,
                "upper": [float(n) for n in elements],
                "periodic": ["x", "y", "z"],
                "warp": 0.01,
            },
            "initial": {"Ex": "sin(x)*cos(y)", "Hz": "cos(z)"},
        }
        data = {"solver": "maxwell", "maxwell": table, "machine": {"transport": transport}}
        override(data, options.set)
        case = check(data, MaxwellCase, "options")
        assert isinstance(case, MaxwellCase)
        solver = MaxwellSolver(case, device, world)
        solver.advance(2 * options.steps)
        step = statistics.median(step_times(world, device, solver.advance, options.steps))
        if world.is_root:
            print(
                f"{'x'.join(map(str, elements))} of order {options.order}, {world.size} ranks over "
                f"{solver.transport}: {1e6 * step:.1f} us a step, "
                f"{30e-9 * solver.work.cells / step:.2f} GDOF/s, {solver.layout.describe()}",
                flush=True,
            )
            for notice in solver.notices:
                print(notice)


if __name__ == "__main__":
    main()
