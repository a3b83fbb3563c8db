"""Two ranks: rank 1 waits for rank 0, whose host is late, then its GPU, then its large message."""

from __future__ import annotations

import time

import cupy
import numpy as np
from cupyx.profiler import time_range
from mpi4py import MPI

LATE = 0.3  # seconds
LARGE = 1 << 28  # bytes
SOURCE = """
extern "C" __global__ void spin(long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}
"""


def main() -> None:
    """Meet, be late, send; once for each reason."""
    world = MPI.COMM_WORLD
    with cupy.cuda.Device(world.rank % cupy.cuda.runtime.getDeviceCount()):
        spin = cupy.RawKernel(SOURCE, "spin")
        stream = cupy.cuda.Stream(non_blocking=True)
        spin((1,), (1,), (np.int64(1000),), stream=stream)
        stream.synchronize()
        large = np.zeros(LARGE // 8)
        for reason, message in (
            ("late host", large[:8]),
            ("late device", large[:8]),
            ("large message", large),
        ):
            world.Barrier()
            with time_range(reason):
                if world.rank == 1:
                    world.Recv(message, 0)
                    continue
                if reason != "late device":
                    time.sleep(LATE)
                else:
                    spin((1,), (1,), (np.int64(LATE * 1e9),), stream=stream)
                    stream.synchronize()
                world.Send(message, 1)
        world.Barrier()


if __name__ == "__main__":
    main()
