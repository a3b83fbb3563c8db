"""Block sparse rows on a device: pattern, assembly by gathering, fixed unknowns, product with a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError

Integers = NDArray[np.int32]

_SOURCE = Path(__file__).with_name("block_pattern.cpp")
_LARGEST_INDEX = 2**31 - 1
OFFSET_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
"""What kernels call the type of offsets, by its bytes."""


def pattern_file(corners: int, offset: str = "int") -> KernelFile:
    """Kernels that find patterns of elements with so many corners; `offset`: type of offsets."""
    return KernelFile(_SOURCE, {"K": corners, "offset": offset})


@dataclass(frozen=True)
class BlockPattern:
    """Rows of blocks, one for each node, and the lists by which they are assembled."""

    # Node i's row holds a block for each node that it has an element with, itself included. A place
    # ``p = e * K + a`` stands for node a of element e. A kernel that computes elements goes row by
    # row: every row is written once, by one thread or team, without atomics and in a fixed order::
    #
    #     for t in node_starts[i] .. node_starts[i + 1]:      # ascending elements
    #         e, a = node_places[t] / K, node_places[t] % K
    #         for b in 0 .. K:
    #             row i's block number offsets[t, b] += block (a, b) of element e
    #         node i's right-hand side += part a of element e
    #
    # Nothing but the matrix is stored. What the K blocks of a strip (e, a) share, such as gradients
    # and tau, is then computed K times for each element. Stored element matrices would take 2,048
    # bytes a tetrahedron for blocks of 4, six times the matrix, to be written and read again; lists
    # block by block would compute the shared part K * K times and take 64 bytes a tetrahedron, these
    # take 32 (4 for a place and K for its offsets, K times).

    nodes: int  # Number of rows
    starts: Integers  # Number of each row's first block, and at last of all blocks, (nodes + 1,)
    columns: Integers  # Node of each block, ascending in each row
    diagonal: Integers  # Number of each row's own block, (nodes,)
    element_nodes: Integers  # Nodes of each element, (elements, K)
    # Places of each node, ascending: see above.
    node_starts: Integers
    node_places: Integers
    # Which block of the row each node of a place's element has, (K * elements, K).
    offsets: NDArray[np.unsignedinteger]

    @classmethod
    def of_rows(cls, starts: np.ndarray, columns: np.ndarray) -> BlockPattern:
        """Rows that come from no elements; each has a block of its own."""
        nodes = len(starts) - 1
        every = np.arange(nodes, dtype=np.int32)
        at = columns.astype(np.int32)
        own = np.flatnonzero(np.repeat(every, np.diff(starts)) == at).astype(np.int32)
        once, first = np.arange(nodes + 1, dtype=np.int32), np.zeros((nodes, 1), np.uint8)
        rows = starts.astype(np.int32)
        return cls(nodes, rows, at, own, every.reshape(-1, 1), once, every, first)

    @property
    def blocks(self) -> int:
        """Number of stored blocks."""
        return len(self.columns)

    @property
    def offset(self) -> str:
        """Name of the type of offsets in kernels."""
        return OFFSET_TYPES[self.offsets.itemsize]

    @property
    def rows(self) -> Integers:
        """Row of each block."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(self.starts))

    def equal_shares(self, first: int, end: int, parts: int) -> Integers:
        """Bounds of parts of the rows `first` to `end` that hold about as many blocks each."""
        wanted = np.linspace(self.starts[first], self.starts[end], parts + 1)
        bounds = np.searchsorted(self.starts[first : end + 1], wanted) + first
        bounds[0], bounds[-1] = first, end
        return bounds.astype(np.int32)


def pattern_of(device: Device, element_nodes: np.ndarray, nodes: int) -> BlockPattern:
    """Find the pattern of a mesh, or of one rank's elements.

    `element_nodes`: nodes of each element, (elements, K), numbers from 0.
    """
    node_array = np.asarray(element_nodes)
    if node_array.ndim != 2 or node_array.dtype.kind not in "iu":
        raise InputError(
            f"the nodes of elements have the type {node_array.dtype} and {node_array.ndim} dimensions",
            allowed="whole numbers, a row for each element",
        )
    if node_array.size and (node_array.min() < 0 or node_array.max() >= nodes):
        raise InputError(
            f"the nodes of elements are numbered {node_array.min()} to {node_array.max()}, but the mesh has "
            f"{nodes} nodes",
            allowed=f"numbers from 0 to {nodes - 1}",
        )
    size = node_array.shape[1]
    if node_array.size * size > _LARGEST_INDEX:
        raise InputError(
            f"{len(node_array)} elements of {size} nodes are too many for one rank's matrix",
            allowed=f"at most {_LARGEST_INDEX // size**2} elements a rank",
            remedy="use more ranks",
        )
    flat = np.ascontiguousarray(node_array, np.int32).reshape(-1)
    incident = np.bincount(flat, minlength=nodes)
    if nodes and incident.min() == 0:
        raise InputError(
            f"node {int(np.argmin(incident))} belongs to no element",
            remedy="leave out nodes without an element",
        )
    node_starts = _starts(incident)
    source, constants = pattern_file(size)
    # A second device of cores would change how many threads the first one has.
    host = device if isinstance(device, CpuDevice) else CpuDevice()
    places = np.empty(flat.size, np.int32)
    host.kernel(source, "sort_places", constants).bind(
        extent=(1,), nodes=flat, count=flat.size, next=node_starts[:-1].copy(), places=places
    )()
    room, counts = np.empty(flat.size * size, np.int32), np.empty(nodes, np.int32)
    incidence: dict[str, Any] = {"nodes": flat, "starts": node_starts, "places": places, "n": nodes}
    host.kernel(source, "meet", constants).bind(
        extent=(nodes,), **incidence, room=room, counts=counts
    )()
    starts = _starts(counts)
    longest = int(counts.max(initial=0))
    size_of_offset = next(width for width in OFFSET_TYPES if longest <= 1 << 8 * width)
    columns, diagonal = np.empty(int(starts[-1]), np.int32), np.empty(nodes, np.int32)
    offsets = np.empty((flat.size, size), f"u{size_of_offset}")
    source, constants = pattern_file(size, OFFSET_TYPES[size_of_offset])
    host.kernel(source, "pack_rows", constants).bind(
        extent=(nodes,),
        **incidence,
        room=room,
        rows=starts,
        columns=columns,
        diagonal=diagonal,
        offsets=offsets,
    )()
    return BlockPattern(
        nodes, starts, columns, diagonal, flat.reshape(-1, size), node_starts, places, offsets
    )


def _starts(counts: np.ndarray) -> Integers:
    return np.append(0, np.cumsum(counts)).astype(np.int32)


WITHOUT_EQUATION = (
    "look for unknowns without an equation, for example a pressure without a reference"
)
"""Remedy of singular matrices."""
BLOCK_SIZES = (2, 4, 8)
"""Unknowns a node; a GPU warp takes whole rows of these."""
_BLOCK_ROWS_SOURCE = Path(__file__).with_name("block_rows.cpp")
# Parts of equal work: a whole number for each of 1, 2, 3, 4, 6 or 8 threads and their like.
_PARTS = 96
_GPU_BLOCK = 256
# Blocks of a row that a lane has under way, see block_rows.cpp; bench/flow_gpu.py tries others.
_BATCH = 5


def kernel_file(size: int, stored: str = "double") -> KernelFile:
    """Kernels of rows of blocks of a size; cores multiply with blocks of the type `stored`."""
    return KernelFile(_BLOCK_ROWS_SOURCE, {"B": size, "BATCH": _BATCH, "stored": stored})


@dataclass(frozen=True)
class RowRange:
    """Rows to multiply, cut into parts of equal work; see :meth:`BlockRows.range_of`."""

    first: int
    end: int
    shares: Array


class BlockRows:
    """A sparse matrix of dense blocks, one row of blocks for each node of this rank."""

    # With several ranks each holds what its own elements add: rows of shared nodes are parts of the
    # matrix's, and so are products; see :class:`haloscope.numerics.shared_nodes.SharedProduct`.
    #
    # Sums run in an order that neither threads nor the machine decide: the same bits on cores and
    # GPUs.

    def __init__(self, device: Device, pattern: BlockPattern, size: int) -> None:
        if size not in BLOCK_SIZES:
            raise InputError(
                f"the blocks have {size} unknowns",
                allowed=" or ".join(str(known) for known in BLOCK_SIZES),
            )
        self.device, self.pattern, self.size = device, pattern, size
        self._kernels: dict[tuple[str, str], Kernel] = {}
        # Blocks, (blocks, size, size), each as [unknown, equation]: column by column. A kernel that
        # computes elements writes here.
        self.values = device.zeros((pattern.blocks, size, size), np.float64)
        # Lists of the pattern on the device, for such a kernel.
        self.starts = device.from_host(pattern.starts)
        self.columns = device.from_host(pattern.columns)
        self.diagonal = device.from_host(pattern.diagonal)
        self.node_starts = device.from_host(pattern.node_starts)
        self.node_places = device.from_host(pattern.node_places)
        self.offsets = device.from_host(pattern.offsets)
        self.element_nodes = device.from_host(pattern.element_nodes)
        self._multiply = self.kernel("multiply")
        self.all_rows = self.range_of(0, pattern.nodes)

    @property
    def nodes(self) -> int:
        """Number of rows of blocks."""
        return self.pattern.nodes

    @property
    def bytes_of_product(self) -> int:
        """Bytes that a product moves if each number is moved once: blocks, lists, both vectors."""
        vectors = 2 * 8 * self.size * self.nodes
        return self.pattern.blocks * (8 * self.size**2 + 4) + 4 * (self.nodes + 1) + vectors

    def kernel(self, name: str, stored: str = "double") -> Kernel:
        """A kernel of block_rows.cpp for this size of blocks."""
        key = name, stored
        if key not in self._kernels:
            source, constants = kernel_file(self.size, stored)
            self._kernels[key] = self.device.kernel(source, name, constants)
        return self._kernels[key]

    def vector(self) -> Array:
        """A vector of zeros."""
        return self.device.zeros((self.nodes * self.size,), np.float64)

    def range_of(self, first: int, end: int) -> RowRange:
        """Rows from `first` to `end`, for :meth:`multiply`."""
        shares = self.pattern.equal_shares(first, end, _PARTS)
        return RowRange(first, end, self.device.from_host(shares))

    def multiply(self, x: Array, y: Array, rows: RowRange | None = None) -> None:
        """``y = A x`` in the given rows, by default in all; the rest of y is left as it is."""
        chosen = rows or self.all_rows
        if chosen.first < chosen.end:
            self.product(x, y, chosen)()

    def product(self, x: Array, y: Array, rows: RowRange, values: Array | None = None) -> Launch:
        """Bind :meth:`multiply` to two arrays, to be launched again and again.

        `values`: other blocks at the same places; on cores these may be in single precision, and sums
        are in double.
        """
        values = self.values if values is None else values
        single = values.dtype == np.float32
        kernel = self.kernel("multiply", "float") if single else self._multiply
        return kernel.bind(
            extent=((rows.end - rows.first) * self.size**2 // 2,),
            block=(_GPU_BLOCK,),
            starts=self.starts,
            columns=self.columns,
            A=values,
            x=x,
            y=y,
            shares=rows.shares,
            parts=_PARTS,
            first=rows.first,
            end=rows.end,
        )

    def fixing(self, unknowns: np.ndarray, owned: np.ndarray | None = None) -> Launch:
        """Bind the replacement of rows by those of the identity; columns stay.

        At least one unknown. `owned`: whether this rank owns each node, (nodes,): other ranks' parts of a
        fixed row are zero, so that the sum is the identity's. By default it owns all.
        """
        chosen = np.asarray(unknowns, np.int32)
        ones = np.ones(len(chosen)) if owned is None else owned[chosen // self.size]
        return self.kernel("fix").bind(
            extent=(len(chosen),),
            starts=self.starts,
            diagonal=self.diagonal,
            unknowns=self.device.from_host(chosen),
            ones=self.device.from_host(np.asarray(ones, np.float64)),
            count=len(chosen),
            A=self.values,
        )

    def narrowing(self, values: Array) -> Launch:
        """Bind rounding of the blocks to an array in single precision, on cores."""
        return self.kernel("narrow").bind(
            extent=(self.pattern.blocks * self.size**2,),
            A=self.values,
            n=self.pattern.blocks,
            single=values,
        )

    def take_diagonal(self, blocks: Array) -> None:
        """Copy the rows' own blocks to an array (nodes, size, size)."""
        self.kernel("take_diagonal").bind(
            extent=(self.nodes * self.size**2,),
            A=self.values,
            diagonal=self.diagonal,
            n=self.nodes,
            blocks=blocks,
        )()

    def invert(self, blocks: Array) -> int:
        """Invert blocks (nodes, size, size) in place, with row pivots; how many have no inverse."""
        singular = self.device.zeros((1,), np.int64)
        self.kernel("invert_all").bind(
            extent=(self.nodes,), blocks=blocks, n=self.nodes, singular=singular
        )()
        return int(self.device.to_host(singular)[0])


class BoundLaunches:
    """Launches of one kernel on arrays that come again and again.

    Arrays are remembered by identity, and are kept: give the same objects each time.
    """

    def __init__(self, bind: Callable[..., Callable[[], object]]) -> None:
        self._bind = bind
        self._bound: dict[tuple[int, ...], tuple[tuple[Array, ...], Callable[[], object]]] = {}

    def __call__(self, *arrays: Array) -> None:
        """Launch on the given arrays."""
        key = tuple(map(id, arrays))
        binding = self._bound.get(key)
        if binding is None:
            binding = self._bound[key] = (arrays, self._bind(*arrays))
        binding[1]()
