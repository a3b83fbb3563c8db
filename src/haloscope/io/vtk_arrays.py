"""Arrays of a VTK data set, which need no VTK, and the PyVista grid that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, imported

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


Floats = NDArray[np.float64]
Kept = TypeVar("Kept")

_IMAGE, _MESH, _SURFACE = "ImageData", "UnstructuredGrid", "PolyData"


class FieldFile(Mapping[str, NDArray[Any]]):
    """Arrays of a VTKHDF file by name, each read when it is asked for.

    An array of an image has the shape (nz, ny, nx), any other (n,); vectors, such as `velocity`,
    have a last axis of three components.

    Parameters
    ----------
    path
        The file.

    Attributes
    ----------
    time
        Of the state, in s; the step where steps have no physical time; None where it is not
        stored.

    Raises
    ------
    InputError
        It is no such file, or is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.time, self._kind, self._at_cells = self._read(_contents)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._at_cells:
            raise KeyError(name)
        group = "CellData" if self._at_cells[name] else "PointData"

        def stored(root: Any) -> NDArray[Any]:
            values: NDArray[Any] = root[group][name][...]
            if self._kind != _IMAGE:
                return values
            # A single plane is stored without the axis z.
            vector = values.shape[-1:] if values.ndim > len(_extent(root, drop=True)) else ()
            return values.reshape(*_extent(root), *vector)

        return self._read(stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._at_cells)

    def __len__(self) -> int:
        return len(self._at_cells)

    def __repr__(self) -> str:
        return f"<{self.path.name}: {', '.join(self) or 'no arrays'}; time {self.time}>"

    @property
    def is_image(self) -> bool:
        """Whether the values are on a regular grid, (nz, ny, nx)."""
        return self._kind == _IMAGE

    def points(self, name: str | None = None) -> Floats:
        """Positions of the values of an array.

        Parameters
        ----------
        name
            Of the array; that of an array at points by default.

        Returns
        -------
        ndarray of float64
            x, y, z in m along the last axis: (nz, ny, nx, 3) of an image; (n, 3) of other files,
            of an array per cell the mean of the cell's points.
        """
        if name is not None and name not in self:
            raise InputError(
                f"it has no array {name!r}", location=str(self.path), allowed=", ".join(self)
            )
        at_cells = name is not None and self._at_cells[name]
        return self._read(lambda root: _positions(root, self._kind, at_cells=at_cells))

    def grid(self) -> Any:
        """The file as a PyVista grid; needs the extra `notebook`.

        Returns
        -------
        pyvista.ImageData, pyvista.UnstructuredGrid or pyvista.PolyData
            With the arrays of the file at points and in cells; ``PolyData`` of surfaces, such as
            ``cells.vtkhdf``.

        Raises
        ------
        MachineError
            PyVista is not installed.
        """
        return pyvista_grid(self.vtk_arrays())

    def vtk_arrays(self) -> VtkArrays:
        """The file as VTK's arrays; needs no PyVista.

        Returns
        -------
        ImageArrays or CellArrays
            Of a grid shape, origin and spacing; of a mesh points and the points of each cell.
            Both have the arrays of the file as ``point_data``.
        """
        return self._read(lambda root: _vtk_arrays(root, self._kind, self.time))

    def _read(self, read: Callable[[Any], Kept]) -> Kept:
        try:
            with h5py.File(self.path) as file:
                return read(file["VTKHDF"])
        except (OSError, KeyError, ValueError) as error:
            problem = "it does not exist"
            if self.path.exists():
                problem = f"it is damaged or no VTKHDF file of Haloscope ({error})"
            raise InputError(problem, location=str(self.path)) from error


def _contents(root: Any) -> tuple[float | None, str, dict[str, bool]]:
    """Time, type of the data set, and whether each array is per cell."""
    kind = bytes(root.attrs["Type"]).decode("ascii")
    if kind not in (_IMAGE, _MESH, _SURFACE):
        raise ValueError(f"type {kind}")
    times = root["FieldData/TimeValue"][...] if "FieldData" in root else np.empty(0)
    arrays = {
        str(name): group == "CellData"
        for group in ("PointData", "CellData")
        if group in root
        for name in root[group]
    }
    return (float(times[0]) if len(times) else None), kind, arrays


def _extent(root: Any, *, drop: bool = False) -> tuple[int, ...]:
    """Points along z, y and x of an image; `drop`: without the axis z where it has one point."""
    first, last = np.asarray(root.attrs["WholeExtent"]).reshape(3, 2).T
    shape = tuple(int(n) for n in (last - first + 1)[::-1])
    return shape[1:] if drop and shape[0] == 1 else shape


def _vtk_arrays(root: Any, kind: str, time: float | None) -> VtkArrays:
    groups = {
        group: {str(name): np.asarray(array[...]) for name, array in root[group].items()}
        for group in ("PointData", "CellData")
        if group in root
    }
    point_data = groups.get("PointData", {})
    if kind == _IMAGE:
        axes = len(_extent(root, drop=True))
        flat = {n: array.reshape(-1, *array.shape[axes:]) for n, array in point_data.items()}
        depth, height, width = _extent(root)
        x, y, z = (float(position) for position in root.attrs["Origin"])
        dx, dy, dz = (float(distance) for distance in root.attrs["Spacing"])
        return ImageArrays((depth, height, width), (x, y, z), (dx, dy, dz), flat, time)
    cells = root["Polygons"] if kind == _SURFACE else root
    # Haloscope writes cells of one type to a file.
    count = len(cells["Offsets"]) - 1
    cell_type = TRIANGLE if kind == _SURFACE else int(root["Types"][0])
    connectivity = cells["Connectivity"][...].reshape(count, -1 if count else 3)
    points = root["Points"][...].astype(np.float64)
    cell_data = groups.get("CellData", {})
    return CellArrays(points, connectivity, cell_type, point_data, cell_data, time)


def _positions(root: Any, kind: str, *, at_cells: bool) -> Floats:
    if kind == _IMAGE:
        origin, spacing = root.attrs["Origin"], root.attrs["Spacing"]
        z, y, x = np.indices(_extent(root))
        return np.asarray(origin + spacing * np.stack([x, y, z], axis=-1), np.float64)
    points: Floats = root["Points"][...].astype(np.float64)
    if not at_cells:
        return points
    cells = root["Polygons"] if kind == _SURFACE else root
    offsets = cells["Offsets"][...]
    corners = points[cells["Connectivity"][...]]
    sums = np.add.reduceat(corners, offsets[:-1], axis=0)
    means: Floats = sums / np.diff(offsets)[:, None]
    return means
