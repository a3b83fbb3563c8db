"""Packs values that lie anywhere in an array for those ranks that have copies of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.exchange.plan import Message, cut
from haloscope.exchange.sharing import Sharing, plan_of, ranges
from haloscope.exchange.transports import Slot, Transport
from haloscope.scope.regions import Region

_SOURCE = Path(__file__).with_name("gather_scatter.cpp")
_GATHER = Region("gather", movement=True)
_SEND = Region("exchange send", movement=True)
_WITHIN = Region("gather-scatter within")
_WAIT = Region("exchange wait", movement=True)
_SCATTER = Region("scatter", movement=True)

BLOCK = 256
"""Threads of a GPU block, which packs or unpacks a chunk of a message."""
_LARGEST_INT = 2**31 - 1


@dataclass(frozen=True)
class Placement:
    """Where values lie in a flat array: field f of position p at first + p stride + f field_stride.

    Attributes
    ----------
    first
        Index of field 0 of position 0.
    stride
        Distance between two positions.
    field_stride
        Distance between two fields.
    """

    first: int
    stride: int
    field_stride: int

    def values(self, positions: int, fields: int) -> int:
        """Values that an array must have for a number of positions."""
        if positions == 0:
            return 0
        return self.first + (positions - 1) * self.stride + (fields - 1) * self.field_stride + 1


def require_room(array: Array, dtype: np.dtype[Any], values: int, what: str) -> None:
    """Refuse an array that does not fit, which would be read or written beyond its end.

    Parameters
    ----------
    array
        Device array.
    dtype, values
        What it must hold, and at least how many.
    what
        The exchange that it is given to, for the message.

    Raises
    ------
    ValueError
        It is of another type, too short, or has gaps.
    """
    held = array.nbytes // array.itemsize
    if array.dtype != dtype or held < values:
        raise ValueError(
            f"an array of {held} values of {array.dtype} is given to {what} that needs {values} "
            f"of {dtype}"
        )
    flags = getattr(array, "flags", None)
    if flags is not None and not flags.c_contiguous:
        raise ValueError(f"{what} needs an array without gaps; give the whole of it")


class Copies(ABC):
    """What combining and swapping have in common: packed messages, and when launches are due.

    `regions` are the phases that are told of: packing, sending, what needs no message, waiting,
    and putting results in place.

    Parameters
    ----------
    device, dtype, transport, stream
        As for :class:`haloscope.exchange.exchange.Exchange`.
    sharing, order
        Who shares what, and the order of shares in messages.
    fields, placement
        How many fields go together, and where they lie.
    """

    regions = _GATHER, _SEND, _WITHIN, _WAIT, _SCATTER

    def __init__(
        self,
        device: Device,
        sharing: Sharing,
        order: np.ndarray,
        fields: int,
        placement: Placement,
        dtype: Any,
        transport: Transport,
        stream: Any = None,
    ) -> None:
        plan = plan_of(sharing, fields)
        self._device, self._transport, self._stream = device, transport, stream
        self._placement, self._dtype = placement, np.dtype(dtype)
        self._values = placement.values(sharing.size, fields)
        # Messages may have two places each, with room for flags and gaps between them.
        most = max(self._values, 4 * sum(m.size for m in plan.sends))
        self._index = np.dtype(np.int32 if most < _LARGEST_INT else np.int64)
        self._constants: dict[str, int | float | str] = {
            "real": "float" if self._dtype == np.float32 else "double",
            "index": "int" if self._index == np.int32 else "long",
            "FIELDS": fields,
        }
        self._flagged = any(slot.flags for slot in transport.outgoing)
        self._outgoing, self._sends = self._chunks(plan.sends, transport.outgoing)
        self._incoming, self._receives = self._chunks(plan.receives, transport.incoming)
        self._sent = device.zeros((max(1, self._sends),), np.int64)
        self._received = device.zeros((max(1, self._receives),), np.int64)
        self._gather_list = self._list(sharing, sharing.groups[order])
        self._gathers: dict[tuple[int, str], tuple[Array, Launch]] = {}
        self._scatters: dict[tuple[int, int, str], tuple[Array, Array, Launch | None, Launch]] = {}
        self._under_way = "SUM"
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

    def _start(self, state: Array, operation: str) -> None:
        self._under_way = operation
        pack, send = self.regions[:2]
        with pack:
            self._bound_gather(state, operation)()
        with send:
            self._transport.start()

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Do what needs no message, wait for the messages, and put the results in place.

        Parameters
        ----------
        state
            The array that was started with; what is shared in it has been left alone.
        into
            An array of the same layout that gets the results; `state` itself by default.
            Positions without other copies are left as they are.
        """
        target = state if into is None else into
        within, after = self._bound_scatter(state, target, self._under_way)
        inner, wait, place = self.regions[2:]
        if within is not None:
            with inner:
                within()
        with wait:
            self._transport.finish()
        with place:
            after()

    def _bound_gather(self, state: Array, operation: str) -> Launch:
        found = self._gathers.get((id(state), operation))
        if found is None:
            self._check(state)
            launch = self._bind(
                "gather",
                operation,
                self._sends * BLOCK,
                state,
                self._placement.field_stride,
                *self._gather_list,
                self._outgoing,
                self._sends,
                self._sent,
            )
            found = self._gathers[id(state), operation] = (state, launch)
        return found[1]

    def _bound_scatter(
        self, state: Array, into: Array, operation: str
    ) -> tuple[Launch | None, Launch]:
        key = id(state), id(into), operation
        found = self._scatters.get(key)
        if found is None:
            self._check(into)
            within, after = self._bind_results(state, into, operation)
            found = self._scatters[key] = (state, into, within, after)
        return found[2], found[3]

    @abstractmethod
    def _bind_results(
        self, state: Array, into: Array, operation: str
    ) -> tuple[Launch | None, Launch]:
        """What is launched before messages are waited for, if anything, and what after that."""

    def _bind(self, name: str, operation: str, threads: int, *arguments: Any) -> Launch:
        kernel = self._device.kernel(_SOURCE, name, {**self._constants, "OPERATION": operation})
        extent = (max(1, threads),)
        return kernel.bind(*arguments, extent=extent, block=(BLOCK,), stream=self._stream)

    def _check(self, array: Array) -> None:
        require_room(array, self._dtype, self._values, "a gather-scatter")

    def _on_device(self, values: np.ndarray) -> Array:
        return self._device.from_host(np.ascontiguousarray(values, self._index))

    def _places(self, positions: np.ndarray) -> np.ndarray:
        """Indices in the array of field 0 of positions."""
        places: np.ndarray = self._placement.first + self._placement.stride * positions
        return places

    def _list(self, sharing: Sharing, groups: np.ndarray) -> tuple[Array, Array]:
        """Ranges of the places of groups, see gather_scatter.cpp."""
        counts = sharing.here[groups]
        starts = np.append(0, np.cumsum(counts))
        positions = sharing.positions[ranges(sharing.starts[groups], counts)]
        return self._on_device(starts), self._on_device(self._places(positions))

    def _chunks(self, messages: Sequence[Message], slots: Sequence[Slot]) -> tuple[Array, int]:
        """Rows for the kernels, see gather_scatter.cpp, and how many. Cores take whole messages."""
        size, rows, first = self._dtype.itemsize, [], 0
        for message, slot in zip(messages, slots, strict=True):
            pieces = [(begin, count) for _, begin, count in cut(message)]
            if self._device.kind == "cpu":
                pieces = [(0, message.size)]
            for number, (begin, count) in enumerate(pieces):
                flag = slot.flags + 8 * number if slot.flags else 0
                rows.append(
                    (first + begin, count, slot.even + begin * size, slot.odd + begin * size, flag)
                )
            first += message.size
        return self._device.from_host(np.array(rows, np.int64).reshape(len(rows), 5)), len(rows)
