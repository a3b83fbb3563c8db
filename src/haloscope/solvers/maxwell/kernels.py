"""The kernels of a Maxwell case, all asked for without a field being filled."""

from __future__ import annotations

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.krylov import KrylovSpace
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.solver import MaxwellSolver


class _Unfilled(MaxwellSolver):
    """The solver without its fields: on a device that runs nothing they would be no numbers."""

    def _set_initial(self) -> None:
        self._has_initial_field = True

    def _find_bound(self) -> float:
        KrylovSpace(self._device, 1, 1, self.dtype)
        return self._with_additions(self._guess_bound())


def ask_for_kernels(case: MaxwellCase, device: Device, world: World) -> None:
    """Ask a device for every kernel that a rank of a case needs; for a device that runs none."""
    _Unfilled(case, device, world)
