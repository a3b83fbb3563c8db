"""Processes that replay one trace together: each has a part of the ranks, the first one goes on."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import available_cores
from haloscope.errors import MachineError

Bytes = NDArray[np.uint8]


class Processes(Protocol):
    """Processes started together, such as the ranks of an MPI launcher."""

    # Number of this process, and of processes.
    rank: int
    size: int
    local_size: int  # How many of them share this host

    def exchange(self, parts: Sequence[Bytes]) -> list[Bytes]:
        """Give part p to process p; returns what each has given to this one."""

    def allows_threads(self) -> bool:
        """Whether threads other than the first may exchange."""

    def abort(self, code: int) -> None:
        """End all processes."""


def shared(processes: Processes, record: Any) -> Any:
    """What the first process tells, on all: anything that JSON can hold."""
    nothing = np.zeros(0, np.uint8)
    text = json.dumps(record).encode() if processes.rank == 0 else b""
    mine = np.frombuffer(text, np.uint8) if text else nothing
    return json.loads(processes.exchange([mine] * processes.size)[0].tobytes())


def threads_per_process(processes: Processes, wanted: int) -> int:
    """Threads that every process uses: the same number in all, and together no more than cores."""
    if not processes.allows_threads():
        return 1
    own = wanted or max(1, available_cores() // processes.local_size)
    counts = processes.exchange([np.array([own], "<i8").view(np.uint8)] * processes.size)
    return int(min(part.view("<i8")[0] for part in counts))


_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p)


class Peers(ctypes.Structure):
    """`Peers` of ``peers.h``."""

    _fields_ = (("count", ctypes.c_int32), ("own", ctypes.c_int32), ("exchange", _EXCHANGE))


class PeersOf:
    """The exchange of some processes as the replay calls it."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._came = np.zeros(1, np.uint8)
        self.structure = Peers(processes.size, processes.rank, _EXCHANGE(self._exchange))

    def _exchange(self, sizes: Any, data: int | None) -> int | None:
        try:
            count = self._processes.size
            lengths = [sizes[other] for other in range(count)]
            whole = np.zeros(0, np.uint8)
            if sum(lengths):
                buffer = (ctypes.c_uint8 * sum(lengths)).from_address(data or 0)
                whole = np.frombuffer(buffer, np.uint8)
            edges = np.cumsum([0, *lengths])
            parts = [whole[edges[other] : edges[other + 1]] for other in range(count)]
            came = self._processes.exchange(parts)
            for other, part in enumerate(came):
                sizes[other] = len(part)
            # One byte more: there is always something to point at.
            self._came = np.concatenate([*came, np.zeros(1, np.uint8)])
            return int(self._came.ctypes.data)
        except Exception as error:  # Nothing gets out of a callback: the others would wait forever.
            print(f"haloscope: error: the processes cannot talk to each other: {error}", flush=True)
            self._processes.abort(MachineError.exit_code)
            return None
