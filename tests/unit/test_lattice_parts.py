"""Claims about how points of a sparse lattice are shared out, and what a rank knows of its own."""

from __future__ import annotations

import lattice_contract
import numpy as np
import pytest
from lattice_contract import DIRECTIONS
from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import bisect
from haloscope.mesh.lattice.lattice_parts import OUTSIDE, WALL, distribute, raster_coordinates, take

_WORLD = World()


def _duct(nx: int, ny: int, nz: int) -> np.ndarray:
    """A full cuboid of points."""
    return raster_coordinates(np.arange(nx * ny * nz), (nx, ny, nz))


def _disc_tube(axis: int, length: int, radius: int = 4) -> tuple[np.ndarray, tuple[int, int, int]]:
    shape = [2 * radius + 1] * 3
    shape[axis] = length
    places = raster_coordinates(np.arange(np.prod(shape)), tuple(shape))
    across = np.delete(places - radius, axis, axis=1)
    return places[(across**2).sum(axis=1) <= radius**2], tuple(shape)


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 7, 16, 40])
def test_cuboids_tile_the_bounding_cuboid_and_none_is_empty(parts):
    shape = (11, 9, 10)
    rng = np.random.default_rng(parts)
    places = raster_coordinates(np.flatnonzero(rng.random(np.prod(shape)) < 0.06), shape)
    boxes = bisect(_WORLD, places, shape, parts=parts)
    lo, hi = places.min(axis=0), places.max(axis=0) + 1
    covered = np.zeros(hi, int)
    for rank, (start, end) in enumerate(zip(boxes.lo, boxes.hi, strict=True)):
        covered[tuple(slice(a, b) for a, b in zip(start, end, strict=True))] += 1
        inside = ((places >= start) & (places < end)).all(axis=1)
        assert inside.sum() == boxes.points[rank] > 0
        assert (boxes.owners(places[inside]) == rank).all()
    assert (covered[lo[0] :, lo[1] :, lo[2] :] == 1).all()
    assert covered.sum() == np.prod(hi - lo)
    assert boxes.points.sum() == len(places)
    # Half a spacing beyond the last point the nearest cuboid's rank is in charge.
    beyond = boxes.owners(np.array([lo - 0.5, hi - 0.5]))
    assert list(beyond) == list(boxes.owners(np.array([lo, hi - 1])))


def test_as_many_ranks_as_points_get_one_each():
    shape = (6, 6, 6)
    for seed in range(5):
        chosen = np.random.default_rng(seed).choice(216, 30, replace=False)
        boxes = bisect(_WORLD, raster_coordinates(chosen, shape), shape, parts=30)
        assert (boxes.points == 1).all()


def test_a_tube_is_cut_across_and_a_cube_into_equal_bricks_with_whole_rows():
    for axis in range(3):
        places, shape = _disc_tube(axis, 40)
        boxes = bisect(_WORLD, places, shape, parts=4)
        assert set(boxes.axes) == {axis}
        assert len(set(boxes.points)) == 1
    boxes = bisect(_WORLD, _duct(8, 8, 8), (8, 8, 8), parts=4)
    assert list(boxes.axes) == [2, 1, 1]
    assert boxes.imbalance == 0


def test_a_cut_goes_through_a_narrow_place_near_the_middle():
    places, shape = _disc_tube(2, 200)
    narrow = places[:, 2] == 101
    centre = (np.abs(places[:, :2] - 4) <= 1).all(axis=1)
    boxes = bisect(_WORLD, places[~narrow | centre], shape, parts=2)
    assert boxes.cuts[0] in (101, 102)


def test_the_first_cut_of_a_closed_axis_counts_twice():
    duct, shape = _duct(10, 10, 12), (10, 10, 12)
    assert list(bisect(_WORLD, duct, shape, parts=2).axes) == [2]
    closed = bisect(_WORLD, duct, shape, parts=2, periodic=(False, False, True))
    assert list(closed.axes) == [1]


def test_heavy_points_and_work_elsewhere_draw_the_cuts():
    duct, shape = _duct(4, 4, 30), (4, 4, 30)
    even = bisect(_WORLD, duct, shape, parts=2)
    low = duct[duct[:, 2] < 10]
    heavy = bisect(_WORLD, duct, shape, parts=2, extra=(low, np.full(len(low), 4)))
    assert (even.cuts[0], heavy.cuts[0]) == (15, 7)
    np.testing.assert_array_equal(heavy.loads, [7 * 16 * 5, 16 * (3 * 5 + 20)])
    cells = np.array([[2, 2, 20], [9, 2, 25]])
    drawn = bisect(_WORLD, duct, shape, parts=2, extra=(cells, np.array([160, 160])))
    assert drawn.cuts[0] == 20
    assert drawn.points.sum() == len(duct)


def test_what_cannot_be_shared_out_is_refused():
    few = np.zeros((3, 3), int) + np.arange(3)[:, None]
    assert list(bisect(_WORLD, few, (4, 4, 4), parts=3).points) == [1, 1, 1]
    with refused(problem="rank 3 of 5 would have no points", remedy="start fewer ranks"):
        bisect(_WORLD, few, (4, 4, 4), parts=5)
    with refused(problem="weights of further work: .* allowed: 3 whole numbers of at least 0"):
        bisect(_WORLD, few, (4, 4, 4), extra=(few, np.ones(3)))


@pytest.mark.parametrize(("shape", "periodic", "halo"), lattice_contract.SCENES)
def test_parts_know_what_plain_loops_find(shape, periodic, halo):
    whole = lattice_contract.whole_lattice(shape)
    places = raster_coordinates(whole, shape)
    boxes = bisect(_WORLD, places, shape, periodic=periodic, parts=3)
    owned = []
    for box in zip(boxes.lo, boxes.hi, strict=True):
        numbers = np.random.default_rng(0).permutation(whole)
        part = take(numbers, shape, box, halo, DIRECTIONS, periodic=periodic)
        lattice_contract.check_part(part, whole, shape, periodic)
        owned.append(part.numbers[: part.owned])
        np.testing.assert_array_equal(raster_coordinates(part.numbers, shape), part.coordinates)
    np.testing.assert_array_equal(np.sort(np.concatenate(owned)), whole)


@pytest.mark.parametrize(("axis", "across"), [(0, None), (1, None), (2, None), (0, 1), (2, 0)])
def test_rows_along_another_axis_have_the_same_points_in_their_order(axis, across):
    shape = (9, 8, 7)
    places = _duct(*shape)
    on = np.where(places[:, 0] == 0, 0, -1)
    kept = np.random.default_rng(3).random(len(places)) < 0.8
    part = take(
        np.flatnonzero(kept),
        shape,
        ((0, 2, 1), (9, 8, 5)),
        2,
        DIRECTIONS,
        periodic=(False, True, True),
        openings=on[kept],
        outward=[[-1, 0, 0]],
    )
    turned = part.along(axis, across)
    assert (turned.owned, turned.bulk, turned.rows) == (part.owned, part.bulk, axis)
    # Where each point has gone.
    back = np.searchsorted(np.sort(part.numbers), turned.numbers)
    order = np.argsort(part.numbers)[back]
    np.testing.assert_array_equal(part.numbers[order], turned.numbers)
    np.testing.assert_array_equal(part.coordinates[order], turned.coordinates)
    np.testing.assert_array_equal(part.openings[order], turned.openings)
    for before, after in (
        (part.sources[:, order[: part.owned]], turned.sources),
        (part.table, turned.table),
    ):
        assert np.array_equal(np.minimum(before, 0), np.minimum(after, 0))
        assert np.array_equal(part.numbers[before[before >= 0]], turned.numbers[after[after >= 0]])
    slowest, middle = (2, 1) if axis == 0 else (2, 0) if axis == 1 else (0, 1)
    if across is not None:
        slowest, middle = across, 3 - axis - across
    x, y, z = (turned.coordinates[:, a].astype(int) for a in (axis, middle, slowest))
    key = x + 10 * (y + 10 * z)
    for begin, end in ((0, part.bulk), (part.bulk, part.owned), (part.owned, part.count)):
        assert end > begin
        assert (np.diff(key[begin:end]) > 0).all()


def test_rows_are_counted_along_each_axis():
    places = _duct(6, 5, 4)
    # A column along z of 2 x 1 points, and one point beside it that another rank owns.
    inside = (places[:, 1] == 2) & np.isin(places[:, 0], [1, 2])
    beside = (places == [3, 2, 0]).all(axis=1)
    part = take(np.flatnonzero(inside | beside), (6, 5, 4), ((0, 0, 0), (3, 5, 4)), 1, DIRECTIONS)
    assert part.owned == 8
    assert part.count_rows().tolist() == [4, 8, 2]


def test_a_rank_alone_meets_itself_across_closed_axes_without_ghosts():
    shape = (1, 2, 3)
    part = take(np.arange(6), shape, ((0, 0, 0), shape), 2, DIRECTIONS, periodic=(True, True, True))
    assert (part.count, part.ghosts) == (6, 0)
    along_x = DIRECTIONS.tolist().index([1, 0, 0])
    along_z = DIRECTIONS.tolist().index([0, 0, 1])
    np.testing.assert_array_equal(part.sources[along_x], np.arange(6))
    np.testing.assert_array_equal(part.sources[along_z], np.roll(np.arange(6), 2))
    np.testing.assert_array_equal(part.table[:, 2, 2], [2, 4, 0, 2, 4, 0, 2])


def test_points_of_openings_come_last_and_know_their_outside_from_walls():
    shape = (3, 3, 5)
    places = _duct(*shape)
    numbers = np.arange(len(places))
    on = np.where(places[:, 2] == 0, 1, np.where(places[:, 2] == 4, 0, -1))
    part = take(
        numbers,
        shape,
        ((0, 0, 0), (3, 3, 5)),
        1,
        DIRECTIONS,
        openings=on,
        outward=[[0, 0, 2], [0, 0, -0.5]],
    )
    assert (part.bulk, part.owned) == (27, 45)
    np.testing.assert_array_equal(part.numbers[27:], np.flatnonzero(on >= 0))
    np.testing.assert_array_equal(part.openings, on[part.numbers])
    for row, direction in zip(part.sources, DIRECTIONS, strict=True):
        for place, source in zip(part.coordinates, row, strict=True):
            there = place - direction
            inside = ((there >= 0) & (there < shape)).all()
            wanted = WALL
            if there[2] < 0:
                wanted = OUTSIDE - 1
            elif there[2] > 4:
                wanted = OUTSIDE
            assert inside == (source >= 0)
            assert inside or source == wanted


def test_points_are_handed_to_owners_and_to_those_with_ghosts_with_their_openings():
    shape, periodic = (5, 4, 9), (False, False, True)
    whole = lattice_contract.whole_lattice(shape)
    on = np.where(whole % 7 == 0, whole % 3, -1)
    boxes = bisect(_WORLD, raster_coordinates(whole, shape), shape)
    numbers, tags = distribute(_WORLD, whole, shape, boxes, 2, periodic=periodic, openings=on)
    np.testing.assert_array_equal(numbers, whole)
    np.testing.assert_array_equal(tags, on)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (
            {"halo": 0},
            {"location": "halo = 0", "problem": "reach 1 point$", "allowed": "1 or more"},
        ),
        ({"openings": [0, 2]}, {"problem": "on opening 2, .* vectors for 1 opening$"}),
        (
            {"box": ((0, 0, 0), (2000, 2000, 2000))},
            {"problem": "2002 x 2002 x 2002 points", "allowed": "at most 2147483647"},
        ),
    ],
)
def test_a_part_that_cannot_be_is_refused(options, fields):
    arguments = {"halo": 1, "box": ((0, 0, 0), (2, 1, 1)), "openings": [-1, 0], **options}
    box, halo = arguments.pop("box"), arguments.pop("halo")
    with refused(**fields):
        take(np.arange(2), (2, 1, 1), box, halo, DIRECTIONS, outward=[[0, 0, 1]], **arguments)
