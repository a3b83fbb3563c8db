"""Sums that are the same in any order, hence for any ranks and over restarts: in whole numbers.

A number is rounded to a multiple of 2^-46 and kept as two integers, a coarse one that counts 2^-20
and a fine one, so that the sum of 2^27 numbers below 2^16 is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

COARSE_BITS = 20
FINE_BITS = 26


def split(values: ArrayLike) -> tuple[Floats, Floats]:
    """Whole numbers, as floats, of the coarse and the fine unit for each of finite values."""
    scaled = np.asarray(values, np.float64) * 2.0**COARSE_BITS
    coarse = np.floor(scaled)
    return coarse, np.rint((scaled - coarse) * 2.0**FINE_BITS)


def exact_sum(values: ArrayLike) -> Integers:
    """Sum of all values as two integers, (2,)."""
    return np.array([part.astype(np.int64).sum() for part in split(values)], np.int64)


def exact_bin_sums(bins: NDArray[np.integer], values: ArrayLike, count: int) -> Integers:
    """Sums of the values (n,) in each of `count` bins (n,), as two integers each, (2, count)."""
    # Sums of whole numbers below 2^53 are exact in floats, which bincount sums.
    sums = [np.bincount(bins, part, count) for part in split(values)]
    return np.array(sums).astype(np.int64)


def total(sums: Integers) -> Floats:
    """What sums (2, ...) of two integers stand for."""
    result: Floats = sums[0] * 2.0**-COARSE_BITS + sums[1] * 2.0 ** -(COARSE_BITS + FINE_BITS)
    return result
