"""A device that is absent: it binds kernels and runs none, so that all that a case asks for can be seen.

Cores can be absent in the same way. What is set up on such a device meets every kernel, with
arrays that take no memory, and nothing is computed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.checks.kernels import CompiledFile
from haloscope.device import jit
from haloscope.device.cpu import available_cores
from haloscope.device.declarations import Constants, Declaration
from haloscope.device.interface import Array, Box
from haloscope.device.jit import Cache
from haloscope.device.targets import CORES, KnownTarget
from haloscope.exchange.ranks.world import World

_MULTIPROCESSORS = 132  # of an H200; no file that is compiled depends on it
_MEMORY = 1 << 40
_SOMEWHERE = 1 << 40  # no array, but no null pointer either: that says that there is none


class AbsentArray:
    """An array without content: parts of it can be named, values written to it are dropped."""

    _next = _SOMEWHERE

    def __init__(
        self, shape: tuple[int, ...], dtype: DTypeLike, address: int | None = None
    ) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.ndim = len(self.shape)
        self.dtype = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.flags = SimpleNamespace(c_contiguous=True, f_contiguous=True)
        self.nbytes = math.prod(self.shape) * self.itemsize
        # A place of its own, where nothing is: what shares memory can be told from what does not.
        if address is None:
            address = AbsentArray._next
            AbsentArray._next += max(1, self.nbytes)
        self.data = SimpleNamespace(ptr=address)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> AbsentArray:
        rows = range(*part.indices(self.shape[0]))
        first = rows.start * math.prod(self.shape[1:]) * self.itemsize
        shape = (len(rows), *self.shape[1:])
        return AbsentArray(shape, self.dtype, self.data.ptr + first)

    def view(self, dtype: DTypeLike) -> AbsentArray:
        """The same array with values of another type, as wide as its own."""
        return AbsentArray(self.shape, dtype, self.data.ptr)

    def __setitem__(self, part: Any, values: Any) -> None:
        pass


def _as_strided(array: AbsentArray, shape: tuple[int, ...], strides: Any) -> AbsentArray:
    return AbsentArray(shape, array.dtype, array.data.ptr)


def _nothing() -> None:
    pass


class AbsentKernel:
    """A kernel that was compiled; its launches do nothing."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def bind(
        self,
        *,
        extent: Any = None,
        block: Any = None,
        stream: Any = None,
        shared: int = 0,
        early: bool = False,
        together: bool = False,
        **arguments: Any,
    ) -> Callable[[], None]:
        self.declaration.order(arguments)
        return _nothing


class _AbsentGraph:
    def replay(self, stream: Any = None) -> None:
        pass


class AbsentDevice:
    """Passes for a GPU or for cores; see :class:`haloscope.device.interface.Device`."""

    xp: Any = SimpleNamespace(
        lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided))
    )
    stream = None
    side = None
    beside = None

    def __init__(self, target: str, *, log: Callable[[CompiledFile], None] | None = None) -> None:
        self.target = target
        self.kind = "cpu" if target == CORES else "cuda"
        self.name = f"absent {target}"
        self.identity = self.name
        known = KnownTarget(target)
        self.multiprocessors = available_cores() if target == CORES else _MULTIPROCESSORS
        self.copy_engine, self.block_memory = known.copy_engine, known.block_memory
        self.cache_bytes = 0
        # What was compiled or found, in order; each file once for each set of constants.
        self.files: list[CompiledFile] = []
        # Names of the files and of the kernels in them that were asked for.
        self.kernels: set[tuple[str, str]] = set()
        self._cache = Cache()
        self._log = log
        self._met: set[tuple[Path, str]] = set()

    def kernel(self, file: Path, name: str, constants: Constants) -> AbsentKernel:
        """Compile the file of a kernel, unless it was compiled before."""
        self.kernels.add((file.name, name))
        met = (file, jit.kernel_hash(file, constants))
        if met not in self._met:
            self._met.add(met)
            before, start = len(self._cache.built), time.perf_counter()
            if self.kind == "cpu":
                jit.compile_for_cores(file, constants, self._cache)
            else:
                jit.compile_for_gpu(file, constants, self.target, self._cache)
            taken, cached = time.perf_counter() - start, len(self._cache.built) == before
            done = CompiledFile(file.name, dict(constants), met[1], self.target, taken, cached)
            self.files.append(done)
            if self._log is not None:
                self._log(done)
        declared = jit.declarations(file, constants, on_gpu=self.kind == "cuda")
        return AbsentKernel(declared.kernel(name))

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array without content."""
        return AbsentArray(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array without content."""
        return AbsentArray(shape, dtype)

    def shared_zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Array without content."""
        return AbsentArray(shape, dtype)

    def from_host(self, array: np.ndarray) -> Array:
        """Array without content, of the shape of a host array."""
        return AbsentArray(array.shape, array.dtype)

    def to_host(self, array: Array) -> np.ndarray:
        """Zeros in the shape of an array."""
        return np.zeros(array.shape, array.dtype)

    def staging(self, count: int, dtype: DTypeLike) -> Any:
        """Array without content."""
        return AbsentArray((count,), dtype)

    def address(self, array: Array) -> int:
        """A place that is no null pointer, where nothing is."""
        return _SOMEWHERE

    def fork(self, stream: Any = None) -> None:
        """Nothing to do."""

    def join(self, stream: Any = None) -> None:
        """Nothing to do."""

    def note(self, stream: Any = None) -> Callable[[], None]:
        """A wait for nothing."""
        return _nothing

    def copy_out(self, array: Array, host: np.ndarray, stream: Any = None) -> Callable[[], None]:
        """Nothing to copy."""
        return _nothing

    def copy_in(self, array: Array, host: np.ndarray, stream: Any = None) -> None:
        """Nothing to copy."""

    def copy_box(
        self, to: int, to_box: Box, source: int, from_box: Box, size: int, stream: Any = None
    ) -> None:
        """Nothing to copy."""

    def release_shared(self) -> None:
        """Nothing to free."""

    def share(self, array: Array) -> tuple[bytes, str]:
        """Pretend that it can be mapped."""
        return b"absent", ""

    def map_region(self, handle: bytes) -> int:
        """A place that is no null pointer, where nothing is."""
        return _SOMEWHERE

    def unmap_region(self, address: int) -> None:
        """Nothing to give back."""

    def graph(self, work: Callable[[], None]) -> _AbsentGraph:
        """Record nothing."""
        return _AbsentGraph()

    def synchronise(self) -> None:
        """Nothing to wait for."""

    def seconds(self, work: Callable[[], None]) -> float:
        """No time."""
        return 0.0

    def memory(self) -> tuple[int, int]:
        """As much as anyone asks for."""
        return _MEMORY, _MEMORY


class AbsentWorld(World):
    """Rank 0 of a number of ranks of one host, without MPI and without the others."""

    # Every collective is answered at once: the others have sent what this rank has sent, or nothing
    # in an :meth:`exchange`, and sums are this rank's own. That suffices to open an exchange, and
    # for nothing that computes.

    library = "no MPI (absent ranks)"

    def __init__(self, size: int) -> None:
        self.size = self.local_size = size

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Give this rank what it has for itself, and nothing from the others."""
        return [parts[0].copy(), *(part[:0].copy() for part in parts[1:])]

    def gather_texts(self, text: str) -> list[str]:
        """Give this rank's text once for each rank."""
        return [text] * self.size
