"""Two steps in one pass over memory, on cores, for a whole 3-D grid that is larger than the caches."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Device, Launch
from haloscope.mesh.grid.blocks import Side
from haloscope.solvers.cavity.block_nodes import BlockNodes
from haloscope.solvers.cavity.case import Flow
from haloscope.solvers.cavity.operands import Operands

_FROM_BYTES = 16 << 20
_CACHE_BYTES = 2 << 20
_LEAST_ROWS = 8
_SLOTS = 24
_TRIALS = 3


def bind(flow: Flow, operands: Operands) -> list[Launch]:
    """Launches of two steps in one pass, from the first state to the second and back.

    None where it cannot pay or cannot be done. The block must be the whole grid.
    """
    device, nodes, table = operands.device, operands.nodes, flow.table
    if device.kind != "cpu" or table.dimensions == 2 or table.rescale_pressure == "step":
        return []
    start, stop = nodes.updated()
    shape = nodes.box(start, stop)
    rows = _rows(nodes, ny=shape[1], nz=shape[2], threads=device.multiprocessors)
    if operands.states[0].nbytes < _FROM_BYTES or rows == 0:
        return []
    sides = (Side(axis, direction) for axis in nodes.layout.axes for direction in (-1, 1))
    flags = np.array([flow.wall_temperature(side.name) is None for side in sides], "i8")
    row, plane = nodes.distances
    shared_bytes = _SLOTS * (rows + 8) * row + 16 * 64
    scratch = device.zeros((shared_bytes * device.multiprocessors,), nodes.dtype)
    kernel = operands.kernel("update_twice")
    return [
        kernel.bind(
            operands.states[turn],
            operands.states[1 - turn],
            operands.physics,
            operands.step_size,
            nodes.index(*start),
            *shape,
            row,
            plane,
            nodes.layout.field_stride,
            rows,
            device.from_host(flags),
            scratch,
            shared_bytes,
            extent=shape,
        )
        for turn in range(2)
    ]


def _rows(nodes: BlockNodes, *, ny: int, nz: int, threads: int) -> int:
    """Rows of a tile: equal shares whose planes stay in the cache.

    The cache holds the scratch of the first step and the rows it reads; 0 where no tile of
    at least eight rows fits or the last tile would be thinner than walls need.
    """
    row_bytes = nodes.distances[0] * nodes.dtype.itemsize
    tiles = threads
    while tiles <= ny // _LEAST_ROWS:
        rows = -(-ny // tiles)
        held = _SLOTS * (rows + 8) + 17 * (rows + 4)
        if held * row_bytes <= _CACHE_BYTES and ny - (tiles - 1) * rows >= 2:
            return rows if nz >= 6 else 0
        tiles += threads
    return 0


def pay(device: Device, twice: Launch, single: list[Launch]) -> bool:
    """Whether a pass of two steps takes less time here than two passes of one.

    Both read the current state and write inner nodes of the other, which nothing has read.
    """

    def seconds(launch: Launch) -> float:
        return min(device.seconds(launch) for _ in range(_TRIALS))

    return seconds(twice) < 2 * sum(seconds(launch) for launch in single)
