"""Claims about cutting a grid: every node in one block, blocks as even as can be, clear refusals."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from refusals import refused

from haloscope.mesh.blocks import SIDES, Blocks, arrange

_CUBE = (65, 65, 65)


@pytest.mark.parametrize(
    ("ranks", "parts"),
    [
        (1, (1, 1, 1)),
        (2, (1, 1, 2)),
        (3, (1, 1, 3)),
        (4, (1, 2, 2)),
        (6, (1, 2, 3)),
        (8, (2, 2, 2)),
        (16, (2, 2, 4)),
        (32, (2, 4, 4)),
    ],
)
def test_auto_is_as_even_as_possible_and_cuts_z_first(ranks, parts):
    assert arrange(_CUBE, ranks).parts == parts


@pytest.mark.parametrize(
    ("wanted", "parts"), [("1d", (1, 1, 8)), ("2d", (1, 2, 4)), ("3d", (2, 2, 2))]
)
def test_the_number_of_axes_that_are_cut_can_be_bounded(wanted, parts):
    assert arrange(_CUBE, 8, wanted).parts == parts


@pytest.mark.parametrize(
    ("ranks", "parts"), [(2, (1, 2, 1)), (4, (2, 2, 1)), (6, (2, 3, 1)), (8, (2, 4, 1))]
)
def test_a_plane_is_never_cut_along_z(ranks, parts):
    assert arrange((65, 65, 1), ranks, thinnest=5).parts == parts
    assert arrange((65, 65, 1), ranks).parts == parts


def test_a_thin_axis_is_spared():
    assert arrange((65, 65, 9), 8, thinnest=5).parts == (2, 4, 1)


@pytest.mark.parametrize("parts", [(1, 1, 1), (2, 3, 4), (13, 1, 5), (1, 7, 1), (3, 3, 3)])
def test_blocks_of_uneven_size_hold_every_node_once(parts):
    nodes = (13, 17, 11)
    owners = np.zeros(nodes[::-1], int)
    sizes = []
    for block in Blocks(nodes, parts).all():
        x, y, z = (slice(a, b) for a, b in zip(block.start, block.stop, strict=True))
        owners[z, y, x] += 1
        assert block.shape == tuple(b - a for a, b in zip(block.start, block.stop, strict=True))
        sizes.append(block.shape)
    assert (owners == 1).all()
    for axis in range(3):
        lengths = {size[axis] for size in sizes}
        assert max(lengths) - min(lengths) <= 1
        assert min(lengths) == nodes[axis] // parts[axis]


@pytest.mark.parametrize("periodic", list(itertools.product((False, True), repeat=3)))
def test_neighbours_see_each_other_across_facing_sides(periodic):
    blocks = Blocks((12, 13, 14), (1, 2, 3), periodic)
    for block in blocks.all():
        assert blocks.block(block.rank) == block
        for side in SIDES:
            if side not in block.neighbours:
                assert side in block.walls
                edge = 0 if side.direction < 0 else blocks.nodes[side.axis]
                assert edge in (block.start[side.axis], block.stop[side.axis])
                assert not periodic[side.axis]
                continue
            other = blocks.block(block.neighbours[side])
            assert other.neighbours[side.opposite] == block.rank
            here = block.stop if side.direction > 0 else block.start
            there = other.start if side.direction > 0 else other.stop
            nodes = blocks.nodes[side.axis]
            assert here[side.axis] % nodes == there[side.axis] % nodes


def test_ranks_are_numbered_with_x_fastest():
    places = [block.place for block in Blocks((8, 8, 8), (2, 2, 2)).all()]
    assert places == [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]


@pytest.mark.parametrize(
    ("nodes", "thinnest", "most"), [((13, 13, 13), 5, 8), ((13, 13, 1), 5, 4), ((9, 25, 9), 5, 5)]
)
def test_more_ranks_than_fit_are_refused_with_the_number_that_fits(nodes, thinnest, most):
    with refused(problem=f"^{most * 2} ranks do not fit", allowed=rf"^at most {most} ranks"):
        arrange(nodes, most * 2, thinnest=thinnest)
    assert math.prod(arrange(nodes, most, thinnest=thinnest).parts) == most


def test_a_given_decomposition_is_taken_as_it_is():
    assert arrange(_CUBE, 6, (6, 1, 1)).parts == (6, 1, 1)
    assert arrange((13, 13, 1), 4, (2, 2, 1), thinnest=5).parts == (2, 2, 1)


@pytest.mark.parametrize("wanted", [(2, 2, 2), (1, 1, 1), (0, 1, 1), (4, 4, 0)])
def test_a_decomposition_that_is_not_for_these_ranks_is_refused(wanted):
    location = f"^machine.decomposition = {re.escape(str(list(wanted)))}$"
    with refused(location=location, allowed="product is 4$"):
        arrange(_CUBE, 4, wanted)


@pytest.mark.parametrize(
    ("nodes", "wanted"), [((13, 13, 13), (1, 1, 4)), ((65, 65, 1), (1, 1, 4)), (_CUBE, (-1, -4, 1))]
)
def test_a_decomposition_into_blocks_too_thin_is_refused(nodes, wanted):
    limits = [max(1, n // 5) for n in nodes]
    with refused(
        location="^machine.decomposition = ",
        problem="thinner than 5 nodes",
        allowed=f"^at most {re.escape(str(limits))} blocks",
    ):
        arrange(nodes, 4, wanted, thinnest=5)


def test_a_mistyped_number_of_ranks_is_refused_at_once():
    with refused(problem="^1000003 ranks", allowed="^at most 2197 ranks"):
        arrange(_CUBE, 1_000_003, thinnest=5)
