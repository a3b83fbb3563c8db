"""Arrays of a VTK data set, which need no VTK, and the PyVista grid that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import imported

TRIANGLE, TETRAHEDRON, VOXEL, HEXAHEDRON, LAGRANGE_HEXAHEDRON = 5, 10, 11, 12, 72
"""VTK's numbers of types of cells; triangles become a surface."""

Data: TypeAlias = Mapping[str, NDArray[Any]]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class ImageArrays:
    """A regular grid with values at its points."""

    shape: tuple[int, int, int]  # Points along z, y and x
    # Of x, y and z, in m.
    origin: tuple[float, float, float]
    spacing: tuple[float, float, float]
    # (points,) or (points, 3), x fastest.
    point_data: Data
    time: float | None = None


@dataclass(frozen=True)
class CellArrays:
    """Cells of one type with values at points and in cells."""

    points: NDArray[np.float64]  # (points, 3) in m
    connectivity: NDArray[np.int64]  # (cells, corners): points of a cell in the order of VTK
    cell_type: int
    point_data: Data = field(default_factory=dict)
    cell_data: Data = field(default_factory=dict)
    time: float | None = None


@dataclass(frozen=True)
class MeshCells:
    """Cells of a mesh, and how fields become values at their points."""

    arrays: CellArrays
    # From a whole scalar field to (points,).
    at_points: Callable[[NDArray[Any]], NDArray[Any]]


VtkArrays: TypeAlias = ImageArrays | CellArrays


def pyvista_grid(arrays: VtkArrays) -> Any:
    """A ``pyvista.ImageData``, ``UnstructuredGrid`` or, of triangles, ``PolyData`` of the arrays."""
    pyvista = imported("pyvista", "grid")
    if isinstance(arrays, ImageArrays):
        grid = pyvista.ImageData(
            dimensions=arrays.shape[::-1], origin=arrays.origin, spacing=arrays.spacing
        )
    else:
        cells, corners = arrays.connectivity.shape
        # PyVista wants the number of corners before those of each cell.
        listed = np.insert(arrays.connectivity, 0, corners, axis=1).ravel()
        if arrays.cell_type == TRIANGLE:
            grid = pyvista.PolyData(arrays.points, listed)
        else:
            types = np.full(cells, arrays.cell_type, np.uint8)
            grid = pyvista.UnstructuredGrid(listed, types, arrays.points)
        _fill(grid.cell_data, arrays.cell_data)
    _fill(grid.point_data, arrays.point_data)
    if arrays.time is not None:
        grid.field_data["TimeValue"] = np.array([arrays.time])
    return grid


def _fill(data: Any, arrays: Data) -> None:
    """Give a grid its arrays; PyVista refuses those of a surface without cells."""
    for name, values in arrays.items():
        if len(values):
            data[name] = values
