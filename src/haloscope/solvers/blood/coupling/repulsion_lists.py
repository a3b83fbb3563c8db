"""Lists of the vertices of other cells that are near, which cores keep over several steps.

A list of all pairs closer than the cutoff and a margin holds all pairs that repel until some vertex
has moved by half the margin. What a list holds too much adds nothing, and sums are exact, so that
forces do not depend on when lists were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Kernel, Launch

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
class Bins:
    """All vertices in the order of bins, made anew by :attr:`fill`."""

    fill: Callable[[], None]  # Puts what is there now into bins
    # The box of bins as kernels read it, and how many bins on each side hold what is near.
    box: Array
    reach: int
    # Bin of each vertex, first item of each bin; number, position and cell of each item.
    places: Array
    starts: Array
    items: Array
    sorted: Array
    cells: Array
    total: int  # Vertices of all kinds


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

    `margin`: by how much farther lists reach than the law does, lattice units.
    """

    def __init__(
        self,
        device: Device,
        kernels: dict[str, Kernel],
        bins: Bins,
        kinds: Sequence[VerticesOfKind],
        law: Mapping[str, Any],
        margin: float,
    ) -> None:
        self._device, self._bins, self._kinds = device, bins, kinds
        self._kernels, self._law = kernels, law
        self._radius = law["cutoff"] + margin
        self._parts = parts = device.multiprocessors
        dtype = bins.sorted.dtype
        self._now = device.zeros((POSITION * bins.total,), dtype)
        self._then = [device.zeros((3 * kind.room,), dtype) for kind in kinds]
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
        self._bins.fill()
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
            arguments = {"box_numbers": bins.box, **kind.numbers, "parts": parts}
            stored = {**lists, "near": near, "room": room}
            self._list.append(
                self._kernels["list_near"].bind(
                    **arguments,
                    positions=kind.positions,
                    **kind.of_cells,
                    places=bins.places,
                    starts=bins.starts,
                    items=bins.items,
                    sorted=bins.sorted,
                    cells=bins.cells,
                    total=bins.total,
                    reach=bins.reach,
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
                    forces=kind.forces,
                    now=self._now,
                    **stored,
                    **self._law,
                    extent=(kind.count,),
                )
            )
