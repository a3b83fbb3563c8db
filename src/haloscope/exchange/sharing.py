"""Shared values: finds their sharers from one number for each value, on all ranks in parallel.

A value position carries a number that is the same all over the world for all copies of the value.
Each rank tells the owners of its numbers (rank = number modulo ranks) which it has, and owners
answer who else has them. No rank ever holds more than its own numbers and as many again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from haloscope.errors import InputError
from haloscope.exchange.plan import Box, Message, Plan, refuse_together
from haloscope.exchange.ranks.world import World


@dataclass(frozen=True)
class Sharing:
    """The copies of each value on this rank, and the other ranks that hold more of them."""

    # A group is all positions of this rank that carry one number; groups are in the order of their
    # numbers. A share is a group and one other rank that has the number too; shares are sorted by
    # that rank, then by group, so that both ranks list theirs in the same order.

    rank: int  # This rank
    size: int  # Number of positions that numbers were given for
    numbers: np.ndarray  # The number of each group
    starts: np.ndarray  # Where each group begins in `positions`, and at last its end
    positions: np.ndarray  # Positions of all groups, ascending within each
    # Of each share: the group, the other rank, and how many copies that one holds.
    groups: np.ndarray
    ranks: np.ndarray
    copies: np.ndarray

    @property
    def here(self) -> np.ndarray:
        """Copies of each group on this rank."""
        counts: np.ndarray = np.diff(self.starts)
        return counts

    @property
    def everywhere(self) -> np.ndarray:
        """Copies of each group on all ranks."""
        elsewhere = np.bincount(self.groups, self.copies, len(self.numbers))
        counts: np.ndarray = self.here + elsewhere.astype(np.int64)
        return counts

    @property
    def first_positions(self) -> np.ndarray:
        """The first position of each group."""
        first: np.ndarray = self.positions[self.starts[:-1]]
        return first

    @property
    def partners(self) -> np.ndarray:
        """Of each position the other one of this rank with the same number; -1: it is not here."""
        pairs = self.positions[ranges(self.starts[:-1][self.here == 2], 2)].reshape(-1, 2)
        partners = np.full(self.size, -1)
        partners[pairs] = pairs[:, ::-1]
        return partners


def ranges(starts: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    """All of start, start + 1, ..., start + count - 1, one range after the other."""
    counts = np.broadcast_to(counts, starts.shape)
    before = np.cumsum(counts) - counts
    whole: np.ndarray = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
    return whole


def find_sharing(world: World, ids: np.ndarray) -> Sharing:
    """Find who shares what; all ranks call this.

    `ids`: a whole number for each value position of this rank, in any shape. Positions with the
    same number, on one rank or on many, hold copies of one value. 0 or less: nobody's.
    """
    refuse_together(world, _fault(np.asarray(ids)))
    flat = np.asarray(ids).reshape(-1).astype(np.int64, copy=False)
    kept = np.flatnonzero(flat > 0)
    # A stable sort leaves positions ascending within a group.
    positions = kept[np.argsort(flat[kept], kind="stable")]
    in_order = flat[positions]
    starts = np.flatnonzero(np.diff(in_order, prepend=0))
    numbers = in_order[starts]
    starts = np.append(starts, len(positions))
    groups, ranks, copies = _ask_owners(world, numbers, np.diff(starts))
    return Sharing(world.rank, flat.size, numbers, starts, positions, groups, ranks, copies)


def _fault(ids: np.ndarray) -> InputError | None:
    if ids.dtype.kind not in "iu":
        return InputError(f"global numbers are {ids.dtype}", allowed="64-bit integers")
    if ids.dtype == np.uint64 and ids.size and int(ids.max()) > np.iinfo(np.int64).max:
        return InputError(
            f"the global number {ids.max()} is too large", allowed="numbers below 2**63"
        )
    return None


def _ask_owners(
    world: World, numbers: np.ndarray, copies: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each share: group, other rank, that one's copies; sorted by rank, then group."""
    owner = numbers % world.size
    asked = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[asked], np.arange(world.size + 1))
    questions = np.stack([numbers, copies], axis=1)[asked]
    came = _swap_rows(world, questions, bounds)
    answers = _swap_rows(world, *_answer(came))
    # Owners name a group by its place in the question that they were asked.
    place = np.concatenate(answers)
    from_owner = np.repeat(np.arange(world.size), [len(rows) for rows in answers])
    group = asked[bounds[from_owner] + place[:, 0]]
    order = np.lexsort((group, place[:, 1]))
    return group[order], place[order, 1], place[order, 2]


def _answer(questions: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Answer of an owner to all ranks: place in their question, other rank, that one's copies."""
    sizes = np.array([len(rows) for rows in questions])
    rank = np.repeat(np.arange(len(sizes)), sizes)
    place = ranges(np.zeros(len(sizes), np.int64), sizes)
    number, copies = np.concatenate(questions).T
    order = np.argsort(number, kind="stable")
    start = np.flatnonzero(np.diff(number[order], prepend=0))
    holders = np.diff(np.append(start, len(order)))
    start, holders = start[holders > 1], holders[holders > 1]
    # Each holder of a number against each: holder i of all, and the group that it meets.
    one = ranges(start, holders)
    met = np.repeat(holders, holders)
    other = order[ranges(np.repeat(start, holders), met)]
    one = order[np.repeat(one, met)]
    one, other = one[one != other], other[one != other]
    by_rank = np.argsort(rank[one], kind="stable")
    one, other = one[by_rank], other[by_rank]
    rows = np.stack([place[one], rank[other], copies[other]], axis=1)
    return rows, np.searchsorted(rank[one], np.arange(len(sizes) + 1))


def _swap_rows(world: World, rows: np.ndarray, bounds: np.ndarray) -> list[np.ndarray]:
    """Give rows ``bounds[r]`` to ``bounds[r + 1]`` to rank r; what came from each."""
    width = rows.shape[1]
    parts = [rows[a:b].reshape(-1).view(np.uint8) for a, b in itertools.pairwise(bounds)]
    # Bytes that arrive may begin anywhere.
    return [
        np.frombuffer(part.tobytes(), np.int64).reshape(-1, width) for part in world.exchange(parts)
    ]


def message_order(world: World, sharing: Sharing) -> np.ndarray:
    """Order in which shares go into messages, ascending in rank; the other rank's is the same."""
    order = np.arange(len(sharing.groups))
    bounds = np.searchsorted(sharing.ranks, np.arange(world.size + 1))
    first = sharing.first_positions[sharing.groups]
    none = np.empty(0, np.uint8)
    orders = [none] * world.size
    for rank in range(world.rank + 1, world.size):
        begin, end = bounds[rank : rank + 2]
        positions_order = np.argsort(first[begin:end], kind="stable")
        order[begin:end] = begin + positions_order
        orders[rank] = positions_order.view(np.uint8)
    for rank, part in enumerate(world.exchange(orders)[: world.rank]):
        begin, end = bounds[rank : rank + 2]
        order[begin:end] = begin + np.frombuffer(part.tobytes(), np.int64)
    return order


def plan_of(sharing: Sharing, fields: int) -> Plan:
    """One message to each rank that shares anything, and one from it, with all fields."""
    ranks, counts = np.unique(sharing.ranks, return_counts=True)
    messages = tuple(
        Message(int(rank), (Box(0, (fields, int(n), 1), (1, fields, fields * int(n))),))
        for rank, n in zip(ranks, counts, strict=True)
    )
    return Plan(messages, messages)


def check_pairs(world: World, sharing: Sharing) -> None:
    """Make sure that each number occurs twice in the world; all ranks call this."""
    copies = sharing.everywhere
    lowest = np.full(len(sharing.numbers), world.rank)
    np.minimum.at(lowest, sharing.groups, sharing.ranks)
    mine = lowest == world.rank
    wrong = np.flatnonzero(copies != 2)
    first = (sharing.numbers[wrong[0]], copies[wrong[0]]) if len(wrong) else (0, 0)
    said = np.array([np.sum(mine & (copies == 1)), np.sum(mine & (copies > 2)), *first], np.int64)
    heard = world.alltoall(np.tile(said, (world.size, 1)))
    once, more = heard[:, :2].sum(axis=0)
    if once + more == 0:
        return
    rank = min(np.flatnonzero(heard[:, 3]), key=lambda r: heard[r, 2])
    number, count = heard[rank, 2:]
    raise InputError(
        f"of the global numbers to be paired {once} occur once and {more} more than twice; the "
        f"first is {number} on rank {rank} ({count} cop{'y' if count == 1 else 'ies'})",
        remedy="use each number twice, or 0 where a value has no partner",
    )
