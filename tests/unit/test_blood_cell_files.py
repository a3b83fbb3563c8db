"""Claims about cells whose shape is a surface from a file: size, axis, elements, packing and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import closed_surfaces
import numpy as np
import pytest
from absent_device import AbsentDevice
from refusals import refused
from small_membranes import membranes

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.device.targets import KnownTarget
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.surfaces.surfaces import Surface, make_surface
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.filling.filling import kind_of, mesh_of
from haloscope.solvers.blood.filling.shapes import CellShape
from haloscope.solvers.blood.kernels import manifest
from haloscope.solvers.blood.membranes import mesh_files
from haloscope.solvers.blood.membranes.membranes import Membranes
from haloscope.solvers.blood.membranes.mesh_files import read_shape
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, red_cell

_CELL = red_cell(162, 1.0)


def _surface(mesh: MembraneMesh, *, roll: int = 0) -> Surface:
    corners = np.roll(mesh.vertices, roll, axis=1)[mesh.triangles]
    return make_surface(corners, np.zeros(len(corners)), ("cell",))


def _written(path: Path, surface: Surface) -> str:
    write_stl(path, surface)
    return str(path)


def _case(shape: str, **cell: Any) -> BloodCase:
    keys = {"placed": [{"position_um": [7.0, 6.0, 5.5]}], **cell}
    table = {
        "spacing_um": 1.0,
        "channel": {"size_um": [14.0, 12.0, 11.0], "periodic": ["x", "z"]},
        "cells": [{"shape": shape, "radius_um": 4.0, **keys}],
    }
    data = {"solver": "blood", "blood": table, "output": {"fields": False, "picture": False}}
    return check(data, BloodCase, "test")


def _opened(case: BloodCase) -> Simulation:
    return Simulation(case, device=CpuDevice(threads=1), world=World())


@pytest.mark.parametrize("roll", [0, 1, 2])
def test_a_red_cell_in_a_file_is_a_red_cell(tmp_path, roll):
    # Whatever its unit, its place and which of its axes is the short one.
    surface = _surface(MembraneMesh(0.013 * _CELL.vertices, _CELL.triangles), roll=roll)
    moved = replace(surface, points=surface.points + (3.0, -2.0, 0.5))
    case = _case(_written(tmp_path / "cell.stl", moved))
    (table,) = case.blood.cells
    mesh, wanted = mesh_of(table), red_cell(162, 4.0)
    assert table.vertex_count == 162
    assert table.used_elements == "loop"
    assert np.ptp(mesh.vertices, axis=0) == pytest.approx(np.ptp(wanted.vertices, axis=0), rel=1e-9)
    assert mesh.volume() == pytest.approx(wanted.volume(), rel=1e-9)
    assert mesh.area() == pytest.approx(wanted.area(), rel=1e-9)
    assert table.volume == pytest.approx(wanted.volume() * 1e-18, rel=1e-9)
    line = table.notices()[-1]
    assert f"is scaled by {4 / 0.013:.6g} um a unit" in line
    assert f"with {'zxy'[roll]} of the file as its axis" in line
    assert case.blood.cells[0].count(1.0) == 1


def test_the_shape_in_the_file_is_free_of_stress(tmp_path):
    stretched = MembraneMesh(_CELL.vertices * (1.0, 0.6, 1.3), _CELL.triangles)
    case = _case(_written(tmp_path / "cell.stl", _surface(stretched)))
    simulation = _opened(case)
    local = simulation.solver.suspension.kinds[0]
    forces = local.membranes.on_host(local.membranes.forces, 1)
    energies = local.membranes.energies(1)
    kind = kind_of(case.blood.cells[0], case.blood.units)
    disturbed = membranes(kind.mesh, kind.law)
    disturbed.set_cells(0, kind.mesh.vertices[None] * (1.1, 1.0, 1.0))
    disturbed.compute_forces(1)
    size = np.abs(disturbed.on_host(disturbed.forces, 1)).max()
    assert np.abs(forces).max() < 1e-10 * size
    assert sum(energy[0] for energy in energies.values()) < 1e-15 * sum(
        energy[0] for energy in disturbed.energies(1).values()
    )


def test_vertices_with_four_neighbours_make_elements_linear_and_the_run_says_so(tmp_path):
    file = _written(tmp_path / "sphere.stl", closed_surfaces.sphere(3))
    case = _case(file)
    assert case.blood.cells[0].used_elements == "linear"
    simulation = _opened(case)
    (line,) = [line for line in simulation.solver.notices if "elements are linear" in line]
    assert "6 vertices have other than 5 or 6 neighbours" in line
    simulation.run(2, ceilings=False)
    assert simulation.solver.suspension.kinds[0].kind.elements == "linear"


@pytest.mark.parametrize("name", ["loop", "linear"])
def test_the_kernels_of_such_a_kind_are_built(tmp_path, name):
    surface = _surface(_CELL) if name == "loop" else closed_surfaces.sphere(3)
    case = _case(_written(tmp_path / "cell.stl", surface))
    kind = kind_of(case.blood.cells[0], case.blood.units)
    assert kind.elements == name

    class Gpu(AbsentDevice):
        def __init__(self) -> None:
            super().__init__("sm_90")
            self.asked: list[Any] = []

        def kernel(self, file: Path, name: str, constants: Any) -> Any:
            self.asked.append((file.name, constants))
            return super().kernel(file, name, constants)

    gpu = Gpu()
    Membranes(gpu, kind.mesh, 1, kind.law, elements=kind.elements).compute_forces(1)
    built = [(file.source.name, file.constants) for file in manifest(case, KnownTarget("sm_90"), 1)]
    assert len(gpu.asked) == 1
    assert gpu.asked[0] in built


def test_the_body_of_revolution_around_a_mesh_holds_it_and_is_little_larger():
    mesh = red_cell(642)
    around, exact = CellShape.around(mesh), CellShape.biconcave(3.91)
    x, y, z = mesh.vertices.T
    assert around.distance(np.hypot(x, y), z).max() < 1e-2
    assert around.radius == pytest.approx(exact.radius, rel=2e-3)
    assert around.half_height == pytest.approx(exact.half_height, rel=5e-3)
    assert exact.volume < around.volume < 1.15 * exact.volume
    rod = MembraneMesh(mesh.vertices * (0.4, 1.0, 1.0), mesh.triangles)
    assert CellShape.around(rod).radius == pytest.approx(3.91, rel=2e-3)


def test_cells_from_a_file_fill_a_vessel_apart_from_each_other(tmp_path):
    egg = MembraneMesh(_CELL.vertices * (1.0, 0.8, 1.2), _CELL.triangles)
    file = _written(tmp_path / "egg.stl", _surface(egg))
    case = _case(file, radius_um=2.0, placed=[], hematocrit=0.15)
    simulation = _opened(case)
    lattice, suspension = simulation.solver.vessel.lattice, simulation.solver.suspension
    count = suspension.kinds[0].count
    volume = mesh_of(case.blood.cells[0]).volume()
    assert count == round(0.15 * lattice.count / volume) > 10
    simulation.run(2, ceilings=False)


# Refusals


def _torus() -> Surface:
    line = np.array(
        [[3.0 * np.cos(a), 3.0 * np.sin(a), 0.0] for a in np.linspace(0, 2 * np.pi, 25)]
    )
    u, v = np.meshgrid(np.arange(24), np.arange(12), indexing="ij")
    angle = 2 * np.pi * v / 12
    around = line[u] * (1 + np.cos(angle)[..., None] / 3)
    points = around + np.stack([0 * angle, 0 * angle, np.sin(angle)], axis=-1)
    quads = [
        (
            points[i, j],
            points[(i + 1) % 24, j],
            points[(i + 1) % 24, (j + 1) % 12],
            points[i, (j + 1) % 12],
        )
        for i in range(24)
        for j in range(12)
    ]
    corners = [t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))]
    return make_surface(np.array(corners), np.zeros(len(corners)), ("torus",))


def _pinched() -> Surface:
    """Two spheres that touch in one vertex."""
    one = closed_surfaces.sphere(2).corners
    both = np.concatenate([one, one + (2.0, 0.0, 0.0)])
    return make_surface(both, np.zeros(len(both)), ("two",))


def _pinched_twice() -> Surface:
    """Two spheres that touch in two vertices: as many edges and triangles as a sphere has for its vertices."""
    corners = closed_surfaces.sphere(2).corners
    place = np.array([0.5**0.5, 0.5**0.5, 0.0])
    corners = np.where(
        np.isclose(corners, place).all(axis=2)[..., None], (1.0, place[1], 0.0), corners
    )
    both = np.concatenate([corners, (corners * (-1.0, 1.0, 1.0) + (2.0, 0.0, 0.0))[:, ::-1]])
    return make_surface(both, np.zeros(len(both)), ("two",))


def _crossing() -> Surface:
    """A sphere of which one vertex is pushed out through the other side."""
    sphere = closed_surfaces.sphere(2)
    points = sphere.points.copy()
    points[np.argmax(points[:, 0])] = (-1.6, 0.05, 0.02)
    return replace(sphere, points=points)


def _thin() -> Surface:
    sphere = closed_surfaces.sphere(2)
    points = sphere.points.copy()
    a, b = sphere.triangles[0, :2]
    points[a] = 0.97 * points[b] + 0.03 * points[a]
    return replace(sphere, points=points)


_BAD: list[tuple[str, Callable[[], Surface], str]] = [
    ("open", lambda: _less(closed_surfaces.sphere(2), 1), "with a triangle on one side only"),
    (
        "two parts",
        lambda: make_surface(
            np.concatenate(
                [closed_surfaces.sphere(2).corners, closed_surfaces.sphere(2).corners + 5.0]
            ),
            np.zeros(256),
            ("two",),
        ),
        "2 parts that do not touch",
    ),
    ("torus", _torus, "it has 1 handle$"),
    ("pinched twice", _pinched_twice, "a vertex where two parts touch"),
    ("pinched", _pinched, "a vertex where two parts touch"),
    ("crossing", _crossing, "it crosses itself"),
    ("thin", _thin, "has the quality 0.0"),
    ("few", lambda: closed_surfaces.sphere(1), "it has 18 vertices"),
]


def _less(surface: Surface, triangles: int) -> Surface:
    return replace(
        surface, triangles=surface.triangles[triangles:], groups=surface.groups[triangles:]
    )


@pytest.mark.parametrize(("name", "surface", "problem"), _BAD, ids=[name for name, *_ in _BAD])
def test_surfaces_that_are_no_cells_are_refused_in_one_line(tmp_path, name, surface, problem):
    file = _written(tmp_path / "bad.stl", surface())
    with refused(
        location=f"blood.cells red-cell.shape: surface file {file}", problem=problem
    ) as refusal:
        _opened(_case(file))
    assert "\n" not in refusal.text


def test_files_that_are_absent_or_far_too_large_are_refused_before_they_are_read(
    tmp_path, monkeypatch
):
    with refused(location="blood.cells red-cell.shape", problem="does not exist"):
        _opened(_case(str(tmp_path / "absent.stl")))
    file = _written(tmp_path / "cell.stl", _surface(_CELL))
    monkeypatch.setattr(mesh_files, "_MOST_BYTES", 10_000)
    mesh_files._read.cache_clear()
    with refused(problem="it has 0 MiB", allowed="at most 0 MiB for a cell"):
        _opened(_case(file))


def test_unknown_shapes_and_vertices_of_a_file_are_refused(tmp_path):
    with refused(
        location="shape = 'cube'", allowed="biconcave, sphere, oblate, or the path of a .stl"
    ):
        _case("cube")
    with refused(location="vertices = 92", remedy="leave vertices out"):
        _case("cell.stl", vertices=92)


def test_a_changed_file_is_read_again(tmp_path):
    file = _written(tmp_path / "cell.stl", _surface(_CELL))
    before = read_shape(file)
    assert read_shape(file) is before
    _written(tmp_path / "cell.stl", closed_surfaces.sphere(3))
    assert len(read_shape(file).mesh.vertices) == 258
