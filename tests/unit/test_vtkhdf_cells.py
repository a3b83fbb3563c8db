"""Claims about VTKHDF files of curved elements: h5py and VTK find the fields that were written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused

from haloscope.io.vtk_arrays import LAGRANGE_HEXAHEDRON
from haloscope.io.vtkhdf import POINTS, Block, Blocks, VtkhdfWriter
from haloscope.mesh.hexes.hex_generators import box, cylinder
from haloscope.mesh.hexes.hexes import vtk_order
from haloscope.numerics.elements.element_maps import (
    element_cells,
    equispaced_nodes,
    gll_nodes,
    interpolation_matrix,
    jacobians,
    nodes,
    volume_weights,
)

ORDERS = [1, 2, 3, 7]


def _polynomial(x: Any, y: Any, z: Any, order: int) -> Any:
    """Of the given degree in each of three reference coordinates."""
    return (1 + x) ** order * (2 - y) ** order + 3 * z**order - x * y * z


def _reference(line: Any) -> list[Any]:
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    return [i, j, k]


def _write_mesh(path: Path, mesh: Any, order: int, *, step: int = 3) -> Any:
    """Write a scalar in double and a vector in single precision, and regions; return them."""
    places = nodes(mesh, order)
    x, y, z = np.moveaxis(places, -1, 0)
    scalar = np.sin(x) * np.cos(y) + z
    vector = np.stack([x * y, y - z, x + 2 * z], axis=1).astype(np.float32)
    cells = element_cells(order)
    with VtkhdfWriter(path, cells.layout(mesh.count), 2.5) as writer:
        writer.create("p", np.float64)
        writer.create("E", np.float32, 3)
        writer.create("region", np.int32, per_cell=True)
        for first in range(0, mesh.count, step):
            chunk = slice(first, first + step)
            writer.write(POINTS, first, cells.at_points(np.moveaxis(places[chunk], -1, 1)))
            writer.write("p", first, cells.at_points(scalar[chunk]))
            writer.write("E", first, cells.at_points(vector[chunk]))
            writer.write("region", first, mesh.regions[chunk])
    return places, scalar, vector


@pytest.mark.parametrize("order", [*ORDERS, 15])
def test_polynomials_of_the_order_are_exact_at_the_nodes_of_lagrange_cells(
    tmp_path: Path, order: int
) -> None:
    path = tmp_path / "a.vtkhdf"
    places = np.stack(_reference(gll_nodes(order)), axis=-1)[None]
    value = _polynomial(*np.moveaxis(places, -1, 0), order)
    cells = element_cells(order)
    with VtkhdfWriter(path, cells.layout(1)) as writer:
        writer.create("p", np.float64)
        writer.write(POINTS, 0, cells.at_points(np.moveaxis(places, -1, 1)))
        writer.write("p", 0, cells.at_points(value))
    even = equispaced_nodes(order)[vtk_order(order)]
    with h5py.File(path) as file:
        root = file["VTKHDF"]
        np.testing.assert_allclose(root["Points"][()], even, atol=1e-13)
        exact = _polynomial(*even.T, order)
        error = np.abs(root["PointData/p"][()] - exact).max()
        assert error <= 1e-12 * np.abs(exact).max()


def test_h5py_reads_back_layout_regions_and_time(tmp_path: Path) -> None:
    path, order = tmp_path / "a.vtkhdf", 3
    mesh = cylinder(1.0, 0.0, 2.0)
    places, _, _ = _write_mesh(path, mesh, order)
    corners = (order + 1) ** 3
    with h5py.File(path) as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"UnstructuredGrid"
        assert tuple(root.attrs["Version"]) == (2, 0)
        assert root["NumberOfPoints"][()] == [mesh.count * corners]
        assert root["NumberOfCells"][()] == [mesh.count]
        assert root["NumberOfConnectivityIds"][()] == [mesh.count * corners]
        assert root["Types"][()].tolist() == [LAGRANGE_HEXAHEDRON] * mesh.count
        np.testing.assert_array_equal(root["Offsets"][()], np.arange(mesh.count + 1) * corners)
        assert root["FieldData/TimeValue"][()] == [2.5]
        np.testing.assert_array_equal(root["CellData/region"][()], mesh.regions)
        ids = root["Connectivity"][()]
        points, p, E = root["Points"][()], root["PointData/p"][()], root["PointData/E"][()]
    assert (p.dtype, E.dtype, E.shape) == (np.float64, np.float32, (len(p), 3))
    np.testing.assert_array_equal(ids, np.arange(len(points)))
    np.testing.assert_allclose(E[:, 0], points[:, 0] * points[:, 1], atol=1e-2)
    ends = places[:, ::order, ::order, ::order].reshape(mesh.count, 8, 3)
    first_corners = points.reshape(mesh.count, -1, 3)[:, :8]
    np.testing.assert_allclose(first_corners, ends[:, [0, 1, 3, 2, 4, 5, 7, 6]], atol=1e-14)


def test_ranges_make_the_same_file_as_whole_arrays(tmp_path: Path) -> None:
    mesh = box((3, 2, 2), warp=0.05)
    whole, ranges = tmp_path / "whole.vtkhdf", tmp_path / "ranges.vtkhdf"
    _write_mesh(whole, mesh, 4, step=mesh.count)
    _write_mesh(ranges, mesh, 4, step=5)
    with h5py.File(whole) as first, h5py.File(ranges) as second:
        for name in ("Points", "Connectivity", "Offsets", "PointData/E", "CellData/region"):
            np.testing.assert_array_equal(first["VTKHDF"][name][()], second["VTKHDF"][name][()])


def _vtk(name: str) -> Any:
    return pytest.importorskip(
        f"vtkmodules.{name}",
        reason="vtk is not installed: pip install vtk to check files with VTK's own reader",
    )


def _read_by_vtk(path: Path) -> Any:
    reader = _vtk("vtkIOHDF").vtkHDFReader()
    assert reader.CanReadFile(str(path))
    reader.SetFileName(str(path))
    reader.Update()
    assert reader.GetErrorCode() == 0
    grid = reader.GetOutputDataObject(0)
    assert grid.GetClassName() == "vtkUnstructuredGrid"
    return grid


@pytest.mark.parametrize("order", [*ORDERS, 12])
def test_vtk_evaluates_the_polynomials_that_were_written(tmp_path: Path, order: int) -> None:
    """Between nodes too, which shows the order of nodes and their places to be VTK's."""
    model = _vtk("vtkCommonCore")
    path = tmp_path / "a.vtkhdf"
    mesh = box((2, 1, 1), warp=0.1)
    places, exact, _ = _write_mesh(path, mesh, order, step=1)
    grid = _read_by_vtk(path)
    assert grid.GetNumberOfCells() == mesh.count
    random = np.random.default_rng(1)
    values = _vtk("util.numpy_support").vtk_to_numpy(grid.GetPointData().GetArray("p"))
    for element in range(mesh.count):
        cell = grid.GetCell(element)
        assert cell.GetCellType() == LAGRANGE_HEXAHEDRON
        for _ in range(5):
            at = random.random(3)
            weights, place = np.zeros((order + 1) ** 3), [0.0, 0.0, 0.0]
            cell.EvaluateLocation(model.reference(0), at, place, weights)
            i, j, k = interpolation_matrix(gll_nodes(order), 2 * at - 1)
            own = np.einsum("k,j,i,kjix->x", k, j, i, places[element])
            np.testing.assert_allclose(place, own, atol=1e-12)
            ids = [cell.GetPointId(n) for n in range(cell.GetNumberOfPoints())]
            value = np.einsum("k,j,i,kji->", k, j, i, exact[element])
            assert weights @ values[ids] == pytest.approx(value, abs=1e-12)


def test_vtk_probes_fields_of_a_curved_mesh_at_points(tmp_path: Path) -> None:
    core, data, filters = _vtk("vtkCommonCore"), _vtk("vtkCommonDataModel"), _vtk("vtkFiltersCore")
    path = tmp_path / "a.vtkhdf"
    places, _, _ = _write_mesh(path, cylinder(1.0, 0.0, 2.0), 5)
    grid = _read_by_vtk(path)
    # VTK finds places by linear cells between nodes: roughly, and not always at curved faces.
    line = interpolation_matrix(gll_nodes(5), [-0.6, 0.7])
    wanted = np.einsum("ck,bj,ai,ekjix->ecbax", line, line, line, places).reshape(-1, 3)
    points = core.vtkPoints()
    points.SetDataTypeToDouble()
    for place in wanted:
        points.InsertNextPoint(place)
    cloud = data.vtkPolyData()
    cloud.SetPoints(points)
    probe = filters.vtkProbeFilter()
    probe.SetInputData(cloud)
    probe.SetSourceData(grid)
    probe.Update()
    numbers = _vtk("util.numpy_support").vtk_to_numpy
    point_data = probe.GetOutput().GetPointData()
    assert numbers(point_data.GetArray("vtkValidPointMask")).all()
    x, y, z = wanted.T
    np.testing.assert_allclose(
        numbers(point_data.GetArray("p")), np.sin(x) * np.cos(y) + z, atol=3e-3
    )
    np.testing.assert_allclose(
        numbers(point_data.GetArray("E")), np.stack([x * y, y - z, x + 2 * z], 1), atol=3e-3
    )
    assert grid.GetFieldData().GetArray("TimeValue").GetValue(0) == 2.5


def test_vtk_finds_the_volume_of_a_curved_mesh(tmp_path: Path) -> None:
    quality = _vtk("vtkFiltersVerdict")
    path, order = tmp_path / "a.vtkhdf", 4
    mesh = cylinder(1.0, 0.0, 2.0)
    places, _, _ = _write_mesh(path, mesh, order)
    sizes = quality.vtkCellSizeFilter()
    sizes.SetInputData(_read_by_vtk(path))
    sizes.Update()
    numbers = _vtk("util.numpy_support").vtk_to_numpy
    volumes = numbers(sizes.GetOutput().GetCellData().GetArray("Volume"))
    exact = (jacobians(places) * volume_weights(order)).sum()
    assert exact == pytest.approx(2 * math.pi, rel=1e-6)
    # VTK takes a Lagrange cell for the linear cells between its nodes here.
    assert volumes.min() > 0
    assert volumes.sum() == pytest.approx(exact, rel=0.02)


def _open(path: Path, elements: int = 3, corner: int = 7, time: float | None = None) -> Any:
    """Elements of eight points and two cells."""
    corners = np.array([[0, 1, 2, 3], [4, 5, 6, corner]])
    return VtkhdfWriter(path, Blocks(10, [Block(elements, 8, corners)]), time)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"elements": 0}, {"problem": "there are no elements", "allowed": "at least 1"}),
        ({"corner": 8}, {"problem": "the corner 8 of 8 points"}),
        ({"time": np.inf}, {"problem": "the time is inf"}),
    ],
)
def test_elements_that_readers_cannot_take_are_refused(
    tmp_path: Path, change: dict[str, Any], fields: dict[str, str]
) -> None:
    with refused(**fields):
        _open(tmp_path / "a.vtkhdf", **change)


def test_a_file_of_another_ending_is_refused(tmp_path: Path) -> None:
    with refused(problem=r"'\.vtu'", allowed=r"'\.vtkhdf'"):
        _open(tmp_path / "a.vtu")


def test_a_value_of_an_element_is_repeated_for_each_of_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.vtkhdf"
    with _open(path) as writer:
        writer.create("region", np.int32, per_cell=True)
        writer.write(POINTS, 0, np.zeros((3, 8, 3)))
        writer.write("region", np.array([2, 0, 1]), np.array([7, 5, 6], np.int32))
    with h5py.File(path) as file:
        assert file["VTKHDF/CellData/region"][:].tolist() == [5, 5, 6, 6, 7, 7]
        ids = file["VTKHDF/Connectivity"][:].reshape(3, 2, 4)
    np.testing.assert_array_equal(ids.reshape(-1), np.arange(24))


@pytest.mark.parametrize(
    ("arguments", "per_cell", "fields"),
    [
        (("", np.float64), False, {"problem": "name ''"}),
        (("a/b", np.float64), False, {"problem": "name 'a/b'"}),
        (("Points", np.float64), False, {"problem": "name 'Points'"}),
        (("taken", np.float64), True, {"problem": "name 'taken'"}),
        (("new", np.int32), False, {"problem": "type int32", "allowed": "float32, float64"}),
        (("new", np.uint8), True, {"problem": "type uint8", "allowed": "int32, int64"}),
        (("new", np.float64, 2), False, {"problem": "2 components"}),
        (("new", np.float64, 3), True, {"problem": "3 components"}),
    ],
)
def test_an_array_that_readers_cannot_take_is_refused(
    tmp_path: Path, arguments: Any, per_cell: bool, fields: dict[str, str]
) -> None:
    with refused(**fields), _open(tmp_path / "a.vtkhdf") as writer:
        writer.create("taken", np.float64)
        writer.create(*arguments, per_cell=per_cell)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "first", "shape", "fields"),
    [
        ("p", 2, (2, 8), {"problem": r"the shape \(2, 8\) from place 2"}),
        ("p", -1, (1, 8), {"problem": "from place -1"}),
        ("p", [0, 3], (2, 8), {"problem": r"from place \[0, 3\]"}),
        ("p", [0], (2, 8), {"problem": r"the shape \(2, 8\) from place \[0\]"}),
        ("p", 0, (1, 7), {"problem": r"the shape \(1, 7\)"}),
        ("p", 0, (0, 8), {"problem": r"the shape \(0,"}),
        ("p", 0, (), {"problem": r"the shape \(\)"}),
        ("E", 0, (1, 8), {"allowed": r"inside the shape \(3, 8, 3\)"}),
        ("region", 0, (1, 1), {"allowed": r"inside the shape \(3,\)"}),
        ("absent", 0, (1, 8), {"problem": "'absent' does not exist", "allowed": "p, E, region"}),
    ],
)
def test_values_that_do_not_fit_are_refused(
    tmp_path: Path, name: str, first: Any, shape: tuple[int, ...], fields: dict[str, str]
) -> None:
    with refused(**fields), _open(tmp_path / "a.vtkhdf") as writer:
        writer.create("p", np.float64)
        writer.create("E", np.float64, 3)
        writer.create("region", np.float64, per_cell=True)
        writer.write(name, first, np.zeros(shape))


@pytest.mark.parametrize(
    ("places", "fields"),
    [
        ([[0, 1]], {"problem": "'p' has 2 places written; there are 3"}),
        ([[0, 1], [1, 2]], {"problem": "place 1 of array 'p' was written twice"}),
        ([[0, 1, 1]], {"problem": "place 1 of array 'p' was written twice"}),
    ],
)
def test_every_element_is_to_be_written_once(
    tmp_path: Path, places: list[list[int]], fields: dict[str, str]
) -> None:
    with refused(**fields), _open(tmp_path / "a.vtkhdf") as writer:
        writer.create("p", np.float64)
        writer.write(POINTS, 0, np.zeros((3, 8, 3)))
        for numbers in places:
            writer.write("p", numbers, np.zeros((len(numbers), 8)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("method", "arguments", "fields"),
    [
        ("create", ("p", np.float64), {"problem": "'Points' has 0 places written"}),
        ("write", (POINTS, 0, np.full((3, 8, 3), np.nan)), {"problem": "not finite"}),
        ("write", (POINTS, 0, np.zeros((3, 8, 3), np.float32)), {"problem": "type float32"}),
        ("write", ("E", 0, np.zeros((3, 8), np.float32)), {"allowed": "float64"}),
    ],
)
def test_elements_without_a_place_and_broken_numbers_are_refused(
    tmp_path: Path, method: str, arguments: Any, fields: dict[str, str]
) -> None:
    with refused(**fields), _open(tmp_path / "a.vtkhdf") as writer:
        writer.create("E", np.float64)
        getattr(writer, method)(*arguments)
    assert list(tmp_path.iterdir()) == []
