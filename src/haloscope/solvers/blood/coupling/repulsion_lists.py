"""Lists of the vertices of other cells that are near, which are kept over several steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.solvers.blood.coupling.coupling import SIZES, threads_together

_THREADS = SIZES["THREADS_A_BLOCK"]

MARGIN = 0.4
"""Lattice units. Wider lists are longer and last longer."""

# A little less, for rounding.
_HALF = 0.499
POSITION = 4
"""Values of a position: x, y, z and what fills up its part of a cache line."""
_FIRST_ROOM = 8
_GROWTH = 1.25

LAUNCHED = ("watch", "list_near", "repel_listed")
"""Kernels of repulsion_lists.hpp."""


@dataclass(frozen=True, eq=False)
class VerticesOfKind:
    """Vertices of one kind among all."""

    # As in :class:`haloscope.solvers.blood.coupling.repulsion.CellsOfKind`.
    positions: Array
    forces: Array
    # Vertices that the arrays have room for, and those that are there.
    room: int
    count: int
    # Vertices and cells of kinds before.
    first: int
    first_cell: int
    a_cell: int  # Vertices of a cell

    @property
    def numbers(self) -> dict[str, Any]:
        """Arguments of kernels by name: which vertices of all these are, and of the arrays."""
        return {"vertices": self.room, "count": self.count, "first": self.first}

    @property
    def of_cells(self) -> dict[str, Any]:
        """Arguments of kernels by name: the cells of these vertices."""
        return {"first_cell": self.first_cell, "a_cell": self.a_cell}


class NearLists:
    """Adds repulsion between the vertices of some arrays, with lists that it renews in time.

    `fill`: puts what is there now into `bins`, which are arguments of kernels by name; `margin`: by how
    much farther lists reach than the law does, lattice units.
    """

    def __init__(
        self,
        device: Device,
        kernels: dict[str, Kernel],
        fill: Callable[[], None],
        bins: Mapping[str, Any],
        kinds: Sequence[VerticesOfKind],
        law: Mapping[str, Any],
        margin: float,
    ) -> None:
        self._fill = fill
        self._device, self._bins, self._kinds = device, bins, kinds
        self._kernels, self._law = kernels, law
        self._radius = law["cutoff"] + margin
        self._parts = parts = device.multiprocessors
        self._now = device.zeros((POSITION * bins["total"],), np.float64)
        self._then = [device.zeros((3 * kind.room,), np.float64) for kind in kinds]
        self._moved = device.zeros((len(kinds), parts), np.int32)
        self._is_current = False
        self._watch = [
            kernels["watch"].bind(
                positions=kind.positions,
                **kind.numbers,
                then=then,
                now=self._now,
                far=_HALF * margin,
                moved=moved,
                parts=parts,
                extent=(kind.count,),
            )
            for kind, then, moved in zip(kinds, self._then, self._moved, strict=True)
        ]
        self._lists: list[dict[str, Array]] = [
            {
                "listed": device.zeros((kind.count,), np.int32),
                "ends": device.zeros((kind.count,), np.int32),
                "numbers_listed": device.zeros((parts,), np.int32),
            }
            for kind in kinds
        ]
        self._needed = device.zeros((len(kinds), parts), np.int32)
        self._make_room([_FIRST_ROOM * kind.count // parts + 1 for kind in kinds])

    def look(self) -> None:
        """Take over present positions, and make lists anew if it is time."""
        for watch in self._watch:
            watch()
        if not self._is_current or self._moved.any():
            self._renew()

    def repel(self) -> None:
        """Add the forces of the positions that were taken over."""
        for repel in self._repel:
            repel()

    def renew(self) -> None:
        """Make lists anew the next time."""
        self._is_current = False

    def _renew(self) -> None:
        self._fill()
        for make in self._list:
            make()
        needed = self._needed.max(axis=1)
        if np.any(needed > self._rooms):
            self._make_room([int(_GROWTH * most) + 1 for most in needed])
            for make in self._list:
                make()
        self._is_current = True

    def _make_room(self, rooms: Sequence[int]) -> None:
        """Arrays for so many entries a part and kind."""
        device, bins, parts = self._device, self._bins, self._parts
        self._rooms = np.array(rooms)
        self._list: list[Launch] = []
        self._repel: list[Launch] = []
        rows = zip(self._kinds, self._then, self._lists, self._needed, rooms, strict=True)
        for kind, then, lists, needed, room in rows:
            near = device.empty((parts * room,), np.int32)
            arguments = {**kind.numbers, "parts": parts}
            stored = {**lists, "near": near, "room": room}
            self._list.append(
                self._kernels["list_near"].bind(
                    **arguments,
                    positions=kind.positions,
                    **kind.of_cells,
                    **bins,
                    radius=self._radius,
                    then=then,
                    **stored,
                    needed=needed,
                    extent=(kind.count,),
                )
            )
            self._repel.append(
                self._kernels["repel_listed"].bind(
                    **arguments,
                    box_numbers=bins["box_numbers"],
                    forces=kind.forces,
                    now=self._now,
                    **stored,
                    **self._law,
                    extent=(kind.count,),
                )
            )


LAUNCHED_ON_GPU = ("watch", "keep_near", "repel_near")
"""Kernels of repulsion_lists_gpu.hpp."""

NEAR_GROWTH = 1.5
"""Entries for what is near that a GPU has room for, over those that are needed at first."""


class ListsOnGpu:
    """Repulsion between the vertices of some arrays.

    `margin`: by how much farther lists reach than the law does, lattice units.
    """

    def __init__(
        self,
        device: Device,
        kernels: Mapping[str, Kernel],
        bins: Mapping[str, Any],
        kinds: Sequence[VerticesOfKind],
        law: Mapping[str, Any],
        margin: float,
    ) -> None:
        # Bins as arguments of kernels by name.
        self._device, self._kernels, self._kinds, self._bins = device, kernels, kinds, bins
        self._law, self._margin = law, margin
        self._total = total = sum(kind.count for kind in kinds)
        self._now = device.zeros((POSITION * total,), np.float64)
        self._then = device.zeros((3 * total,), np.float32)
        # Whether lists are wanted, and how many blocks have arrived where all wait.
        self._wanted = device.from_host(np.array([1, 0], np.int32))
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
        self._wanted[1:] = 0
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
        self._wanted[:1] = 1

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
        total, bins, (first, *others) = self._total, self._bins, self._kinds
        watched: dict[str, Any] = {
            "total": total,
            "then": self._then,
            "now": self._now,
            "far": _HALF * self._margin,
            "wanted": self._wanted,
        }

        def of_kind(kind: VerticesOfKind) -> dict[str, Any]:
            return {"positions": kind.positions, **kind.numbers, **kind.of_cells, **watched}

        launches = {
            f"watch {number}": self._bind("watch", of_kind(kind), kind.count)
            for number, kind in enumerate(others, 1)
        }
        arguments = {
            **of_kind(first),
            **{name: bins[name] for name in ("box_numbers", "counts", "bins", "sums", "starts")},
            "items": self._items,
            "cells": self._cells,
            "reach": bins["reach"],
            "radius": self._law["cutoff"] + self._margin,
            "firsts": self._firsts,
            "numbers_listed": self._numbers,
            "kinds": len(self._kinds),
            "used": self._used,
            **self._lists(near, room),
        }
        extent = min(total, threads_together(self._device))
        return launches | {"keep_near": self._bind("keep_near", arguments, extent, together=True)}

    def _repelling(self, near: Array, room: int) -> dict[str, Launch]:
        arguments = {
            **{name: self._bins[name] for name in ("box_numbers", "starts", "reach")},
            "now": self._now,
            "items": self._items,
            "cells": self._cells,
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

    def _bind(
        self, name: str, arguments: Mapping[str, Any], extent: int, *, together: bool = False
    ) -> Launch:
        return self._kernels[name].bind(
            **arguments, extent=(extent,), block=(_THREADS,), together=together
        )
