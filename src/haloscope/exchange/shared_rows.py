"""Exchange of whole rows that several ranks hold, of which each value is known to one of them.

It knows no cell and no mesh. Which rows are shared may change as often as it likes: messages have
room for more rows than there are, so that other lists need no message, no new buffers and no new
launches, and captured graphs stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.jit import Constants
from haloscope.errors import InputError
from haloscope.exchange.choice import open_by_name
from haloscope.exchange.copies import BLOCK
from haloscope.exchange.plan import Box, Message, Plan, cut
from haloscope.exchange.repacking import rows_in_memory_order
from haloscope.exchange.transports import Slot, Transport
from haloscope.exchange.transports.repacked import RepackedTransport
from haloscope.exchange.world import World
from haloscope.scope.regions import Region

_SOURCE = Path(__file__).with_name("shared_rows.cpp")
_GATHER = Region("gather")
_SEND = Region("exchange send")
_WAIT = Region("exchange wait")
_SCATTER = Region("scatter")

Rows = NDArray[np.int64]

_GROWTH = 1.15
_SPARE_ROWS = 4
# Kernels count the values of a message in 32 bits.
_MOST_VALUES = 2**32 - 1
_WORDS = {8: "long", 4: "int"}


class SharedRows:
    """Repeated completion of rows: a value that another rank knows takes the place of a 0 here.

    Contract: all ranks call `start` and `finish` in turn and in the same order, and leave rows that
    are shared alone in between. Before that one rank at most has written anything but +0 as a value
    that several hold; after it all of them have what that rank wrote, to the last bit. What
    `finish` gives is in place for kernels launched after it on the same stream. One message goes to
    each rank that a row is shared with.

    Made by :func:`open_shared_rows`.

    Attributes
    ----------
    rooms
        Rows that there is room for in the messages to and from each other rank.
    """

    def __init__(
        self,
        device: Device,
        rooms: Mapping[int, int],
        width: int,
        fields: int,
        dtype: Any,
        transport: Transport,
        stream: Any = None,
    ) -> None:
        self._device, self._transport, self._stream = device, transport, stream
        self._width, self._fields, self._dtype = width, fields, np.dtype(dtype)
        self.rooms = dict(rooms)
        # Rows of each message, then their numbers, each message's in its room.
        self._listed = np.zeros(max(1, len(rooms) + sum(rooms.values())), np.int32)
        self._on_device = device.from_host(self._listed)
        plan = plan_of_rooms(rooms, width * fields)
        if isinstance(transport, RepackedTransport):
            order = rows_in_memory_order(list(rooms.values()), width, fields)
            transport.arrange(order, order)
        self._out = self._chunks(plan.sends, transport.outgoing)
        self._into = self._chunks(plan.receives, transport.incoming)
        self._launches: dict[int, tuple[Array, Launch, Launch]] = {}
        self._largest = -1
        self.bytes_sent = sum(m.size for m in plan.sends) * self._dtype.itemsize
        self.messages_sent = len(plan.sends)

    @property
    def transport(self) -> str:
        """Name of the transport in use."""
        return self._transport.name

    @property
    def capturable(self) -> bool:
        """Whether `start` and `finish` may be captured into a graph."""
        return self._transport.capturable

    def fits(self, rows: Mapping[int, Rows]) -> bool:
        """Whether there is room for such lists."""
        return all(len(listed) <= self.rooms.get(rank, 0) for rank, listed in rows.items())

    def renew(self, rows: Mapping[int, Rows]) -> None:
        """Share other rows from now on; each two ranks do so between the same exchanges.

        Parameters
        ----------
        rows
            Rows that are shared with each other rank, which lists the same ones in the same order.
        """
        found = np.zeros_like(self._listed)
        first = len(self.rooms)
        self._largest = max((int(listed.max(initial=-1)) for listed in rows.values()), default=-1)
        for message, (rank, room) in enumerate(self.rooms.items()):
            listed = rows.get(rank, ())
            found[message] = len(listed)
            found[first : first + len(listed)] = listed
            first += room
        if not np.array_equal(found, self._listed):
            self._listed = found
            self._on_device[...] = self._device.from_host(found)

    def prepare(self, *states: Array) -> None:
        """Bind arrays beforehand: while a graph is captured nothing can be copied to the device."""
        for state in states:
            self._bound(state)

    def forget(self, state: Array) -> None:
        """Let go of an array that will not be given again."""
        self._launches.pop(id(state), None)

    def start(self, state: Array) -> None:
        """Pack the rows that are shared and begin to send them.

        Parameters
        ----------
        state
            Flat array of all fields one after the other, each of a whole number of rows.
        """
        with _GATHER:
            self._bound(state)[1]()
        with _SEND:
            self._transport.start()

    def progress(self) -> None:
        """Give messages that are under way a chance to go on."""
        self._transport.progress()

    def finish(self, state: Array) -> None:
        """Wait for what comes in and put it into the array."""
        with _WAIT:
            self._transport.finish()
        with _SCATTER:
            self._bound(state)[2]()

    def swap(self, state: Array) -> None:
        """Start and finish with nothing in between."""
        self.start(state)
        self.finish(state)

    def _bound(self, state: Array) -> tuple[Array, Launch, Launch]:
        values = state.nbytes // state.itemsize
        # Rows that are listed later may lie beyond the end of an array that was given before.
        if state.dtype != self._dtype or values < self._fields * self._width * (self._largest + 1):
            raise ValueError(
                f"an array of {values} values of {state.dtype} is given to an exchange of rows that "
                f"needs {self._fields} x {self._width} x {self._largest + 1} of {self._dtype}"
            )
        found = self._launches.get(id(state))
        if found is None:
            rooms = len(self.rooms)
            lists = (self._on_device[: max(1, rooms)], self._on_device[rooms:])
            launches = [
                self._kernel(name).bind(
                    state,
                    values // self._fields,
                    self._width,
                    *lists,
                    *chunks,
                    extent=(BLOCK * max(1, chunks[1]),),
                    block=(BLOCK,),
                    stream=self._stream,
                )
                for name, chunks in (("pack_rows", self._out), ("place_rows", self._into))
            ]
            found = self._launches[id(state)] = (state, launches[0], launches[1])
        return found

    def _kernel(self, name: str) -> Kernel:
        constants: Constants = {"real": _WORDS[self._dtype.itemsize], "FIELDS": self._fields}
        return self._device.kernel(_SOURCE, name, constants)

    def _chunks(
        self, messages: Sequence[Message], slots: Sequence[Slot]
    ) -> tuple[Array, int, Array]:
        """Rows for the kernels, see shared_rows.cpp, how many, and exchanges that each has seen."""
        size, chunks, first = self._dtype.itemsize, [], 0
        for number, (message, slot) in enumerate(zip(messages, slots, strict=True)):
            pieces = [(begin, count) for _, begin, count in cut(message)]
            if self._device.kind == "cpu":
                pieces = [(0, message.size)]
            for piece, (begin, count) in enumerate(pieces):
                flag = slot.flags + 8 * piece if slot.flags else 0
                places = (slot.even + begin * size, slot.odd + begin * size, flag)
                chunks.append((number, first, begin, count, *places))
            first += self.rooms[message.rank]
        table = np.array(chunks, np.int64).reshape(len(chunks), 7)
        epochs = self._device.zeros((max(1, len(chunks)),), np.int64)
        return self._device.from_host(table), len(chunks), epochs


def open_shared_rows(
    world: World,
    device: Device,
    rows: Mapping[int, Rows],
    width: int,
    fields: int,
    dtype: Any,
    transport: str = "auto",
    *,
    before: SharedRows | None = None,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    tell: Callable[[str], None] | None = None,
) -> SharedRows:
    """Open the completion of rows that ranks share; all ranks call this.

    Parameters
    ----------
    world, device, dtype, transport, state, stream, graphs, tell
        As for :func:`haloscope.exchange.choice.open_exchange`.
    rows
        Rows that are shared with each other rank, which lists the same ones in the same order.
    width, fields
        Values of a row in a field, and fields.
    before
        An exchange that this one takes the place of: there is as much room at least.

    Raises
    ------
    InputError
        Two ranks want room for different numbers of rows, or for more than fit into a message, or
        the transport does not suit the device.
    MachineError
        The transport cannot be used here.
    """
    rooms = {} if before is None else dict(before.rooms)
    for rank, listed in rows.items():
        if len(listed) > rooms.get(rank, 0):
            rooms[rank] = int(_GROWTH * len(listed)) + _SPARE_ROWS
    rooms = {rank: rooms[rank] for rank in sorted(rooms)}
    most = _MOST_VALUES // (width * fields)
    if world.any(any(room > most for room in rooms.values())):
        raise InputError(
            f"two ranks would share more than {most} rows of {fields} x {width} values; use more "
            "ranks"
        )

    def make(opened: Transport) -> SharedRows:
        made = SharedRows(device, rooms, width, fields, dtype, opened, stream)
        made.renew(rows)
        return made

    plan = plan_of_rooms(rooms, width * fields)
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
        tell=tell,
    )


def plan_of_rooms(rooms: Mapping[int, int], values: int) -> Plan:
    """One message to each rank that rows are shared with, and one from it, of rows of so many values."""
    messages = tuple(
        Message(rank, (Box(0, (values, room, 1), (1, values, values * room)),))
        for rank, room in rooms.items()
    )
    return Plan(messages, messages)
