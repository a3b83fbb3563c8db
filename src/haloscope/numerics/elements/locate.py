"""Locates points in curved elements of a whole mesh or of a rank's part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import comb
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import Floats, HexMesh
from haloscope.mesh.hexes.mesh_parts import mesh_of
from haloscope.numerics.elements.element_maps import (
    along_all_axes,
    blocks,
    closest,
    gll_basis,
    gll_nodes,
    nearest_nodes,
    nodes,
    values_at,
)

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


Integers = NDArray[np.int64]


def held_points(world: World, elements: Integers, whole: int) -> Integers:
    """Share out points to the ranks whose elements hold them; all ranks call this.

    Where elements of several ranks meet the lowest number has the point.
    """
    # `elements`: (points,): number in the whole mesh of this rank's element that holds each, -1:
    # none does.
    present = np.where(elements >= 0, elements, whole)
    lowest = np.array([-world.largest(-float(element)) for element in present])
    return np.flatnonzero((elements >= 0) & (elements == lowest))


def refuse_outside(
    world: World, location: str, position: tuple[float, float, float], distance: float, nearest: str
) -> NoReturn:
    """Refuse a point that no rank's elements hold; all ranks call this.

    `position`: in m; `distance`: in m to the nearest of this rank.
    """
    near = -world.largest(-distance)
    x, y, z = position
    raise InputError(
        f"({x:g}, {y:g}, {z:g}) lies outside the mesh, {near:.3g} m from the nearest {nearest}",
        location=location,
        remedy="move the point into the mesh",
    )


# Reference coordinates up to this are so far from a face that no other element holds the point.
_INNER = 1 - 1e-4
# A point outside is left early where only that it is outside matters.
_GAIN_INSIDE, _GAIN_NEAREST = 1e-3, 1e-13
_FEW_ELEMENTS = 8
_DISTANCES_AT_ONCE = 1 << 22
_OUTSIDE = -1


@dataclass(frozen=True)
class Located:
    """Which elements hold points, and where in them."""

    # int64 (points,): number of the element in the mesh, the lowest where several meet; -1 where
    # none holds the point.
    elements: Integers
    rows: Integers  # int64 (points,): the element's place among those of the locator, or -1
    reference: Floats  # (points, 3): coordinates along i, j, k in [-1, 1]; nan outside

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether an element holds the point, (points,)."""
        return self.rows >= 0

    def weights(self, order: int) -> Floats:
        """Weights of an element's nodes along i, j and k, (points, 3, N + 1); 0 outside.

        The value at a point is the sum over nodes of ``weights[2][k] * weights[1][j] *
        weights[0][i] * values[k, j, i]``.
        """
        reference = np.where(self.inside[:, None], self.reference, 0.0)
        return gll_basis(order, reference) * self.inside[:, None, None]


@dataclass(frozen=True)
class Nearest:
    """The places of elements that are nearest to points."""

    distances: Floats  # (points,): 0 for a point in an element, inf where there are no elements
    places: Floats  # (points, 3)
    elements: Integers  # int64 (points,): number in the mesh, or -1


class Locator:
    """Finds points in elements; it keeps a box of each and computes nodes when they are needed."""

    def __init__(self, mesh: HexMesh, order: int, elements: Integers | None = None) -> None:
        self.mesh, self.order = mesh, order
        self.elements = np.arange(mesh.count) if elements is None else np.asarray(elements)
        self._boxes = element_boxes(mesh, order, self.elements)
        self._tolerance = self._boxes.tolerance
        self._bins = BoxBins(self._boxes.lower, self._boxes.upper) if len(self.elements) else None

    def find(self, points: ArrayLike) -> Located:
        """Find the elements that hold points (n, 3), and where in them."""
        targets = np.asarray(points, np.float64).reshape(-1, 3)
        rows = np.full(len(targets), _OUTSIDE)
        reference = np.full(targets.shape, np.nan)
        if self._bins is not None:
            for which, candidates in self._bins.pairs(targets):
                self._search(targets, which, candidates, rows, reference)
        elements = np.where(rows >= 0, self.elements[rows], -1) if len(self.elements) else rows
        return Located(elements, rows, reference)

    def nearest(self, points: ArrayLike) -> Nearest:
        """Find the places of elements nearest to finite points (n, 3).

        Looks at the boxes of all elements for each point: meant for few points.
        """
        targets = np.asarray(points, np.float64).reshape(-1, 3)
        distances = np.full(len(targets), np.inf)
        places = np.full(targets.shape, np.nan)
        elements = np.full(len(targets), _OUTSIDE)
        step = max(1, _DISTANCES_AT_ONCE // max(1, len(self.elements)))
        for begin in range(0, len(targets) if len(self.elements) else 0, step):
            span = slice(begin, begin + step)
            rows, reference, least = self._approach(targets[span])
            elements[span] = self.elements[rows]
            places[span] = self._places(rows, reference)
            distances[span] = np.where(least <= self._tolerance[rows], 0.0, least)
        return Nearest(distances, places, elements)

    def _search(
        self,
        targets: Floats,
        which: Integers,
        candidates: Integers,
        rows: Integers,
        reference: Floats,
    ) -> None:
        """Enter into rows and reference the points that are in candidates."""
        depths = self._boxes.depths(candidates, targets[which])
        within = depths <= 1
        which, candidates, depths = which[within], candidates[within], depths[within]
        # Most points are deep in the box of their element: that one is tried alone first.
        order = np.lexsort((depths, which))
        which, candidates = which[order], candidates[order]
        likely = np.diff(which, prepend=-1) != 0
        self._try(targets, which[likely], candidates[likely], None, rows, reference)
        settled = np.abs(reference[which]).max(axis=1) < _INNER
        again = ~likely & ~settled
        self._try(targets, which[again], candidates[again], None, rows, reference)
        # From the nearest node the way is short. Only where that fails are others tried.
        for octant in product((-0.5, 0.5), repeat=3):
            left = rows[which] < 0
            which, candidates = which[left], candidates[left]
            self._try(targets, which, candidates, np.array(octant), rows, reference)

    def _try(
        self,
        targets: Floats,
        which: Integers,
        candidates: Integers,
        start: Floats | None,
        rows: Integers,
        reference: Floats,
    ) -> None:
        """Search from one start; an element found before stays if its number is lower."""
        reached, distance = self._inverse(targets[which], candidates, start, _GAIN_INSIDE)
        numbers = np.append(self.elements, np.iinfo(np.int64).max)
        better = numbers[candidates] < numbers[rows[which]]
        order = np.flatnonzero((distance <= self._tolerance[candidates]) & better)
        # The last of those written to one point stays: the lowest element.
        order = order[np.argsort(-self.elements[candidates[order]], kind="stable")]
        rows[which[order]] = candidates[order]
        reference[which[order]] = reached[order]

    def _approach(self, targets: Floats) -> tuple[Integers, Floats, Floats]:
        """Row, reference coordinates and distance of the nearest place of any element."""
        bounds = box_distances(self._boxes.lower, self._boxes.upper, targets)
        rows = np.full(len(targets), _OUTSIDE)
        reference, least = np.empty(targets.shape), np.full(len(targets), np.inf)
        open_points, few = np.arange(len(targets)), _FEW_ELEMENTS
        while len(open_points):
            few = min(few, len(self.elements))
            chosen = np.argpartition(bounds[open_points], few - 1, axis=1)[:, :few]
            chosen.sort(axis=1)
            reached, distance = self._nearest_in(
                np.repeat(targets[open_points], few, axis=0), chosen.ravel()
            )
            distance = distance.reshape(chosen.shape)
            # Places as near as rounding tells are equal: the first element is taken.
            limit = distance.min(axis=1) + self._tolerance[chosen].min(axis=1)
            best = (distance <= limit[:, None]).argmax(axis=1)
            line = np.arange(len(open_points))
            rows[open_points] = chosen[line, best]
            reference[open_points] = reached.reshape(*chosen.shape, 3)[line, best]
            least[open_points] = distance[line, best]
            farthest = bounds[open_points[:, None], chosen].max(axis=1)
            nearer = (farthest < least[open_points]) & (few < len(self.elements))
            open_points, few = open_points[nearer], 4 * few
        return rows, reference, least

    def _nearest_in(self, targets: Floats, rows: Integers) -> tuple[Floats, Floats]:
        """As `_inverse`, from several starts: on a bent element there may be several minima."""
        reference, distances = self._inverse(targets, rows, None, _GAIN_NEAREST)
        for octant in product((-0.5, 0.5), repeat=3):
            other, distance = self._inverse(targets, rows, np.array(octant), _GAIN_NEAREST)
            nearer = distance < distances
            reference[nearer], distances[nearer] = other[nearer], distance[nearer]
        return reference, distances

    def _inverse(
        self, targets: Floats, rows: Integers, start: Floats | None, least_gain: float
    ) -> tuple[Floats, Floats]:
        """Reference coordinates and distances of points (n, 3) in an element each."""
        reference, distances = np.empty(targets.shape), np.empty(len(targets))
        for block_rows, points, valid in blocks(rows, self.order):
            places = self._nodes(block_rows)
            goals = targets[points]
            first = (
                nearest_nodes(places, goals)
                if start is None
                else np.broadcast_to(start, goals.shape)
            )
            at, distance = closest(places, goals, np.array(first), least_gain)
            reference[points[valid]], distances[points[valid]] = at[valid], distance[valid]
        return reference, distances

    def _places(self, rows: Integers, reference: Floats) -> Floats:
        result = np.empty(reference.shape)
        for block_rows, points, valid in blocks(rows, self.order):
            at = np.moveaxis(self._nodes(block_rows), -1, 1)
            result[points[valid]] = values_at(at, reference[points])[valid]
        return result

    def _nodes(self, rows: Integers) -> Floats:
        """Nodes of the elements of blocks, each element's computed once."""
        distinct, back = np.unique(rows, return_inverse=True)
        return nodes(self.mesh, self.order, self.elements[distinct])[back]


def evaluate(values: NDArray[Any], located: Located) -> Floats:
    """Values of fields at points that were found.

    `values`: (elements, ..., N + 1, N + 1, N + 1): the locator's elements, components, and nodes k,
    j, i.
    """
    components = values.shape[1:-3]
    flat = values.reshape(len(values), math.prod(components), *values.shape[-3:])
    result = np.full((len(located.rows), flat.shape[1]), np.nan)
    inside = np.flatnonzero(located.inside)
    for rows, points, valid in blocks(located.rows[inside], values.shape[-1] - 1):
        numbers = inside[points]
        point_values = values_at(flat[rows], located.reference[numbers])
        result[numbers[valid]] = point_values[valid]
    return result.reshape(-1, *components)


class PartLocator(Locator):
    """Finds points in a rank's elements; where several meet the one with the lowest number has it."""

    def __init__(
        self, mesh: HexMesh, order: int, numbers: Integers, elements: Integers | None = None
    ) -> None:
        chosen = np.arange(len(numbers)) if elements is None else elements
        self._rows = chosen[np.argsort(numbers[chosen], kind="stable")]
        self._numbers = numbers[self._rows]
        super().__init__(mesh_of(mesh, self._rows), order)

    def find(self, points: ArrayLike) -> Located:
        """Find elements by their numbers in the whole mesh, and by their rows on this rank."""
        located = super().find(points)
        if not len(self._rows):
            return located
        inside = located.inside
        return Located(
            np.where(inside, self._numbers[located.rows], -1),
            np.where(inside, self._rows[located.rows], -1),
            located.reference,
        )

    def nearest(self, points: ArrayLike) -> Nearest:
        """As :meth:`Locator.nearest`, with numbers in the whole mesh."""
        nearest = super().nearest(points)
        known = nearest.elements >= 0
        numbers = np.where(known, self._numbers[nearest.elements], -1) if known.any() else -1
        return replace(nearest, elements=np.broadcast_to(numbers, known.shape))
