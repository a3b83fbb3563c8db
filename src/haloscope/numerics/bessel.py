"""Bessel functions of integer order and spherical ones, and their zeros, by quadrature alone.

Integrals over a period by equal weights, and over an interval by GLL points, converge faster than
any power for these integrands (Trefethen and Weideman, SIAM Review 56, 2014). The number of
points follows the largest argument, so that only rounding is left: below 1e-14 for arguments up
to 100.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.numerics.elements.basis import gll_nodes, gll_weights, legendre

Floats = NDArray[np.float64]

# With k = 20 + 2 x the bound (e x / 2 k)^k of J_k(x) is below 1e-18 for every x.
_LEAST, _PER_ARGUMENT = 20, 2
_SCAN = 0.25
_HALVINGS = 60
_NEWTON_STEPS = 4


def _points_needed(order: int, x: Floats) -> int:
    largest = float(np.abs(x).max(initial=0.0))
    return order + _LEAST + int(np.ceil(_PER_ARGUMENT * largest))


def bessel(order: int, x: ArrayLike) -> Floats:
    """Bessel function of the first kind J_n by its integral, DLMF 10.9.2.

    `order`: n, from 0; -1 is allowed for recurrences; `x`: real arguments of any shape; Returns: of
    the shape of `x`; good to 1e-14 absolutely.
    """
    x = np.asarray(x, np.float64)
    if order < 0:
        return np.asarray((-1) ** order * bessel(-order, x))
    count = -(-_points_needed(order, x) // 4)
    # A quarter of the period holds all values that the integrand takes, up to signs.
    angles = np.pi * (np.arange(count) + 0.5) / (2 * count)
    wave = np.sin if order % 2 else np.cos
    result = np.zeros_like(x)
    for weight, sine in zip(wave(order * angles) / count, np.sin(angles), strict=True):
        result += weight * wave(x * sine)
    return result


def bessel_derivative(order: int, x: ArrayLike) -> Floats:
    """Derivative of J_n: (J_(n-1) - J_(n+1)) / 2, DLMF 10.6.1."""
    return np.asarray((bessel(order - 1, x) - bessel(order + 1, x)) / 2)


def spherical_bessel(order: int, x: ArrayLike) -> Floats:
    """Spherical Bessel function of the first kind j_l by its integral, DLMF 10.54.2.

    `order`: l, from 0; `x`: real arguments of any shape; Returns: of the shape of `x`; good to
    1e-14 absolutely.
    """
    x = np.asarray(x, np.float64)
    count = _points_needed(order, x)
    # One half of the interval, with half the weight of its middle.
    half = slice((count + 1) // 2, None)
    points = gll_nodes(count)[half]
    weights = gll_weights(count)[half] * legendre(order, points) * np.where(points == 0, 0.5, 1.0)
    # Of i^-l exp(i x m) P_l(m) only the part that is even in m remains.
    wave = np.sin if order % 2 else np.cos
    result = np.zeros_like(x)
    for weight, point in zip((-1) ** (order // 2) * weights, points, strict=True):
        result += weight * wave(x * point)
    return result


def spherical_over_argument(order: int, x: ArrayLike) -> Floats:
    """j_l(x) / x for l from 1, also at x = 0: (j_(l-1) + j_(l+1)) / (2 l + 1), DLMF 10.51.1."""
    both = spherical_bessel(order - 1, x) + spherical_bessel(order + 1, x)
    return np.asarray(both / (2 * order + 1))


def riccati_derivative(order: int, x: ArrayLike) -> Floats:
    """(x j_l(x))' / x = j_(l-1) - l j_l / x for l from 1, DLMF 10.51.2; also at x = 0."""
    below = spherical_bessel(order - 1, x)
    return np.asarray(below - order * spherical_over_argument(order, x))


def _zero(
    function: Callable[[Floats], Floats],
    slope: Callable[[Floats], Floats],
    number: int,
    start: float,
) -> float:
    """The so-manieth zero above a start: bracketed by steps, halved, then polished by Newton."""
    if number < 1:
        raise ValueError(f"zero number {number} does not exist; zeros count from 1")
    left, count = start, 0
    sign = np.sign(function(np.array(left)))
    while True:
        right = left + _SCAN
        if np.sign(function(np.array(right))) != sign:
            count, sign = count + 1, -sign
            if count == number:
                break
        left = right
    before = -sign
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if np.sign(function(np.array(middle))) == before:
            left = middle
        else:
            right = middle
    x = (left + right) / 2
    for _ in range(_NEWTON_STEPS):
        x -= float(function(np.array(x)) / slope(np.array(x)))
    return float(x)


def bessel_zero(order: int, number: int) -> float:
    """Zero j_(n, number) of J_n above 0, counted from 1."""
    return _zero(
        lambda x: bessel(order, x),
        lambda x: bessel_derivative(order, x),
        number,
        max(_SCAN, float(order)),
    )


def bessel_derivative_zero(order: int, number: int) -> float:
    """Zero j'_(n, number) of J_n' above 0, counted from 1; 0 itself is none."""

    def slope(x: Floats) -> Floats:
        # Bessel's equation, DLMF 10.2.1.
        return np.asarray(
            -bessel_derivative(order, x) / x - (1 - (order / x) ** 2) * bessel(order, x)
        )

    # The first zero lies above n, or above 0 for n = 0 (DLMF 10.21.3).
    start = max(_SCAN, float(order))
    return _zero(lambda x: bessel_derivative(order, x), slope, number, start)


def spherical_zero(order: int, number: int) -> float:
    """Zero of the spherical Bessel function j_l above 0, counted from 1."""
    return _zero(
        lambda x: spherical_bessel(order, x),
        lambda x: order / x * spherical_bessel(order, x) - spherical_bessel(order + 1, x),
        number,
        max(_SCAN, float(order)),
    )


def riccati_derivative_zero(order: int, number: int) -> float:
    """Zero of (x j_l(x))' above 0, counted from 1."""

    def slope(x: Floats) -> Floats:
        # (x j_l)'' = (l (l + 1) / x^2 - 1) x j_l, and the function is (x j_l)' / x.
        curved = (order * (order + 1) / x**2 - 1) * spherical_bessel(order, x)
        return np.asarray(curved - riccati_derivative(order, x) / x)

    # Riccati's function grows up to its turning point sqrt(l (l + 1)), which is above l.
    return _zero(lambda x: riccati_derivative(order, x), slope, number, float(order))
