"""Times blocks of whole steps on all ranks, for benchmarks of steps."""

from __future__ import annotations

import time
from collections.abc import Callable

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World

REPEATS = 7


def step_times(
    world: World, device: Device, advance: Callable[[int], None], steps: int
) -> list[float]:
    """Seconds of a step on the slowest rank, in each of seven blocks of steps."""
    times = []
    for _ in range(REPEATS):
        device.synchronise()
        world.barrier()
        begun = time.perf_counter()
        advance(steps)
        device.synchronise()
        times.append(world.largest(time.perf_counter() - begun) / steps)
    return times
