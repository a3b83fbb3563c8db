"""Block ILU(0) of each rank's nodes and of their neighbours on other ranks, on cores."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Array
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import all_rows
from haloscope.exchange.sharing import find_sharing
from haloscope.numerics.krylov.block_ilu import BlockIlu
from haloscope.numerics.krylov.block_pattern import BlockPattern
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.numerics.krylov.node_vectors import clearing
from haloscope.numerics.krylov.point_blocks import BoundLaunches
from haloscope.numerics.shared_node_messages import open_node_sums
from haloscope.numerics.shared_nodes import SharedNodes


class OverlappingIlu:
    """Block ILU(0) of the matrix restricted to a rank's nodes and those next to them."""

    # One layer of nodes more than :class:`haloscope.numerics.krylov.block_ilu.BlockIlu`, which is used for
    # the factors: a rank's own nodes then all have their whole rows, and counts of iterations
    # hardly grow with ranks beside a coarse space. It costs one more message to each neighbour an
    # application. On one rank both are the same.

    def __init__(self, rows: BlockRows, shared: SharedNodes, *, single: bool = True) -> None:
        self._rows, self._shared = rows, shared
        self._wide: _Wide | None = None
        if shared.alone:
            self._ilu = BlockIlu(rows, shared, single=single)
            return
        self._wide = wide = _Wide(rows, shared)
        alone = SharedNodes(World(), rows.device, np.arange(wide.rows.nodes))
        self._ilu = BlockIlu(wide.rows, alone, single=single)
        self._right, self._left = wide.rows.vector(), wide.rows.vector()

    def update(self) -> None:
        """Factorise the matrix as it is now."""
        if self._wide is not None:
            self._wide.update()
        fault = ""
        try:
            self._ilu.update()
        except SolutionError as error:
            fault = str(error)
        faults = [text for text in self._shared.world.gather_texts(fault) if text]
        if faults:
            raise SolutionError(faults[0])

    def apply(self, x: Array, y: Array) -> None:
        """Solve with the factors; shared nodes take their owners' values."""
        if self._wide is None:
            self._ilu.apply(x, y)
            return
        own = len(x)
        self._right[:own] = x
        self._wide.complete(self._right)
        self._ilu.apply(self._right, self._left)
        y[:] = self._left[:own]
        self._shared.take_owners(y, self._rows.size)


class _Wide:
    """The matrix of a rank's nodes and their neighbours, with what all ranks' elements add to it.

    Its first nodes are the rank's own, in their order. What several ranks may hold a part of lies
    between nodes that are shared or some rank's neighbours.
    """

    def __init__(self, rows: BlockRows, shared: SharedNodes) -> None:
        world, device, numbers = shared.world, rows.device, shared.numbers
        pattern, entries, own = rows.pattern, rows.size**2, rows.nodes
        # Numbers of nodes are below `count` in all that follows.
        count = int(world.largest(float(numbers.max(initial=-1)))) + 1
        row, column = numbers[pattern.rows], numbers[pattern.columns]
        at_edge = shared.shared[pattern.rows]
        pairs = all_rows(world, (row * count + column)[at_edge])
        next_to = pairs[np.isin(pairs // count, numbers)] % count
        extra = np.setdiff1d(next_to, numbers)
        all_extra = np.unique(all_rows(world, extra))
        several = np.union1d(all_extra, np.unique(all_rows(world, numbers[shared.shared])))
        both = np.isin(row, several) & np.isin(column, several)
        pairs = np.unique(all_rows(world, (row * count + column)[both]))
        self.numbers = wide = np.append(numbers, extra)
        pairs = pairs[np.isin(pairs // count, wide) & np.isin(pairs % count, wide)]
        order = np.argsort(wide)
        nodes = len(wide)
        places = (order[np.searchsorted(wide, part, sorter=order)] for part in divmod(pairs, count))
        elsewhere = next(places) * nodes + next(places)
        here = pattern.rows.astype(np.int64) * nodes + pattern.columns
        keys = np.union1d(here, elsewhere)
        starts = np.append(0, np.cumsum(np.bincount(keys // nodes, minlength=nodes)))
        every = np.arange(nodes, dtype=np.int32)
        self.rows = BlockRows(
            device,
            BlockPattern(
                nodes,
                starts.astype(np.int32),
                (keys % nodes).astype(np.int32),
                np.searchsorted(keys, every * np.int64(nodes + 1)).astype(np.int32),
                every.reshape(-1, 1),
                np.arange(nodes + 1, dtype=np.int32),
                every,
                np.zeros((nodes, 1), np.uint8),
            ),
            rows.size,
        )
        self._own_values, self._own = rows.values, np.searchsorted(keys, here)
        first, second = wide[keys // nodes], wide[keys % nodes]
        inside = np.isin(first, several) & np.isin(second, several)
        sharing = find_sharing(world, np.where(inside, first * count + second + 1, 0))
        self._sums = open_node_sums(world, device, sharing, entries, shared.transport)
        wanted = np.isin(wide, all_extra)
        counted = np.append(shared.owned, np.zeros(nodes - own, bool)) | ~wanted
        others = np.flatnonzero(~counted)
        self._keep = BoundLaunches(lambda vector: clearing(device, others, vector, rows.size))
        sharing = find_sharing(world, np.where(wanted, wide + 1, 0))
        self._values = open_node_sums(world, device, sharing, rows.size, shared.transport)

    def update(self) -> None:
        """Take the matrix as it is now."""
        values = self.rows.values
        values[...] = 0.0
        values[self._own] = self._own_values
        self._sums.swap(values)

    def complete(self, vector: Array) -> None:
        """Give the neighbours' places what their owners have."""
        self._keep(vector)
        self._values.gather(vector)
