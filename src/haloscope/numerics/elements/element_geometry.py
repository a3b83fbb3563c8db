"""Hexahedra at the GLL nodes of an order: places, Jacobians, normals, thickness, bad elements.

Arrays of nodes are indexed [element, k, j, i]; see `haloscope.mesh.hexes.hexes` for the conventions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.mesh.hexes.hexes import FACES, Floats, HexMesh, Integers, elements_text, face_nodes
from haloscope.numerics.elements.basis import (
    derivative_matrix,
    equispaced_to_gll,
    gll_nodes,
    gll_weights,
)

SMALLEST_JACOBIAN = 0.01
"""Least Jacobian determinant at a node over the element's mean that is accepted."""
_NODES_AT_ONCE = 1 << 20


def along_all_axes(matrix: Floats, values: Floats) -> Floats:
    """Apply a matrix (m, n) along k, j and i of values (elements, n, n, n, components)."""
    for axis in (1, 2, 3):
        values = np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(values)


def nodes(mesh: HexMesh, order: int, elements: Integers | None = None) -> Floats:
    """Coordinates of GLL nodes.

    By the mesh's own mapping where it has one, so that generated curved surfaces are met exactly;
    otherwise by isoparametric interpolation of its geometry nodes.
    """
    chosen = np.arange(mesh.count) if elements is None else elements
    if mesh.mapping is None:
        return along_all_axes(equispaced_to_gll(mesh.order, order), mesh.coordinates[chosen])
    line = gll_nodes(order)
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    places = mesh.mapping(chosen, np.stack([i, j, k], axis=-1).reshape(-1, 3))
    size = order + 1
    return places.reshape(len(chosen), size, size, size, 3)


def tangents(places: Floats) -> tuple[Floats, Floats, Floats]:
    """Derivatives of coordinates along i, j and k by the nodal derivative, shaped as `places`."""
    matrix = derivative_matrix(places.shape[1] - 1)
    along_i = np.einsum("im,ekjmx->ekjix", matrix, places, optimize=True)
    along_j = np.einsum("jm,ekmix->ekjix", matrix, places, optimize=True)
    along_k = np.einsum("km,emjix->ekjix", matrix, places, optimize=True)
    return along_i, along_j, along_k


def jacobians(places: Floats) -> Floats:
    """Jacobian determinant a_i . (a_j x a_k) at nodes (elements, k, j, i)."""
    a_i, a_j, a_k = tangents(places)
    return np.asarray(np.einsum("...x,...x->...", a_i, np.cross(a_j, a_k)))


def volume_weights(order: int) -> Floats:
    """Quadrature weights of an element's nodes, indexed [k, j, i]; their sum is 8."""
    w = gll_weights(order)
    return w[:, None, None] * w[:, None] * w


def face_normals(places: Floats) -> Floats:
    """Outward normals times area per unit of reference area, at the nodes of each face."""
    order = places.shape[1] - 1
    turned = [part.reshape(len(places), (order + 1) ** 3, 3) for part in tangents(places)]
    result = np.empty((len(places), FACES, (order + 1) ** 2, 3))
    for face, chosen in enumerate(face_nodes(order)):
        axis, side = divmod(face, 2)
        first, second = (turned[(axis + step) % 3][:, chosen] for step in (1, 2))
        result[:, face] = (2 * side - 1) * np.cross(first, second)
    return result


def thickness(places: Floats) -> Floats:
    """Least thickness of elements along their directions i, j, k: an h for time steps.

    Twice the reciprocal of the gradient of each reference coordinate, the least over the nodes; on
    a brick its edge lengths. A skewed element is thinner than its edges are long.
    """
    a = tangents(places)
    jacobian = np.abs(np.einsum("...x,...x->...", a[0], np.cross(a[1], a[2])))
    result = np.empty((len(places), 3))
    for axis in range(3):
        area = np.linalg.norm(np.cross(a[(axis + 1) % 3], a[(axis + 2) % 3]), axis=-1)
        # A direction without area at a node is as thin as can be.
        local = 2 * jacobian / np.maximum(area, np.finfo(float).tiny)
        result[:, axis] = local.min(axis=(1, 2, 3))
    return result


def in_pieces(mesh: HexMesh, order: int) -> Iterator[tuple[Integers, Floats]]:
    """Elements some at a time with their nodes, so that large meshes need little memory."""
    step = max(1, _NODES_AT_ONCE // (order + 1) ** 3)
    for begin in range(0, mesh.count, step):
        elements = np.arange(begin, min(begin + step, mesh.count))
        yield elements, nodes(mesh, order, elements)


def jacobian_ratios(mesh: HexMesh, order: int) -> NDArray[np.float64]:
    """Least Jacobian determinant of each element over the magnitude of its mean.

    The mean is the quadrature's; a ratio is -inf where that is not above 0 or no number.
    """
    weights = volume_weights(order)
    result = np.empty(mesh.count)
    for elements, places in in_pieces(mesh, order):
        values = jacobians(places)
        mean = (values * weights).sum(axis=(1, 2, 3)) / 8
        least = values.min(axis=(1, 2, 3))
        result[elements] = np.where(mean > 0, least / np.where(mean > 0, mean, 1.0), -np.inf)
    return result


def check_jacobians(mesh: HexMesh, order: int, smallest: float = SMALLEST_JACOBIAN) -> None:
    """Refuse a mesh with elements that are inside out or nearly flat."""
    ratios = jacobian_ratios(mesh, order)
    bad = np.flatnonzero(ratios < smallest)
    if not len(bad):
        return
    inverted = int((ratios[bad] <= 0).sum())
    worst = ratios[bad].min()
    problem = (
        counted(inverted, "of them is negative", "of them are negative")
        if inverted
        else "none of them is negative"
    )
    least = "an element is inside out" if np.isneginf(worst) else f"the least is {worst:.3g}"
    raise InputError(
        f"the Jacobian determinant is below {smallest:g} of its mean at order {order} in {len(bad)} "
        f"of {counted(mesh.count, 'element')} ({problem}; {least}): "
        f"{elements_text(bad, mesh.centres)}; mesh these places anew"
    )
