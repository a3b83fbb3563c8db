"""Transports between GPUs, which need no host to go on: through NCCL, and by stores into the neighbour's memory."""

from __future__ import annotations

import platform
import weakref
from typing import Any

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import MachineError, install_command
from haloscope.exchange.engine import Slot, Transport, buffer
from haloscope.exchange.plan import Message, Plan, cut
from haloscope.exchange.ranks.world import World

_communicators: weakref.WeakKeyDictionary[World, Any] = weakref.WeakKeyDictionary()


def _communicator(world: World, device: Device) -> Any:
    """NCCL's communicator of all ranks, made once: that takes a second or more."""
    if world in _communicators:
        return _communicators[world]
    try:
        from cupy.cuda import nccl

        fault = "" if nccl.available else "this CuPy was built without NCCL"
    except ImportError as error:
        fault = f"NCCL cannot be loaded ({error})"
    places = world.gather_texts(f"missing: {fault}" if fault else device.identity)
    for rank, place in enumerate(places):
        if place.startswith("missing: "):
            raise MachineError(
                f"{place.removeprefix('missing: ')} on rank {rank}",
                remedy=f"run {install_command('cuda13')} (or with the extra cuda12), or use another transport",
            )
    if len(set(places)) < len(places):
        raise MachineError(
            "several ranks share a GPU, which NCCL does not allow",
            remedy="start one rank a GPU or use another transport",
        )
    # CuPy gives it as bytes, or, before version 14, as a tuple of signed numbers.
    identifier = nccl.get_unique_id()
    plain = isinstance(identifier, bytes)
    identity = np.frombuffer(identifier, np.int8) if plain else np.array(identifier, np.int8)
    shared = world.broadcast(identity)
    key = shared.tobytes() if plain else tuple(int(b) for b in shared)
    try:
        made = nccl.NcclCommunicator(world.size, key, world.rank)
    except nccl.NcclError as error:
        raise MachineError(f"NCCL cannot connect the ranks ({error})") from error
    _communicators[world] = made
    return made


class NcclTransport(Transport):
    """Messages as grouped sends and receives on the stream; no host is needed to go on."""

    name = "nccl"
    capturable = True

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        self._communicator = _communicator(world, device)
        from cupy.cuda import nccl

        self._nccl = nccl
        self._stream = (stream or device.stream).ptr
        # By size: values are moved, whatever they stand for.
        types = {2: nccl.NCCL_FLOAT16, 4: nccl.NCCL_FLOAT32, 8: nccl.NCCL_FLOAT64}
        self._type = types[np.dtype(dtype).itemsize]
        self._arrays = [buffer(device, m, dtype) for m in (plan.sends, plan.receives)]
        self.outgoing, self.incoming = (slots for _, slots in self._arrays)
        self._sends, self._receives = (
            [(slot.even, message.size, message.rank) for slot, message in zip(s, m, strict=True)]
            for s, m in ((self.outgoing, plan.sends), (self.incoming, plan.receives))
        )

    def start(self) -> None:
        """Queue all messages on the stream."""
        self._nccl.groupStart()
        for address, count, rank in self._sends:
            self._communicator.send(address, count, self._type, rank, self._stream)
        for address, count, rank in self._receives:
            self._communicator.recv(address, count, self._type, rank, self._stream)
        self._nccl.groupEnd()


_HANDLE = 64
_LINE = 128


class PeerTransport(Transport):
    """CUDA IPC: the pack kernel writes into the neighbour's receive buffer and raises its flags."""

    # Each rank has one region that the others map: flags, and twice the room for what comes in. The
    # kernels that pack and unpack do all the rest, see exchange.cpp. Two places for a message are
    # enough because messages go both ways between two ranks: what has come from a rank in one
    # exchange says that it has read what went to it in the one before.

    name = "peer"
    capturable = True

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        size = np.dtype(dtype).itemsize
        rooms, total = _rooms(plan.receives, size)
        self._region = device.shared_zeros((max(total, _LINE),), np.uint8)
        handle, fault = device.share(self._region)
        # To each rank: how to map this region, and where its message has its flags and places.
        offers = np.zeros((world.size, _HANDLE + 5 * 8), np.uint8)
        for message, room in zip(plan.receives, rooms, strict=True):
            row = np.array([len(handle), *room, message.size], np.int64)
            offers[message.rank, :_HANDLE] = np.frombuffer(handle.ljust(_HANDLE, b"\0"), np.uint8)
            offers[message.rank, _HANDLE:] = row.view(np.uint8)
        answers = world.alltoall(offers)
        hosts = world.gather_texts(platform.node())
        self.outgoing: list[Slot] = []
        if {m.rank for m in plan.sends} != {m.rank for m in plan.receives}:
            fault = "it needs messages in both directions between two ranks"
        for message in plan.sends:
            there = answers[message.rank]
            usable, flags, even, odd, _ = (int(n) for n in there[_HANDLE:].view(np.int64))
            if hosts[message.rank] != hosts[world.rank]:
                fault = fault or f"rank {message.rank} is on another host ({hosts[message.rank]})"
            if fault or not usable:
                continue
            if message.rank == world.rank:
                base = device.address(self._region)
            else:
                try:
                    base = device.map_region(there[:_HANDLE].tobytes())
                    # At the end of the process the driver does it.
                    weakref.finalize(self, device.unmap_region, base).atexit = False
                except MachineError as error:
                    fault = error.problem
                    continue
            self.outgoing.append(Slot(base + even, base + odd, base + flags))
        if fault:
            raise MachineError(fault)
        base = device.address(self._region)
        self.incoming = [Slot(base + even, base + odd, base + f) for f, even, odd in rooms]


def _rooms(messages: tuple[Message, ...], size: int) -> tuple[list[tuple[int, int, int]], int]:
    """Offsets of each message's flags and two places in a region, and the region's bytes."""
    rooms, at = [], 0
    for message in messages:
        flags = at
        even = flags + _lines(8 * len(cut(message)))
        odd = even + _lines(message.size * size)
        at = odd + _lines(message.size * size)
        rooms.append((flags, even, odd))
    return rooms, at


def _lines(count: int) -> int:
    """Bytes, rounded up to whole cache lines of a GPU."""
    return -(-count // _LINE) * _LINE
