"""Points of a sparse lattice shared out by cutting their bounding cuboid into one cuboid a rank.

Each cut halves the work of a cuboid by a plane between two planes of points. Where it lies follows
from what each plane holds, which all ranks add up, so no rank need know more than its own points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World

Integers = NDArray[np.int64]

# So much more load than with the evenest cuts is accepted, all cuts together, for shorter ones.
_SPARE_LOAD = 0.03
# Among cuts as good as each other the slow axes go first: rows along x stay whole.
_AXES = (2, 1, 0)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Cuboids that tile the bounding cuboid of a lattice's points, one a rank."""

    # int64 (ranks, 3): first point of each along x, y, z, and the one after its last.
    lo: Integers
    hi: Integers
    # int64 (ranks,): points in each, and their weights with what was added to them.
    points: Integers
    loads: Integers
    # The cuts: node n divides at coordinate ``cuts[n]`` of axis ``axes[n]`` into ``children[n]``,
    # below and from it on; a child -1 - r is the cuboid of rank r. Without a cut all is rank 0's.
    axes: Integers
    cuts: Integers
    children: Integers

    @property
    def imbalance(self) -> float:
        """Largest load over the mean, less 1."""
        return float(self.loads.max() / self.loads.mean()) - 1

    def owners(self, positions: NDArray[np.integer] | NDArray[np.floating]) -> NDArray[np.int32]:
        """Ranks of positions.

        `positions`: (n, 3), whole or not, in points of the lattice. A cuboid holds what is not
        below its first point and below its `hi`; what lies outside all is the nearest outer one's.
        """
        node = np.full(len(positions), 0 if len(self.axes) else -1)
        while len(inner := np.flatnonzero(node >= 0)):
            at = node[inner]
            above = positions[inner, self.axes[at]] >= self.cuts[at]
            node[inner] = self.children[at, above.astype(np.int64)]
        ranks: NDArray[np.int32] = (-1 - node).astype(np.int32)
        return ranks

    def describe(self) -> str:
        """One line for a report."""
        return (
            f"{int(self.points.sum())} points in {len(self.lo)} cuboids: "
            f"{self.points.min()} to {self.points.max()} each, largest load "
            f"{100 * self.imbalance:.1f} % above the mean"
        )


@dataclass(frozen=True)
class _Cuboid:
    """A cuboid that is still to be cut: for how many ranks, and which child of which cut it is."""

    lo: Integers
    hi: Integers
    first: int
    ranks: int
    parent: int
    side: int


def bisect(
    world: World,
    coordinates: NDArray[np.integer],
    shape: tuple[int, int, int],
    *,
    periodic: tuple[bool, bool, bool] = (False, False, False),
    extra: tuple[NDArray[np.integer], ArrayLike] | None = None,
    parts: int | None = None,
) -> Boxes:
    """Cut the bounding cuboid of a lattice's points by recursive bisection; all ranks call this.

    `coordinates`: (n, 3): x, y, z of the points that this rank brings, each point by one rank.
    """
    # Of the planes that share the load about evenly each cut takes the one with the fewest points
    # beside it. Work is counted in whole numbers, so that sums, and with them the cuboids, do not
    # depend on which rank brings which point. A rank needs about 120 bytes a point that it brings.
    # `extra`: places (m, 3) in the lattice and further work there, (m,), in that of a point.
    # `parts`: how many cuboids; by default one a rank of the world.
    parts = world.size if parts is None else parts
    none = np.zeros((0, 3), np.int64)
    beside, more = (none, none[:, 0]) if extra is None else (extra[0], np.asarray(extra[1]))
    fault = ""
    if more.shape != (len(beside),) or more.dtype.kind not in "iu" or (more < 0).any():
        fault = (
            f"weights of further work: their type is {more.dtype} and their shape {more.shape}; "
            f"allowed: {len(beside)} whole numbers of at least 0, one for each place"
        )
    faults = [text for text in world.gather_texts(fault) if text]
    if faults:
        raise InputError(faults[0])
    counted = np.ones(len(coordinates), np.int64)
    corner, extent = np.zeros((1, 3), np.int64), np.array([shape])
    group = np.zeros(len(coordinates), np.int64)
    planes, _ = _planes(world, coordinates, (counted, counted), corner, extent, group)
    points = int(planes[0].sum())
    if points < parts:
        raise InputError(
            f"rank {points} of {parts} would have no points; the lattice has {points}",
            remedy="start fewer ranks or make the spacing finer",
        )
    held = [np.flatnonzero(plane) for plane in planes]
    lo = np.array([plane[0] for plane in held])
    hi = np.array([plane[-1] + 1 for plane in held])
    whole = (lo == 0) & (hi == shape) & np.array(periodic)
    rows = (np.append(counted, np.zeros(len(more), np.int64)), np.append(counted, more))
    places = coordinates
    if len(beside):
        places = np.concatenate([coordinates, np.clip(beside, lo, hi - 1)])
    return _Bisection(world, places, rows, parts, whole).run(lo, hi)


class _Bisection:
    """All cuboids of a level of cuts are cut together, after one sum over the ranks."""

    def __init__(
        self,
        world: World,
        places: NDArray[np.integer],
        rows: tuple[Integers, Integers],
        parts: int,
        closed: NDArray[np.bool_],
    ) -> None:
        self._world, self._places, self._rows, self._closed = world, places, rows, closed
        self._spare = _SPARE_LOAD / max(1, (parts - 1).bit_length())
        self._box = np.zeros((parts, 2, 3), np.int64)
        self._totals = np.zeros((parts, 2), np.int64)
        self._axes: list[int] = []
        self._cuts: list[int] = []
        self._children: list[list[int]] = []

    def run(self, lo: Integers, hi: Integers) -> Boxes:
        active = [_Cuboid(lo, hi, 0, len(self._box), -1, 0)]
        # Which of the active cuboids holds each place; -1: none, it is cut no more.
        group = np.zeros(len(self._places), np.int64)
        while active:
            first = np.array([domain.lo for domain in active])
            extent = np.array([domain.hi - domain.lo for domain in active])
            counts, loads = _planes(self._world, self._places, self._rows, first, extent, group)
            following: list[_Cuboid] = []
            moves = np.full((len(active), 4), -1)  # axis, cut, cuboid below and above it
            for number, domain in enumerate(active):
                here = slice(3 * number, 3 * number + 3)
                if domain.ranks == 1:
                    self._box[domain.first] = domain.lo, domain.hi
                    self._totals[domain.first] = counts[3 * number].sum(), loads[3 * number].sum()
                    self._attach(domain, -1 - domain.first)
                    continue
                closed = self._closed & (domain.lo == lo) & (domain.hi == hi)
                axis, at, low = _best_cut(
                    domain.ranks, counts[here], loads[here], closed, self._spare
                )
                cut = int(domain.lo[axis]) + at
                node = len(self._axes)
                self._attach(domain, node)
                self._axes.append(axis)
                self._cuts.append(cut)
                self._children.append([0, 0])
                moves[number] = axis, cut, len(following), len(following) + 1
                end, start = domain.hi.copy(), domain.lo.copy()
                end[axis] = start[axis] = cut
                following.append(_Cuboid(domain.lo, end, domain.first, low, node, 0))
                following.append(
                    _Cuboid(start, domain.hi, domain.first + low, domain.ranks - low, node, 1)
                )
            live = np.flatnonzero(group >= 0)
            axis_of, cut_of, *sides = moves[group[live]].T
            above = self._places[live, np.maximum(axis_of, 0)] >= cut_of
            group[live] = np.where(above, sides[1], sides[0])
            active = following
        return Boxes(
            self._box[:, 0],
            self._box[:, 1],
            self._totals[:, 0],
            self._totals[:, 1],
            np.array(self._axes, np.int64),
            np.array(self._cuts, np.int64),
            np.array(self._children, np.int64).reshape(-1, 2),
        )

    def _attach(self, cuboid: _Cuboid, node: int) -> None:
        if cuboid.parent >= 0:
            self._children[cuboid.parent][cuboid.side] = node


def _planes(
    world: World,
    places: NDArray[np.integer],
    rows: tuple[Integers, Integers],
    first: Integers,
    extent: Integers,
    group: Integers,
) -> tuple[list[Integers], list[Integers]]:
    """Points, and load, in each plane of cuboids: along x, y, z of the first, then of the next."""
    ends = np.cumsum(extent.reshape(-1))
    starts = (ends - extent.reshape(-1)).reshape(-1, 3)
    live = np.flatnonzero(group >= 0)
    of = group[live]
    sums = np.zeros((2, int(ends[-1])), np.int64)
    for axis in range(3):
        plane = places[live, axis] - first[of, axis] + starts[of, axis]
        for total, row in zip(sums, rows, strict=True):
            # Whole numbers below 2^53 add up exactly as floating-point numbers.
            total += np.bincount(plane, row[live], len(total)).astype(np.int64)
    counts, loads = world.sum(sums)
    return np.split(counts, ends[:-1]), np.split(loads, ends[:-1])


def _best_cut(
    ranks: int,
    counts: list[Integers],
    loads: list[Integers],
    closed: NDArray[np.bool_],
    spare: float,
) -> tuple[int, int, int]:
    """Axis, planes below the cut, and ranks below it: half of them, or as near as is possible."""
    halves = sorted(range(1, ranks), key=lambda low: (abs(2 * low - ranks), low))
    # A cuboid with a point for each of its ranks can always be cut in some proportion.
    tables = ((low, _possible_cuts(low, ranks - low, counts, loads, closed)) for low in halves)
    low, table = next((low, table) for low, table in tables if len(table))
    table = table[table[:, 2] <= table[:, 2].min() + spare]
    beside, order, uneven, planes = table.T
    best = np.lexsort((planes, uneven, order, beside))[0]
    return _AXES[int(order[best])], int(planes[best]), low


def _possible_cuts(
    low: int, high: int, counts: list[Integers], loads: list[Integers], closed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Of each cut: points in the planes beside it, order of its axis, imbalance, planes below."""
    points, load = int(counts[0].sum()), int(loads[0].sum())
    cuts = []
    for order, axis in enumerate(_AXES):
        below, under = np.cumsum(counts[axis])[:-1], np.cumsum(loads[axis])[:-1]
        # Each side keeps a point for each of its ranks.
        possible = np.flatnonzero((below >= low) & (points - below >= high))
        beside = counts[axis][possible] + counts[axis][possible + 1]
        if closed[axis]:
            beside = beside + counts[axis][0] + counts[axis][-1]
        share = np.maximum(under[possible] / low, (load - under[possible]) / high)
        columns = (beside, np.full(len(possible), order), share * (low + high) / load, possible + 1)
        cuts.append(np.stack(columns, axis=1).astype(np.float64))
    return np.concatenate(cuts)
