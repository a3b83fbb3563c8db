"""Lists of the vertices of other cells that are near, which a GPU keeps over several steps.

The kernels (repulsion_lists_gpu.hpp) find by themselves when a vertex has moved too far, and make the
lists anew then. So each step has the same launches, and a graph can hold them. Where lists have no
room, forces come from bins: the same bits, but slowly. So the host looks now and then, and gives them
more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.solvers.blood.coupling.repulsion_lists import POSITION, VerticesOfKind

LAUNCHED = ("watch", "place_all", "sum_all", "scan_all", "fill_all", "list_all", "repel_near")
"""Kernels of repulsion_lists_gpu.hpp."""

NEAR_GROWTH = 1.5
"""Entries for what is near that a GPU has room for, over those that are needed at first."""
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
        law: Mapping[str, Any],
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
        wanted, total, then, counts = self._wanted, self._total, self._then, self._counts
        launches = {
            f"watch {number}": self._bind(
                "watch",
                {
                    "positions": kind.positions,
                    **kind.numbers,
                    **kind.of_cells,
                    "total": total,
                    "then": then,
                    "now": self._now,
                    "far": _HALF * self._margin,
                    "wanted": wanted,
                },
                kind.count,
            )
            for number, kind in enumerate(self._kinds)
        }
        arguments = {"wanted": wanted, "box_numbers": self._box, "now": self._now}
        binned = {"wanted": wanted, "counts": counts, "bins": self._bins, "sums": self._sums}
        items = {"starts": self._starts, "items": self._items, "cells": self._cells}
        kinds = {"numbers_listed": self._numbers, "kinds": len(self._kinds), "used": self._used}
        looking = min(total, _LOOKING * self._device.multiprocessors * self._threads)
        wide = self._blocks * self._threads
        calls: dict[str, tuple[dict[str, Any], int]] = {
            "place_all": ({**arguments, "total": total, "then": then, "counts": counts}, looking),
            "sum_all": ({**binned, **kinds}, wide),
            "scan_all": ({**binned, "starts": self._starts}, wide),
            "fill_all": ({**arguments, "total": total, "counts": counts, **items}, looking),
            "list_all": (
                {
                    **arguments,
                    **items,
                    "bins": self._bins,
                    "reach": self._reach,
                    "radius": self._law["cutoff"] + self._margin,
                    "firsts": self._firsts,
                    **kinds,
                    **self._lists(near, room),
                },
                looking,
            ),
        }
        return launches | {name: self._bind(name, *call) for name, call in calls.items()}

    def _repelling(self, near: Array, room: int) -> dict[str, Launch]:
        arguments = {
            "box_numbers": self._box,
            "now": self._now,
            "starts": self._starts,
            "items": self._items,
            "cells": self._cells,
            "reach": self._reach,
            "numbers_listed": self._numbers,
            **self._lists(near, room),
            "used": self._used,
            "wanted": self._wanted,
            **self._law,
        }
        return {
            f"repel_near {number}": self._bind(
                "repel_near",
                {**arguments, "forces": kind.forces, **kind.numbers, "kind": number},
                kind.count,
            )
            for number, kind in enumerate(self._kinds)
        }

    def _lists(self, near: Array, room: int) -> dict[str, Any]:
        """Arguments of kernels by name: lists, and room for what is near."""
        return {
            "listed": self._listed,
            "begins": self._begins,
            "lengths": self._lengths,
            "near": near,
            "room": room,
        }

    def _bind(self, name: str, arguments: Mapping[str, Any], extent: int) -> Launch:
        return self._kernels[name].bind(**arguments, extent=(extent,), block=(self._threads,))
