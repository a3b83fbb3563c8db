"""Energy of this machine's processors, from their own counters.

A GPU's counter moves on every 20 to 100 ms only, those of processor packages every ms: what is
measured must last much longer. The counters hold all that the device does, for whomever: figures
are those of a program where it has the machine to itself. Memory beside the processors, fans and
power supplies are not in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from haloscope.device.interface import Device
from haloscope.errors import counted

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
