"""The lattice D3Q19: its directions and weights, in the order that lattice.hpp has them too."""

from __future__ import annotations

import numpy as np

DIRECTIONS = 19
_HALF = [
    (1, 0, 0),
    (0, 1, 0),
    (0, 0, 1),
    (1, 1, 0),
    (1, -1, 0),
    (1, 0, 1),
    (1, 0, -1),
    (0, 1, 1),
    (0, 1, -1),
]

VELOCITIES = np.array(
    [(0, 0, 0), *(tuple(sign * c for c in one) for one in _HALF for sign in (1, -1))]
)
"""Directions c_i, (19, 3) integers: rest, then pairs of opposite ones."""

OPPOSITE = np.array([0, *(i + 1 if i % 2 else i - 1 for i in range(1, DIRECTIONS))])
"""Number of the opposite of each direction, (19,)."""

WEIGHTS = np.array([1 / 3] + [1 / 18] * 6 + [1 / 36] * 12)
"""Weights w_i, (19,); the square of the speed of sound is 1/3."""


def equilibrium(density: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Equilibrium populations less their weights, in lattice units.

    `density`: (points,), about 1; `velocity`: (3, points); Returns: w_i (rho (1 + 3 c.u + 9/2
    (c.u)^2 - 3/2 u.u) - 1): Qian, d'Humieres and Lallemand, Europhys. Lett. 17 (1992) 479.
    """
    along = VELOCITIES @ velocity
    change = 3 * along + 4.5 * along**2 - 1.5 * (velocity**2).sum(axis=0)
    result: np.ndarray = WEIGHTS[:, None] * (density * change + (density - 1))
    return result
