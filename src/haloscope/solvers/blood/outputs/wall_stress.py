"""Shear stress of the fluid on the walls, from the populations of the lattice points next to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.mesh.lattice.lattice_parts import WALL, LatticePart
from haloscope.mesh.lattice.wall_links import wall_distances
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE, VELOCITIES, equilibrium
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.vessels.vessels import Vessel
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.interface import saved_counts, saved_numbers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

COMPONENTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
"""Order of the components of a stress: xx, yy, zz, xy, xz, yz."""
# Of Newton's method for Carreau's law.
_TURNS = 8


def viscous_stress(
    populations: Floats, force: Floats, tau: float, law: Carreau | None = None
) -> Floats:
    """Viscous stress 2 mu S from what deviates from equilibrium, in lattice units.

    `populations`: f_i - w_i before a collision, (19, n); `force`: force density, (3, n); Returns:
    (6, n), in the order of :data:`COMPONENTS`.
    """
    # sigma = -(1 - 1/(2 tau)) (sum f_neq c c + (u g + g u)/2), without its trace (T. Krueger, F.
    # Varnik, D. Raabe, Phys. Rev. E 79 (2009) 046704; the term of the force g goes with Guo's
    # forcing, in which u holds half of g).
    density = 1 + populations.sum(axis=0)
    momentum = np.stack([_weighted(VELOCITIES[:, a], populations) for a in range(3)])
    u = (momentum + 0.5 * force) / density
    deviation = populations - equilibrium(density, u)
    pi = np.stack(
        [
            _weighted(VELOCITIES[:, a] * VELOCITIES[:, b], deviation)
            + 0.5 * (u[a] * force[b] + u[b] * force[a])
            for a, b in COMPONENTS
        ]
    )
    pi[:3] -= pi[:3].mean(axis=0)
    time = tau if law is None else _carreau_time(law, pi, density)
    return -(1 - 0.5 / time) * pi


def _weighted(factors: NDArray[np.integer], values: Floats) -> Floats:
    """Sum of rows with factors, one after the other: the same bits for any number of points."""
    weighted = np.zeros(values.shape[1])
    for factor, row in zip(factors.tolist(), values, strict=True):
        if factor:
            weighted += factor * row
    return weighted


def _carreau_time(law: Carreau, pi: Floats, density: Floats) -> Floats:
    """Relaxation times, as `carreau_tau` in lattice.hpp: the shear rate is K / tau."""
    square = (pi[:3] ** 2).sum(axis=0) + 2 * (pi[3:] ** 2).sum(axis=0)
    reduced = 4.5 * square / density**2 * law.time**2
    span = 3 * (law.at_rest - law.at_high_shear)
    tau = np.full(len(density), 3 * law.at_rest + 0.5)
    for _ in range(_TURNS):
        square = reduced / tau**2
        x, thin = law.raised(square), span * law.thinning(square)
        slope = 1 + law.a * law.power * thin * x / ((1 + x) * tau)
        tau = tau - (tau - 3 * law.at_high_shear - 0.5 - thin) / slope
    return tau


class ChosenPoints:
    """Reads populations and forces of chosen own points from the device.

    `points`: own points that lie in no opening, (n,).
    """

    def __init__(self, device: Device, fluid: Fluid, part: LatticePart, points: Integers) -> None:
        self._device, self._fluid, self._points = device, fluid, points
        stride = fluid.stride
        slots = np.arange(DIRECTIONS)[:, None] * stride
        even = slots + points
        odd = even.copy()
        # After an odd step what arrives is still at its source, or was sent back by a wall.
        sources = part.sources[:, points].astype(np.int64)
        back = OPPOSITE[1:, None] * stride + sources
        odd[1:] = np.where(sources < 0, even[1:], back)
        self._addresses = [device.from_host(indices) for indices in (even, odd)]
        self._forces = device.from_host(np.arange(3)[:, None] * stride + points)

    def populations(self) -> Floats:
        """Populations that arrived at each point, less the weights, (19, n)."""
        return self._fluid.arrived_at(self._points, self._addresses)

    def forces(self) -> Floats:
        """Force density of cells, (3, n); zero without cells."""
        force = self._fluid.force
        if len(force) < 3:
            return np.zeros((3, len(self._points)))
        return np.asarray(self._device.to_host(force.reshape(-1)[self._forces]), np.float64)


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
    shape, closed = np.array(lattice.shape), np.array(lattice.periodic)
    # Neighbours across joined ends lie at the other end.
    across = closed & ((lo == 0) | (hi == shape))
    low = np.where(across, 0, np.maximum(lo - 1, 0)).tolist()
    high = np.where(across, shape, np.minimum(hi + 1, shape)).tolist()
    box = ((low[0], low[1], low[2]), (high[0], high[1], high[2]))
    known = wall_distances(lattice, geometry, _REACH * lattice.spacing, box)

    def at(where: Integers) -> Floats:
        where = np.where(closed, where % shape, where)
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

    def __init__(self, medium: FluidWithCells, vessel: Vessel) -> None:
        part = medium.part
        self._units, self._world = medium.table.units, medium.world
        self._tau, self._law = medium.table.tau, medium.law
        self.samples = 0  # How many the mean is of
        own = wall_points(part)
        self.present = medium.world.any(len(own) > 0)
        """Whether there are walls at all."""
        if not self.present:
            return
        self.places = medium.layout_of(own)
        distances, self._normals = distances_and_normals(vessel, part, own)
        near, self._share = _neighbours(part, own, distances, self._normals)
        self._sums = np.zeros((3, len(own)))
        self._find(medium, own, near)

    def _find(self, medium: FluidWithCells, own: Integers, near: Integers) -> None:
        """Which points' stresses are needed here, and which others ask for."""
        part, region = medium.part, medium.region
        ghosts = np.unique(near[near >= part.owned])
        owners = region.boxes.owners(part.coordinates[ghosts])
        asked = [np.flatnonzero(owners == rank) for rank in range(self._world.size)]
        came = self._world.exchange([part.numbers[ghosts[at]].view(np.uint8) for at in asked])
        served = [
            part.find(np.frombuffer(numbers.tobytes(), np.int64), region.shape) for numbers in came
        ]
        chosen = np.unique(np.concatenate([own, near[near < part.owned], *served]))
        self._points = ChosenPoints(medium.device, medium.fluid, part, chosen)
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
