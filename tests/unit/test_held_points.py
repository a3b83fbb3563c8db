"""Claims about points in meshes on several ranks: each that is inside has one rank, others are told."""

from __future__ import annotations

import numpy as np
import pytest
from thread_gpus import on_ranks

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.elements.locate import held_points, refuse_outside

# Of four points the element on each rank: the third is where two ranks meet, the last in none.
_HELD = np.array([[7, -1, 7, -1], [-1, 2, 5, -1], [-1, -1, -1, -1]])
_WHOLE = 8


def test_where_ranks_meet_the_lowest_element_has_the_point():
    rank_points = on_ranks(3, lambda world: held_points(world, _HELD[world.rank], _WHOLE))
    assert [points.tolist() for points in rank_points] == [[0], [1, 2], []]


def test_one_rank_has_all_points_that_are_inside():
    assert held_points(World(), _HELD[0], _WHOLE).tolist() == [0, 2]


def test_all_ranks_tell_of_a_point_outside_how_far_the_nearest_of_them_is():
    def refusal(world: World) -> str:
        with pytest.raises(InputError) as caught:
            refuse_outside(world, "a probe", (1.0, 0.5, -2.0), [3.0, 0.25, 4.0][world.rank], "node")
        return str(caught.value)

    assert (
        on_ranks(3, refusal)
        == [
            "a probe: (1, 0.5, -2) lies outside the mesh, 0.25 m from the nearest node; move the "
            "point into the mesh"
        ]
        * 3
    )
