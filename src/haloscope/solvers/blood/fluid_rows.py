"""Which points of a lattice cores take as rows, whose sources lie at constant distances, and which singly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]

# Points of a block, one core's turn: what its rows and single points share stays in its cache.
_BLOCK = 1024
# A row pays for its addresses from this length on: a vector in part filled costs as much as a full one.
_SHORTEST = 3
# Values of the longest vector.
_LANES = 16


@dataclass(frozen=True)
class RowsAndPoints:
    """Points in the order in which cores take them; see fluid_cores.hpp.

    Attributes
    ----------
    blocks
        (blocks + 1, 2): rows and single points before each block.
    rows
        (rows, 2): first point and length.
    points
        Single points, and as many more as fill a vector: kernels read whole ones.
    row_sources, point_sources
        Sources of first points (rows, 18), and of single points, block after block (18, single
        points of the block); none where they are not needed.
    """

    blocks: Indices
    rows: Indices
    points: Indices
    row_sources: Indices
    point_sources: Indices


def rows_and_points(chosen: NDArray[np.int64], sources: Indices | None) -> RowsAndPoints:
    """Divide points into rows and single points.

    Parameters
    ----------
    chosen
        Indices of points, ascending.
    sources
        (18, points) of all points, negative where there is none; None if a point's populations
        are all its own.

    Returns
    -------
    RowsAndPoints
    """
    together = (np.diff(chosen) == 1) & (np.diff(chosen // _BLOCK) == 0)
    if sources is not None:
        for row in sources:
            here = row[chosen]
            absent = here < 0
            step = np.diff(here) == 1
            together &= np.where(absent[1:], absent[:-1], step & ~absent[:-1])
    starts = np.flatnonzero(np.concatenate(([True], ~together)))[: len(chosen)]
    lengths = np.diff(np.append(starts, len(chosen)))
    long = lengths >= _SHORTEST
    rows = np.stack([chosen[starts[long]], lengths[long]], axis=1).astype(np.int32)
    points = chosen[np.repeat(~long, lengths)].astype(np.int32)
    count = chosen[-1] // _BLOCK + 1 if len(chosen) else 0
    ends = np.arange(count + 1) * _BLOCK
    blocks = np.stack([np.searchsorted(rows[:, 0], ends), np.searchsorted(points, ends)], axis=1)
    blocks = blocks[np.concatenate(([True], (np.diff(blocks, axis=0) > 0).any(axis=1)))]

    padded = np.append(points, np.zeros(_LANES, np.int32))
    if sources is None:
        none = np.empty(0, np.int32)
        return RowsAndPoints(blocks.astype(np.int32), rows, padded, none, none)
    of_rows = np.ascontiguousarray(sources[:, rows[:, 0]].T)
    # A block's are together: kernels read no more of them than these, and all at once.
    counts = np.diff(blocks[:, 1])
    each, before = np.repeat(counts, counts), np.repeat(blocks[:-1, 1], counts)
    place = len(sources) * before + np.arange(len(points)) - before
    of_points = np.zeros(len(sources) * len(points) + _LANES, np.int32)
    for number, row in enumerate(sources):
        of_points[place + number * each] = row[points]
    return RowsAndPoints(blocks.astype(np.int32), rows, padded, of_rows, of_points)
