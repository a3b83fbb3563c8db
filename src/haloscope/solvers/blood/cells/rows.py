"""Rows of cells on a device: where cells are and how fast, and rows that come, go and move up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.solvers.blood.membranes.membranes import Membranes

SOURCE = Path(__file__).with_name("cell_rows.cpp")
_DIMENSIONS = 3

Floats = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]

# As in cell_rows.cpp.
_QUANTITIES = 14
_OUTLINE_BLOCK, _ROWS_BLOCK = 32, 128


@dataclass(frozen=True)
class Outlines:
    """Where n cells are, and how fast, in lattice units."""

    # (n, 3) corners of their bounding boxes, and means of their vertices; not wrapped.
    low: Floats
    high: Floats
    centre: Floats
    velocity: Floats  # (n, 3) means of their vertices' velocities
    fastest: Floats  # (n,) largest component of a vertex' velocity
    finite: NDArray[np.bool_]  # (n,) whether all positions and velocities are finite numbers


def fields_of(cells: Membranes) -> int:
    """Values of a vertex in a state."""
    return _DIMENSIONS * len(cells.state)


class CellRows:
    """Reads and rearranges the rows that :class:`Membranes` has for cells, on the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._outline, self._give, self._take = (
            device.kernel(SOURCE, name, {"real": "double"})
            for name in ("outline", "give_rows", "take_rows")
        )

    def outlines(self, cells: Membranes, count: int) -> Outlines:
        """Where the first `count` cells are; sums run in an order of their own, the same anywhere."""
        outlines = self._device.zeros((_QUANTITIES * count,), "f8")
        if count:
            self._outline.bind(
                *(
                    cells.positions,
                    cells.velocities,
                    cells.capacity,
                    cells.vertices,
                    count,
                    outlines,
                ),
                extent=(_OUTLINE_BLOCK * count,),
                block=(_OUTLINE_BLOCK,),
            )()
        table = self._device.to_host(outlines).reshape(_QUANTITIES, count)
        low, high, centre, velocity = (table[first : first + 3].T for first in (0, 3, 6, 9))
        return Outlines(low, high, centre, velocity, table[12], table[13] == 1)

    def states(self, cells: Membranes, rows: Rows) -> Floats:
        """States (n, fields, V) of the cells in n rows, on the host: 3 of each array of the state."""
        count, vertices, fields = len(rows), cells.vertices, fields_of(cells)
        if count == 0:
            return np.empty((0, fields, vertices))
        gathered = self._device.empty((count, fields, vertices), "f8")
        places = self._device.from_host(rows.astype(np.int32))
        for number, array in enumerate(cells.state):
            self._give.bind(
                *(array, cells.capacity, vertices, places, count),
                *(gathered, _DIMENSIONS * number, fields),
                extent=(_DIMENSIONS * count * _ROWS_BLOCK,),
                block=(_ROWS_BLOCK,),
            )()
        states: Floats = self._device.to_host(gathered)
        return states

    def rearrange(self, cells: Membranes, into: Membranes, rows: Rows, came: Floats) -> None:
        """Make a cell's row that of another, or one that came.

        `rows`: (n,) which row of `cells` each of the first n rows of `into` comes from; -1 - k
        where it is state k of `came`; `came`: states (m, fields, V), on the host.
        """
        count, vertices = len(rows), cells.vertices
        if count == 0:
            return
        states = self._device.from_host(came if len(came) else np.empty((1, 1, 1)))
        places = self._device.from_host(rows.astype(np.int32))
        fields = fields_of(cells)
        for number, (old, new) in enumerate(zip(cells.state, into.state, strict=True)):
            # Forces are set anew before they are used again.
            target: Array = into.forces if cells is into else new
            self._take.bind(
                *(old, cells.capacity, states, _DIMENSIONS * number, fields, vertices),
                *(places, count, target, into.capacity),
                extent=(_DIMENSIONS * count * _ROWS_BLOCK,),
                block=(_ROWS_BLOCK,),
            )()
            if cells is into:
                used = (slice(None), slice(count))
                shape = (_DIMENSIONS, into.capacity, vertices)
                new.reshape(shape)[used] = target.reshape(shape)[used]
