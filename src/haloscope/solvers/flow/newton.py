"""Newton's method on the flow equations, with velocities and pressures that are given in places."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.errors import SolutionError
from haloscope.numerics.flexible_gmres import FlexibleGmres, LinearSolution, Preconditioner
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.solvers.flow.equations import UNKNOWNS, FlowEquations


class Updated(Preconditioner, Protocol):
    """A preconditioner that follows the matrix."""

    def update(self) -> None:
        """Take the matrix as it is now."""


@dataclass(frozen=True)
class NewtonSettings:
    """When Newton's method, and the linear solver in it, end.

    Attributes
    ----------
    iterations
        Most of them; at a tolerance of 0 so many are done.
    tolerance
        Of the residual's length over that at the start of the first step.
    linear_tolerance, linear_iterations, restart
        Of flexible GMRES: residual over that at its start.
    """

    iterations: int = 4
    tolerance: float = 0.0
    linear_tolerance: float = 1e-2
    linear_iterations: int = 300
    restart: int = 60


@dataclass
class NewtonHistory:
    """How a solution went.

    Attributes
    ----------
    residuals
        Lengths, before each iteration and after the last.
    linear
        Of each iteration.
    """

    residuals: list[float] = field(default_factory=list)
    linear: list[LinearSolution] = field(default_factory=list)


class Newton:
    """Solves for the state at which the residual vanishes where nothing is given.

    Parameters
    ----------
    equations, shared
        What to solve, and who shares which nodes.
    preconditioner
        Of the equations' matrix.
    settings
        When to end.

    Attributes
    ----------
    equations
        As given.
    """

    def __init__(
        self,
        equations: FlowEquations,
        shared: SharedNodes,
        preconditioner: Updated,
        settings: NewtonSettings,
    ) -> None:
        self.equations, self._shared, self._settings = equations, shared, settings
        self._preconditioner = preconditioner
        rows = equations.rows
        self._product = SharedProduct(rows, shared)
        self._sums = None if shared.alone else shared.sums(UNKNOWNS)
        owned = shared.owned
        self._gmres = FlexibleGmres(
            rows.device, UNKNOWNS, owned, settings.restart, None if shared.alone else shared.world
        )
        self._residual, self._change = rows.vector(), rows.vector()
        self._counts = rows.device.from_host(np.repeat(owned, UNKNOWNS).astype(np.float64))

    def solve(
        self,
        state: Array,
        past: Array,
        fixed: NDArray[np.integer],
        load: Array | None = None,
    ) -> NewtonHistory:
        """Bring a state to where the equations hold; given values are in it from the start.

        Parameters
        ----------
        state
            Start and result, 4 numbers a node.
        past
            See :meth:`FlowEquations.residual`.
        fixed
            Numbers 4 * node + unknown of what is given.
        load
            What acts on own elements from outside, added to the residual, 4 a node.

        Raises
        ------
        SolutionError
            The state or the residual is no number any more.
        """
        settings, device = self._settings, self.equations.device
        given = device.from_host(np.asarray(fixed, np.int64))
        history = NewtonHistory()
        for number in range(settings.iterations + 1):
            last = number == settings.iterations
            if last:
                self.equations.residual(state, past, self._residual)
            else:
                self.equations.linearise(state, past, self._residual)
            if load is not None:
                self._residual += load
            length = self._complete(given)
            history.residuals.append(length)
            if not math.isfinite(length):
                raise SolutionError(
                    f"the residual of Newton's iteration {number} is no number; take a shorter time "
                    "step, or start from a state nearer to the solution"
                )
            if last or length <= settings.tolerance * history.residuals[0] or length == 0.0:
                break
            self.equations.rows.fix_rows(fixed, self._shared.owned)
            self._preconditioner.update()
            self._residual *= -1.0
            solved = self._gmres.solve(
                self._product,
                self._preconditioner,
                self._residual,
                self._change,
                tolerance=settings.linear_tolerance,
                most_iterations=settings.linear_iterations,
            )
            history.linear.append(solved)
            state += self._change
        return history

    def _complete(self, given: Array) -> float:
        """Sum the residual over sharers, leave out what is given; its length over all ranks."""
        if self._sums is not None:
            self._sums.swap(self._residual)
        self._residual[given] = 0.0
        squares = float((self._counts * self._residual * self._residual).sum())
        return math.sqrt(float(self._shared.world.sum(np.array([squares]))[0]))
