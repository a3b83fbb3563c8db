"""Takes steps of a case in random orders that its streams allow, and compares their fields with plain ones.

permute_contract.py CASE STEPS SEEDS [KEY=VALUE ...]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from permuted_device import PermutedCores

from haloscope.case.tables import read_case
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import open_world
from haloscope.exchange.transports import HostTransport
from haloscope.solvers import registry


def main() -> None:
    path, steps, seeds, *settings = sys.argv[1:]
    case, world = read_case(Path(path), settings, registry.case_model), open_world()
    devices: list[Any] = []
    start = HostTransport.start

    def start_after_packing(transport: HostTransport) -> None:
        if isinstance(devices[-1], PermutedCores):
            devices[-1].run("side")
        start(transport)

    HostTransport.start = start_after_packing  # type: ignore[method-assign]

    def fields(device: Any) -> dict[str, np.ndarray]:
        devices.append(device)
        solver = registry.make_solver(case, device, world)
        if isinstance(device, PermutedCores):
            device.begun = True
        solver.advance(int(steps))
        device.synchronise()
        return {name: np.asarray(solver.owned(name)).copy() for name in solver.stored}

    plain, moved, different = fields(CpuDevice(threads=1)), 0, []
    for seed in range(int(seeds)):
        device = PermutedCores(seed + 100 * world.rank)
        permuted = fields(device)
        moved += device.moved
        different += [
            f"{name} differs with seed {seed}"
            for name, values in plain.items()
            if values.tobytes() != permuted[name].tobytes()
        ]
    texts = world.gather_texts("\n".join(different))
    if world.rank == 0:
        print(moved)
        print(*(text for text in texts if text), "end", sep="\n")


main()
