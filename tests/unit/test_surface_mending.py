"""Claims about surfaces as users have them: PLY and VTP files, holes, open ends, names, crossings."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from closed_surfaces import cuboid, moved, random_turn, tube
from json_schemas import faults
from refusals import refused

from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.surfaces.intersections import crossing_pairs, require_uncrossed
from haloscope.mesh.surfaces.mending import (
    clipped_ears,
    end_at,
    ends_in_order,
    extended,
    mended,
    open_loops,
    opened,
    surface_ends,
    with_end,
)
from haloscope.mesh.surfaces.surface_files import read_surface, write_stl
from haloscope.mesh.surfaces.surface_generators import bifurcation
from haloscope.mesh.surfaces.surface_openings import SurfaceEnd
from haloscope.mesh.surfaces.surfaces import Surface, check, make_surface

HERE = Path(__file__).parent
_UM3 = 1e-18
# Of the triangles of the bend, in um^3.
_VOLUME = 7853.40


def _bend() -> Surface:
    return read_surface(HERE / "bend.obj", 1e-6, unit=MICROMETRE)


def _part(surface: Surface, keep: np.ndarray) -> Surface:
    """The triangles of a mask, as from a file."""
    groups, numbers = np.unique(surface.groups[keep], return_inverse=True)
    names = tuple(surface.names[group] for group in groups)
    return make_surface(surface.corners[keep], numbers, names, unit=surface.unit)


def _one_group(surface: Surface) -> Surface:
    return replace(surface, groups=np.zeros_like(surface.groups), names=("vessel",))


# Files


@pytest.mark.parametrize(
    ("name", "groups"), [("bend-face-ids-um.vtp", ("1", "2", "3")), ("bend-um.ply", ("wall",))]
)
def test_files_of_other_programs_hold_the_same_vessel(name: str, groups: tuple[str, ...]) -> None:
    surface = read_surface(HERE / name, 1e-6)
    assert surface.names == groups
    assert surface.volume / _UM3 == pytest.approx(_VOLUME, rel=1e-5)
    assert check(surface).faults == ()
    if len(groups) == 3:
        bend = _bend()
        for name, own in zip(("wall", "inlet", "outlet"), groups, strict=True):
            assert len(surface.group(own)) == len(bend.group(name))


def _ply(form: str, points: np.ndarray, faces: list[list[int]], more: str = "") -> bytes:
    """A PLY file with a property before the coordinates and one behind the lists."""
    header = (
        f"ply\nformat {form} 1.0\ncomment two words\nelement vertex {len(points)}\n"
        "property uchar red\nproperty double x\nproperty float y\nproperty float z\n"
        f"{more}element face {len(faces)}\nproperty list uchar int vertex_indices\n"
        "property short id\nend_header\n"
    ).encode()
    if form == "ascii":
        rows = [f"7 {x!r} {y!r} {z!r}" for x, y, z in points.tolist()]
        rows += [" ".join(map(str, [len(face), *face, 3])) for face in faces]
        return header + "\n".join(rows).encode() + b"\n"
    order = "<" if "little" in form else ">"
    data = b"".join(struct.pack(f"{order}Bdff", 7, *point) for point in points)
    data += b"".join(struct.pack(f"{order}B{len(face)}ih", len(face), *face, 3) for face in faces)
    return header + data


_CUBE = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], float)
_SQUARES = [[0, 2, 3, 1], [4, 5, 7, 6], [0, 1, 5, 4], [2, 6, 7, 3], [0, 4, 6, 2], [1, 3, 7, 5]]
_MIXED = [*_SQUARES[:5], [1, 3, 7], [1, 7, 5]]


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("faces", [_SQUARES, _MIXED], ids=["squares", "mixed"])
def test_ply_files_of_all_three_forms_are_read(
    tmp_path: Path, form: str, faces: list[list[int]]
) -> None:
    path = tmp_path / "cube.ply"
    path.write_bytes(_ply(form, _CUBE, faces))
    surface = read_surface(path)
    assert len(surface.triangles) == 12
    assert surface.volume == pytest.approx(1.0, rel=1e-12)
    assert check(surface).faults == ()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"plx\n", "first line is not 'ply'"),
        (b"ply\nend_header\n", "'end_header' is no line of a header"),
        (b"ply\nformat ascii 1.0\nelement vertex 99999999999\nend_header\n", "cannot hold them"),
        (b"ply\nformat ascii 1.0\nelement vertex -1\n", "'element vertex -1' is no line"),
        (b"ply\nformat ascii 1.0\n" + b"comment x\n" * 9000, "header does not end"),
        (_ply("ascii", _CUBE, _SQUARES).replace(b"vertex 8", b"vertex 18"), "ends within its"),
        (_ply("ascii", _CUBE, _SQUARES).replace(b"double x", b"double q"), "no property x"),
        (_ply("ascii", _CUBE, [[0, 1, 8]]), "refers to vertex 8"),
        (_ply("ascii", _CUBE, [[0, 1, -1]]), "refers to vertex -1"),
        (_ply("ascii", _CUBE, [[0, 1]]), "face 0 has 2 corners"),
        (_ply("ascii", _CUBE, _SQUARES) + b"word", "words that are no numbers"),
        (_ply("binary_little_endian", _CUBE, _MIXED)[:-3], "ends within its 7 rows of 'face'"),
        (_ply("binary_big_endian", _CUBE, _SQUARES)[:-80], "ends within its 6 rows of 'face'"),
        (
            _ply("binary_little_endian", _CUBE, [[200] * 200, *_MIXED])[:-300],
            "ends within its 8 rows of 'face'",
        ),
    ],
)
def test_damaged_ply_files_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a.ply"
    path.write_bytes(content)
    with refused(location=r"surface file .*a\.ply", problem=problem):
        read_surface(path)


def _array(name: str, values: np.ndarray, form: str, packed: list[bytes], wide: bool) -> str:
    """A DataArray with its data inline, or put behind those of others."""
    kinds = {"f": "Float", "i": "Int", "u": "UInt"}
    kind = f"{kinds[values.dtype.kind]}{8 * values.dtype.itemsize}"
    head = f'<DataArray type="{kind}" Name="{name}" NumberOfComponents="{values.shape[-1] if values.ndim > 1 else 1}"'
    if form == "ascii":
        return f'{head} format="ascii">{" ".join(map(repr, values.ravel().tolist()))}</DataArray>'
    number = "<u8" if wide else "<u4"
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    if "zlib" in form:
        half = -(-len(data) // 2)
        blocks = [zlib.compress(data[:half]), zlib.compress(data[half:])]
        last = len(data) - half if len(data) % 2 else 0
        sizes = np.array([2, half, last, *map(len, blocks)], number).tobytes()
        raw, parts = sizes + b"".join(blocks), [sizes, b"".join(blocks)]
    else:
        size = np.array([len(data)], number).tobytes()
        raw, parts = size + data, [size + data]
    text = b"".join(map(base64.b64encode, parts))
    if form.startswith("inline"):
        return f'{head} format="binary">{text.decode()}</DataArray>'
    offset = sum(map(len, packed))
    packed.append(raw if form.startswith("raw") else text)
    return f'{head} format="appended" offset="{offset}"/>'


def _vtp(form: str, surface: Surface, *, wide: bool = False) -> bytes:
    packed: list[bytes] = []
    triangles = surface.triangles.astype(np.int64)

    def array(name: str, values: np.ndarray) -> str:
        return _array(name, values, form, packed, wide)

    ends = np.arange(3, 3 * len(triangles) + 1, 3)
    body = (
        f'<Piece NumberOfPoints="{len(surface.points)}" NumberOfVerts="0" NumberOfLines="0" '
        f'NumberOfStrips="0" NumberOfPolys="{len(triangles)}">'
        f"<CellData>{array('Other', np.zeros(len(triangles)))}"
        f"{array('ModelFaceID', surface.groups + 5)}</CellData>"
        f"<Points>{array('Points', surface.points * 1e6)}</Points>"
        f"<Polys>{array('connectivity', triangles.ravel())}{array('offsets', ends)}</Polys></Piece>"
    )
    compressor = ' compressor="vtkZLibDataCompressor"' if "zlib" in form else ""
    text = (
        f'<?xml version="1.0"?>\n<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian" '
        f'header_type="{"UInt64" if wide else "UInt32"}"{compressor}>\n<PolyData>{body}</PolyData>\n'
    ).encode()
    if packed:
        encoding = "raw" if form.startswith("raw") else "base64"
        text += f'<AppendedData encoding="{encoding}">\n_'.encode() + b"".join(packed)
        text += b"\n</AppendedData>\n"
    return text + b"</VTKFile>\n"


_FORMS = ("ascii", "inline", "inline zlib", "appended", "appended zlib", "raw", "raw zlib")


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("wide", [False, True], ids=["UInt32", "UInt64"])
def test_vtp_files_of_all_forms_are_read(tmp_path: Path, form: str, wide: bool) -> None:
    bend, path = _bend(), tmp_path / "bend.vtp"
    path.write_bytes(_vtp(form, bend, wide=wide))
    surface = read_surface(path, 1e-6)
    assert surface.names == ("5", "6", "7")
    np.testing.assert_allclose(surface.corners, bend.corners, rtol=1e-9, atol=1e-18)
    np.testing.assert_array_equal(surface.groups, bend.groups)


def test_raw_data_that_are_missing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.vtp"
    text = _vtp("raw", _bend())
    path.write_bytes(text[: text.index(b"_", text.index(b"<AppendedData")) + 1])
    with refused(location=r"surface file .*a\.vtp: array '\w+'", problem="cut off or damaged"):
        read_surface(path)


def test_strips_of_a_vtp_file_are_triangles(tmp_path: Path) -> None:
    path = tmp_path / "strip.vtp"
    path.write_text(
        '<VTKFile type="PolyData" byte_order="LittleEndian"><PolyData><Piece NumberOfPoints="5" '
        'NumberOfStrips="1"><Points><DataArray type="Float32" NumberOfComponents="3">'
        "0 0 0 0 1 0 1 0 0 1 1 0 2 0 0</DataArray></Points><Strips>"
        '<DataArray type="Int32" Name="connectivity">0 1 2 3 4</DataArray>'
        '<DataArray type="Int32" Name="offsets">5</DataArray></Strips></Piece></PolyData></VTKFile>'
    )
    surface = read_surface(path)
    assert len(surface.triangles) == 3
    # All face the same way: the lone plane encloses nothing, so none is turned.
    assert (np.abs(surface.normals[:, 2]) == 0.5).all()
    assert len(np.unique(np.sign(surface.normals[:, 2]))) == 1
    assert surface.notices == ()


# A prism over an arrow: a fan around its first corner would turn triangles over.
_ARROW = np.array([[0, 0], [3, -2], [1, 0], [3, 2]], float)
_PRISM = np.concatenate([np.c_[_ARROW, np.zeros(4)], np.c_[_ARROW, np.ones(4)]])[
    [1, 2, 3, 0, 5, 6, 7, 4]
]
_SIDES = [[0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7]]
_ARROWS = [*_SIDES, [3, 2, 1, 0], [4, 5, 6, 7]]


@pytest.mark.parametrize("kind", ["vtp", "ply", "obj"])
def test_polygons_that_are_not_convex_are_cut_at_their_ears(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"prism.{kind}"
    if kind == "ply":
        path.write_bytes(_ply("ascii", _PRISM, _ARROWS))
    elif kind == "obj":
        lines = [f"v {x} {y} {z}" for x, y, z in _PRISM]
        lines += [f"f {' '.join(str(k + 1) for k in face)}" for face in _ARROWS]
        path.write_text("\n".join(lines))
    else:
        # As VMTK's capper writes it: polygons, each cap with a number of its own.
        numbers = " ".join(str(number) for face in _ARROWS for number in face)
        path.write_text(
            '<VTKFile type="PolyData" version="0.1" byte_order="LittleEndian"><PolyData>'
            '<Piece NumberOfPoints="8" NumberOfPolys="6"><CellData Scalars="CellEntityIds">'
            '<DataArray type="Int64" Name="CellEntityIds" format="ascii">1 1 1 1 2 3</DataArray></CellData>'
            '<Points><DataArray type="Float64" Name="Points" NumberOfComponents="3" format="ascii">'
            f"{' '.join(map(str, _PRISM.ravel()))}</DataArray></Points><Polys>"
            f'<DataArray type="Int64" Name="connectivity" format="ascii">{numbers}</DataArray>'
            '<DataArray type="Int64" Name="offsets" format="ascii">4 8 12 16 20 24</DataArray>'
            "</Polys></Piece></PolyData></VTKFile>"
        )
    surface = read_surface(path)
    assert surface.volume == pytest.approx(2.0, rel=1e-12)
    assert check(surface).faults == ()
    assert np.linalg.norm(surface.normals, axis=1).sum() == pytest.approx(
        2 * 2.0 + 2 * (13**0.5 + 8**0.5)
    )
    assert len(crossing_pairs(surface)) == 0
    if kind == "vtp":
        assert surface.names == ("1", "2", "3")


def _mesh_complete(folder: Path, *, walls_apart: bool = False) -> Surface:
    """A folder as SimVascular writes it: the exterior, the walls, and a file for each face."""
    bend = _bend()
    (folder / "mesh-surfaces").mkdir(parents=True)
    walls = bend.groups == bend.names.index("wall")
    parts = {
        "mesh-complete.exterior": np.ones(len(walls), bool),
        "walls_combined": walls,
        "mesh-surfaces/inflow": bend.groups == bend.names.index("inlet"),
        "mesh-surfaces/outlet-1": bend.groups == bend.names.index("outlet"),
    }
    if not walls_apart:
        parts["mesh-surfaces/wall_vessel"] = walls
    for name, mask in parts.items():
        own = replace(bend, triangles=bend.triangles[mask], groups=bend.groups[mask])
        (folder / f"{name}.vtp").write_bytes(_vtp("raw zlib", own))
    return bend


@pytest.mark.parametrize("walls_apart", [False, True])
def test_a_folder_of_faces_is_one_vessel_with_their_names(
    tmp_path: Path, walls_apart: bool, call: Callable[..., tuple[int, str, str]]
) -> None:
    folder = tmp_path / "mesh-complete"
    bend = _mesh_complete(folder, walls_apart=walls_apart)
    surface = mended(read_surface(folder, 1e-6))
    walls = "walls_combined" if walls_apart else "wall_vessel"
    assert surface.names == ("inflow", "outlet-1", walls)
    assert surface.notices == ()
    assert surface.volume == pytest.approx(bend.volume, rel=1e-9)
    assert [end.group for end in surface_ends(surface)] == ["outlet-1", "inflow"]
    if not walls_apart:
        faces = read_surface(folder / "mesh-surfaces", 1e-6)
        assert faces.names == surface.names
    # The whole exterior has face ids, and the walls alone open ends.
    assert read_surface(folder / "mesh-complete.exterior.vtp").names == ("5", "6", "7")
    alone = mended(read_surface(folder / "walls_combined.vtp", 1e-6))
    assert alone.names == ("5", "cap-1", "cap-2")
    assert alone.volume == pytest.approx(bend.volume, rel=1e-6)
    code, out, err = call("surface", folder, "--scale-um", "1", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "inflow" in out
    with refused(location="inflow.vtp", problem="in one plane: it is one face of a vessel"):
        mended(read_surface(folder / "mesh-surfaces" / "inflow.vtp", 1e-6))
    with refused(location="surface file", problem="a folder without VTP files"):
        read_surface(tmp_path)
    (folder / "mesh-surfaces" / "inflow.vtp").write_text("<VTKFile")
    with refused(location=r"surface file .*mesh-complete: inflow\.vtp", problem="XML"):
        read_surface(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace(b"PolyData", b"UnstructuredGrid"), "the kind 'Unstructured"),
        (lambda text: text[:-700], "cannot be read as XML|cut off or damaged"),
        (
            lambda text: text.replace(b'NumberOfPoints="', b'NumberOfPoints="9'),
            "cut off or damaged",
        ),
        (lambda text: text.replace(b'NumberOfPolys="', b'NumberOfPolys="x'), "cut off or damaged"),
        (lambda text: text.replace(b"vtkZLib", b"vtkLZ4"), "packed by LZ4, which is not read"),
        (lambda text: b"<!DOCTYPE a>" + text, "declarations of XML"),
        (lambda text: text.replace(b"Int64", b"String"), "numbers are of the kind 'String'"),
        (lambda text: b"", "it is empty"),
    ],
)
def test_damaged_vtp_files_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], problem: str
) -> None:
    path = tmp_path / "a.vtp"
    path.write_bytes(change(_vtp("inline zlib", _bend())))
    with refused(location=r"surface file .*a\.vtp", problem=problem):
        read_surface(path)


def test_vtk_writes_what_is_read(tmp_path: Path) -> None:
    vtk = pytest.importorskip(
        "vtk", reason="vtk is not installed: pip install vtk to check files with VTK's own writer"
    )
    reader = vtk.vtkXMLPolyDataReader()
    reader.SetFileName(str(HERE / "bend-face-ids-um.vtp"))
    reader.Update()
    expected = read_surface(HERE / "bend-face-ids-um.vtp")
    for mode in ("Ascii", "Binary", "Appended"):
        for encoded in (0, 1):
            for packing in ("None", "ZLib"):
                for header in ("UInt32", "UInt64"):
                    writer = vtk.vtkXMLPolyDataWriter()
                    writer.SetInputData(reader.GetOutput())
                    path = tmp_path / f"{mode}{encoded}{packing}{header}.vtp"
                    writer.SetFileName(str(path))
                    getattr(writer, f"SetDataModeTo{mode}")()
                    writer.SetEncodeAppendedData(encoded)
                    getattr(writer, f"SetCompressorTypeTo{packing}")()
                    getattr(writer, f"SetHeaderTypeTo{header}")()
                    assert writer.Write()
                    surface = read_surface(path)
                    assert surface.names == expected.names
                    np.testing.assert_array_equal(surface.corners, expected.corners)


# Holes and ends


def test_holes_are_closed_and_reported() -> None:
    bend = _bend()
    keep = np.ones(len(bend.triangles), bool)
    keep[[40, 41, 200]] = False
    leaking = _part(bend, keep)
    whole = mended(leaking)
    assert check(whole).faults == ()
    assert whole.names == bend.names
    assert whole.volume / _UM3 == pytest.approx(_VOLUME, rel=1e-5)
    assert len([line for line in whole.notices if "closed a hole of" in line]) in (2, 3)
    assert all(" um wide, at (" in line for line in whole.notices)


def test_open_ends_are_capped_flat_and_named_by_falling_area() -> None:
    fork = bifurcation(6e-6, 12e-6, 18e-6, split=0.7, step=1.5e-6, unit=MICROMETRE)
    opened = _part(fork, fork.groups == fork.names.index("wall"))
    assert len(open_loops(opened)) == 3
    assert all(loop.is_end for loop in open_loops(opened))
    whole = mended(opened)
    assert whole.names == ("wall", "cap-1", "cap-2", "cap-3")
    assert check(whole).faults == ()
    assert whole.volume == pytest.approx(fork.volume, rel=1e-9)
    ends = surface_ends(whole)
    assert [end.group for end in ends] == ["cap-1", "cap-2", "cap-3"]
    assert ends[0].area > ends[1].area > ends[2].area
    np.testing.assert_allclose(ends[0].normal, [-1, 0, 0], atol=1e-9)
    text = [line for line in whole.notices if "capped an open end 'cap-1' flat" in line]
    assert len(text) == 1
    # The order of the triangles in the file does not matter.
    mixed = np.random.default_rng(1).permutation(len(opened.triangles))
    again = mended(_part(opened, mixed))
    for one, other in zip(ends, surface_ends(again), strict=True):
        assert one.group == other.group
        np.testing.assert_allclose(one.middle, other.middle, atol=1e-12)


def test_equal_ends_keep_their_order_where_a_coordinate_differs_by_rounding() -> None:
    """As of a vessel that turns back: x is that of one plane, but for the unit of the file."""
    for scale in (1.0, 1e-6, 1e-3 / 3):
        low, high = (
            SurfaceEnd(
                "wall", scale * np.array(middle), np.array([1.0, 0, 0]), scale**2, np.arange(1)
            )
            for middle in ([10.000001, -5, 0], [10, 15, 0])
        )
        assert [end.middle[1] < 0 for end in ends_in_order([high, low])] == [True, False]


def test_an_uneven_end_is_cut_flat_a_diameter_before_its_rim() -> None:
    bend = _bend()
    outlet = next(end for end in surface_ends(bend) if end.group == "outlet")
    points = bend.points.copy()
    rim = np.abs((points - outlet.middle) @ outlet.normal) < 1e-9
    shift = np.random.default_rng(0).uniform(-2.5e-6, 2.5e-6, rim.sum())
    points[rim] += shift[:, None] * outlet.normal
    uneven = _part(replace(bend, points=points), bend.groups == 0)
    whole = mended(uneven)
    assert check(whole).faults == ()
    assert any("cut off 11.8 um before its uneven rim" in line for line in whole.notices)
    end = next(
        end for end in surface_ends(whole) if np.linalg.norm(end.middle - outlet.middle) < 2e-5
    )
    assert end.normal @ outlet.normal > 0.99
    assert end.diameter == pytest.approx(outlet.diameter, rel=0.01)
    distance = (outlet.middle - end.middle) @ outlet.normal
    assert distance == pytest.approx(outlet.diameter, rel=0.1)


def test_touching_holes_are_refused_with_the_place() -> None:
    bend = _bend()
    shared = (bend.triangles[:, :, None] == bend.triangles[100]).sum(axis=(1, 2))
    keep = np.ones(len(bend.triangles), bool)
    keep[[100, int((shared == 1).argmax())]] = False
    with refused(location="surface", problem=r"holes touch at \(.*\) um", remedy="mesh repair"):
        mended(_part(bend, keep))


def test_flat_ends_within_a_group_get_groups_of_their_own() -> None:
    bend = _bend()
    whole = mended(_one_group(bend))
    assert whole.names == ("vessel", "cap-1", "cap-2")
    # Both are equal but for rounding: then the smaller x comes first.
    assert whole.points[whole.triangles[whole.group("cap-1")]][..., 0].mean() < 0
    assert (
        "a flat end of the group 'vessel' is called 'cap-2': 11.8 um wide at (0, 0, 0) um"
        in (whole.notices[1])
    )
    # Names of a file stay.
    assert mended(bend).names == bend.names
    assert mended(bend).notices == ()


def test_ears_cover_a_polygon_that_is_not_convex() -> None:
    turns = np.linspace(0, 2 * np.pi, 25)[:-1]
    radius = np.where(np.arange(24) % 2, 1.0, 0.4)
    star = np.stack([radius * np.cos(turns), radius * np.sin(turns)], axis=1)
    ears = clipped_ears(star)
    assert ears is not None
    assert ears.shape == (22, 3)
    a, b, c = np.moveaxis(star[ears], 1, 0)
    areas = ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    x, y = star.T
    assert (areas > 0).all()
    assert areas.sum() == pytest.approx((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)
    # With corners on a line, but for rounding, that no ear may cut off.
    x = np.linspace(0, 1, 5)[:-1]
    line = np.concatenate([np.stack([x, 0 * x], axis=1), np.stack([1 + 0 * x, x], axis=1)])
    square = np.concatenate([line, 1 - line]) + 1e-16 * np.arange(32).reshape(16, 2) ** 2
    ears = clipped_ears(square)
    assert ears is not None
    a, b, c = np.moveaxis(square[ears], 1, 0)
    areas = ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    assert areas.min() > 0.01
    assert areas.sum() == pytest.approx(1.0)
    eight = np.array([[0, 0], [1, 1], [1, 0], [0, 1]], float)
    assert clipped_ears(eight) is None


def test_ends_are_extended_along_their_normals() -> None:
    bend = _bend()
    longer = extended(bend, 3.0)
    assert check(longer).faults == ()
    assert longer.names == bend.names
    grown = sum(end.area * 1.5 * end.diameter for end in surface_ends(bend))
    assert longer.volume == pytest.approx(bend.volume + grown, rel=1e-6)
    for end, longer_end in zip(surface_ends(bend), surface_ends(longer), strict=True):
        assert end.group == longer_end.group
        np.testing.assert_allclose(
            longer_end.middle, end.middle + 1.5 * end.diameter * end.normal, atol=1e-11
        )
    assert extended(bend, 0.0) is bend


def test_a_plane_of_any_direction_opens_a_vessel() -> None:
    bend = _bend()
    inlet = next(end for end in surface_ends(bend) if end.group == "inlet")
    point = inlet.middle - 6e-6 * inlet.normal + 1e-6 * np.array([1.0, 0.0, 0.0])
    cut = opened(bend, "in", point, 3.0 * inlet.normal)
    assert check(cut).faults == ()
    (end,) = (one for one in surface_ends(cut) if one.group == "in")
    assert end.normal @ inlet.normal == pytest.approx(1.0)
    assert end.diameter == pytest.approx(inlet.diameter, rel=1e-3)
    lost = inlet.area * ((inlet.middle - point) @ inlet.normal)
    assert cut.volume == pytest.approx(bend.volume - lost, rel=1e-4)
    with refused(location="opening 'in'", problem="does not meet the surface"):
        opened(bend, "in", point + 1e-3, inlet.normal)


def _box_of_squares() -> Surface:
    """A duct whose flat walls have a grid of points: sections have many points on a line."""
    corners, box = cuboid((24e-6, 6e-6, 6e-6)).corners, cuboid((24e-6, 6e-6, 6e-6))
    groups = box.groups
    for _ in range(2):
        a, b, c = np.moveaxis(corners, 1, 0)
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        corners = np.concatenate(
            [np.stack(t, axis=1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        )
        groups = np.tile(groups, 4)
    return make_surface(corners, groups, box.names, unit=MICROMETRE)


@pytest.mark.parametrize("kind", ["tube", "box"])
@pytest.mark.parametrize("beside", [0.0, 1e-9, 2e-8])
def test_sections_at_points_of_the_mesh_leave_no_triangle_without_area(
    kind: str, beside: float
) -> None:
    whole = _box_of_squares() if kind == "box" else tube(3e-6, 24e-6, step=1.5e-6)
    assert check(whole).faults == ()
    middle = np.array([0.0, 3e-6, 3e-6]) if kind == "box" else np.zeros(3)
    area = np.linalg.norm(whole.normals[whole.group("inlet")].sum(axis=0))
    for seed in range(4):
        turn = random_turn(seed)
        turned = moved(whole, turn)
        # Through points of the mesh, across the vessel and askew.
        slope = np.array([1.0, 0.25 * (seed % 2), 0.1 * (seed > 1)])
        length = 12e-6 + beside
        point = turn @ (middle + np.array([length, 0.0, 0.0]))
        cut = opened(turned, "out", point, turn @ slope)
        assert check(cut).faults == ()
        assert cut.volume == pytest.approx(area * length, rel=2e-3)
        (end,) = (one for one in surface_ends(cut) if one.group == "out")
        assert end.normal @ (turn @ slope) == pytest.approx(np.linalg.norm(slope), rel=1e-9)
        assert end.area == pytest.approx(area * np.linalg.norm(slope), rel=5e-3)


def test_an_end_is_chosen_by_a_point_in_it() -> None:
    bend = _bend()
    outlet = next(end for end in surface_ends(bend) if end.group == "outlet")
    chosen = end_at(_one_group(bend), outlet.middle + 2e-6)
    assert chosen is not None
    np.testing.assert_allclose(chosen.middle, outlet.middle, atol=1e-12)
    named = with_end(_one_group(bend), chosen, "out")
    assert named.names == ("vessel", "out")
    assert len(named.group("out")) == len(bend.group("outlet"))
    assert end_at(bend, outlet.middle + 2e-5) is None


# Crossings


def test_triangles_that_cross_are_found_with_a_place() -> None:
    bend = _bend()
    assert len(crossing_pairs(bend)) == 0
    require_uncrossed(bend)
    shifted = bend.corners + np.array([3e-6, 1e-6, 2e-6])
    both = make_surface(
        np.concatenate([bend.corners, shifted]), [0] * 1024, ("wall",), unit=MICROMETRE
    )
    pairs = crossing_pairs(both)
    assert len(pairs) > 10
    # Each pair holds one triangle of either copy.
    assert ((pairs < 512).sum(axis=1) == 1).all()
    with refused(location="surface", problem=f"{len(pairs)} pairs of triangles cross, the first"):
        require_uncrossed(both)


def test_pairs_are_those_of_all_pairs() -> None:
    random = np.random.default_rng(3)
    corners = random.uniform(0, 1, (60, 1, 3)) + random.uniform(-0.2, 0.2, (60, 3, 3))
    triangles = np.arange(180, dtype=np.int32).reshape(-1, 3)
    soup = Surface(corners.reshape(-1, 3), triangles, np.zeros(60, np.int32), ("wall",))
    expected = []
    for a in range(60):
        for b in range(a + 1, 60):
            if _crosses(corners[a], corners[b]) or _crosses(corners[b], corners[a]):
                expected.append((a, b))
    assert len(expected) > 10
    np.testing.assert_array_equal(crossing_pairs(soup), expected)


def _crosses(face: np.ndarray, edged: np.ndarray) -> bool:
    """Whether an edge of one triangle passes through the other, by solving for the point."""
    for k in range(3):
        start, way = edged[k], edged[(k + 1) % 3] - edged[k]
        matrix = np.stack([face[1] - face[0], face[2] - face[0], -way], axis=1)
        u, v, t = np.linalg.solve(matrix, start - face[0])
        if u > 0 and v > 0 and u + v < 1 and 0 < t < 1:
            return True
    return False


# The command


def test_the_command_lists_openings_and_writes_what_a_case_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    bend = _bend()
    write_stl("open.stl", _part(bend, bend.groups == 0), 1e-6)
    code, out, err = call("surface", "open.stl", "--scale-um", "1")
    assert code == 0, err
    assert err.count("capped an open end") == 2
    assert "508 triangles, groups wall, cap-1, cap-2, volume 7853.4 um^3" in out
    assert "cap-2           11.85  (0, 0, 0)" in out
    assert (tmp_path / "open-openings.png").stat().st_size > 10_000
    again = read_surface("open-mended.stl", 1e-6)
    assert again.names == ("wall", "cap-1", "cap-2")
    assert again.volume / _UM3 == pytest.approx(_VOLUME, rel=1e-5)
    assert mended(again).notices == ()

    code, out, err = call("surface", "open.stl", "--json", "--out", "other")
    described = json.loads(out)
    assert code == 0, err
    assert faults("surface", described) == []
    assert [end["name"] for end in described["openings"]] == ["cap-1", "cap-2"]
    assert described["openings"][0]["diameter"] == pytest.approx(11.846, rel=1e-3)
    assert described["fitting_scales_um"] == {"micrometres": 1.0, "millimetres": 1e3}
    assert described["mended"] == "other-mended.stl"


def test_the_command_refuses_in_one_line(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    path = tmp_path / "two.stl"
    one = tube(5e-6, 20e-6, step=1e-6)
    both = np.concatenate([one.corners, one.corners + np.array([2.3e-6, 3.1e-6, 1.7e-6])])
    write_stl(path, make_surface(both, [0] * len(both), ("wall",)))
    code, _, err = call("surface", str(path), "--scale-um", "1e6")
    assert code == 2
    assert "it crosses itself: " in err
    assert len(err.strip().split("\n")) == 1
