"""Times the cavity's GPU kernel over tiles, planes fetched ahead and drift, to choose its defaults."""

from __future__ import annotations

import argparse
import itertools
import statistics

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.exchange.ranks.world import World
from haloscope.solvers.cavity import block_nodes
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver

TILES = tuple(
    block_nodes.Tile(*tile)
    for tile in ((64, 8, 1), (64, 8, 2), (128, 8, 1), (128, 8, 2), (64, 16, 2), (256, 8, 4))
)
DRIFTS = (2, 3, 4, 6, 1 << 30)


def main() -> None:
    """Print one line a variant, the fastest last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=512)
    parser.add_argument("--mode", choices=("local", "global"), default="global")
    parser.add_argument("--precision", choices=("double", "single"), default="double")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--show", type=int, default=12)
    options = parser.parse_args()
    device = open_device("cuda")
    ceilings = measure_ceilings(device)
    print(f"{device.name}: copy {ceilings.copy:.0f}, update {ceilings.update:.0f} GB/s")
    data = {
        "solver": "cavity",
        "cavity": {
            "nodes": options.nodes,
            "time_step": options.mode,
            "precision": options.precision,
        },
        "machine": {"device": "cuda"},
    }
    case = check(data, CavityCase, "tuning")
    rows = []
    for tile, ahead, drift in itertools.product(TILES, (2, 3), DRIFTS):
        block_nodes.TILES = block_nodes.LARGE_TILES = dict.fromkeys(block_nodes.TILES, tile)
        block_nodes.AHEAD, block_nodes.DRIFT = ahead, drift
        variant = f"tiles {tile.x}x{tile.y}, {tile.nodes} nodes a thread, {ahead} planes ahead, drift {drift}"
        try:
            solver = CavitySolver(case, device, World())
            steps = options.steps
            device.seconds(lambda s=solver, n=steps: s.stepping.take(n))
        except Exception as error:  # a variant that needs too many registers or too much memory
            print(f"{variant}: {error}")
            continue
        taken = statistics.median(
            device.seconds(lambda s=solver, n=steps: s.stepping.take(n)) / steps for _ in range(3)
        )
        rows.append((solver.work.cells / taken / 1e9, variant))
    for rate, variant in sorted(rows)[-options.show :]:
        print(
            f"{options.nodes}^3 {rate:7.2f} Gcells/s {80 * rate / ceilings.copy:5.2f} of copy  "
            f"{variant}"
        )


if __name__ == "__main__":
    main()
