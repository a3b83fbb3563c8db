"""Claims about the Python interface: cases and settings as dicts, coordinates, data sets, tables."""

from __future__ import annotations

import copy
import csv
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from python_cases import CASES, CELLS, SLOPE, case_of
from refusals import refused
from small_cavities import TEXT

import haloscope
from haloscope.errors import MachineError
from haloscope.io.figures.spectrum_pictures import write_columns
from haloscope.run.finished import middle_plane

BOX = case_of("cavity")


def test_settings_as_a_dict_are_those_of_texts(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    texts = haloscope.load(path, settings=["run.steps=7", "cavity.nodes=[8, 6, 7]", "title=A box"])
    values = {"run.steps": np.int64(7), "cavity.nodes": (8, 6, 7), "title": "A box"}
    assert haloscope.load(path, settings=values).case == texts.case


def test_a_case_as_a_dict_is_that_of_a_file_and_stays_as_it_is(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    tables = {
        "solver": "cavity",
        "cavity": {"nodes": np.array([15, 13, 14]), "size": (0.05, 0.04, 0.045)},
        "run": {"steps": 60, "diagnostics_interval": 20},
        "machine": {"device": "cpu", "threads": 1},
    }
    before = copy.deepcopy(tables)
    simulation = haloscope.load(tables, settings={"run.steps": 3})
    assert simulation.case == haloscope.load(path, settings=["run.steps=3"]).case
    assert simulation.name == "case"
    assert repr(tables) == repr(before)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("cavity.nodes=33", "of the type str"),
        (b"cavity.nodes=33", "of the type bytes"),
        (33, "of the type int"),
        (None, "of the type NoneType"),
        ([("cavity.nodes", 33)], r"the item \('cavity.nodes', 33\) is not text"),
        ({1: 33}, "the key 1 is not text"),
    ],
)
def test_settings_of_a_wrong_kind_are_refused(settings, problem):
    with refused(
        location="^settings$", problem=problem, allowed="a dict of dotted keys or a list of texts"
    ) as refusal:
        haloscope.load(BOX, settings=settings)
    assert "\n" not in refusal.text


@pytest.mark.parametrize(
    ("settings", "location", "problem"),
    [
        ({"cavity.nodes": None}, "^settings cavity.nodes$", "of the type NoneType"),
        ({"cavity.size": [1, {2}]}, "^settings cavity.size.1$", "of the type set"),
        ({"cavity..nodes": 3}, "^settings 'cavity..nodes'$", "^wrong form$"),
        ({"cavity": {1: 2}}, "^settings cavity$", "the key 1 is not text"),
        ({"cavity.nodes.7": 3}, "^settings cavity.nodes.7$", "has no item 7"),
        ({"cavity.node": 3}, "^case: cavity.node$", "^unknown key$"),
        ({"cavity.nodes": "many"}, "^case: cavity.nodes", ""),
        ({"title": "a\0"}, "^settings title$", "value zero"),
    ],
)
def test_a_wrong_setting_of_a_dict_is_refused_with_its_key(settings, location, problem):
    with refused(location=location, problem=problem):
        haloscope.load(BOX, settings=settings)


def test_a_wrong_case_is_refused():
    with refused(location="^case$", problem="of the type int", allowed="path .* or a dict"):
        haloscope.load(3)
    with refused(location="^case: solver$", problem="is missing"):
        haloscope.load({"cavity": {"nodes": 5}})
    nested: dict = {}
    nested["cavity"] = nested
    with refused(location="^case", problem="nested too deeply"):
        haloscope.load(nested)
    with refused(location="^case: probe a$", problem="outside the grid"):
        haloscope.load(BOX, settings={"output.probes": [{"name": "a", "position": [1, 0, 0]}]})


def test_a_path_among_settings_is_text():
    assert haloscope.load(BOX, settings={"title": Path("a/b")}).case.title == "a/b"


@pytest.mark.parametrize("solver", CASES)
def test_points_are_the_positions_of_the_values_of_fields(solver):
    name, size, _ = CASES[solver]
    simulation = haloscope.load(case_of(solver))
    points, values = simulation.points(), simulation.field(name)
    assert points.shape == (*values.shape, 3)
    assert points.dtype == np.float64
    expected = 10 + points @ np.array(SLOPE) / size
    if solver == "cavity":
        # Walls have temperatures of their own.
        inner = (slice(1, -1),) * 3
        values, expected = values[inner], expected[inner]
    assert np.ptp(expected) > 1
    assert values == pytest.approx(expected, rel=1e-6)


def test_points_of_a_plane_have_one_plane_along_z_in_files_too(tmp_path):
    plane = {"cavity.dimensions": 2, "cavity.nodes": [8, 6], "cavity.size": [0.07, 0.05]}
    case = {"solver": "cavity", "output": {"picture": False}}
    simulation = haloscope.load(case, settings=plane)
    points = simulation.points()
    assert points.shape == (1, 6, 8, 3)
    assert points[0, -1, -1] == pytest.approx([0.07, 0.05, 0.0])
    simulation.run(3, out=tmp_path, ceilings=False)
    fields = haloscope.open(tmp_path).fields()
    assert fields.points() == pytest.approx(points)
    assert np.array_equal(fields["T"], simulation.field("T"))
    assert np.array_equal(fields["velocity"][..., 0], simulation.field("u"))


class _Dataset:
    """The part of `xarray.Dataset` that is compared, where xarray is not installed."""

    def __init__(self, variables: dict, coords: dict, attrs: dict) -> None:
        self._arrays = {**variables, **coords}
        self.data_vars, self.attrs = variables, attrs

    def __getitem__(self, name: str) -> Any:
        dims, values, attrs = self._arrays[name]
        variable = ModuleType(name)
        variable.dims, variable.attrs, variable.values = (
            (dims,) * isinstance(dims, str) or dims,
            attrs,
            values,
        )
        return variable


@pytest.fixture
def xarray(monkeypatch):
    """The module xarray, or one that has as much of it as `dataset` needs."""
    try:
        import xarray
    except ImportError:
        xarray = ModuleType("xarray")
        xarray.Dataset = _Dataset
        monkeypatch.setitem(sys.modules, "xarray", xarray)
    return xarray


@pytest.mark.parametrize(("solver", "unit"), [("cavity", "K"), ("blood", "Pa")])
def test_a_dataset_has_the_fields_with_coordinates_and_units(xarray, solver, unit):
    name, _, _ = CASES[solver]
    simulation = haloscope.load(case_of(solver))
    dataset = simulation.dataset()
    assert isinstance(dataset, xarray.Dataset)
    assert set(dataset.data_vars) == set(simulation.solver.fields)
    assert dataset.attrs["solver"] == solver
    variable = dataset[name]
    assert variable.dims == ("z", "y", "x")
    assert variable.attrs["units"] == unit
    assert [dataset[axis].attrs["units"] for axis in "xyz"] == ["m"] * 3
    axes = [dataset[axis].values for axis in "zyx"]
    assert variable.values.shape == tuple(map(len, axes))
    # Each value stands where points() puts it; outside the vessel there is none.
    points = simulation.points().reshape(-1, 3)
    places = tuple(
        np.abs(axis[:, None] - points[:, column]).argmin(axis=0)
        for axis, column in zip(axes, (2, 1, 0), strict=True)
    )
    values = simulation.field(name).reshape(-1)
    assert np.array_equal(variable.values[places], values)
    assert np.isfinite(variable.values).sum() == len(values)


def test_a_dataset_of_a_mesh_is_refused(xarray):
    with refused(problem="flow are not on a regular grid", remedy=r"points\(\)"):
        haloscope.load(case_of("flow")).dataset()


def test_without_xarray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with refused(MachineError, problem="xarray", remedy=r"\[notebook\]"):
        haloscope.load(BOX).dataset()


def test_cells_are_those_of_the_table_and_looking_at_them_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    looked, plain = (haloscope.load(case_of("blood"), settings=CELLS) for _ in range(2))
    looked.run(2, ceilings=False)
    assert list(looked.cells()["step"]) == [2, 2]
    looked.run(4, out=tmp_path, ceilings=False)
    plain.run(4, ceilings=False)
    for name in plain.solver.fields:
        assert np.array_equal(looked.field(name), plain.field(name))
    cells = looked.cells()
    with (tmp_path / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(cells) == list(rows[0])
    assert [row["kind"] for row in rows] == list(cells["kind"]) == ["left", "right"]
    for name, column in cells.items():
        assert [str(value) for value in column.tolist()] == [row[name] for row in rows]


def test_cells_are_a_data_frame_where_pandas_is_installed(monkeypatch):
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda columns: ("frame", sorted(columns))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame, columns = haloscope.load(case_of("blood"), settings=CELLS).cells()
    assert frame == "frame"
    assert "deformation" in columns


def test_cells_of_a_case_without_cells_are_refused():
    with refused(problem="^cavity has no cells$", allowed="blood"):
        haloscope.load(BOX).cells()
    with refused(problem="no cells", remedy=r"\[\[blood.cells\]\]"):
        haloscope.load(case_of("blood")).cells()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Simulations that have run, and their folders, by solver."""
    simulations = {}
    for solver in CASES:
        folder = tmp_path_factory.mktemp(solver)
        simulation = haloscope.load(case_of(solver, interval=2))
        simulation.run(out=folder, ceilings=False)
        simulations[solver] = simulation, folder
    return simulations


@pytest.mark.parametrize("solver", CASES)
def test_a_folder_gives_the_fields_of_the_run_at_all_times(folders, solver):
    simulation, folder = folders[solver]
    run = haloscope.open(folder)
    last = simulation.step
    assert run.summary["solver"] == solver
    assert run.steps == list(range(0, last + 1, 2))
    now = simulation.solver.time
    assert run.times[0] == 0
    assert run.times[-1] == pytest.approx(last if now is None else now)
    fields = run.fields()
    assert run.fields(time=0).path.name == "fields-0000000000.vtkhdf"
    assert fields.path.name == "fields.vtkhdf"
    vectors = simulation.solver.vectors
    assert set(fields) >= {
        *vectors,
        *set(simulation.solver.fields).difference(*vectors.values()),
    }
    if solver != "maxwell":
        points, values = simulation.points(), simulation.field("p")
        if solver == "blood":
            inside = fields["inside"] == 1
            assert np.isnan(fields["p"][~inside]).all()
            assert np.array_equal(fields["p"][inside], values)
            assert fields.points("p")[inside] == pytest.approx(points)
        else:
            assert np.array_equal(fields["p"], values)
            assert fields.points("p") == pytest.approx(points)
        if solver == "cavity":
            assert np.array_equal(fields["velocity"][..., 1], simulation.field("v"))


def test_positions_in_a_file_of_elements_are_those_of_its_values(folders):
    # At the start the field rises evenly, at whatever nodes it is.
    name, size, _ = CASES["maxwell"]
    _, folder = folders["maxwell"]
    fields = haloscope.open(folder).fields(0)
    vector = next(array for array in fields if fields[array].shape[1:] == (3,) and array[0] == "E")
    expected = 10 + fields.points(vector) @ np.array(SLOPE) / size
    assert fields[vector][:, "xyz".index(name[1])] == pytest.approx(expected, rel=1e-6)
    middles = fields.points("region")
    assert middles.shape == (*fields["region"].shape, 3)
    assert middles.min() > -0.1
    assert middles.max() < 0.2


def test_a_table_is_a_structured_array_or_a_data_frame(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    simulation, folder = folders["flow"]
    run = haloscope.open(folder)
    assert "energy" in run.tables
    table = run.table("energy")
    assert table["step"].dtype == np.int64
    assert table["kinetic_energy"].tolist() == [
        values["kinetic_energy"] for _, values in simulation.history
    ]
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda columns: ("frame", list(columns))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert run.table("energy") == ("frame", ["step", "kinetic_energy"])


def test_a_row_that_was_cut_off_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    (tmp_path / "summary.json").write_text('{"solver": "cavity", "steps": 2}')
    (tmp_path / "probe-a.csv").write_text("step,T,kind\n1,300.5,a\n2,nan,b\n3,30")
    run = haloscope.open(tmp_path)
    assert (run.tables, run.times, run.pictures) == (["probe-a"], [], [])
    table = run.table("probe-a")
    assert table["step"].tolist() == [1, 2]
    assert table["T"][0] == 300.5
    assert table["kind"].tolist() == ["a", "b"]
    (tmp_path / "probe-a.csv").write_text("step,T,kind\n1,,\n2,3,\n")
    assert str(run.table("probe-a").tolist()) == "[(1, nan, ''), (2, 3.0, '')]"
    (tmp_path / "probe-a.csv").write_text("step,T\n1\n2,3\n")
    with refused(location="line 2$", problem="number of columns"):
        run.table("probe-a")
    (tmp_path / "probe-a.csv").write_text("")
    with refused(location="probe-a.csv$", problem="is empty"):
        run.table("probe-a")


def test_comments_before_the_names_of_a_table_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    (tmp_path / "summary.json").write_text('{"solver": "maxwell", "steps": 2}')
    path = tmp_path / "far-field.csv"
    columns = {"theta_degrees": np.array([0.0, 90.0]), "directivity": np.array([0.0, 1.5])}
    write_columns(path, columns, "E = 1, 2\namplitude 1")
    table = haloscope.open(tmp_path).table("far-field")
    assert table.dtype.names == ("theta_degrees", "directivity")
    assert table["directivity"].tolist() == [0.0, 1.5]
    with path.open("a") as file:
        file.write("1\n2,3\n")
    with refused(location="line 6$", problem="number of columns"):
        haloscope.open(tmp_path).table("far-field")


def test_a_plot_shows_the_table_or_a_plane_of_the_field(folders):
    from matplotlib.figure import Figure

    simulation, folder = folders["cavity"]
    run = haloscope.open(folder)
    ax = run.plot(ax=Figure().subplots())
    assert ax.get_title() == "residuals"
    assert {line.get_label() for line in ax.lines} == {"p", "u", "v", "w", "T"}
    ax = run.plot("T", ax=Figure().subplots())
    # Six points along y are the fewest: the plane lies across y.
    values = simulation.field("T")[:, 3, :]
    (mesh,) = ax.collections
    assert np.array_equal(mesh.get_array().reshape(values.shape), values)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x (m)", "z (m)")
    assert ax.get_aspect() == 1.0


@pytest.mark.parametrize(
    ("solver", "name", "of_file"),
    [
        ("flow", "p", lambda fields: fields["p"]),
        ("flow", "v", lambda fields: fields["velocity"][:, 1]),
        ("flow", "velocity", lambda fields: np.linalg.norm(fields["velocity"], axis=1)),
        ("maxwell", "Ez", lambda fields: fields["E"][:, 2]),
    ],
)
def test_a_plot_of_a_mesh_has_the_values_of_the_field(folders, solver, name, of_file):
    from matplotlib.figure import Figure

    simulation, folder = folders[solver]
    run = haloscope.open(folder)
    ax = run.plot(name, ax=Figure().subplots())
    plane = middle_plane(run.fields().vtk_arrays())
    values = of_file(run.fields()).astype(float)
    drawn = np.asarray(ax.collections[-1].get_array())
    assert np.array_equal(drawn, plane.values(values).ravel())
    points = simulation.points().reshape(-1, 3)
    axes = [("x", "y", "z").index(label[0]) for label in (ax.get_xlabel(), ax.get_ylabel())]
    for axis, limits in zip(axes, (ax.dataLim.intervalx, ax.dataLim.intervaly), strict=True):
        assert limits == pytest.approx([points[:, axis].min(), points[:, axis].max()], abs=1e-6)
    assert ax.get_aspect() == 1.0


def test_what_a_folder_does_not_hold_is_refused(folders, tmp_path):
    with refused(location=str(tmp_path), problem="no summary.json"):
        haloscope.open(tmp_path)
    with refused(problem="does not exist"):
        haloscope.open(tmp_path / "none")
    (tmp_path / "summary.json").write_text('{"points": []}')
    with refused(location="summary.json$", problem="not the summary of a run"):
        haloscope.open(tmp_path)
    run = haloscope.open(folders["flow"][1])
    with refused(location="table 'none'", allowed="energy"):
        run.table("none")
    with refused(location=r"^fields\(7\)$", allowed="^0 to 2$"):
        run.fields(7)
    with refused(location="plot 'none'", allowed="energy.*p"):
        run.plot("none")
    with refused(location="average.vtkhdf$", problem="does not exist"):
        run.average()
    (tmp_path / "summary.json").write_text('{"steps": 0}')
    (tmp_path / "fields.vtkhdf").write_bytes(b"no HDF5")
    with refused(location="fields.vtkhdf$", problem="damaged or no VTKHDF file"):
        haloscope.open(tmp_path)
    (tmp_path / "fields.vtkhdf").unlink()
    with refused(problem="no fields", remedy="output.fields"):
        haloscope.open(tmp_path).fields()


def test_a_file_of_cells_gives_positions_of_vertices_and_triangles(tmp_path):
    simulation = haloscope.load(case_of("blood"), settings=CELLS)
    simulation.run(2, out=tmp_path, ceilings=False)
    cells = haloscope.open(tmp_path).read("cells.vtkhdf")
    assert cells.points("velocity").shape == cells["velocity"].shape
    middles = [cells.points("kind")[cells["kind"] == kind].mean(axis=0) for kind in (0, 1)]
    centres = np.stack([simulation.cells()[f"{axis}_um"] for axis in "xyz"], axis=1)
    assert np.array(middles) == pytest.approx(1e-6 * centres, abs=1e-9)


def test_a_file_of_a_sparse_vessel_gives_the_points_of_the_lattice(tmp_path):
    branches = {"radius_um": 4.0, "parent_length_um": 14.0, "daughter_length_um": 50.0}
    ends = [{"name": f"outlet-{n}", "kind": "pressure", "value": 0.0} for n in (1, 2)]
    blood = {
        "spacing_um": 1.0,
        "bifurcation": branches,
        "initial": {"p": "1e5*x"},
        "openings": [{"name": "inlet", "kind": "velocity", "value": 1e-3}, *ends],
    }
    simulation = haloscope.load({**case_of("blood"), "blood": blood})
    simulation.run(0, out=tmp_path, ceilings=False)
    fields = haloscope.open(tmp_path).fields()
    assert not fields.is_image
    assert np.array_equal(fields["p"], simulation.field("p"))
    assert fields.points("p") == pytest.approx(simulation.points(), abs=1e-15)
