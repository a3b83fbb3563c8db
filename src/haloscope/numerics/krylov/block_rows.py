"""Block sparse rows on a device: assembly by gathering, fixed unknowns, product with a vector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.errors import InputError
from haloscope.numerics.krylov.block_pattern import OFFSET_TYPES, BlockPattern

BLOCK_SIZES = (2, 4, 8)
"""Unknowns a node; a GPU warp takes whole rows of these."""
_SOURCE = Path(__file__).with_name("block_rows.cpp")
# Parts of equal work: a whole number for each of 1, 2, 3, 4, 6 or 8 threads and their like.
_PARTS = 96
_GPU_BLOCK = 256


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
                f"blocks of {size} unknowns are not possible; give one of {BLOCK_SIZES}"
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
        """A kernel of block_rows.cpp for this size of blocks and elements."""
        constants: dict[str, int | float | str] = {
            "B": self.size,
            "K": self.pattern.element_nodes.shape[1],
            "offset": OFFSET_TYPES[self.pattern.offsets.itemsize],
            "stored": stored,
        }
        key = name, stored
        if key not in self._kernels:
            self._kernels[key] = self.device.kernel(_SOURCE, name, constants)
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

    def product(self, x: Array, y: Array, rows: RowRange) -> Launch:
        """Bind :meth:`multiply` to two arrays, to be launched again and again."""
        return self.product_of(self.values, x, y, rows)

    def product_of(self, values: Array, x: Array, y: Array, rows: RowRange) -> Launch:
        """As :meth:`product`, of other blocks at the same places.

        On cores these may be in single precision; sums are in double.
        """
        single = values.dtype == np.float32
        kernel = self.kernel("multiply", "float") if single else self._multiply
        return kernel.bind(
            *(self.starts, self.columns, values, x, y),
            *(rows.shares, _PARTS, rows.first, rows.end),
            extent=((rows.end - rows.first) * self.size**2 // 2,),
            block=(_GPU_BLOCK,),
        )

    def assemble(self, matrices: Array) -> None:
        """Sum stored element matrices, in the order of elements.

        `matrices`: (elements, K, K, size, size): of the equations of the first node and the
        unknowns of the second, [equation, unknown].
        """
        self.kernel("assemble").bind(
            *(self.node_starts, self.node_places, self.offsets, self.starts),
            *(matrices, self.nodes, self.values),
            extent=(self.nodes * self.size**2,),
            block=(self.size**2,),
        )()

    def assemble_vector(self, vectors: Array, y: Array) -> None:
        """Sum stored element vectors (elements, K, size) to y, in the order of elements."""
        self.kernel("assemble_vector").bind(
            *(self.node_starts, self.node_places, vectors, self.nodes, y),
            extent=(self.nodes * self.size,),
        )()

    def fix_rows(self, unknowns: np.ndarray, owned: np.ndarray | None = None) -> None:
        """Replace rows by those of the identity; columns stay.

        `owned`: whether this rank owns each node, (nodes,): other ranks' parts of a fixed row are
        zero, so that the sum is the identity's. By default it owns all.
        """
        if len(unknowns):
            self.fixing(unknowns, owned)()

    def fixing(self, unknowns: np.ndarray, owned: np.ndarray | None = None) -> Launch:
        """Bind :meth:`fix_rows` to at least one unknown, to be launched again and again."""
        chosen = np.asarray(unknowns, np.int32)
        ones = np.ones(len(chosen)) if owned is None else owned[chosen // self.size]
        return self.kernel("fix").bind(
            *(self.starts, self.diagonal, self.device.from_host(chosen)),
            *(self.device.from_host(np.asarray(ones, np.float64)), len(chosen), self.values),
            extent=(len(chosen),),
        )

    def narrowing(self, values: Array) -> Launch:
        """Bind rounding of the blocks to an array in single precision, on cores."""
        return self.kernel("narrow").bind(
            *(self.values, self.pattern.blocks, values),
            extent=(self.pattern.blocks * self.size**2,),
        )

    def take_diagonal(self, blocks: Array) -> None:
        """Copy the rows' own blocks to an array (nodes, size, size)."""
        self.kernel("take_diagonal").bind(
            *(self.values, self.diagonal, self.nodes, blocks),
            extent=(self.nodes * self.size**2,),
        )()

    def invert(self, blocks: Array) -> int:
        """Invert blocks (nodes, size, size) in place, with row pivots; how many have no inverse."""
        singular = self.device.zeros((1,), np.int64)
        self.kernel("invert_all").bind(blocks, self.nodes, singular, extent=(self.nodes,))()
        return int(self.device.to_host(singular)[0])
