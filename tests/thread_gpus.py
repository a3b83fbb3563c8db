"""Ranks that are threads of this process, and cores that pass for GPUs whose memory others can map.

The kernels' part for GPUs is compiled for cores, with one thread a grid, so that all ranks see each
other's memory. Flags, epochs and places are those of GPUs.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.exchange.ranks.world import World

_ONE_THREAD = """
#undef ON_GPU
#undef FOR_EACH
#define ON_GPU 1
#define FOR_EACH(i, n) for (long i = 0; i < (long)(n); ++i)
static const struct { unsigned x; } blockIdx = {0}, threadIdx = {0}, gridDim = {1}, blockDim = {1};
template <typename T>
static T __ldcg(const T *from) { return *from; }
static void __threadfence() {}
static long glance(const long *counter) { return *counter; }
#define __launch_bounds__(...)
static unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) { return (*p += v) - v; }
static void flag_raise(long *flag, long value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }
// After about half a minute it gives up: a rank that failed raises no more flags.
extern "C" int usleep(unsigned);
static void flag_wait(const long *flag, long value) {
  for (int i = 0; i < 500000 && __atomic_load_n(flag, __ATOMIC_ACQUIRE) < value; ++i) usleep(1);
}
// A device of cores looks for OpenMP in whatever it loads.
extern "C" void omp_set_num_threads(int);
KERNEL(parallel) { omp_set_num_threads(1); }
"""


class Meeting:
    """Where the threads of a world put what they have for each other."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.table: list[Any] = [None] * size
        self.boxes: list[queue.Queue] = [queue.Queue() for _ in range(size)]


class ThreadWorld(World):
    """One of several ranks that are threads of one process."""

    def __init__(self, rank: int, size: int, meeting: Meeting) -> None:
        self.rank = self.local_rank = rank
        self.size = self.local_size = size
        self._meeting = meeting

    def _all(self, mine: Any) -> list[Any]:
        self._meeting.table[self.rank] = mine
        self._meeting.barrier.wait()
        everything = list(self._meeting.table)
        self._meeting.barrier.wait()
        return everything

    def alltoall(self, values: np.ndarray) -> np.ndarray:
        return np.stack([rows[self.rank] for rows in self._all(values.copy())])

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [theirs[self.rank].copy() for theirs in self._all([p.copy() for p in parts])]

    def gather_texts(self, text: str) -> list[str]:
        return self._all(text)

    def sum(self, values: np.ndarray) -> np.ndarray:
        return np.sum(self._all(values.copy()), axis=0)

    def largest(self, value: float) -> float:
        return max(self._all(value))

    def broadcast(self, values: np.ndarray, root: int = 0) -> np.ndarray:
        return self._all(values.copy())[root].copy()

    def any(self, flag: bool) -> bool:
        return any(self._all(flag))

    def send(self, values: np.ndarray, to: int) -> None:
        self._meeting.boxes[to].put(np.array(values))

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int) -> np.ndarray:
        message = self._meeting.boxes[self.rank].get(timeout=30)
        assert (message.shape, message.dtype) == (shape, dtype)
        return message


class ThreadGpu(CpuDevice):
    """Cores that pass for a GPU whose memory others can map."""

    kind = "cuda"

    def __init__(self, folder: Path) -> None:
        super().__init__(threads=1)
        self._folder = folder

    def share(self, array: np.ndarray) -> tuple[bytes, str]:
        return self.address(array).to_bytes(8, "little"), ""

    def map_region(self, handle: bytes) -> int:
        return int.from_bytes(handle[:8], "little")

    def unmap_region(self, address: int) -> None:
        pass

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        source = self._folder / file.name
        if not source.exists():
            for header in file.parent.glob("*.hpp"):
                (self._folder / header.name).write_text(header.read_text())
            source.write_text(_ONE_THREAD + file.read_text())
        return super().kernel(source, name, constants)


def on_ranks(ranks: int, work: Callable[[World], Any]) -> list[Any]:
    meeting = Meeting(ranks)

    def guarded(rank: int) -> Any:
        try:
            return work(ThreadWorld(rank, ranks, meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        return [done.result() for done in [pool.submit(guarded, r) for r in range(ranks)]]
