"""Steps in time by the generalised-alpha method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError
from haloscope.solvers.flow.newton import Newton, NewtonHistory
from haloscope.solvers.flow.stepping import velocities


class GeneralisedAlpha:
    """Equations hold between two ends of a step: du/dt at a_m of it, all else at a_f.

    `time_step`: dt in s; `radius`: r, from 0 (nothing is left of short waves after a step) to 1
    (they live on).
    """

    # a_m = (3 - r)/(2 (1 + r)), a_f = 1/(1 + r), gamma = 1/2 + a_m - a_f: second order, and waves too
    # short for the time step fall by r each (K. E. Jansen, C. H. Whiting, G. M. Hulbert, Comput.
    # Methods Appl. Mech. Eng. 190 (2000) 305, eqs. 16 to 20). Pressure belongs to a_f as well, and is
    # led on to the step's end by p = p_n + (p_af - p_n)/a_f; taken for the end's as it is, it would
    # be of first order (J. Liu, I. S. Lan, O. Z. Tikenogullari, A. L. Marsden, Int. J. Numer. Methods
    # Eng. 122 (2021) 638).
    #
    # With x the velocity at a_f, u_(n+1) = u_n + (x - u_n)/a_f and
    #
    #     du/dt = a_m/(a_f gamma dt) (x - u_n) + (1 - a_m/gamma) (du/dt)_n
    #
    # so that one Newton solution for x and p makes a step. Where no acceleration is known the first
    # step is one of backward Euler, which leaves errors of second order.

    def __init__(
        self,
        newton: Newton,
        state: Array,
        time_step: float,
        radius: float = 0.2,
        acceleration: Array | None = None,
    ) -> None:
        if not 0.0 <= radius <= 1.0:
            raise InputError(
                f"a spectral radius of {radius:g} is not possible for generalised-alpha; give a "
                "number from 0 to 1"
            )
        # See :class:`haloscope.solvers.flow.stepping.TimeSteps`.
        self._newton, self.state, self._by_dt = newton, state, 1.0 / time_step
        self._a_m, self._a_f = (3 - radius) / (2 * (1 + radius)), 1 / (1 + radius)
        self._gamma = 0.5 + self._a_m - self._a_f
        self._acceleration = acceleration
        self.level_state = state.copy()
        self.past = 0.0 * velocities(state)

    @property
    def level(self) -> float:
        """a_f; 1 in a first step of backward Euler."""
        return 1.0 if self._acceleration is None else self._a_f

    def stored(self) -> dict[str, Array]:
        """du/dt, once it is known."""
        return {} if self._acceleration is None else {"acceleration": self._acceleration}

    def step(
        self, fixed: NDArray[np.integer], values: Array, load: Array | None = None
    ) -> NewtonHistory:
        """See :class:`haloscope.solvers.flow.stepping.TimeSteps`."""
        level, state, before = self.level, self.level_state, velocities(self.state)
        if self._acceleration is None:
            alpha, self.past = self._by_dt, -self._by_dt * before
        else:
            alpha = self._a_m / (self._a_f * self._gamma) * self._by_dt
            kept = 1.0 - self._a_m / self._gamma
            self.past = kept * self._acceleration - alpha * before
        state[...] = self.state
        state[fixed] += level * (values - self.state[fixed])
        self._newton.equations.set_time(alpha, self._by_dt)
        history = self._newton.solve(state, self.past, fixed, load)
        self.state += (state - self.state) / level
        self.state[fixed] = values
        change = self._by_dt * (velocities(self.state) - before)
        if self._acceleration is None:
            self._acceleration = change
        else:
            gamma = self._gamma
            self._acceleration = change / gamma + (1.0 - 1.0 / gamma) * self._acceleration
        return history
