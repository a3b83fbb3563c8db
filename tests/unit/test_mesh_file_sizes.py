"""Claims about mesh files that state more than they hold: refused in one line, before room is made."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from refusals import refused
from written_meshes import write_tets

from haloscope.exchange.ranks.world import World
from haloscope.mesh.files.mesh_files import read_mesh
from haloscope.mesh.files.vtk_xml import unpacked_size
from haloscope.mesh.hexes.mesh_parts import ElementRows
from haloscope.mesh.tets.tet_files import read_tets
from haloscope.mesh.tets.tet_generators import tet_box

_MEGABYTE = 1 << 20
_VTU = """<VTKFile type="UnstructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64"
compressor="vtkZLibDataCompressor"><UnstructuredGrid><Piece NumberOfPoints="{points}" NumberOfCells="1">
<Points><DataArray type="Float64" NumberOfComponents="3" format="{form}" {content}</DataArray></Points>
<Cells><DataArray type="Int64" Name="connectivity" format="ascii">0 1 2 3</DataArray>
<DataArray type="Int64" Name="offsets" format="ascii">4</DataArray>
<DataArray type="UInt8" Name="types" format="ascii">10</DataArray></Cells></Piece></UnstructuredGrid>
"""
_HEXAHEDRON = np.array([[i, j, k] for k in (0, 1) for j in (0, 1) for i in (0, 1)], float)


def _read_hexes(path: Path) -> ElementRows:
    return read_mesh(World(), path)


@pytest.fixture
def meshio():
    return pytest.importorskip("meshio")


def _refused(read, path: Path, *parts: str) -> None:
    with refused(location=re.escape(path.name)) as refusal:
        read(path)
    assert "\n" not in refusal.text
    for part in parts:
        assert part in refusal.text


def _bomb(path: Path, form: str, points: int, block: bytes, blocks: int) -> None:
    """A .vtu file with one packed array of points."""
    header = np.array([blocks, _MEGABYTE, 0, *[len(block)] * blocks], "<u8").tobytes()
    data = block * blocks
    packed = base64.b64encode(header) + base64.b64encode(data)
    inline = form == "binary"
    content = ">" + packed.decode() if inline else 'offset="0">'
    text = _VTU.format(points=points, form=form if inline else "appended", content=content).encode()
    if form == "raw":
        text += b'<AppendedData encoding="raw">_' + header + data + b"\n</AppendedData>"
    elif form == "appended":
        text += b'<AppendedData encoding="base64">_' + packed + b"</AppendedData>"
    path.write_bytes(text + b"</VTKFile>")


@pytest.mark.parametrize("form", ["binary", "appended", "raw"])
def test_a_vtu_file_that_unfolds_to_gigabytes_is_refused(meshio, tmp_path, form):
    path, block = tmp_path / "bomb.vtu", zlib.compress(b"\0" * _MEGABYTE, 9)
    _bomb(path, form, 4, block, 2048)
    _refused(read_tets, path, "array 'Points': it unpacks to 2147483648 bytes", "at most 96 by")
    # Counts that fit make it no better.
    _bomb(path, form, 2048 * _MEGABYTE // 8, block, 2048)
    _refused(read_tets, path, "unpacks to 2147483648 bytes", "at most")
    # Nor does a header that states less.
    _bomb(path, form, _MEGABYTE, zlib.compress(b"\0" * 4 * _MEGABYTE, 9), 1)
    _refused(read_tets, path, "at most 1048576 a block by its header")


def _appended(text: str, *, raw: bool) -> bytes:
    """A .vtu file with packed arrays in place, rewritten with all of them at its end."""
    kind = "<u8" if 'header_type="UInt64"' in text else "<u4"
    size = np.dtype(kind).itemsize
    data = b""

    def moved(match: re.Match[str]) -> str:
        nonlocal data
        packed = match[2].strip().encode()
        count = int(np.frombuffer(base64.b64decode(packed[:16]), kind, 1)[0])
        cut = -(-size * (3 + count) // 3) * 4
        header = base64.b64decode(packed[:cut])[: size * (3 + count)]
        blocks = base64.b64decode(packed[cut:])
        offset = len(data)
        data += header + blocks if raw else packed
        return f'{match[1].replace("binary", "appended")} offset="{offset}"/>'

    xml = re.sub(r'(<DataArray[^>]*format="binary"[^>]*)>([^<]*)</DataArray>', moved, text)
    begin = f'<AppendedData encoding="{"raw" if raw else "base64"}">_'
    end = "\n</AppendedData></VTKFile>"
    return xml.strip().replace("</VTKFile>", begin).encode() + data + end.encode()


@pytest.mark.parametrize("raw", [False, True])
def test_packed_data_at_the_end_of_a_vtu_file_are_read(meshio, tmp_path, raw):
    path = tmp_path / "box.vtu"
    box = tet_box((2, 2, 2))
    write_tets(box, path, "vtu")
    inline = read_tets(path)
    path.write_bytes(_appended(path.read_text(), raw=raw))
    read = read_tets(path)
    assert np.array_equal(read.tets, inline.tets)
    assert np.array_equal(read.nodes, box.nodes)


def test_unfolding_stops_at_the_limit():
    assert unpacked_size(zlib.compress(b"\0" * 1000), 2000) == 1000
    assert 2000 < unpacked_size(zlib.compress(b"\0" * 16 * _MEGABYTE, 9), 2000) <= 2 * _MEGABYTE


def test_pieces_and_packings_that_would_be_lost_are_refused(meshio, tmp_path):
    path = tmp_path / "box.vtu"
    write_tets(tet_box((1, 1, 1)), path, "vtu")
    text = path.read_text()
    path.write_text(text.replace("vtkZLib", "vtkLZ4"))
    _refused(read_tets, path, "packed by LZ4", "save it with zlib")
    begin, end = text.index("<Piece"), text.index("</Piece>") + len("</Piece>")
    path.write_text(text[:end] + text[begin:end] + text[end:])
    _refused(read_tets, path, "2 pieces")
    path.write_text(text[: len(text) // 2])
    _refused(read_tets, path, "line ", "cut off")
    # A cell of a type that the reader leaves out.
    plain = _VTU.replace('compressor="vtkZLibDataCompressor"', "").format(
        points=4, form="ascii", content=">0 0 0 1 0 0 0 1 0 0 0 1"
    )
    path.write_text(plain.replace(">10<", ">99<") + "</VTKFile>")
    _refused(read_tets, path)


@pytest.fixture
def hexahedron(meshio, tmp_path):
    """Write a hexahedron in a format, and give the path."""

    def write(name: str) -> Path:
        cells = [("hexahedron", np.array([[0, 1, 3, 2, 4, 5, 7, 6]]))]
        path = tmp_path / name
        meshio.Mesh(_HEXAHEDRON, cells).write(path)
        return path

    return write


@pytest.mark.parametrize("ending", ["xdmf", "med", "inp", "mesh", "bdf", "su2", "avs"])
def test_formats_beside_gmsh_and_vtk_are_read(hexahedron, ending):
    assert _read_hexes(hexahedron(f"one.{ending}")).whole == 1


@pytest.mark.parametrize("name", ["a.cgns", "a.exo", "a.e", "a.h5m", "a.vol.gz", "a.node"])
def test_other_formats_are_refused_with_those_that_are_read(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"abc")
    for read in (_read_hexes, read_tets):
        _refused(read, path, "unknown ending", ".msh, .vtu, .vtk", "netCDF4")
    _refused(read_tets, tmp_path, "it is a folder; give a file in it that ends in .msh")


def test_damaged_heavy_data_is_refused_with_its_file(hexahedron):
    path = hexahedron("one.xdmf")
    heavy = path.with_suffix(".h5")
    whole = heavy.read_bytes()
    heavy.write_bytes(whole[: len(whole) // 2])
    _refused(_read_hexes, path, "one.h5: it is cut off or damaged")
    heavy.unlink()
    _refused(_read_hexes, path, "one.h5: it does not exist")
    text = path.read_text()
    path.write_text(text.replace("</Grid>", "", 1))
    _refused(_read_hexes, path, "line", "as XML")
    path.write_text(
        text.replace('Format="HDF"', 'Format="XML"').replace('"8 3"', '"99999999999 3"')
    )
    _refused(_read_hexes, path, "states 299999999997 values")


def test_hdf5_data_that_unfold_to_more_than_is_stored_are_refused(meshio, tmp_path):
    other = tmp_path / "other.med"
    with h5py.File(other, "w") as file:
        file["a"] = 1
    _refused(_read_hexes, other, "it lacks 'ENS_MAA'")
    path = tmp_path / "a.med"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (10**9,), "f8")
    _refused(_read_hexes, path, "data set /a: it states 8000000000 bytes")
    with h5py.File(path, "w") as file:
        data = file.create_dataset("b", (1024,), "u1", chunks=(1024,), compression="gzip")
        data.id.write_direct_chunk((0,), zlib.compress(b"\0" * _MEGABYTE))
    _refused(_read_hexes, path, "data set /b: a chunk unpacks to more than the 1028 bytes")
    with h5py.File(path, "w") as file:
        file.create_dataset("c", data=np.zeros(100), compression="lzf")
    _refused(_read_hexes, path, "packed by HDF5's filter 32000")
    with h5py.File(path, "w") as file:
        file["ENS_MAA"] = h5py.ExternalLink("other.med", "/a")
    _refused(_read_hexes, path, "/ENS_MAA lies in another file")
    path.write_bytes(path.read_bytes()[:700])
    _refused(_read_hexes, path, "cut off or damaged")
