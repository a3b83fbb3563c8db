"""Lists of cells in HemoCell's format: how they are read, and the turns that their angles stand for."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted

Floats = NDArray[np.float64]

_VALUES = 6
# Of a number and the space behind it.
_LEAST_BYTES = 2
_MOST_BYTES = 1 << 29
_LARGEST = 1e9
_SHOWN = 40
# Turns (x, y, z) to (-y, -z, x), as HemoCell turns its shapes and meshes: the axis z of a disc then is -y.
_TO_REST = np.array([0.5, 0.5, -0.5, 0.5])
# By how many places components of a mesh were rolled when it was read: the turn back to those of the file.
_TO_FILE = np.array([[1.0, 0.0, 0.0, 0.0], [0.5, -0.5, -0.5, -0.5], [0.5, 0.5, 0.5, 0.5]])


@dataclass(frozen=True, eq=False)
class CellList:
    """The n cells of a list."""

    positions: Floats  # Of the middles of their boxes before they were turned, (n, 3), in um
    angles: Floats  # About the fixed axes x, y and z, one after the other, (n, 3), in degrees
    beyond: (
        int  # Cells in the file after as many as it announces, which HemoCell does not read, either
    )


def count_of(file: str) -> int:
    """Number of cells that a list announces."""
    with _Lines(file) as lines:
        return _announced(lines, Path(file).stat().st_size)


def read_list(file: str) -> CellList:
    """Read the number of cells, and then x, y, z (um) and three angles (degrees) of each, by white space."""
    with _Lines(file) as lines:
        count = _announced(lines, Path(file).stat().st_size)
        values = np.empty(_VALUES * count)
        place = 0
        for number, words in lines:
            read = _numbers(number, words)
            room = values[place : place + len(words)]
            room[:] = read[: len(room)]
            place += len(words)
        whole, rest = divmod(place, _VALUES)
        if place < len(values) or rest:
            more = f" and {counted(rest, 'number')}" if rest else ""
            _refuse(
                lines.last,
                f"the file ends after {counted(whole, 'cell')}{more}, but announces {count}",
            )
    rows = values.reshape(count, _VALUES)
    return CellList(rows[:, :3].copy(), rows[:, 3:].copy(), whole - count)


class _Lines:
    """Lines of a list that hold words, with their numbers; faults are located in the file."""

    def __init__(self, file: str) -> None:
        self._file, self.last = file, 0
        path = Path(file)
        problem = (
            "" if path.is_file() else "it is a folder" if path.is_dir() else "it does not exist"
        )
        if problem:
            raise InputError(
                problem, location=self._location, remedy=f"give its path from {Path.cwd()}"
            )
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise InputError(
                f"it has {size / 2**20:.0f} MiB",
                location=self._location,
                allowed=f"at most {_MOST_BYTES >> 20} MiB",
            )
        self._words = self._split()

    @property
    def _location(self) -> str:
        return f"list of cells {self._file}"

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._words.close()
        if isinstance(error, InputError):
            raise error.within(self._location) from None

    def __iter__(self) -> Iterator[tuple[int, list[bytes]]]:
        return self._words

    def _split(self) -> Generator[tuple[int, list[bytes]]]:
        try:
            with Path(self._file).open("rb") as file:
                for number, line in enumerate(file, 1):
                    self.last = number
                    if not line.isascii() or b"\0" in line:
                        _refuse(number, "this is not a line of text")
                    if words := line.split():
                        yield number, words
        except OSError as error:
            raise InputError(
                f"it cannot be read ({error.strerror})", remedy="check its permissions"
            ) from None


def _refuse(line: int, problem: str) -> NoReturn:
    raise InputError(
        problem,
        location=f"line {line}",
        allowed="the number of cells, then x y z (um) and rx ry rz (degrees) of each",
    )


def _announced(lines: _Lines, size: int) -> int:
    """Number of cells in the first line; no more than a file of so many bytes can hold."""
    number, words = next(iter(lines), (1, [b""]))
    if len(words) != 1 or not words[0].isdigit() or len(words[0]) > 18:
        _refuse(number, f"{_shown(b' '.join(words))} is not a number of cells")
    count = int(words[0])
    if count * _VALUES * _LEAST_BYTES > size + 1:
        _refuse(number, f"{count} cells do not fit into {counted(size, 'byte')}")
    return count


def _numbers(line: int, words: Sequence[bytes]) -> Floats:
    try:
        # Python also reads 1_0 as a number.
        values = np.array([float(word) if b"_" not in word else float("") for word in words])
    except ValueError:
        wrong = next(word for word in words if not _is_number(word))
        _refuse(line, f"{_shown(wrong)} is not a number")
    usable = np.abs(values) <= _LARGEST
    if not usable.all():
        word = words[int(usable.argmin())]
        _refuse(line, f"{_shown(word)} is not a finite number up to {_LARGEST:g}")
    return values


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return b"_" not in word


def _shown(word: bytes) -> str:
    text = word.decode("ascii", "replace")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _product(a: Floats, b: Floats) -> Floats:
    """Quaternions (n, 4) of the turns b and then a."""
    w, x, y, z = np.moveaxis(a, -1, 0)
    s, i, j, k = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            w * s - x * i - y * j - z * k,
            w * i + x * s + y * k - z * j,
            w * j - x * k + y * s + z * i,
            w * k + x * j - y * i + z * s,
        ],
        axis=-1,
    )


def quaternions_of(angles: Floats, rolled: int = 0) -> Floats:
    """Quaternions (n, 4) that turn a mesh with its axis along z as angles (n, 3) in degrees say.

    `rolled`: by how many places components were rolled when the mesh was read from a file.
    """
    half = np.deg2rad(angles) / 2
    turn = np.broadcast_to(_product(_TO_REST, _TO_FILE[rolled]), (len(angles), 4))
    for axis in range(3):
        about = np.zeros((len(angles), 4))
        about[:, 0], about[:, 1 + axis] = np.cos(half[:, axis]), np.sin(half[:, axis])
        turn = _product(about, turn)
    return np.asarray(turn)
