"""Two-level preconditioner: a coarse problem for groups of nodes first, then smoothing.

The coarse matrix is treated in the same way, level by level, until it is small enough to invert.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.interface import Array, Graph, Kernel
from haloscope.device.targets import KernelFile
from haloscope.errors import SolutionError
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import (
    OFFSET_TYPES,
    WITHOUT_EQUATION,
    BlockPattern,
    BlockRows,
    BoundLaunches,
)
from haloscope.numerics.krylov.coarse_space import (
    Blocks,
    CoarseSums,
    GalerkinLists,
    coarse_space,
    galerkin_lists,
)
from haloscope.numerics.krylov.flexible_gmres import Preconditioner
from haloscope.numerics.krylov.smoothers import ColouredIlu, OverlappingIlu, PointBlocks
from haloscope.numerics.shared_nodes import NodeSums, SharedNodes, open_node_sums

_SOURCE = Path(__file__).with_name("two_level.cpp")
# Entries of a list and blocks of a coarse row that a GPU block takes at a time.
_LIST_TILE, _ROW_TILE = 32, 128
# Blocks of a row that a GPU block works on at a time.
_COLUMNS = 16


def kernel_file(size: int, stored: DTypeLike, slot_bytes: int = 1) -> KernelFile:
    """Kernels of two_level.cpp: for the size of blocks, and the types of A P and of slots."""
    name = "float" if np.dtype(stored) == np.float32 else "double"
    constants: dict[str, int | float | str] = {
        "B": size,
        "stored": name,
        "stored2": f"{name}2",
        "slot": OFFSET_TYPES[slot_bytes],
        "LIST_TILE": _LIST_TILE,
        "ROW_TILE": _ROW_TILE,
    }
    return KernelFile(_SOURCE, constants)


def inverse_file(size: int) -> KernelFile:
    """Kernels that invert dense blocks of a size."""
    return kernel_file(size, np.float64)


class DenseBlocks:
    """The inverse of block rows that one rank has alone, for some hundreds of unknowns.

    Blocks are eliminated in their order, by Gauss and Jordan, with row pivots within blocks only:
    as safe as block ILU(0), which it equals if all blocks are there.
    """

    capturable = True

    def __init__(self, rows: BlockRows) -> None:
        self._rows, nodes = rows, rows.nodes
        full = BlockPattern.of_rows(nodes * np.arange(nodes + 1), np.tile(np.arange(nodes), nodes))
        self._inverse = BlockRows(rows.device, full, rows.size)
        self._singular = rows.device.zeros((1,), np.int64)
        device, entries = rows.device, rows.size**2
        source, constants = inverse_file(rows.size)
        spread, scale_row, eliminate = (
            device.kernel(source, name, constants) for name in ("spread", "scale_row", "eliminate")
        )
        dense: dict[str, Any] = {"D": self._inverse.values, "n": nodes}
        many, team = (entries * nodes,), (entries,)
        self._spread = spread.bind(
            extent=many,
            block=team,
            starts=rows.starts,
            columns=rows.columns,
            A=rows.values,
            **dense,
        )
        self._steps = [
            (
                scale_row.bind(extent=(64,), block=(64,), k=k, singular=self._singular, **dense),
                eliminate.bind(extent=(*many, _COLUMNS), block=(*team, _COLUMNS), k=k, **dense),
            )
            for k in range(nodes)
        ]
        self._device = device
        # So many small launches take the host longer than the GPU: it records them.
        self._met = False
        self._graph: Graph | None = None
        inverse = self._inverse
        self._multiply = BoundLaunches(lambda x, y: inverse.product(x, y, inverse.all_rows))

    def update(self) -> None:
        """Invert the matrix as it is now."""
        self._singular[...] = 0
        if self._met and self._graph is None:
            self._graph = self._device.graph(self._invert)
        if self._graph is None:
            self._invert()
        else:
            self._graph.replay()
        self._met = True
        if int(self._device.to_host(self._singular)[0]):
            raise SolutionError(
                "the coarse matrix of the preconditioner is singular", remedy=WITHOUT_EQUATION
            )

    def _invert(self) -> None:
        self._spread()
        for scale_row, eliminate in self._steps:
            scale_row()
            eliminate()

    def apply(self, x: Array, y: Array) -> None:
        """Put the inverse's product with x into y; arrays are remembered by identity."""
        self._multiply(x, y)


_GPU_BLOCK, _WARP = 256, 32
# Bytes of a GPU block in which rows of A P are added up: two blocks fit on a multiprocessor at least.
_MOST_SHARED = 96 << 10


MakeSmoother = Callable[[BlockRows, SharedNodes], Preconditioner]


def usual_smoother(rows: BlockRows, shared: SharedNodes) -> Preconditioner:
    """Block ILU(0): overlapping on cores, coloured elsewhere.

    With point blocks instead, coarse matrices of more than some thousand nodes are not solved well
    enough.
    """
    if rows.device.kind == "cpu":
        return OverlappingIlu(rows, shared)
    return ColouredIlu(rows, shared)


class TwoLevel:
    """A correction on a coarse space of functions, and then a smoother for what it leaves.

    `positions`: of each node in m, (nodes, 3).
    """

    # With the functions P of :class:`haloscope.numerics.krylov.coarse_space.CoarseSpace`, one set for each
    # unknown of a node, and a smoother M it applies ::
    #
    #     z = C^-1 P' x,   C = P' A P
    #     y = P z + M (x - A P z)
    #
    # (the multiplicative combination "coarse first", A-DEF2 without its last part: Tang, Nabben,
    # Vuik and Erlangga, J. Sci. Comput. 39, 2009, 340). A P is kept, which has fewer blocks than A,
    # so that an application costs less than a product with A beside the smoother's. Unknowns whose
    # row is the identity's are left to the smoother, which must solve for those exactly.
    #
    # C is the same on all ranks, and each solves for it alone: by a two-level preconditioner of C,
    # and so on until at most `most` nodes are left, which a dense inverse takes. A rank's own C
    # costs about 1/`size` of the whole matrix, whatever the number of ranks.
    #
    # The coarse space does not depend on the ranks. With a smoother that does not either, such as
    # point blocks, nothing does but for rounding.

    def __init__(
        self,
        rows: BlockRows,
        shared: SharedNodes,
        positions: np.ndarray,
        *,
        size: int = 32,
        make_smoother: MakeSmoother = usual_smoother,
        single: bool = True,
        most: int = 48,
    ) -> None:
        self._rows, self._shared = rows, shared
        device, pattern = rows.device, rows.pattern
        self.space = space = coarse_space(pattern, shared, positions, size)
        self._smoother = make_smoother(rows, shared)
        self._stored = np.dtype(np.float32 if single else np.float64)

        lists = galerkin_lists(pattern, shared, space)
        # The matrix C, of which each rank has all.
        self.coarse_rows = BlockRows(
            device, BlockPattern.of_rows(lists.coarse.starts, lists.coarse.columns), rows.size
        )
        alone = SharedNodes(World(), device, np.arange(space.groups))
        self._coarse: Preconditioner
        if space.groups <= max(most, 1):
            self._coarse = DenseBlocks(self.coarse_rows)
        elif 2 * space.groups > pattern.nodes:
            # Nodes hang together so little that more levels would not get much smaller.
            self._coarse = make_smoother(self.coarse_rows, alone)
        else:
            self._coarse = TwoLevel(
                *(self.coarse_rows, alone, space.positions),
                size=size,
                make_smoother=make_smoother,
                single=single,
                most=most,
            )
        blocks = len(lists.product.columns)
        self._free, self._rest = rows.vector(), rows.vector()
        self._right, self._left = self.coarse_rows.vector(), self.coarse_rows.vector()
        self._product = device.empty((blocks, rows.size, rows.size), self._stored)
        self._sums = None if shared.alone else self._open_sums(lists.product)
        self._over_ranks = (
            None
            if shared.alone
            else CoarseSums(
                shared, self.coarse_rows, self._right, np.diff(lists.function_starts) > 0
            )
        )
        self._prepare(lists)

    @property
    def capturable(self) -> bool:
        """Whether applications may be captured into a graph."""
        parts = (self._smoother, self._coarse)
        return all(getattr(part, "capturable", False) for part in parts) and (
            self._over_ranks is None or self._over_ranks.capturable
        )

    def update(self) -> None:
        """Take the matrix as it is now."""
        self._couplings()
        if self._sums is not None:
            self._shared.sums(self._rows.size).swap(self._free)
        self._mark()
        self._smoother.update()
        self._project()
        if self._sums is not None:
            self._sums.swap(self._product)
        self._galerkin()
        if self._over_ranks is not None:
            self._over_ranks.sum_values()
        self._fill()
        self._coarse.update()

    def apply(self, x: Array, y: Array) -> None:
        """Put the approximate inverse's product with x into y, complete in all copies of a node.

        Arrays are remembered by identity.
        """
        self._restrict(x)
        if self._over_ranks is not None:
            self._over_ranks.sum_right()
        self._coarse.apply(self._right, self._left)
        if self._correct is not None:
            self._correct(x, y)
            return
        self._subtract(x)
        self._smoother.apply(self._rest, y)
        self._prolong(y)

    def _prepare(self, lists: GalerkinLists) -> None:
        """Bring lists to the device and bind what always works on the same arrays."""
        rows, space, coarse = self._rows, self.space, self.coarse_rows
        device, size, entries = rows.device, rows.size, rows.size**2
        nodes, groups, free = rows.nodes, space.groups, self._free
        give, kernel = device.from_host, self._kernel
        weights: dict[str, Array] = {
            "p_starts": give(space.starts.astype(np.int32)),
            "weights": give(space.weights),
        }
        functions = {**weights, "p_columns": give(space.columns), "free": free}
        product = {"ap_starts": give(lists.product.starts), "AP": self._product}
        product_rows = {**product, "ap_columns": give(lists.product.columns)}
        # Of each function, the nodes that it is at.
        own: dict[str, Any] = {
            "lists": give(lists.function_starts),
            "nodes": give(lists.nodes),
            "factors": give(lists.factors),
            "functions": groups,
            "free": free,
        }
        product_slots, coarse_slots = give(lists.product_slots), give(lists.coarse_slots)
        self._couplings = kernel("couplings").bind(
            extent=(nodes,),
            starts=rows.starts,
            diagonal=rows.diagonal,
            A=rows.values,
            n=nodes,
            coupled=free,
        )
        self._mark = kernel("mark").bind(extent=(nodes * size,), n=nodes, sums=free)
        longest = int(np.diff(lists.product.starts).max(initial=1))
        room = longest * self._stored.itemsize
        teams = max(1, min(_GPU_BLOCK, _MOST_SHARED // room) // entries)
        self._project = kernel("project", product_slots).bind(
            extent=(nodes * entries,),
            block=(teams * entries,),
            shared=teams * entries * room,
            starts=rows.starts,
            columns=rows.columns,
            A=rows.values,
            free=free,
            slots=product_slots,
            slot_starts=give(lists.product_slot_starts),
            n=nodes,
            most=longest,
            **weights,
            **product,
        )
        self._galerkin = kernel("galerkin", coarse_slots).bind(
            extent=(groups * _GPU_BLOCK,),
            block=(_GPU_BLOCK,),
            slots=coarse_slots,
            slot_starts=give(lists.coarse_slot_starts),
            starts=coarse.starts,
            C=coarse.values,
            **own,
            **product,
        )
        self._fill = kernel("fill").bind(
            extent=(groups * size,),
            starts=coarse.starts,
            diagonal=coarse.diagonal,
            functions=groups,
            C=coarse.values,
        )
        restrict, subtract, prolong = (
            kernel(name) for name in ("restrict_vector", "subtract_product", "prolong")
        )
        right, left, rest = self._right, self._left, self._rest

        by_node: dict[str, Any] = {
            "extent": (nodes * entries // 2,),
            "block": (_GPU_BLOCK,),
            "n": nodes,
        }
        self._restrict = BoundLaunches(
            lambda x: restrict.bind(
                extent=(groups * _WARP,), block=(_GPU_BLOCK,), x=x, coarse=right, **own
            )
        )
        self._subtract = BoundLaunches(
            lambda x: subtract.bind(coarse=left, x=x, rest=rest, **by_node, **product_rows)
        )
        self._prolong = BoundLaunches(
            lambda y: prolong.bind(extent=(nodes * size,), coarse=left, n=nodes, y=y, **functions)
        )
        # One launch does what takes each node by itself.
        self._correct: BoundLaunches | None = None
        if isinstance(self._smoother, PointBlocks):
            correct, inverse = kernel("correct"), self._smoother.inverse

            self._correct = BoundLaunches(
                lambda x, y: correct.bind(
                    coarse=left, x=x, inverse=inverse, y=y, **by_node, **product_rows, **functions
                )
            )

    def _kernel(self, name: str, slots: Array | None = None) -> Kernel:
        slot_bytes = 1 if slots is None else slots.itemsize
        source, constants = kernel_file(self._rows.size, self._stored, slot_bytes)
        return self._rows.device.kernel(source, name, constants)

    def _open_sums(self, product: Blocks) -> NodeSums:
        """Sums of the shared nodes' blocks of A P over those who have them."""
        shared, groups, entries = self._shared, self.space.groups, self._rows.size**2
        node = np.repeat(np.arange(self._rows.nodes), np.diff(product.starts))
        ids = np.where(shared.shared[node], shared.numbers[node] * groups + product.columns + 1, 0)
        return open_node_sums(
            *(shared.world, self._rows.device, find_sharing(shared.world, ids), entries),
            *(shared.transport, self._stored),
        )
