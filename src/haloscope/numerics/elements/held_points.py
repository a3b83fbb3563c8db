"""Points of samples and marks of a mesh that ranks hold together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.reduce import mix

Integers = NDArray[np.int64]


def held_points(world: World, elements: Integers, whole: int) -> Integers:
    """Share out points to the ranks whose elements hold them; all ranks call this.

    Where elements of several ranks meet the lowest number has the point.
    """
    # `elements`: (points,): number in the whole mesh of this rank's element that holds each, -1:
    # none does.
    present = np.where(elements >= 0, elements, whole)
    lowest = np.array([-world.largest(-float(element)) for element in present])
    return np.flatnonzero((elements >= 0) & (elements == lowest))


def refuse_outside(
    world: World, location: str, position: tuple[float, float, float], distance: float, nearest: str
) -> NoReturn:
    """Refuse a point that no rank's elements hold; all ranks call this.

    `position`: in m; `distance`: in m to the nearest of this rank.
    """
    near = -world.largest(-distance)
    x, y, z = position
    raise InputError(
        f"{location}: ({x:g}, {y:g}, {z:g}) lies outside the mesh, {near:.3g} m from the nearest "
        f"{nearest}; give a point inside"
    )


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
