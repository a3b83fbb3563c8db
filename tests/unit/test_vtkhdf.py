"""Claims about VTKHDF image files: h5py and VTK's own reader find what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused

from haloscope.io.vtkhdf import Image, VtkhdfWriter

ORIGIN = (0.5, -1.0, 2.0)
SPACING = (0.1, 0.2, 0.3)
SHAPES = [(4, 5, 7), (1, 5, 7), (2, 2, 2)]


def _fields(shape: tuple[int, int, int]) -> dict[str, Any]:
    random = np.random.default_rng(3)
    return {
        "temperature": random.random(shape),
        "velocity": random.random((*shape, 3)).astype(np.float32),
    }


def _write_whole(path: Path, fields: dict[str, Any], time: float | None) -> None:
    """Write each array of a grid in one block."""
    shape = next(iter(fields.values())).shape[:3]
    with _open(path, shape, time) as writer:
        for name, values in fields.items():
            writer.create(name, values.dtype, 1 if values.ndim == 3 else 3)
            writer.write(name, 0, values)


def _open(path: Path, shape: Any = (2, 4, 5), time: float | None = None) -> VtkhdfWriter:
    return VtkhdfWriter(path, Image(shape, ORIGIN, SPACING), time)


def _write_planes(folder: Path, *planes: tuple[int, Any]) -> None:
    """Write planes (first, values) of the float64 array t on a grid of 2 x 4 x 5 points."""
    with _open(folder / "field.vtkhdf") as writer:
        writer.create("t", np.float64)
        for first, values in planes:
            writer.write("t", first, values)


@pytest.mark.parametrize("time", [None, 12.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_h5py_reads_back_layout_values_and_time(
    tmp_path: Path, shape: tuple[int, int, int], time: float | None
) -> None:
    path = tmp_path / "field.vtkhdf"
    fields = _fields(shape)
    _write_whole(path, fields, time)
    depth, height, width = shape
    with h5py.File(path) as file:
        root = file["VTKHDF"]
        kind = h5py.h5a.open(root.id, b"Type").get_type()
        assert root.attrs["Type"] == b"ImageData"
        assert not kind.is_variable_str()
        assert kind.get_cset() == h5py.h5t.CSET_ASCII
        assert tuple(root.attrs["Version"]) == (2, 0)
        assert tuple(root.attrs["WholeExtent"]) == (0, width - 1, 0, height - 1, 0, depth - 1)
        assert tuple(root.attrs["Origin"]) == ORIGIN
        assert tuple(root.attrs["Spacing"]) == SPACING
        assert tuple(root.attrs["Direction"]) == (1, 0, 0, 0, 1, 0, 0, 0, 1)
        for name, values in fields.items():
            stored = root["PointData"][name]
            assert stored.dtype == values.dtype
            np.testing.assert_array_equal(stored[()], values[0] if depth == 1 else values)
        assert ("FieldData" in root) == (time is not None)
        if time is not None:
            assert root["FieldData/TimeValue"][()] == [time]


@pytest.mark.parametrize("time", [None, 12.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_vtk_reads_back_values_spacing_and_time(
    tmp_path: Path, shape: tuple[int, int, int], time: float | None
) -> None:
    reason = "vtk is not installed: pip install vtk to check files with VTK's own reader"
    vtk_io = pytest.importorskip("vtkmodules.vtkIOHDF", reason=reason)
    vtk_numpy = pytest.importorskip("vtkmodules.util.numpy_support", reason=reason)
    path = tmp_path / "field.vtkhdf"
    fields = _fields(shape)
    _write_whole(path, fields, time)

    reader = vtk_io.vtkHDFReader()
    assert reader.CanReadFile(str(path))
    reader.SetFileName(str(path))
    reader.Update()
    assert reader.GetErrorCode() == 0
    image = reader.GetOutputDataObject(0)
    assert image.GetClassName() == "vtkImageData"
    assert image.GetDimensions() == shape[::-1]
    assert image.GetOrigin() == ORIGIN
    assert image.GetSpacing() == SPACING
    assert image.GetPointData().GetNumberOfArrays() == len(fields)
    for name, values in fields.items():
        read = vtk_numpy.vtk_to_numpy(image.GetPointData().GetArray(name))
        assert read.dtype == values.dtype
        np.testing.assert_array_equal(read.reshape(values.shape), values)
    read_time = image.GetFieldData().GetArray("TimeValue")
    assert (read_time is None) == (time is None)
    if time is not None:
        assert read_time.GetValue(0) == time


@pytest.mark.parametrize("shape", [(5, 6, 8), (1, 6, 8)])
def test_planes_in_any_order_make_the_same_file_as_whole_arrays(
    tmp_path: Path, shape: tuple[int, int, int]
) -> None:
    fields = _fields(shape)
    whole, planes = tmp_path / "whole.vtkhdf", tmp_path / "planes.vtkhdf"
    _write_whole(whole, fields, 1.0)
    with _open(planes, shape, 1.0) as writer:
        writer.create("temperature", np.float64)
        writer.create("velocity", np.float32, components=3)
        for z in reversed(range(0, shape[0], 2)):
            for name, values in fields.items():
                writer.write(name, z, values[z : z + 2])
    with h5py.File(whole) as first, h5py.File(planes) as second:
        for name in fields:
            stored = f"VTKHDF/PointData/{name}"
            np.testing.assert_array_equal(first[stored][()], second[stored][()])


def test_an_incomplete_array_leaves_no_file(tmp_path: Path) -> None:
    with refused(problem="'t' has 1 places written; there are 2"):
        _write_planes(tmp_path, (0, np.zeros((1, 4, 5))))
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_body_goes_before_an_incomplete_array(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        _write_planes(tmp_path, (0, "no array"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "values"),
    [
        (1, np.zeros((2, 4, 5))),
        (-1, np.zeros((1, 4, 5))),
        (0, np.zeros((0, 4, 5))),
        (0, np.zeros((1, 3, 5))),
        (0, np.zeros((4, 5))),
        (0, np.zeros((2, 4, 5, 3))),
        (0, np.zeros((2, 4, 5), dtype=np.float32)),
    ],
)
def test_planes_that_do_not_fit_are_refused(
    tmp_path: Path, first: int, values: np.ndarray[Any, Any]
) -> None:
    with refused(problem="values of array 't' have the"):
        _write_planes(tmp_path, (first, values))


@pytest.mark.parametrize(
    ("name", "dtype", "components", "problem", "allowed"),
    [
        ("", np.float64, 1, "name ''", ""),
        ("a/b", np.float64, 1, "name 'a/b'", ""),
        ("taken", np.float64, 1, "name 'taken'", ""),
        ("new", np.int32, 1, "type int32", "float32, float64"),
        ("new", np.dtype(">f8"), 1, "type >f8", "byte order"),
        ("new", np.float64, 2, "2 components", "1 and, at points, 3"),
    ],
)
def test_an_array_that_readers_cannot_take_is_refused(
    tmp_path: Path, name: str, dtype: Any, components: int, problem: str, allowed: str
) -> None:
    path = tmp_path / "field.vtkhdf"
    with _open(path) as writer:
        writer.create("taken", np.float64)
        writer.write("taken", 0, np.zeros((2, 4, 5)))
        with refused(location=str(path), problem=problem, allowed=allowed):
            writer.create(name, dtype, components)


def test_values_of_an_unknown_array_are_refused(tmp_path: Path) -> None:
    with (
        _open(tmp_path / "field.vtkhdf") as writer,
        refused(problem="'t' does not exist", allowed="none"),
    ):
        writer.write("t", 0, np.zeros((2, 4, 5)))


@pytest.mark.parametrize(
    ("change", "problem", "allowed"),
    [
        ({"path": "field.h5"}, "'.h5'", "'.vtkhdf'"),
        ({"shape": (4, 5)}, "the shape is", "counts of points"),
        ({"shape": (4, 1, 5)}, "the shape is", "counts of points"),
        ({"shape": (4, 5, 1)}, "the shape is", "counts of points"),
        ({"origin": (0.0, 0.0)}, "the origin is", "three finite"),
        ({"origin": (0.0, 0.0, np.nan)}, "the origin is", "three finite"),
        ({"spacing": (1.0, 1.0, 0.0)}, "the spacing is", "three positive"),
        ({"spacing": (1.0, np.inf, 1.0)}, "the spacing is", "three positive"),
        ({"time": np.nan}, "the time is", "finite"),
    ],
)
def test_a_grid_that_readers_cannot_take_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str, allowed: str
) -> None:
    arguments = {"shape": (2, 4, 5), "origin": ORIGIN, "spacing": SPACING, **change}
    path = tmp_path / arguments.pop("path", "a.vtkhdf")
    time = arguments.pop("time", None)
    with refused(location=str(path), problem=problem, allowed=allowed):
        VtkhdfWriter(path, Image(**arguments), time)
