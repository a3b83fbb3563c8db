"""The viscous stress at lattice points, from their own populations alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE, VELOCITIES, equilibrium
from haloscope.solvers.carreau import Carreau

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

COMPONENTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
"""Order of the components of a stress: xx, yy, zz, xy, xz, yz."""
# Of Newton's method for Carreau's law.
_TURNS = 8


def viscous_stress(
    populations: Floats, force: Floats, tau: float | None, law: Carreau | None = None
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
    time: Floats | float
    if tau is None:
        assert law is not None
        time = _carreau_time(law, pi, density)
    else:
        time = tau
    stress: Floats = -(1 - 0.5 / time) * pi
    return stress


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
        x = reduced / tau**2
        thin = span * law.thinning(x)
        slope = 1 + 2 * law.power * thin * x / ((1 + x) * tau)
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
