"""Blocks on the diagonal as a preconditioner, and launches kept for their arguments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from haloscope.device.interface import Array, Launch
from haloscope.errors import SolutionError
from haloscope.numerics.krylov.block_pattern import BlockPattern
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.numerics.shared_nodes import SharedNodes


class BoundLaunches:
    """Launches of one kernel on arrays that come again and again.

    Arrays are remembered by identity, and are kept: give the same objects each time.
    """

    def __init__(self, bind: Callable[..., Launch]) -> None:
        self._bind = bind
        self._bound: dict[tuple[int, ...], tuple[tuple[Array, ...], Launch]] = {}

    def __call__(self, *arrays: Array) -> None:
        """Launch on the given arrays."""
        key = tuple(map(id, arrays))
        binding = self._bound.get(key)
        if binding is None:
            binding = self._bound[key] = (arrays, self._bind(*arrays))
        binding[1]()


class PointBlocks:
    """The inverse of the matrix's diagonal blocks."""

    # Blocks of shared nodes are summed over the sharers before they are inverted, so that it does
    # not depend on the ranks but for rounding. It holds copies: call :meth:`update` whenever the
    # matrix has changed. Applying it takes no message.

    capturable = True

    def __init__(self, rows: BlockRows, shared: SharedNodes) -> None:
        self._rows, self._world = rows, shared.world
        self._sums = None if shared.alone else shared.sums(rows.size**2)
        self._inverse = BlockRows(rows.device, _diagonal(rows.nodes), rows.size)
        # The inverses, (nodes, size, size), each as [unknown, equation].
        self.inverse = self._inverse.values
        self._bound: dict[tuple[int, int], tuple[Array, Array, Launch]] = {}

    def update(self) -> None:
        """Take the blocks of the matrix as they are now."""
        blocks = self._inverse.values
        self._rows.take_diagonal(blocks)
        if self._sums is not None:
            self._sums.swap(blocks)
        singular = self._world.sum(np.array([self._inverse.invert(blocks)]))
        if singular[0]:
            raise SolutionError(
                f"the diagonal blocks of {singular[0]} nodes are singular or not finite; look for "
                "unknowns without an equation, such as a pressure without a reference"
            )

    def apply(self, x: Array, y: Array) -> None:
        """Put the inverse blocks' products with x into y; arrays are remembered by identity."""
        binding = self._bound.get((id(x), id(y)))
        if binding is None:
            launch = self._inverse.product(x, y, self._inverse.all_rows)
            binding = self._bound[id(x), id(y)] = (x, y, launch)
        binding[2]()


def _diagonal(nodes: int) -> BlockPattern:
    """A row has its own block alone."""
    own, starts = np.arange(nodes, dtype=np.int32), np.arange(nodes + 1, dtype=np.int32)
    first = np.zeros((nodes, 1), np.uint8)
    return BlockPattern(nodes, starts, own, own, own.reshape(-1, 1), starts, own, first)
