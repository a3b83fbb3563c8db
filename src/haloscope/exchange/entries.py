"""Exchange of entries anywhere in arrays: copied from lists, or all copies of a value combined or swapped.

:func:`open_lists` copies what :func:`haloscope.exchange.plan.find_lists` has listed from global numbers.
:func:`open_sums` and :func:`open_pairing` know no lists: each rank gives a whole number for each position,
and positions with the same number, on one rank or many, hold copies of one value. Sums (or least or
greatest values) are for continuous elements. A pairing is for numbers that occur twice, such as those of
the points of faces that two discontinuous elements share: each copy gets the other's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.interface import Array, Box, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError, counted
from haloscope.exchange import engine
from haloscope.exchange.choice import Made, Options, of_studies, open_exchange
from haloscope.exchange.engine import (
    BLOCK,
    ENTRIES,
    GATHERING,
    TYPES,
    Exchange,
    Link,
    Operand,
    Piece,
    Results,
    Slot,
    moved_as,
    require_room,
)
from haloscope.exchange.plan import (
    Listed,
    Lists,
    Message,
    Plan,
    Sharing,
    check_pairs,
    find_sharing,
    message_order,
    plan_of,
    ranges,
    refuse_together,
)
from haloscope.exchange.ranks.world import World

_COMBINING = ("sum", "min", "max")
# As in exchange.cpp: blocks of a multiprocessor that run at the same time.
_BLOCKS_TOGETHER = 4
_LARGEST_INT = 2**31 - 1


def kernel_file(
    dtype: DTypeLike, positions: DTypeLike, fields: int, operation: str = "copy"
) -> KernelFile:
    """The kernels that exchange entries of some fields, listed in numbers of a type."""
    real = TYPES[np.dtype(dtype).name]
    return engine.kernel_file(
        ENTRIES, real, positions=positions, fields=fields, operation=operation
    )


def kernel_files(dtype: DTypeLike, fields: int, most_values: float) -> Iterator[KernelFile]:
    """All that an exchange of lists may need whose arrays have at most so many values."""
    for positions in dict.fromkeys(index_type(values) for values in (0, most_values)):
        yield kernel_file(dtype, positions, fields)


def index_type(most: float) -> np.dtype[Any]:
    """Type of positions where arrays and messages hold at most so many values."""
    return np.dtype(np.int32 if most < _LARGEST_INT else np.int64)


@dataclass(frozen=True)
class Placement:
    """Where values lie in a flat array: field f of position p at first + p stride + f field_stride."""

    first: int  # Index of field 0 of position 0
    stride: int  # Distance between two positions
    field_stride: int  # Distance between two fields

    def values(self, positions: int, fields: int) -> int:
        """Values that an array must have for a number of positions."""
        if positions == 0:
            return 0
        return self.first + (positions - 1) * self.stride + (fields - 1) * self.field_stride + 1

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Indices in the array of field 0 of positions."""
        places: np.ndarray = self.first + self.stride * positions
        return places


class Layout(NamedTuple):
    """Fields of an entry, and bounds of arrays and lists."""

    fields: int
    field_stride: int  # Distance between two fields of an entry
    values: int  # Values that an array has at least
    most: int  # Largest number in a list, or one above it


class Ranges(NamedTuple):
    """Ranges of a list of indices: range k is indices[starts[k]:starts[k + 1]]."""

    starts: np.ndarray
    indices: np.ndarray


class Entries:
    """Listed entries of an array: each message has all fields of the entries that it lists.

    `sent`: the indices of the copies of each entry that goes out; `received`: where what arrives belongs.
    """

    # `listed`: entries of each message that goes out, and of each that comes in.
    # `pairs`: indices of copies that this rank swaps itself, two by two.

    phases = GATHERING

    def __init__(
        self,
        link: Link,
        layout: Layout,
        listed: tuple[Sequence[int], Sequence[int]],
        sent: Ranges,
        received: np.ndarray,
        *,
        pairs: np.ndarray | None = None,
        operation: str = "copy",
    ) -> None:
        self.link, self._layout = link, layout
        self._positions = index_type(layout.most)
        self._file = kernel_file(link.dtype, self._positions, layout.fields, operation)
        self._out = link.outgoing(self._words(listed[0]))
        self._into = link.incoming(self._words(listed[1]))
        self._sent = self._ranges(sent)
        self._received = self._on_device(received)
        self._pairs = 0 if pairs is None else len(pairs) // 2
        self._paired = self._on_device(np.zeros(0) if pairs is None else pairs)

    def require_room(self, array: Array) -> None:
        """Refuse an array beyond whose end entries lie."""
        require_room(array, self.link.dtype, self._layout.values, "an exchange of entries")

    def bind_pack(self, sent: Operand) -> Launch:
        """The launch that packs all messages."""
        return self._bind(
            "pack",
            self._out.count * BLOCK,
            state=self._as_moved(sent).argument,
            **self._sent,
            chunks=self._out.rows,
            count=self._out.count,
            sent=self._out.seen,
        )

    def bind_results(self, sent: Operand, filled: Operand) -> Results:
        """The launches that swap copies of this rank, and put what arrives in its place."""
        within = None
        if self._pairs:
            within = self._bind(
                "swap_within",
                self._pairs,
                state=sent.array,
                into=filled.array,
                pairs=self._pairs,
                paired=self._paired,
            )
        unpack = self._bind(
            "unpack",
            self._into.count * BLOCK,
            state=self._as_moved(filled).argument,
            positions=self._received,
            chunks=self._into.rows,
            count=self._into.count,
            received=self._into.seen,
        )
        return Results(within, unpack)

    def _bind(self, name: str, threads: int, **arguments: Any) -> Launch:
        return self.link.kernel(self._file, name).bind(
            field_stride=self._layout.field_stride, **arguments, **self.link.options(threads)
        )

    def _as_moved(self, operand: Operand) -> Operand:
        moved = moved_as(self.link.dtype)
        return operand if moved == self.link.dtype else operand.retyped(moved)

    def _words(self, listed: Sequence[int]) -> Callable[[Piece], tuple[int, int]]:
        """First value of a piece among those of all messages, and its values."""
        # A message that only keeps two ranks in step has flags, and nothing to pack.
        values = [self._layout.fields * entries for entries in listed]
        firsts = np.cumsum([0, *values]).tolist()
        return lambda piece: (
            firsts[piece.message] + piece.begin,
            min(piece.size, values[piece.message]),
        )

    def _ranges(self, ranges: Ranges) -> dict[str, Array]:
        """Ranges by the names that kernels have for both arrays."""
        return {
            "starts": self._on_device(ranges.starts),
            "positions": self._on_device(ranges.indices),
        }

    def _on_device(self, values: np.ndarray) -> Array:
        return self.link.device.from_host(np.ascontiguousarray(values, self._positions))


class Sums(Entries):
    """All copies of each value, which are combined, with the result in all of them."""

    # A rank combines its own copies in the order of their positions; what comes to it from others
    # and its own part are then combined in the order of ranks. So all copies get the same bits, on
    # all ranks, and the same on every run. Sums do depend, in their last bits, on which rank holds
    # which copy. The least and greatest values do not, but for the sign of a zero; a NaN among the
    # copies gives a NaN.

    def __init__(
        self, link: Link, copies: Copies, layout: Layout, *, operation: str = "sum"
    ) -> None:
        sharing, order = copies.sharing, copies.order
        in_memory = np.argsort(sharing.first_positions, kind="stable")
        shared = np.zeros(len(sharing.numbers), bool)
        shared[sharing.groups] = True
        inner = in_memory[~shared[in_memory]]
        two, more = (inner[shared[inner]] for shared in (sharing.here == 2, sharing.here > 2))
        outer = in_memory[shared[in_memory]]
        pairs = copies.ranges(two).indices
        sent = copies.ranges(sharing.groups[order])
        super().__init__(
            link, layout, copies.listed, sent, np.zeros(0), pairs=pairs, operation=operation
        )
        self._inner, self._inner_ranges = len(more), self._ranges(copies.ranges(more))
        self._outer, self._outer_ranges = len(outer), self._ranges(copies.ranges(outer))
        # Where what other ranks say of each group is found, in the order of ranks.
        place = np.empty(len(sharing.numbers), np.int64)
        place[outer] = np.arange(len(outer))
        group = place[sharing.groups[order]]
        by_group = np.argsort(group, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(group, minlength=len(outer))))
        lower = np.bincount(group[sharing.ranks[order] < sharing.rank], minlength=len(outer))
        incoming = link.transport.incoming
        arrived, even, odd = _arrivals(link.plan.receives, incoming, layout.fields, link.dtype)
        halves = [even[by_group], odd[by_group]] if link.flagged else [even[by_group]]
        # Arguments of kernels.
        self._others = {
            "other_starts": self._on_device(starts),
            "others": self._on_device(np.concatenate(halves)),
            "lower": self._on_device(lower),
            "arrived": arrived,
            "odd": len(odd) if link.flagged else 0,
        }
        # GPUs that notify each other by flags do all of it in one launch.
        self._in_one = link.flagged and not self._pairs and not self._inner
        most = _BLOCKS_TOGETHER * link.device.multiprocessors
        self._blocks = min(most, max(1, self._out.count, -(-self._outer // BLOCK)))
        self._counters = link.device.zeros((3,), np.int64)

    def bind_results(self, sent: Operand, filled: Operand) -> Results:
        """The launches that combine this rank's copies, and those of all ranks."""
        state, into = sent.array, filled.array
        if self._in_one:
            unpack, both = (self._bind_swap(state, into, sends) for sends in (0, self._out.count))
            return Results(None, unpack, both)
        waits = self._into.count if self.link.flagged else 0
        within = None
        if self._pairs or self._inner or waits:
            within = self._bind(
                "within",
                max(self._pairs, self._inner, waits),
                state=state,
                into=into,
                pairs=self._pairs,
                paired=self._paired,
                groups=self._inner,
                **self._inner_ranges,
                chunks=self._into.rows,
                count=waits,
                received=self._into.seen,
            )
        unpack = self._bind(
            "unpack",
            self._outer,
            state=state,
            into=into,
            groups=self._outer,
            **self._outer_ranges,
            **self._others,
            received=self._into.seen,
        )
        return Results(within, unpack)

    def _bind_swap(self, state: Array, into: Array, sends: int) -> Launch:
        return self._bind(
            "swap",
            self._blocks * BLOCK,
            state=state,
            into=into,
            out_starts=self._sent["starts"],
            out_positions=self._sent["positions"],
            outgoing=self._out.rows,
            sends=sends,
            sent=self._out.seen,
            groups=self._outer,
            **self._outer_ranges,
            **self._others,
            incoming=self._into.rows,
            count=self._into.count,
            received=self._into.seen,
            counters=self._counters,
        )


def _arrivals(
    messages: Sequence[Message], slots: Sequence[Slot], fields: int, dtype: np.dtype[Any]
) -> tuple[int, np.ndarray, np.ndarray]:
    """An address, and how many values after it each entry lies in even and in odd exchanges."""
    base = min((min(slot.even, slot.odd) for slot in slots), default=0)
    halves: list[list[np.ndarray]] = [[np.empty(0, np.int64)], [np.empty(0, np.int64)]]
    for message, slot in zip(messages, slots, strict=True):
        entries = np.arange(0, message.size, fields)
        for half, address in zip(halves, (slot.even, slot.odd), strict=True):
            half.append((address - base) // dtype.itemsize + entries)
    return base, np.concatenate(halves[0]), np.concatenate(halves[1])


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies of values of some fields, where they lie, and their order in messages."""

    sharing: Sharing
    order: np.ndarray  # Of shares, as :func:`haloscope.exchange.plan.message_order` has it
    fields: int
    placement: Placement

    @property
    def plan(self) -> Plan:
        """One message to each rank that shares anything, and one from it."""
        return plan_of(self.sharing, self.fields)

    @property
    def listed(self) -> tuple[list[int], list[int]]:
        """Entries of each message that goes out, and of each that comes in."""
        entries = [message.size // self.fields for message in self.plan.sends]
        return entries, entries

    @property
    def layout(self) -> Layout:
        """Bounds of arrays and lists."""
        values = self.placement.values(self.sharing.size, self.fields)
        # Messages may have two places each, with room for flags and gaps between them.
        most = max(values, 4 * sum(message.size for message in self.plan.sends))
        return Layout(self.fields, self.placement.field_stride, values, most)

    def ranges(self, groups: np.ndarray) -> Ranges:
        """The copies on this rank of some groups."""
        sharing = self.sharing
        counts = sharing.here[groups]
        positions = sharing.positions[ranges(sharing.starts[groups], counts)]
        return Ranges(np.append(0, np.cumsum(counts)), self.placement.at(positions))


def _copies_of(
    world: World, ids: np.ndarray | Sharing, fields: int, dtype: Any, placement: Placement | None
) -> Copies:
    """The copies of values by their numbers; all ranks call this."""
    sharing = ids if isinstance(ids, Sharing) else find_sharing(world, ids)
    if fields < 1:
        raise InputError("out of range", location=f"fields = {fields}", allowed="1 or more")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise InputError(
            "wrong type", location=f"dtype = {np.dtype(dtype)}", allowed="float32 or float64"
        )
    place = placement or Placement(0, 1, sharing.size)
    return Copies(sharing, message_order(world, sharing), fields, place)


def open_sums(
    world: World,
    device: Device,
    ids: np.ndarray | Sharing,
    fields: int,
    dtype: Any,
    transport: str = "auto",
    *,
    operation: str = "sum",
    placement: Placement | None = None,
    kind: type[Exchange[Sums]] = Exchange,
    **options: Unpack[Options],
) -> Exchange[Sums]:
    """Open the combination of all copies of values; all ranks call this.

    `ids`: a whole number for each value position of this rank, in any shape; 0 or less: nobody's.
    Or what :func:`find_sharing` has made of them. `operation`: sum, min or max.
    """
    # `placement`: where they lie; by default field after field, each as long as `ids`.
    if operation not in _COMBINING:
        raise InputError(
            "unknown operation", location=f"operation {operation!r}", allowed=", ".join(_COMBINING)
        )
    copies = _copies_of(world, ids, fields, dtype, placement)
    layout = copies.layout

    def sums(link: Link) -> Exchange[Sums]:
        return kind(Sums(link, copies, layout, operation=operation))

    return _open_copies(world, device, copies, dtype, transport, sums, options)


def open_pairing(
    world: World,
    device: Device,
    ids: np.ndarray | Sharing,
    fields: int,
    dtype: Any,
    transport: str = "auto",
    *,
    placement: Placement | None = None,
    across_only: bool = False,
    **options: Unpack[Options],
) -> Exchange[Entries]:
    """Open the swap between the two copies of each value; all ranks call this, as :func:`open_sums`.

    Values are copied, never changed, so results are the same bits with any ranks.
    """
    copies = _copies_of(world, ids, fields, dtype, placement)
    sharing = copies.sharing
    check_pairs(world, sharing)
    inner = np.flatnonzero(sharing.here == 2)
    inner = inner[np.argsort(sharing.first_positions[inner], kind="stable")]
    pairs = copies.ranges(inner[:0] if across_only else inner).indices
    sent = copies.ranges(sharing.groups[copies.order])
    layout = copies.layout

    def pairing(link: Link) -> Exchange[Entries]:
        return Exchange(Entries(link, layout, copies.listed, sent, sent.indices, pairs=pairs))

    return _open_copies(world, device, copies, dtype, transport, pairing, options)


def _open_copies(
    world: World,
    device: Device,
    copies: Copies,
    dtype: Any,
    transport: str,
    make: Callable[[Link], Made],
    options: Options,
) -> Made:
    if options.get("state") is None and device.kind != "cpu":
        options["state"] = device.zeros((copies.layout.values,), dtype)
    return open_exchange(world, device, copies.plan, dtype, transport, make, **options)


def open_lists(
    world: World,
    device: Device,
    lists: Lists,
    dtype: Any,
    transport: str = "auto",
    *,
    fields: int = 1,
    field_stride: int = 0,
    **options: Unpack[Options],
) -> Exchange[Entries]:
    """Open an exchange of listed entries, from owners to those who hold copies; all ranks call this."""
    if fields < 1:
        raise InputError("out of range", location=f"fields = {fields}", allowed="1 or more")
    if fields > 1 and field_stride < 1:
        raise InputError(
            f"{fields} fields need a distance from one to the next",
            location=f"field_stride = {field_stride}",
            allowed="1 or more",
        )
    if np.dtype(dtype).name not in TYPES:
        raise InputError(
            "wrong type",
            location=f"dtype = {np.dtype(dtype)}",
            allowed="float16, float32 or float64",
        )
    plan = plan_of_lists(lists, fields, both_ways=device.kind != "cpu")
    last = max(int(at.max(initial=-1)) for at in (lists.sent, lists.received))
    values = last + 1 + (fields - 1) * field_stride if last >= 0 else 0
    layout = Layout(fields, field_stride, values, values)
    if options.get("state") is None and transport == "auto" and device.kind != "cpu":
        options["state"] = device.zeros((values,), dtype)
    make_entries = entries_of_lists
    if transport == "repacked":
        make_entries = of_studies("repacked_entries")

    return open_exchange(
        *(world, device, plan, dtype, transport),
        lambda link: Exchange(make_entries(link, layout, lists)),
        repacks=True,
        **options,
    )


def entries_of_lists(link: Link, layout: Layout, lists: Lists) -> Entries:
    """The entries of lists; each that goes out is made of one value of each field: ranges of one."""
    sent = Ranges(np.arange(len(lists.sent) + 1), lists.sent)
    listed = tuple(
        [len(dict(entries).get(message.rank, ())) for message in messages]
        for messages, entries in (
            (link.plan.sends, lists.sends),
            (link.plan.receives, lists.receives),
        )
    )
    return Entries(link, layout, (listed[0], listed[1]), sent, lists.received)


def plan_of_lists(lists: Lists, fields: int, *, both_ways: bool) -> Plan:
    """One message to each rank that is sent to, and one from each that is received from.

    With `both_ways` a rank that only sends to another gets a message of one entry from it that
    nobody reads: transports between GPUs keep in step by what comes back.
    """
    ranks = {rank for rank, _ in (*lists.sends, *lists.receives)} if both_ways else set()

    def messages(listed: Listed) -> tuple[Message, ...]:
        entries = {**dict.fromkeys(ranks, 1), **{rank: len(at) for rank, at in listed}}
        return tuple(
            Message(rank, (Box(0, (fields, n, 1), (1, fields, fields * n)),))
            for rank, n in sorted(entries.items())
        )

    return Plan(messages(lists.sends), messages(lists.receives))


def require_single_copies(world: World, lists: Lists) -> None:
    """Refuse lists by which several copies would go back to one entry; all ranks call this."""
    indices = np.sort(lists.sent)
    twice = indices[1:][np.diff(indices) == 0]
    fault = None
    if len(twice):
        fault = InputError(
            f"entry {twice[0]} of rank {world.rank} has several copies, which cannot all be sent "
            f"back to it ({counted(len(np.unique(twice)), 'entry', 'entries')} in all)",
            remedy="request each entry on one rank, once",
        )
    refuse_together(world, fault)
