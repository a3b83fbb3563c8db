"""Physical groups of a Gmsh file: their names, and all groups of each geometrical entity."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from haloscope.errors import InputError

_NAME = re.compile(rb'^\s*(\d+)\s+(-?\d+)\s+"(.*)"\s*$')
_DIMENSIONS = 4
# Numbers of a bounding box; version 4.1 gives the place of a point alone.
_BOX, _POINT = 6, 3


@dataclass(frozen=True)
class GmshGroups:
    """What the head of a .msh file says of physical groups."""

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
        named = _section(text, b"PhysicalNames")
        section = _section(text, b"Entities") if version.startswith(b"4") else b""
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
            raise InputError(
                f"mesh file {path}: section $Entities is damaged; save the mesh again"
            ) from None
    return GmshGroups(names, entities)


def _format(text: mmap.mmap) -> tuple[bytes, bytes, int]:
    """Version, 0 for text or 1 for binary, and bytes of a count."""
    words = _section(text, b"MeshFormat").split(None, 3)
    if len(words) < 3 or not words[2].isdigit():
        return b"", b"0", 8
    return words[0], words[1], int(words[2][:9])


def _section(text: mmap.mmap, name: bytes) -> bytes:
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
