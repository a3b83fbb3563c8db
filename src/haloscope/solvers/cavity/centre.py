"""The pressure at the centre node: outputs are relative to it, and steps where they are as published."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Array
from haloscope.exchange.ranks.world import World
from haloscope.mesh.grid.blocks import Triple
from haloscope.solvers.cavity.operands import Operands


class CentrePressure:
    """The pressure at the centre node, which one rank owns."""

    def __init__(self, grid: Triple, operands: Operands, world: World) -> None:
        self._operands, self._world = operands, world
        block = operands.nodes.block
        centre = [n // 2 for n in grid]
        self._owned = all(
            a <= c < b for a, c, b in zip(block.start, centre, block.stop, strict=True)
        )
        owner = np.array([world.rank if self._owned else 0], np.int64)
        self._owner = int(world.sum(owner)[0])
        self._place = 0
        if self._owned:
            x, y, z = (c - a for c, a in zip(centre, block.start, strict=True))
            self._place = operands.nodes.index(x, y, z)
        kernel = operands.kernel("keep_reference")
        # Launches that keep the pressure of each state.
        self.keep = [
            kernel.bind(state, operands.reference, self._place, extent=(1,))
            for state in operands.states
        ]

    def share(self, number: int) -> None:
        """Bring the pressure of a state to every rank, for the kernel to subtract."""
        device, reference = self._operands.device, self._operands.reference
        if self._owned:
            self.keep[number]()
        if self._world.size > 1:
            value = device.to_host(reference)
            reference[...] = device.from_host(self._world.broadcast(value, self._owner))

    def of(self, state: Array) -> float:
        """The pressure of a state on every rank, in Pa."""
        value = np.zeros(1)
        if self._owned:
            picked = state[self._place : self._place + 1]
            value = self._operands.device.to_host(picked).astype("f8")
        return float(self._world.broadcast(value, self._owner)[0])
