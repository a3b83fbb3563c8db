"""Forces of the flow on boundaries, from the residual that belongs to their nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations import UNKNOWNS, FlowEquations

Floats = NDArray[np.float64]


def force_and_moment(
    equations: FlowEquations,
    shared: SharedNodes,
    state: Array,
    past: Array,
    positions: Floats,
    nodes: NDArray[np.integer],
    centre: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> tuple[Floats, Floats]:
    """What the flow exerts on a boundary whose velocity is given; all ranks call this.

    The residual of a node on it is the force that it would take to hold the flow there: no gradient
    at the wall is needed, and the forces on all boundaries balance to rounding (P. M. Gresho,
    R. L. Sani, Incompressible Flow and the Finite Element Method (1998), consistent forces).

    Parameters
    ----------
    equations, shared
        With the time derivative of the last step.
    state, past
        As for :meth:`FlowEquations.residual`.
    positions
        Of this rank's nodes in m, (own, 3).
    nodes
        This rank's nodes on the boundary.
    centre
        About which moments are taken, in m.

    Returns
    -------
    force, moment
        (3,) in N and (3,) in N m; the same on every rank.
    """
    residual = equations.rows.vector()
    equations.residual(state, past, residual)
    if not shared.alone:
        shared.sums(UNKNOWNS).swap(residual)
    mine = nodes[shared.owned[nodes]]
    forces = -equations.device.to_host(residual).reshape(-1, UNKNOWNS)[mine, :3]
    moments = np.cross(positions[mine] - np.array(centre), forces)
    found = shared.world.sum(np.concatenate([forces.sum(axis=0), moments.sum(axis=0)]))
    return found[:3], found[3:]
