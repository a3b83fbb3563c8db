"""Takes steps of a case on cores that check what launches touch, and compares them with plain ones.

poison_contract.py CASE STEPS [KEY=VALUE ...]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from part_masks import masks_of
from poisoned_device import PoisonedCores

from haloscope.case.tables import read_case
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import open_world
from haloscope.solvers import registry


def main() -> None:
    path, steps, *settings = sys.argv[1:]
    case, world = read_case(Path(path), settings, registry.case_model), open_world()

    def fields(device: Any) -> dict[str, np.ndarray]:
        solver = registry.make_solver(case, device, world)
        if isinstance(device, PoisonedCores):
            device.masks = masks_of(solver)
        solver.advance(int(steps))
        return {name: np.asarray(solver.owned(name)) for name in solver.stored}

    device = PoisonedCores()
    plain, poisoned = fields(CpuDevice(threads=1)), fields(device)
    for name, values in plain.items():
        if values.tobytes() != poisoned[name].tobytes():
            device.faults[f"{name} depends on values that no launch declares to read"] = None
    texts = world.gather_texts("\n".join(device.faults))
    if world.rank == 0:
        print(*sorted(device.checked))
        print(*(text for text in texts if text), "end", sep="\n")


main()
