"""Plans of an exchange: boxes or listed entries for each neighbour, found by set-up messages of rows."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from haloscope.device.interface import Box
from haloscope.errors import FIELDS, HaloscopeError, InputError
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
    places, rows = to_root(world, numbers), to_root(world, values)
    if not world.is_root:
        return None
    result = np.empty((end - begin, *values.shape[1:]), values.dtype)
    result[places - begin] = rows
    return result


def to_root(world: World, values: np.ndarray) -> np.ndarray:
    """Rows of all ranks one after the other on rank 0; none elsewhere; all ranks call this."""
    none = np.empty(0, np.uint8)
    mine = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    came = world.exchange([mine, *[none] * (world.size - 1)])
    if not world.is_root:
        return values[:0]
    return np.concatenate(came).view(values.dtype).reshape(-1, *values.shape[1:])


def first_fault(world: World, fault: HaloscopeError | str | None) -> dict[str, str] | None:
    """The fields of the fault of the first rank that has one; all ranks call this."""
    text = ""
    if fault:
        error = HaloscopeError(fault) if isinstance(fault, str) else fault
        text = json.dumps({field: getattr(error, field) for field in FIELDS})
    fields: dict[str, str] | None = None
    for rank_text in world.gather_texts(text):
        if rank_text and fields is None:
            fields = json.loads(rank_text)
    return fields


def refuse_together(world: World, fault: InputError | str | None) -> None:
    """Raise the fault of the first rank that has one, on all ranks; all ranks call this."""
    fields = first_fault(world, fault)
    if fields is not None:
        raise InputError(**fields)


def all_rows(world: World, values: np.ndarray) -> np.ndarray:
    """All ranks' rows on every rank, in the order of ranks; all ranks call this."""
    if world.size == 1:
        return values
    part = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    whole = np.concatenate(world.exchange([part] * world.size)).view(values.dtype)
    return whole.reshape(-1, *values.shape[1:])


# It knows no lattice and no mesh. Each rank says which numbers it wants copies of, and where in its
# array each belongs; owners say where they hold theirs. Of that two lists of indices come for each
# pair of ranks, the same number of entries in the same order.

Listed = tuple[tuple[int, np.ndarray], ...]
Find = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Lists:
    """Indices of entries that go to other ranks, and of those that come from them."""

    # The other rank and int64 indices in this rank's array, by ascending rank; the other rank lists
    # as many in the same order. A rank may send to itself.
    sends: Listed
    receives: Listed

    @property
    def sent(self) -> np.ndarray:
        """Indices of all entries that go out, one message after the other."""
        return _joined(self.sends)

    @property
    def received(self) -> np.ndarray:
        """Indices of all entries that come in, one message after the other."""
        return _joined(self.receives)

    @property
    def reversed(self) -> Lists:
        """The way back."""
        return Lists(self.receives, self.sends)


def by_number(numbers: np.ndarray, indices: np.ndarray) -> Find:
    """Find indices of entries by their numbers, in any order; -1 where a number is unknown."""
    order = np.argsort(numbers, kind="stable")
    ascending, places = numbers[order], indices[order]

    def find(wanted: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(ascending, wanted), max(len(ascending) - 1, 0))
        if not len(ascending):
            return np.full(len(wanted), -1)
        return np.where(ascending[at] == wanted, places[at], -1)

    return find


def find_lists(
    world: World, wanted: np.ndarray, indices: np.ndarray, owners: np.ndarray, find: Find
) -> Lists:
    """Make the lists of an exchange; all ranks call this.

    It takes three collective calls; a rank sends 8 bytes for each number that it wants.
    """
    # `wanted`, `indices`: int64 numbers of which this rank wants copies, and where in its array
    # they belong.
    strangers = (owners < 0) | (owners >= world.size)
    fault = None
    if strangers.any():
        fault = _missing(world.rank, int(wanted[strangers.argmax()]), "any rank")
        wanted, indices, owners = (rows[~strangers] for rows in (wanted, indices, owners))
    (came,), counts = give_rows(world, [np.asarray(wanted, np.int64)], owners)
    asked = np.split(came, np.cumsum(counts)[:-1])
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=world.size)
    targets = np.split(np.asarray(indices, np.int64)[order], np.cumsum(counts)[:-1])
    sources = [np.asarray(find(part), np.int64) for part in asked]
    for rank, (part, positions) in enumerate(zip(asked, sources, strict=True)):
        if not fault and (positions < 0).any():
            fault = _missing(rank, int(part[(positions < 0).argmax()]), f"rank {world.rank}")
    refuse_together(world, fault)
    return Lists(_listed(sources), _listed(targets))


def _missing(rank: int, number: int, where: str) -> InputError:
    return InputError(
        f"rank {rank} needs value number {number}, which {where} does not have",
        remedy="pass the owner of each number",
    )


def _listed(parts: Sequence[np.ndarray]) -> Listed:
    return tuple((rank, part) for rank, part in enumerate(parts) if len(part))


def _joined(listed: Listed) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(indices for _, indices in listed)])


# A chunk is what a block of GPU threads moves at a time: a few values a thread, about one chunk of a
# message for each multiprocessor. Larger messages have more, which are unpacked while others travel.
_LEAST_CHUNK = 512
_CHUNK_MULTIPLE = 256
_CHUNKS_A_MESSAGE = 132
_LARGE_CHUNK = 2048
_LARGEST_CHUNK = 4096
_CHUNKS_A_LARGE_MESSAGE = 4 * _CHUNKS_A_MESSAGE


@dataclass(frozen=True)
class Message:
    """All that goes between this rank and one other in one direction."""

    rank: int  # The other rank; may be this one, where a periodic grid meets itself
    boxes: tuple[Box, ...]  # What is packed or unpacked, in order

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(box.size for box in self.boxes)


@dataclass(frozen=True)
class Plan:
    """The messages of one exchange, sorted by the other rank."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


def cut(message: Message) -> list[tuple[Box, int, int]]:
    """Cut a message into chunks: box, first value in it, values; sender and receiver cut alike."""
    size = -(-message.size // _CHUNKS_A_MESSAGE)
    if size > _LARGE_CHUNK:
        size = max(_LARGE_CHUNK, -(-message.size // _CHUNKS_A_LARGE_MESSAGE))
        size = min(_LARGEST_CHUNK, size)
    size = max(_LEAST_CHUNK, size)
    size = -(-size // _CHUNK_MULTIPLE) * _CHUNK_MULTIPLE
    return [
        (box, begin, min(size, box.size - begin))
        for box in message.boxes
        for begin in range(0, box.size, size)
    ]


def check_plans(world: World, plan: Plan) -> None:
    """Make sure that what each rank sends is what the other expects; all ranks call this."""
    said, expected = (np.zeros((world.size, 2), np.int64) for _ in range(2))
    for table, messages in ((said, plan.sends), (expected, plan.receives)):
        for message in messages:
            counts = np.array([box.counts for box in message.boxes], np.int64)
            table[message.rank] = message.size, zlib.crc32(counts.tobytes())
    heard = world.alltoall(said)
    wrong = next((r for r in range(world.size) if tuple(heard[r]) != tuple(expected[r])), None)
    fault = None
    if wrong is not None:
        fault = InputError(
            "the exchange plans of two ranks do not match: "
            f"rank {wrong} sends {heard[wrong][0]} values to rank {world.rank}, which expects "
            f"{expected[wrong][0]}"
            + (" in other boxes" if heard[wrong][0] == expected[wrong][0] else ""),
            remedy="give every rank the same case and settings",
        )
    refuse_together(world, fault)


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
    (questions,), counts = give_rows(world, [np.stack([numbers, copies], axis=1)], owner)
    rows, ranks = _answer(questions, counts)
    (answers,), counts = give_rows(world, [rows], ranks)
    # Owners name a group by its place in the question that they were asked.
    asked = np.argsort(owner, kind="stable")
    begin = np.searchsorted(owner[asked], np.repeat(np.arange(world.size), counts))
    group = asked[begin + answers[:, 0]]
    order = np.lexsort((group, answers[:, 1]))
    return group[order], answers[order, 1], answers[order, 2]


def _answer(questions: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Answer of an owner: place in a question, other rank, that one's copies; and to which rank it goes.

    `questions`: (n, 2): numbers and copies, of so many rows from each rank.
    """
    rank = np.repeat(np.arange(len(sizes)), sizes)
    place = ranges(np.zeros(len(sizes), np.int64), sizes)
    number, copies = questions.T
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
    rows = np.stack([place[one], rank[other], copies[other]], axis=1)
    return rows, rank[one]


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
