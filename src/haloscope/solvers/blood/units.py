"""Between physical units and those of the lattice, in which spacing, step and density are 1."""

from __future__ import annotations

from dataclasses import dataclass

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
