"""Claims about who holds which cells: one owner each, and every rank that a cell reaches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from thread_gpus import on_ranks

from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import bisect
from haloscope.solvers.blood.cells.sharing import CellOwnership, Leaving, Region, migrate

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
    reached = region.reached(low, high)
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
        assert reached[cell, rank] == touches, (cell, rank)


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


_KINDS, _VERTICES, _REACH = (40, 15), 12, 1.0


def _tracks(region, random):
    """Vertices (cells, 3, V) of each kind at several times: cells move, all of one kind vanish."""
    tracks = []
    for cells in _KINDS:
        places = random.uniform(0, 1, (cells, 3, 1)) * np.array(_SHAPE)[:, None]
        shapes = places + random.uniform(-2, 2, (cells, 3, _VERTICES))
        speeds = random.uniform(-1.5, 1.5, (cells, 3, 1))
        times = [shapes + step * speeds for step in (0, 1, 2, 2, 9)]
        tracks.append(times)
    return tracks


class _Rank:
    """A rank's cells of one kind: states (n, 3 V) beside what is known of them."""

    def __init__(self, world):
        self.world, self.held = world, CellOwnership.nothing(world.size)
        self.states = np.zeros((0, 3 * _VERTICES))
        self.travelled = 0

    def leaving(self):
        x = self.states.reshape(-1, 3, _VERTICES)
        return Leaving(self.held, x.min(axis=2), x.max(axis=2), x.mean(axis=2), self.give)

    def give(self, rows):
        self.travelled += len(rows)
        return self.states[rows]

    def take(self, arrival):
        old = np.concatenate([self.states, np.zeros((1, 3 * _VERTICES))])
        new = arrival.rows < 0
        self.states = old[np.where(new, 0, arrival.rows)]
        self.states[new] = arrival.came[-1 - arrival.rows[new]]
        self.held = arrival.held


def test_cells_are_handed_to_all_that_they_reach_and_owned_once():
    region = _region((True, True, True))
    tracks = _tracks(region, np.random.default_rng(1))
    gone = {2: 5, 4: 17}  # taken out before they are handed over again

    def work(world):
        ranks = [_Rank(world) for _ in _KINDS]
        story = []
        for time in range(5):
            for mine, track in zip(ranks, tracks, strict=True):
                if time == 0:
                    ids = np.flatnonzero(region.owners(track[0].mean(axis=2)) == world.rank) * 3
                    alone = np.arange(4) == np.full((len(ids), 1), world.rank)
                    here = np.full(len(ids), world.rank)
                    mine.held = CellOwnership(ids, np.ones(len(ids), bool), alone, here)
                # All copies move alike, wherever they are.
                mine.states = track[time][mine.held.ids // 3].reshape(-1, 3 * _VERTICES)
                held = mine.held
                stays = held.ids != 3 * gone.get(time, -1)
                mine.held = CellOwnership(held.ids, held.own & stays, held.holders, held.owners)
                mine.travelled = 0
            leaving = [mine.leaving() for mine in ranks]
            for mine, arrival in zip(ranks, migrate(world, region, leaving, _REACH), strict=True):
                assert arrival.moves(mine.held.count) == (
                    arrival.held.ids.tolist() != mine.held.ids.tolist()
                )
                mine.take(arrival)
            story.append(
                [(m.held, m.states, m.travelled, m.held.shares(world.rank)) for m in ranks]
            )
        return story

    stories = on_ranks(4, work)
    for time, kind in itertools.product(range(5), range(2)):
        cells, truth = _KINDS[kind], tracks[kind][time]
        there = np.ones(cells, bool)
        there[[cell for when, cell in gone.items() if when <= time and cell < cells]] = False
        low, high = truth.min(axis=2) - _REACH, truth.max(axis=2) + _REACH
        reached = region.reached(low, high)
        owners = region.owners(truth.mean(axis=2))
        reached[np.arange(cells), owners] = True
        snapshots = [story[time][kind] for story in stories]
        for rank, (held, states, _, shared) in enumerate(snapshots):
            wanted = np.flatnonzero(reached[:, rank] & there)
            assert held.ids.tolist() == (3 * wanted).tolist()
            assert held.own.tolist() == (owners[wanted] == rank).tolist()
            assert np.array_equal(held.owners, owners[wanted])
            assert np.array_equal(held.holders, reached[wanted])
            assert np.array_equal(states, truth[wanted].reshape(-1, 3 * _VERTICES))
            for other, rows in shared.both.items():
                there_too = snapshots[other][3]
                for here, back in (
                    (rows, there_too.both[rank]),
                    (shared.sent[other], there_too.received[rank]),
                ):
                    assert held.ids[here].tolist() == snapshots[other][0].ids[back].tolist()
                assert held.own[shared.sent[other]].all()
                assert set(shared.sent[other]) | set(shared.received[other]) <= set(rows)
        assert reached.sum() > 1.2 * cells
        travelled = [snapshot[2] for snapshot in snapshots]
        # Where nothing has moved nothing travels, and little where little has.
        assert (sum(travelled) == 0) == (time == 3)
        assert sum(travelled) <= cells
    assert all(sum(s[1][k][2] for s in stories) < 0.7 * n for k, n in enumerate(_KINDS))


def test_a_cell_that_others_believe_to_be_here_is_not_made_up():
    region = _region((True, True, True))
    centre = np.array([[0.5, 0.5, 0.5]])

    def work(world):
        if world.rank:
            held = CellOwnership.nothing(4)
        else:
            held = CellOwnership(
                np.array([7]), np.array([True]), np.ones((1, 4), bool), np.array([0])
            )
        count = held.count
        places = np.repeat(centre, count, axis=0)
        leaving = Leaving(held, places, places, places, lambda rows: np.zeros((len(rows), 1)))
        try:
            migrate(world, region, [leaving], 100.0)
        except RuntimeError as error:
            return str(error)
        return ""

    messages = on_ranks(4, work)
    assert messages[0] == ""
    assert all("names a cell as present" in text for text in messages[1:])


@pytest.mark.parametrize("ranks", [1, 63, 64, 65])
def test_any_number_of_ranks_may_hold_a_cell(ranks):
    coordinates = np.stack(np.unravel_index(np.arange(np.prod(_SHAPE)), _SHAPE[::-1])[::-1], 1)
    boxes = bisect(World(), coordinates, _SHAPE, parts=ranks)
    region = Region(_SHAPE, (False, False, False), boxes)

    class First(World):
        size = ranks

        def exchange(self, parts):
            return [parts[0].copy(), *(np.zeros(0, np.uint8) for _ in parts[1:])]

    low, high = np.array([[2.0, 2.0, 2.0]]), np.array([[9.0, 7.0, 5.0]])
    alone = np.arange(ranks)[None] == 0
    held = CellOwnership(np.array([4]), np.array([True]), alone, np.array([0]))
    # Its centre says that the first rank owns it.
    leaving = Leaving(held, low, high, np.zeros((1, 3)), lambda rows: np.ones((len(rows), 2)))
    (arrival,) = migrate(First(), region, [leaving], 0.5)
    wanted = region.reached(low - 0.5, high + 0.5)
    wanted[0, 0] = True
    assert np.array_equal(arrival.held.holders, wanted)
    assert arrival.rows.tolist() == [0]
