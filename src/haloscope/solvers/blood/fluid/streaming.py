"""How populations stream on a GPU, in place or between two buffers, as a case and its memory allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.solvers.blood.fluid.d3q19 import DIRECTIONS
from haloscope.solvers.blood.fluid.gpu_layout import (
    KernelVariant,
    faster_in_place,
    fastest_way,
    room_for_two,
)

Streaming = Literal["auto", "in place", "two buffers", "push"]


def choose_way(
    device: Device,
    world: World,
    streaming: Streaming,
    points: int,
    itemsize: int,
    log: Callable[[str], None],
    beside: float = 0.0,
    links: bool = False,
) -> KernelVariant:
    """Choose the way through a step, the same on all ranks; all ranks call this.

    `itemsize`: bytes of a stored value; `beside`: bytes that a rank needs for all else, cells
    included.
    """
    if device.kind == "cpu":
        if streaming in ("two buffers", "push"):
            raise InputError(
                f'blood.streaming = "{streaming}" is for GPUs; cores stream "in place": leave it '
                'out, give "auto", or run with --device cuda'
            )
        return fastest_way(itemsize)
    if streaming != "auto":
        log(f"populations stream {_said(streaming)}, as the case has it")
        if streaming == "push":
            return KernelVariant(buffers=2, pushing=True)
        return fastest_way(itemsize, 2 if streaming == "two buffers" else 1)
    sharing = world.sharing(device.identity)
    free = device.memory()[0]
    scarce = world.any(not room_for_two(free, points, itemsize, sharing, beside))
    buffer = world.largest(float(DIRECTIONS * points * itemsize))
    takes = f"a buffer takes {buffer / 1e9:.3g} GB at most"
    cache = -world.largest(-device.cache_bytes / sharing)
    if not scarce and not links and faster_in_place(cache, buffer):
        log(
            f"populations stream in place: {takes}, and of a cache of {cache / 1e9:.2g} GB more is then of use"
        )
        return fastest_way(itemsize, 1)
    chosen = "in place" if scarce else "two buffers"
    least = -world.largest(-free / sharing)
    log(
        f"populations stream {_said(chosen)}: {takes}, "
        f"{least / 1e9:.3g} GB at least are free for a rank, all else takes about {beside / 1e9:.3g} GB"
    )
    return fastest_way(itemsize, 1 if scarce else 2)


def _said(streaming: str) -> str:
    if streaming == "push":
        return "by a push between two buffers"
    return "between two buffers" if streaming == "two buffers" else streaming
