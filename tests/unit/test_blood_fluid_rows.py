"""Rows and single points of cores: each point once, each population at its own address."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.solvers.blood.fluid.lattice import (
    DIRECTIONS,
    OPPOSITE,
    VELOCITIES,
    RowsAndPoints,
    rows_and_points,
)


def _ends(axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions up and down rows along an axis."""
    up, down = (np.flatnonzero(sign * VELOCITIES[:, axis] > 0) for sign in (1, -1))
    return up, down


_UP, _DOWN = _ends(0)


def _sources(fluid: np.ndarray, axis: int = 0) -> np.ndarray:
    """Sources (18, points) of the fluid points of a periodic box [z, y, x] with rows along an axis."""
    index = np.full(fluid.shape, -1, np.int32)
    turned = np.swapaxes(fluid, 2, 2 - axis)
    np.swapaxes(index, 2, 2 - axis)[turned] = np.arange(fluid.sum())
    there = (np.roll(index, tuple(c[::-1]), (0, 1, 2)) for c in VELOCITIES[1:])
    return np.stack([np.swapaxes(component, 2, 2 - axis)[turned] for component in there])


def _porous(share: float) -> np.ndarray:
    solid = np.random.default_rng(3).random((14, 15, 43)) < share
    return ~solid


def _taken(
    order: RowsAndPoints, sources: np.ndarray, stride: int, axis: int = 0
) -> dict[int, list[int]]:
    """Addresses of all points as the kernel makes them of the tables; a point twice is an error."""
    up, down = _ends(axis)
    taken: dict[int, list[int]] = {}
    for (p, length), places in zip(order.rows, order.row_places, strict=True):
        for j in range(length):
            addresses = [int(place) + j for place in places[:DIRECTIONS]]
            if j == 0:
                for i, place in zip(up, places[DIRECTIONS:], strict=False):
                    addresses[i] = int(place)
            if j == length - 1:
                for i, place in zip(down, places[DIRECTIONS + len(up) :], strict=True):
                    addresses[i] = int(place)
            assert p + j not in taken
            taken[int(p) + j] = addresses
    for b in range(len(order.blocks) - 1):
        first, last = order.blocks[b, 1], order.blocks[b + 1, 1]
        here = order.point_sources[18 * first : 18 * last].reshape(18, last - first)
        for p, mine in zip(order.points[first:last], here.T, strict=True):
            assert p not in taken
            taken[int(p)] = [int(p)] + [
                i * stride + int(p) if source < 0 else int(OPPOSITE[i]) * stride + int(source)
                for i, source in enumerate(mine, start=1)
            ]
    return taken


@pytest.mark.parametrize("share", [0.0, 0.003, 0.02, 0.2, 0.9])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_population_of_every_point_is_taken_where_it_lies(share, half, axis):
    sources = _sources(_porous(share), axis)
    count = sources.shape[1]
    chosen = np.arange(count)
    if half:  # as beside ghosts: some points here and there, and some stretches
        wanted = np.random.default_rng(4).random(count) < 0.1
        wanted[count // 3 : count // 2] = True
        chosen = np.flatnonzero(wanted)
    stride = count + 5
    taken = _taken(rows_and_points(chosen, sources, stride, axis), sources, stride, axis)
    assert sorted(taken) == chosen.tolist()
    for p in chosen.tolist():
        expected = [p] + [
            i * stride + p if source < 0 else int(OPPOSITE[i]) * stride + int(source)
            for i, source in enumerate(sources[:, p], start=1)
        ]
        assert taken[p] == expected


def test_rows_have_their_ends():
    # In a periodic box, and between walls across x, what single points there were is an end of a row.
    for fluid in (
        np.ones((6, 7, 32), bool),
        np.pad(np.ones((6, 7, 30), bool), ((0, 0), (0, 0), (1, 1))),
    ):
        for axis in range(3):
            sources = _sources(np.swapaxes(fluid, 2, 2 - axis), axis)
            order = rows_and_points(np.arange(sources.shape[1]), sources, 10_000, axis)
            assert order.blocks[-1, 1] == 0
            assert order.rows[:, 1].sum() == sources.shape[1]


def test_points_that_need_no_neighbours_are_rows_across_the_lattice():
    order = rows_and_points(np.arange(3000), None, 4096)
    assert order.rows.tolist() == [[0, 1024], [1024, 1024], [2048, 952]]
    assert not order.row_places.size
    assert not order.point_sources.size


def test_no_points_are_no_rows():
    order = rows_and_points(np.empty(0, np.int64), np.empty((18, 0), np.int32), 16)
    assert order.blocks.tolist() == [[0, 0]]
    assert not len(order.rows)


def test_a_point_that_could_end_two_rows_ends_one():
    sources = np.full((18, 9), -1, np.int32)
    sources[_DOWN[0] - 1, :4] = np.arange(20, 24)
    sources[_UP[0] - 1, 5:] = np.arange(30, 34)
    order = rows_and_points(np.arange(9), sources, 64)
    assert order.rows.tolist() == [[0, 5], [5, 4]]
    assert sorted(_taken(order, sources, 64)) == list(range(9))
