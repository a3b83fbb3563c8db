"""Times each launch of a piece of work on a device, so that a bench can say which kernels take how long.

`TimedDevice` stands in for a device from the start of a program. While `LaunchTimes.of` runs, events are
put around each launch. A GPU is first kept busy for some milliseconds, so that launches wait for it and
not it for the host; work that waits for the GPU by itself has the host's time in its launches after that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haloscope.device.interface import Device, Kernel, Launch

TURNS = 5
BUSY_BYTES, BUSY_TURNS = 1 << 30, 24


@dataclass(frozen=True)
class LaunchTime:
    """Launches of one kernel with one extent, within one piece of work.

    Attributes
    ----------
    name
        Of the kernel.
    threads
        That a GPU has for it.
    count
        Launches in the piece of work.
    seconds
        Of all of them together; the median over turns.
    """

    name: str
    threads: int
    count: int
    seconds: float


class TimedDevice:
    """A device whose launches can be timed; in all else the one that is given."""

    def __init__(self, device: Device) -> None:
        self.timed = device
        self.times: list[tuple[str, int, Any, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.timed, name)

    def kernel(self, file: Path, name: str, constants: Any) -> _TimedKernel:
        """A kernel of the device."""
        return _TimedKernel(self, name, self.timed.kernel(file, name, constants))

    def mark(self) -> Any:
        """A point in the device's work."""
        if self.timed.kind == "cpu":
            return time.perf_counter()
        event = self.timed.xp.cuda.Event()
        event.record(self.timed.stream)
        return event

    def between(self, first: Any, last: Any) -> float:
        """Seconds between two points that have been reached."""
        if self.timed.kind == "cpu":
            return float(last - first)
        return 1e-3 * float(self.timed.xp.cuda.get_elapsed_time(first, last))


class _TimedKernel:
    def __init__(self, device: TimedDevice, name: str, kernel: Kernel) -> None:
        self._device, self._name, self._kernel = device, name, kernel
        self.declaration = kernel.declaration

    def bind(self, *, extent: tuple[int, ...], **arguments: Any) -> Launch:
        launch = self._kernel.bind(extent=extent, **arguments)
        device, name, threads = self._device, self._name, extent[0]

        def timed() -> None:
            if device.times is None:
                launch()
                return
            first = device.mark()
            launch()
            device.times.append((name, threads, first, device.mark()))

        return timed


class LaunchTimes:
    """Times the launches of pieces of work, which all ranks do at the same time.

    Parameters
    ----------
    device
        Which all of the work was bound on.
    barrier
        Waits for all ranks.
    """

    def __init__(self, device: TimedDevice, barrier: Callable[[], None]) -> None:
        self._device, self._barrier = device, barrier
        self._room: Any = None
        if device.kind != "cpu":
            self._room = device.timed.zeros((BUSY_BYTES // 8,), "f8")

    def of(self, work: Callable[[], Any]) -> tuple[list[LaunchTime], float]:
        """Launches in the order in which their kinds come, and the seconds from the first to the last."""
        work()
        turns, whole = [], []
        for _ in range(TURNS):
            self._device.synchronise()
            self._barrier()
            for _ in range(BUSY_TURNS if self._room is not None else 0):
                self._room += 1.0
            self._device.times = launches = []
            work()
            self._device.times = None
            self._device.synchronise()
            sums: dict[tuple[str, int], list[float]] = {}
            for name, threads, first, last in launches:
                sums.setdefault((name, threads), []).append(self._device.between(first, last))
            turns.append(sums)
            whole.append(self._device.between(launches[0][2], launches[-1][3]) if launches else 0.0)
        return [
            LaunchTime(*key, len(durations), statistics.median(sum(turn[key]) for turn in turns))
            for key, durations in turns[0].items()
        ], statistics.median(whole)
