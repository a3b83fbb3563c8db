"""Claims about how a GPU goes through a box of the cavity: tiles, columns and shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.solvers.cavity import gpu_tiles

_SIZES = {"double": 8, "float": 4}
_ON_CHIP = 227 << 10  # bytes of shared memory of a block on an H200
_MULTIPROCESSORS = 132


@pytest.mark.parametrize("real", _SIZES)
@pytest.mark.parametrize("tiles", [gpu_tiles.TILES, gpu_tiles.LARGE_TILES])
def test_tiles_fit_a_multiprocessor(real, tiles):
    tile = tiles[real]
    assert gpu_tiles.fits_block(tile, _SIZES[real], _ON_CHIP)
    assert not gpu_tiles.fits_block(tile, _SIZES[real], 99 << 10)  # a workstation's GPU
    assert np.prod(tile.threads) * tile.nodes == tile.x * tile.y
    assert np.prod(tile.threads) <= 512  # with 128 registers each
    assert tile.threads[0] % 32 == 0  # a warp's threads lie side by side
    assert tile.nodes * _SIZES[real] <= 16  # that one instruction brings


# Updated nodes of grids that were measured with both: docs/performance.md.
@pytest.mark.parametrize(
    ("shape", "large"),
    [
        ((1022, 1022, 1022), True),
        ((510, 510, 510), True),
        ((510, 510, 126), True),
        ((318, 318, 318), True),
        ((254, 254, 254), True),
        ((254, 254, 126), False),
        ((190, 190, 190), False),
        ((126, 126, 126), False),
        ((130, 510, 510), False),  # the second tile of each row would be nearly empty
    ],
)
def test_large_boxes_get_large_tiles(shape, large):
    tiles = gpu_tiles.LARGE_TILES if large else gpu_tiles.TILES
    assert gpu_tiles.choose(shape, "double", _MULTIPROCESSORS) == tiles["double"]


@pytest.mark.parametrize(
    ("shape", "large"),
    [((510, 510, 510), True), ((254, 254, 254), False), ((382, 382, 382), False)],
)
def test_large_boxes_get_large_tiles_in_single_precision(shape, large):
    tiles = gpu_tiles.LARGE_TILES if large else gpu_tiles.TILES
    assert gpu_tiles.choose(shape, "float", _MULTIPROCESSORS) == tiles["float"]


@pytest.mark.parametrize("tile", [gpu_tiles.TILES["double"], gpu_tiles.LARGE_TILES["double"]])
@pytest.mark.parametrize(
    "shape",
    [(510, 510, 510), (254, 254, 126), (33, 7, 5), (100, 9, 1000), (127, 64, 67), (95, 68, 60)],
)
def test_columns_cover_a_box(shape, tile):
    chunk, columns = gpu_tiles.columns(shape, tile, _MULTIPROCESSORS)
    tiles = int(np.prod(tile.across(shape)))
    assert columns % tiles == 0
    starts = gpu_tiles.march_starts(shape[2], columns // tiles)
    assert (starts[0], starts[-1]) == (0, shape[2])
    # Blocks keep in step: who has more planes would wait for those that never come there.
    assert set(np.diff(starts)) <= {chunk - 1, chunk}
