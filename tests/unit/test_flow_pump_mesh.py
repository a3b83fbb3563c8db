"""Claims about the pump's mesh: what is refused, what is kept, and, with Gmsh, that it is the pump."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from refusals import refused
from written_meshes import write_tets

from haloscope.case.tables import Table, check
from haloscope.errors import InputError, MachineError
from haloscope.mesh.tets.tet_files import tet_quality
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import make_tet_mesh
from haloscope.solvers.flow import meshes as module
from haloscope.solvers.flow.case_domain import PUMP_ZONES
from haloscope.solvers.flow.meshes import (
    PUMP_BOUNDARIES,
    PUMP_INTERFACES,
    Pump,
    pump_mesh,
)

pytest.importorskip("meshio")

needs_gmsh = pytest.mark.skipif(
    importlib.util.find_spec("gmsh") is None,
    reason="Gmsh is not installed: pip install -e '.[pump]'",
)
COARSE = Pump(mesh_size_mm=1.6, gap_layers=1)


class Case(Table):
    """A case with a pump."""

    pump: Pump = Pump()


def dimensions(**keys):
    return check({"pump": keys}, Case, "a.toml").pump


def row(**changes):
    usual = {"count": 3, "length_mm": 10.0, "thickness_mm": 0.7}
    return usual | {"leading_angle": 60.0, "trailing_angle": 10.0} | changes


@pytest.mark.parametrize(
    ("keys", "location", "words"),
    [
        ({"hub_radius_mm": 5.9}, "hub_radius_mm = 5.9", "allowed: 0.6 to 5.4 "),
        ({"tip_gap_mm": 1.5}, "tip_gap_mm = 1.5", "allowed: 0.03 to 0.9 "),
        ({"mesh_size_mm": 0.01}, "mesh_size_mm = 0.01", "allowed: 0.15 to 3 "),
        ({"mesh_size_mm": 0.5, "blade_mesh_size_mm": 0.6}, "blade_mesh_size_mm = 0.6", "allowed"),
        ({"rotor": row(count=10)}, "rotor", "10 vanes of 1.4 mm around the hub"),
        ({"rotor": row(trailing_angle=89.0)}, "rotor.trailing_angle = 89.0", "75"),
        ({"diffuser": row(count=0)}, "diffuser.count = 0", "1"),
        ({"gap_layers": 0}, "gap_layers = 0", "1"),
        ({"nose_length_mm": -1.0}, "nose_length_mm = -1.0", "0"),
        ({"tip_gap": 0.3}, "tip_gap", "did you mean tip_gap_mm?"),
    ],
)
def test_dimensions_that_make_no_pump_are_refused_by_name(keys, location, words):
    with refused(location=rf"^a\.toml: pump\.{location}$") as refusal:
        dimensions(**keys)
    assert words in refusal.text
    assert "\n" not in refusal.text


def test_other_dimensions_make_a_pump():
    pump = dimensions(housing_radius_mm=10.0, hub_radius_mm=6.0, rotor=row(count=4))
    assert pump.mean_radius_mm == 8.0
    assert pump.ends_mm == (0.0, 21.0, 33.0, 64.0)


def stand_in(zones=PUMP_ZONES, names=PUMP_BOUNDARIES):
    """A box with the names of a pump."""
    box = tet_box((9, 1, 1))
    sides = np.concatenate(list(box.boundaries.values()))
    zone = (box.centres[:, 0] * 3).astype(int)
    inner = {
        name: [
            tet[list(face)]
            for tet in box.tets
            for face in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
            if np.allclose(box.nodes[tet[list(face)], 0], (number + 1) / 3)
        ]
        for number, name in enumerate(PUMP_INTERFACES)
    }
    parts = np.array_split(sides, len(names))
    named = dict(zip(names, parts, strict=True)) | {
        name: np.unique(np.sort(rows, axis=1), axis=0) for name, rows in inner.items()
    }
    return make_tet_mesh(box.nodes, box.tets, named, zone, zones)


@pytest.fixture
def maker(monkeypatch):
    """Put a stand-in where Gmsh would make a mesh, and count how often it is asked."""
    asked = []

    def use(mesh):
        def run(plan, path, seconds):
            asked.append(plan)
            write_tets(mesh, path)
            with path.open("ab") as file:
                file.write(b"$Comments\nGmsh 9.8.7\n$EndComments\n")

        monkeypatch.setattr(module, "_run_gmsh", run)
        return asked

    return use


def test_a_mesh_is_made_once_for_each_pump(maker, tmp_path):
    asked = maker(stand_in())
    first = pump_mesh(Pump(), tmp_path / "kept")
    again = pump_mesh(Pump(), tmp_path / "kept")
    assert len(asked) == 1
    assert np.array_equal(first.nodes, again.nodes)
    assert np.array_equal(first.tets, again.tets)
    assert again.notes == ("the pump's mesh was made by Gmsh 9.8.7",)
    pump_mesh(Pump(tip_gap_mm=0.31), tmp_path / "kept")
    assert len(asked) == 2
    assert asked[0] != asked[1]


def test_lengths_are_in_metres(maker, tmp_path):
    maker(stand_in())
    assert pump_mesh(Pump(), tmp_path).nodes.max() == pytest.approx(1e-3)


def test_a_damaged_file_is_made_anew(maker, tmp_path):
    asked = maker(stand_in())
    whole = pump_mesh(Pump(), tmp_path)
    (path,) = tmp_path.glob("*.msh")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert np.array_equal(pump_mesh(Pump(), tmp_path).nodes, whole.nodes)
    assert len(asked) == 2


def test_a_folder_that_others_can_write_is_not_trusted(maker, tmp_path):
    asked = maker(stand_in())
    tmp_path.chmod(0o777)
    with refused(kind=MachineError, remedy="chmod 700"):
        pump_mesh(Pump(), tmp_path)
    assert not asked


@pytest.mark.parametrize(
    ("mesh", "problem", "allowed"),
    [
        (
            {"zones": ("straightener", "rotor", "elsewhere")},
            "has the zones elsewhere, rotor",
            "^diffuser, rotor, straightener$",
        ),
        (
            {"names": (*PUMP_BOUNDARIES[:-1], "wall")},
            "has the boundaries ",
            "^blades, diffuser_hub, diffuser_vanes",
        ),
    ],
)
def test_a_mesh_that_is_no_pump_is_neither_used_nor_kept(maker, tmp_path, mesh, problem, allowed):
    maker(stand_in(**mesh))
    with refused(location="flow.pump", problem=problem, allowed=allowed):
        pump_mesh(Pump(), tmp_path)
    assert not list(tmp_path.glob("*.msh"))


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """Put a module of some lines where Gmsh is looked for."""

    def use(text):
        (tmp_path / "modules").mkdir()
        (tmp_path / "modules" / "gmsh.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
        return tmp_path / "kept"

    return use


@pytest.mark.parametrize(
    ("text", "error", "problem", "remedy"),
    [
        (
            "raise ImportError('libGLU\\n is missing')",
            MachineError,
            "libGLU is missing",
            r"pip install -e '[^']*\[pump\]'",
        ),
        ("import os\nos.kill(os.getpid(), 9)", MachineError, "signal 9", "mesh_size_mm"),
        (
            "def initialize(**_):\n  raise RuntimeError('edges\\n cross')",
            InputError,
            "cannot make the pump's mesh: edges cross$",
            "^change",
        ),
    ],
)
def test_errors_of_gmsh_are_reported_in_one_line(pretended, text, error, problem, remedy):
    folder = pretended(text)
    with refused(error, problem=problem, remedy=remedy) as refusal:
        pump_mesh(Pump(), folder)
    assert "\n" not in refusal.text
    assert not list(folder.glob("*.msh"))


def test_gmsh_is_stopped_when_its_time_is_over(pretended):
    folder = pretended("import time\ntime.sleep(60)")
    with refused(problem=r"not finished the pump's mesh in 0\.2 s", remedy="mesh_size_mm"):
        pump_mesh(Pump(), folder, seconds=0.2)


# What follows asks whether the mesh is the pump, and needs Gmsh.


@pytest.fixture(scope="module")
def coarse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    folder.chmod(0o700)
    return pump_mesh(COARSE, folder)


def angle_of(pump, zone, z):
    """Where the middle of a zone's first vane is at a height in mm, and half its width."""
    vanes = getattr(pump, zone)
    at = PUMP_ZONES.index(zone)
    start = pump.ends_mm[at] + pump.clearance_mm
    if zone == "straightener":
        start = pump.inlet_length_mm + pump.nose_length_mm
    s = (z - start) / vanes.length_mm
    lead, trail = (math.tan(math.radians(a)) for a in (vanes.leading_angle, vanes.trailing_angle))
    turned = vanes.length_mm * (lead * s + (trail - lead) * s**2 / 2) / pump.mean_radius_mm
    broad = vanes.thickness_mm * np.hypot(1, lead + (trail - lead) * s)
    return (-turned if zone == "rotor" else turned), broad / 2, start


def volume_of(pump, zone):
    """Of the fluid in a zone in mm^3: pipe less hub less vanes."""
    at = PUMP_ZONES.index(zone)
    length = pump.ends_mm[at + 1] - pump.ends_mm[at]
    whole = math.pi * pump.housing_radius_mm**2 * length
    end = (
        pump.inlet_length_mm + pump.nose_length_mm,
        0,
        pump.outlet_length_mm + pump.tail_length_mm,
    )
    half_ellipsoid = (pump.nose_length_mm, 0, pump.tail_length_mm)[at] * 2 / 3
    hub = math.pi * pump.hub_radius_mm**2 * (length - end[at] + half_ellipsoid)
    vanes = getattr(pump, zone)
    tip = pump.housing_radius_mm - (pump.tip_gap_mm if zone == "rotor" else 0)
    z = angle_of(pump, zone, 0.0)[2] + (np.arange(200) + 0.5) / 200 * vanes.length_mm
    half = angle_of(pump, zone, z)[1]
    y = half[:, None] * ((np.arange(200) + 0.5) / 100 - 1)
    across = np.sqrt(tip**2 - y**2) - np.sqrt(pump.hub_radius_mm**2 - y**2)
    return whole - hub - vanes.count * vanes.length_mm * (2 * half * across.mean(axis=1)).mean()


@needs_gmsh
@pytest.mark.slow
@pytest.mark.parametrize("zone", PUMP_ZONES)
def test_zones_have_the_volume_of_the_pump(coarse, zone):
    inside = coarse.zones == coarse.zone_names.index(zone)
    assert coarse.volumes[inside].sum() * 1e9 == pytest.approx(volume_of(COARSE, zone), rel=0.015)


@needs_gmsh
@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "name"),
    [("straightener", "straightener_vanes"), ("rotor", "blades"), ("diffuser", "diffuser_vanes")],
)
def test_vanes_are_where_they_ought_to_be(coarse, zone, name):
    x, y, z = 1e3 * coarse.nodes[np.unique(coarse.boundaries[name])].T
    r = np.hypot(x, y)
    tip = COARSE.housing_radius_mm - (COARSE.tip_gap_mm if zone == "rotor" else 0)
    assert r.max() == pytest.approx(tip, abs=1e-6)
    assert r.min() == pytest.approx(COARSE.hub_radius_mm, abs=1e-3)
    vanes = getattr(COARSE, zone)
    middle, half, start = angle_of(COARSE, zone, z)
    assert z.min() == pytest.approx(start, abs=1e-6)
    assert z.max() == pytest.approx(start + vanes.length_mm, abs=1e-6)
    pitch = 2 * math.pi / vanes.count
    off = np.arctan2(y, x) - middle
    off -= np.round(off / pitch) * pitch
    assert np.abs(r * np.sin(off)).max() < 1.02 * half.max()
    assert (np.abs(r * np.sin(off)) < 1.05 * half).all()


@needs_gmsh
@pytest.mark.slow
def test_other_boundaries_are_where_they_ought_to_be(coarse):
    nodes = 1e3 * coarse.nodes
    radius = np.hypot(nodes[:, 0], nodes[:, 1])

    def on(name):
        among = coarse.boundaries if name in coarse.boundaries else coarse.surfaces
        return np.unique(among[name])

    ends = COARSE.ends_mm
    for name, z in zip(("inlet", *PUMP_INTERFACES, "outlet"), ends, strict=True):
        assert np.allclose(nodes[on(name), 2], z)
    assert np.allclose(radius[on("housing")], COARSE.housing_radius_mm)
    assert np.allclose(radius[on("rotor_hub")], COARSE.hub_radius_mm, atol=1e-6)
    for name, end in (("straightener_hub", ends[1]), ("diffuser_hub", ends[2])):
        assert radius[on(name)].max() == pytest.approx(COARSE.hub_radius_mm, abs=1e-4)
        assert radius[on(name)].min() < 0.5
        assert np.abs(nodes[on(name), 2] - end).min() < 1e-6
    quality = tet_quality(coarse)
    assert quality.sicn.min() > 0.05
    assert np.median(quality.sicn) > 0.7


@needs_gmsh
@pytest.mark.slow
def test_the_same_pump_gives_the_same_mesh(coarse, tmp_path):
    again = pump_mesh(COARSE, tmp_path / "kept")
    assert np.array_equal(again.nodes, coarse.nodes)
    assert np.array_equal(again.tets, coarse.tets)
