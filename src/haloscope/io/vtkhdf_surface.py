"""Many closed surfaces of triangles as VTKHDF poly data, which ParaView and VTK open directly.

Bodies of one kind share the triangulation and differ in where their vertices are, as cells in a
flow do. Values at vertices are point data; values of a whole body are cell data, repeated for
each of its triangles, so that bodies can be chosen and coloured by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.io.vtkhdf import COMPONENTS, VtkhdfFile

COORDINATES = "Points"
POINT_TYPE = np.dtype(np.float32)
BODY_TYPES = ("int32", "int64", "float32", "float64")

_CHUNK = 1 << 14
# Triangles whose corners are listed at a time.
_LISTED = 1 << 20

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BodyKind:
    """Bodies with one triangulation."""

    # (E, 3) vertices of each triangle of a body, counter-clockwise seen from outside.
    triangles: NDArray[np.integer[Any]]
    vertices: int  # Of a body
    count: int  # Bodies; may be 0


class SurfaceWriter(VtkhdfFile):
    """Writes bodies in portions, so that no array need be whole in memory.

    `point_arrays`: names of the arrays at vertices and their components, 1 or 3; stored as float32;
    `time`: time of the state, in s; read back as the field data array ``TimeValue``.
    """

    # Used as a context manager: the file appears at its path when the ``with`` statement ends
    # without an error and every body was given. Bodies may come in any order; their places in the
    # file are the user's choice.
    # `body_arrays`: names of the arrays with one value a body, and their types: int32, int64,
    # float32 or float64.

    data_set = "PolyData"

    def __init__(
        self,
        path: str | Path,
        *,
        kinds: Sequence[BodyKind],
        point_arrays: Mapping[str, int],
        body_arrays: Mapping[str, str],
        time: float | None = None,
    ) -> None:
        super().__init__(path, time)
        self.kinds = tuple(kinds)
        self._point_arrays, self._body_arrays = dict(point_arrays), dict(body_arrays)
        self._check()
        points = [kind.count * kind.vertices for kind in kinds]
        triangles = [kind.count * len(kind.triangles) for kind in kinds]
        self._first_points = np.concatenate([[0], np.cumsum(points)]).tolist()
        self._first_triangles = np.concatenate([[0], np.cumsum(triangles)]).tolist()
        self._written = [np.zeros(kind.count, bool) for kind in kinds]
        self._root: Any = None

    def put(
        self,
        kind: int,
        places: ArrayLike,
        positions: NDArray[np.floating[Any]],
        point_values: Mapping[str, NDArray[np.floating[Any]]],
        body_values: Mapping[str, NDArray[Any]],
    ) -> None:
        """Write some bodies of a kind, with all their arrays.

        `places`: (n,) numbers of the bodies among those of the kind, from 0, ascending;
        `positions`: (n, vertices, 3), in m; `point_values`: each (n, vertices) or (n, vertices, 3).
        """
        # `body_values`: each (n,).
        fields = self.kinds[kind]
        at = np.asarray(places, np.int64)
        self._claim(kind, at)
        points = {
            COORDINATES: (positions, 3),
            **{f"PointData/{n}": (point_values.get(n), c) for n, c in self._point_arrays.items()},
        }
        for name, (values, components) in points.items():
            vector = () if components == 1 else (components,)
            self._require_shape(name, values, (len(at), fields.vertices, *vector))
        if not np.isfinite(positions).all():
            raise self._error("a position is not finite", "find where the solution broke")
        for name in self._body_arrays:
            self._require_shape(name, body_values.get(name), (len(at),))
        for begin, end in _runs(at):
            for name, (values, _) in points.items():
                assert values is not None
                rows = values[begin:end].astype(POINT_TYPE).reshape(-1, *values.shape[2:])
                first = self._first_points[kind] + int(at[begin]) * fields.vertices
                self._root[name][first : first + len(rows)] = rows
            for name, dtype in self._body_arrays.items():
                repeated = np.repeat(body_values[name][begin:end], len(fields.triangles))
                first = self._first_triangles[kind] + int(at[begin]) * len(fields.triangles)
                self._root[f"CellData/{name}"][first : first + len(repeated)] = repeated.astype(
                    dtype
                )

    def _check(self) -> None:
        names = [*self._point_arrays, *self._body_arrays]
        for name in names:
            self._require_name(name, taken=names.count(name) > 1)
        for name, components in self._point_arrays.items():
            if components not in COMPONENTS:
                raise self._error(
                    f"array {name!r} has {components} components",
                    "split it into scalars",
                    allowed="1 or 3",
                )
        for name, dtype in self._body_arrays.items():
            if dtype not in BODY_TYPES:
                raise self._error(
                    f"array {name!r} has the type {dtype}",
                    "convert it",
                    allowed=", ".join(BODY_TYPES),
                )
        for kind in self.kinds:
            used = kind.triangles
            if used.size and not 0 <= used.min() <= used.max() < kind.vertices:
                raise self._error(
                    f"a triangle has the corner {used.max()} of {kind.vertices} vertices",
                    "count them from 0",
                )

    def _write_layout(self, root: Any) -> None:
        self._root = root
        points, triangles = self._first_points[-1], self._first_triangles[-1]
        root["NumberOfPoints"] = np.array([points], dtype=np.int64)
        root.create_dataset(COORDINATES, (points, 3), dtype=POINT_TYPE)
        for name in ("Vertices", "Lines", "Strips", "Polygons"):
            group, count = root.create_group(name), triangles if name == "Polygons" else 0
            group["NumberOfCells"] = np.array([count], dtype=np.int64)
            group["NumberOfConnectivityIds"] = np.array([3 * count], dtype=np.int64)
            _create_small(group, "Offsets", count + 1, "int64")
            _create_small(group, "Connectivity", 3 * count, "int64")
        self._connect(root["Polygons"])
        group = root.create_group("PointData")
        for name, components in self._point_arrays.items():
            shape = (points,) if components == 1 else (points, components)
            group.create_dataset(name, shape, dtype=POINT_TYPE)
        group = root.create_group("CellData")
        for name, dtype in self._body_arrays.items():
            _create_small(group, name, triangles, dtype)

    def _connect(self, group: Any) -> None:
        """Write the corners of all triangles."""
        for number, kind in enumerate(self.kinds):
            triangles = len(kind.triangles)
            portion = max(1, _LISTED // max(triangles, 1))
            for first in range(0, kind.count, portion):
                bodies = np.arange(first, min(first + portion, kind.count), dtype=np.int64)
                corners = kind.triangles + (
                    self._first_points[number] + bodies[:, None, None] * kind.vertices
                )
                begin = self._first_triangles[number] + first * triangles
                end = begin + len(bodies) * triangles
                group["Connectivity"][3 * begin : 3 * end] = corners.ravel()
                # The first 0 is there as the fill value.
                group["Offsets"][begin + 1 : end + 1] = 3 * np.arange(begin + 1, end + 1)

    def _claim(self, kind: int, at: Integers) -> None:
        count = self.kinds[kind].count
        if at.size and not (at[0] >= 0 and at[-1] < count and (np.diff(at) > 0).all()):
            raise self._error(
                f"bodies {at[0]} to {at[-1]} of kind {kind} do not fit",
                "number each body by its place",
                allowed=f"{count} bodies in ascending order",
            )
        if self._written[kind][at].any():
            raise self._error(f"a body of kind {kind} was written twice", "write every body once")
        self._written[kind][at] = True

    def _require_shape(
        self, name: str, values: NDArray[Any] | None, shape: tuple[int, ...]
    ) -> None:
        actual_shape = None if values is None else values.shape
        if actual_shape != shape:
            raise self._error(
                f"array {name!r} has the shape {actual_shape}",
                allowed=f"{shape}, one value for each body",
            )

    def _require_complete(self) -> None:
        for number, written in enumerate(self._written):
            if not written.all():
                raise self._error(
                    f"{int(written.sum())} bodies of kind {number} were written; there are {len(written)}",
                    "write every body once",
                )


def _create_small(group: Any, name: str, count: int, dtype: str) -> None:
    """Make a dataset of numbers that repeat or only count on: they compress to almost nothing."""
    chunked = {
        "chunks": (min(count, _CHUNK),),
        "shuffle": True,
        "compression": "gzip",
        "compression_opts": 1,
    }
    group.create_dataset(name, (count,), dtype=dtype, **(chunked if count else {}))


def _runs(at: Integers) -> list[tuple[int, int]]:
    """Begins and ends of runs of places that follow on each other."""
    if not at.size:
        return []
    breaks = (np.flatnonzero(np.diff(at) != 1) + 1).tolist()
    return list(zip([0, *breaks], [*breaks, at.size], strict=True))
