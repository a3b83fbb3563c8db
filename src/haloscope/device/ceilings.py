"""Memory bandwidth and peak rate of this machine, measured in the same run as the compared rates."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile

_SOURCE = Path(__file__).with_name("ceilings.cpp")
_LARGEST_BYTES = 1 << 28
# Of each of many ranks that measure at once: more than its share of any cache.
_LEAST_BYTES = 1 << 26
_GPU_THREADS = 1 << 21
_REPEATS = 3


@dataclass(frozen=True)
class Ceilings:
    """Memory bandwidths in GB/s (1e9 bytes a second), bytes counted as the program names them."""

    # One read and one write; the same in place; two reads and one write. A write that makes the
    # processor fetch the line first is counted once, so `update` may exceed `copy`.
    copy: float
    update: float
    triad: float
    load: float  # Mean number of running processes over the last minute, beside the rates

    @property
    def best(self) -> float:
        """The largest of the rates: the ceiling that fractions are quoted against."""
        return max(self.copy, self.update, self.triad)

    def as_dict(self) -> dict[str, float]:
        """The rates by name."""
        return asdict(self)


def kernel_file() -> KernelFile:
    """The loops, for doubles."""
    return KernelFile(_SOURCE, {})


class CeilingProbe:
    """The loops and their arrays, to be timed as often as something is compared with them."""

    def __init__(self, device: Device, *, sharing: int = 1) -> None:
        self._device = device
        free, _ = device.memory()
        if device.kind == "cpu":
            largest = max(_LARGEST_BYTES // sharing, _LEAST_BYTES)
        else:
            largest = 4 * _LARGEST_BYTES
        self._count = count = min(largest, free // 16) // 64 * 8
        a, b, c = (device.zeros((count,), "f8") for _ in range(3))
        # On a GPU as many threads as fill it, each going through the arrays.
        threads = count if device.kind == "cpu" else min(count // 2, _GPU_THREADS)

        def loop(name: str, **arrays: Array) -> Launch:
            kernel = device.kernel(_SOURCE, name, {})
            return kernel.bind(**arrays, n=count, extent=(threads,))

        self._loops = {
            "copy": (loop("copy", a=a, b=b), 16),
            "update": (loop("update", a=a), 16),
            "triad": (loop("triad", a=a, b=b, c=c), 24),
        }
        # Memory that has never been written is one page of zeros: each array is written before it
        # is read, by the threads that go through it later.
        for name in ("update", "copy", "triad"):
            device.seconds(self._loops[name][0])

    def measure(self, repeats: int = 1) -> Ceilings:
        """Median rates of a number of timings."""
        rates = {}
        for name, (launch, size) in self._loops.items():
            taken = statistics.median(self._device.seconds(launch) for _ in range(repeats))
            rates[name] = size * self._count / taken / 1e9
        return Ceilings(**rates, load=os.getloadavg()[0])


def measure_ceilings(device: Device, *, repeats: int = _REPEATS, sharing: int = 1) -> Ceilings:
    """Measure copy, update and triad.

    Returns: rates in GB/s.
    """
    return CeilingProbe(device, sharing=sharing).measure(repeats)
