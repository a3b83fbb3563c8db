"""Lengths and places as messages give them, in the unit that users have given them in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.hexes.hexes import point_text


@dataclass(frozen=True)
class LengthUnit:
    """In which messages give lengths and places."""

    name: str  # As it is written behind a number
    metres: float  # What one is in m

    def length(self, value: float) -> str:
        """A length in m as it stands in messages."""
        return f"{value / self.metres:.6g} {self.name}"

    def place(self, point: NDArray[np.float64]) -> str:
        """A place in m as it stands in messages."""
        return f"{point_text(point / self.metres)} {self.name}"


METRE = LengthUnit("m", 1.0)
MICROMETRE = LengthUnit("um", 1e-6)
