"""The interface of devices, so that solvers and exchanges are written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.declarations import Constants, Declaration

Array = Any
"""A NumPy array on cores, a CuPy array on a GPU."""


@dataclass(frozen=True)
class Box:
    """A box of values in a flat array of numbers."""

    first: int  # Index of its first value
    # Values and distances along three directions, the fastest loop first.
    counts: tuple[int, int, int]
    strides: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Number of values."""
        return self.counts[0] * self.counts[1] * self.counts[2]


class Launch(Protocol):
    """A kernel with its arguments and its extent bound: calling it costs next to nothing."""

    def __call__(self) -> None:
        """Start the kernel; on a GPU it runs after what the stream already holds."""


class Kernel(Protocol):
    """A compiled kernel."""

    @property
    def declaration(self) -> Declaration:
        """Its arguments, as the source declares them."""

    def bind(
        self,
        *,
        extent: tuple[int, ...],
        block: tuple[int, ...] | None = None,
        stream: Any = None,
        shared: int = 0,
        early: bool = False,
        together: bool = False,
        **arguments: Array | Mapping[str, Any] | int | float | None,
    ) -> Launch:
        """Bind arguments by the names that the kernel's source declares.

        Parameters
        ----------
        arguments
            Arrays (None: no array), numbers, and structs as mappings of their members.
        extent
            Threads needed along x, y, z on a GPU; cores take their loop bounds from arguments.
        block
            Threads of a GPU block along x, y, z.
        stream
            One of the device's own streams; None: the main one.
        shared
            Bytes of dynamic shared memory of a GPU block.
        early
            The launch may begin while the one before it on its stream still runs: the kernel says
            itself from where on it needs what that one leaves (kernel.hpp). Only GPUs from sm_90 on do so.
        together
            All blocks of a GPU's launch run side by side, so that they may wait for each other; the extent must
            be so small that they can.

        Raises
        ------
        DeclarationError
            An argument is missing or unknown, or has the wrong type.
        """


class Graph(Protocol):
    """Work recorded once and replayed as a whole."""

    def replay(self, stream: Any = None) -> None:
        """Do the recorded work again, on one of the device's own streams; None: the main one."""


class Device(Protocol):
    """Where arrays live and kernels run."""

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""

    @property
    def name(self) -> str:
        """Name of the device as the machine gives it."""

    @property
    def xp(self) -> Any:
        """The array module: NumPy or CuPy."""

    @property
    def multiprocessors(self) -> int:
        """Processors that run blocks side by side: of a GPU, or threads on cores."""

    @property
    def copy_engine(self) -> bool:
        """Whether kernels can have rows brought to shared memory (GPUs from sm_90 on)."""

    @property
    def block_memory(self) -> int:
        """Bytes of shared memory that a block of a GPU's threads may ask for; 0 on cores."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of a GPU's second-level cache, which all its processors share; 0 on cores."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array of undefined content, aligned for vector loads."""

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array of zeros, aligned for vector loads."""

    def from_host(self, array: np.ndarray) -> Array:
        """Copy of a host array on this device."""

    def to_host(self, array: Array) -> np.ndarray:
        """Copy of a device array on the host."""

    def staging(self, count: int, dtype: DTypeLike) -> np.ndarray:
        """Host array that the device copies to and from at full speed (pinned for a GPU)."""

    def address(self, array: Array) -> int:
        """Where an array begins in the device's memory."""

    @property
    def stream(self) -> Any:
        """The main stream; None on cores."""

    @property
    def side(self) -> Any:
        """A second stream whose kernels go first; None on cores."""

    @property
    def beside(self) -> Any:
        """A third stream, for graphs that need nothing of what the main one does meanwhile; None on cores."""

    def fork(self, stream: Any = None) -> None:
        """Let a stream wait for what the main one holds; None: the side one."""

    def join(self, stream: Any = None) -> None:
        """Let the main stream wait for what another one holds; None: the side one."""

    def note(self, stream: Any = None) -> Callable[[], None]:
        """Note what a stream holds now; the function that is returned waits for that."""

    def copy_out(self, array: Array, host: np.ndarray, stream: Any = None) -> Callable[[], None]:
        """Queue a copy to a staging array; the function that is returned waits for it."""

    def copy_in(self, array: Array, host: np.ndarray, stream: Any = None) -> None:
        """Queue a copy from a staging array."""

    def copy_box(
        self, to: int, to_box: Box, source: int, from_box: Box, size: int, stream: Any = None
    ) -> None:
        """Queue a copy of a plane between arrays at two addresses, host or device.

        Boxes have `first`, `counts` (the same, the third is 1) and `strides`, in values of `size`
        bytes.
        """

    @property
    def identity(self) -> str:
        """Host and place of the device: the same for ranks that share it."""

    def shared_zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array of zeros that other processes of this host can map."""

    def release_shared(self) -> None:
        """Free shared arrays that no process uses any more.

        To be called once all ranks have let go of the exchanges that used them: collect garbage,
        wait for all ranks, then call this.
        """

    def share(self, array: Array) -> tuple[bytes, str]:
        """Handle by which another process maps a shared array, and the reason if it cannot (else empty)."""

    def map_region(self, handle: bytes) -> int:
        """Address at which another process's shared array appears here.

        Raises
        ------
        MachineError
            The driver refuses.
        """

    def unmap_region(self, address: int) -> None:
        """Give back what :meth:`map_region` gave."""

    def kernel(self, file: Path, name: str, constants: Constants) -> Kernel:
        """Kernel `name` of a source file, compiled with the given constants when needed."""

    def graph(self, work: Callable[[], None]) -> Graph:
        """Record the launches that `work` makes on the main stream, without doing them."""

    def synchronise(self) -> None:
        """Wait until all that was launched is done."""

    def seconds(self, work: Callable[[], None]) -> float:
        """Time that the device takes for `work`, in seconds."""

    def memory(self) -> tuple[int, int]:
        """Free and total memory in bytes."""
