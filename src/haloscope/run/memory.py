"""Whether a case fits into memory, seen before anything is allocated."""

from __future__ import annotations

from haloscope.case import CaseTable
from haloscope.device.interface import Device
from haloscope.errors import MachineError
from haloscope.exchange.world import World
from haloscope.solvers import registry


def require_memory(case: CaseTable, device: Device, world: World) -> None:
    """Refuse on all ranks, before anything is allocated, a case that cannot fit on one."""
    needed = registry.estimate(case)["memory_bytes"] / world.size
    free, _ = device.memory()
    # Together: none allocates before all have seen what is free.
    least = -world.largest(-free / world.sharing(device.identity))
    if needed > least:
        raise MachineError(
            f"the case needs about {needed / 1e9:.3g} GB a rank but {least / 1e9:.3g} "
            f"GB are free on {device.name}; use fewer nodes, more ranks or single precision"
        )
