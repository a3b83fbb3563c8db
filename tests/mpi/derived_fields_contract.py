"""Derives fields from a given flow on the ranks that it is started with, and prints them."""

from __future__ import annotations

import json

import numpy as np

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import open_world
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.derived_fields import (
    element_shear,
    nodal_means,
    volume_shares,
    wall_shear,
)
from haloscope.solvers.flow.equations.equations import Medium


def main() -> None:
    """Rank 0 prints nodal fields by global numbers, and shares of volume."""
    world = open_world()
    part, _ = node_part_on_ranks(world, lambda: tet_box((6, 5, 4), upper=(1.1, 0.9, 0.7)))
    shared = SharedNodes(world, CpuDevice(threads=1), part.node_numbers)
    x, y, z = part.nodes.T
    state = np.column_stack([np.sin(2 * y) * z, np.cos(3 * z) * x, x * y * z, x]).ravel()
    media = [Medium(1000.0, 0.003)]
    stress = element_shear(part, media, state).stress
    walls = wall_shear(part, shared, media, state, ["x_low", "y_low", "z_high"])
    own = np.column_stack([nodal_means(part, shared, stress), walls.nodes])
    whole = np.zeros((part.whole_nodes, 4))
    whole[part.node_numbers[shared.owned]] = own[shared.owned]
    whole = world.sum(whole.ravel())
    # All copies of a node have what its owner has.
    same = np.array_equal(whole.reshape(-1, 4)[part.node_numbers], own)
    differs = world.any(not same)
    shares = volume_shares(part, world, stress, (0.003, 0.004))
    if world.is_root:
        print(
            json.dumps(
                {"fields": whole.tolist(), "differs": bool(differs), "shares": shares.tolist()}
            )
        )


if __name__ == "__main__":
    main()
