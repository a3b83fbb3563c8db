"""Generated meshes of hexahedra: cylinders and spheres, from lattices with shells around them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import ParamSpec

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_boxes import (
    CORNERS,
    CURVED_ORDER,
    SIDE_NAMES,
    Point,
    Triple,
    box,
    equidistant,
    graded,
    inside_before,
    lattice_numbers,
    places_around,
    places_of,
    require_counts,
)
from haloscope.mesh.hexes.hexes import FACES, BlockMap, BlockMapping, Floats, HexMesh, Integers
from haloscope.mesh.hexes.mesh_parts import ElementRows, unconnected
from haloscope.mesh.hexes.shared_meshes import connect, drop_unused_names, range_of

# A core of nx x ny x nz cells stands in the middle. Around some of its axes' faces lie layers of
# shells, and around those, where wanted, a margin of plain boxes. All vertices are numbered by
# their place in this arrangement; no coordinates are compared.


@dataclass(frozen=True)
class _Cells:
    """Some elements of a block: their corners' numbers, boxes, and faces at its outer end."""

    vertices: Integers
    lower: Floats
    upper: Floats
    outer: NDArray[np.bool_]


@dataclass(frozen=True)
class _Block:
    """Elements with one map, made by their numbers within it."""

    count: int  # How many
    part: int  # Of the arrangement, counted from the core
    # Index of the region, and the map.
    region: int
    shape: BlockMap
    column: int  # Elements from one to the next along z; meant for shells that leave z open
    cells: Callable[[Integers], _Cells]  # Makes some


class Arrangement:
    """A core with shells, built up part by part; its elements are made by their numbers."""

    def __init__(self, cells: Triple, axes: tuple[int, ...], core: BlockMap) -> None:
        self._cells, self._axes = cells, axes
        self._levels = self._parts = self._margin_points = 0
        self._core_points = math.prod(n + 1 for n in cells)
        # Points of the core's lattice that lie on no face with shells.
        self._low = tuple(int(axis in axes) for axis in range(3))
        self._high = tuple(n if axis in axes else n + 1 for axis, n in enumerate(cells))
        sizes = [high - low for low, high in zip(self._low, self._high, strict=True)]
        self._surface_points = self._core_points - math.prod(sizes)
        block = _Block(math.prod(cells), 0, 0, core, cells[0] * cells[1], self._core_cells)
        self._blocks = [block]

    def _core_cells(self, numbers: Integers) -> _Cells:
        cells = np.array(self._cells)
        places = places_of(numbers, self._cells)
        return _Cells(
            lattice_numbers(places[:, None] + CORNERS, self._cells),
            -1 + 2 * places / cells,
            -1 + 2 * (places + 1) / cells,
            np.zeros((len(numbers), FACES), bool),
        )

    def _point(self, places: Integers, level: Integers) -> Integers:
        """Numbers of points on the surface, on a level of the shells; level 0 is the core's."""
        number = lattice_numbers(places, self._cells)
        raised = self._core_points + (level - 1) * self._surface_points
        on_surface = number - inside_before(places, self._low, self._high)
        return np.where(level == 0, number, raised + on_surface)

    def add_shell(self, inner: BlockMap, outer: BlockMap, layers: int, region: int) -> None:
        """Put layers of elements around what is there, between maps of the cube's surface."""
        self._parts += 1
        for axis in self._axes:
            flat = list(self._cells)
            flat[axis] = 1
            for side in (-1, 1):
                shape = between(inner, outer, axis, side)
                cells = partial(self._shell_cells, layers, self._levels, axis, side)
                count, column = layers * math.prod(flat), flat[0] * flat[1]
                self._blocks.append(_Block(count, self._parts, region, shape, column, cells))
        self._levels += layers

    def _shell_cells(
        self, layers: int, first_level: int, axis: int, side: int, numbers: Integers
    ) -> _Cells:
        cells = np.array(self._cells)
        flat = list(self._cells)
        flat[axis] = 1
        layer, rest = np.divmod(numbers, math.prod(flat))
        places = places_of(rest, (flat[0], flat[1], flat[2]))
        corners = places[:, None] + CORNERS
        # Away from the core the level rises: along the axis on its high side only.
        level = layer[:, None] + (CORNERS[:, axis] if side > 0 else 1 - CORNERS[:, axis])
        corners[..., axis] = 0 if side < 0 else cells[axis]
        lower = -1 + 2 * places / cells
        upper = -1 + 2 * (places + 1) / cells
        near = -1 + 2 * layer / layers
        far = -1 + 2 * (layer + 1) / layers
        lower[:, axis], upper[:, axis] = (near, far) if side > 0 else (-far, -near)
        outer = np.zeros((len(numbers), FACES), bool)
        outer[:, 2 * axis + (side > 0)] = layer == layers - 1
        return _Cells(self._point(corners, first_level + level), lower, upper, outer)

    def add_margin(self, layers: int, block: BlockMap, region: int) -> None:
        """Put boxes around the shells, `layers` on each side, with parameters up to +-2.

        The map takes parameters beyond [-1, 1]: from 1 to 2 across the margin.
        """
        self._parts += 1
        wide = [n + 2 * layers for n in self._cells]
        count = math.prod(wide) - math.prod(self._cells)
        self._margin_points = math.prod(n + 1 for n in wide) - self._core_points
        cells = partial(self._margin_cells, layers, self._levels)
        column = wide[0] * wide[1]
        self._blocks.append(_Block(count, self._parts, region, block, column, cells))

    def _margin_cells(self, layers: int, level: int, numbers: Integers) -> _Cells:
        inner = np.array(self._cells)
        nx, ny, nz = (n + 2 * layers for n in self._cells)
        places = places_around(numbers, self._cells, layers)
        corners = places[:, None] + CORNERS
        shifted = corners - layers
        within = ((shifted >= 0) & (shifted <= inner)).all(axis=-1)
        low, high = (layers,) * 3, tuple(n + layers + 1 for n in self._cells)
        beyond = lattice_numbers(corners, (nx, ny, nz)) - inside_before(corners, low, high)
        first = self._core_points + level * self._surface_points
        inward = self._point(np.clip(shifted, 0, inner), np.asarray(level))

        def parameter(place: Integers) -> Floats:
            outside = np.where(place < 0, place, np.where(place > inner, place - inner, 0))
            return np.asarray(-1 + 2 * np.clip(place, 0, inner) / inner + outside / layers)

        last = np.array([nx, ny, nz]) - 1
        outer = np.stack([places == 0, places == last], axis=2).reshape(-1, FACES)
        return _Cells(
            np.where(within, inward, first + beyond),
            parameter(places - layers),
            parameter(places - layers + 1),
            outer,
        )

    def finish(
        self,
        order: int,
        region_names: tuple[str, ...],
        outer_names: tuple[str, ...],
        end_names: tuple[str, ...] = (),
        *,
        periodic: bool = False,
    ) -> Arrangement:
        """Say how coordinates are stored and what things are called; nothing is added after.

        `order`: geometric order of the stored coordinates.
        """
        self._order, self._region_names = order, region_names
        self._outer_names, self._end_names, self._periodic = outer_names, end_names, periodic
        return self

    @property
    def count(self) -> int:
        """Number of elements."""
        return sum(block.count for block in self._blocks)

    @property
    def points(self) -> int:
        """Number of vertices."""
        return self._core_points + self._levels * self._surface_points + self._margin_points

    def mesh_of(self, numbers: Integers) -> HexMesh:
        """Elements with ascending numbers (n,), as a mesh in which none has a neighbour yet."""
        arrays, blocks = [], []
        begin = 0
        for number, one_block in enumerate(self._blocks):
            chosen = numbers[slice(*np.searchsorted(numbers, (begin, begin + one_block.count)))]
            arrays.append(one_block.cells(chosen - begin))
            blocks.append(np.full(len(chosen), number))
            begin += one_block.count
        block = np.concatenate(blocks)
        lower, upper, outer = (
            np.concatenate([getattr(cells, name) for cells in arrays])
            for name in ("lower", "upper", "outer")
        )
        of_part = np.array([block.part == self._parts for block in self._blocks])
        boundaries = np.full((len(numbers), FACES), -1, np.int32)
        row, face = np.nonzero(outer & of_part[block][:, None])
        boundaries[row, face] = face if len(self._outer_names) == FACES else 0
        names = self._outer_names
        for side, name in enumerate(self._end_names):
            ends = (lower, upper)[side][:, 2] == 2 * side - 1
            boundaries[ends, 4 + side] = len(names)
            names = (*names, name)
        mapping = BlockMapping(block, lower, upper, tuple(block.shape for block in self._blocks))
        size = self._order + 1
        coordinates = mapping(np.arange(len(numbers)), equidistant(self._order))
        return unconnected(
            coordinates.reshape(len(numbers), size, size, size, 3),
            np.concatenate([cells.vertices for cells in arrays]),
            np.array([block.region for block in self._blocks], np.int32)[block],
            self._region_names,
            names,
            boundaries,
            mapping,
        )

    def rows(self, world: World) -> ElementRows:
        """The elements with which a rank begins; all ranks call this."""
        numbers = range_of(world, self.count)
        rows = connect(world, self.mesh_of(numbers), numbers, self.count, self.points)
        return self._joined(world, rows) if self._periodic else rows

    def _joined(self, world: World, rows: ElementRows) -> ElementRows:
        """Join the ends along z: columns of elements begin and end in the same block."""
        mesh = rows.mesh
        assert mesh.mapping is not None
        column = np.array([block.column for block in self._blocks])[mesh.mapping.blocks]
        length = (self._cells[2] - 1) * column
        behind, boundaries = rows.behind.copy(), mesh.boundaries.copy()
        for face, sign, name in zip((4, 5), (1, -1), self._end_names, strict=True):
            at = boundaries[:, face] == mesh.boundary_names.index(name)
            behind[at, face] = (rows.elements[at] + sign * length[at]) * FACES + (face ^ 1)
            boundaries[at, face] = -1
        mesh = drop_unused_names(world, replace(mesh, boundaries=boundaries))
        return replace(rows, mesh=mesh, behind=behind)


__all__ = ["SIDE_NAMES", "box", "cylinder", "cylinder_parts", "graded", "sphere", "sphere_parts"]

P = ParamSpec("P")
# Share of roundness of the core's sides: its corners open to about 120 degrees, like the
# elements that meet them.
_BULGE = 0.35


def _require_lengths(key: str, *lengths: float) -> None:
    if not all(math.isfinite(length) and length > 0 for length in lengths):
        raise InputError(
            "out of range",
            location=f"{key} = {', '.join(f'{length:g}' for length in lengths)}",
            allowed="lengths above 0",
        )


def _core_share(core: int, rings: int, axes: int) -> float:
    """Radius of the core's corners over that of the wall, so that elements are of one size."""
    side = 2 / math.sqrt(axes) / core
    return (1 / rings) / (side + 1 / rings)


def cylinder_parts(
    radius: float,
    bottom: float,
    top: float,
    *,
    core: int = 2,
    rings: int = 2,
    layers: int = 1,
    periodic: bool = False,
    order: int = CURVED_ORDER,
) -> Arrangement:
    """Circular cylinder around the z axis: a square core and rings of curved elements.

    Boundaries are ``wall``, ``bottom`` and ``top``; the latter two are gone where periodic.
    `order`: geometric order of the stored coordinates; the mapping itself is exact.
    """
    _require_lengths("radius", radius)
    _require_lengths("top - bottom", top - bottom)
    require_counts("core, rings, layers", (core, rings, layers))
    require_counts("order", (order,))
    axes = (0, 1)
    share = _core_share(core, rings, 2)
    scale = (radius, radius, (top - bottom) / 2)
    centre = (0.0, 0.0, (top + bottom) / 2)
    middle = bulged_surface(share, _BULGE, axes)
    inner, outer = placed(middle, scale, centre), placed(round_surface(1.0, axes), scale, centre)
    parts = Arrangement(
        (core, core, layers), axes, placed(gordon_hall(middle, axes), scale, centre)
    )
    parts.add_shell(inner, outer, rings, 0)
    return parts.finish(order, ("volume",), ("wall",), ("bottom", "top"), periodic=periodic)


def sphere_parts(
    radius: float,
    *,
    core: int = 2,
    rings: int = 2,
    outer_radius: float | None = None,
    box_half_width: float | None = None,
    outer_rings: int = 2,
    margin: float = 0.0,
    margin_layers: int = 0,
    centre: Point = (0.0, 0.0, 0.0),
    order: int = CURVED_ORDER,
) -> Arrangement:
    """Sphere: a cube core and six curved shells; alone, or within a larger sphere or a box.

    `margin`, `margin_layers`: thickness and number of layers of bricks around the box; none by
    default; `order`: geometric order of the stored coordinates; the mapping itself is exact.
    """
    # Alone, its region is ``volume`` and its boundary ``wall``. With `outer_radius` or
    # `box_half_width` the sphere is the region ``inner`` and what surrounds it ``outer``; the
    # boundary is the outer sphere's ``wall`` or the box's ``x-``, ``x+``, ... A margin of plain
    # bricks around the box is the region ``margin``.
    _require_lengths("radius", radius)
    require_counts("core, rings", (core, core, core, rings))
    require_counts("order", (order,))
    surrounding = outer_radius if outer_radius is not None else box_half_width
    if surrounding is not None:
        require_counts("outer_rings", (outer_rings,))
        name = "outer_radius" if box_half_width is None else "box_half_width"
        if not (math.isfinite(surrounding) and surrounding > radius):
            raise InputError(
                "out of range",
                location=f"{name} = {surrounding:g}",
                allowed=f"above the radius of the sphere, {radius:g}",
            )
    if margin_layers != 0 or margin != 0:
        require_counts("margin_layers", (margin_layers,))
        _require_lengths("margin", margin)
        if box_half_width is None:
            raise InputError(
                "the sphere has no box around it",
                location="margin",
                remedy="set box_half_width, or remove the margin",
            )
    axes, scale = (0, 1, 2), (1.0, 1.0, 1.0)
    middle = bulged_surface(radius * _core_share(core, rings, 3), _BULGE, axes)
    ball = placed(round_surface(radius, axes), scale, centre)
    parts = Arrangement((core, core, core), axes, placed(gordon_hall(middle), scale, centre))
    parts.add_shell(placed(middle, scale, centre), ball, rings, 0)
    if surrounding is None:
        return parts.finish(order, ("volume",), ("wall",))
    around = flat_surface(surrounding) if box_half_width else round_surface(surrounding, axes)
    parts.add_shell(ball, placed(around, scale, centre), outer_rings, 1)
    regions: tuple[str, ...] = ("inner", "outer")
    if margin_layers:
        parts.add_margin(margin_layers, placed(_bricks(surrounding, margin), scale, centre), 2)
        regions = (*regions, "margin")
    return parts.finish(order, regions, SIDE_NAMES if box_half_width else ("wall",))


def _whole(arrange: Callable[P, Arrangement]) -> Callable[P, HexMesh]:
    """Makes the whole mesh of what a function arranges."""

    @wraps(arrange)
    def make(*args: P.args, **named: P.kwargs) -> HexMesh:
        return arrange(*args, **named).rows(World()).whole_mesh()

    return make


cylinder, sphere = _whole(cylinder_parts), _whole(sphere_parts)


def _bricks(half_width: float, margin: float) -> BlockMap:
    """Continues the cube's surface: parameters from 1 to 2 run across the margin."""

    def shape(parameters: Floats) -> Floats:
        within = np.clip(parameters, -1, 1)
        return np.asarray(half_width * np.tan(np.pi / 4 * within) + margin * (parameters - within))

    return shape


# Maps of blocks, blended between their surfaces.


def gordon_hall(surface: BlockMap, axes: tuple[int, ...] = (0, 1, 2)) -> BlockMap:
    """Transfinite map that takes given values on the surface of the parameter cube."""
    # Gordon and Hall, Numer. Math. 21, 1973: the Boolean sum of linear blends, that is faces less
    # edges plus corners. The surface must be its own mirror image in each of `axes`: then opposite
    # sides blend to p times one of them (the component along the axis) or to one of them.
    subsets = [
        chosen for size in range(1, len(axes) + 1) for chosen in itertools.combinations(axes, size)
    ]

    def volume(parameters: Floats) -> Floats:
        result = np.zeros_like(parameters)
        for chosen in subsets:
            projected = parameters.copy()
            projected[..., chosen] = 1
            values = surface(projected)
            values[..., chosen] *= parameters[..., chosen]
            result += values if len(chosen) % 2 else -values
        return result

    return volume


def between(inner: BlockMap, outer: BlockMap, axis: int, side: int) -> BlockMap:
    """Shell between two surfaces, straight from one to the other."""

    def shell(parameters: Floats) -> Floats:
        weight = (1 + side * parameters[..., axis, None]) / 2
        foot = parameters.copy()
        foot[..., axis] = side
        return inner(foot) * (1 - weight) + outer(foot) * weight

    return shell


def round_surface(radius: float, axes: tuple[int, ...]) -> BlockMap:
    """Circle or sphere by equal angles: the cube's faces, blown up; other axes stay."""

    def surface(parameters: Floats) -> Floats:
        result = parameters.copy()
        direction = np.tan(np.pi / 4 * parameters[..., axes])
        result[..., axes] = radius * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        return result

    return surface


def flat_surface(half_width: float) -> BlockMap:
    """Cube of which each point lies on the ray through the round surface's point."""
    return lambda parameters: half_width * np.tan(np.pi / 4 * parameters)


def bulged_surface(radius: float, bulge: float, axes: tuple[int, ...]) -> BlockMap:
    """Square or cube with corners at a radius, its sides blown up part of the way to round."""
    ball = round_surface(radius, axes)

    def surface(parameters: Floats) -> Floats:
        result = parameters.copy()
        straight = radius / len(axes) ** 0.5 * parameters[..., axes]
        result[..., axes] = (1 - bulge) * straight + bulge * ball(parameters)[..., axes]
        return result

    return surface


def placed(block: BlockMap, scale: tuple[float, ...], centre: tuple[float, ...]) -> BlockMap:
    """The same map scaled along x, y, z and moved."""
    factors, offset = np.array(scale), np.array(centre)
    return lambda parameters: block(parameters) * factors + offset
