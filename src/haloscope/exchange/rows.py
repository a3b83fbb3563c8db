"""Rows of arrays given to other ranks, or asked of them: for set-up, not for steps in time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World


def give_rows(
    world: World, arrays: Sequence[np.ndarray], to: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Give each row of some arrays to a rank; all ranks call this.

    `arrays`: each (n, ...); all ranks pass arrays of the same types and row shapes in the same
    order; `to`: (n,): the rank that gets each row.
    """
    order = np.argsort(to, kind="stable")
    bounds = np.searchsorted(to[order], np.arange(world.size + 1))
    came, counts = [], np.zeros(world.size, np.int64)
    for array in arrays:
        rows = np.ascontiguousarray(array[order])
        parts = [rows[a:b].reshape(-1).view(np.uint8) for a, b in itertools.pairwise(bounds)]
        received = world.exchange(parts)
        width = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
        counts = np.array([len(part) for part in received]) // max(1, width)
        whole = np.concatenate(received).view(array.dtype)
        came.append(whole.reshape(-1, *array.shape[1:]))
    return came, counts


def ask_rows(
    world: World,
    wanted: np.ndarray,
    ranks: np.ndarray,
    held: np.ndarray,
    arrays: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Get copies of rows that other ranks hold; all ranks call this.

    `wanted`, `ranks`: (n,): numbers of the rows that this rank wants, and who holds each; `held`:
    (own,): numbers of this rank's rows, in any order; `arrays`: each (own, ...).
    """
    (asked,), counts = give_rows(world, [wanted], ranks)
    ascending = np.argsort(held, kind="stable")
    row = ascending[np.searchsorted(held[ascending], asked)] if len(held) else asked[:0]
    back = np.repeat(np.arange(world.size), counts)
    answers, _ = give_rows(world, [array[row] for array in arrays], back)
    place = np.empty(len(wanted), np.int64)
    place[np.argsort(ranks, kind="stable")] = np.arange(len(wanted))
    return [answer[place] for answer in answers]


def rows_on_root(
    world: World, values: np.ndarray, numbers: np.ndarray, begin: int, end: int
) -> np.ndarray | None:
    """Rows `begin` to `end` of what ranks have parts of, put together on rank 0; all call this.

    `values`: (n, ...): this rank's rows out of that range; `numbers`: (n,): which they are; each
    row of the range is on one rank.
    """
    places, rows = _to_root(world, numbers), _to_root(world, values)
    if places is None or rows is None:
        return None
    result = np.empty((end - begin, *values.shape[1:]), values.dtype)
    result[places - begin] = rows
    return result


def _to_root(world: World, values: np.ndarray) -> np.ndarray | None:
    """Rows of all ranks one after the other on rank 0; None elsewhere."""
    none = np.empty(0, np.uint8)
    mine = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    came = world.exchange([mine, *[none] * (world.size - 1)])
    if not world.is_root:
        return None
    return np.concatenate(came).view(values.dtype).reshape(-1, *values.shape[1:])


def refuse_together(world: World, fault: str) -> None:
    """Raise what any rank has found wrong, on all of them; all ranks call this."""
    faults = [text for text in world.gather_texts(fault) if text]
    if faults:
        raise InputError(faults[0])


def all_rows(world: World, values: np.ndarray) -> np.ndarray:
    """All ranks' rows on every rank, in the order of ranks; all ranks call this."""
    if world.size == 1 or not world.present:
        return values
    part = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    whole = np.concatenate(world.exchange([part] * world.size)).view(values.dtype)
    return whole.reshape(-1, *values.shape[1:])
