"""In which element a point lies, and where in it."""

from __future__ import annotations

import numpy as np

from haloscope.domain.hexes import HexMesh, point_text
from haloscope.errors import InputError
from haloscope.numerics.basis import derivative_matrix, gll_nodes, interpolation_matrix
from haloscope.numerics.element_geometry import nodes
from haloscope.solvers.maxwell.terms import Floats, Integers

_NEWTON_STEPS = 30
_CONVERGED = 1e-13
# How far outside an element's reference cube a point may seem to lie.
_SLACK = 1e-9
# Share of its size by which a curved element may bulge out of the box of its geometry nodes.
_BULGE = 0.2


def lagrange(order: int, reference: Floats) -> Floats:
    """The nodes' polynomials at a point of the reference cube, ((N + 1)^3,), i fastest."""
    i, j, k = interpolation_matrix(gll_nodes(order), reference)
    return np.asarray((k[:, None, None] * j[:, None] * i).ravel())


def _reference(coordinates: Floats, point: Floats) -> Floats | None:
    """Where in an element (k, j, i, xyz) a point lies, by Newton's method; None: nowhere."""
    order = len(coordinates) - 1
    line, derivative = gll_nodes(order), derivative_matrix(order)
    at = np.zeros(3)
    for _ in range(_NEWTON_STEPS):
        values = interpolation_matrix(line, at)
        slopes = values @ derivative
        i, j, k = values
        gap = point - np.einsum("k,j,i,kjix->x", k, j, i, coordinates)
        jacobian = np.stack(
            [
                np.einsum("k,j,i,kjix->x", k, j, slopes[0], coordinates),
                np.einsum("k,j,i,kjix->x", k, slopes[1], i, coordinates),
                np.einsum("k,j,i,kjix->x", slopes[2], j, i, coordinates),
            ],
            axis=1,
        )
        try:
            step = np.linalg.solve(jacobian, gap)
        except np.linalg.LinAlgError:
            return None
        # Far outside, the polynomials mean nothing.
        at = np.clip(at + step, -1.5, 1.5)
        if np.abs(step).max() < _CONVERGED:
            break
    if np.abs(at).max() > 1 + _SLACK:
        return None
    at = np.clip(at, -1.0, 1.0)
    return at


def locate(mesh: HexMesh, order: int, point: Floats) -> tuple[int, Floats]:
    """Element that holds a point, and the point's place in its reference cube.

    On a face that elements share it is that of the lowest number.

    Parameters
    ----------
    mesh
        The whole.
    order
        Of the polynomials that give the elements their shape.
    point
        x, y, z.

    Raises
    ------
    InputError
        No element holds it.
    """
    flat = mesh.coordinates.reshape(mesh.count, -1, 3)
    low, high = flat.min(axis=1), flat.max(axis=1)
    room = ((high - low).max(axis=1) * _BULGE)[:, None]
    near: Integers = np.flatnonzero(((point >= low - room) & (point <= high + room)).all(axis=1))
    # Those whose box holds it come first: mostly that is all that has to be looked at.
    slack = room * _SLACK
    inside = ((point >= low[near] - slack[near]) & (point <= high[near] + slack[near])).all(axis=1)
    for some in (near[inside], near[~inside]):
        for element in some:
            found = _reference(nodes(mesh, order, np.array([element]))[0], point)
            if found is not None:
                return int(element), found
    raise InputError(
        f"the point {point_text(point)} lies in no element; the mesh reaches from "
        f"{point_text(low.min(axis=0))} to {point_text(high.max(axis=0))}"
    )
