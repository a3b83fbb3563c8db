"""Exact and fitted flows that the blood solver is compared with."""

from __future__ import annotations

import cmath
import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def between_plates(y: Floats, height: float, gradient: float, viscosity: float) -> Floats:
    """Steady velocity in m/s at heights y over the lower of two plates (Poiseuille).

    `y`: in m; `height`: of the gap in m; `gradient`: fall of the pressure along the flow in Pa/m;
    `viscosity`: in Pa s.
    """
    velocity: Floats = gradient / (2 * viscosity) * y * (height - y)
    return velocity


def in_tube(r: Floats, radius: float, gradient: float, viscosity: float) -> Floats:
    """Steady velocity in m/s at distances r in m from the axis of a round tube (Poiseuille)."""
    velocity: Floats = gradient / (4 * viscosity) * (radius**2 - r**2)
    return velocity


def pulsating_between_plates(
    y: Floats,
    time: float,
    height: float,
    gradient: float,
    viscosity: float,
    density: float,
    frequency: float,
) -> Floats:
    """Velocity in m/s between plates under a gradient times cos(2 pi f t), long after its start.

    The plane form of J. R. Womersley, J. Physiol. 127 (1955) 553.
    `time`, `frequency`: t in s, f in Hz.
    """
    omega = 2 * math.pi * frequency
    k = np.sqrt(1j * omega * density / viscosity)
    shape = 1 - np.cosh(k * (y - height / 2)) / np.cosh(k * height / 2)
    velocity: Floats = (gradient / (1j * omega * density) * shape * np.exp(1j * omega * time)).real
    return velocity


def layers(y: Floats, height: float, edge: float, push: float, ratio: float) -> Floats:
    """Velocity between plates of a fluid with another viscosity in the middle.

    Stress is continuous at y = edge and y = height - edge, and so is the velocity.
    """

    def parabola(at: Floats | float) -> Floats | float:
        return push / 2 * at * (height - at)

    there = parabola(edge)
    inside = (y > edge) & (y < height - edge)
    velocities: Floats = np.where(inside, there + (parabola(y) - there) / ratio, parabola(y))
    return velocities


def blood_in_tube(diameter: float, hematocrit: float) -> float:
    """Apparent viscosity of blood in a glass tube over that of plasma, fitted to measurements.

    A. R. Pries, D. Neuhaus, P. Gaehtgens, Am. J. Physiol. 263 (1992) H1770.
    `diameter`: in um.
    """
    at_045 = 220 * math.exp(-1.3 * diameter) + 3.2 - 2.44 * math.exp(-0.06 * diameter**0.645)
    wide = 1 / (1 + 1e-11 * diameter**12)
    c = (0.8 + math.exp(-0.075 * diameter)) * (wide - 1) + wide
    bent: float = ((1 - hematocrit) ** c - 1) / ((1 - 0.45) ** c - 1)
    return 1 + (at_045 - 1) * bent


def viscous_capsule(
    capillary_number: float, dilation: float, viscous: float, late: float
) -> tuple[float, float]:
    """Deformation (L - B)/(L + B) and inclination in radians of a stiff spherical capsule in shear."""
    # Where strains are small the deformation is 5/8 mu k a (3/G + 1/K) at half a right angle (D.
    # Barthes-Biesel, J. M. Rallison, J. Fluid Mech. 113 (1981) 251). The membrane goes around once
    # in a vorticity of 4 pi/k and meets the same strain twice, so that its viscosity makes of G a
    # complex modulus at the frequency k (viscous membranes: D. Barthes-Biesel, H. Sgaier, J. Fluid
    # Mech. 160 (1985) 119), that of Maxwell's model in parallel with G where a spring is in series.
    shear = 1 + 1j * viscous / (1 + 1j * late)
    deformation = 5 / 8 * capillary_number * (3 / shear + 1 / dilation)
    return abs(deformation), math.pi / 4 + cmath.phase(deformation) / 2


def tank_treading(long: float, short: float) -> tuple[float, float]:
    """Inclination in radians, and turns of the membrane a unit of shear, of an ellipsoid in shear."""
    # S. R. Keller, R. Skalak, J. Fluid Mech. 120 (1982) 27, at the same viscosity inside and
    # outside and without resistance of the membrane. Then their balance is solved by tan(theta) =
    # b/a and a rate of the membrane of shear rate times a b/(a^2 + b^2), whatever the third axis.
    return math.atan2(short, long), long * short / (long**2 + short**2) / (2 * math.pi)
