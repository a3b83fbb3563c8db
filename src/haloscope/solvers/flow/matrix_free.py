"""Flow equations whose matrix is not stored: products take the elements' derivatives again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.numerics.krylov.block_pattern import BlockPattern
from haloscope.numerics.krylov.block_rows import BlockRows, RowRange
from haloscope.solvers.flow.equations import TEAM, UNKNOWNS, FlowEquations, Medium

Floats = NDArray[np.float64]

SOURCE = Path(__file__).with_name("matrix_free.cpp")


@dataclass(frozen=True)
class _Elements:
    """Where the equations were linearised, and what else elements need for their derivatives."""

    nodes: Array
    state: Array
    past: Array
    zones: Array
    media: Array
    kernel_constants: dict[str, int | float | str]


class UnstoredRows(BlockRows):
    """The matrix of :class:`MatrixFreeEquations`: it holds the nodes' own blocks alone."""

    # It takes the place of stored rows in products, also over ranks
    # (:class:`haloscope.numerics.shared_nodes.SharedProduct`), in point blocks, where unknowns are
    # given, and where boundaries add to own blocks. It has no other blocks for a preconditioner,
    # and none for walls with slip.
    #
    # A node of a tetrahedral mesh has about 15 blocks. Stored ones take 2.2 kB a node with their
    # lists; these take 0.4, the state of the linearisation included.

    def __init__(self, device: Device, pattern: BlockPattern) -> None:
        own = np.arange(pattern.nodes, dtype=np.int32)
        kept = replace(
            pattern,
            starts=np.arange(pattern.nodes + 1, dtype=np.int32),
            columns=own,
            diagonal=own,
            offsets=np.zeros((1, pattern.element_nodes.shape[1]), np.uint8),
        )
        super().__init__(device, kept, UNKNOWNS)
        self.is_fixed = device.zeros((self.nodes * UNKNOWNS,), np.uint8)
        self._elements: _Elements | None = None

    @property
    def bytes_of_product(self) -> int:
        """Bytes that a product moves if each number is moved once."""
        own = 8 * UNKNOWNS**2 + UNKNOWNS
        fields = 3 * 8 * UNKNOWNS
        lists = 4 * (self.nodes + 1) + self.pattern.element_nodes.size * 8
        zones = len(self.pattern.element_nodes)
        return self.nodes * (own + fields + 2 * 8 * UNKNOWNS) + lists + zones

    def follow(self, elements: _Elements) -> None:
        """Multiply with the derivatives of these elements from now on."""
        self._elements = elements
        self._multiply = self.device.kernel(SOURCE, "multiply_unstored", elements.kernel_constants)
        self._give = self.device.kernel(SOURCE, "give", elements.kernel_constants)

    def product(self, x: Array, y: Array, rows: RowRange, values: Array | None = None) -> Launch:
        """Bind the product to two arrays that do not overlap, to be launched again and again."""
        if values is not None:
            raise ValueError(
                "rows that are not stored have no copy in single precision; give Newton's method a "
                "product of its own"
            )
        of = self._elements
        assert of is not None
        count = rows.end - rows.first
        return self._multiply.bind(
            *(of.nodes, of.state, of.past, self.element_nodes, of.zones, of.media),
            *(self.node_starts, self.node_places, self.values, self.is_fixed),
            *(rows.first, count, x, y),
            extent=(count * TEAM,),
            block=(TEAM,),
        )

    def fixing(self, unknowns: np.ndarray, owned: np.ndarray | None = None) -> Launch:
        """As of stored rows: until the equations are linearised again."""
        chosen = np.asarray(unknowns, np.int32)
        ones = np.ones(len(chosen)) if owned is None else owned[chosen // UNKNOWNS]
        return self._give.bind(
            *(self.device.from_host(chosen), self.device.from_host(np.asarray(ones, np.float64))),
            *(len(chosen), self.values, self.is_fixed),
            extent=(len(chosen),),
        )


class MatrixFreeEquations(FlowEquations):
    """The equations, linearised without a matrix; see matrix_free.cpp."""

    # :meth:`linearise` computes the residual and the nodes' own blocks, and keeps the state. Each
    # product then computes what elements add to a row from that state, element by element, and
    # multiplies at once. Sums run row by row in the order of elements, as those of stored rows do,
    # with the same bits for any number of threads; they differ from a stored matrix's by rounding,
    # since that adds first what elements have in a block.

    rows: UnstoredRows

    def __init__(
        self,
        rows: UnstoredRows,
        nodes: Floats,
        media: Sequence[Medium],
        zones: NDArray[np.integer] | None = None,
        *,
        lsic: bool = True,
        linearise_tau: bool = False,
    ) -> None:
        super().__init__(rows, nodes, media, zones, lsic=lsic, linearise_tau=linearise_tau)
        zeros = self.device.zeros
        self._frozen = _Elements(
            self._nodes,
            rows.vector(),
            zeros((rows.nodes * UNKNOWNS,), np.float64),
            self._zones,
            zeros(self._media.shape, np.float64),
            self._terms,
        )
        self._linearise_own = self.device.kernel(SOURCE, "linearise_own", self._terms)
        rows.follow(self._frozen)

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """As :meth:`residual`, and keep what products with the derivatives need."""
        rows, frozen = self.rows, self._frozen
        frozen.state[:] = state
        frozen.past[:] = self._in_fours(past)
        frozen.media[:] = self._media
        self._linearise_own.bind(
            *(frozen.nodes, frozen.state, frozen.past, rows.element_nodes, frozen.zones),
            *(frozen.media, rows.node_starts, rows.node_places, rows.nodes),
            *(rows.values, rows.is_fixed, residual),
            extent=(rows.nodes * TEAM,),
            block=(TEAM,),
        )()
