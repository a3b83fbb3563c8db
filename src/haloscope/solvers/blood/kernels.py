"""The kernels of a blood case, all asked for without a field being filled."""

from __future__ import annotations

from haloscope.device.interface import Device
from haloscope.exchange.world import World
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.solver import BloodSolver


class _Unfilled(BloodSolver):
    """The solver without its fields: on a device that runs nothing they would be no numbers."""

    def _set_initial(self) -> None:
        pass


def ask_for_kernels(case: BloodCase, device: Device, world: World) -> None:
    """Ask a device for every kernel that a rank of a case needs; for a device that runs none."""
    _Unfilled(case, device, world)
