"""Brings parts of distributed fields to one rank: planes for pictures, points for probes."""

from __future__ import annotations

import itertools

import numpy as np

from haloscope.exchange.ranks.world import World
from haloscope.mesh.grid.blocks import Blocks, Triple

Region = tuple[slice, slice, slice]


def whole(blocks: Blocks) -> Region:
    """The region of all nodes, as slices along x, y, z."""
    return (slice(0, blocks.nodes[0]), slice(0, blocks.nodes[1]), slice(0, blocks.nodes[2]))


def _overlap(start: Triple, stop: Triple, region: Region) -> Region | None:
    cuts = []
    for low, high, part in zip(start, stop, region, strict=True):
        begin, end = max(low, part.start), min(high, part.stop)
        if begin >= end:
            return None
        cuts.append(slice(begin, end))
    return (cuts[0], cuts[1], cuts[2])


def _relative(cut: Region, start: tuple[int, ...]) -> tuple[slice, slice, slice]:
    """Slices for an array in the order (z, y, x) whose first node is `start` along x, y, z."""
    x, y, z = (
        slice(part.start - first, part.stop - first) for part, first in zip(cut, start, strict=True)
    )
    return (z, y, x)


def collect(world: World, blocks: Blocks, owned: np.ndarray, region: Region) -> np.ndarray | None:
    """Gather a region of a field on rank 0.

    `owned`: this rank's owned values, shape (nz, ny, nx) of its block; Returns: on rank 0 the
    values, shape (z, y, x) of the region; None elsewhere.
    """
    mine = blocks.block(world.rank)
    cut = _overlap(mine.start, mine.stop, region)
    if not world.is_root:
        if cut is not None:
            world.send(owned[_relative(cut, mine.start)], 0)
        return None
    origin = tuple(part.start for part in region)
    result = np.empty(tuple(part.stop - part.start for part in reversed(region)), owned.dtype)
    for block in blocks.all():
        part = _overlap(block.start, block.stop, region)
        if part is None:
            continue
        place = _relative(part, origin)
        if block.rank == world.rank:
            result[place] = owned[_relative(part, block.start)]
        else:
            shape = tuple(s.stop - s.start for s in place)
            result[place] = world.receive(shape, owned.dtype, block.rank)
    return result


def node_values(world: World, blocks: Blocks, owned: np.ndarray, nodes: list[Triple]) -> np.ndarray:
    """Values of single nodes on every rank, exactly as their owners hold them.

    `nodes`: global node numbers (x, y, z); Returns: one float64 a node.
    """
    mine = blocks.block(world.rank)
    values = np.zeros(len(nodes))
    for i, node in enumerate(nodes):
        if all(a <= n < b for a, n, b in zip(mine.start, node, mine.stop, strict=True)):
            x, y, z = (n - a for n, a in zip(node, mine.start, strict=True))
            values[i] = owned[z, y, x]
    # One owner each: all other terms are zero, so the sum is exact.
    return world.sum(values)


def interpolation(
    position: tuple[float, float, float], spacing: tuple[float, float, float], nodes: Triple
) -> tuple[list[Triple], np.ndarray]:
    """Nodes and weights of trilinear interpolation at a point of a grid that starts at 0.

    A point on the last node takes the cell below it; an axis with one node has weight 1 on it.
    """
    low, fraction = [], []
    for x, h, n in zip(position, spacing, nodes, strict=True):
        cell = min(max(int(x / h), 0), max(n - 2, 0))
        low.append(cell)
        fraction.append(x / h - cell if n > 1 else 0.0)
    corners: list[Triple] = []
    weights = []
    for corner in itertools.product((0, 1), repeat=3):
        weight = 1.0
        for c, f in zip(corner, fraction, strict=True):
            weight *= f if c else 1.0 - f
        if weight != 0.0:
            corners.append((low[0] + corner[0], low[1] + corner[1], low[2] + corner[2]))
            weights.append(weight)
    return corners, np.array(weights)
