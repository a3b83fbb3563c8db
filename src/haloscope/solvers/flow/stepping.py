"""Steps in time: what every method offers, and backward differences of second order."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.solvers.flow.equations import UNKNOWNS
from haloscope.solvers.flow.newton import Newton, NewtonHistory


class TimeSteps(Protocol):
    """What every method offers."""

    # Velocity and pressure of the nodes at the end of the last step, flat, 4 a node, on the device;
    # always the same array.
    state: Array
    # State and part of the time derivative with which the equations held in the last step; see
    # :meth:`haloscope.solvers.flow.equations.FlowEquations.residual`.
    past: Array

    @property
    def level(self) -> float:
        """See above."""

    @property
    def level_state(self) -> Array:
        """See above."""

    def step(
        self, fixed: NDArray[np.integer], values: Array, load: Array | None = None
    ) -> NewtonHistory:
        """Advance by one time step."""

    def stored(self) -> dict[str, Array]:
        """What a restart needs beside the state: arguments of the class, 3 numbers a node each."""


def velocities(state: Array) -> Array:
    """A copy of the velocities alone, 3 a node, of a state with 4 a node."""
    return state.reshape(-1, UNKNOWNS)[:, :3].copy().ravel()


class BackwardDifferences:
    """du/dt = (3 u - 4 u_n + u_(n-1)) / (2 dt); where there is no u_(n-1), (u - u_n) / dt.

    `time_step`: dt in s; `step_before`: length of that step in s; dt when left out.
    """

    # That first step of backward Euler misses u by dt^2/2 of its second derivative, once: errors
    # remain of second order. So they do where the step before was of another length: with
    # w = dt / (its length), the parabola through all three values rises at the step's end by
    #
    #     du/dt = ((1 + 2 w)/(1 + w) u - (1 + w) u_n + w^2/(1 + w) u_(n-1)) / dt
    #
    # (E. Hairer, S. P. Norsett, G. Wanner, Solving Ordinary Differential Equations I, 1993, section
    # III.5), which is the above at w = 1, to the last bit.

    level = 1.0

    def __init__(
        self,
        newton: Newton,
        state: Array,
        time_step: float,
        before: Array | None = None,
        step_before: float | None = None,
    ) -> None:
        # See :class:`TimeSteps`.
        self._newton, self.state, self._by_dt = newton, state, 1.0 / time_step
        self._before = before
        self._ratio = 1.0 if step_before is None else time_step / step_before
        self._last = velocities(state)
        self.past = 0.0 * self._last

    @property
    def level_state(self) -> Array:
        """Equations hold at the step's end."""
        return self.state

    def stored(self) -> dict[str, Array]:
        """Velocities a step before, once there are some."""
        return {} if self._before is None else {"before": self._before}

    def step(
        self, fixed: NDArray[np.integer], values: Array, load: Array | None = None
    ) -> NewtonHistory:
        """See :class:`TimeSteps`."""
        if self._before is None:
            alpha, self.past = self._by_dt, -self._by_dt * self._last
        else:
            w = self._ratio
            alpha = (1.0 + 2.0 * w) / (1.0 + w) * self._by_dt
            self.past = self._by_dt * (w * w / (1.0 + w) * self._before - (1.0 + w) * self._last)
        self._newton.equations.set_time(alpha, self._by_dt)
        self.state[fixed] = values
        history = self._newton.solve(self.state, self.past, fixed, load)
        self._before, self._last = self._last, velocities(self.state)
        self._ratio = 1.0
        return history
