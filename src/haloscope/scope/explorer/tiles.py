"""Segments of the innermost call path read from events, and tiles that sum them up for drawing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.trace.trace import Events, Kind

NOTHING = -1  # node of a segment in which nothing is active, or nothing is recorded


def innermost_of(stack: list[int]) -> int:
    """The innermost of the open nodes of the call tree, whose ancestors need not be open."""
    return stack[-1] if stack else NOTHING


def segments(
    piece: Events, stack: list[int], table: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a piece changes what is innermost: tick and node; `stack` becomes that at its end."""
    kinds = piece.kinds
    # A pause is entered and left as if it were a node in which nothing is active.
    push = (kinds == Kind.ENTER) | (kinds == Kind.PAUSE)
    changes = np.flatnonzero(push | (kinds == Kind.LEAVE) | (kinds == Kind.RESUME))
    known = np.append(table, NOTHING)
    entered = known[np.minimum(piece.payloads[changes], len(table))]
    entered = np.where(kinds[changes] == Kind.ENTER, entered, NOTHING)
    before = len(stack)
    push = np.append(np.ones(before, bool), push[changes])
    nodes = np.append(np.array(stack, np.int64), entered)
    depth = np.cumsum(np.where(push, 1, -1))
    if len(depth) and depth.min() < 0:
        # More was left than was entered, as where the begin of a file is missing.
        depth -= np.minimum(0, np.minimum.accumulate(depth))
    innermost, stack[:] = _innermost(push, nodes, depth)
    return piece.ticks[changes], innermost[before:]


def _innermost(
    push: NDArray[np.bool_], nodes: NDArray[np.int64], depth: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[int]]:
    """After each change the node last entered at its depth, and the nodes open at the end."""
    if not len(depth):
        return nodes, []
    # Few bits are sorted in linear time.
    small = depth.astype(np.int16) if depth.max() < 1 << 15 else depth
    order = np.argsort(small, kind="stable")
    by_depth = depth[order]
    last = np.maximum.accumulate(np.where(push[order], np.arange(len(order)), -1))
    has_parent = (last >= 0) & (by_depth[np.maximum(last, 0)] == by_depth) & (by_depth > 0)
    open_now = np.where(has_parent, nodes[order[np.maximum(last, 0)]], NOTHING)
    innermost = np.empty_like(nodes)
    innermost[order] = open_now
    ends = np.searchsorted(by_depth, np.arange(1, depth[-1] + 1), "right") - 1
    return innermost, open_now[ends].tolist()


# Level k cuts the run's time into 4^k tiles of 512 bins. A bin holds the call path that was
# innermost for most of its time, for which share of it, and the one that comes next. Tiles of few
# segments are not made: they are drawn from the segments themselves, which then needs no finer
# level either.

BINS = 512  # of a tile
FACTOR = 4  # tiles of the next level in the time of one
EXACT = 1024  # segments of a tile that are drawn as they are
LAST_LEVEL = 15
_FULL = 255  # a share of one


@dataclass(frozen=True)
class Level:
    """Tiles of one level: numbers (n,), and of each bin (n, BINS) node, its share, next node.

    Shares are in 1/255; the next node is the node itself where nothing else is in the bin.
    """

    level: int
    numbers: NDArray[np.int64]
    nodes: NDArray[np.int32]
    shares: NDArray[np.uint8]
    seconds: NDArray[np.int32]


def levels(
    times: NDArray[np.float64], nodes: NDArray[np.int64], begin: float, span: float
) -> Iterator[Level]:
    """Tiles of one location, the coarsest level first; none where its segments are few."""
    numbers = np.zeros(1, np.int64)
    for level in range(LAST_LEVEL + 1):
        width = span / FACTOR**level
        lower = np.searchsorted(times, begin + numbers * width)
        upper = np.searchsorted(times, begin + (numbers + 1) * width)
        numbers = numbers[upper - lower > EXACT]
        if not len(numbers):
            return
        yield _level(level, numbers, times, nodes, begin, width / BINS)
        numbers = (numbers[:, None] * FACTOR + np.arange(FACTOR)).ravel()


def _level(
    level: int,
    numbers: NDArray[np.int64],
    times: NDArray[np.float64],
    nodes: NDArray[np.int64],
    begin: float,
    width: float,
) -> Level:
    place = (times - begin) / width
    bins = place.astype(np.int64)
    tile = np.searchsorted(numbers, bins // BINS)
    inside = numbers[np.minimum(tile, len(numbers) - 1)] == bins // BINS
    edges = (numbers[:, None] * BINS + np.arange(BINS)).ravel().astype(np.float64)
    before = np.searchsorted(place, edges, "right") - 1
    at_edge = np.where(before >= 0, nodes[np.maximum(before, 0)], -1)
    # Each bin begins with what is active there, then come the segments that begin in it.
    starts = np.concatenate([edges, place[inside]])
    active = np.concatenate([at_edge, nodes[inside]])
    order = np.argsort(starts, kind="stable")
    starts, active = starts[order], active[order]
    bin_of = np.cumsum(order < len(edges)) - 1
    ends = np.append(starts[1:], 0.0)
    last = np.append(bin_of[1:] != bin_of[:-1], True)
    ends[last] = edges[bin_of[last]] + 1.0
    return Level(level, numbers, *_longest(bin_of, active, ends - starts, len(edges)))


def _longest(
    bin_of: NDArray[np.int64],
    active: NDArray[np.int64],
    length: NDArray[np.float64],
    bins: int,
) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32]]:
    """Of each bin the node with the greatest sum of lengths, that sum as a share, and the next."""
    many = int(active.max()) + 2
    key = bin_of * many + (active + 1)
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    total = np.add.reduceat(length[order], first)
    of_bin, node = key[first] // many, key[first] % many - 1
    starts = np.flatnonzero(np.append(True, of_bin[1:] != of_bin[:-1]))
    winner = _greatest(total, starts, of_bin)
    share = np.clip(np.rint(_FULL * total[winner]), 0, _FULL).astype(np.uint8)
    most = node[winner]
    total[winner] = -1.0
    second = _greatest(total, starts, of_bin)
    shape = (bins // BINS, BINS)
    return (
        most.astype(np.int32).reshape(shape),
        share.reshape(shape),
        node[second].astype(np.int32).reshape(shape),
    )


def _greatest(
    total: NDArray[np.float64], starts: NDArray[np.int64], of_bin: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Place of the greatest sum of each bin, the first of several."""
    most = np.maximum.reduceat(total, starts)
    places = np.flatnonzero(total == most[of_bin])
    first = np.append(True, of_bin[places][1:] != of_bin[places][:-1])
    return np.asarray(places[first], np.int64)
