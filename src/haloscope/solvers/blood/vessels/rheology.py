"""Viscosity of blood in tubes: what experiments gave, and flow of plain fluids to compare with."""

from __future__ import annotations

import math

_REFERENCE_HEMATOCRIT = 0.45
# Terms of the series of a duct: the last is below 1e-9 of the first.
_TERMS = 200


def pries_viscosity(diameter: float, hematocrit: float) -> float:
    """Apparent viscosity of human blood in a glass tube over that of plasma.

    `diameter`: d in um.
    """
    # A. R. Pries, D. Neuhaus, P. Gaehtgens, Am. J. Physiol. Heart Circ. Physiol. 263 (1992) H1770:
    # 1 + (mu_45 - 1) ((1 - H)^C - 1)/((1 - 0.45)^C - 1), with mu_45 the value at H = 0.45.
    at_reference = 220 * math.exp(-1.3 * diameter) + 3.2 - 2.44 * math.exp(-0.06 * diameter**0.645)
    wide = 1 / (1 + 1e-11 * diameter**12)
    power = (0.8 + math.exp(-0.075 * diameter)) * (wide - 1) + wide
    if abs(power) < 1e-12:
        share = math.log1p(-hematocrit) / math.log1p(-_REFERENCE_HEMATOCRIT)
    else:
        share = math.expm1(power * math.log1p(-hematocrit)) / math.expm1(
            power * math.log1p(-_REFERENCE_HEMATOCRIT)
        )
    return 1 + (at_reference - 1) * share


def tube_permeability(radius: float) -> float:
    """Mean speed in a round tube over G/mu: R^2/8 (Hagen and Poiseuille).

    G is the pressure gradient that drives the flow, and mu the viscosity.
    """
    return radius**2 / 8


def duct_permeability(height: float, width: float) -> float:
    """The same between plates, h^2/12, or in a duct of rectangular cross-section."""
    # J. Boussinesq, J. Math. Pures Appl. 13 (1868) 377; with a >= b the factor on plates is 1 -
    # (192 b / (pi^5 a)) sum over odd n of tanh(n pi a / (2 b)) / n^5.
    short, long = sorted((height, width))
    between_plates = short**2 / 12
    if math.isinf(long):
        return between_plates
    terms = (math.tanh(n * math.pi * long / (2 * short)) / n**5 for n in range(1, 2 * _TERMS, 2))
    return between_plates * (1 - 192 * short / (math.pi**5 * long) * sum(terms))
