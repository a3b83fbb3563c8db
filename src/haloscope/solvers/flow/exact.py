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

    Parameters
    ----------
    x
        Points, (n, 3).
    time, viscosity
        Any units that agree.

    Returns
    -------
    ndarray
        Velocity and pressure, (n, 4).
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
