"""Meshes of tetrahedra made from a few numbers: boxes, and channels around a cylinder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from haloscope.errors import InputError
from haloscope.mesh.hexes.hex_boxes import Point, graded, require_counts
from haloscope.mesh.hexes.hex_lattices import Triple
from haloscope.mesh.lattice.cylinder_planes import (
    BLOCK,
    CHANNEL_HEIGHT,
    ChannelCells,
    channel_plane,
)
from haloscope.mesh.tets.prisms import Plane, draw_out, pairs, squares, triangles_of_squares
from haloscope.mesh.tets.tet_faces import Floats
from haloscope.mesh.tets.tets import TetMesh, make_tet_mesh

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
            f"a box from {list(lower)} to {list(upper)} has no volume; each lower end must be "
            "below the upper one"
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
            raise InputError(f"planes along {name} must be two or more ascending numbers")
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
        raise InputError(f"thickness = {thickness:g} is out of range; a length above 0 is needed")
    heights = graded(layers, 0.0, thickness)
    return make_tet_mesh(*draw_out(plane, heights, ("back", "front"), mirrored=True))


def _require_layers(cells: ChannelCells, layers: int) -> None:
    """Refuse too few layers, and more elements than there may be before a plane is made for them."""
    require_counts("layers", (layers,))
    around = (max(1, 4 * cells.across), max(1, cells.rings), layers, 6)
    require_counts("tetrahedra around the cylinder", around)
