"""Points in a mesh that is shared out over ranks: who has each, and the refusal of those outside."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World

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
