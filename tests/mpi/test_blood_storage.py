"""Claims about populations in half precision on ranks: they travel as they are kept, bit by bit."""

from __future__ import annotations

import re
import textwrap

import pytest

_RUN = textwrap.dedent(
    """
    import sys
    import zlib
    from pathlib import Path
    import numpy as np
    from haloscope.case.tables import check
    from haloscope.device import open_device
    from haloscope.exchange.ranks.world import open_world
    from haloscope.run import Simulation
    from haloscope.solvers.blood.case import BloodCase

    data = {
        "solver": "blood",
        "blood": {
            "spacing_um": 1.0,
            "relaxation_time": 0.9,
            "precision": "single",
            "storage": "half",
            "tube": {"radius_um": 5.3, "length_um": 18.0, "periodic": False},
            "walls": {"kind": "interpolated"},
            "openings": [
                {"name": "inlet", "kind": "velocity", "value": 0.05},
                {"name": "outlet", "kind": "pressure"},
            ],
            "cells": [{"shape": "sphere", "radius_um": 2.0, "vertices": 42, "elements": "linear",
                       "placed": [{"position_um": [9.0, 1.0, 0.5]}]}],
        },
        "output": {"fields": False, "picture": False},
        "checkpoint": {"at_end": True},
    }
    out, steps, restart = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "restart"
    world = open_world()
    case = check(data, BloodCase, "test")
    simulation = Simulation(case, device=open_device("cpu", threads=1), world=world)
    simulation.run(steps, out=out, restart=restart, ceilings=False)
    solver = simulation.solver
    parts = [solver.layout.collect(solver.owned(name), 0, solver.layout.shape[0])
             for name in solver.stored]
    exchange = solver.flow.state
    sent = exchange.forward.bytes_sent if exchange else 0
    slots = len(solver.fluid.ghost_slots)
    counts = world.sum(np.array([sent, slots]))
    cells = solver.suspension.table(0)
    if world.is_root:
        fastest = max(np.abs(part).max() for part in parts)
        assert 1e-4 < fastest < 0.1
        bits = zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for a in [*parts, *cells]))
        print(f"bits {bits:08x} bytes {counts[0]:.0f} slots {counts[1]:.0f}", flush=True)
    """
)


def _bits(run_ranks, ranks, out, steps, how="new"):
    printed = run_ranks(ranks, ["-c", _RUN, out, str(steps), how]).stdout
    ((bits, sent, slots),) = re.findall(r"bits ([0-9a-f]{8}) bytes (\d+) slots (\d+)", printed)
    assert int(sent) == 2 * int(slots)
    assert (int(slots) > 0) == (ranks > 1)
    return bits


@pytest.mark.slow
def test_half_precision_on_ranks_and_after_a_restart_has_the_bits_of_one(run_ranks, tmp_path):
    one = _bits(run_ranks, 1, tmp_path / "one", 21)
    assert _bits(run_ranks, 3, tmp_path / "three", 10) != one
    assert _bits(run_ranks, 2, tmp_path / "three", 21, "restart") == one
