"""A geometry before a run: its boundaries, bodies and marks, and two images of it from one direction.

All from outside, and the inside without the boundaries that face the viewer. Each rank draws its own
triangles; the images are merged before they are saved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.figure import length_unit
from haloscope.io.figures.surface_pictures import FINER, SurfaceImage, View

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Kind = Literal["boundary", "wall", "body"]

MOST_TRIANGLES = 200_000
"""Triangles of a part that a rank draws; surfaces with more are simplified."""
MOST_MESH_LINES = 6000
"""Faces of a mesh, on all ranks, up to which their edges are drawn."""
# Vertices within a cell of a raster over the longest side become one.
_FINEST_RASTER = 512
# Shown pixels of a view: beside the other one, and above it.
_BESIDE, _ABOVE = (620, 560), (1200, 460)
# Width over height from which the views stand above each other.
_WIDE = 1.7
# Turned further than pictures of cells are, so that three sides of a box are seen well.
_AZIMUTH, _ELEVATION = np.radians(34.0), np.radians(26.0)


@dataclass(frozen=True, eq=False)
class Part:
    """A boundary, or a body within the domain."""

    name: str
    condition: str
    # Own triangles (n, 3, 3) in m, counter-clockwise seen from outside the domain, or the body. In
    # two dimensions own lines (n, 2, 3).
    corners: Floats
    # A wall is grey, so that openings stand out.
    kind: Kind = "boundary"
    # (n,): the face of the mesh, or the cell, that each triangle belongs to; None: one for all.
    faces: Integers | None = None


@dataclass(frozen=True, eq=False)
class Marks:
    """Points, as those of probes, or arrows that end there."""

    name: str
    points: Floats  # (n, 3) in m
    labels: tuple[str, ...]
    symbol: str = "o"
    tails: Floats | None = None  # (n, 3) in m: where arrows begin


@dataclass(frozen=True, eq=False)
class Lines:
    """Dashed lines (n, 2, 3) in m within the domain."""

    name: str
    segments: Floats


@dataclass(frozen=True, eq=False)
class Geometry:
    """One rank's part of what a picture shows; all ranks have the same parts in the same order."""

    parts: tuple[Part, ...]
    marks: tuple[Marks, ...] = ()
    lines: tuple[Lines, ...] = ()
    notes: tuple[str, ...] = ()
    unit: str = ""  # of lengths, as `um`; by default one that suits the size

    @property
    def planar(self) -> bool:
        """Whether there are two dimensions."""
        return any(part.corners.shape[1] == 2 for part in self.parts)

    def bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper corner (3,) of all own parts; inf and -inf without any."""
        rows = [np.zeros((0, 3)), *(part.corners.reshape(-1, 3) for part in self.parts)]
        points = np.concatenate(rows)
        return points.min(axis=0, initial=np.inf), points.max(axis=0, initial=-np.inf)


def box_side(lower: Floats, upper: Floats, axis: int, direction: int) -> Floats:
    """The two triangles (2, 3, 3) of a side of a box, seen from outside."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    square = np.zeros((4, 3), np.int64)
    square[:, (axis + 1) % 3], square[:, (axis + 2) % 3] = corners.T
    square[:, axis] = direction > 0
    triangles = np.array([[0, 1, 2], [0, 2, 3]] if direction > 0 else [[0, 2, 1], [0, 3, 2]])
    points: Floats = np.where(square, upper, lower)
    return np.asarray(points[triangles], np.float64)


def box_edges(lower: Floats, upper: Floats) -> Floats:
    """The twelve edges (12, 2, 3) of a box."""
    corners = np.array(list(np.ndindex(2, 2, 2)))
    ends = [(a, a + step) for step in (4, 2, 1) for a in range(8) if not a & step]
    return np.asarray(np.where(corners, upper, lower)[np.array(ends)], np.float64)


@dataclass(frozen=True, eq=False)
class Views:
    """A geometry seen from outside, and inside; drawn by each rank, merged, then saved."""

    images: tuple[SurfaceImage, SurfaceImage]
    lower: Floats  # Corners of the box around the whole geometry, in m
    upper: Floats
    factor: float  # From m to the unit of the picture
    unit: str
    drawn: int  # Triangles of this rank
    stacked: bool


def draw_views(
    geometry: Geometry, lower: Floats, upper: Floats, *, rank: int = 0, mesh_lines: bool = True
) -> Views:
    """Draw own triangles; `lower`, `upper`: corners (3,) of the box around those of all ranks.

    `mesh_lines`: whether edges of faces are drawn, and not only those of parts.
    """
    factor, unit = unit_of(geometry, lower, upper)
    ends = np.array(list(np.ndindex(2, 2, 2)))
    around = np.where(ends, upper, lower) * factor
    view = _view(around, _BESIDE)
    stacked = view.width > _WIDE * view.height
    if stacked:
        view = _view(around, _ABOVE)
    outside, inside = SurfaceImage(view), SurfaceImage(view)
    drawn = 0
    first = rank << 40
    for number, part in enumerate(geometry.parts):
        corners, faces = simplified(part.corners, part.faces, float((upper - lower).max()))
        drawn += len(corners)
        lined = faces is not None and (mesh_lines or part.kind == "body")
        owners = faces if lined and faces is not None else np.zeros(len(corners), np.int64)
        bodies = np.repeat(first + owners, 3)
        first += int(owners.max(initial=0)) + 1
        points = corners.reshape(-1, 3) * factor
        triangles = np.arange(len(points)).reshape(-1, 3)
        values = np.full(len(points), float(number))
        if part.kind == "body":
            inside.draw(points, triangles, values, bodies)
        else:
            outside.draw(points, triangles, values, bodies)
            inside.draw(points, triangles[:, ::-1], values, bodies)
    return Views((outside, inside), lower, upper, factor, unit, drawn, stacked)


def _view(points: Floats, most: tuple[int, int]) -> View:
    """View with y up, as in pictures of planes, and the longer of x and z to the right."""
    pixels = FINER * most[0], FINER * most[1]
    return View.of_points(points, pixels, azimuth=_AZIMUTH, elevation=_ELEVATION, upright=1)


# Units of a file whose unit of length is not known are drawn as they are.
_UNITS = {"um": 1e6, "mm": 1e3, "m": 1.0, "units": 1.0}


def unit_of(geometry: Geometry, lower: Floats, upper: Floats) -> tuple[float, str]:
    """How many of the unit make a metre, and its name."""
    if geometry.unit:
        return _UNITS[geometry.unit], geometry.unit
    return length_unit(float((upper - lower).max()))


def simplified(
    corners: Floats, faces: Integers | None, extent: float, most: int = MOST_TRIANGLES
) -> tuple[Floats, Integers | None]:
    """At most so many triangles: vertices within a cell of a raster become their mean.

    The raster is made coarser until few enough triangles are left; they keep no faces.
    """
    cells = _FINEST_RASTER
    original, lowest = corners, corners.reshape(-1, 3).min(axis=0, initial=np.inf)
    while len(corners) > most:
        # Places (n,) of vertices in a raster, one number each.
        raster = np.floor((original.reshape(-1, 3) - lowest) * (cells / extent)).astype(np.int64)
        keys, vertex = np.unique(raster @ [1, 4 * cells, 16 * cells**2], return_inverse=True)
        sums = [np.bincount(vertex, column, len(keys)) for column in original.reshape(-1, 3).T]
        means = np.stack(sums, axis=1) / np.bincount(vertex)[:, None]
        triangles = vertex.reshape(-1, 3)
        a, b, c = triangles.T
        triangles = triangles[(a != b) & (b != c) & (c != a)]
        # One of those that have become the same, seen from the same side.
        turn = (np.arange(3) + triangles.argmin(axis=1)[:, None]) % 3
        turned = np.take_along_axis(triangles, turn, axis=1)
        _, kept = np.unique(turned, axis=0, return_index=True)
        corners, faces = means[triangles[np.sort(kept)]], None
        cells //= 2
    return corners, faces


def with_counts(geometry: Geometry, drawn: int, triangles: int) -> Geometry:
    """The geometry with a note if it is drawn with fewer triangles than it has."""
    if drawn == triangles:
        return geometry
    note = f"simplified for the picture: {drawn:,} triangles for {triangles:,}"
    return replace(geometry, notes=(*geometry.notes, note))
