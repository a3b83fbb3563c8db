"""Checks on the ranks that it is started with that an exchange fills the ghosts with the right values.

Every transport, every way to cut the grid for these ranks, walls and periodic axes, all widths, both
types: a global field of random numbers is spread over the ranks, exchanged several times and compared.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import numpy as np

from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.mesh.blocks import SIDES, Block, Blocks, Layout, Triple, halo_plan
from haloscope.mesh.halo import open_boxes

NODES = (13, 11, 14)
WIDTHS = ((2, 1, 0, 1, 2), (0, 0, 1, 0, 0), (2, 2, 2, 2, 2))
_GHOSTS = 2
_UNTOUCHED = -1.0


def cuts(ranks: int) -> Iterator[Triple]:
    """All ways to cut a grid into as many blocks as there are ranks."""
    for parts in itertools.product(range(1, ranks + 1), repeat=3):
        if parts[0] * parts[1] * parts[2] == ranks:
            yield parts


def values(shape: Triple, field: int, turn: int, dtype: type) -> np.ndarray:
    """The global field (z, y, x) of this turn; the same on every rank."""
    return np.random.default_rng([field, turn]).random(shape[::-1]).astype(dtype)


def beyond(
    nodes: Triple, block: Block, axis: int, direction: int, width: int
) -> tuple[list[np.ndarray], Triple]:
    """Global numbers of the nodes beyond a side, and where their ghosts begin in the block."""
    numbers, begin = [], []
    for a in range(3):
        low, high = block.start[a], block.stop[a]
        if a == axis and direction < 0:
            low, high = low - width, low
        elif a == axis:
            low, high = high, high + width
        numbers.append(np.arange(low, high) % nodes[a])
        begin.append(_GHOSTS + low - block.start[a])
    return numbers, (begin[0], begin[1], begin[2])


def check(
    world: World,
    device: Device,
    transport: str,
    blocks: Blocks,
    widths: tuple[int, ...],
    dtype: type,
) -> None:
    """Exchange two fields after one another and compare every value of the block with its ghosts."""
    block = blocks.block(world.rank)
    nx, ny, nz = block.shape
    pitch, rows = nx + 2 * _GHOSTS + 3, ny + 2 * _GHOSTS
    plane = pitch * rows
    first = _GHOSTS * (1 + pitch + plane)
    layout = Layout(block.shape, (1, pitch, plane), first, plane * (nz + 4) + 5, (_GHOSTS,) * 3)
    plan = halo_plan(block, layout, widths)
    exchange = open_boxes(world, device, plan, dtype, transport)
    if transport != "auto":
        assert exchange.transport == transport
    state = device.empty((len(widths) * layout.field_stride,), dtype)
    for turn in range(4):
        before = np.full(len(widths) * layout.field_stride, _UNTOUCHED, dtype)
        after = before.copy()
        x, y, z = (slice(a, b) for a, b in zip(block.start, block.stop, strict=True))
        inside = (slice(_GHOSTS, _GHOSTS + nz), slice(2, 2 + ny), slice(2, 2 + nx))
        for field, width in enumerate(widths):
            begin = field * layout.field_stride
            part = slice(begin, begin + plane * (nz + 4))
            whole = values(blocks.nodes, field, turn, dtype)
            before[part].reshape(nz + 4, rows, pitch)[inside] = whole[z, y, x]
            wanted = after[part].reshape(nz + 4, rows, pitch)
            wanted[inside] = whole[z, y, x]
            for side in SIDES:
                if side in block.neighbours and width:
                    numbers, (bx, by, bz) = beyond(
                        blocks.nodes, block, side.axis, side.direction, width
                    )
                    i, j, k = numbers
                    place = (slice(bz, bz + len(k)), slice(by, by + len(j)), slice(bx, bx + len(i)))
                    wanted[place] = whole[np.ix_(k, j, i)]
        state[...] = device.from_host(before)
        if turn < 2:
            exchange.start(state)
            exchange.finish(state)
        else:
            exchange.swap(state)
        about = (transport, blocks.parts, blocks.periodic, widths, dtype, turn)
        np.testing.assert_array_equal(device.to_host(state), after, err_msg=str(about))


def periodic_axes() -> Iterator[tuple[bool, bool, bool]]:
    """All ways to close a grid on itself or not."""
    yield from itertools.product((False, True), repeat=3)


def main(kind: str, transports: tuple[str, ...]) -> None:
    """Check transports on the ranks that this was started on."""
    world = MpiWorld()
    device = open_device(kind, local_rank=world.local_rank, threads=1)
    count = 0
    for parts, periodic in itertools.product(cuts(world.size), periodic_axes()):
        grid = Blocks(NODES, parts, periodic)
        for name, wide in itertools.product(transports, WIDTHS):
            check(world, device, name, grid, wide, np.float64)
            count += 1
        check(world, device, transports[0], grid, WIDTHS[0], np.float32)
    world.barrier()
    if world.is_root:
        print(f"{count} exchanges were right")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "cpu", tuple(sys.argv[2:]) or ("host", "staged"))
