"""In which element a point source lies, and where in it."""

from __future__ import annotations

import numpy as np

from haloscope.domain.hexes import HexMesh, Integers, point_text
from haloscope.errors import InputError
from haloscope.numerics.element_maps import gll_basis
from haloscope.numerics.locate import Locator
from haloscope.solvers.maxwell.terms import Floats

# Share of its size by which a curved element may bulge out of the box of its geometry nodes.
_BULGE = 0.2


def lagrange(order: int, reference: Floats) -> Floats:
    """The nodes' polynomials at a point of the reference cube, ((N + 1)^3,), i fastest."""
    i, j, k = gll_basis(order, reference)
    return np.asarray((k[:, None, None] * j[:, None] * i).ravel())


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
    found = Locator(mesh, order, near).find(point[None])
    if not found.inside[0]:
        raise InputError(
            f"the point {point_text(point)} lies in no element; the mesh reaches from "
            f"{point_text(low.min(axis=0))} to {point_text(high.max(axis=0))}"
        )
    return int(found.elements[0]), found.reference[0]
