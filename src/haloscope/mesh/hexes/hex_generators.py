"""Meshes of hexahedra made from a few numbers: cylinders and spheres, beside boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import numpy as np

from haloscope.errors import InputError
from haloscope.mesh.hexes.hex_boxes import (
    CURVED_ORDER,
    SIDE_NAMES,
    Point,
    box,
    box_of_planes,
    graded,
    require_counts,
)
from haloscope.mesh.hexes.hex_mappings import (
    BlockMap,
    bulged_surface,
    flat_surface,
    gordon_hall,
    placed,
    round_surface,
)
from haloscope.mesh.hexes.hex_shells import Arrangement, Shell
from haloscope.mesh.hexes.hexes import Floats, HexMesh

__all__ = [
    "SIDE_NAMES",
    "box",
    "box_of_planes",
    "cylinder",
    "cylinder_parts",
    "graded",
    "sphere",
    "sphere_parts",
]

P = ParamSpec("P")
# Share of roundness of the core's sides: its corners open to about 120 degrees, like the
# elements that meet them.
_BULGE = 0.35


def _require_lengths(key: str, *lengths: float) -> None:
    if not all(math.isfinite(length) and length > 0 for length in lengths):
        raise InputError(
            f"{key} = {', '.join(f'{length:g}' for length in lengths)} is out of range; "
            "a length above 0 is needed"
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
    parts.add_shell(Shell(inner, outer, rings, 0))
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
    if outer_radius is not None and box_half_width is not None:
        raise InputError("outer_radius and box_half_width are both given; give one of them")
    surrounding = outer_radius if outer_radius is not None else box_half_width
    if surrounding is not None:
        require_counts("outer_rings", (outer_rings,))
        name = "outer_radius" if box_half_width is None else "box_half_width"
        if not (math.isfinite(surrounding) and surrounding > radius):
            raise InputError(
                f"{name} = {surrounding:g} is out of range; it must be above the radius of "
                f"the sphere, {radius:g}"
            )
    if margin_layers != 0 or margin != 0:
        require_counts("margin_layers", (margin_layers,))
        _require_lengths("margin", margin)
        if box_half_width is None:
            raise InputError("a margin needs a box around the sphere; give box_half_width")
    axes, scale = (0, 1, 2), (1.0, 1.0, 1.0)
    middle = bulged_surface(radius * _core_share(core, rings, 3), _BULGE, axes)
    ball = placed(round_surface(radius, axes), scale, centre)
    parts = Arrangement((core, core, core), axes, placed(gordon_hall(middle), scale, centre))
    parts.add_shell(Shell(placed(middle, scale, centre), ball, rings, 0))
    if surrounding is None:
        return parts.finish(order, ("volume",), ("wall",))
    around = flat_surface(surrounding) if box_half_width else round_surface(surrounding, axes)
    parts.add_shell(Shell(ball, placed(around, scale, centre), outer_rings, 1))
    regions: tuple[str, ...] = ("inner", "outer")
    if margin_layers:
        parts.add_margin(margin_layers, placed(_bricks(surrounding, margin), scale, centre), 2)
        regions = (*regions, "margin")
    return parts.finish(order, regions, SIDE_NAMES if box_half_width else ("wall",))


def _whole(arrange: Callable[P, Arrangement]) -> Callable[P, HexMesh]:
    """Makes the whole mesh of what a function arranges."""

    @wraps(arrange)
    def make(*args: P.args, **named: P.kwargs) -> HexMesh:
        return arrange(*args, **named).whole()

    return make


cylinder, sphere = _whole(cylinder_parts), _whole(sphere_parts)


def _bricks(half_width: float, margin: float) -> BlockMap:
    """Continues the cube's surface: parameters from 1 to 2 run across the margin."""

    def shape(parameters: Floats) -> Floats:
        within = np.clip(parameters, -1, 1)
        return np.asarray(half_width * np.tan(np.pi / 4 * within) + margin * (parameters - within))

    return shape
