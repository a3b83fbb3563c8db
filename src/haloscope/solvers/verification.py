"""Verification checks of solvers: computed numbers beside exact, measured and published ones."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from haloscope.device import open_device
from haloscope.device.interface import Device

Solve = Callable[[dict[str, Any]], Any]
"""Runs the data of a case to its end, or its steady state, and gives the simulation."""


@dataclass(frozen=True)
class Comparison:
    """A computed number beside its reference."""

    value: float
    reference: float
    tolerance: float  # Largest difference allowed, in the numbers' own unit

    @property
    def ok(self) -> bool:
        """Whether the difference is within the tolerance (never for NaN)."""
        return abs(self.value - self.reference) <= self.tolerance

    def as_dict(self) -> dict[str, float | bool]:
        """As written to JSON."""
        return {**vars(self), "ok": self.ok}


@dataclass(frozen=True)
class Check:
    """A verification check of a solver."""

    name: str  # On the command line
    about: str  # The claim in one line
    source: str  # Where the reference comes from
    run: Callable[[Solve], dict[str, Comparison]]
    slow: bool = False  # Left out unless asked for by name or with all
    gpu_sized: bool = False  # Hours on cores: with all only on a GPU


def below(value: float, most: float) -> Comparison:
    """An error, whose reference is 0."""
    return Comparison(value, 0.0, most)


def relative(value: float, reference: float, within: float) -> Comparison:
    """A number that may differ from its reference by a share of it."""
    return Comparison(value, reference, within * abs(reference))


def device_of(solve: Solve) -> Device:
    """Device for checks that run no case: the one on which `solve` runs cases, else the cores."""
    return open_device(getattr(solve, "device", "cpu"))


def lid_driven_cube() -> list[tuple[str, float, float]]:
    """Published velocities on the centre lines of a lid-driven cube at Re = 1000.

    Rows of u or v, the position along y or x over the edge, and the velocity over the lid's.
    """
    file = resources.files(__package__).joinpath("lid_driven_cube_re1000.csv")
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return [(row["velocity"], float(row["position"]), float(row["value"])) for row in rows]
