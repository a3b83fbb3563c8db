"""Which nodes a step computes first, since neighbours wait for them, and which meanwhile."""

from __future__ import annotations

from haloscope.mesh.grid.blocks import Side, Triple
from haloscope.solvers.cavity import gpu_tiles
from haloscope.solvers.cavity.block_nodes import GHOSTS, BlockNodes, NodeBox

# Nodes of a GPU's boundary along rows, across them and in planes, and planes of a march that is fast.
_GPU_DEPTHS = (128, 32, 48)
_GPU_PLANES = 8
_PORTIONS = 8


def split(
    nodes: BlockNodes, device_kind: str, *, tested: bool
) -> tuple[list[NodeBox], list[NodeBox]]:
    """Boxes of the nodes that a step updates."""
    start, stop = nodes.updated()
    shells: list[NodeBox] = []
    low, high = list(start), list(stop)
    axes = nodes.layout.axes
    for axis in reversed(axes):
        cut = [d for d in (-1, 1) if Side(axis, d) in nodes.block.neighbours]
        for direction in cut:
            begin, end = low.copy(), high.copy()
            here = high[axis] - low[axis]
            depth = _depth(nodes, device_kind, Side(axis, direction), here, len(cut))
            if direction < 0:
                end[axis] = low[axis] = begin[axis] + depth
            else:
                begin[axis] = high[axis] = end[axis] - depth
            if all(b > a for a, b in zip(begin, end, strict=True)):
                shells.append((_triple(begin), _triple(end)))
    if any(b <= a for a, b in zip(low, high, strict=True)):
        return shells, []
    if tested and device_kind == "cpu":
        return shells, _portions(low, high, axis=axes[nodes.dimensions - 1])
    return shells, [(_triple(low), _triple(high))]


def _depth(nodes: BlockNodes, device_kind: str, side: Side, here: int, cuts: int) -> int:
    """Nodes next to a side that are computed before messages leave, of those that are here.

    Cores take no more than messages hold. A GPU takes what it computes at full speed: whole
    tiles, and a good part of a march from plane to plane.
    """
    if device_kind == "cpu" or nodes.dimensions == 2:
        return min(GHOSTS, here)
    share = here // (cuts + 1)
    tile = gpu_tiles.TILES[nodes.real]
    place = nodes.layout.axes.index(side.axis)
    unit = (tile.x, tile.y, _GPU_PLANES)[place]
    wanted = min(_GPU_DEPTHS[place], share) // unit * unit
    # Rows of tiles begin at whole cache lines: a shell at the upper end takes what is left.
    left = (here - wanted) // unit * unit
    depth = here - left if place == 0 and side.direction > 0 else wanted
    return here if wanted == 0 or here - depth < unit else depth


def _portions(low: list[int], high: list[int], *, axis: int) -> list[NodeBox]:
    """A box in parts along an axis."""
    nodes = high[axis] - low[axis]
    parts = max(1, min(_PORTIONS, nodes // 4))
    portions = []
    for part in range(parts):
        begin, end = list(low), list(high)
        begin[axis] = low[axis] + nodes * part // parts
        end[axis] = low[axis] + nodes * (part + 1) // parts
        portions.append((_triple(begin), _triple(end)))
    return portions


def _triple(numbers: list[int]) -> Triple:
    return (numbers[0], numbers[1], numbers[2])
