"""Lattice points on a GPU: launch shapes of a step, and the positions of neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.device.declarations import Constants
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, VELOCITIES

Indices = NDArray[np.int32]

ROW = 20
"""Numbers in a row of distances: 18, and two more so that rows begin at multiples of 16 bytes."""

NONE = np.iinfo(np.int32).min
"""The distance of a neighbour that is not there."""

SKIPPED = -1
"""Kind of a point that a launch over all of them leaves out."""

LINE = 128
"""Bytes of a line of a GPU's memory."""

# Two buffers take at most a part of what is free: cells, lists and exchanges need room, too. With what is
# known of these they leave some of it, since no count of memory is exact.
_SHARE = 3
_USED = 15 / 16
# Of a GPU's second-level cache, what one buffer takes where steps in place are the faster ones: two would
# fill more of it than one, and one is not so large that nothing of it is found there again.
_IN_CACHE = (0.3, 4.0)
# Rows of points beside a point's own, by their places along the other axes, as fluid_gpu.hpp has them.
_BESIDE = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
# Bytes of rows for a point that are next to nothing.
_FEW = 0.1
# Of a mask's number: rows that follow the masks begin at multiples of 16 bytes.
_LEAST_BITS = 2
# Of a kind that says where a point's neighbours lie, not that it is left out.
_KIND_BITS = 31
# Points whose sources are compared at once: those along one direction stay in a core's cache.
_AT_ONCE = 1 << 15
# Rows that may be alike are found by sums modulo 2^64 with these factors.
_FACTORS = np.random.default_rng(18).integers(1, 2**63, 18, dtype=np.uint64) * np.uint64(
    2
) + np.uint64(1)


@dataclass(frozen=True)
class KernelVariant:
    """A way to launch the steps; see fluid_gpu.hpp."""

    # The rows of distances that points share are those of the eight rows of points beside a point's own, and
    # masks say which neighbours are there: fewer and shorter rows, where that is less to read.
    compact: bool = False
    # Of a block, and blocks that a processor must hold at once.
    threads: int = 256
    blocks: int = 2
    buffers: int = 1  # 1: in place, even and odd steps in turns; 2: from one buffer into the other
    # Between two buffers points read their own slots and write to those of their neighbours, as the
    # code of Ames and others does; else they read from neighbours and write their own.
    pushing: bool = False
    lines: bool = False  # What is read comes into the second-level cache by whole lines of memory
    # Where nothing goes to other ranks, a step may begin before the one before it has ended: only
    # what it does then needs what that one leaves.
    early: bool = False

    def constants(self) -> Constants:
        """Compile-time constants of fluid_gpu.hpp."""
        return {
            "KINDS": 2 if self.compact else 1,
            "THREADS_A_BLOCK": self.threads,
            "BLOCKS_A_PROCESSOR": self.blocks,
            "LINES": int(self.lines),
            "EARLY": int(self.early),
        }

    def laid_out(self, *, compact: bool) -> KernelVariant:
        """The same where compact kinds tell where neighbours lie, or are not worth it."""
        return replace(self, compact=compact) if self.compact else self


def fastest_way(itemsize: int, buffers: int = 1) -> KernelVariant:
    """The way that bench/blood_gpu.py finds fastest, for stored values of so many bytes."""
    double = itemsize == 8
    blocks = (4 if double else 6) if buffers == 1 else (5 if double else 8)
    return KernelVariant(
        compact=True, lines=True, early=True, threads=128, blocks=blocks, buffers=buffers
    )


def room_for_two(
    free: int, count: int, itemsize: int, sharing: int = 1, beside: float = 0.0
) -> bool:
    """Whether two buffers leave enough of a GPU's memory to others.

    `free`: bytes of it that are free; `itemsize`: bytes of a stored value; `beside`: bytes that a
    rank is known to need for other things.
    """
    needed, share = 2 * DIRECTIONS * count * itemsize, free / sharing
    return needed <= share / _SHARE and needed + beside <= _USED * share


def faster_in_place(cache: float, buffer: float) -> bool:
    """Whether a GPU whose second-level cache has so many bytes steps faster in place than between two buffers."""
    # `buffer` are the bytes of one. On an H200 (60 MB), double precision, a dense box and no cells:
    # 27 % faster at 40 MB, 15 at 78 MB, 6 at 134 MB, 2 at 213 MB; as fast at 17 MB and from 620 MB
    # on. A sparse tree is slower in place below 15 MB (bench/blood_gpu.py).
    least, most = _IN_CACHE
    return least * cache <= buffer <= most * cache


@dataclass(frozen=True)
class Neighbours:
    """Where the neighbours of all own points lie, as the kernel reads it."""

    # Row of each point. Compact: number of its row, then
    # `mask_bits` bits that number its mask, or -2 less the number of a whole row of 18.
    kinds: Indices
    # Rows (.., 20) by kind. Compact, one after the other: masks, as
    # many as their bits number, rows of eight distances, whole rows of 20.
    distances: Indices
    pitch: int  # Where whole rows begin; 0 where kinds are not compact
    mask_bits: int = 0  # Of compact kinds; 0: they are not

    @property
    def bytes_a_point(self) -> float:
        """Read for each point in a step that needs neighbours, every row of distances once."""
        return 4 + self.distances.nbytes / max(1, len(self.kinds))


def neighbours(sources: Indices, way: KernelVariant, axis: int = 0) -> Neighbours:
    """Find where neighbours lie.

    `sources`: (18, points): index of the point at x - c_i, negative where there is none.
    """
    count, shared = sources.shape[1], _shared(sources)
    # Dense lattices have so few rows that others are not looked for.
    if not way.compact or count == 0 or shared.distances.nbytes <= _FEW * count:
        return shared
    compact = _compact(sources, axis)
    return shared if compact is None else min(compact, shared, key=lambda one: one.bytes_a_point)


def _shared(sources: Indices) -> Neighbours:
    """Neighbours as rows that points share."""
    count = sources.shape[1]
    changes = np.zeros(count, bool)
    changes[:1] = True
    for begin in range(0, count, _AT_ONCE):
        before, end = max(begin - 1, 0), begin + _AT_ONCE
        for of in sources:
            here = of[before:end]
            alike, none = here[1:] - here[:-1] == 1, here < 0
            if none.any():
                alike = np.where(none[1:], none[:-1], alike & ~none[:-1])
            changes[before + 1 : end] |= ~alike
    starts = np.flatnonzero(changes)
    rows = np.stack([np.where(of[starts] < 0, NONE, of[starts] - starts) for of in sources])
    rows = rows.astype(np.int32)
    of_runs, first = _alike(rows)
    table = np.full((max(1, len(first)), ROW), NONE, np.int32)
    table[: len(first), : len(rows)] = rows[:, first].T
    lengths = np.diff(np.append(starts, count))
    return Neighbours(np.repeat(of_runs.astype(np.int32), lengths), table, 0)


def _compact(sources: Indices, axis: int) -> Neighbours | None:
    """Neighbours as compact kinds; None where these cannot tell them."""
    count = sources.shape[1]
    masks = np.zeros(count, np.int32)
    apart, starts, rows = [], [], []
    before = np.zeros((len(_BESIDE), 1), np.int32)
    for begin in range(0, count, _AT_ONCE):
        here = sources[:, begin : begin + _AT_ONCE]
        beside, whole = _beside_rows(here, begin, axis, masks[begin : begin + _AT_ONCE], before)
        apart.append(begin + np.flatnonzero(whole))
        changes = (beside[:, 1:] != beside[:, :-1]).any(axis=0)
        changes[0] |= begin == 0
        changed = np.flatnonzero(changes)
        starts.append(begin + changed)
        rows.append(beside[:, 1 + changed])
        before = beside[:, -1:]
    of_runs, first = _alike(np.concatenate(rows, axis=1))
    present = np.zeros(1 << DIRECTIONS - 1, bool)
    present[masks] = True
    different = np.flatnonzero(present).astype(np.int32)
    bits = max(_LEAST_BITS, (len(different) - 1).bit_length())
    if len(first) >= 1 << _KIND_BITS - bits:
        return None
    lengths = np.diff(np.append(np.concatenate(starts), count))
    kinds = np.repeat((of_runs << bits).astype(np.int32), lengths)
    kinds |= (np.cumsum(present, dtype=np.int32) - 1)[masks]
    wholes = np.concatenate(apart)
    kinds[wholes] = -2 - np.arange(len(wholes), dtype=np.int32)
    wide = np.full((len(wholes), ROW), NONE, np.int32)
    own = sources[:, wholes]
    wide[:, : len(own)] = np.where(own < 0, NONE, own - wholes).T
    table = np.zeros(1 << bits, np.int32)
    table[: len(different)] = different
    eights = np.ascontiguousarray(np.concatenate(rows, axis=1)[:, first].T)
    pitch = table.size + eights.size
    return Neighbours(kinds, np.concatenate([table, eights.ravel(), wide.ravel()]), pitch, bits)


def _beside_rows(
    sources: Indices, begin: int, axis: int, masks: Indices, before: Indices
) -> tuple[Indices, NDArray[np.bool_]]:
    """Distances of the eight rows of points beside those of some points.

    `sources`: (18, points) of these points; `before`: distances of the point before them, (8, 1).
    """
    # beside: (8, 1 + points), those of the point before first. Where no neighbour is, a distance
    # may be any: that of the point before makes rows alike.
    count = sources.shape[1]
    points = np.arange(begin, begin + count, dtype=np.int32)
    steps = np.arange(1 + count)
    beside = np.zeros((len(_BESIDE), 1 + count), np.int32)
    beside[:, :1] = before
    known = np.zeros(beside.shape, bool)
    whole = np.zeros(count, bool)
    for i, (of, c) in enumerate(zip(sources, VELOCITIES[1:], strict=True)):
        there = of >= 0
        masks |= there.astype(np.int32) << i
        # Less what goes along the row, all neighbours in a row beside this one are as far away.
        distance = of - points + np.int32(c[axis])
        row = tuple(np.delete(c, axis).tolist())
        if row == (0, 0):
            whole |= there & (distance != 0)
            continue
        group = _BESIDE.index(row)
        one, known_rows = beside[group, 1:], known[group, 1:]
        whole |= there & known_rows & (distance != one)
        np.copyto(one, distance, where=there & ~known_rows)
        known_rows |= there
    for distance, known_rows in zip(beside, known, strict=True):
        distance[:] = distance[np.maximum.accumulate(np.where(known_rows, steps, 0))]
    return beside, whole


def _alike(rows: Indices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of each column among those that differ, and the first of each, in their order."""
    every = np.arange(rows.shape[1])
    keys = np.zeros(len(every), np.uint64)
    for factor, row in zip(_FACTORS[: len(rows)], rows, strict=True):
        keys += factor * row.astype(np.int64).view(np.uint64)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    if any((row != row[first][number]).any() for row in rows):
        return every, every
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[number], first[order]
