"""Claims about results of Maxwell runs on several ranks: those of one, also across a restart."""

from __future__ import annotations

import json
import textwrap

_RUN = textwrap.dedent(
    """
    import json
    import sys
    from pathlib import Path
    from haloscope.case.tables import check
    from haloscope.device import open_device
    from haloscope.exchange.ranks.world import open_world
    from haloscope.run import Simulation
    from haloscope.solvers.maxwell.case import MaxwellCase

    sides = ("x-", "x+", "y-", "y+", "z-", "z+")
    ricker = {"kind": "ricker", "centre": 1.4, "frequency": 1.0}
    data = {
        "solver": "maxwell",
        "maxwell": {
            "units": "natural", "order": 2, "end_time": 4.0,
            "box": {"elements": [4, 4, 4], "upper": [1.2, 1.2, 1.2]},
            # Images of the surface at an electric wall, which several ranks hold parts of.
            "boundaries": {**dict.fromkeys(sides, "absorbing"), "z-": "pec"},
            "sources": [{"kind": "dipole", "position": [0.6, 0.55, 0.6], "moment": [0, 0, 1.0],
                         "waveform": ricker}],
            "spectrum": {"band": [0.5, 1.5], "start": 0.0},
            "far_field": {"frequencies": [0.8, 1.0], "theta": 5, "phi": [20.0]},
        },
        "output": {"fields": False, "picture": False, "probe_interval": 1,
                   "probes": [{"name": "p", "position": [0.2, 0.3, 0.4]}]},
        "checkpoint": {"at_end": True},
    }
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    world = open_world()
    case = check(data, MaxwellCase, "test")
    simulation = Simulation(case, device=open_device("cpu", threads=1), world=world)
    summary = simulation.run(steps or None, out=out, restart=sys.argv[3] == "restart", ceilings=False)
    if world.is_root:
        keep = {key: summary[key] for key in ("far_field", "spectrum", "steps", "headline", "notices")}
        print("found " + json.dumps(keep), flush=True)
    """
)


def _found(run):
    lines = [line for line in run.stdout.splitlines() if line.startswith("found ")]
    (line,) = lines
    return json.loads(line.removeprefix("found "))


def test_results_on_ranks_and_after_a_restart_on_others_are_those_of_one(run_ranks, tmp_path):
    one = _found(run_ranks(1, ["-c", _RUN, tmp_path / "one", "0", "new"]))
    run_ranks(3, ["-c", _RUN, tmp_path / "several", str(one["steps"] // 2), "new"])
    several = _found(run_ranks(2, ["-c", _RUN, tmp_path / "several", "0", "restart"]))
    assert several["steps"] == one["steps"]
    assert several["spectrum"] == one["spectrum"]
    assert any("image sources stand for the electric wall z = 0 m" in n for n in one["notices"])
    assert {n for n in one["notices"] if "far field" in n} <= set(several["notices"])
    for here, there in zip(one["far_field"], several["far_field"], strict=True):
        assert set(here) == set(there)
        for key in here:
            assert abs(here[key] - there[key]) <= 1e-12 * abs(here[key])
    assert (tmp_path / "several" / "far-field.csv").is_file()
    assert (tmp_path / "several" / "resonances-p.csv").is_file()
