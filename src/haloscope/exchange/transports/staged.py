"""Transport between GPUs without direct access: through pinned host memory and MPI."""

from __future__ import annotations

from typing import Any

from haloscope.device.interface import Device
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import buffer
from haloscope.exchange.transports.host import Requests


class StagedTransport:
    """Copy to pinned memory, MPI, copy back; the copies and the packing share one stream.

    The copy out is queued by `start`, so that kernels launched between `start` and `finish` run
    on the device while `finish` waits for the copy and for the messages.
    """

    name = "staged"
    capturable = False

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        self._device, self._stream = device, stream
        self._packed, self.outgoing = buffer(device, plan.sends, dtype)
        self._arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._host_packed = device.staging(len(self._packed), dtype)
        self._host_arriving = device.staging(len(self._arriving), dtype)
        self._requests = Requests(world, plan, self._host_packed, self._host_arriving)
        self._copied: Any = None

    def start(self) -> None:
        """Queue the copy to pinned memory."""
        self._copied = self._device.copy_out(self._packed, self._host_packed, self._stream)

    def progress(self) -> None:
        """Do nothing: messages begin when the copy is there, in `finish`."""

    def finish(self) -> None:
        """Send, wait for the messages, queue the copy to the device."""
        self._copied()
        self._requests.start()
        self._requests.finish()
        self._device.copy_in(self._arriving, self._host_arriving, self._stream)
