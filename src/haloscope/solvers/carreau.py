"""The laws of Carreau and of Carreau and Yasuda: viscosity that falls with the shear rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Carreau:
    """mu_inf + (mu_0 - mu_inf) (1 + (lambda rate)^a)^((n - 1)/a), dynamic or kinematic, in any units.

    P. J. Carreau, Trans. Soc. Rheol. 16 (1972) 99, where a is 2.
    """

    at_rest: float  # mu_0
    at_high_shear: float  # mu_inf
    time: float  # lambda
    exponent: float  # n
    a: float = 2.0  # Yasuda's exponent

    @property
    def power(self) -> float:
        """(n - 1)/a."""
        return (self.exponent - 1) / self.a

    def raised(self, square: Floats) -> Floats:
        """Lambda times the shear rate to the power a, from its square."""
        return square if self.a == 2 else square ** (self.a / 2)

    def thinning(self, square: Floats) -> Floats:
        """Share of mu_0 - mu_inf that is left at squares of lambda times the shear rate."""
        left: Floats = (1 + self.raised(square)) ** self.power
        return left

    def viscosity(self, rate: Floats) -> Floats:
        """Viscosity at shear rates."""
        span = self.at_rest - self.at_high_shear
        return self.at_high_shear + span * self.thinning((self.time * rate) ** 2)
