"""Flow through a short channel, how its runs are opened, and what they tell, for several files of tests."""

from __future__ import annotations

import csv
from pathlib import Path

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.flow.case import FlowCase

WALLS = dict.fromkeys(("y_low", "y_high", "z_low", "z_high"), "no-slip")
STEPS = {"scheme": "bdf2", "time_step": 0.1, "end": 0.4}


def channel_text(cells, upper, inflow, density=2.0, viscosity=0.5):
    """A case file of a channel with walls at rest on four sides."""
    walls = "".join(f'{side} = "no-slip"\n' for side in WALLS)
    return (
        f'solver = "flow"\n[flow.box]\ncells = {cells}\nupper = {upper}\n'
        f"[flow.fluid]\ndensity = {density}\nviscosity = {viscosity}\n"
        f'[flow.boundaries]\nx_low = {{ {inflow} }}\nx_high = "open"\n{walls}'
    )


def channel(**changes):
    """A short square channel, from rest."""
    table = {
        "box": {"cells": [4, 4, 4], "upper": [2.0, 1.0, 1.0]},
        "fluid": {"density": 2.0, "viscosity": 0.5},
        "boundaries": {**WALLS, "x_low": {"speed": 1.0}, "x_high": "open"},
        "forces": [{"name": "walls", "boundaries": list(WALLS), "velocity": 1.0, "area": 2.0}],
    }
    return {"solver": "flow", "flow": {**table, **changes}}


def opened(data, **tables) -> Simulation:
    """Simulation of a case from its table, on one thread."""
    case = check({"output": {"picture": False}, **data, **tables}, FlowCase, "test")
    return Simulation(case, device=open_device("cpu", threads=1), world=World())


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a table, by the names of its columns."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Heard:
    """Progress that keeps the rates that it is told."""

    def __init__(self) -> None:
        self.rates: list[str] = []
        self.lines: list[str] = []

    def update(self, step, end, rate, residual) -> None:
        self.rates.append(rate)

    def line(self, text) -> None:
        self.lines.append(text)
