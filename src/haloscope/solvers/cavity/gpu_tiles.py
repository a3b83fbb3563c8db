"""How a GPU goes through a box of nodes: tiles of rows, marches along z, and what blocks need."""

from __future__ import annotations

from typing import NamedTuple

from haloscope.domain.blocks import Triple
from haloscope.solvers.cavity.block_nodes import BlockNodes


class Tile(NamedTuple):
    """What a block of threads computes of a plane.

    Attributes
    ----------
    x, y
        Nodes of a row, and rows.
    nodes
        Nodes of a thread, in a row.
    """

    x: int
    y: int
    nodes: int

    @property
    def threads(self) -> Triple:
        """Threads of a block."""
        return (self.x // self.nodes, self.y, 1)

    def across(self, shape: Triple) -> tuple[int, int]:
        """Tiles of a box along its rows and across them."""
        return -(-shape[0] // self.x), -(-shape[1] // self.y)


TILES = {"double": Tile(64, 8, 1), "float": Tile(128, 8, 2)}
"""Tiles of most boxes, by the type of the values."""

LARGE_TILES = {"double": Tile(128, 8, 2), "float": Tile(256, 8, 4)}
"""Tiles of boxes with much work for each multiprocessor: they read less, but begin later."""

LARGE_FROM = 100
"""Planes of large tiles for a multiprocessor from which these are the faster ones."""

LEAST_FILLED = 0.8
"""Part of the width of large tiles that a box must fill."""

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
_GATE = 8  # bytes of what tells that they have come


def kernel_constants(real: str) -> dict[str, int | float | str]:
    """Constants of cavity.cpp that only GPUs know, for a type of the values."""
    return {
        "BLOCK_THREADS": PLAIN_BLOCK[0] * PLAIN_BLOCK[1],
        "LEAST_BLOCKS": _LEAST_BLOCKS,
        "AHEAD": AHEAD,
        "DRIFT": DRIFT,
        "MOST_POLLS": _POLLS,
        **tile_constants(TILES[real]),
    }


def tile_constants(tile: Tile) -> dict[str, int | float | str]:
    """Those of them that say what a block of threads computes."""
    return {"TILE_X": tile.x, "TILE_Y": tile.y, "NODES_A_THREAD": tile.nodes}


def fit(nodes: BlockNodes, start: Triple, nx: int) -> bool:
    """Whether the tiled kernel can take a box: rows that start at multiples of 16 bytes."""
    places = (nodes.index(*start), *nodes.distances, nodes.layout.field_stride)
    aligned = all(n * nodes.dtype.itemsize % _ALIGNED == 0 for n in places)
    return aligned and nx >= TILES[nodes.real].x // 2


def choose(shape: Triple, real: str, multiprocessors: int) -> Tile:
    """The tiles with which a box takes less time, as measured; see docs/performance.md.

    Parameters
    ----------
    shape
        Nodes of a row of the box, rows of a plane, and planes.
    real
        Type of the values.
    multiprocessors
        Of the GPU.
    """
    large = LARGE_TILES[real]
    across = large.across(shape)
    planes = across[0] * across[1] * shape[2] / multiprocessors
    filled = shape[0] >= LEAST_FILLED * across[0] * large.x
    return large if planes >= LARGE_FROM and filled else TILES[real]


def columns(shape: Triple, tile: Tile, multiprocessors: int) -> tuple[int, int]:
    """Most planes of a march and number of columns (tiles times marches) of the tiled kernel.

    A multiprocessor takes one column after the other. It reads a few planes before its first
    result, hence the planes that are added to each.
    """
    nz = shape[2]
    across = tile.across(shape)
    tiles = across[0] * across[1]

    def cost(marches: int) -> tuple[int, int]:
        rounds = -(-tiles * marches // multiprocessors)
        return (rounds * (-(-nz // marches) + _PLANES_BEFORE), marches)

    marches = min(range(1, nz + 1), key=cost)
    chunk = -(-nz // marches)
    return chunk, tiles * -(-nz // chunk)


def march_starts(planes: int, marches: int) -> list[int]:
    """First plane of each march, and the one after the last: see `z0` in cavity_gpu.hpp.

    Equal shares, since blocks keep in step: where the last march had fewer planes than the others,
    these waited at each plane that it lacked, 18 us on an H100.
    """
    return [march * planes // marches for march in range(marches + 1)]


def plain_chunk(shape: Triple, multiprocessors: int) -> int:
    """Planes that a block of the plain kernel marches through: enough blocks to fill the GPU."""
    nx, ny, nz = shape
    tiles = -(-nx // PLAIN_BLOCK[0]) * -(-ny // PLAIN_BLOCK[1])
    wanted = _BLOCKS_WANTED * multiprocessors
    return max(1, min(_LONGEST_CHUNK, nz * tiles // wanted))


def fits_block(tile: Tile, itemsize: int, block_memory: int) -> bool:
    """Whether a GPU has the shared memory for a block of the tiled kernel, its gates included."""
    return shared_bytes(tile, itemsize) + _GATE * AHEAD <= block_memory


def shared_bytes(tile: Tile, itemsize: int) -> int:
    """Shared memory of a block of the tiled kernel: see `tiles` in cavity_gpu.hpp."""
    width = tile.x + 2 * _ALIGNED // itemsize
    values = (3 + AHEAD) * (tile.y + 4) + 4 * (2 + AHEAD) * (tile.y + 2)
    return values * width * itemsize
