"""How a GPU goes through a box of nodes: tiles of rows, marches along z, and what blocks need."""

from __future__ import annotations

from haloscope.domain.blocks import Triple
from haloscope.solvers.cavity.block_nodes import BlockNodes

TILES = {"double": (64, 8), "float": (128, 8)}
"""Nodes of a tile along x and y, by the type of the values."""

AHEAD = 2
"""Planes that are asked for before their use."""

DRIFT = 2
"""Planes that a block of threads may be ahead of the last one."""

PLAIN_BLOCK = (128, 4, 1)
"""Threads of a block of the plain kernel, which takes what tiles do not fit."""

_POLLS = 100
_LEAST_BLOCKS = 1
_PLANES_BEFORE = 4
_LONGEST_CHUNK = 64
_BLOCKS_WANTED = 4
_ALIGNED = 16  # bytes that the copy engine takes at once


def kernel_constants(real: str) -> dict[str, int | float | str]:
    """Constants of cavity.cpp that only GPUs know, for a type of the values."""
    tile = TILES[real]
    return {
        "BLOCK_THREADS": PLAIN_BLOCK[0] * PLAIN_BLOCK[1],
        "LEAST_BLOCKS": _LEAST_BLOCKS,
        "TILE_X": tile[0],
        "TILE_Y": tile[1],
        "AHEAD": AHEAD,
        "DRIFT": DRIFT,
        "MOST_POLLS": _POLLS,
    }


def fit(nodes: BlockNodes, start: Triple, nx: int) -> bool:
    """Whether the tiled kernel can take a box: rows that start at multiples of 16 bytes."""
    _, sy, sz = nodes.layout.strides
    places = (nodes.index(*start), sy, sz, nodes.layout.field_stride)
    aligned = all(n * nodes.dtype.itemsize % _ALIGNED == 0 for n in places)
    return aligned and nx >= TILES[nodes.real][0] // 2


def columns(shape: Triple, real: str, multiprocessors: int) -> tuple[int, int]:
    """Planes of a march and number of columns (tiles times marches) of the tiled kernel.

    A multiprocessor takes one column after the other. It reads a few planes before its first
    result, hence the planes that are added to each.
    """
    nx, ny, nz = shape
    tiles = -(-nx // TILES[real][0]) * -(-ny // TILES[real][1])

    def cost(marches: int) -> tuple[int, int]:
        rounds = -(-tiles * marches // multiprocessors)
        return (rounds * (-(-nz // marches) + _PLANES_BEFORE), marches)

    marches = min(range(1, nz + 1), key=cost)
    chunk = -(-nz // marches)
    return chunk, tiles * -(-nz // chunk)


def plain_chunk(shape: Triple, multiprocessors: int) -> int:
    """Planes that a block of the plain kernel marches through: enough blocks to fill the GPU."""
    nx, ny, nz = shape
    tiles = -(-nx // PLAIN_BLOCK[0]) * -(-ny // PLAIN_BLOCK[1])
    wanted = _BLOCKS_WANTED * multiprocessors
    return max(1, min(_LONGEST_CHUNK, nz * tiles // wanted))


def shared_bytes(nodes: BlockNodes) -> int:
    """Shared memory of a block of the tiled kernel: see `tiles` in cavity_gpu.hpp."""
    tile = TILES[nodes.real]
    width, rows = tile[0] + 2 * _ALIGNED // nodes.dtype.itemsize, tile[1]
    values = (3 + AHEAD) * (rows + 4) + 4 * (2 + AHEAD) * (rows + 2)
    return values * width * nodes.dtype.itemsize
