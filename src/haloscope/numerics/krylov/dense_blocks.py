"""Inverses of dense blocks: those on the diagonal as a preconditioner, and the last level of several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.interface import Array, Graph, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import SolutionError
from haloscope.numerics.krylov.block_rows import (
    OFFSET_TYPES,
    WITHOUT_EQUATION,
    BlockPattern,
    BlockRows,
)
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
# Entries of a list and blocks of a coarse row that a GPU block takes at a time.
_LIST_TILE, _ROW_TILE = 32, 128
# Blocks of a row that a GPU block works on at a time.
_COLUMNS = 16


def kernel_file(size: int, stored: DTypeLike, slot_bytes: int = 1) -> KernelFile:
    """Kernels of two_level.cpp: for the size of blocks, and the types of A P and of slots."""
    name = "float" if np.dtype(stored) == np.float32 else "double"
    constants: dict[str, int | float | str] = {
        "B": size,
        "stored": name,
        "stored2": f"{name}2",
        "slot": OFFSET_TYPES[slot_bytes],
        "LIST_TILE": _LIST_TILE,
        "ROW_TILE": _ROW_TILE,
    }
    return KernelFile(_SOURCE, constants)


def inverse_file(size: int) -> KernelFile:
    """Kernels that invert dense blocks of a size."""
    return kernel_file(size, np.float64)


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
        source, constants = inverse_file(rows.size)
        spread, scale_row, eliminate = (
            device.kernel(source, name, constants) for name in ("spread", "scale_row", "eliminate")
        )
        dense: dict[str, Any] = {"D": self._inverse.values, "n": nodes}
        many, team = (entries * nodes,), (entries,)
        self._spread = spread.bind(
            extent=many,
            block=team,
            starts=rows.starts,
            columns=rows.columns,
            A=rows.values,
            **dense,
        )
        self._steps = [
            (
                scale_row.bind(extent=(64,), block=(64,), k=k, singular=self._singular, **dense),
                eliminate.bind(extent=(*many, _COLUMNS), block=(*team, _COLUMNS), k=k, **dense),
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
