"""Claims about who holds which cells: one owner each, and every rank that a cell reaches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from haloscope.domain.bisection import bisect
from haloscope.exchange.world import World
from haloscope.solvers.blood.cells import Region, hand_over

_SHAPE = (20, 16, 12)


def _region(periodic):
    coordinates = np.stack(np.unravel_index(np.arange(np.prod(_SHAPE)), _SHAPE[::-1])[::-1], 1)
    return Region(_SHAPE, periodic, bisect(World(), coordinates, _SHAPE, parts=4))


@pytest.mark.parametrize("periodic", [(True, True, True), (True, False, False)])
def test_reached_boxes_hold_every_image_of_the_cell(periodic):
    region = _region(periodic)
    random = np.random.default_rng(3)
    low = random.uniform(-40, 40, (300, 3))
    for axis in range(3):
        if not periodic[axis]:
            low[:, axis] = random.uniform(-4, _SHAPE[axis], 300)
    high = low + random.uniform(0.1, 7, (300, 3))
    found = region.reached(low, high)
    for cell, rank in itertools.product(range(300), range(4)):
        begin, end = region.boxes.lo[rank], region.boxes.hi[rank]
        touches = True
        for axis, n in enumerate(_SHAPE):
            shifts = range(-4 * n, 5 * n, n) if periodic[axis] else (0,)
            bottom, top = low[cell, axis], high[cell, axis]
            if not periodic[axis]:
                bottom, top = min(bottom, n - 0.5 - 1e-9), max(top, -0.5)
            touches &= any(
                bottom + s < end[axis] - 0.5 and top + s >= begin[axis] - 0.5 for s in shifts
            )
        assert found[cell, rank] == touches, (cell, rank)


def test_each_point_has_one_owner_whose_box_holds_its_image():
    region = _region((True, True, False))
    points = np.random.default_rng(5).uniform(-50, 50, (500, 3))
    owners = region.owners(points)
    inside = region.wrapped(points)
    for point, owner in zip(inside, owners, strict=True):
        low, high = region.boxes.lo[owner], region.boxes.hi[owner]
        assert (point[:2] >= low[:2] - 0.5).all()
        assert (point[:2] < high[:2] - 0.5).all()
    assert set(owners) == {0, 1, 2, 3}


class _Recorded(World):
    """Four ranks one after the other: what each gives is kept for the others to take."""

    def __init__(self, rank, box):
        self.rank, self.size, self.given = rank, 4, box

    def exchange(self, parts):
        self.given[self.rank] = list(parts)
        return [np.zeros(0, np.uint8)] * 4


def test_cells_are_handed_to_all_that_they_reach_and_owned_once():
    region = _region((True, True, True))
    random = np.random.default_rng(1)
    places = random.uniform(0, 1, (40, 3, 1)) * np.array(_SHAPE)[:, None]
    values = places + random.uniform(-2, 2, (40, 3, 12))
    ids = np.arange(40) * 3
    owners = region.owners(values.mean(axis=2))
    given = {}
    for rank in range(4):
        mine = owners == rank
        hand_over(_Recorded(rank, given), region, ids[mine], mine[mine], values[mine], 1.0)

    class Taking(_Recorded):
        def exchange(self, parts):
            return [given[other][self.rank] for other in range(4)]

    seen, owned = np.zeros(40, int), np.zeros(40, int)
    told = np.zeros(40, int)
    for rank in range(4):
        mine = owners == rank
        found, own, state, sharers = hand_over(
            Taking(rank, given), region, ids[mine], mine[mine], values[mine], 1.0
        )
        assert (np.diff(found) > 0).all()
        assert np.array_equal(state, values[found // 3])
        seen[found // 3] += 1
        owned[found[own] // 3] += 1
        told[found // 3] = sharers
    assert (owned == 1).all()
    assert np.array_equal(seen, told)
    assert seen.max() > 1
