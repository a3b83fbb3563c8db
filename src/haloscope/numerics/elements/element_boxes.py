"""Boxes that hold curved elements, and which of them hold a point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from haloscope.mesh.hexes.hexes import Floats, HexMesh, Integers
from haloscope.numerics.elements.basis import gll_nodes
from haloscope.numerics.elements.element_geometry import along_all_axes, nodes

TOLERANCE = 1e-10
"""Distance from an element, over the diagonal of its box, at which a point still is in it."""
_NODES_AT_ONCE = 1 << 20
_PAIRS_AT_ONCE = 1 << 20
_MOST_BINS = 256
_ROUNDING = 16 * float(np.finfo(np.float64).eps)
_FLAT = 0.05


@cache
def gll_to_bernstein(order: int) -> Floats:
    """Coefficients in the Bernstein basis of the polynomial through values at GLL nodes.

    The polynomial stays between the least and the largest of them (Farouki, Computer Aided
    Geometric Design 29, 2012, section 5), which it does not between its values at nodes.
    """
    x = (1 + gll_nodes(order)) / 2
    values = np.stack([comb(order, n) * x**n * (1 - x) ** (order - n) for n in range(order + 1)], 1)
    result = np.asarray(np.linalg.inv(values), np.float64)
    result.setflags(write=False)
    return result


@dataclass(frozen=True)
class ElementBoxes:
    """Boxes that hold elements wholly: along the axes, and along each element's own directions."""

    # Corners of the boxes along the axes, each (elements, 3).
    lower: Floats
    upper: Floats
    middles: Floats  # Of the boxes along the elements' own directions, (elements, 3)
    # (elements, 3, 3): what takes a place less the middle to coordinates along those directions, in
    # which the box reaches from -1 to 1.
    inverses: Floats
    # (elements,): distance from an element at which a point is still taken to be in it. The boxes
    # are wider than the elements by this.
    tolerance: Floats

    def depths(self, boxes: Integers, points: Floats) -> Floats:
        """Greatest coordinate along an element's directions, of one point each; in it below 1."""
        from_middle = points - self.middles[boxes]
        return np.asarray(
            np.abs(np.einsum("nx,nxd->nd", from_middle, self.inverses[boxes])).max(axis=1)
        )


def element_boxes(mesh: HexMesh, order: int, elements: Integers) -> ElementBoxes:
    """Boxes of elements."""
    count = len(elements)
    lower, upper, middles = (np.empty((count, 3)) for _ in range(3))
    inverses, tolerance = np.empty((count, 3, 3)), np.empty(count)
    step = max(1, _NODES_AT_ONCE // (order + 1) ** 3)
    for begin in range(0, count, step):
        rows = slice(begin, begin + step)
        places = nodes(mesh, order, elements[rows])
        mean = places.mean(axis=(1, 2, 3), keepdims=True)
        coefficients = along_all_axes(gll_to_bernstein(order), places - mean)
        mean = mean[:, 0, 0, 0]
        coefficients = coefficients.reshape(len(mean), -1, 3)
        least, most = coefficients.min(axis=1), coefficients.max(axis=1)
        reach = np.abs(places).max(axis=(1, 2, 3, 4))
        allowed = TOLERANCE * np.linalg.norm(most - least, axis=1) + _ROUNDING * reach
        lower[rows] = mean + least - allowed[:, None]
        upper[rows] = mean + most + allowed[:, None]
        tolerance[rows] = allowed
        turned = np.linalg.inv(_directions(places, most - least))
        own = coefficients @ turned
        least, most = own.min(axis=1), own.max(axis=1)
        half = (most - least) / 2 + allowed[:, None] * np.linalg.norm(turned, axis=1)
        inverses[rows] = turned / half[:, None]
        middle = ((least + most) / 2)[:, None] @ np.linalg.inv(turned)
        middles[rows] = mean + middle[:, 0]
    return ElementBoxes(lower, upper, middles, inverses, tolerance)


def _directions(places: Floats, extents: Floats) -> Floats:
    """From the middle of a face to that of the opposite one, as rows; the axes where that is flat.

    Flat is an element bent round so far that its directions no longer span its volume.
    """
    i, j, k = (
        np.take(places, -1, axis).mean(axis=(1, 2)) - np.take(places, 0, axis).mean(axis=(1, 2))
        for axis in (3, 2, 1)
    )
    directions = np.stack([i, j, k], axis=1)
    lengths = np.linalg.norm(directions, axis=2)
    flat = np.abs(np.linalg.det(directions)) <= _FLAT * lengths.prod(axis=1)
    axes = np.eye(3) * extents[:, None]
    return np.where(flat[:, None, None], axes, directions)


def box_distances(lower: Floats, upper: Floats, points: Floats) -> Floats:
    """Distances of points (n, 3) from boxes (m, 3): (n, m); 0 within."""
    squares = np.zeros((len(points), len(lower)))
    for axis in range(3):
        at = points[:, axis, None]
        squares += np.maximum(np.maximum(lower[:, axis] - at, at - upper[:, axis]), 0.0) ** 2
    return np.sqrt(squares)


class BoxBins:
    """Finds boxes by bins of equal size, each of which lists the boxes that reach into it.

    `lower`, `upper`: corners of the boxes, each (boxes, 3); at least one.
    """

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self._lower, self._upper = lower, upper
        self._start, self._end = lower.min(axis=0), upper.max(axis=0)
        extent = self._end - self._start
        size = (extent.prod() / len(lower)) ** (1 / 3)
        self._bins = np.clip(np.rint(extent / size), 1, _MOST_BINS).astype(np.int64)
        first, last = self._bin_of(lower), self._bin_of(upper)
        spans = last - first + 1
        boxes, within = _expanded(spans.prod(axis=1))
        places = np.empty((len(boxes), 3), np.int64)
        for axis in range(3):
            within, places[:, axis] = np.divmod(within, spans[boxes, axis])
        numbers = self._number(first[boxes] + places)
        self._boxes = boxes[np.argsort(numbers, kind="stable")]
        self._counts = np.bincount(numbers, minlength=int(self._bins.prod()))
        self._begins = np.cumsum(self._counts) - self._counts

    def pairs(self, points: Floats) -> Iterator[tuple[Integers, Integers]]:
        """Each point, by its number, with each box that holds it; some points at a time."""
        # A comparison with nan is false, so that such a point is in no box.
        within = ((points >= self._start) & (points <= self._end)).all(axis=1)
        numbers = np.flatnonzero(within)
        bins = self._number(self._bin_of(points[numbers]))
        # Parts end where another lot of pairs is full.
        lots = np.cumsum(self._counts[bins]) // _PAIRS_AT_ONCE
        for part in np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(lots)) + 1):
            which, offset = _expanded(self._counts[bins[part]])
            boxes = self._boxes[self._begins[bins[part]][which] + offset]
            which = numbers[part][which]
            at = points[which]
            held = ((at >= self._lower[boxes]) & (at <= self._upper[boxes])).all(axis=1)
            if held.any():
                yield which[held], boxes[held]

    def _bin_of(self, points: Floats) -> Integers:
        fraction = (points - self._start) / (self._end - self._start)
        return np.asarray(np.clip((fraction * self._bins).astype(np.int64), 0, self._bins - 1))

    def _number(self, bins: Integers) -> Integers:
        return np.asarray((bins[:, 2] * self._bins[1] + bins[:, 1]) * self._bins[0] + bins[:, 0])


def _expanded(counts: Integers) -> tuple[Integers, Integers]:
    """Each number as many times as counted, and a count from 0 within those of one number."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
