"""Runs a list of small cavities on the ranks that it is started with; rank 0 saves what they give.

Arguments: a JSON file of jobs {settings, steps, out, restart, device}, and the file for the
results (pickled).
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from small_cavities import flow_data, simulate

from haloscope.device import open_device
from haloscope.exchange.ranks.world import World


def run_job(job: dict[str, Any], world: World) -> dict[str, Any]:
    """What a job's run gives; the same call serves for the serial run."""
    kind = job.get("device", "cpu")
    device = open_device(kind, local_rank=world.local_rank, threads=1)
    simulation = simulate(job["settings"], device=device, world=world)
    out = Path(job["out"]) if job.get("out") else None
    summary = simulation.run(
        job["steps"], out=out, restart=job.get("restart", False), ceilings=False
    )
    shown = {"transport": summary["transport"], "decomposition": summary["decomposition"]}
    return flow_data(simulation) | shown


if __name__ == "__main__":
    from haloscope.exchange.ranks.world import MpiWorld

    ranks = MpiWorld()
    results = [run_job(job, ranks) for job in json.loads(Path(sys.argv[1]).read_text())]
    if ranks.is_root:
        Path(sys.argv[2]).write_bytes(pickle.dumps(results))
