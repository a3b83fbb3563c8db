"""Exact flows that computed ones are compared with."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_A, _D = math.pi / 4, math.pi / 2


def ethier_steinman(x: Floats, time: float, viscosity: float) -> Floats:
    """Unsteady flow in a cube from -1 to 1 whose terms all count (a = pi/4, d = pi/2).

    C. R. Ethier, D. A. Steinman, Int. J. Numer. Methods Fluids 19 (1994) 369, for a density of 1.
    `x`: points, (n, 3); Returns: velocity and pressure, (n, 4).
    """
    decay = math.exp(-viscosity * _D**2 * time)
    velocity = []
    for axis in range(3):
        p, q, r = (x[:, (axis + k) % 3] for k in range(3))
        growing = np.exp(_A * p) * np.sin(_A * q + _D * r)
        turning = np.exp(_A * r) * np.cos(_A * p + _D * q)
        velocity.append(-_A * decay * (growing + turning))
    pressure = np.zeros(len(x))
    for axis in range(3):
        p, q, r = (x[:, (axis + k) % 3] for k in range(3))
        mixed = np.sin(_A * p + _D * q) * np.cos(_A * r + _D * p) * np.exp(_A * (q + r))
        pressure += np.exp(2 * _A * p) + 2 * mixed
    return np.stack([*velocity, -(_A**2) / 2 * decay**2 * pressure], axis=1)


def taylor_green(x: Floats, time: float, viscosity: float) -> Floats:
    """Decaying vortices in planes of constant z, each pi wide, for a density of 1.

    Through lines at multiples of pi along x and y nothing flows, and there is no friction: the flow
    fills a box with slip. G. I. Taylor, A. E. Green, Proc. R. Soc. Lond. A 158 (1937) 499.
    """
    # `x`: points, (n, 3).
    # Returns: velocity and pressure, (n, 4).
    decay = math.exp(-2 * viscosity * time)
    (sx, sy), (cx, cy) = np.sin(x[:, :2]).T, np.cos(x[:, :2]).T
    u, v = decay * sx * cy, -decay * cx * sy
    pressure = decay**2 / 4 * (np.cos(2 * x[:, 0]) + np.cos(2 * x[:, 1]))
    return np.stack([u, v, 0 * u, pressure], axis=1)


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
