"""Messages by MPI: between cores, through pinned memory, and between GPUs."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from haloscope.device.interface import Array, Device
from haloscope.errors import MachineError
from haloscope.exchange.engine import Transport, buffer
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.ranks.world import MpiWorld, World


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


class HostTransport(Transport):
    """MPI between processor cores."""

    name = "host"

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


class StagedTransport(Transport):
    """Copy to pinned memory, MPI, copy back; the copies and the packing share one stream.

    The copy out is queued by `start`, so that kernels launched between `start` and `finish` run
    on the device while `finish` waits for the copy and for the messages.
    """

    name = "staged"

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

    def finish(self) -> None:
        """Send, wait for the messages, queue the copy to the device."""
        self._copied()
        self._requests.start()
        self._requests.finish()
        self._device.copy_in(self._arriving, self._host_arriving, self._stream)


_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA


def gpu_aware(world: World) -> str:
    """Why this MPI does not accept GPU memory; an empty text where it does.

    Open MPI and MPICH are asked through their own extensions of MPI, others tell by the
    environment variables with which their users switch it on.
    """
    library = _loaded_library()
    if library is not None and hasattr(library, "MPIX_Query_cuda_support"):
        if library.MPIX_Query_cuda_support():
            return ""
    elif library is not None and hasattr(library, "MPIX_GPU_query_support"):
        answer = ctypes.c_int(0)
        if library.MPIX_GPU_query_support(_MPICH_CUDA, ctypes.byref(answer)) == 0 and answer.value:
            return ""
    for name in ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "MVP_USE_CUDA"):
        if os.environ.get(name) == "1":
            return ""
    return f"this MPI ({world.library}) does not accept GPU memory"


def _loaded_library() -> ctypes.CDLL | None:
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.rpartition(" ")[2]
        if Path(path).name.startswith(("libmpi.so", "libmpich.so", "libmpi_cray", "libmpi_gnu")):
            return ctypes.CDLL(path)
    return None


class MpiTransport(Transport):
    """Persistent MPI requests on GPU memory."""

    name = "mpi"

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        fault = gpu_aware(world)
        if fault:
            raise MachineError(
                fault, remedy="install an MPI built with CUDA, or use another transport"
            )
        self._device, self._stream = device, stream
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._requests = Requests(world, plan, packed, arriving)
        self._packed: Any = None

    def start(self) -> None:
        """Note when the packing is done."""
        self._packed = self._device.note(self._stream)

    def finish(self) -> None:
        """Send and wait for the messages."""
        self._packed()
        self._requests.start()
        self._requests.finish()
