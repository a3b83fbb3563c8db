"""Runge-Kutta schemes: their coefficients and how far they are stable."""

from __future__ import annotations

from dataclasses import dataclass


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
