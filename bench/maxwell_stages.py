"""Times steps of Maxwell's equations on one device: degrees of freedom a second beside the memory's pace.

    python bench/maxwell_stages.py --device cuda --order 7 14 --points 2e6

A degree of freedom is one of six values at one node in one of five stages. Bytes are counted as in
docs/explanation: fields and increments read and written, geometry and traces, once a stage.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.ceilings import measure_ceilings
from haloscope.domain.hex_generators import box
from haloscope.numerics.element_geometry import nodes
from haloscope.solvers.maxwell.stepping import Stepping

STAGES = 5
REPEATS = 7


def opened(device: Any, order: int, points: float, dtype: type) -> Stepping:
    """Fields on a warped periodic box with about that many nodes."""
    side = max(2, round((points / (order + 1) ** 3) ** (1 / 3)))
    mesh = box((side,) * 3, periodic=(True,) * 3, warp=0.02)
    stepping = Stepping(mesh, nodes(mesh, order), order, device, dtype=dtype)
    stepping.set_fields(np.random.default_rng(1).standard_normal((mesh.count, 6, (order + 1) ** 3)))
    stepping.set_step(1e-6)
    return stepping


def seconds_a_step(device: Any, stepping: Stepping, steps: int) -> float:
    """Median of several runs."""
    steps += steps % 2
    work = lambda: stepping.advance(steps)  # noqa: E731
    run = device.graph(work).replay if device.kind != "cpu" else work
    return statistics.median(device.seconds(run) / steps for _ in range(REPEATS))


def main() -> None:
    """Print a line for each order and shape of the launch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--order", type=int, nargs="+", default=[7])
    parser.add_argument("--points", type=float, nargs="+", default=[2e6])
    parser.add_argument("--single", action="store_true", help="single precision")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--launch", nargs="+", default=["0x1"], help="threads x blocks to try")
    options = parser.parse_args()
    device = open_device(options.device)
    real = np.float32 if options.single else np.float64
    ceiling = measure_ceilings(device)
    print(device.name, ceiling.as_dict())
    for order in options.order:
        for points in options.points:
            for launch in options.launch:
                Stepping.threads, Stepping.blocks_a_processor = map(int, launch.split("x"))
                stepping = opened(device, order, points, real)
                seconds = seconds_a_step(device, stepping, options.steps)
                count = stepping.elements * (order + 1) ** 3
                traces = 2 * 4 * 6 * (order + 1) ** 2 / (order + 1) ** 3
                nbytes = np.dtype(real).itemsize * (4 * 6 + 10 + traces)
                rate = STAGES * count / seconds
                print(
                    f"N={order} {count} nodes, {launch}: {6e-9 * rate:.2f} GDOF/s, "
                    f"{seconds / count:.3g} s a step and node, "
                    f"{rate * nbytes / 1e9 / ceiling.best:.2f} of the memory's pace",
                    flush=True,
                )


if __name__ == "__main__":
    main()
