"""Claims about how a GPU goes through a box of the cavity: tiles, columns and shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.solvers.cavity import block_nodes

_SIZES = {"double": 8, "float": 4}
_ON_CHIP = 227 << 10  # bytes of shared memory of a block on an H200
_MULTIPROCESSORS = 132


@pytest.mark.parametrize("real", _SIZES)
@pytest.mark.parametrize("tiles", [block_nodes.TILES, block_nodes.LARGE_TILES])
def test_tiles_fit_a_multiprocessor(real, tiles):
    tile = tiles[real]
    assert block_nodes.fits_block(tile, _SIZES[real], _ON_CHIP)
    assert not block_nodes.fits_block(tile, _SIZES[real], 99 << 10)  # a workstation's GPU
    assert np.prod(tile.threads) * tile.nodes == tile.x * tile.y
    assert np.prod(tile.threads) <= 512  # with 128 registers each
    assert tile.threads[0] % 32 == 0  # a warp's threads lie side by side
    assert tile.nodes * _SIZES[real] <= 16  # that one instruction brings


# Updated nodes of grids that were measured with both: docs/archive/performance/cavity.md.
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
    tiles = block_nodes.LARGE_TILES if large else block_nodes.TILES
    assert block_nodes.choose(shape, "double", _MULTIPROCESSORS) == tiles["double"]


@pytest.mark.parametrize(
    ("shape", "large"),
    [((510, 510, 510), True), ((254, 254, 254), False), ((382, 382, 382), False)],
)
def test_large_boxes_get_large_tiles_in_single_precision(shape, large):
    tiles = block_nodes.LARGE_TILES if large else block_nodes.TILES
    assert block_nodes.choose(shape, "float", _MULTIPROCESSORS) == tiles["float"]


@pytest.mark.parametrize("tile", [block_nodes.TILES["double"], block_nodes.LARGE_TILES["double"]])
@pytest.mark.parametrize(
    "shape",
    [
        *((510, 510, 510), (254, 254, 126), (382, 382, 382), (33, 7, 5), (100, 9, 1000)),
        *((127, 64, 67), (95, 68, 60)),
    ],
)
def test_marches_cover_a_box_and_are_equally_long(shape, tile):
    plan = block_nodes.plan_marches(shape, tile, _MULTIPROCESSORS)
    assert plan.tiles == np.prod(tile.across(shape))
    assert plan.whole % _MULTIPROCESSORS == 0
    starts = plan.starts()
    assert (starts[0], starts[-1]) == (0, shape[2])
    # Blocks keep in step: who has more planes would wait for those that never come there.
    assert set(np.diff(starts)) <= {plan.chunk - 1, plan.chunk}
    assert plan.columns == plan.of_tiles(0, plan.tiles)
    assert plan.of_tiles(0, 5) + plan.of_tiles(5, plan.tiles) == plan.columns


def test_tiles_beyond_a_turn_of_all_blocks_are_cut_into_more_marches():
    plan = block_nodes.plan_marches((382, 382, 382), block_nodes.LARGE_TILES["double"], 132)
    assert plan == (144, 382, 132, 35)
    # One turn through all planes, and one of 12 tiles in 11 marches.
    assert (plan.shares, plan.columns, plan.lines(132)) == (11, 264, 382 + 35)
    assert (plan.at_low_end(2), plan.at_high_end(2)) == (144, 144)
    # 256 tiles nearly fill two turns as they are.
    assert (
        block_nodes.plan_marches((510, 510, 510), block_nodes.LARGE_TILES["double"], 132).whole == 0
    )


def test_marches_of_one_plane_count_twice_where_two_layers_cross():
    plan = block_nodes.TileSchedule(tiles=6, planes=3, whole=4, chunk=1)
    assert plan.columns == 4 + 2 * 3
    assert (plan.at_low_end(2), plan.at_high_end(2)) == (4 + 2 * 2, 4 + 2 * 2)
    assert (plan.at_low_end(1), plan.of_tiles(3, 5)) == (6, 1 + 3)
