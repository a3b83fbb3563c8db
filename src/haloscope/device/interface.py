"""What every device offers, so that solvers and exchanges are written once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.jit import Constants

Array = Any
"""A NumPy array on cores, a CuPy array on a GPU."""


@dataclass(frozen=True)
class ByValue:
    """Numbers handed to a kernel as a struct, which a GPU keeps in its constant memory.

    Attributes
    ----------
    values
        One-dimensional host array, in the order of the struct's members and of their type.
    """

    values: np.ndarray


class Launch(Protocol):
    """A kernel with its arguments and its extent bound: calling it costs next to nothing."""

    def __call__(self) -> None:
        """Start the kernel; on a GPU it runs after what the stream already holds."""


class Kernel(Protocol):
    """A compiled kernel."""

    def bind(
        self,
        *arguments: Array | ByValue | int | float,
        extent: tuple[int, ...],
        block: tuple[int, ...] | None = None,
        stream: Any = None,
        shared: int = 0,
    ) -> Launch:
        """Bind arguments: arrays as pointers, int as C long, float as C double, structs.

        Parameters
        ----------
        arguments
            In the order of the kernel's own parameters.
        extent
            Threads needed along x, y, z on a GPU; cores take their loop bounds from arguments.
        block
            Threads of a GPU block along x, y, z.
        stream
            One of the device's own streams; None: the main one.
        shared
            Bytes of dynamic shared memory of a GPU block.
        """


class Graph(Protocol):
    """Work recorded once and replayed as a whole."""

    def replay(self) -> None:
        """Do the recorded work again."""


class Device(Protocol):
    """Where arrays live and kernels run."""

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""

    @property
    def name(self) -> str:
        """What the machine calls it."""

    @property
    def xp(self) -> Any:
        """The array module: NumPy or CuPy."""

    @property
    def multiprocessors(self) -> int:
        """Processors that run blocks side by side: of a GPU, or threads on cores."""

    @property
    def copy_engine(self) -> bool:
        """Whether kernels can have rows brought to shared memory (GPUs from sm_90 on)."""

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
