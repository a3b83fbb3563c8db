"""Claims about link fractions and wall distances: exact for shapes, as by brute force for surfaces."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from closed_surfaces import DIRECTIONS, cuboid, moved, random_turn, sphere, tube
from lattice_links import wall_links

from haloscope.mesh.lattice.lattice_runs import raster
from haloscope.mesh.lattice.openings import OpeningPlane
from haloscope.mesh.lattice.shapes import Box, Grid, Tube
from haloscope.mesh.lattice.voxels import Lattice, inside_runs, voxelise
from haloscope.mesh.lattice.wall_links import wall_distances
from haloscope.mesh.surfaces.surface_openings import walls_of
from haloscope.mesh.surfaces.surfaces import Surface, make_surface


def test_links_to_the_faces_of_a_box_have_known_fractions() -> None:
    # Points at 0.5, 1.5 ... along each axis, with walls beside the lattice's own half ways.
    low, high = np.array([0.2, 0.1, 0.4]), np.array([7.7, 6.6, 5.9])
    surface = cuboid(high - low, low)
    inside = Grid((8, 7, 6), np.full(3, 0.5), 1.0)
    lattice = Lattice(inside, inside_runs(surface, inside, 0, 6), (), (0, 6))
    assert lattice.count == 8 * 7 * 6
    links = wall_links(lattice, surface, DIRECTIONS)
    positions = lattice.positions(links.numbers)
    for column, c in enumerate(DIRECTIONS):
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(c > 0, (high - positions) / c, (low - positions) / c)
        expected = np.where(c == 0, np.inf, room).min(axis=1)
        expected[expected > 1] = 0
        np.testing.assert_allclose(links.fractions[:, column], expected, atol=1e-9)
    box = Box((7.5, 6.5, 5.5), ("walls",) * 3)
    exact = wall_links(voxelise(box, 1.0), box, DIRECTIONS)
    assert set(exact.fractions[exact.fractions > 0]) == {0.25}


def test_of_several_walls_on_a_link_the_first_counts() -> None:
    # Sheets thinner than the spacing lie beside the walls at 4.2 and 5.3.
    parts = [
        cuboid((b - a, 4, 4), (a, 0, 0)) for a, b in ((0, 4.2), (4.3, 4.4), (5.1, 5.2), (5.3, 9))
    ]
    corners = np.concatenate([part.corners for part in parts])
    surface = make_surface(corners, np.zeros(len(corners)), ("wall",))
    grid = Grid((9, 4, 4), np.full(3, 0.5), 1.0)
    lattice = Lattice(grid, inside_runs(surface, grid, 0, 4), (), (0, 4))
    links = wall_links(lattice, surface, np.array([[1, 0, 0], [-1, 0, 0]]))
    x = lattice.coordinates(links.numbers)[:, 0]
    np.testing.assert_allclose(links.fractions[x == 3, 0], 0.7)
    np.testing.assert_allclose(links.fractions[x == 5, 1], 0.2)
    assert {3, 5} <= set(x)


def test_fractions_in_a_tube_lie_on_its_wall_and_agree_with_its_surface() -> None:
    shape = Tube(1.0, 2.0, axis=0, ends="open")
    lattice = voxelise(shape, 0.1)
    links = wall_links(lattice, shape, DIRECTIONS)
    point, column = np.nonzero(links.fractions)
    q = links.fractions[point, column]
    ends = lattice.positions(links.numbers)[point] + 0.1 * q[:, None] * DIRECTIONS[column]
    np.testing.assert_allclose(np.hypot(ends[:, 1], ends[:, 2]), 1.0, atol=1e-12)
    # Just those links whose other end is neither fluid nor across an opening.
    coordinates = lattice.coordinates(links.numbers)[point] + DIRECTIONS[column]
    assert (coordinates[:, 0] >= 0).all()
    assert (coordinates[:, 0] < lattice.shape[0]).all()
    boxed = ((coordinates >= 0) & (coordinates < lattice.shape)).all(axis=1)
    assert not lattice.contains(raster(lattice.shape, coordinates[boxed])).any()

    surface = tube(1.0, 2.0, step=0.05)
    same = dataclasses.replace(
        lattice,
        openings=(
            dataclasses.replace(lattice.openings[0], name="inlet"),
            dataclasses.replace(lattice.openings[1], name="outlet"),
        ),
    )
    other = wall_links(same, surface, DIRECTIONS)
    np.testing.assert_array_equal(other.numbers, links.numbers)
    np.testing.assert_array_equal(other.fractions > 0, links.fractions > 0)
    apart = np.abs(other.fractions - links.fractions)
    # Links that just miss the wall at the ends of the tube take the fraction one plane before.
    # Else they would have 0.5, which is far from most.
    assert np.median(apart[links.fractions > 0]) < 0.01
    # The surface lies up to step^2 / 8 R within the tube; grazing links see more of it.
    assert apart.max() < 0.12


def test_fractions_equal_brute_force_intersections() -> None:
    surface = moved(sphere(2), random_turn(7), (0.1, 0.2, 0.3))
    lattice = voxelise(surface, 0.23)
    links = wall_links(lattice, surface, DIRECTIONS)
    positions = lattice.positions(links.numbers)
    a, b, c = np.moveaxis(surface.corners, 1, 0)
    normals = np.cross(b - a, c - a)
    for column, direction in enumerate(DIRECTIONS):
        link = 0.23 * direction
        expected = np.full(len(positions), np.inf)
        for number, start in enumerate(positions):
            with np.errstate(divide="ignore", invalid="ignore"):
                q = ((a - start) * normals).sum(axis=1) / (normals @ link)
            hit = start + q[:, None] * link
            within = np.ones(len(a), bool)
            for one, two in ((a, b), (b, c), (c, a)):
                within &= (np.cross(two - one, hit - one) * normals).sum(axis=1) >= -1e-12
            q = q[within & (q > 0)]
            expected[number] = q.min(initial=np.inf)
        expected[expected > 1] = 0
        np.testing.assert_allclose(links.fractions[:, column], expected, atol=1e-9)


def _brute_distances(surface: Surface, positions: np.ndarray) -> np.ndarray:
    """Least distance from points spread over the triangles, and from their planes' feet."""
    share = np.array([(i, j, 24 - i - j) for i in range(25) for j in range(25 - i)]) / 24
    spread = np.einsum("sk,tkc->tsc", share, surface.corners).reshape(-1, 3)
    return np.array([np.sqrt(((spread - p) ** 2).sum(axis=1).min()) for p in positions])


def test_wall_distances_equal_brute_force_on_both_sides() -> None:
    surface = moved(sphere(1), random_turn(5))
    lattice = voxelise(surface, 0.25)
    near = wall_distances(lattice, surface, 0.3)
    positions = lattice.positions(near.numbers)
    brute = _brute_distances(surface, positions)
    # Samples lie at most 0.8 / 24 from the foot, which matters little but next to the surface.
    assert (np.abs(near.distances) <= brute + 1e-12).all()
    assert (brute <= np.hypot(near.distances, 0.8 / 24)).all()
    everywhere = _brute_distances(surface, lattice.positions(np.arange(np.prod(lattice.shape))))
    listed = np.zeros(len(everywhere), bool)
    listed[near.numbers] = True
    assert listed[everywhere <= 0.3].all()
    np.testing.assert_array_equal(near.distances > 0, lattice.contains(near.numbers))
    assert (near.distances < 0).any()


def test_wall_distances_know_no_openings_and_equal_those_of_the_shape() -> None:
    surface, shape = tube(1.0, 4.0, step=0.1), Tube(1.0, 4.0, 0, "open")
    lattice = voxelise(surface, 0.1, ("inlet", "outlet"))
    near = wall_distances(lattice, surface, 0.25)
    exact = shape.wall_distances(lattice.positions(near.numbers))
    within = (np.abs(lattice.positions(near.numbers)[:, 0] - 2) < 1.7) & (np.abs(exact) < 0.24)
    assert np.abs(near.distances - exact)[within].max() < 2.5e-3
    own = wall_distances(voxelise(shape, 0.1), shape, 0.25)
    assert (np.abs(own.distances) <= 0.25).all()
    low, high = (3, 4, 5), (30, 15, 16)
    part = wall_distances(lattice, surface, 0.25, (low, high))
    coordinates = lattice.coordinates(near.numbers)
    chosen = ((coordinates >= low) & (coordinates < high)).all(axis=1)
    np.testing.assert_array_equal(part.numbers, near.numbers[chosen])
    np.testing.assert_array_equal(part.distances, near.distances[chosen])
    other = wall_distances(voxelise(shape, 0.1), shape, 0.25, (low, high))
    np.testing.assert_array_equal(other.numbers, own.numbers[np.isin(own.numbers, other.numbers)])
    assert 0 < len(other.numbers) < len(own.numbers)
    # The axis lies at the inlet's middle, but no wall is near.
    axis = np.hypot(*lattice.positions(near.numbers)[:, 1:].T)
    assert axis.min() > 0.7


def test_caps_of_openings_on_planes_are_no_walls_as_those_of_groups_are_not() -> None:
    surface = tube(1.0, 4.0, step=0.1)
    bare = dataclasses.replace(surface, groups=np.zeros_like(surface.groups), names=("wall",))
    planes = [
        OpeningPlane(name, (x, 0.0, 0.0), (direction, 0.0, 0.0))
        for name, x, direction in (("in", 0.0, -1.0), ("out", 4.0, 1.0))
    ]
    named, on_planes = voxelise(surface, 0.1, ("inlet", "outlet")), voxelise(bare, 0.1, planes)
    near, other = wall_distances(named, surface, 0.25), wall_distances(on_planes, bare, 0.25)
    np.testing.assert_array_equal(near.numbers, other.numbers)
    np.testing.assert_array_equal(near.distances, other.distances)
    links, others = (
        wall_links(lattice, geometry, DIRECTIONS)
        for lattice, geometry in ((named, surface), (on_planes, bare))
    )
    np.testing.assert_array_equal(links.numbers, others.numbers)
    np.testing.assert_array_equal(links.fractions, others.fractions)


def test_walls_of_another_limb_behind_an_opening_stay_walls() -> None:
    """A channel that ends at x = 20 and passes there again, a little farther."""
    boxes = [(0, 20, 0, 8), (0, 8, -16, 0), (8, 23.5, -16, -8), (21, 23.5, -8, 20)]
    surface = _flat_walls(boxes, 8.0)
    planes = (
        OpeningPlane("in", (20.0, 4.0, 4.0), (1.0, 0.0, 0.0)),
        OpeningPlane("out", (22.25, 20.0, 4.0), (0.0, 1.0, 0.0)),
    )
    lattice = voxelise(surface, 0.5, planes)
    kept = walls_of(lattice, surface).corners.mean(axis=1)
    middles = surface.corners.mean(axis=1)
    lost = middles[~(np.abs(middles[:, None] - kept).max(axis=2) < 1e-9).any(axis=1)]
    at_ends = np.isclose(lost[:, 0], 20.0) | np.isclose(lost[:, 1], 20.0)
    assert at_ends.all()
    assert len(lost) == 4
    near = wall_distances(lattice, surface, 1.0)
    positions = lattice.positions(near.numbers)
    beside = np.isclose(positions[:, 0], 23.0) & (np.abs(positions[:, 1:] - [4.0, 4.0]) < 2.5).all(
        axis=1
    )
    assert beside.sum() > 50
    np.testing.assert_allclose(near.distances[beside], 0.5)


def _flat_walls(boxes: list[tuple[float, float, float, float]], height: float) -> Surface:
    """The surface of what boxes (x, x, y, y) cover together, up to a height; their edges form a grid."""
    xs, ys = (sorted({end for box in boxes for end in box[axis : axis + 2]}) for axis in (0, 2))

    def covered(x: float, y: float) -> bool:
        return any(a < x < b and c < y < d for a, b, c, d in boxes)

    triangles: list[list[tuple[float, float, float]]] = []

    def quad(*corners: tuple[float, float, float]) -> None:
        a, b, c, d = corners
        triangles.extend([[a, b, c], [a, c, d]])

    for x, x2 in itertools.pairwise(xs):
        for y, y2 in itertools.pairwise(ys):
            middle = (x + x2) / 2, (y + y2) / 2
            if not covered(*middle):
                continue
            quad((x, y, 0), (x, y2, 0), (x2, y2, 0), (x2, y, 0))
            quad((x, y, height), (x2, y, height), (x2, y2, height), (x, y2, height))
            if not covered(x2 + 1e-3, middle[1]):
                quad((x2, y, 0), (x2, y2, 0), (x2, y2, height), (x2, y, height))
            if not covered(x - 1e-3, middle[1]):
                quad((x, y, 0), (x, y, height), (x, y2, height), (x, y2, 0))
            if not covered(middle[0], y2 + 1e-3):
                quad((x, y2, 0), (x, y2, height), (x2, y2, height), (x2, y2, 0))
            if not covered(middle[0], y - 1e-3):
                quad((x, y, 0), (x2, y, 0), (x2, y, height), (x, y, height))
    return make_surface(np.array(triangles, float), np.zeros(len(triangles), int), ("wall",))
