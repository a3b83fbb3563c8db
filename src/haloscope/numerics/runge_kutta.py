"""Low-storage Runge-Kutta steps and how long they may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class LowStorage:
    """An explicit Runge-Kutta scheme that keeps one increment beside the state.

    Each stage computes ``k = a k + dt f(u, t + c dt)`` and then ``u = u + b k``.
    """

    # Coefficients by stage.
    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    # The scheme is stable for eigenvalues times the step from -real_limit on the real axis to 0,
    # and up to +-imaginary_limit on the imaginary one.
    real_limit: float
    imaginary_limit: float

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.a)


LSERK4 = LowStorage(
    a=(
        0.0,
        -567301805773 / 1357537059087,
        -2404267990393 / 2016746695238,
        -3550918686646 / 2091501179385,
        -1275806237668 / 842570457699,
    ),
    b=(
        1432997174477 / 9575080441755,
        5161836677717 / 13612068292357,
        1720146321549 / 2090206949498,
        3134564353537 / 4481467310338,
        2277821191437 / 14882151754819,
    ),
    c=(
        0.0,
        1432997174477 / 9575080441755,
        2526269341429 / 6820363962896,
        2006345519317 / 3224310063776,
        2802321613138 / 2924317926251,
    ),
    real_limit=4.657,
    imaginary_limit=3.341,
)
"""Fourth order in five stages: Carpenter and Kennedy, NASA TM 109112 (1994)."""


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
