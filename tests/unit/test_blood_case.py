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
from haloscope.device.ceilings import Ceilings
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
    write_stl(surface, path / "whole.stl")
    _write_obj(surface, path / "whole.obj")
    triangles, groups = (np.delete(a, 500, 0) for a in (surface.triangles, surface.groups))
    write_stl(replace(surface, triangles=triangles, groups=groups), path / "leaking.stl")
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
                "the surface in leaking.stl leaks: 3 edges",
                "first at (2.66468, -2.7454, -5.31637) um; ",
            ],
        ),
        (
            "blood.surface.file=nothing.stl",
            ["nothing.stl is not there in /", ", where the command runs; give its path from there"],
        ),
        (
            "blood.surface.scale_um=1e10",
            [
                "whole.stl is 2.83e+05 x ",
                "um with scale_um = 1e+10: diameter 1.2e+05 um is implausible; metres? scale_um = 1e6; ",
                "lattice points at blood.spacing_um = 1, and at most 1e+12 are taken",
            ],
        ),
        ("blood.surface.file=vessel.toml", ["unknown ending", ".stl and .obj"]),
        ("blood.surface.scale_um=1.0", ["no point of the lattice", "unit"]),
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
            ["the surface in whole.stl has no group 'entry'", "wall, inlet, outlet-1, outlet-2"],
        ),
        (
            'name="wall"',
            [
                "opening 'wall': that group of the surface in whole.stl is no flat end of a vessel",
                "give one of the groups that are flat (inlet, outlet-1, outlet-2), or a position and",
            ],
        ),
        (
            'name="inlet", position_um=[500.0, 0.0, 0.0], normal=[-1.0, 0.0, 0.0]',
            [
                "'inlet' at (500, 0, 0) um is outside the geometry in whole.stl",
                "at the spacing 1 um",
            ],
        ),
        (
            'name="inlet", position_um=[3.0, 0.0, 0.0], normal=[-1.0, 1.0, 0.0]',
            ["normal (-1, 1, 0)", "only normals along x, y or z"],
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
        (["blood.channel.open=['x']"], ["axis x cannot be periodic and open"]),
        (["blood.tube={radius_um=5.0, length_um=10.0}"], ["channel and tube are given"]),
        (
            [_OPEN],
            [
                "nothing is said of the openings 'x_low' and 'x_high'",
                "[[blood.openings]] table for each",
            ],
        ),
        ([_OPEN, _openings(_IN)], ["nothing is said of the opening 'x_high'"]),
        (
            [_OPEN, _openings(_IN, _OUT, 'name="side", kind="pressure"')],
            ["no opening 'side'", "x_low, x_high"],
        ),
        ([_OPEN, _openings(_IN, _IN)], ["two tables have the name 'x_low'"]),
        ([_OPEN, _openings(_IN, f"{_OUT}, feeds=true")], ["only where kind is velocity"]),
        ([_OPEN, _openings(f"{_IN}, position_um=[0.0, 0.0, 0.0]", _OUT)], ["and normal both"]),
        ([_OPEN, _openings(f'{_IN}, profile="r"', _OUT)], ["x_low.profile", "x, y, z"]),
        ([_OPEN, _openings(f'{_IN}, profile="1/(y-y)"', _OUT)], ["x_low.profile", "finite"]),
        ([_OPEN, _openings(f'{_IN}, signal="sin("', _OUT)], ["x_low.signal", "never closed"]),
        (["blood.walls.velocity_m_s={y_low=[0.0, 1e-3, 0.0]}"], ["out of its plane"]),
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
            ["blood.slice.offset_um = 500 misses the vessel", "from 0 to 12 um along z"],
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
                    f"blood.relaxation_time = {time}: allowed are 0.5005 to 5 steps, sound 0.51 to 2; give",
                    "or leave it out and give blood.time_step_us",
                ],
            )
            for time in ("0.5", "50.0", "-1.0", "nan")
        ),
        (['blood.storage="half"'], ['blood.storage = "half"', 'precision = "single", too']),
        (['blood.streaming="two buffers"'], ["is for GPUs", 'stream "in place"']),
        (['blood.streaming="push"'], ['"push" is for GPUs', 'stream "in place"']),
        (["blood.relaxation_time=7.0"], ["blood.relaxation_time = 7.0", "5"]),
        (["blood.time_step_us=100.0"], ["351.7 steps", "0.000142 to 1.28 us"]),
        (["blood.time_step_us=1e-6"], ["relaxation time of 0.5 steps", "0.000142 to 1.28 us"]),
        (["blood.relaxation_time=1.0", "blood.time_step_us=0.1"], ["both given"]),
        (
            [_OPEN, _openings(_IN.replace("1e-3", "30.0"), _OUT)],
            [
                "inflow x_low of 30 m/s, 60 m/s in the middle of the vessel, is Mach 14.8",
                "at most 0.4",
                "give blood.time_step_us",
            ],
        ),
        (
            ["blood.walls.velocity_m_s={y_high=[3.0, 0.0, 0.0]}"],
            ["wall y_high of 3 m/s is Mach 0.74", "give blood.time_step_us = 0.0192"],
        ),
        (["blood.initial.u=9.0"], ["velocity of 9 m/s is Mach 2.22"]),
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
    assert "relaxation time of 3 steps is outside the sound range 0.51 to 2" in notices
    assert "Mach number of 0.12 is above 0.1" in notices


# Cells


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([_cells(_MIDDLE, radius=0.9)], ["blood.spacing_um = 1 is too coarse", "at most 0.9"]),
        ([_cells(_MIDDLE, radius=7.0)], ["cell 1 at (6, 6, 6) um", "in a wall"]),
        (
            [_cells("placed=[{position_um=[6.0, 1.0, 6.0]}]")],
            ["1.49 um in a wall at the start", "reaches from (0, 0, 0) to (12, 12, 12) um"],
        ),
        ([_cells("placed=[{position_um=[6.0, 30.0, 6.0]}]")], ["in a wall at the start"]),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0]}, {position_um=[9.0, 6.0, 6.0]}]")],
            ["cells 1 and 2 overlap by 2 um at the start"],
        ),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0]}, {position_um=[6.0, 6.01, 6.0]}]")],
            [
                "cells 1 and 2 overlap at the start: their centres are 0.01 um apart",
                "below 0.25 um",
            ],
        ),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0]}, {position_um=[6.0, 6.24, 6.0]}]")],
            ["their centres are 0.24 um apart, which is too near, below 0.25 um"],
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
            ["cell 1 lies at x = 60 um, beyond the vessel", "position_um from 0 to 12"],
        ),
        (
            [
                "blood.channel.size_um=[4.0, 12.0, 12.0]",
                _cells("placed=[{position_um=[2.0, 6.0, 6.0]}]"),
            ],
            ["cell 1 overlaps its own image"],
        ),
        ([_cells(f"{_MIDDLE}, hematocrit=0.1")], ["hematocrit and placed are both given"]),
        ([_cells("hematocrit=0.9")], ["hematocrit = 0.9", "a share of the volume below 0.7"]),
        ([_cells("hematocrit=0.01", radius=5.0)], ["less than one cell", "give at least"]),
        ([_cells("hematocrit=0.45", radius=7.0)], ["fits nowhere"]),
        ([_cells(_MIDDLE, vertices=100)], ["vertices = 100", "92 and 162"]),
        ([_cells(_MIDDLE, vertices=12)], ["vertices = 12", "42"]),
        ([_cells(f"{_MIDDLE}, fold_guard=2.0")], ["fold_guard = 2.0", "less than or equal to 1"]),
        ([_cells(f"{_MIDDLE}, fold_guard=-0.1")], ["fold_guard = -0.1", "0"]),
        (
            [_cells("placed=[{position_um=[6.0, 6.0, 6.0], axis=[0.0, 0.0, 0.0]}]")],
            ["red-cell: an axis is 0"],
        ),
        (
            [_cells("placed=[{position_um=[6.0, 6.0]}]")],
            ["position_um = [6.0, 6.0]: wrong length; allowed: a list of 3"],
        ),
        (["blood.cells=[{}, {}]"], ["two tables have the name 'red-cell'"]),
        (
            ['blood.cells=[{name="a", viscosity_ratio=2.0}, {name="b", viscosity_ratio=3.0}]'],
            ["viscosity ratios of 2 and 3", "one besides 1"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, feeds=true", _OUT), _cells(_MIDDLE)],
            ["x_low feeds cells", "no kind of blood.cells has a hematocrit"],
        ),
        (
            [_OPEN, _openings(_IN, _OUT), _cells("hematocrit=0.001")],
            ["blood.cells red-cell: hematocrit = 0.001 is less than one cell in this vessel"],
        ),
        (
            [_cells(f"{_MIDDLE}, law='neo-hookean', area_ratio=3.0")],
            ["area_ratio is of the Skalak law, and law is neo-hookean; leave it out"],
        ),
        (
            [_cells(f"{_MIDDLE}, thickness=0.4")],
            ["thickness is of oblate cells, and shape is sphere; leave it out"],
        ),
        (
            [_OPEN, _openings(_IN, f"{_OUT}, profile='uniform'")],
            ["profile is of velocities, and kind is pressure; leave it out"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, period_s=0.1", _OUT)],
            ["period_s is given and signal = 1 does not change"],
        ),
        (
            [_OPEN, _openings(f"{_IN}, position_um=[3.0, 0, 0], normal=[-1, 0, 0]", _OUT)],
            ["x_low: position_um and normal are for planes that cut a surface", "leave them out"],
        ),
        (["blood.repulsion.range_um=5.0", _cells(_MIDDLE)], ["at most 3 spacings"]),
        (["blood.delta=hat"], ["'linear', 'roma', 'cosine' or 'peskin'"]),
        (
            ["blood.cells=[{hematocrit=0.5}, {name='other', hematocrit=0.4}]"],
            ["add up to 0.5 (red-cell) + 0.4 (other) = 0.9; allowed", "below 0.7"],
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
        ("shear_modulus_un_m=-2.0", "0.001 to 1e+06 uN/m; a red cell's is 2.4 to 2.75"),
        ("bending_modulus_j=-1.0", "0 or 1e-24 to 1e-12 J; a red cell's is 2e-19"),
        ("volume_modulus_pa=-1.0", "0 or 0.001 to 1e+09 Pa; left out"),
        ("area_modulus_un_m=-1.0", "0 or 0.001 to 1e+09 uN/m; 100 holds"),
        ("membrane_viscosity_un_s_m=-0.5", "0 or 1e-06 to 1000 uN s/m; a red cell's is about 0.5"),
    ],
)
def test_a_modulus_of_zero_or_of_another_unit_is_told_with_the_unit(refusal, modulus, allowed):
    message = refusal("channel", _cells(f"{_MIDDLE}, {modulus}"))
    assert modulus.split("=")[0] in message
    assert f"allowed are {allowed}" in message
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
    cause = (
        "hematocrit = 0.65 (4 cells) is beyond packing: this attempt jammed when cells filled 0.4"
    )
    assert cause in message
    assert "no sharp limit; try somewhat less, another blood.seed, or a wider vessel" in message


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
    assert "the membrane of red-cell 0 has folded over: a crease of" in line
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
