"""Looks at the counts that a Gmsh file states, before a reader allocates memory for them."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from haloscope.errors import InputError

# A tag costs its reader eight bytes, used or not.
_TAGS_PER_BYTE = 16
# Tokens of an element's line before its tags: number, type, number of tags.
_BEFORE_TAGS = 3


def check_gmsh_counts(path: Path) -> None:
    """Refuse a .msh file (2.2 or 4.x) whose counts do not fit its size.

    In ASCII files of version 2.2 the numbers of nodes are looked at, too: the reader would take
    0 and negative ones for nodes counted from the end.

    Raises
    ------
    InputError
        Says which count is wrong, and what it is.
    """
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"mesh file {path} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        form = _line_after(text, b"$MeshFormat").split()
        if len(form) < 2:
            raise InputError(
                f"mesh file {path} does not begin like a Gmsh file ($MeshFormat); save it as "
                "version 2.2 or 4.1"
            )
        old, ascii_form = form[0].startswith(b"2"), form[1] == b"0"
        for section in (b"$Nodes", b"$Elements"):
            numbers = _counts(text, section, old, ascii_form, path)
            what = f"mesh file {path}: {section.decode()} states"
            for number in numbers[: 1 if old else 2]:
                if not 0 <= number <= size:
                    raise InputError(
                        f"{what} a count of {number}, which a file of {size} bytes cannot hold; "
                        "it is damaged, save it anew"
                    )
            if section == b"$Nodes" and len(numbers) > 3:
                _require_tag(numbers[3], size, path)
        if old and ascii_form:
            _check_old_tags(text, size, path)


def _require_tag(tag: int, size: int, path: Path) -> None:
    if not 0 <= tag <= _TAGS_PER_BYTE * size:
        raise InputError(
            f"mesh file {path}: a node has the number {tag}, far more than a file of {size} bytes "
            "has nodes; renumber the mesh in Gmsh and save it anew"
        )


def _line_after(text: mmap.mmap, marker: bytes) -> bytes:
    place = text.find(marker)
    if place < 0:
        return b""
    begin = text.find(b"\n", place) + 1
    end = text.find(b"\n", begin)
    return text[begin : end if end >= 0 else len(text)] if begin else b""


def _counts(
    text: mmap.mmap, section: bytes, old: bool, ascii_form: bool, path: Path
) -> tuple[int, ...]:
    """The numbers at the head of a section."""
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
            f"mesh file {path} has no readable {section.decode()}; it is cut off or damaged, "
            "save it anew"
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


def _check_old_tags(text: mmap.mmap, size: int, path: Path) -> None:
    try:
        for line in _section(text, b"$Nodes"):
            _require_tag(int(line.split(None, 1)[0]), size, path)
        for line in _section(text, b"$Elements"):
            words = line.split()
            nodes = words[_BEFORE_TAGS + int(words[2]) :]
            if any(word == b"0" or word.startswith(b"-") for word in nodes):
                raise InputError(
                    f"mesh file {path}: element {int(words[0])} uses a node below 1; the file "
                    "is damaged, save it anew"
                )
    except (ValueError, IndexError):
        raise InputError(
            f"mesh file {path}: a line of nodes or elements is not made of numbers; it is "
            "damaged, save it anew"
        ) from None
