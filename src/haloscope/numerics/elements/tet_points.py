"""Which tetrahedra hold points, and values there that are linear in each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.numerics.elements.element_boxes import BoxBins

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Barycentric coordinates down to this count as inside: points on faces have an element for sure.
_TOLERANCE = 1e-9
_CORNERS = 4


@dataclass(frozen=True)
class TetPoints:
    """Where points lie."""

    # int64 (points,): number in the whole mesh of the element that holds the point, the lowest
    # where several meet; -1 where none does.
    elements: Integers
    nodes: Integers  # (points, 4): its corners
    weights: Floats  # (points, 4): values of the corners' linear functions; 0 outside

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether an element holds the point, (points,)."""
        return np.asarray(self.elements >= 0)

    def values(self, at_nodes: Floats) -> Floats:
        """Values (points, ...) of fields given at nodes (nodes, ...); 0 outside."""
        return np.asarray(np.einsum("pc,pc...->p...", self.weights, at_nodes[self.nodes]))


class TetLocator:
    """Finds points in tetrahedra.

    `nodes`: places (nodes, 3); `tets`: (elements, 4): nodes of their corners; `numbers`: of the
    elements in the whole mesh; by default they are the whole.
    """

    def __init__(
        self, nodes: Floats, tets: NDArray[np.integer], numbers: Integers | None = None
    ) -> None:
        self._nodes, self._tets = nodes, np.asarray(tets, np.int64)
        self._numbers = np.arange(len(tets)) if numbers is None else numbers
        corners = nodes[self._tets]
        lower, upper = corners.min(axis=1), corners.max(axis=1)
        room = _TOLERANCE * (upper - lower).max(axis=1, keepdims=True)
        self._bins = BoxBins(lower - room, upper + room) if len(tets) else None

    def find(self, points: ArrayLike) -> TetPoints:
        """Find the elements that hold points (n, 3)."""
        targets = np.asarray(points, np.float64).reshape(-1, 3)
        best = np.full(len(targets), np.iinfo(np.int64).max)
        corners = np.zeros((len(targets), _CORNERS), np.int64)
        weights = np.zeros((len(targets), _CORNERS))
        if self._bins is not None:
            for which, candidates in self._bins.pairs(targets):
                barycentric = self._weights(candidates, targets[which])
                held = barycentric.min(axis=1) >= -_TOLERANCE
                which, candidates, barycentric = which[held], candidates[held], barycentric[held]
                # The lowest number comes last, and stays.
                order = np.argsort(-self._numbers[candidates], kind="stable")
                which, candidates, barycentric = which[order], candidates[order], barycentric[order]
                better = self._numbers[candidates] < best[which]
                which, candidates, barycentric = (
                    which[better],
                    candidates[better],
                    barycentric[better],
                )
                best[which] = self._numbers[candidates]
                corners[which], weights[which] = self._tets[candidates], barycentric
        return TetPoints(np.where(best < np.iinfo(np.int64).max, best, -1), corners, weights)

    def _weights(self, elements: Integers, points: Floats) -> Floats:
        """Barycentric coordinates (n, 4) of points, one an element."""
        corners = self._nodes[self._tets[elements]]
        origin = corners[:, 0]
        edges = [corners[:, corner] - origin for corner in (1, 2, 3)]
        reach = points - origin
        across = [_cross(edges[(k + 1) % 3], edges[(k + 2) % 3]) for k in range(3)]
        sixfold = _dot(edges[0], across[0])
        others = [_dot(reach, vector) / sixfold for vector in across]
        return np.stack([1 - ((others[0] + others[1]) + others[2]), *others], axis=1)


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2])


def _cross(a: Floats, b: Floats) -> Floats:
    return np.stack(
        [
            a[:, (k + 1) % 3] * b[:, (k + 2) % 3] - a[:, (k + 2) % 3] * b[:, (k + 1) % 3]
            for k in range(3)
        ],
        axis=1,
    )
