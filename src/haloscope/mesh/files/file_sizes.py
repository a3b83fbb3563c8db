"""Checks the sizes in HDF5 and VTK files before memory is allocated."""

from __future__ import annotations

import base64
import binascii
import mmap
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np

from haloscope.errors import InputError

_LONGEST_LABEL = 60
# HDF5's numbers of filters that are read: deflate, shuffle, fletcher32.
_DEFLATE, _SHUFFLE, _FLETCHER = 1, 2, 3


def check_hdf5(path: Path, owner: Path | None = None) -> None:
    """Refuse an HDF5 file that is damaged, or whose data would unfold to far more than its size."""
    name = f"mesh file {path if owner is None else owner}"
    if owner is not None:
        name += f": heavy data file {path}"
        if not path.is_file():
            raise InputError(
                "it does not exist", location=name, remedy="put it beside the mesh file"
            )
    try:
        with h5py.File(path, "r") as file:
            items: list[Any] = [file]
            file.visititems(lambda _, item: items.append(item))
            for group in items:
                if isinstance(group, h5py.Group):
                    _refuse_other_files(group, name)
            datasets = [item for item in items if isinstance(item, h5py.Dataset)]
            _check_datasets(datasets, name, path.stat().st_size)
    except (OSError, RuntimeError, KeyError, ValueError, zlib.error):
        raise InputError(
            "it is cut off or damaged, or no HDF5 file", location=name, remedy="save the mesh anew"
        ) from None


def _refuse_other_files(group: Any, name: str) -> None:
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
            raise InputError(
                f"{group.name.rstrip('/')}/{key} lies in another file, which is not read",
                location=name,
                remedy="save it in this one",
            )


def _check_datasets(datasets: list[Any], name: str, size: int) -> None:
    whole = 0
    for dataset in datasets:
        location = f"{name}, data set {dataset.name}"
        if dataset.shape is None:
            continue
        if dataset.is_virtual or dataset.external:
            raise InputError(
                "it lies in another file, which is not read",
                location=location,
                remedy="save it in this one",
            )
        stated = (
            int(np.prod([int(n) for n in dataset.shape], dtype=object)) * dataset.dtype.itemsize
        )
        stored = dataset.id.get_storage_size()
        whole += stated
        if whole > largest_unpacked(size) or stated > max(SMALL, largest_unpacked(stored)):
            raise InputError(
                f"it states {stated} bytes, far more than its {stored} stored bytes unpack to",
                location=location,
                remedy="save the mesh anew; this file is damaged",
            )
        if dataset.chunks is not None:
            _check_chunks(dataset, location)


def _check_chunks(dataset: Any, location: str) -> None:
    """Refuse chunks that unfold to more than a chunk; the library would make room for all of it."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(n)[0] for n in range(properties.get_nfilters())]
    if unknown := set(filters) - {_DEFLATE, _SHUFFLE, _FLETCHER}:
        raise InputError(
            f"it is packed by HDF5's filter {min(unknown)}, which is not read",
            location=location,
            remedy="save it with gzip or without packing",
        )
    if _DEFLATE not in filters:
        return
    # Fletcher32 adds four bytes to a chunk that is packed after it.
    most = int(np.prod([int(n) for n in dataset.chunks], dtype=object)) * dataset.dtype.itemsize + 4
    for number in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(number)
        _, packed = dataset.id.read_direct_chunk(info.chunk_offset)
        if info.filter_mask == 0 and unpacked_size(bytes(packed), most) > most:
            raise InputError(
                f"a chunk unpacks to more than the {most} bytes of a chunk",
                location=location,
                remedy="save the mesh anew; this file is damaged",
            )


def check_xdmf(path: Path) -> None:
    """Refuse an .xdmf file whose dimensions do not fit its data."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text.find(b"<!ENTITY") >= 0:
            raise InputError(
                "it holds declarations of XML, which are not read", remedy="save it without them"
            )
        root = _xml(text[:])
    checked: set[Path] = set()
    for item in root.iter("DataItem"):
        content = (item.text or "").strip()
        form = item.get("Format")
        label = item.get("Dimensions") if form == "XML" else content[:_LONGEST_LABEL]
        place = f"data item '{label}'"
        try:
            dimensions = [int(n) for n in (item.get("Dimensions") or "").split()]
            precision = int(item.get("Precision") or 4)
        except ValueError:
            raise InputError(
                "its dimensions are no numbers", location=place, remedy="save the mesh anew"
            ) from None
        values = int(np.prod(dimensions, dtype=object)) if dimensions else 0
        if form == "XML" and values > len(content):
            raise InputError(
                f"it states {values} values and holds {len(content)} characters",
                location=place,
                remedy="save the mesh anew; this file is damaged",
            )
        if form == "Binary":
            heavy = Path(content)
            if not heavy.is_file() or heavy.stat().st_size != values * precision:
                raise InputError(
                    f"its file does not exist or does not hold {values * precision} bytes",
                    location=place,
                    remedy="save the mesh anew, with heavy data as HDF5",
                )
        if form == "HDF":
            heavy = path.resolve().parent / content.split(":", 1)[0]
            if heavy not in checked:
                check_hdf5(heavy, path)
                checked.add(heavy)


UNPACKED_PER_BYTE = 300
"""Bytes into which a byte of a packed mesh file may unfold: meshes stay far below, zeros reach 1032."""
SMALL = 1 << 26
"""Bytes that any file may unfold to."""

# Bytes at the beginning of a legacy file that hold the kind of its grid.
_HEAD = 1024
_COUNTED = re.compile(
    rb"^[ \t]*(POINTS|CELLS|CELL_TYPES|OFFSETS|CONNECTIVITY|POINT_DATA|CELL_DATA|FIELD)"
    rb"[ \t]+([^\r\n]{0,120})",
    re.MULTILINE,
)
_NUMBER = re.compile(rb"-?\d+")
_ZLIB = "vtkZLibDataCompressor"
_MOST_NODES_OF_A_CELL = 1000
_CHUNK = 1 << 20
# A header gives the number of blocks, their size, that of the last one, and then packed sizes.
_BEFORE_SIZES = 3


def largest_unpacked(size: int) -> int:
    """Bytes to which a packed file of so many bytes may unfold."""
    return max(SMALL, UNPACKED_PER_BYTE * size)


def check_vtk(path: Path) -> None:
    """Refuse a legacy VTK file with counts that it cannot hold."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if b"UNSTRUCTURED_GRID" not in text[:_HEAD].upper():
            raise InputError(
                "it holds no unstructured grid",
                remedy="save the elements and the named faces as one",
            )
        for match in _COUNTED.finditer(text):
            for number in _NUMBER.findall(match[2]):
                if not 0 <= int(number) <= size:
                    raise InputError(
                        f"{match[1].decode()} states a count of {int(number)}, and a file of {size} bytes "
                        "cannot hold it",
                        remedy="save it anew; it is damaged",
                    )


def check_vtu(path: Path) -> None:
    """Refuse a .vtu file that would unfold to more than its counts of points and cells allow.

    Packed blocks are unfolded piece by piece and dropped; memory is bounded by a piece.
    """
    root, appended = _parse(path)
    compressor = root.get("compressor")
    if compressor not in (None, _ZLIB):
        packing = {"vtkLZMADataCompressor": "LZMA", "vtkLZ4DataCompressor": "LZ4"}
        raise InputError(
            f"its data are packed by {packing.get(compressor or '', compressor)}, which is not read",
            remedy="save it with zlib or without packing",
        )
    pieces = root.findall(".//Piece")
    if len(pieces) > 1:
        raise InputError(
            f"it holds {len(pieces)} pieces",
            allowed="one piece",
            remedy="merge them (ParaView: Merge Blocks) and save them as one .vtu",
        )
    if compressor is None:
        return
    size = path.stat().st_size
    unpacked = 0
    for packed in _packed_arrays(root, pieces, appended):
        unpacked += packed.stated
        if packed.most is not None and packed.stated > packed.most:
            raise _refusal(packed, packed.stated, f"{packed.most} by its counts")
        if unpacked > largest_unpacked(size):
            raise _refusal(
                packed,
                unpacked,
                f"{largest_unpacked(size)}, with all arrays before it, in a file of {size}",
            )
        _check_blocks(packed)


@dataclass(frozen=True)
class _Packed:
    """A packed array: its name, blocks, bytes of a block and of all, and the most that counts allow."""

    name: str
    blocks: list[bytes]
    block_size: int
    stated: int
    most: int | None


def _refusal(packed: _Packed, size: int, limit: str) -> InputError:
    return InputError(
        f"it unpacks to {size} bytes",
        location=f"array '{packed.name}'",
        allowed=f"at most {limit}",
        remedy="save the file anew; it is damaged",
    )


def _parse(path: Path) -> tuple[ElementTree.Element, bytes | None]:
    """The XML of a file, and its raw appended data, if any."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text.find(b"<!DOCTYPE") >= 0 or text.find(b"<!ENTITY") >= 0:
            raise InputError(
                "it holds declarations of XML, which are not read", remedy="save it as plain .vtu"
            )
        begin = text.find(b"<AppendedData")
        end = text.find(b">", begin) + 1
        if begin < 0 or end <= 0 or b"raw" not in text[begin:end]:
            return _xml(text[:]), None
        data = text[end:].split(b"_", 1)[-1]
        return _xml(text[:begin] + b"</VTKFile>"), data


def _xml(text: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        line, column = error.position
        raise InputError(
            "it cannot be read as XML; it is cut off or damaged",
            location=f"line {line}, column {column}",
            remedy="save it anew",
        ) from None


def _packed_arrays(
    root: ElementTree.Element, pieces: list[ElementTree.Element], raw: bytes | None
) -> Iterator[_Packed]:
    appended = root.find("AppendedData")
    encoded = b"" if appended is None else (appended.text or "").strip().encode()[1:]
    kind = np.dtype("u8" if root.get("header_type") == "UInt64" else "u4")
    kind = kind.newbyteorder(">" if root.get("byte_order") == "BigEndian" else "<")
    for piece in pieces or [root]:
        for parent in piece.iter():
            for array in parent.findall("DataArray"):
                form = array.get("format", "ascii")
                if form == "ascii":
                    continue
                name = f"{array.get('Name', parent.tag)}"
                try:
                    offset = int(array.get("offset", "0"))
                    if form == "appended" and raw is not None:
                        parts = _split_raw(raw[offset:], kind)
                    else:
                        text = (array.text or "").strip().encode()
                        parts = _split(encoded[offset:] if form == "appended" else text, kind)
                    yield _Packed(name, *parts, _most(piece, parent, array))
                except (ValueError, binascii.Error):
                    raise InputError(
                        "it is cut off or damaged",
                        location=f"array '{name}'",
                        remedy="save the file anew",
                    ) from None


def _most(
    piece: ElementTree.Element, parent: ElementTree.Element, array: ElementTree.Element
) -> int | None:
    """Bytes that an array may have by the counts of its piece; None: they say nothing of it."""
    items = {"Points": "NumberOfPoints", "PointData": "NumberOfPoints"}.get(
        parent.tag, "NumberOfCells"
    )
    if parent.tag not in ("Points", "PointData", "Cells", "CellData"):
        return None
    count = int(piece.get(items, "0"))
    components = int(array.get("NumberOfComponents") or 1)
    if parent.tag == "Points":
        components = 3
    elif array.get("Name") == "connectivity":
        components = _MOST_NODES_OF_A_CELL
    elif parent.tag == "Cells" and array.get("Name") not in ("offsets", "types"):
        return None
    bits = int(re.sub(r"\D", "", array.get("type", "")) or 64)
    return count * components * bits // 8


def _sizes(items: list[int]) -> tuple[int, int]:
    """Bytes of a block, and of all, by the first items of a header."""
    count, block, last = items
    return block, (count - 1) * block + last if last and count else count * block


def _split(text: bytes, kind: np.dtype) -> tuple[list[bytes], int, int]:
    """Blocks of base64 text; the header is encoded apart from them."""
    first = _decoded(text, kind.itemsize * _BEFORE_SIZES)
    count = int(np.frombuffer(first, kind, 1)[0])
    if count > len(text):
        raise ValueError("more blocks than bytes")
    length = kind.itemsize * (_BEFORE_SIZES + count)
    header = np.frombuffer(_decoded(text, length), kind, _BEFORE_SIZES + count).tolist()
    data = base64.b64decode(text[-(-length // 3) * 4 :])
    return _cut(data, header[_BEFORE_SIZES:]), *_sizes(header[:_BEFORE_SIZES])


def _decoded(text: bytes, length: int) -> bytes:
    return base64.b64decode(text[: -(-length // 3) * 4])[:length]


def _split_raw(data: bytes, kind: np.dtype) -> tuple[list[bytes], int, int]:
    """Blocks of raw data behind their header."""
    count = int(np.frombuffer(data, kind, 1)[0])
    if count > len(data):
        raise ValueError("more blocks than bytes")
    header = np.frombuffer(data, kind, _BEFORE_SIZES + count).tolist()
    begin = kind.itemsize * (_BEFORE_SIZES + count)
    return _cut(data[begin:], header[_BEFORE_SIZES:]), *_sizes(header[:_BEFORE_SIZES])


def _cut(data: bytes, sizes: list[int]) -> list[bytes]:
    if sum(sizes) > len(data):
        raise ValueError("blocks end behind the data")
    blocks, begin = [], 0
    for size in sizes:
        blocks.append(data[begin : begin + size])
        begin += size
    return blocks


def _check_blocks(packed: _Packed) -> None:
    """Refuse blocks that unfold to more than the header states."""
    for block in packed.blocks:
        try:
            size = unpacked_size(block, packed.block_size)
        except zlib.error:
            raise InputError(
                "it is cut off or damaged",
                location=f"array '{packed.name}'",
                remedy="save the file anew",
            ) from None
        if size > packed.block_size:
            raise _refusal(packed, size, f"{packed.block_size} a block by its header")


def unpacked_size(block: bytes, most: int) -> int:
    """Bytes to which a zlib stream unfolds, or the first number found above `most`."""
    stream, size, rest = zlib.decompressobj(), 0, block
    while not stream.eof and size <= most:
        part = stream.decompress(rest, _CHUNK)
        rest = stream.unconsumed_tail
        size += len(part)
        if not part and not rest:
            break
    return size
