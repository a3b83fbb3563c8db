"""Connected parts of a surface and the way its triangles face."""

from __future__ import annotations

from dataclasses import dataclass

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


Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Orientation:
    """The triangles to turn."""

    # Triangles that face another way than most of their connected part by area, (triangles,).
    turned: Flags
    # A triangle of a part that cannot be oriented, as of a Moebius strip; None without one.
    twisted: int | None


def orientation(triangles: Integers, areas: NDArray[np.float64], points: int) -> Orientation:
    """Find the triangles that face another way than their neighbours.

    `triangles`: points of each, (triangles, 3).
    """
    # Triangles are neighbours across edges that exactly two of them share. Each triangle is two
    # nodes of a graph, as it is and turned; an edge joins the two pairs of nodes that face the same
    # way. A part is then two components that mirror each other, and one if it is twisted.
    count = len(triangles)
    tail = triangles.ravel()
    head = np.roll(triangles, -1, axis=1).ravel()
    key = np.minimum(tail, head) * points + np.maximum(tail, head)
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    first = np.flatnonzero(np.append(True, sorted_key[1:] != sorted_key[:-1]))
    pairs = first[np.diff(np.append(first, len(key))) == 2]
    one, other = order[pairs], order[pairs + 1]
    forward = tail < head
    opposed = forward[one] == forward[other]
    none = np.zeros(count, bool)
    if not opposed.any():
        return Orientation(none, None)
    a, b = one // 3, other // 3
    shift = np.where(opposed, count, 0)
    part = connected_parts(
        2 * count, np.concatenate([a, a + count]), np.concatenate([b + shift, b + count - shift])
    )
    as_is, mirrored = part[:count], part[count:]
    twisted = as_is == mirrored
    if twisted.any():
        return Orientation(none, int(twisted.argmax()))
    weight = np.bincount(as_is, areas, part.max() + 1)
    return Orientation(weight[as_is] < weight[mirrored], None)
