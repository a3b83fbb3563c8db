"""Steady flow of a plain fluid through a lattice's own cross-section, with its steps for walls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.voxels import Lattice

Floats = NDArray[np.float64]

# Neighbours in the plane; the weights are those of D3Q19 seen along an axis, over 1/6: the
# isotropic Laplacian of nine points.
_AROUND = [(one, two) for one in (-1, 0, 1) for two in (-1, 0, 1) if one or two]
_WEIGHTS = [4 / 6 if 0 in step else 1 / 6 for step in _AROUND]
_RESIDUAL = 1e-10


def permeability(lattice: Lattice, axis: int) -> float:
    """Mean over the points of a cross-section of what solves -laplacian u = 1, in m^2.

    Times a pressure gradient and over the viscosity it is the mean speed of a fluid in a straight
    vessel. Walls lie halfway to missing neighbours.
    """
    places = lattice.coordinates(lattice.runs.plane(axis, 0))
    one, two = (other for other in range(3) if other != axis)
    shape = (lattice.shape[one] + 2, lattice.shape[two] + 2)
    number = np.full(shape, -1)
    number[places[:, one] + 1, places[:, two] + 1] = np.arange(len(places))
    for dimension, closed in enumerate((lattice.periodic[one], lattice.periodic[two])):
        if closed:
            ends = np.moveaxis(number, dimension, 0)
            ends[0], ends[-1] = ends[-2], ends[1]
    near = [number[places[:, one] + 1 + a, places[:, two] + 1 + b] for a, b in _AROUND]
    diagonal = np.full(len(places), sum(_WEIGHTS))
    for there, weight in zip(near, _WEIGHTS, strict=True):
        # Beyond a wall stands the negative.
        diagonal[there < 0] += weight

    def operator(values: Floats) -> Floats:
        result = diagonal * values
        for there, weight in zip(near, _WEIGHTS, strict=True):
            result -= weight * np.where(there >= 0, values[there], 0.0)
        return result

    solution = solved_for_ones(operator, len(places), _RESIDUAL)
    return float(solution.mean()) * lattice.spacing**2


def solved_for_ones(
    operator: Callable[[Floats], Floats], count: int, residual_norm: float
) -> Floats:
    """What a symmetric operator turns into ones, by conjugate gradients."""
    values: Floats = np.zeros(count)
    residual = np.ones(count)
    direction, square = residual.copy(), float(count)
    for _ in range(10 * count):
        moved = operator(direction)
        length = square / float(direction @ moved)
        values += length * direction
        residual -= length * moved
        before, square = square, float(residual @ residual)
        if square < residual_norm**2 * count:
            break
        direction = residual + square / before * direction
    return values
