"""An order of nodes in which those that share an element stand near each other.

E. Cuthill and J. McKee, "Reducing the bandwidth of sparse symmetric matrices", 1969; reversed, as
A. George found it to fill in less; begun from nodes far out, as A. George and J. W. H. Liu, "An
implementation of a pseudoperipheral node finder", ACM Trans. Math. Softw. 5, 1979, find them.
Neighbours in this order lie near each other in memory, and incomplete factors get better with it.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.surfaces.orientation import spread

Integers = NDArray[np.int64]


def node_graph(elements: NDArray[np.integer], nodes: int) -> tuple[Integers, Integers]:
    """Nodes that share an element with each node, in compressed rows.

    `elements`: (n, corners): nodes of simplices, below `nodes`.
    """
    pairs = itertools.combinations(elements.T.astype(np.int64), 2)
    keys = np.concatenate([np.minimum(a, b) * nodes + np.maximum(a, b) for a, b in pairs])
    # Sorting once and dropping repeats needs less memory than numpy.unique.
    keys.sort()
    keys = keys[np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]])]
    low, high = np.divmod(keys, nodes)
    both = np.concatenate([keys, high * nodes + low])
    both.sort()
    return np.searchsorted(both, np.arange(nodes + 1) * nodes), both % nodes


def reverse_cuthill_mckee(starts: Integers, neighbours: Integers) -> Integers:
    """Order nodes level by level, each by its first neighbour that has a place and its degree."""
    degrees = np.diff(starts)
    seen = np.zeros(len(degrees), bool)
    order: list[Integers] = []
    for node in np.argsort(degrees, kind="stable"):
        if not seen[node]:
            order += _levels(starts, neighbours, degrees, _far_out(starts, neighbours, node), seen)
    return np.concatenate([np.empty(0, np.int64), *order])[::-1].copy()


def _far_out(starts: Integers, neighbours: Integers, node: int) -> int:
    """A node from which others are about as far away as can be, in the part of a node."""
    degrees = np.diff(starts)
    levels = 0
    while True:
        seen = np.zeros(len(degrees), bool)
        from_node = _levels(starts, neighbours, degrees, node, seen)
        if len(from_node) <= levels:
            return node
        levels = len(from_node)
        node = int(from_node[-1][degrees[from_node[-1]].argmin()])


def _levels(
    starts: Integers, neighbours: Integers, degrees: Integers, root: int, seen: NDArray[np.bool_]
) -> list[Integers]:
    """Nodes by their distance from a root, in the order of Cuthill and McKee; marks them as seen."""
    level = np.array([root])
    seen[root] = True
    levels = []
    while len(level):
        levels.append(level)
        parent, step = spread(degrees[level])
        near = neighbours[starts[level][parent] + step]
        new = ~seen[near]
        nodes, first = np.unique(near[new], return_index=True)
        level = nodes[np.lexsort((degrees[nodes], parent[new][first]))]
        seen[level] = True
    return levels
