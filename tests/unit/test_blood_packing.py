"""Claims that vessels are filled to the cell, without overlaps, and the same way each time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from refusals import refused

from haloscope.device import open_device
from haloscope.solvers.blood.filling import filling
from haloscope.solvers.blood.filling.filling import Filling, cell_counts, check_cells, fill
from haloscope.solvers.blood.filling.packing import (
    Cells,
    Packing,
    neighbour_pairs,
    pack_tile,
    random_orientations,
    rotations,
    turned,
)
from haloscope.solvers.blood.filling.shapes import CellShape, Lumen, distance_from_points

RADIUS = 3.91
RED = CellShape.biconcave(RADIUS)
PLATELET = CellShape.oblate(1.2, 0.36)
CAPSULE = CellShape.oblate(2.0, 1.0)


@pytest.fixture(scope="module")
def device():
    return open_device("cpu", threads=1)


def tube(diameter, length, spacing=1.0):
    def distance(points):
        return np.hypot(points[:, 0], points[:, 1]) - diameter / 2

    upper = np.array([diameter / 2, diameter / 2, length])
    lower = np.array([-diameter / 2, -diameter / 2, 0.0])
    intervals = np.maximum(np.ceil((upper - lower) / spacing - 1e-9), 1).astype(int)
    step = (upper - lower) / intervals

    def walled(counts, shift):
        axes = [
            low + h * (np.arange(n) + shift) for low, h, n in zip(lower, step, counts, strict=True)
        ]
        _, y, x = np.meshgrid(*axes[::-1], indexing="ij")
        sides = np.maximum(
            np.maximum(lower[0] - x, x - upper[0]), np.maximum(lower[1] - y, y - upper[1])
        )
        return np.maximum(np.hypot(x, y) - diameter / 2, sides)

    grid = walled(intervals + [1, 1, 0], 0.0).astype(np.float32)
    inside = np.clip(0.5 - walled(intervals, 0.5) / step.min(), 0.0, 1.0).sum()
    volume = float(inside * step.prod())
    return Lumen(lower, upper, (False, False, True), volume, grid, lower, step), distance


def inside_of(shape, points):
    """Whether points of a cell's frame are in it, by the formulas and not by the tables."""
    r, z = np.hypot(points[:, 0], points[:, 1]), np.abs(points[:, 2])
    if shape is RED:
        s = np.minimum(r / RADIUS, 1.0)
        thickness = 2 * RADIUS * (0.207 + 2.003 * s**2 - 1.123 * s**4) / 2 * np.sqrt(1 - s**2)
        return (r < RADIUS) & (z < thickness / 2)
    return (r / shape.radius) ** 2 + (z / shape.half_height) ** 2 < 1


def surfaces(cells, shapes):
    """Many points of each cell's surface where it lies."""
    turns, fine = rotations(cells.quaternions), [shape.surface(8e-4)[:, :3] for shape in shapes]
    return [
        cells.positions[n] + cells.size * fine[k] @ turns[n].T for n, k in enumerate(cells.kinds)
    ]


def overlaps(cells, shapes, lumen):
    """Points of surfaces that lie in another cell, or in an image of their own."""
    turns, points = rotations(cells.quaternions), surfaces(cells, shapes)
    around = [(-1, 0, 1) if closed else (0,) for closed in lumen.periodic]
    overlap_count = 0
    for first, move in itertools.product(range(cells.count), itertools.product(*around)):
        centres = cells.positions + np.array(move) * lumen.sides - cells.positions[first]
        for second in np.flatnonzero((centres**2).sum(axis=1) < (2 * RADIUS) ** 2):
            if first == second and not any(move):
                continue
            away = points[first] - cells.positions[first] - centres[second]
            own = away @ turns[second] / cells.size
            overlap_count += np.count_nonzero(inside_of(shapes[cells.kinds[second]], own))
    return overlap_count


def furthest(cells, shapes, distance):
    return max(distance(points).max() for points in surfaces(cells, shapes))


def test_red_cell_has_the_published_volume_and_area():
    assert abs(RED.volume - 94.1) < 0.05
    assert abs(RED.area - 134.1) < 0.05
    assert abs(PLATELET.volume - 4 / 3 * math.pi * 1.2**3 * 0.36) < 1e-3


def test_points_lie_on_the_surface_and_distances_are_those_of_a_sphere():
    points = RED.surface()
    assert abs(points[:, 3].sum() / RED.area - 1) < 1e-6
    r = np.hypot(points[:, 0], points[:, 1])
    assert np.abs(RED.distance(r, points[:, 2])).max() < 1e-3
    r, z = np.meshgrid(np.linspace(0, 3, 20), np.linspace(-3, 3, 41))
    assert np.abs(CAPSULE.distance(r, z) - (np.hypot(r, z) - 2)).max() < 1e-3


def test_quaternions_turn_as_said():
    quarter = np.array([[1.0, 0.0, 0.0, 1.0]]) / math.sqrt(2)
    assert np.allclose(rotations(quarter)[0] @ (1, 0, 0), (0, 1, 0))
    random = np.random.default_rng(2)
    quaternions, angles = random_orientations(random, 6), 1e-6 * random.standard_normal((6, 3))
    change = rotations(turned(quaternions, angles)) - rotations(quaternions)
    assert np.allclose(
        change, np.cross(angles[:, :, None], rotations(quaternions), axis=1), atol=1e-10
    )


def test_pairs_are_those_of_a_search_through_all():
    random = np.random.default_rng(3)
    lumen = Lumen(
        np.zeros(3),
        np.array([7.0, 9.0, 3.0]),
        (True, False, True),
        0.0,
        None,
        np.zeros(3),
        np.ones(3),
    )
    positions, reaches = lumen.sides * random.random((30, 3)), random.uniform(0.3, 1.9, 30)
    first, second, shifts = neighbour_pairs(positions, reaches, lumen)
    pairs = sorted(
        (int(a), int(b), *map(float, s)) for a, b, s in zip(first, second, shifts, strict=True)
    )
    wanted = []
    for a, b, i, k in itertools.product(range(30), range(30), (-1, 0, 1), range(-3, 4)):
        shift = np.array([7.0 * i, 0.0, 3.0 * k])
        apart = np.linalg.norm(positions[b] + shift - positions[a])
        if apart < reaches[a] + reaches[b] and (a != b or i or k):
            wanted.append((a, b, *map(float, shift)))
    assert pairs == sorted(wanted)
    assert any(a == b for a, b, *_ in pairs)


def test_forces_are_the_slopes_of_the_energy_and_balance(device):
    lumen, _ = tube(9.0, 12.0, 0.5)
    random = np.random.default_rng(4)
    cells = Cells(
        np.array([[0.4, 0.2, 5.0], [-0.3, 0.5, 6.8]]),
        random_orientations(random, 2),
        np.array([0, 1]),
    )
    shapes, gap = [RED, CAPSULE], 0.1
    free = Lumen.box(np.array([40.0, 40.0, 40.0]))

    def energy(cells):
        total, turns = 0.0, rotations(cells.quaternions)
        for a, b in ((0, 1), (1, 0)):
            surface = shapes[a].surface()
            points = surface[:, :3] @ turns[a].T + cells.positions[a]
            own = (points - cells.positions[b]) @ turns[b]
            away = shapes[b].distance(np.hypot(own[:, 0], own[:, 1]), own[:, 2])
            depth = np.maximum(gap - away, 0)
            total += (surface[:, 3] * depth**2).sum() / 2
        return total

    force, torque, depth = Packing(device, free, shapes, cells, gap).forces()
    assert depth.min() > 2 * gap
    assert np.abs(force.sum(axis=0)).max() < 1e-12 * np.abs(force).max()
    about_origin = torque + np.cross(cells.positions, force)
    assert np.abs(about_origin.sum(axis=0)).max() < 1e-12 * np.abs(about_origin).max()
    h = 1e-3
    for axis in range(3):
        move = np.zeros((2, 3))
        move[0, axis] = h
        ends = [
            energy(Cells(cells.positions + s * move, cells.quaternions, cells.kinds))
            for s in (-1, 1)
        ]
        assert abs((ends[0] - ends[1]) / (2 * h) - force[0, axis]) < 0.05 * np.abs(force).max()
        ends = [
            energy(Cells(cells.positions, turned(cells.quaternions, s * move), cells.kinds))
            for s in (-1, 1)
        ]
        assert abs((ends[0] - ends[1]) / (2 * h) - torque[0, axis]) < 0.05 * np.abs(torque).max()
    # A wall pushes inwards.
    aside = Cells(cells.positions[1:] + (2.9, 0.0, 0.0), cells.quaternions[1:], np.array([1]))
    force, torque, _ = Packing(device, lumen, shapes, aside, gap).forces()
    assert force[0, 0] < -0.1
    assert abs(force[0, 2]) < 1e-6
    assert np.abs(torque).max() < 0.02 * abs(force[0, 0])


def test_dense_tile_has_no_overlaps_and_no_preferred_direction(device):
    count = 100
    sides = np.full(3, (count * RED.volume / 0.5) ** (1 / 3))
    cells = pack_tile(device, sides, [RED], [count], np.random.default_rng(1))
    assert cells is not None
    assert cells.count == count
    assert overlaps(cells, [RED], Lumen.box(sides)) == 0
    axes = rotations(cells.quaternions)[:, :, 2]
    order = np.einsum("ni,nj->ij", axes, axes) / count - np.eye(3) / 3
    # Of so many random directions the largest eigenvalue is about 0.07; of parallel ones 2/3.
    assert np.abs(np.linalg.eigvalsh(order)).max() < 0.14


@pytest.mark.parametrize(("diameter", "length", "hematocrit"), [(20.0, 22.0, 0.45), (10, 40, 0.3)])
def test_tube_is_filled_to_the_cell(device, diameter, length, hematocrit):
    lumen, distance = tube(diameter, length)
    volume = math.pi / 4 * diameter**2 * length
    assert abs(lumen.volume / volume - 1) < 5e-3
    cells = fill(device, lumen, [Filling(RED, hematocrit)], 7)
    assert cells.count == round(hematocrit * lumen.volume / RED.volume)
    assert overlaps(cells, [RED], lumen) == 0
    assert furthest(cells, [RED], distance) < 0
    assert np.allclose((cells.quaternions**2).sum(axis=1), 1)


def test_same_seed_same_cells_on_any_number_of_threads(device):
    lumen, _ = tube(12.0, 10.0)
    kinds = [Filling(RED, 0.2), Filling(PLATELET, 0.004)]
    cells = fill(device, lumen, kinds, 5)
    again = fill(open_device("cpu", threads=2), lumen, kinds, 5)
    assert (cells.kinds == again.kinds).all()
    assert (cells.positions == again.positions).all()
    assert (cells.quaternions == again.quaternions).all()
    assert (fill(device, lumen, kinds, 6).positions != cells.positions).any()
    assert np.bincount(cells.kinds).tolist() == cell_counts(lumen, kinds)
    assert overlaps(cells, [RED, PLATELET], lumen) == 0


@pytest.mark.parametrize("hematocrit", [0.1, 0.4])
def test_many_cells_come_from_tiles(device, monkeypatch, hematocrit):
    monkeypatch.setattr(filling, "DIRECT", 10)
    monkeypatch.setattr(filling, "_TILE", 24)
    tiles, packed = [], filling.pack_tile

    def tile(*arguments):
        tiles.append(packed(*arguments))
        return tiles[-1]

    monkeypatch.setattr(filling, "pack_tile", tile)
    lumen, distance = tube(22.0, 26.0)
    cells = fill(device, lumen, [Filling(RED, hematocrit)], 2)
    assert len(tiles) == 1
    assert cells.size == 1.0
    assert cells.count == round(hematocrit * lumen.volume / RED.volume)
    assert overlaps(cells, [RED], lumen) == 0
    assert furthest(cells, [RED], distance) < 0.02
    known = {tuple(q) for q in tiles[0].quaternions}
    untouched = sum(tuple(q) in known for q in cells.quaternions)
    assert untouched == (cells.count if hematocrit < 0.2 else 0)


def test_a_hematocrit_beyond_packing_is_told(device):
    lumen = Lumen.box(np.array([9.0, 9.0, 9.0]))
    with refused(
        location="hematocrit",
        problem=r"hematocrit of 0.68 \(5 cells\) is beyond packing: .* not a sharp limit",
        remedy="lower it, or try another blood.seed",
    ):
        fill(device, lumen, [Filling(RED, 0.68)], 1)
    with refused(problem=r"hematocrit of 0.4 \+ 0.28 = 0.68 \(5 cells\) is beyond packing"):
        fill(device, lumen, [Filling(RED, 0.4), Filling(RED, 0.28)], 1)


def test_a_hematocrit_that_whole_cells_make_is_not_told_as_one_that_was_given(device):
    lumen = Lumen.box(np.array([9.0, 9.0, 9.0]))
    with refused(
        problem=r"^a hematocrit of 0.645 of 5 cells \(whole cells\) is beyond packing: this attempt jammed"
    ):
        fill(device, lumen, [Filling(RED, 5 * RED.volume / lumen.volume)], 1)


def test_distances_from_lattice_points_are_those_of_a_search_through_all():
    random = np.random.default_rng(8)
    inside = random.random((5, 7, 9)) < 0.9
    distances = distance_from_points(inside, 0.5, 2.0, (True, False, False))
    places = np.stack(np.indices(inside.shape), axis=-1).reshape(-1, 3)
    for place in places:
        other = places[inside.ravel() != inside[tuple(place)]]
        away = np.abs(other - place)
        away[:, 2] = np.minimum(away[:, 2], 9 - away[:, 2])
        wanted = min(0.5 * (np.sqrt((away**2).sum(axis=1)).min() - 0.5), 2.0)
        assert abs(abs(distances[tuple(place)]) - wanted) < 1e-6
    assert ((distances < 0) == inside).all()


def test_vessel_of_lattice_points_is_filled(device):
    points = np.arange(-8, 9)
    inside = np.hypot(points[:, None], points[None, :])[None].repeat(16, axis=0) < 8
    lumen = Lumen.from_points(inside, 1.0, np.array([-8.0, -8.0, 0.0]), (False, False, True), 5.0)
    assert lumen.volume == np.count_nonzero(inside)
    cells = fill(device, lumen, [Filling(RED, 0.25)], 1)
    assert cells.count == round(0.25 * lumen.volume / RED.volume)
    # Walls lie halfway to points outside: no point of a surface is nearer to one of those.
    z, y, x = np.nonzero(~np.pad(inside, ((4, 4), (1, 1), (1, 1)), mode="wrap"))
    outside = np.stack([x - 9.0, y - 9.0, z - 4.0], axis=1)
    for points in surfaces(cells, [RED]):
        away = points[::9, None] - outside
        assert (away**2).sum(axis=2).min() > 0.45**2


def test_cells_count_with_the_volume_of_their_meshes():
    lumen = Lumen.box(np.array([100.0, 100.0, 100.0]))
    smooth, meshed = Filling(RED, 0.3), Filling(RED, 0.3, 0.9 * RED.volume)
    assert cell_counts(lumen, [smooth, meshed]) == [
        round(0.3e6 / RED.volume),
        round(0.3e6 / (0.9 * RED.volume)),
    ]


def test_what_cannot_be_filled_is_told(device):
    with refused(
        problem=r"7.82 um wide .* place is about 7 um across$",
        allowed=r"from 7.9\d* um, flat ones from 2.64 um",
    ):
        fill(device, tube(7.0, 12.0, 0.5)[0], [Filling(RED, 0.2)], 1)
    assert fill(device, tube(20.0, 20.0)[0], [Filling(RED, 0.0)], 1).count == 0


def test_cells_placed_by_hand_are_checked(device):
    lumen, _ = tube(20.0, 20.0)
    upright = np.array([[1.0, 0.0, 0.0, 0.0]] * 2)

    def check(*positions):
        cells = Cells(np.array(positions), upright[: len(positions)], np.zeros(len(positions), int))
        check_cells(device, lumen, [RED], cells, (lumen.lower, lumen.upper))

    check((0.0, 0.0, 5.0), (0.0, 0.0, 7.7))
    check((6.0, 0.0, 5.0))
    with refused(problem=r"cell 2 at \(7, 0, 9\) um extends 0.9.* um into a wall"):
        check((0.0, 0.0, 5.0), (7.0, 0.0, 9.0))
    with refused(problem=r"cells 1 and 2 overlap by 0.5"):
        check((0.0, 0.0, 5.0), (0.0, 3.0, 7.0))
    with refused(problem="cells 1 and 2 overlap"):
        check((0.0, 0.0, 19.5), (0.0, 0.0, 1.0))
