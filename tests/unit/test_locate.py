"""Claims about points in curved elements: found where they were put, and told apart outside."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from haloscope.mesh.hexes.hex_generators import box, cylinder, sphere
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.numerics.elements.element_maps import (
    along_all_axes,
    equispaced_nodes,
    gll_basis,
    gll_nodes,
    interpolation_matrix,
    nodes,
    values_at,
)
from haloscope.numerics.elements.locate import (
    BoxBins,
    Locator,
    element_boxes,
    evaluate,
    gll_to_bernstein,
)


def _bent(angle: float) -> HexMesh:
    """One element: a piece of a thick ring, nearly closed, that waves along its axis."""
    order = 8
    line = equispaced_nodes(order)
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    radius, turn = 0.2 + 0.4 * (i + 1), angle * (j + 1) / 2
    places = np.stack(
        [radius * np.cos(turn), radius * np.sin(turn), k + 0.3 * np.sin(2 * turn)], -1
    )
    return dataclasses.replace(box((1, 1, 1)), order=order, coordinates=places[None])


def _rough() -> HexMesh:
    """Elements of order 3 with their nodes moved at random."""
    mesh = box((2, 2, 2))
    even = along_all_axes(interpolation_matrix([-1, 1], equispaced_nodes(3)), mesh.coordinates)
    moved = even + 0.01 * np.random.default_rng(3).standard_normal(even.shape)
    return dataclasses.replace(mesh, order=3, coordinates=moved)


def _far_and_flat() -> HexMesh:
    """Sheared and flat elements a long way from the origin."""
    mesh = box((3, 3, 3))
    coordinates = mesh.coordinates.copy()
    coordinates[..., 0] += 3 * coordinates[..., 1]
    coordinates[..., 2] *= 1e-2
    return dataclasses.replace(mesh, coordinates=coordinates + 50.0)


MESHES: dict[str, Any] = {
    "warped": (lambda: box((4, 4, 4), warp=0.1), 5, 1e-12),
    "trilinear": (lambda: box((4, 3, 2), warp=0.05), 1, 1e-12),
    "cylinder": (lambda: cylinder(1.0, 0.0, 2.0, layers=2), 4, 1e-12),
    "sphere": (lambda: sphere(1.0, box_half_width=2.0), 7, 1e-12),
    "graded": (lambda: box((5, 5, 5), grading=(1000.0, 1.0, 0.001)), 3, 1e-12),
    "bent": (lambda: _bent(1.6 * np.pi), 8, 1e-12),
    "rough": (_rough, 3, 1e-12),
    "far": (_far_and_flat, 4, 1e-9),
}


def _places(mesh: HexMesh, order: int, elements: Any, reference: Any) -> Any:
    at_nodes = np.moveaxis(nodes(mesh, order, elements), -1, 1)
    return values_at(at_nodes, reference[:, None])[:, 0]


@pytest.mark.parametrize("name", MESHES)
def test_points_are_found_where_they_were_put(name: str) -> None:
    make, order, tolerance = MESHES[name]
    mesh = make()
    random = np.random.default_rng(1)
    elements = random.integers(0, mesh.count, 300)
    reference = random.uniform(-0.999, 0.999, (300, 3))
    points = _places(mesh, order, elements, reference)
    placed = Locator(mesh, order).find(points)
    assert placed.inside.all()
    # Only elements whose nodes were moved apart overlap.
    same = placed.elements == elements
    assert same.all() or name == "rough"
    np.testing.assert_allclose(placed.reference[same], reference[same], atol=tolerance)
    back = _places(mesh, order, placed.elements, placed.reference)
    np.testing.assert_allclose(back, points, atol=1e-12)


@pytest.mark.parametrize("name", ["warped", "cylinder", "sphere"])
def test_the_lowest_element_has_a_point_on_a_face_an_edge_or_a_corner(name: str) -> None:
    make, order, _ = MESHES[name]
    mesh = make()
    random = np.random.default_rng(2)
    reference = random.choice([-1.0, 1.0, 0.3], (200, 3))
    elements = random.integers(0, mesh.count, 200)
    points = _places(mesh, order, elements, reference)
    placed = Locator(mesh, order).find(points)
    assert (placed.elements >= 0).all()
    assert (placed.elements <= elements).all()
    # Seen from each element around such a point the answer is the same.
    corners = (reference[:, 0] + 2 * reference[:, 1] + 4 * reference[:, 2] + 7) / 2
    at_corner = np.abs(reference).min(axis=1) == 1
    vertices = mesh.vertices[elements[at_corner], corners[at_corner].astype(int)]
    for vertex, element in zip(vertices, placed.elements[at_corner], strict=True):
        assert element == np.flatnonzero((mesh.vertices == vertex).any(axis=1)).min()


def test_points_outside_are_told_with_the_nearest_place() -> None:
    mesh = sphere(1.0)
    locator = Locator(mesh, 7)
    random = np.random.default_rng(4)
    direction = random.standard_normal((12, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = np.array([0.3, 0.9, 0.999999, 1.000001, 1.01, 1.2, 3.0, 100.0, 0.0, 1.5, 1.7, 2.0])
    points = radius[:, None] * direction
    placed, nearest = locator.find(points), locator.nearest(points)
    np.testing.assert_array_equal(placed.inside, radius < 1)
    np.testing.assert_array_equal(nearest.distances == 0, radius < 1)
    np.testing.assert_array_equal(nearest.elements[radius < 1], placed.elements[radius < 1])
    assert np.isnan(placed.reference[~placed.inside]).all()
    assert (placed.elements[~placed.inside] == -1).all()
    # The sphere at order 7 is round to 1e-6.
    np.testing.assert_allclose(nearest.distances, np.maximum(radius - 1, 0), atol=2e-6)
    outward = np.where(radius < 1, radius, 1.0)[:, None] * direction
    np.testing.assert_allclose(nearest.places, outward, atol=1e-4)


def test_the_nearest_place_of_a_bent_element_is_the_nearest_of_all() -> None:
    mesh = _bent(1.5 * np.pi)
    line = np.linspace(-1, 1, 31)
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    reference = np.stack([i, j, k], axis=-1).reshape(1, -1, 3)
    samples = values_at(np.moveaxis(nodes(mesh, 8), -1, 1), reference)[0]
    points = np.random.default_rng(5).uniform(-1.5, 1.5, (12, 3))
    nearest = Locator(mesh, 8).nearest(points)
    sampled = np.linalg.norm(points[:, None] - samples, axis=2).min(axis=1)
    assert (nearest.distances <= sampled + 1e-12).all()
    assert (nearest.distances >= sampled - 0.1).all()
    way = np.linalg.norm(points - nearest.places, axis=1)
    np.testing.assert_allclose(way, nearest.distances, atol=1e-9)


def test_broken_points_are_outside() -> None:
    locator = Locator(box((2, 2, 2)), 2)
    placed = locator.find([[np.nan, 0.5, 0.5], [np.inf, 0.5, 0.5], [0.5, 0.5, -np.inf]])
    assert not placed.inside.any()


def test_a_rank_finds_points_in_its_own_elements_only() -> None:
    mesh = box((4, 1, 1))
    own = np.array([3, 1])
    placed = Locator(mesh, 2, own).find([[0.3, 0.5, 0.5], [0.9, 0.5, 0.5], [0.6, 0.5, 0.5]])
    assert placed.elements.tolist() == [1, 3, -1]
    assert placed.rows.tolist() == [1, 0, -1]
    nothing = Locator(mesh, 2, np.array([], np.int64))
    assert not nothing.find([[0.5, 0.5, 0.5]]).inside.any()
    assert nothing.nearest([[0.5, 0.5, 0.5]]).distances.tolist() == [np.inf]


@pytest.mark.parametrize("order", [1, 4, 7])
def test_fields_at_points_are_the_polynomials_through_their_nodes(order: int) -> None:
    mesh = box((3, 3, 3), (0, 0, 0), (2, 2, 2))
    x, y, z = np.moveaxis(nodes(mesh, order), -1, 0)
    fields = np.stack([x**order - y * z, np.ones_like(x)], axis=1)
    points = np.random.default_rng(6).uniform(-0.1, 2.1, (60, 3))
    placed = Locator(mesh, order).find(points)
    values = evaluate(fields, placed)
    assert values.shape == (60, 2)
    np.testing.assert_array_equal(np.isnan(values).any(axis=1), ~placed.inside)
    a, b, c = points[placed.inside].T
    np.testing.assert_allclose(values[placed.inside, 0], a**order - b * c, rtol=0, atol=1e-11)
    np.testing.assert_allclose(values[placed.inside, 1], 1, rtol=0, atol=1e-13)
    along_i, along_j, along_k = np.moveaxis(placed.weights(order), 1, 0)
    by_weights = np.einsum("nk,nj,ni,nkji->n", along_k, along_j, along_i, fields[placed.rows, 0])
    np.testing.assert_allclose(by_weights[placed.inside], values[placed.inside, 0], atol=1e-12)
    assert not by_weights[~placed.inside].any()
    np.testing.assert_array_equal(evaluate(fields[:, 0], placed), values[:, 0])


def test_the_basis_is_that_of_interpolation() -> None:
    for order in (1, 2, 7, 15):
        points = np.append(np.linspace(-1, 1, 23), gll_nodes(order))
        exact = interpolation_matrix(gll_nodes(order), points)
        np.testing.assert_allclose(gll_basis(order, points), exact, atol=1e-14)


def test_boxes_hold_elements_between_their_nodes_too() -> None:
    mesh = _rough()
    boxes = element_boxes(mesh, 3, np.arange(mesh.count))
    reference = np.random.default_rng(7).uniform(-1, 1, (mesh.count, 2000, 3))
    reference[:, :1000] = np.where(
        np.abs(reference[:, :1000]) > 0.5, np.sign(reference[:, :1000]), 0
    )
    points = values_at(np.moveaxis(nodes(mesh, 3), -1, 1), reference)
    assert (points >= boxes.lower[:, None]).all()
    assert (points <= boxes.upper[:, None]).all()
    which = np.repeat(np.arange(mesh.count), points.shape[1])
    depths = boxes.depths(which, points.reshape(-1, 3))
    assert 0.8 < depths.max() <= 1
    np.testing.assert_allclose(gll_to_bernstein(15).sum(axis=1), 1, atol=1e-10)


def test_bins_give_every_box_that_holds_a_point() -> None:
    random = np.random.default_rng(8)
    lower = random.uniform(0, 1, (200, 3)) ** 3
    upper = lower + random.uniform(0, 0.5, (200, 3)) ** 3
    points = random.uniform(-0.1, 1.3, (500, 3)) ** 3
    held = (points[:, None] >= lower) & (points[:, None] <= upper)
    expected = set(zip(*np.nonzero(held.all(axis=2)), strict=True))
    pairs = list(BoxBins(lower, upper).pairs(points))
    entries = [pair for which, boxes in pairs for pair in zip(which, boxes, strict=True)]
    assert len(entries) == len(set(entries))
    assert set(entries) == expected
