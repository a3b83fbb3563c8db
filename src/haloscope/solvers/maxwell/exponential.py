"""Steps of any length by the exponential of the operator, in a Krylov space."""

from __future__ import annotations

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.krylov import KrylovSpace
from haloscope.solvers.maxwell.stepping import Stepping


class ExponentialSteps:
    """Takes steps ``u <- exp(dt A) u``, exact but for the Krylov space and the mesh.

    Sums over ranks enter, so fields depend on the number of ranks in their last bits.
    """

    def __init__(
        self, stepping: Stepping, device: Device, world: World, dimension: int, tolerance: float
    ) -> None:
        self._stepping, self._tolerance = stepping, tolerance
        fields = stepping.fields
        self._space = KrylovSpace(device, len(fields), dimension, fields.dtype, world)
        self._state = device.zeros((len(fields),), fields.dtype)
        self.substeps = 0

    def advance(self, steps: int, dt: float) -> None:
        """Take steps; a step whose error would be too large is cut."""
        stepping = self._stepping
        self._state[:] = stepping.fields
        for _ in range(steps):
            substeps, _ = self._space.exponential(
                stepping.right_hand_side, self._state, dt, self._tolerance
            )
            self.substeps += substeps
        stepping.fields[:] = self._state
        stepping.renew_traces()
