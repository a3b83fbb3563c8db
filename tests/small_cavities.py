"""Cavities small enough for tests, each given by the settings in which it differs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haloscope.case.tables import check
from haloscope.case.toml_files import override
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
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

# A start away from rest in which every term of the equations matters.
SWIRL = {
    "u": "0.02*sin(60*x + 1)*cos(70*y)*cos(50*z)",
    "v": "0.015*cos(50*x)*sin(40*y + 2)*sin(60*z + 1)",
    "w": "0.01*sin(80*x)*sin(70*y)*cos(60*z + 0.5)",
    "p": "1e-4*sin(90*x + 1)*cos(80*y)*cos(100*z)",
    "T": "300 + 2*sin(70*x)*cos(60*y + 1)*sin(50*z + 1)",
}
PLANE = ("cavity.dimensions=2", "cavity.nodes=[15, 13]", "cavity.size=[0.05, 0.04]")


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


def swirl(dimensions: int) -> list[str]:
    """Settings of a small cavity that starts away from rest, in a box or in a plane."""
    if dimensions == 3:
        return [f"cavity.initial.{name}={text}" for name, text in SWIRL.items()]
    plane = {
        name: text.replace("50*z", "1").replace("60*z", "1").replace("100*z", "1")
        for name, text in SWIRL.items()
        if name != "w"
    }
    return [*PLANE, *(f"cavity.initial.{name}={text}" for name, text in plane.items())]
