"""Unions of stretches of time, and how much of them lies before a moment.

All that is asked of a GPU's busy times is a difference of such measures: what lies between two
moments, what of one set lies outside of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Union:
    """Stretches of time that do not touch, in order."""

    # Shape (n,).
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]

    @property
    def total(self) -> float:
        """Length of all stretches together."""
        return float((self.ends - self.starts).sum())

    def before(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much lies before each moment."""
        if not len(self.starts):
            return np.zeros(np.shape(moments))
        return np.asarray(np.interp(moments, *self._corners))

    @cached_property
    def _corners(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Moments at which the measure begins and ceases to grow, and how much it is there."""
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        sums = np.cumsum(self.ends - self.starts)
        return edges, np.stack([np.append(0.0, sums[:-1]), sums], axis=1).ravel()

    def within(self, begins: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much lies between each begin and its end."""
        return np.maximum(self.before(ends) - self.before(begins), 0.0)


def union(begins: NDArray[np.float64], ends: NDArray[np.float64]) -> Union:
    """Put stretches that overlap or touch together.

    `begins`, `ends`: of the stretches, in any order, shape (n,); one that ends before it begins is
    empty.
    """
    kept = ends > begins
    begins, ends = begins[kept], ends[kept]
    if not len(begins):
        return Union(np.zeros(0), np.zeros(0))
    order = np.argsort(begins, kind="stable")
    starts = begins[order]
    reached = np.maximum.accumulate(ends[order])
    fresh = np.append(True, starts[1:] > reached[:-1])
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(starts) - 1)
    return Union(starts[fresh], reached[last])


def joined(unions: list[Union]) -> Union:
    """All stretches of several unions together."""
    if not unions:
        return union(np.zeros(0), np.zeros(0))
    return union(
        np.concatenate([one.starts for one in unions]), np.concatenate([one.ends for one in unions])
    )


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Each value once, in order."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def is_among(values: NDArray[Any], ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are among those that are given in order."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[at] == values)
