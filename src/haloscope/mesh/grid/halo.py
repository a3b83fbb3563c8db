"""The halo plan of a Cartesian block: layers next to each cut, as wide as each field's stencil."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haloscope.errors import InputError
from haloscope.exchange.plan import Box, Message, Plan
from haloscope.mesh.grid.blocks import SIDES, Block, Side, Triple


@dataclass(frozen=True)
class Layout:
    """How the fields of a block lie in one flat array."""

    shape: Triple  # Owned nodes along x, y, z
    strides: Triple  # Distance between neighbours along x, y, z, in values
    first: int  # Index of the first owned node within a field
    field_stride: int  # Distance between the starts of two fields
    ghosts: Triple  # Ghost layers that are allocated around the owned nodes along x, y, z
    # Axes from the one whose nodes lie side by side in memory to the one whose nodes lie furthest
    # apart; of one order on all ranks.
    axes: Triple = (0, 1, 2)


def halo_plan(
    block: Block, layout: Layout, widths: Sequence[int], axes: Sequence[int] = (0, 1, 2)
) -> Plan:
    """Plan that fills the ghost layers of a block from its neighbours, sides only.

    Edges and corners stay as they are: star stencils do not read them.
    """
    for side in block.neighbours:
        thickness = min(layout.ghosts[side.axis], layout.shape[side.axis])
        if max(widths) > thickness:
            raise InputError(
                f"a halo {max(widths)} layers wide does not fit: along {'xyz'[side.axis]} a "
                f"block has {layout.shape[side.axis]} nodes and {layout.ghosts[side.axis]} ghost "
                "layers; use fewer ranks along this axis"
            )
    sends: dict[int, list[Box]] = {}
    receives: dict[int, list[Box]] = {}
    for side in SIDES:
        if side.axis not in axes:
            continue
        if side in block.neighbours:
            other = block.neighbours[side]
            sends.setdefault(other, []).extend(_layers(layout, side, widths, inside=True))
        # A message is packed in the order of the sender's sides, so the receiver goes through
        # the sides that face them.
        if side.opposite in block.neighbours:
            other = block.neighbours[side.opposite]
            boxes = _layers(layout, side.opposite, widths, inside=False)
            receives.setdefault(other, []).extend(boxes)

    def messages(lists: dict[int, list[Box]]) -> tuple[Message, ...]:
        return tuple(Message(rank, tuple(lists[rank])) for rank in sorted(lists) if lists[rank])

    return Plan(messages(sends), messages(receives))


def _layers(layout: Layout, side: Side, widths: Sequence[int], *, inside: bool) -> list[Box]:
    """Boxes, one a field: the owned layers at a side, or the ghost layers beyond it."""
    boxes = []
    for field, width in enumerate(widths):
        if width == 0:
            continue
        counts = list(layout.shape)
        counts[side.axis] = width
        if side.direction < 0:
            start = 0 if inside else -width
        else:
            start = layout.shape[side.axis] - (width if inside else 0)
        first = field * layout.field_stride + layout.first + start * layout.strides[side.axis]
        # A long direction goes innermost: along rows unless these are cut.
        a, b, c = layout.axes
        if side.axis == a:
            a, b, c = b, c, a
        boxes.append(
            Box(
                first,
                (counts[a], counts[b], counts[c]),
                (layout.strides[a], layout.strides[b], layout.strides[c]),
            )
        )
    return boxes
