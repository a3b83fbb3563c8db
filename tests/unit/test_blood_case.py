"""Claims about blood cases that are wrong: refused in one line that says what is allowed, at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.case.tables import check, read_case
from haloscope.device import open_device
from haloscope.device.meters import Ceilings
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.surfaces.surface_generators import bifurcation
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers import registry
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cells.suspension import Suspension

_RUN = """
[run]
steps = 2
[output]
fields = false
picture = false
"""
_CHANNEL = f"""
solver = "blood"
[blood]
spacing_um = 1.0
[blood.channel]
size_um = [12.0, 12.0, 12.0]
periodic = ["x", "z"]
{_RUN}
"""
_VESSEL = f"""
solver = "blood"
[blood]
spacing_um = 1.0
[blood.surface]
file = "whole.stl"
scale_um = 1e6
[[blood.openings]]
name = "outlet-1"
kind = "pressure"
[[blood.openings]]
name = "outlet-2"
kind = "pressure"
[[blood.openings]]
name = "inlet"
kind = "velocity"
value = 1e-3
{_RUN}
"""
_OPEN = 'blood.channel={size_um=[12.0, 12.0, 12.0], periodic=[], open=["x"]}'
_IN = 'name="x_low", kind="velocity", value=1e-3'
_OUT = 'name="x_high", kind="pressure"'
_MIDDLE = "placed=[{position_um=[6.0, 6.0, 6.0]}]"


def _openings(*tables: str) -> str:
    return f"blood.openings=[{', '.join('{' + table + '}' for table in tables)}]"


def _cells(more: str, *, radius: float = 2.5, vertices: int = 42) -> str:
    return (
        f'blood.cells=[{{shape="sphere", radius_um={radius}, vertices={vertices}, '
        f'elements="linear", {more}}}]'
    )


def _write_obj(surface: Surface, path: Path) -> None:
    """In micrometres, with a group for each name."""
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in (1e6 * surface.points).tolist()]
    for number, name in enumerate(surface.names):
        lines.append(f"g {name}")
        faces = 1 + surface.triangles[surface.groups == number]
        lines += [f"f {a} {b} {c}" for a, b, c in faces.tolist()]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Case files, and surfaces with and without a hole."""
    path = tmp_path_factory.mktemp("blood")
    (path / "channel.toml").write_text(_CHANNEL)
    (path / "vessel.toml").write_text(_VESSEL)
    surface = bifurcation(6e-6, 12e-6, 18e-6, step=1.5e-6)
    write_stl(path / "whole.stl", surface)
    _write_obj(surface, path / "whole.obj")
    # Two triangles that share one point: their holes touch.
    shared = (surface.triangles[:, :, None] == surface.triangles[500]).sum(axis=(1, 2))
    lost = [500, int((shared == 1).argmax())]
    triangles, groups = (np.delete(a, lost, 0) for a in (surface.triangles, surface.groups))
    write_stl(path / "leaking.stl", replace(surface, triangles=triangles, groups=groups))
    return path


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, call: Callable[..., tuple[int, str, str]]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Run a case file with settings: exit code, standard error."""
    made_up = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: made_up)
    monkeypatch.chdir(folder)

    def run_case(
        name: str, *settings: str, out: str = "out", flags: tuple[str, ...] = ()
    ) -> tuple[int, str]:
        options = [*flags, *(word for setting in settings for word in ("--set", setting))]
        code, _, err = call("run", f"{name}.toml", "--device", "cpu", "--out", out, *options)
        return code, err

    yield run_case


@pytest.fixture
def refusal(run, folder) -> Callable[..., str]:
    """The line with which a run is refused before anything is computed."""

    def message(name: str, *settings: str) -> str:
        code, err = run(name, *settings)
        assert code == 2, err
        assert err.startswith("haloscope: error: ")
        assert err.count("\n") == 1
        assert not (folder / "out").exists()
        return err

    return message


def test_what_the_others_change_is_right_otherwise(run):
    assert run("channel", _cells(_MIDDLE), out="channel")[0] == 0
    assert run("vessel", out="vessel")[0] == 0


# Vessels


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "blood.surface.file=leaking.stl",
            [
                "surface file leaking.stl: holes touch at (",
                ") um; close it with a mesh repair tool",
            ],
        ),
        (
            "blood.surface.file=nothing.stl",
            ["nothing.stl: it does not exist; give its path from the current folder /"],
        ),
        (
            "blood.surface.scale_um=1e10",
            [
                "blood.surface.scale_um = 1e+10: whole.stl is 2.83e+05 x ",
                "diameter of 1.2e+05 um is implausible",
                "3.7e+15 lattice points; allowed: at most 1e+12 lattice points",
                "for a file in metres set blood.surface.scale_um to 1e6",
            ],
        ),
        (
            "blood.surface.file=vessel.toml",
            ["the ending '.toml' is unknown", ".stl, .obj, .ply, .vtp"],
        ),
        ("blood.surface.scale_um=1.0", ["no lattice point lies inside", "unit"]),
        ("blood.spacing_um=2.2", ["too coarse", "points across at (", "use at most about"]),
    ],
)
def test_a_surface_that_does_not_do_is_told(refusal, setting, words):
    message = refusal("vessel", setting)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("inlet", "words"),
    [
        (
            'name="entry"',
            [
                "surface file whole.stl: there is no group 'entry'; allowed: wall, inlet, outlet-1, outlet-2"
            ],
        ),
        (
            'name="wall"',
            [
                "opening 'wall': this group of the surface file whole.stl is not a flat end of a vessel",
                "flat groups: inlet, outlet-1, outlet-2; give one of these groups, or give a position and",
            ],
        ),
        (
            'name="inlet", position_um=[500.0, 0.0, 0.0], normal=[-1.0, 0.0, 0.0]',
            [
                "opening 'inlet': it lies outside the surface file whole.stl",
                "near (500, 0, 0) um at the spacing 1 um",
            ],
        ),
        (
            'name="inlet", position_um=[300.0, 0.0, 0.0], normal=[-1.0, 1.0, 0.0]',
            [
                "opening 'inlet': its plane at (300, 0, 0) um does not meet the surface file whole.stl"
            ],
        ),
    ],
)
def test_an_inlet_outside_or_askew_is_told(refusal, inlet, words):
    others = ('name="outlet-1", kind="pressure"', 'name="outlet-2", kind="pressure"')
    message = refusal("vessel", _openings(f'{inlet}, kind="velocity"', *others))
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["blood.spacing_um=3.0"], ["too coarse", "at least 5", "use at most 2.4 um"]),
        (["blood.channel.size_um=[12.5, 12.0, 12.0]"], ["along x", "whole number"]),
        (["blood.channel.periodic=['w']"], ["'w'", "'x', 'y' or 'z'"]),
        (
            ["blood.channel.open=['x']"],
            ["blood.channel.periodic: the axis x is both periodic and open"],
        ),
        (
            ["blood.tube={radius_um=5.0, length_um=10.0}"],
            ["the case has channel and tube; allowed: one of the tables blood.channel, blood.tube"],
        ),
        (
            [_OPEN],
            [
                "blood.openings: the openings 'x_low' and 'x_high' lack a table",
                "[[blood.openings]] table for each",
            ],
        ),
        ([_OPEN, _openings(_IN)], ["the opening 'x_high' lacks a table"]),
        (
            [_OPEN, _openings(_IN, _OUT, 'name="side", kind="pressure"')],
            ["no opening 'side'; allowed: x_low, x_high"],
        ),
        ([_OPEN, _openings(_IN, _IN)], ["blood.openings: 2 tables have the name 'x_low'"]),
        (
            [_OPEN, _openings(_IN, f"{_OUT}, feeds=true")],
            ["blood.openings.1.feeds = true", "kind is pressure"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, normal=[-1.0, 0.0, 0.0]", _OUT)],
            ["blood.openings.0.normal", "add position_um"],
        ),
        ([_OPEN, _openings(f'{_IN}, profile="r"', _OUT)], ["x_low.profile", "x, y, z"]),
        ([_OPEN, _openings(f'{_IN}, profile="1/(y-y)"', _OUT)], ["x_low.profile", "finite"]),
        ([_OPEN, _openings(f'{_IN}, signal="sin("', _OUT)], ["x_low.signal", "never closed"]),
        (
            ["blood.walls.velocity_m_s={y_low=[0.0, 1e-3, 0.0]}"],
            ["blood.walls.velocity_m_s.y_low", "out of its plane by 0.001 m/s", "0 along y"],
        ),
        (["blood.walls.velocity_m_s={x_low=[0.0, 1e-3, 0.0]}"], ["no wall at x_low"]),
        (
            ["blood.walls.velocity_m_s={y_lo=[1e-3, 0.0, 0.0]}"],
            [
                "blood.walls.velocity_m_s.y_lo: unknown key; allowed: "
                "x_low, x_high, y_low, y_high, z_low, z_high; did you mean y_low?\n"
            ],
        ),
        (
            ["blood.walls.velocity_m_s={'y[0]'=3, y_up=[1e-3, 0.0, 0.0]}"],
            ["blood.walls.velocity_m_s.y[0]: unknown key ", "(2 keys are wrong in all)"],
        ),
        (
            ["blood.slice.offset_um=500"],
            [
                "blood.slice.offset_um = 500: the plane misses the vessel along z",
                "allowed: 0 to 12 um",
            ],
        ),
        (["blood.slice.axis=y", "blood.slice.offset_um=-0.1"], ["-0.1", "along y"]),
    ],
)
def test_a_vessel_or_an_opening_that_is_wrong_is_told(refusal, settings, words):
    message = refusal("channel", *settings)
    for word in words:
        assert word in message


# The fluid


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *(
            (
                [f"blood.relaxation_time={time}"],
                [
                    f"blood.relaxation_time = {time}: out of range; allowed: 0.5005 to 5 steps "
                    "(recommended: 0.51 to 2); set",
                    "or leave it out and set blood.time_step_us",
                ],
            )
            for time in ("0.5", "50.0", "-1.0", "nan")
        ),
        (['blood.storage="half"'], ['blood.storage = "half"', 'set blood.precision = "single"']),
        (
            ['blood.streaming="two buffers"'],
            ['blood.streaming = "two buffers"', "needs a GPU", '"auto" or "in place"'],
        ),
        (
            ['blood.streaming="push"'],
            ['blood.streaming = "push"', "needs a GPU", '"auto" or "in place"'],
        ),
        (["blood.relaxation_time=7.0"], ["blood.relaxation_time = 7.0", "5"]),
        (["blood.time_step_us=100.0"], ["351.7 steps", "0.000142 to 1.28 us"]),
        (["blood.time_step_us=1e-6"], ["relaxation time is 0.5 steps", "0.000142 to 1.28 us"]),
        (
            ["blood.relaxation_time=1.0", "blood.time_step_us=0.1"],
            ["blood.time_step_us = 0.1: blood.relaxation_time also sets the time step"],
        ),
        (
            [_OPEN, _openings(_IN.replace("1e-3", "30.0"), _OUT)],
            [
                "blood.openings x_low: the velocity is 30 m/s, and 60 m/s in the middle of the vessel",
                "a lattice Mach number of 14.8; allowed: at most 0.4",
                "set blood.time_step_us",
            ],
        ),
        (
            ["blood.walls.velocity_m_s={y_high=[3.0, 0.0, 0.0]}"],
            [
                "blood.walls.velocity_m_s.y_high: the velocity is 3 m/s, a lattice Mach number of 0.74",
                "set blood.time_step_us = 0.0192",
            ],
        ),
        (
            ["blood.initial.u=9.0"],
            ["blood.initial.u, v, w: the velocity is 9 m/s, a lattice Mach number of 2.22"],
        ),
        (["blood.initial.u=1/(x-x)"], ["blood.initial.u", "finite"]),
        (["blood.initial.u=x +"], ["blood.initial.u", "cannot be read"]),
        (["blood.drive=x"], ["blood.drive", "unknown name 'x'", "t, pi, e"]),
        (["blood.carreau={}", _cells(_MIDDLE)], ["without cells"]),
    ],
)
def test_a_fluid_that_cannot_be_computed_is_told(refusal, settings, words):
    message = refusal("channel", *settings)
    for word in words:
        assert word in message


def test_what_is_possible_but_not_sound_is_said():
    data: dict[str, Any] = {
        "solver": "blood",
        "blood": {
            "relaxation_time": 3.0,
            "channel": {"size_um": [6.0, 6.0, 6.0], "periodic": ["x", "z"]},
            "walls": {"velocity_m_s": {"y_high": [0.2, 0.0, 0.0]}},
        },
    }
    solver = registry.make_solver(
        check(data, BloodCase, "test"), open_device("cpu", threads=1), World()
    )
    notices = " / ".join(solver.notices)
    assert "relaxation time is 3 steps, outside the recommended range 0.51 to 2" in notices
    assert "lattice Mach number is 0.12 (recommended: below 0.1)" in notices


# Cells


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([_cells(_MIDDLE, radius=0.9)], ["blood.spacing_um = 1: too coarse", "at most 0.9"]),
        ([_cells(_MIDDLE, radius=7.0)], ["cell 1 at (6, 6, 6) um", "into a wall"]),
        (
            [_cells("placed=[{position_um=[6.0, 1.0, 6.0]}]")],
            ["1.49 um into a wall at the start", "extends from (0, 0, 0) to (12, 12, 12) um"],
        ),
        ([_cells("placed=[{position_um=[6.0, 30.0, 6.0]}]")], ["into a wall at the start"]),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0]}, {position_um=[9.0, 6.0, 6.0]}]")],
            ["cells 1 and 2 overlap by 2 um at the start"],
        ),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0]}, {position_um=[6.0, 6.01, 6.0]}]")],
            [
                "cells 1 and 2 overlap at the start: their centres are 0.01 um apart",
                "at least 0.25 um",
            ],
        ),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0]}, {position_um=[6.0, 6.24, 6.0]}]")],
            ["their centres are 0.24 um apart; allowed: at least 0.25 um"],
        ),
        (
            [_cells("placed=[{position_um=[11.9, 6.0, 6.0]}, {position_um=[0.05, 6.0, 6.0]}]")],
            ["their centres are 0.15 um apart"],
        ),
        (
            [_cells("placed=[{position_um=[11.0, 6.0, 6.0]}, {position_um=[1.0, 6.0, 6.0]}]")],
            ["cells 1 and 2 overlap"],
        ),
        (
            [_cells("placed=[{position_um=[60.0, 6.0, 6.0]}]")],
            ["cell 1 lies at x = 60 um, outside the periodic vessel", "position_um from 0 to 12"],
        ),
        (
            [
                "blood.channel.size_um=[4.0, 12.0, 12.0]",
                _cells("placed=[{position_um=[2.0, 6.0, 6.0]}]"),
            ],
            ["cell 1 overlaps its periodic image"],
        ),
        (
            [_cells(f"{_MIDDLE}, hematocrit=0.1")],
            ["blood.cells.0.hematocrit = 0.1: placed also sets where cells start"],
        ),
        ([_cells("hematocrit=0.9")], ["hematocrit = 0.9", "a volume fraction below 0.7"]),
        ([_cells("hematocrit=0.01", radius=5.0)], ["less than one cell", "allowed: at least"]),
        ([_cells("hematocrit=0.45", radius=7.0)], ["does not fit in the vessel"]),
        ([_cells(_MIDDLE, vertices=100)], ["vertices = 100", "92 or 162"]),
        ([_cells(_MIDDLE, vertices=12)], ["vertices = 12", "42"]),
        ([_cells(f"{_MIDDLE}, fold_guard=2.0")], ["fold_guard = 2.0", "less than or equal to 1"]),
        ([_cells(f"{_MIDDLE}, fold_guard=-0.1")], ["fold_guard = -0.1", "0"]),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0], axis=[0.0, 0.0, 0.0]}]")],
            ["blood.cells red-cell: an axis is 0"],
        ),
        (
            [_cells("placed=[{position_um=[6.0, 6.0]}]")],
            ["position_um = [6.0, 6.0]: wrong length; allowed: a list of 3"],
        ),
        (["blood.cells=[{}, {}]"], ["blood.cells: 2 tables have the name 'red-cell'"]),
        (
            ['blood.cells=[{name="a", viscosity_ratio=2.0}, {name="b", viscosity_ratio=3.0}]'],
            ["viscosity ratios are 2 and 3", "one ratio other than 1"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, feeds=true", _OUT), _cells(_MIDDLE)],
            ["blood.openings x_low: the opening feeds cells", "has a hematocrit"],
        ),
        (
            [_OPEN, _openings(_IN, _OUT), _cells("hematocrit=0.001")],
            ["blood.cells red-cell, hematocrit = 0.001: this is less than one cell"],
        ),
        (
            [_cells(f"{_MIDDLE}, law='neo-hookean', area_ratio=3.0")],
            ["blood.cells.0.area_ratio = 3", "law is neo-hookean; leave area_ratio out"],
        ),
        (
            [_cells(f"{_MIDDLE}, thickness=0.4")],
            ["blood.cells.0.thickness = 0.4", "shape is sphere; leave thickness out"],
        ),
        (
            [_OPEN, _openings(_IN, f"{_OUT}, profile='uniform'")],
            ["blood.openings.1.profile = 'uniform'", "kind is pressure; leave profile out"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, period_s=0.1", _OUT)],
            ["blood.openings.0.period_s = 0.1: signal = 1 is constant"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, position_um=[3.0, 0, 0], normal=[-1, 0, 0]", _OUT)],
            [
                "blood.openings.0: position_um and normal of 'x_low'",
                "leave position_um and normal out",
            ],
        ),
        (["blood.repulsion.range_um=5.0", _cells(_MIDDLE)], ["at most 3 spacings"]),
        (["blood.delta=hat"], ["'linear', 'roma', 'cosine' or 'peskin'"]),
        (
            ["blood.cells=[{hematocrit=0.5}, {name='other', hematocrit=0.4}]"],
            ["add up to 0.5 (red-cell) + 0.4 (other) = 0.9; allowed: a sum below 0.7"],
        ),
    ],
)
def test_cells_that_cannot_be_are_told(refusal, settings, words):
    message = refusal("channel", *settings)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("modulus", "allowed"),
    [
        ("shear_modulus_un_m=0.0", "0.001 to 1e+06 uN/m"),
        ("shear_modulus_un_m=2.5e-6", "0.001 to 1e+06 uN/m"),
        ("bending_modulus_j=0.2", "0 or 1e-24 to 1e-12 J"),
        ("bending_modulus_j=2e-28", "0 or 1e-24 to 1e-12 J"),
        ("volume_modulus_pa=1e12", "0 or 0.001 to 1e+09 Pa"),
        ("area_modulus_un_m=1e-7", "0 or 0.001 to 1e+09 uN/m"),
        ("membrane_viscosity_un_s_m=1e9", "0 or 1e-06 to 1000 uN s/m"),
        ("shear_modulus_un_m=-2.0", "0.001 to 1e+06 uN/m (red cell: 2.4 to 2.75"),
        ("bending_modulus_j=-1.0", "0 or 1e-24 to 1e-12 J (red cell: 2e-19"),
        ("volume_modulus_pa=-1.0", "0 or 0.001 to 1e+09 Pa (default: "),
        ("area_modulus_un_m=-1.0", "0 or 0.001 to 1e+09 uN/m (red cell: 100"),
        ("membrane_viscosity_un_s_m=-0.5", "0 or 1e-06 to 1000 uN s/m (red cell: about 0.5"),
    ],
)
def test_a_modulus_of_zero_or_of_another_unit_is_told_with_the_unit(refusal, modulus, allowed):
    message = refusal("channel", _cells(f"{_MIDDLE}, {modulus}"))
    assert modulus.split("=")[0] in message
    assert f"allowed: {allowed}" in message
    assert "check the unit" in message
    assert ("and the sign" in message) == ("=-" in modulus)


def test_a_membrane_may_have_no_bending_and_hold_neither_area_nor_volume(folder):
    none = "bending_modulus_j=0.0, volume_modulus_pa=0.0, area_modulus_un_m=0.0"
    case = read_case(folder / "channel.toml", [_cells(f"{_MIDDLE}, {none}")], registry.case_model)
    assert isinstance(case, BloodCase)
    assert case.blood.cells[0].bending_modulus_j == 0


def test_a_hematocrit_beyond_packing_says_what_can_be_reached(refusal):
    size = "blood.channel.size_um=[7.0, 7.0, 7.0]"
    message = refusal("channel", size, _cells("hematocrit=0.65"))
    assert "a hematocrit of 0.65 (4 cells) is beyond packing: this attempt jammed at 0.4" in message
    assert "not a sharp limit; lower it, or try another blood.seed or a wider vessel" in message


def test_vessels_from_stl_and_obj_files_run_alike(run, folder):
    diagnostics = []
    other = "blood.surface={file='whole.obj', scale_um=1.0}"
    for out, settings in (("stl", ()), ("obj", (other,))):
        code, err = run("vessel", *settings, "run.steps=200", out=out)
        assert code == 0, err
        summary = json.loads((folder / out / "summary.json").read_text())
        assert summary["steps"] == 200
        diagnostics.append(summary["diagnostics"])
    assert diagnostics[0] == pytest.approx(diagnostics[1], rel=1e-3)
    # What comes in goes out again, nearly half by either outlet.
    outlets = np.array([diagnostics[0][f"flow_outlet-{n}"] for n in (1, 2)])
    assert outlets / -diagnostics[0]["flow_inlet"] == pytest.approx([0.5, 0.5], abs=0.03)


def test_a_membrane_that_folds_over_stops_the_run_names_the_cell_and_keeps_the_state(
    run, folder, monkeypatch
):
    """Whatever has pushed it: here a vertex is put to the other side of its cell."""
    require, looks = Suspension.require_sound, []

    def push_through(suspension: Suspension) -> None:
        looks.append(suspension)
        if len(looks) == 4:
            m = suspension.kinds[0].membranes
            cell = m.positions.reshape(3, m.capacity, m.vertices)[:, 0]
            cell[:, 20] = 2 * cell.mean(axis=1) - cell[:, 20]
        require(suspension)

    monkeypatch.setattr(Suspension, "require_sound", push_through)
    code, err = run(
        "channel",
        f"blood.cells=[{{vertices=162, {_MIDDLE}}}]",
        "blood.walls.velocity_m_s={y_high=[0.03, 0.0, 0.0], y_low=[-0.03, 0.0, 0.0]}",
        "run.steps=20",
        "run.diagnostics_interval=2",
        "checkpoint.interval=2",
        out="torn",
    )
    assert code == 1
    line = err.splitlines()[-1]
    assert line.startswith("haloscope: error: ")
    assert "Traceback" not in err
    assert "red-cell 0: the membrane has folded over: " in line
    assert "a crease of" in line
    assert line.count("time_step") == 1
    good = sorted((folder / "torn").glob("checkpoint-*.h5"))
    assert good
    assert f"the last good checkpoint is torn/{good[-1].name}" in line
    (broken,) = (folder / "torn").glob("broken-*.h5")
    assert f"the state is in torn/{broken.name}" in line


def test_a_cell_that_vanishes_stops_the_run_and_its_state_is_kept(run, folder, monkeypatch):
    """Whatever has taken it: here it is missed when cells are next looked after."""
    look, looks = Suspension.look, []

    def miss(suspension: Suspension) -> None:
        looks.append(suspension)
        if len(looks) == 3:
            raise SolutionError("cells of kind red-cell are lost: 1 of 1")
        look(suspension)

    monkeypatch.setattr(Suspension, "look", miss)
    settings = (_cells(_MIDDLE), "run.steps=60", "blood.cell_interval=4")
    code, err = run("channel", *settings, out="lost")
    assert code == 1
    (broken,) = (folder / "lost").glob("broken-*.h5")
    assert f"cells of kind red-cell are lost: 1 of 1; the state is in lost/{broken.name}" in err
    # All of it: under the name of a checkpoint a run goes on from it.
    broken.rename(broken.with_name(broken.name.replace("broken", "checkpoint")))
    code, err = run("channel", *settings, out="lost", flags=("--restart",))
    assert code == 0, err
    assert len(looks) > 4


def test_a_case_with_all_its_keys_written_out_is_the_same_case():
    # As studies hand cases on.
    data = {
        "solver": "blood",
        "blood": {
            "spacing_um": 0.5,
            "channel": {"size_um": [12.0, 12.0, 12.0], "open": ["x"], "periodic": []},
            "openings": [
                {"name": "x_low", "kind": "velocity", "value": 1e-3},
                {"name": "x_high", "kind": "pressure"},
            ],
            "cells": [
                {"hematocrit": 0.1},
                {"name": "capsule", "shape": "sphere", "law": "neo-hookean", "hematocrit": 0.05},
            ],
        },
    }
    case = check(data, BloodCase, "test")
    assert check(json.loads(case.model_dump_json(exclude_none=True)), BloodCase, "test") == case
