"""Meters of this machine: memory bandwidth, in the same run as the rates compared with it, and energy of its processors."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import counted

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


LEAST_SECONDS = 0.5
"""Steps that took less than this in all are too short for a figure."""

_POWERCAP = Path("/sys/class/powercap")
_GPU_INSTALL = "run pip install nvidia-ml-py"
# Between readings: a few times as long as the counters need, and long beside a reading.
_SPAN_SECONDS = 0.25


class EnergyMeter:
    """The counter of one device: of a GPU, or of all processor packages of this host."""

    def __init__(self, device: Device, *, powercap: Path = _POWERCAP) -> None:
        self._read: Callable[[], float] | None
        if device.kind == "cuda":
            # Which counter is read, or why there is none.
            self._read, self.source = _gpu_counter(device)
        else:
            self._read, self.source = _package_counters(powercap)

    def joules(self) -> float | None:
        """Energy since some moment in the past, in J; None where there is no counter.

        That of processor packages starts anew every few minutes: ask at least that often.
        """
        return None if self._read is None else self._read()


def _gpu_counter(device: Any) -> tuple[Callable[[], float] | None, str]:
    """NVML's counter of a GPU, which is found by its place on the PCI bus.

    NVML numbers GPUs otherwise than CUDA, and sees those that CUDA_VISIBLE_DEVICES hides.
    """
    try:
        import pynvml
    except ImportError:
        return None, f"NVML needs the package nvidia-ml-py, which is not installed; {_GPU_INSTALL}"
    try:
        place = device.xp.cuda.runtime.deviceGetPCIBusId(device.index)
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(place)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        return None, f"NVML has no energy counter for {device.name}: {error}"

    def joules() -> float:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1e-3

    return joules, f"NVML total energy counter of {device.name}"


def _package_counters(powercap: Path) -> tuple[Callable[[], float] | None, str]:
    """RAPL's counters of all processor packages of this host; AMD's are shown the same way."""
    # One colon: what lies below a package, as its cores, is in the package's counter. A zone of
    # another name, psys, holds the whole machine, packages included.
    zones = [
        zone
        for zone in sorted(powercap.glob("intel-rapl:*"))
        if zone.name.count(":") == 1 and _text(zone / "name").startswith("package")
    ]
    if not zones:
        return None, f"no processor package has an energy counter in {powercap}"
    try:
        counters = [_Wrapping(zone) for zone in zones]
    except PermissionError:
        return None, (
            "only root can read the energy counters of the processor packages; to allow other users, "
            f"run as root: chmod a+r {powercap}/intel-rapl:*/energy_uj"
        )
    except (OSError, ValueError) as error:
        return None, f"the energy counters of the processor packages cannot be read: {error}"
    number = counted(len(zones), "processor package")
    return lambda: sum(counter.joules() for counter in counters), f"RAPL counters of {number}"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class _Wrapping:
    """A counter in uJ that starts again from zero beyond its largest number."""

    def __init__(self, zone: Path) -> None:
        self._path = zone / "energy_uj"
        self._range = int((zone / "max_energy_range_uj").read_text()) + 1
        self._last = int(self._path.read_text())
        self._total = 0

    def joules(self) -> float:
        """Energy since the first look, in J."""
        now = int(self._path.read_text())
        self._total += (now - self._last) % self._range
        self._last = now
        return self._total * 1e-6


class EnergyTally:
    """Adds up what a meter counts while steps are taken.

    Readings are apart by a quarter of a second or more. Pauses between shorter bouts of steps then
    lie between two readings: of that energy, the steps get the share that they have of the time.
    """

    # `clock`: tells seconds.
    # `joules`: energy of the steps so far, in J.

    def __init__(
        self, meter: EnergyMeter, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._meter, self._clock = meter, clock
        self.joules = self.seconds = 0.0
        self.known = meter.joules() is not None  # Whether there is a counter
        self._opened: tuple[float, float] | None = None
        self._stepped = 0.0

    def begin(self) -> None:
        """Note that steps begin."""
        if self._opened is None:
            self._opened = self._now()

    def end(self, seconds: float) -> None:
        """Note that steps have ended, which took some time."""
        self.seconds += seconds
        self._stepped += seconds
        if self._opened is not None and self._clock() - self._opened[0] > _SPAN_SECONDS:
            self.close()

    def close(self) -> None:
        """Count what has not been counted yet."""
        if self._opened is None:
            return
        begun, before = self._opened
        now, after = self._now()
        self.joules += (after - before) * min(1.0, self._stepped / max(now - begun, 1e-9))
        self._opened, self._stepped = None, 0.0

    def _now(self) -> tuple[float, float]:
        counted = self._meter.joules()
        return self._clock(), 0.0 if counted is None else counted
