"""Claims about blood on several ranks: fluid and cells are those of one, after a restart too."""

from __future__ import annotations

import re
import textwrap

_RUN = textwrap.dedent(
    """
    import json
    import sys
    import zlib
    from pathlib import Path
    import numpy as np
    from haloscope.case import check
    from haloscope.device import open_device
    from haloscope.exchange.world import open_world
    from haloscope.run import Simulation
    from haloscope.solvers.blood.case import BloodCase

    data = {
        "solver": "blood",
        "blood": {
            "spacing_um": 1.0,
            "relaxation_time": 1.5,
            "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
            "channel": {"size_um": [22.0, 16.0, 18.0], "periodic": ["x", "z"]},
            "walls": {"velocity_m_s": {"y_high": [0.2, 0.0, 0.1]}},
            "cells": [
                {"vertices": 92, "hematocrit": 0.1},
                {"name": "platelet", "shape": "oblate", "radius_um": 1.5, "vertices": 42,
                 "hematocrit": 0.01, "elements": "linear"},
            ],
            "cell_interval": 20,
            "profile": {"start": 10, "interval": 7},
        },
        "output": {"fields": False, "picture": False},
        "checkpoint": {"at_end": True},
    }
    out, steps, restart = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "restart"
    world = open_world()
    case = check(data, BloodCase, "test")
    simulation = Simulation(case, device=open_device("cpu", threads=1), world=world)
    before = simulation.solver.suspension.table(0)[1]
    simulation.run(steps, out=out, restart=restart, ceilings=False)
    solver = simulation.solver
    parts = [solver.places.collect(solver.owned(name), 0, solver.places.shape[0])
             for name in ("f03", "u")]
    cells = [solver.suspension.table(kind) for kind in (0, 1)]
    moved = np.abs(cells[0][1] - before)[:, 0].max() if world.is_root else 0.0
    told = json.dumps(solver.finish(None, {}).summary.get("profile")).encode()
    if world.is_root:
        assert b"discharge_hematocrit" in told
        bits = zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for a in
                                   [*parts, *cells[0], *cells[1]]) + told)
        print(f"bits {bits:08x} moved {moved:.3f} cells {len(cells[0][0])}", flush=True)
    """
)


def _bits(run_ranks, ranks, out, steps, how="new"):
    printed = run_ranks(ranks, ["-c", _RUN, out, str(steps), how]).stdout
    ((bits, moved, cells),) = re.findall(r"bits ([0-9a-f]{8}) moved ([0-9.]+) cells (\d+)", printed)
    return bits, float(moved), int(cells)


def test_fluid_and_cells_on_ranks_and_after_a_restart_on_others_are_those_of_one(
    run_ranks, tmp_path
):
    one = _bits(run_ranks, 1, tmp_path / "one", 60)
    # Cells cross the borders of ranks and the ends of the channel.
    assert one[1] > 3
    assert one[2] == 7
    assert _bits(run_ranks, 3, tmp_path / "three", 30)[0] != one[0]
    assert _bits(run_ranks, 4, tmp_path / "three", 60, "restart")[0] == one[0]
    assert _bits(run_ranks, 2, tmp_path / "two", 60)[0] == one[0]
