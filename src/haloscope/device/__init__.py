"""Devices: one kernel source and one set of calls for processor cores and NVIDIA GPUs.

Contains the compile cache, memory ceilings and energy meters. Imported by scope, exchange and all
above; imports io and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from haloscope.errors import InputError, MachineError

if TYPE_CHECKING:
    from haloscope.device.interface import Device

__all__ = ["open_device", "require_known"]

KINDS = ("cpu", "cuda", "auto")


def open_device(kind: str = "auto", *, local_rank: int = 0, threads: int | None = None) -> Device:
    """Open the device that a rank computes on.

    Parameters
    ----------
    kind
        ``cpu``, ``cuda``, or ``auto``: a GPU when one can be used, else the cores.
    local_rank
        Number of this rank among those of its host; GPUs are given out round robin by it.
    threads
        Threads on cores; by default as many as the process may run on.

    Raises
    ------
    InputError
        Another kind was given.
    MachineError
        ``cuda`` was asked for and there is no usable GPU or no CuPy.
    """
    require_known(kind)
    if kind in ("cuda", "auto"):
        from haloscope.device import cuda

        try:
            return cuda.CudaDevice(local_rank)
        except MachineError:
            if kind == "cuda":
                raise
    from haloscope.device import cpu

    return cpu.CpuDevice(threads)


def require_known(kind: str) -> None:
    """Refuse a device of another name than those that there are."""
    if kind not in KINDS:
        raise InputError("unknown value", location=f"device = {kind!r}", allowed=", ".join(KINDS))
