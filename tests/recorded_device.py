"""Cores that record each launch with its stream, and find launches that nothing keeps in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from absent_device import AbsentDevice, AbsentKernel

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.declarations import Constants
from haloscope.device.program import Use, conflict, uses

MAIN, HOST = "main", "host"


@dataclass
class Record:
    """A launch: its place among those of its stream, and how many of each stream it runs after."""

    kernel: str
    stream: str
    number: int
    after: dict[str, int]
    uses: list[Use] = field(repr=False)

    def follows(self, other: Record) -> bool:
        """Whether it can begin only when the other has ended."""
        return self.after.get(other.stream, 0) >= other.number


class Recorder:
    """Order of launches on the streams of one device."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._count: dict[str, int] = {}
        self._after: dict[str, dict[str, int]] = {}

    def launched(self, kernel: str, stream: str, of: list[Use]) -> None:
        """A kernel is put on a stream."""
        after = self._ordered(stream)
        number = self._count[stream] = self._count.get(stream, 0) + 1
        self.records.append(Record(kernel, stream, number, dict(after), of))
        after[stream] = number

    def waits(self, stream: str, other: str) -> None:
        """What comes on a stream waits for what another holds now."""
        self._merge(stream, self._ordered(other))

    def host_waits(self, held: dict[str, int]) -> None:
        """The host has waited: all that is launched from now on comes after that."""
        self._merge(HOST, held)

    def held(self, stream: str) -> dict[str, int]:
        """What a stream holds now."""
        return dict(self._ordered(stream))

    def _ordered(self, stream: str) -> dict[str, int]:
        after = self._after.setdefault(stream, {})
        if stream != HOST:
            for name, number in self._after.get(HOST, {}).items():
                after[name] = max(after.get(name, 0), number)
        return after

    def _merge(self, stream: str, other: dict[str, int]) -> None:
        after = self._after.setdefault(stream, {})
        for name, number in other.items():
            after[name] = max(after.get(name, 0), number)

    def hazards(self) -> list[str]:
        """Pairs of launches of which one writes what the other touches, in no order; each pair of names once."""
        seen = {}
        for number, late in enumerate(self.records):
            for early in self.records[max(0, number - 400) : number]:
                if early.stream == late.stream or late.follows(early):
                    continue
                for a in early.uses:
                    for b in late.uses:
                        if conflict(a, b):
                            text = f"{early.kernel} ({early.stream}) {a.name} / {late.kernel} ({late.stream}) {b.name}"
                            seen[text] = None
        return list(seen)


class _Recording:
    """The streams of a device by name, and the order that the device's own calls make."""

    stream = None
    side = "side"
    beside = "beside"
    recorder: Recorder

    def fork(self, stream: Any = None) -> None:
        self.recorder.waits(stream or self.side, MAIN)

    def join(self, stream: Any = None) -> None:
        self.recorder.waits(MAIN, stream or self.side)

    def note(self, stream: Any = None) -> Callable[[], None]:
        held = self.recorder.held(stream or MAIN)
        return lambda: self.recorder.host_waits(held)

    def copy_out(self, array: Any, host: Any, stream: Any = None) -> Callable[[], None]:
        use = Use("array", array, None, True, False)
        self.recorder.launched("copy to host", stream or MAIN, [use])
        super().copy_out(array, host, stream)  # type: ignore[misc]
        return self.note(stream)

    def copy_in(self, array: Any, host: Any, stream: Any = None) -> None:
        use = Use("array", array, None, False, True)
        self.recorder.launched("copy from host", stream or MAIN, [use])
        super().copy_in(array, host, stream)  # type: ignore[misc]

    def to_host(self, array: Any) -> Any:
        self.synchronise()
        return super().to_host(array)  # type: ignore[misc]

    def synchronise(self) -> None:
        self.note()()


class RecordedCores(_Recording, CpuDevice):
    """Cores with the three streams of a GPU; launches run at once, and are recorded."""

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self.recorder = Recorder()

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        return _RecordedKernel(super().kernel(file, name, constants), name, self.recorder)


class RecordedGpu(_Recording, AbsentDevice):
    """A GPU that is absent: launches compute nothing, and are recorded."""

    def __init__(self, target: str = "sm_90") -> None:
        super().__init__(target)
        self.recorder = Recorder()

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        declared = jit.declarations(file, constants, on_gpu=True).kernel(name)
        return _RecordedKernel(AbsentKernel(declared), name, self.recorder)


class _RecordedKernel:
    def __init__(self, kernel: CpuKernel | AbsentKernel, name: str, recorder: Recorder) -> None:
        self._kernel, self._name, self._recorder = kernel, name, recorder
        self.declaration = kernel.declaration

    def bind(self, *, extent: Any, stream: Any = None, **arguments: Any) -> Callable[[], None]:
        launch = self._kernel.bind(extent=extent, stream=stream, **arguments)
        of = uses(self.declaration, arguments)

        def run() -> None:
            self._recorder.launched(self._name, stream or MAIN, of)
            launch()

        return run
