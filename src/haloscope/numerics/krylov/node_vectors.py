"""Orthonormal vectors on nodes that ranks may share, made with one or two reductions a vector."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import MachineError
from haloscope.exchange.engine import Exchange
from haloscope.exchange.entries import Entries, open_lists
from haloscope.exchange.plan import Lists
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import DirectRows
from haloscope.regions import Region

Floats = NDArray[np.float64]

_REDUCING = Region("reductions")
_SOURCE = Path(__file__).with_name("node_vectors.cpp")
_RANK_SUMS = Path(__file__).with_name("rank_sums.cpp")
# As in node_vectors.cpp and pairs.hpp.
_CHUNK, _LANES, _WIDTH = 512, 256, 32
_PROJECT, _FIRST, _SECOND = range(3)
# A new vector shorter than this many roundings of what it is left from is nothing new.
_ROUNDINGS = 1000.0
_LIMIT = (_ROUNDINGS * float(np.finfo(np.float64).eps)) ** 2
# Columns that may be on their way to the host at once.
_UNDER_WAY = 2


def kernel_file(size: int) -> KernelFile:
    """Kernels of vectors with so many numbers a node."""
    return KernelFile(_SOURCE, {"B": size})


def rank_sums_file() -> KernelFile:
    """The kernel that adds up over ranks on GPUs which write into each other's memory."""
    return KernelFile(_RANK_SUMS, {})


class NodeVectors:
    """Room for vectors of numbers at nodes, and what makes them orthonormal one after the other.

    `owned`: whether this rank counts each of its nodes, (nodes,).
    """

    # Vectors hold the same bits in all copies of a node that ranks share; inner products count the
    # owner's. They are computed as if in twice the working precision and rounded once, on all ranks
    # together, so that but for a rare last bit they depend neither on the number of ranks nor on
    # who holds which node. Every rank gets the same bits.
    #
    # Orthogonalisation is classical Gram-Schmidt (Giraud, Langou and Rozloznik, Comput. Math. Appl.
    # 50, 2005), with a second turn where after the first the vectors might not be orthonormal to
    # the root of a rounding; see node_vectors.cpp. All products of a turn are one reduction, and
    # the length of what is left comes from the last one by Pythagoras (as in Swirydowicz, Langou,
    # Ananthan, Yang and Thomas, Numer. Linear Algebra Appl. 28, 2021).
    #
    # Ranks on GPUs reduce there, without the host: each gives its sums to all others, and all add
    # them in the same order. Where they can write into each other's memory one launch does all of
    # it.

    def __init__(
        self,
        device: Device,
        count: int,
        size: int,
        owned: np.ndarray,
        world: World | None = None,
        transport: str = "auto",
    ) -> None:
        self._transport = transport
        self._device, self._world = device, world or World()
        self._values = len(owned) * size
        # An odd number of chunks: rows that lay a multiple of 128 KiB apart would share sets of
        # a cache.
        self._chunks = max(1, -(-self._values // _CHUNK)) | 1
        self._stride = self._chunks * _CHUNK
        self._flat = device.zeros((count * self._stride,), np.float64)
        begins = [row * self._stride for row in range(count)]
        # The vectors, (nodes * size,) each: the same objects as long as this lives.
        self.vectors = [self._flat[begin : begin + self._values] for begin in begins]
        padded = np.zeros(self._stride // size + 1, np.uint8)
        padded[: len(owned)] = owned
        self._owned = device.from_host(padded)
        self._parts = device.zeros((2 * count * self._chunks,), np.float64)
        # Pairs (sum, what its rounding left) of the first and of the second turn, and of each vector
        # how much orthogonality may be lost, and its turns.
        self._products = device.zeros((6 * count,), np.float64)
        self._turns = [self._products[: 2 * count], self._products[2 * count : 4 * count]]
        self._state = self._products[4 * count :]
        self._staging = device.staging(2 * count, np.float64)
        self._columns = [device.staging(6 * count, np.float64) for _ in range(_UNDER_WAY)]
        source, constants = kernel_file(size)
        self._orthogonalise = device.kernel(source, "orthogonalise", constants)
        self._add_parts = device.kernel(source, "add_parts", constants)
        self._add_ranks = device.kernel(source, "add_ranks", constants)
        self._combine = device.kernel(source, "combine", constants)
        self._subtract = device.kernel(source, "subtract_from", constants)
        self._factors = device.zeros((count,), np.float64)
        self._host_factors = device.staging(count, np.float64)
        self._host_factors[:] = 0.0
        self._factors_are_read = device.note()
        self._combinations: dict[tuple[int, int], tuple[Array, Launch]] = {}
        self._count = count
        self._on_host = self._world.size > 1 and device.kind == "cpu"
        self._steps: dict[tuple[int, int], Launch] = {}
        self._reductions: dict[tuple[int, int], list[Launch]] = {}
        # What sums over ranks on GPUs go through: straight, or else a table with a row of each rank.
        self._direct: DirectRows | None = None
        self._row, self._counters = device.zeros((2 * count,), "f8"), device.zeros((2,), "i8")
        self._table: Array | None = None
        self._exchange: Exchange[Entries] | None = None

    def start(self) -> float:
        """Give the first vector the length 1; returns what it had. One reduction."""
        self._step(0, _PROJECT)
        self._reduce(0, 0)
        square = float(self._device.to_host(self._turns[0][:1])[0])
        self._step(0, _FIRST)
        return math.sqrt(square) if square >= 0 else math.nan

    def extend(self, count: int) -> Callable[[], Floats]:
        """Make vector `count` orthogonal to the `count` before it, and 1 long; returns the sums' reader.

        A GPU goes on meanwhile; two of these may be under way.
        """
        self.launch(count)
        return self.fetch(count)

    @property
    def capturable(self) -> bool:
        """Whether :meth:`launch` may be captured into a graph, once it has been called."""
        if self._world.size == 1 or self._direct is not None:
            return True
        return self._exchange is not None and self._exchange.capturable

    def launch(self, count: int) -> None:
        """Do the work of :meth:`extend`."""
        self._step(count, _PROJECT)
        self._reduce(count, 0)
        self._step(count, _FIRST)
        # A GPU finds out by itself; on cores nothing is sent in vain.
        if not self._on_host or self._state[2 * count + 1] == _SECOND:
            self._reduce(count, 1)
            self._step(count, _SECOND)

    def fetch(self, count: int) -> Callable[[], Floats]:
        """Ask for the result of the last :meth:`launch`; see :meth:`extend`."""
        place = self._columns[count % _UNDER_WAY]
        # The one copy to the host where there is no rank on cores beside this one.
        wait = self._device.copy_out(self._products, place)

        def column() -> Floats:
            wait()
            return _column(place.reshape(3, self._count, 2)[:, : count + 1], count)

        return column

    def add_to(self, result: Array, factors: Floats) -> None:
        """``result += sum of factors[v] * vector v``; result has the size of a vector.

        It is remembered by identity.
        """
        count = len(factors)
        key = count, id(result)
        if key not in self._combinations:
            launch = self._combine.bind(
                extent=(self._stride,),
                block=(_CHUNK,),
                vectors=self._flat,
                stride=self._stride,
                count=count,
                factors=self._factors,
                n=self._values,
                result=result,
            )
            self._combinations[key] = (result, launch)
        self._factors_are_read()
        self._host_factors[:count] = factors
        self._device.copy_in(self._factors, self._host_factors)
        self._factors_are_read = self._device.note()
        self._combinations[key][1]()

    def subtract_from(self, minuend: Array, vector: int) -> None:
        """Replace a vector by `minuend` minus it."""
        self._subtract.bind(
            extent=(self._values,), b=minuend, n=self._values, y=self.vectors[vector]
        )()

    def _step(self, count: int, step: int) -> None:
        if (count, step) not in self._steps:
            limit = _LIMIT if count else 0.0
            self._steps[count, step] = self._orthogonalise.bind(
                extent=(self._stride,),
                block=(_CHUNK,),
                vectors=self._flat,
                stride=self._stride,
                count=count,
                owned=self._owned,
                first=self._turns[0],
                second=self._turns[1],
                limit=limit,
                step=step,
                state=self._state,
                parts=self._parts,
            )
        self._steps[count, step]()

    def _reduce(self, count: int, turn: int) -> None:
        """Products of vectors 0 to `count` with the last of them, over all ranks."""
        if (count, turn) not in self._reductions:
            self._reductions[count, turn] = self._bind_reduction(count, turn)
        first, *rest = self._reductions[count, turn]
        first()
        if self._exchange is not None:
            self._exchange.swap(self._table)
        for launch in rest:
            launch()
        if self._on_host:
            with _REDUCING:
                self._reduce_on_host(self._turns[turn][: 2 * (count + 1)])

    def _bind_reduction(self, count: int, turn: int) -> list[Launch]:
        """Launches that add this rank's parts, and those that add all ranks' parts on each GPU."""
        world, sums = self._world, self._turns[turn]
        own: dict[str, Any] = {
            "extent": ((count + 1) * _LANES,),
            "block": (_LANES,),
            "parts": self._parts,
            "chunks": self._chunks,
            "count": count + 1,
            # The second turn's are needed where there is one.
            "turns": self._state[2 * count + 1 :],
            "least": _SECOND if turn else 0,
        }
        if world.size == 1 or self._on_host:
            return [self._add_parts.bind(**own, products=sums)]
        if self._direct is None and self._table is None:
            self._open_exchange()
        if self._direct is not None:
            source, constants = rank_sums_file()
            kernel = self._device.kernel(source, "add_over_ranks", constants)
            launch = kernel.bind(
                **own,
                boxes=self._direct.boxes,
                rank=world.rank,
                ranks=world.size,
                row=self._row,
                counters=self._counters,
                products=sums,
            )
            return [launch]
        assert self._table is not None
        row = 2 * self._count
        place = self._table[world.rank * row : (world.rank + 1) * row]
        rest = self._add_ranks.bind(
            extent=(count + 1,),
            table=self._table,
            row=row,
            ranks=world.size,
            count=count + 1,
            products=sums,
        )
        return [self._add_parts.bind(**own, products=place), rest]

    def _open_exchange(self) -> None:
        """Each rank's row to all others; all ranks come to the same choice."""
        world, row = self._world, 2 * self._count
        if self._transport in ("auto", "peer"):
            with contextlib.suppress(MachineError):
                self._direct = DirectRows(world, self._device, row)
                return
        self._table = self._device.zeros((world.size * row,), np.float64)
        places = np.arange(world.size * row).reshape(-1, row)
        others = [rank for rank in range(world.size) if rank != world.rank]
        lists = Lists(
            tuple((rank, places[world.rank]) for rank in others),
            tuple((rank, places[rank]) for rank in others),
        )
        opened = open_lists(world, self._device, lists, np.float64, self._transport)
        opened.prepare(self._table)
        self._exchange = opened

    def _reduce_on_host(self, sums: Array) -> None:
        own = self._device.to_host(sums)
        # Each rank adds the pairs of all in the same way; a sum over ranks would round in any order.
        pairs = self._world.allgather(own)
        total = self._staging[: len(own)]
        for product in range(len(own) // 2):
            terms = pairs[:, 2 * product : 2 * product + 2].reshape(-1)
            finite = bool(np.isfinite(terms).all())
            total[2 * product] = math.fsum(terms.tolist()) if finite else math.nan
            total[2 * product + 1] = 0.0
        self._device.copy_in(sums, total)


def clearing(device: Device, numbers: NDArray[np.integer], vector: Array, size: int = 1) -> Launch:
    """Bind setting to 0 what a vector with `size` numbers a node has at nodes with these numbers."""
    source, constants = kernel_file(size)
    kernel = device.kernel(source, "clear", constants)
    listed = device.from_host(np.asarray(numbers, np.int32))
    return kernel.bind(extent=(max(1, len(numbers)),), nodes=listed, count=len(numbers), x=vector)


def _column(column: Floats, count: int) -> Floats:
    """Parts along others and the length of the rest, from a copy of what kernels left."""
    first, second = column[:2, :, 0]
    parts, last = first[:count].copy(), first
    if column[2, count, 1] == _SECOND:
        parts += second[:count]
        last = second
    square, whole = float(last[count]), float(first[count])
    # In the kernel's own order.
    for product in last[:count].tolist():
        square -= product * product
    small = square <= _LIMIT * whole
    length = 0.0 if small else math.sqrt(square) if square >= 0 else math.nan
    return np.append(parts, length if math.isfinite(whole) else math.nan)
