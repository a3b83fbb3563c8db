"""Exchange of rows that several ranks hold, of which one rank knows each value; rows that a kernel sends itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.exchange.choice import open_by_name, open_transport
from haloscope.exchange.packed import BLOCK, Bound, Chunks, Copying
from haloscope.exchange.plan import Box, Message, Plan, rows_in_memory_order
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import Slot, Transport
from haloscope.exchange.transports.study import RepackedTransport

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


# It knows no cell and no mesh. Which rows are sent may change as often as it likes: messages have
# room for more rows than there are, so that other lists need no message, no new buffers and no new
# launches, and captured graphs stay as they are. Lists come from the host, or kernels write them.

_SOURCE = Path(__file__).with_name("shared_rows.cpp")
Rows = NDArray[np.int64]
Rooms = Mapping[int, int]

_GROWTH = 1.15
_SPARE_ROWS = 4
# Kernels count the values of a message in 32 bits.
_MOST_VALUES = 2**32 - 1
# Of the rows for shared_rows.cpp.
_COLUMNS = 7
# Whole numbers as wide as a value.
_ROW_WORDS = {8: "long", 4: "int"}


def kernel_file(dtype: DTypeLike, fields: int, *, completes: bool) -> KernelFile:
    """The kernels of an exchange of rows of some fields, which completes rows or replaces them."""
    real = _ROW_WORDS[np.dtype(dtype).itemsize]
    return KernelFile(_SOURCE, {"real": real, "FIELDS": fields, "COMPLETES": int(completes)})


class SharedRows(Copying):
    """Repeated exchange of rows: each rank sends those that it has listed for each other one."""

    # Contract: all ranks call `start` and `finish` in turn and in the same order, and leave rows
    # that are listed alone in between. What a rank lists to send to another, that one lists to get,
    # as many rows in the same order. What comes takes the place of what is there, in any order of
    # messages. Where rows are completed, values that come as +0 leave what is there: then several
    # ranks may send the same row, of which one at most has written anything but +0 as a value, and
    # after it all of them have what that rank wrote, to the last bit. What `finish` gives is in
    # place for kernels launched after it on the same stream. One message goes to each rank that
    # rows are shared with.
    #
    # Arrays are flat: all fields one after the other, each of a whole number of rows.
    #
    # Made by :func:`open_shared_rows`.

    def __init__(
        self,
        device: Device,
        rooms: tuple[Rooms, Rooms],
        width: int,
        fields: int,
        dtype: Any,
        transport: Transport,
        stream: Any = None,
        *,
        completes: bool = True,
    ) -> None:
        plan = plan_of_rooms(rooms, width * fields)
        super().__init__(device, plan, dtype, transport, stream)
        self._width, self._fields = width, fields
        self._constants = kernel_file(self._dtype, fields, completes=completes).constants
        # Rows that there is room for in the messages to each other rank, and in those from it.
        self.rooms = rooms
        messages = len(rooms[0])
        # Where the rows of each message begin in the lists.
        self.firsts = tuple(
            messages + np.cumsum([0, *room.values()], dtype=np.int64)[:-1] for room in rooms
        )
        self._listed = [np.zeros(max(1, messages + sum(room.values())), np.int32) for room in rooms]
        # int32, on the device, of rows to send and of those to get: how many there are in each
        # message, in the order of ranks, then these, each message's from :attr:`firsts` on.
        self.lists = tuple(device.from_host(listed) for listed in self._listed)
        if isinstance(transport, RepackedTransport):
            orders = (rows_in_memory_order(list(room.values()), width, fields) for room in rooms)
            transport.arrange(*orders)
        self._out = self._chunks(plan.sends, transport.outgoing, self.firsts[0])
        self._into = self._chunks(plan.receives, transport.incoming, self.firsts[1])
        self._largest = -1

    def fits(self, sent: Rooms, received: Rooms) -> bool:
        """Whether there is room for so many rows to and from other ranks."""
        return all(
            rank in room and count <= room[rank]
            for counts, room in zip((sent, received), self.rooms, strict=True)
            for rank, count in counts.items()
        )

    def renew(self, sent: Mapping[int, Rows], received: Mapping[int, Rows]) -> None:
        """Send other rows from now on; each two ranks do so between the same exchanges."""
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
                self.lists[way][...] = self._device.from_host(counts)

    def _bound(self, state: Array) -> Bound:
        values = state.nbytes // state.itemsize
        # Rows that are listed later may lie beyond the end of an array that was given before.
        if state.dtype != self._dtype or values < self._fields * self._width * (self._largest + 1):
            raise ValueError(
                f"an exchange of rows needs {self._fields} x {self._width} x {self._largest + 1} values of "
                f"{self._dtype}; the array has {values} of {state.dtype}"
            )
        return super()._bound(state)

    def _bind(self, state: Array) -> Bound:
        out, into = self._out, self._into
        values = state.view(f"i{self._dtype.itemsize}")
        rows = {
            "field_stride": state.nbytes // state.itemsize // self._fields,
            "width": self._width,
        }
        pack = self._device.kernel(_SOURCE, "pack_rows", self._constants).bind(
            state=self._sent(state, values),
            **rows,
            lists=self.lists[0],
            chunks=out.rows,
            count=out.count,
            sent=out.seen,
            **self._options(BLOCK * out.count),
        )
        place = self._device.kernel(_SOURCE, "place_rows", self._constants).bind(
            state=self._filled(state, values),
            **rows,
            lists=self.lists[1],
            chunks=into.rows,
            count=into.count,
            received=into.seen,
            **self._options(BLOCK * into.count),
        )
        return Bound(state, pack, place)

    def _chunks(
        self, messages: Sequence[Message], slots: Sequence[Slot], firsts: NDArray[np.int64]
    ) -> Chunks:
        """Messages as shared_rows.cpp takes them."""
        return self._table(
            [
                (p.message, int(firsts[p.message]), p.begin, p.size, *p.places)
                for p in self._pieces(messages, slots)
            ],
            _COLUMNS,
        )


def open_shared_rows(
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
    before: SharedRows | None = None,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    log: Callable[[str], None] | None = None,
) -> SharedRows:
    """Open the exchange of rows that ranks share; all ranks call this, and list rows then.

    `before`: an exchange that this one takes the place of: there is as much room at least.
    """
    rooms = tuple(
        _grown({} if before is None else before.rooms[way], counts)
        for way, counts in enumerate((sent, received))
    )
    most = _MOST_VALUES // (width * fields)
    if world.any(any(room > most for rooms_of_peers in rooms for room in rooms_of_peers.values())):
        raise InputError(
            f"two ranks share more than {most} rows of {fields} x {width} values",
            remedy="use more ranks",
        )

    def make(opened: Transport) -> SharedRows:
        both = (rooms[0], rooms[1])
        return SharedRows(device, both, width, fields, dtype, opened, stream, completes=completes)

    plan = plan_of_rooms((rooms[0], rooms[1]), width * fields)
    return open_by_name(
        world,
        device,
        plan,
        dtype,
        transport,
        make,
        state=state,
        stream=stream,
        graphs=graphs,
        repacks=True,
        log=log,
    )


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
