"""Rows of numbers from each rank to all others, which a kernel sends and waits for by itself."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.plan import Box, Message, Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.opening import open_transport

_WORDS = 6


class DirectRows:
    """Where the rows of other ranks arrive, and where theirs is to go, for GPUs of one host."""

    # A kernel stores this rank's row in all others' memory, raises a flag there, waits for the
    # flags of the others' rows, and reads these. Rows have two places each, for even and for odd
    # exchanges: as all ranks give a row each time, a row that has come says that the one before was
    # read.

    def __init__(self, world: World, device: Device, count: int) -> None:
        others = [rank for rank in range(world.size) if rank != world.rank]
        row = Box(0, (count, 1, 1), (1, count, count))
        messages = tuple(Message(rank, (row,)) for rank in others)
        plan = Plan(messages, messages)
        # It holds the memory that the others have mapped.
        self._transport = open_transport("peer", world, device, plan, np.float64)
        boxes = np.zeros((world.size, _WORDS), np.int64)
        slots = zip(self._transport.outgoing, self._transport.incoming, strict=True)
        for rank, (there, here) in zip(others, slots, strict=True):
            boxes[rank] = there.even, there.odd, there.flags, here.even, here.odd, here.flags
        # For each rank, on the device, (ranks, 6): addresses of the places there for this rank's
        # row in even and in odd exchanges and of its flag, which counts exchanges, then the same of
        # what comes from there; zeros for this rank.
        self.boxes = device.from_host(boxes)
