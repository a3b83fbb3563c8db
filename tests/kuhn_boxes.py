"""Boxes of tetrahedra and block systems on them with known solutions, for tests of linear algebra."""

from __future__ import annotations

import itertools

import numpy as np


def kuhn_box(n: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and elements of the unit cube: each cell is cut into six along its diagonal."""
    points = np.stack(np.meshgrid(*[np.arange(k + 1) for k in n], indexing="ij"), axis=-1)
    number = np.arange(points[..., 0].size).reshape(points.shape[:3])
    tets = []
    for order in itertools.permutations(range(3)):
        corner = np.zeros(3, int)
        path = [corner.copy()]
        for axis in order:
            corner[axis] += 1
            path.append(corner.copy())
        if np.linalg.det(np.diff(path, axis=0)) < 0:
            path[1], path[2] = path[2], path[1]
        ends = [tuple(slice(c, k + c) for c, k in zip(at, n, strict=True)) for at in path]
        tets.append(np.stack([number[end].reshape(-1) for end in ends], axis=1))
    # Cell by cell, as a mesh would have them.
    elements = np.stack(tets, axis=1).reshape(-1, 4)
    return points.reshape(-1, 3) / np.array(n), elements


class LinearFlow:
    """C (v . grad u - k laplace u) = f with a solution u that is linear in space, B unknowns a node.

    P1 elements have that solution to rounding: f is constant, and u is given on the boundary.
    """

    def __init__(self, n: tuple[int, int, int], size: int, velocity: float = 1.0) -> None:
        self.points, self.elements = kuhn_box(n)
        self.size, rng = size, np.random.default_rng(size)
        self.coupling = np.eye(size) + 0.3 * rng.standard_normal((size, size)) / np.sqrt(size)
        self.v, self.k = velocity * np.array([1.0, -0.5, 0.7]), 0.1
        gradient = rng.standard_normal((3, size))
        self.exact = 1.0 + self.points @ gradient
        self.f = self.coupling @ (self.v @ gradient)
        on = (self.points == 0) | (self.points == 1)
        self.boundary = np.flatnonzero(on.any(axis=1))

    def parts(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Element matrices (E, 4, 4, B, B) and vectors (E, 4, B) of chosen elements."""
        x = self.points[self.elements[chosen]]
        edges = x[:, 1:] - x[:, :1]
        volume = np.linalg.det(edges) / 6
        inner = np.linalg.inv(edges).transpose(0, 2, 1)
        grad = np.concatenate([-inner.sum(axis=1, keepdims=True), inner], axis=1)
        scalar = self.k * np.einsum("eai,ebi->eab", grad, grad)
        scalar += (grad @ self.v)[:, None, :] / 4
        matrices = np.einsum("e,eab,rc->eabrc", volume, scalar, self.coupling)
        vectors = np.broadcast_to(self.f, (len(x), 4, self.size)) * volume[:, None, None] / 4
        return np.ascontiguousarray(matrices), np.ascontiguousarray(vectors)

    def unknowns(self, nodes: np.ndarray) -> np.ndarray:
        """Numbers of all unknowns of nodes."""
        return (nodes[:, None] * self.size + np.arange(self.size)).reshape(-1)


def dense(elements: np.ndarray, matrices: np.ndarray, nodes: int) -> np.ndarray:
    """The sum of element matrices, with all its zeros."""
    size = matrices.shape[-1]
    A = np.zeros((nodes, size, nodes, size))
    for element, matrix in zip(elements, matrices, strict=True):
        for a, b in itertools.product(range(len(element)), repeat=2):
            A[element[a], :, element[b]] += matrix[a, b]
    return A.reshape(nodes * size, -1)
