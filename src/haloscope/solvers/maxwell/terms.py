"""What the terms that are added to Maxwell's right-hand sides have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

COMPONENTS = 6
_WARP = 32
_MOST_THREADS = 256


@dataclass(frozen=True)
class Setting:
    """Where the fields live and how many nodes an element has."""

    device: Device  # Where to compute
    order: int  # Polynomial order N
    real: np.dtype[Any]  # Type of the fields

    @property
    def nodes(self) -> int:
        """Nodes of an element."""
        return (self.order + 1) ** 3

    def put(self, values: NDArray[Any], dtype: Any = None) -> Array:
        """Copy on the device, flat, of the fields' type or another."""
        flat = np.ascontiguousarray(values, dtype or self.real).ravel()
        return self.device.from_host(flat if len(flat) else np.zeros(1, flat.dtype))

    def zeros(self, count: int) -> Array:
        """Zeros of the fields' type."""
        return self.device.zeros((max(1, count),), self.real)

    def kernel(self, file: Path, name: str, **constants: int) -> Kernel:
        """Kernel of a file for elements of this order."""
        real = "float" if self.real == np.float32 else "double"
        return self.device.kernel(file, name, {"real": real, "N": self.order, **constants})

    def blocks(self, count: int, values: int) -> Mapping[str, Any]:
        """Grid of as many blocks, whose threads go through so many values each."""
        threads = min(_MOST_THREADS, -(-values // _WARP) * _WARP)
        return {"extent": (count * threads,), "block": (threads,)}


@dataclass(frozen=True)
class Bound:
    """What a term's launches are bound to."""

    # Of all elements of the rank.
    fields: Array
    increments: Array
    clock: Array  # Device array of two doubles: the time at which counting began, and steps since
    dt: float  # Time step


class SourceTerm(Protocol):
    """Something that is added to increments before each stage."""

    def bind(self, to: Bound) -> list[list[Launch]]:
        """Launches for each stage."""
