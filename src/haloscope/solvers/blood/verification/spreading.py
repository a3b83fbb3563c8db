"""Losses of spreading: vertices' forces and their work, in a box without walls near cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.coupling.coupling import KERNELS, Coupling, OwnBox
from haloscope.solvers.blood.verification.plasma import case_of

Floats = NDArray[np.float64]

_SPACING = 0.6
_SIZE = 15
"""Of the periodic box, in um."""
_STEPS = 20


@dataclass(frozen=True)
class Missed:
    """Differences between points and vertices, over the sum of what vertices give without signs."""

    force: float  # Largest component of the whole force
    # Of the force on points with any velocity, and of vertices with the same interpolated.
    work: float


def pulled_cell() -> dict[str, Any]:
    """Data of a case: a red cell that meets a flow that it does not move with."""
    return case_of(
        _SPACING,
        {"steps": _STEPS, "diagnostics_interval": _STEPS},
        channel={"size_um": [_SIZE] * 3, "periodic": ["x", "y", "z"]},
        initial={"u": f"1e-3*sin(2*pi*y/{_SIZE}e-6)", "v": f"2e-3*sin(2*pi*x/{_SIZE}e-6)"},
        cells=[{"placed": [{"position_um": [7.0, 7.5, 14.0], "axis": [0.2, 0.4, 1.0]}]}],
    )


def missed_in_a_run(simulation: Any) -> float:
    """Forces on the fluid of a run less those of the membranes, over their sum."""
    solver = simulation.solver
    local = solver.suspension.kinds[0]
    forces = local.membranes.on_host(local.membranes.forces, local.count)
    spread = _on_points(simulation, solver.fluid.force)
    return _missed(spread.sum(axis=1), forces.sum(axis=(0, 1)), np.abs(forces).sum())


def missed_with(simulation: Any, kernel: str) -> Missed:
    """The same of random forces on the vertices of a run, whose sum does not vanish."""
    device, part = simulation.device, simulation.solver.part
    membranes = simulation.solver.suspension.kinds[0].membranes
    stride, count = simulation.solver.fluid.stride, membranes.vertices
    lattice = simulation.solver.vessel.lattice
    box = OwnBox(part.box[0], part.box[1], lattice.shape, lattice.periodic)
    coupling = Coupling(device, box, part.halo, part.table, stride, kernel=kernel)
    random = np.random.default_rng(1)
    positions = membranes.on_host(membranes.positions, 1)[0].T
    forces = random.standard_normal((3, count)) + 1.0
    u = random.standard_normal((3, stride))
    x, F, V, velocity, g = (
        device.from_host(np.ascontiguousarray(values).ravel())
        for values in (positions, forces, 0 * forces, u, 0 * u)
    )
    coupling.spread(g, x, F, count)
    coupling.interpolate(velocity, x, V, count)
    force = _on_points(simulation, g)
    interpolated = device.to_host(V).reshape(3, count)
    power = forces * interpolated
    return Missed(
        _missed(force.sum(axis=1), forces.sum(axis=1), np.abs(forces).sum()),
        _missed((force * u[:, : part.owned]).sum(), power.sum(), np.abs(power).sum()),
    )


def kernels() -> tuple[str, ...]:
    """Names of the smoothed delta functions."""
    return tuple(KERNELS)


def _on_points(simulation: Any, array: Any) -> Floats:
    solver = simulation.solver
    values: Floats = simulation.device.to_host(array).reshape(3, solver.fluid.stride)
    return values[:, : solver.part.owned]


def _missed(values: Any, true: Any, size: float) -> float:
    return float(np.abs(values - true).max() / size)
