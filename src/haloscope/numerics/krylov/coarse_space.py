"""Groups of nodes that lie together, and the smooth coarse functions that belong to them.

The same groups on any number of ranks: the first rank finds them from the whole graph of nodes, in
their global numbering, and tells the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.surfaces.orientation import connected_parts
from haloscope.numerics.krylov.block_pattern import BlockPattern
from haloscope.numerics.shared_nodes import SharedNodes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class CoarseSpace:
    """Functions on the nodes of this rank, one for each group of nodes of all ranks."""

    # Function k at node i is the share of group k among i and the nodes that i has an element with.
    # So functions are between 0 and 1, their sum is 1 everywhere, and they reach one layer of
    # elements beyond their groups: a constant is in their space, and steps between groups are
    # smoothed once (smoothed aggregation: Vanek, Mandel and Brezina, Computing 56, 1996, 179, with
    # the mean over neighbours as the smoother, which needs no matrix and so is found once a mesh).

    starts: Integers  # Where each node's functions begin, and at last their end, (nodes + 1,)
    columns: NDArray[np.int32]  # Numbers of the functions that are not zero at each node, ascending
    weights: Floats  # Their values there
    positions: Floats  # Middle of each group in m, (groups, 3)

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self.positions)


def coarse_space(
    pattern: BlockPattern, shared: SharedNodes, positions: Floats, size: int
) -> CoarseSpace:
    """Group nodes; all ranks call this.

    `positions`: of each node of this rank in m, (nodes, 3).
    """
    numbers, world = shared.numbers, shared.world
    count = int(world.largest(float(numbers.max(initial=-1)))) + 1
    pairs = sorted_once(numbers[pattern.rows] * count + numbers[pattern.columns])
    owned = np.flatnonzero(shared.owned)
    all_pairs = np.concatenate(_to_first(world, pairs))
    all_numbers = np.concatenate(_to_first(world, numbers[owned]))
    all_positions = np.concatenate(_to_first(world, np.ascontiguousarray(positions[owned])))
    functions: list[np.ndarray] = [np.zeros(0, np.int64)] * 2 + [np.zeros(0), np.zeros((0, 3))]
    if world.rank == 0:
        graph = all_pairs if world.size == 1 else sorted_once(all_pairs)
        points = np.empty((count, 3))
        points[all_numbers] = all_positions.reshape(-1, 3)
        functions = _functions(graph // count, graph % count, points, size)
    starts, columns, weights, middles = (_from_first(world, part) for part in functions)
    lengths = np.diff(starts)[numbers]
    own_starts = np.append(0, np.cumsum(lengths))
    taken = np.repeat(starts[numbers] - own_starts[:-1], lengths) + np.arange(own_starts[-1])
    return CoarseSpace(
        own_starts,
        columns[taken].astype(np.int32),
        weights[taken],
        middles.reshape(-1, 3),
    )


def _functions(rows: Integers, columns: Integers, points: Floats, size: int) -> list[np.ndarray]:
    """Starts, columns and weights of the functions at all nodes, and middles of groups."""
    count = len(points)
    boxes = _equal_boxes(points, max(1, round(count / size)))
    inside = boxes[rows] == boxes[columns]
    groups = connected_parts(count, rows[inside], columns[inside])
    number = int(groups.max(initial=-1)) + 1
    keys = np.sort(rows * number + groups[columns])
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    shares = np.diff(begins, append=len(keys))
    keys = keys[begins]
    node = keys // number
    weights = shares / np.bincount(rows, minlength=count)[node]
    sums = np.stack([np.bincount(groups, axis, number) for axis in points.T], axis=1)
    middles = sums / np.bincount(groups, minlength=number)[:, None]
    starts = np.append(0, np.cumsum(np.bincount(node, minlength=count)))
    return [starts, keys % number, weights, middles]


def _equal_boxes(points: Floats, count: int) -> Integers:
    """Cut points into boxes with equally many: always the box across its longest side."""
    box_numbers = np.zeros(len(points), np.int64)
    waiting = [(np.arange(len(points)), count, 0)]
    while waiting:
        members, boxes, first = waiting.pop()
        if boxes == 1:
            box_numbers[members] = first
            continue
        own = points[members]
        axis = int(np.argmax(own.max(axis=0) - own.min(axis=0)))
        # Ties in the order of nodes.
        members = members[np.argsort(own[:, axis], kind="stable")]
        below = boxes // 2
        cut = len(members) * below // boxes
        waiting.append((np.sort(members[:cut]), below, first))
        waiting.append((np.sort(members[cut:]), boxes - below, first + below))
    return box_numbers


def sorted_once(values: Integers) -> Integers:
    """Numbers from 0 on in ascending order, each once: numpy's own `unique` is slower by far."""
    ordered = np.sort(values)
    once: Integers = ordered[np.diff(ordered, prepend=-1) > 0]
    return once


def _to_first(world: World, values: np.ndarray) -> list[np.ndarray]:
    """The arrays of all ranks, on the first one; others get empty ones."""
    nothing = np.zeros(0, np.uint8)
    parts = [values.reshape(-1).view(np.uint8)] + [nothing] * (world.size - 1)
    return [part.view(values.dtype) for part in world.exchange(parts)]


def _from_first(world: World, values: np.ndarray) -> np.ndarray:
    """The first rank's array, flat, on all; all give arrays of one type."""
    if world.size == 1:
        return values.reshape(-1)
    length = int(world.broadcast(np.array([values.size]))[0])
    room = values.reshape(-1) if world.rank == 0 else np.empty(length, values.dtype)
    return world.broadcast(room)
