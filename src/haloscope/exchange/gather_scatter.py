"""Exchange between copies of values anywhere, from one number for each: combine them or swap them.

It knows no mesh. Each rank gives a whole number for each value position; positions with the same
number, on one rank or many, hold copies of one value. :class:`GatherScatter` gives all copies their
sum, least or greatest value, as continuous elements need it. :class:`Pairing` is for numbers that
occur twice, such as those of the points of faces that two discontinuous elements share: each copy
gets the other's value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from haloscope.device.fields import View
from haloscope.device.interface import Array, Device, Launch
from haloscope.errors import InputError
from haloscope.exchange.choice import open_by_name
from haloscope.exchange.copies import OPERATIONS, Copies, Placement
from haloscope.exchange.packed import BLOCK
from haloscope.exchange.plan import Message
from haloscope.exchange.ranks.world import World
from haloscope.exchange.sharing import (
    Sharing,
    check_pairs,
    find_sharing,
    message_order,
    plan_of,
)
from haloscope.exchange.transports.contract import Slot, Transport

# As in gather_scatter.cpp: blocks of a multiprocessor that run at the same time.
_BLOCKS_TOGETHER = 4


class GatherScatter(Copies):
    """Repeated combination of all copies of each value, with the result in all copies."""

    # Contract: all ranks call `start` and `finish` in turn and in the same order, and leave values
    # that are shared alone in between. What `finish` gives is in place for kernels launched after
    # it on the same stream. One message goes to each rank that shares a value, with all fields in
    # it.
    #
    # A rank combines its own copies in the order of their positions; what comes to it from others
    # and its own part are then combined in the order of ranks. So all copies get the same bits, on
    # all ranks, and the same on every run. Sums do depend, in their last bits, on which rank holds
    # which copy. The least and greatest values do not, but for the sign of a zero; a NaN among the
    # copies gives a NaN.
    #
    # Made by :func:`open_gather_scatter`.

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
        super().__init__(device, sharing, order, fields, placement, dtype, transport, stream)
        shared = np.zeros(len(sharing.numbers), bool)
        shared[sharing.groups] = True
        in_memory = np.argsort(sharing.first_positions, kind="stable")
        inner = in_memory[~shared[in_memory]]
        two, more = (inner[shared[inner]] for shared in (sharing.here == 2, sharing.here > 2))
        outer = in_memory[shared[in_memory]]
        self._pairs, self._paired = len(two), self._list(sharing, two)["positions"]
        self._inner, self._inner_list = len(more), self._list(sharing, more)
        self._outer, self._outer_list = len(outer), self._list(sharing, outer)
        # Where what other ranks say of each group is found, in the order of ranks.
        place = np.empty(len(sharing.numbers), np.int64)
        place[outer] = np.arange(len(outer))
        group = place[sharing.groups[order]]
        by_group = np.argsort(group, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(group, minlength=len(outer))))
        lower = np.bincount(group[sharing.ranks[order] < sharing.rank], minlength=len(outer))
        receives = plan_of(sharing, fields).receives
        arrived, even, odd = _arrivals(receives, transport.incoming, fields, self._dtype)
        halves = [even[by_group], odd[by_group]] if self._flagged else [even[by_group]]
        # Arguments of kernels.
        self._others = {
            "other_starts": self._on_device(starts),
            "others": self._on_device(np.concatenate(halves)),
            "lower": self._on_device(lower),
            "arrived": arrived,
            "odd": len(odd) if self._flagged else 0,
        }
        # GPUs that tell each other by flags do all of it in one launch.
        self._meets = self._flagged and not self._pairs and not self._inner
        most = _BLOCKS_TOGETHER * device.multiprocessors
        self._blocks = min(most, max(1, self._out.count, -(-self._outer // BLOCK)))
        self._counters = device.zeros((3,), np.int64)
        self._meetings: dict[tuple[int, int, int], tuple[Array, Array, Launch]] = {}

    def prepare(self, *states: Array, operation: str = "sum", into: Array | None = None) -> None:
        """Bind arrays beforehand: while a graph is captured nothing can be copied to the device."""
        for state in states:
            target = state if into is None else into
            self._bound_gather(state, _named(operation))
            self._bound_scatter(state, target, _named(operation))
            if self._meets:
                self._bound_meeting(state, target, _named(operation))

    def forget(self, state: Array) -> None:
        """Let go of what was bound for an array."""
        super().forget(state)
        number = id(state)
        self._meetings = {k: one for k, one in self._meetings.items() if number not in k[:2]}

    def start(self, state: Array, operation: str = "sum") -> None:
        """Pack what this rank's copies come to and begin to send it."""
        self._start(state, _named(operation))

    def swap(self, state: Array, operation: str = "sum", into: Array | None = None) -> None:
        """Start and finish with nothing in between: one launch where no host is needed."""
        if not self._meets:
            self.start(state, operation)
            self.finish(state, into)
            return
        with self.regions[3]:
            self._bound_meeting(state, state if into is None else into, _named(operation))()

    def _bound_meeting(self, state: Array, into: Array, operation: int) -> Launch:
        key = id(state), id(into), operation
        binding = self._meetings.get(key)
        if binding is None:
            for array in (state, into):
                self._check(array)
            launch = self._bind_meeting(state, into, operation, self._out.count)
            binding = self._meetings[key] = (state, into, launch)
        return binding[2]

    def _bind_meeting(self, state: Array, into: Array, operation: int, sends: int) -> Launch:
        return self._bind(
            "meet",
            operation,
            self._blocks * BLOCK,
            state=state,
            into=into,
            out_starts=self._gather_list["starts"],
            out_positions=self._gather_list["positions"],
            outgoing=self._out.rows,
            sends=sends,
            sent=self._out.seen,
            groups=self._outer,
            **self._outer_list,
            **self._others,
            incoming=self._into.rows,
            count=self._into.count,
            received=self._into.seen,
            counters=self._counters,
        )

    def _bind_results(
        self, state: Array, into: Array, operation: int
    ) -> tuple[Launch | None, Launch]:
        if self._meets:
            return None, self._bind_meeting(state, into, operation, 0)
        waits = self._into.count if self._flagged else 0
        within = self._bind(
            "within",
            operation,
            max(self._pairs, self._inner, waits),
            state=state,
            into=into,
            pairs=self._pairs,
            paired=self._paired,
            groups=self._inner,
            **self._inner_list,
            chunks=self._into.rows,
            count=waits,
            received=self._into.seen,
        )
        after = self._bind(
            "scatter",
            operation,
            self._outer,
            state=state,
            into=into,
            groups=self._outer,
            **self._outer_list,
            **self._others,
            received=self._into.seen,
        )
        needed = self._pairs or self._inner or waits
        return within if needed else None, after


_COPIED = OPERATIONS["sum"]  # of one value: the value


class Pairing(Copies):
    """Repeated swap between the two copies of each value: each gets the value of the other.

    Contract and messages are those of :class:`GatherScatter`. Values are copied, never changed, so
    results are the same bits with any ranks. Made by :func:`open_pairing`.
    """

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
        *,
        across_only: bool = False,
    ) -> None:
        super().__init__(device, sharing, order, fields, placement, dtype, transport, stream)
        inner = np.flatnonzero(sharing.here == 2)
        inner = inner[np.argsort(sharing.first_positions[inner], kind="stable")]
        self._pairs = 0 if across_only else len(inner)
        self._paired = self._list(sharing, inner[: self._pairs])["positions"]

    def prepare(self, *states: Array, into: Array | None = None) -> None:
        """Bind arrays beforehand: while a graph is captured nothing can be copied to the device."""
        for state in states:
            self._bound_gather(state, _COPIED)
            self._bound_scatter(state, state if into is None else into, _COPIED)

    def start(self, state: Array) -> None:
        """Pack the values whose other copies are elsewhere and begin to send them."""
        self._start(state, _COPIED)

    def swap(self, state: Array, into: Array | None = None) -> None:
        """Start and finish with nothing in between."""
        self.start(state)
        self.finish(state, into)

    def _bind_results(
        self, state: Array, into: Array, operation: int
    ) -> tuple[Launch | None, Launch]:
        within = self._bind(
            "swap_within",
            operation,
            self._pairs,
            state=state,
            into=into,
            pairs=self._pairs,
            paired=self._paired,
        )
        after = self._bind(
            "place",
            operation,
            self._into.count * BLOCK,
            into=self._filled(into),
            positions=self._gather_list["positions"],
            chunks=self._into.rows,
            count=self._into.count,
            received=self._into.seen,
        )
        return within if self._pairs else None, after


Kind = TypeVar("Kind", GatherScatter, Pairing)


class FieldByField(Generic[Kind]):
    """One message for each field, as a study of what packing all of them together is worth."""

    def __init__(self, parts: Sequence[Kind]) -> None:
        self._parts: Sequence[Kind] = parts
        self.transport, self.capturable = parts[0].transport, parts[0].capturable
        self.bytes_sent = sum(part.bytes_sent for part in parts)
        self.messages_sent = sum(part.messages_sent for part in parts)

    @property
    def stream(self) -> Any:
        """The stream of its kernels; None: the main one."""
        return self._parts[0].stream

    def name_parts(self, array: Array, **views: View) -> None:
        """Tell the exchange of each field."""
        for part in self._parts:
            part.name_parts(array, **views)

    def prepare(self, *states: Array, **options: Any) -> None:
        """Bind arrays beforehand; options are those of the kind."""
        for part in self._parts:
            part.prepare(*states, **options)

    def start(self, state: Array, *operation: str) -> None:
        """Pack and send field after field."""
        for part in self._parts:
            part.start(state, *operation)

    def progress(self) -> None:
        """Give messages that are under way a chance to go on."""
        for part in self._parts:
            part.progress()

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Put the results of field after field in place."""
        for part in self._parts:
            part.finish(state, into)

    def swap(self, state: Array, *operation: str, into: Array | None = None) -> None:
        """Start and finish with nothing in between."""
        self.start(state, *operation)
        self.finish(state, into)


def open_gather_scatter(
    world: World,
    device: Device,
    ids: np.ndarray | Sharing,
    fields: int,
    dtype: Any,
    transport: str = "auto",
    *,
    placement: Placement | None = None,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    log: Callable[[str], None] | None = None,
    fields_together: bool = True,
) -> GatherScatter | FieldByField[GatherScatter]:
    """Open the combination of all copies of values; all ranks call this.

    `ids`: a whole number for each value position of this rank, in any shape; 0 or less: nobody's.
    Or what :func:`find_sharing` has made of them.
    """
    # `placement`: where they lie; by default field after field, each as long as `ids`.
    sharing = ids if isinstance(ids, Sharing) else find_sharing(world, ids)
    opening = _Opening(world, device, sharing, dtype, transport, state, stream, graphs, log)
    return opening.open(GatherScatter, fields, placement, fields_together)


def open_pairing(
    world: World,
    device: Device,
    ids: np.ndarray | Sharing,
    fields: int,
    dtype: Any,
    transport: str = "auto",
    *,
    placement: Placement | None = None,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    log: Callable[[str], None] | None = None,
    fields_together: bool = True,
    across_only: bool = False,
) -> Pairing | FieldByField[Pairing]:
    """Open the swap between the two copies of each value; all ranks call this."""
    sharing = ids if isinstance(ids, Sharing) else find_sharing(world, ids)
    check_pairs(world, sharing)
    opening = _Opening(world, device, sharing, dtype, transport, state, stream, graphs, log)
    kind = functools.partial(Pairing, across_only=across_only)
    return opening.open(kind, fields, placement, fields_together)


def _named(operation: str) -> int:
    if operation not in OPERATIONS:
        raise InputError(
            "unknown operation", location=f"operation {operation!r}", allowed=", ".join(OPERATIONS)
        )
    return OPERATIONS[operation]


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


@dataclass(frozen=True)
class _Opening:
    """Arguments for opening any kind of exchange between copies."""

    world: World
    device: Device
    sharing: Sharing
    dtype: Any
    transport: str
    state: Array | None
    stream: Any
    graphs: bool
    log: Callable[[str], None] | None

    def open(
        self,
        kind: Callable[..., Kind],
        fields: int,
        placement: Placement | None,
        together: bool,
    ) -> Kind | FieldByField[Kind]:
        if fields < 1:
            raise InputError("out of range", location=f"fields = {fields}", allowed="1 or more")
        if np.dtype(self.dtype) not in (np.float32, np.float64):
            raise InputError(
                "wrong type",
                location=f"dtype = {np.dtype(self.dtype)}",
                allowed="float32 or float64",
            )
        place = placement or Placement(0, 1, self.sharing.size)
        order = message_order(self.world, self.sharing, by_position=together)
        if together:
            return self._open_one(kind, order, fields, place, self.transport)
        parts: list[Kind] = []
        for field in range(fields):
            one = replace(place, first=place.first + field * place.field_stride)
            name = parts[0].transport if parts else self.transport
            parts.append(self._open_one(kind, order, 1, one, name))
        return FieldByField(parts)

    def _open_one(
        self,
        kind: Callable[..., Kind],
        order: np.ndarray,
        fields: int,
        placement: Placement,
        transport: str,
    ) -> Kind:
        device, sharing, dtype, stream = self.device, self.sharing, self.dtype, self.stream
        state = self.state
        if state is None and device.kind != "cpu":
            state = device.zeros((placement.values(sharing.size, fields),), dtype)
        return open_by_name(
            self.world,
            device,
            plan_of(sharing, fields),
            dtype,
            transport,
            lambda made: kind(device, sharing, order, fields, placement, dtype, made, stream),
            state=state,
            stream=stream,
            graphs=self.graphs,
            log=self.log,
        )
