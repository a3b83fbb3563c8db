"""Distances and normals of the walls at the lattice points next to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.lattice_parts import WALL, LatticePart
from haloscope.mesh.lattice.wall_links import wall_distances
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.fluid.lattice import VELOCITIES
from haloscope.solvers.blood.vessels.vessels import Vessel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# In spacings: what a shape's distances are differenced over, and how far those of surfaces reach.
_STEP = 1e-3
_REACH = 3.0


def wall_points(part: LatticePart) -> Integers:
    """Own points, on no opening, that miss a neighbour behind a wall."""
    return np.flatnonzero((part.sources[:, : part.bulk] == WALL).any(axis=0))


def distances_and_normals(
    vessel: Vessel, part: LatticePart, points: Integers
) -> tuple[Floats, Floats]:
    """How far points are from the nearest wall, and in which direction it lies.

    `points`: own points next to walls, (n,); distances: in spacings, (n,).
    """
    # normals: (n, 3), of length 1, into the vessel: the gradient of the distance. Where that is not
    # known, away from the missing neighbours.
    distances, gradient = _gradient(vessel, part, points)
    length = np.linalg.norm(gradient, axis=1)
    missing = part.sources[:, points] == WALL
    # A source is missing at x - c: c points into the vessel.
    mean = missing.T.astype(np.float64) @ VELOCITIES[1:]
    unknown = ~(np.isfinite(length) & (length > 0.5) & np.isfinite(distances))
    gradient[unknown] = mean[unknown]
    distances = np.where(np.isfinite(distances), distances, 0.5)
    length = np.linalg.norm(gradient, axis=1)
    normals = gradient / np.where(length > 0, length, 1.0)[:, None]
    return distances, normals


def _gradient(vessel: Vessel, part: LatticePart, points: Integers) -> tuple[Floats, Floats]:
    """Distances in spacings and their central differences; nan where they are not known."""
    lattice, geometry = vessel.lattice, vessel.geometry
    places = part.coordinates[points].astype(np.int64)
    if not isinstance(geometry, Surface):
        positions = lattice.origin + lattice.spacing * places
        steps = np.eye(3) * _STEP * lattice.spacing
        differences = [
            (geometry.wall_distances(positions + e) - geometry.wall_distances(positions - e))
            for e in steps
        ]
        gradient = np.stack(differences, axis=1) / (2 * _STEP * lattice.spacing)
        return geometry.wall_distances(positions) / lattice.spacing, gradient
    lo, hi = (np.array(corner) for corner in part.box)
    shape = np.array(lattice.shape)
    low, high = np.maximum(lo - 1, 0).tolist(), np.minimum(hi + 1, shape).tolist()
    box = ((low[0], low[1], low[2]), (high[0], high[1], high[2]))
    known = wall_distances(lattice, geometry, _REACH * lattice.spacing, box)

    def at(where: Integers) -> Floats:
        numbers = where @ np.array([1, shape[0], shape[0] * shape[1]])
        place = np.minimum(np.searchsorted(known.numbers, numbers), max(len(known.numbers) - 1, 0))
        result = np.full(len(where), np.nan)
        if len(known.numbers):
            inside = np.asarray(((where >= 0) & (where < shape)).all(axis=1))
            there = np.flatnonzero(inside & (known.numbers[place] == numbers))
            result[there] = known.distances[place[there]] / lattice.spacing
        return result

    here = at(places)
    gradient = np.empty((len(points), 3))
    for axis in range(3):
        step = np.zeros(3, np.int64)
        step[axis] = 1
        ahead, behind = at(places + step), at(places - step)
        forward, backward = ahead - here, here - behind
        central = (ahead - behind) / 2
        one_sided = np.where(np.isnan(forward), backward, forward)
        gradient[:, axis] = np.where(np.isnan(central), one_sided, central)
    return here, gradient
