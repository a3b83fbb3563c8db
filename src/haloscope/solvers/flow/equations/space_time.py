"""Space-time slabs: the flow equations in elements that are linear in space and in time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.solvers.flow.equations.equations import UNKNOWNS, ElementEquations
from haloscope.solvers.flow.equations.newton import Newton, NewtonHistory

SLAB_UNKNOWNS = 2 * UNKNOWNS
"""Of a node: velocity and pressure at the slab's start, seen from above, then those at its end."""


class SlabEquations(ElementEquations):
    """The stabilised equations of one slab; see space_time.hpp."""

    # States are (u, v, w, p) of each node at the slab's start, then at its end, in blocks of 8; the
    # past is (u, v, w) of each node at the end of the slab before, and a number of no meaning. 1
    # over the slab's length in time is both numbers of :meth:`set_time`. Residuals are means over
    # the slab, so that they compare with those of
    # :class:`haloscope.solvers.flow.equations.equations.FlowEquations`.

    source = Path(__file__).with_name("space_time.cpp")
    residuals_kernel, linearise_kernel = "slab_residuals", "linearise_slab"


class SlabEnds:
    """Forces at the end of a slab of :class:`SlabEquations`, as equations with 4 a node."""

    # The residuals of a node at both levels are means over the slab of T_0 and T_1 times the force
    # that holds the flow there. Taken as linear in time, that force is 4 R_1 - 2 R_0 at the end;
    # its mean is R_0 + R_1.

    def __init__(self, equations: SlabEquations) -> None:
        self.device, self._equations = equations.device, equations
        self._both = equations.rows.vector()

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put residuals at the end into an array of 4 a node."""
        self._equations.residual(state, past, self._both)
        levels = self._both.reshape(-1, 2, UNKNOWNS)
        residual[:] = (4.0 * levels[:, 1] - 2.0 * levels[:, 0]).ravel()


class SpaceTimeSlabs:
    """Steps of one slab each; velocities are of third order in time at the ends of slabs.

    Nothing but the velocity at a slab's end goes into the next one, so that a restart needs the
    state alone.
    """

    # `time_step`: dt in s.

    level = 1.0

    def __init__(self, newton: Newton, state: Array, time_step: float) -> None:
        self._newton, self.state, self._time_step = newton, state, time_step
        self.past = state.copy()
        levels = newton.equations.rows.vector()
        levels.reshape(-1, 2, UNKNOWNS)[:] = state.reshape(-1, 1, UNKNOWNS)
        # Unknowns of the last slab, 8 a node, and the state before it, as :class:`SlabEquations`
        # takes them.
        self.level_state = levels

    def stored(self) -> dict[str, Array]:
        """Nothing beside the state."""
        return {}

    def times(self, time: float) -> tuple[float, float]:
        """When :meth:`step` wants given values and loads, for a slab that starts at a time."""
        # At a third of the slab and at its end, the points of Radau's quadrature: the straight line
        # through values there has the right mean over the slab to fourth order. Through those at
        # the slab's two ends it would leave second order.
        return time + self._time_step / 3, time + self._time_step

    def step(
        self, fixed: NDArray[np.integer], values: Array, load: Array | None = None
    ) -> NewtonHistory:
        """Advance by one slab.

        `values`: these values at both :meth:`times`, (2, given), on the device; `load`: what acts
        on own elements from outside at both times, (2, 4 * nodes), on the device.
        """
        by_dt = 1.0 / self._time_step
        self._newton.equations.set_time(by_dt, by_dt)
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
