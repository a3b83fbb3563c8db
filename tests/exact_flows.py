"""Exact flows between walls: pulsating in a channel, and between cylinders that turn."""

from __future__ import annotations

import math

import numpy as np

from haloscope.solvers.flow.checks import Floats


def pulsating_channel(
    x: Floats,
    time: float,
    viscosity: float,
    *,
    half_width: float,
    steady: float,
    swing: float,
    frequency: float,
) -> Floats:
    """Flow along x between walls at y = +-half_width, driven by -dp/dx = steady + swing cos(w t).

    The steady part is Poiseuille's, the other that of J. R. Womersley, J. Physiol. 127 (1955) 553,
    between planes. For a density of 1; the pressure is 0 at x = 0.
    """
    # `x`: points, (n, 3).
    # Returns: velocity and pressure, (n, 4).
    y, turn = x[:, 1], 1j * frequency
    root = np.sqrt(turn / viscosity)
    shape = (1 - np.cosh(root * y) / np.cosh(root * half_width)) / turn
    u = steady / (2 * viscosity) * (half_width**2 - y**2)
    u = u + np.real(swing * shape * np.exp(turn * time))
    pressure = -(steady + swing * math.cos(frequency * time)) * x[:, 0]
    return np.stack([u, 0 * u, 0 * u, pressure], axis=1)


def circular_couette(
    x: Floats,
    *,
    inner: float,
    outer: float,
    inner_rate: float,
    outer_rate: float,
) -> Floats:
    """Flow between cylinders about the z axis that turn, for a density of 1.

    u_theta = a r + b/r. With equal rates all turns as a rigid body. The pressure is 0 at r = 1 if
    that is extended there. M. Couette, Ann. Chim. Phys. 21 (1890) 433.
    """
    # `x`: points, (n, 3).
    # Returns: velocity and pressure, (n, 4).
    gap = outer**2 - inner**2
    a = (outer_rate * outer**2 - inner_rate * inner**2) / gap
    b = (inner_rate - outer_rate) * inner**2 * outer**2 / gap
    square = x[:, 0] ** 2 + x[:, 1] ** 2
    rate = a + b / square
    # dp/dr = u_theta^2 / r
    pressure = a * a / 2 * square + a * b * np.log(square) - b * b / (2 * square)
    pressure = pressure - (a * a - b * b) / 2
    return np.stack([-rate * x[:, 1], rate * x[:, 0], 0 * rate, pressure], axis=1)
