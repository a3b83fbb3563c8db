"""How GPUs go through a subdivision surface: chunks of elements, and what each has for each vertex."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError

_FOUR = 4
_WARP = 32
_MOST_VERTICES = 1 << 16
_GRADIENTS = 36
# Bytes of a block for the sums of a cell, and what a processor keeps for each block.
_STATIC = 2 << 10
_KEPT = 1 << 10


@dataclass(frozen=True)
class ChunkWay:
    """How a GPU goes through the elements of cells."""

    size: int = 128  # Elements of a chunk and threads of a block
    blocks: int = 3  # Of a processor
    staged: bool = True  # Whether positions lie in shared memory

    def shared(self, vertices: int) -> int:
        """Bytes of shared memory that a block asks for, whose cells have so many vertices."""
        return 8 * (_GRADIENTS * (self.size + 1) + 3 * vertices * self.staged)

    def fitted(self, vertices: int, block_memory: int) -> ChunkWay:
        """The same with as many blocks as have room, where a block may have so many bytes."""
        for staged in (True, False):
            chunks = replace(self, staged=staged)
            needed = chunks.shared(vertices) + _STATIC + _KEPT
            if blocks := min(self.blocks, (block_memory + _KEPT) // needed):
                return replace(chunks, blocks=blocks)
        raise MachineError(
            f"a GPU whose blocks have {block_memory >> 10} KiB of shared memory at most has no room "
            "for membranes; use --device cpu"
        )


SHARE = np.dtype([("vertex", np.int32), ("fours", np.uint16), ("first", np.uint16)])
"""One of a chunk's vertices: fours of gradients that are its own, and whether no chunk before had any."""


class Chunks(NamedTuple):
    """Tables of membrane_loop_gpu.hpp."""

    elements: NDArray[np.uint16]  # (3, E, 4) vertices of elements
    begins: NDArray[np.int32]  # (chunks + 1,) first share of each chunk, and how many there are
    # (shares,) of :data:`SHARE`, in each chunk those with most gradients first.
    shares: NDArray[np.void]
    # (most fours, shares, 4) where the first components of a share's gradients lie, of those of
    # elements in ascending order; ``size`` stands for none.
    taken: NDArray[np.uint16]

    def as_integers(self) -> tuple[NDArray[np.integer], ...]:
        """The same memory without structs, which not all devices' arrays have."""
        return self.elements, self.begins, self.shares.view(np.int32), self.taken


def chunk_tables(nodes: NDArray[np.integer], regular: int, size: int) -> Chunks:
    """Say which gradients a vertex takes of which chunk.

    `nodes`: (E, 12) vertices of elements.
    """
    if (count := int(nodes.max()) + 1) > _MOST_VERTICES:
        raise InputError(
            f"a cell of {count} vertices is not possible on a GPU, which takes up to "
            f"{_MOST_VERTICES}; give fewer, or --device cpu"
        )
    used = np.ones(nodes.shape, bool)
    # The second place of an irregular corner's lone vertex has no weight.
    used[regular:, 7] = False
    elements, places = np.nonzero(used)
    vertices, chunks = nodes[elements, places].astype(np.int64), elements // size
    at = 3 * places * (size + 1) + elements % size
    order = np.lexsort((elements, vertices, chunks))
    vertices, chunks, at = vertices[order], chunks[order], at[order]
    begins = np.flatnonzero(
        (np.diff(vertices, prepend=-1) != 0) | (np.diff(chunks, prepend=-1) != 0)
    )
    counts = np.diff(begins, append=len(at))
    owners, of_chunk = vertices[begins], chunks[begins]
    ends = np.searchsorted(of_chunk, np.arange(1, of_chunk[-1] + 2))
    first = np.zeros(len(owners), np.uint16)
    first[np.unique(owners, return_index=True)[1]] = 1
    sorting = np.concatenate(
        [
            begin + _spread_over_warps(counts[begin:end], size, chunk)
            for chunk, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
        ]
    )
    fours = -(-counts // _FOUR)
    shares = np.zeros(len(owners), SHARE)
    shares["vertex"], shares["fours"], shares["first"] = owners, fours, first
    taken = np.full((len(owners), fours.max() * _FOUR), size, np.uint16)
    which = np.repeat(np.arange(len(owners)), counts)
    taken[which, np.arange(len(at)) - begins[which]] = at
    return Chunks(
        np.ascontiguousarray(nodes.reshape(len(nodes), -1, _FOUR).swapaxes(0, 1), np.uint16),
        np.concatenate([[0], ends]).astype(np.int32),
        shares[sorting],
        np.ascontiguousarray(taken[sorting].reshape(len(owners), -1, _FOUR).swapaxes(0, 1)),
    )


def _spread_over_warps(counts: NDArray[np.integer], threads: int, turn: int) -> NDArray[np.integer]:
    """In which order threads take a chunk's shares of so many gradients."""
    # Threads of a warp go through as many, if they can. The first warp, which takes what is more
    # than there are threads for, has few before; which of the others has most changes from chunk to
    # chunk, so that all parts of a processor have as much to do.
    ranked = np.argsort(-counts, kind="stable")
    warps = np.split(ranked[:threads], range(_WARP, min(threads, len(ranked)), _WARP))
    *full, last = warps
    if len(last) < _WARP:
        return ranked
    turn %= max(len(full), 1)
    return np.concatenate([last, *full[turn:], *full[:turn], ranked[threads:]])
