"""Claims about far fields over walls: image sources of complete planes, refusals of all else."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from haloscope.errors import InputError
from haloscope.mesh.hexes.hex_generators import box
from haloscope.solvers.maxwell.case import LIGHT
from haloscope.solvers.maxwell.outputs.far_field import (
    MirrorPlane,
    enclosing_faces,
    far_field,
    in_front,
    power,
    sphere_quadrature,
    spherical_directions,
    surface,
)
from haloscope.solvers.maxwell.outputs.radiation import Powers
from haloscope.solvers.maxwell.verification import sphere_case
from tests.short_antennas import SIDES, antenna, opened
from tests.turned_meshes import connected
from tests.written_meshes import write_gmsh

K = 2.5
MOMENT = np.array([0.3, -0.5 + 0.4j, 0.8])
PLACE = np.array([0.25, 0.3, 0.2])
FREQUENCY = 5e8


def _fields(points, moment, place):
    """Exact E and H of an electric dipole, J. D. Jackson, Classical Electrodynamics, eq. 9.18."""
    away = points - place
    r = np.linalg.norm(away, axis=1)[:, None]
    n, wave = away / r, np.exp(1j * K * r) / (4 * np.pi * r)
    across, along = np.cross(n, moment), (n @ moment)[:, None]
    near = (3 * n * along - moment) * (1 / r**2 - 1j * K / r)
    electric = (K**2 * np.cross(across, n) + near) * wave
    return electric, K**2 * across * wave * (1 - 1 / (1j * K * r))


def _far(moment, place, theta, phi):
    n, polar, azimuthal = spherical_directions(theta, phi)
    wave = K**2 / (4 * np.pi) * np.exp(-1j * K * n @ place)
    return np.array([wave * (polar @ moment), wave * (azimuthal @ moment)])


def _image(axis, magnetic, moment, place):
    """The image of a dipole in the plane through 0: an electric wall keeps what is normal to it."""
    sign = np.full(3, 1.0 if magnetic else -1.0)
    sign[axis] *= -1
    across = np.ones(3)
    across[axis] = -1
    return sign * moment, across * place


@pytest.mark.parametrize(
    "walls",
    [
        {2: False},
        {2: True},
        {0: True, 2: False},
        {0: False, 1: False},
        {0: False, 1: True, 2: True},
    ],
)
def test_a_dipole_before_one_two_or_three_walls_has_its_exact_pattern_and_power(walls):
    dipoles = [(MOMENT, PLACE)]
    for axis, magnetic in walls.items():
        dipoles += [_image(axis, magnetic, *dipole) for dipole in dipoles]
    lower = np.full(3, -1.0)
    lower[list(walls)] = 0.0
    mesh = box((2, 2, 2), tuple(lower), (1, 1, 1))
    closed = np.zeros((mesh.count, 6), bool)
    for axis in walls:
        closed |= mesh.boundaries == mesh.boundary_names.index(SIDES[2 * axis])
    on = surface(mesh, 11, enclosing_faces(mesh, np.ones(mesh.count, bool), walls=closed))
    electric, magnetic_field = (
        sum(parts)[None] for parts in zip(*(_fields(on.points, *d) for d in dipoles), strict=True)
    )
    planes = [MirrorPlane(tuple(np.eye(3)[axis]), 0.0, kind) for axis, kind in walls.items()]
    theta, phi, solid = sphere_quadrature(14)
    pattern = far_field(on, electric, magnetic_field, K, theta, phi, planes=planes)
    exact = sum(_far(*dipole, theta, phi) for dipole in dipoles)
    front = in_front(planes, theta, phi)
    rays = spherical_directions(theta, phi)[0][..., list(walls)]
    assert np.array_equal(front, (rays > -1e-9).all(axis=-1))
    parts = np.array([pattern.electric_theta[0], pattern.electric_phi[0]])
    np.testing.assert_allclose(
        parts[:, front], exact[:, front], atol=1e-5 * np.abs(exact[:, front]).max()
    )
    radiated = power(on, electric, magnetic_field)[0]
    assert (pattern.intensity[0] * solid).sum() / 2 ** len(walls) == pytest.approx(
        radiated, rel=1e-5
    )


def _over_ground(**far_field: Any) -> dict[str, Any]:
    """The antenna 0.06 m over an electric wall at z = 0."""
    data = antenna(**far_field)
    table = data["maxwell"]
    table["box"] = {"elements": [5, 5, 3], "lower": [-0.3, -0.3, 0.0], "upper": [0.3, 0.3, 0.36]}
    table["boundaries"]["z-"] = "pec"
    del table["layer"]["thickness"]["z-"]
    table["sources"][0]["position"] = [0.0, 0.0, 0.06]
    return data


def test_a_short_dipole_over_ground_has_the_directivity_of_dipole_and_image(tmp_path):
    data = _over_ground()
    data["maxwell"]["order"] = 4
    summary = opened(data).run(out=tmp_path, ceilings=False)
    (pattern,) = summary["far_field"]
    # C. A. Balanis, Antenna Theory, 3rd ed., eq. 4-104: 3.242 at this height.
    x = 2 * (2 * math.pi * FREQUENCY / LIGHT) * 0.06
    factor = 1 / 3 - math.cos(x) / x**2 + math.sin(x) / x**3
    assert pattern["largest_directivity"] == pytest.approx(2 / factor, rel=0.02)
    assert pattern["at_theta"] == 90.0
    assert pattern["radiated_power"] / pattern["power_of_dipole_alone"] == pytest.approx(
        3 * factor, rel=0.02
    )
    assert pattern["power_of_pattern"] == pytest.approx(pattern["radiated_power"], rel=0.02)
    lines = (tmp_path / "far-field.csv").read_text().splitlines()
    rows = np.genfromtxt([ln for ln in lines if ln[0] != "#"], delimiter=",", names=True)
    below = rows["theta_degrees"] > 90
    assert not rows["directivity"][below].any()
    assert (rows["directivity"][~below & (rows["theta_degrees"] > 0)] > 0).all()
    assert any("electric wall z = 0 m" in line for line in summary["notices"])
    assert not any("warning" in line for line in summary["notices"])


def _refused(data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        opened(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _coarse(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    data["maxwell"]["order"] = 1
    data["maxwell"] |= changes
    return data


def test_open_surfaces_without_images_are_refused_with_a_place():
    parallel = _coarse(_over_ground())
    parallel["maxwell"]["boundaries"]["z+"] = "pec"
    del parallel["maxwell"]["layer"]["thickness"]["z+"]
    assert "is not normal to another wall" in _refused(parallel)
    lossy = _coarse(_over_ground())
    lossy["maxwell"]["boundaries"]["z-"] = {"impedance": 50.0}
    assert "'z-' (a lossy wall) near (" in _refused(lossy)
    periodic = _coarse(antenna())
    periodic["maxwell"]["box"]["periodic"] = ["x"]
    for side in ("x-", "x+"):
        del periodic["maxwell"]["boundaries"][side]
        del periodic["maxwell"]["layer"]["thickness"][side]
    assert "it ends at a periodic side of the mesh near (-0.24, " in _refused(periodic)
    warped = _coarse(_over_ground())
    del warped["maxwell"]["layer"]
    warped["maxwell"]["cylinder"] = {"radius": 0.3, "top": 0.6, "layers": 2}
    del warped["maxwell"]["box"]
    warped["maxwell"]["boundaries"] = {"wall": "pec", "bottom": "absorbing", "top": "absorbing"}
    assert "'wall' (pec) near (" in _refused(warped)
    cavity = _coarse(antenna(), boundaries=dict.fromkeys(SIDES, "pec"))
    del cavity["maxwell"]["layer"]
    assert "has no face: electric, magnetic or lossy walls" in _refused(cavity)


def _file_case(path, mesh, surfaces, **changes: Any) -> dict[str, Any]:
    write_gmsh(path, mesh, surfaces)
    data = _coarse(antenna(), mesh={"file": str(path)}, **changes)
    del data["maxwell"]["box"], data["maxwell"]["layer"]
    return data


def _without(mesh, removed, name):
    """A mesh without some elements; the faces that this lays open get a name."""
    keep = np.setdiff1d(np.arange(mesh.count), removed)
    numbers = np.unique(mesh.vertices[keep], return_inverse=True)[1].reshape(len(keep), 8)
    boundaries = mesh.boundaries[keep].copy()
    boundaries[np.isin(mesh.neighbours[keep], removed)] = len(mesh.boundary_names)
    return connected(
        mesh.coordinates[keep],
        numbers,
        boundaries=boundaries,
        boundary_names=(*mesh.boundary_names, name),
    )


def test_a_wall_that_is_no_complete_plane_is_refused(tmp_path):
    mesh = box((3, 3, 2), (-0.3, -0.3, 0.0), (0.3, 0.3, 0.4))
    surfaces = {name: mesh.outer_faces(name) for name in mesh.boundary_names}
    middle = np.linalg.norm(mesh.face_centres(surfaces["z-"])[:, :2], axis=1) < 0.25
    surfaces["plate"], surfaces["z-"] = surfaces["z-"][middle], surfaces["z-"][~middle]
    kinds = {**dict.fromkeys(SIDES, "absorbing"), "plate": "pec"}
    data = _file_case(tmp_path / "plate.msh", mesh, surfaces, boundaries=kinds)
    data["maxwell"]["sources"][0]["position"] = [0.0, 0.0, 0.1]
    assert "'z-' lies in the same plane, at (" in _refused(data)
    # A step: the mesh goes on below the upper part of the ground.
    whole = box((3, 3, 3), (-0.3, -0.3, -0.2), (0.3, 0.3, 0.4))
    low = np.flatnonzero((whole.centres[:, 2] < 0) & (whole.centres[:, 0] > -0.1))
    step = _without(whole, low, "step")
    kinds = {**dict.fromkeys(SIDES, "absorbing"), "step": "pec"}
    data = _file_case(tmp_path / "step.msh", step, None, boundaries=kinds)
    data["maxwell"]["sources"][0]["position"] = [0.0, 0.0, 0.1]
    message = _refused(data)
    assert "'step' (pec)" in message
    assert "continues behind it" in message or "not normal to" in message


def test_a_metal_body_within_the_surface_takes_part_in_the_pattern(tmp_path):
    # 5 x 5 x 5 elements within a layer; one below the source is a metal cube.
    mesh = box((7, 7, 7), (-0.42,) * 3, (0.42,) * 3)
    cube = np.flatnonzero(np.linalg.norm(mesh.centres - [0, 0, -0.12], axis=1) < 0.01)
    assert len(cube) == 1
    kinds = {**dict.fromkeys(SIDES, "absorbing"), "cube": "pec"}
    data = _file_case(tmp_path / "cube.msh", _without(mesh, cube, "cube"), None, boundaries=kinds)
    data["maxwell"] |= {"order": 3, "end_time": 7e-9}
    data["maxwell"]["layer"] = {"thickness": dict.fromkeys(SIDES, 0.12), "reflection": 1e-3}
    summary = opened(data).run(ceilings=False)
    (pattern,) = summary["far_field"]
    assert pattern["power_of_pattern"] == pytest.approx(pattern["radiated_power"], rel=0.05)
    assert abs(pattern["radiated_power"] / pattern["power_of_dipole_alone"] - 1) > 0.1


def test_a_surface_through_two_media_is_refused_with_a_place_and_one_beyond_is_told():
    ball = sphere_case(1)["maxwell"]["sphere"]

    def case(region, **enclosed):
        data = _coarse(antenna(**enclosed), sphere=ball)
        del data["maxwell"]["box"]
        data["maxwell"]["layer"]["thickness"] = dict.fromkeys(SIDES, 0.07)
        data["maxwell"]["materials"] = [{"region": region, "permittivity": 2.0}]
        return data

    message = _refused(case("inner", box=[[-0.17, -0.17, 0.0], [0.17, 0.17, 0.17]]))
    assert "several media, or one with loss or memory: element " in message
    notices = opened(case("margin", regions=["inner", "outer"])).solver.notices
    assert any("outside the surface have another medium" in line for line in notices)
    walls = _coarse(antenna(box=[[-0.2] * 3, [0.2] * 3]), boundaries=dict.fromkeys(SIDES, "pec"))
    del walls["maxwell"]["layer"]
    notices = opened(walls).solver.notices
    assert any(
        "the walls 'x-', 'x+'" in line and "lie outside the surface" in line for line in notices
    )


def test_a_wave_whose_total_field_reaches_a_wall_is_refused():
    data = sphere_case(1)
    table = data["maxwell"]
    del table["sphere"], table["materials"], table["layer"]["thickness"]["z-"]
    table["box"] = {"elements": [6, 6, 6], "lower": [-0.3] * 3, "upper": [0.3] * 3}
    table["boundaries"]["z-"] = "pec"
    del table["waves"][0]["inside"]
    table["waves"][0]["box"] = [[-0.1, -0.1, -0.31], [0.1, 0.1, 0.1]]
    assert "the surface around the total field of a wave ends at a wall" in _refused(data)


def test_a_source_that_the_surface_leaves_out_or_touches_is_told():
    data = _coarse(antenna(box=[[-0.2, -0.2, -0.2], [0.2, 0.2, -0.05]]))
    (line,) = (line for line in opened(data).solver.notices if "maxwell.far_field" in line)
    assert "outside the surface, and their waves are missing" in line
    data = _coarse(antenna(box=[[-0.2, -0.2, -0.2], [0.2, 0.2, 0.05]]))
    (line,) = (line for line in opened(data).solver.notices if "maxwell.far_field" in line)
    assert "lies in an element at the surface" in line


def test_powers_that_differ_by_more_than_five_percent_are_told():
    radiation = opened(_coarse(antenna())).solver.results.radiation
    for share, differing in itertools.product((1.06, 0.94), (True,)):
        powers = Powers(np.array([share]), np.array([1.0]), None, None, None)
        assert bool(radiation.differing_powers(powers)) is differing
    near = Powers(np.ones(1), np.array([0.96]), None, None, None)
    assert radiation.differing_powers(near) == []
