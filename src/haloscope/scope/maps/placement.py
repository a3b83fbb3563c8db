"""Suggests which rank to start on which host, so that fewer bytes cross from host to host.

Every host keeps as many ranks as it has. The result depends on the bytes alone, not on chance.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.maps import Traffic
from haloscope.scope.maps.grouping import Graph, bisected, swapped

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
LEAST_GAIN = 0.05  # of the bytes that cross hosts now; below it a new placement is not worth it
_MOST_TIES = 200_000  # pairs of ranks that are looked at, those of most bytes


@dataclass(frozen=True)
class Placement:
    """A placement of ranks."""

    hosts: tuple[str, ...]  # Host of each rank
    # Bytes that cross from host to host, as measured and as predicted.
    before: int
    after: int
    total: int  # Bytes of all messages between different ranks

    @property
    def saved(self) -> float:
        """Share of the bytes across hosts that goes away."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def host_list(self) -> str:
        """One host a line, by rank: a host file for launchers that go through it in order."""
        return "".join(f"{host}\n" for host in self.hosts)

    @property
    def rankfile(self) -> str:
        """The same in the form of Open MPI's rank files, a core for each rank."""
        used: dict[str, int] = {}
        lines = []
        for rank, host in enumerate(self.hosts):
            slot = used.get(host, 0)
            used[host] = slot + 1
            lines.append(f"rank {rank}={host} slot={slot}\n")
        return "".join(lines)


def suggest(traffic: Traffic, hosts: Sequence[str]) -> Placement | None:
    """Look for a placement of ranks with fewer bytes across hosts.

    Three placements (as it is, ranks in order, groups by bisection) are each improved by swapping
    ranks of two hosts as long as that pays; the best is taken.
    """
    # Returns: none where there is one host, where less than :data:`LEAST_GAIN` would be saved, or
    # where a host is not known or has a name that no host has: it would end in files that launchers
    # read.
    names = list(dict.fromkeys(hosts))
    if len(hosts) != traffic.size or len(names) < 2 or not all(map(_HOST.fullmatch, names)):
        return None
    number = {name: index for index, name in enumerate(names)}
    present = np.array([number[host] for host in hosts], np.int64)
    room = np.bincount(present, minlength=len(names))
    links = traffic.links
    graph = Graph(links["sender"], links["receiver"], links["bytes"], traffic.size)
    before = graph.across(present)
    if before <= 0:
        return None
    in_order = np.repeat(np.arange(len(names)), room)
    main = graph.thinned(_MOST_TIES)
    starts = (in_order, present, bisected(main, room.tolist()))  # the simplest of equals
    best = min((swapped(main, start, len(names)) for start in starts), key=graph.across)
    after = graph.across(best)
    if after > before * (1 - LEAST_GAIN):
        return None
    total = int(graph.weights.sum() / 2)
    best = _named_in_order(best, room)
    return Placement(tuple(names[host] for host in best), int(before), int(after), total)


def _named_in_order(group: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give hosts of equal size to groups in the order of their lowest ranks."""
    first = {number: rank for rank, number in reversed([*enumerate(group.tolist())])}
    host = np.arange(len(room))
    for size in np.unique(room):
        alike = np.flatnonzero(room == size).tolist()
        host[sorted(alike, key=lambda number: first[number])] = alike
    return np.asarray(host[group], np.int64)
