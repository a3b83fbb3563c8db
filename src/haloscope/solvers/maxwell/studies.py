"""What sets the default discretisation apart: energy on warped elements with either curl."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.mesh.hexes.hex_generators import box
from haloscope.numerics.elements.element_geometry import nodes
from haloscope.solvers.maxwell.stepping import Stepping
from haloscope.solvers.maxwell.time_step import geometric_bounds

_RECORDS = 30
_SEED = 3


@dataclass(frozen=True)
class EnergyHistory:
    """Energy over that at the begin, at times that follow each other."""

    times: NDArray[np.float64]
    energies: NDArray[np.float64]

    @property
    def final(self) -> float:
        """Energy at the end over that at the begin."""
        return float(self.energies[-1])

    @property
    def grows(self) -> bool:
        """Whether it has grown anywhere by more than rounding."""
        return bool((np.diff(self.energies) > 1e-12 * self.energies[:-1]).any())

    @property
    def rate(self) -> float:
        """Exponential rate of growth over the last third."""
        first = 2 * len(self.times) // 3
        span = self.times[-1] - self.times[first]
        return math.log(self.energies[-1] / self.energies[first]) / float(span)


def warped_energy(
    order: int, warp: float, until: float, chain_rule: bool, device: Device
) -> EnergyHistory:
    """Energy of random fields in a periodic box of 2^3 warped elements with upwind flux.

    `warp`: share of the length that nodes are shifted by at most; 0.06 is a lot; `until`: time to
    run to, in units of length over c.
    """
    # The box is [0, 2 pi]^3, each coordinate shifted by `warp` times its length times a product of
    # sines. With the covariant curl the semi-discrete energy cannot grow, by summation by parts;
    # with the chain rule it does on curved elements, as products of polynomials are not integrated
    # exactly.
    length = 2 * math.pi
    mesh = box((2, 2, 2), upper=(length,) * 3, periodic=(True,) * 3, warp=warp)
    coordinates = nodes(mesh, order)
    stepping = Stepping(mesh, coordinates, order, device, chain_rule=chain_rule)
    shape = (mesh.count, 6, (order + 1) ** 3)
    stepping.set_fields(np.random.default_rng(_SEED).standard_normal(shape))
    bound = float(geometric_bounds(coordinates, 1.0).min())
    steps = math.ceil(until / bound / _RECORDS)
    stepping.set_step(until / (steps * _RECORDS))
    energies = [stepping.energy()]
    for _ in range(_RECORDS):
        stepping.advance(steps)
        energies.append(stepping.energy())
    times = np.linspace(0.0, until, _RECORDS + 1)
    return EnergyHistory(times, np.array(energies) / energies[0])
