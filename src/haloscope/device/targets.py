"""Targets of kernels: the cores of this machine, or GPUs that may be elsewhere; files that are compiled for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from haloscope.device.declarations import Constants
from haloscope.device.interface import Device

CORES = "cpu"
COPY_ENGINE_FROM = 90  # compute capability: 9.0 has one
# Kilobytes of shared memory of a block by compute capability (CUDA C++ Programming Guide, table of
# technical specifications); GPUs that are not there count as those of workstations.
_BLOCK_MEMORY = {75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 103: 227, 110: 227}
_LEAST_BLOCK_MEMORY = 99


@dataclass(frozen=True)
class KnownTarget:
    """The cores of this machine, or GPUs of an architecture."""

    name: str  # ``cpu``, or an architecture such as ``sm_90``
    kind: str = field(init=False)
    copy_engine: bool = field(init=False)
    block_memory: int = field(init=False)

    def __post_init__(self) -> None:
        on_cores = self.name == CORES
        capability = 0 if on_cores else int(self.name.removeprefix("sm_"))
        kilobytes = 0 if on_cores else _BLOCK_MEMORY.get(capability, _LEAST_BLOCK_MEMORY)
        object.__setattr__(self, "kind", "cpu" if on_cores else "cuda")
        object.__setattr__(self, "copy_engine", capability >= COPY_ENGINE_FROM)
        object.__setattr__(self, "block_memory", kilobytes << 10)


Target: TypeAlias = KnownTarget | Device
"""A device, or all that constants of kernels depend on of one that may be elsewhere."""


class KernelFile(NamedTuple):
    """A kernel source and the constants that it is compiled with."""

    source: Path
    constants: Constants


class HostFile(KernelFile):
    """A kernel file for the host's cores, also in runs on GPUs."""

    __slots__ = ()
