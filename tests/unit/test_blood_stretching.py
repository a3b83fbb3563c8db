"""Claims about cells that are pulled apart: forces on their ends, shapes, signals, restarts and refusals."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_branches import ThreadsGpu
from refusals import refused
from small_membranes import disturbed, membranes, one_core

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.membranes.membranes import ALONE, OWN, MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, red_cell
from haloscope.solvers.blood.membranes.stretching import Pull, Stretch
from haloscope.solvers.blood.verification import single_cells

_MESH = red_cell(162)
_LAW = MembraneLaw(2.5, dilation=10.0, bending_modulus=0.2)


def _turn(seed: int) -> np.ndarray:
    """A rotation of any direction and angle."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return q * np.sign(np.linalg.det(q))


def _forces(x: np.ndarray, pull: float, stiffness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Forces of the membranes of cells at x, (n, V, 3), without and with the pull."""
    cells = membranes(_MESH, _LAW, count=len(x))
    cells.set_cells(0, x)
    cells.divide(np.arange(len(x)))
    cells.compute_forces_of(ALONE)
    before = cells.on_host(cells.forces, len(x)).copy()
    pulls = Pull(one_core(), Stretch.of_mesh(_MESH, pull, stiffness), _MESH)
    pulls.set(1.0)
    pulls.apply(cells, ALONE)
    return before, cells.on_host(cells.forces, len(x)).copy()


def _expected(x: np.ndarray, f: np.ndarray, pull: float, stiffness: float) -> np.ndarray:
    """The forces on one cell, with rotations from singular values."""
    ends = Stretch.of_mesh(_MESH, pull, stiffness).ends
    means = [x[end].mean(axis=0) for end in ends]
    away = (means[1] - means[0]) / np.linalg.norm(means[1] - means[0])
    expected = f.copy()
    for sign, end, mean in zip((-1, 1), ends, means, strict=True):
        r = x[end] - mean
        q = _MESH.vertices[end] - _MESH.vertices[end].mean(axis=0)
        u, _, v = np.linalg.svd(r.T @ q)
        rotation = u @ np.diag([1, 1, np.linalg.det(u @ v)]) @ v
        inertia = np.eye(3) * (r**2).sum() - r.T @ r
        turn = np.linalg.solve(inertia, np.cross(r, f[end]).sum(axis=0))
        expected[end] = f[end].mean(axis=0) + np.cross(turn, r) + sign * pull / len(end) * away
        expected[end] -= stiffness * (r - q @ rotation.T)
    return expected


def test_ends_move_like_stiff_bodies_and_are_pulled_along_the_line_between_them():
    x = disturbed(_MESH, 3)
    x[1] = x[1] @ _turn(4).T + 300.0
    x[2] = -x[2] @ _turn(5).T + (10.0, -70.0, 3.0)
    before, after = _forces(x, 40.0)
    for cell, f, got in zip(x, before, after, strict=True):
        expected = _expected(cell, f, 40.0, 3.0)
        assert np.abs(got - expected).max() < 1e-9 * np.abs(expected).max()
        # No force and no torque comes of it.
        centred = cell - cell.mean(axis=0)
        assert np.abs((got - f).sum(axis=0)).max() < 1e-11 * np.abs(got).sum()
        assert np.abs(np.cross(centred, got - f).sum(axis=0)).max() < 1e-11 * np.abs(got).sum()
    ends = np.concatenate(Stretch.of_mesh(_MESH, 40.0, 3.0).ends)
    others = np.setdiff1d(np.arange(162), ends)
    assert np.array_equal(before[:, others], after[:, others])
    assert not np.array_equal(before[:, ends], after[:, ends])


def test_forces_have_the_same_bits_whatever_other_cells_and_parts_there_are():
    x = disturbed(_MESH, 5)
    _, alone = _forces(x[2:3], 40.0)
    cells = Membranes(CpuDevice(threads=2), _MESH, 8, _LAW)
    cells.set_cells(0, x)
    cells.divide(np.array([3]), np.array([4, 2]), np.array([0, 1]))
    pulls = Pull(cells._device, Stretch.of_mesh(_MESH, 40.0, 3.0), _MESH)
    pulls.set(1.0)
    for part in (ALONE, OWN):
        cells.compute_forces_of(part)
        pulls.apply(cells, part)
    assert np.array_equal(cells.on_host(cells.forces, 5)[2], alone[0])


def test_a_gpu_computes_the_same_bits_as_cores(tmp_path):
    x = disturbed(_MESH, 2) + 50.0
    _, wanted = _forces(x, 40.0)
    gpu = ThreadsGpu(tmp_path)
    on_cores = membranes(_MESH, _LAW, count=2)
    on_cores.set_cells(0, x)
    on_cores.compute_forces(2)
    cells = membranes(_MESH, _LAW, count=2)
    cells.set_cells(0, x)
    cells.divide(np.arange(2))
    cells.forces[...] = on_cores.forces
    pulls = Pull(gpu, Stretch.of_mesh(_MESH, 40.0, 3.0), _MESH)
    pulls.set(1.0)
    pulls.apply(cells, ALONE)
    assert np.array_equal(cells.on_host(cells.forces, 2), wanted)


def test_diameters_follow_the_cell_and_not_the_axes():
    stretch = Stretch.of_mesh(_MESH, 1.0, 1.0)
    wide = _MESH.vertices * (1.5, 0.7, 1.0)
    turned = wide @ _turn(3).T + 20.0
    for cell in (wide, turned):
        axial, transverse = stretch.diameters(cell[None])
        assert axial[0] == pytest.approx(3 * 3.91, rel=1e-12)
        assert transverse[0] == pytest.approx(1.4 * 3.91, rel=1e-12)
    upright = Stretch.of_mesh(_MESH, 1.0, 1.0, direction=(0.0, 0.0, 2.0))
    height = np.ptp(_MESH.vertices[:, 2])
    assert upright.diameters(_MESH.vertices[None])[0] == pytest.approx(height)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3])
def test_ends_are_mirror_images_of_at_least_three_vertices(share):
    first, second = Stretch.of_mesh(_MESH, 1.0, 1.0, share=share).ends
    assert len(first) == len(second) >= max(3, round(162 * share))
    places = [_MESH.vertices[end] * (sign, 1, 1) for end, sign in ((first, -1), (second, 1))]
    assert np.allclose(*(np.sort(place.round(9), axis=0) for place in places))


def test_ends_of_a_thin_cell_that_is_pulled_along_its_axis_have_no_vertex_in_common():
    first, second = Stretch.of_mesh(_MESH, 1.0, 1.0, direction=(0.0, 0.0, 1.0), share=0.3).ends
    assert not np.intersect1d(first, second).size
    assert (_MESH.vertices[first, 2] < 0).all()
    assert (_MESH.vertices[second, 2] > 0).all()


def test_ends_whose_vertices_lie_on_a_line_are_refused():
    box = MembraneMesh(_MESH.vertices * (1.0, 1e-5, 1.0), _MESH.triangles)
    flat = replace(box, vertices=np.where(np.abs(box.vertices) < 1.0, 0.0, box.vertices))
    with refused(location="stretch.share", problem="on a line"):
        Stretch.of_mesh(flat, 1.0, 1.0)


def test_shapes_in_equilibrium_are_those_of_the_first_release():
    shapes = single_cells.stretch(one_core(), single_cells.measured().force)
    # As computed with means of forces over ends, before cases could pull cells.
    axial = [
        7.8708733,
        9.5827537,
        10.6580541,
        11.5513014,
        12.4987492,
        13.2392784,
        13.8977608,
        14.8912655,
        15.6456727,
    ]
    transverse = [
        7.9347175,
        6.9958168,
        6.4160249,
        5.9900505,
        5.5101859,
        5.1050182,
        4.6985718,
        4.0624668,
        3.8240746,
    ]
    assert shapes.axial == pytest.approx(axial, abs=1e-6)
    assert shapes.transverse == pytest.approx(transverse, abs=1e-6)


_TABLE: dict[str, Any] = {
    "spacing_um": 1.0,
    "relaxation_time": 1.5,
    "viscosity_mpa_s": 0.4,
    "channel": {"size_um": [16.0, 12.0, 10.0], "periodic": ["x", "y", "z"]},
    "cells": [
        {
            "vertices": 92,
            "placed": [{"position_um": [8.0, 6.0, 5.0], "axis": [0.3, 0.2, 1.0]}],
            "stretch": {"force_pn": 100.0, "signal": "min(1, t/2e-5)"},
        }
    ],
}


def _case(*, without: str = "", **cell: Any) -> BloodCase:
    keys = {**_TABLE["cells"][0], **cell}
    table = {**_TABLE, "cells": [{name: keys[name] for name in keys if name != without}]}
    data = {
        "solver": "blood",
        "blood": table,
        "output": {"fields": False, "picture": False, "interval": 20},
        "checkpoint": {"at_end": True},
    }
    return check(data, BloodCase, "test")


def _run(case: BloodCase, steps: int, out: Any, *, restart: bool = False) -> Simulation:
    simulation = Simulation(case, device=CpuDevice(threads=1), world=World())
    simulation.run(steps, out=out, restart=restart, ceilings=False)
    return simulation


def _rows(out: Any) -> list[dict[str, str]]:
    with (out / "cells.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_ramp_pulls_more_and_more_and_restarts_to_the_bit(tmp_path):
    whole = _run(_case(), 60, tmp_path / "whole")
    _run(_case(), 20, tmp_path / "halves")
    halves = _run(_case(), 60, tmp_path / "halves", restart=True)
    assert np.array_equal(*(s.solver.suspension.table(0)[1] for s in (whole, halves)))
    assert np.array_equal(whole.solver.owned("f03"), halves.solver.owned("f03"))
    rows = _rows(tmp_path / "whole")
    assert rows == _rows(tmp_path / "halves")
    times, forces, axial = (
        np.array([float(row[name]) for row in rows])
        for name in ("time_s", "stretch_pn", "axial_um")
    )
    assert forces == pytest.approx(100 * np.minimum(1, times / 2e-5), rel=1e-12)
    assert forces[0] == 0
    assert 0 < forces[1] < 99
    assert (np.diff(axial) > 0).all()
    # Another signal is another force from the first step on.
    other = _run(_case(stretch={"force_pn": 100.0}), 60, tmp_path / "other")
    assert not np.array_equal(*(s.solver.suspension.table(0)[1] for s in (whole, other)))


def test_a_run_goes_on_with_a_pull_and_without_one_in_the_same_table(tmp_path):
    _run(_case(without="stretch"), 20, tmp_path)
    _run(_case(), 40, tmp_path, restart=True)
    pulled = _rows(tmp_path)
    _run(_case(without="stretch"), 60, tmp_path, restart=True)
    rows = _rows(tmp_path)
    assert rows[: len(pulled)] == pulled
    forces = [float(row["stretch_pn"]) for row in rows]
    assert [int(row["step"]) for row in rows] == [0, 20, 40, 60]
    assert np.isnan(forces).tolist() == [True, True, False, True]


def test_the_summary_tells_force_and_diameters(tmp_path):
    _run(_case(), 60, tmp_path)
    numbers = json.loads((tmp_path / "summary.json").read_text())["cells"]["red-cell"]
    last = _rows(tmp_path)[-1]
    assert numbers["stretch_pn"] == float(last["stretch_pn"])
    assert numbers["axial_um_mean"] == float(last["axial_um"])
    assert numbers["transverse_um_mean"] == float(last["transverse_um"])


def test_cells_that_are_not_pulled_have_no_columns_of_it(tmp_path):
    _run(_case(without="stretch"), 1, tmp_path)
    assert "stretch_pn" not in _rows(tmp_path)[0]


@pytest.mark.parametrize(
    ("stretch", "place", "problem"),
    [
        ({"force_pn": 0.0}, "force_pn", "out of range|greater"),
        ({"force_pn": 1.0, "direction": [0.0, 0.0, 0.0]}, "direction", "it is 0"),
        ({"force_pn": 1.0, "share": 0.5}, "share", ""),
        ({"force_pn": 1.0, "period_s": 1.0}, "period_s = 1", "constant"),
        ({"force_pn": 1.0, "signal": "x"}, "signal", "x"),
        ({"force_pn": 1.0, "signal": "absent.csv"}, "signal: table absent.csv", "cannot be read"),
    ],
)
def test_keys_of_a_stretch_are_checked(stretch, place, problem):
    with refused(location=place, problem=problem):
        _case(stretch=stretch)
