"""Claims about grids for PyVista: values, positions and cells are those of points(), field() and the files."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from python_cases import CASES, CELLS, SLOPE, case_of
from refusals import refused

import haloscope
from haloscope.errors import MachineError
from haloscope.io.vtk_arrays import TRIANGLE, CellArrays, ImageArrays, VtkArrays, pyvista_grid
from haloscope.run.state import present_arrays


def positions(arrays: VtkArrays) -> np.ndarray:
    """Positions (points, 3) of all points, as VTK counts them."""
    if isinstance(arrays, CellArrays):
        return arrays.points
    z, y, x = np.indices(arrays.shape).reshape(3, -1)
    return np.array(arrays.origin) + np.array(arrays.spacing) * np.stack([x, y, z], axis=1)


@pytest.fixture(scope="module")
def states() -> dict[str, tuple[Any, VtkArrays]]:
    """Simulations after a step by solver, and their arrays."""
    states = {}
    for solver in CASES:
        simulation = haloscope.load(case_of(solver))
        simulation.run(1, ceilings=False)
        arrays = present_arrays(simulation)
        assert arrays is not None
        states[solver] = simulation, arrays
    return states


@pytest.mark.parametrize("solver", ["cavity", "flow", "blood"])
def test_arrays_have_the_fields_at_their_points(states, solver):
    simulation, arrays = states[solver]
    points = simulation.points().reshape(-1, 3)
    places = np.arange(len(points))
    if solver == "blood":
        inside = arrays.point_data["inside"]
        places = np.flatnonzero(inside)
        assert set(inside.tolist()) == {0, 1}
        assert np.isnan(arrays.point_data["p"][inside == 0]).all()
    assert positions(arrays)[places] == pytest.approx(points, rel=1e-12, abs=1e-15)
    assert np.ptp(simulation.field(CASES[solver][0])) > 0
    for name in simulation.fields:
        values = simulation.field(name).reshape(-1)
        assert np.array_equal(arrays.point_data[name][places], values)
    velocity = arrays.point_data["velocity"]
    for column, name in enumerate("uvw"):
        assert np.array_equal(velocity[places, column], simulation.field(name).reshape(-1))


def test_elements_have_fields_interpolated_to_their_points():
    name, size, _ = CASES["maxwell"]
    simulation = haloscope.load(case_of("maxwell"))
    arrays = present_arrays(simulation)
    elements, per_element = simulation.points().shape[0], 4**3
    assert arrays.points.shape == (elements * per_element, 3)
    assert arrays.connectivity.shape == (elements, per_element)
    assert np.array_equal(np.sort(arrays.connectivity, axis=None), np.arange(len(arrays.points)))
    expected = 10 + arrays.points @ np.array(SLOPE) / size
    assert arrays.point_data[name] == pytest.approx(expected, rel=1e-6)
    assert set(simulation.solver.fields) < set(arrays.point_data)
    # The first and the seventh node of VTK's hexahedron are opposite corners.
    corners = arrays.points[arrays.connectivity]
    assert (corners[:, 6] - corners[:, 0]).min() == pytest.approx(0.1)
    whole = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
    assert np.array(whole) == pytest.approx(np.array([[-0.1] * 3, [0.2] * 3]))


def test_tetrahedra_fill_the_box(states):
    _, arrays = states["flow"]
    corners = arrays.points[arrays.connectivity]
    edges = corners[:, 1:] - corners[:, :1]
    # VTK's order of corners gives positive volumes.
    volumes = np.linalg.det(edges) / 6
    assert volumes.min() > 0
    assert volumes.sum() == pytest.approx(2.0)
    assert arrays.cell_data["zone"].shape == volumes.shape


def test_a_plane_is_an_image_of_one_plane():
    plane = {"cavity.dimensions": 2, "cavity.nodes": [8, 6], "cavity.size": [0.07, 0.05]}
    simulation = haloscope.load({"solver": "cavity"}, settings=plane)
    arrays = present_arrays(simulation)
    assert isinstance(arrays, ImageArrays)
    assert arrays.shape == (1, 6, 8)
    assert min(arrays.spacing) > 0
    assert positions(arrays) == pytest.approx(simulation.points().reshape(-1, 3))
    assert not arrays.point_data["velocity"][:, 2].any()


def test_arrays_stay_as_they_are_while_the_simulation_goes_on(states):
    for solver, (simulation, arrays) in states.items():
        before = {name: values.copy() for name, values in arrays.point_data.items()}
        simulation.run(2, ceilings=False)
        after = present_arrays(simulation)
        for name, values in before.items():
            assert np.array_equal(arrays.point_data[name], values, equal_nan=True)
        name = CASES[solver][0]
        assert not np.array_equal(after.point_data[name], before[name], equal_nan=True)


@pytest.mark.parametrize("solver", CASES)
def test_the_grid_of_pyvista_is_made_of_the_arrays(states, solver):
    pyvista = pytest.importorskip("pyvista")
    simulation, _ = states[solver]
    grid, arrays = simulation.grid(), present_arrays(simulation)
    kind = pyvista.ImageData if solver in ("cavity", "blood") else pyvista.UnstructuredGrid
    assert isinstance(grid, kind)
    assert np.asarray(grid.points) == pytest.approx(positions(arrays), abs=1e-9)
    for name, values in arrays.point_data.items():
        assert np.array_equal(grid.point_data[name], values, equal_nan=True)
    if solver == "blood":
        lumen = grid.threshold(0.5, scalars="inside", all_scalars=True)
        assert lumen.n_cells > 0
        assert np.isfinite(lumen.point_data["p"]).all()
    if isinstance(arrays, CellArrays):
        assert grid.n_cells == len(arrays.connectivity)
        for name, values in arrays.cell_data.items():
            assert np.array_equal(grid.cell_data[name], values)
        lower, upper = arrays.points.min(axis=0), arrays.points.max(axis=0)
        assert grid.compute_cell_sizes()["Volume"].sum() == pytest.approx((upper - lower).prod())


class _Grid:
    """Takes the arrays of a grid, where PyVista is not installed."""

    def __init__(self, *arrays: Any, **options: Any) -> None:
        self.arrays, self.options = arrays, options
        self.point_data, self.cell_data, self.field_data = {}, {}, {}


@pytest.mark.parametrize("solver", CASES)
def test_the_grid_of_a_file_is_that_of_the_simulation(solver, tmp_path, monkeypatch):
    pyvista = ModuleType("pyvista")
    pyvista.ImageData = pyvista.UnstructuredGrid = _Grid
    monkeypatch.setitem(sys.modules, "pyvista", pyvista)
    simulation = haloscope.load(case_of(solver, interval=1))
    simulation.run(2, out=tmp_path, ceilings=False)
    run = haloscope.open(tmp_path)
    present, written = simulation.grid(), run.grid()
    for one, other in zip(present.arrays, written.arrays, strict=True):
        assert np.array_equal(one, other) or one == pytest.approx(other, rel=1e-12, abs=1e-15)
    assert present.options.keys() == written.options.keys()
    for name, option in present.options.items():
        assert written.options[name] == pytest.approx(option)
    assert written.field_data["TimeValue"] == present.field_data["TimeValue"]
    for part in ("point_data", "cell_data"):
        for name, values in getattr(written, part).items():
            assert getattr(present, part)[name] == pytest.approx(values, rel=1e-6, nan_ok=True)
    assert {*simulation.solver.vectors} <= set(written.point_data)
    assert run.grid(time=0).field_data["TimeValue"] == [0]


def test_cells_of_a_file_are_surfaces(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    simulation = haloscope.load(case_of("blood"), settings=CELLS)
    simulation.run(1, out=tmp_path, ceilings=False)
    surface = haloscope.open(tmp_path).read("cells.vtkhdf").grid()
    assert isinstance(surface, pyvista.PolyData)
    assert surface.n_open_edges == 0
    volumes = simulation.cells()["volume_um3"]
    assert 1e18 * surface.volume == pytest.approx(sum(volumes), rel=1e-3)


def test_membranes_are_the_surfaces_of_all_cells_and_those_of_the_files(tmp_path, monkeypatch):
    pyvista = ModuleType("pyvista")
    pyvista.PolyData = _Grid
    monkeypatch.setitem(sys.modules, "pyvista", pyvista)
    simulation = haloscope.load(case_of("blood", interval=1), settings=CELLS)
    simulation.run(2, out=tmp_path, ceilings=False)
    present = simulation.membranes()
    points, listed = present.arrays
    corners = points[listed.reshape(-1, 4)[:, 1:]]
    # Six times the volume of the tetrahedron of a triangle and the origin.
    volumes = np.linalg.det(corners) / 6
    cells = simulation.cells()
    for kind, volume in enumerate(cells["volume_um3"]):
        own = present.cell_data["kind"] == kind
        assert 1e18 * volumes[own].sum() == pytest.approx(volume, rel=1e-3)
        assert set(present.cell_data["number"][own]) == {cells["number"][kind]}
        middle = points[np.unique(listed.reshape(-1, 4)[own, 1:])].mean(axis=0)
        assert 1e6 * middle[0] == pytest.approx(cells["x_um"][kind], abs=1e-3)
    assert present.point_data["velocity"].shape == points.shape
    run = haloscope.open(tmp_path)
    for written, step in ((run.membranes(), 2), (run.membranes(1), 1), (run.membranes(time=0), 0)):
        assert np.array_equal(written.arrays[1], listed)
        assert np.array_equal(written.arrays[0], points) is (step == 2)
        assert set(written.point_data) == {"velocity", "force"}
        for name, values in present.point_data.items():
            assert step < 2 or np.array_equal(written.point_data[name], values)
        for name, values in present.cell_data.items():
            assert np.array_equal(written.cell_data[name], values)
        time = written.field_data["TimeValue"][0]
        assert time == pytest.approx(simulation.solver.time * step / 2)


class _Filled(dict):
    """Refuses arrays without values, as PyVista does."""

    def __setitem__(self, name: str, values: np.ndarray) -> None:
        if not len(values):
            raise ValueError("empty arrays are not allowed")
        super().__setitem__(name, values)


def test_a_surface_of_no_cells_is_an_empty_one(monkeypatch):
    class Surface(_Grid):
        def __init__(self, *arrays: Any) -> None:
            super().__init__(*arrays)
            self.point_data, self.cell_data = _Filled(), _Filled()

    pyvista = ModuleType("pyvista")
    pyvista.PolyData = Surface
    monkeypatch.setitem(sys.modules, "pyvista", pyvista)
    no_cells = CellArrays(
        np.empty((0, 3)),
        np.empty((0, 3), np.int64),
        TRIANGLE,
        {"velocity": np.empty((0, 3), np.float32)},
        {"number": np.empty(0, np.int64)},
        0.5,
    )
    surface = pyvista_grid(no_cells)
    assert [array.shape[0] for array in surface.arrays] == [0, 0]
    assert (surface.point_data, surface.cell_data) == ({}, {})
    assert surface.field_data["TimeValue"] == [0.5]


def test_membranes_are_refused_where_there_are_no_cells(tmp_path):
    with refused(location="^membranes$", problem="cavity has no cells", allowed="blood"):
        haloscope.load(case_of("cavity")).membranes()
    simulation = haloscope.load(case_of("blood", interval=1))
    simulation.run(1, out=tmp_path, ceilings=False)
    with refused(location="cells-0000000000.vtkhdf$", problem="written no cells"):
        haloscope.open(tmp_path).membranes(0)
    with refused(location=r"^fields\(7\)$", allowed="^0 to 1$"):
        haloscope.open(tmp_path).membranes(7)


def test_without_pyvista_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyvista", None)
    with refused(MachineError, location="^grid$", problem="pyvista", remedy=r"pip .*\[notebook\]"):
        haloscope.load(case_of("cavity")).grid()
