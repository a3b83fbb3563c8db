"""The exchange of a block's halo: packed, or, for studies, as programs send it before they pack.

The rungs are those of Xue and Roy, section 4.5: nothing packed and all fields as wide as the widest
(baseline); the fastest direction packed (V1); the same with each field as wide as its stencil needs
(V2); all directions packed (V3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from haloscope.device.interface import Array, Device
from haloscope.exchange.choice import open_exchange
from haloscope.exchange.packed import Exchange
from haloscope.exchange.ranks.world import World
from haloscope.exchange.unpacked import SeveralExchanges, UnpackedExchange
from haloscope.mesh.grid.blocks import Block
from haloscope.mesh.grid.halo import Layout, halo_plan

PACKED_AXES = {"auto": (0, 1, 2), "all": (0, 1, 2), "x": (0,), "none": ()}


class Choices(Protocol):
    """What a case's machine table says about exchanges."""

    @property
    def transport(self) -> str:
        """Name of a transport, or auto."""

    @property
    def packing(self) -> str:
        """Directions that are packed: auto (all), all, x or none."""

    @property
    def widths(self) -> str:
        """Layers: as fields need, or uniform."""

    @property
    def graphs(self) -> bool:
        """Whether steps are to be replayed as graphs."""


def open_halo(
    world: World,
    device: Device,
    block: Block,
    layout: Layout,
    widths: Sequence[int],
    states: Sequence[Array],
    choices: Choices,
    *,
    stream: Any = None,
    log: Callable[[str], None] | None = None,
) -> Exchange | SeveralExchanges | UnpackedExchange | None:
    """Open the exchange that fills a block's ghost layers; all ranks call this."""
    if choices.widths == "uniform":
        widths = [max(widths)] * len(widths)
    packed = PACKED_AXES[choices.packing]
    bare = tuple(axis for axis in range(3) if axis not in packed)
    plans = [halo_plan(block, layout, widths, axes) for axes in (packed, bare)]
    counts = [world.any(bool(plan.sends or plan.receives)) for plan in plans]
    dtype = states[0].dtype
    parts: list[Any] = []
    if counts[0]:
        parts.append(
            open_exchange(
                world,
                device,
                plans[0],
                dtype,
                choices.transport,
                state=states[1],
                stream=stream,
                graphs=choices.graphs,
                log=log,
            )
        )
    if counts[1]:
        name = choices.transport
        if name == "auto":
            name = "host" if device.kind == "cpu" else "staged"
        parts.append(UnpackedExchange(world, device, plans[1], dtype, name, states, stream))
    if len(parts) > 1:
        return SeveralExchanges(parts)
    return parts[0] if parts else None
