"""VTKHDF files for ParaView and VTK, complete or absent: images of regular grids, and cells of any one type."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_hdf5
from haloscope.io.vtk_arrays import TRIANGLE, Integers

# The readers of VTK take a file of one time step for one without time and then misread arrays with an
# axis for steps, so the time goes into the field data, as TimeValue.

FORMAT_VERSION = (2, 0)
POINTS, CONNECTIVITY = "Points", "Connectivity"
"""Arrays that a layout has from the start."""
POINT_DATA, CELL_DATA = "PointData", "CellData"
POINT_TYPES = ("float32", "float64")
CELL_TYPES = ("int32", "int64", *POINT_TYPES)
# The readers of VTK want the arrays of a single plane without the axis z, and cannot take a single
# point along x or y.
FEWEST_POINTS = (1, 2, 2)

_CHUNK = 1 << 14
_AT_ONCE = 1 << 20  # cells whose corners are listed at a time

Error = Callable[..., InputError]


@dataclass(frozen=True)
class Items:
    """Parts of an array that are written one or several at a time: planes, nodes, elements, bodies."""

    count: int
    shape: tuple[int, ...] = ()  # Of the values of one, without the components of vectors
    rows: int = 1  # Of the array in the file that one takes; a single value is repeated
    row: tuple[int, ...] = ()  # Shape of such a row


# A layout checks what readers cannot take, has the items of arrays at points and in cells, block by block,
# and writes all that is known before the first values; it returns items of arrays that are to be filled.


@dataclass(frozen=True)
class Image:
    """A regular grid; an item is a plane (y, x) across z."""

    shape: tuple[int, int, int]  # Points along z, y and x; one plane in z for two dimensions
    origin: Sequence[float]  # Position (x, y, z) of the first point, in m
    # Between points along x, y and z, in m; positive, also along an axis of one point.
    spacing: Sequence[float]

    data_set = "ImageData"

    def check(self, error: Error) -> None:
        """Refuse too few points, and numbers that are not finite."""
        if len(self.shape) != 3 or any(map(int.__lt__, self.shape, FEWEST_POINTS)):
            raise error(
                f"the shape is {self.shape}",
                "use one plane in z for a case in two dimensions",
                allowed=f"counts of points along z, y and x, at least {FEWEST_POINTS}",
            )
        if len(self.origin) != 3 or not all(map(math.isfinite, self.origin)):
            raise error(f"the origin is {self.origin}", allowed="three finite numbers x, y, z")
        if len(self.spacing) != 3 or not all(0.0 < value < math.inf for value in self.spacing):
            raise error(
                f"the spacing is {self.spacing}",
                "give any positive number along an axis of one point",
                allowed="three positive numbers x, y, z",
            )

    def items(self, group: str) -> Sequence[Items]:
        """Planes; a single one is stored without the axis z."""
        depth, height, width = self.shape
        plane = (height, width)
        return [Items(1, plane, height, (width,)) if depth == 1 else Items(depth, plane, row=plane)]

    def write(self, root: Any) -> dict[str, Sequence[Items]]:
        """Write extent, position and spacing."""
        ends = [[0, points - 1] for points in reversed(self.shape)]
        root.attrs["WholeExtent"] = np.array(ends, dtype=np.int64).ravel()
        root.attrs["Origin"] = np.array(self.origin, np.float64)
        root.attrs["Spacing"] = np.array(self.spacing, np.float64)
        root.attrs["Direction"] = np.eye(3).ravel()
        root.create_group(POINT_DATA)
        return {}


@dataclass(frozen=True)
class Mesh:
    """Cells that share their points, so that a field is one value a point; items are points or cells."""

    cell_type: int
    corners: int  # Of a cell
    points: int
    cells: int

    data_set = "UnstructuredGrid"

    def check(self, error: Error) -> None:
        """Refuse a mesh without cells."""
        if self.points < self.corners or self.cells < 1:
            raise error(f"{self.points} points and {self.cells} cells make no mesh", "give more")

    def items(self, group: str) -> Sequence[Items]:
        """Points, or cells."""
        return [Items(self.points if group == POINT_DATA else self.cells)]

    def write(self, root: Any) -> dict[str, Sequence[Items]]:
        """Write counts and types; points and connectivity are to be filled."""
        _write_cells(root, self.cell_type, self.points, self.cells, self.corners)
        connectivity = Items(self.cells, (self.corners,), self.corners)
        return {POINTS: self.items(POINT_DATA), CONNECTIVITY: [connectivity]}


@dataclass(frozen=True, eq=False)
class Block:
    """Elements, or closed surfaces, of one shape; each has points of its own."""

    count: int
    points: int  # Of one
    corners: NDArray[
        np.integer[Any]
    ]  # (cells, corners): points of its cells, counted from its first


@dataclass(frozen=True)
class Blocks:
    """Cells that share points within an item alone, so that fields may jump; items are those of blocks.

    The value of an item is repeated for each of its cells.
    """

    cell_type: int  # Triangles make a surface
    blocks: Sequence[Block]
    point_type: str = "float64"

    @property
    def data_set(self) -> str:
        """A surface, or a grid."""
        return "PolyData" if self.cell_type == TRIANGLE else "UnstructuredGrid"

    def check(self, error: Error) -> None:
        """Refuse corners that are no points, and a grid without cells."""
        for block in self.blocks:
            used = block.corners
            if used.size and not 0 <= used.min() <= used.max() < block.points:
                raise error(
                    f"a cell has the corner {used.max()} of {block.points} points",
                    "count them from 0",
                )
        if self.cell_type != TRIANGLE and not any(block.count > 0 for block in self.blocks):
            raise error("there are no elements", allowed="at least 1")

    def items(self, group: str) -> Sequence[Items]:
        """Elements or surfaces of each block."""
        if group == POINT_DATA:
            return [Items(block.count, (block.points,), block.points) for block in self.blocks]
        return [Items(block.count, (), len(block.corners)) for block in self.blocks]

    def connectivity(self) -> Iterator[Integers]:
        """Points (n, corners) of all cells, in portions."""
        first = 0
        for block in self.blocks:
            portion = max(1, _AT_ONCE // max(len(block.corners), 1))
            for begin in range(0, block.count, portion):
                items = np.arange(begin, min(begin + portion, block.count), dtype=np.int64)
                ids: Integers = first + items[:, None, None] * block.points + block.corners
                yield ids.reshape(-1, block.corners.shape[1])
            first += block.count * block.points

    def write(self, root: Any) -> dict[str, Sequence[Items]]:
        """Write counts, types and connectivity; points are to be filled."""
        points, cells = (_rows(self.items(group)) for group in (POINT_DATA, CELL_DATA))
        corners = max((block.corners.shape[1] for block in self.blocks), default=3)
        group = _write_cells(root, self.cell_type, points, cells, corners, self.point_type)
        begin = 0
        for ids in self.connectivity():
            group[CONNECTIVITY][begin : begin + ids.size] = ids.ravel()
            begin += ids.size
        return {POINTS: self.items(POINT_DATA)}


Layout: TypeAlias = Image | Mesh | Blocks


class VtkhdfWriter:
    """Writes arrays in ranges of items, so that none need be whole in memory.

    Used as a context manager: the file appears at its path when the ``with`` statement ends without
    an error and every array is complete. Items may come in any order, each once.
    """

    def __init__(self, path: str | Path, layout: Layout, time: float | None = None) -> None:
        # `time`: of the fields, in s; read back as the field data array ``TimeValue``.
        self.path, self.layout, self.time = Path(path), layout, time
        self._stack = contextlib.ExitStack()
        self._root: Any = None
        self._arrays: dict[str, _Array] = {}
        if self.path.suffix != ".vtkhdf":
            raise self._error(
                f"the file name ends in {self.path.suffix!r}",
                "use the ending by which readers know it",
                allowed="'.vtkhdf'",
            )
        if time is not None and not math.isfinite(time):
            raise self._error(f"the time is {time}", allowed="a finite number")
        layout.check(self._error)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(atomic_hdf5(self.path))
            root = self._root = file.create_group("VTKHDF")
            root.attrs["Version"] = np.array(FORMAT_VERSION, dtype=np.int64)
            root.attrs["Type"] = np.bytes_(self.layout.data_set)  # fixed-length ASCII
            for name, items in self.layout.write(root).items():
                data = root[name] if name in root else root["Polygons"][name]
                self._arrays[name] = _Array(data, items, data.shape[1:])
            if self.time is not None:
                root.create_group("FieldData")["TimeValue"] = np.array([self.time], np.float64)
            stack.push(self._check_complete)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def create(
        self, name: str, dtype: DTypeLike, components: int = 1, *, per_cell: bool = False
    ) -> None:
        """Add an array, to be filled by `write`.

        `dtype`: float32 or float64, in cells also int32 or int64; `components`: 1, or 3 for a
        vector (x, y, z) at points.
        """
        if name in self._arrays or not name or "/" in name or name == ".":
            raise self._error(
                f"array name {name!r} is taken, empty or holds '/'", "give a new name without '/'"
            )
        allowed = CELL_TYPES if per_cell else POINT_TYPES
        if np.dtype(dtype) not in [np.dtype(kind) for kind in allowed]:
            raise self._error(
                f"array {name!r} has the type {np.dtype(dtype)}",
                "convert it",
                allowed=f"{', '.join(allowed)} in the byte order of the machine",
            )
        if components not in ((1,) if per_cell else (1, 3)):
            raise self._error(
                f"array {name!r} has {components} components",
                "split it into scalars",
                allowed="1 and, at points, 3",
            )
        group = CELL_DATA if per_cell else POINT_DATA
        items = self.layout.items(group)
        shape = (_rows(items), *(items[0].row if items else ()))
        vector = () if components == 1 else (components,)
        repeated = any(one.rows > 1 and not one.shape for one in items)
        data = self._root[group].create_dataset(
            name, (*shape, *vector), np.dtype(dtype), **(_packed(shape[0]) if repeated else {})
        )
        self._arrays[name] = _Array(data, items, vector)

    def write(
        self, name: str, places: int | ArrayLike, values: NDArray[Any], block: int = 0
    ) -> None:
        """Write an array for items of a block: those from a number on, or those of some numbers.

        `values`: (n, ...), of the type given to `create`, with the components of a vector last.
        """
        array = self._arrays.get(name)
        if array is None:
            raise self._error(
                f"array {name!r} does not exist",
                "create it first",
                allowed=", ".join(self._arrays) or "none yet",
            )
        if values.dtype != array.data.dtype:
            raise self._error(
                f"values of array {name!r} have the type {values.dtype}",
                "convert them",
                allowed=str(array.data.dtype),
            )
        items, written = array.items[block], array.written[block]
        count = len(values) if values.ndim else 0
        runs = [(places, places + count)] if isinstance(places, int) else _runs(np.asarray(places))
        fits = all(0 <= begin < end <= items.count for begin, end in runs)
        if (
            values.shape[1:] != (*items.shape, *array.vector)
            or sum(end - begin for begin, end in runs) != count
            or not fits
        ):
            raise self._error(
                f"values of array {name!r} have the shape {values.shape} from place {places!r}",
                allowed=f"places inside the shape {(items.count, *items.shape, *array.vector)}",
            )
        if name == POINTS and not np.isfinite(values).all():
            raise self._error("a position is not finite", "find where the solution broke")
        first, done = _rows(array.items[:block]), 0
        for begin, end in runs:
            if written[begin:end].any():
                again = begin + int(written[begin:end].argmax())
                raise self._error(
                    f"place {again} of array {name!r} was written twice", "write every place once"
                )
            written[begin:end] = True
            part = values[done : done + end - begin]
            if items.rows > 1 and not items.shape:
                part = np.repeat(part, items.rows, axis=0)
            done += end - begin
            rows = slice(first + begin * items.rows, first + end * items.rows)
            array.data[rows] = part.reshape(-1, *array.data.shape[1:])

    def _check_complete(self, kind: type[BaseException] | None, *_: object) -> None:
        # The last thing before the file closes; an error of the body goes before this one.
        for name, array in self._arrays.items() if kind is None else ():
            done, count = (sum(map(total, array.written)) for total in (np.count_nonzero, len))
            if done != count:
                raise self._error(
                    f"array {name!r} has {done} places written; there are {count}",
                    "write every place once",
                )

    def _error(self, problem: str, remedy: str = "", *, allowed: str = "") -> InputError:
        return InputError(problem, location=str(self.path), allowed=allowed, remedy=remedy)


class _Array:
    """A dataset, and which of its items were written, by block."""

    def __init__(self, data: Any, items: Sequence[Items], vector: tuple[int, ...]) -> None:
        self.data, self.items, self.vector = data, items, vector
        self.written = [np.zeros(one.count, bool) for one in items]


def _rows(items: Sequence[Items]) -> int:
    return sum(one.count * one.rows for one in items)


def _runs(places: Integers) -> list[tuple[int, int]]:
    """Begins and ends of runs of places that follow on each other."""
    breaks = (np.flatnonzero(np.diff(places) != 1) + 1).tolist()
    ends = zip([0, *breaks], [*breaks, places.size], strict=True) if places.size else ()
    return [(int(places[begin]), int(places[end - 1]) + 1) for begin, end in ends]


def _packed(count: int) -> dict[str, Any]:
    """Options of a dataset of numbers that repeat or only count on: they compress to almost nothing."""
    if not count:
        return {}
    chunks = (min(count, _CHUNK),)
    return {"chunks": chunks, "shuffle": True, "compression": "gzip", "compression_opts": 1}


def _write_cells(
    root: Any, cell_type: int, points: int, cells: int, corners: int, point_type: str = "float64"
) -> Any:
    """Write all of cells but points and connectivity; returns the group that has the latter."""
    root["NumberOfPoints"] = np.array([points], dtype=np.int64)
    root.create_dataset(POINTS, (points, 3), dtype=point_type)
    for name in (POINT_DATA, CELL_DATA):
        root.create_group(name)
    group, empty = root, []
    if cell_type == TRIANGLE:
        empty = [root.create_group(name) for name in ("Vertices", "Lines", "Strips")]
        group = root.create_group("Polygons")
    else:
        root.create_dataset("Types", (cells,), np.uint8, fillvalue=cell_type, **_packed(cells))
    for one, count in (*((one, 0) for one in empty), (group, cells)):
        one["NumberOfCells"] = np.array([count], dtype=np.int64)
        one["NumberOfConnectivityIds"] = np.array([count * corners], dtype=np.int64)
        one.create_dataset(CONNECTIVITY, (count * corners,), np.int64, **_packed(count * corners))
        offsets = one.create_dataset("Offsets", (count + 1,), np.int64, **_packed(count + 1))
        for begin in range(0, count + 1, _AT_ONCE):
            end = min(begin + _AT_ONCE, count + 1)
            offsets[begin:end] = corners * np.arange(begin, end)
    return group
