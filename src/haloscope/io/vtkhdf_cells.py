"""Fields on curved hexahedra as VTKHDF unstructured grids, which ParaView and VTK open directly.

An element becomes one Lagrange hexahedron of its order, or is cut into linear hexahedra for
programs that do not know that cell. Elements share no points, so that a field may jump between
them. VTK takes the nodes of a Lagrange cell to stand at equal distances in reference space: the
writer is told how to interpolate to its nodes and in which order the file lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.io.vtkhdf import COMPONENTS, VtkhdfFile

LAGRANGE_HEXAHEDRON = 72
HEXAHEDRON = 12
VALUE_TYPES = ("float32", "float64")
ELEMENT_TYPES = ("int32", "int64", *VALUE_TYPES)
COORDINATES = "Points"

# Corners of VTK's hexahedron, (i, j, k).
_CORNERS = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))
_CHUNK = 1 << 14

Values: TypeAlias = NDArray[np.floating[Any]] | NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class ElementCells:
    """Points and cells of the file that an element becomes.

    `interpolation`: (m, n): from the n solver nodes along a direction to the m nodes in the file;
    `node_order`: as of :class:`CellWriter`.
    """

    def __init__(self, interpolation: Floats, node_order: Integers | None) -> None:
        self.interpolation = interpolation
        self.nodes, self.nodes_in = interpolation.shape
        # What is already at the file's nodes stays as it is to the last bit.
        self._is_identity = np.array_equal(interpolation, np.eye(self.nodes_in))
        # int64 (m^3,): an element's nodes, i fastest, in the order in which the file lists them.
        self.listing: Integers = np.arange(self.nodes**3)
        if node_order is not None:
            self.listing = np.asarray(node_order, np.int64) @ self.nodes ** np.arange(3)
        self.cell_type = HEXAHEDRON if node_order is None else LAGRANGE_HEXAHEDRON
        # int64 (cells, corners): points of the cells of an element, counted from its own first.
        self.corners = self._connections(linear=node_order is None)

    def _connections(self, *, linear: bool) -> Integers:
        nodes = self.nodes
        if not linear:
            return np.arange(nodes**3)[None]
        k, j, i = np.indices((nodes - 1,) * 3).reshape(3, -1, 1)
        di, dj, dk = np.array(_CORNERS).T
        return np.asarray((i + di) + nodes * (j + dj) + nodes**2 * (k + dk))

    def connectivity(self, first: int, count: int) -> Integers:
        """Points (cells, corners) of the cells of `count` elements from number `first` on."""
        numbers = np.arange(first, first + count)
        ids: Integers = numbers[:, None, None] * self.nodes**3 + self.corners
        return ids.reshape(-1, self.corners.shape[1])

    def rows(self, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Rows (points, components) from values (count, components, n, n, n)."""
        if not self._is_identity:
            for axis in (2, 3, 4):
                moved = np.tensordot(values, self.interpolation, axes=(axis, 1))
                values = np.moveaxis(moved, -1, axis)
        count, components = values.shape[:2]
        listed = values.reshape(count, components, -1)[:, :, self.listing]
        return np.moveaxis(listed, 1, 2).reshape(-1, components).astype(dtype, copy=False)


class CellWriter(VtkhdfFile):
    """Writes elements and their fields in ranges, so that no array need be whole in memory.

    `node_order`: (m^3, 3): place (i, j, k) of each node of a Lagrange cell. None: each element is
    cut into (m - 1)^3 linear hexahedra.
    """

    # Used as a context manager: the file appears at its path when the ``with`` statement ends
    # without an error, every element was placed and every array is complete. Elements may come in
    # any order, and the number of one in the file is the user's choice.
    # `time`: time of the fields, in s; read back as the field data array ``TimeValue``.

    data_set = "UnstructuredGrid"

    def __init__(
        self,
        path: str | Path,
        *,
        elements: int,
        interpolation: Floats,
        node_order: Integers | None,
        time: float | None = None,
    ) -> None:
        super().__init__(path, time)
        self.elements = elements  # How many, at least 1
        # (m, n), both at least 2, as of :class:`ElementCells`.
        self.interpolation = np.asarray(interpolation, np.float64)
        self._check()
        self._cells = ElementCells(self.interpolation, node_order)
        self._check_listing()
        self._nodes, self._nodes_in = self.interpolation.shape
        self._corners = self._cells.corners
        self._root: Any = None
        self._arrays: dict[str, Any] = {}
        self._components: dict[str, int] = {}
        self._per_element: set[str] = set()
        self._written: dict[str, NDArray[np.bool_]] = {}

    def create(
        self, name: str, dtype: DTypeLike, components: int = 1, *, per_element: bool = False
    ) -> None:
        """Add an array, to be filled by `write`.

        `dtype`: float32 or float64; for an array per element also int32 or int64; `components`: 1
        for a scalar, 3 for a vector (x, y, z).
        """
        self._require_name(name, taken=name in self._arrays)
        allowed = ELEMENT_TYPES if per_element else VALUE_TYPES
        if np.dtype(dtype) not in [np.dtype(kind) for kind in allowed]:
            raise self._error(
                f"array {name!r} has the type {np.dtype(dtype)}",
                "convert it",
                allowed=f"{', '.join(allowed)} in the byte order of the machine",
            )
        if components not in COMPONENTS or (per_element and components != 1):
            raise self._error(
                f"array {name!r} has {components} components",
                "split it into scalars",
                allowed="1 and, at nodes, 3",
            )
        place = "CellData" if per_element else "PointData"
        rows = self.elements * (len(self._corners) if per_element else self._nodes**3)
        shape = (rows,) if components == 1 else (rows, components)
        self._add(name, self._root[place].create_dataset(name, shape, dtype=np.dtype(dtype)))
        self._components[name] = components
        if per_element:
            self._per_element.add(name)

    def place(self, first: int, coordinates: Floats) -> None:
        """Say where the nodes of a range of elements are.

        `first`: number in the file of the first of them, from 0; `coordinates`: float64 (count, n,
        n, n, 3) at the nodes given, indexed [element, k, j, i, xyz], in m.
        """
        if coordinates.dtype != np.float64 or not np.isfinite(coordinates).all():
            raise self._error(
                f"coordinates from element {first} on are {coordinates.dtype} or not finite",
                allowed="finite numbers as float64",
            )
        self._claim(COORDINATES, first, coordinates.shape, (*(self._nodes_in,) * 3, 3))
        rows = self._cells.rows(np.moveaxis(coordinates, -1, 1), np.dtype(np.float64))
        begin, count = first * self._nodes**3, len(rows)
        self._arrays[COORDINATES][begin : begin + count] = rows
        self._connect(first, len(coordinates))

    def write(self, name: str, first: int, values: Values) -> None:
        """Write an array for a range of elements.

        The ranges of an array cover the elements, each once.
        """
        # `values`: at the nodes given, of the type given to `create`: (count, n, n, n), indexed
        # [element, k, j, i], or (count, 3, n, n, n) for a vector; (count,) per element.
        if name not in self._components:
            raise self._error(
                f"array {name!r} does not exist",
                "create it first",
                allowed=", ".join(self._components) or "none yet",
            )
        array = self._arrays[name]
        if values.dtype != array.dtype:
            raise self._error(
                f"values of array {name!r} have the type {values.dtype}",
                "convert them",
                allowed=str(array.dtype),
            )
        if name in self._per_element:
            self._claim(name, first, values.shape, ())
            rows = np.repeat(values, len(self._corners))
            begin = first * len(self._corners)
        else:
            vector = () if self._components[name] == 1 else (3,)
            self._claim(name, first, values.shape, (*vector, *(self._nodes_in,) * 3))
            rows = self._cells.rows(values if vector else values[:, None], array.dtype)
            rows = rows if vector else rows[:, 0]
            begin = first * self._nodes**3
        array[begin : begin + len(rows)] = rows

    def _check(self) -> None:
        if self.elements < 1:
            raise self._error(f"there are {self.elements} elements", allowed="at least 1")
        shape = self.interpolation.shape
        if len(shape) != 2 or min(shape) < 2:
            raise self._error(f"the interpolation has the shape {shape}", allowed="at least 2 x 2")

    def _check_listing(self) -> None:
        nodes = self._cells.nodes
        if not np.array_equal(np.sort(self._cells.listing), np.arange(nodes**3)):
            raise self._error(
                f"the order of nodes is not one of {nodes} x {nodes} x {nodes} nodes",
                "give each node once",
            )

    def _write_layout(self, root: Any) -> None:
        cells = self.elements * len(self._corners)
        points = self.elements * self._nodes**3
        self._root = root
        counts = {"Points": points, "Cells": cells, "ConnectivityIds": cells * self._ids}
        for name, count in counts.items():
            root[f"NumberOf{name}"] = np.array([count], dtype=np.int64)
        self._add(COORDINATES, root.create_dataset(COORDINATES, (points, 3), dtype=np.float64))
        # Numbers that repeat or only count on compress to almost nothing.
        for name, count, dtype, fill in (
            ("Connectivity", cells * self._ids, np.int64, 0),
            ("Offsets", cells + 1, np.int64, 0),
            ("Types", cells, np.uint8, self._cells.cell_type),
        ):
            root.create_dataset(
                name,
                (count,),
                dtype=dtype,
                fillvalue=fill,
                chunks=(min(count, _CHUNK),),
                shuffle=True,
                compression="gzip",
                compression_opts=1,
            )
        root.create_group("PointData")
        root.create_group("CellData")

    @property
    def _ids(self) -> int:
        """Points of a cell."""
        return int(self._corners.shape[1])

    def _add(self, name: str, array: Any) -> None:
        self._arrays[name] = array
        self._written[name] = np.zeros(self.elements, bool)

    def _connect(self, first: int, count: int) -> None:
        """Write the cells of a range of elements."""
        ids = self._cells.connectivity(first, count)
        begin = first * self._corners.size
        self._root["Connectivity"][begin : begin + ids.size] = ids.ravel()
        cells = len(self._corners)
        begin, end = first * cells, (first + count) * cells
        # The first 0 is there as the fill value.
        self._root["Offsets"][begin + 1 : end + 1] = np.arange(begin + 1, end + 1) * self._ids

    def _claim(
        self, name: str, first: int, shape: Sequence[int], element_shape: Sequence[int]
    ) -> None:
        """Note that a range of elements is written; refuse one that does not fit."""
        end = first + (shape[0] if shape else 0)
        if tuple(shape[1:]) != tuple(element_shape) or not 0 <= first < end <= self.elements:
            raise self._error(
                f"values of array {name!r} have the shape {tuple(shape)} from element {first}",
                allowed=f"a range of elements inside the shape {(self.elements, *element_shape)} of the array",
            )
        if self._written[name][first:end].any():
            again = first + int(self._written[name][first:end].argmax())
            raise self._error(
                f"element {again} of array {name!r} was written twice", "write every element once"
            )
        self._written[name][first:end] = True

    def _require_complete(self) -> None:
        for name, written in self._written.items():
            if not written.all():
                raise self._error(
                    f"array {name!r} has {int(written.sum())} elements written; there are {self.elements}",
                    "write every element once",
                )
