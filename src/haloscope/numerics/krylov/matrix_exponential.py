"""Exponential of a small dense matrix, for the projections of Krylov methods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Higham, SIAM J. Matrix Anal. Appl. 26 (2005) 1179: Table 2.3 and equation 2.11.
_LARGEST_NORM = 5.371920351148152
_PADE_13 = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)


def matrix_exponential(matrix: NDArray[Any]) -> NDArray[Any]:
    """Exponential of a square matrix by scaling, a Pade approximant and squaring.

    Algorithm 2.3 of Higham, The scaling and squaring method for the matrix exponential revisited,
    SIAM J. Matrix Anal. Appl. 26 (2005) 1179, always with the approximant of degree 13.
    """
    # `matrix`: real or complex, finite, (n, n).
    norm = float(np.abs(matrix).sum(axis=0).max(initial=0.0))
    squarings = max(0, math.ceil(math.log2(norm / _LARGEST_NORM))) if norm > 0 else 0
    A = matrix * 0.5**squarings
    b, one = _PADE_13, np.eye(len(matrix))
    A2 = A @ A
    A4 = A2 @ A2
    A6 = A4 @ A2
    high = A6 @ (b[13] * A6 + b[11] * A4 + b[9] * A2)
    U = A @ (high + b[7] * A6 + b[5] * A4 + b[3] * A2 + b[1] * one)
    high = A6 @ (b[12] * A6 + b[10] * A4 + b[8] * A2)
    V = high + b[6] * A6 + b[4] * A4 + b[2] * A2 + b[0] * one
    result: NDArray[Any] = np.linalg.solve(V - U, V + U)
    for _ in range(squarings):
        result = result @ result
    return result
