"""Claims about marks of grids: the same however grids are cut, others once nodes move or change places."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.exchange.ranks.world import World
from haloscope.numerics.reduce import grid_marks, same_grid

_NODES = np.random.default_rng(4).random((5000, 3)) * [1.0, 0.1, 1e-6]


class Nodes:
    """Some nodes of a grid, in pieces."""

    def __init__(self, positions, numbers=None, about="tetrahedra"):
        self._positions = positions
        self._numbers = np.arange(len(positions)) if numbers is None else numbers
        self._about = about

    def describe_grid(self):
        return self._about

    def landmarks(self):
        for begin in range(0, len(self._positions), 700):
            chunk = slice(begin, begin + 700)
            yield self._numbers[chunk].astype(np.uint64), self._positions[chunk]


def _marks(positions, **options):
    return grid_marks(World(), Nodes(positions, **options))


def test_the_order_in_which_nodes_come_does_not_matter_nor_do_last_bits():
    order = np.random.default_rng(5).permutation(len(_NODES))
    again = _marks(_NODES[order] * (1 + 2e-16), numbers=order)
    assert same_grid(again, _marks(_NODES))


@pytest.mark.parametrize(
    "changed",
    [
        _NODES[::-1],
        2 * _NODES,
        _NODES + [0, 0, 1e-8],
        _NODES * [1, 1, 1.00001],
        np.concatenate([_NODES[4000:4001], _NODES[1:4000], _NODES[:1], _NODES[4001:]]),
    ],
    ids=["reversed", "scaled", "moved", "a little", "two changed places"],
)
def test_nodes_elsewhere_are_another_grid(changed):
    assert not same_grid(_marks(changed), _marks(_NODES))


def test_what_positions_do_not_tell_is_compared_too():
    assert not same_grid(_marks(_NODES, about="hexahedra"), _marks(_NODES))


@pytest.mark.parametrize("wrong", [{}, {"sums": [1], "absolute": [2], "about": ""}, {"sums": None}])
def test_damaged_marks_are_an_error_of_their_own(wrong):
    with pytest.raises((KeyError, TypeError, ValueError)):
        same_grid(wrong, _marks(_NODES))
