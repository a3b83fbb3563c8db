"""Checkpoints: the whole state in global numbering, for any rank count and any device."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.errors import InputError, MachineError
from haloscope.io.atomic import atomic_hdf5

_FORMAT = b"haloscope-checkpoint"
# This version of the file format has checksums for all that is not data, and text of fixed
# length is not kept apart, where it would have none: HDF5 does not survive damage of that kind.
_LIBRARY_VERSION = "v110"
_VERSION = 1
# Fields are read in rows of a chunk; one holds about so much.
_CHUNK_BYTES = 1 << 18
_NAME = re.compile(r"checkpoint-([0-9]{10,})\.h5")
_LARGEST_TEXT = 1 << 26
# Attribute of what is checked as a whole; an attribute has a checksum of its own.
_SUM = "crc32"
# Of extras: bools, whole numbers, floats, complex numbers.
_KINDS = "biufc"

DELETE_DAMAGED = "delete it to restart from the previous checkpoint"
"""Remedy of a damaged checkpoint."""

Shape = tuple[int, ...]


def checkpoint_path(folder: Path, step: int) -> Path:
    """Path of the checkpoint of a step."""
    return folder / f"checkpoint-{step:010d}.h5"


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a folder, oldest first."""
    named = ((_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*.h5"))
    return [path for _, path in sorted((int(name[1]), path) for name, path in named if name)]


def prune(folder: Path, keep: int) -> None:
    """Remove all checkpoints of a folder but the newest `keep`."""
    for old in list_checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)


@contextmanager
def writing(
    path: Path,
    *,
    solver: str,
    shape: Shape,
    step: int,
    content: Mapping[str, Any],
    extras: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Callable[[str, np.dtype, Iterable[tuple[int, np.ndarray]]], None]]:
    """Write a checkpoint; yields ``write(name, dtype, slabs)`` to add a field.

    `extras`: arrays that it needs beside the fields, each with a value at least.
    """
    with atomic_hdf5(path, library_version=_LIBRARY_VERSION) as file:
        file.attrs["format"] = np.bytes_(_FORMAT)
        file.attrs["version"] = _VERSION
        file.attrs["solver"] = np.bytes_(solver.encode())
        file.attrs["nodes"] = tuple(reversed(shape))
        file.attrs["step"] = step
        text = np.frombuffer(json.dumps(content).encode(), np.uint8)
        data = file.create_dataset("content", data=text, fletcher32=True, chunks=text.shape)
        data.attrs[_SUM] = _crc(text)
        for name, values in (extras or {}).items():
            data = file.create_dataset(f"extras/{name}", data=values, chunks=True, fletcher32=True)
            data.attrs[_SUM] = _crc(np.asarray(values))
        row = int(np.prod(shape[1:], dtype=np.int64))

        def write(name: str, dtype: np.dtype, parts: Iterable[tuple[int, np.ndarray]]) -> None:
            # Checksums a chunk: a damaged file is noticed when it is read.
            rows = min(shape[0], max(1, _CHUNK_BYTES // (row * dtype.itemsize)))
            data = file.create_dataset(
                f"fields/{name}", shape, dtype, chunks=(rows, *shape[1:]), fletcher32=True
            )
            checks = _Checks(rows, data.shape[0])
            for begin, part in parts:
                data[begin : begin + len(part)] = part
                checks.add(part)
            file.create_dataset(
                f"checks/{name}", data=checks.checksums(), fletcher32=True, chunks=True
            )

        yield write


def _crc(values: np.ndarray) -> np.uint32:
    return np.uint32(zlib.crc32(np.ascontiguousarray(values).data))


class _Checks:
    """CRC-32 of each chunk of a field, whose rows come in order: Fletcher's sums take 0000 for ffff."""

    def __init__(self, rows: int, whole: int) -> None:
        self._rows, self._left = rows, whole
        self._sums: list[int] = []
        self._sum, self._taken = 0, 0

    def add(self, part: np.ndarray) -> None:
        begin = 0
        while begin < len(part):
            end = min(len(part), begin + self._rows - self._taken)
            self._sum = zlib.crc32(np.ascontiguousarray(part[begin:end]).data, self._sum)
            self._taken += end - begin
            self._left -= end - begin
            begin = end
            if self._taken == self._rows or self._left == 0:
                self._sums.append(self._sum)
                self._sum, self._taken = 0, 0

    def checksums(self) -> np.ndarray:
        return np.array(self._sums, np.uint32)


class Checkpoint:
    """An opened checkpoint."""

    def __init__(
        self, path: Path, *, solver: str, shape: Shape, fields: Iterable[str], dtype: np.dtype
    ) -> None:
        import h5py

        self.path, self._shape = path, shape
        self._last: tuple[Any, Any] = (None, None)
        try:
            # What keeps the file from being opened at all is not its content.
            with path.open("rb") as opened:
                self._bytes = os.fstat(opened.fileno()).st_size
        except OSError as error:
            raise MachineError(
                f"it cannot be read ({error.strerror})",
                location=f"checkpoint {path}",
                remedy="check its permissions",
            ) from error
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise InputError(
                "it is cut short, damaged or not an HDF5 file",
                location=f"checkpoint {path}",
                remedy=DELETE_DAMAGED,
            ) from error
        try:
            self._examine(solver, shape, list(fields), np.dtype(dtype))
        except InputError:
            self._file.close()
            raise
        except (KeyError, OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            self._file.close()
            raise self._damaged() from error

    def _damaged(self) -> InputError:
        return InputError(
            "it is damaged or not a Haloscope checkpoint",
            location=f"checkpoint {self.path}",
            remedy=DELETE_DAMAGED,
        )

    def _examine(self, solver: str, shape: Shape, fields: list[str], dtype: np.dtype) -> None:
        attributes = self._file.attrs
        if attributes["format"] != _FORMAT or int(attributes["version"]) != _VERSION:
            raise self._damaged()
        stored_solver = attributes["solver"].decode()
        if stored_solver != solver:
            raise InputError(
                f"it is of the solver {stored_solver}, the case of {solver}",
                location=f"checkpoint {self.path}",
                remedy="restart with the case that wrote it",
            )
        saved = tuple(int(n) for n in attributes["nodes"])
        wanted = tuple(reversed(shape))
        if saved != wanted:
            raise InputError(
                f"it has {list(saved)} nodes, the case {list(wanted)}",
                location=f"checkpoint {self.path}",
                remedy="restart with the grid of the checkpoint",
            )
        self.step = int(attributes["step"])
        if self.step < 0:
            raise self._damaged()
        text = self._file["content"]
        if text.dtype != np.uint8 or text.size > _LARGEST_TEXT:
            raise self._damaged()
        self.content = json.loads(self._summed(text).tobytes())
        missing = [name for name in fields if name not in self._file["fields"]]
        if missing:
            raise InputError(
                f"it does not hold {', '.join(missing)}, which the case needs to continue",
                location=f"checkpoint {self.path}",
                remedy="restart with the case that wrote it",
            )
        for name in fields:
            data = self._file[f"fields/{name}"]
            if data.shape != shape:
                raise self._damaged()
            if data.dtype != dtype:
                raise InputError(
                    f"its fields are {data.dtype}, the case has {dtype} fields",
                    location=f"checkpoint {self.path}",
                    remedy="restart with the precision of the checkpoint",
                )

    def read(self, name: str, region: tuple[slice, ...]) -> np.ndarray:
        """Part of a field, as slices of its axes, slowest first."""
        try:
            data = self._file[f"fields/{name}"]
            if data.shape != self._shape or data.dtype.kind != "f":
                raise self._damaged()
            checks = self._file.get(f"checks/{name}")
            if checks is None:
                # Files of before 2026-11-26.
                values: np.ndarray = data[region]
                return values
            return self._checked(data, checks, region)
        except (OSError, RuntimeError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged() from error

    def _checked(self, data: Any, checks: Any, region: tuple[slice, ...]) -> np.ndarray:
        """Part of a field, of which each chunk that is met is what was written."""
        whole, rows = data.shape[0], data.chunks[0]
        begin, end, _ = region[0].indices(whole)
        first, last = begin // rows, -(-end // rows)
        if checks.shape != (-(-whole // rows),) or checks.dtype != np.uint32:
            raise self._damaged()
        sums = checks[first:last].tolist()
        rest = region[1:]
        shape = (
            max(0, end - begin),
            *(len(range(*s.indices(n))) for s, n in zip(rest, data.shape[1:], strict=True)),
        )
        values = np.empty(shape, data.dtype)
        for number, expected in enumerate(sums, first):
            low, high = number * rows, min(whole, (number + 1) * rows)
            chunk = self._last[1] if self._last[0] == (data.name, number) else data[low:high]
            if self._last[1] is not chunk:
                if zlib.crc32(np.ascontiguousarray(chunk).data) != expected:
                    raise self._damaged()
                # Who reads element by element comes to the same chunk again and again.
                self._last = (data.name, number), chunk
            to, of = max(low, begin), min(high, end)
            values[to - begin : of - begin] = chunk[(slice(to - low, of - low), *rest)]
        return values

    def extras(self) -> dict[str, np.ndarray]:
        """Arrays beside the fields, by name."""
        try:
            extras = self._file.get("extras", {})
            # They are stored as they are: what claims more than the file has is not read.
            if any(
                values.nbytes > self._bytes or values.dtype.kind not in _KINDS or not values.shape
                for values in extras.values()
            ):
                raise self._damaged()
            return {name: self._summed(values) for name, values in extras.items()}
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged() from error

    def _summed(self, data: Any) -> np.ndarray:
        """A whole array, which is what was written; files of before 2026-11-26 do not tell."""
        values: np.ndarray = data[...]
        if _SUM in data.attrs and int(data.attrs[_SUM]) != int(_crc(values)):
            raise self._damaged()
        return values

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
