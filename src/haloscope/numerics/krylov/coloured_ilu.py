"""Incomplete factors of block rows without fill, in an order of colours: for GPUs, and for many cores."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import SolutionError
from haloscope.exchange.plan import ranges
from haloscope.numerics.krylov.block_rows import WITHOUT_EQUATION, BlockPattern, BlockRows
from haloscope.numerics.shared_nodes import SharedNodes, sums_between_shared

_SOURCE = Path(__file__).with_name("coloured_ilu.cpp")
_GPU_BLOCK = 64


def kernel_file(size: int, *, single: bool = True) -> KernelFile:
    """Kernels of factors with blocks of a size, stored in single or double precision."""
    stored = "float" if single else "double"
    return KernelFile(_SOURCE, {"B": size, "stored": stored, "stored2": f"{stored}2"})


def colouring_file() -> KernelFile:
    """The kernel that finds colours, on cores; they do not depend on blocks."""
    return kernel_file(2)


class ColouredIlu:
    """Block ILU(0) of the matrix restricted to the nodes of each rank, eliminated colour by colour."""

    # Nodes of one colour share no element, so that all of them are worked out side by side; there
    # are 8 to 12 colours in a mesh of tetrahedra. It takes a third more iterations than
    # :class:`BlockIlu`, whose rows follow one another. Bits do not depend on threads, nor on
    # whether cores or a GPU compute. Ranks' domains overlap as in :class:`BlockIlu`: blocks between
    # shared nodes are those of the whole matrix, and a shared node takes what its owner finds.
    #
    # Multicolour orderings: Y. Saad, Iterative Methods for Sparse Linear Systems, 2003, section
    # 12.4.

    def __init__(self, rows: BlockRows, shared: SharedNodes, *, single: bool = True) -> None:
        self._rows, self._shared = rows, shared
        device, pattern = rows.device, rows.pattern
        self._file = kernel_file(rows.size, single=single)
        colours = colours_of(device, pattern)
        self.colours = int(colours.max(initial=-1)) + 1  # Their number on this rank
        order = np.argsort(colours, kind="stable").astype(np.int32)
        self._bounds = np.searchsorted(colours[order], np.arange(self.colours + 1)).tolist()
        of_row, of_column = colours[pattern.rows], colours[pattern.columns]
        stored = np.dtype(np.float32 if single else np.float64)
        self._down = self._sweep(order, of_column < of_row, colours, stored)
        self._up = self._sweep(order[::-1], of_column >= of_row, None, stored)
        higher = np.flatnonzero(of_column > of_row)
        counts = np.bincount(pattern.rows[higher], minlength=rows.nodes)
        self._upper = tuple(
            device.from_host(part.astype(np.int32))
            for part in (np.append(0, np.cumsum(counts)), higher)
        )
        self._factors = device.empty(rows.values.shape, np.float64)
        self._singular = device.zeros((1,), np.int64)
        self._sums = None if shared.alone else sums_between_shared(rows, shared)
        self._updates = self._bind_updates()
        self._kernels = [self._kernel(f"sweep_{way}") for way in ("down", "up")]
        self._applications: dict[tuple[int, int], tuple[Array, Array, list[Launch]]] = {}

    @property
    def capturable(self) -> bool:
        """Whether applications may be captured into a graph."""
        return self._shared.capturable(self._rows.size)

    def update(self) -> None:
        """Factorise the matrix as it is now."""
        self._factors[...] = self._rows.values
        if self._sums is not None:
            self._sums.swap(self._factors)
        self._singular[...] = 0
        for launch in self._updates:
            launch()
        singular = int(self._rows.device.to_host(self._singular)[0])
        if self._shared.world.any(singular > 0):
            raise SolutionError(
                f"coloured ILU(0) has {singular} singular diagonal blocks of {self._rows.nodes} on this rank",
                remedy=WITHOUT_EQUATION,
            )

    def apply(self, x: Array, y: Array) -> None:
        """Solve with the factors; shared nodes take their owners' values. x and y are two arrays."""
        for launch in self._bound(x, y):
            launch()
        self._shared.take_owners(y, self._rows.size)

    def _bound(self, x: Array, y: Array) -> list[Launch]:
        """The launches for two arrays, which are remembered by identity."""
        binding = self._applications.get((id(x), id(y)))
        if binding is None:
            launches = []
            for kernel, sweep, vectors in zip(
                self._kernels, (self._down, self._up), ({"x": x, "y": y}, {"y": y}), strict=True
            ):
                launches += [
                    kernel.bind(
                        extent=extent,
                        block=(_GPU_BLOCK,),
                        order=sweep.order,
                        packed=sweep.packed,
                        columns=sweep.columns,
                        blocks=sweep.blocks,
                        **vectors,
                        first=first,
                        end=end,
                    )
                    for first, end, extent in self._colours(sweep)
                ]
            binding = self._applications[id(x), id(y)] = (x, y, launches)
        return binding[2]

    def _colours(self, sweep: _Sweep) -> list[tuple[int, int, tuple[int]]]:
        """Bounds of the colours in the order of a sweep, and a GPU's threads for them."""
        bounds, lanes = self._bounds, self._rows.size**2 // 2
        if sweep.backwards:
            bounds = [bounds[-1] - bound for bound in reversed(bounds)]
        return [(first, end, ((end - first) * lanes,)) for first, end in itertools.pairwise(bounds)]

    def _kernel(self, name: str) -> Any:
        return self._rows.device.kernel(self._file.source, name, self._file.constants)

    def _bind_updates(self) -> list[Launch]:
        rows, down, entries = self._rows, self._down, self._rows.size**2
        factorise, invert = self._kernel("factorise"), self._kernel("invert_rows")
        upper_starts, upper = self._upper
        launches = []
        for first, end, _ in self._colours(down):
            of_colour: dict[str, Any] = {
                "diagonal": rows.diagonal,
                "order": down.order,
                "first": first,
                "end": end,
                "F": self._factors,
            }
            launches.append(
                factorise.bind(
                    extent=((end - first) * entries,),
                    block=(entries,),
                    **of_colour,
                    starts=rows.starts,
                    columns=rows.columns,
                    lower_starts=down.packed,
                    lower=down.sources,
                    upper_starts=upper_starts,
                    upper=upper,
                )
            )
            launches.append(
                invert.bind(extent=(end - first,), **of_colour, singular=self._singular)
            )
        for sweep in (down, self._up):
            count = len(sweep.sources)
            launches.append(
                self._kernel("pack").bind(
                    extent=(max(1, count * entries),),
                    F=self._factors,
                    sources=sweep.sources,
                    count=count,
                    blocks=sweep.blocks,
                )
            )
        return launches

    def _sweep(
        self,
        order: NDArray[np.int32],
        chosen: NDArray[np.bool_],
        colours: NDArray[np.int32] | None,
        stored: np.dtype[Any],
    ) -> _Sweep:
        """Rows in an order with their chosen blocks, by colour, or the diagonal first."""
        device, pattern = self._rows.device, self._rows.pattern
        blocks = np.flatnonzero(chosen)
        row = pattern.rows[blocks]
        keys = (
            pattern.columns[blocks] != row if colours is None else colours[pattern.columns[blocks]]
        )
        blocks = blocks[np.lexsort((keys, row))]
        counts = np.bincount(row, minlength=pattern.nodes)
        starts = np.append(0, np.cumsum(counts))[:-1]
        sources = blocks[ranges(starts[order], counts[order])]
        packed = np.append(0, np.cumsum(counts[order]))
        arrays = (order, packed, pattern.columns[sources], sources)
        lists = (device.from_host(np.ascontiguousarray(part, np.int32)) for part in arrays)
        rows, begins, columns, numbers = lists
        room = device.empty((len(sources), *self._rows.values.shape[1:]), stored)
        return _Sweep(rows, begins, columns, numbers, room, backwards=colours is None)


@dataclass(frozen=True)
class _Sweep:
    """The blocks of a sweep in the order in which it reads them.

    Blocks `packed[p]` to `packed[p + 1]` belong to row `order[p]`, and are those of the matrix with
    the numbers `sources`.
    """

    order: Array
    packed: Array
    columns: Array
    sources: Array
    blocks: Array
    backwards: bool


def colours_of(device: Device, pattern: BlockPattern) -> NDArray[np.int32]:
    """Give neighbours different colours, in the order of their numbers the lowest that is free.

    Returns: colours from 0.
    """
    colours = np.zeros(pattern.nodes, np.int32)
    # A second device of cores would change how many threads the first one has.
    host = device if isinstance(device, CpuDevice) else CpuDevice()
    source, constants = colouring_file()
    host.kernel(source, "colour", constants).bind(
        extent=(1,),
        starts=pattern.starts,
        columns=pattern.columns,
        n=pattern.nodes,
        colours=colours,
    )()
    return colours
