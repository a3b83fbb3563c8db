"""Whether a case fits into memory, seen before anything is allocated."""

from __future__ import annotations

from haloscope.case.tables import CaseTable
from haloscope.device.interface import Device
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.solvers import registry


def require_memory(case: CaseTable, device: Device, world: World) -> None:
    """Refuse on all ranks, before anything is allocated, a case that cannot fit on one."""
    needed, free = needed_and_free(case, device, world)
    if needed > free:
        more = "hosts" if device.kind == "cpu" else "GPUs"
        raise MachineError(
            f"the case needs about {needed / 1e9:.3g} GB a rank but {free / 1e9:.3g} "
            f"GB are free on {device.name}; use a coarser grid or mesh, ranks on more {more}, or "
            "single precision where the solver has it"
        )


def needed_and_free(case: CaseTable, device: Device, world: World) -> tuple[float, float]:
    """Bytes that a rank needs, and that are free for the rank that has least; all ranks call this.

    None returns before all have seen what is free.
    """
    estimate = registry.estimate(case)
    needed = estimate["memory_bytes"]
    if device.kind == "cpu":
        needed += estimate.get("host_bytes", 0.0)
    free, _ = device.memory()
    return needed / world.size, -world.largest(-free / world.sharing(device.identity))
