"""Claims about one vessel as users have it in files: a bend whose openings lie across no axis, and its faults."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closed_surfaces import cuboid, moved, random_turn, tube
from open_vessels import solver_of
from refusals import refused

from haloscope.case.tables import check
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.surfaces.surface_files import read_surface, write_stl
from haloscope.mesh.surfaces.surface_openings import flat_ends
from haloscope.mesh.surfaces.surfaces import Surface, make_surface
from haloscope.mesh.surfaces.surfaces import check as check_surface
from haloscope.solvers.blood import soundness
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.vessels.vessels import open_vessel

HERE = Path(__file__).parent
_UM3 = 1e-18
# Enclosed by the triangles, in um^3.
_VOLUME = 7853.40
_INLET, _OUTLET = [0.0, 0.0, 0.0], [-7.33, 27.0, -49.17]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="bends", scope="module")
def fixture_bends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files."""
    folder = tmp_path_factory.mktemp("bends")
    with tarfile.open(HERE / "bends.tar.xz") as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            (folder / member.name).write_bytes(content.read())
    for name in ("bend-face-ids-um.vtp", "bend-um.ply"):
        (folder / name).write_bytes((HERE / name).read_bytes())
    yield folder


def _blood(
    path: Path, inlet: dict[str, Any], outlet: dict[str, Any], scale: float = 1.0
) -> dict[str, Any]:
    return {
        "spacing_um": 2.0,
        "relaxation_time": 1.0,
        "surface": {"file": str(path), "scale_um": scale},
        "walls": {"kind": "interpolated"},
        "openings": [
            {"kind": "velocity", "value": 2e-3, **inlet},
            {"kind": "pressure", **outlet},
        ],
    }


def _named(path: Path, inlet: str, outlet: str) -> dict[str, Any]:
    return _blood(path, {"name": inlet}, {"name": outlet})


def _vessel(blood: dict[str, Any]) -> Any:
    return open_vessel(check({"solver": "blood", "blood": blood}, BloodCase, "test").blood, World())


def _volume(vessel: Any) -> float:
    return float(vessel.geometry.volume) / _UM3


@pytest.mark.parametrize(
    ("file", "inlet", "outlet"),
    [
        ("bend-named-um.stl", "inlet", "outlet"),
        ("bend-face-ids-um.vtp", "2", "3"),
        ("bend-um.ply", "cap-2", "cap-1"),
    ],
)
def test_mass_balances_and_volumes_differ_by_the_densities(
    bends: Path, file: str, inlet: str, outlet: str
) -> None:
    solver = solver_of(**_named(bends / file, inlet, outlet))
    assert _volume(solver.vessel) == pytest.approx(_VOLUME, rel=1e-5)
    solver.advance(2301)
    numbers = solver.diagnostics()
    into, out = numbers[f"mass_flow_{inlet}"], -numbers[f"mass_flow_{outlet}"]
    lost = -numbers["wall_mass_flow"]
    assert abs(into - out - lost) < 1e-3 * into
    assert abs(lost) > 1e-2 * into
    pressure = solver.relative("p")
    tags = solver.part.openings[: solver.part.owned]
    unit = solver.units.pressure
    densities = [1 + 3 * pressure[tags == number].mean() / unit for number in (0, 1)]
    ratio = -numbers[f"flow_{outlet}"] / numbers[f"flow_{inlet}"]
    assert ratio == pytest.approx(out / into * densities[0] / densities[1], rel=1e-6)
    assert densities[0] - densities[1] > 1e-4


@pytest.mark.parametrize(
    ("file", "notice"),
    [
        ("bend-mixed-orientation-um.stl", "turned 152 of 512 triangles that faced opposite"),
        ("bend-holes-um.stl", "closed a hole of 4 open edges, 3 um wide, at (11.1988, "),
    ],
)
def test_faults_of_walls_are_mended_and_reported(bends: Path, file: str, notice: str) -> None:
    solver = solver_of(**_named(bends / file, "inlet", "outlet"))
    assert _volume(solver.vessel) == pytest.approx(_VOLUME, rel=1e-5)
    assert any(notice in line for line in solver.notices)
    solver.advance(20)
    assert solver.diagnostics()["mass_flow_inlet"] > 0


def test_open_ends_are_capped_and_reported(bends: Path) -> None:
    solver = solver_of(**_named(bends / "bend-open-ends-um.stl", "cap-2", "cap-1"))
    assert _volume(solver.vessel) == pytest.approx(_VOLUME, rel=1e-5)
    for name in ("cap-1", "cap-2"):
        caps = [line for line in solver.notices if f"capped an open end '{name}' flat" in line]
        assert len(caps) == 1
        assert "11.8 um wide, at (" in caps[0]
    solver.advance(20)
    assert solver.diagnostics()["mass_flow_cap-2"] > 0


def test_flat_caps_of_one_solid_are_offered_by_name_and_place_and_taken_by_either(
    bends: Path,
) -> None:
    path = bends / "bend-one-solid-um.stl"
    with refused(location="opening 'inlet'|surface file", allowed="vessel, cap-1, cap-2"):
        _vessel(_named(path, "inlet", "outlet"))
    named = _vessel(_named(path, "cap-2", "cap-1"))
    assert any("called 'cap-2': 11.8 um wide at (0, 0, 0) um" in n for n in named.lattice.notices)
    placed = _vessel(
        _blood(
            path,
            {"name": "inlet", "position_um": _INLET},
            {"name": "outlet", "position_um": _OUTLET},
        )
    )
    for one, other in zip(named.lattice.openings, placed.lattice.openings, strict=True):
        np.testing.assert_array_equal(one.points, other.points)
    with refused(location="inlet.position_um", problem="no flat end", allowed="11.8 um wide at"):
        _vessel(_blood(path, {"name": "inlet", "position_um": [20.0, 0.0, 0.0]}, {"name": "cap-1"}))


def test_a_closed_vessel_is_refused_with_the_openings_that_it_could_have(bends: Path) -> None:
    blood = _named(bends / "bend-no-openings-marked-um.stl", "", "")
    del blood["openings"]
    with refused(
        location="blood.openings",
        problem="is closed, so nothing can flow",
        remedy=r"name = 'cap-1'.*name = 'cap-2'",
    ):
        _vessel(blood)


def test_centimetres_taken_for_micrometres_are_named(bends: Path, call: Call) -> None:
    path = bends / "bend-cm.stl"
    with refused(
        location="blood.surface.scale_um = 1",
        problem="its diameter of 0.0012 um is implausible",
        remedy="for a file in centimetres set blood.surface.scale_um to 1e4",
    ):
        _vessel(_named(path, "inlet", "outlet"))
    right = _vessel(_blood(path, {"name": "inlet"}, {"name": "outlet"}, 1e4))
    assert _volume(right) == pytest.approx(_VOLUME, rel=1e-4)
    code, _, err = call("surface", path, "--scale-um", "1", "--out", path.with_suffix(""))
    assert code == 0
    (line,) = err.strip().split("\n")
    assert line.startswith("warning: --scale-um 1: the widest end is 0.0012 um wide")
    assert line.endswith("give --scale-um 10000 for centimetres or 1e+06 for metres")


def _walls(surface: Surface, shift: np.ndarray) -> Surface:
    """The walls of a vessel without its ends, whose points are moved; as from a file in millimetres far away."""
    points = ((surface.points * 1e3 + 2.0 + shift).astype(np.float32)).astype(np.float64)
    points = (points - 2.0) * 1e-3
    corners = points[surface.triangles[surface.groups == surface.names.index("wall")]]
    return make_surface(corners, np.zeros(len(corners)), ("wall",), unit=MICROMETRE)


def test_single_precision_far_from_the_origin_leaves_ends_flat(tmp_path: Path) -> None:
    whole, path = moved(tube(6e-6, 24e-6, step=3e-6), random_turn(0)), tmp_path / "walls.stl"
    write_stl(path, _walls(whole, np.zeros(3)), 1e-6)
    vessel = _vessel(_named(path, "cap-2", "cap-1"))
    assert vessel.geometry.volume == pytest.approx(whole.volume, rel=1e-3)
    for opening in vessel.lattice.openings:
        normals = vessel.geometry.normals[vessel.geometry.group(opening.name)]
        # Rounding turns narrow triangles.
        areas = np.linalg.norm(normals, axis=1)
        assert (normals @ opening.normal < 0.9999 * areas).any()
        assert opening.size == pytest.approx(areas.sum(), rel=1e-6)
    assert not any("moved" in line for line in vessel.lattice.notices)


def test_uneven_rims_are_moved_into_a_plane_before_they_are_capped(tmp_path: Path) -> None:
    bend, path = read_surface(HERE / "bend.obj", 1e-6), tmp_path / "walls.stl"
    # In mm: about 1 % of the diameter.
    noise = np.random.default_rng(1).uniform(-1.2e-4, 1.2e-4, bend.points.shape)
    write_stl(path, _walls(bend, noise), 1e-6)
    vessel = _vessel(_named(path, "cap-2", "cap-1"))
    for name in ("cap-1", "cap-2"):
        (line,) = (n for n in vessel.lattice.notices if f"'{name}' flat" in n)
        assert re.search(r", its rim moved by up to 0\.\d+ um into a plane$", line)
    assert _volume(vessel) == pytest.approx(_VOLUME, rel=5e-3)


def test_narrow_triangles_of_an_end_are_a_part_of_it() -> None:
    """Of a box whose end has a point beside a diagonal, out of its plane by rounding."""
    box = cuboid((2.0, 1.0, 1.0))
    corners, groups = list(box.corners), list(box.groups)
    end = box.names.index("outlet")
    (one, other) = (k for k, group in enumerate(groups) if group == end)
    shared = [p for p in corners[one] if (p == corners[other]).all(axis=1).any()]
    # Out of the plane as by rounding.
    middle = np.mean(shared, axis=0) + [5e-7, 0.0, 0.0]
    tips = [_apart(corners[k], shared) for k in (one, other)]
    inner = 0.99999 * np.mean(shared, axis=0) + 0.00001 * tips[0]
    a, b = shared
    # Narrow triangles between the point and the diagonal cut the square in two.
    new = [[tips[0], a, inner], [tips[0], inner, b], [a, middle, inner], [middle, b, inner]]
    new += [[a, tips[1], middle], [tips[1], b, middle]]
    kept = [k for k in range(len(groups)) if k not in (one, other)]
    surface = make_surface(
        [*(corners[k] for k in kept), *map(np.array, new)],
        [*(groups[k] for k in kept), *[end] * len(new)],
        box.names,
        tolerance=1e-12,
    )
    assert check_surface(surface).faults == ()
    (whole,) = (e for e in flat_ends(surface) if e.group == "outlet")
    assert len(whole.triangles) == len(new)


def _apart(triangle: np.ndarray, shared: list[np.ndarray]) -> np.ndarray:
    """The corner of a triangle that is none of the shared ones."""
    (corner,) = (p for p in triangle if not any((p == q).all() for q in shared))
    return np.asarray(corner)


@pytest.mark.parametrize(
    ("file", "names", "repairs"),
    [
        ("bend-named-um.stl", ["inlet", "outlet"], 0),
        ("bend-face-ids-um.vtp", ["2", "3"], 0),
        ("bend-um.ply", ["cap-1", "cap-2"], 2),
        ("bend-one-solid-um.stl", ["cap-1", "cap-2"], 2),
        ("bend-open-ends-um.stl", ["cap-1", "cap-2"], 2),
        ("bend-no-openings-marked-um.stl", ["cap-1", "cap-2"], 2),
        ("bend-mixed-orientation-um.stl", ["inlet", "outlet"], 1),
        ("bend-holes-um.stl", ["inlet", "outlet"], 2),
    ],
)
def test_each_file_has_two_ends_one_volume_and_a_report(
    bends: Path, file: str, names: list[str], repairs: int
) -> None:
    blood = _named(bends / file, *names)
    table = check({"solver": "blood", "blood": blood}, BloodCase, "test").blood
    surface = table.vessel.surface()
    assert surface.volume / _UM3 == pytest.approx(_VOLUME, rel=1e-5)
    assert len(surface.notices) == repairs
    assert set(names) < set(surface.names)
    vessel = open_vessel(table, World())
    assert sorted(opening.name for opening in vessel.lattice.openings) == names
    for opening in vessel.lattice.openings:
        assert opening.diameter(table.spacing) == pytest.approx(11.85e-6, rel=1e-3)
    # Nothing else is complained of but that the lattice's notices say the same as the file's.
    lines = soundness.report(table, vessel, soundness.scales(table, vessel))
    assert not any(line.startswith("warning") for line in lines)
    assert len(vessel.lattice.notices) == repairs
