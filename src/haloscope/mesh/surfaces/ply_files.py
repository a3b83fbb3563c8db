"""Surfaces of triangles read from PLY files: text, and binary of either order of bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.files.vtk_xml import ByteOrder, numbers_of_text
from haloscope.mesh.surfaces.surfaces import mended_fans, spread

_KINDS = {
    **{name: np.dtype(kind) for name, kind in (("char", "i1"), ("uchar", "u1"), ("short", "i2"))},
    **{name: np.dtype(kind) for name, kind in (("ushort", "u2"), ("int", "i4"), ("uint", "u4"))},
    **{name: np.dtype(kind) for name, kind in (("float", "f4"), ("double", "f8"))},
    **{f"int{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4)},
    **{f"uint{8 * n}": np.dtype(f"u{n}") for n in (1, 2, 4)},
    **{f"float{8 * n}": np.dtype(f"f{n}") for n in (4, 8)},
}
_ORDERS: dict[str, ByteOrder | None] = {
    "binary_little_endian": "<",
    "binary_big_endian": ">",
    "ascii": None,
}
# In lines.
_LONGEST_HEADER = 2**12
_SAVE = "save the surface anew as PLY with triangles"


@dataclass(frozen=True)
class _Property:
    """A number of an element, or a list of them with the kind of its length."""

    name: str
    kind: np.dtype
    length: np.dtype | None


@dataclass(frozen=True)
class _Element:
    """A table of a file: its rows and their properties."""

    name: str
    count: int
    properties: tuple[_Property, ...]


def read_ply(path: Path, unnamed: str) -> tuple[NDArray[np.float64], NDArray[np.int32], tuple[str]]:
    """Corners (n, 3, 3) of triangles in one group; polygons become fans around their first corner."""
    size = path.stat().st_size
    with path.open("rb") as file:
        order, elements = _header(file, size)
        tables = _Text(file) if order is None else _Binary(file, order, size)
        points, faces = np.zeros((0, 3)), np.zeros((0, 3), np.int64)
        face = np.zeros(0, np.int64)
        for element in elements:
            columns = tables.read(element)
            if element.name == "vertex":
                absent = [name for name in "xyz" if name not in columns]
                if absent:
                    raise InputError(f"vertices have no property {absent[0]}", remedy=_SAVE)
                xyz = [column for name in "xyz" if isinstance(column := columns[name], np.ndarray)]
                if len(xyz) != 3:
                    raise InputError("coordinates of vertices are lists", remedy=_SAVE)
                points = np.stack(xyz, axis=1).astype(np.float64)
            elif element.name == "face":
                lists = columns.get("vertex_indices", columns.get("vertex_index"))
                if lists is None or isinstance(lists, np.ndarray):
                    raise InputError("faces have no list vertex_indices", remedy=_SAVE)
                faces, face = _fans(lists)
    if len(faces) and not 0 <= faces.min() <= faces.max() < len(points):
        raise InputError(
            f"a face refers to vertex {int(faces.max() if faces.min() >= 0 else faces.min())}",
            allowed=f"0 to {len(points) - 1}",
            remedy=_SAVE,
        )
    faces = mended_fans(points, faces, face)
    return points[faces], np.zeros(len(faces), np.int32), (unnamed,)


def _header(file: BinaryIO, size: int) -> tuple[ByteOrder | None, list[_Element]]:
    """Order of bytes, None for text, and the elements with counts that the file can hold."""
    if file.readline(16).strip() != b"ply":
        raise InputError("it is not a PLY file: its first line is not 'ply'", remedy=_SAVE)
    order: ByteOrder | None = None
    has_format = False
    elements: list[_Element] = []
    for _ in range(_LONGEST_HEADER):
        line = file.readline(1024).decode("ascii", "replace")
        words = line.split()
        if words == ["end_header"] and has_format:
            return order, elements
        match words:
            case ["format", form, _] if form in _ORDERS:
                order, has_format = _ORDERS[form], True
            case ["element", name, count] if re.fullmatch(r"\d{1,15}", count):
                # A row has one byte at least.
                if int(count) > size:
                    raise InputError(
                        f"it states {int(count)} rows of '{name[:40]}', and a file of {size} bytes cannot "
                        "hold them",
                        remedy=_SAVE,
                    )
                elements.append(_Element(name, int(count), ()))
            case ["property", "list", length, kind, name] if (
                elements and length in _KINDS and kind in _KINDS and _KINDS[length].kind in "iu"
            ):
                _add(elements, _Property(name, _KINDS[kind], _KINDS[length]))
            case ["property", kind, name] if elements and kind in _KINDS:
                _add(elements, _Property(name, _KINDS[kind], None))
            case ["comment" | "obj_info", *_] if line.endswith("\n"):
                pass
            case _:
                raise InputError(f"'{line.strip()[:60]}' is no line of a header", remedy=_SAVE)
    raise InputError("its header does not end", remedy=_SAVE)


def _add(elements: list[_Element], one: _Property) -> None:
    last = elements[-1]
    elements[-1] = _Element(last.name, last.count, (*last.properties, one))


@dataclass(frozen=True, eq=False)
class _Lists:
    """Lists of numbers, one after the other, and the length of each."""

    lengths: NDArray[np.int64]
    items: NDArray[Any]


_Columns = dict[str, NDArray[Any] | _Lists]


def _fans(lists: _Lists) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Triangles (n, 3) of polygons, and the polygon (n,) of each."""
    corners = lists.lengths
    if (corners < 3).any():
        number = int((corners < 3).argmax())
        raise InputError(
            f"face {number} has {int(corners[number])} corners",
            allowed="3 corners or more",
            remedy=_SAVE,
        )
    begins = np.cumsum(corners) - corners
    face, place = spread(corners - 2)
    first = begins[face]
    at = np.stack([first, first + place + 1, first + place + 2], axis=1)
    return np.asarray(lists.items[at], np.int64), face


class _Text:
    """Rows of a text file: all its numbers at once, as rows may stand on any lines."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            self.numbers = numbers_of_text(file.read(), np.dtype(np.float64))
        except ValueError:
            raise InputError("it holds words that are no numbers", remedy=_SAVE) from None
        self.at = 0

    def read(self, element: _Element) -> _Columns:
        """Columns of the next table."""
        return _columns(element, self._uniform, self._next)

    def _uniform(self, element: _Element, lengths: list[int]) -> _Columns | None:
        width = sum(length + 1 if length >= 0 else 1 for length in lengths)
        stop = self.at + element.count * width
        if stop > len(self.numbers):
            return None
        table = self.numbers[self.at : stop].reshape(element.count, width)
        columns: _Columns = {}
        column = 0
        for one, length in zip(element.properties, lengths, strict=True):
            if length < 0:
                columns[one.name] = table[:, column]
                column += 1
                continue
            if (table[:, column] != length).any():
                return None
            items = table[:, column + 1 : column + 1 + length]
            columns[one.name] = _Lists(np.full(element.count, length), items.reshape(-1))
            column += 1 + length
        self.at = stop
        return columns

    def _next(self, kind: np.dtype, count: int) -> NDArray[Any]:
        numbers = self.numbers[self.at : self.at + count]
        self.at += count
        return numbers


class _Binary:
    """Rows of a binary file."""

    def __init__(self, file: BinaryIO, order: ByteOrder, size: int) -> None:
        self.data = file.read(size)
        self.order, self.at = order, 0

    def read(self, element: _Element) -> _Columns:
        """Columns of the next table."""
        return _columns(element, self._uniform, self._next)

    def _uniform(self, element: _Element, lengths: list[int]) -> _Columns | None:
        fields: list[Any] = []
        for number, (one, length) in enumerate(zip(element.properties, lengths, strict=True)):
            if length >= 0 and one.length is not None:
                fields.append((f"n{number}", one.length.newbyteorder(self.order)))
            kind = one.kind.newbyteorder(self.order)
            fields.append((f"v{number}", kind, (length,)) if length >= 0 else (f"v{number}", kind))
        record = np.dtype(fields)
        if record.itemsize * element.count > len(self.data) - self.at:
            return None
        table = np.frombuffer(self.data, record, element.count, self.at)
        columns: _Columns = {}
        for number, (one, length) in enumerate(zip(element.properties, lengths, strict=True)):
            values = table[f"v{number}"]
            if length < 0:
                columns[one.name] = values
            elif (table[f"n{number}"] != length).any():
                return None
            else:
                columns[one.name] = _Lists(np.full(element.count, length), values.reshape(-1))
        self.at += record.itemsize * element.count
        return columns

    def _next(self, kind: np.dtype, count: int) -> NDArray[Any]:
        kind = kind.newbyteorder(self.order)
        begin = min(self.at, len(self.data))
        available = (len(self.data) - begin) // kind.itemsize
        numbers = np.frombuffer(self.data, kind, min(count, available), begin)
        self.at += count * kind.itemsize
        return numbers


def _columns(element: _Element, uniform: Any, following: Any) -> _Columns:
    """Columns of a table: at once where lists have one length (3 or 4), else row by row."""
    lists = [one.length is not None for one in element.properties]
    for length in (3, 4) if any(lists) else (-1,):
        columns: _Columns | None = uniform(
            element, [length if is_list else -1 for is_list in lists]
        )
        if columns is not None:
            return columns
    if not any(lists):
        raise _too_short(element)
    rows: list[list[NDArray[Any]]] = [[] for _ in element.properties]
    for _ in range(element.count):
        for one, values in zip(element.properties, rows, strict=True):
            count = 1
            if one.length is not None:
                stated = following(one.length, 1)
                count = int(stated[0]) if len(stated) else -1
            items = following(one.kind, max(count, 0))
            if len(items) != count:
                raise _too_short(element)
            values.append(items)
    return {
        one.name: _Lists(
            np.array([len(items) for items in values], np.int64), np.concatenate(values)
        )
        if one.length is not None
        else np.concatenate(values)
        for one, values in zip(element.properties, rows, strict=True)
    }


def _too_short(element: _Element) -> InputError:
    return InputError(
        f"it ends within its {element.count} rows of '{element.name[:40]}'", remedy=_SAVE
    )
