"""Sums of all ranks' parts of a coarse matrix and of coarse vectors: the same bits on all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.exchange.list_finding import Listed, Lists
from haloscope.exchange.lists import OneWay, open_lists
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import all_rows
from haloscope.exchange.sharing import find_sharing
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.numerics.shared_node_messages import NodeSums, open_node_sums
from haloscope.numerics.shared_nodes import SharedNodes


class CoarseSums:
    """Sums in the order of ranks.

    `own`: to which rows of the matrix this rank adds anything, (nodes,); it holds zeros in the
    others.
    """

    # Between GPUs they go through what carries the sums over shared nodes, without the host. Most
    # rows of the matrix are one rank's alone, which gives them to the others: only the rest is
    # added up.

    def __init__(
        self, shared: SharedNodes, coarse: BlockRows, right: Array, own: NDArray[np.bool_]
    ) -> None:
        self._world, self._on_host = shared.world, coarse.device.kind == "cpu"
        self._values, self._right = coarse.values.reshape(-1), right
        self._of_right: NodeSums | None = None
        if self._on_host:
            return
        # Finding the fastest anew, with so many values, would take long.
        world, device, size = shared.world, coarse.device, coarse.size
        transport, entries = shared.sums(size).transport, size**2
        every = find_sharing(world, np.arange(1, coarse.nodes + 1))
        self._of_right = open_node_sums(world, device, every, size, transport)
        by_rank = all_rows(world, own[None])
        row, blocks = coarse.pattern.rows, np.arange(coarse.pattern.blocks)
        several = by_rank.sum(axis=0) > 1
        sharing = find_sharing(world, np.where(several[row], blocks + 1, 0))
        self._of_several = open_node_sums(world, device, sharing, entries, transport)
        alone = [np.flatnonzero((mine & ~several)[row]) * entries for mine in by_rank]
        others = [rank for rank in range(world.size) if rank != world.rank]
        lists = Lists(
            _without_empty((rank, alone[world.rank]) for rank in others),
            _without_empty((rank, alone[rank]) for rank in others),
        )
        self._of_one: OneWay = open_lists(
            *(world, device, lists, np.float64, transport), fields=entries, field_stride=1
        ).forward

    @property
    def capturable(self) -> bool:
        """Whether the sum of vectors may be captured into a graph."""
        return self._of_right is not None and self._of_right.capturable

    def sum_values(self) -> None:
        """Of the matrices."""
        if self._on_host:
            self._values[...] = _sum_in_order(self._world, self._values)
            return
        self._of_one.swap(self._values)
        self._of_several.swap(self._values)

    def sum_right(self) -> None:
        """Of the right-hand sides."""
        if self._of_right is not None:
            self._of_right.swap(self._right)
            return
        self._right[...] = _sum_in_order(self._world, self._right)


def _without_empty(listed: Iterable[tuple[int, np.ndarray]]) -> Listed:
    return tuple((rank, places) for rank, places in listed if len(places))


def _sum_in_order(world: World, own: np.ndarray) -> np.ndarray:
    """Sums of all ranks' numbers (n,), each added in the order of ranks, the same bits on all.

    Each rank adds a part for all, so that it sends and receives twice what it gave.
    """
    parts = np.zeros((world.size, -(-len(own) // world.size)))
    parts.reshape(-1)[: len(own)] = own
    came = world.alltoall(parts)
    total = came[0].copy()
    for part in came[1:]:
        total += part
    whole: np.ndarray = world.alltoall(np.tile(total, (world.size, 1))).reshape(-1)
    return whole[: len(own)]
