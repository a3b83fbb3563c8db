"""The cores of this machine as a device: shared libraries called through ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device import jit
from haloscope.device.declarations import Constants, Declaration
from haloscope.device.interface import Array, Box
from haloscope.errors import InputError, MachineError, counted

_LINE = 64
_PAGE = 4096
_LARGE = 1 << 21
_SPINS = 4_000


def host_memory() -> tuple[int, int]:
    """Available and total memory of the host in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    free = page * os.sysconf("SC_AVPHYS_PAGES")
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                free = int(line.split()[1]) * 1024
    except OSError:
        pass
    return free, total


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """The processor's own name, or 'processor' where the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "processor"


class CpuLaunch:
    """A ctypes call whose arguments were converted once."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], keep: tuple[Array, ...]) -> None:
        self._function, self._arguments, self._keep = function, arguments, keep

    def __call__(self) -> None:
        self._function(*self._arguments)


class CpuKernel:
    """A function of a compiled shared library."""

    def __init__(self, function: Any, declaration: Declaration) -> None:
        function.restype = None
        self._function = function
        self.declaration = declaration

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
    ) -> CpuLaunch:
        return launch_of(self._function, self.declaration.order(arguments))


def launch_of(function: Any, arguments: Sequence[Array | int | float | None]) -> CpuLaunch:
    """A call of a function of a library with arguments in its order."""
    converted = tuple(_as_argument(value) for value in arguments)
    keep = tuple(value for value in arguments if isinstance(value, np.ndarray))
    return CpuLaunch(function, converted, keep)


def _as_argument(value: Array | int | float | None) -> Any:
    if isinstance(value, np.void):
        struct: Any = np.ctypeslib.as_ctypes_type(value.dtype)  # type: ignore[arg-type]
        return struct.from_buffer_copy(value.tobytes())
    if value is None:
        return ctypes.c_void_p(0)
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, (int, np.integer)):
        return ctypes.c_long(int(value))
    return ctypes.c_double(float(value))


def _nothing() -> None:
    pass


def _plane(address: int, box: Box, size: int) -> np.ndarray:
    """A plane of values of `size` bytes, where it lies."""
    (n0, n1, _), (s0, s1, _) = box.counts, box.strides
    count = (n0 - 1) * s0 + (n1 - 1) * s1 + 1
    memory = (ctypes.c_char * (count * size)).from_address(address + box.first * size)
    values = np.frombuffer(memoryview(memory), f"V{size}")
    return np.lib.stride_tricks.as_strided(values, (n1, n0), (s1 * size, s0 * size))


class CpuGraph:
    """On cores a launch costs so little that recorded work is simply called again."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def replay(self, stream: Any = None) -> None:
        self._work()


class CpuDevice:
    """Processor cores, driven by OpenMP inside each kernel.

    `threads`: openMP threads; by default ``OMP_NUM_THREADS``, else the cores this process may use.
    """

    kind = "cpu"
    xp: Any = np
    copy_engine = False
    block_memory = 0
    cache_bytes = 0
    stream = None
    side = None
    beside = None

    def __init__(self, threads: int | None = None) -> None:
        if threads is None:
            variable = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
            threads = (
                int(variable) if variable.isdigit() and int(variable) > 0 else available_cores()
            )
        if threads < 1:
            raise InputError("out of range", location=f"threads = {threads}", allowed="1 or more")
        self.threads = self.multiprocessors = threads
        self.name = f"{processor_name()}, {counted(threads, 'thread')}"
        # A thread that waits gives its core back soon: on a shared machine the one it waits for
        # may need it. GCC's OpenMP reads this when it is loaded.
        if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
            os.environ["GOMP_SPINCOUNT"] = str(_SPINS)
        self.identity = f"{platform.node()} cores"
        self._libraries: dict[Path, ctypes.CDLL] = {}
        self._allocated = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array aligned to cache lines; large ones lie on huge pages.

        Successive arrays start at different cache lines within a 4 KiB page, since equal offsets of
        several streams would compete for the same sets of the first-level cache.
        """
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        size = count * kind.itemsize
        shift = (self._allocated % 16) * 3 * _LINE
        self._allocated += 1
        if size >= _LARGE:
            try:
                # Private: few systems give shared memory huge pages, whatever is advised.
                private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                block = mmap.mmap(-1, size + shift + _LARGE, flags=private)
            except (OSError, OverflowError) as error:
                raise MemoryError(f"no {size:,} bytes are free") from error
            if hasattr(mmap, "MADV_HUGEPAGE"):
                block.madvise(mmap.MADV_HUGEPAGE)
            raw = np.frombuffer(block, dtype=np.uint8)
        else:
            raw = np.zeros(size + shift + _PAGE, dtype=np.uint8)
        offset = -raw.ctypes.data % _LINE + shift
        return raw[offset : offset + size].view(kind).reshape(shape)

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array of zeros; see :meth:`empty` (whose fresh memory is zero already)."""
        return self.empty(shape, dtype)

    def from_host(self, array: np.ndarray) -> Array:
        result = self.empty(array.shape, array.dtype)
        result[...] = array
        return result

    def to_host(self, array: Array) -> np.ndarray:
        return np.array(array, order="C")

    def staging(self, count: int, dtype: DTypeLike) -> np.ndarray:
        """Plain host array."""
        staged: np.ndarray = self.empty((count,), dtype)
        return staged

    def address(self, array: Array) -> int:
        return int(array.ctypes.data)

    def fork(self, stream: Any = None) -> None:
        """Nothing to do: there is one stream."""

    def join(self, stream: Any = None) -> None:
        """Nothing to do: there is one stream."""

    def note(self, stream: Any = None) -> Callable[[], None]:
        """A wait for nothing: all that was launched is done."""
        return _nothing

    def copy_out(self, array: Array, host: np.ndarray, stream: Any = None) -> Callable[[], None]:
        """Copy to a staging array at once."""
        host[...] = array
        return _nothing

    def copy_in(self, array: Array, host: np.ndarray, stream: Any = None) -> None:
        """Copy from a staging array at once."""
        array[...] = host

    def copy_box(
        self, to: int, to_box: Box, source: int, from_box: Box, size: int, stream: Any = None
    ) -> None:
        """Copy a plane between arrays at two addresses at once."""
        _plane(to, to_box, size)[...] = _plane(source, from_box, size)

    def shared_zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Plain zeros: MPI does between cores what shared arrays do between GPUs."""
        return self.zeros(shape, dtype)

    def release_shared(self) -> None:
        """Nothing to free."""

    def share(self, array: Array) -> tuple[bytes, str]:
        """Tell that it cannot be mapped."""
        return b"", "memory of cores is not shared this way"

    def map_region(self, handle: bytes) -> int:
        """Cores have none."""
        raise MachineError("memory of cores is not shared this way")

    def unmap_region(self, address: int) -> None:
        """Nothing to give back."""

    def kernel(self, file: Path, name: str, constants: Constants) -> CpuKernel:
        """Kernel of a file, compiled for these cores; see :func:`jit.compile_for_cores`."""
        declaration = jit.declarations(file, constants, on_gpu=False).kernel(name)
        path = jit.compile_for_cores(file, constants)
        library = self._libraries.get(path)
        if library is None:
            library = self._libraries[path] = ctypes.CDLL(str(path))
            library.omp_set_num_threads(ctypes.c_int(self.threads))
        return CpuKernel(library[name], declaration)

    def graph(self, work: Callable[[], None]) -> CpuGraph:
        """Keep `work` for replays."""
        return CpuGraph(work)

    def synchronise(self) -> None:
        """Nothing to wait for: a launch returns when its kernel has ended."""

    def seconds(self, work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def memory(self) -> tuple[int, int]:
        return host_memory()
