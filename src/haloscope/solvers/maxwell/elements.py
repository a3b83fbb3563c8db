"""Elements in the form that kernels read: shape, materials, neighbours behind faces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.elements.element_maps import along_all_axes, gll_nodes, tangents

# `coordinates` are those of nodes: (elements, N + 1, N + 1, N + 1, 3), indexed [element, k, j, i, xyz].

Floats = NDArray[np.float64]

FIELD_NAMES = ("Ex", "Ey", "Ez", "Hx", "Hy", "Hz")
FACE_VALUES = 4
FACES = 6
# How the kernels know an element's shape: their constant GEOMETRY.
STORED, CORNERS, AFFINE = 0, 2, 3
_STORED_VALUES = 10
# From this order on cores are faster with corners than with stored shapes.
_CORNERS_FROM = 9
# Errors of rounding in units of the largest coordinate's last place that a straight element may have.
_ROUNDING = 64
# How much of the electric field a boundary reflects. Behind it lies the own trace times this, the
# magnetic one with the other sign, so that upwind flux lets this share of the outgoing wave return.
BOUNDARIES = {"pec": -1.0, "pmc": 1.0, "absorbing": 0.0}
ALLOWED_KINDS = "pec, pmc, absorbing or { impedance = ... }"


@dataclass(frozen=True)
class Material:
    """A medium without dispersion."""

    # Relative to vacuum, in whose units everything is computed: c = 1, impedance 1.
    permittivity: float = 1.0
    permeability: float = 1.0

    @property
    def impedance(self) -> float:
        """Square root of permeability over permittivity."""
        return float(np.sqrt(self.permeability / self.permittivity))


def geometry(
    coordinates: Floats, order: int, mode: int = STORED, face_shapes: bool = False
) -> Floats:
    """Shape of each element for the kernels, as in shape_cores.hpp."""
    # Returns: stored: x, y, z of a_1, of a_2 and of a_3 (derivatives along i, j, k), and 1 / J,
    # each at the (N + 1)^3 nodes. Corners: x, y, z at the eight
    # corners, i fastest. Affine: as stored, but once for all nodes. Behind these, with face shapes,
    # for each face at its (N + 1)^2 nodes the products of its two tangents over its area: pp, pq,
    # qq.
    elements = len(coordinates)
    if mode == AFFINE:
        _, a = _edges(coordinates)
        J = np.einsum("ec,ec->e", a[:, 0], np.cross(a[:, 1], a[:, 2]))
        return np.concatenate([a.reshape(elements, -1), 1 / J[:, None]], axis=1)
    if mode == CORNERS:
        return np.moveaxis(corners(coordinates), -1, 1).reshape(elements, -1)
    a = np.stack([np.moveaxis(one, -1, 1) for one in tangents(coordinates)], axis=1)
    J = np.einsum("ec...,ec...->e...", a[:, 0], np.cross(a[:, 1], a[:, 2], axis=1))
    parts = [a.reshape(elements, -1), 1 / J.reshape(elements, -1)]
    if face_shapes:
        return np.concatenate([*parts, _face_shapes(a)], axis=1)
    return np.concatenate(parts, axis=1).reshape(elements, _STORED_VALUES, -1)


def _edges(coordinates: Floats) -> tuple[Floats, Floats]:
    """The first corner (elements, 3), and half the edges that begin there (elements, 3, 3)."""
    at = corners(coordinates)
    first = at[:, 0, 0, 0]
    ends = np.stack([at[:, 0, 0, 1], at[:, 0, 1, 0], at[:, 1, 0, 0]], axis=1)
    return first, (ends - first[:, None]) / 2


def _face_shapes(a: Floats) -> Floats:
    """Products of each face's tangents over its area, from a [element, direction, xyz, k, j, i]."""
    result = np.empty((len(a), FACES, 3, a.shape[-1] ** 2))
    for face in range(FACES):
        axis, end = divmod(face, 2)
        there = np.take(a, -end, axis=5 - axis).reshape(len(a), 3, 3, -1)
        p, q = (there[:, d] for d in range(3) if d != axis)
        pp, pq, qq = ((one * other).sum(axis=1) for one, other in ((p, p), (p, q), (q, q)))
        result[:, face] = np.stack([pp, pq, qq], axis=1) / np.sqrt(pp * qq - pq**2)[:, None]
    return result.reshape(len(a), -1)


def corners(coordinates: Floats) -> Floats:
    """The eight corners of elements, (elements, 2, 2, 2, 3), indexed as their nodes."""
    last = coordinates.shape[1] - 1
    return coordinates[:, ::last, ::last, ::last]


def trilinear(coordinates: Floats) -> NDArray[np.bool_]:
    """Tell which elements are known from their corners, up to rounding."""
    x = gll_nodes(coordinates.shape[1] - 1)
    return _lie_at(
        along_all_axes(np.stack([1 - x, 1 + x], axis=1) / 2, corners(coordinates)), coordinates
    )


def affine(coordinates: Floats) -> NDArray[np.bool_]:
    """Tell which elements are parallelepipeds with nodes where these have them, up to rounding."""
    along = 1 + gll_nodes(coordinates.shape[1] - 1)
    first, a = _edges(coordinates)
    i, j, k = (along[:, None] * a[:, None, d] for d in range(3))
    mapped = (
        first[:, None, None, None] + k[:, :, None, None] + j[:, None, :, None] + i[:, None, None]
    )
    return _lie_at(mapped, coordinates)


def _lie_at(mapped: Floats, coordinates: Floats) -> NDArray[np.bool_]:
    """Whether the nodes of each element lie where a map puts them, up to rounding."""
    at = corners(coordinates)
    size = np.ptp(at, axis=(1, 2, 3)).max(axis=1)
    away = np.abs(mapped - coordinates).reshape(len(at), -1).max(axis=1)
    largest = np.abs(at).reshape(len(at), -1).max(axis=1)
    return np.asarray(away <= _ROUNDING * np.finfo(np.float64).eps * np.maximum(size, largest))


def ways_to_know(order: int, cores: bool, *, bricks: bool = False) -> tuple[int, ...]:
    """Ways in which the kernels may know the shapes of a mesh's elements.

    `bricks`: all elements are bricks with nodes where these have them.
    """
    fastest_of_bricks = AFFINE if cores else CORNERS
    if bricks:
        return (fastest_of_bricks,)
    by_corners = (CORNERS,) if cores and order >= _CORNERS_FROM else ()
    return (STORED, *by_corners, fastest_of_bricks)


def known_by(coordinates: Floats, cores: bool) -> NDArray[np.int64]:
    """How the kernels know each element's shape, in the way that is fastest."""
    ways = ways_to_know(coordinates.shape[1] - 1, cores)
    modes = np.full(len(coordinates), STORED)
    if CORNERS in ways:
        modes[trilinear(coordinates)] = CORNERS
    if AFFINE in ways:
        modes[affine(coordinates)] = AFFINE
    return modes


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
    """Neighbour or condition behind each face.

    Traces of own faces have slots ``6 element + face``; those that come from other ranks follow, in
    the same order, for the elements that have any.
    """
    # `impedance`: of each element, (elements,).
    # `behind`: of what lies behind a face on another rank, (elements, 6).
    # `kinds`: of each boundary a name of BOUNDARIES, or its surface impedance.
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
        kind = kinds[name]
        if isinstance(kind, str):
            reflection: Floats | float = BOUNDARIES[kind]
        else:
            reflection = (kind - here[at]) / (kind + here[at])
        result["electric"][at], result["magnetic"][at] = reflection, np.negative(reflection)
    return result
