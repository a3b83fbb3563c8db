"""Exchange of listed entries of flat arrays: owners' values to copies, and copies' back to owners.

:func:`haloscope.exchange.plan.find_lists` makes the lists from global numbers;
:func:`open_lists` opens an exchange that copies what they list, forward from owners to copies and,
where it is asked for, backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device, Kernel
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError, counted
from haloscope.exchange.choice import open_by_name
from haloscope.exchange.copies import CHUNK_COLUMNS, TYPES, kernel_file, require_room
from haloscope.exchange.packed import BLOCK, Bound, Chunks, Copying
from haloscope.exchange.plan import (
    Box,
    Listed,
    Lists,
    Message,
    Plan,
    in_memory_order,
    refuse_together,
)
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import Slot, Transport
from haloscope.exchange.transports.study import RepackedTransport

_LARGEST_INT = 2**31 - 1


def _index_type(values: float) -> np.dtype[Any]:
    """Type of the indices of arrays of so many values."""
    return np.dtype(np.int32 if values < _LARGEST_INT else np.int64)


def kernel_files(
    dtype: Any, fields: int, transport: str, most_values: float
) -> Iterator[KernelFile]:
    """All that an exchange may need whose arrays have at most so many values."""
    # Values that the host repacks are listed one by one.
    moved = 1 if transport == "repacked" else fields
    for index in dict.fromkeys(_index_type(values) for values in (0, most_values)):
        yield kernel_file(dtype, index, moved)


def _moved_as(dtype: Any) -> np.dtype[Any]:
    return np.dtype(np.uint16 if np.dtype(dtype) == np.float16 else dtype)


@dataclass(frozen=True, eq=False)
class Settings:
    """Common settings of exchanges of lists; see :func:`open_lists`."""

    device: Device
    dtype: Any
    fields: int
    field_stride: int
    stream: Any
    graphs: bool
    log: Callable[[str], None] | None
    kernels: dict[tuple[str, str], Kernel] = field(default_factory=dict)

    def kernel(self, name: str, index: np.dtype[Any]) -> Kernel:
        """A kernel; it is looked for once, which takes longer than all the rest of an opening."""
        kernel = self.kernels.get((name, index.name))
        if kernel is None:
            file = kernel_file(self.dtype, index, self.fields)
            kernel = self.device.kernel(file.source, name, file.constants)
            self.kernels[name, index.name] = kernel
        return kernel


class OneWay(Copying):
    """Repeated copying of listed entries to other ranks, one message to each."""

    # Contract: all ranks call `start` and `finish` in turn and in the same order, and leave what
    # goes out alone in between. What comes in is in place for kernels launched after `finish` on
    # the same stream. Part of :class:`ListExchange`.

    def __init__(self, settings: Settings, lists: Lists, transport: Transport) -> None:
        device, fields, field_stride = settings.device, settings.fields, settings.field_stride
        plan = plan_of_lists(lists, fields, both_ways=device.kind != "cpu")
        super().__init__(device, plan, settings.dtype, transport, settings.stream)
        self._values = values_needed(lists, fields, field_stride)
        if isinstance(transport, RepackedTransport):
            out, outgoing = in_memory_order(plan.sends, lists.sends, fields, field_stride)
            into, incoming = in_memory_order(plan.receives, lists.receives, fields, field_stride)
            transport.arrange(outgoing, incoming)
            lists, fields = Lists(out, into), 1
            settings = replace(settings, fields=1, field_stride=0, kernels={})
        self._settings = settings
        self._index = _index_type(self._values)
        sends = self._chunks(plan.sends, lists.sends, fields, transport.outgoing)
        receives = self._chunks(plan.receives, lists.receives, fields, transport.incoming)
        # Each entry of a message is made of one value of each field: ranges of one.
        starts = self._on_device(np.arange(len(lists.sent) + 1))
        self._out = {
            "starts": starts,
            "positions": self._on_device(lists.sent),
            "chunks": sends.rows,
            "count": sends.count,
            "sent": sends.seen,
        }
        self._into = {
            "positions": self._on_device(lists.received),
            "chunks": receives.rows,
            "count": receives.count,
            "received": receives.seen,
        }

    def _bind(self, state: Array) -> Bound:
        require_room(state, self._dtype, self._values, "an exchange of lists")
        settings, values = self._settings, state.view(_moved_as(self._dtype))
        gather = settings.kernel("gather", self._index).bind(
            state=self._sent(state, values),
            field_stride=settings.field_stride,
            **self._out,
            **self._options(BLOCK * self._out["count"]),
        )
        place = settings.kernel("place", self._index).bind(
            into=self._filled(state, values),
            field_stride=settings.field_stride,
            **self._into,
            **self._options(BLOCK * self._into["count"]),
        )
        return Bound(state, gather, place)

    def _on_device(self, values: np.ndarray) -> Array:
        return self._device.from_host(np.ascontiguousarray(values, self._index))

    def _chunks(
        self, messages: Sequence[Message], listed: Listed, fields: int, slots: Sequence[Slot]
    ) -> Chunks:
        """Messages as gather_scatter.cpp takes them."""
        entries = dict(listed)
        # A message that only keeps two ranks in step has flags, and nothing to pack.
        wanted = [fields * len(entries.get(message.rank, ())) for message in messages]
        firsts = np.cumsum([0, *wanted])
        return self._table(
            [
                (int(firsts[p.message]) + p.begin, min(p.size, wanted[p.message]), *p.places)
                for p in self._pieces(messages, slots)
            ],
            CHUNK_COLUMNS,
        )


@dataclass(frozen=True, eq=False)
class ListExchange:
    """Copying between owners and those who hold copies."""

    forward: OneWay  # Owners' values to all copies
    backward: OneWay | None  # Copies' values to their owners; None where it was not asked for
    settings: Settings  # What it was opened with

    @property
    def transport(self) -> str:
        """Name of the transport in use."""
        return self.forward.transport

    @property
    def capturable(self) -> bool:
        """Whether both ways may be captured into a graph."""
        return self.forward.capturable

    def renew(self, world: World, lists: Lists, field_stride: int | None = None) -> ListExchange:
        """Open an exchange of other lists in the same way; all ranks call this."""
        # Cheap enough for lists that change every few steps: the transport is known, the kernels
        # are at hand, and what is left is some collective calls of a few bytes each, new buffers,
        # and the lists' way to the device.
        settings = self.settings
        if field_stride is not None:
            settings = replace(settings, field_stride=field_stride)
        return _open(world, settings, lists, self.transport, self.backward is not None, None)


def open_lists(
    world: World,
    device: Device,
    lists: Lists,
    dtype: Any,
    transport: str = "auto",
    *,
    fields: int = 1,
    field_stride: int = 0,
    backward: bool = False,
    state: Array | None = None,
    stream: Any = None,
    graphs: bool = True,
    log: Callable[[str], None] | None = None,
) -> ListExchange:
    """Open an exchange of listed entries; all ranks call this."""
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
    settings = Settings(device, dtype, fields, field_stride, stream, graphs, log)
    return _open(world, settings, lists, transport, backward, state)


def _open(
    world: World,
    settings: Settings,
    lists: Lists,
    transport: str,
    backward: bool,
    state: Array | None,
) -> ListExchange:
    if backward:
        _require_single_copies(world, lists)
    forward = _open_one(world, settings, lists, transport, state)
    back = None
    if backward:
        back = _open_one(world, settings, lists.reversed, forward.transport, state)
    return ListExchange(forward, back, settings)


def _open_one(
    world: World, settings: Settings, lists: Lists, transport: str, state: Array | None
) -> OneWay:
    device, fields = settings.device, settings.fields
    if state is None and transport == "auto" and device.kind != "cpu":
        state = device.zeros((values_needed(lists, fields, settings.field_stride),), settings.dtype)
    return open_by_name(
        world,
        device,
        plan_of_lists(lists, fields, both_ways=device.kind != "cpu"),
        _moved_as(settings.dtype),
        transport,
        lambda made: OneWay(settings, lists, made),
        state=state,
        stream=settings.stream,
        graphs=settings.graphs,
        repacks=True,
        log=settings.log,
    )


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


def values_needed(lists: Lists, fields: int, field_stride: int) -> int:
    """Values that an array must have."""
    last = max(int(at.max(initial=-1)) for at in (lists.sent, lists.received))
    return last + 1 + (fields - 1) * field_stride if last >= 0 else 0


def _require_single_copies(world: World, lists: Lists) -> None:
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
