"""Claims about lattices in geometries: counts, parity, openings, slabs, refusals, runs."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from closed_surfaces import DIRECTIONS, cuboid, moved, random_turn, sphere, tube
from lattice_links import wall_links
from refusals import refused

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_runs import Runs, raster, unraster
from haloscope.mesh.lattice.openings import OpeningPlane, grid_of
from haloscope.mesh.lattice.shapes import Box, Grid, Tube
from haloscope.mesh.lattice.voxels import Lattice, inside_runs, voxelise
from haloscope.mesh.lattice.wall_links import wall_distances
from haloscope.mesh.surfaces.surface_generators import bifurcation, tree
from haloscope.mesh.surfaces.surfaces import Surface, make_surface


def _winding_numbers(surface: Surface, positions: np.ndarray) -> np.ndarray:
    """Solid angle of all triangles over 4 pi (van Oosterom and Strackee 1983, equation 8)."""
    total = np.zeros(len(positions))
    for corners in surface.corners:
        a, b, c = (corner - positions for corner in corners)
        la, lb, lc = (np.linalg.norm(v, axis=1) for v in (a, b, c))
        triple = np.einsum("ij,ij->i", a, np.cross(b, c))
        below = la * lb * lc + (a * b).sum(1) * lc + (b * c).sum(1) * la + (c * a).sum(1) * lb
        total += np.arctan2(triple, below) / (2 * np.pi)
    return total


def _all_positions(grid: Grid) -> np.ndarray:
    return grid.origin + grid.spacing * unraster(grid.shape, np.arange(np.prod(grid.shape)))


@pytest.mark.parametrize("seed", range(3))
def test_parity_equals_winding_numbers_whatever_the_rotation(seed: int) -> None:
    surface = moved(bifurcation(1.0, 4.2, 8.4, step=0.7), random_turn(seed))
    lattice = voxelise(surface, 1.1, least_across=1)
    everything = inside_runs(surface, lattice.grid, 0, lattice.shape[2])
    winding = _winding_numbers(surface, _all_positions(lattice.grid))
    assert np.abs(winding - np.round(winding)).max() < 1e-9
    np.testing.assert_array_equal(everything.numbers(), np.flatnonzero(winding > 0.5))


def test_rays_through_corners_edges_and_along_faces_keep_their_parity() -> None:
    # All corners, many edges and whole faces fall on lattice points. By the half-open rules low
    # sides are in and high sides out along x, and the other way along y and z.
    cube = cuboid((4, 4, 4))
    grid = Grid((7, 7, 7), np.full(3, -1.0), 1.0)
    coordinates = unraster(grid.shape, inside_runs(cube, grid, 0, 7).numbers())
    assert len(coordinates) == 64
    np.testing.assert_array_equal(coordinates.min(axis=0), [1, 2, 2])
    np.testing.assert_array_equal(coordinates.max(axis=0), [4, 5, 5])
    # Diagonals through lattice points whose places are not exact: k / 49 * 49 is not always k.
    plate = cuboid((3, 49, 49))
    assert inside_runs(plate, Grid((5, 51, 51), np.full(3, -1.0), 1.0), 0, 51).points == 3 * 49**2
    # Octahedron |x| + |y| + |z| <= 4: all points strictly inside, none outside.
    signs = [(i, j, k) for i in (1, -1) for j in (1, -1) for k in (1, -1)]
    corners = [np.diag(np.multiply(4.0, s))[:: int(np.prod(s))] for s in signs]
    octahedron = make_surface(corners, np.zeros(8), ("wall",))
    grid = Grid((11, 11, 11), np.full(3, -5.0), 1.0)
    runs = inside_runs(octahedron, grid, 0, 11)
    height = np.abs(_all_positions(grid)).sum(axis=1)
    assert runs.contains(np.flatnonzero(height < 4)).all()
    assert not runs.contains(np.flatnonzero(height > 4)).any()


def _without(surface: Surface, name: str) -> Surface:
    kept = surface.groups != surface.names.index(name)
    return dataclasses.replace(
        surface, triangles=surface.triangles[kept], groups=surface.groups[kept]
    )


def _joined(*parts: Surface) -> Surface:
    corners = np.concatenate([part.corners for part in parts])
    return make_surface(corners, np.zeros(len(corners)), ("wall",))


@pytest.mark.parametrize("seed", range(3))
def test_a_surface_that_overlaps_itself_is_refused_with_a_place_in_the_overlap(seed: int) -> None:
    turn = random_turn(seed)
    one, other = (moved(sphere(2), turn, turn @ (x, 0.0, 0.0)) for x in (0.0, 1.5))
    surface = _joined(one, other)
    turned_in = dataclasses.replace(surface, triangles=surface.triangles[:, ::-1])
    with refused(problem="overlaps itself"):
        voxelise(turned_in, 0.15)
    with refused(problem="overlaps itself", remedy="boolean union") as refusal:
        voxelise(surface, 0.15)
    overlap = re.search(r"(\d+) lattice points .* one at \((.*)\) m$", refusal.error.problem)
    assert overlap is not None
    place = np.array(overlap[2].split(","), float)
    assert _winding_numbers(surface, place[None]) > 1.5
    everywhere = _all_positions(grid_of(surface, 0.15, ()))
    assert int(overlap[1]) == (_winding_numbers(surface, everywhere) > 1.5).sum()


def test_parts_side_by_side_and_holes_that_face_inward_do_not_overlap() -> None:
    inner = sphere(2)
    hole = dataclasses.replace(inner, points=inner.points * 0.4, triangles=inner.triangles[:, ::-1])
    hollow = voxelise(_joined(inner, hole), 0.1)
    assert not hollow.contains(raster(hollow.shape, np.array([hollow.shape]) // 2)).any()
    with refused(problem="overlaps itself"):
        voxelise(_joined(inner, dataclasses.replace(hole, triangles=inner.triangles)), 0.1)
    beside = _joined(cuboid((2, 2, 2)), cuboid((2, 2, 2), (2, 0, 0)))
    assert any("four or more" in line for line in voxelise(beside, 0.3).notices)


def test_parts_that_touch_on_a_slanted_plane_of_points_do_not_overlap() -> None:
    """Cut into other triangles there: crossings of the two differ by rounding."""
    for step in (1, 2, 3, 4):
        one = _prism([[0, 0], [2, 0], [2 + step, 4], [0, 4]], 0.0, 4.0)
        other = _prism([[2 - step / 4, -1], [9, -1], [9, 5], [2 + step * 1.25, 5]], -1.3, 5.1)
        for spacing in (0.5, 1 / 3, 0.25):
            voxelise(_joined(one, other), spacing)


def _prism(corners: list[list[float]], low: float, high: float) -> Surface:
    """A column over a convex polygon, counter-clockwise in x and y, that is triangulated as a fan."""
    ring = np.array(corners, float)
    count = len(ring)
    points = np.concatenate([np.insert(ring, 2, z, axis=1) for z in (low, high)])
    faces = [(0, n + 1, n) for n in range(1, count - 1)]
    faces += [(count, count + n, count + n + 1) for n in range(1, count - 1)]
    for n in range(count):
        m = (n + 1) % count
        faces += [(n, m, count + m), (n, count + m, count + n)]
    return make_surface(points[np.array(faces)], np.zeros(len(faces), int), ("wall",))


def test_points_in_a_sphere_converge_to_its_volume() -> None:
    surface = moved(sphere(4), random_turn(1), (0.3, -0.2, 0.1))
    errors = [
        abs(voxelise(surface, dx).count * dx**3 / surface.volume - 1) for dx in (0.2, 0.1, 0.025)
    ]
    assert errors[0] < 0.08
    assert errors[1] < 0.02
    assert errors[2] < 0.002


def test_points_in_a_tube_are_those_within_its_radius() -> None:
    lattice = voxelise(Tube(1.0, 2.0, axis=1), 0.1)
    assert lattice.periodic == (False, True, False)
    assert lattice.shape == (20, 20, 20)
    centres = (np.arange(20) + 0.5) / 10 - 1
    expected = 20 * int((centres[:, None] ** 2 + centres**2 < 1).sum())
    assert lattice.count == expected
    assert (np.hypot(*lattice.positions(lattice.points)[:, [0, 2]].T) < 1).all()
    fine = voxelise(Tube(1.0, 0.5), 0.0125)
    assert fine.count * 0.0125**3 == pytest.approx(np.pi / 2, rel=1e-3)


def test_a_box_has_walls_halfway_and_openings_on_points() -> None:
    lattice = voxelise(Box((1.0, 0.6, 0.85), ("open", "periodic", "walls")), 0.1)
    assert lattice.shape == (11, 6, 9)
    np.testing.assert_allclose(lattice.origin, [0.0, 0.05, 0.025])
    assert lattice.count == 11 * 6 * 9
    assert [opening.name for opening in lattice.openings] == ["x_low", "x_high"]
    assert [(o.axis, o.direction, o.plane) for o in lattice.openings] == [(0, -1, 0), (0, 1, 10)]
    tags = lattice.opening_numbers(lattice.points)
    x = lattice.coordinates(lattice.points)[:, 0]
    np.testing.assert_array_equal(tags, np.where(x == 0, 0, np.where(x == 10, 1, -1)))


class _Meeting(World):
    """One of several ranks that are threads of this process."""

    def __init__(self, rank: int, size: int, table: list, barrier: threading.Barrier) -> None:
        self.rank, self.size, self.table, self.barrier_ = rank, size, table, barrier

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        self.barrier_.wait()
        self.table[self.rank] = list(parts)
        self.barrier_.wait()
        return [self.table[rank][self.rank].copy() for rank in range(self.size)]


def _on_ranks(size: int, work: Callable[[World], object]) -> list[object]:
    table, barrier = [None] * size, threading.Barrier(size, timeout=60)
    results: list[object] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = work(_Meeting(rank, size, table, barrier))
        except InputError as error:
            results[rank] = str(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_slabs_of_several_ranks_make_up_the_whole() -> None:
    surface = bifurcation(1.0, 4.2, 8.4, step=0.5)
    names = ("inlet", "outlet-1", "outlet-2")
    whole = voxelise(surface, 0.25, names)
    parts = _on_ranks(3, lambda world: voxelise(surface, 0.25, names, world=world))
    assert all(isinstance(part, Lattice) for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.points for part in parts]), whole.points)
    assert {part.count for part in parts} == {whole.count}
    assert len({part.slab for part in parts}) == 3
    links = [wall_links(part, surface, DIRECTIONS) for part in parts]
    expected = wall_links(whole, surface, DIRECTIONS)
    np.testing.assert_array_equal(np.concatenate([f.numbers for f in links]), expected.numbers)
    np.testing.assert_array_equal(np.concatenate([f.fractions for f in links]), expected.fractions)
    near = [wall_distances(part, surface, 0.5) for part in parts]
    reference = wall_distances(whole, surface, 0.5)
    np.testing.assert_array_equal(np.concatenate([d.numbers for d in near]), reference.numbers)
    np.testing.assert_allclose(
        np.concatenate([d.distances for d in near]), reference.distances, atol=1e-12
    )


def test_all_ranks_refuse_what_one_finds_too_narrow() -> None:
    surface = bifurcation(1.0, 4.2, 8.4, 0.15, step=0.2)
    said = _on_ranks(3, lambda world: voxelise(surface, 0.26, world=world))
    assert len(set(map(str, said))) == 1
    assert "too coarse: a vessel is only about 4 points across at" in str(said[0])


def test_groups_become_openings_on_planes_of_points() -> None:
    # Caps that fall on planes of points, and one that does not.
    for length, last in ((8.0, 16), (8.2, 16), (8.3, 17)):
        surface = tube(2.0, length)
        lattice = voxelise(surface, 0.5, ("outlet", "inlet"))
        outlet, inlet = lattice.openings
        assert (inlet.axis, inlet.direction, inlet.plane) == (0, -1, 0)
        assert (outlet.axis, outlet.direction, outlet.plane) == (0, 1, last)
        coordinates = lattice.coordinates(lattice.points)
        counts = np.bincount(coordinates[:, 0], minlength=last + 1)
        # The same cross-section throughout: nothing is missing or loose at the ends.
        assert counts.min() == counts.max() == len(inlet.numbers) == len(outlet.numbers)
        tags = lattice.opening_numbers(lattice.points)
        np.testing.assert_array_equal(tags == 1, coordinates[:, 0] == 0)
        np.testing.assert_array_equal(tags == 0, coordinates[:, 0] == last)


def test_a_plane_cuts_one_branch_and_leaves_the_other() -> None:
    surface = bifurcation(1.0, 4.2, 8.4, step=0.4)
    plane = OpeningPlane("early", (10.15, 2.3, 0.0), (1.0, 0.0, 0.0))
    lattice = voxelise(surface, 0.2, ("inlet", plane, "outlet-2"))
    x, y, _ = lattice.positions(lattice.points).T
    assert x[y > 0].max() == pytest.approx(10.2)
    assert x[y < 0].max() == pytest.approx(surface.bounds[1][0], abs=0.1 + 1e-9)
    early = lattice.openings[1]
    assert (lattice.positions(early.numbers)[:, 1] > 0).all()
    # Every point of an opening has a neighbour within.
    assert lattice.contains(early.numbers - 1).all()
    assert not lattice.contains(early.numbers + 1).any()
    assert "left out 1 part of the fluid without an opening" in lattice.notices[0]
    both = dataclasses.replace(plane, point=(10.15, 0.0, 0.0), radius=3.0)
    lattice = voxelise(surface, 0.2, ("inlet", both))
    assert lattice.positions(lattice.points)[:, 0].max() == pytest.approx(10.2)


def test_an_opening_in_a_widening_vessel_has_the_section_of_the_plane_before_it() -> None:
    octahedron = moved(sphere(0), 10.3 * np.eye(3))
    lattice = voxelise(octahedron, 1.0, (OpeningPlane("mouth", (-4.0, 0.0, 0.0), (1, 0, 0)),))
    mouth = lattice.openings[0]
    x = lattice.coordinates(lattice.points)[:, 0]
    assert x.max() == mouth.plane
    np.testing.assert_array_equal(lattice.points[x == mouth.plane], mouth.numbers)
    np.testing.assert_array_equal(lattice.points[x == mouth.plane - 1] + 1, mouth.numbers)


def test_a_short_vessel_between_openings_is_not_narrow() -> None:
    disc = tube(2.0, 1.0)
    assert voxelise(disc, 1 / 3, ("inlet", "outlet")).shape[0] == 4
    with refused(problem="too coarse"):
        voxelise(disc, 1 / 3)


def test_pockets_are_left_out_and_told() -> None:
    large, small = cuboid((6, 6, 6)), cuboid((2, 2, 2), low=(8, 0, 0))
    both = make_surface(np.concatenate([large.corners, small.corners]), np.zeros(24), ("wall",))
    lattice = voxelise(both, 0.5, least_across=3)
    assert lattice.count == 12**3
    assert "left out 1 part of the fluid apart from the largest, with 64 of" in (lattice.notices[0])


_TUBE = tube(1.0, 4.0)


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (
            lambda: voxelise(_without(_TUBE, "inlet"), 0.1),
            {"location": "^surface$", "problem": "leaks: .* the first at"},
        ),
        (lambda: voxelise(_TUBE, 0.1, ("inflow",)), {"problem": "no group 'inflow'"}),
        (
            lambda: voxelise(_TUBE, 0.1, ("inlet", "inlet")),
            {"location": "'inlet'", "problem": "two openings have this name"},
        ),
        (
            lambda: voxelise(_TUBE, 0.1, ("inlet", "wall")),
            {
                "location": "opening 'wall'",
                "problem": "group of the surface is not a flat end",
                "allowed": "inlet, outlet$",
                "remedy": "one of these groups, or give a position",
            },
        ),
        (
            lambda: voxelise(sphere(2), 0.1, ("wall",)),
            {
                "problem": "not a flat end of a vessel",
                "allowed": "none",
                "remedy": "a group for each flat end",
            },
        ),
        (
            lambda: voxelise(
                _TUBE, 0.1, (OpeningPlane("askew", (1.0, 0.0, 0.0), (1.0, 0.1, 0.0)),)
            ),
            {"allowed": "normals along x, y or z", "remedy": "turn the geometry"},
        ),
        (
            lambda: voxelise(_TUBE, 0.1, (OpeningPlane("far", (2.0, 5.0, 0.0), (1, 0, 0)),)),
            {"location": "opening 'far'", "problem": "outside the surface"},
        ),
        (
            lambda: voxelise(_TUBE, 0.1, (OpeningPlane("far", (9.0, 0.0, 0.0), (1, 0, 0)),)),
            {"location": "opening 'far'", "problem": "outside the surface"},
        ),
        (
            lambda: voxelise(_TUBE, 0.1, (OpeningPlane("no", (1.0, 0, 0), (0, 0, 0)),)),
            {"location": "opening 'no'", "allowed": "normals along x, y or z"},
        ),
        (
            lambda: voxelise(
                _TUBE, 0.1, ("inlet", OpeningPlane("twin", (0.1, 0.0, 0.0), (-1, 0, 0)))
            ),
            {"location": "opening 'inlet'", "problem": "opening 'twin' cuts it"},
        ),
        (
            lambda: voxelise(_TUBE, 0.5),
            {"problem": "too coarse: a vessel is only about 4 points across"},
        ),
        (lambda: voxelise(_TUBE, 50.0), {"problem": "no lattice point lies inside .* 50 m"}),
        (lambda: voxelise(_TUBE, 1e-7), {"location": "1e-07 m", "problem": "too many to number"}),
        (lambda: voxelise(_TUBE, -1.0), {"location": "spacing = -1 m", "allowed": "above 0"}),
        (
            lambda: voxelise(Tube(1.0, 4.0), 0.5),
            {"problem": "too coarse", "allowed": "at least 5", "remedy": "at most 0.4 m"},
        ),
        (
            lambda: voxelise(Tube(1.0, 4.0), 0.15),
            {"allowed": "whole number", "remedy": "use a spacing of 0.148"},
        ),
        (
            # 27 spacings of 0.711 fill x, but 16.9 fill y; 0.8 fits both.
            lambda: voxelise(Box((19.2, 12.0, 9.0), ("periodic", "periodic", "walls")), 0.7),
            {"allowed": "whole number", "remedy": "use a spacing of 0.8 m$"},
        ),
        (lambda: voxelise(Tube(1.0, 4.0), 0.1, ("inlet",)), {"problem": "only at its own ends"}),
        (
            lambda: Tube(0.0, 4.0),
            {"location": "radius = 0 m", "problem": "out of range", "allowed": "above 0"},
        ),
        (
            lambda: Box((1.0, -1.0, 1.0), ("walls",) * 3),
            {"location": "length along y = -1 m", "allowed": "above 0"},
        ),
    ],
)
def test_wrong_requests_are_refused_in_one_line(
    make: Callable[[], object], fields: dict[str, str]
) -> None:
    with refused(**fields) as refusal:
        make()
    assert "\n" not in refusal.text


_ENDS = ("inlet", "outlet")
_FORKED = ("inlet", "outlet-1", "outlet-2")


@pytest.mark.parametrize(
    ("surface", "openings", "width"),
    [
        (tube(6.0, 30.0), _ENDS, 12.0),
        (moved(tube(6.0, 30.0), random_turn(2)), (), 12.0),
        (bifurcation(6.0, 30.0, 50.0, step=1.5), _FORKED, 9.5),
    ],
)
def test_the_spacing_that_is_told_for_a_coarse_one_does(surface, openings, width) -> None:
    for spacing in (20.0, 6.66, 5.0, 4.0, 3.0):
        with refused(problem="too coarse", remedy="use at most about ") as refusal:
            voxelise(surface, spacing, openings)
        match = re.search(r"at most about ([0-9.]+) m$", refusal.error.remedy)
        assert match is not None
        enough = float(match[1])
        # Neither too coarse nor much finer than need be.
        assert voxelise(surface, enough, openings).count > 0
        assert voxelise(surface, 0.9 * enough, openings).count > 0
        assert width / 6 < enough < width / 4.5


def test_where_to_try_is_too_much_work_a_guess_is_told_as_such(monkeypatch) -> None:
    monkeypatch.setattr("haloscope.mesh.lattice.voxels._MOST_TRIED", 1e2)
    with refused(remedy="use about 2 m or less .an estimate from this spacing"):
        voxelise(tube(6.0, 30.0), 3.0, _ENDS)


def test_the_least_width_is_told_apart_from_what_is_finer() -> None:
    for seed in range(3):
        turned = moved(tube(1.0, 6.0), random_turn(seed))
        with refused(problem="too coarse"):
            voxelise(turned, 2 / 3.5)
        # The rims of its closed ends are sharp, however it lies, and must not count as narrow.
        assert voxelise(turned, 2 / 6).count > 0


@pytest.mark.parametrize("periodic", [(False,) * 3, (True, False, True), (False, True, True)])
def test_sets_of_runs_equal_sets_of_points(periodic: tuple[bool, bool, bool]) -> None:
    random = np.random.default_rng(4)
    shape = (7, 5, 6)
    one, other = random.random((2, 210)) < 0.35
    mine = Runs.of_points(shape, np.flatnonzero(one))
    np.testing.assert_array_equal(mine.numbers(), np.flatnonzero(one))
    np.testing.assert_array_equal(mine.contains(np.arange(210)), one)
    added, removed = np.flatnonzero(other)[::3], np.flatnonzero(one)[::2]
    expected = one.copy()
    expected[removed] = False
    expected[added] = True
    np.testing.assert_array_equal(mine.changed(removed, added).numbers(), np.flatnonzero(expected))
    for axis, index in ((0, 6), (1, 2), (2, 3)):
        there = one & (unraster(shape, np.arange(210))[:, axis] == index)
        np.testing.assert_array_equal(mine.plane(axis, index), np.flatnonzero(there))
    neighbours = []
    for direction in DIRECTIONS:
        ends = unraster(shape, np.flatnonzero(one)) + direction
        wrapped = np.where(periodic, ends % shape, ends)
        keep = ((wrapped >= 0) & (wrapped < shape)).all(axis=1)
        moved = raster(shape, wrapped)
        neighbours.append((np.flatnonzero(one)[keep], moved[keep]))
    label = np.where(one, np.arange(210), -1)
    for _ in range(210):
        for start, end in neighbours:
            both = one[end]
            np.minimum.at(label, start[both], label[end[both]])
    part = mine.parts(periodic)
    of_point = np.repeat(part, mine.stop - mine.first)
    np.testing.assert_array_equal(
        of_point, np.unique(label[one], return_inverse=True)[1].reshape(-1)
    )


def test_every_outlet_of_a_tree_is_reached() -> None:
    surface = tree(1.0, 6.0, 2, seed=3, step=0.3)
    names = surface.names[1:]
    lattice = voxelise(surface, 0.2, names)
    assert lattice.notices == ()
    assert [opening.name for opening in lattice.openings] == list(names)
    assert lattice.count * 0.2**3 == pytest.approx(surface.volume, rel=0.02)
    for opening in lattice.openings:
        area = abs(surface.normals[surface.group(opening.name)].sum(axis=0)[0])
        assert len(opening.numbers) * 0.04 == pytest.approx(area, rel=0.15)
