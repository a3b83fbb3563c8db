"""Elements as the kernels read them: shape, materials, and what lies behind each face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.domain.mesh_parts import MeshPart
from haloscope.errors import InputError
from haloscope.numerics.element_geometry import tangents

Floats = NDArray[np.float64]

FACE_VALUES = 4
FACES = 6
GEOMETRY_VALUES = 10
# How much of the electric field a boundary reflects. Behind it lies the own trace times this, the
# magnetic one with the other sign, so that upwind flux lets this share of the outgoing wave return.
BOUNDARIES = {"pec": -1.0, "pmc": 1.0, "absorbing": 0.0}


@dataclass(frozen=True)
class Material:
    """A medium without dispersion.

    Attributes
    ----------
    permittivity, permeability
        Relative to vacuum, in whose units everything is computed: c = 1, impedance 1.
    """

    permittivity: float = 1.0
    permeability: float = 1.0

    @property
    def impedance(self) -> float:
        """Square root of permeability over permittivity."""
        return float(np.sqrt(self.permeability / self.permittivity))


def geometry(coordinates: Floats, order: int) -> Floats:
    """Derivatives of the coordinates and the inverse Jacobian determinant at the nodes.

    Parameters
    ----------
    coordinates
        (elements, N + 1, N + 1, N + 1, 3) at the nodes, indexed [element, k, j, i, xyz].
    order
        N.

    Returns
    -------
    array of shape (elements, 10, (N + 1)^3)
        x, y, z of a_1, of a_2 and of a_3 (derivatives along i, j, k), and 1 / J.

    Raises
    ------
    InputError
        J is not positive somewhere.
    """
    elements = len(coordinates)
    result = np.empty((elements, GEOMETRY_VALUES, (order + 1) ** 3))
    for d, a in enumerate(tangents(coordinates)):
        result[:, 3 * d : 3 * d + 3] = np.moveaxis(a, -1, 1).reshape(elements, 3, -1)
    J = np.einsum("ecn,ecn->en", result[:, 0:3], np.cross(result[:, 3:6], result[:, 6:9], axis=1))
    bad = np.flatnonzero(J.min(axis=1) <= 0)
    if len(bad):
        raise InputError(
            f"element {bad[0]} is turned inside out at a node of order {order} "
            f"({len(bad)} such elements); repair the mesh or raise its geometric order"
        )
    result[:, 9] = 1 / J
    return result


def face_type(real: np.dtype) -> np.dtype:
    """The struct Face of maxwell.cpp."""
    names = ("electric", "magnetic", "impedance", "admittance")
    return np.dtype([("slot", "<i4"), ("turned", "<i4"), *((name, real) for name in names)])


def faces(
    part: MeshPart,
    impedance: Floats,
    behind: Floats,
    kinds: Mapping[str, str | float],
    real: np.dtype,
) -> NDArray[np.void]:
    """What lies behind each face.

    Traces of own faces have slots ``6 element + face``; those that come from other ranks follow,
    in the same order, for the elements that have any.

    Parameters
    ----------
    part
        Elements of this rank.
    impedance
        Of each element, (elements,).
    behind
        Of what lies behind a face on another rank, (elements, 6).
    kinds
        By each boundary's name: one of :data:`BOUNDARIES`, or the surface impedance of a lossy
        wall over that of vacuum.
    real
        Type of the fields.

    Returns
    -------
    structured array of shape (elements, 6)

    Raises
    ------
    InputError
        A boundary of the mesh has no kind.
    """
    mesh, elsewhere = part.mesh, part.partners >= 0
    result = np.zeros((mesh.count, FACES), face_type(real))
    own = np.arange(mesh.count * FACES).reshape(-1, FACES)
    inside = mesh.neighbours >= 0
    result["slot"] = np.where(inside, mesh.neighbours * FACES + mesh.neighbour_faces, own)
    result["slot"][elsewhere] += mesh.count * FACES
    result["turned"] = np.where(inside | elsewhere, mesh.orientations, 0)
    here = impedance[np.where(inside, mesh.neighbours, np.arange(mesh.count)[:, None])]
    behind = np.where(elsewhere, behind, here)
    result["impedance"] = behind
    result["admittance"] = 1 / behind
    result["electric"] = result["magnetic"] = 1.0
    for number, name in enumerate(mesh.boundary_names):
        at = ~inside & ~elsewhere & (mesh.boundaries == number)
        if not at.any():
            continue
        if name not in kinds:
            raise InputError(
                f"the boundary {name!r} of the mesh has no kind; give it one of "
                f"{', '.join(BOUNDARIES)}"
            )
        kind = kinds[name]
        if isinstance(kind, str):
            reflection: Floats | float = BOUNDARIES[kind]
        else:
            reflection = (kind - here[at]) / (kind + here[at])
        result["electric"][at], result["magnetic"][at] = reflection, np.negative(reflection)
    return result
