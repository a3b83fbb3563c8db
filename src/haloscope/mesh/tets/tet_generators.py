"""Generated meshes of tetrahedra: boxes, and channels around a cylinder from layers of prisms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.hexes.hex_boxes import MOST_ELEMENTS, Point, Triple, graded, require_counts
from haloscope.mesh.tets.tets import (
    Floats,
    Integers,
    NamedTriangles,
    TetMesh,
    make_tet_mesh,
    named_triangles,
)

# A prism over a triangle a, b, c is cut as Dompierre, Labbe, Vallet and Camarero ("How to subdivide
# pyramids, prisms and hexahedra into tetrahedra", 1999) do it: with a < b < c in an order of the
# nodes that is the same for the whole plane, its elements are a b c c', a b b' c' and a a' b' c',
# where ' is the layer above. Every upright side is cut from its lower node below to its higher node
# above, seen from either of its prisms, so that the elements meet face to face whatever the plane's
# triangulation is. Over a lattice of squares this is Kuhn's division of each cube into six.


@dataclass(frozen=True, eq=False)
class Plane:
    """A triangulation of a plane domain."""

    points: Floats  # (n, 2): x and y in m
    triangles: Integers  # int64 (m, 3): points, counter-clockwise
    # int64 (n,): in which order a prism's edges are looked at; equal ones go by their numbers.
    ranks: Integers
    edges: Mapping[str, Integers]  # Pieces of the edge of the domain by name: int64 (k, 2), points


def squares(numbers: Integers) -> Integers:
    """Quadrangles (n, 4) of a lattice of points [j, i]: from the first point along i, then j."""
    corners = (numbers[:-1, :-1], numbers[:-1, 1:], numbers[1:, 1:], numbers[1:, :-1])
    return np.stack(corners, axis=-1).reshape(-1, 4)


def pairs(line: Integers) -> Integers:
    """Pieces (n - 1, 2) of a line of points (n,)."""
    return np.stack([line[:-1], line[1:]], axis=-1)


def triangles_of_squares(corners: Integers, falling: NDArray[np.bool_]) -> Integers:
    """Cut quadrangles into two triangles each.

    `corners`: (n, 4): points, counter-clockwise; `falling`: bool (n,): whether the cut runs from
    the second point to the fourth; otherwise it runs from the first to the third.
    """
    rising = corners[:, [[0, 1, 2], [0, 2, 3]]]
    other = corners[:, [[0, 1, 3], [1, 2, 3]]]
    return np.where(falling[:, None, None], other, rising).reshape(-1, 3)


def draw_out(
    plane: Plane, heights: Floats, ends: tuple[str, str], *, mirrored: bool = False
) -> tuple[Floats, Integers, NamedTriangles]:
    """Draw a plane out along z.

    `heights`: ascending z of the layers of nodes, in m.
    """
    points, layers = len(plane.points), len(heights) - 1
    if 3 * len(plane.triangles) * layers >= MOST_ELEMENTS:
        raise InputError(
            f"{layers} layers of {len(plane.triangles)} prisms make 2^31 tetrahedra or more",
            remedy="use fewer",
        )
    levels = np.empty((layers + 1, points, 3))
    levels[:, :, :2] = plane.points
    levels[:, :, 2] = np.asarray(heights)[:, None]
    nodes: Floats = levels.reshape(-1, 3)
    below = np.arange(layers) * points
    above = below + points
    if mirrored:
        turned = np.arange(layers) >= math.ceil(layers / 2)
        below, above = np.where(turned, above, below), np.where(turned, below, above)
    place = np.empty(points, np.int64)
    place[np.lexsort((np.arange(points), plane.ranks))] = np.arange(points)
    a, b, c = _sorted(plane.triangles, place).T
    low, high = below[:, None], above[:, None]
    rows = [
        (low + a, low + b, low + c, high + c),
        (low + a, low + b, high + b, high + c),
        (low + a, high + a, high + b, high + c),
    ]
    tets = np.stack([np.stack(row, axis=-1) for row in rows], axis=2).reshape(-1, 4)
    named: dict[str, list[Integers]] = {}
    for name, edges in plane.edges.items():
        a, b = _sorted(edges, place).T
        sides = [(low + a, low + b, high + b), (low + a, high + a, high + b)]
        upright = np.stack([np.stack(row, axis=-1) for row in sides], axis=2)
        named.setdefault(name, []).append(upright.reshape(-1, 3))
    for name, first in zip(ends, (0, layers * points), strict=True):
        named.setdefault(name, []).append(plane.triangles + first)
    triangles = {name: np.concatenate(parts) for name, parts in named.items()}
    return nodes, _right_handed(nodes, tets), named_triangles(triangles)


def _sorted(rows: Integers, place: Integers) -> Integers:
    """Points of each row in ascending order of their places."""
    return np.take_along_axis(rows, np.argsort(place[rows], axis=1, kind="stable"), axis=1)


def _right_handed(nodes: Floats, tets: Integers) -> Integers:
    """Elements with corners 2 and 3 exchanged where their volumes were negative."""
    a, b, c = (nodes[tets[:, corner]] - nodes[tets[:, 0]] for corner in (1, 2, 3))
    left = np.einsum("ex,ex->e", np.cross(a, b), c) < 0
    tets[left] = tets[left][:, [0, 1, 3, 2]]
    return tets


CHANNEL_HEIGHT = 0.41
"""Height H of the channel of Schaefer and Turek's benchmark in m; in 3D its width as well."""
CYLINDER_DIAMETER = 0.1
"""Diameter D in m."""
AXIS_HEIGHT = 0.2
"""Distance of the cylinder's axis from the lower wall in m."""
BLOCK = 0.2
"""Half the length along x of the block of rays and rings in m."""

_LARGEST_RATIO = 1000.0
# The first cell of the channel over the last before the block.
_STRETCH_UPSTREAM = 2.0


@dataclass(frozen=True)
class ChannelCells:
    """How finely the plane is cut."""

    across: int  # Cells from wall to wall; as many stand on each quarter of the cylinder
    rings: int  # Cells from the cylinder to the edge of the block around it
    growth: float  # Thickness of the outermost ring over the innermost
    stretch: float  # Length of the last cell before the outlet over the first behind the block


def channel_plane(cells: ChannelCells, axis: float, length: float) -> Plane:
    """Triangulate the plane of a channel with a circular hole.

    `axis`: distance of the cylinder's axis from the inlet in m, `BLOCK` or more; `length`: of the
    channel in m.
    """
    # Pieces of its edge are ``inlet``, ``outlet``, ``walls`` and ``cylinder``. Above and below the
    # axis it is cut, and its points ranked, like mirror images: where the channel is not symmetric,
    # by the numbers of the cells.
    n, rings = cells.across, cells.rings
    require_counts("resolution", (n,), least=4)
    require_counts("rings", (rings,), least=2)
    for name, ratio in (("growth", cells.growth), ("stretch", cells.stretch)):
        if not 1 <= ratio <= _LARGEST_RATIO:
            raise InputError(
                "out of range", location=f"{name} = {ratio:g}", allowed=f"1 to {_LARGEST_RATIO:g}"
            )
    rim = _rim(n)
    circle = CYLINDER_DIAMETER / 2 * rim / np.linalg.norm(rim, axis=1, keepdims=True)
    share = graded(rings, 0.0, 1.0, cells.growth)[:, None, None]
    ring = circle * (1 - share) + rim * share + [axis, AXIS_HEIGHT]
    ring[-1, : n + 1, 0], ring[-1, 2 * n : 3 * n + 1, 0] = axis + BLOCK, axis - BLOCK
    ring[-1, n : 2 * n + 1, 1], ring[-1, [*range(3 * n, 4 * n), 0], 1] = CHANNEL_HEIGHT, 0.0
    first = (BLOCK - CYLINDER_DIAMETER / 2) * (1 - share[-2, 0, 0])
    down = _stations(axis + BLOCK, length, first, cells.stretch)[1:]
    up = np.empty(0)
    if axis > BLOCK:
        up = -_stations(BLOCK - axis, 0.0, first, _STRETCH_UPSTREAM)[1:]
    return _joined(ring, down, up)


def _rim(n: int) -> Floats:
    """Where rays end, seen from the axis: (4 n, 2), from the lower right corner upwards.

    The rays of each side of the block make equal angles.
    """
    low, high = -AXIS_HEIGHT, CHANNEL_HEIGHT - AXIS_HEIGHT
    turns = np.linspace(math.atan2(low, BLOCK), math.atan2(high, BLOCK), n + 1)
    rise = BLOCK * np.tan(turns)
    right = np.stack([np.full(n + 1, BLOCK), rise], axis=1)
    left = right[::-1] * [-1, 1]

    def level(height: float) -> Floats:
        half = math.atan2(BLOCK, abs(height))
        run = abs(height) * np.tan(np.linspace(half, -half, n + 1))
        return np.stack([run, np.full(n + 1, height)], axis=1)

    sides = (right, level(high), left, level(low)[::-1])
    return np.concatenate([side[:-1] for side in sides])


def _stations(begin: float, end: float, first: float, ratio: float) -> Floats:
    """Cut a length into cells that begin with about a given length and grow by a ratio in all."""
    mean = first * (ratio - 1) / math.log(ratio) if ratio > 1 else first
    return graded(max(1, round((end - begin) / mean)), begin, end, ratio)


def _joined(ring: Floats, down: Floats, up: Floats) -> Plane:
    """Number the points of the ring [ring, ray], then those behind and before it by columns."""
    rays = ring.shape[1]
    n, rings = rays // 4, len(ring) - 1
    around = np.arange(ring.shape[0] * rays).reshape(-1, rays)
    right, left = around[-1, : n + 1], around[-1, 3 * n : 2 * n - 1 : -1]
    behind = around.size + np.arange(len(down) * (n + 1)).reshape(-1, n + 1)
    before = around.size + behind.size + np.arange(len(up) * (n + 1)).reshape(-1, n + 1)
    rows = ring[-1, : n + 1, 1]
    columns = [np.stack(np.broadcast_arrays(x, rows), axis=-1) for x in (*down, *up)]
    points = np.concatenate([ring.reshape(-1, 2), *columns])
    closed = np.concatenate([around.T, around.T[:1]])
    tail = np.concatenate([right[None], behind])
    head = np.concatenate([before[::-1], left[None]])
    # The shorter diagonal: rays get shorter along the first half of each side of the block.
    far = 2 * (np.arange(rays) % n) >= n
    upper = 2 * np.arange(n) >= n
    falling = [np.repeat(far, rings), np.repeat(upper, len(down)), np.repeat(upper, len(up))]
    cut = np.concatenate([squares(closed), squares(tail.T), squares(head.T)])
    bottom, top = around[-1, [*range(3 * n, rays), 0]], around[-1, n : 2 * n + 1]
    lower = np.concatenate([head[:-1, 0], bottom, tail[1:, 0]])
    higher = np.concatenate([head[:-1, -1], top[::-1], tail[1:, -1]])
    edges = {
        "inlet": pairs(head[0]),
        "outlet": pairs(tail[-1]),
        "walls": np.concatenate([pairs(lower), pairs(higher)]),
        "cylinder": pairs(closed[:, 0]),
    }
    triangles = triangles_of_squares(cut, np.concatenate(falling))
    return Plane(points, triangles, _ranks(rays, rings, len(down), len(up)), edges)


def _ranks(rays: int, rings: int, down: int, up: int) -> Integers:
    """Ranks of the points: by the turn from the ray downstream either way, then outwards."""
    n = rays // 4
    turn = np.abs((2 * np.arange(rays) - n + rays) % (2 * rays) - rays)
    aside = np.abs(2 * np.arange(n + 1) - n)
    width = rings + max(down, up) + 2
    outward = [
        turn * width + np.arange(rings + 1)[:, None],
        aside * width + rings + 1 + np.arange(down)[:, None],
        aside * width + rings + 1 + np.arange(up)[:, None],
    ]
    return np.concatenate([component.ravel() for component in outward])


BOX_SIDES = ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")


def tet_box(
    cells: Triple,
    lower: Point = (0.0, 0.0, 0.0),
    upper: Point = (1.0, 1.0, 1.0),
    *,
    grading: Point = (1.0, 1.0, 1.0),
    shape: Callable[[Floats], Floats] | None = None,
) -> TetMesh:
    """Box of bricks, each cut into Kuhn's six tetrahedra around its diagonal.

    Boundaries are ``x_low``, ``x_high``, ``y_low``, ..., ``z_high``. Nodes count along x first.
    `shape`: moves nodes (n, 3) to where they shall be: stretched, bent or twisted boxes.
    """
    # `lower`, `upper`: corners in m.
    require_counts("cells", cells)
    if not all(
        math.isfinite(low) and math.isfinite(high) and low < high
        for low, high in zip(lower, upper, strict=True)
    ):
        raise InputError(
            f"the box from {list(lower)} to {list(upper)} has no volume",
            allowed="lower coordinates below the upper ones",
        )
    planes = [
        graded(count, low, high, ratio)
        for count, low, high, ratio in zip(cells, lower, upper, grading, strict=True)
    ]
    return tet_box_of_planes(planes, shape=shape)


def tet_box_of_planes(
    planes: Sequence[Sequence[float] | Floats], *, shape: Callable[[Floats], Floats] | None = None
) -> TetMesh:
    """Box cut by given planes; otherwise as :func:`tet_box`.

    `planes`: ascending coordinates along x, y, z in m, ends included.
    """
    lines = [np.asarray(along, np.float64) for along in planes]
    for name, line in zip("xyz", lines, strict=True):
        if line.ndim != 1 or len(line) < 2 or not (np.diff(line) > 0).all():
            raise InputError(
                "wrong values",
                location=f"planes along {name}",
                allowed="two or more ascending numbers",
            )
    x, y, heights = lines
    numbers = np.arange(len(x) * len(y)).reshape(len(y), len(x))
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    bricks = squares(numbers)
    plane = Plane(
        points,
        triangles_of_squares(bricks, np.zeros(len(bricks), bool)),
        numbers.ravel(),
        {
            "x_low": pairs(numbers[:, 0]),
            "x_high": pairs(numbers[:, -1]),
            "y_low": pairs(numbers[0]),
            "y_high": pairs(numbers[-1]),
        },
    )
    nodes, tets, named = draw_out(plane, heights, ("z_low", "z_high"))
    return make_tet_mesh(nodes if shape is None else shape(nodes), tets, named)


def cylinder_channel(
    resolution: int = 14,
    *,
    layers: int | None = None,
    rings: int | None = None,
    growth: float = 6.0,
    stretch: float = 6.0,
) -> TetMesh:
    """Channel with a cylinder across it, of the DFG benchmarks 3D-1Z, 3D-2Z and 3D-3Z.

    `layers`: layers of cells along z; by default as many as `resolution`; `rings`: rings of cells
    around the cylinder; by default as many as `resolution`.
    """
    # 2.5 m x 0.41 m x 0.41 m with an axis along z at (0.5, 0.2), D = 0.1 m: Schaefer and Turek,
    # "Benchmark computations of laminar flow around a cylinder", 1996, Fig. 1. Boundaries are
    # ``inlet`` (x = 0), ``outlet`` (x = 2.5 m), ``walls`` (the other four sides) and ``cylinder``.
    #
    # Rays from the axis and rings of graded thickness fill the square block around the cylinder;
    # rows of quadrangles continue it up and down the channel. Both halves, above and below the
    # axis, and both halves along z, are cut like mirror images, so that cutting alone makes no
    # lift. A resolution of 14 with 15 layers makes 118,440 elements, one of 29 makes 978,924
    # (smallest SICN 0.20 and 0.19, medians 0.60 and 0.59).
    layers = resolution if layers is None else layers
    cells = ChannelCells(resolution, resolution if rings is None else rings, growth, stretch)
    _require_layers(cells, layers)
    plane = channel_plane(cells, 0.5, 2.5)
    heights = graded(layers, 0.0, CHANNEL_HEIGHT)
    return make_tet_mesh(*draw_out(plane, heights, ("walls", "walls"), mirrored=True))


def cylinder_slice(
    resolution: int = 24,
    *,
    layers: int = 1,
    thickness: float | None = None,
    rings: int | None = None,
    growth: float = 8.0,
    stretch: float = 3.0,
) -> TetMesh:
    """Thin slice of a channel around a cylinder, for flow in a plane: the DFG benchmark 2D-2.

    `thickness`: along z, in m; by default as many times the channel's height over `resolution` as
    there are layers.
    """
    # 2.2 m x 0.41 m with an axis at (0.2, 0.2), D = 0.1 m: Schaefer and Turek, 1996, Fig. 2.
    # Boundaries are ``inlet``, ``outlet``, ``walls`` (y = 0 and 0.41 m), ``cylinder``, ``back`` (z
    # = 0) and ``front``. Otherwise it is cut as :func:`cylinder_channel`; its block around the
    # cylinder begins at the inlet.
    cells = ChannelCells(resolution, resolution if rings is None else rings, growth, stretch)
    _require_layers(cells, layers)
    plane = channel_plane(cells, BLOCK, 2.2)
    if thickness is None:
        thickness = layers * CHANNEL_HEIGHT / resolution
    if not (math.isfinite(thickness) and thickness > 0):
        raise InputError(
            "out of range", location=f"thickness = {thickness:g}", allowed="a length above 0"
        )
    heights = graded(layers, 0.0, thickness)
    return make_tet_mesh(*draw_out(plane, heights, ("back", "front"), mirrored=True))


def _require_layers(cells: ChannelCells, layers: int) -> None:
    """Refuse too few layers, and more elements than there may be before a plane is made for them."""
    require_counts("layers", (layers,))
    around = (max(1, 4 * cells.across), max(1, cells.rings), layers, 6)
    require_counts("tetrahedra around the cylinder", around)
