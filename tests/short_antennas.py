"""Maxwell cases of a short dipole in a box, opened on one core."""

from __future__ import annotations

from typing import Any

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.maxwell.case import MaxwellCase

SIDES = ("x-", "x+", "y-", "y+", "z-", "z+")


def opened(data: dict[str, Any]) -> Simulation:
    case = check(data, MaxwellCase, "test")
    return Simulation(case, device=open_device("cpu", threads=1), world=World())


def antenna(**far_field: Any) -> dict[str, Any]:
    """A short dipole along z in a box with absorbing layers, in SI units."""
    source = {
        "kind": "dipole",
        "position": [0.0, 0.0, 0.0],
        "moment": [0.0, 0.0, 1e-2],
        "waveform": {"kind": "ricker", "centre": 2.2e-9, "frequency": 5e8},
    }
    half = 2.5
    return {
        "solver": "maxwell",
        "maxwell": {
            "order": 3,
            "end_time": 6e-9,
            "box": {"elements": [5, 5, 5], "lower": [-half * 0.12] * 3, "upper": [half * 0.12] * 3},
            "boundaries": dict.fromkeys(SIDES, "absorbing"),
            "layer": {"thickness": dict.fromkeys(SIDES, 0.12), "reflection": 1e-3},
            "sources": [source],
            "far_field": {"frequencies": [5e8], "theta": 19, **far_field},
        },
        "run": {"diagnostics_interval": 100},
        "output": {"fields": False, "picture": False},
    }
