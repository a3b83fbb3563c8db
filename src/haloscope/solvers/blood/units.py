"""Units of the lattice, in which spacing, step and density are 1, and limits of the numbers of a case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationInfo

from haloscope.case.tables import CaseFault

MICRO = 1e-6
SOUND_SPEED = 3.0**-0.5
"""Speed of sound of the lattice, in spacings a step."""


@dataclass(frozen=True)
class LatticeUnits:
    """Lattice units in SI units."""

    spacing: float  # dx in m
    time_step: float  # dt in s
    density: float  # rho in kg/m^3

    @classmethod
    def from_relaxation_time(
        cls, spacing: float, viscosity: float, density: float, tau: float
    ) -> LatticeUnits:
        """Units in which a fluid relaxes in `tau` steps.

        nu = (tau - 1/2)/3 dx^2/dt (Chapman-Enskog expansion of the lattice Boltzmann equation).
        `spacing`: dx in m; `viscosity`: dynamic viscosity in Pa s.
        """
        step = (tau - 0.5) / 3.0 * spacing**2 * density / viscosity
        return cls(spacing, step, density)

    def relaxation_time(self, viscosity: float) -> float:
        """Relaxation time in steps of a fluid of a dynamic viscosity in Pa s."""
        return 0.5 + 3.0 * viscosity * self.time_step / (self.density * self.spacing**2)

    @property
    def velocity(self) -> float:
        """In m/s."""
        return self.spacing / self.time_step

    @property
    def pressure(self) -> float:
        """In Pa; also stresses and moduli of elasticity of bodies."""
        return self.density * self.velocity**2

    @property
    def flow_rate(self) -> float:
        """In m^3/s: volume flow rates."""
        return self.velocity * self.spacing**2

    @property
    def resistance(self) -> float:
        """In Pa s/m^3: resistances of vessels."""
        return self.pressure / self.flow_rate

    @property
    def compliance(self) -> float:
        """In m^3/Pa: compliances of vessels."""
        return self.spacing**3 / self.pressure

    @property
    def force(self) -> float:
        """In N."""
        return self.pressure * self.spacing**2

    @property
    def force_density(self) -> float:
        """In N/m^3: body forces and pressure gradients."""
        return self.pressure / self.spacing

    @property
    def surface_modulus(self) -> float:
        """In N/m: shear and area moduli of membranes."""
        return self.pressure * self.spacing

    @property
    def surface_viscosity(self) -> float:
        """In N s/m: viscosities of membranes."""
        return self.surface_modulus * self.time_step

    @property
    def energy(self) -> float:
        """In J: bending moduli of membranes."""
        return self.force * self.spacing


LEAST_SPACING_UM = 1e-3
LEAST_TAU, MOST_TAU = 0.5005, 5.0
SOUND_TAU = (0.51, 2.0)
"""Relaxation times in steps: below a flow is near instability, above walls are inaccurate."""
MOST_HEMATOCRIT = 0.7


@dataclass(frozen=True)
class Limit:
    """Range of a key with what is usual; beyond it a number is in another unit or of another law."""

    least: float
    most: float
    usual: str = ""  # Unit, and usual values
    zero: bool = True  # Whether 0 is allowed, too
    allowed: str = ""  # In place of the range and what is usual
    remedy: str = ""  # By default to check the unit
    below: bool = False  # Whether `most` is refused, too

    def has(self, value: float) -> bool:
        """Whether a number is allowed."""
        inside = self.least <= value <= self.most and not (self.below and value == self.most)
        return inside or (self.zero and value == 0)


LIMITS = {
    "relaxation_time": Limit(
        *(LEAST_TAU, MOST_TAU, f"steps (recommended: {SOUND_TAU[0]:g} to {SOUND_TAU[1]:g})"),
        zero=False,
        remedy="set blood.relaxation_time to 1, or leave it out and set blood.time_step_us",
    ),
    "hematocrit": Limit(
        *(-math.inf, MOST_HEMATOCRIT),
        allowed=f"a volume fraction below {MOST_HEMATOCRIT:g} (red cells pack to about 0.5)",
        remedy="write 0.45 for 45 %",
        below=True,
    ),
    "shear_modulus_un_m": Limit(
        1e-3, 1e6, "uN/m (red cell: 2.4 to 2.75 with the Skalak law)", zero=False
    ),
    "bending_modulus_j": Limit(1e-24, 1e-12, "J (red cell: 2e-19)"),
    "volume_modulus_pa": Limit(1e-3, 1e9, "Pa (default: the compressibility of the fluid)"),
    "area_modulus_un_m": Limit(1e-3, 1e9, "uN/m (red cell: 100)"),
    "membrane_viscosity_un_s_m": Limit(1e-6, 1e3, "uN s/m (red cell: about 0.5)"),
}
"""Limits of keys by name."""


def within_limit(value: Any, info: ValidationInfo) -> Any:
    """Refuse a number beyond the limit of its key with all of the range."""
    limit = LIMITS[str(info.field_name)]
    if type(value) in (int, float) and not limit.has(value):
        zero = "0 or " if limit.zero else ""
        raise CaseFault(
            "out of range",
            allowed=limit.allowed or f"{zero}{limit.least:g} to {limit.most:g} {limit.usual}",
            remedy=limit.remedy or f"check the unit{' and the sign' if value < 0 else ''}",
        )
    return value
