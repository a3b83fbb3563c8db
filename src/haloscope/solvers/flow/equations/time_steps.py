"""Time stepping of unsteady flow: clock, backward differences, generalised alpha, space-time slabs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.equations.equations import SLAB_UNKNOWNS, UNKNOWNS
from haloscope.solvers.flow.equations.newton import Newton, NewtonHistory

Numbers = NDArray[np.integer]
# Of a step: what sums of steps may miss the end of a case by.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Clock:
    """Steps of one length since a step."""

    time_step: float  # Their length in s
    asked: float  # The case's own in s, of which that is as much as meets the end
    last_step: int  # That at the end of the case
    # Step after which they are so long, and its time in s.
    since: int = 0
    begun: float = 0.0

    @classmethod
    def of(cls, table: FlowTable) -> Clock:
        """From the start of a case of unsteady flow on."""
        asked, end = _asked(table)
        steps = table.steps()
        return cls(end / steps, asked, steps)

    def at(self, step: int) -> float:
        """Time in s after a step."""
        return self.begun + (step - self.since) * self.time_step

    def scalars(self) -> dict[str, float]:
        """Scalars for a restart."""
        return {
            "dt": self.time_step,
            "asked": self.asked,
            "since": float(self.since),
            "begun": self.begun,
        }

    @classmethod
    def resumed(cls, scalars: Mapping[str, float], step: int, table: FlowTable) -> Clock:
        """Clock of a restart after a step."""
        # Where the steps of the checkpoint meet the case's end, and are as many as the case asks
        # for, they go on to the last bit. Else what is left is divided anew, from the checkpoint's
        # time on; past the end there is nothing to divide, and steps are as long as the case says.
        asked, end = _asked(table)
        time_step = scalars["dt"]
        since, begun = int(scalars.get("since", 0)), scalars.get("begun", 0.0)
        own = cls.of(table).time_step == time_step
        asked_before = scalars.get("asked", asked if own else time_step)
        now = cls(time_step, asked_before, 0, since, begun).at(step)
        left = (end - now) / time_step
        same = step + round(left)
        if left <= _ROUNDING:
            if asked == asked_before:
                return cls(time_step, asked, same, since, begun)
            return cls(asked, asked, same, step, now)
        steps = max(1, math.ceil((end - now) / asked - _ROUNDING))
        if step + steps == same and abs(left - round(left)) <= _ROUNDING:
            return cls(time_step, asked, same, since, begun)
        return cls((end - now) / steps, asked, step + steps, step, now)


def _asked(table: FlowTable) -> tuple[float, float]:
    """The time step that a case of unsteady flow gives, and its end, in s."""
    time_step, end = table.time.time_step, table.time.end
    assert time_step is not None
    assert end is not None
    return time_step, end


class TimeSteps(ABC):
    """Steps of a method; `time_step`: dt in s.

    `state`: velocity and pressure of the nodes at the end of the last step, flat, 4 a node, on the
    device; always the same array.
    """

    # State and part of the time derivative with which the equations held in the last step; see
    # :meth:`haloscope.solvers.flow.equations.equations.FlowEquations.residual`.
    level_state: Array
    past: Array

    def __init__(self, newton: Newton, state: Array, time_step: float) -> None:
        self._newton, self.state, self._by_dt = newton, state, 1.0 / time_step
        self.level_state = state

    @property
    def level(self) -> float:
        """Part of a step after which its equations hold."""
        return 1.0

    @abstractmethod
    def step(self, fixed: Numbers, values: Array, load: Array | None = None) -> NewtonHistory:
        """Advance by one time step."""

    def stored(self) -> dict[str, Array]:
        """State for a restart beside the fields: arguments of the class, 3 numbers a node each."""
        return {}


def velocities(state: Array) -> Array:
    """A copy of the velocities alone, 3 a node, of a state with 4 a node."""
    return state.reshape(-1, UNKNOWNS)[:, :3].copy().ravel()


class BackwardDifferences(TimeSteps):
    """du/dt = (3 u - 4 u_n + u_(n-1)) / (2 dt); where there is no u_(n-1), (u - u_n) / dt.

    `step_before`: length of that step in s; dt when left out.
    """

    # That first step of backward Euler misses u by dt^2/2 of its second derivative, once: errors
    # remain of second order. So they do where the step before was of another length: with
    # w = dt / (its length), the parabola through all three values rises at the step's end by
    #
    #     du/dt = ((1 + 2 w)/(1 + w) u - (1 + w) u_n + w^2/(1 + w) u_(n-1)) / dt
    #
    # (E. Hairer, S. P. Norsett, G. Wanner, Solving Ordinary Differential Equations I, 1993, section
    # III.5), which is the above at w = 1, to the last bit.

    def __init__(
        self,
        newton: Newton,
        state: Array,
        time_step: float,
        before: Array | None = None,
        step_before: float | None = None,
    ) -> None:
        super().__init__(newton, state, time_step)
        self._before = before
        self._ratio = 1.0 if step_before is None else time_step / step_before
        self._last = velocities(state)
        self.past = 0.0 * self._last

    def stored(self) -> dict[str, Array]:
        """Velocities a step before, once there are some."""
        return {} if self._before is None else {"before": self._before}

    def step(self, fixed: Numbers, values: Array, load: Array | None = None) -> NewtonHistory:
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


class GeneralisedAlpha(TimeSteps):
    """Equations hold between two ends of a step: du/dt at a_m of it, all else at a_f.

    `radius`: r, from 0 (nothing is left of short waves after a step) to 1
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
        super().__init__(newton, state, time_step)
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

    def step(self, fixed: Numbers, values: Array, load: Array | None = None) -> NewtonHistory:
        """See :class:`haloscope.solvers.flow.equations.time_steps.TimeSteps`."""
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


"""Space-time slabs: the flow equations in elements that are linear in space and in time."""


class SpaceTimeSlabs(TimeSteps):
    """Steps of one slab each; velocities are of third order in time at the ends of slabs.

    Nothing but the velocity at a slab's end goes into the next one, so that a restart needs the
    state alone.
    """

    def __init__(self, newton: Newton, state: Array, time_step: float) -> None:
        super().__init__(newton, state, time_step)
        self._time_step = time_step
        self.past = state.copy()
        levels = newton.equations.rows.vector()
        levels.reshape(-1, 2, UNKNOWNS)[:] = state.reshape(-1, 1, UNKNOWNS)
        # Unknowns of the last slab, 8 a node, and the state before it, as :class:`SlabEquations`
        # takes them.
        self.level_state = levels

    def times(self, time: float) -> tuple[float, float]:
        """When :meth:`step` wants given values and loads, for a slab that starts at a time."""
        # At a third of the slab and at its end, the points of Radau's quadrature: the straight line
        # through values there has the right mean over the slab to fourth order. Through those at
        # the slab's two ends it would leave second order.
        return time + self._time_step / 3, time + self._time_step

    def step(self, fixed: Numbers, values: Array, load: Array | None = None) -> NewtonHistory:
        """Advance by one slab.

        `values`: these values at both :meth:`times`, (2, given), on the device; `load`: what acts
        on own elements from outside at both times, (2, 4 * nodes), on the device.
        """
        self._newton.equations.set_time(self._by_dt, self._by_dt)
        self.past[:] = self.state
        levels = self.level_state.reshape(-1, 2, UNKNOWNS)
        levels[:] = self.state.reshape(-1, 1, UNKNOWNS)
        nodes, unknowns = np.divmod(np.asarray(fixed), UNKNOWNS)
        at_start = SLAB_UNKNOWNS * nodes + unknowns
        start, end = _levels(values)
        self.level_state[at_start], self.level_state[at_start + UNKNOWNS] = start, end
        fixed = np.concatenate([at_start, at_start + UNKNOWNS])
        acting = None if load is None else self._means(load)
        history = self._newton.solve(self.level_state, self.past, fixed, acting)
        self.state[:] = levels[:, 1].ravel()
        return history

    def _means(self, load: Array) -> Array:
        """Means over the slab of a load times T_0 and T_1, 8 a node."""
        start, end = (part.reshape(-1, UNKNOWNS) for part in _levels(load))
        means = self._newton.equations.rows.vector()
        levels = means.reshape(-1, 2, UNKNOWNS)
        levels[:, 0], levels[:, 1] = start / 3 + end / 6, start / 6 + end / 3
        return means


def _levels(values: Array) -> tuple[Array, Array]:
    """Values at a slab's start and end, from those at a third of it and at its end."""
    return 1.5 * values[0] - 0.5 * values[1], values[1]
