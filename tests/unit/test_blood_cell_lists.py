"""Claims about HemoCell's lists of cells: positions, turns, which cells have room, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.surfaces.surfaces import make_surface
from haloscope.run import Simulation
from haloscope.solvers.blood import cell_lists
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cell_lists import count_of, quaternions_of, read_list
from haloscope.solvers.blood.filling.packing import rotations
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, red_cell

_TO_REST = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
"""As HemoCell's `constructCell` turns a mesh that it has read: (x, y, z) to (-y, -z, x)."""


def _about(axis: int, degrees: float) -> np.ndarray:
    """Right-handed rotation about x, y or z."""
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    matrix = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[i, i] = matrix[j, j] = c
    matrix[i, j], matrix[j, i] = -s, s
    return matrix


def _hemocell(angles: Any) -> np.ndarray:
    """R = Rz Ry Rx of three angles in degrees."""
    return _about(2, angles[2]) @ _about(1, angles[1]) @ _about(0, angles[0])


def _case(
    file: Path | str, *, shape: str = "biconcave", blood: Any = None, **cell: Any
) -> BloodCase:
    table = {
        "spacing_um": 1.0,
        "channel": {"size_um": [30.0, 20.0, 20.0], "periodic": ["x"]},
        "cells": [{"name": "RBC", "shape": shape, "positions": str(file), **cell}],
        **(blood or {}),
    }
    data = {"solver": "blood", "blood": table, "output": {"fields": False, "picture": False}}
    return check(data, BloodCase, "test")


def _opened(case: BloodCase) -> Simulation:
    return Simulation(case, device=CpuDevice(threads=1), world=World())


def _list(folder: Path, *cells: str, count: int | None = None) -> Path:
    path = folder / "RBC.pos"
    path.write_text("\n".join([str(len(cells) if count is None else count), *cells]) + "\n")
    return path


def _vertices(simulation: Simulation, kind: int = 0) -> np.ndarray:
    """Vertices (n, V, 3) of the cells of a kind at the start, in um."""
    _, states = simulation.solver.suspension.table(kind)
    lattice = simulation.solver.vessel.lattice
    return (lattice.origin + states[:, 0] * lattice.spacing) * 1e6


def test_turns_are_those_of_hemocell_to_rounding():
    angles = np.random.default_rng(1).uniform(-400, 400, (200, 3))
    turns = rotations(quaternions_of(angles))
    expected = np.array([_hemocell(row) @ _TO_REST for row in angles])
    assert np.abs(turns - expected).max() < 2e-15
    simple = np.array([[0, 0, 0], [90, 0, 0], [0, 90, 0], [0, 0, 90], [180, 0, 0]], float)
    expected = np.array([_hemocell(row) @ _TO_REST for row in simple])
    assert np.abs(rotations(quaternions_of(simple)) - expected).max() < 5e-16


def test_a_disc_at_rest_has_its_axis_along_y_and_turns_as_written(tmp_path):
    path = _list(tmp_path, "6 10 10 0 0 0", "14 10 10 90 0 0", "22 10 10 0 0 90")
    shapes = [
        np.ptp(cell, axis=0).argmin() for cell in _vertices(_opened(_case(path, vertices=162)))
    ]
    assert shapes == [1, 2, 0]


def test_cells_lie_where_the_list_and_its_offset_say(tmp_path):
    path = _list(tmp_path, "1.5 -3 4.25 10 20 30", "12 -4 5 -35 80 5")
    simulation = _opened(_case(path, vertices=162, offset_um=[8.0, 13.0, 5.5]))
    mesh = red_cell(162).vertices
    for cell, place, angles in zip(
        _vertices(simulation),
        [(9.5, 10.0, 9.75), (20.0, 9.0, 10.5)],
        [(10, 20, 30), (-35, 80, 5)],
        strict=True,
    ):
        assert np.abs(cell - place - mesh @ (_hemocell(angles) @ _TO_REST).T).max() < 1e-13 * 20


@pytest.mark.parametrize("roll", [0, 1, 2])
def test_a_mesh_from_a_file_turns_from_its_pose_in_the_file(tmp_path, roll):
    egg = MembraneMesh(red_cell(162, 1.0).vertices * (1.0, 0.7, 1.0), red_cell(162).triangles)
    corners = np.roll(egg.vertices, roll, axis=1)[egg.triangles]
    write_stl(tmp_path / "egg.stl", make_surface(corners, np.zeros(320), ("egg",)))
    path = _list(tmp_path, "15 10 10 25 -40 70")
    shape = str(tmp_path / "egg.stl")
    (cell,) = _vertices(_opened(_case(path, shape=shape, radius_um=3.0)))
    expected = (np.unique(corners.reshape(-1, 3), axis=0) * 3.0) @ (
        _hemocell((25, -40, 70)) @ _TO_REST
    ).T
    missed = np.linalg.norm(cell[:, None] - 15 * np.eye(3)[0] - (0, 10, 10) - expected, axis=2)
    assert missed.min(axis=1).max() < 1e-9
    assert missed.min(axis=0).max() < 1e-9


def test_cells_without_room_are_left_out_and_counted(tmp_path):
    path = _list(
        tmp_path,
        "6 10 10 0 0 0",
        "6 10.4 10 0 0 0",  # In the first
        "15 10 10 90 0 0",
        "15 18 10 90 0 0",  # In the wall at y = 20
        "40 10 10 0 0 0",  # Beyond the periodic end
        "15 -5 10 0 0 0",
        "28 10 10 0 0 90",
        "1 13 10 0 0 0",  # Across the periodic end, in the one before and in the first
        "15 10 10 90 0 0",  # On the same spot
    )
    simulation = _opened(_case(path, vertices=162))
    assert simulation.solver.suspension.kinds[0].total == 3
    (line,) = [line for line in simulation.solver.notices if "RBC.pos" in line]
    assert line.endswith(
        "3 of 9 cells placed; left out: 2 outside the vessel, 1 in a wall, 3 in a cell before them, the first is "
        "cell 2"
    )
    summary = simulation.run(1, out=tmp_path / "out", ceilings=False)
    assert summary["notices"].count(line) == 1
    numbers = json.loads((tmp_path / "out" / "summary.json").read_text())["cells"]["RBC"]
    assert {
        name: numbers[f"list_{name}"] for name in ("listed", "outside", "walls", "overlaps")
    } == {
        "listed": 9,
        "outside": 2,
        "walls": 1,
        "overlaps": 3,
    }
    assert numbers["count"] == 3


def test_a_cell_in_one_that_was_left_out_itself_stays(tmp_path):
    # Discs of 2.6 um upon each other, 1.5 um apart.
    path = _list(tmp_path, *(f"15 {y} 10 0 0 0" for y in (8.0, 9.5, 11.0, 12.5)))
    simulation = _opened(_case(path, vertices=162))
    assert np.allclose(_vertices(simulation).mean(axis=1)[:, 1], [8.0, 11.0])


def test_cells_of_a_list_keep_off_placed_ones_and_off_other_lists(tmp_path):
    first = _list(tmp_path, "6 10 10 0 0 0", "15 10 10 0 0 0")
    second = tmp_path / "PLT.pos"
    second.write_text("3\n15 10.5 10 0 0 0\n24 10 10 0 0 0\n10.5 15 10 0 0 0\n")
    placed = [{"position_um": [24.0, 10.0, 10.0]}]
    cells = [
        {"name": "RBC", "vertices": 162, "positions": str(first)},
        {
            "name": "PLT",
            "shape": "oblate",
            "radius_um": 1.2,
            "vertices": 42,
            "positions": str(second),
        },
        {"name": "mine", "vertices": 162, "placed": placed},
    ]
    simulation = _opened(_case(first, blood={"cells": cells}))
    assert [local.total for local in simulation.solver.suspension.kinds] == [2, 1, 1]
    assert np.allclose(_vertices(simulation, 1).mean(axis=1), [[10.5, 15.0, 10.0]])


def test_bodies_around_meshes_may_overlap_where_membranes_do_not(tmp_path):
    sphere = red_cell(162, 1.0)
    plank = MembraneMesh(sphere.vertices * (1.0, 0.5, 1.0), sphere.triangles)
    write_stl(
        tmp_path / "plank.stl",
        make_surface(plank.vertices[plank.triangles], np.zeros(320), ("plank",)),
    )
    shape = str(tmp_path / "plank.stl")
    # Long sides beside each other: at rest x of the file is z, y is -x.
    beside = _list(tmp_path, "13 10 10 0 0 0", "16.2 10 10 0 0 0")
    assert _opened(_case(beside, shape=shape, radius_um=3.0)).solver.suspension.kinds[0].total == 2
    crossing = _list(tmp_path, "13 10 10 0 0 0", "14.4 10 10.5 0 40 0")
    assert (
        _opened(_case(crossing, shape=shape, radius_um=3.0)).solver.suspension.kinds[0].total == 1
    )


def test_cells_after_as_many_as_a_list_announces_are_reported_and_not_read(tmp_path):
    # As in a third of the lists that come with HemoCell, which reads no more, either.
    path = _list(tmp_path, "6 10 10 0 0 0", "15 10 10 90 0 0", "24 10 10 0 0 0", count=1)
    simulation = _opened(_case(path, vertices=162))
    assert simulation.solver.suspension.kinds[0].total == 1
    (line,) = [line for line in simulation.solver.notices if "RBC.pos" in line]
    assert line.endswith("1 of 1 cell placed; not read: 2 after as many as the file announces")
    path.write_text("0\n1 2 3 4 5 6\n")
    assert _opened(_case(path, vertices=162)).solver.suspension.kinds[0].total == 0


def test_a_list_without_any_room_is_refused(tmp_path):
    with refused(
        location="blood.cells.positions",
        problem="none of 2 cells has room in the vessel: .*2 outside the vessel",
        remedy="offset_um",
    ):
        _opened(_case(_list(tmp_path, "-50 0 0 0 0 0", "80 0 0 0 0 0"), vertices=162))


def test_an_empty_list_and_other_breaks_of_lines_are_read(tmp_path):
    path = tmp_path / "RBC.pos"
    path.write_text(" 2\r\n1 2 3\n4 5 6 7 8 9\n\n10 11 12")
    assert read_list(str(path)).positions.tolist() == [[1, 2, 3], [7, 8, 9]]
    assert read_list(str(path)).angles.tolist() == [[4, 5, 6], [10, 11, 12]]
    assert count_of(str(path)) == 2
    path.write_text("0\n")
    assert read_list(str(path)).positions.shape == (0, 3)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"", 1, "'' is not a number of cells"),
        (b"three\n", 1, "'three' is not a number of cells"),
        (b"-1\n", 1, "'-1' is not a number of cells"),
        (b"1 2 3\n", 1, "'1 2 3' is not a number of cells"),
        (b"999999999999\n1 2 3 4 5 6\n", 1, "999999999999 cells do not fit into 25 bytes"),
        (b"9" * 400 + b"\n", 1, "is not a number of cells"),
        (
            b"2\n1.5 2.5 3.5 4.5 5.5 6.5\n1 2 3\n",
            3,
            "the file ends after 1 cell and 3 numbers, but announces 2",
        ),
        (b"2\n1.5 2.5 3.5 4.5 5.5 6.5\n\n\n\n\n", 6, "the file ends after 1 cell, but announces 2"),
        (b"1\n1 2 3 4 5 6\n7 8\n", 3, "the file ends after 1 cell and 2 numbers, but announces 1"),
        (b"1\n1 2 nan 4 5 6\n", 2, "'nan' is not a finite number"),
        (b"1\n1 2 1e30 4 5 6\n", 2, "'1e30' is not a finite number"),
        (b"1\n1 2 3 4 5,5 6\n", 2, "'5,5' is not a number"),
        (b"1\n1 2 3 4 5 1_0\n", 2, "'1_0' is not a number"),
        (b"1\n1 2 3 4 5 \xff\xfe\n", 2, "not a line of text"),
        (b"\0\0\0\0" * 40, 1, "not a line of text"),
    ],
)
def test_damaged_lists_end_in_one_line_with_its_number(tmp_path, content, line, problem):
    path = tmp_path / "RBC.pos"
    path.write_bytes(content)
    where = f"blood.cells RBC.positions: list of cells {path}, line {line}$"
    with refused(location=where, problem=problem) as refusal:
        _opened(_case(path, vertices=162))
    assert "\n" not in refusal.text
    assert len(refusal.text) < 400 + len(str(path))


def test_absent_and_far_too_large_lists_are_refused_before_they_are_read(tmp_path, monkeypatch):
    with refused(location="absent.pos", problem="it does not exist"):
        _opened(_case(tmp_path / "absent.pos"))
    with refused(problem="it is a folder"):
        _opened(_case(tmp_path))
    monkeypatch.setattr(cell_lists, "_MOST_BYTES", 10)
    with refused(problem="it has 0 MiB", allowed="at most 0 MiB"):
        _opened(_case(_list(tmp_path, "6 10 10 0 0 0")))
    monkeypatch.undo()
    # Memory is estimated from the first line alone.
    path = _list(tmp_path, *["1 2 3 4 5 x"] * 5)
    assert _case(path).blood.cells[0].count(1.0) == 5
