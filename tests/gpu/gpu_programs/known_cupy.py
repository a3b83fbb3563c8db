"""Does known work on GPUs by CuPy, a captured graph among it, and NCCL where two GPUs are there."""

from __future__ import annotations

import sys

import cupy
import numpy as np
from cupyx.profiler import time_range

COUNT, LAUNCHES = 1 << 16, 3
SOURCE = 'extern "C" __global__ void grow(double *x) { x[threadIdx.x] += 1; }'


def main() -> None:
    """Copy, launch, capture, replay, reduce."""
    grow = cupy.RawKernel(SOURCE, "grow")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.asarray(np.arange(COUNT, dtype=np.float64))
        with time_range("five kernels"):
            for _ in range(5):
                grow((1,), (64,), (x,))
        stream.synchronize()
        stream.begin_capture()
        for _ in range(4):
            grow((1,), (64,), (x,))
        graph = stream.end_capture()
        with time_range("graphs"):
            for _ in range(LAUNCHES):
                graph.launch(stream)
            stream.synchronize()
        numbers = cupy.asnumpy(x, stream=stream)
    assert numbers[0] == 5 + 4 * LAUNCHES, numbers[0]
    if "nccl" in sys.argv:
        reduce_on_all()


def reduce_on_all() -> None:
    """An all-reduce of NCCL over all GPUs, by one process."""
    from cupy.cuda import nccl

    count = cupy.cuda.runtime.getDeviceCount()
    communicators = nccl.NcclCommunicator.initAll(list(range(count)))
    arrays, streams = [], []
    for device in range(count):
        with cupy.cuda.Device(device):
            arrays.append(cupy.ones(COUNT, cupy.float32))
            streams.append(cupy.cuda.Stream(non_blocking=True))
            cupy.cuda.runtime.deviceSynchronize()
    with time_range("reduction"):
        nccl.groupStart()
        for device, communicator in enumerate(communicators):
            with cupy.cuda.Device(device):
                address = arrays[device].data.ptr
                communicator.allReduce(
                    *(address, address, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM),
                    streams[device].ptr,
                )
        nccl.groupEnd()
        for device in range(count):
            with cupy.cuda.Device(device):
                streams[device].synchronize()
    assert float(arrays[0][0]) == count


if __name__ == "__main__":
    main()
