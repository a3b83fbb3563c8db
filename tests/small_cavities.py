"""Cavities small enough for tests, each given by the settings in which it differs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haloscope.case import check, override
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.world import World
from haloscope.run import Simulation
from haloscope.solvers.cavity.case import CavityCase

TEXT = """
solver = "cavity"

[cavity]
nodes = [15, 13, 14]
size = [0.05, 0.04, 0.045]

[run]
steps = 60
diagnostics_interval = 20

[machine]
device = "cpu"
threads = 1
"""


def small_case(*settings: str) -> CavityCase:
    """A box of 15 x 13 x 14 nodes with all else by default; settings as after ``--set``."""
    data: dict[str, Any] = {
        "solver": "cavity",
        "cavity": {"nodes": [15, 13, 14], "size": [0.05, 0.04, 0.045]},
        "run": {"steps": 60, "diagnostics_interval": 20},
        "machine": {"device": "cpu", "threads": 1},
    }
    override(data, settings)
    case = check(data, CavityCase, "small case")
    assert isinstance(case, CavityCase)
    return case


def simulate(
    settings: Iterable[str] = (), *, device: Any = None, world: World | None = None
) -> Simulation:
    """Simulation of a small case in this process, not yet run."""
    case = small_case(*settings)
    return Simulation(case, device=device or CpuDevice(threads=1), world=world or World())


def flow_data(simulation: Simulation) -> dict[str, Any]:
    """All that two runs of one flow must agree in: fields, history, diagnostics."""
    return {
        "step": simulation.step,
        "fields": simulation.fields,
        "history": simulation.history,
        "diagnostics": simulation.diagnostics(),
    }
