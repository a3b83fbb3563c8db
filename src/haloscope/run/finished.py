"""Results of a finished run, read from its folder."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import WARNING, InputError, counted, html_table, message_line
from haloscope.io.vtk_arrays import HEXAHEDRON, TETRAHEDRON, VOXEL, CellArrays, FieldFile
from haloscope.mesh.hexes.hexes import vtk_order
from haloscope.run.results_page import summary_lines, words
from haloscope.run.tables import as_table, read_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIELDS = re.compile(r"fields-([0-9]{10,})\.vtkhdf")
_LAST, _AVERAGE = "fields.vtkhdf", "average.vtkhdf"
PICTURES = (".png", ".svg", ".gif", ".webp")
# Tables of what a run follows, of which one is drawn by default.
_FOLLOWED = ("residuals", "change", "energy")
# Columns over which the others are drawn.
_ACROSS = ("time", "time_s", "step")
# Between the largest and the least value of a table that is drawn on a logarithmic axis.
_MANY_DECADES = 100.0
# Fields of a simulation that files hold as components of a vector.
_COMPONENTS = {letter: ("velocity", number) for number, letter in enumerate("uvw")} | {
    f"{vector}{letter}": (vector, number) for vector in "EH" for number, letter in enumerate("xyz")
}


class FinishedRun:
    """Results of a run, read from its folder.

    Parameters
    ----------
    folder
        Folder of the outputs, which holds ``summary.json``.

    Attributes
    ----------
    folder
        Its path.
    summary
        The summary, as written to ``summary.json``.
    steps
        Steps at which fields were written, ascending.
    times
        Their times in s; the steps themselves where the solver has no physical time (a steady
        state).
    tables
        Names of the tables, for :meth:`table`.
    pictures
        Paths of the pictures.

    Examples
    --------
    >>> import haloscope
    >>> run = haloscope.open("runs/cavity-demo-1")  # doctest: +SKIP
    >>> run.table("residuals")["T"][-1]  # doctest: +SKIP
    >>> run.fields()["T"].shape  # doctest: +SKIP
    (81, 81, 81)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.summary: dict[str, Any] = read_summary(self.folder)
        names = sorted(path.name for path in self.folder.iterdir())
        self.tables = [name.removesuffix(".csv") for name in names if name.endswith(".csv")]
        self.pictures = [self.folder / name for name in names if name.endswith(PICTURES)]
        # By step; the file of the last state takes the place of one written at an interval.
        numbered = {int(match[1]): name for name in names if (match := _FIELDS.fullmatch(name))}
        if _LAST in names:
            numbered[int(self.summary.get("steps", -1))] = _LAST
        self.steps = sorted(numbered)
        self._files = [FieldFile(self.folder / numbered[step]) for step in self.steps]
        self.times = [
            float(step) if file.time is None else file.time
            for step, file in zip(self.steps, self._files, strict=True)
        ]

    def __repr__(self) -> str:
        parts = [
            f"{self.summary.get('solver')}, {counted(self.summary.get('steps'), 'step')}",
            f"fields at {counted(len(self.times), 'time')}",
            f"tables: {', '.join(self.tables) or 'none'}",
            f"pictures: {', '.join(path.name for path in self.pictures) or 'none'}",
        ]
        return message_line(f"<run in {self.folder}: {'; '.join(parts)}>")

    def _repr_html_(self) -> str:
        summary = self.summary
        rows = [
            (key, words(summary[key]))
            for key in ("case", "title", "solver", "device", "ranks", "steps", "rate")
            if summary.get(key) not in (None, "")
        ]
        notices = summary_lines(summary, "notices")
        rows += [
            *(("notice", line) for line in notices if line.startswith(WARNING)),
            *(("result", line) for line in summary_lines(summary, "headline")),
            ("fields at", ", ".join(f"{time:.4g}" for time in self.times) or "no time"),
            ("tables", ", ".join(self.tables) or "none"),
            ("pictures", ", ".join(path.name for path in self.pictures) or "none"),
        ]
        return html_table(f"run in {self.folder}", rows)

    def fields(self, index: int = -1, *, time: float | None = None) -> FieldFile:
        """Fields of one output time.

        Parameters
        ----------
        index
            Place in :attr:`times`; the last by default.
        time
            In place of the index: the output whose time in s is nearest.

        Returns
        -------
        FieldFile
            Arrays by name, as in the file: (nz, ny, nx) for the cavity and for blood in a vessel
            that fills a third of its bounding box (nan outside it), else (n,). Vectors such as
            `velocity` have a last axis of three components. ``points(name)`` gives positions in m.
            Maxwell's fields are interpolated to equally spaced nodes of each element.

        Raises
        ------
        InputError
            The run has written no fields, or none of this index.
        """
        return self._files[self._place(index, time)]

    def grid(self, index: int = -1, *, time: float | None = None) -> Any:
        """Fields of one output time as a PyVista grid; needs the extra `notebook`.

        The arguments are those of :meth:`fields`.

        Returns
        -------
        pyvista.ImageData or pyvista.UnstructuredGrid
            As ``Simulation.grid()``, with the arrays of the file, in which vectors take the place
            of their components. A vessel that fills less than a third of its bounding box is a cube
            around each point, with scalars in cells and vectors at corners.

        Raises
        ------
        MachineError
            PyVista is not installed.
        """
        return self.fields(index, time=time).grid()

    def membranes(self, index: int = -1, *, time: float | None = None) -> Any:
        """Membranes of cells at one output time as a PyVista surface; needs the extra `notebook`.

        The arguments are those of :meth:`fields`.

        Returns
        -------
        pyvista.PolyData
            As ``Simulation.membranes()``.

        Raises
        ------
        InputError
            The run has no cells.
        MachineError
            PyVista is not installed.
        """
        name = self._files[self._place(index, time)].path.name.replace("fields", "cells")
        if not (self.folder / name).exists():
            raise InputError(
                "the run has written no cells",
                location=str(self.folder / name),
                allowed="runs of blood with tables [[blood.cells]]",
            )
        return self.read(name).grid()

    def _place(self, index: int, time: float | None) -> int:
        """Place in :attr:`times` of an index, or of the nearest time."""
        count = len(self.times)
        if not count:
            raise InputError(
                "the run has written no fields",
                location=str(self.folder),
                remedy="set output.fields to true, or output.interval",
            )
        if time is not None:
            return int(np.abs(np.array(self.times) - time).argmin())
        if not -count <= index < count:
            raise InputError(
                "there is no such output", location=f"fields({index})", allowed=f"0 to {count - 1}"
            )
        return index

    def average(self) -> FieldFile:
        """Fields averaged over time, as :meth:`fields`; for cases with ``output.average``."""
        return FieldFile(self.folder / _AVERAGE)

    def read(self, name: str) -> FieldFile:
        """Arrays of any VTKHDF file of the folder, such as ``wall-stress.vtkhdf``."""
        return FieldFile(self.folder / name)

    def table(self, name: str) -> Any:
        """A table of the run, such as the residuals, a probe or the cells.

        Parameters
        ----------
        name
            One of :attr:`tables`: the name of the file without ``.csv``.

        Returns
        -------
        pandas.DataFrame or structured ndarray
            A data frame if pandas is installed, else an array (rows,) with the columns as its
            fields; ``table["step"]`` is a column of both.

        Raises
        ------
        InputError
            There is no such table.
        """
        return as_table(self._columns(name))

    def _columns(self, name: str) -> dict[str, NDArray[Any]]:
        if name not in self.tables:
            raise InputError(
                "there is no such table",
                location=f"table {name!r} of {self.folder}",
                allowed=", ".join(self.tables) or "none: the run has written no tables",
            )
        return read_columns(self.folder / f"{name}.csv")

    def plot(self, name: str | None = None, *, index: int = -1, ax: Axes | None = None) -> Axes:
        """Draw a table over time or steps, or a field on a plane.

        Parameters
        ----------
        name
            Of a table; or of a field, drawn on the middle plane across the axis with the fewest
            points, or across the shortest side of a mesh. Vectors are drawn by their magnitude, or
            by a component (``u`` of ``velocity``, ``Ez`` of ``E``). By default the residuals or the
            energy of the run.
        index
            Place in :attr:`times` of a field.
        ax
            Axes to draw on; of a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        InputError
            There is no table or field of this name.
        """
        if name is None:
            name = next((table for table in _FOLLOWED if table in self.tables), None)
            if name is None:
                raise InputError(
                    "the run has written no table of its residuals or energy",
                    location=str(self.folder),
                    allowed=", ".join(self.tables),
                )
        is_table = name in self.tables
        if not is_table and (not self._files or _array_of(name, self.fields(index)) is None):
            known = [*self.tables, *(self.fields(index) if self._files else ())]
            raise InputError(
                "there is no such table or field",
                location=f"plot {name!r} of {self.folder}",
                allowed=", ".join(known),
            )
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(layout="constrained")
        if is_table:
            _draw_table(ax, name, self._columns(name))
        elif self.fields(index).is_image:
            _draw_plane(ax, name, self.fields(index))
        else:
            _draw_mesh_plane(ax, name, self.fields(index))
        return ax


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a run that has ended, from its folder."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            "the folder does not exist" if not folder.exists() else "it holds no summary.json",
            location=str(folder),
            remedy="give the folder of a run that has ended",
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"it cannot be read ({error})", location=str(path)) from error
    if not isinstance(summary, dict) or "steps" not in summary:
        raise InputError(
            "it is not the summary of a run",
            location=str(path),
            remedy="give the folder of a run, not that of a study",
        )
    return summary


def _draw_table(ax: Axes, name: str, columns: dict[str, NDArray[Any]]) -> None:
    across: str = next(column for column in (*_ACROSS, *columns) if column in columns)
    drawn = {
        column: values
        for column, values in columns.items()
        if column not in (*_ACROSS, across) and values.dtype.kind in "if"
    }
    for column, values in drawn.items():
        ax.plot(columns[across], values, label=column)
    finite = [values[np.isfinite(values)] for values in drawn.values()]
    every = np.concatenate([np.zeros(0), *finite])
    if len(every) and every.min() > 0 and every.max() > _MANY_DECADES * every.min():
        ax.set_yscale("log")
    ax.set_xlabel("time (s)" if across.startswith("time") else across)
    ax.set_title(name, parse_math=False)
    if drawn:
        for text in ax.legend().get_texts():
            text.set_parse_math(False)


def _array_of(name: str, fields: FieldFile) -> tuple[str, int | None] | None:
    """Name of the array that holds a field, and the component of it; None if there is none."""
    if name in fields:
        return name, None
    vector, component = _COMPONENTS.get(name, ("", 0))
    return (vector, component) if vector in fields else None


def _scalars(name: str, fields: FieldFile) -> NDArray[np.float64]:
    """A scalar field, a component of a vector, or its magnitude."""
    array = _array_of(name, fields)
    assert array is not None
    values = np.asarray(fields[array[0]], np.float64)
    if array[1] is not None:
        return values[..., array[1]]
    axes = fields.points(array[0]).ndim - 1
    return values if values.ndim == axes else np.linalg.norm(values, axis=-1)


def _draw_mesh_plane(ax: Axes, name: str, fields: FieldFile) -> None:
    from matplotlib.tri import Triangulation

    arrays = fields.vtk_arrays()
    assert isinstance(arrays, CellArrays)
    plane = middle_plane(arrays)
    values = _scalars(name, fields)
    first, second = (axis for axis in range(3) if axis != plane.axis)
    corners = plane.corners.reshape(-1, 3)
    drawn: Any
    triangles = Triangulation(
        corners[:, first], corners[:, second], np.arange(len(corners)).reshape(-1, 3)
    )
    if len(values) == len(arrays.points):
        at_corners = plane.values(values)
        limits = {"vmin": at_corners.min(), "vmax": at_corners.max(), "cmap": "viridis"}
        # Of triangles with a smooth colour alone the seams would be light lines.
        ax.tripcolor(triangles, facecolors=at_corners.mean(axis=1), edgecolors="face", **limits)
        drawn = ax.tripcolor(triangles, at_corners.ravel(), shading="gouraud", **limits)
    else:
        drawn = ax.tripcolor(triangles, facecolors=values[plane.cells], cmap="viridis")
    _finish_plane(ax, drawn, name, plane.axis, plane.offset)


def _finish_plane(ax: Axes, drawn: Any, name: str, axis: int, offset: float) -> None:
    """Axes in m with one scale, and a colour bar."""
    ax.set_aspect("equal")
    first, second = (letter for letter in "xyz" if letter != "xyz"[axis])
    ax.set_xlabel(f"{first} (m)")
    ax.set_ylabel(f"{second} (m)")
    ax.set_title(f"{name}, {'xyz'[axis]} = {offset:.4g} m")
    ax.figure.colorbar(drawn, ax=ax, label=name)


def _draw_plane(ax: Axes, name: str, fields: FieldFile) -> None:
    values, points = _scalars(name, fields), fields.points()
    shape = points.shape[:3]
    axis = int(np.argmin(shape))
    plane = np.take(values, shape[axis] // 2, axis)
    positions = np.take(points, shape[axis] // 2, axis)
    first, second = (place for place in range(3) if place != 2 - axis)
    # Rows go along the second direction.
    x, y = positions[0, :, first], positions[:, 0, second]
    drawn = ax.pcolormesh(x, y, plane, shading="nearest", cmap="viridis")
    _finish_plane(ax, drawn, name, 2 - axis, float(positions[0, 0, 2 - axis]))


Floats = NDArray[np.float64]

# Of bricks; cells of other types are Lagrange hexahedra.
_CORNERS = {
    VOXEL: np.array([(i, j, k) for k in (0, 1) for j in (0, 1) for i in (0, 1)]),
    HEXAHEDRON: vtk_order(1),
}
_LEAST_AREA = 1e-9  # of a triangle over the largest
# Kuhn's division of a brick: from one end of a diagonal to the other along three edges.
_PATHS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


@dataclass(frozen=True)
class MeshPlane:
    """Triangles of a section."""

    axis: int
    offset: float  # m
    corners: Floats  # (triangles, 3, 3) in m
    # Corners lie on edges between two points of the mesh: their numbers (triangles, 3, 2), and the
    # share (triangles, 3) of the second.
    ends: NDArray[np.int64]
    shares: Floats
    cells: NDArray[np.int64]  # (triangles,): the cell that each cuts

    def values(self, at_points: NDArray[np.float64]) -> Floats:
        """Values (triangles, 3) at the corners, of those at the points of the mesh."""
        first, second = np.moveaxis(at_points[self.ends], -1, 0)
        return np.asarray(first + self.shares * (second - first))


def middle_plane(arrays: CellArrays) -> MeshPlane:
    """The section across the middle of the shortest side of a mesh."""
    points = arrays.points
    low, high = points.min(axis=0), points.max(axis=0)
    sides = high - low
    # Of equal sides z, as in the pictures of runs.
    axis = 2 - int(np.argmin(np.round(sides[::-1] / sides.max(), 6)))
    offset = float(low[axis] + high[axis]) / 2
    # Points on the plane count as above it.
    distance = points[:, axis] - offset
    above = distance[arrays.connectivity] >= 0
    cells = np.flatnonzero(above.any(axis=1) & ~above.all(axis=1))
    tetrahedra, cells = _tetrahedra(arrays.connectivity[cells], cells, arrays.cell_type)
    ends, cells = _crossed_edges(tetrahedra, distance[tetrahedra] >= 0, cells)
    begin, end = np.moveaxis(distance[ends], -1, 0)
    shares = begin / (begin - end)
    corners = points[ends[..., 0]] + shares[..., None] * (
        points[ends[..., 1]] - points[ends[..., 0]]
    )
    edges = corners[:, 1:] - corners[:, :1]
    areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=-1)
    # Where the plane passes through points, triangles shrink to lines, which would be drawn as streaks.
    kept = areas > _LEAST_AREA * areas.max(initial=0.0)
    return MeshPlane(axis, offset, corners[kept], ends[kept], shares[kept], cells[kept])


def _tetrahedra(
    connectivity: NDArray[np.int64], cells: NDArray[np.int64], cell_type: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tetrahedra (n, 4) that cells are divided into, and the cell (n,) of each."""
    if cell_type == TETRAHEDRON:
        return connectivity, cells
    places = _CORNERS.get(cell_type)
    if places is None:
        places = vtk_order(round(connectivity.shape[1] ** (1 / 3)) - 1)
    side = 1 + int(places.max())
    node = np.empty((side,) * 3, np.int64)
    node[tuple(places.T)] = np.arange(len(places))
    pieces = []
    for start in np.ndindex(*(side - 1,) * 3):
        for path in _PATHS:
            steps = np.zeros((4, 3), np.int64)
            for number, axis in enumerate(path):
                steps[number + 1 :, axis] = 1
            pieces.append(node[tuple((start + steps).T)])
    table = np.array(pieces)
    return connectivity[:, table].reshape(-1, 4), np.repeat(cells, len(table))


def _crossed_edges(
    tetrahedra: NDArray[np.int64], above: NDArray[np.bool_], cells: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges (triangles, 3, 2) below which ends lie first, and the cell (triangles,) of each triangle."""
    count = above.sum(axis=1)
    sorted_nodes = np.take_along_axis(tetrahedra, np.argsort(above, axis=1, kind="stable"), axis=1)
    # By number of nodes above: corners of triangles as pairs of one below and one above.
    triangles = {
        1: [[(0, 3), (1, 3), (2, 3)]],
        2: [[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]],
        3: [[(0, 1), (0, 2), (0, 3)]],
    }
    ends = [np.empty((0, 3, 2), np.int64)]
    owners = [np.empty(0, np.int64)]
    for number, shapes in triangles.items():
        chosen = count == number
        for shape in shapes:
            ends.append(sorted_nodes[chosen][:, np.array(shape)])
            owners.append(cells[chosen])
    return np.concatenate(ends), np.concatenate(owners)
