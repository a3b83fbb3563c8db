"""Cores that put off launches and run them later in a random order that their streams allow."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorded_device import MAIN, Record, RecordedCores

from haloscope.device.cpu import CpuKernel
from haloscope.device.declarations import Constants
from haloscope.device.program import uses


class PermutedCores(RecordedCores):
    """From :attr:`begun` on, launches wait until the host, or a message, needs what they do."""

    def __init__(self, seed: int) -> None:
        super().__init__(threads=1)
        self._random = random.Random(seed)
        self._waiting: list[tuple[Record, Callable[[], None]]] = []
        self.begun = False
        self.moved = 0  # How often a launch ran before one that was launched earlier

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        return _PutOffKernel(self, super(RecordedCores, self).kernel(file, name, constants), name)

    def put_off(self, launch: Callable[[], None]) -> None:
        """Keep the launch that was recorded last."""
        if not self.begun:
            launch()
            return
        self._waiting.append((self.recorder.records[-1], launch))

    def run(self, stream: str | None = None) -> None:
        """Do all that a stream waits for, in a random order; None: all that was put off."""
        needed = [
            one
            for one in self._waiting
            if stream is None
            or one[0].stream == stream
            or any(r.stream == stream and r.follows(one[0]) for r, _ in self._waiting)
        ]
        self._waiting = [one for one in self._waiting if one not in needed]
        while needed:
            ready = [
                one
                for one in needed
                if not any(
                    other is not one and (one[0].follows(other[0]) or _precedes(other[0], one[0]))
                    for other in needed
                )
            ]
            chosen = self._random.choice(ready)
            self.moved += needed.index(chosen) > 0
            needed.remove(chosen)
            chosen[1]()

    def note(self, stream: Any = None) -> Callable[[], None]:
        wait = super().note(stream)

        def run_and_wait() -> None:
            self.run()
            wait()

        return run_and_wait

    def copy_out(self, array: Any, host: Any, stream: Any = None) -> Callable[[], None]:
        self.run()
        return super().copy_out(array, host, stream)

    def copy_in(self, array: Any, host: Any, stream: Any = None) -> None:
        self.run()
        super().copy_in(array, host, stream)


def _precedes(one: Record, other: Record) -> bool:
    return one.stream == other.stream and one.number < other.number


class _PutOffKernel:
    def __init__(self, device: PermutedCores, kernel: CpuKernel, name: str) -> None:
        self._device, self._kernel, self._name = device, kernel, name
        self.declaration = kernel.declaration

    def bind(self, *, extent: Any, stream: Any = None, **arguments: Any) -> Callable[[], None]:
        launch = self._kernel.bind(extent=extent, stream=stream, **arguments)
        of = uses(self.declaration, arguments)

        def put_off() -> None:
            self._device.recorder.launched(self._name, stream or MAIN, of)
            self._device.put_off(launch)

        return put_off
