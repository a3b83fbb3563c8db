"""Claims about exchanges that cannot work: told at set-up, on every rank, with both sides named."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

_DIFFERENT_WIDTHS = textwrap.dedent(
    """
    import numpy as np
    from haloscope.device.cpu import CpuDevice
    from haloscope.mesh.blocks import Blocks
    from haloscope.errors import InputError
    from haloscope.mesh.halo import open_boxes
    from haloscope.mesh.blocks import Layout, halo_plan
    from haloscope.exchange.ranks.world import MpiWorld

    world = MpiWorld()
    block = Blocks((8, 8, 12), (1, 1, world.size)).block(world.rank)
    layout = Layout(block.shape, (1, 12, 144), 300, 2000, (2, 2, 2))
    widths = [2, 1] if world.rank == world.size - 1 else [1, 1]
    try:
        open_boxes(world, CpuDevice(threads=1), halo_plan(block, layout, widths), np.float64)
    except InputError as error:
        print(f"told: {error}", flush=True)
    """
)


_ALONE = """
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import open_world

try:
    open_world()
except MachineError as error:
    print(f"told: {error}")
"""


def test_ranks_that_mpi_sees_each_alone_are_refused():
    variables = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "SLURM"))}
    done = subprocess.run(
        [sys.executable, "-c", _ALONE],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "told: the launcher started 4 ranks, but this MPI" in done.stdout, done.stderr


def test_plans_that_do_not_match_are_told_on_every_rank_naming_both(run_ranks):
    output = run_ranks(3, ["-c", _DIFFERENT_WIDTHS]).stdout
    assert output.count("told: the exchange plans of two ranks do not match") == 3
    # The last rank sends its neighbour two layers of the first field, one of the second.
    assert output.count("rank 2 sends 192 values to rank 1, which expects 128") == 3
