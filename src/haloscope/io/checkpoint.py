"""Checkpoints: the whole state in global numbering, for any rank count and any device."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_hdf5

_FORMAT = b"haloscope-checkpoint"
# This version of the file format has checksums for all that is not data, and text of fixed
# length is not kept apart, where it would have none: HDF5 does not survive damage of that kind.
_LIBRARY_VERSION = "v110"
_VERSION = 1
# Fields are read in rows of a chunk; one holds about so much.
_CHUNK_BYTES = 1 << 18
_NAME = re.compile(r"checkpoint-(\d{10})\.h5")
_LARGEST_TEXT = 1 << 26

Shape = tuple[int, ...]


def checkpoint_path(folder: Path, step: int) -> Path:
    """Path of the checkpoint of a step."""
    return folder / f"checkpoint-{step:010d}.h5"


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a folder, oldest first."""
    return sorted(p for p in folder.glob("checkpoint-*.h5") if _NAME.fullmatch(p.name))


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

    Parameters
    ----------
    path
        The file; it appears when all is written, or not at all.
    solver
        Name of the solver.
    shape
        Of each field, slowest axis first.
    step
        Steps taken.
    content
        What else a restart needs, as JSON.
    extras
        Arrays that it needs beside the fields, each with a value at least.

    Raises
    ------
    MachineError
        The file cannot be written; what was there before is intact.
    """
    with atomic_hdf5(path, library_version=_LIBRARY_VERSION) as file:
        file.attrs["format"] = np.bytes_(_FORMAT)
        file.attrs["version"] = _VERSION
        file.attrs["solver"] = np.bytes_(solver.encode())
        file.attrs["nodes"] = tuple(reversed(shape))
        file.attrs["step"] = step
        text = np.frombuffer(json.dumps(content).encode(), np.uint8)
        file.create_dataset("content", data=text, fletcher32=True, chunks=text.shape)
        for name, values in (extras or {}).items():
            file.create_dataset(f"extras/{name}", data=values, chunks=True, fletcher32=True)
        row = int(np.prod(shape[1:], dtype=np.int64))

        def write(name: str, dtype: np.dtype, parts: Iterable[tuple[int, np.ndarray]]) -> None:
            # Checksums a chunk: a damaged file is noticed when it is read.
            rows = min(shape[0], max(1, _CHUNK_BYTES // (row * dtype.itemsize)))
            data = file.create_dataset(
                f"fields/{name}", shape, dtype, chunks=(rows, *shape[1:]), fletcher32=True
            )
            for begin, part in parts:
                data[begin : begin + len(part)] = part

        yield write


class Checkpoint:
    """An opened checkpoint.

    Parameters
    ----------
    path
        The file.
    solver
        The solver that wants it.
    shape
        Of the fields that it is wanted for, slowest axis first.
    fields
        Names of the fields that must be there.
    dtype
        Their type.

    Raises
    ------
    InputError
        The file is cut short or damaged, is no checkpoint, or one of another solver, grid or
        precision.
    """

    def __init__(
        self, path: Path, *, solver: str, shape: Shape, fields: Iterable[str], dtype: np.dtype
    ) -> None:
        import h5py

        self.path = path
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise InputError(
                f"checkpoint {path} cannot be read: it is cut short, damaged or no HDF5 file; "
                "delete it to restart from the one before it"
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
            f"checkpoint {self.path} is damaged or no Haloscope checkpoint; delete it to restart "
            "from the one before it"
        )

    def _examine(self, solver: str, shape: Shape, fields: list[str], dtype: np.dtype) -> None:
        attributes = self._file.attrs
        if attributes["format"] != _FORMAT or int(attributes["version"]) != _VERSION:
            raise self._damaged()
        found = attributes["solver"].decode()
        if found != solver:
            raise InputError(
                f"checkpoint {self.path} is of the solver {found}, the case of "
                f"{solver}; restart with the case that it was made from"
            )
        saved = tuple(int(n) for n in attributes["nodes"])
        wanted = tuple(reversed(shape))
        if saved != wanted:
            raise InputError(
                f"checkpoint {self.path} has {list(saved)} nodes, the case {list(wanted)}; "
                "restart with the grid that it was made on"
            )
        self.step = int(attributes["step"])
        text = self._file["content"]
        if text.dtype != np.uint8 or text.size > _LARGEST_TEXT:
            raise self._damaged()
        self.content = json.loads(text[...].tobytes())
        missing = [name for name in fields if name not in self._file["fields"]]
        if missing:
            raise InputError(
                f"checkpoint {self.path} holds no {', '.join(missing)}, which the case goes on from; "
                "restart with the case that it was made from"
            )
        for name in fields:
            data = self._file[f"fields/{name}"]
            if data.shape != shape:
                raise self._damaged()
            if data.dtype != dtype:
                raise InputError(
                    f"checkpoint {self.path} holds {data.dtype} fields, the case asks for "
                    f"{dtype}; restart with the precision that it was made in"
                )

    def has(self, name: str) -> bool:
        """Whether a field is in the file."""
        try:
            return f"fields/{name}" in self._file
        except RuntimeError as error:
            raise self._damaged() from error

    def read(self, name: str, region: tuple[slice, ...]) -> np.ndarray:
        """Part of a field, as slices of its axes, slowest first."""
        try:
            values: np.ndarray = self._file[f"fields/{name}"][region]
        except (OSError, RuntimeError, KeyError) as error:
            raise self._damaged() from error
        return values

    def extras(self) -> dict[str, np.ndarray]:
        """Arrays beside the fields, by name."""
        try:
            found = self._file.get("extras", {})
            return {name: values[...] for name, values in found.items()}
        except (OSError, RuntimeError, KeyError, TypeError) as error:
            raise self._damaged() from error

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
