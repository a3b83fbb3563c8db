"""Claims about fields at points of a sparse lattice: what is sampled, refused and written."""

from __future__ import annotations

import h5py
import lattice_contract
import numpy as np
import pytest
from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import raster_coordinates
from haloscope.mesh.lattice.point_fields import PointFields

_SHAPE = (4, 3, 5)
_ORIGIN, _SPACING = (1.0, -2.0, 0.5), 0.25


def _fields(numbers: np.ndarray, **options) -> PointFields:
    return PointFields(World(), numbers, _SHAPE, origin=_ORIGIN, spacing=_SPACING, **options)


def _linear(numbers: np.ndarray) -> np.ndarray:
    return raster_coordinates(numbers, _SHAPE) @ (1.0, 10.0, 100.0)


def _at(*place: float) -> tuple[float, float, float]:
    x, y, z = np.array(_ORIGIN) + _SPACING * np.array(place)
    return x, y, z


def test_a_whole_field_is_in_raster_order_whatever_the_order_of_a_rank():
    numbers = np.array([40, 3, 17, 59])
    fields = _fields(numbers)
    owned = numbers.astype(float)
    np.testing.assert_array_equal(fields.collect(owned, 0, 4), [3, 17, 40, 59])
    stored = np.array([3.0, 17.0, 40.0, 59.0])
    np.testing.assert_array_equal(fields.own(lambda region: stored[region]), owned)
    assert np.concatenate(list(fields.numbers())).tolist() == [2, 0, 1, 3]


def test_a_linear_field_is_sampled_exactly_and_a_constant_one_beside_walls():
    numbers = np.arange(60)
    fields = _fields(numbers)
    samples = fields.sample([_at(1.5, 0.25, 3.125), _at(3, 2, 4), _at(0, 0, 0)], _linear(numbers))
    np.testing.assert_allclose(samples, [1.5 + 2.5 + 312.5, 3 + 20 + 400, 0], rtol=1e-13, atol=1e-9)
    sparse_lattice = lattice_contract.whole_lattice(_SHAPE)
    sparse = _fields(sparse_lattice)
    inside = np.array(_ORIGIN) + _SPACING * (
        raster_coordinates(sparse_lattice, _SHAPE) + [0.3, -0.4, 0.2]
    )
    assert sparse.sample(inside.tolist(), np.full(len(sparse_lattice), 2.5)) == pytest.approx(
        [2.5] * len(sparse_lattice), rel=1e-15
    )
    # Of two points around a place one is missing: the other alone counts.
    alone = _fields(np.array([0]))
    assert alone.sample([_at(0.9, 0, 0), _at(1, 0, 0)], np.array([7.0]))[0] == 7.0
    assert np.isnan(alone.sample([_at(1, 0, 0)], np.array([7.0]))[0])


def test_sampling_wraps_around_closed_axes_alone():
    numbers = np.arange(60)
    values = np.where(raster_coordinates(numbers, _SHAPE)[:, 0] == 3, 1.0, 0.0)
    closed = _fields(numbers, periodic=(True, False, False))
    assert closed.sample([_at(3.25, 1, 1), _at(-0.5, 1, 1)], values) == [0.75, 0.5]
    assert _fields(numbers).sample([_at(3.25, 1, 1)], values) == [1.0]
    closed.require_inside("a probe", _at(3.9, 1, 1))
    with refused(location="a probe", problem="outside"):
        closed.require_inside("a probe", _at(5.5, 1, 1))


def test_a_place_outside_is_refused_with_the_nearest_point():
    fields = _fields(np.array([0, 1, 59]))
    fields.require_inside("probe a", _at(1.9, 0, 0))
    problem = (
        r"\(1.5, -2, 0.5\) m lies outside the lattice.*the nearest lattice point is \(1.25, -2, "
        r"0.5\) m, 0.25 m away"
    )
    with refused(location="probe a", problem=problem):
        fields.require_inside("probe a", _at(2, 0, 0))


def _written(path, numbers: np.ndarray):
    fields = _fields(numbers)
    readers = {name: (lambda k=k: _linear(numbers) + k) for k, name in enumerate(("p", "u", "v"))}
    fields.write(path, readers, {"velocity": ("u", "v")}, 1.5)
    return h5py.File(path, "r")["VTKHDF"]


@pytest.mark.parametrize("piece", [1, 1 << 26])
def test_a_lattice_that_fills_a_third_of_its_box_is_written_as_an_image(
    tmp_path, monkeypatch, piece
):
    monkeypatch.setattr("haloscope.mesh.lattice.point_fields._PIECE_BYTES", piece)
    # Nothing in the first plane and the first column.
    places = raster_coordinates(np.arange(60), _SHAPE)
    chosen = np.random.default_rng(1).permutation(
        np.flatnonzero((places[:, 2] > 0) & (places[:, 0] > 0) & (places.sum(axis=1) % 3 != 0))
    )
    root = _written(tmp_path / "a.vtkhdf", chosen)
    assert root.attrs["Type"] == b"ImageData"
    np.testing.assert_allclose(root.attrs["Origin"], _at(1, 0, 1))
    mask = np.zeros(60)
    mask[chosen] = 1
    mask = mask.reshape(5, 3, 4)[1:, :, 1:]
    arrays = root["PointData"]
    np.testing.assert_array_equal(arrays["inside"], mask)
    pressure = np.where(mask, _linear(np.arange(60)).reshape(5, 3, 4)[1:, :, 1:], np.nan)
    np.testing.assert_array_equal(arrays["p"], pressure)
    velocity = np.stack([pressure + 1, pressure + 2, np.where(mask, 0, np.nan)], axis=-1)
    np.testing.assert_array_equal(arrays["velocity"], velocity)
    assert root["FieldData/TimeValue"][0] == 1.5


@pytest.mark.parametrize("piece", [2, 1 << 16])
def test_a_sparse_lattice_is_written_as_cubes_around_its_points(tmp_path, monkeypatch, piece):
    monkeypatch.setattr("haloscope.mesh.lattice.point_fields._CELLS_AT_ONCE", piece)
    numbers = np.array([59, 0, 21, 7, 30])
    root = _written(tmp_path / "a.vtkhdf", numbers)
    assert root.attrs["Type"] == b"UnstructuredGrid"
    ascending = np.sort(numbers)
    np.testing.assert_array_equal(root["CellData/p"], _linear(ascending))
    velocity = root["PointData/velocity"][...].reshape(5, 8, 3)
    wanted = np.stack([_linear(ascending) + 1, _linear(ascending) + 2, np.zeros(5)], axis=1)
    np.testing.assert_array_equal(velocity, np.repeat(wanted[:, None], 8, axis=1))
    corners = root["Points"][...].reshape(5, 8, 3)
    middle = np.array(_ORIGIN) + _SPACING * raster_coordinates(ascending, _SHAPE)
    np.testing.assert_allclose(corners.mean(axis=1), middle)
    np.testing.assert_allclose(np.ptp(corners, axis=1), _SPACING)
    # The cell's first corner is the lowest, its seventh the opposite one.
    ids = root["Connectivity"][...].reshape(5, 8)
    first, seventh = root["Points"][...][ids[:, 0]], root["Points"][...][ids[:, 6]]
    np.testing.assert_allclose(seventh - first, _SPACING)
