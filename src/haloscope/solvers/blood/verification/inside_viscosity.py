"""Flow between plates, the middle of which has the viscosity that fluid inside of cells has.

No case has such an inside without a cell around it: the lattice and its flags are made here.
"""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import SolutionError
from haloscope.mesh.lattice.lattice_parts import take
from haloscope.solvers.blood.fluid.d3q19 import VELOCITIES
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.verification import exact

_TAU = 0.8
# On the lattice, of the fluid alone between the plates.
_SPEED = 1e-3
_ALONG = 4
_STEADY = 1e-12
_MOST_STEPS = 400_000


def error_of_layers(device: Device, ratio: float, points: int) -> float:
    """Root mean square error of the steady velocity over its mean."""
    shape = (_ALONG, points, _ALONG)
    part = take(
        np.arange(points * _ALONG**2),
        shape,
        ((0, 0, 0), shape),
        1,
        VELOCITIES[1:],
        periodic=(True, False, True),
    )
    viscosity = (_TAU - 0.5) / 3
    push = 12 * viscosity * _SPEED / points**2
    fluid = Fluid(
        device,
        part,
        tau=_TAU,
        with_cells=True,
        inside_tau=0.5 + 3 * ratio * viscosity,
        body_force=(push, 0.0, 0.0),
    )
    y = part.coordinates[: part.owned, 1].astype(np.float64) + 0.5
    middle = np.abs(y - points / 2) < points / 4
    fluid.inside[: part.owned] = device.from_host(middle.astype(np.uint8))
    true = exact.layers(y, float(points), points / 4, push / viscosity, ratio)
    velocity = np.zeros_like(true)
    for _ in range(_MOST_STEPS // 500):
        for _ in range(500):
            fluid.step()
        before, velocity = velocity, fluid.moments()[1][0]
        if np.abs(velocity - before).max() < _STEADY * np.abs(velocity).max():
            return float(np.sqrt(((velocity - true) ** 2).mean()) / true.mean())
    raise SolutionError(
        f"the flow between plates is not steady after {_MOST_STEPS} steps; take fewer points"
    )
