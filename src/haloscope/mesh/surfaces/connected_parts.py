"""Which things hang together, from the pairs that touch."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]


def connected_parts(count: int, one: ArrayLike, other: ArrayLike) -> Integers:
    """Number the connected parts of a graph.

    `one`, `other`: nodes at the two ends of each edge, shape (edges,); Returns: part of each node;
    parts are numbered from 0 in the order of their first nodes.
    """
    # Roots hook onto the smallest root that they touch, then paths are halved until all nodes point
    # to roots: about as many rounds as the logarithm of the longest path.
    root = np.arange(count)
    ends = np.stack([np.asarray(one, np.int64), np.asarray(other, np.int64)])
    while True:
        a, b = root[ends]
        differ = a != b
        if not differ.any():
            break
        ends, a, b = ends[:, differ], a[differ], b[differ]
        np.minimum.at(root, np.maximum(a, b), np.minimum(a, b))
        while True:
            above = root[root]
            if np.array_equal(above, root):
                break
            root = above
    return np.unique(root, return_inverse=True)[1].reshape(count).astype(np.int64)


def spread(counts: ArrayLike) -> tuple[Integers, Integers]:
    """Number the members of groups of given sizes.

    `counts`: members of each group, shape (groups,); Returns: group of each member and its number
    within the group, both of shape (sum of counts,).
    """
    counts = np.asarray(counts, np.int64)
    group = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return group, np.arange(len(group)) - first[group]
