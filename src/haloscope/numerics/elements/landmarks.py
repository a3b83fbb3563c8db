"""Whether a state belongs on a grid: sums over its nodes that change when nodes move or change places.

Each coordinate of a node is weighted with a number from -1 to 1 that is drawn from the node's global
number. A checkpoint keeps the sums; they are compared within rounding, as machines differ in the last
bits of a sine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.numerics.digest import mix

# Of the sum of absolute values.
_TOLERANCE = 1e-9


class Grid(Protocol):
    """What a solver's fields lie on."""

    def describe_grid(self) -> str:
        """What is not told by positions, such as an order or periodic axes."""

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float64]]]:
        """Global numbers (k,) of some of a rank's own nodes, and their positions (k, 3), piece by piece.

        Over all ranks each node comes once.
        """


def grid_marks(world: World, grid: Grid) -> dict[str, Any]:
    """What a checkpoint keeps of its grid: a text, sums along x, y, z, and those of absolute values.

    All ranks call this; it is the same on each but for rounding, on any number of them.
    """
    sums = np.zeros((2, 3))
    for numbers, positions in grid.landmarks():
        mixed = mix(numbers.astype(np.uint64, copy=True)).view(np.int64)
        weighted = positions * (mixed / 2.0**63)[:, None]
        sums += [weighted.sum(axis=0), np.abs(weighted).sum(axis=0)]
    signed, absolute = world.sum(sums).tolist()
    return {"about": grid.describe_grid(), "sums": signed, "absolute": absolute}


def same_grid(marks: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether two grids are the same, by their marks."""
    ours, theirs = (np.array([one["sums"], one["absolute"]], float) for one in (marks, others))
    if ours.shape != (2, 3) or theirs.shape != (2, 3):
        raise ValueError("marks of a grid are two rows of three numbers")
    near = np.abs(ours - theirs) <= _TOLERANCE * np.maximum(ours[1], theirs[1])
    return marks["about"] == others["about"] and bool(near.all())
