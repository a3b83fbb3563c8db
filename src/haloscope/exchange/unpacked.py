"""For studies: an exchange that copies and sends every plane of every field by itself.

This is how a program begins whose arrays were moved to GPUs as they were: strided copies between
device and host, a message a plane (the baseline of Xue and Roy, section 4.5). It shows what
packing is worth.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from haloscope.device.fields import View
from haloscope.device.interface import Array, Device
from haloscope.errors import InputError, MachineError
from haloscope.exchange.plan import Box, Message, Plan, check_plans, first_fault
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.exchange.transports.contract import unavailable
from haloscope.regions import Region

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
    """The contract of :class:`haloscope.exchange.packed.Exchange`, plane by plane."""

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

    def prepare(self, *states: Array) -> None:
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

    def finish(self, state: Array) -> None:
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

    def swap(self, state: Array) -> None:
        """Start and finish with nothing in between."""
        self.start(state)
        self.finish(state)


class SeveralExchanges:
    """Exchanges of different boxes of the same arrays, as one."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self.transport = str(parts[0].transport)
        self.capturable = all(part.capturable for part in parts)
        self.bytes_sent = sum(part.bytes_sent for part in parts)
        self.messages_sent = sum(part.messages_sent for part in parts)

    @property
    def stream(self) -> Any:
        """The stream of all of them; None: the main one."""
        return self._parts[0].stream

    def name_parts(self, array: Array, **views: View) -> None:
        """Tell all."""
        for part in self._parts:
            part.name_parts(array, **views)

    def prepare(self, *states: Array) -> None:
        """Prepare all."""
        for part in self._parts:
            part.prepare(*states)

    def start(self, state: Array) -> None:
        """Start all."""
        for part in self._parts:
            part.start(state)

    def progress(self) -> None:
        """Give all a chance to go on."""
        for part in self._parts:
            part.progress()

    def finish(self, state: Array) -> None:
        """Finish all."""
        for part in self._parts:
            part.finish(state)

    def swap(self, state: Array) -> None:
        """Start and finish all with nothing in between."""
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
