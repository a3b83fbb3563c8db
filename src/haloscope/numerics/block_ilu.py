"""Incomplete factors of block rows without fill, ILU(0), of each rank's nodes, on cores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.interface import Array
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.copies import Placement
from haloscope.exchange.gather_scatter import open_gather_scatter
from haloscope.exchange.sharing import ranges
from haloscope.numerics.block_rows import BlockRows
from haloscope.numerics.shared_nodes import SharedNodes

_SOURCE = Path(__file__).with_name("block_ilu.cpp")


class BlockIlu:
    """Block ILU(0) of the matrix restricted to the nodes of each rank.

    Its blocks are those of the whole matrix: what this rank's elements add to blocks between shared
    nodes is summed with what others add. The ranks' domains so overlap by the shared nodes; each
    solves for all of its nodes, and a shared node takes what its owner finds (restricted additive
    Schwarz: Cai and Sarkis, SIAM J. Sci. Comput. 21, 1999, 792). Its quality depends on the ranks
    and on the numbering of nodes.

    It computes on one core whatever the number of threads: take a rank a core.

    Parameters
    ----------
    rows
        This rank's part of the matrix, on cores.
    shared
        Who shares which nodes; all ranks make one together.
    single
        Store the factors in single precision, which halves what an application reads; it computes
        in double.

    Raises
    ------
    InputError
        The matrix is not on cores.
    """

    def __init__(self, rows: BlockRows, shared: SharedNodes, *, single: bool = True) -> None:
        if rows.device.kind != "cpu":
            raise InputError(
                "block ILU(0) is for cores: its sweeps have too little to do at once for a GPU; "
                "take point blocks there"
            )
        self._rows, self._shared = rows, shared
        device, pattern = rows.device, rows.pattern
        self._factors = device.empty(rows.values.shape, np.float64)
        self._sums: Any = None if shared.alone else self._open_sums()
        self._stored = np.dtype(np.float32 if single else np.float64)
        self._down = self._sweep(pattern.starts[:-1], pattern.diagonal, backwards=False)
        self._sweep_down, self._sweep_up = (self._kernel(f"sweep_{way}") for way in ("down", "up"))
        self._up = self._sweep(pattern.diagonal, pattern.starts[1:], backwards=True)

    def update(self) -> None:
        """Factorise the matrix as it is now.

        Raises
        ------
        SolutionError
            A diagonal block has no inverse.
        """
        rows = self._rows
        self._factors[...] = rows.values
        if self._sums is not None:
            self._sums.swap(self._factors)
        singular = np.zeros(1, np.int64)
        self._kernel("factorise").bind(
            *(rows.starts, rows.columns, rows.diagonal, rows.nodes, self._factors, singular),
            extent=(1,),
        )()
        if self._shared.world.any(bool(singular[0])):
            raise SolutionError(
                f"block ILU(0) met {int(singular[0])} singular diagonal blocks of {rows.nodes} on "
                "this rank; look for unknowns without an equation, such as a pressure without a "
                "reference"
            )
        for sweep in (self._down, self._up):
            self._kernel("pack").bind(
                *(self._factors, sweep.sources, len(sweep.sources), sweep.blocks),
                extent=(len(sweep.sources),),
            )()

    def apply(self, x: Array, y: Array) -> None:
        """Solve with the factors; shared nodes take their owners' values."""
        nodes, down, up = self._rows.nodes, self._down, self._up
        self._sweep_down.bind(*(nodes, down.packed, down.columns, down.blocks, x, y), extent=(1,))()
        self._sweep_up.bind(*(nodes, up.packed, up.columns, up.blocks, y), extent=(1,))()
        self._shared.take_owners(y, self._rows.size)

    def _kernel(self, name: str) -> Any:
        stored = "float" if self._stored == np.float32 else "double"
        constants: dict[str, int | float | str] = {"B": self._rows.size, "stored": stored}
        return self._rows.device.kernel(_SOURCE, name, constants)

    def _open_sums(self) -> Any:
        """Sums of the blocks between shared nodes over the ranks that have both."""
        pattern, shared, size = self._rows.pattern, self._shared, self._rows.size
        nodes = int(shared.world.largest(float(shared.numbers.max(initial=0)))) + 1
        row, column = pattern.rows, pattern.columns
        both = shared.shared[row] & shared.shared[column]
        pair = shared.numbers[row] * nodes + shared.numbers[column] + 1
        return open_gather_scatter(
            *(shared.world, self._rows.device, np.where(both, pair, 0), size**2, np.float64),
            shared.transport,
            placement=Placement(0, size**2, 1),
        )

    def _sweep(self, first: np.ndarray, end: np.ndarray, *, backwards: bool) -> _Sweep:
        device, size = self._rows.device, self._rows.size
        if backwards:
            first, end = first[::-1], end[::-1]
        sources = ranges(first, end - first)
        lists = (np.append(0, np.cumsum(end - first)), self._rows.pattern.columns[sources], sources)
        packed, columns, sources = (device.from_host(part.astype(np.int32)) for part in lists)
        blocks = device.empty((len(columns), size, size), self._stored)
        return _Sweep(packed, columns, sources, blocks)


@dataclass(frozen=True)
class _Sweep:
    """The blocks of a sweep in the order in which it reads them.

    Blocks `packed[p]` to `packed[p + 1]` belong to the p-th row that is solved for, and are those of
    the matrix with the numbers `sources`.
    """

    packed: Array
    columns: Array
    sources: Array
    blocks: Array
