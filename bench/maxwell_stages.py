"""Times steps of Maxwell's equations on one device: degrees of freedom a second beside the memory's pace.

    python bench/maxwell_stages.py --device cuda --order 7 14 --points 2e6

A degree of freedom is one of six values at one node in one of five stages. Bytes are counted as in
docs/explanation/maxwell.md: fields and increments read and written, geometry and traces, once a stage.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.mesh.hexes.hex_generators import box
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements.element_maps import nodes
from haloscope.solvers.maxwell.case import bytes_a_step
from haloscope.solvers.maxwell.elements import AFFINE, CORNERS, STORED
from haloscope.solvers.maxwell.stepping import Stepping, kind_of

# Ways to know an element's shape; the last, that of bricks, is one of cores alone.
MODES = {"stored": STORED, "corners": CORNERS, "affine": AFFINE}
STAGES = 5
REPEATS = 7


def opened(device: Any, order: int, points: float, dtype: type, mode: int) -> Stepping:
    """Fields on a periodic box with about that many nodes, warped where shapes are stored."""
    side = max(2, round((points / (order + 1) ** 3) ** (1 / 3)))
    mesh = box((side,) * 3, periodic=(True,) * 3, warp=0.02 if mode == STORED else 0.0)
    kinds = np.full(mesh.count, kind_of(mode, added=False))
    part = take(mesh, np.arange(mesh.count), kinds)
    stepping = Stepping(part, nodes(mesh, order), order, device, dtype=dtype)
    stepping.set_fields(np.random.default_rng(1).standard_normal((mesh.count, 6, (order + 1) ** 3)))
    stepping.set_step(1e-6)
    return stepping


def seconds_a_step(device: Any, stepping: Stepping, steps: int) -> float:
    """Median of several runs; on a GPU as many steps as its graphs hold."""
    steps = steps if device.kind == "cpu" else 20
    stepping.advance(steps)
    taken = [device.seconds(lambda: stepping.advance(steps)) for _ in range(REPEATS)]
    return statistics.median(taken) / steps


def main() -> None:
    """Print a line for each order and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--order", type=int, nargs="+", default=[7])
    parser.add_argument("--points", type=float, nargs="+", default=[2e6])
    parser.add_argument("--single", action="store_true", help="single precision")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    device = open_device(options.device)
    real = np.float32 if options.single else np.float64
    ceiling = measure_ceilings(device)
    print(device.name, ceiling.as_dict())
    names = [name for name in MODES if device.kind == "cpu" or MODES[name] != AFFINE]
    for order, points, name in itertools.product(options.order, options.points, names):
        stepping = opened(device, order, points, real, MODES[name])
        seconds = seconds_a_step(device, stepping, options.steps)
        count = stepping.elements * (order + 1) ** 3
        nbytes = bytes_a_step(order, options.single, stepping.shape_values / count)
        rate = STAGES * count / seconds
        print(
            f"N={order} {count} nodes, {name}: "
            f"{6e-9 * rate:.2f} GDOF/s, {seconds / count:.3g} s a step and node, "
            f"{rate * nbytes / 1e9 / ceiling.best:.2f} of the memory's pace",
            flush=True,
        )


if __name__ == "__main__":
    main()
