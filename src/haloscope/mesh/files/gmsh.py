"""Counts and groups of Gmsh files, read without the whole mesh."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from haloscope.errors import InputError

# Gmsh's numbers of the types of elements, with the nodes of each: hexahedra, tetrahedra with straight
# edges, and others.
_HEXAHEDRA = {5: 8, 12: 27, 17: 20, 92: 64, 93: 125, 94: 216, 95: 343, 96: 512, 97: 729, 98: 1000}
_TETRAHEDRA = {4: 4}
_OTHERS = {15: 1, 1: 2, 8: 3, 26: 4, 27: 5, 28: 6, 3: 4, 10: 9, 16: 8, 36: 16, 37: 25, 38: 36}
_OTHERS |= {47: 49, 48: 64, 49: 81, 50: 100, 2: 3, 9: 6, 6: 6, 7: 5, 11: 10}
_NODES = _HEXAHEDRA | _TETRAHEDRA | _OTHERS
# A tag costs its reader eight bytes, used or not.
_TAGS_PER_BYTE = 16
# Tokens of an element's line before its tags: number, type, number of tags.
_BEFORE_TAGS = 3


def check_gmsh_counts(path: Path) -> None:
    """Refuse a .msh file (2.2 or 4.x) whose counts do not fit its size.

    In ASCII files of version 2.2 the numbers of nodes are looked at, too: the reader would take 0
    and negative ones for nodes counted from the end.
    """
    size = path.stat().st_size
    if size == 0:
        raise InputError("it is empty", remedy="write it anew")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        form = _line_after(text, b"$MeshFormat").split()
        if len(form) < 2:
            raise InputError(
                "it does not begin like a Gmsh file ($MeshFormat)",
                remedy="save it as version 2.2 or 4.1",
            )
        old, ascii_form = form[0].startswith(b"2"), form[1] == b"0"
        for section in (b"$Nodes", b"$Elements"):
            numbers = _counts(text, section, old, ascii_form)
            for number in numbers[: 1 if old else 2]:
                if not 0 <= number <= size:
                    raise InputError(
                        f"it states a count of {number}, and a file of {size} bytes cannot hold it",
                        location=section.decode(),
                        remedy="save it anew; it is damaged",
                    )
            if section == b"$Nodes" and len(numbers) > 3:
                _require_tag(numbers[3], size)
        if old and ascii_form:
            _check_old_tags(text, size)


def _require_tag(tag: int, size: int) -> None:
    if not 0 <= tag <= _TAGS_PER_BYTE * size:
        raise InputError(
            f"a node has the number {tag}, far more than the nodes of a file of {size} bytes",
            remedy="renumber the mesh in Gmsh and save it anew",
        )


def _line_after(text: mmap.mmap, marker: bytes) -> bytes:
    place = text.find(marker)
    if place < 0:
        return b""
    begin = text.find(b"\n", place) + 1
    end = text.find(b"\n", begin)
    return text[begin : end if end >= 0 else len(text)] if begin else b""


def _counts(text: mmap.mmap, section: bytes, old: bool, ascii_form: bool) -> tuple[int, ...]:
    try:
        if old or ascii_form:
            numbers = tuple(int(word) for word in _line_after(text, section).split())
        else:
            begin = text.find(b"\n", text.find(section)) + 1
            numbers = struct.unpack("4Q", text[begin : begin + 32])
    except (ValueError, struct.error):
        numbers = ()
    if not numbers:
        raise InputError(
            f"it has no readable {section.decode()}; it is cut off or damaged",
            remedy="save it anew",
        )
    return numbers


def _section(text: mmap.mmap, name: bytes) -> Iterator[bytes]:
    """Lines of a section below its count."""
    text.seek(text.find(name))
    text.readline()
    text.readline()
    while line := text.readline():
        if line.startswith(b"$"):
            return
        yield line


def _check_old_tags(text: mmap.mmap, size: int) -> None:
    try:
        for line in _section(text, b"$Nodes"):
            _require_tag(int(line.split(None, 1)[0]), size)
        for line in _section(text, b"$Elements"):
            words = line.split()
            nodes = words[_BEFORE_TAGS + int(words[2]) :]
            if any(word == b"0" or word.startswith(b"-") for word in nodes):
                raise InputError(
                    f"element {int(words[0])} uses a node below 1",
                    remedy="save it anew; it is damaged",
                )
    except (ValueError, IndexError):
        raise InputError(
            "a line of nodes or elements is not made of numbers",
            remedy="save it anew; it is damaged",
        ) from None


def count_gmsh_hexahedra(path: Path) -> int | None:
    """Hexahedra that a .msh file (2.2 or 4.1) states, without reading its nodes."""
    return _count(path, _HEXAHEDRA)


def count_gmsh_tetrahedra(path: Path) -> int | None:
    """Tetrahedra with straight edges that a .msh file states; as :func:`count_gmsh_hexahedra`."""
    return _count(path, _TETRAHEDRA)


def _count(path: Path, wanted: Container[int]) -> int | None:
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        form = _line_after(text, b"$MeshFormat").split()
        place = text.find(b"$Elements")
        if len(form) < 2 or place < 0:
            return None
        text.seek(place)
        text.readline()
        counters = {
            (b"2.2", b"0"): _count_old_ascii,
            (b"2.2", b"1"): _count_old_binary,
            (b"4.1", b"0"): _count_new_ascii,
            (b"4.1", b"1"): _count_new_binary,
        }
        counter = counters.get((form[0], form[1]))
        try:
            return None if counter is None else counter(text, wanted)
        except (ValueError, IndexError, KeyError, struct.error):
            return None


def _count_old_ascii(text: mmap.mmap, wanted: Container[int]) -> int:
    elements = 0
    for _ in range(int(text.readline())):
        elements += int(text.readline().split(None, 2)[1]) in wanted
    return elements


def _count_old_binary(text: mmap.mmap, wanted: Container[int]) -> int:
    left, elements = int(text.readline()), 0
    while left > 0:
        kind, count, tags = struct.unpack("3i", text.read(12))
        nodes = _NODES[kind]
        if count <= 0 or tags < 0:
            raise ValueError("a block of elements is damaged")
        text.seek(4 * count * (1 + tags + nodes), os.SEEK_CUR)
        elements += count if kind in wanted else 0
        left -= count
    return elements


def _count_new_ascii(text: mmap.mmap, wanted: Container[int]) -> int:
    blocks, elements = int(text.readline().split()[0]), 0
    for _ in range(blocks):
        kind, count = (int(word) for word in text.readline().split()[2:4])
        for _ in range(count):
            if text.readline().startswith(b"$"):
                raise ValueError("a block of elements is cut off")
        elements += count if kind in wanted else 0
    return elements


def _count_new_binary(text: mmap.mmap, wanted: Container[int]) -> int:
    blocks, elements = struct.unpack("4Q", text.read(32))[0], 0
    for _ in range(blocks):
        _, _, kind, count = struct.unpack("=3iQ", text.read(20))
        text.seek(8 * count * (1 + _NODES[kind]), os.SEEK_CUR)
        elements += count if kind in wanted else 0
    return elements


_NAME = re.compile(rb'^\s*(\d+)\s+(-?\d+)\s+"(.*)"\s*$')
_DIMENSIONS = 4
# Numbers of a bounding box; version 4.1 gives the place of a point alone.
_BOX, _POINT = 6, 3


@dataclass(frozen=True)
class GmshGroups:
    """Physical groups in the head of a .msh file."""

    # By dimension and number of the group.
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    # Version 4: numbers of the groups of an entity by its dimension and tag.
    entities: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)


def read_gmsh_groups(path: Path) -> GmshGroups:
    """Read the sections $PhysicalNames and $Entities of a .msh file.

    A group may have the same name as one of another dimension, and an entity may be in several
    groups.
    """
    if path.stat().st_size == 0:
        return GmshGroups()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        version, form, size = _format(text)
        named = _section_content(text, b"PhysicalNames")
        section = _section_content(text, b"Entities") if version.startswith(b"4") else b""
    names = {}
    for line in named.splitlines()[1:]:
        if match := _NAME.match(line):
            names[int(match[1]), int(match[2])] = match[3].decode(errors="replace")
    entities = {}
    if section:
        in_point = _BOX if version == b"4.0" else _POINT
        try:
            if form == b"0":
                entities = _entities(_Words(section), in_point)
            else:
                entities = _entities(_Bytes(section, size), in_point)
        except (ValueError, KeyError, struct.error, StopIteration):
            raise InputError("section $Entities is damaged", remedy="save the mesh anew") from None
    return GmshGroups(names, entities)


def _format(text: mmap.mmap) -> tuple[bytes, bytes, int]:
    """Version, 0 for text or 1 for binary, and bytes of a count."""
    words = _section_content(text, b"MeshFormat").split(None, 3)
    if len(words) < 3 or not words[2].isdigit():
        return b"", b"0", 8
    return words[0], words[1], int(words[2][:9])


def _section_content(text: mmap.mmap, name: bytes) -> bytes:
    """Content of a section; nothing where there is none."""
    place = text.find(b"$" + name)
    begin = text.find(b"\n", place) + 1
    if place < 0 or not begin:
        return b""
    end = text.find(b"$End" + name, begin)
    return text[begin : end if end >= 0 else len(text)]


class _Words:
    """Numbers of a section of text."""

    def __init__(self, section: bytes) -> None:
        self._words: Iterator[bytes] = iter(section.split())

    def count(self) -> int:
        return int(next(self._words))

    def tag(self) -> int:
        return int(next(self._words))

    def skip_floats(self, count: int) -> None:
        for _ in range(count):
            next(self._words)


class _Bytes:
    """Numbers of a binary section."""

    def __init__(self, section: bytes, size: int) -> None:
        self._section, self._place = section, 0
        self._count = {4: "<I", 8: "<Q"}[size]

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._section, self._place)
        self._place += struct.calcsize(form)
        return int(value)

    def count(self) -> int:
        return self._take(self._count)

    def tag(self) -> int:
        return self._take("<i")

    def skip_floats(self, count: int) -> None:
        self._place += 8 * count


def _entities(numbers: _Words | _Bytes, in_point: int) -> dict[tuple[int, int], tuple[int, ...]]:
    entities = {}
    counts = [numbers.count() for _ in range(_DIMENSIONS)]
    for dimension, count in enumerate(counts):
        for _ in range(count):
            tag = numbers.tag()
            numbers.skip_floats(_BOX if dimension else in_point)
            # A negative number means that the entity is turned round in the group.
            groups = tuple(abs(numbers.tag()) for _ in range(numbers.count()))
            if dimension:
                for _ in range(numbers.count()):
                    numbers.tag()
            if groups:
                entities[dimension, tag] = groups
    return entities
