"""Claims about surfaces: files read and refused, faults found, generated vessels closed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from closed_surfaces import tube
from refusals import refused

from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.lattice.openings import OpeningPlane, grid_of
from haloscope.mesh.surfaces.surface_files import read_surface, write_stl
from haloscope.mesh.surfaces.surface_generators import (
    bifurcation,
    cone_distances,
    murray_radii,
    tree,
)
from haloscope.mesh.surfaces.surface_openings import flat_ends, vessel_direction, wall_diameter
from haloscope.mesh.surfaces.surfaces import (
    Surface,
    check,
    connected_parts,
    make_surface,
    merged,
    require_closed,
)

CUBE_POINTS = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], float)
CUBE = np.array(
    [
        *([0, 2, 3], [0, 3, 1], [4, 5, 7], [4, 7, 6], [0, 1, 5], [0, 5, 4]),
        *([2, 6, 7], [2, 7, 3], [0, 4, 6], [0, 6, 2], [1, 3, 7], [1, 7, 5]),
    ]
)
CUBE_GROUPS = np.array([1, 1, 2, 2] + [0] * 8)
NAMES = ("wall", "inlet", "outlet")
BEND = Path(__file__).with_name("bend.obj")


def _sphere() -> Surface:
    """Of radius 1, by parallels and meridians."""
    lines, turns = np.linspace(0, np.pi, 33), np.linspace(0, 2 * np.pi, 65)
    grid = np.stack(
        [np.outer(np.sin(lines), f(turns)) for f in (np.cos, np.sin)]
        + [np.outer(np.cos(lines), turns**0)],
        2,
    )
    a, b, c, d = (
        grid[i : 32 + i, j : 64 + j].reshape(-1, 3) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))
    )
    corners = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return make_surface(corners, [0] * len(corners), ("wall",))


def _cube() -> Surface:
    return make_surface(CUBE_POINTS[CUBE], CUBE_GROUPS, NAMES)


def _binary(corners: np.ndarray) -> bytes:
    record = np.dtype([("n", "<f4", 3), ("c", "<f4", (3, 3)), ("a", "<u2")])
    records = np.zeros(len(corners), record)
    records["c"] = corners
    # Some programs begin binary files with this word.
    return b"solid".ljust(80) + np.uint32(len(corners)).tobytes() + records.tobytes()


def _text(corners: np.ndarray, name: str = "") -> str:
    facets = "".join(
        "facet normal 0 0 0\nouter loop\n"
        + "".join(f"  vertex {x} {y} {z}\n" for x, y, z in triangle)
        + "endloop\nendfacet\n"
        for triangle in corners
    )
    return f"solid {name}\n{facets}endsolid {name}\n"


def test_binary_stl_is_read_with_one_group_and_scaled(tmp_path: Path) -> None:
    path = tmp_path / "cube.STL"
    path.write_bytes(_binary(CUBE_POINTS[CUBE]))
    surface = read_surface(path, scale=1e-3)
    assert surface.names == ("wall",)
    assert surface.points.shape == (8, 3)
    assert surface.triangles.dtype == np.int32
    assert surface.volume == pytest.approx(1e-9, rel=1e-12)
    assert check(surface).faults == ()


def test_solids_of_a_text_stl_are_groups_and_survive_writing(tmp_path: Path) -> None:
    path = tmp_path / "cube.stl"
    parts = [
        _text(CUBE_POINTS[CUBE[np.equal(CUBE_GROUPS, g)]], name) for g, name in enumerate(NAMES)
    ]
    path.write_text("".join(parts).replace("vertex", "VERTEX"))
    surface = read_surface(path)
    assert surface.names == NAMES
    np.testing.assert_allclose(surface.normals[surface.group("inlet")].sum(axis=0), [0, 0, -1])
    moved = Surface(surface.points / 3, surface.triangles, surface.groups, surface.names)
    write_stl(tmp_path / "again.stl", moved)
    again = read_surface(tmp_path / "again.stl", tolerance=0.0)
    assert again.names == NAMES
    order = np.argsort(surface.groups, kind="stable")
    np.testing.assert_array_equal(again.corners, moved.corners[order])


def test_obj_with_polygons_groups_and_counts_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "cube.obj"
    points = "".join(f"v {x} {y} {z}\n" for x, y, z in CUBE_POINTS)
    path.write_text(
        f"# a cube\n{points}vn 0 0 1\ng inlet\nf 1//1 3//1 4//1 2//1\ng outlet\nf -4 -3 -1 -2\n"
        "o wall\nf 1 2 6 5\nf 3/1 7/1 8/1 4/1\nf 1 5 7 3\nf 2 4 8 6\n"
    )
    surface = read_surface(path)
    assert surface.names == ("inlet", "outlet", "wall")
    assert check(surface).faults == ()
    assert surface.volume == pytest.approx(1.0)
    np.testing.assert_allclose(surface.normals[surface.group("outlet")].sum(axis=0), [0, 0, 1])
    # A mark of the order of bytes takes nothing away.
    marked = tmp_path / "marked.obj"
    text = path.read_bytes().removeprefix(b"# a cube\n")
    marked.write_bytes(b"\xef\xbb\xbf" + text)
    np.testing.assert_array_equal(read_surface(marked).corners, surface.corners)
    stl = tmp_path / "marked.stl"
    write_stl(stl, surface)
    plain = read_surface(stl)
    stl.write_bytes(b"\xef\xbb\xbf" + stl.read_bytes())
    np.testing.assert_array_equal(read_surface(stl).corners, plain.corners)


_V = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"
_FACET = _text(CUBE_POINTS[CUBE[:1]])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.stl", b"", "not an STL file: it has 0 bytes"),
        ("a.stl", _binary(CUBE_POINTS[CUBE])[:-1], "has 683 bytes, .* has 684"),
        ("a.stl", b"x" * 80 + b"\xff\xff\xff\xff", "not an STL file: it has 84 bytes"),
        ("a.stl", b"x" * 80 + b"\0\0\0\0", "no triangles"),
        # A signalling NaN, which warns where it is converted.
        (
            "a.stl",
            _binary(CUBE_POINTS[CUBE])[:96] + b"\x01\0\xa0\x7f" + _binary(CUBE_POINTS[CUBE])[100:],
            "1 triangle has coordinates that are not finite",
        ),
        ("a.stl", _FACET.replace("endfacet", "vertex 0 0 0\nendfacet").encode(), "'endfacet' is"),
        ("a.stl", _FACET.split("endfacet")[0].encode(), "ends within a facet"),
        ("a.stl", _FACET.replace("vertex 0.0", "vertex zero").encode(), "three coordinates"),
        ("a.stl", _FACET.replace("vertex 0.0", "vertex nan").encode(), "not finite"),
        ("a.stl", _FACET.replace("vertex 0.0", "vertex 1e300").encode(), "too large"),
        ("a.stl", b"solid " + b"a" * 100_000, "line is too long"),
        ("a.stl", b"solid a\nendsolid a\n", "no triangles"),
        ("a.obj", (_V + "f 1 2 4").encode(), "'4' is not a point"),
        ("a.obj", (_V + "f 1 2 -4").encode(), "'-4' is not a point"),
        ("a.obj", (_V + "f 1 2 0").encode(), "'0' is not a point"),
        ("a.obj", (_V + "f 1 2").encode(), "2 corners"),
        ("a.obj", (_V + "f 1 x 2").encode(), "'x' is not a point"),
        ("a.obj", (_V + "v 1 2\n").encode(), "three coordinates"),
        ("a.obj", (_V + "f 1 1 2").encode(), "no triangle has an area"),
        ("a.3ds", b"3ds", "ending '.3ds' is unknown"),
    ],
)
def test_damaged_files_are_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with refused(location=f"surface file .*{name}", problem=problem) as refusal:
        read_surface(path)
    assert "\n" not in refusal.text


def test_a_damaged_line_is_refused_with_its_number_and_the_points_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.stl"
    path.write_text(_FACET.replace("endfacet", "vertex 0 0 0\nendfacet"))
    with refused(location=r"a.stl, line 9$"):
        read_surface(path)
    path = tmp_path / "a.obj"
    path.write_text(_V + "f 1 2 4")
    with refused(location=r"a.obj, line 4$", allowed="1 to 3, or -3 to -1"):
        read_surface(path)


def test_missing_files_and_wrong_scales_are_refused(tmp_path: Path) -> None:
    with refused(location="none.stl", problem="not exist", remedy="^give the path of a file$"):
        read_surface(tmp_path / "none.stl")
    with refused(location="none.stl", problem="not exist", remedy="from the current folder /"):
        read_surface("none.stl")
    (tmp_path / "some.stl").mkdir()
    with refused(location="some.stl", problem="folder", remedy="path of a file in it"):
        read_surface(tmp_path / "some.stl")
    with refused(location="scale = 0", allowed="above 0"):
        read_surface(tmp_path / "none.stl", scale=0.0)


def test_points_within_the_tolerance_are_one_wherever_cells_end() -> None:
    random = np.random.default_rng(1)
    places = random.uniform(-1, 1, (500, 3))
    copies = np.repeat(places, 4, axis=0) + random.uniform(-1, 1, (2000, 3)) * 2e-7
    points, which = merged(copies)
    assert len(points) == 500
    assert len(np.unique(which.reshape(500, 4), axis=0)) == 500
    assert np.ptp(which.reshape(500, 4), axis=1).max() == 0
    assert np.abs(points[which] - copies).max() < 1e-6
    # Only equal points are one without a tolerance, -0 and 0 among them.
    assert len(merged(copies, 0.0)[0]) == 2000
    assert len(merged(np.array([[0.0, 0, 0], [-0.0, 0, 0]]), 0.0)[0]) == 1


def test_inward_surfaces_are_turned_and_told_once() -> None:
    surface = make_surface(CUBE_POINTS[CUBE[:, ::-1]], CUBE_GROUPS, NAMES)
    assert surface.volume == pytest.approx(1.0)
    assert [notice for notice in surface.notices if "turned" in notice] == list(surface.notices)
    assert _cube().notices == ()


def test_triangles_that_face_another_way_than_their_neighbours_are_turned_and_reported() -> None:
    bend = read_surface(BEND, unit=MICROMETRE, scale=1e-6)
    assert bend.volume == pytest.approx(7853.40e-18, rel=1e-6)
    random = np.random.default_rng(1)
    corners = bend.corners.copy()
    turned = random.random(len(corners)) < 0.3
    corners[turned] = corners[turned, ::-1]
    mended = make_surface(corners, bend.groups, bend.names, unit=MICROMETRE)
    assert mended.volume == pytest.approx(7853.40e-18, rel=1e-6)
    np.testing.assert_allclose(mended.normals, bend.normals, rtol=1e-12)
    (notice,) = mended.notices
    assert f"surface: turned {turned.sum()} of 512 triangles" in notice
    assert notice.endswith("the surface encloses 7853.4 um^3")
    assert check(mended).faults == ()
    # A second part, a hole that faces inward, stays as most of it is.
    hole = _cube().corners[:, ::-1]
    hole[3] = hole[3, ::-1]
    whole = make_surface(np.concatenate([4 * _cube().corners - 1.5, hole]), [0] * 24, ("wall",))
    assert whole.volume == pytest.approx(64 - 1)


def test_a_surface_with_one_side_is_refused_with_a_place() -> None:
    turns = np.linspace(0, 2 * np.pi, 13)
    centre = np.stack([np.cos(turns), np.sin(turns), 0 * turns], 1)
    across = np.stack(
        [np.cos(turns) * np.cos(turns / 2), np.sin(turns) * np.cos(turns / 2), np.sin(turns / 2)], 1
    )
    one, two = centre + 0.3 * across, centre - 0.3 * across
    strip = [
        triangle
        for n in range(12)
        for triangle in ((one[n], two[n], one[n + 1]), (one[n + 1], two[n], two[n + 1]))
    ]
    with refused(problem=r"a part at \(.*\) m has only one side", remedy="remesh"):
        make_surface(np.array(strip), [0] * 24, ("wall",), tolerance=1e-9)


def test_flat_ends_of_a_vessel_are_found_with_middle_normal_and_diameter() -> None:
    bend = read_surface(BEND)
    ends = {end.group: end for end in flat_ends(bend)}
    assert sorted(ends) == ["inlet", "outlet"]
    np.testing.assert_allclose(ends["inlet"].middle, 0.0, atol=1e-6)
    np.testing.assert_allclose(ends["inlet"].normal, [-0.418, 0.056, 0.907], atol=1e-3)
    # Polygons of 16 corners in a circle of 12.
    assert ends["outlet"].diameter == pytest.approx(11.846, abs=1e-3)
    assert wall_diameter(bend) == pytest.approx(10.863, abs=1e-3)
    assert [end.group for end in flat_ends(_cube())].count("wall") == 4
    assert flat_ends(_sphere()) == []


def test_the_direction_of_a_vessel_beside_an_opening_is_that_of_its_axis() -> None:
    bend = read_surface(BEND)
    for end in flat_ends(bend):
        for normal in (end.normal, end.normal + [0.3, 0.0, 0.0]):
            normal = normal / np.linalg.norm(normal)
            direction = vessel_direction(bend, end.middle, normal, end.diameter / 2)
            assert direction is not None
            assert direction @ end.normal > np.cos(np.radians(4))
    # A cap of a sphere has no axis.
    assert vessel_direction(_sphere(), np.array([0, 0, 0.9]), np.array([0, 0, 1.0]), 0.43) is None


def test_open_ends_are_told_from_holes_by_their_width_and_place() -> None:
    bend = read_surface(BEND)
    keep = bend.groups == bend.names.index("wall")
    keep[keep.argmax() + 100] = False
    opened = replace(bend, triangles=bend.triangles[keep], groups=bend.groups[keep])
    with refused(problem="leaks") as refusal:
        require_closed(opened)
    places = refusal.error.remedy.partition("repair tool, in 3 places: ")[2].split(" m, ")
    assert "11.9 m wide at (0, 0, 0)" in places
    widths = [float(place.split()[0]) for place in places]
    assert widths[:2] == pytest.approx([11.9, 11.9])
    assert widths[2] < 6.0


def test_a_hole_is_named_with_its_place() -> None:
    cube = _cube()
    leaking = Surface(cube.points, cube.triangles[1:], cube.groups[1:], cube.names)
    report = check(leaking)
    assert len(report.leaks) == 1
    problem = report.leaks[0].problem
    assert problem.startswith("3 edges with a triangle on one side only, the first at (")
    with refused(location="^surface$", problem="leaks: 3 edges"):
        require_closed(leaking)
    read = replace(leaking, file="cube.stl", unit=MICROMETRE)
    with refused(
        location="cube.stl",
        problem=r"3 edges .* at \(0, 500000, 0\) um$",
        remedy="^close the holes",
    ):
        require_closed(read)


def test_the_normal_of_a_plane_askew_and_of_a_wall_is_told_as_a_direction() -> None:
    vessel = tube(3e-6, 12e-6)
    plane = OpeningPlane("inlet", (3e-6, 0.0, 0.0), (-0.8, -0.6, 0.0))
    with refused(
        location="opening 'inlet'",
        problem=r"normal is \(-0.8, -0.6, 0\)",
        allowed="normals along x, y or z",
    ):
        grid_of(vessel, 1e-6, (plane,))
    with refused(problem=r"normal is \(0, 0, 0\)", allowed="normals along x, y or z"):
        grid_of(replace(vessel, groups=np.zeros_like(vessel.groups)), 1e-6, ("wall",))


def test_every_kind_of_fault_is_found() -> None:
    cube = _cube()
    triangles = cube.triangles.copy()
    triangles[0] = triangles[0, ::-1]
    turned = check(Surface(cube.points, triangles, cube.groups, NAMES))
    assert turned.leaks == ()
    (fault,) = turned.faults
    assert "3 edges between triangles that face opposite ways" in fault.problem

    sheet = Surface(
        cube.points, np.concatenate([cube.triangles, cube.triangles[:1]]), np.zeros(13), NAMES
    )
    assert "3 edges met by an odd number of triangles" in check(sheet).leaks[0].problem

    # Two cubes that share an edge: closed, but four triangles meet there.
    pair = np.concatenate([CUBE_POINTS[CUBE], CUBE_POINTS[CUBE] + [1, 1, 0]])
    touching = check(make_surface(pair, np.zeros(24), ("wall",)))
    assert touching.leaks == ()
    problem = touching.faults[0].problem
    assert "1 edge met by four or more triangles, the first at (1, 1, 0.5)" in problem
    assert touching.parts == 1
    apart = np.concatenate([CUBE_POINTS[CUBE], CUBE_POINTS[CUBE] + 3])
    assert check(make_surface(apart, np.zeros(24), ("wall",))).parts == 2

    # A corner in the middle of an opposite side: closed, with a triangle that has no area.
    points = np.concatenate([cube.points, cube.points[[0, 3]].mean(axis=0, keepdims=True)])
    index = {tuple(p): n for n, p in enumerate(cube.points)}
    a, b, c, d = (index[p] for p in [(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 0)])
    flat = Surface(
        points, np.array([[a, b, c], [a, c, 8], [a, 8, d], [8, c, d]], np.int32), np.zeros(4), NAMES
    )
    diagonal = (cube.points[a] + cube.points[c]) / 2
    flat.points[8] = diagonal
    assert any("1 triangle without area" in fault.problem for fault in check(flat).faults)


def test_an_unknown_group_is_named_with_those_that_exist() -> None:
    with refused(problem="no group 'inflow'", allowed="^wall, inlet, outlet$"):
        _cube().group("inflow")


def test_a_surface_of_one_group_says_how_openings_can_be_told(tmp_path: Path) -> None:
    path = tmp_path / "cube.stl"
    path.write_bytes(_binary(CUBE_POINTS[CUBE]))
    with refused(
        location="cube.stl",
        problem="no group 'inlet'",
        allowed="^wall$",
        remedy="a position and a normal .* text STL",
    ):
        read_surface(path).group("inlet")


def test_parts_of_a_graph_equal_a_flood_fill() -> None:
    random = np.random.default_rng(2)
    one, other = random.integers(0, 400, (2, 260))
    part = connected_parts(400, one, other)
    expected = np.full(400, -1)
    for seed in range(400):
        if expected[seed] < 0:
            reached = {seed}
            while True:
                more = {int(b) for a, b in zip(one, other, strict=True) if a in reached}
                more |= {int(a) for a, b in zip(one, other, strict=True) if b in reached}
                if more <= reached:
                    break
                reached |= more
            expected[list(reached)] = expected.max() + 1
    np.testing.assert_array_equal(part, expected)


def test_round_cone_is_the_union_of_its_spheres() -> None:
    random = np.random.default_rng(3)
    positions = random.uniform(-3, 3, (200, 3))
    a, b, ra, rb = np.array([-1.0, 0.2, 0]), np.array([1.0, -0.3, 0.5]), 1.0, 0.4
    t = np.linspace(0, 1, 2001)[:, None]
    spheres = [
        np.linalg.norm(p - a - t * (b - a), axis=1) - (ra + t[:, 0] * (rb - ra)) for p in positions
    ]
    exact = np.array([distances.min() for distances in spheres])
    np.testing.assert_allclose(cone_distances(positions, a, b, ra, rb), exact, atol=1e-6)
    swallowed = cone_distances(positions, a, a + [0.1, 0, 0], 1.0, 0.5)
    np.testing.assert_allclose(swallowed, np.linalg.norm(positions - a, axis=1) - 1)


def test_daughters_obey_murrays_law() -> None:
    first, second = murray_radii(10.0, 0.7)
    assert first**3 == pytest.approx(700.0)
    assert second**3 == pytest.approx(300.0)


def test_volume_and_wall_of_a_generated_tube_converge_with_the_square_of_the_step() -> None:
    errors = []
    for step in (0.2, 0.1):
        surface = tube(1.0, 3.0, step)
        wall = surface.group("wall")
        area = np.linalg.norm(surface.normals[wall], axis=1).sum()
        errors.append([1 - surface.volume / (3 * np.pi), abs(1 - area / (6 * np.pi))])
    coarse, fine = np.array(errors)
    assert 0 < fine[0] < 0.003
    assert fine[1] < 0.02
    assert 3.0 < coarse[0] / fine[0] < 5.0


@pytest.mark.parametrize(
    ("surface", "outlets"),
    [
        (tube(1.0, 3.0), 1),
        (bifurcation(1.0, 4.2, 8.4, 0.6, step=0.3), 2),
        (tree(1.0, 6.0, 2, seed=5, step=0.3), 4),
        (tree(1.0, 6.0, 3, seed=6, step=0.3), 8),
    ],
    ids=["tube", "bifurcation", "tree of 2", "tree of 3"],
)
def test_generated_vessels_are_closed_and_cut_flat(surface: Surface, outlets: int) -> None:
    report = check(surface)
    assert report.faults == ()
    assert report.parts == 1
    assert surface.notices == ()
    assert surface.names[:2] == ("wall", "inlet")
    assert len(surface.names) == 2 + outlets
    length = surface.bounds[1][0]
    radii = []
    for name in surface.names[1:]:
        chosen = surface.group(name)
        x = surface.corners[chosen][..., 0]
        assert (x == (0.0 if name == "inlet" else length)).all()
        normal = surface.normals[chosen].sum(axis=0)
        np.testing.assert_allclose(normal[1:], 0, atol=1e-12)
        assert normal[0] * (-1 if name == "inlet" else 1) > 0
        radii.append(np.sqrt(abs(normal[0]) / np.pi))
    # By Murray's law the cubes of the outlets' radii add up to that of the inlet.
    assert radii[0] == pytest.approx(1.0, rel=0.02)
    assert sum(r**3 for r in radii[1:]) == pytest.approx(1.0, rel=0.12)


def test_a_seed_number_gives_one_tree() -> None:
    one, same = (tree(1.0, 6.0, 2, seed=5, step=0.4) for _ in range(2))
    np.testing.assert_array_equal(one.corners, same.corners)
    other = tree(1.0, 6.0, 2, seed=6, step=0.4)
    assert other.volume != one.volume


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (
            lambda: tube(1.0, 3.0, step=1.5),
            {"location": "step = 1.5 m", "problem": "out of range", "allowed": "radius, 1 m"},
        ),
        (lambda: tube(-1.0, 3.0), {"location": "radius = -1 m", "allowed": "above 0"}),
        (lambda: tube(1.0, 3.0, step=1e-4), {"remedy": "use a larger step"}),
        (
            lambda: bifurcation(1.0, 3.0, 2.0),
            {"problem": "ends of the daughters", "allowed": "more than"},
        ),
        (
            lambda: bifurcation(1.0, 3.0, 9.0, split=1.5),
            {"location": "split = 1.5", "allowed": "between 0 and 1"},
        ),
        (lambda: tree(1.0, 9.0, 9), {"location": "generations = 9", "allowed": "1 to "}),
    ],
)
def test_impossible_vessels_are_refused(make: object, fields: dict[str, str]) -> None:
    with refused(**fields):
        make()  # type: ignore[operator]
