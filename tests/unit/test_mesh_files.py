"""Claims about mesh files: what is written comes back, in every node order; damage is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from refusals import refused
from turned_meshes import face_gap, turned, whole_rows

from haloscope.errors import InputError, MachineError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.files import mesh_files
from haloscope.mesh.files.mesh_files import count_elements, read_mesh
from haloscope.mesh.hexes.hex_generators import box, cylinder, sphere
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
    HexMesh,
    gmsh_order,
    in_tensor,
    node_table,
    vtk_order,
)
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.mesh.hexes.shared_meshes import check_boundaries
from haloscope.numerics.elements.element_maps import (
    check_jacobians,
    jacobians,
    nodes,
    volume_weights,
)

# Corners of a quadrilateral in the order around it.
_ROUND = [0, 1, 3, 2]

TWO_HEXAHEDRA = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
4
2 1 "inlet"
2 2 "metal"
3 7 "air"
3 8 "glass"
$EndPhysicalNames
$Nodes
12
1 0 0 0
2 1 0 0
3 1 1 0
4 0 1 0
5 0 0 1
6 1 0 1
7 1 1 1
8 0 1 1
10 2 0 0
11 2 1 0
12 2 0 1
13 2 1 1
$EndNodes
$Elements
11
1 3 2 1 1 1 4 8 5
2 3 2 2 2 10 11 13 12
3 3 2 2 2 1 2 6 5
4 3 2 2 2 4 3 7 8
5 3 2 2 2 1 2 3 4
6 3 2 2 2 5 6 7 8
7 3 2 2 2 2 10 12 6
8 3 2 2 2 3 11 13 7
9 3 2 2 2 2 10 11 3
10 5 2 7 1 1 2 3 4 5 6 7 8
11 5 2 8 2 2 10 11 3 6 12 13 7
$EndElements
"""


@pytest.fixture
def meshio():
    return pytest.importorskip("meshio")


@pytest.fixture
def two(tmp_path):
    """Write the two hexahedra, with replacements, and give the path."""

    def write(*changes: tuple[str, str], name: str = "two.msh"):
        text = TWO_HEXAHEDRA
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def _read(path, *options, **named) -> HexMesh:
    return read_mesh(World(), path, *options, **named).whole_mesh()


def _check_boundaries(mesh: HexMesh) -> None:
    check_boundaries(World(), whole_rows(mesh))


def _for_meshio(meshio, mesh: HexMesh, kind: str, table: np.ndarray):
    """A mesh as meshio takes it: corners shared, other nodes each element's own."""
    i, j, k = table.T
    order = int(table.max())
    own = mesh.coordinates[:, k, j, i]
    corner = (table % order == 0).all(axis=1)
    points = np.zeros((mesh.vertices.max() + 1, 3))
    points[mesh.vertices] = mesh.corners
    cells = np.empty(own.shape[:2], np.int64)
    number = (i[corner] > 0) + 2 * (j[corner] > 0) + 4 * (k[corner] > 0)
    cells[:, corner] = mesh.vertices[:, number]
    inner = own[:, ~corner].reshape(-1, 3)
    cells[:, ~corner] = (len(points) + np.arange(len(inner))).reshape(mesh.count, -1)
    points = np.concatenate([points, inner])
    blocks, physical, names = [], [], {}
    for number, name in enumerate(mesh.boundary_names):
        element, face = mesh.outer_faces(name).T
        quads = mesh.vertices[element[:, None], FACE_CORNERS[face]][:, _ROUND]
        blocks.append(("quad", quads))
        physical.append(np.full(len(quads), number + 1))
        names[name] = np.array([number + 1, 2])
    for number, name in enumerate(mesh.region_names):
        in_region = mesh.regions == number
        blocks.append((kind, cells[in_region]))
        physical.append(np.full(in_region.sum(), number + 1))
        names[name] = np.array([number + 1, 3])
    tags = [np.full(len(part), number + 1) for number, part in enumerate(physical)]
    return meshio.Mesh(
        points,
        blocks,
        cell_data={"gmsh:physical": physical, "gmsh:geometrical": tags},
        field_data=names,
    )


def _named_centres(mesh: HexMesh) -> dict[str, list[tuple[float, ...]]]:
    return {
        name: sorted(tuple(np.round(c, 9)) for c in mesh.face_centres(mesh.outer_faces(name)))
        for name in mesh.boundary_names
    }


def _require_same(read: HexMesh, written: HexMesh) -> None:
    order = np.argsort(written.regions, kind="stable")
    np.testing.assert_allclose(read.coordinates, written.coordinates[order], atol=1e-14)
    assert [read.region_names[region] for region in read.regions] == [
        written.region_names[region] for region in written.regions[order]
    ]
    assert _named_centres(read) == _named_centres(written)
    assert (read.neighbours >= 0).sum() == (written.neighbours >= 0).sum()
    _check_boundaries(read)


def test_a_small_file_is_read_with_names_and_regions(meshio, two):
    mesh = _read(two())
    assert (mesh.count, mesh.order) == (2, 1)
    assert mesh.region_names == ("air", "glass")
    assert mesh.regions.tolist() == [0, 1]
    assert mesh.boundary_names == ("inlet", "metal")
    assert mesh.boundaries.tolist() == [[0, -1, 1, 1, 1, 1], [-1, 1, 1, 1, 1, -1]]
    assert mesh.neighbours[0].tolist() == [-1, 1, -1, -1, -1, -1]
    assert mesh.neighbours[1].tolist() == [0, -1, -1, -1, -1, -1]
    assert len(mesh.outer_faces("inlet")) == 1
    assert mesh.face_centres(mesh.outer_faces("inlet")).tolist() == [[0, 0.5, 0.5]]


def test_unnamed_faces_of_a_file_are_counted(meshio, two):
    with refused(problem=r"1 face at the edge .*\(1.5, 0.5, 1\) on element 1"):
        _check_boundaries(_read(two()))
    # In Gmsh's format 0 stands for no group.
    mesh = _read(two(("7 3 2 2 2 2 10", "7 3 2 0 2 2 10")))
    with refused(problem=r"2 faces at the edge .*\(1.5, 0, 0.5\)", remedy="physical"):
        _check_boundaries(mesh)


def test_a_scale_turns_the_unit_of_the_file_into_metres(meshio, two):
    np.testing.assert_allclose(
        _read(two(), scale=1e-3).coordinates, 1e-3 * _read(two()).coordinates
    )
    with refused(location="^scale = 0$", allowed="above 0"):
        _read(two(), scale=0)


def test_groups_without_names_go_by_their_numbers(meshio, two):
    start, end = TWO_HEXAHEDRA.index("$PhysicalNames"), TWO_HEXAHEDRA.index("$Nodes")
    mesh = _read(two((TWO_HEXAHEDRA[start:end], "")))
    assert mesh.boundary_names == ("1", "2")
    assert mesh.region_names == ("7", "8")


def test_a_named_surface_between_elements_is_kept_apart(meshio, two):
    mesh = _read(
        two(
            ("$Elements\n11", "$Elements\n12"),
            ('4\n2 1 "inlet"', '5\n2 3 "sheet"\n2 1 "inlet"'),
            ("10 5 2 7 1", "12 3 2 3 3 2 3 7 6\n10 5 2 7 1"),
        )
    )
    assert mesh.boundary_names == ("inlet", "metal")
    assert mesh.surfaces["sheet"].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["inlet", "metal"], ("inlet", "metal")),
        (["metal"], ("metal",)),
    ],
)
def test_a_face_in_two_groups_goes_to_the_smaller_that_the_case_names(
    meshio, two, conditions, names
):
    path = two(("$Elements\n11", "$Elements\n12"), ("10 5 2 7 1", "12 3 2 2 1 4 1 5 8\n10 5 2 7 1"))
    mesh = _read(path, 1.0, conditions)
    assert mesh.boundary_names == names
    assert "'inlet'" in mesh.notes[0]
    assert "'metal'" in mesh.notes[0]


def test_a_field_of_fractions_is_no_group(meshio, tmp_path):
    points = np.array([[i, j, k] for k in (0, 1) for j in (0, 1) for i in (0, 1, 2)], float)
    cells = [("hexahedron", [[0, 1, 4, 3, 6, 7, 10, 9], [1, 2, 5, 4, 7, 8, 11, 10]])]
    for values, regions in (([1.0, 2.0], ("1", "2")), ([1.2, 2.7], ("volume",))):
        file = meshio.Mesh(points, cells, cell_data={"material": [np.array(values)]})
        file.write(tmp_path / "a.vtu")
        assert _read(tmp_path / "a.vtu").region_names == regions


def test_elements_in_two_groups_are_one_element(meshio, two):
    path = two(
        ("$Elements\n11", "$Elements\n12"),
        ("10 5 2 7 1", "12 5 2 9 1 1 2 3 4 5 6 7 8\n10 5 2 7 1"),
        ('4\n2 1 "inlet"', '5\n3 9 "core"\n2 1 "inlet"'),
    )
    mesh = _read(path, materials=["core"])
    assert mesh.count == 2
    assert [mesh.region_names[region] for region in mesh.regions] == ["core", "glass"]
    assert "'core'" in mesh.notes[0]


@pytest.mark.parametrize(
    ("kind", "order", "table", "ending", "form"),
    [
        ("hexahedron", 1, vtk_order, ".msh", "gmsh22"),
        ("hexahedron", 1, vtk_order, ".vtu", None),
        ("hexahedron", 1, vtk_order, ".vtk", None),
        ("hexahedron27", 2, vtk_order, ".msh", "gmsh22"),
        ("hexahedron27", 2, vtk_order, ".vtu", None),
        ("hexahedron64", 3, gmsh_order, ".msh", "gmsh22"),
        ("hexahedron125", 4, gmsh_order, ".msh", "gmsh22"),
        ("hexahedron", 1, vtk_order, ".xdmf", None),
        ("VTK_LAGRANGE_HEXAHEDRON", 2, vtk_order, ".vtu", None),
        ("VTK_LAGRANGE_HEXAHEDRON", 4, vtk_order, ".vtu", None),
    ],
)
def test_curved_elements_come_back_from_files(meshio, tmp_path, kind, order, table, ending, form):
    mesh = turned(sphere(1.0, core=1, rings=1, outer_radius=2.0, outer_rings=1, order=order))
    path = tmp_path / f"ball{ending}"
    _for_meshio(meshio, mesh, kind, table(order)).write(path, file_format=form)
    read = _read(path)
    if ending == ".msh":
        _require_same(read, mesh)
    else:
        # These formats carry no names: regions and surfaces go by their numbers.
        assert read.region_names == ("1", "2")
        np.testing.assert_allclose(
            np.sort(read.coordinates.ravel()), np.sort(mesh.coordinates.ravel()), atol=1e-14
        )
    check_jacobians(World(), take(read, np.arange(read.count)), 5)


def test_lagrange_cells_of_old_vtk_files_are_told_from_new_ones(meshio, tmp_path):
    mesh = turned(cylinder(1.0, 0.0, 1.0, order=3))
    path = tmp_path / "old.vtu"
    _for_meshio(meshio, mesh, "VTK_LAGRANGE_HEXAHEDRON", vtk_order(3, old=True)).write(path)
    read = _read(path)
    np.testing.assert_allclose(read.coordinates, mesh.coordinates, atol=1e-14)


@pytest.mark.parametrize("binary", [True, False])
def test_gmsh_4_1_comes_back_with_its_groups(meshio, tmp_path, binary):
    mesh = turned(box((3, 2, 2)))
    file = _for_meshio(meshio, mesh, "hexahedron", vtk_order(1))
    # Version 4.1 keeps groups with its entities, which meshio makes from tags of points.
    entities = [[2, number + 1] for number in range(6)] + [[3, 7]]
    tags = np.tile([3, 7], (len(file.points), 1))
    tags[: len(entities)] = entities
    file.point_data["gmsh:dim_tags"] = tags
    path = tmp_path / "box.msh"
    file.write(path, file_format="gmsh", binary=binary)
    _require_same(_read(path), mesh)


def _quadratic(points: np.ndarray) -> np.ndarray:
    """A map within the serendipity space: quadratic in each direction, no more than that."""
    x, y, z = np.moveaxis(points, -1, 0)
    return np.stack(
        [x + 0.1 * y * y * z, y + 0.05 * x * x, z + 0.1 * x * y * z + 0.07 * x * x * y], -1
    )


@pytest.mark.parametrize(("kind", "count"), [("hexahedron20", 20), ("hexahedron24", 24)])
def test_serendipity_cells_are_completed_exactly(kind, count):
    plain = box((2, 1, 1))
    flat = nodes(plain, 2)  # GLL nodes of order 2 are equidistant.
    exact = _quadratic(flat)
    i, j, k = vtk_order(2)[:count].T
    points = exact[:, k, j, i].reshape(-1, 3)
    cells = np.arange(2 * count).reshape(2, count)
    table = node_table(points, cells, kind)
    np.testing.assert_allclose(in_tensor(points, cells, table), exact, atol=1e-15)


def test_24_nodes_keep_the_middles_of_their_four_faces():
    plain = nodes(box((1, 1, 1)), 2)
    bulged = plain.copy()
    bulged[0, 1, 1, 2, 0] += 0.1
    i, j, k = vtk_order(2)[:24].T
    points, cells = bulged[0, k, j, i], np.arange(24).reshape(1, 24)
    values = in_tensor(points, cells, node_table(points, cells, "hexahedron24"))
    assert values[0, 1, 1, 2, 0] == pytest.approx(1.1)
    # The middle of the cell takes half of what a face's middle moves.
    assert values[0, 1, 1, 1, 0] == pytest.approx(0.55)


@pytest.mark.parametrize("form", ["gmsh22", "vtu"])
def test_serendipity_files_are_read(meshio, tmp_path, form):
    mesh = turned(box((2, 2, 2)))
    flat = _quadratic(nodes(mesh, 2))
    curved = HexMesh(**{**mesh.__dict__, "order": 2, "coordinates": flat})
    path = tmp_path / ("bent.msh" if form == "gmsh22" else "bent.vtu")
    file = _for_meshio(meshio, curved, "hexahedron20", vtk_order(2)[:20])
    file.write(path, file_format=form if form == "gmsh22" else None)
    read = _read(path)
    # The axes of a turned element mix the powers: the middles are those of the shape functions.
    assert np.abs(read.coordinates - flat).max() < 2e-2
    assert read.order == 2
    assert face_gap(read, 2) < 1e-15


def test_node_orders_hold_every_place_once():
    for table in (*map(gmsh_order, range(1, 10)), *map(vtk_order, range(1, 10))):
        assert len(np.unique(table, axis=0)) == len(table) == (table.max() + 1) ** 3
    # Gmsh's documentation: node 20 of 27 in the middle of z = 0, 22 of x = 0.
    assert gmsh_order(2)[[8, 9, 10, 20, 22, 26]].tolist() == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 1, 0],
        [0, 1, 1],
        [1, 1, 1],
    ]
    # As Gmsh 4.15 itself lists its 216-node cell: the first face, and nodes inside.
    assert gmsh_order(5)[56:72, :2].tolist() == [
        *([1, 1], [1, 4], [4, 4], [4, 1], [1, 2], [1, 3], [2, 4], [3, 4]),
        *([4, 3], [4, 2], [3, 1], [2, 1], [2, 2], [2, 3], [3, 3], [3, 2]),
    ]
    inside = gmsh_order(5)[[152, 153, 160, 168, 215]].tolist()
    assert inside == [[1, 1, 1], [4, 1, 1], [2, 1, 1], [4, 1, 2], [2, 3, 3]]
    # VTK: the last two edges along k, before and since its version 9.1.
    assert vtk_order(2)[[18, 19]].tolist() == [[2, 2, 1], [0, 2, 1]]
    assert vtk_order(2, old=True)[[18, 19]].tolist() == [[0, 2, 1], [2, 2, 1]]


def test_sets_name_cells_and_the_smallest_wins(meshio, tmp_path):
    points = np.array([[i, j, k] for k in (0, 1) for j in (0, 1) for i in (0, 1, 2)], float)
    cells = [("hexahedron", [[0, 1, 4, 3, 6, 7, 10, 9], [1, 2, 5, 4, 7, 8, 11, 10]])]
    file = meshio.Mesh(points, cells, cell_sets={"all": [[0, 1]], "core": [[1]]})
    path = tmp_path / "sets.inp"
    file.write(path)
    mesh = _read(path)
    assert [mesh.region_names[region] for region in mesh.regions] == ["all", "core"]


def test_without_meshio_it_says_what_to_install(monkeypatch, two):
    monkeypatch.setitem(sys.modules, "meshio", None)
    with refused(MachineError, remedy=r"pip install -e '[^']*\[mesh\]'"):
        _read(two())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("11 5 2 8 2 2 10 11 3 6 12 13 7", "11 4 2 8 2 2 10 11 3")], "holds 1 hexahedron, 1 tetra$"),
        ([("11 5 2 8 2 2 10 11 3 6 12 13 7", "11 6 2 8 2 2 10 11 3 6 12")], "1 wedge$"),
        ([("10 5 2 7 1 1 2 3 4 5 6 7 8\n11 5 2 8 2 2 10 11 3 6 12 13 7\n", ""), ("$Elements\n11", "$Elements\n9")], "holds no hexahedra, only quad"),
        ([("11 2 1 0", "11 2 1 nan")], "coordinates out of range"),
        ([("11 2 1 0\n", "11 2 inf 0\n")], "coordinates out of range, the first is element 1"),
        ([("11 2 1 0\n", "11 2 1e200 0\n")], "coordinates out of range"),
        ([("6 12 13 7", "6 12 13 99")], "cannot be read: it refers to a part that does not exist, for example a node"),
        ([("6 12 13 7", "6 12 13 9")], "with nodes that are not in the file"),
        ([("6 12 13 7", "6 12 13 0")], "element 11 uses a node below 1"),
        ([("6 12 13 7", "6 12 13 -3")], "element 11 uses a node below 1"),
        ([("6 12 13 7", "6 12 13 seven")], "cannot be read"),
        ([("$Nodes\n12", "$Nodes\n-12")], "states a count of -12"),
        ([("$Nodes\n12", "$Nodes\n999999999999")], "states a count of 999999999999"),
        ([("$Elements\n11", "$Elements\n-1")], "states a count of -1"),
        ([("$Elements\n11", "$Elements\nmany")], "no readable \\$Elements"),
        ([("$Elements\n11", "$Elements\n30")], "cannot be read"),
        ([("13 2 1 1", "2000000000 2 1 1")], "a node has the number 2000000000"),
        ([("13 2 1 1", "x 2 1 1")], "not made of numbers"),
        ([("$MeshFormat", "$Mesh")], "does not begin like a Gmsh file"),
        ([("2.2 0 8", "9.9 0 8")], "cannot be read"),
        ([("1 3 2 1 1 1 4 8 5", "1 3 2 1 1 1 4 8 6")], "1 of 9 quadrilaterals .*'inlet'"),
        ([("1 3 2 1 1 1 4 8 5", "1 3 2 1 1 1 4 8 9"), ("$Nodes\n12", "$Nodes\n13"), ("5 0 0 1\n", "9 5 5 5\n5 0 0 1\n")], "1 of 9 quadrilaterals .*'inlet'"),
        ([("1 3 2 1 1 1 4 8 5", "1 2 2 1 1 1 4 8")], "'inlet' is made of triangle cells"),
    ],
)  # fmt: skip
def test_damaged_and_unsupported_files_are_refused(meshio, two, changes, message, capfd):
    with refused(location="mesh file .*two.msh", problem=message) as refusal:
        _read(two(*changes))
    assert "\n" not in refusal.text
    if "a part that" in message:
        assert refusal.error.location.endswith("two.msh, section $Elements")
    if message.endswith(("tetra$", "wedge$")):
        assert refusal.error.allowed == "only hexahedra"
    if "out of range" in message:
        assert refusal.error.allowed == "finite numbers up to 1e+30"
    assert capfd.readouterr() == ("", "")


def test_mixed_orders_are_refused(meshio, tmp_path):
    one = _for_meshio(meshio, box((1, 1, 1)), "hexahedron", vtk_order(1))
    points = np.concatenate(
        [one.points, nodes(box((1, 1, 1), (5, 0, 0), (6, 1, 1)), 2).reshape(-1, 3)]
    )
    cells = [("hexahedron", one.cells[-1].data), ("hexahedron27", 8 + np.arange(27)[None])]
    path = tmp_path / "mixed.vtu"
    meshio.Mesh(points, cells).write(path)
    with refused(problem="mixes hexahedra of several orders", remedy="one order"):
        _read(path)


def test_cells_of_uneven_orders_are_refused(meshio, tmp_path):
    points = np.random.default_rng(0).uniform(size=(12, 3))
    path = tmp_path / "uneven.vtu"
    meshio.Mesh(points, [("VTK_LAGRANGE_HEXAHEDRON", np.arange(12)[None])]).write(path)
    with refused(problem="of 12 nodes is not the same along all directions", remedy="one order"):
        _read(path)


def test_indices_beyond_the_points_are_refused_in_every_format(meshio, tmp_path):
    file = _for_meshio(meshio, box((1, 1, 1)), "hexahedron", vtk_order(1))
    path = tmp_path / "box.vtk"
    meshio.Mesh(file.points, [("hexahedron", file.cells[-1].data)]).write(path, binary=False)
    text = path.read_text()
    cells = text.index("CELLS") if "CONNECTIVITY" not in text else text.index("CONNECTIVITY")
    for bad in ("77", "-2"):
        broken = tmp_path / f"bad{bad}.vtk"
        broken.write_text(text[:cells] + text[cells:].replace("7", bad, 1))
        with refused(problem=rf"with node {bad} of 8"):
            _read(broken)


@pytest.mark.parametrize("name", ["none.msh", "folder.msh", "empty.msh", "noise.msh", "mesh.foo"])
def test_files_that_are_no_meshes_are_refused(meshio, tmp_path, name, capfd):
    path = tmp_path / name
    if name == "folder.msh":
        path.mkdir()
    elif name == "empty.msh":
        path.touch()
    elif name != "none.msh":
        path.write_bytes(np.random.default_rng(0).bytes(1000))
    with refused(location=name) as refusal:
        _read(path)
    assert "\n" not in refusal.text
    assert capfd.readouterr() == ("", "")


def test_a_damaged_binary_file_never_gets_further_than_an_error(meshio, tmp_path):
    mesh = box((2, 2, 1))
    path = tmp_path / "box.msh"
    _for_meshio(meshio, mesh, "hexahedron", vtk_order(1)).write(path, file_format="gmsh22")
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    for trial in range(60):
        damaged = bytearray(whole)
        if trial % 3 == 0:
            damaged = damaged[: rng.integers(1, len(whole))]
        else:
            for place in rng.integers(len(whole), size=4):
                damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            read = _read(path)
            check_jacobians(World(), take(read, np.arange(read.count)), 2)
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("kind", ["gmsh22", "gmsh"])
@pytest.mark.parametrize("binary", [False, True])
def test_elements_are_counted_without_reading_the_file(meshio, tmp_path, monkeypatch, kind, binary):
    mesh = sphere(1.0, core=2, rings=1, order=2)
    file = _for_meshio(meshio, mesh, "hexahedron27", vtk_order(2))
    if kind == "gmsh":
        # meshio writes no others than one kind of cells in this version.
        file = meshio.Mesh(file.points, file.cells[-1:])
    path = tmp_path / "ball.msh"
    file.write(path, file_format=kind, binary=binary)
    monkeypatch.setattr(mesh_files, "read_with_meshio", None)
    assert count_elements(path) == mesh.count == 32


def test_elements_of_other_and_of_odd_files_are_counted_by_reading_them(meshio, tmp_path, two):
    path = two()
    assert count_elements(path) == 2
    meshio.read(path).write(tmp_path / "two.vtu")
    assert count_elements(tmp_path / "two.vtu") == 2
    with refused(location=r"\$Elements$", problem="states a count of -1"):
        count_elements(two(("$Elements\n11", "$Elements\n-1")))
    with refused(problem="no hexahedra"):
        count_elements(
            two(
                ("10 5 2 7 1 1 2 3 4 5 6 7 8\n11 5 2 8 2 2 10 11 3 6 12 13 7\n", ""),
                ("$Elements\n11", "$Elements\n9"),
            )
        )
    with refused(location="none.msh$", problem="does not exist"):
        count_elements(tmp_path / "none.msh")


def test_the_volume_of_a_file_is_that_of_what_was_written(meshio, tmp_path):
    mesh = sphere(1.0, order=4)
    path = tmp_path / "ball.msh"
    _for_meshio(meshio, mesh, "hexahedron125", gmsh_order(4)).write(path, file_format="gmsh22")
    read = _read(path)
    volume = (jacobians(nodes(read, 6)) * volume_weights(6)).sum()
    assert volume == pytest.approx(4 / 3 * np.pi, rel=1e-5)
    assert node_table(read.coordinates.reshape(-1, 3), np.arange(5)[None], "x") is None
