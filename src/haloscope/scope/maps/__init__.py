"""Messages by pair of ranks, by receiver and by routine, as numbers and pictures.

All of it is sparse: only pairs that exchange messages take memory or a line in a file. Imported by
analysis, diagnosis and report; imports analysis, diagnosis/findings and trace.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.result import PAIRS, Result
from haloscope.scope.trace.measurement import Communicator

OUTSIDE = "(outside of any routine)"
SUMMED = ("messages", "empty", "bytes", "seconds", "receive_seconds")
LINKS = np.dtype([(name, PAIRS[name]) for name in ("sender", "receiver", *SUMMED)])
RECEIVERS = np.dtype(
    [
        ("rank", "<i4"),
        ("senders", "<i4"),  # ranks that sent it data
        ("empty_senders", "<i4"),  # ranks that sent it nothing but empty messages
        ("messages", "<i8"),
        ("empty", "<i8"),
        ("bytes", "<i8"),
        ("receive_seconds", "<f8"),
    ]
)


@dataclass(frozen=True)
class Traffic:
    """Messages of a run or of a routine, each pair of ranks once."""

    title: str  # Whose messages they are
    size: int  # Ranks of the run
    links: NDArray[Any]  # dtype :data:`LINKS`, by sender, then receiver
    path: tuple[str, ...] = ()  # Names of the call path, empty for the whole run
    nodes: tuple[int, ...] = ()  # Nodes of the call tree whose sends are in it, empty for all

    def total(self, name: str) -> float:
        """Sum of a column over all pairs."""
        return float(self.links[name].sum())

    @property
    def timed(self) -> bool:
        """Whether times of messages are known (a profile has none)."""
        return bool(np.any(self.links["seconds"] > 0) or np.any(self.links["receive_seconds"] > 0))


@dataclass(frozen=True)
class Silence:
    """How many of the ordered pairs of different ranks exchange nothing."""

    pairs: int  # All of them, size (size - 1)
    with_data: int  # Pairs with at least one message of more than zero bytes
    only_empty: int  # Pairs with messages, all of them empty

    @property
    def share(self) -> float:
        """Share of pairs that never talk or only send empty messages."""
        return 1 - self.with_data / self.pairs if self.pairs else 0.0


@dataclass(frozen=True)
class Distances:
    """Bytes by how far they go."""

    hosts: int = 0  # Number of hosts, 0 where they are not known
    # Bytes of messages between ranks of one host, and of two.
    inside: int = 0
    across: int = 0
    # For each Cartesian communicator: name, dims, mean hops of a byte between its members.
    cartesian: list[tuple[str, tuple[int, ...], float]] = field(default_factory=list)


def whole_run(result: Result) -> Traffic:
    """Messages of the whole run."""
    return Traffic("whole run", result.size, _summed(result.pairs, result.size))


def routines(result: Result) -> list[Traffic]:
    """Messages of each routine that sends, the most expensive one first."""
    # A routine is the call path of the caller of the MPI functions; call sites and the functions
    # that it uses are put together; what no routine is known for is called :data:`OUTSIDE`. Sorted
    # by receive time, then bytes, then messages.
    groups: dict[tuple[str, ...], list[int]] = {}
    nodes = result.pairs["node"]
    for node in np.unique(nodes).tolist():
        if not 0 <= node < len(result.nodes):
            continue
        caller = node
        if result.region_of(node).paradigm == "mpi":
            caller = max(result.nodes[node].parent, 0)
        root = result.nodes[caller].parent < 0
        outside = root and result.region_of(caller).paradigm == "program"
        path = (OUTSIDE,) if outside else result.path_of(caller)
        groups.setdefault(path, []).append(node)
    group_of = np.full(len(result.nodes) + 1, len(groups), np.int64)
    for number, members in enumerate(groups.values()):
        group_of[members] = number
    group = group_of[np.where((nodes >= 0) & (nodes < len(result.nodes)), nodes, -1)]
    order = np.argsort(group, kind="stable")
    parts = np.split(
        result.pairs[order], np.searchsorted(group[order], np.arange(1, len(groups) + 1))
    )
    routines = [
        Traffic(path[-1], result.size, _summed(pairs, result.size), path, tuple(members))
        for (path, members), pairs in zip(groups.items(), parts, strict=False)
    ]
    expense = ("receive_seconds", "seconds", "bytes", "messages")
    return sorted(routines, key=lambda one: ([-one.total(name) for name in expense], one.path))


def _summed(pairs: NDArray[Any], size: int) -> NDArray[Any]:
    """Sums over the rows of each pair of ranks, by sender, then receiver."""
    sender, receiver = pairs["sender"].astype(np.int64), pairs["receiver"].astype(np.int64)
    known = (sender >= 0) & (sender < size) & (receiver >= 0) & (receiver < size)
    keys = np.where(known, sender * size + receiver, size * size)
    order = np.argsort(keys, kind="stable")[: int(known.sum())]
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    links = np.zeros(len(starts), LINKS)
    links["sender"], links["receiver"] = keys[starts] // size, keys[starts] % size
    for name in SUMMED if len(starts) else ():
        links[name] = np.add.reduceat(pairs[name][order], starts)
    return links


def silence(traffic: Traffic) -> Silence:
    """Count the pairs of different ranks that exchange nothing."""
    links = traffic.links
    other = links["sender"] != links["receiver"]
    data = links["messages"] > links["empty"]
    return Silence(
        traffic.size * (traffic.size - 1),
        int(np.sum(other & data)),
        int(np.sum(other & ~data & (links["messages"] > 0))),
    )


def receivers(traffic: Traffic) -> NDArray[Any]:
    """Statistics of each rank as a receiver, dtype :data:`RECEIVERS`, by rank."""
    links, size = traffic.links, traffic.size
    table = np.zeros(size, RECEIVERS)
    table["rank"] = np.arange(size)
    data = links["messages"] > links["empty"]
    receiver = links["receiver"]
    table["senders"] = np.bincount(receiver[data], minlength=size)
    table["empty_senders"] = np.bincount(receiver[~data], minlength=size)
    order = np.argsort(receiver, kind="stable")
    starts = np.flatnonzero(np.diff(receiver[order], prepend=-1))
    for name in ("messages", "empty", "bytes", "receive_seconds") if len(starts) else ():
        table[name][receiver[order[starts]]] = np.add.reduceat(links[name][order], starts)
    return table


def distances(
    traffic: Traffic, hosts: Sequence[str], comms: Sequence[Communicator] = ()
) -> Distances:
    """How far the bytes go: inside and across hosts, and in hops of Cartesian communicators."""
    links = traffic.links
    sender, receiver = links["sender"], links["receiver"]
    names = sorted({host for host in hosts if host})
    inside = across = 0
    if names and len(hosts) == traffic.size:
        number = {name: index for index, name in enumerate(names)}
        host = np.array([number.get(name, -1) for name in hosts])
        known = (host[sender] >= 0) & (host[receiver] >= 0)
        same = host[sender] == host[receiver]
        inside = int(links["bytes"][known & same].sum())
        across = int(links["bytes"][known & ~same].sum())
    cartesian = []
    for index, comm in enumerate(comms):
        mean = _mean_hops(links, comm, traffic.size)
        if mean is not None:
            cartesian.append((comm.name or f"communicator {index}", comm.dims, mean))
    return Distances(len(names), inside, across, cartesian)


def _mean_hops(links: NDArray[Any], comm: Communicator, size: int) -> float | None:
    """Mean hops of a byte between members of a Cartesian communicator; None where none goes."""
    members = np.array(comm.members, np.int64)
    if not comm.dims or int(np.prod(comm.dims)) != len(members):
        return None
    place = np.full(size, -1, np.int64)
    place[members] = np.arange(len(members))
    begin, end = place[links["sender"]], place[links["receiver"]]
    weight = np.where((begin >= 0) & (end >= 0) & (begin != end), links["bytes"], 0)
    if not weight.sum():
        return None
    hops = np.zeros(len(links), np.int64)
    periods = (*comm.periods, *(0 for _ in comm.dims))
    for extent, periodic in zip(
        reversed(comm.dims), reversed(periods[: len(comm.dims)]), strict=True
    ):
        apart = np.abs(begin % extent - end % extent)
        hops += np.minimum(apart, extent - apart) if periodic else apart
        begin, end = begin // extent, end // extent
    return float((hops * weight).sum() / weight.sum())


def links_csv(traffic: Traffic) -> str:
    """One line a pair that exchanges messages."""
    header = ("sender", "receiver", *SUMMED)
    return _csv(header, traffic.links)


def receivers_csv(traffic: Traffic) -> str:
    """One line a rank that receives."""
    return _csv(RECEIVERS.names or (), receivers(traffic))


def routines_csv(routines: Sequence[Traffic]) -> str:
    """One line a routine that sends, with its sums."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("routine", "call_path", "pairs", *SUMMED))
    for one in routines:
        sums = [f"{one.total(name):.9g}" for name in SUMMED]
        writer.writerow((one.title, " > ".join(one.path), len(one.links), *sums))
    return text.getvalue()


def _csv(header: Sequence[str], rows: NDArray[Any]) -> str:
    columns = [
        [f"{value:.9g}" for value in rows[name].tolist()]
        if rows.dtype[name].kind == "f"
        else map(str, rows[name].tolist())
        for name in header
    ]
    lines = [",".join(header), *(",".join(cells) for cells in zip(*columns, strict=True))]
    return "\n".join(lines) + "\n"
