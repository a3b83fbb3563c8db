"""The kernels of a cavity case, all asked for without a field being filled."""

from __future__ import annotations

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.solvers.cavity.case import CavityCase
from haloscope.solvers.cavity.solver import CavitySolver


class _Unfilled(CavitySolver):
    """The solver of a grid of any size, in no time and no memory on a device without any."""

    def _set_initial(self) -> None:
        pass


def ask_for_kernels(case: CavityCase, device: Device, world: World) -> None:
    """Ask a device for every kernel that a rank of a case needs; for a device that runs none."""
    _Unfilled(case, device, world)
