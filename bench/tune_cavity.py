"""Times the cavity's GPU kernel over block shapes and march lengths, to choose its defaults."""

from __future__ import annotations

import argparse
import itertools
import statistics

from haloscope.case import check
from haloscope.device import open_device
from haloscope.device.ceilings import measure_ceilings
from haloscope.exchange.world import World
from haloscope.solvers.cavity import solver as cavity
from haloscope.solvers.cavity.case import CavityCase

TILES = ((32, 8), (64, 8), (32, 16), (128, 4))
BLOCKS = ((32, 4), (64, 4), (32, 8), (128, 4))
CHUNKS = (2, 4, 8, 16, 32, 64)
_SHARED_BYTES = 227 << 10


def main() -> None:
    """Print one line a variant, the fastest last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--mode", choices=("local", "global"), default="global")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--show", type=int, default=12)
    options = parser.parse_args()
    device = open_device("cuda")
    ceilings = measure_ceilings(device)
    print(f"{device.name}: copy {ceilings.copy:.0f}, update {ceilings.update:.0f} GB/s")
    data = {
        "solver": "cavity",
        "cavity": {"nodes": options.nodes, "time_step": options.mode},
        "machine": {"device": "cuda"},
    }
    case = check(data, CavityCase, "tuning")
    rows = []
    solver = cavity.CavitySolver(case, device, World())
    variants = itertools.product((True, False), range(4), CHUNKS)
    for tiled, shape, chunk in variants:
        cavity._GPU_TILE, cavity._GPU_BLOCK = TILES[shape], (*BLOCKS[shape], 1)
        cavity._GPU_COPY_ENGINE = tiled
        if chunk > options.nodes:
            continue
        solver._constants = cavity.kernel_constants(solver.flow, device.kind)
        solver._gpu_chunk = lambda *unused, chunk=chunk: chunk
        solver._bind()
        steps = options.steps
        device.seconds(lambda s=steps: solver._steps(s))
        taken = statistics.median(
            device.seconds(lambda n=steps: solver._steps(n)) / steps for _ in range(3)
        )
        what = f"tiles {TILES[shape]}" if tiled else f"direct {BLOCKS[shape]}"
        rows.append((solver.work.cells / taken / 1e9, what, chunk))
    for rate, what, chunk in sorted(rows)[-options.show :]:
        print(
            f"{options.nodes}^3 {rate:7.2f} Gcells/s {80 * rate / ceilings.copy:5.2f} of copy  "
            f"{what} chunk {chunk}"
        )


if __name__ == "__main__":
    main()
