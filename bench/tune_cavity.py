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

TILES = ((32, 8), (32, 16), (64, 4), (64, 8), (128, 4))
AHEAD = (1, 2, 3)
LEAST = (1, 2, 3, 4)
CHUNKS = (32, 64, 128, 256)
_SHARED_BYTES = 227 << 10


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
    for tile, ahead, least, chunk in itertools.product(TILES, AHEAD, LEAST, CHUNKS):
        threads = tile[0] * tile[1]
        cavity._GPU_TILE, cavity._GPU_AHEAD = tile, ahead
        cavity._GPU_LEAST_BLOCKS, cavity._GPU_CHUNK = least, chunk
        if not 256 <= threads * least <= 1024 or chunk > options.nodes:
            continue
        if solver is None:
            solver = cavity.CavitySolver(case, device, World())
        else:
            solver._constants = cavity.kernel_constants(solver.flow, device.kind)
            if solver._tile_bytes() * least > _SHARED_BYTES:
                continue
            solver._bind()
        local, registers = (
            device.xp.cuda.driver.funcGetAttribute(attribute, solver._update_tiles._function.ptr)
            for attribute in (3, 4)
        )
        steps = options.steps
        device.seconds(lambda s=solver: s._steps(2))
        taken = statistics.median(
            device.seconds(lambda s=solver, n=steps: s._steps(n)) / steps for _ in range(3)
        )
        rate = solver.work.cells / taken / 1e9
        rows.append((rate, tile, ahead, least, chunk, registers, local))
    for rate, tile, ahead, least, chunk, registers, local in sorted(rows)[-25:]:
        print(
            f"{rate:7.2f} Gcells/s {80 * rate / ceilings.copy:5.2f} of copy  tile {tile} "
            f"ahead {ahead} least {least} chunk {chunk} registers {registers} local {local} B"
        )


if __name__ == "__main__":
    main()
