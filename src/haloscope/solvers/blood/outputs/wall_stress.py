"""Shear stress of the fluid on the walls, at the lattice points next to them: their distances and normals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import WALL, LatticePart, Region
from haloscope.mesh.lattice.point_fields import PointFields
from haloscope.mesh.lattice.wall_links import wall_distances
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, VELOCITIES
from haloscope.solvers.blood.fluid.local_stress import COMPONENTS, ChosenPoints, viscous_stress
from haloscope.solvers.blood.units import LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.interface import saved_counts, saved_numbers

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


VECTOR = "wall_shear_stress"
MAGNITUDE = "wall_shear_stress_magnitude"
# In Pa, of sums that a checkpoint may hold: the square of a larger one has no float.
_LARGEST = 1e100
_SUMS, _SAMPLES = "wall stress sums", "wall stress samples"
# Cosine between a wall's normal and a link along which values go on to the wall: within 45 degrees.
_LEAST_COSINE = 0.7


class WallStress:
    """Shear stress on walls, as a mean of samples."""

    # At each point next to a wall the stress follows from the point's own populations. It and that
    # of the neighbour away from the wall go on in a line to where the wall is, which is exact where
    # stresses are linear, as in Poiseuille flow; walls that the lattice follows in steps disturb
    # the points next to them (J. Stahl, B. Chopard, J. Latt, Comput. Fluids 39 (2010) 1625). What
    # acts along the wall, with the normal of the geometry, is the shear stress.

    def __init__(
        self,
        device: Device,
        fluid: Fluid,
        vessel: Vessel,
        part: LatticePart,
        region: Region,
        units: LatticeUnits,
        world: World,
        *,
        tau: float,
        law: Carreau | None = None,
    ) -> None:
        self._units, self._world, self._law = units, world, law
        self._tau = tau if law is None else None
        self.samples = 0  # How many the mean is of
        own = wall_points(part)
        self.present = world.any(len(own) > 0)
        """Whether there are walls at all."""
        if not self.present:
            return
        lattice = vessel.lattice
        x, y, z = lattice.origin.tolist()
        self.places = PointFields(
            world,
            part.numbers[own],
            lattice.shape,
            origin=(x, y, z),
            spacing=lattice.spacing,
            periodic=lattice.periodic,
        )
        distances, self._normals = distances_and_normals(vessel, part, own)
        near, self._share = _neighbours(part, own, distances, self._normals)
        self._sums = np.zeros((3, len(own)))
        self._find(device, fluid, part, region, own, near)

    def _find(
        self,
        device: Device,
        fluid: Fluid,
        part: LatticePart,
        region: Region,
        own: Integers,
        near: Integers,
    ) -> None:
        """Which points' stresses are needed here, and which others ask for."""
        ghosts = np.unique(near[near >= part.owned])
        owners = region.boxes.owners(part.coordinates[ghosts])
        asked = [np.flatnonzero(owners == rank) for rank in range(self._world.size)]
        came = self._world.exchange([part.numbers[ghosts[at]].view(np.uint8) for at in asked])
        served = [
            part.find(np.frombuffer(numbers.tobytes(), np.int64), region.shape) for numbers in came
        ]
        chosen = np.unique(np.concatenate([own, near[near < part.owned], *served]))
        self._points = ChosenPoints(device, fluid, part, chosen)
        self._own = np.searchsorted(chosen, own)
        self._served = [np.searchsorted(chosen, rows) for rows in served]
        # What comes from others stands behind, by rank.
        place = np.empty(len(ghosts), np.int64)
        place[np.concatenate(asked)] = len(chosen) + np.arange(len(ghosts))
        self._near = np.searchsorted(chosen, near)
        away = near >= part.owned
        self._near[away] = place[np.searchsorted(ghosts, near[away])]

    def sample(self, body_force: Floats) -> None:
        """Add the present stress; all ranks call this.

        `body_force`: force density along x, y, z in lattice units that acted in the last step.
        """
        if not self.present:
            return
        points = self._points
        force = points.forces() + np.reshape(body_force, (3, 1))
        stress = viscous_stress(points.populations(), force, self._tau, self._law)
        sent = [np.ascontiguousarray(stress[:, at].T).reshape(-1) for at in self._served]
        came = self._world.exchange([part.view(np.uint8) for part in sent])
        others = np.frombuffer(b"".join(part.tobytes() for part in came)).reshape(-1, 6).T
        near = np.concatenate([stress, others], axis=1)[:, self._near]
        here = stress[:, self._own]
        at_wall = here + self._share * (here - near)
        self._sums += _shear(at_wall, self._normals.T) * self._units.pressure
        self.samples += 1

    def clear(self) -> None:
        """Forget all samples."""
        self.samples = 0
        if self.present:
            self._sums[:] = 0

    # Restarts

    def extras(self) -> dict[str, NDArray[np.generic]]:
        """Sums so far, whole on rank 0; all ranks call this."""
        if not self.present:
            return {}
        extras: dict[str, NDArray[np.generic]] = {_SAMPLES: np.array([self.samples], np.int64)}
        rows = [row for row in map(self._whole, self._sums) if row is not None]
        return extras | {_SUMS: np.stack(rows)} if rows else extras

    def restore(self, extras: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on from a checkpoint; all ranks call this."""
        if not self.present:
            return
        self.clear()
        if _SUMS not in extras or _SAMPLES not in extras:
            return
        rows = saved_numbers(extras, _SUMS, (3, *self.places.shape), least=-_LARGEST, most=_LARGEST)
        samples = int(saved_counts(extras, _SAMPLES, (1,))[0])
        for row, values in zip(self._sums, rows, strict=True):
            row[:] = self.places.own(values.__getitem__)
        self.samples = samples

    # The mean

    def _whole(self, values: Floats) -> Floats | None:
        """Values at all wall points in raster order, on rank 0."""
        return self.places.collect(values, 0, self.places.shape[0])

    def _magnitude(self) -> Floats:
        x, y, z = self._sums / self.samples
        size: Floats = np.sqrt(x * x + y * y + z * z)
        return size

    def numbers(self) -> dict[str, Any]:
        """Of the mean of all samples, in Pa; all ranks call this, and rank 0 gets them.

        Each point counts the same, whatever the area of the wall next to it.
        """
        size = self._whole(self._magnitude())
        parts = [self._whole(row / self.samples) for row in self._sums]
        if size is None:
            return {}
        low, high = np.percentile(size, (5, 95)).tolist()
        return {
            "points": len(size),
            "samples": self.samples,
            "mean_pa": float(size.mean()),
            "least_pa": float(size.min()),
            "largest_pa": float(size.max()),
            "5_percent_below_pa": low,
            "5_percent_above_pa": high,
            "mean_vector_pa": [float(row.mean()) for row in parts if row is not None],
        }

    def write(self, path: Path, time: float) -> None:
        """Write the mean as VTKHDF, a vector and its magnitude in Pa; all ranks call this."""
        x, y, z = (f"{VECTOR}_{axis}" for axis in "xyz")
        mean = (self._sums / self.samples).astype(np.float32)
        self.places.write(
            path,
            {
                MAGNITUDE: lambda: self._magnitude().astype(np.float32),
                x: lambda: mean[0],
                y: lambda: mean[1],
                z: lambda: mean[2],
            },
            {VECTOR: (x, y, z)},
            time,
        )


def _neighbours(
    part: LatticePart, own: Integers, distances: Floats, normals: Floats
) -> tuple[Integers, Floats]:
    """For each point its neighbour away from the wall, or itself; and the step back to the wall.

    The step is a share of the way between the two.
    """
    best = np.full(len(own), _LEAST_COSINE)
    near, share = own.copy(), np.zeros(len(own))
    for i in range(1, DIRECTIONS):
        # The neighbour at x - c.
        along = np.zeros(len(own))
        for axis in range(3):
            along -= int(VELOCITIES[i, axis]) * normals[:, axis]
        cosine = along / np.sqrt(float((VELOCITIES[i] ** 2).sum()))
        there = part.sources[i - 1, own].astype(np.int64)
        better = (there >= 0) & (part.openings[there] < 0) & (cosine > best)
        best[better], near[better] = cosine[better], there[better]
        share[better] = distances[better] / along[better]
    return near, share


def _shear(stress: Floats, normals: Floats) -> Floats:
    """Shear on a wall: the traction (3, n) of stresses (6, n) less its normal part."""
    traction = np.zeros_like(normals)
    for row, (a, b) in zip(stress, COMPONENTS, strict=True):
        traction[a] += row * normals[b]
        if a != b:
            traction[b] += row * normals[a]
    along = traction[0] * normals[0] + traction[1] * normals[1] + traction[2] * normals[2]
    shear: Floats = traction - along * normals
    return shear
