"""Steps in time by backward differences of second order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.solvers.flow.equations import UNKNOWNS
from haloscope.solvers.flow.newton import Newton, NewtonHistory

Floats = NDArray[np.float64]


class BackwardDifferences:
    """du/dt = (3 u - 4 u_n + u_(n-1)) / (2 dt); where there is no u_(n-1), (u - u_n) / dt.

    Parameters
    ----------
    newton
        Solves for each step's end.
    state
        Velocity and pressure of the nodes at the start, flat, 4 a node, on the device; steps change
        it in place.
    time_step
        dt in s.
    before
        Velocities a step before the start, 3 a node, if they are known.
    """

    def __init__(
        self, newton: Newton, state: Array, time_step: float, before: Array | None = None
    ) -> None:
        self._newton, self.state, self._by_dt = newton, state, 1.0 / time_step
        self._before = before
        self._last = self._velocities()

    def _velocities(self) -> Array:
        return self.state.reshape(-1, UNKNOWNS)[:, :3].copy().ravel()

    def step(self, given: NDArray[np.integer], values: Array) -> NewtonHistory:
        """Advance by one time step.

        Parameters
        ----------
        given
            Numbers 4 * node + unknown of what is given at the step's end.
        values
            These values, on the device.
        """
        if self._before is None:
            alpha, past = self._by_dt, -self._by_dt * self._last
        else:
            alpha = 1.5 * self._by_dt
            past = self._by_dt * (0.5 * self._before - 2.0 * self._last)
        self._newton.equations.set_time(alpha, self._by_dt)
        self.state[given] = values
        history = self._newton.solve(self.state, past, given)
        self._before, self._last = self._last, self._velocities()
        return history
