"""Nodes that several ranks share: who owns them, sums over all sharers, products of the whole matrix.

Elements belong to one rank whole, so that each rank's matrix and vectors of element contributions
are parts of sums. Vectors of unknowns are complete on every rank: all copies of a node's unknowns
have the same bits.
"""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.sharing import find_sharing
from haloscope.numerics.krylov.block_rows import BlockRows, RowRange
from haloscope.numerics.krylov.node_vectors import clearing
from haloscope.numerics.shared_node_messages import NodeSums, open_node_sums
from haloscope.regions import Region

_PRODUCT = Region("matrix-vector product")


class SharedNodes:
    """The nodes of this rank, of which some are on others too; all ranks make one together."""

    def __init__(
        self, world: World, device: Device, numbers: np.ndarray, transport: str = "auto"
    ) -> None:
        self.world, self.device, self.transport = world, device, transport
        self.alone = world.size == 1  # Whether there is one rank only
        # As given.
        # Global number of each node of this rank, from 0, (nodes,).
        self.numbers = np.asarray(numbers, np.int64)
        self._sharing = find_sharing(world, self.numbers + 1)
        at = self._sharing.first_positions[self._sharing.groups]
        # Whether another rank has the node too, (nodes,).
        self.shared = np.zeros(len(self.numbers), bool)
        self.shared[at] = True
        # Whether this rank owns the node: the lowest one that has it does, (nodes,).
        self.owned = np.ones(len(self.numbers), bool)
        self.owned[at[self._sharing.ranks < world.rank]] = False
        self._sums: dict[int, NodeSums] = {}
        self._kept: dict[tuple[int, int], tuple[Array, Launch]] = {}

    @property
    def first_shared(self) -> int:
        """The lowest number of a shared node; the number of nodes if none is."""
        return int(np.argmax(self.shared)) if self.shared.any() else len(self.shared)

    def sums(self, size: int) -> NodeSums:
        """Sums over the sharers of vectors with `size` numbers a node; all ranks ask for it."""
        if size not in self._sums:
            self._sums[size] = open_node_sums(
                self.world, self.device, self._sharing, size, self.transport
            )
        return self._sums[size]

    def capturable(self, size: int) -> bool:
        """Whether sums of `size` numbers a node may be captured into a graph."""
        return self.alone or self.sums(size).capturable

    def take_owners(self, vector: Array, size: int) -> None:
        """Give all copies of a node the `size` numbers that its owner has."""
        if self.alone:
            return
        # Sums remember arrays by identity, too.
        key = id(vector), size
        if key not in self._kept:
            others = np.flatnonzero(~self.owned)
            self._kept[key] = (vector, clearing(self.device, others, vector, size))
        self._kept[key][1]()
        self.sums(size).gather(vector)


def sums_between_shared(rows: BlockRows, shared: SharedNodes) -> NodeSums:
    """Sums of the blocks between shared nodes over the ranks that have both; all ranks call this."""
    pattern, size = rows.pattern, rows.size
    nodes = int(shared.world.largest(float(shared.numbers.max(initial=0)))) + 1
    row, column = pattern.rows, pattern.columns
    both = shared.shared[row] & shared.shared[column]
    pair = shared.numbers[row] * nodes + shared.numbers[column] + 1
    sharing = find_sharing(shared.world, np.where(both, pair, 0))
    return open_node_sums(shared.world, rows.device, sharing, size**2, shared.transport)


class SharedProduct:
    """``y = A x`` of a matrix whose rows are parts of sums on the ranks that share a node.

    `single`: multiply with a copy of the blocks in single precision, which :meth:`update` takes:
    half as many bytes move. Cores only.
    """

    def __init__(
        self, rows: BlockRows, shared: SharedNodes, *, overlap: bool = True, single: bool = False
    ) -> None:
        self._rows = rows
        self._values: Array | None = None
        self._narrow: Launch | None = None
        if single:
            if rows.device.kind != "cpu":
                raise InputError(
                    "products with blocks in single precision are for cores; take double there"
                )
            self._values = rows.device.empty(rows.values.shape, np.float32)
            self._narrow = rows.narrowing(self._values)
        self._sums = None if shared.alone else shared.sums(rows.size)
        begin = shared.first_shared if overlap else 0
        self._ranges = rows.range_of(begin, rows.nodes), rows.range_of(0, begin)
        self._bound: dict[tuple[int, int], tuple[Array, Array, list[Launch | None]]] = {}

    @property
    def capturable(self) -> bool:
        """Whether products may be captured into a graph."""
        return self._sums is None or self._sums.capturable

    def update(self) -> None:
        """Take the matrix as it is now; in double precision that needs no copy."""
        if self._narrow is not None:
            self._narrow()

    def __call__(self, x: Array, y: Array) -> None:
        """Multiply; x has the same bits in all copies of a node, and so has y.

        Arrays are remembered by identity: give the same objects again and again.
        """
        with _PRODUCT:
            outer, inner = self._launches(x, y)
            if outer is not None:
                outer()
            if self._sums is not None:
                self._sums.start(y)
            if inner is not None:
                inner()
            if self._sums is not None:
                self._sums.finish(y)

    def _launches(self, x: Array, y: Array) -> list[Launch | None]:
        """The products in the rows from the first shared one on, and in those before."""
        binding = self._bound.get((id(x), id(y)))
        if binding is None:
            launches = [
                self._launch(x, y, group) if group.first < group.end else None
                for group in self._ranges
            ]
            binding = self._bound[id(x), id(y)] = (x, y, launches)
        return binding[2]

    def _launch(self, x: Array, y: Array, rows: RowRange) -> Launch:
        if self._values is None:
            return self._rows.product(x, y, rows)
        return self._rows.product_of(self._values, x, y, rows)
