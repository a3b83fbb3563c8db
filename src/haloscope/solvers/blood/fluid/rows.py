"""Which points of a lattice cores take as rows, whose sources lie at constant distances, and which singly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.fluid.d3q19 import DIRECTIONS, OPPOSITE, VELOCITIES

Indices = NDArray[np.int32]
Places = NDArray[np.int64]

# Points of a block, one core's turn: what its rows and single points share stays in its cache.
_BLOCK = 1024
# A row pays for its addresses from this length on: a vector in part filled costs as much as a full one.
_SHORTEST = 4
# Values of the longest vector.
_LANES = 16


@dataclass(frozen=True)
class RowsAndPoints:
    """Points in the order in which cores take them; see fluid_cores.hpp."""

    blocks: Indices  # (blocks + 1, 2): rows and single points before each block
    rows: Indices  # (rows, 2): first point and length
    points: Indices  # Single points, and as many more as fill a vector: kernels read whole ones
    # Flat addresses of rows (rows, 29): those that the first point's populations have if it is like
    # the second one, from which the others' follow; then what comes up the row to the first point,
    # and down the row to the last, five of each. None where they are not needed.
    row_places: Places
    # Sources of single points, block after block (18, single points of the block); none where they
    # are not needed.
    point_sources: Indices


def rows_and_points(
    chosen: NDArray[np.int64], sources: Indices | None, stride: int, axis: int = 0
) -> RowsAndPoints:
    """Divide points into rows and single points.

    `sources`: (18, points) of all points, negative where there is none; None if a point's
    populations are all its own.
    """
    starts, lengths = _rows(chosen, sources, axis)
    rows = np.stack([chosen[starts], lengths], axis=1).astype(np.int32)
    # Changes of being in a row, point by point.
    edges = np.zeros(len(chosen) + 1, np.int8)
    edges[starts] += 1
    edges[starts + lengths] -= 1
    points = chosen[np.cumsum(edges[:-1], dtype=np.int8) == 0].astype(np.int32)
    count = chosen[-1] // _BLOCK + 1 if len(chosen) else 0
    ends = np.arange(count + 1) * _BLOCK
    links_before = np.stack(
        [np.searchsorted(rows[:, 0], ends), np.searchsorted(points, ends)], axis=1
    )
    kept = np.concatenate(([True], (np.diff(links_before, axis=0) > 0).any(axis=1)))
    blocks: Indices = links_before[kept].astype(np.int32)

    padded = np.append(points, np.zeros(_LANES, np.int32))
    if sources is None:
        return RowsAndPoints(blocks, rows, padded, np.empty(0, np.int64), np.empty(0, np.int32))
    # A block's are together: kernels read no more of them than these, and all at once.
    counts = np.diff(blocks[:, 1])
    block_of_row, before = np.repeat(counts, counts), np.repeat(blocks[:-1, 1], counts)
    place = len(sources) * before + np.arange(len(points)) - before
    of_points = np.zeros(len(sources) * len(points) + _LANES, np.int32)
    for number, row in enumerate(sources):
        of_points[place + number * block_of_row] = row[points]
    return RowsAndPoints(blocks, rows, padded, _row_places(rows, sources, stride, axis), of_points)


def _rows(
    chosen: NDArray[np.int64], sources: Indices | None, axis: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where in the list of points rows begin, and their lengths."""
    # Whether neighbours in the list have sources that are neighbours, too: all of them, and all but those
    # up or down the row.
    alike = (np.diff(chosen) == 1) & (np.diff(chosen // _BLOCK) == 0)
    first, last = alike.copy(), alike.copy()
    if sources is not None:
        for row, along in zip(sources, VELOCITIES[1:, axis], strict=True):
            here = row[chosen]
            absent = here < 0
            same = np.where(absent[1:], absent[:-1], (np.diff(here) == 1) & ~absent[:-1])
            alike &= same
            if along <= 0:
                first &= same
            if along >= 0:
                last &= same
    starts = np.flatnonzero(np.concatenate(([True], ~alike)))[: len(chosen)]
    lengths = np.diff(np.append(starts, len(chosen)))
    # A point by itself before or behind a row is its end where it differs no more than ends may.
    ahead, behind = np.zeros((2, len(starts)), np.int64)
    if len(starts) > 1:
        alone, link = lengths == 1, starts[1:] - 1
        behind[:-1] = ~alone[:-1] & alone[1:] & last[link]
        ahead[1:] = ~alone[1:] & alone[:-1] & first[link]
        ahead[2:] &= ~behind[:-2]
    starts, lengths = starts - ahead, lengths + ahead + behind
    # What is by itself, or has become an end, is no row: none of these is as long.
    long = lengths >= _SHORTEST
    return starts[long], lengths[long]


def _row_places(rows: Indices, sources: Indices, stride: int, axis: int) -> Places:
    """Flat addresses of rows; see RowsAndPoints."""
    up, down = (np.flatnonzero(sign * VELOCITIES[:, axis] > 0).tolist() for sign in (1, -1))
    first, length = rows.astype(np.int64).T
    last = first + length - 1

    def places(i: int, points: Places) -> Places:
        there = sources[i - 1, points].astype(np.int64)
        places: Places = np.where(there < 0, i * stride + points, OPPOSITE[i] * stride + there)
        return places

    columns = [first, *(places(i, first + 1) - 1 for i in range(1, DIRECTIONS))]
    columns += [places(i, first) for i in up]
    columns += [places(i, last) for i in down]
    return np.stack(columns, axis=1)
