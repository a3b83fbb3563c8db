"""Claims about vertices that ranks tell each other of: those that are of use, and no others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_branches import ThreadsGpu
from small_membranes import full_region, ownership
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.local_cells import CellKind
from haloscope.solvers.blood.cells.shared_vertices import MARGIN, kernels, margin_for
from haloscope.solvers.blood.membranes.membranes import MembraneLaw
from haloscope.solvers.blood.membranes.meshes import sphere

_SHAPE, _RANKS, _REACH, _CELLS, _VERTICES = (60, 26, 16), 3, 4.5, 60, 42
_RADIUS = 4.0


def _outside(region: Region, rank: int, x: np.ndarray) -> np.ndarray:
    """How far vertices (..., 3) are outside of a rank's box, along the axis where they are farthest."""
    farthest = np.full(x.shape[:-1], -np.inf)
    for axis, (points, periodic) in enumerate(zip(_SHAPE, region.periodic, strict=True)):
        low, high = (corners[rank, axis] - 0.5 for corners in (region.boxes.lo, region.boxes.hi))
        images = x[..., axis, None] + points * (np.arange(-3, 4) if periodic else np.zeros(1))
        farthest = np.maximum(farthest, np.maximum(low - images, images - high).min(axis=-1))
    return farthest


class _Rank:
    def __init__(self, device: Any, world: World, region: Region, cells: int = _CELLS) -> None:
        self.world, self.region = world, region
        kind = CellKind("cells", sphere(_VERTICES, _RADIUS), MembraneLaw(1.0), "linear")
        self.ownership = ownership(device, world, region, [kind], reach=_REACH)
        (self.cells,) = self.ownership.kinds
        random = np.random.default_rng(4)
        # Some are a whole box away, some beyond the ends.
        places = random.uniform(-0.7, 1.7, (cells, 1, 3)) * _SHAPE
        if not region.periodic[1]:
            places[..., 1] = random.uniform(0, 1, (cells, 1)) * _SHAPE[1]
        self.truth = places + kind.mesh.vertices
        self.ownership.place(self.cells, np.arange(cells), self.truth)

    def values(self, name: str) -> np.ndarray:
        """A view (n, V, 3) of positions, velocities or forces of the cells held."""
        m = self.cells.membranes
        array = getattr(m, name).reshape(3, m.capacity, m.vertices)
        return np.moveaxis(array[:, : self.cells.count], 0, 2)

    def listed(self, way: int) -> list[dict[int, list[tuple[int, int]]]]:
        """Cells and vertices that velocities, and that forces, are listed of; way 0: to send."""
        vertices_of_ranks = []
        for exchange in self.cells.shared.exchanges:
            lists = exchange.index.lists[way]
            vertices_of_ranks.append(
                {
                    other: [
                        (int(self.cells.ids[at // _VERTICES]), int(at % _VERTICES))
                        for at in lists[first : first + lists[message]].tolist()
                    ]
                    for message, (other, first) in enumerate(
                        zip(
                            exchange.index.rooms[way],
                            exchange.index.firsts[way].tolist(),
                            strict=True,
                        )
                    )
                }
            )
        return vertices_of_ranks


def _on_ranks(tmp_path: Path, work: Any) -> list[Any]:
    def on_one(world: World) -> Any:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        return work(ThreadGpu(folder), world)

    return on_ranks(_RANKS, on_one)


@pytest.mark.parametrize("periodic", [(True, True, True), (True, False, True)])
def test_what_travels_is_what_is_of_use(tmp_path, periodic):
    region = full_region(_SHAPE, periodic, _RANKS)

    def work(device: Any, world: World) -> Any:
        mine = _Rank(device, world, region)
        held = mine.cells
        return mine.truth, held.ids, held.owners, mine.listed(0), mine.listed(1)

    reports = _on_ranks(tmp_path, work)
    truth = reports[0][0]
    outside = np.stack([_outside(region, rank, truth) for rank in range(_RANKS)])
    owners = region.owners(truth.mean(axis=1))
    counted, whole = np.zeros(2, int), 0
    for here, there in itertools.permutations(range(_RANKS), 2):
        both = np.intersect1d(reports[here][1], reports[there][1])
        whole += _VERTICES * len(both)
        velocities, forces = [], []
        for cell in both.tolist():
            for vertex in range(_VERTICES):
                near = outside[there, cell, vertex] <= _REACH
                gives = outside[here, cell, vertex] <= MARGIN
                if gives and (near or owners[cell] == there):
                    velocities.append((cell, vertex))
                if near and owners[cell] == here:
                    forces.append((cell, vertex))
        # Both ranks have the same lists, in this order.
        for number, wanted in enumerate((velocities, forces)):
            assert reports[here][3][number].get(there, []) == wanted
            assert reports[there][4][number].get(here, []) == wanted
            counted[number] += len(wanted)
        assert np.array_equal(reports[here][2], owners[reports[here][1]])
    # Much less than whole cells both ways, which each exchange would take otherwise.
    assert (counted > 0).all()
    assert counted.sum() < 0.45 * 2 * whole


def test_near_vertices_are_moved_alike_until_the_margin_is_used_up_and_the_rest_is_put_right(
    tmp_path,
):
    """What a step gives to vertices, with random velocities in place of the fluid's.

    The margin grows with the first ones.
    """
    region, steps = full_region(_SHAPE, parts=_RANKS), 5

    def work(device: Any, world: World) -> tuple[int, int, int]:
        mine, random = _Rank(device, world, region), np.random.default_rng(8)
        truth, behind, moved, margins = mine.truth.copy(), 0, 0, set()
        for turn in range(3):
            drift, margin = random.uniform(-1, 1, (_CELLS, 1, 3)), mine.ownership.margin
            margins.add(margin)
            for _ in range(steps):
                held = mine.cells
                m, shared = held.membranes, held.shared
                # At most the margin before cells are handed over; some do not move along an axis.
                speed = (drift + random.uniform(-1, 1, truth.shape)) / 2 * margin / steps
                speed[random.random(speed.shape) < 0.2] = 0.0
                force = random.integers(-1, 2, truth.shape).astype(float)
                x, u, f = (mine.values(name) for name in ("positions", "velocities", "forces"))
                inside = _outside(region, world.rank, x) < 0
                u[...] = np.where(inside[..., None], speed[held.ids], 0.0)
                f[held.own] = force[held.ids[held.own]]
                for exchange, values in (
                    (shared.velocities, m.velocities),
                    (shared.forces, m.forces),
                ):
                    exchange.swap(values)
                m.positions += m.velocities
                truth += speed
                near = _outside(region, world.rank, truth[held.ids]) < _REACH - MARGIN
                known = near | held.own[:, None]
                assert np.array_equal(x[known], truth[held.ids][known])
                assert np.array_equal(u[known], speed[held.ids][known])
                assert np.array_equal(f[known], force[held.ids][known])
                behind += int((x != truth[held.ids]).any(axis=-1).sum())
            before = mine.cells.ids
            mine.ownership.complete([mine.cells])
            mine.ownership.migrate_kinds([mine.cells], all_owned=turn > 0)
            held = mine.cells
            assert np.array_equal(mine.values("positions"), truth[held.ids])
            assert np.array_equal(mine.values("velocities"), speed[held.ids])
            moved += len(np.setxor1d(before, held.ids))
        assert min(margins) == MARGIN < max(margins)
        return moved, behind, int((~held.own).sum())

    reports = _on_ranks(tmp_path, work)
    assert sum(moved for moved, _, _ in reports) > 4
    assert all(behind > 0 and copies > 0 for _, behind, copies in reports)


def test_blocks_of_threads_make_the_lists_of_cores(tmp_path):
    region = full_region(_SHAPE, (True, False, True), _RANKS)

    def work(device: Any, world: World) -> Any:
        mine = _Rank(device, world, region, cells=9)
        return mine.cells.shared, mine.cells.membranes

    (shared, cells), *_ = _on_ranks(tmp_path, work)
    lists = [one for exchange in shared.exchanges for one in exchange.index.lists]
    lists_of_cores = [one.copy() for one in (shared._on_device, shared._line_counts, *lists)]
    assert all(one.any() for one in lists_of_cores)
    for one in (shared._on_device, shared._line_counts, *lists):
        one.fill(0)
    shared._kernels = kernels(ThreadsGpu(tmp_path))
    shared.forget(cells)
    assert not shared.count(cells)
    shared.list(cells)
    again = (shared._on_device, shared._line_counts, *lists)
    assert all(np.array_equal(*both) for both in zip(lists_of_cores, again, strict=True))


def _timetable(interval: int, ranks: int = 2) -> Any:
    """Ownership of no cells, for its plan of looks and migrations."""
    world = World()
    world.size = ranks
    return ownership(CpuDevice(threads=1), world, interval=interval)


@pytest.mark.parametrize("hands_over", [True, False])
def test_cells_are_handed_over_before_the_margin_can_be_used_up(hands_over):
    random = np.random.default_rng(3)
    table, interval = _timetable(40, ranks=1 + hands_over), 40
    table.plan_after_migration(0.0)
    moved, looks, hand_overs, speed = 0.0, 0, 0, 1e-4
    for step in range(1, 4000):
        # Between two looks speeds grow no faster than twice.
        moved += speed
        table.step = step
        if step >= table.look_at:
            looks += 1
            table.plan_after_look(speed)
        elif step >= table.due:
            hand_overs += 1
            assert step == 4 or moved <= MARGIN
            moved = 0.0
            table.plan_after_migration(speed)
        else:
            assert min(table.look_at, table.due) <= step + interval
            continue
        speed = min(0.3, speed * random.uniform(0.7, 1.6))
        assert min(table.look_at, table.due) > step
    assert looks > 20
    assert (hand_overs > 20) == hands_over


def test_margins_are_such_that_fast_cells_are_handed_over_every_forty_steps():
    slow, fast = (0.0, 0.02, 0.025), (0.03, 0.05, 0.06, 0.2)
    assert {margin_for(speed) for speed in slow} == {MARGIN}
    assert {margin_for(speed) for speed in fast} == {2 * MARGIN}
    table = _timetable(50)
    table.plan_after_migration(0.0)
    table.step = 4
    table.plan_after_migration(0.05, margin_for(0.05))
    # Speeds may double at each look, and looks be as far apart as that lets them be.
    while table.due > table.look_at:
        table.step = table.look_at
        table.plan_after_look(0.05)
    assert table.due in (43, 44)  # to rounding


def test_slow_cells_are_looked_at_but_not_handed_over():
    table, events = _timetable(50), []
    table.plan_after_migration(0.0)
    for step in range(1, 2001):
        table.step = step
        if step >= min(table.due, table.look_at):
            events.append(step >= table.due)
            (table.plan_after_migration if events[-1] else table.plan_after_look)(1e-3)
    # Once at the start, and when twice the speed has gone through the margin.
    assert sum(events) == 1 + (2000 - 4) // 1000
    assert len(events) < 2000 / 50 + 12
