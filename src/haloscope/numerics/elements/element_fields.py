"""Fields on curved elements shared out over ranks: gathered for files, read back, sampled at points and on planes."""

from __future__ import annotations

import math
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
from haloscope.mesh.hexes.hexes import FACES, Floats, HexMesh, Integers, face_nodes
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.elements.element_maps import element_cells, in_pieces, nodes
from haloscope.numerics.elements.locate import (
    Located,
    Locator,
    PartLocator,
    evaluate,
    held_points,
    refuse_outside,
)

# A discontinuous field has two values at a face between elements, and its polynomials ring most
# there. Drawn as they are, weak fields show the mesh as lines. In a picture the nodes of a face get
# the value that a cubic through the next two nodes on either side has there, but no farther from the
# mean of the two values than twice their difference: where the field is resolved nothing changes.
# Faces between different regions, at which fields jump, stay as they are, and so does everything but
# pictures.

# Passes: nodes within faces, then those on edges, from nodes within faces, then corners.
_PASSES = 3
_LOWEST_CUBIC = 3  # order from which there are two nodes within an element between its faces
_REACH = 2.0  # largest distance of a new value from the mean of the two, over their difference
# Weight of a face without a jump where faces meet, over its values, and where these are 0.
_LITTLE, _TINY = 1e-9, 1e-200
_FACES_AT_ONCE = 1 << 12


class SharedFaces:
    """Faces between elements of one region that are both looked at; all ranks make one.

    `rows`: own elements that are looked at; `places`: their nodes (rows, N + 1, N + 1, N + 1, 3).
    """

    def __init__(self, world: World, part: MeshPart, rows: Integers, places: Floats) -> None:
        self._world = world
        order = places.shape[1] - 1
        self._count, self._nodes = len(rows), (order + 1) ** 3
        self._received = 0  # faces that other ranks have lent
        self._on_face = face_nodes(order)
        steps = (0, 1, 2) if order >= _LOWEST_CUBIC else (0,)
        self._layers = self._layer_nodes(order, steps)
        behind = part.behind[rows]
        own = part.elements[rows][:, None] * FACES + np.arange(FACES)
        flat = places.reshape(self._count, self._nodes, 3)
        # Faces that other ranks may ask for.
        self._lent = np.flatnonzero(part.partners[rows].ravel() >= 0)
        lent_numbers = self._gather(own.ravel()[self._lent])
        regions = part.mesh.regions[rows].astype(np.int64)
        elements, faces = np.divmod(self._lent, FACES)
        lent_regions = self._gather(regions[elements])
        lent_places = self._gather(self._of_faces(flat, elements, faces, self._on_face))
        lent_distances = self._gather(self._distances(flat, elements, faces))
        numbers = np.concatenate([own.ravel(), lent_numbers])
        sorting = np.argsort(numbers, kind="stable")
        at = np.minimum(
            np.searchsorted(numbers, behind.ravel(), sorter=sorting), max(0, len(numbers) - 1)
        )
        partner = sorting[at] if len(numbers) else at
        all_regions = np.concatenate([np.repeat(regions, FACES), lent_regions])
        known = numbers[partner] == behind.ravel() if len(numbers) else np.zeros(0, bool)
        same = (
            known & (all_regions[partner] == np.repeat(regions, FACES)) if len(numbers) else known
        )
        self._shared = np.flatnonzero(same)
        self._partner = partner[self._shared]
        self._match(flat, lent_places, lent_distances)

    def _layer_nodes(self, order: int, steps: tuple[int, ...]) -> Integers:
        """Nodes of each face and of the layers behind it, (6, layers, (N + 1)^2)."""
        layers = np.empty((FACES, len(steps), (order + 1) ** 2), np.int64)
        for face in range(FACES):
            axis, side = divmod(face, 2)
            stride = (order + 1) ** axis * (1 - 2 * side)
            for number, step in enumerate(steps):
                layers[face, number] = self._on_face[face] + step * stride
        return layers

    @staticmethod
    def _of_faces(
        values: NDArray[np.float64], elements: Integers, faces: Integers, chosen: Integers
    ) -> Floats:
        """Values (rows, nodes, ...) at the chosen nodes of faces."""
        index = chosen[faces]
        return values[elements.reshape(-1, *[1] * (index.ndim - 1)), index]

    def _distances(self, flat: Floats, elements: Integers, faces: Integers) -> Floats:
        """From nodes of faces to those of the layers behind them, (faces, layers - 1, nodes)."""
        layers = self._of_faces(flat, elements, faces, self._layers)
        return np.asarray(np.linalg.norm(layers[:, 1:] - layers[:, :1], axis=-1))

    def _gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of all other ranks; all ranks call this."""
        world = self._world
        sent = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        received = world.exchange(
            [sent[:0] if r == world.rank else sent for r in range(world.size)]
        )
        whole = np.frombuffer(b"".join(part.tobytes() for part in received), rows.dtype)
        width = math.prod(rows.shape[1:])
        self._received = len(whole) // width if width else self._received
        return whole.reshape(self._received, *rows.shape[1:])

    def _match(self, flat: Floats, lent_places: Floats, lent_distances: Floats) -> None:
        """How the partners' nodes run, and the weights of all values."""
        elements, faces = np.divmod(self._shared, FACES)
        nodes, layers = self._layers.shape[2], self._layers.shape[1]
        self._turn = np.empty((len(elements), nodes), np.int64)
        self._weights = np.empty((len(elements), 2 * (layers - 1), nodes))
        for begin in range(0, len(elements), _FACES_AT_ONCE):
            span = slice(begin, begin + _FACES_AT_ONCE)
            here = self._of_faces(flat, elements[span], faces[span], self._on_face)
            partner = self._partner[span]
            own = np.minimum(partner, FACES * self._count - 1)
            beyond = self._of_faces(flat, *np.divmod(own, FACES), self._on_face)
            far = self._distances(flat, *np.divmod(own, FACES))
            lent = partner >= FACES * self._count
            beyond[lent] = lent_places[partner[lent] - FACES * self._count]
            far[lent] = lent_distances[partner[lent] - FACES * self._count]
            # Behind a periodic side the partner lies elsewhere.
            here = here - here.mean(axis=1, keepdims=True)
            beyond = beyond - beyond.mean(axis=1, keepdims=True)
            apart = ((here[:, :, None] - beyond[:, None]) ** 2).sum(axis=-1)
            turn = apart.argmin(axis=2)
            self._turn[span] = turn
            near = self._distances(flat, elements[span], faces[span])
            far = np.take_along_axis(far, turn[:, None], axis=2)
            self._weights[span] = _weights(np.concatenate([-near, far], axis=1))

    def smooth(self, values: NDArray[np.floating]) -> Floats:
        """Values (rows, components, N + 1, N + 1, N + 1) with new ones at shared faces."""
        result = np.array(values, np.float64).reshape(self._count, values.shape[1], self._nodes)
        for component in range(result.shape[1]):
            one, other = self._sides(result[:, component])
            middle, jump = (one[:, 0] + other[:, 0]) / 2, np.abs(one[:, 0] - other[:, 0])
            reach = _REACH * jump
            # Where faces meet the one with the jump counts.
            weight = jump + _LITTLE * (np.abs(one[:, 0]) + np.abs(other[:, 0])) + _TINY
            for _ in range(_PASSES):
                sides = np.concatenate([one[:, 1:], other[:, 1:]], axis=1)
                at_face = middle
                if sides.shape[1]:
                    cubic = (self._weights * sides).sum(axis=1)
                    at_face = np.clip(cubic, middle - reach, middle + reach)
                result[:, component] = self._placed(result[:, component], at_face, weight)
                one, other = self._sides(result[:, component])
        return result.reshape(values.shape)

    def _sides(self, values: Floats) -> tuple[Floats, Floats]:
        """Values of the layers on either side of shared faces, each (faces, layers, nodes)."""
        elements, faces = np.divmod(self._shared, FACES)
        lent = self._gather(self._of_faces(values, *np.divmod(self._lent, FACES), self._layers))
        own = np.minimum(self._partner, FACES * self._count - 1)
        beyond = self._of_faces(values, *np.divmod(own, FACES), self._layers)
        foreign = self._partner >= FACES * self._count
        beyond[foreign] = lent[self._partner[foreign] - FACES * self._count]
        beyond = np.take_along_axis(beyond, self._turn[:, None], axis=2)
        return self._of_faces(values, elements, faces, self._layers), beyond

    def _placed(self, values: Floats, at_face: Floats, weight: Floats) -> Floats:
        """Values with those at shared faces put in; their weighted mean where faces meet."""
        elements, faces = np.divmod(self._shared, FACES)
        total, weights = np.zeros_like(values), np.zeros(values.shape)
        for face in range(FACES):
            chosen = np.flatnonzero(faces == face)
            index = elements[chosen][:, None], self._on_face[face]
            total[index] += weight[chosen] * at_face[chosen]
            weights[index] += weight[chosen]
        return np.where(weights > 0, total / np.maximum(weights, _TINY), values)


def _weights(positions: Floats) -> Floats:
    """Weights at 0 of the polynomial through values at positions (faces, values, nodes)."""
    count = positions.shape[1]
    weights = np.ones(positions.shape)
    for one in range(count):
        for other in range(count):
            if one != other:
                apart = positions[:, one] - positions[:, other]
                weights[:, one] *= -positions[:, other] / apart
    return weights


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
