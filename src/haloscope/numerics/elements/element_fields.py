"""Fields on curved elements shared out over ranks: gathered for files, read back, sampled at points and on planes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import CellArrays, MeshCells
from haloscope.io.vtkhdf import POINTS, VtkhdfWriter
from haloscope.mesh.field_layouts import Piece, Position, RowLayout, ranges
from haloscope.mesh.hexes.hexes import Floats, HexMesh, Integers
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.elements.basis import element_cells
from haloscope.numerics.elements.element_maps import in_pieces, nodes
from haloscope.numerics.elements.interface_values import SharedFaces
from haloscope.numerics.elements.locate import (
    Located,
    Locator,
    PartLocator,
    evaluate,
    held_points,
    refuse_outside,
)

AXES = "xyz"
RASTER_POINTS = 200
_FEWEST_POINTS = 2
_ACROSS = 32
_EQUAL_SIDES = 1e-9  # Sides that differ by no more than this part of them are equal


@dataclass(frozen=True)
class PlaneRaster:
    """Points on a plane across an axis: the middles of equal cells that fill a rectangle."""

    axis: str  # ``x``, ``y`` or ``z``: the plane's normal
    offset: float  # Where on it the plane is, in m
    # Coordinates along the other two axes, in the order x, y, z, in m; evenly spaced.
    first: Floats
    second: Floats

    @property
    def names(self) -> tuple[str, str]:
        """Names of the axes along which `first` and `second` run."""
        others = AXES.replace(self.axis, "")
        return others[0], others[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Points along the second and the first axis."""
        return len(self.second), len(self.first)

    @property
    def points(self) -> Floats:
        """All points (n, 3), those along the first axis after each other."""
        result = np.empty((*self.shape, 3))
        result[..., AXES.index(self.axis)] = self.offset
        first, second = (AXES.index(name) for name in self.names)
        result[..., first], result[..., second] = np.meshgrid(self.first, self.second)
        return result.reshape(-1, 3)


def mesh_bounds(mesh: HexMesh, order: int) -> tuple[Floats, Floats]:
    """Least and largest coordinates (3,) of the GLL nodes of a mesh."""
    lower, upper = np.full(3, np.inf), np.full(3, -np.inf)
    for _, places in in_pieces(mesh, order):
        lower = np.minimum(lower, places.min(axis=(0, 1, 2, 3)))
        upper = np.maximum(upper, places.max(axis=(0, 1, 2, 3)))
    return lower, upper


def plane_axis(lengths: Floats, axis: str, offset: float | None) -> str:
    """Normal of a plane through a box with sides (3,): ``auto`` becomes x, y or z.

    Across the shortest side lies the plane that holds the longest one; of equal sides the last counts.
    """
    if axis != "auto":
        return axis
    if offset is not None:
        return "z"
    shortest = np.flatnonzero(lengths <= float(lengths.min()) * (1 + _EQUAL_SIDES))
    return AXES[int(shortest[-1])]


def plane_raster(
    lower: Floats,
    upper: Floats,
    axis: str = "z",
    offset: float | None = None,
    points: int = RASTER_POINTS,
) -> PlaneRaster:
    """Lay a raster across a box.

    `lower`, `upper`: corners of the box (3,), as `mesh_bounds` gives them; `points`: along the
    longer side, at least 2; the cells are about square, but a short side has 32.
    """
    axis = plane_axis(upper - lower, axis, offset)
    if axis not in ("x", "y", "z"):
        raise InputError("unknown axis", location=f"plane: axis = {axis!r}", allowed="x, y and z")
    if points < _FEWEST_POINTS:
        raise InputError(
            "out of range",
            location=f"plane: points = {points}",
            allowed=f"at least {_FEWEST_POINTS}",
        )
    number = AXES.index(axis)
    low, high = float(lower[number]), float(upper[number])
    at = (low + high) / 2 if offset is None else offset
    if not low <= at <= high:
        raise InputError(
            "it misses the mesh",
            location=f"plane at {axis} = {at:g} m",
            allowed=f"{low:g} to {high:g} m",
            remedy="move it into the mesh",
        )
    others = [other for other in range(3) if other != number]
    lengths = upper[others] - lower[others]
    first, second = (
        start + (np.arange(count) + 0.5) * length / count
        for start, length in zip(lower[others], lengths, strict=True)
        for count in [max(min(points, _ACROSS), round(points * float(length / lengths.max())))]
    )
    return PlaneRaster(axis, at, first, second)


def raster_on_ranks(
    world: World, lower: Floats, upper: Floats, axis: str, offset: float | None, points: int
) -> PlaneRaster:
    """Lay a raster across all ranks' boxes together; all ranks call this, and get the same.

    `lower`, `upper`: corners (3,) of the box around this rank's elements.
    """
    least = -np.array([world.largest(-float(at)) for at in lower])
    most = np.array([world.largest(float(at)) for at in upper])
    return plane_raster(least, most, axis, offset, points)


class PlaneSamples:
    """Samples fields of this rank's elements on a raster."""

    def __init__(self, locator: Locator, raster: PlaneRaster) -> None:
        self.raster = raster
        located = locator.find(raster.points)
        # int64: the elements of the locator that hold points, ascending. Only their values are
        # needed.
        self.rows: Integers = np.unique(located.rows[located.inside])
        places = np.where(located.inside, np.searchsorted(self.rows, located.rows), -1)
        self._located = Located(located.elements, places, located.reference)

    def values(self, values: NDArray[Any]) -> Floats:
        """Values on the raster.

        `values`: (rows, ..., N + 1, N + 1, N + 1): elements `rows`, components, and nodes k, j, i.
        """
        components = values.shape[1:-3]
        flat = evaluate(values, self._located)
        return np.moveaxis(flat, 0, -1).reshape(*components, *self.raster.shape)


def joined_on_root(world: World, own: Floats) -> Floats | None:
    """One array out of those of all ranks, on rank 0; None elsewhere. All ranks call this."""
    if not world.is_root:
        world.send(own, 0)
        return None
    return joined(
        [own, *(world.receive(own.shape, own.dtype, rank) for rank in range(1, world.size))]
    )


def joined(parts: Sequence[Floats]) -> Floats:
    """One array out of those of several ranks: each value from the first that has it."""
    result = parts[0].copy()
    for part in parts[1:]:
        np.copyto(result, part, where=np.isnan(result))
    return result


_REGION = "region"
# Elements whose nodes are computed and sent at once.
_AT_ONCE = 512


@dataclass(frozen=True)
class LocatedPoints:
    """Where points lie that elements of this rank hold."""

    points: Integers  # Numbers of the points that are in own elements
    rows: Integers  # The element of each, in own numbers
    # (points, 3, N + 1): of nodes along i, j and k; see :class:`haloscope.numerics.elements.locate.Located`.
    weights: Floats


class ElementFields(RowLayout):
    """Fields at the GLL nodes of elements.

    A field as a whole has the shape (elements, N + 1, N + 1, N + 1), indexed [element, k, j, i]. No
    rank knows more than its own elements of it; all ranks make one.
    """

    _component_axis = 1

    def __init__(self, world: World, part: MeshPart, order: int) -> None:
        row = (order + 1,) * 3
        super().__init__(world, part.elements, part.whole, row, part.mesh.count, "elements")
        self._mesh, self._part, self._order = part.mesh, part, order
        self._locator: PartLocator | None = None

    def describe(self) -> str:
        """Text that describes the mesh."""
        whole = self.shape[0]
        return f"{counted(whole, 'element')} of order {self._order}, {whole * (self._order + 1) ** 3} nodes"

    def points(self) -> Floats | None:
        """Positions of all nodes on rank 0, (elements, N + 1, N + 1, N + 1, 3) in m."""
        rows = np.arange(len(self._rows))
        return self.collect(nodes(self._mesh, self._order, rows), 0, self.shape[0])

    def cells(self) -> MeshCells | None:
        """A Lagrange cell of each element, and its region, on rank 0; elements share no points."""
        places = self.points()
        regions = self.collect(self._mesh.regions.astype(np.int32), 0, self.shape[0])
        if places is None or regions is None:
            return None
        cells = element_cells(self._order)
        points = cells.at_points(np.moveaxis(places, -1, 1)).reshape(-1, 3)
        layout = cells.layout(len(places))
        ids = np.concatenate([*layout.connectivity()])
        arrays = CellArrays(points, ids, layout.cell_type, cell_data={_REGION: regions})
        return MeshCells(arrays, lambda values: cells.at_points(values).reshape(-1))

    def describe_grid(self) -> str:
        """Of elements and fields, the orders."""
        return f"elements of order {self._mesh.order}, fields of order {self._order}"

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], Floats]]:
        """Nodes of own elements, an element's one after the other, and where they lie in m."""
        nodes = self._mesh.coordinates.reshape(len(self._rows), -1, 3)
        within = np.arange(nodes.shape[1], dtype=np.uint64)
        for begin, end in ranges(len(nodes), _AT_ONCE):
            first = self._rows[begin:end, None].astype(np.uint64) * np.uint64(len(within))
            yield (first + within).ravel(), nodes[begin:end].reshape(-1, 3)

    @property
    def locator(self) -> PartLocator:
        """Finds points in own elements."""
        if self._locator is None:
            self._locator = PartLocator(self._mesh, self._order, self._rows)
        return self._locator

    def locate(self, positions: Sequence[Position]) -> LocatedPoints:
        """Find which points lie in elements of this rank; each is in one element of one rank."""
        located = self.locator.find(np.asarray(positions, np.float64).reshape(-1, 3))
        points = held_points(self._world, located.elements, self.shape[0])
        return LocatedPoints(points, located.rows[points], located.weights(self._order)[points])

    def require_inside(self, location: str, position: Position) -> None:
        """Refuse a point outside the mesh."""
        located = self.locate([position])
        if self._world.any(len(located.points) > 0):
            return
        distance = float(self.locator.nearest([position]).distances[0])
        refuse_outside(self._world, location, position, distance, "element")

    def sample_plane(
        self, axis: str, offset: float | None, points: int, values: Callable[[Integers], Floats]
    ) -> tuple[PlaneRaster, Floats | None]:
        """Sample fields on a plane across an axis; the same for any number of ranks.

        `values`: gives (rows, components, N + 1, N + 1, N + 1) of some own elements. Returns: on rank 0
        (components, second, first), nan outside the mesh, faces by :mod:`.interface_values`; else None.
        """
        low, high = mesh_bounds(self._mesh, self._order)
        raster = raster_on_ranks(self._world, low, high, axis, offset, points)
        samples = PlaneSamples(self.locator, raster)
        rows = samples.rows
        faces = SharedFaces(self._world, self._part, rows, nodes(self._mesh, self._order, rows))
        own = samples.values(faces.smooth(values(rows)))
        return raster, joined_on_root(self._world, own)

    def _open(self, path: Path, time: float) -> VtkhdfWriter:
        """A file of Lagrange cells."""
        return VtkhdfWriter(path, element_cells(self._order).layout(self.shape[0]), time)

    def _write_places(self, writer: VtkhdfWriter | None) -> None:
        """Write nodes and regions, gathered on rank 0 some elements at a time."""
        cells = element_cells(self._order)
        if writer is not None:
            writer.create(_REGION, np.int32, per_cell=True)
        for begin, end in ranges(self.shape[0], _AT_ONCE):
            rows = self._between(begin, end)
            regions = self._on_root(self._mesh.regions[rows], rows, begin, end)
            places = self._on_root(nodes(self._mesh, self._order, rows), rows, begin, end)
            if writer is not None and regions is not None and places is not None:
                writer.write(_REGION, begin, regions)
                writer.write(POINTS, begin, cells.at_points(np.moveaxis(places, -1, 1)))

    def _write_part(
        self, writer: Any | None, name: str, piece: Piece, part: np.ndarray | None
    ) -> None:
        """Write some elements at the points of their cells."""
        if part is not None:
            part = element_cells(self._order).at_points(part)
        super()._write_part(writer, name, piece, part)
