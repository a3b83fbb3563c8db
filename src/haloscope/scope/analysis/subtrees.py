"""Sums over large parts of a call tree, kept so that nobody has to read all of their rows.

A call path gets one where it has `MANY` or more call paths below it that belong to no other sum. So
there is at most one sum for `MANY` rows, and a whole subtree is a few sums and a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MANY = 64


class Subtrees:
    """Which call paths have a sum."""

    def __init__(self, parents: Sequence[int]) -> None:
        up = [parent if 0 <= parent < node else -1 for node, parent in enumerate(parents)]
        alone = [1] * len(up)  # at and below each node, without what belongs to a sum
        rows = []
        for node in range(len(up) - 1, -1, -1):
            if alone[node] >= MANY:
                rows.append(node)
            elif up[node] >= 0:
                alone[up[node]] += alone[node]
        self.nodes = np.array(rows[::-1], np.int64)  # Those that have one, ascending, shape (k,)
        place = {node: number for number, node in enumerate(rows[::-1])}
        self._parents = np.array(up, np.int64)
        # Of each node the innermost sum that it belongs to, and of each sum the one around it.
        self._belongs = np.full(len(up), -1, np.int64)
        self._around = np.full(len(rows), -1, np.int64)
        for node, parent in enumerate(up):
            outer = self._belongs[parent] if parent >= 0 else -1
            own = place.get(node, -1)
            if own >= 0:
                self._around[own] = outer
            self._belongs[node] = own if own >= 0 else outer

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of values, shape (nodes, locations): shape (k, locations)."""
        sums = np.zeros((len(self.nodes), values.shape[1]))
        for row in np.flatnonzero(values.any(axis=1) & (self._belongs >= 0)).tolist():
            sums[self._belongs[row]] += values[row]
        for number in range(len(sums) - 1, -1, -1):
            if self._around[number] >= 0:
                sums[self._around[number]] += sums[number]
        return sums

    def parts(self, nodes: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Which sums, and which rows beside them, make up a set of nodes.

        `nodes`: which nodes, shape (nodes,). Sums are used where all below a node of it is in it;
        Returns: numbers of the sums; rows, shape (nodes,).
        """
        below = self._parents >= 0
        if not len(self.nodes) or np.any(nodes[self._parents[below]] & ~nodes[below]):
            return np.zeros(0, np.int64), nodes
        held = nodes[self.nodes]
        outermost = held & ~((self._around >= 0) & held[self._around])
        rest = nodes & ~((self._belongs >= 0) & held[self._belongs])
        return np.flatnonzero(outermost), rest
