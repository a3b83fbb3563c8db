"""Partition of elements, of which each rank has some: few faces between parts and equal work."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.exchange.plan import ask_rows, give_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import FACES, Floats, Integers
from haloscope.mesh.hexes.mesh_parts import MeshPart, row_of
from haloscope.mesh.hexes.shared_meshes import range_ranks

# Two ways, each with the same answer every time: METIS (pymetis, where it is installed) cuts the
# graph whose edges are the faces that elements share; recursive bisection halves the elements across
# the longest side of the box around their centres. Each wins on some meshes, on boxes the second.
# Bisection needs histograms only, which all ranks add up: digit by digit they find the element at
# which a cut falls. METIS needs the whole graph: up to a size rank 0 gathers its numbers, no more
# than six an element.

Method = Literal["auto", "graph", "coordinates"]
METHODS: tuple[Method, ...] = ("auto", "graph", "coordinates")

_SEED = 1
# METIS takes whole weights; an element of mean weight gets this one.
_MEAN_WEIGHT = 1000
_LARGEST_WEIGHT = 2**20
# So much more load than in the evener partition is accepted for fewer faces cut.
_SPARE_LOAD = 0.03


@dataclass(frozen=True, eq=False)
class Partition:
    """Which part each element is in."""

    # int32 (own,): of the elements that the rank has brought.
    parts: NDArray[np.int32]
    count: int  # Number of parts
    method: str  # ``graph`` (METIS) or ``coordinates`` (recursive bisection)
    loads: Floats  # Sum of the weights in each part
    edge_cut: int  # Pairs of faces whose elements lie in different parts
    whole: int  # Elements of the mesh

    @property
    def imbalance(self) -> float:
        """Largest load over the mean, less 1."""
        return float(self.loads.max() / self.loads.mean()) - 1

    def describe(self) -> str:
        """One line for a report."""
        return (
            f"{self.whole} elements in {counted(self.count, 'part')} by {self.method}: "
            f"{self.edge_cut} faces cut, largest load {100 * self.imbalance:.1f} % above the mean"
        )


def require_parts(parts: int, elements: int) -> None:
    """Refuse fewer parts than one, or more than elements."""
    if not 1 <= parts <= elements:
        raise InputError(
            f"{counted(parts, 'part')} for a mesh of {counted(elements, 'element')}",
            allowed=f"1 to {elements}",
            remedy="start fewer ranks" if parts > elements else "",
        )


@dataclass(frozen=True, eq=False)
class ElementGraph:
    """A rank's elements as a partition sees them; the ranks have ranges of all numbers."""

    elements: Integers  # int64 (own,): numbers in the whole mesh, in any order
    neighbours: Integers  # int64 (own, faces): number of the element behind each face, or -1
    centres: Floats  # (own, 3)
    whole: int  # Elements of the whole mesh


def graph_of(part: MeshPart) -> ElementGraph:
    """The graph of a rank's part of a mesh of hexahedra."""
    behind = part.behind
    neighbours = np.where(behind >= 0, behind // FACES, -1)
    return ElementGraph(part.elements, neighbours, part.mesh.centres, part.whole)


def dual_graph(neighbours: NDArray[np.integer]) -> tuple[Integers, Integers, Integers]:
    """Graph of elements that share faces, in compressed rows.

    `neighbours`: (elements, faces), as of a mesh.
    """
    count = len(neighbours)
    element = np.repeat(np.arange(count), neighbours.shape[1])
    other = neighbours.reshape(-1).astype(np.int64)
    real = (other >= 0) & (other != element)
    key, faces = np.unique(element[real] * count + other[real], return_counts=True)
    starts = np.searchsorted(key, np.arange(count + 1) * count)
    return starts, key % count, faces


LARGEST_GRAPH = 1_000_000
"""Elements up to which rank 0 gathers the graph for METIS: it needs about 0.4 kB an element."""


def partition(
    world: World,
    graph: ElementGraph,
    weights: Floats,
    method: Method = "auto",
    *,
    parts: int | None = None,
    largest_graph: int = LARGEST_GRAPH,
) -> Partition:
    """Share the elements of all ranks out; all ranks call this.

    `weights`: work of each of the rank's elements (own,), above 0; `parts`: by default one a rank.
    """
    # `method`: ``graph`` needs pymetis, ``coordinates`` does not; ``auto`` does both where it can
    # and keeps the one that cuts fewer faces at about the same imbalance. Above `largest_graph`
    # elements ``auto`` is ``coordinates``.
    count = world.size if parts is None else parts
    require_parts(count, graph.whole)
    if method not in METHODS:
        raise InputError(
            "unknown method", location=f"partition method '{method}'", allowed=", ".join(METHODS)
        )
    metis = None if method == "coordinates" else find_metis(required=method == "graph")
    if method == "auto" and (graph.whole > largest_graph or world.any(metis is None)):
        method = "coordinates"
    if count == 1:
        load = world.sum(np.array([weights.sum()]))
        name = "graph" if method == "graph" else "coordinates"
        return Partition(np.zeros(len(weights), np.int32), 1, name, load, 0, graph.whole)
    ways = []
    if method != "graph":
        owners = bisect(world, graph.centres, graph.elements, weights, count)
        ways.append(_measured(world, graph, weights, owners, count, "coordinates"))
    if method != "coordinates":
        owners = _cut_on_root(world, metis, graph, weights, count)
        ways.append(_measured(world, graph, weights, owners, count, "graph"))
    evenest = min(way.imbalance for way in ways)
    even = [way for way in ways if way.imbalance <= evenest + _SPARE_LOAD]
    return min(even, key=lambda way: way.edge_cut)


def _measured(
    world: World,
    graph: ElementGraph,
    weights: Floats,
    parts: NDArray[np.int32],
    count: int,
    method: str,
) -> Partition:
    """Measures of a partition, from each rank's share of it; all ranks call this."""
    elements, neighbours = graph.elements, graph.neighbours
    other = np.unique(neighbours[neighbours >= 0])
    wanted = other[row_of(np.sort(elements), other) < 0]
    holders = range_ranks(world, graph.whole, wanted)
    (neighbour_parts,) = ask_rows(world, wanted, holders, elements, [parts])
    known = np.concatenate([elements, wanted])
    of = np.concatenate([parts, neighbour_parts])
    order = np.argsort(known)
    row = order[np.searchsorted(known[order], np.maximum(neighbours, known[order][0]))]
    cut = int(((neighbours >= 0) & (of[row] != parts[:, None])).sum())
    loads = np.rint(np.bincount(parts, weights, count) / _WEIGHT_UNIT).astype(np.int64)
    total = world.sum(np.append(loads, cut))
    return Partition(
        parts,
        count,
        method,
        np.asarray(total[:-1] * _WEIGHT_UNIT),
        int(total[-1]) // 2,
        graph.whole,
    )


def find_metis(required: bool) -> Any | None:
    """The package pymetis; None where it is not installed and not required."""
    try:
        return importlib.import_module("pymetis")
    except ImportError:
        if required:
            raise MachineError(
                "partitioning by graph needs pymetis",
                remedy=f"run {install_command('mesh')}, or choose the method coordinates",
            ) from None
        return None


def _cut_on_root(
    world: World, pymetis: Any, graph: ElementGraph, weights: Floats, parts: int
) -> NDArray[np.int32]:
    """Parts of the rank's elements by METIS, which rank 0 runs on the whole graph."""
    fit = np.int32 if graph.whole < np.iinfo(np.int32).max else np.int64
    rows = [graph.elements.astype(fit), graph.neighbours.astype(fit), weights]
    (numbers, neighbours, load), counts = give_rows(
        world, rows, np.zeros(len(graph.elements), np.int64)
    )
    back = np.empty(len(numbers), np.int32)
    if world.is_root:
        order = np.argsort(numbers, kind="stable")
        back[order] = _cut_graph(pymetis, neighbours[order], parts, load[order])
    # Each rank's rows came in the order in which it has its elements, and so they go back.
    (own,), _ = give_rows(world, [back], np.repeat(np.arange(world.size), counts))
    return own


def _cut_graph(
    pymetis: Any, neighbours: NDArray[np.integer], parts: int, weights: Floats
) -> NDArray[np.int32]:
    """Parts by METIS, with elements moved to those that it leaves empty."""
    starts, others, faces = dual_graph(neighbours)
    scaled = np.clip(weights / weights.mean() * _MEAN_WEIGHT, 1, _LARGEST_WEIGHT)
    _, owners = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(starts, others),
        vweights=np.rint(scaled).astype(np.int64),
        eweights=faces,
        options=pymetis.Options(seed=_SEED),
    )
    result = np.asarray(owners, np.int32)
    sizes = np.bincount(result, minlength=parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        result[np.flatnonzero(result == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return result


# Weights count in units of this, so that their sums are exact.
_WEIGHT_UNIT = 2.0**-16
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_KEY_BITS = 64


def bisect(
    world: World, centres: Floats, numbers: Integers, weights: Floats, parts: int
) -> NDArray[np.int32]:
    """Recursive coordinate bisection of the elements of all ranks; all ranks call this.

    `centres`: (own, 3); `numbers`: (own,), they decide between equal centres; `weights`: (own,),
    rounded to 2^-16.
    """
    # Each step orders the elements along the longest side of the box around their centres, then
    # along the other axes, and cuts where the weights are nearest to the shares of the two sides;
    # every part gets an element.
    result = np.zeros(len(centres), np.int32)
    load = np.maximum(1, np.rint(weights / _WEIGHT_UNIT)).astype(np.int64)
    bits = _ascending_bits(centres)
    active = [(0, parts)]
    while active := [domain for domain in active if domain[1] > 1]:
        firsts = np.array([first for first, _ in active])
        counts = np.array([count for _, count in active])
        # The group of each element among those that are still to be cut.
        group = np.full(int(max(firsts.max(), result.max(initial=0))) + 1, -1)
        group[firsts] = np.arange(len(firsts))
        rows = np.flatnonzero(group[result] >= 0)
        of = group[result[rows]]
        axis = _longest_axes(world, centres[rows], of, len(firsts))
        keys = [bits[rows, (axis[of] + step) % 3] for step in range(3)]
        keys.append(numbers[rows].astype(np.uint64))
        cut = _Cuts(world, keys, of, len(firsts), load[rows])
        above = cut.above(counts // 2, counts)
        result[rows[above]] += (counts // 2)[of[above]].astype(np.int32)
        active = [
            half
            for first, count in active
            for half in ((first, count // 2), (first + count // 2, count - count // 2))
        ]
    return result


def _ascending_bits(values: Floats) -> NDArray[np.uint64]:
    """Whole numbers in the order of floating-point ones."""
    # Adding 0 makes -0 the same as 0.
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    negative = bits >> np.uint64(_KEY_BITS - 1) == 1
    return np.where(negative, ~bits, bits | np.uint64(1 << (_KEY_BITS - 1)))


def _longest_axes(world: World, places: Floats, of: Integers, groups: int) -> Integers:
    """Axis along which the centres of each group reach furthest, over all ranks."""
    reach = np.full((2, groups, 3), -np.inf)
    np.maximum.at(reach[0], of, places)
    np.maximum.at(reach[1], of, -places)
    extents = world.alltoall(np.tile(reach.reshape(1, -1), (world.size, 1)))
    highest, lowest = extents.max(axis=0).reshape(2, groups, 3)
    return np.asarray((highest + lowest).argmax(axis=1))


class _Cuts:
    """Finds where groups of elements, in the order of their keys, are to be cut."""

    def __init__(
        self,
        world: World,
        keys: list[NDArray[np.uint64]],
        of: Integers,
        groups: int,
        load: Integers,
    ) -> None:
        self._world, self._keys, self._of, self._groups = world, keys, of, groups
        self._rows = np.stack([np.ones(len(of), np.int64), load])
        self._totals = world.sum(self._binned(np.arange(len(of)), of, groups))

    def _binned(self, rows: Integers, bins: Integers, size: int) -> Integers:
        """Counts and loads of some elements by bins, (2, size)."""
        sums = [np.bincount(bins, row[rows], size) for row in self._rows]
        # Whole numbers below 2^53 are exact.
        return np.asarray(sums).astype(np.int64)

    def above(self, low: Integers, of: Integers) -> NDArray[np.bool_]:
        """Whether each element lies above the cut that leaves `low` of `of` parts below."""
        counts, loads = self._totals
        side, below, at = self._search(1, loads * low / of)
        # The element at which the load is reached goes to the side that comes out more even.
        target = loads * low / of
        with_it = np.abs(below[1] + at[1] - target) < np.abs(below[1] - target)
        with_it |= below[0] == 0
        under = below[0] + np.where(with_it, at[0], 0)
        # Every part gets an element.
        allowed = np.clip(under, low, counts - (of - low))
        if (allowed != under).any():
            by_count, _, _ = self._search(0, allowed.astype(np.float64))
            forced = allowed != under
            side = np.where(forced[self._of], by_count, side)
            with_it |= forced
        return np.asarray((side > 0) | ((side == 0) & ~with_it[self._of]))

    def _search(self, row: int, target: Floats) -> tuple[NDArray[np.int8], Integers, Integers]:
        """The element of each group at which a sum reaches its target.

        Returns: of each element -1, 0 or 1: before it, it, behind it; counts and loads of all
        before it, and its own, (2, groups).
        """
        side = np.zeros(len(self._of), np.int8)
        below = np.zeros((2, self._groups), np.int64)
        at = self._totals
        every = np.arange(self._groups)
        for key in self._keys:
            for shift in range(_KEY_BITS - _DIGIT_BITS, -1, -_DIGIT_BITS):
                if (at[0] <= 1).all():
                    return side, below, at
                open_rows = np.flatnonzero(side == 0)
                digit = (key[open_rows] >> np.uint64(shift)) & np.uint64(_DIGITS - 1)
                digit = digit.astype(np.int64)
                bins = self._of[open_rows] * _DIGITS + digit
                sums = self._world.sum(self._binned(open_rows, bins, self._groups * _DIGITS))
                sums = sums.reshape(2, self._groups, _DIGITS)
                ends = below[:, :, None] + np.cumsum(sums, axis=2)
                chosen = (ends[row] >= target[:, None]).argmax(axis=1)
                at = sums[:, every, chosen]
                below = ends[:, every, chosen] - at
                side[open_rows] = np.sign(digit - chosen[self._of[open_rows]])
        return side, below, at
