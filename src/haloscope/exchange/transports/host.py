"""Transport between cores: persistent MPI requests straight on the packed buffers."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.world import MpiWorld, World


class Requests:
    """Persistent sends and receives of a plan over two host buffers, and the copy to self."""

    def __init__(
        self, world: World, plan: Plan, outgoing: np.ndarray, incoming: np.ndarray
    ) -> None:
        sends = list(_slices(plan.sends, outgoing))
        receives = list(_slices(plan.receives, incoming))
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

    def finish(self) -> None:
        """Wait for all of them."""
        if self._receives or self._sends:
            self._mpi.Request.Waitall(self._receives + self._sends)


def _free(requests: list[Any]) -> None:
    for request in requests:
        request.Free()


def _slices(messages: tuple[Message, ...], buffer: np.ndarray) -> Any:
    start = 0
    for message in messages:
        yield message.rank, buffer[start : start + message.size]
        start += message.size


class HostTransport:
    """MPI between processor cores."""

    name = "host"

    def __init__(self, world: World, device: Device, plan: Plan, dtype: Any) -> None:
        self.outgoing = device.empty((max(1, sum(m.size for m in plan.sends)),), dtype)
        self.incoming = device.empty((max(1, sum(m.size for m in plan.receives)),), dtype)
        self._requests = Requests(world, plan, self.outgoing, self.incoming)

    def start(self) -> None:
        """Send what is packed."""
        self._requests.start()

    def finish(self) -> None:
        """Wait until all has come in and gone out."""
        self._requests.finish()
