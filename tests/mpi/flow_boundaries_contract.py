"""Steps a flow with slip, a resistance and backflow on the ranks that it is started with; prints it."""

from __future__ import annotations

import json

import numpy as np
from bounded_flow import BoundedFlow, turned, turned_back

from haloscope.exchange.ranks.world import open_world
from haloscope.mesh.tets.tet_generators import BOX_SIDES, tet_box
from haloscope.solvers.flow.boundary_integrals import boundary_means, force_and_moment
from haloscope.solvers.flow.conditions import OutsidePressure, Resistance, Slip, Velocity
from haloscope.solvers.flow.equations.equations import Medium
from haloscope.solvers.flow.equations.time_steps import GeneralisedAlpha

TIME_STEP, STEPS = 0.1, 3


def bent(x: np.ndarray) -> np.ndarray:
    """A curved box that stands along no axis."""
    angle, radius = x[:, 0], x[:, 1]
    return turned(np.stack([radius * np.sin(angle), radius * np.cos(angle), x[:, 2]], axis=1))


def inlet(x: np.ndarray, time: float) -> np.ndarray:
    """A pressure that falls along the inlet, and with time."""
    return 2.0 + turned_back(x)[:, 1] - time


def main() -> None:
    """Rank 0 prints what belongs to the whole flow."""
    world = open_world()
    flow = BoundedFlow(
        world,
        lambda: tet_box((6, 3, 3), (0, 1, 0), (1.0, 2.0, 0.8), shape=bent),
        [Medium(1.2, 0.05)],
        {
            **{side: Slip() for side in BOX_SIDES},
            "z_low": Velocity(),
            "x_low": OutsidePressure(inlet, straight=True, backflow=0.5),
            "x_high": Resistance(0.5, distal=2.0, compliance=0.3, backflow=0.5),
        },
        iterations=4,
        linear_tolerance=1e-6,
        linear_iterations=200,
    )
    steps = GeneralisedAlpha(flow.newton, flow.state, TIME_STEP)
    flow.advance(steps, TIME_STEP, STEPS)
    names = ("x_high", "y_high", "z_low")
    means = [boundary_means(flow.shared, flow.conditions.areas[name], flow.state) for name in names]
    forces = [
        force_and_moment(
            *(flow.conditions.reactions, flow.shared, steps.level_state, steps.past),
            *(flow.x, flow.boundary_values.nodes[name]),
        )
        for name in names
    ]
    whole = np.zeros((flow.part.whole_nodes, 4))
    owned = flow.shared.owned
    whole[flow.part.node_numbers[owned]] = flow.state.reshape(-1, 4)[owned]
    slip = np.zeros((flow.part.whole_nodes, 9))
    mine = owned[flow.conditions.slip.nodes]
    numbers = flow.part.node_numbers[flow.conditions.slip.nodes[mine]]
    slip[numbers] = flow.conditions.slip.projectors[mine].reshape(-1, 9)
    report = {
        "state": world.sum(whole.ravel()).tolist(),
        "slip": world.sum(slip.ravel()).tolist(),
        "iterations": [one.iterations for one in flow.history.linear],
        "means": [[one.area, one.flow_rate, one.pressure] for one in means],
        "forces": np.array(forces).ravel().tolist(),
        "resistances": [
            number
            for one in flow.conditions.resistances.outlets
            for number in (one.law.held, one.law.flow)
        ],
    }
    if world.is_root:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
