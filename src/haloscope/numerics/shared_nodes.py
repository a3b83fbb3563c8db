"""Nodes that several ranks share: who owns them, sums over all sharers, products of the whole matrix.

Elements belong to one rank whole, so that each rank's matrix and vectors of element contributions
are parts of sums. Vectors of unknowns are complete on every rank: all copies of a node's unknowns
have the same bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np

from haloscope.device.interface import Array, Device, Kernel
from haloscope.exchange.copies import Placement
from haloscope.exchange.gather_scatter import (
    FieldByField,
    GatherScatter,
    open_gather_scatter,
)
from haloscope.exchange.sharing import find_sharing
from haloscope.exchange.world import World
from haloscope.numerics.block_rows import BlockRows

Sums: TypeAlias = GatherScatter | FieldByField[GatherScatter]
_SOURCE = Path(__file__).with_name("node_vectors.cpp")


class SharedNodes:
    """The nodes of this rank, of which some are on others too; all ranks make one together.

    Parameters
    ----------
    world, device
        The ranks, and where vectors lie.
    numbers
        Global number of each node of this rank, from 0, (nodes,).
    transport
        As for :func:`haloscope.exchange.gather_scatter.open_gather_scatter`.

    Attributes
    ----------
    numbers, transport
        As given.
    alone
        Whether there is one rank only.
    shared
        Whether another rank has the node too, (nodes,).
    owned
        Whether this rank owns the node: the lowest one that has it does, (nodes,).
    """

    def __init__(
        self, world: World, device: Device, numbers: np.ndarray, transport: str = "auto"
    ) -> None:
        self.world, self.device, self.transport = world, device, transport
        self.alone = world.size == 1
        self.numbers = np.asarray(numbers, np.int64)
        self._sharing = find_sharing(world, self.numbers + 1)
        at = self._sharing.first_positions[self._sharing.groups]
        self.shared = np.zeros(len(self.numbers), bool)
        self.shared[at] = True
        self.owned = np.ones(len(self.numbers), bool)
        self.owned[at[self._sharing.ranks < world.rank]] = False
        self._sums: dict[int, Sums] = {}
        self._kept: dict[int, Kernel] = {}
        self._owned = device.from_host(self.owned.astype(np.uint8))

    @property
    def first_shared(self) -> int:
        """The lowest number of a shared node; the number of nodes if none is."""
        return int(np.argmax(self.shared)) if self.shared.any() else len(self.shared)

    def sums(self, size: int) -> Sums:
        """Sums over the sharers of vectors with `size` numbers a node; all ranks ask for it."""
        if size not in self._sums:
            opened = open_gather_scatter(
                *(self.world, self.device, self._sharing, size, np.float64, self.transport),
                placement=Placement(0, size, 1),
            )
            self._sums[size] = opened
        return self._sums[size]

    def take_owners(self, vector: Array, size: int) -> None:
        """Give all copies of a node the `size` numbers that its owner has."""
        if self.alone:
            return
        if size not in self._kept:
            self._kept[size] = self.device.kernel(_SOURCE, "keep_owned", {"B": size})
        self._kept[size].bind(
            *(self._owned, len(self.owned), vector), extent=(len(self.owned) * size,)
        )()
        self.sums(size).swap(vector)


class SharedProduct:
    """``y = A x`` of a matrix whose rows are parts of sums on the ranks that share a node.

    Parameters
    ----------
    rows
        This rank's part.
    shared
        Who shares which nodes.
    overlap
        Multiply the rows from the first shared node on, send their results, and multiply the rest
        while messages travel. It pays where shared nodes are numbered last. Results are the same.
    """

    def __init__(self, rows: BlockRows, shared: SharedNodes, *, overlap: bool = True) -> None:
        self._rows = rows
        self._sums = None if shared.alone else shared.sums(rows.size)
        begin = shared.first_shared if overlap else 0
        self._inner, self._outer = rows.range_of(0, begin), rows.range_of(begin, rows.nodes)

    def __call__(self, x: Array, y: Array) -> None:
        """Multiply; x has the same bits in all copies of a node, and so has y.

        Exchanges remember arrays by identity: give the same objects again and again.
        """
        if self._sums is None:
            self._rows.multiply(x, y)
            return
        self._rows.multiply(x, y, self._outer)
        self._sums.start(y)
        self._rows.multiply(x, y, self._inner)
        self._sums.finish(y)
