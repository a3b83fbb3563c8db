"""VTK's XML files (.vtu, .vtp): sizes are checked before data are unpacked, and arrays are read."""

from __future__ import annotations

import base64
import binascii
import mmap
import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError

UNPACKED_PER_BYTE = 300
"""Bytes into which a byte of a packed mesh file may unfold: meshes stay far below, zeros reach 1032."""
SMALL = 1 << 26
"""Bytes that any file may unfold to."""

Element = ElementTree.Element
ByteOrder = Literal["<", ">"]

_ZLIB = "vtkZLibDataCompressor"
_MOST_NODES_OF_A_CELL = 1000
_CHUNK = 1 << 20
# A header gives the number of blocks, their size, that of the last one, and then packed sizes.
_BEFORE_SIZES = 3
# Lists of cells of a file of surfaces, in the order in which their data follow each other.
SURFACE_CELLS = ("Verts", "Lines", "Polys", "Strips")
_KINDS = re.compile(r"(U?Int(8|16|32|64)|Float(32|64))\Z")
_SAVE_ANEW = "save the file anew"


def largest_unpacked(size: int) -> int:
    """Bytes to which a packed file of so many bytes may unfold."""
    return max(SMALL, UNPACKED_PER_BYTE * size)


def check_vtu(path: Path) -> None:
    """Refuse a .vtu file that would unfold to more than its counts of points and cells allow.

    Packed blocks are unfolded piece by piece and dropped; memory is bounded by a piece.
    """
    open_vtk_xml(path)


def open_vtk_xml(path: Path) -> VtkXml:
    """The XML of a file whose sizes agree with its counts."""
    root, raw = _parse(path)
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
            remedy=f"merge them (ParaView: Merge Blocks) and save them as one {path.suffix}",
        )
    appended = root.find("AppendedData")
    encoded = b"" if appended is None else (appended.text or "").strip().encode()[1:]
    file = VtkXml(root, pieces[0] if pieces else root, raw, encoded)
    if compressor is not None:
        file.check_packed(path.stat().st_size)
    return file


@dataclass(frozen=True, eq=False)
class VtkXml:
    """A parsed file: its piece, and the data behind it."""

    root: Element
    piece: Element
    raw: bytes | None  # Appended data as they are
    encoded: bytes  # Appended data in base64

    @property
    def order(self) -> ByteOrder:
        """Of bytes, as NumPy writes it."""
        return ">" if self.root.get("byte_order") == "BigEndian" else "<"

    @property
    def header(self) -> np.dtype:
        """Kind of the numbers before data."""
        wide = self.root.get("header_type") == "UInt64"
        return np.dtype("u8" if wide else "u4").newbyteorder(self.order)

    def count(self, name: str) -> int:
        """A count of the piece, such as NumberOfPoints."""
        text = self.piece.get(name) or "0"
        if not re.fullmatch(r"\s*\d{1,15}\s*", text):
            raise self.damaged(name)
        return int(text)

    @property
    def cells(self) -> int:
        """Cells of all kinds."""
        return self.count("NumberOfCells") + sum(self.count(f"NumberOf{k}") for k in SURFACE_CELLS)

    def damaged(self, name: str) -> InputError:
        """The refusal of data that cannot be decoded."""
        return InputError(
            "it is cut off or damaged",
            location=f"array '{name}'",
            remedy=_SAVE_ANEW,
        )

    def check_packed(self, size: int) -> None:
        """Refuse arrays that would unfold to more than counts or the file's size allow."""
        unpacked = 0
        for packed in self._packed_arrays():
            unpacked += packed.stated
            if packed.most is not None and packed.stated > packed.most:
                raise self._refusal(packed, packed.stated, f"{packed.most} by its counts")
            if unpacked > largest_unpacked(size):
                raise self._refusal(
                    packed,
                    unpacked,
                    f"{largest_unpacked(size)}, with all arrays before it, in a file of {size}",
                )
            for block in packed.blocks:
                try:
                    unfolded = unpacked_size(block, packed.block_size)
                except zlib.error:
                    raise self.damaged(packed.name) from None
                if unfolded > packed.block_size:
                    allowed = f"{packed.block_size} a block by its header"
                    raise self._refusal(packed, unfolded, allowed)

    def _refusal(self, packed: _Packed, size: int, limit: str) -> InputError:
        return InputError(
            f"it unpacks to {size} bytes",
            location=f"array '{packed.name}'",
            allowed=f"at most {limit}",
            remedy=f"{_SAVE_ANEW}; it is damaged",
        )

    def _packed_arrays(self) -> Iterator[_Packed]:
        for parent in self.piece.iter():
            for array in parent.findall("DataArray"):
                if array.get("format", "ascii") == "ascii":
                    continue
                name = array.get("Name", parent.tag)
                try:
                    yield _Packed(name, *self._blocks(array), self._most(parent, array))
                except (ValueError, IndexError, binascii.Error):
                    raise self.damaged(name) from None

    def _blocks(self, array: Element) -> tuple[list[bytes], int, int]:
        """Packed blocks of an array, bytes of an unpacked one, and of all."""
        offset = int(array.get("offset", "0"))
        if array.get("format") == "appended" and self.raw is not None:
            return _split_raw(self.raw[offset:], self.header)
        return _split(self._text(array, offset), self.header)

    def _text(self, array: Element, offset: int) -> bytes:
        """Base64 text of an array, which others may follow."""
        if array.get("format") == "appended":
            return self.encoded[offset:]
        return (array.text or "").strip().encode()

    def _most(self, parent: Element, array: Element) -> int | None:
        """Bytes that an array may have by the counts of its piece; None: they say nothing of it."""
        of_points = parent.tag in ("Points", "PointData")
        of_surfaces = parent.tag in SURFACE_CELLS
        if not of_points and not of_surfaces and parent.tag not in ("Cells", "CellData"):
            return None
        components = int(array.get("NumberOfComponents") or 1)
        if parent.tag == "Points":
            components = 3
        elif array.get("Name") == "connectivity":
            components = _MOST_NODES_OF_A_CELL
        elif parent.tag == "Cells" and array.get("Name") not in ("offsets", "types"):
            return None
        count = (
            self.count("NumberOfPoints")
            if of_points
            else self.count(f"NumberOf{parent.tag}")
            if of_surfaces
            else self.cells
        )
        if of_surfaces and components == _MOST_NODES_OF_A_CELL and parent.tag == "Strips":
            return None
        bits = int(re.sub(r"\D", "", array.get("type", "")) or 64)
        return count * components * bits // 8

    def array(self, parent: str, name: str | None = None) -> NDArray[Any] | None:
        """Numbers of an array of a part of the piece; None where there is none of this name."""
        part = self.piece.find(parent)
        arrays = [] if part is None else part.findall("DataArray")
        chosen = [array for array in arrays if name is None or array.get("Name") == name]
        if not chosen:
            return None
        array, label = chosen[0], name or parent
        kind = array.get("type", "")
        if not _KINDS.match(kind):
            raise InputError(
                f"its numbers are of the kind {kind[:60]!r}",
                location=f"array '{label}'",
                allowed="Int8 to UInt64, Float32 and Float64",
                remedy=_SAVE_ANEW,
            )
        wanted = np.dtype(kind.lower())
        try:
            if array.get("format", "ascii") == "ascii":
                return numbers_of_text(array.text or "", wanted)
            data = self._unpacked(array)
            return np.frombuffer(data, wanted.newbyteorder(self.order)).astype(wanted)
        except (ValueError, IndexError, binascii.Error, zlib.error, OverflowError):
            raise self.damaged(label) from None

    def _unpacked(self, array: Element) -> bytes:
        if self.root.get("compressor") is not None:
            return b"".join(zlib.decompress(block) for block in self._blocks(array)[0])
        offset, size = int(array.get("offset", "0")), self.header.itemsize
        if offset < 0:
            raise ValueError("an offset before the data")
        if array.get("format") == "appended" and self.raw is not None:
            begin = offset + size
            length = int(np.frombuffer(self.raw[offset:begin], self.header)[0])
            data = self.raw[begin : begin + length]
        else:
            text = self._text(array, offset)
            # VTK encodes the length with the data; some programs encode it apart.
            apart = len(base64.b64encode(bytes(size)))
            begin = apart if text[apart - 1 : apart] == b"=" else 0
            length = int(np.frombuffer(_decoded(text, size), self.header)[0])
            whole = length + (0 if begin else size)
            if whole > len(text):
                raise ValueError("shorter than its length")
            data = _decoded(text[begin:], whole)[0 if begin else size :]
        if len(data) != length:
            raise ValueError("shorter than its length")
        return data


def numbers_of_text(text: str | bytes, kind: np.dtype) -> NDArray[Any]:
    """Numbers of a text, separated by white space; what is none is a ValueError."""
    with warnings.catch_warnings():
        # NumPy warns of text behind the last number.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(
                text, np.float64 if kind.kind == "f" else np.int64, sep=" "
            ).astype(kind)
        except DeprecationWarning as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class _Packed:
    """A packed array: its name, blocks, bytes of a block and of all, and the most that counts allow."""

    name: str
    blocks: list[bytes]
    block_size: int
    stated: int
    most: int | None


def _parse(path: Path) -> tuple[Element, bytes | None]:
    """The XML of a file, and its raw appended data, if any."""
    if not path.stat().st_size:
        raise InputError("it is empty", remedy=_SAVE_ANEW)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text.find(b"<!DOCTYPE") >= 0 or text.find(b"<!ENTITY") >= 0:
            raise InputError(
                "it holds declarations of XML, which are not read",
                remedy=f"save it as plain {path.suffix}",
            )
        begin = text.find(b"<AppendedData")
        end = text.find(b">", begin) + 1
        if begin < 0 or end <= 0 or b"raw" not in text[begin:end]:
            return parsed_xml(text[:]), None
        data = text[end:].split(b"_", 1)[-1]
        return parsed_xml(text[:begin] + b"</VTKFile>"), data


def parsed_xml(text: bytes) -> Element:
    """The root of an XML text; what cannot be read is refused with its place."""
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        line, column = error.position
        raise InputError(
            "it cannot be read as XML; it is cut off or damaged",
            location=f"line {line}, column {column}",
            remedy="save it anew",
        ) from None


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
    packed = sum(header[_BEFORE_SIZES:])
    if packed > len(text):
        raise ValueError("blocks end behind the data")
    # Text of other arrays may follow.
    data = _decoded(text[-(-length // 3) * 4 :], packed)
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
