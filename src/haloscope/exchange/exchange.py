"""An exchange: `start` packs and sends, `finish` receives and unpacks; work fits in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.exchange.plan import Message, Plan, cut
from haloscope.exchange.transports import Slot, Transport
from haloscope.scope.regions import Region

_SOURCE = Path(__file__).with_name("pack.cpp")
_PACK = Region("pack", movement=True)
_SEND = Region("exchange send", movement=True)
_WAIT = Region("exchange wait", movement=True)
_UNPACK = Region("unpack", movement=True)

_BLOCK = 256
_BLOCKS_A_MULTIPROCESSOR = 2


class Exchange:
    """Repeated exchange of the same boxes of one or several arrays of one layout.

    Contract: every rank of the world makes its exchange from plans that match (each send has
    its receive), calls `start` and `finish` in turn and in the same order, and leaves the boxes
    that go out alone from `start` to `finish`. What comes in is in place for kernels launched
    after `finish` on the same stream. One message goes to each neighbour; a rank may be its own
    neighbour. Values are copied, never added, so results do not depend on the order of arrival.

    Parameters
    ----------
    device
        Where the arrays lie.
    plan
        Who sends what to whom.
    dtype
        Type of the values.
    transport
        How messages travel; :func:`haloscope.exchange.choice.open_exchange` opens one by name.
    stream
        Stream of the device on which the exchange takes place; None: the main one.
    """

    def __init__(
        self, device: Device, plan: Plan, dtype: Any, transport: Transport, stream: Any = None
    ) -> None:
        self._device = device
        self._transport = transport
        self._stream = stream
        self._outgoing = _chunks(device, plan.sends, transport.outgoing, dtype)
        self._incoming = _chunks(device, plan.receives, transport.incoming, dtype)
        # How often each chunk went out and came in, counted by the kernels themselves.
        self._sent = device.zeros((max(1, len(self._outgoing)),), np.int64)
        self._received = device.zeros((max(1, len(self._incoming)),), np.int64)
        self._turns = device.zeros((3,), np.int64)
        real = "float" if np.dtype(dtype) == np.float32 else "double"
        self._constants: dict[str, int | float | str] = {
            "real": real,
            "BLOCKS_TOGETHER": _BLOCKS_A_MULTIPROCESSOR,
        }
        self._flagged = any(slot.flags for slot in transport.outgoing)
        self._launches: dict[int, tuple[Array, Launch, Launch, Launch | None]] = {}
        self.bytes_sent = sum(m.size for m in plan.sends) * np.dtype(dtype).itemsize
        self.messages_sent = len(plan.sends)

    @property
    def transport(self) -> str:
        """Name of the transport in use."""
        return self._transport.name

    @property
    def capturable(self) -> bool:
        """Whether `start` and `finish` may be captured into a graph."""
        return self._transport.capturable

    def _bound(self, state: Array) -> tuple[Array, Launch, Launch, Launch | None]:
        """Launches for an array, bound when it is first seen: pack, unpack, both in one."""
        found = self._launches.get(id(state))
        if found is None:
            device = self._device
            tables = [device.from_host(table) for table in (self._outgoing, self._incoming)]
            out = (tables[0], len(self._outgoing), self._sent)
            into = (tables[1], len(self._incoming), self._received)
            launches = []
            for name, table in (("pack", out), ("unpack", into)):
                kernel = device.kernel(_SOURCE, name, self._constants)
                extent = (_BLOCK * max(1, table[1]),)
                launches.append(
                    kernel.bind(state, *table, extent=extent, block=(_BLOCK,), stream=self._stream)
                )
            both = None
            if self._flagged:
                most = _BLOCKS_A_MULTIPROCESSOR * device.multiprocessors
                blocks = min(most, max(len(self._outgoing), len(self._incoming)))
                kernel = device.kernel(_SOURCE, "swap", self._constants)
                both = kernel.bind(
                    state,
                    *out,
                    *into,
                    self._turns,
                    extent=(_BLOCK * blocks,),
                    block=(_BLOCK,),
                    stream=self._stream,
                )
            found = self._launches[id(state)] = (state, launches[0], launches[1], both)
        return found

    def prepare(self, *states: Array) -> None:
        """Bind arrays beforehand: while a graph is captured nothing can be copied to the device."""
        for state in states:
            self._bound(state)

    def start(self, state: Array) -> None:
        """Pack the outgoing boxes of an array and begin to send them."""
        with _PACK:
            self._bound(state)[1]()
        with _SEND:
            self._transport.start()

    def progress(self) -> None:
        """Give messages that are under way a chance to go on."""
        self._transport.progress()

    def finish(self, state: Array) -> None:
        """Wait for the incoming boxes and put them into the array."""
        with _WAIT:
            self._transport.finish()
        with _UNPACK:
            self._bound(state)[2]()

    def swap(self, state: Array) -> None:
        """Start and finish with nothing in between: one launch where the transport needs no host."""
        both = self._bound(state)[3]
        if both is None:
            self.start(state)
            self.finish(state)
        else:
            with _WAIT:
                both()


def _chunks(
    device: Device, messages: Sequence[Message], slots: Sequence[Slot], dtype: Any
) -> np.ndarray:
    """Rows for the pack kernels, see pack.cpp. Cores take whole boxes."""
    size = np.dtype(dtype).itemsize
    rows = []
    for message, slot in zip(messages, slots, strict=True):
        chunks = cut(message)
        if device.kind == "cpu":
            chunks = [(box, 0, box.size) for box in message.boxes]
        offset = 0
        for number, (box, begin, count) in enumerate(chunks):
            flag = slot.flags + 8 * number if slot.flags else 0
            place = (slot.even + offset * size, slot.odd + offset * size, flag)
            rows.append((box.first, *box.counts, *box.strides, begin, count, *place))
            offset += count
    return np.array(rows, np.int64).reshape(len(rows), 12)
