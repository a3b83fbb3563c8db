"""Forces of the flow on boundaries, from the residual that belongs to their nodes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundary_means import exact_sums
from haloscope.solvers.flow.equations import UNKNOWNS

Floats = NDArray[np.float64]
Vector = tuple[float, float, float]


class Residual(Protocol):
    """What forces are found from: equations with 4 a node."""

    @property
    def device(self) -> Device:
        """Where vectors lie."""

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put what own elements give into an array of 4 a node."""


def force_and_moment(
    equations: Residual,
    shared: SharedNodes,
    state: Array,
    past: Array,
    positions: Floats,
    nodes: NDArray[np.integer],
    centre: Vector = (0.0, 0.0, 0.0),
    load: Array | None = None,
) -> tuple[Floats, Floats]:
    """What the flow exerts on a boundary whose velocity is given; all ranks call this.

    `positions`: of this rank's nodes in m, (own, 3); `centre`: about which moments are taken, in m;
    Returns: (3,) in N and (3,) in N m; the same on every rank.
    """
    # The residual of a node on it is the force that it would take to hold the flow there: no
    # gradient at the wall is needed, and the forces on all boundaries balance to rounding (P. M.
    # Gresho, R. L. Sani, Incompressible Flow and the Finite Element Method (1998), consistent
    # forces).
    residual = equations.device.zeros((UNKNOWNS * len(positions),), np.float64)
    equations.residual(state, past, residual)
    if load is not None:
        residual += load
    if not shared.alone:
        shared.sums(UNKNOWNS).swap(residual)
    mine = nodes[shared.owned[nodes]]
    forces = -equations.device.to_host(residual).reshape(-1, UNKNOWNS)[mine, :3]
    moments = np.cross(positions[mine] - np.array(centre), forces)
    sums = exact_sums(shared.world, np.hstack([forces, moments]))
    return sums[:3], sums[3:]
