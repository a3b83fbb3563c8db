"""Places where a surface of triangles crosses itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.surfaces.surfaces import Floats, Integers, Surface, spread

Signs = NDArray[np.int8]

# Cells of the grid that sorts triangles, over the mean size of their boxes, and the most along an axis.
_CELL, _MOST_CELLS = 1.5, 512
# Entries of cells that are paired at a time.
_CHUNK = 2**18
# A determinant is that of J. R. Shewchuk (Discrete Comput. Geom. 18 (1997) 305): its sign is certain
# above this share of the sum of its terms' sizes.
_CERTAIN = 8e-16


def require_uncrossed(surface: Surface) -> None:
    """Refuse a surface whose triangles cross each other."""
    pairs = crossing_pairs(surface)
    if not len(pairs):
        return
    place = surface.unit.place(surface.corners[pairs[0]].mean(axis=(0, 1)))
    raise InputError(
        f"it crosses itself: {counted(len(pairs), 'pair')} of triangles cross, the first at {place}",
        location=surface.location,
        remedy="remesh the surface there, or unite its parts with a mesh repair tool",
    )


def crossing_pairs(surface: Surface) -> Integers:
    """Pairs (n, 2) of triangles of which an edge of one passes through the other, ascending.

    A pair that only touches, or lies in one plane, does not count: only certain signs do.
    """
    pairs = [_crossing(surface, pair) for pair in _near_pairs(surface)]
    whole = np.concatenate([np.empty((0, 2), np.int64), *pairs])
    return whole[np.lexsort((whole[:, 1], whole[:, 0]))]


def _near_pairs(surface: Surface) -> Iterator[Integers]:
    """Pairs of triangles whose boxes overlap and that share one corner at most, each once."""
    corners = surface.corners
    low, high = corners.min(axis=1), corners.max(axis=1)
    start, extent = low.min(axis=0), np.ptp(corners.reshape(-1, 3), axis=0).max()
    size = max(_CELL * float((high - low).max(axis=1).mean()), extent / _MOST_CELLS)
    first = np.floor((low - start) / size).astype(np.int64)
    last = np.floor((high - start) / size).astype(np.int64)
    counts = last - first + 1
    triangle, place = spread(counts.prod(axis=1))
    nx, ny, _ = counts[triangle].T
    cell = first[triangle] + np.stack([place % nx, place // nx % ny, place // (nx * ny)], axis=1)
    shape = last.max(axis=0) + 1
    key = (cell[:, 2] * shape[1] + cell[:, 1]) * shape[0] + cell[:, 0]
    order = np.argsort(key, kind="stable")
    key, triangle, cell = key[order], triangle[order], cell[order]
    after = np.searchsorted(key, key, "right") - np.arange(len(key)) - 1
    for begin in range(0, len(key), _CHUNK):
        part = np.arange(begin, min(begin + _CHUNK, len(key)))
        entry, place = spread(after[part])
        one = part[entry]
        other = one + 1 + place
        a, b = triangle[one], triangle[other]
        overlap = ((low[a] <= high[b]) & (low[b] <= high[a])).all(axis=1)
        # A pair that shares several cells counts in the first of them.
        overlap &= (cell[one] == np.maximum(first[a], first[b])).all(axis=1)
        a, b = a[overlap], b[overlap]
        shared = (surface.triangles[a][:, :, None] == surface.triangles[b][:, None]).sum(
            axis=(1, 2)
        )
        yield np.sort(np.stack([a, b], axis=1)[shared < 2], axis=1)


def _crossing(surface: Surface, pairs: Integers) -> Integers:
    """The pairs of which an edge of one triangle passes through the other."""
    corners = surface.corners
    # Each must have corners on both sides of the other's plane.
    sides: list[list[Signs]] = [[], []]
    for one, other in ((0, 1), (1, 0)):
        a, b, c = np.moveaxis(corners[pairs[:, one]], 1, 0)
        own = [_side(a, b, c, corners[pairs[:, other], k]) for k in range(3)]
        split = (np.min(own, axis=0) < 0) & (np.max(own, axis=0) > 0)
        pairs = pairs[split]
        sides = [[sign[split] for sign in part] for part in (*sides[:one], own, *sides[one + 1 :])]
    crossed = np.zeros(len(pairs), bool)
    for (one, other), signs in zip(((0, 1), (1, 0)), sides, strict=True):
        for begin, end in ((0, 1), (1, 2), (2, 0)):
            through = np.flatnonzero(signs[begin] * signs[end] < 0)
            face = corners[pairs[through, one]]
            p, q = (corners[pairs[through, other], k] for k in (begin, end))
            turns = [_side(p, q, face[:, k], face[:, (k + 1) % 3]) for k in range(3)]
            same = (turns[0] == turns[1]) & (turns[1] == turns[2]) & (turns[0] != 0)
            crossed[through[same]] = True
    return pairs[crossed]


def _side(a: Floats, b: Floats, c: Floats, d: Floats) -> Signs:
    """On which side of the plane through a, b, c the points d lie: 1, -1, or 0 where rounding decides."""
    u, v, w = a - d, b - d, c - d
    sign = np.zeros(len(d), np.int8)
    terms = [
        (u[:, i] * v[:, j] * w[:, k], s)
        for (i, j, k), s in zip(
            ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)),
            (1, 1, 1, -1, -1, -1),
            strict=True,
        )
    ]
    value = sum(term * s for term, s in terms)
    sizes = sum(np.abs(term) for term, _ in terms)
    sign[value > _CERTAIN * sizes] = 1
    sign[value < -_CERTAIN * sizes] = -1
    return sign
