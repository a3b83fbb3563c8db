"""Claims about values at faces in pictures: smooth fields stay, jumps within a region go, on all ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from thread_gpus import on_ranks

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_generators import box, sphere
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements.element_fields import ElementFields, SharedFaces
from haloscope.numerics.elements.element_maps import nodes


def _whole(mesh, order):
    part, places = take(mesh, np.arange(mesh.count)), nodes(mesh, order)
    return SharedFaces(World(), part, np.arange(mesh.count), places), places


def _cubic(places):
    x, y, z = np.moveaxis(places, -1, 0)
    return np.stack([1 + x + y * z, x**3 - y**2 * z, z**3 + x * y * z], axis=1)


@pytest.mark.parametrize("order", [3, 5])
def test_a_field_that_elements_represent_stays_as_it_is(order) -> None:
    faces, places = _whole(box((3, 2, 2)), order)
    values = _cubic(places)
    assert faces.smooth(values) == pytest.approx(values, abs=1e-12)


def test_a_smooth_field_on_curved_elements_hardly_changes() -> None:
    faces, places = _whole(sphere(1.0, core=2, rings=1), 6)
    values = _cubic(places)
    assert faces.smooth(values) == pytest.approx(values, abs=1e-4)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_jump_between_elements_of_one_region_goes_and_others_stay(order) -> None:
    mesh = box((4, 1, 1))
    regions = np.array([0, 0, 1, 1])
    mesh = replace(mesh, regions=regions, region_names=("one", "two"))
    faces, places = _whole(mesh, order)
    middle = places[..., 0].mean(axis=(1, 2, 3))
    ordered = np.argsort(middle)
    assert (mesh.regions[ordered] == regions).all()
    values = np.zeros((4, 1, *places.shape[1:4]))
    values[ordered] += np.array([0.0, 1.0, 5.0, 9.0]).reshape(4, 1, 1, 1, 1)
    first, second, third, _ = faces.smooth(values)[ordered][:, 0]
    assert first[..., -1] == pytest.approx(0.5)
    assert second[..., 0] == pytest.approx(0.5)
    assert third[..., -1] == pytest.approx(7.0)
    assert (second[..., -1], third[..., 0]) == (pytest.approx(1.0), pytest.approx(5.0))
    assert first[..., 0] == pytest.approx(0.0)


def test_ranks_get_the_bits_of_one_rank_also_one_that_looks_at_no_element() -> None:
    mesh, order = sphere(1.0, core=2, rings=1), 4
    places, last = nodes(mesh, order), mesh.count - 1
    values = np.random.default_rng(1).standard_normal((mesh.count, 2, *places.shape[1:4]))
    part = take(mesh, np.arange(mesh.count))
    whole = SharedFaces(World(), part, np.arange(last), places[:last]).smooth(values[:last])
    assert np.abs(whole - values[:last]).max() > 0.1
    shares = [np.arange(0, last, 2), np.arange(1, last, 2), np.array([last])]

    def smooth(world):
        part = take(mesh, shares[world.rank])
        rows = np.flatnonzero(part.elements != last)
        faces = SharedFaces(world, part, rows, places[part.elements[rows]])
        return part.elements[rows], faces.smooth(values[part.elements[rows]])

    for elements, own in on_ranks(3, smooth):
        np.testing.assert_array_equal(own, whole[elements])


def test_a_plane_between_elements_shows_no_jump() -> None:
    mesh, order = box((4, 4, 1)), 4
    part = take(mesh, np.arange(mesh.count))
    checkered = np.arange(mesh.count) % 2.0
    field = np.broadcast_to(checkered[:, None, None, None, None], (mesh.count, 1, 5, 5, 5))
    fields = ElementFields(World(), part, order)
    _, plane = fields.sample_plane("z", None, 200, lambda rows: field[part.elements[rows]])
    assert plane is not None
    assert np.abs(np.diff(plane[0], axis=1)).max() < 0.2
