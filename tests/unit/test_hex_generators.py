"""Claims about generated meshes: exact surfaces, spectral volumes, names, valid elements."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from refusals import refused
from turned_meshes import connected, face_gap, whole_rows

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_boxes import box_elements
from haloscope.mesh.hexes.hex_generators import (
    SIDE_NAMES,
    box,
    cylinder,
    gordon_hall,
    graded,
    sphere,
)
from haloscope.mesh.hexes.hexes import HexMesh, face_nodes
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.mesh.hexes.shared_meshes import check_boundaries
from haloscope.mesh.hexes.shared_periodic import join_periodic
from haloscope.numerics.elements.element_maps import (
    check_jacobians,
    face_normals,
    gll_weights,
    jacobian_ratios,
    jacobians,
    nodes,
    thickness,
    volume_weights,
)


def _volume(mesh: HexMesh, order: int, region: int | None = None) -> float:
    values = jacobians(nodes(mesh, order)) * volume_weights(order)
    return float((values if region is None else values[mesh.regions == region]).sum())


def _area(mesh: HexMesh, order: int, name: str) -> float:
    element, face = mesh.outer_faces(name).T
    normals = face_normals(nodes(mesh, order))[element, face]
    w = gll_weights(order)
    return float((np.linalg.norm(normals, axis=2) * np.outer(w, w).ravel()).sum())


def _closure(mesh: HexMesh, order: int) -> float:
    """Largest component of any element's sum of normals times area."""
    w = gll_weights(order)
    normals = face_normals(nodes(mesh, order)) * np.outer(w, w).ravel()[:, None]
    return float(np.abs(normals.sum(axis=(1, 2))).max())


def _on_surface(mesh: HexMesh, order: int, name: str) -> np.ndarray:
    element, face = mesh.outer_faces(name).T
    flat = nodes(mesh, order).reshape(mesh.count, -1, 3)
    return flat[element[:, None], face_nodes(order)[face]].reshape(-1, 3)


@pytest.mark.parametrize(
    "mesh",
    [
        box((2, 3, 1), (-1.0, 0.0, 2.0), (1.0, 0.5, 3.0), grading=(4.0, 1.0, 0.2)),
        box((2, 2, 2), warp=0.12),
        box((2, 2, 2), periodic=(True, True, True), warp=0.06),
        box((3, 2, 2), periodic=(True, False, True), warp=-0.1),
    ],
)
@pytest.mark.parametrize("order", [1, 4, 9])
def test_boxes_have_their_volume_and_closed_elements(mesh, order):
    low, high = mesh.corners.min(axis=(0, 1)), mesh.corners.max(axis=(0, 1))
    exact = 1.0 if mesh.mapping else float(np.prod(high - low))
    tolerance = {1: 0.2, 4: 2e-2, 9: 1e-7}[order] if mesh.mapping else 1e-14
    assert _volume(mesh, order) == pytest.approx(exact, rel=tolerance)
    # Cross products of degree N in each direction are integrated exactly.
    assert _closure(mesh, order) < 1e-13
    check_boundaries(World(), whole_rows(mesh))
    check_jacobians(World(), take(mesh, np.arange(mesh.count)), order)


@pytest.mark.parametrize(
    ("make", "volume", "area"),
    [
        (lambda: cylinder(1.5, -1.0, 2.0, core=1, rings=1), 6.75 * math.pi, 9 * math.pi),
        (lambda: sphere(2.0, core=1, rings=1), 32 / 3 * math.pi, 16 * math.pi),
    ],
)
def test_round_volumes_and_walls_converge_spectrally(make, volume, area):
    mesh = make()
    orders = [2, 4, 6, 8, 10]
    volumes = [abs(_volume(mesh, order) / volume - 1) for order in orders]
    areas = [abs(_area(mesh, order, "wall") / area - 1) for order in orders]
    for errors in (volumes, areas):
        assert errors[-1] < 1e-9
        for coarse, fine in itertools.pairwise(errors):
            assert fine < 0.15 * coarse or fine < 1e-13
    assert _closure(mesh, 7) < 1e-12


@pytest.mark.parametrize("order", [1, 2, 5, 15])
def test_nodes_on_round_walls_are_exact(order):
    wall = _on_surface(cylinder(1.5, -1.0, 2.0, core=2, rings=3, layers=2), order, "wall")
    assert np.abs(np.hypot(wall[:, 0], wall[:, 1]) - 1.5).max() < 1e-15 * 4
    mesh = sphere(2.0, core=2, rings=1, outer_radius=3.0, centre=(1.0, 2.0, 3.0))
    wall = _on_surface(mesh, order, "wall") - np.array([1.0, 2.0, 3.0])
    assert np.abs(np.linalg.norm(wall, axis=1) - 3).max() < 1e-14


@pytest.mark.parametrize(("core", "rings"), [(1, 1), (2, 1), (1, 2), (3, 2), (2, 5), (4, 1)])
def test_round_meshes_have_positive_jacobians_and_no_needles(core, rings):
    tube, ball = cylinder(1, 0, 1, core=core, rings=rings), sphere(1, core=core, rings=rings)
    for mesh, least, directions in ((tube, 0.4, 2), (ball, 0.15, 3)):
        assert jacobian_ratios(mesh, 5).min() > least
        check_jacobians(World(), take(mesh, np.arange(mesh.count)), 7)
        sizes = thickness(nodes(mesh, 5))[:, :directions]
        # Elements are as flat as the numbers of layers ask for, and no flatter.
        flatness = (sizes.max(axis=1) / sizes.min(axis=1)).max()
        assert flatness < 1 + 2 * max(rings / core, core / rings)


def test_a_cylinder_names_its_wall_and_ends():
    mesh = cylinder(1.0, 2.0, 5.0, core=2, rings=1, layers=3)
    assert mesh.count == 3 * (4 + 8)
    assert mesh.boundary_names == ("wall", "bottom", "top")
    assert np.abs(_on_surface(mesh, 3, "bottom")[:, 2] - 2).max() < 1e-15 * 2
    assert np.abs(_on_surface(mesh, 3, "top")[:, 2] - 5).max() < 1e-15 * 5
    assert _area(mesh, 9, "top") == pytest.approx(math.pi, rel=1e-12)
    assert [len(mesh.outer_faces(name)) for name in mesh.boundary_names] == [24, 12, 12]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_periodic_cylinder_has_only_its_wall(layers):
    mesh = cylinder(1.0, 0.0, 1.0, layers=layers, periodic=True)
    assert mesh.boundary_names == ("wall",)
    check_boundaries(World(), whole_rows(mesh))
    assert face_gap(mesh, 3, np.array([1e9, 1e9, 1.0])) < 1e-14


def test_a_sphere_in_a_sphere_has_two_regions_that_meet_at_the_radius():
    mesh = sphere(1.0, core=2, rings=2, outer_radius=2.0, outer_rings=3)
    assert mesh.region_names == ("inner", "outer")
    assert mesh.boundary_names == ("wall",)
    assert mesh.count == 8 + 6 * 4 * 5
    assert _volume(mesh, 9, 0) == pytest.approx(4 / 3 * math.pi, rel=1e-10)
    assert _volume(mesh, 9, 1) == pytest.approx(28 / 3 * math.pi, rel=1e-10)
    element, face = np.nonzero(mesh.neighbours >= 0)
    between = mesh.regions[element] != mesh.regions[mesh.neighbours[element, face]]
    assert between.sum() == 2 * 24
    flat = nodes(mesh, 6).reshape(mesh.count, -1, 3)
    skin = flat[element[between][:, None], face_nodes(6)[face[between]]]
    assert np.abs(np.linalg.norm(skin, axis=2) - 1).max() < 1e-14
    check_jacobians(World(), take(mesh, np.arange(mesh.count)), 9)


def test_a_sphere_in_a_box_may_have_a_margin_of_bricks():
    plain = sphere(1.0, box_half_width=2.0, core=2)
    assert plain.boundary_names == SIDE_NAMES
    assert _volume(plain, 9) == pytest.approx(64, rel=1e-12)
    mesh = sphere(1.0, box_half_width=2.0, core=2, margin=1.0, margin_layers=2, centre=(5, 0, 0))
    assert mesh.region_names == ("inner", "outer", "margin")
    assert mesh.boundary_names == SIDE_NAMES
    assert mesh.count - plain.count == 6**3 - 2**3
    assert _volume(mesh, 9, 0) == pytest.approx(4 / 3 * math.pi, rel=1e-10)
    assert _volume(mesh, 3, 2) == pytest.approx(6**3 - 4**3, rel=1e-14)
    assert (_on_surface(mesh, 3, "x+")[:, 0] == 8).all()
    assert face_gap(mesh, 6) < 1e-14
    check_boundaries(World(), whole_rows(mesh))
    check_jacobians(World(), take(mesh, np.arange(mesh.count)), 9)
    bricks = mesh.corners[mesh.regions == 2]
    assert np.abs(bricks - np.array([5, 0, 0])).max(axis=2).min() >= 2 - 1e-12


def test_a_warp_moves_inner_faces_of_periodic_boxes_but_no_walls():
    periodic = box((2, 2, 2), periodic=(True, True, True), warp=0.06)
    straight = nodes(box((2, 2, 2), periodic=(True, True, True)), 7)
    moved = nodes(periodic, 7) - straight
    assert 0.05 < np.abs(moved).max() <= 0.06 + 1e-12
    assert np.abs(moved[:, :, :, -1]).max() > 0.03
    walls = box((2, 2, 2), warp=0.12)
    for name, axis, place in (("x-", 0, 0.0), ("z+", 2, 1.0)):
        assert np.abs(_on_surface(walls, 5, name)[:, axis] - place).max() < 1e-15


def test_grading_sets_the_ratio_of_the_last_element_to_the_first():
    planes = graded(5, 1.0, 3.0, 4.0)
    sizes = np.diff(planes)
    assert (planes[0], planes[-1]) == (1.0, 3.0)
    assert sizes[-1] / sizes[0] == pytest.approx(4)
    assert np.ptp(sizes[1:] / sizes[:-1]) < 1e-12
    mesh = box((5, 1, 1), (1.0, 0.0, 0.0), (3.0, 1.0, 1.0), grading=(4.0, 1.0, 1.0))
    np.testing.assert_allclose(thickness(nodes(mesh, 3))[:, 0], sizes, rtol=1e-13)


def test_gordon_hall_keeps_its_surface_and_repeats_trilinear_blends():
    def bent(p):
        x, y, z = p[..., 0], p[..., 1], p[..., 2]
        return np.stack(
            [x**3 * np.cos(y * z), y + 0.2 * y**3 * x**2, z * np.exp(0.1 * x**2)], axis=-1
        )

    points = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    volume = gordon_hall(bent)
    for axis in range(3):
        for side in (-1.0, 1.0):
            face = points.copy()
            face[:, axis] = side
            np.testing.assert_allclose(volume(face), bent(face), atol=1e-15)
    inside = np.abs(volume(points) - bent(points)).max()
    assert inside > 1e-3
    scaled = gordon_hall(lambda p: p * np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(scaled(points), points * np.array([1.0, 2.0, 3.0]), atol=1e-15)
    ruled = gordon_hall(bent, (0, 1))
    side = points.copy()
    side[:, 1] = -1
    np.testing.assert_allclose(ruled(side), bent(side), atol=1e-15)


def test_geometry_nodes_of_a_high_order_stand_in_for_the_mapping():
    mesh = sphere(1.0, order=8)
    assert mesh.coordinates.shape[1:] == (9, 9, 9, 3)
    exact = nodes(mesh, 6)
    interpolated = nodes(dataclasses.replace(mesh, mapping=None), 6)
    assert 0 < np.abs(exact - interpolated).max() < 1e-7
    chosen = np.array([3, 17, 55])
    assert (nodes(mesh, 6, chosen) == exact[chosen]).all()


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (lambda: box((0, 1, 1)), {"location": r"elements = \[0, 1, 1\]$", "allowed": "at least 1"}),
        (
            lambda: box((2**11, 2**11, 2**11)),
            {"location": "elements = ", "allowed": r"fewer than 2\^31"},
        ),
        (
            lambda: box((1, 1, 1), (0, 0, 1), (1, 1, 1)),
            {"location": "^box from", "problem": "no volume"},
        ),
        (
            lambda: box((1, 1, 1), upper=(1, 1, math.nan)),
            {"location": "^box from", "problem": "no volume"},
        ),
        (
            lambda: box((1, 1, 2), grading=(1, 1, 0)),
            {"location": "grading = 0$", "allowed": "0.001 to 1000"},
        ),
        (lambda: cylinder(-1, 0, 1), {"location": "radius = -1$", "allowed": "above 0"}),
        (lambda: cylinder(1, 1, 1), {"location": "top - bottom = 0$", "allowed": "above 0"}),
        (lambda: cylinder(1, 0, 1, rings=0), {"location": "core, rings, layers"}),
        (lambda: cylinder(1, 0, 1, order=0), {"location": "order = 0$", "allowed": "at least 1"}),
        (lambda: sphere(math.inf), {"location": "radius = inf$"}),
        (lambda: sphere(1, core=0), {"location": "core, rings"}),
        (
            lambda: sphere(1, outer_radius=0.5),
            {"location": "outer_radius = 0.5$", "allowed": "above the radius of the sphere, 1$"},
        ),
        (lambda: sphere(1, box_half_width=1.0), {"location": "box_half_width = 1$"}),
        (lambda: sphere(1, outer_radius=2, outer_rings=0), {"location": "outer_rings = 0$"}),
        (
            lambda: sphere(1, margin=1.0, margin_layers=1),
            {"problem": "no box", "remedy": "box_half_width"},
        ),
        (lambda: sphere(1, box_half_width=2, margin=1.0), {"location": "margin_layers = 0$"}),
        (lambda: sphere(1, box_half_width=2, margin_layers=1), {"location": "margin = 0$"}),
    ],
)
def test_wrong_sizes_are_refused(call, fields):
    with refused(**fields):
        call()


_BOXES = [
    {"elements": (3, 2, 4), "grading": (2.0, 1.0, 0.5)},
    {"elements": (3, 2, 4), "periodic": (True, False, True), "warp": 0.05},
    {"elements": (1, 1, 2), "periodic": (True, True, True)},
]


@pytest.mark.parametrize("settings", _BOXES)
def test_what_lies_behind_a_brick_is_what_matching_its_corners_finds(settings):
    mesh = box(**settings)
    periodic = settings.get("periodic", (False, False, False))
    # Sides of a box that is not closed yet go by the places of their centres.
    wide = box(settings["elements"], grading=settings.get("grading", (1.0, 1.0, 1.0)))
    wanted = connected(
        mesh.coordinates,
        mesh.vertices,
        boundaries=wide.boundaries,
        boundary_names=SIDE_NAMES,
    )
    for axis in range(3):
        if periodic[axis]:
            x, y, z = np.eye(3)[axis]
            pair = "xyz"[axis] + "-", "xyz"[axis] + "+", (x, y, z)
            wanted = join_periodic(World(), whole_rows(wanted), pair).whole_mesh()
    assert mesh.boundary_names == wanted.boundary_names
    for name in ("neighbours", "neighbour_faces", "orientations", "boundaries"):
        actual, expected = getattr(mesh, name), getattr(wanted, name)
        assert actual.dtype == expected.dtype
        assert np.array_equal(actual, expected), name


@pytest.mark.parametrize("settings", _BOXES)
def test_some_elements_of_a_box_are_those_of_the_whole(settings):
    mesh = box(**settings)
    chosen = np.random.default_rng(0).permutation(mesh.count)[: mesh.count // 2 + 1]
    rows = box_elements(chosen, **settings)
    assert (rows.elements == chosen).all()
    assert rows.whole == mesh.count
    assert rows.mesh.boundary_names == mesh.boundary_names
    for name in ("coordinates", "vertices", "orientations", "boundaries", "regions"):
        assert np.array_equal(getattr(rows.mesh, name), getattr(mesh, name)[chosen]), name
    behind = np.where(mesh.neighbours < 0, -1, 6 * mesh.neighbours + mesh.neighbour_faces)
    assert np.array_equal(rows.behind, behind[chosen])
    assert np.array_equal(nodes(rows.mesh, 4), nodes(mesh, 4, chosen))
