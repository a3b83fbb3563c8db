"""Meshes of hexahedra made from a few numbers: boxes, cylinders, spheres."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from haloscope.domain.hex_mappings import (
    BlockMap,
    BlockMapping,
    bulged_surface,
    flat_surface,
    gordon_hall,
    placed,
    round_surface,
)
from haloscope.domain.hex_shells import (
    CORNERS,
    Arrangement,
    Shell,
    Triple,
    equidistant,
    lattice_cells,
    lattice_numbers,
)
from haloscope.domain.hexes import FACES, Floats, HexMesh, connect
from haloscope.domain.periodic import join_periodic
from haloscope.errors import InputError

Point = tuple[float, float, float]
Flags = tuple[bool, bool, bool]

SIDE_NAMES = ("x-", "x+", "y-", "y+", "z-", "z+")
LARGEST_WARP = 0.12
MOST_ELEMENTS = 2**31
CURVED_ORDER = 2
# Share of roundness of the core's sides: its corners open to about 120 degrees, like the
# elements that meet them.
_BULGE = 0.35
_PHASE = 0.7
_LARGEST_GRADING = 1000.0


def _require_counts(what: str, counts: Sequence[int], least: int = 1) -> None:
    if any(count < least for count in counts):
        given = counts[0] if len(counts) == 1 else list(counts)
        raise InputError(f"{what} = {given} is out of range; at least {least} is needed")
    if math.prod(max(1, int(count)) for count in counts) >= MOST_ELEMENTS:
        raise InputError(f"{what} = {list(counts)} makes 2^31 elements or more; use fewer")


def _require_lengths(what: str, *lengths: float) -> None:
    if not all(math.isfinite(length) and length > 0 for length in lengths):
        raise InputError(
            f"{what} = {', '.join(f'{length:g}' for length in lengths)} is out of range; "
            "a length above 0 is needed"
        )


def graded(elements: int, lower: float, upper: float, ratio: float = 1.0) -> Floats:
    """Planes that cut a length into elements.

    Parameters
    ----------
    elements
        How many.
    lower, upper
        Ends.
    ratio
        Size of the last element over that of the first; sizes grow geometrically.

    Returns
    -------
    array of shape (elements + 1,)
    """
    if not 1 / _LARGEST_GRADING <= ratio <= _LARGEST_GRADING:
        raise InputError(
            f"grading = {ratio:g} is out of range; the last element over the first may be "
            f"{1 / _LARGEST_GRADING:g} to {_LARGEST_GRADING:g}"
        )
    growth = ratio ** (1 / max(1, elements - 1))
    fractions = np.concatenate([[0.0], np.cumsum(growth ** np.arange(elements))])
    fractions /= fractions[-1]
    return np.asarray(lower * (1 - fractions) + upper * fractions)


def box(
    elements: Triple,
    lower: Point = (0.0, 0.0, 0.0),
    upper: Point = (1.0, 1.0, 1.0),
    *,
    periodic: Flags = (False, False, False),
    grading: Point = (1.0, 1.0, 1.0),
    warp: float = 0.0,
) -> HexMesh:
    """Box of bricks.

    Parameters
    ----------
    elements
        Along x, y, z.
    lower, upper
        Corners.
    periodic
        Axes along which the box closes on itself; one element is enough.
    grading
        Size of the last element over that of the first along each axis.
    warp
        Amplitude of a smooth distortion, in units of the box: see `box_of_planes`.

    Raises
    ------
    InputError
        No elements, corners in the wrong order, or a warp or grading out of range.
    """
    _require_counts("elements", elements)
    if not all(
        math.isfinite(low) and math.isfinite(high) and low < high
        for low, high in zip(lower, upper, strict=True)
    ):
        raise InputError(
            f"a box from {list(lower)} to {list(upper)} has no volume; each lower end must be "
            "below its upper end"
        )
    x, y, z = (graded(*along) for along in zip(elements, lower, upper, grading, strict=True))
    return box_of_planes((x, y, z), periodic=periodic, warp=warp)


def box_of_planes(
    planes: tuple[Sequence[float] | Floats, Sequence[float] | Floats, Sequence[float] | Floats],
    *,
    periodic: Flags = (False, False, False),
    warp: float = 0.0,
) -> HexMesh:
    """Box cut by given planes.

    Boundaries are ``x-``, ``x+``, ``y-``, ... where the box is not periodic.

    Parameters
    ----------
    planes
        Ascending coordinates along x, y, z, ends included.
    periodic
        Axes along which the box closes on itself.
    warp
        Amplitude A: each point moves by A (Lx, Ly, Lz) w(x) w(y) w(z), with w a sine of one
        period along a periodic axis and half a period, zero at both walls, along another.

    Raises
    ------
    InputError
        Planes do not ascend, or a warp is out of range.
    """
    lines = [np.asarray(along, np.float64) for along in planes]
    for name, line in zip("xyz", lines, strict=True):
        if (
            line.ndim != 1
            or len(line) < 2
            or not np.isfinite(line).all()
            or (np.diff(line) <= 0).any()
        ):
            raise InputError(f"planes along {name} must be two or more ascending numbers")
    if not abs(warp) <= LARGEST_WARP:
        raise InputError(
            f"warp = {warp:g} is out of range; elements stay valid from -{LARGEST_WARP} to "
            f"{LARGEST_WARP}"
        )
    cells = len(lines[0]) - 1, len(lines[1]) - 1, len(lines[2]) - 1
    _require_counts("elements", cells)
    places = lattice_cells(cells)
    lower = np.stack([lines[axis][places[:, axis]] for axis in range(3)], axis=1)
    upper = np.stack([lines[axis][places[:, axis] + 1] for axis in range(3)], axis=1)
    start, length = (
        np.array([line[0] for line in lines]),
        np.array([line[-1] - line[0] for line in lines]),
    )
    shape: BlockMap = _warped(start, length, periodic, warp) if warp else lambda places: places
    mapping = BlockMapping(np.zeros(len(places), np.int64), lower, upper, (shape,))
    boundaries = np.full((len(places), FACES), -1, np.int32)
    for face in range(FACES):
        axis, side = divmod(face, 2)
        boundaries[places[:, axis] == side * (cells[axis] - 1), face] = face
    order = CURVED_ORDER if warp else 1
    coordinates = mapping(np.arange(len(places)), equidistant(order))
    mesh = connect(
        coordinates.reshape(len(places), order + 1, order + 1, order + 1, 3),
        lattice_numbers(places[:, None] + CORNERS, cells),
        boundaries=boundaries,
        boundary_names=SIDE_NAMES,
        mapping=mapping if warp else None,
    )
    for axis in range(3):
        if periodic[axis]:
            shift = (np.arange(3) == axis) * length
            mesh = join_periodic(
                mesh, SIDE_NAMES[2 * axis], SIDE_NAMES[2 * axis + 1], (shift[0], shift[1], shift[2])
            )
    return mesh


def _warped(start: Floats, length: Floats, periodic: Flags, warp: float) -> BlockMap:
    turns = np.where(periodic, 2 * np.pi, np.pi)
    # A phase keeps the planes between elements from falling on the zeros of the sine.
    phase = np.where(periodic, _PHASE, 0.0)

    def shape(places: Floats) -> Floats:
        waves = np.sin(turns * (places - start) / length + phase)
        return np.asarray(places + warp * length * waves.prod(axis=-1, keepdims=True))

    return shape


def _core_share(core: int, rings: int, axes: int) -> float:
    """Radius of the core's corners over that of the wall, so that elements are of one size."""
    side = 2 / math.sqrt(axes) / core
    return (1 / rings) / (side + 1 / rings)


def cylinder(
    radius: float,
    bottom: float,
    top: float,
    *,
    core: int = 2,
    rings: int = 2,
    layers: int = 1,
    periodic: bool = False,
    order: int = CURVED_ORDER,
) -> HexMesh:
    """Circular cylinder around the z axis: a square core and rings of curved elements.

    Boundaries are ``wall``, ``bottom`` and ``top``; the latter two are gone where periodic.

    Parameters
    ----------
    radius, bottom, top
        Radius, and the ends along z.
    core
        Elements along each side of the core.
    rings
        Elements from the core to the wall.
    layers
        Elements along z.
    periodic
        Whether the ends are joined.
    order
        Geometric order of the stored coordinates; the mapping itself is exact.

    Raises
    ------
    InputError
        A length or a number of elements is out of range.
    """
    _require_lengths("radius", radius)
    _require_lengths("top - bottom", top - bottom)
    _require_counts("core, rings, layers", (core, rings, layers))
    _require_counts("order", (order,))
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
    mesh = parts.finish(order, ("volume",), ("wall",), ("bottom", "top"))
    if periodic:
        mesh = join_periodic(mesh, "bottom", "top", (0.0, 0.0, top - bottom))
    return mesh


def sphere(
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
) -> HexMesh:
    """Sphere: a cube core and six curved shells; alone, or within a larger sphere or a box.

    Alone, its region is ``volume`` and its boundary ``wall``. With `outer_radius` or
    `box_half_width` the sphere is the region ``inner`` and what surrounds it ``outer``; the
    boundary is the outer sphere's ``wall`` or the box's ``x-``, ``x+``, ... A margin of plain
    bricks around the box is the region ``margin``.

    Parameters
    ----------
    radius
        Of the sphere; elements meet there.
    core
        Elements along each side of the core.
    rings
        Elements from the core to the radius.
    outer_radius, box_half_width
        At most one: radius of the sphere, or half the side of the cube, that surrounds it.
    outer_rings
        Elements from the radius to what surrounds it.
    margin, margin_layers
        Thickness and number of layers of bricks around the box; none by default.
    centre
        Of all.
    order
        Geometric order of the stored coordinates; the mapping itself is exact.

    Raises
    ------
    InputError
        A length or a number of elements is out of range.
    """
    _require_lengths("radius", radius)
    _require_counts("core, rings", (core, core, core, rings))
    _require_counts("order", (order,))
    if outer_radius is not None and box_half_width is not None:
        raise InputError("outer_radius and box_half_width are both given; give one of them")
    surrounding = outer_radius if outer_radius is not None else box_half_width
    if surrounding is not None:
        _require_counts("outer_rings", (outer_rings,))
        name = "outer_radius" if box_half_width is None else "box_half_width"
        if not (math.isfinite(surrounding) and surrounding > radius):
            raise InputError(
                f"{name} = {surrounding:g} is out of range; it must be above the radius of "
                f"the sphere, {radius:g}"
            )
    if margin_layers != 0 or margin != 0:
        _require_counts("margin_layers", (margin_layers,))
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


def _bricks(half_width: float, margin: float) -> BlockMap:
    """Continues the cube's surface: parameters from 1 to 2 run across the margin."""

    def shape(parameters: Floats) -> Floats:
        within = np.clip(parameters, -1, 1)
        return np.asarray(half_width * np.tan(np.pi / 4 * within) + margin * (parameters - within))

    return shape
