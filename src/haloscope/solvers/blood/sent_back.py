"""What walls that move or do not lie halfway send back, where a GPU's steps work it out as they fetch it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.solvers.blood.d3q19 import DIRECTIONS
from haloscope.solvers.blood.fluid_boundaries import LatticePart, WallLinks, link_tables

_BLOCK = (256,)


def split_links(walls: WallLinks, bulk: int) -> tuple[WallLinks, WallLinks]:
    """Links of points of the bulk, and of those in openings."""
    inside = np.asarray(walls.points) < bulk
    first, second = (
        replace(
            walls,
            points=walls.points[some],
            directions=walls.directions[some],
            fractions=walls.fractions[some],
            velocities=walls.velocities[some],
        )
        for some in (inside, ~inside)
    )
    return first, second


class SentBack:
    """Links of the bulk's points, as steps between two buffers read them; see fluid_gpu.hpp.

    What is stored is then what has not met these walls yet: who looks at what has arrived after such a step
    asks :meth:`put_into` for the difference.

    Parameters
    ----------
    device
        Where tables are put.
    part
        The rank's points.
    walls
        Links of points of the bulk.
    stride
        Distance of slots.
    real
        Type of what is computed.
    """

    def __init__(
        self,
        device: Device,
        part: LatticePart,
        walls: WallLinks,
        stride: int,
        real: np.dtype[Any],
    ) -> None:
        order = np.lexsort((walls.directions, walls.points))
        points = np.asarray(walls.points, np.int64)[order]
        directions = np.asarray(walls.directions, np.int64)[order]
        sorted_links = WallLinks(
            points, directions, walls.fractions[order], np.asarray(walls.velocities)[order]
        )
        # As after a step that leaves all in own slots.
        place, other, shares = link_tables(part, sorted_links, stride)[0]
        bits = np.left_shift(1, directions - 1)
        # What comes against a near link lies in the same row of slots.
        near = other // stride == directions
        of_wall, first = np.unique(points, return_index=True)
        wall = np.full(max(1, part.bulk), -1, np.int32)
        wall[of_wall] = np.arange(len(of_wall))
        records = np.zeros((max(1, len(of_wall)), 4), np.int32)
        if len(of_wall):
            records[:, 0] = np.add.reduceat(bits, first)
            records[:, 1] = np.add.reduceat(bits * near, first)
            records[:, 2] = first
        give = device.from_host
        shares = give(np.ascontiguousarray(shares, real) if len(points) else np.zeros((3, 1), real))
        moving = int(bool(np.any(walls.velocities)))
        self.arguments = (give(wall), give(records), shares, len(points), moving)
        self._device, self._real = device, real
        self._points, self._directions = points, directions
        self._of_direction = [np.flatnonzero(directions == i) for i in range(DIRECTIONS)]
        self._places = (place, other)

    def put_into(self, arrived: Array, i: int, kernel: Any, stored: Array) -> None:
        """Put what these walls send back along direction i in place of what would come from halfway.

        Parameters
        ----------
        arrived
            (owned,) what has arrived along i, changed in place.
        kernel
            ``send_back_to`` of fluid.cpp.
        stored
            The buffer in which the state lies.
        """
        chosen = self._of_direction[i]
        if len(chosen):
            arrived[self._device.xp.asarray(self._points[chosen])] = self.sent(
                chosen, kernel, stored
            )

    def sent(self, chosen: NDArray[np.int64], kernel: Any, stored: Array) -> Array:
        """What goes back along some links, on the device."""
        device = self._device
        place, other = (device.from_host(table[chosen]) for table in self._places)
        shares = self.arguments[2][:, device.xp.asarray(chosen)]
        found = device.zeros((len(chosen),), self._real)
        launch: Launch = kernel.bind(
            *(stored, place, other, device.xp.ascontiguousarray(shares), len(chosen), found),
            extent=(len(chosen),),
            block=_BLOCK,
        )
        launch()
        return found

    def of_points(self, points: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], ...]:
        """Links of some points, each named once: their numbers, and direction and place in `points` of each."""
        if len(points) == 0:
            return (np.zeros(0, np.int64),) * 3
        order = np.argsort(points)
        at = np.searchsorted(points, self._points, sorter=order)
        at = order[np.minimum(at, len(points) - 1)]
        chosen = np.flatnonzero(np.asarray(points)[at] == self._points)
        return chosen, self._directions[chosen], at[chosen]
