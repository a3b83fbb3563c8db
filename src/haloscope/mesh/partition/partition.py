"""Elements shared out over parts: few faces between parts, equal work in each.

Two ways, each with the same answer every time: METIS (pymetis, where it is installed) cuts the
graph whose edges are the faces that elements share; recursive bisection halves the elements across
the longest side of the box around their centres. Each wins on some meshes, on boxes the second.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, MachineError, counted
from haloscope.mesh.hexes.hexes import FACES, Floats, HexMesh, Integers

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

    # int32 (elements,): of all elements, or of those that one rank of several has brought.
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

    def elements(self, part: int) -> Integers:
        """Elements of a part, ascending."""
        return np.flatnonzero(self.parts == part)

    def describe(self) -> str:
        """One line for a report."""
        return (
            f"{self.whole} elements in {counted(self.count, 'part')} by {self.method}: "
            f"{self.edge_cut} faces cut, load {100 * self.imbalance:.1f} % above the mean at most"
        )


def require_parts(parts: int, elements: int) -> None:
    """Refuse fewer parts than one, or more than elements."""
    if not 1 <= parts <= elements:
        raise InputError(
            f"{parts} parts are out of range for a mesh of {elements} elements; allowed are 1 "
            f"to {elements}"
        )


def dual_graph(neighbours: NDArray[np.integer]) -> tuple[Integers, Integers, Integers]:
    """Graph of elements that share faces, in compressed rows.

    `neighbours`: (elements, 6), as of a mesh.
    """
    count = len(neighbours)
    element = np.repeat(np.arange(count), FACES)
    other = neighbours.reshape(-1).astype(np.int64)
    real = (other >= 0) & (other != element)
    key, faces = np.unique(element[real] * count + other[real], return_counts=True)
    starts = np.searchsorted(key, np.arange(count + 1) * count)
    return starts, key % count, faces


def partition(
    mesh: HexMesh, parts: int, weights: ArrayLike | None = None, method: Method = "auto"
) -> Partition:
    """Share the elements out.

    `weights`: work of each element (elements,), above 0; None: all the same.
    """
    # `method`: ``graph`` needs pymetis, ``coordinates`` does not; ``auto`` does what is possible
    # and keeps the one that cuts fewer faces at about the same imbalance.
    require_parts(parts, mesh.count)
    if method not in METHODS:
        raise InputError(
            f"partition method '{method}' is unknown; allowed are {', '.join(METHODS)}"
        )
    load = np.ones(mesh.count) if weights is None else np.asarray(weights, np.float64)
    if load.shape != (mesh.count,) or not (np.isfinite(load) & (load > 0)).all():
        raise InputError(
            f"weights of elements must be {mesh.count} finite numbers above 0, one an element"
        )
    bisected = [] if method == "graph" else [("coordinates", bisect(mesh.centres, parts, load))]
    return choose(mesh.neighbours, parts, load, method, bisected)


def choose(
    neighbours: NDArray[np.integer],
    parts: int,
    load: Floats,
    method: Method,
    partitions: Sequence[tuple[str, NDArray[np.int32]]],
) -> Partition:
    """The best of some ways to share elements out, and of METIS unless only coordinates count.

    `neighbours`: (elements, 6), as of a mesh.
    """
    ways = [measure(name, neighbours, owners, load, parts) for name, owners in partitions]
    pymetis = None if method == "coordinates" else find_metis(required=method == "graph")
    if pymetis is not None:
        cut = _cut_graph(pymetis, neighbours, parts, load)
        ways.append(measure("graph", neighbours, cut, load, parts))
    evenest = min(way.imbalance for way in ways)
    even = [way for way in ways if way.imbalance <= evenest + _SPARE_LOAD]
    return min(even, key=lambda way: way.edge_cut)


def measure(
    method: str,
    neighbours: NDArray[np.integer],
    result: NDArray[np.int32],
    load: Floats,
    parts: int,
) -> Partition:
    """What a part for each element comes to."""
    cut = (neighbours >= 0) & (result[neighbours] != result[:, None])
    loads = np.asarray(np.bincount(result, load, parts), np.float64)
    return Partition(result, parts, method, loads, int(cut.sum()) // 2, len(result))


def find_metis(required: bool) -> Any | None:
    """The package pymetis; None where it is not installed and not required."""
    try:
        return importlib.import_module("pymetis")
    except ImportError:
        if required:
            raise MachineError(
                "partitioning by graph needs pymetis; run pip install 'haloscope[mesh]', or "
                "choose the method coordinates"
            ) from None
        return None


def bisect(centres: Floats, parts: int, weights: Floats) -> NDArray[np.int32]:
    """Recursive coordinate bisection.

    Each step sorts the elements along the longest side of the box around their centres and cuts
    where the weights are nearest to the shares of the two sides; every part gets an element.
    """
    # `centres`: (elements, 3).
    # `weights`: (elements,).
    result = np.zeros(len(centres), np.int32)
    waiting = [(np.arange(len(centres)), 0, parts)]
    while waiting:
        elements, first, count = waiting.pop()
        if count == 1:
            result[elements] = first
            continue
        places = centres[elements]
        axis = int(np.ptp(places, axis=0).argmax())
        # Elements in one plane follow each other along the other axes, not at random.
        keys = [places[:, (axis + step) % 3] for step in (2, 1, 0)]
        elements = elements[np.lexsort(keys)]
        low = count // 2
        sums = np.cumsum(weights[elements])
        at = int(np.abs(sums - sums[-1] * low / count).argmin()) + 1
        at = min(max(at, low), len(elements) - (count - low))
        waiting.append((elements[:at], first, low))
        waiting.append((elements[at:], first + low, count - low))
    return result


def _cut_graph(
    pymetis: Any, neighbours: NDArray[np.integer], parts: int, weights: Floats
) -> NDArray[np.int32]:
    """Parts by METIS, with elements moved to those that it leaves empty."""
    if parts == 1:
        return np.zeros(len(neighbours), np.int32)
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
