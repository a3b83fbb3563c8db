"""Transport between GPUs without direct access: through pinned host memory and MPI."""

from __future__ import annotations

from typing import Any

from haloscope.device.interface import Device
from haloscope.exchange.plan import Plan
from haloscope.exchange.transports.host import Requests
from haloscope.exchange.world import World


class StagedTransport:
    """Copy to pinned memory, MPI, copy back; the copies and kernels share one stream.

    The copy out is queued by `start`, so that kernels launched between `start` and `finish` run
    on the device while `finish` waits for the copy and for the messages.
    """

    name = "staged"

    def __init__(self, world: World, device: Device, plan: Plan, dtype: Any) -> None:
        sent = max(1, sum(m.size for m in plan.sends))
        received = max(1, sum(m.size for m in plan.receives))
        self._device = device
        self.outgoing = device.empty((sent,), dtype)
        self.incoming = device.empty((received,), dtype)
        self._host_outgoing = device.staging(sent, dtype)
        self._host_incoming = device.staging(received, dtype)
        self._requests = Requests(world, plan, self._host_outgoing, self._host_incoming)
        self._copied = None if device.kind == "cpu" else device.xp.cuda.Event(disable_timing=True)

    def start(self) -> None:
        """Queue the copy to pinned memory."""
        if self._copied is None:
            self._host_outgoing[...] = self.outgoing
        else:
            self.outgoing.get(out=self._host_outgoing, blocking=False)
            self._copied.record()

    def finish(self) -> None:
        """Send, wait for the messages, queue the copy to the device."""
        if self._copied is not None:
            self._copied.synchronize()
        self._requests.start()
        self._requests.finish()
        if self._copied is None:
            self.incoming[...] = self._host_incoming
        else:
            self.incoming.set(self._host_incoming)
