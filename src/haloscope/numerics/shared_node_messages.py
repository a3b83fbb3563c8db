"""Sums over the ranks that share nodes, as the stages in which finite elements exchange them.

Elements, partitions and nodes are three levels of data (Wylie, Geimer, Nicolai and Probst, "Performance
analysis and tuning of the XNS CFD solver on Blue Gene/L", 2007, Fig. 2). *Scatter* takes what
elements contribute to the nodes, *gather* brings nodes' values to the elements, each in two stages:

    scatter, local      elements to partition: assembly, and the product with a rank's own rows
    scatter, surface    partition to nodes: parts of shared nodes are sent and added up
    gather, surface     nodes to partition: owners' values are sent to the other sharers
    gather, local       partition to elements: kernels read the nodes of their elements

Only the stages at the surface have messages. Here all sharers add up all parts, so that no values
have to be sent back after a sum: a surface scatter does for both.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError
from haloscope.exchange.choice import open_by_name
from haloscope.exchange.copies import Placement
from haloscope.exchange.gather_scatter import GatherScatter
from haloscope.exchange.ranks.world import World
from haloscope.exchange.sharing import Sharing, message_order, plan_of
from haloscope.regions import Region

Messages = Literal["neighbours", "neighbours-blocking", "all-pairs"]
"""Who gets messages, and how.

- ``neighbours``: ranks that share nodes. Messages do not block, so that work fits in between; any
  transport carries them.
- ``neighbours-blocking``: the same ranks one after the other, each waited for; as XNS was revised.
- ``all-pairs``: an MPI_Sendrecv with every other rank, also where it is empty; as XNS was first.

The last two are for studies on cores. Results have the same bits with all of them.
"""

_TRANSPORTS: dict[str, str] = {"neighbours-blocking": "blocking", "all-pairs": "all-pairs"}
# A phase, and those inside it as haloscope.exchange.copies has them.
_Phases: TypeAlias = tuple[Region, tuple[Region, Region, Region, Region, Region]]


def _phases(name: str) -> _Phases:
    pack, exchange, add = (
        Region(f"{name} {phase}", movement=True) for phase in ("pack", "exchange", "add")
    )
    return Region(name, movement=True), (pack, exchange, add, exchange, add)


_SCATTER, _GATHER = _phases("scatter"), _phases("gather")


def transport_of(messages: Messages, transport: str = "auto") -> str:
    """Name of the transport that sends messages so."""
    if messages not in get_args(Messages):
        raise InputError(
            f"flow.messages = {messages!r} is not known; give one of "
            f"{', '.join(get_args(Messages))}"
        )
    if messages == "neighbours":
        return transport
    if transport not in ("auto", "host"):
        raise InputError(
            f"flow.messages = {messages!r} goes by MPI between processor cores, but "
            f'machine.transport is {transport!r}; leave that at "auto", or give messages = '
            '"neighbours"'
        )
    return _TRANSPORTS[messages]


class NodeSums(GatherScatter):
    """Sums over sharers, whose phases are ``scatter``, ``scatter exchange``, ``gather`` and so on.

    Contract and order of sums are those of :class:`haloscope.exchange.gather_scatter.GatherScatter`.
    Made by :func:`open_node_sums`.
    """

    def start(self, state: Array, operation: str = "sum") -> None:
        """Pack the parts of shared nodes and begin to send them."""
        self._start_as(_SCATTER, state, operation)

    def finish(self, state: Array, into: Array | None = None) -> None:
        """Wait for the parts of other ranks and add up, in the order of ranks."""
        with self._phase:
            super().finish(state, into)

    def swap(self, state: Array, operation: str = "sum", into: Array | None = None) -> None:
        """Start and finish with nothing in between."""
        self._swap_as(_SCATTER, state, operation, into)

    def gather(self, state: Array) -> None:
        """Give all sharers what one of them has; the others hold zeros there."""
        self._swap_as(_GATHER, state, "sum", None)

    def _swap_as(self, phases: _Phases, state: Array, operation: str, into: Array | None) -> None:
        if not self._meets:
            self._start_as(phases, state, operation)
            self.finish(state, into)
            return
        self._phase, self.regions = phases
        with self._phase:
            super().swap(state, operation, into)

    def _start_as(self, phases: _Phases, state: Array, operation: str) -> None:
        self._phase, self.regions = phases
        with self._phase:
            super().start(state, operation)


def open_node_sums(
    world: World,
    device: Device,
    sharing: Sharing,
    size: int,
    transport: str = "auto",
    dtype: Any = np.float64,
) -> NodeSums:
    """Open the sums of vectors with some numbers a node; all ranks call this."""
    placement = Placement(0, size, 1)
    order = message_order(world, sharing, by_position=True)
    state = None
    if device.kind != "cpu":
        state = device.zeros((placement.values(sharing.size, size),), dtype)
    return open_by_name(
        world,
        device,
        plan_of(sharing, size),
        dtype,
        transport,
        lambda made: NodeSums(device, sharing, order, size, placement, dtype, made),
        state=state,
    )
