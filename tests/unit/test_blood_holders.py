"""Claims about who holds cells over many hand-overs: what stays, what travels, and what is lost."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_membranes import full_region, ownership
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.solvers.blood.cells import ownership as cell_ownership
from haloscope.solvers.blood.cells.local_cells import CellKind
from haloscope.solvers.blood.cells.shared_vertices import MARGIN, margin_for
from haloscope.solvers.blood.membranes.membranes import MembraneLaw
from haloscope.solvers.blood.membranes.meshes import sphere

_SHAPE, _RANKS, _REACH = (60, 30, 20), 3, 4.0


def _kinds() -> list[CellKind]:
    return [
        CellKind("large", sphere(92, 3.0), MembraneLaw(1.0), "linear"),
        CellKind("small", sphere(42, 1.0), MembraneLaw(1.0), "linear"),
    ]


class _Rank:
    """A rank's cells, which go along with all others of their kind."""

    def __init__(self, device: Any, world: World, counts: tuple[int, ...]) -> None:
        self.region = full_region(_SHAPE, parts=world.size)
        self.forgotten: list[Any] = []
        self.ownership = ownership(
            *(device, world, self.region, _kinds()), reach=_REACH, forget=self.forgotten.append
        )
        self.kinds = self.ownership.kinds
        random = np.random.default_rng(11)
        for cells, count in zip(self.kinds, counts, strict=True):
            places = random.uniform(0, 1, (count, 1, 3)) * _SHAPE
            vertices = places + cells.kind.mesh.vertices
            self.ownership.place(cells, np.arange(count), vertices)

    def move(self, step: np.ndarray) -> None:
        """All by as much, some cells farther; positions are what they are on any rank."""
        for cells in self.kinds:
            m = cells.membranes
            x = m.positions.reshape(3, m.capacity, m.vertices)
            far = 1 + 0.3 * (cells.ids % 3)
            x[:, : cells.count] += step[:, None, None] * far[None, :, None]

    def share(self, turn: int) -> None:
        """Each cell's velocities come from the rank that owns it."""
        for cells in self.kinds:
            m = cells.membranes
            wanted = _velocities(cells.ids, m.vertices, turn)
            u = m.velocities.reshape(3, m.capacity, m.vertices)
            u[:, : cells.count] = np.where(cells.own[:, None], wanted, 7.0)
            self.ownership.complete([cells])
            assert np.array_equal(u[:, : cells.count], wanted)

    def snapshot(self) -> list[tuple[Any, ...]]:
        snapshots = []
        for cells in self.kinds:
            m = cells.membranes
            x = m.positions.reshape(3, m.capacity, m.vertices)[:, : cells.count]
            x = np.moveaxis(x, 1, 0).copy()
            snapshots.append((cells.ids, cells.own, cells.holders, x))
        return snapshots


def _velocities(ids: np.ndarray, vertices: int, turn: int) -> np.ndarray:
    """(3, n, V), of each vertex of each cell by its number."""
    cells = ids[:, None] * 1000 + np.arange(vertices) + 0.5
    return np.stack([(turn + 1) * cells, -cells, cells - 1000 * turn])


def _ranks(tmp_path: Path, work: Any, ranks: int = _RANKS) -> list[Any]:
    def on_one(world: World) -> Any:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        return work(ThreadGpu(folder), world)

    return on_ranks(ranks, on_one)


def test_copies_stay_and_agree_while_cells_go_from_rank_to_rank(tmp_path):
    steps = np.random.default_rng(2).uniform(-3, 3, (12, 3))
    steps[5] = 0

    def work(device: Any, world: World) -> Any:
        mine, story = _Rank(device, world, (25, 60)), []
        for turn, step in enumerate(steps):
            mine.share(turn)
            mine.move(step)
            before = [(g.membranes, g.count, g.shared.whole, g.ids) for g in mine.kinds]
            fastest = mine.ownership.migrate_kinds(mine.kinds, all_owned=turn % 2 == 1)
            # Of all cells on any rank.
            fields = (_velocities(np.arange(n), v, turn) for n, v in ((25, 92), (60, 42)))
            assert fastest == max(np.abs(field).max() for field in fields)
            after = [(g.membranes, g.count, g.shared.whole, g.ids) for g in mine.kinds]
            if turn == 5:
                assert all(
                    a[:3] == b[:3] and np.array_equal(a[3], b[3])
                    for a, b in zip(before, after, strict=True)
                )
            mine.share(turn + 100)
            for cells in mine.kinds:
                cells.membranes.velocities[...] = 0
            mine.share(turn + 1)
            story.append(mine.snapshot())
        assert mine.ownership.margin == margin_for(fastest) > MARGIN
        rooms = [cells.membranes.capacity for cells in mine.kinds]
        shared = [cells.shared.whole.index.rooms for cells in mine.kinds]
        return story, rooms, shared

    stories = _ranks(tmp_path, work)
    region, kept = full_region(_SHAPE, parts=_RANKS), 0
    # Cells are as fast from the first turn on.
    reach = _REACH + margin_for(1e5) - MARGIN
    for turn in range(len(steps)):
        for kind, count in enumerate((25, 60)):
            parts = [story[turn][kind] for story, _, _ in stories]
            truth: dict[int, np.ndarray] = {}
            for rank, part in enumerate(parts):
                for cell, own, ranks, vertices in zip(*part, strict=True):
                    # Each copy is the others', to the last bit.
                    assert np.array_equal(truth.setdefault(cell, vertices), vertices)
                    low, high = vertices.min(axis=1)[None], vertices.max(axis=1)[None]
                    reached = region.reached(low - reach, high + reach)[0]
                    assert np.array_equal(ranks, reached)
                    assert ranks[rank]
                    assert own == (region.owners(vertices.mean(axis=1)[None])[0] == rank)
            assert sorted(truth) == list(range(count))
            assert sum(int(own.sum()) for _, own, _, _ in parts) == count
            kept += sum(len(ids) for ids, *_ in parts) - count
    assert kept > 100
    # Both ranks of a pair have room for as many.
    for rank, (_, _, rooms) in enumerate(stories):
        for kind, (sent, _) in enumerate(rooms):
            assert all(stories[other][2][kind][1][rank] == room for other, room in sent.items())


def test_rows_without_cells_let_cells_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_ownership, "SPARE", 0.4)
    steps = np.random.default_rng(5).uniform(-1, 1, (15, 3))

    def work(device: Any, world: World) -> list[tuple[int, int, bool, float, float]]:
        mine, story = _Rank(device, world, (25, 60)), []
        small = mine.kinds[1]
        for turn, step in enumerate(steps):
            mine.move(step)
            mine.ownership.migrate_kinds(mine.kinds)
            mine.share(turn)
            m = small.membranes
            x = m.positions.reshape(3, m.capacity, m.vertices)
            here, parked = x[:, : small.count], x[:, small.count : small.rows]
            shape = parked - parked.mean(axis=2, keepdims=True)
            off = shape.swapaxes(0, 1) - small.kind.mesh.vertices.T
            nearest = parked.min(initial=np.inf)
            story.append((small.count, small.rows, nearest > 1.9e9, off.max(initial=0), here.max()))
        return story

    for story in _ranks(tmp_path, work):
        counts, rows, far, off, there = zip(*story, strict=True)
        assert all(far)
        assert max(off) < 1e-6
        assert max(there) < 1e3
        assert all(n <= k <= 1.8 * n + 1 for n, k in zip(counts, rows, strict=True))
        changes = [
            sum(a != b for a, b in itertools.pairwise(numbers)) for numbers in (counts, rows)
        ]
        assert changes[0] > 3
        assert changes[1] <= 1


def test_arrays_that_give_way_are_let_go(tmp_path):
    def work(device: Any, world: World) -> tuple[bool, list[bool], bool]:
        mine = _Rank(device, world, (25, 4))
        large = mine.kinds[0]
        old, mine.forgotten[:] = large.membranes, []
        # All cells come together on the ranks that hold one place.
        x = old.positions.reshape(3, old.capacity, old.vertices)[:, : large.count]
        x += (np.array(_SHAPE) / 2)[:, None, None] - x.mean(axis=2, keepdims=True)
        mine.ownership.migrate_kinds([large])
        mine.share(3)
        forgotten = [array is old.positions for array in mine.forgotten]
        return large.membranes is not old, forgotten, large.membranes.capacity >= large.count

    reports = _ranks(tmp_path, work)
    assert any(grew for grew, _, _ in reports)
    assert all(forgotten == [True] * grew and fits for grew, forgotten, fits in reports)


def test_a_cell_without_a_place_is_named_on_every_rank(tmp_path):
    def work(device: Any, world: World) -> tuple[str, list[Any]]:
        mine = _Rank(device, world, (6, 9))
        small = mine.kinds[1]
        m = small.membranes
        u = m.velocities.reshape(3, m.capacity, m.vertices)
        u[1, np.flatnonzero(small.ids == 7), 4] = np.nan
        place = full_region(_SHAPE, parts=world.size).wrapped(
            mine.snapshot()[1][3][small.ids == 7].mean(axis=-1)
        )
        with pytest.raises(SolutionError) as error:
            mine.ownership.migrate_kinds(mine.kinds)
        return str(error.value), np.rint(place).astype(int).tolist()

    reports = _ranks(tmp_path, work)
    ((x, y, z),) = next(place for _, place in reports if place)
    assert {message for message, _ in reports} == {
        "small 7: the position of a vertex is NaN; at the previous check the cell was near lattice point "
        f"({x}, {y}, {z})"
    }


@pytest.mark.parametrize("when", ["look", "migrate"])
def test_a_lost_cell_is_missed_on_every_rank(tmp_path, when):
    def work(device: Any, world: World) -> str:
        mine = _Rank(device, world, (6, 9))
        large = mine.kinds[0]
        large.disown(large.ids == 2)
        with pytest.raises(SolutionError) as error:
            getattr(mine.ownership, when)()
        return str(error.value)

    assert set(_ranks(tmp_path, work)) == {"blood.cells large: 1 of 6 cells are lost"}


def test_one_rank_holds_all_and_shares_nothing():
    mine = _Rank(CpuDevice(threads=1), World(), (5, 7))
    assert [cells.count for cells in mine.kinds] == [5, 7]
    assert all(cells.own.all() and cells.shared is None for cells in mine.kinds)
    ids, states = mine.ownership.table(mine.kinds[0])
    assert ids.tolist() == list(range(5))
    assert states.shape == (5, 2, 92, 3)
    assert states[:, 0].std(axis=1).min() > 1
