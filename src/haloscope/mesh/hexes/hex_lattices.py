"""Cells and points of lattices by their numbers, i fastest: what generated hexahedra are counted by."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.hexes.hexes import Floats, Integers

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
