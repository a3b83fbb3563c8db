"""Approximate inverses of block rows: incomplete factors without fill, in the order of nodes or of colours, and point blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.plan import all_rows, find_sharing, ranges
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import (
    WITHOUT_EQUATION,
    BlockPattern,
    BlockRows,
    BoundLaunches,
)
from haloscope.numerics.krylov.node_vectors import clearing
from haloscope.numerics.shared_nodes import SharedNodes, open_node_sums, sums_between_shared

Integers = NDArray[np.integer]

_ILU_SOURCE = Path(__file__).with_name("block_ilu.cpp")
# Whatever the number of threads, so that it does not change what is computed.
_SLICES = 2


def block_ilu_file(size: int, *, single: bool = True) -> KernelFile:
    """Kernels of factors with blocks of a size, stored in single or double precision."""
    return KernelFile(_ILU_SOURCE, {"B": size, "stored": "float" if single else "double"})


class BlockIlu:
    """Block ILU(0) of the matrix restricted to the nodes of each rank."""

    # Its blocks are those of the whole matrix: what this rank's elements add to blocks between
    # shared nodes is summed with what others add. The ranks' domains so overlap by the shared
    # nodes; each solves for all of its nodes, and a shared node takes what its owner finds
    # (restricted additive Schwarz: Cai and Sarkis, SIAM J. Sci. Comput. 21, 1999, 792). Its quality
    # depends on the ranks and on the numbering of nodes.
    #
    # Rows are eliminated from both ends of that numbering, and last the few between (a twisted
    # factorisation: van der Vorst, Parallel Comput. 5, 1987, 45), so that two cores have work, and
    # each step of the elimination is one of all rows: slices are no blocks of their own.

    def __init__(
        self, rows: BlockRows, shared: SharedNodes, *, single: bool = True, slices: int = _SLICES
    ) -> None:
        if rows.device.kind != "cpu":
            raise InputError(
                "block ILU(0) runs on processor cores only: its sweeps have too little parallel work for a GPU",
                remedy="use point blocks on GPUs",
            )
        self._rows, self._shared = rows, shared
        device, pattern = rows.device, rows.pattern
        self._sums = None if shared.alone else sums_between_shared(rows, shared)
        # What is factorised: a copy where sums go in.
        self._matrix = rows.values
        if self._sums is not None:
            self._matrix = device.empty(rows.values.shape, np.float64)
        # Nodes as they are eliminated, (nodes,).
        self.order, bounds = _order_of_elimination(pattern, slices)
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(pattern.nodes)
        self._slices = slices
        self._positions = device.from_host(positions.astype(np.int32))
        stored = np.dtype(np.float32 if single else np.float64)
        row, column = positions[pattern.rows], positions[pattern.columns]
        below = column < row
        last = pattern.nodes - 1
        self._lower = lower = self._part(np.flatnonzero(below), row, column, stored)
        self._upper = upper = self._part(np.flatnonzero(~below), last - row, last - column, stored)
        # Arguments of both kernels.
        self._arguments: dict[str, Any] = {
            "order": device.from_host(self.order.astype(np.int32)),
            "bounds": device.from_host(bounds.astype(np.int32)),
            "slices": slices,
            "n": rows.nodes,
            "lower_starts": lower.starts,
            "lower_columns": lower.columns,
            "lower": lower.blocks,
            "upper_starts": upper.starts,
            "upper_columns": upper.columns,
            "upper": upper.blocks,
        }
        longest = int(np.diff(pattern.starts).max(initial=0))
        self._room = device.empty((slices * longest * rows.size**2,), np.float64)
        self._longest = longest
        self._places = device.zeros((slices * pattern.nodes,), np.int32)
        source, constants = block_ilu_file(rows.size, single=single)
        self._factorise, solve = (
            device.kernel(source, name, constants) for name in ("factorise", "solve")
        )
        self._solve = BoundLaunches(
            lambda x, y: solve.bind(extent=(slices,), **self._arguments, x=x, y=y)
        )

    def update(self) -> None:
        """Factorise the matrix as it is now."""
        rows = self._rows
        if self._sums is not None:
            self._matrix[...] = rows.values
            self._sums.swap(self._matrix)
        singular = np.zeros(1, np.int64)
        self._factorise.bind(
            extent=(self._slices,),
            **self._arguments,
            positions=self._positions,
            lower_sources=self._lower.sources,
            upper_sources=self._upper.sources,
            A=self._matrix,
            rows=self._room,
            longest=self._longest,
            places=self._places,
            singular=singular,
        )()
        if self._shared.world.any(bool(singular[0])):
            raise SolutionError(
                f"block ILU(0) has {int(singular[0])} singular diagonal blocks of {rows.nodes} on this rank",
                remedy=WITHOUT_EQUATION,
            )

    def apply(self, x: Array, y: Array) -> None:
        """Solve with the factors; shared nodes take their owners' values.

        Arrays are remembered by identity.
        """
        self._solve(x, y)
        self._shared.take_owners(y, self._rows.size)

    def _part(
        self, chosen: Integers, row: Integers, column: Integers, stored: np.dtype[Any]
    ) -> _Part:
        """The chosen blocks in the order of their rows and columns."""
        rows, device = self._rows, self._rows.device
        sources = chosen[np.lexsort((column[chosen], row[chosen]))]
        counts = np.bincount(row[sources], minlength=rows.nodes)
        lists = (np.append(0, np.cumsum(counts)), rows.pattern.columns[sources], sources)
        starts, columns, numbers = (device.from_host(table.astype(np.int32)) for table in lists)
        blocks = device.empty((len(sources), rows.size, rows.size), stored)
        return _Part(starts, columns, numbers, blocks)


@dataclass(frozen=True)
class _Part:
    """The blocks on one side of the diagonal; see block_ilu.cpp."""

    starts: Array
    columns: Array
    sources: Array
    blocks: Array


def _order_of_elimination(pattern: BlockPattern, slices: int) -> tuple[Integers, Integers]:
    """Nodes as they are eliminated, and where slices begin in that order, the rest, and its end.

    A node that shares an element with one of an earlier slice is of the rest. The slices of the
    first half are eliminated upwards, the others downwards.
    """
    bounds = pattern.equal_shares(0, pattern.nodes, slices)
    of_node = np.repeat(np.arange(slices), np.diff(bounds))
    between = np.zeros(pattern.nodes, bool)
    rows = pattern.rows
    between[rows[of_node[rows] > of_node[pattern.columns]]] = True
    parts = []
    for number in range(slices):
        own = np.arange(bounds[number], bounds[number + 1])
        own = own[~between[own]]
        parts.append(own if 2 * number < slices else own[::-1])
    parts.append(np.flatnonzero(between))
    return np.concatenate(parts), np.append(0, np.cumsum([len(part) for part in parts]))


class OverlappingIlu:
    """Block ILU(0) of the matrix restricted to a rank's nodes and those next to them."""

    # One layer of nodes more than :class:`haloscope.numerics.krylov.smoothers.BlockIlu`, which is used for
    # the factors: a rank's own nodes then all have their whole rows, and counts of iterations
    # hardly grow with ranks beside a coarse space. It costs one more message to each neighbour an
    # application. On one rank both are the same.

    def __init__(self, rows: BlockRows, shared: SharedNodes, *, single: bool = True) -> None:
        self._rows, self._shared = rows, shared
        self._wide: _Wide | None = None
        if shared.alone:
            self._ilu = BlockIlu(rows, shared, single=single)
            return
        self._wide = wide = _Wide(rows, shared)
        alone = SharedNodes(World(), rows.device, np.arange(wide.rows.nodes))
        self._ilu = BlockIlu(wide.rows, alone, single=single)
        self._right, self._left = wide.rows.vector(), wide.rows.vector()

    def update(self) -> None:
        """Factorise the matrix as it is now."""
        if self._wide is not None:
            self._wide.update()
        fault = ""
        try:
            self._ilu.update()
        except SolutionError as error:
            fault = error.problem
        faults = [text for text in self._shared.world.gather_texts(fault) if text]
        if faults:
            raise SolutionError(faults[0], remedy=WITHOUT_EQUATION)

    def apply(self, x: Array, y: Array) -> None:
        """Solve with the factors; shared nodes take their owners' values."""
        if self._wide is None:
            self._ilu.apply(x, y)
            return
        own = len(x)
        self._right[:own] = x
        self._wide.complete(self._right)
        self._ilu.apply(self._right, self._left)
        y[:] = self._left[:own]
        self._shared.take_owners(y, self._rows.size)


class _Wide:
    """The matrix of a rank's nodes and their neighbours, with what all ranks' elements add to it.

    Its first nodes are the rank's own, in their order. What several ranks may hold a part of lies
    between nodes that are shared or some rank's neighbours.
    """

    def __init__(self, rows: BlockRows, shared: SharedNodes) -> None:
        world, device, numbers = shared.world, rows.device, shared.numbers
        pattern, entries, own = rows.pattern, rows.size**2, rows.nodes
        # Numbers of nodes are below `count` in all that follows.
        count = int(world.largest(float(numbers.max(initial=-1)))) + 1
        row, column = numbers[pattern.rows], numbers[pattern.columns]
        at_edge = shared.shared[pattern.rows]
        pairs = all_rows(world, (row * count + column)[at_edge])
        next_to = pairs[np.isin(pairs // count, numbers)] % count
        extra = np.setdiff1d(next_to, numbers)
        all_extra = np.unique(all_rows(world, extra))
        several = np.union1d(all_extra, np.unique(all_rows(world, numbers[shared.shared])))
        both = np.isin(row, several) & np.isin(column, several)
        pairs = np.unique(all_rows(world, (row * count + column)[both]))
        self.numbers = wide = np.append(numbers, extra)
        pairs = pairs[np.isin(pairs // count, wide) & np.isin(pairs % count, wide)]
        order = np.argsort(wide)
        nodes = len(wide)
        places = (order[np.searchsorted(wide, part, sorter=order)] for part in divmod(pairs, count))
        elsewhere = next(places) * nodes + next(places)
        here = pattern.rows.astype(np.int64) * nodes + pattern.columns
        keys = np.union1d(here, elsewhere)
        starts = np.append(0, np.cumsum(np.bincount(keys // nodes, minlength=nodes)))
        self.rows = BlockRows(device, BlockPattern.of_rows(starts, keys % nodes), rows.size)
        self._own_values, self._own = rows.values, np.searchsorted(keys, here)
        first, second = wide[keys // nodes], wide[keys % nodes]
        inside = np.isin(first, several) & np.isin(second, several)
        sharing = find_sharing(world, np.where(inside, first * count + second + 1, 0))
        self._sums = open_node_sums(world, device, sharing, entries, shared.transport)
        wanted = np.isin(wide, all_extra)
        counted = np.append(shared.owned, np.zeros(nodes - own, bool)) | ~wanted
        others = np.flatnonzero(~counted)
        self._keep = BoundLaunches(lambda vector: clearing(device, others, vector, rows.size))
        sharing = find_sharing(world, np.where(wanted, wide + 1, 0))
        self._values = open_node_sums(world, device, sharing, rows.size, shared.transport)

    def update(self) -> None:
        """Take the matrix as it is now."""
        values = self.rows.values
        values[...] = 0.0
        values[self._own] = self._own_values
        self._sums.swap(values)

    def complete(self, vector: Array) -> None:
        """Give the neighbours' places what their owners have."""
        self._keep(vector)
        self._values.gather(vector)


_COLOURED_SOURCE = Path(__file__).with_name("coloured_ilu.cpp")
_GPU_BLOCK = 64


def coloured_ilu_file(size: int, *, single: bool = True) -> KernelFile:
    """Kernels of factors with blocks of a size, stored in single or double precision."""
    stored = "float" if single else "double"
    return KernelFile(_COLOURED_SOURCE, {"B": size, "stored": stored, "stored2": f"{stored}2"})


def colouring_file() -> KernelFile:
    """The kernel that finds colours, on cores; they do not depend on blocks."""
    return coloured_ilu_file(2)


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
        self._file = coloured_ilu_file(rows.size, single=single)
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
        self._sweeps = BoundLaunches(self._bind_sweeps)

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
        self._sweeps(x, y)
        self._shared.take_owners(y, self._rows.size)

    def _bind_sweeps(self, x: Array, y: Array) -> Callable[[], None]:
        launches = [
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
            for kernel, sweep, vectors in zip(
                self._kernels, (self._down, self._up), ({"x": x, "y": y}, {"y": y}), strict=True
            )
            for first, end, extent in self._colours(sweep)
        ]

        def sweep_all() -> None:
            for launch in launches:
                launch()

        return sweep_all

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


class PointBlocks:
    """The inverse of the matrix's diagonal blocks."""

    # Blocks of shared nodes are summed over the sharers before they are inverted, so that it does
    # not depend on the ranks but for rounding. It holds copies: call :meth:`update` whenever the
    # matrix has changed. Applying it takes no message.

    capturable = True

    def __init__(self, rows: BlockRows, shared: SharedNodes) -> None:
        self._rows, self._world = rows, shared.world
        self._sums = None if shared.alone else shared.sums(rows.size**2)
        own = np.arange(rows.nodes + 1)
        self._inverse = BlockRows(rows.device, BlockPattern.of_rows(own, own[:-1]), rows.size)
        # The inverses, (nodes, size, size), each as [unknown, equation].
        self.inverse = self._inverse.values
        inverse = self._inverse
        self._multiply = BoundLaunches(lambda x, y: inverse.product(x, y, inverse.all_rows))

    def update(self) -> None:
        """Take the blocks of the matrix as they are now."""
        blocks = self._inverse.values
        self._rows.take_diagonal(blocks)
        if self._sums is not None:
            self._sums.swap(blocks)
        singular = self._world.sum(np.array([self._inverse.invert(blocks)]))
        if singular[0]:
            raise SolutionError(
                f"the diagonal blocks of {singular[0]} nodes are singular or not finite",
                remedy=WITHOUT_EQUATION,
            )

    def apply(self, x: Array, y: Array) -> None:
        """Put the inverse blocks' products with x into y; arrays are remembered by identity."""
        self._multiply(x, y)
