"""Slow ways to exchange, which studies compare with: planes by planes, repacked, blocking, all pairs, field by field."""

# Fast exchanges know none of these: haloscope.exchange.choice loads one where a case asks for it.

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.case.tables import Machine
from haloscope.device.interface import Array, Box, Device
from haloscope.device.program import View
from haloscope.errors import InputError, MachineError
from haloscope.exchange.engine import Link, Transport, buffer, unavailable
from haloscope.exchange.entries import Entries, Layout, Placement, entries_of_lists
from haloscope.exchange.plan import Listed, Lists, Message, Plan, check_plans, first_fault
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.exchange.rows import Rows
from haloscope.exchange.transports import Requests, slices
from haloscope.mesh.blocks import Block, halo_plan
from haloscope.mesh.blocks import Layout as BlockLayout
from haloscope.mesh.halo import PACKED_AXES, open_boxes
from haloscope.regions import Region

# The rungs of the ladder are those of Xue and Roy, section 4.5: nothing packed and all fields as wide as
# the widest (baseline); the fastest direction packed (V1); the same with each field as wide as its
# stencil needs (V2); all directions packed (V3).


def open_ladder(
    world: World,
    device: Device,
    block: Block,
    layout: BlockLayout,
    widths: Sequence[int],
    states: Sequence[Array],
    machine: Machine,
    *,
    stream: Any = None,
    log: Callable[[str], None] | None = None,
) -> Any:
    """Open the exchange of a rung of the ladder, as :func:`haloscope.mesh.halo.open_halo`."""
    if machine.widths == "uniform":
        widths = [max(widths)] * len(widths)
    packed = PACKED_AXES[machine.packing]
    bare = tuple(axis for axis in range(3) if axis not in packed)
    plans = [halo_plan(block, layout, widths, axes) for axes in (packed, bare)]
    counts = [world.any(bool(plan.sends or plan.receives)) for plan in plans]
    dtype = states[0].dtype
    parts: list[Any] = []
    if counts[0]:
        parts.append(
            open_boxes(
                *(world, device, plans[0], dtype, machine.transport),
                state=states[1],
                stream=stream,
                graphs=machine.graphs,
                log=log,
            )
        )
    if counts[1]:
        name = machine.transport
        if name == "auto":
            name = "host" if device.kind == "cpu" else "staged"
        parts.append(UnpackedExchange(world, device, plans[1], dtype, name, states, stream))
    if len(parts) > 1:
        return InTurn(parts)
    return parts[0] if parts else None


_COPY = Region("copy planes", movement=True)
_SEND = Region("exchange send", movement=True)
_WAIT = Region("exchange wait", movement=True)


def planes(messages: Sequence[Message]) -> Iterator[tuple[int, Box]]:
    """Every plane of every box, with the other rank."""
    for message in messages:
        for box in message.boxes:
            (n0, n1, n2), (s0, s1, s2) = box.counts, box.strides
            # The thin direction is the last one, or the second where y is cut.
            if n1 < n2:
                n1, n2, s1, s2 = n2, n1, s2, s1
            for layer in range(n2):
                yield message.rank, Box(box.first + layer * s2, (n0, n1, 1), (s0, s1, s2))


class UnpackedExchange:
    """The contract of :class:`haloscope.exchange.engine.Exchange`, plane by plane."""

    capturable = False

    def __init__(
        self,
        world: World,
        device: Device,
        plan: Plan,
        dtype: Any,
        transport: str,
        states: Sequence[Array],
        stream: Any = None,
    ) -> None:
        allowed = ("host", "staged") if device.kind == "cpu" else ("staged", "peer")
        if transport not in allowed:
            raise InputError(
                f"it cannot send planes without packing them (machine.packing) on {device.name}",
                location=f"machine.transport = {transport!r}",
                allowed=" or ".join(map(repr, allowed)),
            )
        check_plans(world, plan)
        self.transport = transport
        self._world, self._device, self._stream = world, device, stream
        self._sends = list(planes(plan.sends))
        self._receives = list(planes(plan.receives))
        self._states = {id(state): (number, state) for number, state in enumerate(states)}
        size = np.dtype(dtype).itemsize
        self.bytes_sent = sum(box.size for _, box in self._sends) * size
        self.messages_sent = len(self._sends)
        self._noted: Any = None
        self._requests: list[Any] = []
        if transport == "host":
            self._requests = [self._strided(state) for state in states]
        elif transport == "staged":
            self._out = device.staging(sum(box.size for _, box in self._sends), dtype)
            self._in = device.staging(sum(box.size for _, box in self._receives), dtype)
            one = self._persistent(
                list(_parts(self._receives, self._in)), list(_parts(self._sends, self._out))
            )
            self._requests = [one for _ in states]
        else:
            self._map_neighbours(plan)
            empty = np.zeros(1, np.uint8)
            neighbours = sorted({rank for rank, _ in self._sends})
            one = self._persistent(
                [(rank, empty.copy()) for rank in neighbours],
                [(rank, empty) for rank in neighbours],
            )
            self._requests = [one for _ in states]

    def _persistent(self, receives: list[tuple[int, Any]], sends: list[tuple[int, Any]]) -> Any:
        assert isinstance(self._world, MpiWorld)
        communicator = self._world.communicator
        made = [communicator.Recv_init(part, source=rank) for rank, part in receives]
        made += [communicator.Send_init(part, dest=rank) for rank, part in sends]
        weakref.finalize(self, _free, made)
        return made

    def _strided(self, state: np.ndarray) -> Any:
        """Requests of MPI's own strided types on an array."""
        assert isinstance(self._world, MpiWorld)
        types: list[Any] = []

        def described(box: Box) -> list[Any]:
            (n0, n1, _), (s0, s1, _) = box.counts, box.strides
            mpi = self._world._mpi  # type: ignore[attr-defined]
            number = mpi.DOUBLE if state.itemsize == 8 else mpi.FLOAT
            row = number.Create_vector(n0, 1, s0)
            plane = row.Create_hvector(n1, 1, s1 * state.itemsize).Commit()
            types.extend((row, plane))
            return [state[box.first :], 1, plane]

        made = self._persistent(
            [(rank, described(box)) for rank, box in self._receives],
            [(rank, described(box)) for rank, box in self._sends],
        )
        weakref.finalize(self, _free, types)
        return made

    def _map_neighbours(self, plan: Plan) -> None:
        """Addresses of the neighbours' planes, for each of the arrays."""
        device, world = self._device, self._world
        mine: dict[int, list[Box]] = {}
        for rank, box in self._receives:
            mine.setdefault(rank, []).append(box)
        fault, handles = "", []
        for _, state in self._states.values():
            handle, problem = device.share(state)
            handles.append(handle)
            fault = fault or problem
        most = int(world.largest(float(max(map(len, mine.values()), default=0))))
        offer = np.zeros((world.size, len(handles) * 64 + most * 24), np.uint8)
        for rank, boxes in mine.items():
            shapes = np.array([(b.first, b.strides[0], b.strides[1]) for b in boxes], np.int64)
            row = b"".join(h.ljust(64, b"\0") for h in handles) + shapes.tobytes()
            offer[rank, : len(row)] = np.frombuffer(row, np.uint8)
        answers = world.alltoall(offer)
        self._there: list[list[tuple[int, Box]]] = [[] for _ in handles]
        taken: dict[int, int] = {}
        bases: dict[tuple[int, int], int] = {}
        for rank, box in self._sends if not fault else ():
            row = answers[rank]
            shapes = row[len(handles) * 64 :].view(np.int64).reshape(-1, 3)
            first, s0, s1 = (int(n) for n in shapes[taken.get(rank, 0)])
            taken[rank] = taken.get(rank, 0) + 1
            for number in range(len(handles)):
                if (rank, number) not in bases:
                    handle = row[64 * number : 64 * number + 64].tobytes()
                    try:
                        base = device.map_region(handle)
                    except MachineError as error:
                        fault, base = error.problem, 0
                    else:
                        weakref.finalize(self, device.unmap_region, base).atexit = False
                    bases[rank, number] = base
                there = Box(first, box.counts, (s0, s1, 0))
                self._there[number].append((bases[rank, number], there))
        shared_fault = first_fault(world, fault)
        if shared_fault is not None:
            raise unavailable("peer", shared_fault)

    @property
    def stream(self) -> Any:
        """The stream of its copies; None: the main one."""
        return self._stream

    def name_parts(self, array: Array, **views: View) -> None:
        """Do nothing: no kernel takes part."""

    def prepare(self, *states: Array, into: Array | None = None) -> None:
        """Do nothing: the arrays are known."""

    def start(self, state: Array) -> None:
        """Begin to copy and to send all planes."""
        number = self._states[id(state)][0]
        if self.transport == "host":
            with _SEND:
                self._world._mpi.Prequest.Startall(self._requests[number])  # type: ignore[attr-defined]
            return
        with _COPY:
            address, size = self._device.address(state), state.itemsize
            if self.transport == "staged":
                at = self._out.ctypes.data
                for _, box in self._sends:
                    packed = Box(0, box.counts, (1, box.counts[0], box.size))
                    self._device.copy_box(at, packed, address, box, size, self._stream)
                    at += box.size * size
            else:
                for (_, box), (base, there) in zip(self._sends, self._there[number], strict=True):
                    self._device.copy_box(base, there, address, box, size, self._stream)
            self._noted = self._device.note(self._stream)

    def progress(self) -> None:
        """Give MPI the processor for a moment, where it sends from the arrays themselves."""
        if self.transport == "host":
            for requests in self._requests:
                self._world._mpi.Request.Testall(requests)  # type: ignore[attr-defined]

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Wait for all planes and put them where they belong."""
        number = self._states[id(state)][0]
        mpi = self._world._mpi  # type: ignore[attr-defined]
        with _WAIT:
            if self.transport != "host":
                self._noted()
                mpi.Prequest.Startall(self._requests[number])
            mpi.Request.Waitall(self._requests[number])
        if self.transport == "staged":
            with _COPY:
                address, size = self._device.address(state), state.itemsize
                at = self._in.ctypes.data
                for _, box in self._receives:
                    packed = Box(0, box.counts, (1, box.counts[0], box.size))
                    self._device.copy_box(address, box, at, packed, size, self._stream)
                    at += box.size * size
                # The pinned memory is filled anew in the next exchange.
                self._device.note(self._stream)()

    def swap(self, state: Array, into: Array | None = None) -> None:
        """Start and finish with nothing in between."""
        self.start(state)
        self.finish(state)


def _parts(boxes: list[tuple[int, Box]], array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    start = 0
    for rank, box in boxes:
        yield rank, array[start : start + box.size]
        start += box.size


def _free(things: list[Any]) -> None:
    for thing in things:
        thing.Free()


class InTurn:
    """Several exchanges of the same arrays as one: of different boxes, or of one field after the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self.transport = str(parts[0].transport)
        self.capturable = all(part.capturable for part in parts)
        self.bytes_sent = sum(part.bytes_sent for part in parts)
        self.messages_sent = sum(part.messages_sent for part in parts)

    @property
    def stream(self) -> Any:
        return self._parts[0].stream

    def name_parts(self, array: Array, **views: View) -> None:
        for part in self._parts:
            part.name_parts(array, **views)

    def prepare(self, *states: Array, into: Array | None = None) -> None:
        for part in self._parts:
            part.prepare(*states, into=into)

    def start(self, state: Array) -> None:
        for part in self._parts:
            part.start(state)

    def progress(self) -> None:
        for part in self._parts:
            part.progress()

    def finish(self, state: Array, into: Array | None = None) -> None:
        for part in self._parts:
            part.finish(state, into)

    def swap(self, state: Array, into: Array | None = None) -> None:
        self.start(state)
        self.finish(state, into)


def field_by_field(
    opener: Callable[..., Any], fields: int, placement: Placement, transport: str, **options: Any
) -> InTurn:
    """Open one exchange for each field, with a message of its own, instead of one for all of them.

    `opener`: opens that of one field, with `placement` and `transport` by name, of a `Sharing`.
    """
    parts: list[Any] = []
    for field in range(fields):
        one = replace(placement, first=placement.first + field * placement.field_stride)
        name = parts[0].transport if parts else transport
        parts.append(opener(placement=one, transport=name, **options))
    return InTurn(parts)


_OUT = Region("device to host", movement=True)
_REPACK = Region("repack", movement=True)
_MPI = Region("MPI", movement=True)
_IN = Region("host to device", movement=True)


class RepackedTransport(Transport):
    """Copy to the host, repack, MPI, repack, copy to the device, each of them waited for.

    All but the copy to the device happens in `start`, so that nothing is computed meanwhile.
    :meth:`arrange` is called once, before the first exchange.
    """

    name = "repacked"

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        self._device, self._stream = device, stream
        self._packed, self.outgoing = buffer(device, plan.sends, dtype)
        self._arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._host_packed = device.staging(len(self._packed), dtype)
        self._host_arriving = device.staging(len(self._arriving), dtype)
        self._sent, self._received = (
            np.zeros(len(array), dtype) for array in (self._packed, self._arriving)
        )
        self._requests = Requests(world, plan, self._sent, self._received)
        self._to_messages = self._from_messages = np.zeros(0, np.int64)

    def arrange(self, outgoing: NDArray[np.int64], incoming: NDArray[np.int64]) -> None:
        """Say which value of the messages each value of the device's buffers is."""
        self._to_messages = np.empty_like(outgoing)
        self._to_messages[outgoing] = np.arange(len(outgoing))
        self._from_messages = incoming

    def start(self) -> None:
        """Exchange the messages on the host."""
        with _OUT:
            self._device.copy_out(self._packed, self._host_packed, self._stream)()
        with _REPACK:
            _reorder(self._host_packed, self._to_messages, self._sent)
        with _MPI:
            self._requests.start()
            self._requests.finish()
        with _REPACK:
            _reorder(self._received, self._from_messages, self._host_arriving)

    def finish(self) -> None:
        """Copy what has come in to the device."""
        with _IN:
            self._device.copy_in(self._arriving, self._host_arriving, self._stream)
            # The pinned memory is filled anew in the next exchange.
            self._device.note(self._stream)()


def _reorder(values: np.ndarray, order: NDArray[np.int64], into: np.ndarray) -> None:
    if len(order):
        # With this mode nothing is buffered on the way.
        np.take(values, order, out=into, mode="clip")


class BlockingTransport(Transport):
    """Blocking messages with those ranks that there is something to say to; all of it in `start`."""

    # In turn d a rank sends to the rank d after it and receives from the rank d before it, counted
    # around. So no rank waits for one that waits for it, however MPI treats large messages: a turn
    # needs only that all have got to it.

    name = "blocking"
    everyone = False
    """Whether ranks that have nothing to say to each other take their turns, too."""

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        if device.kind != "cpu":
            raise InputError(
                "it is for studies on processor cores, but the device is a GPU",
                location=f"transport {self.name!r}",
                remedy="use 'auto'",
            )
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        sends = dict(slices(plan.sends, packed))
        receives = dict(slices(plan.receives, arriving))
        self._turns: list[Callable[[], None]] = []
        if isinstance(world, MpiWorld):
            empty = packed[:0]
            for distance in range(1, world.size):
                to, source = ((world.rank + way) % world.size for way in (distance, -distance))
                self._add(world, sends.get(to, empty), to, receives.get(source, empty), source)
        if world.rank in sends:
            out, into = sends[world.rank], receives[world.rank]
            self._turns.append(functools.partial(into.__setitem__, slice(None), out))

    def _add(self, world: MpiWorld, out: Array, to: int, into: Array, source: int) -> None:
        """The call of a turn, if there is any."""
        communicator = world.communicator
        if self.everyone or (len(out) and len(into)):
            call = functools.partial(communicator.Sendrecv, out, to, 0, into, source, 0)
        elif len(out):
            call = functools.partial(communicator.Send, out, to, 0)
        elif len(into):
            call = functools.partial(communicator.Recv, into, source, 0)
        else:
            return
        self._turns.append(call)

    def start(self) -> None:
        """Send what is packed and receive what the others send, one turn after the other."""
        for turn in self._turns:
            turn()


class AllPairsTransport(BlockingTransport):
    """An MPI_Sendrecv with every other rank, empty where the two have nothing to say."""

    name = "all-pairs"
    everyone = True


Order = NDArray[np.int64]


def in_memory_order(
    messages: Sequence[Message], listed: Listed, fields: int, field_stride: int
) -> tuple[Listed, Order]:
    """Lists of single values, ascending in each message, and their places in the messages."""
    entries, boxes = dict(listed), []
    orders, first = [np.zeros(0, np.int64)], 0
    for message in messages:
        at = entries.get(message.rank, np.zeros(0, np.int64))
        places = np.arange(message.size)
        if len(at):
            values = (at[:, None] + field_stride * np.arange(fields)).reshape(-1)
            places = np.argsort(values, kind="stable")
            boxes.append((message.rank, values[places]))
        orders.append(first + places)
        first += message.size
    return tuple(boxes), np.concatenate(orders)


def rows_in_memory_order(rooms: Sequence[int], width: int, fields: int) -> Order:
    """The same of messages of rows: on the device field after field in a row, in messages value after value."""
    places = np.arange(sum(rooms) * width * fields)
    return np.ascontiguousarray(places.reshape(-1, width, fields).transpose(0, 2, 1)).reshape(-1)


def repacked_entries(link: Link, layout: Layout, lists: Lists) -> Entries:
    """The entries of lists for a host that repacks: value by value on the device, in the order of memory."""
    transport, plan = link.transport, link.plan
    assert isinstance(transport, RepackedTransport)
    fields, stride = layout.fields, layout.field_stride
    out, outgoing = in_memory_order(plan.sends, lists.sends, fields, stride)
    into, incoming = in_memory_order(plan.receives, lists.receives, fields, stride)
    transport.arrange(outgoing, incoming)
    single = layout._replace(fields=1, field_stride=0)
    return entries_of_lists(link, single, Lists(out, into))


def arrange_rows(rows: Rows) -> None:
    """Have the host repack rows: on the device they lie field after field."""
    transport = rows.link.transport
    assert isinstance(transport, RepackedTransport)
    transport.arrange(
        *(rows_in_memory_order(list(room.values()), rows.width, rows.fields) for room in rows.rooms)
    )
