"""Claims about who holds which cells: one owner each, and every rank that a cell reaches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_membranes import full_region, ownership
from thread_gpus import on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.solvers.blood.cells.local_cells import CellKind
from haloscope.solvers.blood.cells.ownership import CellOwnership, Outlines, holders_of, pack_heads
from haloscope.solvers.blood.membranes.membranes import MembraneLaw
from haloscope.solvers.blood.membranes.meshes import sphere

_SHAPE = (20, 16, 12)


def _region(periodic):
    return full_region(_SHAPE, periodic, 4)


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


_COUNTS, _VERTICES, _REACH = (40, 15), 42, 1.0
_TYPES = [
    CellKind(name, sphere(_VERTICES, 1.0), MembraneLaw(1.0), "linear") for name in ("one", "two")
]


def _tracks(region, random):
    """Vertices (cells, V, 3) of each kind at several times: cells move."""
    tracks = []
    for cells in _COUNTS:
        places = random.uniform(0, 1, (cells, 1, 3)) * np.array(_SHAPE)
        shapes = places + random.uniform(-2, 2, (cells, _VERTICES, 3))
        speeds = random.uniform(-1.5, 1.5, (cells, 1, 3))
        times = [shapes + step * speeds for step in (0, 1, 2, 2, 9)]
        tracks.append(times)
    return tracks


def _positions(local):
    """A view (n, V, 3)."""
    m = local.membranes
    return np.moveaxis(m.positions.reshape(3, m.capacity, m.vertices)[:, : local.count], 0, 2)


def test_cells_migrate_to_all_ranks_that_they_reach_and_are_owned_once(monkeypatch):
    region = _region((True, True, True))
    tracks = _tracks(region, np.random.default_rng(2))
    gone = {2: 5, 4: 17}  # taken out before they migrate again
    # Copies need no messages here.
    monkeypatch.setattr(CellOwnership, "_share", lambda self, kinds: None)

    def work(world):
        cells, travelled = ownership(CpuDevice(threads=1), world, region, _TYPES), {}
        states_of_rows, story = cells.states_of_rows, []

        def states(membranes, rows):
            travelled[id(membranes)] = travelled.get(id(membranes), 0) + len(rows)
            return states_of_rows(membranes, rows)

        cells.states_of_rows = states
        for time in range(5):
            membranes = [local.membranes for local in cells.kinds]
            for local, track, count in zip(cells.kinds, tracks, _COUNTS, strict=True):
                if time == 0:
                    cells.add(local, 3 * np.arange(count), track[0])
                # All copies move alike, wherever they are.
                _positions(local)[...] = track[time][local.ids // 3]
                taken = [cell for when, cell in gone.items() if when <= time and cell < count]
                local.disown(np.isin(local.ids, 3 * np.array(taken)))
                local.total = count - len(taken)
            membranes = [local.membranes for local in cells.kinds]
            travelled.clear()
            cells.migrate_kinds(cells.kinds)
            story.append(
                [
                    (
                        *(local.ids, local.own, local.owners, local.holders),
                        *(_positions(local).copy(), travelled.get(id(m), 0), local.sharing()[0]),
                    )
                    for local, m in zip(cells.kinds, membranes, strict=True)
                ]
            )
        return story

    stories = on_ranks(4, work)
    for time, kind in itertools.product(range(5), range(2)):
        cells, truth = _COUNTS[kind], tracks[kind][time]
        there = np.ones(cells, bool)
        there[[cell for when, cell in gone.items() if when <= time and cell < cells]] = False
        low, high = truth.min(axis=1) - _REACH, truth.max(axis=1) + _REACH
        reached = region.reached(low, high)
        owners = region.owners(truth.mean(axis=1))
        reached[np.arange(cells), owners] = True
        snapshots = [story[time][kind] for story in stories]
        for rank, (ids, own, owner, holders, x, _, rows) in enumerate(snapshots):
            wanted = np.flatnonzero(reached[:, rank] & there)
            assert ids.tolist() == (3 * wanted).tolist()
            assert own.tolist() == (owners[wanted] == rank).tolist()
            assert np.array_equal(owner, owners[wanted])
            assert np.array_equal(holders, reached[wanted])
            assert np.array_equal(x, truth[wanted])
            for other, both in rows.items():
                there_too = snapshots[other]
                assert ids[both].tolist() == there_too[0][there_too[6][rank]].tolist()
        assert reached.sum() > 1.2 * cells
        travelled = [snapshot[5] for snapshot in snapshots]
        # Where nothing has moved nothing travels, and little where little has.
        assert (sum(travelled) == 0) == (time == 3)
        assert sum(travelled) <= cells
    assert all(sum(s[1][k][5] for s in stories) < 0.7 * n for k, n in enumerate(_COUNTS))


def test_an_owner_holds_its_cell_wherever_that_reaches():
    region = _region((False, False, False))
    cells = ownership(CpuDevice(threads=1), region=region, kinds=_TYPES[:1])
    (local,) = cells.kinds
    cells.add(local, np.array([4]), np.zeros((1, _VERTICES, 3)))
    corner, far = np.zeros((1, 3)), np.array([_SHAPE]) - 1.0
    outlines = Outlines(corner, corner, far, corner, np.zeros(1), np.ones(1, bool))
    owners, holders = cells.decide(local, outlines)
    assert owners.tolist() == region.owners(far).tolist() == [3]
    assert holders.tolist() == [[True, False, False, True]]


def test_a_cell_that_others_believe_to_be_here_is_not_made_up():
    region = _region((True, True, True))

    def work(world):
        cells = ownership(CpuDevice(threads=1), world, region, _TYPES[:1])
        (local,) = cells.kinds
        cells.add(local, np.array([7]), np.zeros((1, _VERTICES, 3)))
        local.holders = everywhere = np.ones((local.count, 4), bool)
        decision = np.zeros(local.count, np.int32), everywhere
        try:
            cells.exchange([local], [decision])
        except RuntimeError as error:
            return str(error)
        return ""

    messages = on_ranks(4, work)
    assert messages[0] == ""
    assert all("names a cell as present" in text for text in messages[1:])


@pytest.mark.parametrize("ranks", [1, 63, 64, 65])
def test_any_number_of_ranks_may_hold_a_cell(ranks):
    holders = np.random.default_rng(ranks).random((5, ranks)) < 0.5
    heads = pack_heads(np.arange(5), np.zeros(5, np.int32), holders)
    assert heads.shape[1] == 3 + -(-ranks // 64)
    assert np.array_equal(holders_of(heads, ranks), holders)
