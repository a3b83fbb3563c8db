"""The least that a step of a flow case moves and computes, from what its iterations were so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.solvers.flow.equations import UNKNOWNS
from haloscope.solvers.flow.system import System
from haloscope.solvers.interface import Work

_WORD = 8
BYTES_OF_A_FACTOR = 4 * UNKNOWNS**2 + 4
"""Of a block stored in single precision, with a number beside it."""
# Of a row's node in forming it: state, what the time derivative has beside, position, residual.
_WORDS_OF_A_NODE = UNKNOWNS + 3 + 3 + UNKNOWNS
_BYTES_OF_A_TET = 17


def bytes_of_forming(rows: BlockRows, tets: int) -> int:
    """Least bytes that forming matrix and residual moves: elements read, blocks written."""
    blocks = rows.pattern.blocks * _WORD * rows.size**2
    return rows.nodes * _WORDS_OF_A_NODE * _WORD + tets * _BYTES_OF_A_TET + blocks


@dataclass
class Iterations:
    """How many there were."""

    # Steps, Newton's iterations in all of them, and GMRES' in all of these.
    steps: int = 0
    newton: int = 0
    linear: int = 0

    @property
    def newton_a_step(self) -> float:
        """Mean; one before the first step."""
        return self.newton / self.steps if self.steps else 1.0

    @property
    def linear_a_newton(self) -> float:
        """Mean; one before the first step."""
        return self.linear / self.newton if self.newton else 1.0


class WorkModel:
    """Bytes and operations of steps; all ranks make one together."""

    # A Newton iteration forms matrix and residual (elements read, blocks written). An iteration of
    # GMRES multiplies by the matrix, applies the preconditioner, and reads half of a cycle's
    # vectors twice: for products, and to take them off.

    def __init__(self, system: System, restart: int) -> None:
        self._system, self._restart = system, restart
        rows, size = system.rows, system.rows.size
        nodes, blocks, tets = rows.nodes, rows.pattern.blocks, len(system.part.tets)
        matrix = blocks * _WORD * size**2
        factors = blocks * (4 * size**2 + 4) if system.preconditioner != "point-blocks" else 0
        vector = nodes * size * _WORD
        own = np.array(
            [
                bytes_of_forming(rows, tets),
                rows.bytes_of_product + factors + 2 * vector,
                2 * vector,
                blocks * 2 * size**2 * (2 if factors else 1),
                4 * nodes * size,
                matrix + factors + factors * 2 + (2 * restart + 9) * vector,
            ],
            np.float64,
        )
        whole = system.shared.world.sum(own).tolist()
        self._form, self._iterate, self._a_vector, self._flops, self._flops_a_vector = whole[:5]
        self._memory = int(whole[5])

    def of(self, done: Iterations) -> Work:
        """What a step is with the mean numbers of iterations."""
        newton, linear = done.newton_a_step, done.linear_a_newton
        vectors = min(linear, self._restart) / 2
        return Work(
            cells=self._system.part.whole_nodes,
            size=self._system.part.whole_nodes,
            bytes=newton * (self._form + linear * (self._iterate + vectors * self._a_vector)),
            flops=newton * linear * (self._flops + vectors * self._flops_a_vector),
            memory=self._memory,
            unit="node",
        )
