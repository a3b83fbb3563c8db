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

BLOCKS = ((32, 4), (32, 8), (32, 16), (64, 4), (64, 8), (128, 2), (128, 4))
LEAST = (1, 2, 3, 4)
CHUNKS = (32, 64, 128, 256)


def main() -> None:
    """Print one line a variant, the fastest last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--mode", choices=("local", "global"), default="global")
    parser.add_argument("--steps", type=int, default=6)
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
    solver = None
    for block, least, chunk in itertools.product(BLOCKS, LEAST, CHUNKS):
        threads = block[0] * block[1]
        if threads * least > 2048 or threads * least < 256 or chunk > options.nodes:
            continue
        cavity._GPU_BLOCK = (*block, 1)
        cavity._GPU_LEAST_BLOCKS = least
        cavity._GPU_CHUNK = chunk
        if solver is None:
            solver = cavity.CavitySolver(case, device, World())
        else:
            solver._constants = cavity.kernel_constants(solver.flow, device.kind)
            solver._bind()
        registers = solver._update._function.attributes["num_regs"]
        local = solver._update._function.attributes["local_size_bytes"]
        steps = options.steps
        device.seconds(lambda s=solver: s._steps(2))
        taken = statistics.median(
            device.seconds(lambda s=solver, n=steps: s._steps(n)) / steps for _ in range(3)
        )
        rate = solver.work.cells / taken / 1e9
        rows.append((rate, block, least, chunk, registers, local))
    for rate, block, least, chunk, registers, local in sorted(rows)[-25:]:
        print(
            f"{rate:7.2f} Gcells/s {80 * rate / ceilings.copy:5.2f} of copy  block {block} "
            f"least {least} chunk {chunk} registers {registers} local {local} B"
        )


if __name__ == "__main__":
    main()
