"""Takes steps of a case on recording cores; rank 0 prints launches that nothing keeps in order.

hazards_contract.py CASE STEPS [KEY=VALUE ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from recorded_device import RecordedCores

from haloscope.case.tables import read_case
from haloscope.exchange.ranks.world import open_world
from haloscope.solvers import registry


def main() -> None:
    path, steps, *settings = sys.argv[1:]
    case, device = read_case(Path(path), settings, registry.case_model), RecordedCores()
    world = open_world()
    solver = registry.make_solver(case, device, world)
    device.recorder.records.clear()
    solver.advance(int(steps))
    streams = sorted({record.stream for record in device.recorder.records})
    hazards = device.recorder.hazards()
    texts = world.gather_texts("\n".join(hazards))
    if world.rank == 0:
        print(len(device.recorder.records), "launches on", *streams)
        print(*(text for text in texts if text), "end", sep="\n")


main()
