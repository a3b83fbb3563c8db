"""For studies: transport through host memory whose layout of messages is another than the GPUs'.

This is how a program goes on whose exchange was written for cores before its fields moved to GPUs (Ames
and others, J. Comput. Sci. 44 (2020) 101153, section 2.4): GPUs pack structures of arrays, the host turns
them into the arrays of structures that its messages have, and back. It shows what direct transports
are worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import buffer
from haloscope.exchange.transports.host import Requests
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
