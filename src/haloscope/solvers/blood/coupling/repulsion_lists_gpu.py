"""Lists of the vertices of other cells that are near, which a GPU keeps over several steps.

The kernels (repulsion_lists_gpu.hpp) find by themselves when a vertex has moved too far, and make the
lists anew then. So each step has the same launches, and a graph can hold them. Where lists have no
room, forces come from bins: the same bits, but slowly. So the host looks now and then, and gives them
more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.solvers.blood.coupling.repulsion_lists import POSITION, VerticesOfKind
from haloscope.solvers.blood.footprint import NEAR_GROWTH

LAUNCHED = ("watch", "place_all", "sum_all", "scan_all", "fill_all", "list_all", "repel_near")
"""Kernels of repulsion_lists_gpu.hpp."""

# A little less than a half, for rounding.
_HALF = 0.499
# Blocks a processor that look whether lists are wanted.
_LOOKING = 8


class ListsOnGpu:
    """Repulsion between the vertices of some arrays.

    `margin`: by how much farther lists reach than the law does, lattice units.
    """

    def __init__(
        self,
        device: Device,
        kernels: Mapping[str, Kernel],
        box: Array,
        bins: int,
        counts: Array,
        sums: Array,
        starts: Array,
        reach: int,
        kinds: Sequence[VerticesOfKind],
        *,
        dtype: np.dtype,
        law: tuple[float, float, float],
        margin: float,
        threads: int,
        blocks: int,
    ) -> None:
        self._device, self._kernels, self._kinds = device, kernels, kinds
        self._box, self._bins, self._reach = box, bins, reach
        self._counts, self._sums, self._starts = counts, sums, starts
        self._law, self._margin = law, margin
        self._threads, self._blocks = threads, blocks
        self._total = total = sum(kind.count for kind in kinds)
        self._now = device.zeros((POSITION * total,), dtype)
        self._then = device.zeros((3 * total,), np.float32)
        self._wanted = device.from_host(np.ones(1, np.int32))
        self._items, self._cells = (device.zeros((total,), np.int32) for _ in range(2))
        firsts = [*(kind.first for kind in kinds), total]
        self._firsts = device.from_host(np.array(firsts, np.int64))
        self._numbers = device.zeros((len(kinds),), np.int32)
        self._listed, self._lengths = (device.zeros((total,), np.int32) for _ in range(2))
        self._begins = device.zeros((total,), np.int64)
        self._used = device.zeros((1,), np.int64)
        making = list(self._making(device.zeros((1,), np.int32), 0).values())
        for launch in making:
            launch()
        self._make_room()

    def _make_room(self) -> None:
        """Bind launches to room for what lists were found to need, and for more."""
        needed = int(self._device.to_host(self._used)[0])
        room = int(NEAR_GROWTH * needed) + self._total
        near = self._device.empty((room,), np.int32)
        looking, repelling = self._making(near, room), self._repelling(near, room)
        self._room = room
        self.launches: dict[str, Launch] = looking | repelling
        self._look, self._repel = tuple(looking.values()), tuple(repelling.values())

    def look(self) -> None:
        """Take over present positions, and make lists anew if it is time."""
        for launch in self._look:
            launch()

    def repel(self) -> None:
        """Add the forces of the positions that were taken over."""
        for launch in self._repel:
            launch()

    def renew(self) -> None:
        """Make lists anew the next time."""
        self._wanted.fill(1)

    def grow(self) -> bool:
        """Find more room if the last lists had too little. Between steps; waits for the device."""
        if int(self._device.to_host(self._used)[0]) <= self._room:
            return False
        try:
            # Empty as it is, it is filled in the next step: lists that do not fit stay wanted.
            self._make_room()
        except MemoryError:
            # Bins do as before.
            return False
        return True

    def _making(self, near: Array, room: int) -> dict[str, Launch]:
        wanted, now, total, then = self._wanted, self._now, self._total, self._then
        box, bins, counts, sums, starts = (
            self._box,
            self._bins,
            self._counts,
            self._sums,
            self._starts,
        )
        many = len(self._kinds)
        launches = {
            f"watch {number}": self._bind(
                "watch",
                (kind.positions, *kind.numbers, total, then, now, _HALF * self._margin, wanted),
                kind.count,
            )
            for number, kind in enumerate(self._kinds)
        }
        lists = (self._numbers, self._listed, self._begins, self._lengths, near, room, self._used)
        around = (starts, self._items, self._cells, self._reach)
        radius = self._law[1] + self._margin
        looking = min(total, _LOOKING * self._device.multiprocessors * self._threads)
        wide = self._blocks * self._threads
        calls: dict[str, tuple[tuple[Array | int | float, ...], int]] = {
            "place_all": ((wanted, box, now, total, then, counts), looking),
            "sum_all": ((wanted, counts, bins, sums, self._numbers, many, self._used), wide),
            "scan_all": ((wanted, counts, bins, sums, starts), wide),
            "fill_all": (
                (wanted, box, now, total, starts, counts, self._items, self._cells),
                looking,
            ),
            "list_all": (
                (wanted, box, now, bins, *around, radius, self._firsts, many, *lists),
                looking,
            ),
        }
        return launches | {name: self._bind(name, *call) for name, call in calls.items()}

    def _repelling(self, near: Array, room: int) -> dict[str, Launch]:
        around = (self._now, self._starts, self._items, self._cells, self._reach)
        lists = (self._numbers, self._listed, self._begins, self._lengths, near, room)
        return {
            f"repel_near {number}": self._bind(
                "repel_near",
                (
                    *(self._box, kind.forces, kind.room, kind.count, kind.first, number),
                    *(*around, *lists, self._used, self._wanted, *self._law),
                ),
                kind.count,
            )
            for number, kind in enumerate(self._kinds)
        }

    def _bind(self, name: str, arguments: tuple[Array | int | float, ...], extent: int) -> Launch:
        return self._kernels[name].bind(*arguments, extent=(extent,), block=(self._threads,))
