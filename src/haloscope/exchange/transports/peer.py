"""Transport between GPUs of one host: kernels store straight into the neighbour's memory."""

from __future__ import annotations

import platform
import weakref
from typing import Any

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import MachineError
from haloscope.exchange.plan import Message, Plan, cut
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import Slot

_HANDLE = 64
_LINE = 128


class PeerTransport:
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

    def start(self) -> None:
        """Do nothing: the pack kernel has sent."""

    def progress(self) -> None:
        """Do nothing: the GPU goes on by itself."""

    def finish(self) -> None:
        """Do nothing: the unpack kernel waits for the flags."""


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
