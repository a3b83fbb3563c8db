"""Which blocks a sparse matrix of element contributions holds, and what adds to each of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Device
from haloscope.errors import InputError

Integers = NDArray[np.int32]

_SOURCE = Path(__file__).with_name("block_pattern.cpp")
_LARGEST_INDEX = 2**31 - 1
OFFSET_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
"""What kernels call the type of offsets, by its bytes."""


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

    @property
    def blocks(self) -> int:
        """Number of stored blocks."""
        return len(self.columns)

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
            f"nodes of elements are given as {node_array.dtype} in {node_array.ndim} dimensions; give whole "
            "numbers, a row for each element"
        )
    if node_array.size and (node_array.min() < 0 or node_array.max() >= nodes):
        raise InputError(
            f"elements name nodes {node_array.min()} to {node_array.max()}; with {nodes} nodes numbers "
            f"from 0 to {nodes - 1} are allowed"
        )
    size = node_array.shape[1]
    if node_array.size * size > _LARGEST_INDEX:
        raise InputError(
            f"{len(node_array)} elements of {size} nodes are too many for one rank's matrix; take more "
            f"ranks, with at most {_LARGEST_INDEX // size**2} elements each"
        )
    flat = np.ascontiguousarray(node_array, np.int32).reshape(-1)
    incident = np.bincount(flat, minlength=nodes)
    if nodes and incident.min() == 0:
        raise InputError(
            f"node {int(np.argmin(incident))} belongs to no element; leave out nodes without one"
        )
    node_starts = _starts(incident)
    constants: dict[str, int | float | str] = {"K": size, "offset": "int"}
    # A second device of cores would change how many threads the first one has.
    host = device if isinstance(device, CpuDevice) else CpuDevice()
    places = np.empty(flat.size, np.int32)
    host.kernel(_SOURCE, "sort_places", constants).bind(
        *(flat, flat.size, node_starts[:-1].copy(), places), extent=(1,)
    )()
    room, counts = np.empty(flat.size * size, np.int32), np.empty(nodes, np.int32)
    host.kernel(_SOURCE, "meet", constants).bind(
        *(flat, node_starts, places, nodes, room, counts), extent=(nodes,)
    )()
    starts = _starts(counts)
    longest = int(counts.max(initial=0))
    size_of_offset = next(width for width in OFFSET_TYPES if longest <= 1 << 8 * width)
    columns, diagonal = np.empty(int(starts[-1]), np.int32), np.empty(nodes, np.int32)
    offsets = np.empty((flat.size, size), f"u{size_of_offset}")
    constants = {"K": size, "offset": OFFSET_TYPES[size_of_offset]}
    kernel = host.kernel(_SOURCE, "pack_rows", constants)
    kernel.bind(
        *(flat, node_starts, places, room, starts, nodes, columns, diagonal, offsets),
        extent=(nodes,),
    )()
    return BlockPattern(
        nodes,
        starts,
        columns,
        diagonal,
        flat.reshape(-1, size),
        node_starts,
        places,
        offsets,
    )


def _starts(counts: np.ndarray) -> Integers:
    return np.append(0, np.cumsum(counts)).astype(np.int32)
