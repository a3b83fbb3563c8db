"""Incomplete factors of block rows without fill, ILU(0), of each rank's nodes, on cores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError, SolutionError
from haloscope.numerics.krylov.block_pattern import BlockPattern
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.numerics.krylov.point_blocks import BoundLaunches
from haloscope.numerics.shared_nodes import SharedNodes, sums_between_shared

Integers = NDArray[np.integer]

_SOURCE = Path(__file__).with_name("block_ilu.cpp")
# Whatever the number of threads, so that it does not change what is computed.
_SLICES = 2


class BlockIlu:
    """Block ILU(0) of the matrix restricted to the nodes of each rank."""

    # Its blocks are those of the whole matrix: what this rank's elements add to blocks between
    # shared nodes is summed with what others add. The ranks' domains so overlap by the shared
    # nodes; each solves for all of its nodes, and a shared node takes what its owner finds
    # (restricted additive Schwarz: Cai and Sarkis, SIAM J. Sci. Comput. 21, 1999, 792). Its quality
    # depends on the ranks and on the numbering of nodes.
    #
    # Rows are eliminated from both ends of that numbering, and last the few between (a twisted
    # factorisation: van der Vorst, Parallel Comput. 5, 1987, 45), so that two cores have work, and
    # each step of the elimination is one of all rows: slices are no blocks of their own.

    def __init__(
        self, rows: BlockRows, shared: SharedNodes, *, single: bool = True, slices: int = _SLICES
    ) -> None:
        if rows.device.kind != "cpu":
            raise InputError(
                "block ILU(0) is for cores: its sweeps have too little to do at once for a GPU; "
                "take point blocks there"
            )
        self._rows, self._shared = rows, shared
        device, pattern = rows.device, rows.pattern
        self._sums = None if shared.alone else sums_between_shared(rows, shared)
        # What is factorised: a copy where sums go in.
        self._matrix = rows.values
        if self._sums is not None:
            self._matrix = device.empty(rows.values.shape, np.float64)
        # Nodes as they are eliminated, (nodes,).
        self.order, bounds = _order_of_elimination(pattern, slices)
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(pattern.nodes)
        self._slices, self._bounds = slices, device.from_host(bounds.astype(np.int32))
        self._order = device.from_host(self.order.astype(np.int32))
        self._positions = device.from_host(positions.astype(np.int32))
        stored = np.dtype(np.float32 if single else np.float64)
        row, column = positions[pattern.rows], positions[pattern.columns]
        below = column < row
        last = pattern.nodes - 1
        self._lower = self._part(np.flatnonzero(below), row, column, stored)
        self._upper = self._part(np.flatnonzero(~below), last - row, last - column, stored)
        longest = int(np.diff(pattern.starts).max(initial=0))
        self._room = device.empty((slices * longest * rows.size**2,), np.float64)
        self._longest = longest
        self._places = device.zeros((slices * pattern.nodes,), np.int32)
        constants: dict[str, int | float | str] = {
            "B": rows.size,
            "stored": "float" if single else "double",
        }
        self._factorise, solve = (
            device.kernel(_SOURCE, name, constants) for name in ("factorise", "solve")
        )
        lower, upper = self._lower, self._upper
        self._solve = BoundLaunches(
            lambda x, y: solve.bind(
                *(self._order, self._bounds, slices, rows.nodes),
                *(lower.starts, lower.columns, lower.blocks),
                *(upper.starts, upper.columns, upper.blocks, x, y),
                extent=(slices,),
            )
        )

    def update(self) -> None:
        """Factorise the matrix as it is now."""
        rows, lower, upper = self._rows, self._lower, self._upper
        if self._sums is not None:
            self._matrix[...] = rows.values
            self._sums.swap(self._matrix)
        singular = np.zeros(1, np.int64)
        self._factorise.bind(
            *(self._order, self._positions, self._bounds, self._slices, rows.nodes),
            *(lower.starts, lower.columns, lower.sources, lower.blocks),
            *(upper.starts, upper.columns, upper.sources, upper.blocks),
            *(self._matrix, self._room, self._longest, self._places, singular),
            extent=(self._slices,),
        )()
        if self._shared.world.any(bool(singular[0])):
            raise SolutionError(
                f"block ILU(0) met {int(singular[0])} singular diagonal blocks of {rows.nodes} on "
                "this rank; look for unknowns without an equation, such as a pressure without a "
                "reference"
            )

    def apply(self, x: Array, y: Array) -> None:
        """Solve with the factors; shared nodes take their owners' values.

        Arrays are remembered by identity.
        """
        self._solve(x, y)
        self._shared.take_owners(y, self._rows.size)

    def _part(
        self, chosen: Integers, row: Integers, column: Integers, stored: np.dtype[Any]
    ) -> _Part:
        """The chosen blocks in the order of their rows and columns."""
        rows, device = self._rows, self._rows.device
        sources = chosen[np.lexsort((column[chosen], row[chosen]))]
        counts = np.bincount(row[sources], minlength=rows.nodes)
        lists = (np.append(0, np.cumsum(counts)), rows.pattern.columns[sources], sources)
        starts, columns, numbers = (device.from_host(table.astype(np.int32)) for table in lists)
        blocks = device.empty((len(sources), rows.size, rows.size), stored)
        return _Part(starts, columns, numbers, blocks)


@dataclass(frozen=True)
class _Part:
    """The blocks on one side of the diagonal; see block_ilu.cpp."""

    starts: Array
    columns: Array
    sources: Array
    blocks: Array


def _order_of_elimination(pattern: BlockPattern, slices: int) -> tuple[Integers, Integers]:
    """Nodes as they are eliminated, and where slices begin in that order, the rest, and its end.

    A node that shares an element with one of an earlier slice is of the rest. The slices of the
    first half are eliminated upwards, the others downwards.
    """
    bounds = pattern.equal_shares(0, pattern.nodes, slices)
    of_node = np.repeat(np.arange(slices), np.diff(bounds))
    between = np.zeros(pattern.nodes, bool)
    rows = pattern.rows
    between[rows[of_node[rows] > of_node[pattern.columns]]] = True
    parts = []
    for number in range(slices):
        own = np.arange(bounds[number], bounds[number + 1])
        own = own[~between[own]]
        parts.append(own if 2 * number < slices else own[::-1])
    parts.append(np.flatnonzero(between))
    return np.concatenate(parts), np.append(0, np.cumsum([len(part) for part in parts]))
