"""Exchange of rows that several ranks hold, of which one rank knows each value; rows that a kernel sends itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.device.interface import Array, Box, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.exchange import engine
from haloscope.exchange.choice import Options, of_studies, open_exchange, open_transport
from haloscope.exchange.engine import BLOCK, GATHERING, ROWS, Exchange, Link, Operand, Results
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.ranks.world import World

_WORDS = 6


class DirectRows:
    """Where the rows of other ranks arrive, and where theirs is to go, for GPUs of one host."""

    # A kernel stores this rank's row in all others' memory, raises a flag there, waits for the
    # flags of the others' rows, and reads these. Rows have two places each, for even and for odd
    # exchanges: as all ranks give a row each time, a row that has come says that the one before was
    # read.

    def __init__(self, world: World, device: Device, count: int) -> None:
        others = [rank for rank in range(world.size) if rank != world.rank]
        row = Box(0, (count, 1, 1), (1, count, count))
        messages = tuple(Message(rank, (row,)) for rank in others)
        plan = Plan(messages, messages)
        # It holds the memory that the others have mapped.
        self._transport = open_transport("peer", world, device, plan, np.float64)
        boxes = np.zeros((world.size, _WORDS), np.int64)
        slots = zip(self._transport.outgoing, self._transport.incoming, strict=True)
        for rank, (there, here) in zip(others, slots, strict=True):
            boxes[rank] = there.even, there.odd, there.flags, here.even, here.odd, here.flags
        # For each rank, on the device, (ranks, 6): addresses of the places there for this rank's
        # row in even and in odd exchanges and of its flag, which counts exchanges, then the same of
        # what comes from there; zeros for this rank.
        self.boxes = device.from_host(boxes)


# Which rows are sent may change as often as it likes: messages have room for more rows than there
# are, so that other lists need no message, no new buffers and no new launches, and captured graphs
# stay as they are. Lists come from the host, or kernels write them.

RowNumbers = NDArray[np.int64]
Rooms = Mapping[int, int]

_GROWTH = 1.15
_SPARE_ROWS = 4
# Kernels count the values of a message in 32 bits.
_MOST_VALUES = 2**32 - 1
# Whole numbers as wide as a value.
_WHOLE_NUMBERS = {8: "long", 4: "int"}


def kernel_file(dtype: DTypeLike, fields: int, *, completes: bool) -> KernelFile:
    """The kernels of an exchange of rows of some fields, which completes rows or replaces them."""
    real = _WHOLE_NUMBERS[np.dtype(dtype).itemsize]
    operation = "complete" if completes else "copy"
    return engine.kernel_file(ROWS, real, fields=fields, operation=operation)


class Rows:
    """Rows of arrays, of which each rank sends those that it has listed for each other one.

    `rooms`: rows that there is room for in the messages to each other rank, and in those from it.
    """

    # What a rank lists to send to another, that one lists to get, as many rows in the same order.
    # What comes takes the place of what is there, in any order of messages. Where rows are completed,
    # values that come as +0 leave what is there: then several ranks may send the same row, of which
    # one at most has written anything but +0 as a value, and after it all of them have what that rank
    # wrote, to the last bit.
    #
    # Arrays are flat: all fields one after the other, each of a whole number of rows.

    phases = GATHERING

    def __init__(
        self,
        link: Link,
        rooms: tuple[Rooms, Rooms],
        width: int,
        fields: int,
        *,
        completes: bool = True,
    ) -> None:
        self.link, self.rooms, self.width, self.fields = link, rooms, width, fields
        self._file = kernel_file(link.dtype, fields, completes=completes)
        messages = len(rooms[0])
        # Where the rows of each message begin in the lists.
        self.firsts = tuple(
            messages + np.cumsum([0, *room.values()], dtype=np.int64)[:-1] for room in rooms
        )
        self._listed = [np.zeros(max(1, messages + sum(room.values())), np.int32) for room in rooms]
        # int32, on the device, of rows to send and of those to get: how many there are in each
        # message, in the order of ranks, then these, each message's from :attr:`firsts` on.
        self.lists = tuple(link.device.from_host(listed) for listed in self._listed)
        out, into = (first.tolist() for first in self.firsts)
        self._out = link.outgoing(lambda p: (p.message, out[p.message], p.begin, p.size))
        self._into = link.incoming(lambda p: (p.message, into[p.message], p.begin, p.size))
        self._largest = -1

    def fits(self, sent: Rooms, received: Rooms) -> bool:
        """Whether there is room for so many rows to and from other ranks."""
        return all(
            rank in room and count <= room[rank]
            for counts, room in zip((sent, received), self.rooms, strict=True)
            for rank, count in counts.items()
        )

    def renew(self, sent: Mapping[int, RowNumbers], received: Mapping[int, RowNumbers]) -> None:
        """List other rows; see :func:`renew`."""
        self._largest = -1
        for way, rows in enumerate((sent, received)):
            counts = np.zeros_like(self._listed[way])
            for message, (rank, first) in enumerate(
                zip(self.rooms[way], self.firsts[way].tolist(), strict=True)
            ):
                listed = rows.get(rank, ())
                counts[message] = len(listed)
                counts[first : first + len(listed)] = listed
                self._largest = max(self._largest, int(np.max(listed, initial=-1)))
            if not np.array_equal(counts, self._listed[way]):
                self._listed[way] = counts
                self.lists[way][...] = self.link.device.from_host(counts)

    def require_room(self, array: Array) -> None:
        """Refuse an array beyond whose end rows are listed."""
        values, rows = array.nbytes // array.itemsize, self._largest + 1
        if array.dtype != self.link.dtype or values < self.fields * self.width * rows:
            raise ValueError(
                f"an exchange of rows needs {self.fields} x {self.width} x {rows} values of "
                f"{self.link.dtype}; the array has {values} of {array.dtype}"
            )

    def bind_pack(self, sent: Operand) -> Launch:
        """The launch that packs all messages."""
        return self.link.kernel(self._file, "pack").bind(
            **self._of(sent),
            lists=self.lists[0],
            chunks=self._out.rows,
            count=self._out.count,
            sent=self._out.seen,
            **self.link.options(BLOCK * self._out.count),
        )

    def bind_results(self, sent: Operand, filled: Operand) -> Results:
        """The launch that puts what arrives in its place."""
        unpack = self.link.kernel(self._file, "unpack").bind(
            **self._of(filled),
            lists=self.lists[1],
            chunks=self._into.rows,
            count=self._into.count,
            received=self._into.seen,
            **self.link.options(BLOCK * self._into.count),
        )
        return Results(None, unpack)

    def _of(self, operand: Operand) -> dict[str, Any]:
        """An array as whole numbers, and its layout."""
        array = operand.array
        return {
            "state": operand.retyped(f"i{self.link.dtype.itemsize}").argument,
            "field_stride": array.nbytes // array.itemsize // self.fields,
            "width": self.width,
        }


def open_rows(
    world: World,
    device: Device,
    sent: Rooms,
    received: Rooms,
    width: int,
    fields: int,
    dtype: Any,
    transport: str = "auto",
    *,
    completes: bool = True,
    before: Exchange[Rows] | None = None,
    **options: Unpack[Options],
) -> Exchange[Rows]:
    """Open the exchange of rows that ranks share; all ranks call this, and list rows then.

    `before`: an exchange that this one takes the place of: there is as much room at least.
    """
    out, into = (
        _grown({} if before is None else before.index.rooms[way], counts)
        for way, counts in enumerate((sent, received))
    )
    most = _MOST_VALUES // (width * fields)
    if world.any(any(room > most for room in (*out.values(), *into.values()))):
        raise InputError(
            f"two ranks share more than {most} rows of {fields} x {width} values",
            remedy="use more ranks",
        )
    plan = plan_of_rooms((out, into), width * fields)
    arrange = of_studies("arrange_rows") if transport == "repacked" else None

    def make(link: Link) -> Exchange[Rows]:
        rows = Rows(link, (out, into), width, fields, completes=completes)
        if arrange is not None:
            arrange(rows)
        return Exchange(rows)

    return open_exchange(world, device, plan, dtype, transport, make, repacks=True, **options)


def renew(
    exchange: Exchange[Rows], sent: Mapping[int, RowNumbers], received: Mapping[int, RowNumbers]
) -> None:
    """Exchange other rows from now on; each two ranks do so between the same exchanges."""
    exchange.index.renew(sent, received)
    exchange.drop_short_arrays()


def _grown(room: Rooms, counts: Rooms) -> dict[int, int]:
    """Room for so many rows, and for more where there is not enough yet."""
    rooms = dict(room)
    for rank, count in counts.items():
        if rank not in rooms or count > rooms[rank]:
            rooms[rank] = int(_GROWTH * count) + _SPARE_ROWS
    return {rank: rooms[rank] for rank in sorted(rooms)}


def plan_of_rooms(rooms: tuple[Rooms, Rooms], values: int) -> Plan:
    """One message to each rank that rows are shared with, and one from it, of rows of so many values."""
    sends, receives = (
        tuple(
            Message(rank, (Box(0, (values, room, 1), (1, values, values * room)),))
            for rank, room in peers.items()
        )
        for peers in rooms
    )
    return Plan(sends, receives)
