"""Transport between cores: persistent MPI requests straight on the packed messages."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from haloscope.device.interface import Array, Device
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.exchange.transports.contract import buffer


class Requests:
    """Persistent sends and receives of a plan over two buffers, and the copy to self."""

    def __init__(self, world: World, plan: Plan, outgoing: Array, incoming: Array) -> None:
        sends = list(slices(plan.sends, outgoing))
        receives = list(slices(plan.receives, incoming))
        own_out = [part for rank, part in sends if rank == world.rank]
        own_in = [part for rank, part in receives if rank == world.rank]
        self._own = list(zip(own_out, own_in, strict=True))
        self._receives: list[Any] = []
        self._sends: list[Any] = []
        if isinstance(world, MpiWorld):
            self._mpi = world._mpi
            communicator = world.communicator
            self._receives = [
                communicator.Recv_init(part, source=rank)
                for rank, part in receives
                if rank != world.rank
            ]
            self._sends = [
                communicator.Send_init(part, dest=rank)
                for rank, part in sends
                if rank != world.rank
            ]
            # MPI does not give persistent requests back by itself; this runs before MPI ends.
            weakref.finalize(self, _free, self._receives + self._sends)

    def start(self) -> None:
        """Post receives, then sends."""
        if self._receives:
            self._mpi.Prequest.Startall(self._receives)
        if self._sends:
            self._mpi.Prequest.Startall(self._sends)
        for out, into in self._own:
            into[...] = out

    def test(self) -> bool:
        """Let MPI go on with them, and tell whether all are done."""
        if self._receives or self._sends:
            return bool(self._mpi.Request.Testall(self._receives + self._sends))
        return True

    def finish(self) -> None:
        """Wait for all of them."""
        if self._receives or self._sends:
            self._mpi.Request.Waitall(self._receives + self._sends)


def _free(requests: list[Any]) -> None:
    for request in requests:
        request.Free()


def slices(messages: Sequence[Message], array: Array) -> Iterator[tuple[int, Array]]:
    """The other rank of each message, and where it lies in an array that holds all of them."""
    start = 0
    for message in messages:
        yield message.rank, array[start : start + message.size]
        start += message.size


class HostTransport:
    """MPI between processor cores."""

    name = "host"
    capturable = False

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._requests = Requests(world, plan, packed, arriving)

    def start(self) -> None:
        """Send what is packed."""
        self._requests.start()

    def progress(self) -> None:
        """Give MPI the processor for a moment."""
        self._requests.test()

    def finish(self) -> None:
        """Wait until all has come in and gone out."""
        self._requests.finish()
