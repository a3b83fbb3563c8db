"""Nodes that several ranks share: owners, sums over all sharers, products of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.exchange import entries
from haloscope.exchange.engine import Exchange, Phases
from haloscope.exchange.entries import Placement, Sums, open_sums
from haloscope.exchange.plan import Sharing, find_sharing
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, BoundLaunches, RowRange
from haloscope.numerics.krylov.node_vectors import clearing
from haloscope.regions import Region

# Elements, partitions and nodes are three levels of data (Wylie, Geimer, Nicolai and Probst, "Performance
# analysis and tuning of the XNS CFD solver on Blue Gene/L", 2007, Fig. 2). *Scatter* takes what
# elements contribute to the nodes, *gather* brings nodes' values to the elements, each in two stages:
#
#     scatter, local      elements to partition: assembly, and the product with a rank's own rows
#     scatter, surface    partition to nodes: parts of shared nodes are sent and added up
#     gather, surface     nodes to partition: owners' values are sent to the other sharers
#     gather, local       partition to elements: kernels read the nodes of their elements
#
# Only the stages at the surface have messages. Here all sharers add up all parts, so that no values
# have to be sent back after a sum: a surface scatter does for both.

Messages = Literal["neighbours", "neighbours-blocking", "all-pairs"]
"""Who gets messages, and how.

- ``neighbours``: ranks that share nodes. Messages do not block, so that work fits in between; any
  transport carries them.
- ``neighbours-blocking``: the same ranks one after the other, each waited for; as XNS was revised.
- ``all-pairs``: an MPI_Sendrecv with every other rank, also where it is empty; as XNS was first.

The last two are for studies on cores. Results have the same bits with all of them.
"""

_TRANSPORTS: dict[str, str] = {"neighbours-blocking": "blocking", "all-pairs": "all-pairs"}
# A phase, and those inside it.
_Named: TypeAlias = tuple[Region, Phases]


def _phases(name: str) -> _Named:
    pack, exchange, add = (
        Region(f"{name} {phase}", movement=True) for phase in ("pack", "exchange", "add")
    )
    return Region(name, movement=True), Phases(pack, exchange, add, exchange, add)


_SCATTER, _GATHER = _phases("scatter"), _phases("gather")


def transport_of(messages: Messages, transport: str = "auto") -> str:
    """Name of the transport that sends messages so."""
    if messages == "neighbours":
        return transport
    if transport not in ("auto", "host"):
        raise InputError(
            f"it sends by MPI between processor cores, but machine.transport is {transport!r}",
            location=f"flow.messages = {messages!r}",
            remedy='set machine.transport to "auto", or flow.messages to "neighbours"',
        )
    return _TRANSPORTS[messages]


class NodeSums(Exchange[Sums]):
    """Sums over sharers, whose phases are ``scatter``, ``scatter exchange``, ``gather`` and so on.

    Contract and order of sums are those of :class:`haloscope.exchange.entries.Sums`. Made by
    :func:`open_node_sums`.
    """

    _phase = _SCATTER[0]

    def start(self, state: Array) -> None:
        """Pack the parts of shared nodes and begin to send them."""
        self._start_as(_SCATTER, state)

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Wait for the parts of other ranks and add up, in the order of ranks."""
        with self._phase:
            super().finish(state, into)

    def swap(self, state: Array, into: Array | None = None) -> None:
        """Start and finish with nothing in between."""
        self._swap_as(_SCATTER, state, into)

    def gather(self, state: Array) -> None:
        """Give all sharers what one of them has; the others hold zeros there."""
        self._swap_as(_GATHER, state, None)

    def _swap_as(self, phases: _Named, state: Array, into: Array | None) -> None:
        if self.results_of(state, into).both is None:
            self._start_as(phases, state)
            self.finish(state, into)
            return
        self._phase, self.regions = phases
        with self._phase:
            super().swap(state, into)

    def _start_as(self, phases: _Named, state: Array) -> None:
        self._phase, self.regions = phases
        with self._phase:
            super().start(state)


def kernel_files(size: int, dtype: DTypeLike = np.float64) -> Iterator[KernelFile]:
    """Kernels of sums of so many numbers a node, for any number of nodes."""
    for index in (np.int32, np.int64):
        yield entries.kernel_file(dtype, index, size, "sum")


def open_node_sums(
    world: World,
    device: Device,
    sharing: Sharing,
    size: int,
    transport: str = "auto",
    dtype: Any = np.float64,
) -> NodeSums:
    """Open the sums of vectors with some numbers a node; all ranks call this."""
    sums = open_sums(
        *(world, device, sharing, size, dtype, transport),
        placement=Placement(0, size, 1),
        kind=NodeSums,
    )
    assert isinstance(sums, NodeSums)
    return sums


# Elements belong to one rank whole, so that each rank's matrix and vectors of element contributions
# are parts of sums. Vectors of unknowns are complete on every rank: all copies of a node's unknowns
# have the same bits.

_PRODUCT = Region("matrix-vector product")


class SharedNodes:
    """The nodes of this rank, of which some are on others too; all ranks make one together."""

    def __init__(
        self, world: World, device: Device, numbers: np.ndarray, transport: str = "auto"
    ) -> None:
        self.world, self.device, self.transport = world, device, transport
        self.alone = world.size == 1  # Whether there is one rank only
        # As given.
        # Global number of each node of this rank, from 0, (nodes,).
        self.numbers = np.asarray(numbers, np.int64)
        self._sharing = find_sharing(world, self.numbers + 1)
        at = self._sharing.first_positions[self._sharing.groups]
        # Whether another rank has the node too, (nodes,).
        self.shared = np.zeros(len(self.numbers), bool)
        self.shared[at] = True
        # Whether this rank owns the node: the lowest one that has it does, (nodes,).
        self.owned = np.ones(len(self.numbers), bool)
        self.owned[at[self._sharing.ranks < world.rank]] = False
        self._sums: dict[int, NodeSums] = {}
        self._kept: dict[tuple[int, int], tuple[Array, Launch]] = {}

    @property
    def first_shared(self) -> int:
        """The lowest number of a shared node; the number of nodes if none is."""
        return int(np.argmax(self.shared)) if self.shared.any() else len(self.shared)

    def sums(self, size: int) -> NodeSums:
        """Sums over the sharers of vectors with `size` numbers a node; all ranks ask for it."""
        if size not in self._sums:
            self._sums[size] = open_node_sums(
                self.world, self.device, self._sharing, size, self.transport
            )
        return self._sums[size]

    def summed(self, values: np.ndarray) -> np.ndarray:
        """Sums over the sharers of numbers at nodes on the host, (nodes, k); all ranks call this."""
        if self.alone:
            return values
        sent = self.device.from_host(values.ravel())
        self.sums(values.shape[1]).swap(sent)
        return self.device.to_host(sent).reshape(values.shape)

    def capturable(self, size: int) -> bool:
        """Whether sums of `size` numbers a node may be captured into a graph."""
        return self.alone or self.sums(size).capturable

    def take_owners(self, vector: Array, size: int) -> None:
        """Give all copies of a node the `size` numbers that its owner has."""
        if self.alone:
            return
        # Sums remember arrays by identity, too.
        key = id(vector), size
        if key not in self._kept:
            others = np.flatnonzero(~self.owned)
            self._kept[key] = (vector, clearing(self.device, others, vector, size))
        self._kept[key][1]()
        self.sums(size).gather(vector)


def sums_between_shared(rows: BlockRows, shared: SharedNodes) -> NodeSums:
    """Sums of the blocks between shared nodes over the ranks that have both; all ranks call this."""
    pattern, size = rows.pattern, rows.size
    nodes = int(shared.world.largest(float(shared.numbers.max(initial=0)))) + 1
    row, column = pattern.rows, pattern.columns
    both = shared.shared[row] & shared.shared[column]
    pair = shared.numbers[row] * nodes + shared.numbers[column] + 1
    sharing = find_sharing(shared.world, np.where(both, pair, 0))
    return open_node_sums(shared.world, rows.device, sharing, size**2, shared.transport)


class SharedProduct:
    """``y = A x`` of a matrix whose rows are parts of sums on the ranks that share a node.

    `single`: multiply with a copy of the blocks in single precision, which :meth:`update` takes:
    half as many bytes move. Cores only.
    """

    def __init__(
        self, rows: BlockRows, shared: SharedNodes, *, overlap: bool = True, single: bool = False
    ) -> None:
        self._rows = rows
        self._values: Array | None = None
        self._narrow: Launch | None = None
        if single:
            if rows.device.kind != "cpu":
                raise InputError(
                    "products with blocks in single precision run on processor cores only",
                    remedy="use double precision on GPUs",
                )
            self._values = rows.device.empty(rows.values.shape, np.float32)
            self._narrow = rows.narrowing(self._values)
        self._sums = None if shared.alone else shared.sums(rows.size)
        begin = shared.first_shared if overlap else 0
        # In the rows from the first shared one on, and in those before.
        self._outer = self._bound(rows.range_of(begin, rows.nodes))
        self._inner = self._bound(rows.range_of(0, begin))

    def _bound(self, part: RowRange) -> BoundLaunches | None:
        if part.first == part.end:
            return None
        rows, values = self._rows, self._values
        return BoundLaunches(lambda x, y: rows.product(x, y, part, values))

    @property
    def capturable(self) -> bool:
        """Whether products may be captured into a graph."""
        return self._sums is None or self._sums.capturable

    def update(self) -> None:
        """Take the matrix as it is now; in double precision that needs no copy."""
        if self._narrow is not None:
            self._narrow()

    def __call__(self, x: Array, y: Array) -> None:
        """Multiply; x has the same bits in all copies of a node, and so has y.

        Arrays are remembered by identity: give the same objects again and again.
        """
        with _PRODUCT:
            if self._outer is not None:
                self._outer(x, y)
            if self._sums is not None:
                self._sums.start(y)
            if self._inner is not None:
                self._inner(x, y)
            if self._sums is not None:
                self._sums.finish(y)
