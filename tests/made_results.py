"""Results of an analysis that are put together by hand, for the diagnosis to look at."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from haloscope.scope.analysis.metrics import NUMBER, metric_of_role, with_ancestors
from haloscope.scope.analysis.result import PAIRS, Result
from haloscope.scope.analysis.result import WAITS as WAIT_ROWS
from haloscope.scope.diagnosis.findings import Finding
from haloscope.scope.trace.measurement import Location, Node, Region


class Made:
    """A result that is put together by hand."""

    def __init__(self, ranks: int, **about: Any) -> None:
        self.ranks = ranks
        self.about = {"mode": "trace", "span": 10.0, **about}
        self.regions = [Region("program", "program")]
        self.nodes = [Node(-1, 0)]
        self.cells: dict[str, dict[tuple[int, int], float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self.pairs: list[tuple[Any, ...]] = []
        self.sizes: dict[tuple[int, int], int] = {}
        self.waits: list[tuple[Any, ...]] = []

    def node(self, name: str, parent: int = 0, paradigm: str = "function", role: str = "") -> int:
        self.regions.append(Region(name, paradigm, role or "other"))
        self.nodes.append(Node(parent, len(self.regions) - 1))
        return len(self.nodes) - 1

    def mpi(self, name: str, role: str, parent: int = 0) -> int:
        return self.node(name, parent, "mpi", role)

    def put(self, metric: str, node: int, rank: int, value: float) -> None:
        self.cells[metric][node, rank] += value

    def spend(self, node: int, rank: int, seconds: float, metric: str = "") -> None:
        region = self.regions[self.nodes[node].region]
        for name in with_ancestors(metric or metric_of_role(region.paradigm, region.role)):
            self.put(name, node, rank, seconds)

    def wait(
        self,
        metric: str,
        node: int,
        rank: int,
        seconds: float,
        cause: int = -1,
        at: int = -1,
        charged: int = -1,
    ) -> None:
        """Time in a call that is waiting, and the wait state."""
        self.spend(node, rank, seconds, metric)
        self.waits.append((NUMBER[metric], node, rank, cause, at, charged, 1.0, 1.0 + seconds))

    def delay(self, node: int, rank: int, short: float, long: float = 0.0) -> None:
        self.put("delay_short", node, rank, short)
        self.put("delay_long", node, rank, long)
        self.put("delay", node, rank, short + long)

    def send(self, node: int, sender: int, receiver: int, messages: int, size: int) -> None:
        empty = 0 if size else messages
        for metric, value in (
            ("messages_sent", messages),
            ("empty_messages_sent", empty),
            ("bytes_sent", messages * size),
        ):
            self.put(metric, node, sender, value)
        self.put("messages_received", node, receiver, messages)
        self.put("empty_messages_received", node, receiver, empty)
        self.pairs.append((node, sender, receiver, messages, empty, messages * size, 1e-3, 1e-3))
        self.sizes[node, size.bit_length() if size else 0] = messages

    def result(self) -> Result:
        shape = (len(self.nodes), self.ranks)
        values = {}
        for name, cells in self.cells.items():
            values[name] = np.zeros(shape)
            for where, value in cells.items():
                values[name][where] = value
        sizes = np.zeros((len(self.nodes), 66), np.int64)
        for where, messages in self.sizes.items():
            sizes[where] += messages
        return Result(
            self.about,
            self.ranks,
            self.regions,
            self.nodes,
            [],
            [Location(rank, 0) for rank in range(self.ranks)],
            values,
            np.array(self.pairs, PAIRS),
            sizes,
            np.array(self.waits, WAIT_ROWS),
        )


def one_late_rank(explained: float) -> Result:
    """Rank 3 assembles for 9 s, the others for 3 s and wait 6 s each at a barrier."""
    made = Made(4)
    solve = made.node("solve")
    assemble = made.node("assemble", solve)
    barrier = made.mpi("MPI_Barrier", "barrier", solve)
    for rank in range(4):
        made.spend(assemble, rank, 9.0 if rank == 3 else 3.0)
        if rank != 3:
            made.wait("wait_at_barrier", barrier, rank, 6.0, cause=3, at=barrier)
    made.delay(assemble, 3, 18.0 * explained)
    return made.result()


def of_metric(findings: list[Finding], metric: str) -> list[Finding]:
    return [one for one in findings if one.metric == metric]


def all_pairs(ranks: int, wasted: float) -> Made:
    """Every rank exchanges with every other; only neighbours have data."""
    made = Made(ranks)
    scatter = made.node("scatter")
    call = made.mpi("MPI_Sendrecv", "sendrecv", scatter)
    for rank in range(ranks):
        made.spend(0, rank, 5.0)
        made.spend(call, rank, wasted, "p2p_synchronisation")
        made.spend(call, rank, 0.01)
        for other in range(ranks):
            if other != rank:
                near = (other - rank) % ranks in (1, ranks - 1)
                made.send(call, rank, other, 10, 1024 if near else 0)
    return made
