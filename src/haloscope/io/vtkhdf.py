"""VTKHDF files for ParaView and VTK: complete or absent; images of regular grids, and unstructured tetrahedra."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_hdf5

# The readers of VTK take a file of one time step for one without time and then misread arrays with an
# axis for steps, so the time goes into the field data, as TimeValue.

FORMAT_VERSION = (2, 0)
COMPONENTS = (1, 3)
"""Of an array's values: a scalar, or a vector along x, y and z."""


class VtkhdfFile(ABC):
    """Context manager of a file that is written to another name and then put in its place."""

    data_set: ClassVar[str]
    """What VTK calls what is in the file."""

    def __init__(self, path: str | Path, time: float | None) -> None:
        # Of the fields, in s; read back as the field data array ``TimeValue``.
        self.path, self.time = Path(path), time
        self._stack = contextlib.ExitStack()
        if self.path.suffix != ".vtkhdf":
            raise self._error(
                f"the file name ends in {self.path.suffix!r}",
                "use the ending by which readers know it",
                allowed="'.vtkhdf'",
            )
        if time is not None and not math.isfinite(time):
            raise self._error(f"the time is {time}", allowed="a finite number")

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(atomic_hdf5(self.path))
            root = file.create_group("VTKHDF")
            root.attrs["Version"] = np.array(FORMAT_VERSION, dtype=np.int64)
            root.attrs["Type"] = np.bytes_(self.data_set)  # numpy bytes become fixed-length ASCII
            self._write_layout(root)
            if self.time is not None:
                times = np.array([self.time], dtype=np.float64)
                root.create_group("FieldData")["TimeValue"] = times
            stack.push(self._check_complete)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _check_complete(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        # The last thing before the file closes; an error of the body goes before this one.
        if kind is None:
            self._require_complete()

    def _require_name(self, name: str, *, taken: bool) -> None:
        """Refuse names of arrays that the file cannot have."""
        if taken or not name or "/" in name or name == ".":
            raise self._error(
                f"array name {name!r} is taken, empty or holds '/'", "give a new name without '/'"
            )

    def _error(self, problem: str, remedy: str = "", *, allowed: str = "") -> InputError:
        return InputError(problem, location=str(self.path), allowed=allowed, remedy=remedy)

    @abstractmethod
    def _write_layout(self, root: Any) -> None:
        """Write into the group VTKHDF what is known before the first values."""

    @abstractmethod
    def _require_complete(self) -> None:
        """Raise where values are missing."""


# In memory an array has the axes (z, y, x) and, for a vector, a last axis of three components; a
# case in two dimensions has one plane in z. Origin, spacing and extent are in the order x, y, z.
#
# The readers of VTK want the arrays of a single plane without the axis z, and cannot take a single
# point along x or y.

VALUE_TYPES = ("float32", "float64")
FEWEST_POINTS = (1, 2, 2)

FieldArray: TypeAlias = NDArray[np.float32] | NDArray[np.float64]


class ImageWriter(VtkhdfFile):
    """Writes point arrays block by block, so that no array need be whole in memory.

    Used as a context manager: the file appears at its path when the ``with`` statement ends without
    an error and every array is complete. Blocks that are whole in x and y are written fastest.
    """

    # `time`: time of the fields, in s; read back as the field data array ``TimeValue``.

    data_set = "ImageData"

    def __init__(
        self,
        path: str | Path,
        *,
        shape: tuple[int, int, int],
        origin: Sequence[float],
        spacing: Sequence[float],
        time: float | None = None,
    ) -> None:
        super().__init__(path, time)
        self.shape = shape  # Points along z, y and x: at least 1, 2 and 2
        # Position (x, y, z) of the first point, in m.
        self.origin = tuple(float(position) for position in origin)
        # Distance between points along x, y and z, in m; positive, also along an axis of one point.
        self.spacing = tuple(float(distance) for distance in spacing)
        self._check()
        self._dropped_axes = 0 if shape[0] > 1 else 1
        self._points: Any = None
        self._written: dict[str, int] = {}

    def create(self, name: str, dtype: DTypeLike, components: int = 1) -> None:
        """Add a point array, to be filled by `write`.

        `dtype`: float32 or float64; `components`: 1 for a scalar, 3 for a vector (x, y, z).
        """
        self._require_name(name, taken=name in self._written)
        if np.dtype(dtype) not in [np.dtype(allowed) for allowed in VALUE_TYPES]:
            raise self._error(
                f"array {name!r} has the type {np.dtype(dtype)}",
                "convert it",
                allowed=f"{', '.join(VALUE_TYPES)} in the byte order of the machine",
            )
        if components not in COMPONENTS:
            raise self._error(
                f"array {name!r} has {components} components",
                "split it into scalars",
                allowed="1 or 3",
            )
        vector = () if components == 1 else (components,)
        stored = (*self.shape[self._dropped_axes :], *vector)
        self._points.create_dataset(name, stored, dtype=np.dtype(dtype))
        self._written[name] = 0

    def write(self, name: str, start: tuple[int, int, int], block: FieldArray) -> None:
        """Write one block of a point array.

        The blocks of an array cover the grid, each point once.
        `start`: index (z, y, x) in the grid of the first point of the block.
        """
        # `block`: (z, y, x) or (z, y, x, 3), of the type given to `create`.
        if name not in self._written:
            raise self._error(
                f"array {name!r} does not exist",
                "create it first",
                allowed=", ".join(self._written) or "none yet",
            )
        array = self._points[name]
        vector = array.shape[3 - self._dropped_axes :]
        if block.dtype != array.dtype:
            raise self._error(
                f"block of array {name!r} has the type {block.dtype}",
                "convert the block",
                allowed=str(array.dtype),
            )
        region = tuple(
            slice(first, first + count)
            for first, count in zip(start, block.shape[:3], strict=False)
        )
        fits = len(region) == 3 and len(start) == 3 and block.shape[3:] == vector
        if not fits or not all(
            0 <= axis.start < axis.stop <= points
            for axis, points in zip(region, self.shape, strict=True)
        ):
            raise self._error(
                f"block of array {name!r} has the shape {block.shape} from {tuple(start)}",
                allowed=f"blocks inside the shape {(*self.shape, *vector)} of the array",
            )
        array[region[self._dropped_axes :]] = block[(0,) * self._dropped_axes]
        self._written[name] += math.prod(block.shape[:3])

    def _check(self) -> None:
        if len(self.shape) != 3 or any(
            points < fewest for points, fewest in zip(self.shape, FEWEST_POINTS, strict=True)
        ):
            raise self._error(
                f"the shape is {self.shape}",
                "use one plane in z for a case in two dimensions",
                allowed=f"counts of points along z, y and x, at least {FEWEST_POINTS}",
            )
        if len(self.origin) != 3 or not all(math.isfinite(value) for value in self.origin):
            raise self._error(
                f"the origin is {self.origin}", allowed="three finite numbers x, y, z"
            )
        if len(self.spacing) != 3 or not all(0.0 < value < math.inf for value in self.spacing):
            raise self._error(
                f"the spacing is {self.spacing}",
                "give any positive number along an axis of one point",
                allowed="three positive numbers x, y, z",
            )

    def _write_layout(self, root: Any) -> None:
        depth, height, width = self.shape
        root.attrs["WholeExtent"] = np.array(
            [0, width - 1, 0, height - 1, 0, depth - 1], dtype=np.int64
        )
        root.attrs["Origin"] = np.array(self.origin)
        root.attrs["Spacing"] = np.array(self.spacing)
        root.attrs["Direction"] = np.eye(3).ravel()
        self._points = root.create_group("PointData")

    def _require_complete(self) -> None:
        total = math.prod(self.shape)
        for name, written in self._written.items():
            if written != total:
                raise self._error(
                    f"array {name!r} has {written} points written; the grid has {total}",
                    "write every point once",
                )


# Elements share their nodes, so that a field is one value a node.

TETRA = 10
CORNERS = 4
COORDINATES, CONNECTIVITY = "Points", "Connectivity"
TET_VALUE_TYPES = ("float32", "float64", "int32")

_CHUNK = 1 << 14


class TetWriter(VtkhdfFile):
    """Writes nodes, elements and fields in ranges, so that no array need be whole in memory.

    Used as a context manager: the file appears at its path when the ``with`` statement ends without
    an error and every array is complete. Ranges may come in any order.
    """

    # `time`: time of the fields, in s; read back as the field data array ``TimeValue``.

    data_set = "UnstructuredGrid"

    def __init__(
        self, path: str | Path, *, nodes: int, elements: int, time: float | None = None
    ) -> None:
        super().__init__(path, time)
        # How many, at least 4 and 1.
        self.nodes, self.elements = nodes, elements
        if nodes < CORNERS or elements < 1:
            raise self._error(f"{nodes} nodes and {elements} elements make no mesh", "give more")
        self._root: Any = None
        self._arrays: dict[str, Any] = {}
        self._written: dict[str, int] = {}

    def create(
        self, name: str, dtype: DTypeLike, components: int = 1, *, per_element: bool = False
    ) -> None:
        """Add an array, to be filled by `write`.

        `dtype`: float32, float64 or int32; `components`: 1 for a scalar, 3 for a vector (x, y, z).
        """
        self._require_name(name, taken=name in self._arrays)
        if np.dtype(dtype).name not in TET_VALUE_TYPES or components not in COMPONENTS:
            raise self._error(
                f"array {name!r} has the type {np.dtype(dtype)} and {components} components",
                "convert it",
                allowed=f"{', '.join(TET_VALUE_TYPES)} and 1 or 3",
            )
        rows = self.elements if per_element else self.nodes
        shape = (rows,) if components == 1 else (rows, components)
        group = self._root["CellData" if per_element else "PointData"]
        self._add(name, group.create_dataset(name, shape, dtype=np.dtype(dtype)))

    def place(self, first: int, positions: NDArray[np.float64]) -> None:
        """Say where nodes from number `first` on are: (n, 3) in m."""
        self._fill(COORDINATES, first, positions)

    def connect(self, first: int, nodes: NDArray[np.integer[Any]]) -> None:
        """Say which nodes the elements from number `first` on have: (n, 4), from 0."""
        self._fill(CONNECTIVITY, first, np.asarray(nodes, np.int64))

    def write(self, name: str, first: int, values: NDArray[Any]) -> None:
        """Write an array from row `first` on: (n,), or (n, 3) for vectors."""
        if name not in self._arrays or name in (COORDINATES, CONNECTIVITY):
            raise self._error(f"array {name!r} does not exist", "create it first")
        if values.dtype != self._arrays[name].dtype:
            raise self._error(
                f"values of array {name!r} have the type {values.dtype}",
                "convert them",
                allowed=str(self._arrays[name].dtype),
            )
        self._fill(name, first, values)

    def _fill(self, name: str, first: int, values: NDArray[Any]) -> None:
        array = self._arrays[name]
        rows = len(array) // (CORNERS if name == CONNECTIVITY else 1)
        width = (CORNERS,) if name == CONNECTIVITY else array.shape[1:]
        end = first + len(values)
        if values.shape[1:] != width or not 0 <= first <= end <= rows:
            raise self._error(
                f"values of array {name!r} have the shape {values.shape} from row {first}",
                allowed=f"a range inside the shape {(rows, *width)} of the array",
            )
        if name == CONNECTIVITY:
            array[CORNERS * first : CORNERS * end] = values.ravel()
        else:
            array[first:end] = values
        self._written[name] += len(values)

    def _add(self, name: str, array: Any) -> None:
        self._arrays[name], self._written[name] = array, 0

    def _write_layout(self, root: Any) -> None:
        self._root = root
        ids = CORNERS * self.elements
        for quantity, count in (("Points", self.nodes), ("Cells", self.elements)):
            root[f"NumberOf{quantity}"] = np.array([count], dtype=np.int64)
        root["NumberOfConnectivityIds"] = np.array([ids], dtype=np.int64)
        self._add(COORDINATES, root.create_dataset(COORDINATES, (self.nodes, 3), dtype=np.float64))
        packed = {"shuffle": True, "compression": "gzip", "compression_opts": 1}
        self._add(
            CONNECTIVITY,
            root.create_dataset(
                CONNECTIVITY, (ids,), dtype=np.int64, chunks=(min(ids, _CHUNK),), **packed
            ),
        )
        offsets = np.arange(0, ids + 1, CORNERS, dtype=np.int64)
        types = np.full(self.elements, TETRA, np.uint8)
        for name, values in (("Offsets", offsets), ("Types", types)):
            root.create_dataset(name, data=values, chunks=(min(len(values), _CHUNK),), **packed)
        root.create_group("PointData")
        root.create_group("CellData")

    def _require_complete(self) -> None:
        for name, written in self._written.items():
            rows = len(self._arrays[name]) // (CORNERS if name == CONNECTIVITY else 1)
            if written != rows:
                raise self._error(
                    f"array {name!r} has {written} rows written; there are {rows}",
                    "write every row once",
                )
