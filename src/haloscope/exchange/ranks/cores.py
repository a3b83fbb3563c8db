"""How many threads a rank takes of the cores that it was given, alone or together with others."""

from __future__ import annotations

import os
import platform

from haloscope.device.cpu import available_cores
from haloscope.exchange.ranks.world import World


def threads_of_rank(world: World) -> int:
    """Threads of this rank where nothing says how many; all ranks call this.

    Returns: what ``OMP_NUM_THREADS`` says; else this rank's part of the cores that it may run on,
    at least 1.
    """
    # Launchers give each rank cores of its own, or let all that they start on a host run on all of
    # its cores. Then these share them: more threads than cores hold each other up at the end of
    # every loop.
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    # Hosts may have the same name, but not the same memory.
    together = min(world.sharing(f"{platform.node()} cores {cores}"), world.local_size)
    variable = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if variable.isdigit() and int(variable) > 0:
        return int(variable)
    return max(1, available_cores() // together)
