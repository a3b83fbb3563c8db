"""The global time step: what the fastest wave of a state and diffusion allow."""

from __future__ import annotations

import numpy as np

from haloscope.exchange.ranks.world import World
from haloscope.numerics.reduce import Largest
from haloscope.solvers.cavity.operands import Operands

_MOST_CORE_PARTS = 4096
_GPU_PARTS = 1 << 18


class TimeStep:
    """The time step that all nodes have in common."""

    def __init__(self, operands: Operands, world: World) -> None:
        self._operands, self._world = operands, world
        self.dt = 0.0  # The size that steps take, in s; 0 where each node has its own
        device, nodes = operands.device, operands.nodes
        wave = operands.kernel("fastest_wave")
        start, stop = nodes.updated()
        shape = nodes.box(start, stop)
        parts = _GPU_PARTS
        if device.kind == "cpu":
            parts = min(_MOST_CORE_PARTS, max(1, shape[1] * shape[2]))
        partial = device.zeros((parts,), "f8")
        self._fastest_part = Largest(device, partial)
        self._launches = [
            wave.bind(
                state,
                operands.physics,
                nodes.index(*start),
                *shape,
                *nodes.distances,
                nodes.layout.field_stride,
                partial,
                parts,
                extent=(parts,),
            )
            for state in operands.states
        ]

    def fastest(self, number: int) -> float:
        """Largest lambda / h of all nodes of a state, in 1/s; all ranks call this."""
        self._launches[number]()
        return self._world.largest(self._fastest_part())

    def stable(self, number: int) -> float:
        """The longest step for a state, in s; NaN where the solution broke."""
        fastest = self.fastest(number)
        slow = 1.0 / fastest if fastest > 0.0 else float("nan")
        q = self._operands.values
        return q["cfl"] * min(slow, q["diffusive"], q["cell"] * slow * slow)

    def set(self, dt: float) -> None:
        """Let steps take a size, in s."""
        self.dt = dt
        operands = self._operands
        size = np.array([dt], operands.nodes.dtype)
        operands.step_size[...] = operands.device.from_host(size)
