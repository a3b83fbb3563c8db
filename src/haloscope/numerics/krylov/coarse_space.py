"""The coarse space of a two-level preconditioner: groups of nodes, Galerkin products P' A P, sums over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.exchange.engine import Exchange
from haloscope.exchange.entries import Entries, open_lists
from haloscope.exchange.plan import Listed, Lists, all_rows, find_sharing, ranges
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surfaces import connected_parts
from haloscope.numerics.krylov.block_rows import BlockPattern, BlockRows
from haloscope.numerics.shared_nodes import NodeSums, SharedNodes, open_node_sums

# The same groups on any number of ranks: the first rank finds them from the whole graph of nodes, in
# their global numbering, and tells the others.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class CoarseSpace:
    """Functions on the nodes of this rank, one for each group of nodes of all ranks."""

    # Function k at node i is the share of group k among i and the nodes that i has an element with.
    # So functions are between 0 and 1, their sum is 1 everywhere, and they reach one layer of
    # elements beyond their groups: a constant is in their space, and steps between groups are
    # smoothed once (smoothed aggregation: Vanek, Mandel and Brezina, Computing 56, 1996, 179, with
    # the mean over neighbours as the smoother, which needs no matrix and so is found once a mesh).

    starts: Integers  # Where each node's functions begin, and at last their end, (nodes + 1,)
    columns: NDArray[np.int32]  # Numbers of the functions that are not zero at each node, ascending
    weights: Floats  # Their values there
    positions: Floats  # Middle of each group in m, (groups, 3)

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self.positions)


def coarse_space(
    pattern: BlockPattern, shared: SharedNodes, positions: Floats, size: int
) -> CoarseSpace:
    """Group nodes; all ranks call this.

    `positions`: of each node of this rank in m, (nodes, 3).
    """
    numbers, world = shared.numbers, shared.world
    count = int(world.largest(float(numbers.max(initial=-1)))) + 1
    pairs = sorted_once(numbers[pattern.rows] * count + numbers[pattern.columns])
    owned = np.flatnonzero(shared.owned)
    all_pairs = np.concatenate(_to_first(world, pairs))
    all_numbers = np.concatenate(_to_first(world, numbers[owned]))
    all_positions = np.concatenate(_to_first(world, np.ascontiguousarray(positions[owned])))
    functions: list[np.ndarray] = [np.zeros(0, np.int64)] * 2 + [np.zeros(0), np.zeros((0, 3))]
    if world.rank == 0:
        graph = all_pairs if world.size == 1 else sorted_once(all_pairs)
        points = np.empty((count, 3))
        points[all_numbers] = all_positions.reshape(-1, 3)
        functions = _functions(graph // count, graph % count, points, size)
    starts, columns, weights, middles = (_from_first(world, part) for part in functions)
    lengths = np.diff(starts)[numbers]
    own_starts = np.append(0, np.cumsum(lengths))
    taken = np.repeat(starts[numbers] - own_starts[:-1], lengths) + np.arange(own_starts[-1])
    return CoarseSpace(
        own_starts, columns[taken].astype(np.int32), weights[taken], middles.reshape(-1, 3)
    )


def _functions(rows: Integers, columns: Integers, points: Floats, size: int) -> list[np.ndarray]:
    """Starts, columns and weights of the functions at all nodes, and middles of groups."""
    count = len(points)
    boxes = _equal_boxes(points, max(1, round(count / size)))
    inside = boxes[rows] == boxes[columns]
    groups = connected_parts(count, rows[inside], columns[inside])
    number = int(groups.max(initial=-1)) + 1
    keys = np.sort(rows * number + groups[columns])
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    shares = np.diff(begins, append=len(keys))
    keys = keys[begins]
    node = keys // number
    weights = shares / np.bincount(rows, minlength=count)[node]
    sums = np.stack([np.bincount(groups, axis, number) for axis in points.T], axis=1)
    middles = sums / np.bincount(groups, minlength=number)[:, None]
    starts = np.append(0, np.cumsum(np.bincount(node, minlength=count)))
    return [starts, keys % number, weights, middles]


def _equal_boxes(points: Floats, count: int) -> Integers:
    """Cut points into boxes with equally many: always the box across its longest side."""
    box_numbers = np.zeros(len(points), np.int64)
    waiting = [(np.arange(len(points)), count, 0)]
    while waiting:
        members, boxes, first = waiting.pop()
        if boxes == 1:
            box_numbers[members] = first
            continue
        own = points[members]
        axis = int(np.argmax(own.max(axis=0) - own.min(axis=0)))
        # Ties in the order of nodes.
        members = members[np.argsort(own[:, axis], kind="stable")]
        below = boxes // 2
        cut = len(members) * below // boxes
        waiting.append((np.sort(members[:cut]), below, first))
        waiting.append((np.sort(members[cut:]), boxes - below, first + below))
    return box_numbers


def sorted_once(values: Integers) -> Integers:
    """Numbers from 0 on in ascending order, each once: numpy's own `unique` is slower by far."""
    ordered = np.sort(values)
    once: Integers = ordered[np.diff(ordered, prepend=-1) > 0]
    return once


def _to_first(world: World, values: np.ndarray) -> list[np.ndarray]:
    """The arrays of all ranks, on the first one; others get empty ones."""
    nothing = np.zeros(0, np.uint8)
    parts = [values.reshape(-1).view(np.uint8)] + [nothing] * (world.size - 1)
    return [part.view(values.dtype) for part in world.exchange(parts)]


def _from_first(world: World, values: np.ndarray) -> np.ndarray:
    """The first rank's array, flat, on all; all give arrays of one type."""
    if world.size == 1:
        return values.reshape(-1)
    length = int(world.broadcast(np.array([values.size]))[0])
    room = values.reshape(-1) if world.rank == 0 else np.empty(length, values.dtype)
    return world.broadcast(room)


Indices = NDArray[np.int32]

# Rows whose lists are made at once: bounds what the set-up holds beside its result.
_ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Blocks:
    """Which blocks rows have: those from `starts` of a row on are at `columns`, ascending."""

    starts: Indices
    columns: Indices


@dataclass(frozen=True)
class GalerkinLists:
    """The patterns of A P and P' A P, and where each product is added."""

    product: Blocks  # Rows of A P, complete: also those of nodes that other ranks have elements of
    # For each node, each of its row's blocks and each function at that block's column: which block
    # of the node's row in A P; where each node's begin.
    product_slots: NDArray[np.unsignedinteger]
    product_slot_starts: Integers
    # For each function, where it is not zero among the nodes that this rank owns, and its values.
    function_starts: Indices
    nodes: Indices
    factors: NDArray[np.float64]
    coarse: Blocks  # Rows of P' A P, the same on all ranks
    # For each entry of `nodes` and each block of that node's row in A P: which block of the
    # function's row in P' A P; where each entry's begin.
    coarse_slots: NDArray[np.unsignedinteger]
    coarse_slot_starts: Integers


def galerkin_lists(pattern: BlockPattern, shared: SharedNodes, space: CoarseSpace) -> GalerkinLists:
    """Find the lists; all ranks call this."""
    product, slots, slot_starts = _product(
        pattern, space, _columns_elsewhere(pattern, shared, space)
    )
    lengths = np.where(shared.owned, np.diff(space.starts), 0)
    entries = ranges(space.starts[:-1], lengths)
    nodes = np.repeat(np.arange(pattern.nodes), lengths)
    order = np.argsort(space.columns[entries], kind="stable")
    entries, nodes = entries[order], nodes[order]
    functions = space.columns[entries].astype(np.int64)
    counts = np.diff(product.starts)[nodes]
    chunks = _chunks(np.append(0, np.cumsum(counts)), len(nodes))
    groups = space.groups

    def keys_of(first: int, end: int) -> Integers:
        at = ranges(product.starts[nodes[first:end]].astype(np.int64), counts[first:end])
        row: Integers = np.repeat(functions[first:end], counts[first:end])
        keys: Integers = row * groups + product.columns[at]
        return keys

    own = sorted_once(np.concatenate([sorted_once(keys_of(*chunk)) for chunk in chunks]))
    keys = own if shared.alone else sorted_once(all_rows(shared.world, own))
    coarse = _split(keys, groups, groups)
    columns = [np.searchsorted(keys, keys_of(*chunk)) for chunk in chunks]
    at = np.concatenate(columns) - np.repeat(coarse.starts[functions], counts)
    return GalerkinLists(
        product,
        _narrow(slots, product),
        slot_starts,
        _starts(np.bincount(functions, minlength=groups)),
        nodes.astype(np.int32),
        space.weights[entries],
        coarse,
        _narrow(at, coarse),
        np.append(0, np.cumsum(counts)),
    )


def _columns_elsewhere(pattern: BlockPattern, shared: SharedNodes, space: CoarseSpace) -> Integers:
    """Blocks ``node * groups + function`` of A P that other ranks' elements add to own nodes."""
    if shared.alone:
        return np.zeros(0, np.int64)
    groups, numbers = space.groups, shared.numbers
    nodes = np.flatnonzero(shared.shared)
    node, function = _expanded(pattern, space, nodes)
    columns = all_rows(shared.world, sorted_once(numbers[node] * groups + function))
    by_number = nodes[np.argsort(numbers[nodes])]
    at = np.searchsorted(numbers[by_number], columns // groups)
    at[at == len(by_number)] = 0
    mine = (
        numbers[by_number[at]] == columns // groups if len(by_number) else np.zeros(len(at), bool)
    )
    return sorted_once(by_number[at[mine]] * groups + columns[mine] % groups)


def _expanded(
    pattern: BlockPattern, space: CoarseSpace, nodes: Integers
) -> tuple[Integers, Integers]:
    """Node and function of each product that rows of A add to A P, in the kernel's order."""
    counts = np.diff(pattern.starts)[nodes]
    columns = pattern.columns[ranges(pattern.starts[nodes].astype(np.int64), counts)]
    lengths = np.diff(space.starts)[columns]
    functions = space.columns[ranges(space.starts[columns], lengths)]
    return np.repeat(np.repeat(nodes, counts), lengths), functions.astype(np.int64)


def _product(
    pattern: BlockPattern, space: CoarseSpace, extra: Integers
) -> tuple[Blocks, NDArray[np.integer], Integers]:
    """The pattern of A P, the slots of its products, and where each node's begin."""
    groups, every = space.groups, np.arange(pattern.nodes)
    keys, slots = [extra[:0]], [np.zeros(0, np.int64)]
    for first in range(0, pattern.nodes, _ROWS_AT_ONCE):
        node, function = _expanded(pattern, space, every[first : first + _ROWS_AT_ONCE])
        low, high = np.searchsorted(
            extra, [first * groups, min(first + _ROWS_AT_ONCE, pattern.nodes) * groups]
        )
        own = node * groups + function
        product_keys = sorted_once(np.append(own, extra[low:high]))
        begins = np.searchsorted(product_keys, every[first : first + _ROWS_AT_ONCE] * groups)
        keys.append(product_keys)
        slots.append(np.searchsorted(product_keys, own) - begins[node - first])
    counts = np.bincount(pattern.rows, np.diff(space.starts)[pattern.columns], pattern.nodes)
    slot_starts = np.append(0, np.cumsum(counts.astype(np.int64)))
    return (_split(np.concatenate(keys), pattern.nodes, groups), np.concatenate(slots), slot_starts)


def _chunks(starts: Integers, count: int) -> list[tuple[int, int]]:
    """Bounds of runs of entries with some millions of products each, at least one run."""
    bounds = np.searchsorted(starts, np.arange(0, starts[-1], 1 << 22))
    bounds = np.unique(np.append(bounds, [0, count]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)) or [(0, 0)]


def _split(keys: Integers, rows: int, groups: int) -> Blocks:
    return Blocks(
        _starts(np.bincount(keys // groups, minlength=rows)), (keys % groups).astype(np.int32)
    )


def _starts(counts: NDArray[np.integer]) -> Indices:
    return np.append(0, np.cumsum(counts)).astype(np.int32)


def _narrow(numbers: NDArray[np.integer], blocks: Blocks) -> NDArray[np.unsignedinteger]:
    """Numbers of blocks within rows in as few bytes as the longest row allows."""
    longest = int(np.diff(blocks.starts).max(initial=1))
    size = next(width for width in (1, 2, 4) if longest <= 1 << 8 * width)
    return numbers.astype(f"u{size}")


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
        self._of_one: Exchange[Entries] = open_lists(
            *(world, device, lists, np.float64, transport), fields=entries, field_stride=1
        )

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
