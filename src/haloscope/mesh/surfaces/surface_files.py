"""Surfaces of triangles read from files: STL and OBJ here, PLY and VTP beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from haloscope.errors import InputError, counted
from haloscope.io.atomic import atomic_path
from haloscope.mesh.files.meshio_files import METRE, LengthUnit
from haloscope.mesh.surfaces.ply_files import read_ply
from haloscope.mesh.surfaces.surfaces import Floats, Surface, make_surface, mended_fans
from haloscope.mesh.surfaces.vtp_files import GROUP_ARRAYS, read_vtp

UNNAMED = "wall"
_HEADER = 80
_RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
# Products of three lengths must be numbers, too.
_LARGEST = 1e30
_MOST_TRIANGLES = 2**29
_LONGEST_LINE = 2**16
_MOST_GROUPS = 10_000
_SAVE_AGAIN = "save the file again"


def read_surface(
    path: Path | str,
    scale: float = 1.0,
    tolerance: float | None = None,
    unit: LengthUnit = METRE,
) -> Surface:
    """Read a surface of triangles.

    Groups: solids of a text STL file, groups and objects of an OBJ file, face ids of a VTP file, files of a
    folder of VTP files; other triangles are in the group 'wall'.
    """
    # `tolerance`: distance in m within which points are one; without it 1e-6 of the bounding box's
    # diagonal.
    path = Path(path)
    if not (math.isfinite(scale) and scale > 0):
        raise InputError("out of range", location=f"scale = {scale:g}", allowed="numbers above 0")
    readers: dict[str, Callable[[Path], _Read]] = {
        ".stl": _read_stl,
        ".obj": _read_obj,
        ".ply": lambda path: read_ply(path, UNNAMED),
        ".vtp": lambda path: read_vtp(path, UNNAMED, _MOST_GROUPS),
    }
    reader = readers.get(path.suffix.lower())
    if path.is_dir():
        reader = _read_faces
    if reader is None:
        raise InputError(
            f"the ending {path.suffix!r} is unknown",
            location=_location(path),
            allowed=", ".join(readers),
            remedy="save the surface as text STL (one solid for each group) or as VTP with a cell array "
            f"{GROUP_ARRAYS[0]}",
        )
    if not path.exists():
        raise InputError(
            "it does not exist",
            location=_location(path),
            remedy="give the path of a file"
            if path.is_absolute()
            else f"give its path from the current folder {Path.cwd()}, or its absolute path",
        )
    try:
        corners, groups, names = reader(path)
    except OSError as error:
        raise InputError(
            f"it cannot be read ({error.strerror})",
            location=_location(path),
            remedy="check its permissions",
        ) from None
    except InputError as error:
        raise error.within(_location(path)) from None
    if not len(corners):
        raise InputError(
            "it holds no triangles", location=_location(path), remedy="save a closed surface"
        )
    usable = (np.abs(corners) <= _LARGEST).all(axis=(1, 2))
    if not usable.all():
        raise InputError(
            f"{counted((~usable).sum(), 'triangle has', 'triangles have')} coordinates that are not "
            f"finite or too large, the first is triangle {int(usable.argmin())}",
            location=_location(path),
            allowed=f"numbers up to {_LARGEST:g}",
            remedy=_SAVE_AGAIN,
        )
    return make_surface(corners * scale, groups, names, tolerance, str(path), unit)


def _location(path: Path) -> str:
    return f"surface file {path}"


_Read = tuple[Floats, np.ndarray, tuple[str, ...]]


class _Groups:
    """Names in the order in which they came, and the group of each triangle."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.numbers: list[int] = []
        self.current = UNNAMED

    def add(self, triangles: int = 1) -> None:
        """Put triangles into the current group."""
        number = self.names.setdefault(self.current, len(self.names))
        self.numbers.extend([number] * triangles)


def _read_stl(path: Path) -> _Read:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_HEADER + 4)
        count = int.from_bytes(start[_HEADER:], "little")
        expected = _HEADER + 4 + count * _RECORD.itemsize
        # Some programs begin binary files with "solid", too; only the size tells.
        if len(start) == _HEADER + 4 and size == expected:
            if count > _MOST_TRIANGLES:
                raise InputError(
                    f"it holds {count} triangles",
                    allowed="at most 2^29 triangles",
                    remedy="use a coarser surface",
                )
            records = np.fromfile(file, _RECORD, count)
            # What is no number is refused by the caller.
            with np.errstate(invalid="ignore"):
                corners = records["corners"].astype(np.float64)
            return corners, np.zeros(count, np.int32), (UNNAMED,)
    # A damaged binary file may begin like a text; no text holds a zero byte.
    begin = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not begin.startswith(b"solid") or b"\0" in start:
        raise InputError(
            f"it is not an STL file: it has {size} bytes, but with its number of triangles a binary STL file "
            f"has {expected}",
            remedy="save it again as binary or text STL",
        )
    return _read_text_stl(path)


def _words(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Numbers of lines, from 1, and the words of those that hold some."""
    # With a mark of the order of bytes or without.
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE:
                raise InputError(
                    "the line is too long",
                    location=f"line {number}",
                    allowed=f"at most {_LONGEST_LINE} characters",
                    remedy=f"{_SAVE_AGAIN} as binary STL",
                )
            if words := line.split():
                yield number, words


def _numbers(line: int, words: list[str]) -> tuple[float, float, float]:
    try:
        x, y, z = (float(word) for word in words[1:4])
    except ValueError:
        raise InputError(
            f"'{' '.join(words)[:60]}' lacks three coordinates",
            location=f"line {line}",
            remedy=_SAVE_AGAIN,
        ) from None
    return x, y, z


def _read_text_stl(path: Path) -> _Read:
    corners: list[tuple[float, float, float]] = []
    groups = _Groups()
    # Corners of the open facet; below 0 outside facets.
    open_corners = -1
    for line, words in _words(path):
        word = words[0].lower()
        if word == "vertex" and open_corners >= 0:
            corners.append(_numbers(line, words))
            open_corners += 1
        elif word == "facet" and open_corners < 0:
            open_corners = 0
        elif word == "endfacet" and open_corners == 3:
            open_corners = -1
            groups.add()
        elif word == "solid" and open_corners < 0:
            groups.current = " ".join(words[1:]) or UNNAMED
            if len(groups.names) > _MOST_GROUPS:
                raise _too_many_groups("solids")
        elif word not in ("outer", "endloop", "endsolid"):
            raise InputError(
                f"'{' '.join(words)[:60]}' is out of place in a text STL file",
                location=f"line {line}",
                allowed="facets of three vertices",
                remedy=_SAVE_AGAIN,
            )
    if open_corners >= 0:
        raise InputError("it ends within a facet", remedy=_SAVE_AGAIN)
    return (
        np.array(corners, np.float64).reshape(-1, 3, 3),
        np.array(groups.numbers, np.int32),
        tuple(groups.names),
    )


def _read_obj(path: Path) -> _Read:
    points: list[tuple[float, float, float]] = []
    triangles: list[tuple[int, int, int]] = []
    groups = _Groups()
    polygon: list[int] = []
    for line, words in _words(path):
        if words[0] == "v":
            points.append(_numbers(line, words))
        elif words[0] in ("g", "o"):
            groups.current = " ".join(words[1:]) or UNNAMED
            if len(groups.names) > _MOST_GROUPS:
                raise _too_many_groups("groups")
        elif words[0] == "f":
            corners = [_obj_point(line, word, len(points)) for word in words[1:]]
            if len(corners) < 3:
                raise InputError(
                    f"the face has {counted(len(corners), 'corner')}",
                    location=f"line {line}",
                    allowed="3 corners or more",
                    remedy=_SAVE_AGAIN,
                )
            # A polygon becomes a fan around its first corner.
            fan = list(itertools.pairwise(corners[1:]))
            triangles.extend((corners[0], b, c) for b, c in fan)
            groups.add(len(fan))
            polygon.extend([polygon[-1] + 1 if polygon else 0] * len(fan))
    indices = np.array(triangles, np.int64).reshape(-1, 3)
    places = np.array(points, np.float64).reshape(-1, 3)
    indices = mended_fans(places, indices, np.array(polygon, np.int64))
    return places[indices], np.array(groups.numbers, np.int32), tuple(groups.names)


def _too_many_groups(noun: str) -> InputError:
    return InputError(
        f"it has more than {_MOST_GROUPS} {noun}",
        allowed=f"at most {_MOST_GROUPS}",
        remedy="join some of them",
    )


def _obj_point(line: int, word: str, points: int) -> int:
    """Index from 0 of a face's corner; negative numbers count back from the last point."""
    try:
        number = int(word.split("/")[0])
    except ValueError:
        number = 0
    index = number - 1 if number > 0 else points + number
    if number == 0 or not 0 <= index < points:
        raise InputError(
            f"the corner '{word[:60]}' is not a point of the lines before",
            location=f"line {line}",
            allowed=f"1 to {points}, or -{points} to -1",
            remedy=_SAVE_AGAIN,
        )
    return index


_FACES, _WALLS = "mesh-surfaces", "walls_combined"


def face_files(folder: Path) -> list[Path]:
    """Files of a folder with a VTP file for each face, as SimVascular's mesh-complete, in the order of names."""
    inner = folder / _FACES
    files = sorted((inner if inner.is_dir() else folder).glob("*.vtp"))
    return files + sorted(folder.glob(f"{_WALLS}*.vtp")) if inner.is_dir() else files


def _read_faces(folder: Path) -> _Read:
    """Triangles of a folder's files, each a group; those of all walls together only where they are in no other."""
    files = face_files(folder)
    if not files:
        raise InputError(
            "it is a folder without VTP files",
            allowed=f"a folder of VTP files, one for each face, or one that holds such a folder '{_FACES}'",
            remedy="give the path of a file in it",
        )
    corners, groups, names = [np.zeros((0, 3, 3))], [np.zeros(0, np.int32)], list[str]()
    for path in files:
        try:
            own, _, _ = read_vtp(path, UNNAMED, _MOST_GROUPS)
        except InputError as error:
            raise error.within(path.name) from None
        if path.stem.startswith(_WALLS) and _has_all(np.concatenate(corners), own):
            continue
        corners.append(own)
        groups.append(np.full(len(own), len(names), np.int32))
        names.append(path.stem)
    return np.concatenate(corners), np.concatenate(groups), tuple(names)


def _has_all(corners: Floats, others: Floats) -> bool:
    """Whether some triangles (n, 3, 3) hold all of the others, in any order of their corners."""
    rows = [
        {tuple(sorted(map(tuple, triangle))) for triangle in part.tolist()}
        for part in (corners, others)
    ]
    return rows[1] <= rows[0]


def write_stl(path: Path | str, surface: Surface, scale: float = 1.0) -> None:
    """Write a surface as a text STL file, one solid a group; `scale`: the file's unit of length in m.

    Text keeps the names of the groups, and all digits.
    """
    normals = surface.normals
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals / np.where(lengths > 0, lengths, 1)
    corners = surface.corners if scale == 1.0 else surface.corners / scale
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for number, name in enumerate(surface.names):
            file.write(f"solid {name}\n")
            for triangle in np.flatnonzero(surface.groups == number):
                n, (a, b, c) = normals[triangle], corners[triangle].tolist()
                file.write(
                    f"facet normal {n[0]:.6g} {n[1]:.6g} {n[2]:.6g}\nouter loop\n"
                    f"vertex {a[0]!r} {a[1]!r} {a[2]!r}\nvertex {b[0]!r} {b[1]!r} {b[2]!r}\n"
                    f"vertex {c[0]!r} {c[1]!r} {c[2]!r}\nendloop\nendfacet\n"
                )
            file.write(f"endsolid {name}\n")
