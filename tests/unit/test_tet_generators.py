"""Claims about generated tetrahedra: exact volumes, closed surfaces, names, conforming cuts, mirrors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from refusals import refused

from haloscope.mesh.tets import tet_generators
from haloscope.mesh.tets.tet_files import tet_quality
from haloscope.mesh.tets.tet_generators import (
    BOX_SIDES,
    ChannelCells,
    Plane,
    channel_plane,
    cylinder_channel,
    cylinder_slice,
    draw_out,
    tet_box,
    tet_box_of_planes,
    triangles_of_squares,
)
from haloscope.mesh.tets.tets import TetMesh, area_vectors, make_tet_mesh


def _areas(mesh: TetMesh) -> dict[str, np.ndarray]:
    return {
        name: area_vectors(mesh.nodes, faces).sum(axis=0) for name, faces in mesh.boundaries.items()
    }


def _require_sound(mesh: TetMesh) -> None:
    """Each face has one neighbour or one name, and names close the surface."""
    inside = (mesh.neighbours >= 0).sum()
    assert inside + sum(map(len, mesh.boundaries.values())) == 4 * mesh.count
    assert (mesh.volumes > 0).all()
    scale = sum(np.abs(area_vectors(mesh.nodes, faces)).sum() for faces in mesh.boundaries.values())
    assert np.abs(np.sum([*_areas(mesh).values()], axis=0)).max() < 1e-13 * scale
    # The divergence theorem: what the surface holds is what the elements hold.
    held = sum(
        np.einsum("nx,nx->", area_vectors(mesh.nodes, faces), mesh.nodes[faces].mean(axis=1))
        for faces in mesh.boundaries.values()
    )
    assert held / 3 == pytest.approx(mesh.volumes.sum(), rel=1e-12)


def test_a_box_has_six_kuhn_elements_a_brick_and_exact_areas():
    mesh = tet_box((2, 3, 4), (-1.0, 0.0, 1.0), (1.0, 3.0, 7.0))
    _require_sound(mesh)
    assert mesh.count == 6 * 24
    assert len(mesh.nodes) == 3 * 4 * 5
    np.testing.assert_allclose(mesh.volumes, 36 / 144, rtol=1e-13)
    assert tuple(mesh.boundaries) == BOX_SIDES
    for number, (name, area) in enumerate(_areas(mesh).items()):
        axis, side = divmod(number, 2)
        expected = np.zeros(3)
        expected[axis] = (2 * side - 1) * (18, 12, 6)[axis]
        np.testing.assert_allclose(area, expected, atol=1e-13)
        plane = mesh.nodes[mesh.boundaries[name]][..., axis]
        assert (plane == ((-1, 1), (0, 3), (1, 7))[axis][side]).all()
        assert len(mesh.boundaries[name]) == 2 * (12, 8, 6)[axis]
    # Kuhn: every element holds the diagonal of its brick.
    corners = mesh.nodes[mesh.tets] / [1, 1, 1.5]
    lengths = np.linalg.norm(corners[:, :, None] - corners[:, None], axis=-1)
    np.testing.assert_allclose(lengths.max(axis=(1, 2)), np.sqrt(3), rtol=1e-13)


def test_nodes_of_a_box_count_along_x_first():
    mesh = tet_box((2, 1, 1))
    assert mesh.nodes[:3].tolist() == [[0, 0, 0], [0.5, 0, 0], [1, 0, 0]]
    assert mesh.nodes[6].tolist() == [0, 0, 1]


def test_a_shape_bends_a_box_and_leaves_it_conforming():
    quarter = tet_box(
        (2, 6, 2),
        (1.0, 0.0, 0.0),
        (2.0, np.pi / 2, 1.0),
        grading=(2.0, 1.0, 1.0),
        shape=lambda x: np.stack(
            [x[:, 0] * np.cos(x[:, 1]), x[:, 0] * np.sin(x[:, 1]), x[:, 2]], 1
        ),
    )
    _require_sound(quarter)
    step = np.pi / 12
    assert quarter.volumes.sum() == pytest.approx(6 * np.sin(step) * 3 / 2, rel=1e-12)


def test_planes_of_a_box_are_met():
    mesh = tet_box_of_planes(([0, 1, 4], [0, 2], [1, 2, 3, 7]))
    assert set(mesh.nodes[:, 0]) == {0, 1, 4}
    assert mesh.volumes.sum() == pytest.approx(4 * 2 * 6)


def test_prisms_meet_whatever_the_plane_and_its_ranks_are():
    rng = np.random.default_rng(2)
    numbers = np.arange(25).reshape(5, 5)
    corners = np.stack([numbers[:-1, :-1], numbers[:-1, 1:], numbers[1:, 1:], numbers[1:, :-1]], -1)
    points = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), -1).reshape(-1, 2)
    points += rng.uniform(-0.2, 0.2, points.shape)
    rim = np.concatenate(
        [numbers[0], numbers[1:, -1], numbers[-1, -2::-1], numbers[-2:0:-1, 0], [0]]
    )
    for mirrored in (False, True):
        falling = rng.random(16) < 0.5
        plane = Plane(
            points,
            triangles_of_squares(corners.reshape(-1, 4), falling),
            rng.permutation(25) // 3,
            {"side": np.stack([rim[:-1], rim[1:]], 1)},
        )
        mesh = make_tet_mesh(*draw_out(plane, np.arange(4.0), ("end", "end"), mirrored=mirrored))
        _require_sound(mesh)
        assert mesh.count == 32 * 3 * 3
        assert {name: len(faces) for name, faces in mesh.boundaries.items()} == {
            "side": 96,
            "end": 64,
        }


def _polygon(mesh: TetMesh, axis: tuple[float, float]) -> float:
    """Area of the hole from its corners."""
    at = mesh.nodes[np.unique(mesh.boundaries["cylinder"])]
    x, y = (at[at[:, 2] == 0][:, :2] - axis).T
    order = np.argsort(np.arctan2(y, x))
    x, y = x[order], y[order]
    return float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) / 2)


@pytest.mark.parametrize(("resolution", "layers"), [(4, 3), (7, 4)])
def test_the_channel_is_that_of_the_benchmark(resolution, layers):
    mesh = cylinder_channel(resolution, layers=layers)
    _require_sound(mesh)
    assert list(mesh.boundaries) == ["inlet", "outlet", "walls", "cylinder"]
    assert mesh.nodes.min(axis=0).tolist() == [0, 0, 0]
    assert mesh.nodes.max(axis=0).tolist() == [2.5, 0.41, 0.41]
    round_nodes = mesh.nodes[np.unique(mesh.boundaries["cylinder"])]
    radius = np.hypot(round_nodes[:, 0] - 0.5, round_nodes[:, 1] - 0.2)
    np.testing.assert_allclose(radius, 0.05, rtol=1e-14)
    hole = _polygon(mesh, (0.5, 0.2))
    assert hole == pytest.approx(np.pi * 0.05**2, rel=(np.pi / 2 / resolution) ** 2)
    assert mesh.volumes.sum() == pytest.approx((2.5 * 0.41 - hole) * 0.41, rel=1e-12)
    areas = _areas(mesh)
    np.testing.assert_allclose(areas["inlet"], [-(0.41**2), 0, 0], atol=1e-15)
    np.testing.assert_allclose(areas["outlet"], [0.41**2, 0, 0], atol=1e-15)
    # All triangles of the walls lie on one of the four sides, and cover them.
    x = mesh.nodes[mesh.boundaries["walls"]]
    on = [(x[..., a] == value).all(axis=1) for a in (1, 2) for value in (0, 0.41)]
    assert (np.sum(on, axis=0) == 1).all()
    walls = np.linalg.norm(area_vectors(mesh.nodes, mesh.boundaries["walls"]), axis=1).sum()
    assert walls == pytest.approx(2 * 2.5 * 0.41 + 2 * (2.5 * 0.41 - hole), rel=1e-12)
    assert tet_quality(mesh).sicn.min() > 0.1


def test_the_stated_numbers_of_elements_are_those_of_the_channel():
    fine = channel_plane(ChannelCells(29, 29, 6.0, 6.0), 0.5, 2.5)
    assert 3 * len(fine.triangles) * 29 == 978_924
    coarse = channel_plane(ChannelCells(14, 14, 6.0, 6.0), 0.5, 2.5)
    assert 3 * len(coarse.triangles) * 15 == 118_440


def test_rings_grow_by_the_stated_ratio():
    plane = channel_plane(ChannelCells(6, 8, 5.0, 2.0), 0.5, 2.5)
    ring = plane.points[: 9 * 24].reshape(9, 24, 2) - [0.5, 0.2]
    steps = np.diff(np.linalg.norm(ring, axis=-1), axis=0)
    np.testing.assert_allclose(steps[-1] / steps[0], 5.0, rtol=1e-12)
    np.testing.assert_allclose(np.diff(steps / steps[0], axis=1), 0, atol=1e-11)
    behind = np.unique(plane.points[plane.points[:, 0] > 0.7 - 1e-12, 0])
    assert np.diff(behind)[-1] / np.diff(behind)[0] == pytest.approx(2)


def _keys(places: np.ndarray) -> np.ndarray:
    return np.round(places * 1e9).astype(np.int64)


@pytest.mark.parametrize("axis", [1, 2])
def test_a_symmetric_channel_is_cut_like_its_mirror_image(monkeypatch, axis):
    # With the axis in the middle both halves are the same.
    monkeypatch.setattr(tet_generators, "CHANNEL_HEIGHT", 0.4)
    mesh = cylinder_channel(6, layers=4)
    height = mesh.nodes[:, axis].max()
    mirrored = mesh.nodes.copy()
    mirrored[:, axis] = height - mirrored[:, axis]
    order, image = np.lexsort(_keys(mesh.nodes).T), np.lexsort(_keys(mirrored).T)
    assert (_keys(mesh.nodes)[order] == _keys(mirrored)[image]).all()
    partner = np.empty(len(order), np.int64)
    partner[image] = order
    one = np.sort(mesh.tets, axis=1)
    other = np.sort(partner[mesh.tets], axis=1)
    assert (np.unique(one, axis=0) == np.unique(other, axis=0)).all()


@pytest.mark.parametrize("layers", [1, 2])
def test_the_slice_has_a_front_and_a_back(layers):
    mesh = cylinder_slice(8, layers=layers)
    _require_sound(mesh)
    assert set(mesh.boundaries) == {"inlet", "outlet", "walls", "cylinder", "front", "back"}
    assert mesh.nodes.max(axis=0) == pytest.approx([2.2, 0.41, layers * 0.41 / 8], rel=1e-15)
    areas, hole = _areas(mesh), _polygon(mesh, (0.2, 0.2))
    np.testing.assert_allclose(areas["front"], [0, 0, 2.2 * 0.41 - hole], atol=1e-14)
    np.testing.assert_allclose(areas["back"], -areas["front"], atol=1e-14)
    assert cylinder_slice(8, thickness=0.02).nodes[:, 2].max() == 0.02


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tet_box((0, 1, 1)), r"cells = \[0, 1, 1\]"),
        (lambda: tet_box((2000, 2000, 2000)), r"cells = \[2000, 2000, 2000\].* 2\^31"),
        (lambda: tet_box((100, 100, 80_000)), r"layers of 20000 prisms make 2\^31 tetrahedra"),
        (lambda: tet_box((1, 1, 1), (0, 0, 0), (1, -1, 1)), "has no volume"),
        (lambda: tet_box((2, 2, 2), grading=(0, 1, 1)), "grading = 0"),
        (lambda: tet_box((1, 1, 1), shape=lambda x: x * [1, 1, 0]), "has no volume|have no volume"),
        (lambda: tet_box((2, 1, 1), shape=lambda x: x - 0.9 * (x[:, :1] == 0.5)), "they overlap"),
        (lambda: tet_box((1, 1, 1), shape=lambda x: x / 0), "allowed: finite numbers"),
        (lambda: tet_box_of_planes(([0, 1], [0, 0], [0, 1])), "planes along y: .*ascending"),
        (lambda: cylinder_channel(3), "resolution = 3.*at least 4"),
        (lambda: cylinder_channel(8, rings=1), "rings = 1.*at least 2"),
        (lambda: cylinder_channel(8, layers=0), "layers = 0"),
        (lambda: cylinder_channel(20_000), r"tetrahedra around the cylinder = .*2\^31"),
        (lambda: cylinder_channel(8, growth=0.5), "growth = 0.5: out of range; allowed: 1 to"),
        (lambda: cylinder_channel(8, stretch=float("nan")), "stretch = nan: out of range"),
        (
            lambda: cylinder_slice(8, thickness=0.0),
            "thickness = 0: out of range; allowed: a length",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_out_of_range_are_refused(make, words):
    with refused() as refusal:
        make()
    assert re.search(words, refusal.text)
    assert "\n" not in refusal.text
