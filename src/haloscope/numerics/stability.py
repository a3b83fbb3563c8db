"""Where a Runge-Kutta scheme is stable, and the longest step that eigenvalues allow it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import ArrayLike, NDArray

from haloscope.numerics.runge_kutta import LowStorage

Floats = NDArray[np.float64]

# A ray is followed to this distance from 0 in steps of this length, and its end is then halved in.
_FARTHEST, _STEP, _HALVINGS = 12.0, 0.004, 40
_ROUNDING = 1e-9
_AT_ONCE = 256


@cache
def stability_polynomial(scheme: LowStorage) -> tuple[float, ...]:
    """Coefficients r_0, r_1, ... of R(z): a step takes u' = lambda u from u to R(lambda dt) u."""
    increment: NDArray[Any] = np.zeros(1)
    state: NDArray[Any] = np.ones(1)
    for a, b in zip(scheme.a, scheme.b, strict=True):
        increment = polynomial.polyadd(a * increment, polynomial.polymulx(state))
        state = polynomial.polyadd(state, b * increment)
    return tuple(np.trim_zeros(state, "b").tolist())


def is_stable(scheme: LowStorage, z: ArrayLike) -> NDArray[np.bool_]:
    """Whether steps do not grow more than the solution does: |R(z)| <= max(1, |exp(z)|)."""
    values = np.asarray(z, np.complex128)
    growth = np.abs(polynomial.polyval(values, stability_polynomial(scheme)))
    return np.asarray(growth <= np.maximum(1.0, np.exp(values.real)) * (1 + _ROUNDING))


def step_limits(scheme: LowStorage, eigenvalues: ArrayLike) -> Floats:
    """Longest time step that each eigenvalue allows.

    `eigenvalues`: of the right-hand side, (n,), complex; Returns: the step with which the ray from
    0 through the eigenvalue first leaves the region of stability; infinite for the eigenvalue 0.
    """
    values = np.atleast_1d(np.asarray(eigenvalues, np.complex128))
    parts = np.array_split(values, -(-len(values) // _AT_ONCE) or 1)
    return np.concatenate([_limits(scheme, part) for part in parts])


def _limits(scheme: LowStorage, values: NDArray[Any]) -> Floats:
    size = np.abs(values)
    rays = np.exp(1j * np.angle(values))[:, None]
    places = np.arange(1, round(_FARTHEST / _STEP) + 1) * _STEP
    left = ~is_stable(scheme, rays * places)
    high = np.where(left.any(axis=1), places[left.argmax(axis=1)], _FARTHEST)
    low = high - _STEP
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = is_stable(scheme, rays[:, 0] * middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(np.divide(low, size, out=np.full(len(values), np.inf), where=size > 0))
