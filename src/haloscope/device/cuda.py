"""An NVIDIA GPU as a device: cubins from NVRTC, loaded and launched through CuPy."""

from __future__ import annotations

import contextlib
import functools
import platform
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device import jit
from haloscope.device.declarations import Constants, Declaration
from haloscope.device.interface import Array, Box
from haloscope.device.targets import COPY_ENGINE_FROM
from haloscope.errors import MachineError, install_command

EARLY_FROM = 90, 12030
"""Compute capability and driver from which launches can begin early, captured ones, too."""

_WITHOUT_GPU = "use --device cpu, or check nvidia-smi"
_DEFAULT_BLOCK = {1: (256,), 2: (64, 4), 3: (64, 4, 1)}
_LARGEST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LARGEST_GRID = (2**31 - 1, 65535, 65535)


def _gpus() -> tuple[Any, int]:
    """CuPy, and the number of GPUs in sight, which is not 0."""
    try:
        import cupy
    except ImportError as error:
        raise MachineError(
            "a GPU needs CuPy, which is not installed",
            remedy=f"run {install_command('cuda13')} (or with the extra cuda12 for an older driver)",
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises its own kinds for a missing driver or GPU
        raise MachineError(f"no NVIDIA GPU can be used ({error})", remedy=_WITHOUT_GPU) from error
    if count == 0:
        raise MachineError("no NVIDIA GPU is visible", remedy=_WITHOUT_GPU)
    return cupy, count


def architectures_in_sight() -> list[str]:
    """Architectures of the GPUs of this machine, each once, such as ``sm_90``."""
    cupy, count = _gpus()
    targets = (f"sm_{cupy.cuda.Device(index).compute_capability}" for index in range(count))
    return list(dict.fromkeys(targets))


class CudaLaunch:
    """A kernel with grid, block and arguments fixed."""

    def __init__(
        self, function: Any, fixed: tuple[Any, Any, Any], stream: Any, shared: int
    ) -> None:
        # `fixed`: grid, block and arguments.
        self._function, self._stream, self._shared = function, stream, shared
        self._fixed = fixed

    def __call__(self) -> None:
        self._function(*self._fixed, shared_mem=self._shared, stream=self._stream)


class AttributedLaunch(CudaLaunch):
    """One with an attribute that CuPy's launches cannot have.

    ``early``: it may begin before the launch before it has ended; ``together``: its blocks run side by side.
    """

    def __init__(self, kind: Literal["early", "together"], *fixed: Any) -> None:
        super().__init__(*fixed)
        from cuda.bindings import driver

        self._driver = driver
        config = driver.CUlaunchConfig()
        grid, block, arguments = self._fixed
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = self._shared
        config.hStream = driver.CUstream(self._stream.ptr)
        attribute = driver.CUlaunchAttribute()
        kinds = driver.CUlaunchAttributeID
        if kind == "early":
            attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
        else:
            attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
        config.attrs, config.numAttrs = [attribute], 1
        self._config, self._taken = config, driver.CUfunction(self._function.ptr)
        # The driver is given where each argument lies.
        self._kept = [_in_memory(value) for value in arguments]
        self._places = np.array([value.ctypes.data for value in self._kept], np.uint64)

    def __call__(self) -> None:
        (status,) = self._driver.cuLaunchKernelEx(
            self._config, self._taken, self._places.ctypes.data, 0
        )
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise MachineError(f"the driver does not launch a kernel ({status.name})")


def _in_memory(value: Any) -> np.ndarray:
    """An argument as the driver reads it."""
    if hasattr(value, "data") and hasattr(value.data, "ptr"):
        return np.array([value.data.ptr], np.uint64)
    return np.atleast_1d(np.asarray(value))


class CudaKernel:
    """A function of a loaded cubin."""

    def __init__(
        self, function: Any, declaration: Declaration, stream: Any, driver: Any, *, early: bool
    ) -> None:
        self._function, self.declaration = function, declaration
        self._stream, self._driver, self._early = stream, driver, early

    def bind(
        self,
        *,
        extent: tuple[int, ...],
        block: tuple[int, ...] | None = None,
        stream: Any = None,
        shared: int = 0,
        early: bool = False,
        together: bool = False,
        **arguments: Array | Mapping[str, Any] | int | float | None,
    ) -> CudaLaunch:
        values = self.declaration.order(arguments)
        shape = block or _DEFAULT_BLOCK[len(extent)]
        threads = tuple(shape) + (1,) * (3 - len(shape))
        needed = tuple(extent) + (1,) * (3 - len(extent))
        grid = tuple(
            min(max(1, -(-n // t)), largest)
            for n, t, largest in zip(needed, threads, _LARGEST_GRID, strict=True)
        )
        converted = tuple(_as_argument(value) for value in values)
        if shared:
            # It allows what 48 KiB leave beside the kernel's own, or what was bound before, still to run.
            attribute, function = _LARGEST_DYNAMIC_SHARED, self._function.ptr
            if shared > self._driver.funcGetAttribute(attribute, function):
                self._driver.funcSetAttribute(function, attribute, shared)
        fixed = (self._function, (grid, threads, converted), stream or self._stream, shared)
        if together:
            return AttributedLaunch("together", *fixed)
        return AttributedLaunch("early", *fixed) if early and self._early else CudaLaunch(*fixed)


def _as_argument(value: Any) -> Any:
    if value is None:
        return np.uint64(0)
    if isinstance(value, (int, np.integer)):
        return np.int64(value)
    if isinstance(value, (float, np.floating)):
        return np.float64(value)
    return value


class CudaGraph:
    """A captured CUDA graph, whose kernels keep the priorities of the streams they were captured on.

    CuPy's own graphs give all kernels that of the stream they are launched on: what goes to other
    ranks would then begin when the kernels that it is to go beside have begun their last blocks.
    """

    def __init__(self, captured: int, stream: Any, runtime: Any) -> None:
        from cuda.bindings import driver

        by_node = driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
        status, ready = driver.cuGraphInstantiate(driver.CUgraph(captured), int(by_node))
        runtime.graphDestroy(captured)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise MachineError(
                f"the driver does not make a graph of these kernels ({status.name})",
                remedy="set machine.graphs = false",
            )
        self._address, self._stream, self._runtime = int(ready), stream, runtime
        # At the end of the process the driver does it.
        weakref.finalize(self, runtime.graphExecDestroy, self._address).atexit = False

    def replay(self, stream: Any = None) -> None:
        """Launch the graph on a stream, or on its own."""
        self._runtime.graphLaunch(self._address, (stream or self._stream).ptr)


_FIRST = -100  # a priority above all that GPUs know: the driver takes the highest that there is
_NO_MEMORY = 2  # cudaErrorMemoryAllocation
_REGION_UNIT = 2 << 20  # of the driver's own allocations: a region shares its pages with no other


@functools.cache
def _streams(index: int) -> tuple[Any, Any, Any]:
    """The main stream of a GPU in this process, the side one, and the one beside them.

    The same for all devices opened on it: CuPy works on the stream that was taken into use last,
    and the kernels of a device opened before must stay in order with that.
    """
    import cupy

    main = cupy.cuda.Stream(non_blocking=True)
    # Entered for good. After a mere use() CuPy goes back to the null stream whenever it has worked
    # on another one, as it does to copy an array with gaps, and all order is lost.
    main.__enter__()
    side, beside = (
        cupy.cuda.Stream(non_blocking=True, priority=priority) for priority in (_FIRST, 0)
    )
    return main, side, beside


class _Region:
    """Memory straight from the driver: CuPy's pool gives memory that cannot be shared."""

    def __init__(self, runtime: Any, address: int) -> None:
        self._runtime = runtime
        self.address = address

    def __del__(self) -> None:
        _abandoned.append((self._runtime, self.address))


# Regions that nobody here uses, but others may still have mapped: see release_shared.
_abandoned: list[tuple[Any, int]] = []


def _from_driver(cupy: Any, size: int) -> _Region:
    """Memory of at least that many bytes.

    CuPy's pools keep what was freed. The driver knows nothing of that: where it has no more, they
    give theirs back, and it is asked once more.
    """
    runtime = cupy.cuda.runtime
    whole = -(-size // _REGION_UNIT) * _REGION_UNIT

    def ask() -> _Region:
        try:
            return _Region(runtime, int(runtime.malloc(whole)))
        except runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            raise MemoryError(f"a GPU has no {whole:,} bytes to share: {error}") from error

    try:
        return ask()
    except MemoryError:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        return ask()


class CudaDevice:
    """One NVIDIA GPU."""

    kind = "cuda"

    def __init__(self, local_rank: int = 0) -> None:
        cupy, count = _gpus()
        self.xp = cupy
        self.count = count
        self.index = local_rank % count
        self._device = cupy.cuda.Device(self.index)
        self._device.use()
        properties = cupy.cuda.runtime.getDeviceProperties(self.index)
        self.name = properties["name"].decode()
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.cache_bytes = int(properties["l2CacheSize"])
        self.copy_engine = int(self._device.compute_capability) >= COPY_ENGINE_FROM
        known = int(self._device.compute_capability), cupy.cuda.runtime.driverGetVersion()
        self._early = all(has >= least for has, least in zip(known, EARLY_FROM, strict=True))
        self.block_memory = int(self._device.attributes["MaxSharedMemoryPerBlockOptin"])
        self.architecture = f"sm_{self._device.compute_capability}"
        self.identity = f"{platform.node()} {cupy.cuda.runtime.deviceGetPCIBusId(self.index)}"
        self.stream, self.side, self.beside = _streams(self.index)
        self.stream.use()
        self._forked, self._joined = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
        self._modules: dict[tuple[Path, str], Any] = {}

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array of undefined content from CuPy's pool (aligned to 512 bytes)."""
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return self.xp.zeros(shape, dtype)

    def from_host(self, array: np.ndarray) -> Array:
        return self.xp.asarray(array)

    def to_host(self, array: Array) -> np.ndarray:
        """Copy of a GPU array on the host, once the work before it is done."""
        copied: np.ndarray = self.xp.asnumpy(array, stream=self.stream)
        self.stream.synchronize()
        return copied

    def staging(self, count: int, dtype: DTypeLike) -> np.ndarray:
        """Host array in pinned memory."""
        kind = np.dtype(dtype)
        memory = self.xp.cuda.alloc_pinned_memory(max(1, count) * kind.itemsize)
        return np.frombuffer(memory, kind, count)

    def address(self, array: Array) -> int:
        return int(array.data.ptr)

    def fork(self, stream: Any = None) -> None:
        self._forked.record(self.stream)
        (stream or self.side).wait_event(self._forked)

    def join(self, stream: Any = None) -> None:
        self._joined.record(stream or self.side)
        self.stream.wait_event(self._joined)

    def note(self, stream: Any = None) -> Callable[[], None]:
        event = self.xp.cuda.Event(disable_timing=True)
        event.record(stream or self.stream)
        wait: Callable[[], None] = event.synchronize
        return wait

    def copy_out(self, array: Array, host: np.ndarray, stream: Any = None) -> Callable[[], None]:
        array.get(stream=stream or self.stream, out=host, blocking=False)
        return self.note(stream)

    def copy_in(self, array: Array, host: np.ndarray, stream: Any = None) -> None:
        array.set(host, stream=stream or self.stream)

    def copy_box(
        self, to: int, to_box: Box, source: int, from_box: Box, size: int, stream: Any = None
    ) -> None:
        """Queue a copy of a plane between arrays at two addresses, host or device."""
        from cuda.bindings import runtime

        n0, n1, _ = to_box.counts
        flat = to_box.strides[0] == from_box.strides[0] == 1
        parameters, extent = runtime.cudaMemcpy3DParms(), runtime.cudaExtent()
        extent.width = n0 * size if flat else size
        extent.height = n1 if flat else n0
        extent.depth = 1 if flat else n1
        parameters.kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
        parameters.extent = extent
        for name, address, box in (("dstPtr", to, to_box), ("srcPtr", source, from_box)):
            s0, s1, _ = box.strides
            place = runtime.cudaPitchedPtr()
            place.ptr = address + box.first * size
            place.pitch = (s1 if flat else s0) * size
            place.xsize = extent.width
            place.ysize = n1 if flat else s1 // s0
            setattr(parameters, name, place)
        (code,) = runtime.cudaMemcpy3DAsync(parameters, (stream or self.stream).ptr)
        if int(code) != 0:
            raise MachineError(f"the driver does not copy a strided plane ({code})")

    def shared_zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array of zeros that other processes of this host can map.

        Its memory comes straight from the driver: that of CuPy's pool cannot be shared.
        """
        xp = self.xp
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        region = _from_driver(xp, max(1, size))
        memory = xp.cuda.UnownedMemory(region.address, size, region, self.index)
        array = xp.ndarray(shape, dtype, xp.cuda.MemoryPointer(memory, 0))
        array.fill(0)
        self.stream.synchronize()
        return array

    def release_shared(self) -> None:
        """Free shared arrays that are no longer used, here and by others."""
        while _abandoned:
            runtime, address = _abandoned.pop()
            runtime.free(address)

    def share(self, array: Array) -> tuple[bytes, str]:
        runtime = self.xp.cuda.runtime
        try:
            return bytes(runtime.ipcGetMemHandle(array.data.ptr)), ""
        except runtime.CUDARuntimeError as error:
            return b"", f"the driver does not share GPU memory ({error})"

    def map_region(self, handle: bytes) -> int:
        runtime = self.xp.cuda.runtime
        try:
            return int(runtime.ipcOpenMemHandle(handle))
        except runtime.CUDARuntimeError as error:
            raise MachineError(
                f"the driver does not map the neighbour's memory ({error})"
            ) from error

    def unmap_region(self, address: int) -> None:
        self.xp.cuda.runtime.ipcCloseMemHandle(address)

    def kernel(self, file: Path, name: str, constants: Constants) -> CudaKernel:
        """Kernel of a file, compiled for this GPU; see :func:`jit.compile_for_gpu`."""
        declaration = jit.declarations(file, constants, on_gpu=True).kernel(name)
        key = (file, jit.kernel_hash(file, constants))
        module = self._modules.get(key)
        if module is None:
            module = self._modules[key] = self.xp.cuda.function.Module()
            module.load(jit.compile_for_gpu(file, constants, self.architecture))
        function, driver = module.get_function(name), self.xp.cuda.driver
        return CudaKernel(function, declaration, self.stream, driver, early=self._early)

    def graph(self, work: Callable[[], None]) -> CudaGraph:
        """Capture what `work` launches into a CUDA graph."""
        runtime = self.xp.cuda.runtime
        self.stream.begin_capture()
        try:
            work()
        except BaseException:
            # A capture that broke has no graph, and says so.
            with contextlib.suppress(Exception):
                runtime.graphDestroy(runtime.streamEndCapture(self.stream.ptr))
            raise
        return CudaGraph(runtime.streamEndCapture(self.stream.ptr), self.stream, runtime)

    def synchronise(self) -> None:
        self.stream.synchronize()

    def seconds(self, work: Callable[[], None]) -> float:
        """Time between two events around `work` on the main stream, in seconds."""
        start, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        return float(self.xp.cuda.get_elapsed_time(start, end)) * 1e-3

    def memory(self) -> tuple[int, int]:
        free, total = self.xp.cuda.runtime.memGetInfo()
        return int(free), int(total)
