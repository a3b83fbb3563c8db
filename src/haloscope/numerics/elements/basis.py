"""Polynomials on [-1, 1] at the nodes of an element: quadrature, derivatives, interpolation, cells of files."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.io.vtk_arrays import LAGRANGE_HEXAHEDRON
from haloscope.io.vtkhdf import Block, Blocks
from haloscope.mesh.hexes.hexes import vtk_order

# Matrices act on values at nodes: ``matrix @ values``. What is returned for an order is computed
# once, in extended precision where the machine has it, and may not be written to.

Floats = NDArray[np.float64]
# np.longdouble; NumPy's own annotations lose track of it in arithmetic.
Extended = NDArray[Any]

_NEWTON_STEPS = 100
_HIGHEST = 256


def _frozen(values: Extended) -> Floats:
    result = values.astype(np.float64)
    result.setflags(write=False)
    return result


def _require_order(order: int) -> None:
    if not 1 <= order <= _HIGHEST:
        raise ValueError(f"order {order} is out of range; allowed: 1 to {_HIGHEST}")


def _legendre(order: int, x: Extended) -> tuple[Extended, ...]:
    """P_order and P_(order - 1) at points, by the recurrence of Bonnet."""
    last, this = np.zeros_like(x), np.ones_like(x)
    for n in range(order):
        last, this = this, ((2 * n + 1) * x * this - n * last) / (n + 1)
    return this, last


def legendre(order: int, points: ArrayLike) -> Floats:
    """Legendre polynomial P_order at points.

    `order`: degree, from 0; `points`: any shape; Returns: the values, of the shape of `points`;
    P_order(1) = 1.
    """
    if order < 0:
        raise ValueError(f"order {order} of the polynomial is negative")
    return _legendre(order, np.asarray(points, np.longdouble))[0].astype(np.float64)


@cache
def _extended_nodes(order: int) -> Extended:
    """Gauss-Lobatto-Legendre nodes in extended precision: -1, 1 and the roots of P'_order."""
    _require_order(order)
    x = -np.cos(np.pi * np.arange(order + 1, dtype=np.longdouble) / order)
    tolerance = 4 * np.finfo(np.longdouble).eps
    for _ in range(_NEWTON_STEPS):
        this, last = _legendre(order, x)
        # (1 - x^2) P'_N = N (P_(N-1) - x P_N); its derivative is -N (N + 1) P_N.
        step = (last - x * this) / ((order + 1) * this)
        x = x + step
        if np.abs(step).max() < tolerance:
            break
    # The nodes mirror each other exactly, so that a face turned round meets its partner.
    x = (x - x[::-1]) / 2
    x[0], x[-1] = -1, 1
    return x


@cache
def gll_nodes(order: int) -> Floats:
    """Gauss-Lobatto-Legendre nodes, ascending from -1 to 1.

    Returns: the zeros of (1 - x^2) P'_N(x); x[j] = -x[N - j] exactly.
    """
    return _frozen(_extended_nodes(order))


@cache
def gll_weights(order: int) -> Floats:
    """Weights of the quadrature on GLL nodes, exact to degree 2 N - 1.

    Returns: 2 / (N (N + 1) P_N(x)^2); their sum is 2.
    """
    value = _legendre(order, _extended_nodes(order))[0]
    return _frozen(2 / (order * (order + 1) * value**2))


@cache
def derivative_matrix(order: int) -> Floats:
    """Derivatives at the GLL nodes of the polynomial through values at them.

    Returns: P_N(x_i) / (P_N(x_j) (x_i - x_j)); the diagonal is the negative sum of the rest of its
    row, so that the derivative of a constant vanishes.
    """
    x = _extended_nodes(order)
    value = _legendre(order, x)[0]
    distance = x[:, None] - x[None, :]
    np.fill_diagonal(distance, 1)
    matrix = value[:, None] / (value[None, :] * distance)
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return _frozen(matrix)


def equispaced_nodes(order: int) -> Floats:
    """Nodes of equal distance, ascending from -1 to 1, as mesh files and VTK place them."""
    _require_order(order)
    return np.asarray((2.0 * np.arange(order + 1) - order) / order)


def interpolation_matrix(nodes: ArrayLike, points: ArrayLike) -> Floats:
    """Values at points of the polynomial through values at nodes.

    The second barycentric form (Berrut and Trefethen, SIAM Review 46, 2004, eq. 4.2).
    `nodes`: distinct points where values are given, shape (n,).
    """
    # `points`: where they are wanted, shape (m,); a point that is a node takes that node's value as
    # it is.
    x = np.asarray(nodes, np.longdouble)
    wanted = np.asarray(points, np.longdouble)
    if x.ndim != 1 or wanted.ndim != 1 or len(np.unique(x)) != len(x):
        raise ValueError("interpolation needs distinct nodes and points, each a list of numbers")
    distance = x[:, None] - x[None, :]
    np.fill_diagonal(distance, 1)
    # Twice the distance over the length keeps the products near 1 at high orders.
    span = x.max() - x.min() if len(x) > 1 else np.longdouble(1)
    weights = 1 / (distance * (4 / span)).prod(axis=1)
    gap = wanted[:, None] - x[None, :]
    hit = gap == 0
    gap[hit] = 1
    terms = weights[None, :] / gap
    at_node = hit.any(axis=1)
    terms[at_node] = hit[at_node]
    return np.asarray(terms / terms.sum(axis=1, keepdims=True), np.float64)


@cache
def equispaced_to_gll(geometry_order: int, order: int) -> Floats:
    """Interpolation from equispaced nodes of one order to the GLL nodes of another."""
    return _frozen_matrix(equispaced_nodes(geometry_order), gll_nodes(order))


@cache
def gll_to_equispaced(order: int, output_order: int) -> Floats:
    """Interpolation from the GLL nodes of one order to equispaced nodes of another."""
    return _frozen_matrix(gll_nodes(order), equispaced_nodes(output_order))


def _frozen_matrix(nodes: Floats, points: Floats) -> Floats:
    matrix = interpolation_matrix(nodes, points)
    matrix.setflags(write=False)
    return matrix


class ElementCells:
    """Lagrange cells of elements with fields at GLL nodes.

    VTK takes the nodes of such a cell to stand at equal distances: values and coordinates are
    interpolated there, exactly, since they are polynomials of the same order.
    """

    def __init__(self, order: int) -> None:
        self.points = (order + 1) ** 3  # Of an element
        self._interpolation = gll_to_equispaced(order, order)
        # What is already at the file's nodes stays as it is to the last bit.
        self._is_identity = np.array_equal(self._interpolation, np.eye(order + 1))
        # Nodes, i fastest, in the order in which VTK lists them.
        self._listing = np.asarray(vtk_order(order), np.int64) @ (order + 1) ** np.arange(3)

    def layout(self, elements: int) -> Blocks:
        """Points and cells of a file."""
        corners = np.arange(self.points)[None]
        return Blocks(LAGRANGE_HEXAHEDRON, [Block(elements, self.points, corners)])

    def at_points(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (elements, points) from (elements, n, n, n), or (..., 3) from (elements, 3, n, n, n)."""
        columns = values.reshape(len(values), -1, *values.shape[-3:])
        if not self._is_identity:
            for axis in (2, 3, 4):
                moved = np.tensordot(columns, self._interpolation, axes=(axis, 1))
                columns = np.moveaxis(moved, -1, axis)
        listed = columns.reshape(*columns.shape[:2], -1)[:, :, self._listing]
        rows = np.moveaxis(listed, 1, 2).astype(values.dtype, copy=False)
        return rows[..., 0] if values.ndim == 4 else rows


@cache
def element_cells(order: int) -> ElementCells:
    """Lagrange cells of elements of an order."""
    return ElementCells(order)
