"""Inverses of dense blocks: those on the diagonal as a preconditioner, and the last level of several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from haloscope.device.interface import Array, Graph, Kernel, Launch
from haloscope.errors import SolutionError
from haloscope.numerics.krylov.block_rows import WITHOUT_EQUATION, BlockPattern, BlockRows
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
                f"the diagonal blocks of {singular[0]} nodes are singular or not finite",
                remedy=WITHOUT_EQUATION,
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


_SOURCE = Path(__file__).with_name("two_level.cpp")
# Blocks of a row that a GPU block works on at a time.
_COLUMNS = 16


class DenseBlocks:
    """The inverse of block rows that one rank has alone, for some hundreds of unknowns.

    Blocks are eliminated in their order, by Gauss and Jordan, with row pivots within blocks only:
    as safe as block ILU(0), which it equals if all blocks are there.
    """

    capturable = True

    def __init__(self, rows: BlockRows) -> None:
        self._rows, nodes = rows, rows.nodes
        every = np.arange(nodes, dtype=np.int32)
        starts = np.arange(nodes + 1, dtype=np.int32)
        self._inverse = BlockRows(
            rows.device,
            BlockPattern(
                nodes,
                starts * nodes,
                np.tile(every, nodes),
                every * (nodes + 1),
                every.reshape(-1, 1),
                starts,
                every,
                np.zeros((nodes, 1), np.uint8),
            ),
            rows.size,
        )
        self._singular = rows.device.zeros((1,), np.int64)
        device, entries = rows.device, rows.size**2
        kernels = {name: _kernel(rows, name) for name in ("spread", "scale_row", "eliminate")}
        values = self._inverse.values
        many, team = (entries * nodes,), (entries,)
        self._spread = kernels["spread"].bind(
            *(rows.starts, rows.columns, rows.values, nodes, values), extent=many, block=team
        )
        self._steps = [
            (
                kernels["scale_row"].bind(
                    *(values, nodes, k, self._singular), extent=(64,), block=(64,)
                ),
                kernels["eliminate"].bind(
                    *(values, nodes, k), extent=(*many, _COLUMNS), block=(*team, _COLUMNS)
                ),
            )
            for k in range(nodes)
        ]
        self._device = device
        # So many small launches take the host longer than the GPU: it records them.
        self._met = False
        self._graph: Graph | None = None
        inverse = self._inverse
        self._multiply = BoundLaunches(lambda x, y: inverse.product(x, y, inverse.all_rows))

    def update(self) -> None:
        """Invert the matrix as it is now."""
        self._singular[...] = 0
        if self._met and self._graph is None:
            self._graph = self._device.graph(self._invert)
        if self._graph is None:
            self._invert()
        else:
            self._graph.replay()
        self._met = True
        if int(self._device.to_host(self._singular)[0]):
            raise SolutionError(
                "the coarse matrix of the preconditioner is singular", remedy=WITHOUT_EQUATION
            )

    def _invert(self) -> None:
        self._spread()
        for scale_row, eliminate in self._steps:
            scale_row()
            eliminate()

    def apply(self, x: Array, y: Array) -> None:
        """Put the inverse's product with x into y; arrays are remembered by identity."""
        self._multiply(x, y)


def _kernel(rows: BlockRows, name: str) -> Kernel:
    constants: dict[str, int | float | str] = {
        "B": rows.size,
        "stored": "double",
        "stored2": "double2",
        "slot": "unsigned char",
    }
    return rows.device.kernel(_SOURCE, name, constants)
