"""A short series as a sum of complex exponentials: how many, which, and how sure.

y[q] = sum of c_k exp(s_k q). The exponents are found by ESPRIT on the series' Hankel matrix
(R. Roy, T. Kailath, IEEE Trans. ASSP 37 (1989) 984; the matrix pencil of Y. Hua, T. K. Sarkar,
ibid. 38 (1990) 814, gives the same), then polished by least squares on the series itself, which
is the most likely answer if the noise is white.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Complexes = NDArray[np.complex128]
Floats = NDArray[np.float64]

# Rows of the Hankel matrix, in parts of the series: the exponents are least noisy from 1/3 to 2/3.
_ROWS = 2 / 3
# A singular value below this part of the largest, and of the matrix' size, is rounding.
_ROUNDING = 4 * np.finfo(float).eps
# A singular value this far above their median may be more than noise. 2.858 would be the best
# threshold on its own (Gavish, Donoho); a lower one misses less, and chance is weeded out later.
_NOISE_ABOVE_MEDIAN = 1.6
# An exponential stays if it lowers the misfit by more than chance does, in terms of Schwarz'
# criterion, times this.
_CAUTION = 1.2
# Growth and decay over one sample, and growth over the series, that are no signal (logarithms).
_FASTEST, _GREATEST = 7.0, 30.0
_POLISHING_STEPS = 8
# Logarithm of what is as good as 0.
_LEAST = -150.0


@dataclass(frozen=True, eq=False)
class Exponentials:
    """Terms c exp(s q), q = 0, 1, ... counting samples."""

    exponents: Complexes  # s, complex (terms,); imaginary parts from -pi to pi
    amplitudes: Complexes  # c, complex (terms,)
    errors: Floats  # Standard deviations of either part of s
    noise: float  # Root of the mean square of what the terms do not explain


def fit_exponentials(series: Complexes) -> Exponentials:
    """Find the exponentials of a series, some 16 to 500 samples long.

    `series`: (samples,) complex or real.
    """
    # Singular values that stand above the median say how many there may be (M. Gavish, D. L.
    # Donoho, IEEE Trans. Inf. Theory 60 (2014) 5040); those that explain no more than chance would
    # are left out again.
    scale = float(np.abs(series).max())
    if not scale > 0:
        none = np.zeros(0, complex)
        return Exponentials(none, none, np.zeros(0), 0.0)
    y: Complexes = (series / scale).astype(np.complex128)
    likely = _without_chance(y, _subspace_exponents(y))
    exponents = _without_chance(y, _polished(y, likely))
    amplitudes, misfit = _amplitudes(y, exponents)
    errors = _errors(y, exponents, amplitudes, misfit)
    noise = scale * math.sqrt(misfit / len(y))
    return Exponentials(exponents, scale * amplitudes, errors, noise)


def _subspace_exponents(y: Complexes) -> Complexes:
    """Exponents by ESPRIT: how the space that the columns span turns from row to row."""
    rows = max(2, round(_ROWS * len(y)))
    hankel = np.lib.stride_tricks.sliding_window_view(y, len(y) - rows + 1)
    left, values, _ = np.linalg.svd(hankel, full_matrices=False)
    least = max(_NOISE_ABOVE_MEDIAN * float(np.median(values)), _ROUNDING * rows * float(values[0]))
    count = min(int((values > least).sum()), len(values) - 1)
    if not count:
        return np.zeros(0, complex)
    space = left[:, :count]
    turned = np.linalg.lstsq(space[:-1], space[1:], rcond=None)[0]
    factors = np.linalg.eigvals(turned)
    exponents = np.log(np.where(factors == 0, np.exp(-2 * _FASTEST), factors))
    slow = np.abs(exponents.real) < _FASTEST
    return np.asarray(exponents[slow & (exponents.real * len(y) < _GREATEST)])


def _basis(length: int, exponents: Complexes) -> Complexes:
    logarithms = np.outer(np.arange(length), exponents)
    # Denormal numbers would make the algebra a hundred times slower.
    logarithms.real = np.maximum(logarithms.real, _LEAST)
    return np.asarray(np.exp(logarithms))


def _amplitudes(y: Complexes, exponents: Complexes) -> tuple[Complexes, float]:
    """Amplitudes by least squares, and the sum of squares that remains."""
    if not len(exponents):
        return np.zeros(0, complex), float(np.vdot(y, y).real)
    basis = _basis(len(y), exponents)
    size = np.linalg.norm(basis, axis=0)
    amplitudes = np.linalg.lstsq(basis / size, y, rcond=None)[0] / size
    rest = y - basis @ amplitudes
    return amplitudes, float(np.vdot(rest, rest).real)


def _without_chance(y: Complexes, exponents: Complexes) -> Complexes:
    """Leave out, one after the other, what explains no more of the series than chance would."""
    length = len(y)
    basis = _basis(length, exponents)
    basis /= np.linalg.norm(basis, axis=0)
    while len(exponents):
        freedom = length - 2 * len(exponents)
        space, triangle = np.linalg.qr(basis)
        parts = space.conj().T @ y
        if freedom < 1 or np.abs(np.diagonal(triangle)).min() < _ROUNDING * length:
            # There are too many, or some cannot be told apart: the last of those goes.
            least = int(np.abs(np.diagonal(triangle)).argmin())
        else:
            rest = y - space @ parts
            misfit = float(np.vdot(rest, rest).real)
            inverse = np.linalg.inv(triangle)
            # What the misfit gains if one is left out and the others are fitted anew.
            gains = np.abs(inverse @ parts) ** 2 / (np.abs(inverse) ** 2).sum(axis=1)
            least = int(gains.argmin())
            if gains[least] > 2 * _CAUTION * math.log(2 * length) * misfit / freedom:
                break
        exponents, basis = np.delete(exponents, least), np.delete(basis, least, axis=1)
    return exponents


def _jacobian(length: int, exponents: Complexes, amplitudes: Complexes) -> Complexes:
    """Derivatives of the series by the exponents, times 1 / length, and by the amplitudes."""
    basis = _basis(length, exponents)
    place = np.arange(length)[:, None] / length
    return np.concatenate([place * basis * amplitudes, basis], axis=1)


def _polished(y: Complexes, exponents: Complexes) -> Complexes:
    """Least squares in exponents and amplitudes by the steps of Gauss and Newton."""
    if not len(exponents):
        return exponents
    length, count = len(y), len(exponents)
    amplitudes, misfit = _amplitudes(y, exponents)
    for _ in range(_POLISHING_STEPS):
        jacobian = _jacobian(length, exponents, amplitudes)
        size = np.linalg.norm(jacobian, axis=0)
        size[size == 0] = 1.0
        rest = y - _basis(length, exponents) @ amplitudes
        step = np.linalg.lstsq(jacobian / size, rest, rcond=None)[0] / size
        moved = exponents + step[:count] / length
        if not np.isfinite(moved).all() or (moved.real * length > _GREATEST).any():
            break
        new_amplitudes, new_misfit = _amplitudes(y, moved)
        if not new_misfit < misfit:
            break
        exponents, amplitudes, misfit = moved, new_amplitudes, new_misfit
    return exponents


def _errors(y: Complexes, exponents: Complexes, amplitudes: Complexes, misfit: float) -> Floats:
    """Standard deviations of the parts of each exponent, if what remains is white noise."""
    count = len(exponents)
    if not count:
        return np.zeros(0)
    jacobian = _jacobian(len(y), exponents, amplitudes)
    size = np.linalg.norm(jacobian, axis=0)
    size[size == 0] = 1.0
    inverse = np.linalg.pinv(jacobian / size)
    spread = np.linalg.norm(inverse, axis=1) / size
    variance = misfit / max(1, len(y) - 2 * count)
    # Half of the variance of a complex number lies in either part.
    return np.asarray(np.sqrt(variance / 2) * spread[:count] / len(y))
