"""Claims about outputs of cells: files read back, a table of known shapes, pictures of what is there."""

from __future__ import annotations

import csv
import math
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from closed_surfaces import tube as surface_tube
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.io.figures import surface_pictures
from haloscope.io.figures.surface_pictures import SurfaceImage, View, round_length
from haloscope.io.vtk_arrays import TRIANGLE
from haloscope.io.vtkhdf import POINTS, Block, Blocks, VtkhdfWriter
from haloscope.mesh.bisection import bisect
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.mesh.lattice.shapes import Box, Tube
from haloscope.mesh.lattice.voxels import voxelise
from haloscope.solvers.blood.cells.local_cells import CellKind, LocalCells
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, sphere
from haloscope.solvers.blood.outputs.cell_outputs import NUMBERS, CellOutputs
from haloscope.solvers.blood.outputs.pictures import cell_outlines, cut_triangles, vessel_walls
from haloscope.solvers.blood.units import LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel

UNITS = LatticeUnits(0.5e-6, 1e-7, 1000.0)
LAW = MembraneLaw(1e-3, "skalak", 1.0)
PERIOD = 40  # spacings along x
UM = UNITS.spacing * 1e6


def _tube() -> Vessel:
    tube = Tube(5e-6, PERIOD * UNITS.spacing)
    return Vessel(voxelise(tube, UNITS.spacing), tube, ())


def _region(vessel: Vessel) -> Region:
    lattice = vessel.lattice
    coordinates = lattice.coordinates(lattice.points)
    boxes = bisect(World(), coordinates, lattice.shape, periodic=lattice.periodic)
    return Region(lattice.shape, lattice.periodic, boxes)


def _present(name: str, mesh: MembraneMesh, vertices: Any, velocities: Any, ids: Any) -> LocalCells:
    """Cells of a kind at given vertices (n, V, 3) in lattice units."""
    membranes = Membranes(CpuDevice(threads=1), mesh, max(1, len(ids)), LAW, elements="linear")
    numbers, none = np.array(ids, np.int64), np.zeros(len(ids), np.int64)
    here = np.ones((len(ids), 1), bool)
    kind = CellKind(name, mesh, LAW, "linear")
    cells = LocalCells(kind, membranes, 0, numbers, none, here, len(ids), len(ids))
    membranes.set_cells(0, np.asarray(vertices, float))
    moving = membranes.velocities.reshape(3, membranes.capacity, membranes.vertices)
    moving[:, : len(ids)] = np.moveaxis(np.asarray(velocities, float), 2, 0)
    membranes.compute_forces(len(ids))
    return cells


def _rotation(seed: int) -> np.ndarray:
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return turn * np.linalg.det(turn)


@pytest.fixture(scope="module")
def scene() -> Any:
    """Two capsules stretched by known factors, one half over the end of the tube, and no platelet."""
    vessel = _tube()
    mesh = sphere(162, 4.0)
    turns = [np.eye(3), _rotation(1)]
    factors = np.array([[1.5, 1.0, 0.8], [1.2, 0.9, 0.7]])
    middle = vessel.lattice.shape[1] / 2 - 0.5
    centres = np.array([[PERIOD + 1.0, middle, middle], [20.0, middle, middle]])
    vertices = [
        (mesh.vertices * f) @ q.T + c for f, q, c in zip(factors, turns, centres, strict=True)
    ]
    velocity = np.array([[0.01, 0.0, 0.0], [0.01, 0.01, 0.0]])
    velocities = np.broadcast_to(velocity[:, None], (2, 162, 3))
    kinds = [
        _present("capsule", mesh, vertices, velocities, [3, 8]),
        _present("platelet", sphere(42, 1.0), np.zeros((0, 42, 3)), np.zeros((0, 42, 3)), []),
    ]
    return SimpleNamespace(
        vessel=vessel,
        region=_region(vessel),
        suspension=SimpleNamespace(kinds=kinds, smoothed=0),
        mesh=mesh,
        factors=factors,
        turns=turns,
        middle=middle,
    )


@pytest.fixture(name="outlines")
def fixture_outlines(scene: Any) -> Any:
    """Lines on the middle plane across z, in spacings from the middle of the tube."""
    lattice = scene.vessel.lattice
    lines = cell_outlines(_medium(scene, scene.suspension), 2, None)
    places = (lines - lattice.origin[:2]) / lattice.spacing
    return places - [0.0, scene.middle]


def test_outlines_of_cells_are_closed_lines_on_the_section(scene: Any, outlines: Any) -> None:
    _, met = np.unique(outlines.reshape(-1, 2).round(9), axis=0, return_counts=True)
    assert (met == 2).all()
    height = scene.vessel.lattice.shape[2] // 2 - scene.middle
    across, up, along = 4.0 * scene.factors[0]
    own = outlines[outlines[:, 0, 0] < 10].reshape(-1, 2) - [1.0, 0.0]
    radii = (own[:, 0] / across) ** 2 + (own[:, 1] / up) ** 2 + (height / along) ** 2
    assert radii == pytest.approx(1.0, abs=0.1)


def test_a_cell_over_a_periodic_end_has_an_outline_at_both_ends(outlines: Any) -> None:
    first = outlines[outlines[:, 0, 0] < 10]
    last = outlines[outlines[:, 0, 0] > 30]
    assert len(first) > 10
    assert np.sort(first, axis=0) + [PERIOD, 0.0] == pytest.approx(np.sort(last, axis=0))


def test_a_plane_cuts_a_triangle_once_or_not_at_all() -> None:
    triangle = np.array([[[0.0, 0.0, -1.0], [1.0, 0.0, 1.0], [0.0, 2.0, 1.0]]])
    expected = [[[0.5, 0.0], [0.0, 1.0]]]
    for turn in range(3):
        turned = np.roll(triangle, turn, axis=1)
        assert (
            np.sort(cut_triangles(turned, 2, 0.0), axis=1).tolist()
            == np.sort(expected, axis=1).tolist()
        )
    assert cut_triangles(triangle, 2, 1.5).shape == (0, 2, 2)
    assert cut_triangles(triangle, 2, -1.5).shape == (0, 2, 2)


def test_a_vessel_without_cells_has_no_outlines(scene: Any) -> None:
    lines = cell_outlines(_medium(scene, None), 2, None)
    assert lines.shape == (0, 2, 2)


def _medium(scene: Any, suspension: Any) -> Any:
    return SimpleNamespace(
        world=World(), suspension=suspension, region=scene.region, lattice=scene.vessel.lattice
    )


def _columns(values: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[:, place] for place, name in enumerate(NUMBERS)}


def test_the_table_tells_places_axes_and_speeds_of_stretched_spheres(scene: Any) -> None:
    origin = scene.vessel.lattice.origin
    outputs = CellOutputs(scene.suspension, scene.vessel, scene.region, UNITS, World(), "")
    tables = outputs.table()
    (ids, values), (none, nothing) = tables
    assert ids.tolist() == [3, 8]
    assert (none.size, nothing.shape) == (0, (0, len(NUMBERS)))
    columns = _columns(values)
    # The first lies beyond the period and comes back at the other end.
    places = origin * 1e6 + UM * np.array([[1.0] + [scene.middle] * 2, [20.0] + [scene.middle] * 2])
    np.testing.assert_allclose(values[:, :3], places, rtol=1e-12, atol=1e-9)
    a, c = scene.factors.max(axis=1), scene.factors.min(axis=1)
    # A refined icosahedron has the same moments along all axes.
    np.testing.assert_allclose(columns["deformation"], (a - c) / (a + c), rtol=1e-9)
    np.testing.assert_allclose(columns["long_axis_um"] / columns["short_axis_um"], a / c, rtol=1e-9)
    np.testing.assert_allclose(columns["long_axis_um"], 2 * 4.0 * UM * a, rtol=0.03)
    volume = scene.mesh.volume() * scene.factors.prod(axis=1)
    np.testing.assert_allclose(columns["volume_um3"], volume * UM**3, rtol=1e-9)
    long = np.stack([columns[f"long_{axis}"] for axis in "xyz"], axis=1)
    short = np.stack([columns[f"short_{axis}"] for axis in "xyz"], axis=1)
    for number, turn in enumerate(scene.turns):
        assert abs(long[number] @ turn[:, 0]) == pytest.approx(1, abs=1e-9)
        assert abs(short[number] @ turn[:, 2]) == pytest.approx(1, abs=1e-9)
        assert long[number][np.abs(long[number]).argmax()] > 0
    speed = 0.01 * UNITS.velocity * 1e3
    np.testing.assert_allclose(columns["speed_mm_s"], [speed, speed * math.sqrt(2)], rtol=1e-12)
    moving = np.array([1.0, 1.0, 0.0]) / math.sqrt(2)
    angle = math.degrees(math.acos(abs(moving @ scene.turns[1][:, 0])))
    np.testing.assert_allclose(columns["inclination_deg"], [0.0, angle], atol=1e-5)


def test_a_swollen_sphere_has_the_energy_and_the_stress_of_its_tension(scene: Any) -> None:
    """Of uniform stretch by s, W(s) is known; x.F summed is -s dE/ds (virtual work)."""
    s, mesh = 1.1, scene.mesh
    vertices = s * mesh.vertices[None] + np.array([20.0, scene.middle, scene.middle])
    kinds = [_present("capsule", mesh, vertices, np.zeros((1, 162, 3)), [0])]
    suspension = SimpleNamespace(kinds=kinds)
    outputs = CellOutputs(suspension, scene.vessel, scene.region, UNITS, World(), "")
    ((_, values),) = outputs.table()
    columns = _columns(values)

    def energy(s: float) -> float:
        first, second = 2 * s**2 - 2, s**4 - 1
        density = first**2 + 2 * first - 2 * second + LAW.dilation * second**2
        return LAW.shear_modulus / 4 * density * mesh.area()

    slope = (energy(s + 1e-6) - energy(s - 1e-6)) / 2e-6
    assert columns["elastic_energy_j"][0] == pytest.approx(energy(s) * UNITS.energy, rel=1e-9)
    mean = s * slope / (3 * mesh.volume() * s**3) * UNITS.pressure
    normal = [columns[f"stress_{axis}{axis}_pa"][0] for axis in "xyz"]
    assert normal == pytest.approx([mean] * 3, rel=1e-6)
    for pair in ("xy", "xz", "yz"):
        assert abs(columns[f"stress_{pair}_pa"][0]) < 1e-9 * mean


def test_outputs_of_a_run_appear_and_a_step_is_in_the_table_once(scene: Any, tmp_path: Any) -> None:
    def outputs(**more: Any) -> CellOutputs:
        return CellOutputs(
            scene.suspension, scene.vessel, scene.region, UNITS, World(), "Capsules", **more
        )

    def steps() -> list[str]:
        with (tmp_path / "cells.csv").open() as file:
            return [row["step"] for row in csv.DictReader(file)]

    first = outputs(picture=False)
    for step in (0, 10, 20):
        first.at_step(tmp_path, step)
    results = first.finish(tmp_path, 20)
    assert steps() == ["0", "0", "10", "10", "20", "20"]
    assert results.summary["cells"]["capsule"]["count"] == 2
    assert results.summary["cells"]["platelet"] == {"count": 0}
    assert sorted(results.files) == ["cell table", "cells"]
    assert all(path.exists() for path in results.files.values())
    assert (tmp_path / "cells-0000000010.vtkhdf").exists()
    # A row that was cut off, as by a kill, goes; so do rows past the checkpoint.
    with (tmp_path / "cells.csv").open("a") as file:
        file.write("10,0.1,capsule")
    again = outputs(fields=False, picture=False)
    assert again.resume(tmp_path, 10) == ""
    again.at_step(tmp_path, 15)
    again.finish(tmp_path, 15)
    assert steps() == ["0", "0", "10", "10", "15", "15"]
    outputs(fields=False, picture=False).finish(tmp_path, 5)
    assert steps() == ["5", "5"]
    assert outputs().finish(None, 5).files == {}


def test_h5py_finds_whole_cells_in_the_box_with_numbers_kinds_and_forces(
    scene: Any, tmp_path: Any
) -> None:
    outputs = CellOutputs(scene.suspension, scene.vessel, scene.region, UNITS, World(), "")
    membranes = scene.suspension.kinds[0].membranes
    # With repulsion beside: files tell the membrane's forces, and leave alone what was spread.
    alone = membranes.forces.copy()
    membranes.forces[:] += 1.0
    outputs.at_step(tmp_path, 3)
    np.testing.assert_array_equal(membranes.forces, alone + 1.0)
    membranes.forces[:] = alone
    expected = membranes.on_host(membranes.positions, 2).copy()
    expected[0, :, 0] -= PERIOD
    with h5py.File(tmp_path / "cells-0000000003.vtkhdf") as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"PolyData"
        positions = root["Points"][()].reshape(2, 162, 3)
        exact = scene.vessel.lattice.origin + UNITS.spacing * expected
        np.testing.assert_allclose(positions, exact, rtol=1e-6, atol=1e-12)
        force = membranes.on_host(membranes.forces, 2) * UNITS.force
        assert np.abs(force).max() > 0
        np.testing.assert_allclose(
            root["PointData/force"][()].reshape(2, 162, 3), force, rtol=1e-6, atol=1e-20
        )
        triangle_count = len(scene.mesh.triangles)
        np.testing.assert_array_equal(
            root["CellData/number"][()], np.repeat([3, 8], triangle_count)
        )
        assert not root["CellData/kind"][()].any()
        corners = root["Polygons/Connectivity"][()].reshape(2, triangle_count, 3)
        np.testing.assert_array_equal(corners[1], scene.mesh.triangles + 162)
        np.testing.assert_array_equal(
            root["Polygons/Offsets"][()], 3 * np.arange(2 * triangle_count + 1)
        )
        assert root["FieldData/TimeValue"][()] == [3 * UNITS.time_step]


def _write(path: Any, counts: tuple[int, int], order: Any) -> dict[int, np.ndarray]:
    """Bodies of two kinds, put one by one; their positions by kind."""
    kinds = [Block(n, v, sphere(v, 1.0).triangles) for v, n in zip((42, 92), counts, strict=True)]
    random, placed = np.random.default_rng(2), {}
    with VtkhdfWriter(path, Blocks(TRIANGLE, kinds)) as writer:
        writer.create("u", np.float64, 3)
        writer.create("p", np.float64)
        writer.create("number", np.int64, per_cell=True)
        for kind, vertices in enumerate((42, 92)):
            offsets = 10 * random.random((counts[kind], 1, 3))
            placed[kind] = sphere(vertices, 1.0).vertices + offsets
            for body in order(range(counts[kind])):
                x = placed[kind][body : body + 1]
                writer.write(POINTS, body, x, kind)
                writer.write("u", body, 2 * x, kind)
                writer.write("p", body, x[..., 0], kind)
                writer.write("number", [body], np.array([body]), kind)
    return placed


@pytest.mark.parametrize("counts", [(3, 2), (0, 2), (0, 0)])
def test_vtk_reads_bodies_back(tmp_path: Any, counts: tuple[int, int]) -> None:
    reason = "vtk is not installed: pip install vtk to check files with VTK's own reader"
    reader = pytest.importorskip("vtkmodules.vtkIOHDF", reason=reason).vtkHDFReader()
    numbers = pytest.importorskip("vtkmodules.util.numpy_support", reason=reason).vtk_to_numpy
    path = tmp_path / "a.vtkhdf"
    placed = _write(path, counts, reversed)
    assert reader.CanReadFile(str(path))
    reader.SetFileName(str(path))
    reader.Update()
    assert reader.GetErrorCode() == 0
    data = reader.GetOutputDataObject(0)
    assert data.GetClassName() == "vtkPolyData"
    points = np.concatenate([body.reshape(-1, 3) for body in placed.values()])
    assert data.GetNumberOfPoints() == len(points)
    assert data.GetNumberOfCells() == 80 * counts[0] + 180 * counts[1]
    if not len(points):
        return
    np.testing.assert_allclose(numbers(data.GetPoints().GetData()), points, rtol=1e-6)
    np.testing.assert_allclose(numbers(data.GetPointData().GetArray("u")), 2 * points, rtol=1e-6)
    bodies = np.concatenate(
        [np.repeat(np.arange(n), e) for n, e in zip(counts, (80, 180), strict=True)]
    )
    np.testing.assert_array_equal(numbers(data.GetCellData().GetArray("number")), bodies)
    mass = pytest.importorskip("vtkmodules.vtkFiltersCore", reason=reason).vtkMassProperties()
    mass.SetInputData(data)
    volume = sum(n * sphere(v, 1.0).volume() for n, v in zip(counts, (42, 92), strict=True))
    assert mass.GetVolume() == pytest.approx(volume, rel=1e-4)


def test_surface_files_refuse_what_is_missing_doubled_or_broken(tmp_path: Any) -> None:
    path, x = tmp_path / "a.vtkhdf", sphere(42, 1.0).vertices[None]
    layout = Blocks(TRIANGLE, [Block(2, 42, sphere(42, 1.0).triangles)])

    def writer() -> VtkhdfWriter:
        return VtkhdfWriter(path, layout)

    with (
        refused(location=str(path), problem="'Points' has 1 places written; there are 2"),
        writer() as one,
    ):
        one.write(POINTS, [1], x)
    with refused(problem="twice", remedy="once"), writer() as two:
        two.write(POINTS, [1], x)
        two.write(POINTS, [1], x)
    with refused(problem="not finite"), writer() as three:
        three.write(POINTS, [0], x * np.nan)
    with refused(problem="taken", remedy="new name"), writer() as four:
        four.create("u", np.float64, 3)
        four.create("u", np.int64, per_cell=True)
    assert not path.exists()


def _seen_sphere(radius: float = 1.0) -> tuple[SurfaceImage, MembraneMesh]:
    mesh = sphere(2562, radius)
    corners = np.array(list(np.ndindex(2, 2, 2))) * 2.4 - 1.2
    return SurfaceImage(View.of_points(corners, (160, 160))), mesh


@pytest.mark.parametrize(
    ("sides", "right", "up"),
    [
        ((24.0, 18.0, 18.0), 0, 1),
        ((32.0, 18.0, 25.8), 0, 1),
        ((1.0, 1.0, 1.0), 0, 1),
        ((10.0, 2.0, 4.0), 0, 2),
        ((1.0, 1.0, 9.0), 2, 1),
    ],
)
def test_the_longest_side_runs_right_and_of_like_sides_y_runs_up(sides, right, up) -> None:
    corners = np.array(list(np.ndindex(2, 2, 2))) * np.array(sides)
    axes = View.of_points(corners, (160, 160)).axes
    assert np.abs(axes[0]).argmax() == right
    assert np.abs(axes[1]).argmax() == up


def test_a_sphere_is_seen_where_it_is_and_lit_by_its_normals() -> None:
    image, mesh = _seen_sphere()
    view = image.view
    toward = mesh.vertices @ view.axes[2]
    image.draw(mesh.vertices, mesh.triangles, toward, np.full(len(toward), 7))
    y, x = np.indices(image.depth.shape) + 0.5
    u, v = (x - view.width / 2) / view.scale, (view.height / 2 - y) / view.scale
    square = u**2 + v**2
    inside, outside = square < 0.97, square > 1.0
    assert (image.body[inside] == 7).all()
    assert (image.body[outside] == -1).all()
    height = np.sqrt(np.maximum(1 - square, 0))
    np.testing.assert_allclose(image.value[inside], height[inside], atol=8e-3)
    depth = (0.5 - image.value[inside] / (2 * view.reach)) * (2.0**32 - 2)
    np.testing.assert_allclose(image.depth[inside], depth, rtol=1e-5)
    light = np.array([-0.35, 0.55, 0.76])
    lambert = np.clip((u * light[0] + v * light[1] + height * light[2]), 0, 1) / np.linalg.norm(
        light
    )
    np.testing.assert_allclose(image.light[inside], lambert[inside], atol=0.02)


def test_triangles_leave_no_pixel_out_and_take_none_twice() -> None:
    """Each pixel of a closed surface lies on two sheets, so that as much light passes everywhere."""
    image, mesh = _seen_sphere()
    clear = image.clearness(mesh.vertices, mesh.triangles, 0.2, 0.0)
    inside = image.depth == 0
    image.draw(
        mesh.vertices, mesh.triangles, mesh.vertices[:, 0], np.zeros(len(mesh.vertices), int)
    )
    inside = image.body == 0
    np.testing.assert_allclose(clear[inside], 0.8**2, rtol=1e-6)
    np.testing.assert_array_equal(clear[~inside], 1.0)
    # Behind what is drawn nothing takes light.
    smaller = image.clearness(0.9 * mesh.vertices, mesh.triangles, 0.2, 0.0)
    np.testing.assert_array_equal(smaller[inside], 1.0)


def test_parts_drawn_apart_merge_into_the_whole() -> None:
    whole, mesh = _seen_sphere(0.5)
    apart = [_seen_sphere()[0] for _ in range(2)]
    for body in (0, 1):
        points = mesh.vertices + 0.3 * body
        for image in (whole, apart[body]):
            image.draw(points, mesh.triangles, points[:, 1], np.full(len(points), body))
    apart[0].merge(*apart[1].part())
    for name in ("depth", "value", "light", "body"):
        np.testing.assert_array_equal(getattr(apart[0], name), getattr(whole, name))
    assert {0, 1} <= set(np.unique(whole.body))


def test_the_picture_shows_cells_within_their_vessel(
    scene: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.image import imread

    monkeypatch.setattr(surface_pictures, "MOST_PIXELS", (320, 200))
    monkeypatch.setattr(surface_pictures, "LEAST_WIDTH", 2.0)
    scene.suspension.kinds[0].total = 2
    outputs = CellOutputs(scene.suspension, scene.vessel, scene.region, UNITS, World(), "Capsules")
    results = outputs.finish(tmp_path, 0)
    pixels = imread(results.files["cell picture"])[..., :3]
    # Left of the colour bar nothing but cells has a colour.
    beside = round(surface_pictures.RIGHT * surface_pictures.DOTS_PER_INCH)
    share = (np.ptp(pixels[:, :-beside], axis=2) > 0.15).mean()
    assert 0.01 < share < 0.5


def test_walls_are_drawn_where_the_vessel_has_some() -> None:
    tube = vessel_walls(_tube())
    radii = np.hypot(*tube.points[:, 1:].T)
    assert radii.min() == pytest.approx(5.0, rel=1e-3)
    assert tube.points[:, 0].max() == pytest.approx(PERIOD * UM)
    assert len(tube.segments) == 2 * 96
    box = Box((8e-6, 6e-6, 4e-6), ("periodic", "walls", "open"))
    walls = vessel_walls(Vessel(None, box, ()))  # type: ignore[arg-type]
    assert len(walls.triangles) == 4
    corners = walls.points[walls.triangles]
    assert set(np.unique(corners[:, :, 1])) == {0.0, 6.0}
    area = np.linalg.norm(np.cross(*np.diff(corners, axis=1).swapaxes(0, 1)), axis=1).sum() / 2
    assert area == pytest.approx(2 * 8 * 4)
    lengths = np.linalg.norm(walls.segments[:, 1] - walls.segments[:, 0], axis=1)
    assert sorted(lengths) == pytest.approx([4.0] * 4 + [6.0] * 4 + [8.0] * 4)


def test_inlets_and_outlets_of_a_surface_are_left_open_with_lines_around_them() -> None:
    surface = surface_tube(5e-6, 20e-6)
    lattice = voxelise(surface, 1e-6, ("inlet", "outlet"))
    walls = vessel_walls(Vessel(lattice, surface, ()))
    ends = np.sort(walls.segments[:, :, 0], axis=1)
    assert set(np.round(ends.ravel(), 9)) == {0.0, 20.0}
    np.testing.assert_allclose(ends[:, 0], ends[:, 1])
    around = np.linalg.norm(walls.segments[:, 1] - walls.segments[:, 0], axis=1).sum()
    assert around == pytest.approx(2 * 2 * math.pi * 5.0, rel=0.03)


def test_scale_bars_have_round_lengths() -> None:
    assert [round_length(most) for most in (0.7, 1.0, 19.0, 49.0, 50.0)] == [0.5, 1, 10, 20, 50]
