"""Digests of fields that do not depend on how the grid is cut: equal digests, equal bits.

The digest of a field is the sum modulo 2^64, over all nodes, of a mix of the value's bits with the
node's global number. Sums modulo 2^64 are exact in any order, so each rank adds up its own nodes
and the ranks add up their sums. The mix is no linear function, so that two values that have
changed places show.
"""

from __future__ import annotations

import numpy as np

from haloscope.domain.blocks import Blocks, Triple
from haloscope.exchange.world import World

# The finaliser of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
# generators", OOPSLA 2014.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def _mix(values: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64, in place."""
    values += _GAMMA
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        values ^= values >> np.uint64(shift)
        values *= factor
    values ^= values >> np.uint64(31)
    return values


def part_of_digest(values: np.ndarray, start: Triple, nodes: Triple) -> int:
    """What one block of a field adds to the digest.

    Parameters
    ----------
    values
        Shape (nz, ny, nx), of 4 or 8 bytes each.
    start
        Global number of the block's first node along x, y, z.
    nodes
        Nodes of the whole grid along x, y, z.

    Returns
    -------
    int
        From 0 to 2^64 - 1.
    """
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    deep, rows, columns = values.shape
    x = np.arange(start[0], start[0] + columns, dtype=np.uint64)
    y = np.arange(start[1], start[1] + rows, dtype=np.uint64)
    in_plane = y[:, None] * np.uint64(nodes[0]) + x
    total = 0
    for z in range(deep):
        numbers = _mix(in_plane + np.uint64((start[2] + z) * nodes[0] * nodes[1]))
        numbers ^= np.ascontiguousarray(values[z]).view(unsigned)
        total += int(_mix(numbers).sum(dtype=np.uint64))
    return total % 2**64


def field_digest(world: World, blocks: Blocks, owned: np.ndarray) -> str:
    """Digest of a field; the same on every rank, however many there are.

    Parameters
    ----------
    world, blocks
        The ranks, and how the grid is cut for them.
    owned
        This rank's values, shape (nz, ny, nx).

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    own = part_of_digest(owned, blocks.block(world.rank).start, blocks.nodes)
    signed = np.array([own], np.uint64).view(np.int64)
    return f"{int(world.sum(signed).view(np.uint64)[0]):016x}"
