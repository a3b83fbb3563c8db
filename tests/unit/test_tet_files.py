"""Claims about files of tetrahedra: what is written comes back with its names; damage is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from refusals import refused
from written_meshes import write_tets

from haloscope.errors import InputError, MachineError
from haloscope.mesh.files.gmsh import count_gmsh_hexahedra, count_gmsh_tetrahedra
from haloscope.mesh.files.meshio_files import choose_groups
from haloscope.mesh.tets.tet_files import read_tets
from haloscope.mesh.tets.tet_generators import BOX_SIDES, tet_box
from haloscope.mesh.tets.tets import TetMesh, area_vectors, make_tet_mesh

TWO_TETRAHEDRA = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
4
2 1 "inlet"
2 2 "wall"
3 7 "rotor"
3 8 "stator"
$EndPhysicalNames
$Nodes
5
1 0 0 0
2 1 0 0
3 0 1 0
4 0 0 1
10 1 1 1
$EndNodes
$Elements
8
1 2 2 1 1 1 2 3
2 2 2 2 2 1 2 4
3 2 2 2 2 1 3 4
4 2 2 2 2 10 2 3
5 2 2 2 2 10 2 4
6 2 2 2 2 10 3 4
7 4 2 7 1 1 2 3 4
8 4 2 8 2 10 2 4 3
$EndElements
"""


@pytest.fixture
def meshio():
    return pytest.importorskip("meshio")


@pytest.fixture
def two(tmp_path):
    """Write the two tetrahedra, with replacements, and give the path."""

    def write(*changes: tuple[str, str], name: str = "two.msh"):
        text = TWO_TETRAHEDRA
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def _zoned() -> TetMesh:
    """A box of two zones with a named surface between them."""
    plain = tet_box((2, 2, 2))
    upper = plain.centres[:, 0] > 0.5
    order = np.argsort(upper, kind="stable")
    x = plain.nodes[:, 0] == 0.5
    faces = plain.tets[:, [[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]]].reshape(-1, 3)
    between = np.unique(np.sort(faces[x[faces].all(axis=1)], axis=1), axis=0)
    named = {**plain.boundaries, "interface": between}
    return make_tet_mesh(
        plain.nodes, plain.tets[order], named, upper[order].astype(np.int32), ("rotor", "stator")
    )


def _areas(mesh: TetMesh, name: str) -> np.ndarray:
    return area_vectors(mesh.nodes, {**mesh.boundaries, **mesh.surfaces}[name]).sum(axis=0)


def test_a_small_file_is_read_with_names_and_zones(meshio, two):
    mesh = read_tets(two())
    assert mesh.count == 2
    assert mesh.zone_names == ("rotor", "stator")
    assert mesh.zones.tolist() == [0, 1]
    assert {name: len(faces) for name, faces in mesh.boundaries.items()} == {"inlet": 1, "wall": 5}
    assert _areas(mesh, "inlet").tolist() == [0, 0, -0.5]
    assert mesh.neighbours.tolist() == [[1, -1, -1, -1], [0, -1, -1, -1]]
    assert mesh.volumes == pytest.approx([1 / 6, 1 / 3])
    assert mesh.notes == ()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("form", ["gmsh22", "gmsh41"])
def test_gmsh_files_come_back_with_their_names(meshio, tmp_path, form, binary, capfd):
    mesh, path = _zoned(), tmp_path / "box.msh"
    write_tets(mesh, path, form, binary)
    read = read_tets(path)
    assert np.array_equal(read.nodes, mesh.nodes)
    assert np.array_equal(read.tets, mesh.tets)
    assert np.array_equal(read.zones, mesh.zones)
    assert read.zone_names == mesh.zone_names
    assert tuple(read.boundaries) == BOX_SIDES
    for name in BOX_SIDES:
        assert np.array_equal(read.boundaries[name], mesh.boundaries[name])
    assert np.array_equal(read.surfaces["interface"], mesh.surfaces["interface"])
    np.testing.assert_allclose(_areas(read, "interface"), [1, 0, 0], atol=1e-15)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", ["vtu", "vtk"])
def test_vtk_files_come_back_with_numbers_for_names(meshio, tmp_path, form, capfd):
    mesh, path = _zoned(), tmp_path / f"box.{form}"
    write_tets(mesh, path, form)
    read = read_tets(path)
    assert np.array_equal(read.nodes, mesh.nodes)
    assert np.array_equal(read.tets, mesh.tets)
    assert np.array_equal(read.zones, mesh.zones)
    assert read.zone_names == ("8", "9")
    assert tuple(read.boundaries) == tuple("123456")
    for number, name in enumerate(BOX_SIDES, 1):
        assert np.array_equal(read.boundaries[str(number)], mesh.boundaries[name])
    assert np.array_equal(read.surfaces["7"], mesh.surfaces["interface"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("form", ["gmsh22", "gmsh41"])
def test_tetrahedra_of_gmsh_files_are_counted_without_reading_them(meshio, tmp_path, form, binary):
    path = tmp_path / "a.msh"
    write_tets(tet_box((2, 3, 4)), path, form, binary)
    assert count_gmsh_tetrahedra(path) == read_tets(path).count
    assert count_gmsh_hexahedra(path) == 0
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert count_gmsh_tetrahedra(path) is None


def test_elements_are_written_zone_after_zone(meshio, tmp_path):
    plain = tet_box((1, 1, 1))
    zones = np.array([1, 0, 1, 0, 1, 0])
    mesh = make_tet_mesh(plain.nodes, plain.tets, plain.boundaries, zones, ("a", "b"))
    write_tets(mesh, tmp_path / "box.msh")
    read = read_tets(tmp_path / "box.msh")
    assert read.zones.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(read.tets, plain.tets[[1, 3, 5, 0, 2, 4]])


def test_a_scale_turns_the_unit_of_the_file_into_metres(meshio, two):
    assert np.array_equal(read_tets(two(), scale=1e-3).nodes, 1e-3 * read_tets(two()).nodes)
    with refused(location="^scale = -1$", allowed="above 0"):
        read_tets(two(), scale=-1)
    with refused(location="two.msh$", problem="2 elements have nodes with coordinates out of"):
        read_tets(two(), scale=1e300)


def test_groups_without_names_go_by_their_numbers(meshio, two):
    start, end = TWO_TETRAHEDRA.index("$PhysicalNames"), TWO_TETRAHEDRA.index("$Nodes")
    mesh = read_tets(two((TWO_TETRAHEDRA[start:end], "")))
    assert tuple(mesh.boundaries) == ("1", "2")
    assert mesh.zone_names == ("7", "8")


def test_mirrored_files_are_turned_and_unused_nodes_dropped_with_notes(meshio, two):
    mesh = read_tets(
        two(
            ("1 1 2 3 4\n", "1 2 1 3 4\n"),
            ("2 10 2 4 3", "2 2 10 4 3"),
            ("$Nodes\n5", "$Nodes\n6"),
            ("10 1 1 1\n", "7 8 8 8\n10 1 1 1\n"),
        )
    )
    assert len(mesh.notes) == 2
    assert len(mesh.nodes) == 5
    assert (mesh.volumes > 0).all()


def test_without_meshio_it_says_what_to_install(monkeypatch, two):
    monkeypatch.setitem(sys.modules, "meshio", None)
    with refused(MachineError, remedy=r"pip install -e '[^']*\[mesh\]'"):
        read_tets(two())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("10 1 1 1", "10 0.1 0.1 0.1")], "lie on the same side of the face they share"),
        ([("10 1 1 1", "10 0.1 0.1 0.1"), ("10 2 4 3", "2 10 4 3")], "lie on the same side of the face they share"),
        ([("10 1 1 1", "10 1 0 0")], "element 1 at .* has no volume"),
        ([("10 1 1 1", "10 0.5 0.5 0")], "element 1 at .* has no volume"),
        ([("10 1 1 1", "10 nan 1 1")], "coordinates out of range"),
        ([("10 1 1 1", "10 1e200 1 1")], "coordinates out of range"),
        ([("10 2 4 3", "10 2 4 4")], "element 1 at .*same node stands at two corners"),
        ([("10 2 4 3", "10 2 4 9")], "with nodes that are not in the file, the first is number 1 with node -1 of 5"),
        ([("10 2 4 3", "10 2 4 99")], "cannot be read: it refers to a part that does not exist, for example a node"),
        ([("10 2 4 3", "10 2 4 0")], "element 8 uses a node below 1"),
        ([("10 2 4 3", "10 2 4 three")], "cannot be read"),
        ([("10 2 4 3", "10 2 4")], "element 1 at .*same node stands"),
        ([("$Nodes\n5", "$Nodes\n-5")], "states a count of -5"),
        ([("$Nodes\n5", "$Nodes\n999999999999")], "states a count of 999999999999"),
        ([("$Elements\n8", "$Elements\n999999999999")], "states a count of 999999999999"),
        ([("10 1 1 1", "2000000000 1 1 1")], "a node has the number 2000000000"),
        ([("$MeshFormat", "$Mesh")], "does not begin like a Gmsh file"),
        ([("2.2 0 8", "9.9 0 8")], "cannot be read"),
        ([("8 4 2 8 2 10 2 4 3", "8 5 2 8 2 10 2 4 3 1 1 1 1")], "holds 1 hexahedron, 1 tetra$"),
        ([("7 4 2 7 1 1 2 3 4\n8 4 2 8 2 10 2 4 3\n", ""), ("$Elements\n8", "$Elements\n6")], "holds no tetrahedra, only triangle"),
        ([("7 4 2 7 1 1 2 3 4", "7 11 2 7 1 1 2 3 4 1 1 1 1 1 1")], "holds 1 tetra, 1 tetra10$"),
        ([("1 2 2 1 1 1 2 3", "1 3 2 1 1 1 2 3 4")], "the surface 'inlet' is made of quad cells"),
        ([("1 2 2 1 1 1 2 3", "1 2 2 0 1 1 2 3")], r"1 face at the edge .*\(0.333333, 0.333333, 0\) on element 0"),
        ([("1 2 2 1 1 1 2 3", "1 2 2 1 1 1 2 10")], "1 of 6 named triangles are no face of an element, the first, of 'inlet'"),
        ([("2 2 2 2 2 1 2 4", "2 2 2 2 2 1 2 3")], "1 face at the edge of the mesh without a boundary name"),
        ([("8 4 2 8 2 10 2 4 3", "8 4 2 8 2 1 2 3 10")], "named triangles are no face|same side"),
    ],
)  # fmt: skip
def test_damaged_and_unsupported_files_are_refused(meshio, two, changes, message, capfd):
    with refused(location="mesh file .*two.msh", problem=message) as refusal:
        read_tets(two(*changes))
    assert "\n" not in refusal.text
    if "a part that" in message:
        assert refusal.error.location.endswith("two.msh, section $Elements")
    if "hexahedron" in message or "tetra10" in message:
        assert refusal.error.allowed == "only tetrahedra of 4 nodes"
    if "on element 0" in message:
        assert "there are: wall" in refusal.error.remedy
    assert capfd.readouterr() == ("", "")


def test_an_inside_out_element_is_turned_and_reported(meshio, two):
    mesh = read_tets(two(("8 4 2 8 2 10 2 4 3", "8 4 2 8 2 2 10 4 3")))
    assert "1 of 2 elements were numbered left-handed" in mesh.notes[0]
    assert mesh.volumes == pytest.approx([1 / 6, 1 / 3])


# As Gmsh writes them: version 2.2 has a cell once for each of its groups, 4 a list for each entity.
_SEVERAL_22 = (
    ('4\n2 1 "inlet"', '6\n2 3 "floor"\n3 9 "all"\n2 1 "inlet"'),
    ("$Elements\n8", "$Elements\n11"),
    ("8 4 2 8 2 10 2 4 3\n", "8 4 2 8 2 10 2 4 3\n9 2 2 3 2 1 4 2\n10 4 2 9 1 1 2 3 4\n11 4 2 9 2 10 2 4 3\n"),
)  # fmt: skip


def _several(two, version, **names):
    """The two tetrahedra with a face and both elements in a second group."""
    path = two(*_SEVERAL_22)
    if version == 41:
        path.write_text(_AS_41)
    return read_tets(path, **names)


_AS_41 = """$MeshFormat
4.1 0 8
$EndMeshFormat
$PhysicalNames
6
2 1 "inlet"
2 2 "wall"
2 3 "floor"
3 7 "rotor"
3 8 "stator"
3 9 "all"
$EndPhysicalNames
$Entities
1 0 3 2
1 0 0 0 0
1 0 0 0 1 1 0 1 1 0
2 0 0 0 1 1 1 1 2 0
3 0 0 0 1 0 1 2 2 -3 0
1 0 0 0 1 1 1 2 7 9 1 1
2 0 0 0 1 1 1 2 8 9 1 2
$EndEntities
$Nodes
1 5 1 10
3 1 0 5
1
2
3
4
10
0 0 0
1 0 0
0 1 0
0 0 1
1 1 1
$EndNodes
$Elements
5 8 1 8
2 1 2 1
1 1 2 3
2 3 2 1
2 1 2 4
2 2 2 4
3 1 3 4
4 10 2 3
5 10 2 4
6 10 3 4
3 1 4 1
7 1 2 3 4
3 2 4 1
8 10 2 4 3
$EndElements
"""


@pytest.mark.parametrize("version", [22, 41])
def test_the_smaller_of_two_groups_with_a_condition_holds_and_is_reported(meshio, two, version):
    mesh = _several(two, version, conditions=["wall", "floor", "inlet"], settings=["all"])
    assert {name: len(faces) for name, faces in mesh.boundaries.items()} == {
        "inlet": 1, "wall": 4, "floor": 1
    }  # fmt: skip
    assert _areas(mesh, "floor").tolist() == [0, -0.5, 0]
    assert mesh.zone_names == ("all",)
    assert [note for note in mesh.notes if "group" in note] == [
        "1 element in both of the groups 'all' and 'rotor': 'all' applies there; 'rotor' has no setting there",
        "1 element in both of the groups 'all' and 'stator': 'all' applies there; 'stator' has no setting there",
        "1 face in both of the groups 'floor' and 'wall': the condition of 'floor', the smaller group, "
        "applies there; results of 'wall' do not include these faces",
    ]  # fmt: skip


def test_elements_in_no_group_beside_others_are_named_as_the_fault(meshio, two):
    path = two()
    path.write_text(_AS_41.replace("1 1 1 2 8 9 1 2", "1 1 1 0 1 2"))
    with refused(problem="in no physical group, and others are in one$", remedy="^in Gmsh"):
        read_tets(path)


@pytest.mark.parametrize("version", [22, 41])
def test_a_second_group_without_a_condition_leaves_that_of_the_other(meshio, two, version):
    mesh = _several(two, version, conditions=["wall", "inlet"])
    assert {name: len(faces) for name, faces in mesh.boundaries.items()} == {"inlet": 1, "wall": 5}
    assert mesh.zone_names == ("rotor", "stator")
    assert any("'floor' has no condition there" in note for note in mesh.notes)
    # Without conditions the smallest counts.
    assert len(_several(two, version).boundaries["floor"]) == 1


def test_a_group_whose_faces_all_lie_in_smaller_ones_cannot_have_a_condition():
    items, groups = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 1, 1, 2, 2, 2], np.int32)
    names = ["inlet", "wall", "all"]
    text = r"every face of the group 'all' is also in a smaller group .* \(inlet, wall\)"
    with refused(problem=text, remedy="give 'all' no condition"):
        choose_groups(items, groups, names, 3, names, "face", "condition")
    chosen = choose_groups(items, groups, names, 3, names[:2], "face", "condition")
    assert chosen.numbers.tolist() == [0, 1, 1]
    assert len(chosen.notes) == 2


def test_many_overlaps_are_counted():
    items, groups = np.tile(np.arange(30), 2), np.concatenate([np.arange(30), np.full(30, 30)])
    names = [*map(str, range(30)), "all"]
    chosen = choose_groups(items, groups.astype(np.int32), names, 30, (), "face", "condition")
    assert chosen.names == tuple(names[:-1])
    assert len(chosen.notes) == 9
    assert chosen.notes[-1] == "22 more pairs of groups share faces"


def test_equally_large_groups_with_conditions_on_one_face_are_refused(meshio, two):
    path = two(*_SEVERAL_22, ("9 2 2 3 2 1 4 2", "9 2 2 3 2 1 2 3"))
    with refused(problem="'inlet' and 'floor', which are equally large"):
        read_tets(path, conditions=["wall", "floor", "inlet"])


@pytest.mark.parametrize(
    "name", ["none.msh", "folder.vtu", "empty.msh", "empty.vtk", "noise.msh", "noise.vtu", "noise.vtk", "mesh.foo"]
)  # fmt: skip
def test_files_that_are_no_meshes_are_refused(meshio, tmp_path, name, capfd):
    path = tmp_path / name
    if name.startswith("folder"):
        path.mkdir()
    elif name.startswith("empty"):
        path.touch()
    elif not name.startswith("none"):
        path.write_bytes(np.random.default_rng(0).bytes(1000))
    with refused(location=name) as refusal:
        read_tets(path)
    assert "\n" not in refusal.text
    assert capfd.readouterr() == ("", "")


def test_other_endings_are_refused_with_those_that_are_read(tmp_path):
    with refused(location="mesh.exo$", problem="unknown ending", allowed=r"^\.msh, \.vtu, \.vtk$"):
        read_tets(tmp_path / "mesh.exo")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("POINTS 8", "POINTS 888888888888", "POINTS states a count of 888888888888"),
        ("CELLS 18", "CELLS 999999999999", "CELLS states a count of 999999999999"),
        ("CELL_TYPES 18", "CELL_TYPES -1", "CELL_TYPES states a count of -1"),
        ("CELL_DATA 18", "CELL_DATA 999999999999", "CELL_DATA states a count of"),
        ("UNSTRUCTURED_GRID", "STRUCTURED_POINTS\nDIMENSIONS 99999 99999 99999", "no unstructured grid"),
        ("POINTS 8", "POINTS 9", "cannot be read"),
        ("CELL_TYPES 18", "CELL_TYPES 17", "cannot be read"),
    ],
)  # fmt: skip
def test_hostile_vtk_files_are_refused(meshio, tmp_path, old, new, message, capfd):
    path = tmp_path / "box.vtk"
    write_tets(tet_box((1, 1, 1)), path, "vtk")
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    with refused(location="box.vtk", problem=message) as refusal:
        read_tets(path)
    assert "\n" not in refusal.text
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<VTKFile", '<!DOCTYPE a [<!ENTITY b "bbbb">]>\n<VTKFile', "holds declarations of XML"),
        ("vtkZLibDataCompressor", "vtkLZMADataCompressor", "data are packed by LZMA"),
        ('NumberOfCells="18"', 'NumberOfCells="999999999999"', "cannot be read"),
        ("UnstructuredGrid", "ImageData", "cannot be read"),
        ("</Piece>", "", "cannot be read"),
    ],
)
def test_hostile_vtu_files_are_refused(meshio, tmp_path, old, new, message, capfd):
    path = tmp_path / "box.vtu"
    write_tets(tet_box((1, 1, 1)), path, "vtu")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with refused(location="box.vtu", problem=message) as refusal:
        read_tets(path)
    assert "\n" not in refusal.text
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", ["gmsh22", "gmsh41", "vtu", "vtk"])
def test_a_damaged_binary_file_never_gets_further_than_an_error(meshio, tmp_path, form):
    path = tmp_path / f"box.{'msh' if form.startswith('gmsh') else form}"
    write_tets(tet_box((2, 1, 1)), path, form)
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    for trial in range(25):
        damaged = bytearray(whole)
        if trial % 3 == 0:
            damaged = damaged[: rng.integers(1, len(whole))]
        else:
            for place in rng.integers(0, len(whole), 1 + trial % 5):
                damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            mesh = read_tets(path)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert (mesh.volumes > 0).all()
