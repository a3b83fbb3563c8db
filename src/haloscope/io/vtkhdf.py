"""Fields on a regular grid as VTKHDF image files, which ParaView and VTK open directly.

In memory an array has the axes (z, y, x) and, for a vector, a last axis of three components; a
case in two dimensions has one plane in z. Origin, spacing and extent are in the order x, y, z.

The readers of VTK want the arrays of a single plane without the axis z, and cannot take a single
point along x or y.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.io.vtkhdf_file import COMPONENTS, VtkhdfFile

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
                f"array {name!r} has the type {np.dtype(dtype)}; allowed are "
                f"{', '.join(VALUE_TYPES)} in the byte order of the machine",
                "convert it",
            )
        if components not in COMPONENTS:
            raise self._error(
                f"array {name!r} has {components} components; allowed are 1 and 3",
                "split it into scalars",
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
                f"array {name!r} does not exist; existing are {', '.join(self._written) or 'none'}",
                "create it first",
            )
        array = self._points[name]
        vector = array.shape[3 - self._dropped_axes :]
        if block.dtype != array.dtype:
            raise self._error(
                f"block of array {name!r} has the type {block.dtype}; the array has {array.dtype}",
                "convert the block",
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
                f"block of array {name!r} has the shape {block.shape} from {tuple(start)}; the "
                f"array has the shape {(*self.shape, *vector)}",
                "give a block inside the grid",
            )
        array[region[self._dropped_axes :]] = block[(0,) * self._dropped_axes]
        self._written[name] += math.prod(block.shape[:3])

    def _check(self) -> None:
        if len(self.shape) != 3 or any(
            points < fewest for points, fewest in zip(self.shape, FEWEST_POINTS, strict=True)
        ):
            raise self._error(
                f"the shape is {self.shape}; allowed are counts of points along z, y and x, at "
                f"least {FEWEST_POINTS}",
                "use one plane in z for a case in two dimensions",
            )
        if len(self.origin) != 3 or not all(math.isfinite(value) for value in self.origin):
            raise self._error(
                f"the origin is {self.origin}; allowed are three finite numbers", "give x, y, z"
            )
        if len(self.spacing) != 3 or not all(0.0 < value < math.inf for value in self.spacing):
            raise self._error(
                f"the spacing is {self.spacing}; allowed are three positive numbers",
                "give x, y, z, any positive number along an axis of one point",
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
                    f"array {name!r} was given {written} points; the grid has {total}",
                    "write every point once",
                )
