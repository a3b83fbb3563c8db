"""What a product P' A P of block rows with coarse functions adds up, found once a mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.rows import all_rows
from haloscope.exchange.sharing import ranges
from haloscope.numerics.krylov.block_pattern import BlockPattern
from haloscope.numerics.krylov.coarse_space import CoarseSpace, sorted_once
from haloscope.numerics.shared_nodes import SharedNodes

Integers = NDArray[np.int64]
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
    return (
        _split(np.concatenate(keys), pattern.nodes, groups),
        np.concatenate(slots),
        slot_starts,
    )


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
