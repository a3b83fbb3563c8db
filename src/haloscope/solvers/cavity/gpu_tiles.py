"""How a GPU goes through a box of nodes: tiles of rows, marches along z, and what blocks need."""

from __future__ import annotations

from typing import NamedTuple

from haloscope.mesh.grid.blocks import Triple
from haloscope.solvers.cavity.block_nodes import BlockNodes


class Tile(NamedTuple):
    """What a block of threads computes of a plane."""

    # Nodes of a row, and rows.
    x: int
    y: int
    nodes: int  # Nodes of a thread, in a row

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
_PACE = 24  # bytes of what the first thread keeps


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
    """The tiles with which a box takes less time, as measured; see docs/performance/cavity.md."""
    large = LARGE_TILES[real]
    across = large.across(shape)
    planes = across[0] * across[1] * shape[2] / multiprocessors
    filled = shape[0] >= LEAST_FILLED * across[0] * large.x
    return large if planes >= LARGE_FROM and filled else TILES[real]


class TileSchedule(NamedTuple):
    """How tiles of a box go through its planes; see `columns` in cavity_gpu.hpp."""

    tiles: int  # How many there are
    planes: int  # Planes of the box
    whole: int  # Tiles, the first ones, that go through all planes in one march
    chunk: int  # Most planes of a march of the others

    @property
    def shares(self) -> int:
        """Marches of a tile that is not one of the first."""
        return -(-self.planes // self.chunk)

    @property
    def columns(self) -> int:
        """Marches in all: what blocks of threads take one by one."""
        return self.whole + (self.tiles - self.whole) * self.shares

    def starts(self) -> list[int]:
        """First plane of each march of a tile that is not one of the first, and the one after the last.

        Equal shares, since blocks keep in step: where the last march had fewer planes than the others,
        these waited at each plane that it lacked, 18 us on an H100.
        """
        return [march * self.planes // self.shares for march in range(self.shares + 1)]

    def lines(self, blocks: int) -> int:
        """Counters that tell how many of so many blocks have reached each plane of their column."""
        rounds = -(-(self.columns - self.whole) // blocks)
        return self.whole // blocks * self.planes + rounds * self.chunk

    def of_tiles(self, first: int, stop: int) -> int:
        """Marches of some tiles."""
        whole = max(0, min(stop, self.whole) - first)
        return whole + (stop - first - whole) * self.shares

    def at_low_end(self, layers: int) -> int:
        """Marches that have one of the first planes."""
        tiles = sum(start < layers for start in self.starts()[:-1])
        return self.whole + (self.tiles - self.whole) * tiles

    def at_high_end(self, layers: int) -> int:
        """Marches that have one of the last planes."""
        tiles = sum(stop > self.planes - layers for stop in self.starts()[1:])
        return self.whole + (self.tiles - self.whole) * tiles


def plan_marches(shape: Triple, tile: Tile, multiprocessors: int) -> TileSchedule:
    """Marches with which the tiled kernel takes least time."""
    # A multiprocessor takes one column after the other. It reads a few planes before its first
    # result, hence the planes that are added to each. Where a few tiles more than multiprocessors
    # would make some of these go twice, the tiles beyond are cut into more marches than the first
    # ones: 4 to 8 % of a step from 360^3 to 384^3 nodes on an H100.
    nz = shape[2]
    across = tile.across(shape)
    tiles = across[0] * across[1]

    def planes(whole: int, marches: int) -> int:
        rounds = -(-(tiles - whole) * marches // multiprocessors)
        passes = whole // multiprocessors * (nz + _PLANES_BEFORE)
        return passes + rounds * (-(-nz // marches) + _PLANES_BEFORE)

    wholes = range(0, tiles, multiprocessors)
    whole, marches = min(
        ((whole, marches) for whole in wholes for marches in range(1, nz + 1)),
        key=lambda plan: (planes(*plan), plan),
    )
    return TileSchedule(tiles, nz, whole, -(-nz // marches))


def plain_chunk(shape: Triple, multiprocessors: int) -> int:
    """Planes that a block of the plain kernel marches through: enough blocks to fill the GPU."""
    nx, ny, nz = shape
    tiles = -(-nx // PLAIN_BLOCK[0]) * -(-ny // PLAIN_BLOCK[1])
    wanted = _BLOCKS_WANTED * multiprocessors
    return max(1, min(_LONGEST_CHUNK, nz * tiles // wanted))


def fits_block(tile: Tile, itemsize: int, block_memory: int) -> bool:
    """Whether a GPU has the shared memory for a block of the tiled kernel, gates and pace included."""
    return shared_bytes(tile, itemsize) + _GATE * AHEAD + _PACE <= block_memory


def shared_bytes(tile: Tile, itemsize: int) -> int:
    """Shared memory of a block of the tiled kernel: see `tiles` in cavity_gpu.hpp."""
    width = tile.x + 2 * _ALIGNED // itemsize
    values = (3 + AHEAD) * (tile.y + 4) + 4 * (2 + AHEAD) * (tile.y + 2)
    return values * width * itemsize
