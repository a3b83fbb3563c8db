"""An exchange: `start` packs and sends, `finish` receives and unpacks; work fits in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.transports import open_transport
from haloscope.exchange.world import World
from haloscope.scope.regions import Region

_SOURCE = Path(__file__).with_name("pack.cpp")
_PACK = Region("pack")
_SEND = Region("exchange send")
_WAIT = Region("exchange wait")
_UNPACK = Region("unpack")


class Exchange:
    """Repeated exchange of the same boxes of one or several arrays of one layout.

    Contract: every rank of the world makes its exchange from plans that match (each send has
    its receive), calls `start` and `finish` in turn and in the same order, and leaves the boxes
    that go out alone from `start` to `finish`. What comes in is in place for kernels launched
    after `finish`. One message goes to each neighbour; a rank may be its own neighbour. Values
    are copied, never added, so results do not depend on the order of arrival.

    Parameters
    ----------
    world, device
        The ranks, and where the arrays lie.
    plan
        Who sends what to whom.
    dtype
        Type of the values.
    transport
        Name of the transport; see :mod:`haloscope.exchange.transports`.
    """

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, transport: str = "auto"
    ) -> None:
        self._device = device
        self._transport = open_transport(transport, world, device, plan, dtype)
        self._outgoing = _table(plan.sends)
        self._incoming = _table(plan.receives)
        real = "float" if np.dtype(dtype) == np.float32 else "double"
        self._pack = device.kernel(_SOURCE, "pack", {"real": real})
        self._unpack = device.kernel(_SOURCE, "unpack", {"real": real})
        self._launches: dict[int, tuple[Array, Launch, Launch]] = {}
        self.bytes_sent = sum(m.size for m in plan.sends) * np.dtype(dtype).itemsize
        self.messages_sent = len(plan.sends)

    @property
    def transport(self) -> str:
        """Name of the transport in use."""
        return self._transport.name

    def _bound(self, state: Array) -> tuple[Array, Launch, Launch]:
        """Launches for an array, bound when it is first seen."""
        found = self._launches.get(id(state))
        if found is None:
            launches = []
            for kernel, table, buffer in (
                (self._pack, self._outgoing, self._transport.outgoing),
                (self._unpack, self._incoming, self._transport.incoming),
            ):
                largest = int((table[:, 1] * table[:, 2] * table[:, 3]).max(initial=1))
                launches.append(
                    kernel.bind(
                        state,
                        buffer,
                        self._device.from_host(table),
                        len(table),
                        extent=(largest, max(1, len(table))),
                        block=(256, 1),
                    )
                )
            found = self._launches[id(state)] = (state, launches[0], launches[1])
        return found

    def start(self, state: Array) -> None:
        """Pack the outgoing boxes of an array and begin to send them."""
        with _PACK:
            self._bound(state)[1]()
        with _SEND:
            self._transport.start()

    def finish(self, state: Array) -> None:
        """Wait for the incoming boxes and put them into the array."""
        with _WAIT:
            self._transport.finish()
        with _UNPACK:
            self._bound(state)[2]()


def _table(messages: tuple[Message, ...]) -> np.ndarray:
    """Boxes of all messages as rows for the pack kernel, places in the buffer filled in."""
    rows = []
    slot = 0
    for message in messages:
        for box in message.boxes:
            rows.append((box.first, *box.counts, *box.strides, slot))
            slot += box.size
    return np.array(rows, np.int64).reshape(len(rows), 8)
