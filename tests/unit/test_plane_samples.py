"""Claims about fields on planes: right values at right points, nothing outside the mesh."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from thread_gpus import on_ranks

from haloscope.mesh.hexes.hex_generators import box, cylinder
from haloscope.numerics.elements.element_fields import (
    PlaneSamples,
    joined,
    mesh_bounds,
    plane_raster,
    raster_on_ranks,
)
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.elements.locate import Locator

LOWER, UPPER = np.array([0.0, -1.0, 2.0]), np.array([4.0, 1.0, 3.0])


@pytest.mark.parametrize(
    ("axis", "names", "shape", "middle"),
    [
        ("x", ("y", "z"), (50, 100), 2.0),
        ("y", ("x", "z"), (32, 100), 0.0),
        ("z", ("x", "y"), (50, 100), 2.5),
    ],
)
def test_a_raster_fills_the_plane_with_cells(axis, names, shape, middle) -> None:
    raster = plane_raster(LOWER, UPPER, axis, points=100)
    assert (raster.names, raster.shape, raster.offset) == (names, shape, middle)
    points = raster.points.reshape(*shape, 3)
    first, second = ("xyz".index(name) for name in names)
    np.testing.assert_array_equal(points[..., "xyz".index(axis)], middle)
    np.testing.assert_array_equal(points[3, :, first], raster.first)
    np.testing.assert_array_equal(points[:, 3, second], raster.second)
    step = raster.first[1] - raster.first[0]
    assert raster.first[0] - step / 2 == pytest.approx(LOWER[first])
    assert raster.first[-1] + step / 2 == pytest.approx(UPPER[first])


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"axis": "r"}, {"location": "axis = 'r'", "allowed": "^x, y and z$"}),
        (
            {"offset": 3.5},
            {"location": "z = 3.5 m", "problem": "misses the mesh", "allowed": "2 to 3 m"},
        ),
        ({"offset": float("nan")}, {"location": "z = nan m", "problem": "misses"}),
        ({"points": 1}, {"location": "points = 1$", "problem": "out of range"}),
    ],
)
def test_a_plane_that_cannot_be_is_refused(change, fields) -> None:
    with refused(**fields):
        plane_raster(LOWER, UPPER, **change)


def test_a_plane_across_a_cylinder_has_the_field_within_and_nothing_outside() -> None:
    mesh, order = cylinder(1.0, 0.0, 2.0, layers=3), 6
    lower, upper = mesh_bounds(mesh, order)
    np.testing.assert_allclose([lower, upper], [[-1, -1, 0], [1, 1, 2]], atol=1e-12)
    raster = plane_raster(lower, upper, "z", offset=0.9, points=40)
    samples = PlaneSamples(Locator(mesh, order), raster)
    # Of three layers one is needed.
    assert len(samples.rows) == mesh.count // 3
    places = np.moveaxis(nodes(mesh, order, samples.rows), -1, 1)
    values = samples.values(places.astype(np.float32))
    assert values.shape == (3, 40, 40)
    x, y = np.meshgrid(raster.first, raster.second)
    radius = np.hypot(x, y)
    np.testing.assert_array_equal(np.isnan(values[0]), radius > 1)
    within = radius < 1
    exact = np.stack([x, y, np.full_like(x, 0.9)])
    np.testing.assert_allclose(values[:, within], exact[:, within], atol=1e-6)
    scalar = samples.values(places[:, 0])
    np.testing.assert_allclose(scalar[within], x[within], atol=1e-12)


def test_parts_of_ranks_join_to_the_whole_also_on_faces_between_them() -> None:
    mesh, order = box((4, 2, 2), warp=0.1), 4
    # The middle is where the elements of the ranks meet.
    raster = plane_raster(*mesh_bounds(mesh, order), "x", points=32)
    ranks = [np.arange(0, mesh.count, 3), np.delete(np.arange(mesh.count), np.s_[::3]), []]

    def part(elements):
        samples = PlaneSamples(Locator(mesh, order, np.asarray(elements, np.int64)), raster)
        chosen = np.asarray(elements, np.int64)[samples.rows]
        return samples.values(nodes(mesh, order, chosen)[..., 1])

    whole = part(np.arange(mesh.count))
    assert not np.isnan(whole).any()
    parts = [part(elements) for elements in ranks]
    assert np.isnan(parts[0]).any()
    np.testing.assert_allclose(joined(parts), whole, atol=1e-12)


def test_all_ranks_lay_the_raster_of_the_whole_box():
    lower, upper = (
        np.array([[0.0, -1.0, 2.0], [-3.0, 0.0, 2.5]]),
        np.array([[1.0, 5, 4], [2, 3, 3]]),
    )
    whole = plane_raster(lower.min(axis=0), upper.max(axis=0), "y", 0.5, 40)
    for raster in on_ranks(
        2, lambda world: raster_on_ranks(world, lower[world.rank], upper[world.rank], "y", 0.5, 40)
    ):
        assert (raster.axis, raster.offset) == (whole.axis, whole.offset)
        np.testing.assert_array_equal(raster.points, whole.points)


@pytest.mark.parametrize(
    ("lengths", "offset", "axis"),
    [
        ((2.5, 0.41, 0.41), None, "z"),
        ((0.1, 0.1, 4.0), None, "y"),
        ((0.1, 0.3, 0.2), None, "x"),
        ((1.0, 1.0, 1.0), None, "z"),
        ((0.1, 0.3, 0.2), 0.1, "z"),
    ],
)
def test_by_default_the_plane_holds_the_longest_side(lengths, offset, axis):
    raster = plane_raster(np.zeros(3), np.array(lengths), "auto", offset)
    assert raster.axis == axis
    assert plane_raster(np.zeros(3), np.array(lengths), "x").axis == "x"
