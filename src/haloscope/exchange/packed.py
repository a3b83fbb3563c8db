"""Exchanges of packed messages: kernels that pack and unpack around a transport."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from haloscope.device.fields import View
from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.targets import KernelFile
from haloscope.exchange.plan import Box, Message, Plan, cut
from haloscope.exchange.transports.contract import Slot, Transport
from haloscope.regions import Region

BLOCK = 256
"""Threads of a GPU block, which packs or unpacks a piece of a message."""
GATHER, SCATTER = Region("gather", movement=True), Region("scatter", movement=True)
SEND = Region("exchange send", movement=True)
WAIT = Region("exchange wait", movement=True)


class Piece(NamedTuple):
    """Part of a message that a block of threads takes."""

    message: int  # Its number among the messages of one direction
    # Where its values lie: so many of a box, from this one on.
    box: Box
    begin: int
    size: int
    # Addresses of its first value in the exchanges number 0, 2, ... and 1, 3, ..., and of its flag;
    # 0: it has none.
    even: int
    odd: int
    flag: int

    @property
    def places(self) -> tuple[int, int, int]:
        """The three addresses."""
        return self.even, self.odd, self.flag


def pieces(
    device: Device, messages: Sequence[Message], slots: Sequence[Slot], dtype: np.dtype[Any]
) -> Iterator[Piece]:
    """Cut messages for the kernels that pack and unpack; cores take whole boxes."""
    for number, (message, slot) in enumerate(zip(messages, slots, strict=True)):
        parts = cut(message)
        if device.kind == "cpu":
            parts = [(box, 0, box.size) for box in message.boxes]
        offset = 0
        for place, (box, begin, count) in enumerate(parts):
            flag = slot.flags + 8 * place if slot.flags else 0
            yield Piece(number, box, begin, count, slot.even + offset, slot.odd + offset, flag)
            offset += count * dtype.itemsize


@dataclass(frozen=True, eq=False)
class Chunks:
    """Messages of one direction, cut for blocks of threads: a table for a kernel."""

    rows: Array  # int64, as the kernel's source tells
    count: int
    seen: Array  # int64: how often the kernel has moved each row, which it counts


class Packed:
    """Messages of one plan that a transport moves."""

    def __init__(
        self, device: Device, plan: Plan, dtype: Any, transport: Transport, stream: Any = None
    ) -> None:
        self._device, self._transport, self._stream = device, transport, stream
        self._dtype = np.dtype(dtype)
        self._flagged = any(slot.flags for slot in transport.outgoing)
        self._parts: dict[int, tuple[View | None, View | None]] = {}
        # In each exchange.
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

    def progress(self) -> None:
        """Give messages that are under way a chance to go on."""
        self._transport.progress()

    def name_parts(
        self, array: Array, *, sent: View | None = None, filled: View | None = None
    ) -> None:
        """Name the parts of an array that are sent and filled; else it is all of it."""
        self.forget(array)
        self._parts[id(array)] = sent, filled

    def forget(self, state: Array) -> None:
        """Let go of what was bound for an array, and of the names of its parts."""
        self._parts.pop(id(state), None)

    @property
    def stream(self) -> Any:
        """The stream of its kernels; None: the main one."""
        return self._stream

    def _sent(self, array: Array, retyped: Array | None = None) -> Array | View:
        """The parts that packs read, `retyped` if it is bound as another type."""
        view, _ = self._parts.get(id(array), (None, None))
        bound = array if retyped is None else retyped
        return bound if view is None else view.of(bound)

    def _filled(self, array: Array, retyped: Array | None = None) -> Array | View:
        """The parts that unpacks write, as for :meth:`_sent`."""
        _, view = self._parts.get(id(array), (None, None))
        bound = array if retyped is None else retyped
        return bound if view is None else view.of(bound)

    def _pieces(self, messages: Sequence[Message], slots: Sequence[Slot]) -> Iterator[Piece]:
        return pieces(self._device, messages, slots, self._dtype)

    def _table(self, rows: list[tuple[int, ...]], columns: int) -> Chunks:
        table = self._device.from_host(np.array(rows, np.int64).reshape(len(rows), columns))
        return Chunks(table, len(rows), self._device.zeros((max(1, len(rows)),), np.int64))

    def _options(self, threads: int) -> dict[str, Any]:
        """How a kernel of at least so many threads is launched."""
        return {"extent": (max(1, threads),), "block": (BLOCK,), "stream": self._stream}


class Bound(NamedTuple):
    """Launches for an array: what packs, what unpacks, and both in one where no host is needed."""

    state: Array
    pack: Launch
    unpack: Launch
    both: Launch | None = None


class Copying(Packed, ABC):
    """Repeated copying of values of an array into the same array of other ranks.

    `regions`: the phases in profiles: pack and unpack.
    """

    regions = GATHER, SCATTER

    def __init__(
        self, device: Device, plan: Plan, dtype: Any, transport: Transport, stream: Any = None
    ) -> None:
        super().__init__(device, plan, dtype, transport, stream)
        self._launches: dict[int, Bound] = {}

    @abstractmethod
    def _bind(self, state: Array) -> Bound:
        """Launches for an array that is seen for the first time."""

    def _bound(self, state: Array) -> Bound:
        binding = self._launches.get(id(state))
        if binding is None:
            binding = self._launches[id(state)] = self._bind(state)
        return binding

    def prepare(self, *states: Array) -> None:
        """Bind arrays beforehand: while a graph is captured nothing can be copied to the device."""
        for state in states:
            self._bound(state)

    def forget(self, state: Array) -> None:
        """Let go of what was bound for an array."""
        super().forget(state)
        self._launches.pop(id(state), None)

    def start(self, state: Array) -> None:
        """Pack what goes out of an array and begin to send it."""
        with self.regions[0]:
            self._bound(state).pack()
        with SEND:
            self._transport.start()

    def finish(self, state: Array) -> None:
        """Wait for what comes in and put it into the array."""
        with WAIT:
            self._transport.finish()
        with self.regions[1]:
            self._bound(state).unpack()

    def swap(self, state: Array) -> None:
        """Start and finish with nothing in between: one launch where the exchange has one for both."""
        both = self._bound(state).both
        if both is None:
            self.start(state)
            self.finish(state)
        else:
            with WAIT:
                both()


_SOURCE = Path(__file__).with_name("pack.cpp")
_PACK, _UNPACK = Region("pack", movement=True), Region("unpack", movement=True)

_BLOCKS_A_MULTIPROCESSOR = 2
# Of the rows for pack.cpp.
_COLUMNS = 12


def kernel_file(dtype: np.dtype[Any]) -> KernelFile:
    """The kernels of an exchange of boxes of values of a type."""
    real = "float" if dtype == np.float32 else "double"
    return KernelFile(_SOURCE, {"real": real, "BLOCKS_TOGETHER": _BLOCKS_A_MULTIPROCESSOR})


class Exchange(Copying):
    """Repeated exchange of the same boxes of one or several arrays of one layout."""

    # Contract: every rank of the world makes its exchange from plans that match (each send has its
    # receive), calls `start` and `finish` in turn and in the same order, and leaves the boxes that
    # go out alone from `start` to `finish`. What comes in is in place for kernels launched after
    # `finish` on the same stream. One message goes to each neighbour; a rank may be its own
    # neighbour. Values are copied, never added, so results do not depend on the order of arrival.

    regions = _PACK, _UNPACK

    def __init__(
        self, device: Device, plan: Plan, dtype: Any, transport: Transport, stream: Any = None
    ) -> None:
        super().__init__(device, plan, dtype, transport, stream)
        self._out, self._into = (
            self._table(
                [
                    (p.box.first, *p.box.counts, *p.box.strides, p.begin, p.size, *p.places)
                    for p in self._pieces(messages, slots)
                ],
                _COLUMNS,
            )
            for messages, slots in (
                (plan.sends, transport.outgoing),
                (plan.receives, transport.incoming),
            )
        )
        self._turns = device.zeros((3,), np.int64)
        self._constants = kernel_file(self._dtype).constants

    def _bind(self, state: Array) -> Bound:
        out, into, both = self._out, self._into, None
        if self._flagged:
            most = _BLOCKS_A_MULTIPROCESSOR * self._device.multiprocessors
            both = self._kernel("swap").bind(
                state=state,
                outgoing=out.rows,
                sends=out.count,
                sent=out.seen,
                incoming=into.rows,
                receives=into.count,
                received=into.seen,
                turns=self._turns,
                **self._options(BLOCK * min(most, max(out.count, into.count))),
            )
        pack = self._kernel("pack").bind(
            state=self._sent(state),
            chunks=out.rows,
            count=out.count,
            sent=out.seen,
            **self._options(BLOCK * out.count),
        )
        unpack = self._kernel("unpack").bind(
            state=self._filled(state),
            chunks=into.rows,
            count=into.count,
            received=into.seen,
            **self._options(BLOCK * into.count),
        )
        return Bound(state, pack, unpack, both)

    def _kernel(self, name: str) -> Kernel:
        return self._device.kernel(_SOURCE, name, self._constants)
