"""Placement of ranks on hosts: groups of given sizes with few bytes between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.maps import Traffic

# Bisection starts from the slowest mode of the graph and from growth out of a corner; both are
# improved in passes of the kind of Fiduccia and Mattheyses (19th Design Automation Conference,
# 1982): every member moves once, best first, and the best moment of the pass is kept. Nothing here
# depends on chance.

_PASSES = 8
_MODE_STEPS = 300
_LEAST_PATIENCE = 100
_MOST_SWEEPS = 20
_GROUPS_TRIED = 3  # by each member in a sweep of swaps
_MOST_CELLS = 1 << 25  # members times groups up to which swaps are tried

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]


class Graph:
    """Weights between members, in both directions together, as rows of neighbours."""

    def __init__(self, one: NDArray[Any], other: NDArray[Any], weights: Numbers, size: int) -> None:
        apart = one != other
        ends = one[apart].astype(np.int64), other[apart].astype(np.int64)
        rows, columns = np.concatenate(ends), np.concatenate(ends[::-1])
        keys, where = np.unique(rows * size + columns, return_inverse=True)
        both = np.tile(weights[apart].astype(np.float64), 2)
        self.weights: Numbers = np.bincount(where, both, len(keys)).astype(np.float64)
        self.rows: Integers = keys // size
        self.columns: Integers = keys % size
        self.starts = np.searchsorted(self.rows, np.arange(size + 1))
        self.size = size

    def neighbours(self, member: int) -> tuple[Integers, Numbers]:
        """Members that one is tied to, and by how much."""
        own = slice(int(self.starts[member]), int(self.starts[member + 1]))
        return self.columns[own], self.weights[own]

    def sums(self, weights: Numbers) -> Numbers:
        """Sums of a weight of each tie, by member."""
        return np.bincount(self.rows, weights, self.size).astype(np.float64)

    def part(self, members: Integers) -> Graph:
        """The graph among some of its members, numbered in their order."""
        number = np.full(self.size, -1, np.int64)
        number[members] = np.arange(len(members))
        rows, columns = number[self.rows], number[self.columns]
        inside = (rows >= 0) & (columns >= 0) & (rows < columns)
        return Graph(rows[inside], columns[inside], self.weights[inside], len(members))

    def thinned(self, most: int) -> Graph:
        """The graph with its heaviest ties only where it has more than `most`."""
        if len(self.weights) <= 2 * most:
            return self
        once = np.flatnonzero(self.rows < self.columns)
        kept = once[np.argsort(-self.weights[once], kind="stable")[:most]]
        return Graph(self.rows[kept], self.columns[kept], self.weights[kept], self.size)

    def across(self, group: Integers) -> float:
        """Weight between members of different groups."""
        return float(self.weights[group[self.rows] != group[self.columns]].sum() / 2)


def bisected(graph: Graph, room: Sequence[int]) -> Integers:
    """Groups of the sizes `room`, by bisection; shape (graph.size,)."""
    group = np.zeros(graph.size, np.int64)
    waiting = [(np.arange(graph.size), 0, len(room))]
    while waiting:
        members, first, last = waiting.pop()
        if last - first < 2:
            group[members] = first
            continue
        middle = (first + last) // 2
        left = _halved(graph.part(members), sum(room[first:middle]))
        waiting.append((members[left], first, middle))
        waiting.append((members[~left], middle, last))
    return group


def _halved(graph: Graph, wanted: int) -> NDArray[np.bool_]:
    """Choose `wanted` members with little weight to the rest."""
    if not 0 < wanted < graph.size:
        return np.arange(graph.size) < wanted
    starts = []
    for order in (np.argsort(_slowest_mode(graph), kind="stable"), _grown(graph)):
        left = np.zeros(graph.size, np.bool_)
        left[order[:wanted]] = True
        starts.append(improved(graph, left))
    return min(starts, key=lambda left: graph.across(left.astype(np.int64)))


def _slowest_mode(graph: Graph) -> Numbers:
    """About the second eigenvector of the graph's Laplacian, by repeated multiplication."""
    degree = graph.sums(graph.weights)
    most = float(degree.max(initial=0.0))
    # A start that is not symmetric, so that no mode is missed.
    mode: Numbers = np.cos(np.pi * (np.arange(graph.size) + 0.5) / graph.size)
    mode += 0.01 * np.sin(1.0 + 2.399963 * np.arange(graph.size))
    for _ in range(_MODE_STEPS if most > 0 else 0):
        pulled = graph.sums(graph.weights * mode[graph.columns])
        mode = (2 * most - degree) * mode + pulled
        mode -= mode.mean()
        length = float(np.abs(mode).max())
        if length == 0:
            break
        mode /= length
    return np.asarray(np.round(mode, 9), np.float64)


def _grown(graph: Graph) -> Integers:
    """Order of growth out of a corner: next is the member that adds least to the border."""
    first = 0
    for _ in range(2):  # the far end of the far end is a corner
        first = int(_by_distance(graph, first)[-1])
    free = graph.sums(graph.weights)
    gain = -free
    taken = np.zeros(graph.size, np.bool_)
    order = np.empty(graph.size, np.int64)
    for place in range(graph.size):
        member = first if place == 0 else int(np.argmax(np.where(taken, -np.inf, gain)))
        order[place] = member
        taken[member] = True
        others, weights = graph.neighbours(member)
        gain[others] += 2 * weights
    return order


def _by_distance(graph: Graph, first: int) -> Integers:
    seen = np.zeros(graph.size, np.bool_)
    seen[first] = True
    order = [first]
    for member in order:
        others, weights = graph.neighbours(member)
        new = others[(weights > 0) & ~seen[others]]
        seen[new] = True
        order.extend(new.tolist())
    return np.array(order, np.int64)


def improved(graph: Graph, left: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Passes of moves, one from each side in turn, each kept up to its best moment.

    `left`: which members are on one of the two sides, shape (graph.size,); their number is kept.
    """
    left = left.copy()
    for _ in range(_PASSES):
        side = left.copy()
        signed = np.where(side[graph.rows] != side[graph.columns], 1.0, -1.0) * graph.weights
        gain = graph.sums(signed)
        locked = np.zeros(graph.size, np.bool_)
        moved: list[int] = []
        saved, best, best_moves = 0.0, 0.0, 0
        patience = _LEAST_PATIENCE + graph.size // 4  # moves without a gain
        for _ in range(min(int(side.sum()), int((~side).sum()))):
            for out_of in (True, False):
                movable = (side == out_of) & ~locked
                member = int(np.argmax(np.where(movable, gain, -np.inf)))
                saved += float(gain[member])
                locked[member] = True
                side[member] = not out_of
                moved.append(member)
                others, weights = graph.neighbours(member)
                gain[others] += np.where(side[others] == side[member], -2.0, 2.0) * weights
                gain[member] = -gain[member]
            if saved > best:
                best, best_moves = saved, len(moved)
            elif len(moved) > best_moves + patience:
                break
        if best_moves == 0:
            break
        kept = np.array(moved[:best_moves], np.int64)
        left[kept] = ~left[kept]
    return left


def swapped(graph: Graph, start: Integers, groups: int) -> Integers:
    """Swap members of two groups as long as that takes weight off the borders."""
    group = start.copy()
    if graph.size * groups > _MOST_CELLS:
        return group
    pull = np.zeros((graph.size, groups))  # weight between a member and the members of a group
    np.add.at(pull, (graph.rows, group[graph.columns]), graph.weights)
    members = [set(np.flatnonzero(group == number).tolist()) for number in range(groups)]
    for _ in range(_MOST_SWEEPS):
        swaps = sum(_swap_once(graph, pull, group, members, one) for one in range(graph.size))
        if not swaps:
            break
    return group


def _swap_once(
    graph: Graph, pull: Numbers, group: Integers, members: list[set[int]], one: int
) -> bool:
    here = int(group[one])
    gains = pull[one] - pull[one, here]
    others, weights = graph.neighbours(one)
    for there in np.argsort(-gains, kind="stable")[:_GROUPS_TRIED].tolist():
        if gains[there] <= 0:
            break
        partners = np.array(sorted(members[there]), np.int64)
        if not len(partners):
            continue
        between = np.zeros(graph.size)
        between[others] = weights
        whole = gains[there] + pull[partners, here] - pull[partners, there] - 2 * between[partners]
        best = int(np.argmax(whole))
        if whole[best] <= 0:
            continue
        for member, old, new in ((one, here, there), (int(partners[best]), there, here)):
            near, tied = graph.neighbours(member)
            pull[near, old] -= tied
            pull[near, new] += tied
            members[old].remove(member)
            members[new].add(member)
            group[member] = new
        return True
    return False


# Every host keeps as many ranks as it has. The result depends on the bytes alone, not on chance.

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
