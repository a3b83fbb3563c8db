"""Slower transports that studies compare with: repacked messages, blocking and all-pairs exchanges."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.exchange.transports.contract import buffer
from haloscope.exchange.transports.mpi import Requests, slices
from haloscope.regions import Region

_OUT = Region("device to host", movement=True)
_REPACK = Region("repack", movement=True)
_MPI = Region("MPI", movement=True)
_IN = Region("host to device", movement=True)


class RepackedTransport:
    """Copy to the host, repack, MPI, repack, copy to the device, each of them waited for.

    All but the copy to the device happens in `start`, so that nothing is computed meanwhile.
    :meth:`arrange` is called once, before the first exchange.
    """

    name = "repacked"
    capturable = False

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

    def progress(self) -> None:
        """Do nothing: all messages have come in."""

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


class BlockingTransport:
    """Blocking messages with those ranks that there is something to say to; all of it in `start`."""

    # In turn d a rank sends to the rank d after it and receives from the rank d before it, counted
    # around. So no rank waits for one that waits for it, however MPI treats large messages: a turn
    # needs only that all have got to it.

    name = "blocking"
    capturable = False
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

    def progress(self) -> None:
        """Do nothing: all messages have come in."""

    def finish(self) -> None:
        """Do nothing: all messages have come in."""


class AllPairsTransport(BlockingTransport):
    """An MPI_Sendrecv with every other rank, empty where the two have nothing to say."""

    name = "all-pairs"
    everyone = True
