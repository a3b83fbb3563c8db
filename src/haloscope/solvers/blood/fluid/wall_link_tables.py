"""What walls that move or do not lie halfway send back, where a GPU's steps work it out as they fetch it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.solvers.blood.fluid.boundaries import LatticePart, WallLinks, link_tables
from haloscope.solvers.blood.fluid.d3q19 import DIRECTIONS, OPPOSITE

WARP = 32
"""Threads of a GPU that run side by side, each with a point."""

# Shared memory that a block has without asking for more.
_BLOCK_BYTES = 48 << 10
_BLOCK = (256,)


def lanes_find_room(threads: int, real: np.dtype[Any]) -> bool:
    """Whether blocks of so many threads have room for what lanes leave for each other."""
    return threads * (DIRECTIONS - 1) * real.itemsize <= _BLOCK_BYTES


def split_links(walls: WallLinks, bulk: int) -> tuple[WallLinks, WallLinks]:
    """Links of points of the bulk, and of those in openings."""
    inside = np.asarray(walls.points) < bulk
    first, second = (
        replace(
            walls,
            points=walls.points[links],
            directions=walls.directions[links],
            fractions=walls.fractions[links],
            velocities=walls.velocities[links],
        )
        for links in (inside, ~inside)
    )
    return first, second


class WallLinkTables:
    """Links of the bulk's points, as steps between two buffers read them; see sent_back_gpu.hpp.

    Stored populations have not met these walls yet: to read arrived populations after such a step,
    apply :meth:`put_into`.
    """

    def __init__(
        self,
        device: Device,
        part: LatticePart,
        walls: WallLinks,
        launched: tuple[NDArray[np.int64], ...],
        stride: int,
        real: np.dtype[Any],
    ) -> None:
        self._device, self._real = device, real
        self._points = np.asarray(walls.points, np.int64)
        self._directions = np.asarray(walls.directions, np.int64)
        self._of_direction = [np.flatnonzero(self._directions == i) for i in range(DIRECTIONS)]
        # As after a step that leaves all in own slots.
        place, other, shares = link_tables(part, walls, stride)[0]
        self._places, self._shares = (place, other), shares.astype(real)
        # What comes against a near link lies in the same row of slots.
        far = other // stride != self._directions
        bits = (self._directions - 1 << 5) | (OPPOSITE[self._directions] - 1 << 10) | (far << 15)
        moving = walls.moving or bool(np.any(walls.velocities))
        # Compile-time constants of sent_back_gpu.hpp.
        self.constants = {"WALLS": 2 if moving else 1, "WARP": WARP}
        # What each launch reads.
        self.tables = tuple(self._of_launch(points, part.bulk, bits) for points in launched)

    def _of_launch(
        self, points: NDArray[np.int64], bulk: int, bits: NDArray[np.int64]
    ) -> tuple[Any, ...]:
        """Links of the points of a launch, warp by warp."""
        position = np.full(bulk, -1)
        there = points >= 0
        position[points[there]] = np.flatnonzero(there)
        at = position[self._points]
        warp, lane = np.divmod(at, WARP)
        # By direction: lanes side by side then read populations side by side.
        order = np.lexsort((lane, self._directions, warp))[np.count_nonzero(at < 0) :]
        starts = np.zeros(-(-len(points) // WARP) + 1, np.int32)
        np.cumsum(np.bincount(warp[order], minlength=len(starts) - 1), out=starts[1:])
        give = self._device.from_host
        links = np.zeros(max(1, len(order)), np.uint16)
        links[: len(order)] = (lane | bits)[order]
        shares = np.zeros((2, len(links)), self._real)
        shares[:, : len(order)] = self._shares[:, order]
        return give(starts), give(links), give(shares), len(links)

    def put_into(self, arrived: Array, i: int, kernel: Any, stored: Array) -> None:
        """Put what these walls send back along direction i in place of what would come from halfway.

        `arrived`: (owned,) what has arrived along i, changed in place.
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
        shares = device.from_host(np.ascontiguousarray(self._shares[:, chosen]))
        values = device.zeros((len(chosen),), self._real)
        launch: Launch = kernel.bind(
            *(stored, place, other, shares, len(chosen), values),
            extent=(len(chosen),),
            block=_BLOCK,
        )
        launch()
        return values

    def of_points(self, points: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], ...]:
        """Links of some points, each named once: their numbers, and direction and place in `points` of each."""
        if len(points) == 0:
            return (np.zeros(0, np.int64),) * 3
        order = np.argsort(points)
        at = np.searchsorted(points, self._points, sorter=order)
        at = order[np.minimum(at, len(points) - 1)]
        chosen = np.flatnonzero(np.asarray(points)[at] == self._points)
        return chosen, self._directions[chosen], at[chosen]
