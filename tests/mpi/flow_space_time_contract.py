"""Steps two slabs of Ethier and Steinman's flow on the ranks that it is started with, and prints how it went."""

from __future__ import annotations

import json

import numpy as np

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import open_world
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.checks import ethier_steinman
from haloscope.solvers.flow.equations.equations import Medium, SlabEquations
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import SpaceTimeSlabs

VISCOSITY, TIME_STEP, CELLS = 0.01, 0.02, 4


def main() -> None:
    """Two slabs; rank 0 prints iterations, residuals and the whole state by global numbers."""
    world, device = open_world(), CpuDevice(threads=1)
    part, _ = node_part_on_ranks(
        world, lambda: tet_box((CELLS,) * 3, (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
    )
    shared = SharedNodes(world, device, part.node_numbers)
    rows = BlockRows(device, pattern_of(device, part.tets, len(part.nodes)), 8)
    equations = SlabEquations(rows, part.nodes, [Medium(1.0, VISCOSITY)])
    settings = NewtonSettings(iterations=3, linear_tolerance=1e-6, restart=80)
    newton = Newton(equations, shared, PointBlocks(rows, shared), settings)
    # A rank may hold a node of the boundary without a triangle there.
    faces = np.flatnonzero((np.abs(part.nodes) > 1 - 1e-12).any(axis=1))
    fixed = (4 * faces[:, None] + np.arange(3)).ravel()
    fixed = np.append(fixed, 4 * np.flatnonzero(part.node_numbers == 0) + 3)

    def at(time: float) -> np.ndarray:
        return ethier_steinman(part.nodes, time, VISCOSITY).ravel()

    steps, histories = SpaceTimeSlabs(newton, at(0.0), TIME_STEP), []
    for step in range(2):
        values = [at(time)[fixed] for time in steps.times(step * TIME_STEP)]
        histories.append(steps.step(fixed, np.array(values)))
    whole = np.zeros((part.whole_nodes, 4))
    whole[part.node_numbers[shared.owned]] = steps.state.reshape(-1, 4)[shared.owned]
    whole = world.sum(whole.ravel())
    if world.is_root:
        print(
            json.dumps(
                {
                    "iterations": [[one.iterations for one in h.linear] for h in histories],
                    "residuals": [h.residuals for h in histories],
                    "state": whole.tolist(),
                }
            )
        )


if __name__ == "__main__":
    main()
