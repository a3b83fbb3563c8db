"""Fields at the nodes of tetrahedra as VTKHDF unstructured grids, which ParaView and VTK open directly.

Elements share their nodes, so that a field is one value a node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.io.vtkhdf_file import COMPONENTS, VtkhdfFile

TETRA = 10
CORNERS = 4
COORDINATES, CONNECTIVITY = "Points", "Connectivity"
VALUE_TYPES = ("float32", "float64", "int32")

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
        if np.dtype(dtype).name not in VALUE_TYPES or components not in COMPONENTS:
            raise self._error(
                f"array {name!r} has the type {np.dtype(dtype)} and {components} components; "
                f"allowed are {', '.join(VALUE_TYPES)} and 1 or 3",
                "convert it",
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
                f"values of array {name!r} have the type {values.dtype}; the array has "
                f"{self._arrays[name].dtype}",
                "convert them",
            )
        self._fill(name, first, values)

    def _fill(self, name: str, first: int, values: NDArray[Any]) -> None:
        array = self._arrays[name]
        rows = len(array) // (CORNERS if name == CONNECTIVITY else 1)
        width = (CORNERS,) if name == CONNECTIVITY else array.shape[1:]
        end = first + len(values)
        if values.shape[1:] != width or not 0 <= first <= end <= rows:
            raise self._error(
                f"values of array {name!r} have the shape {values.shape} from row {first}; the "
                f"array has {(rows, *width)}",
                "give a range inside it",
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
                    f"array {name!r} was given {written} rows; there are {rows}",
                    "write every row once",
                )
