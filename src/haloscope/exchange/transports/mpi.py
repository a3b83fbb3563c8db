"""Transport between GPUs through an MPI that takes GPU memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from haloscope.device.interface import Device
from haloscope.errors import MachineError
from haloscope.exchange.plan import Plan
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import buffer
from haloscope.exchange.transports.host import Requests

_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA


def gpu_aware(world: World) -> str:
    """Why this MPI does not take GPU memory; an empty text where it does.

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
    return (
        f"this MPI ({world.library}) does not take GPU memory; install an MPI built with CUDA, or "
        "use another transport"
    )


def _loaded_library() -> ctypes.CDLL | None:
    """The libmpi of this process."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.rpartition(" ")[2]
        if Path(path).name.startswith(("libmpi.so", "libmpich.so", "libmpi_cray", "libmpi_gnu")):
            return ctypes.CDLL(path)
    return None


class MpiTransport:
    """Persistent MPI requests on GPU memory."""

    name = "mpi"
    capturable = False

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        fault = gpu_aware(world)
        if fault:
            raise MachineError(fault)
        self._device, self._stream = device, stream
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._requests = Requests(world, plan, packed, arriving)
        self._packed: Any = None

    def start(self) -> None:
        """Note when the packing is done."""
        self._packed = self._device.note(self._stream)

    def progress(self) -> None:
        """Do nothing: messages begin in `finish`, when the packing is done."""

    def finish(self) -> None:
        """Send and wait for the messages."""
        self._packed()
        self._requests.start()
        self._requests.finish()
