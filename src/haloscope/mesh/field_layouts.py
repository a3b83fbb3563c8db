"""Layouts of fields: where their values lie in space, on ranks and in files; gathering, restoring and writing."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.plan import rows_on_root
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import MeshCells

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Position = tuple[float, float, float]
Read = Callable[[tuple[slice, ...]], np.ndarray]
Values = Mapping[str, Callable[[], np.ndarray]]
Vectors = Mapping[str, Sequence[str]]
Range = tuple[int, int]

# Of a field on rank 0, and on a rank that reads its own values.
_SLAB_BYTES = 1 << 28
_PIECE_BYTES = 1 << 26
# Values of others between own ones that are read rather than left out.
_GAP_BYTES = 1 << 16
# Global numbers of single values that are made at once.
_NUMBERS_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class StructuredGrid:
    """Coordinates of the planes of a regular grid in m, and where a field's values are on it."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    z: NDArray[np.float64]
    # (n, 3): place (x, y, z) of each value; None where a field has the shape (z, y, x) itself.
    places: NDArray[np.int64] | None = None

    def points(self) -> NDArray[np.float64]:
        """Where the values are: (n, 3), or (nz, ny, nx, 3) of a field that fills the grid."""
        if self.places is not None:
            x, y, z = self.places.T
            return np.stack([self.x[x], self.y[y], self.z[z]], axis=-1)
        z, y, x = np.meshgrid(self.z, self.y, self.x, indexing="ij")
        return np.stack([x, y, z], axis=-1)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """A field as an array (nz, ny, nx); nan where the grid has no value."""
        if self.places is None:
            return values
        whole = np.full((len(self.z), len(self.y), len(self.x)), np.nan, values.dtype)
        x, y, z = self.places.T
        whole[z, y, x] = values
        return whole


class Piece(NamedTuple):
    """A piece of a field in a file."""

    place: Any  # Where it begins in the file, as the file's writer takes it
    rows: Range  # Of the slowest axis of the field


class FieldLayout(ABC):
    """Where the values of fields lie: in space, on ranks, in files. All ranks call each method together.

    `shape`: of a whole field, slowest axis first, as checkpoints hold it; `parts`: how it is shared
    out over ranks, for summaries.
    """

    # Axis of the components of a vector in a file.
    _component_axis = -1

    def __init__(self, world: World, shape: tuple[int, ...], parts: list[int]) -> None:
        self._world, self.shape, self.parts = world, shape, parts

    @abstractmethod
    def describe(self) -> str:
        """Text that describes the layout."""

    @abstractmethod
    def describe_parts(self) -> str:
        """How it is shared out, for people."""

    @abstractmethod
    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Part `begin` to `end` of a field's slowest axis on rank 0; None on other ranks."""

    def points(self) -> Floats | None:
        """Where the values of a whole field lie, (*shape, 3) in m, on rank 0."""
        grid = self.grid()
        return None if grid is None else grid.points()

    def grid(self) -> StructuredGrid | None:
        """The axes of values on a regular grid, on rank 0; None of meshes."""
        return None

    def cells(self) -> MeshCells | None:
        """Cells of a mesh as :meth:`write` writes them, on rank 0; None of regular grids."""
        return None

    @abstractmethod
    def own(self, read: Read) -> np.ndarray:
        """Own values of a field on this rank, which `read` gives by slices of its axes."""

    @abstractmethod
    def numbers(self) -> Iterator[NDArray[np.uint64]]:
        """Global numbers of own values in their order, as arrays one after the other."""

    @abstractmethod
    def describe_grid(self) -> str:
        """Properties of the grid without positions: an order, periodic axes."""

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], Floats]]:
        """Global numbers (k,) of own nodes, and their positions (k, 3), piece by piece.

        None where the description tells the positions.
        """
        return iter(())

    @abstractmethod
    def require_inside(self, location: str, position: Position) -> None:
        """Refuse a point outside; `location`, such as a key, begins the message."""

    def gathered(self, owned: np.ndarray) -> Iterator[tuple[int, np.ndarray | None]]:
        """A field in ranges of its slowest axis of about 256 MiB, gathered on rank 0.

        Yields where each begins and the values; None on other ranks, all of which must go through it.
        """
        for begin, end in self._slabs(owned.dtype):
            yield begin, self.collect(owned, begin, end)

    def _slabs(self, dtype: np.dtype[Any]) -> Iterator[Range]:
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * dtype.itemsize
        return ranges(self.shape[0], max(1, _SLAB_BYTES // row))

    def write(self, path: Path, values: Values, vectors: Vectors, time: float) -> None:
        """Write fields as VTKHDF, gathered on rank 0 piece by piece; some become vectors.

        `values`: what gives each field's own values; `time`: in s.
        """
        components = {name for group in vectors.values() for name in group}
        scalars = {name: (name,) for name in values if name not in components}
        with contextlib.ExitStack() as stack:
            writer = None
            if self._world.is_root:
                writer = stack.enter_context(self._open(path, time))
            self._write_places(writer)
            for array, names in {**scalars, **vectors}.items():
                owned = [values[name]() for name in names]
                vector = array not in scalars
                if writer is not None:
                    self._create(writer, array, owned[0].dtype, vector=vector)
                for piece in self._pieces(owned[0].dtype):
                    parts = [self.collect(own, *piece.rows) for own in owned]
                    part = self._side_by_side(parts) if vector else parts[0]
                    self._write_part(writer, array, piece, part)

    def _side_by_side(self, parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
        """Components of a vector along an axis of their own; 0 along z in a plane."""
        arrays = [part for part in parts if part is not None]
        if not arrays:
            return None
        arrays += [np.zeros_like(arrays[0])] * (3 - len(arrays))
        return np.stack(arrays, axis=self._component_axis)

    @abstractmethod
    def _open(self, path: Path, time: float) -> Any:
        """A writer of files, on rank 0."""

    @abstractmethod
    def _write_places(self, writer: Any | None) -> None:
        """Write what a file holds beside fields."""

    def _create(self, writer: Any, name: str, dtype: np.dtype[Any], *, vector: bool) -> None:
        writer.create(name, dtype, 3 if vector else 1)

    def _pieces(self, dtype: np.dtype[Any]) -> Iterator[Piece]:
        """Pieces of an array that are written at once, one after the other."""
        return (Piece(begin, (begin, end)) for begin, end in self._slabs(dtype))

    def _write_part(
        self, writer: Any | None, name: str, piece: Piece, part: np.ndarray | None
    ) -> None:
        """Write a piece of an array; `writer` and `part` are None on ranks other than 0."""
        if writer is not None:
            writer.write(name, piece.place, part)


class RowLayout(FieldLayout):
    """A layout of numbered rows, of which each rank has some in any order.

    `numbers`: int64 (own,), of the own rows among all `whole`; `row`: shape of a row; `count`: what a
    rank has, `noun`: the name of that in reports.
    """

    def __init__(
        self,
        world: World,
        numbers: Integers,
        whole: int,
        row: tuple[int, ...],
        count: int,
        noun: str,
    ) -> None:
        super().__init__(world, (whole, *row), [world.size])
        self._rows = numbers
        self._ascending = np.argsort(numbers, kind="stable")
        fewest, most = -int(world.largest(-count)), int(world.largest(count))
        self._parts_text = f"{world.size} parts of {fewest} to {most} {noun}"

    def describe_parts(self) -> str:
        """How it is shared out, for people."""
        return self._parts_text

    def _between(self, begin: int, end: int) -> Integers:
        """Own rows with numbers from `begin` to `end`, ascending."""
        cut = np.searchsorted(self._rows, (begin, end), sorter=self._ascending)
        return self._ascending[slice(*cut)]

    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Rows `begin` to `end` of a field on rank 0, from all ranks' own values."""
        rows = self._between(begin, end)
        return self._on_root(owned[rows], rows, begin, end)

    def _on_root(
        self, values: np.ndarray, rows: Integers, begin: int, end: int
    ) -> np.ndarray | None:
        """Values of all rows `begin` to `end` on rank 0, from those of own ones."""
        return rows_on_root(self._world, values, self._rows[rows], begin, end)

    def own(self, read: Read) -> np.ndarray:
        """Own values of a field on this rank, which `read` gives by slices of its axes."""
        numbers = self._rows[self._ascending]
        size = 8 * int(np.prod(self.shape[1:], dtype=np.int64))
        apart = np.diff(numbers) > 1 + _GAP_BYTES // size
        apart |= np.diff(numbers // max(1, _PIECE_BYTES // size)) > 0
        ends = np.append(np.flatnonzero(apart) + 1, len(numbers))
        result: np.ndarray | None = None
        begin = 0
        for end in ends.tolist() if len(numbers) else ():
            first = int(numbers[begin])
            every = (slice(None),) * (len(self.shape) - 1)
            part = read((slice(first, int(numbers[end - 1]) + 1), *every))
            if result is None:
                result = np.empty((len(numbers), *self.shape[1:]), part.dtype)
            result[self._ascending[begin:end]] = part[numbers[begin:end] - first]
            begin = end
        return np.empty((0, *self.shape[1:])) if result is None else result

    def numbers(self) -> Iterator[NDArray[np.uint64]]:
        """Global numbers of own values in their order: of single ones many at once, else of a row."""
        size = int(np.prod(self.shape[1:], dtype=np.int64))
        within = np.arange(size, dtype=np.uint64)
        for begin, end in ranges(len(self._rows), 1 if self.shape[1:] else _NUMBERS_AT_ONCE):
            first = self._rows[begin:end].astype(np.uint64) * np.uint64(size)
            yield (first[:, None] + within).reshape(-1)


def ranges(count: int, step: int) -> Iterator[Range]:
    """Ranges that cover 0 to `count`."""
    for begin in range(0, count, step):
        yield begin, min(begin + step, count)
