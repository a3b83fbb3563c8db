"""Boxes of bricks, straight or warped, and the numbering of the cells and points of lattices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import FACES, BlockMap, BlockMapping, Floats, HexMesh, Integers
from haloscope.mesh.hexes.mesh_parts import ElementRows, unconnected

Triple = tuple[int, int, int]
CORNERS = np.array([(c & 1, c >> 1 & 1, c >> 2) for c in range(8)])
"""Place (i, j, k) of each corner."""


def equidistant(order: int) -> Floats:
    """Nodes of equal distance in the reference cube, ((order + 1)^3, 3), i fastest."""
    line = (2.0 * np.arange(order + 1) - order) / order
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    return np.stack([i, j, k], axis=-1).reshape(-1, 3)


def lattice_numbers(places: Integers, cells: Triple) -> Integers:
    """Numbers of lattice points at places (..., 3); there is one more of them than cells."""
    nx, ny, _ = cells
    return np.asarray(places[..., 0] + (nx + 1) * (places[..., 1] + (ny + 1) * places[..., 2]))


def places_of(numbers: Integers, cells: Triple) -> Integers:
    """Places (n, 3) of cells of a lattice by their numbers, i fastest."""
    return np.stack(np.unravel_index(numbers, cells, order="F"), axis=-1)


def inside_before(places: Integers, low: Sequence[int], high: Sequence[int]) -> Integers:
    """How many points with low <= place < high come before places (..., 3), i fastest."""
    sizes = [max(0, end - begin) for begin, end in zip(low, high, strict=True)]
    before = np.zeros(places.shape[:-1], np.int64)
    within = np.ones(places.shape[:-1], bool)
    for axis in (2, 1, 0):
        place = places[..., axis]
        below = np.clip(place - low[axis], 0, sizes[axis])
        before += np.where(within, below * math.prod(sizes[:axis]), 0)
        within &= (place >= low[axis]) & (place < high[axis])
    return before


def places_around(numbers: Integers, inner: Triple, layers: int) -> Integers:
    """Places (n, 3), i fastest, of the cells of a lattice that surround an inner one."""
    nx, ny, nz = inner
    wide, high = nx + 2 * layers, ny + 2 * layers
    # Planes below, with a hole and above; in those with a hole rows likewise.
    k, rest, hollow = _split(numbers, layers, nz, wide * high, wide * high - nx * ny)
    j, at, gap = _split(rest, layers, ny, wide, wide - nx)
    i = np.where(gap & (at >= layers), at + nx, at)
    full_j, full_i = np.divmod(rest, wide)
    return np.stack([np.where(hollow, i, full_i), np.where(hollow, j, full_j), k], axis=-1)


def _split(
    numbers: Integers, layers: int, middle: int, whole: int, holed: int
) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Slices that numbers fall into, what is left of them, and whether these slices have a hole.

    There are `layers` slices of `whole` cells, `middle` of `holed` ones, and again `layers`.
    """
    first = numbers - layers * whole
    last = first - middle * holed
    hollow = (first >= 0) & (last < 0)
    begin = np.where(first < 0, 0, np.where(hollow, layers, layers + middle))
    left = np.where(first < 0, numbers, np.where(hollow, first, last))
    step, rest = np.divmod(left, np.where(hollow, holed, whole))
    return begin + step, rest, hollow


Point = tuple[float, float, float]
Flags = tuple[bool, bool, bool]

SIDE_NAMES = ("x-", "x+", "y-", "y+", "z-", "z+")
MOST_ELEMENTS = 2**31
CURVED_ORDER = 2
_PHASE = 0.7
_LARGEST_GRADING = 1000.0


def require_counts(key: str, counts: Sequence[int], least: int = 1) -> None:
    """Refuse numbers of elements that are too small, or 2^31 elements and more."""
    if any(count < least for count in counts):
        counts_text = counts[0] if len(counts) == 1 else list(counts)
        raise InputError(
            "out of range", location=f"{key} = {counts_text}", allowed=f"at least {least}"
        )
    if math.prod(max(1, int(count)) for count in counts) >= MOST_ELEMENTS:
        raise InputError(
            "the mesh has too many elements",
            location=f"{key} = {list(counts)}",
            allowed="fewer than 2^31",
            remedy="use fewer",
        )


def graded(elements: int, lower: float, upper: float, ratio: float = 1.0) -> Floats:
    """Planes that cut a length into elements."""
    if not 1 / _LARGEST_GRADING <= ratio <= _LARGEST_GRADING:
        raise InputError(
            "out of range",
            location=f"grading = {ratio:g}",
            allowed=f"{1 / _LARGEST_GRADING:g} to {_LARGEST_GRADING:g}, the size of the last element over "
            "that of the first",
        )
    growth = ratio ** (1 / max(1, elements - 1))
    fractions = np.concatenate([[0.0], np.cumsum(growth ** np.arange(elements))])
    fractions /= fractions[-1]
    return np.asarray(lower * (1 - fractions) + upper * fractions)


def box(elements: Triple, *corners: Point, **shape: Any) -> HexMesh:
    """Box of bricks, with the parameters of :func:`box_elements`."""
    require_counts("elements", elements)
    numbers = np.arange(math.prod(elements))
    return box_elements(numbers, elements, *corners, **shape).whole_mesh()


def box_elements(
    numbers: Integers,
    elements: Triple,
    lower: Point = (0.0, 0.0, 0.0),
    upper: Point = (1.0, 1.0, 1.0),
    *,
    periodic: Flags = (False, False, False),
    grading: Point = (1.0, 1.0, 1.0),
    warp: float = 0.0,
) -> ElementRows:
    """Some bricks of a box, made without the others: what lies behind their faces needs no search.

    Boundaries are ``x-``, ``x+``, ``y-``, ... where the box is not periodic.
    """
    # `warp`: amplitude A: each point moves by A (Lx, Ly, Lz) w(x) w(y) w(z), with w a sine of one
    # period along a periodic axis and half a period, zero at both walls, along another.
    require_counts("elements", elements)
    if not all(
        math.isfinite(low) and math.isfinite(high) and low < high
        for low, high in zip(lower, upper, strict=True)
    ):
        raise InputError(
            "it has no volume",
            location=f"box from {list(lower)} to {list(upper)}",
            allowed="lower ends below their upper ends",
        )
    lines = [graded(*along) for along in zip(elements, lower, upper, grading, strict=True)]
    places = places_of(numbers, elements)
    low, high = (
        np.stack([line[places[:, axis] + end] for axis, line in enumerate(lines)], axis=1)
        for end in (0, 1)
    )
    start, length = (
        np.array([line[0] for line in lines]),
        np.array([line[-1] - line[0] for line in lines]),
    )
    shape: BlockMap = _warped(start, length, periodic, warp) if warp else lambda places: places
    mapping = BlockMapping(np.zeros(len(places), np.int64), low, high, (shape,))
    names = tuple(name for face, name in enumerate(SIDE_NAMES) if not periodic[face // 2])
    boundaries = np.full((len(places), FACES), -1, np.int32)
    behind = np.empty((len(places), FACES), np.int64)
    for face, name in enumerate(SIDE_NAMES):
        axis, side = divmod(face, 2)
        other = places.copy()
        other[:, axis] += 2 * side - 1
        outside = places[:, axis] == side * (elements[axis] - 1)
        other[:, axis] %= elements[axis]
        number = other[:, 0] + elements[0] * (other[:, 1] + elements[1] * other[:, 2])
        behind[:, face] = number * FACES + (face ^ 1)
        if name in names:
            boundaries[outside, face] = names.index(name)
            behind[outside, face] = -1
    order = CURVED_ORDER if warp else 1
    coordinates = mapping(np.arange(len(places)), equidistant(order))
    mesh = unconnected(
        coordinates.reshape(len(places), order + 1, order + 1, order + 1, 3),
        lattice_numbers(places[:, None] + CORNERS, elements),
        np.zeros(len(places), np.int32),
        ("volume",),
        names,
        boundaries,
        mapping if warp else None,
    )
    return ElementRows(mesh, numbers, behind, math.prod(elements))


def _warped(start: Floats, length: Floats, periodic: Flags, warp: float) -> BlockMap:
    turns = np.where(periodic, 2 * np.pi, np.pi)
    # A phase keeps the planes between elements from falling on the zeros of the sine.
    phase = np.where(periodic, _PHASE, 0.0)

    def shape(places: Floats) -> Floats:
        waves = np.sin(turns * (places - start) / length + phase)
        return np.asarray(places + warp * length * waves.prod(axis=-1, keepdims=True))

    return shape
