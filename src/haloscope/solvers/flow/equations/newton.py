"""Newton's method on the flow equations, with prescribed velocities and pressures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.device.targets import Target
from haloscope.errors import SolutionError
from haloscope.numerics.krylov.flexible_gmres import (
    MOST_ITERATIONS,
    FlexibleGmres,
    LinearSolution,
    Preconditioner,
    Product,
)
from haloscope.numerics.krylov.node_vectors import clearing
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct
from haloscope.regions import Region
from haloscope.solvers.flow.equations.equations import Equations

_FORMING = Region("form left and right sides")
_SOLVING = Region("GMRES")
_PRECONDITIONING = Region("preconditioner")
# When a preconditioner is kept: at most so many times the iterations, a residual that falls so fast.
_FEW, _TENFOLD = 1.5, 10.0
# Tolerances down to which blocks in single precision will do inside cycles.
_ROUNDED = 1e-4


@dataclass(frozen=True)
class NewtonSettings:
    """When Newton's method, and the linear solver in it, end."""

    iterations: int = 4  # Most of them; at a tolerance of 0 so many are done
    tolerance: float = 0.0  # Of the residual's length over that at the start of the first step
    # Of flexible GMRES: residual over that at its start.
    linear_tolerance: float = 1e-2
    linear_iterations: int = 300
    restart: int = 60
    # Let the preconditioner follow the matrix in the first iteration of each solution, and then
    # only after one that did not shorten the residual tenfold, and where GMRES takes over half as
    # many iterations more than after the last time: in a time step the matrix changes little. Else
    # it follows in each.
    keep_preconditioner: bool = True


@dataclass
class NewtonHistory:
    """How a solution went."""

    # Lengths, before each iteration and after the last.
    residuals: list[float] = field(default_factory=list)
    linear: list[LinearSolution] = field(default_factory=list)  # Of each iteration

    @property
    def falls(self) -> bool:
        """Whether the last iteration shortened the residual tenfold: the matrix changed little."""
        return len(self.residuals) > 1 and _TENFOLD * self.residuals[-1] <= self.residuals[-2]


def rounds(target: Target, linear_tolerance: float) -> bool:
    """Whether products inside GMRES take stored rows in single precision."""
    # Products on cores take as long as their bytes do.
    return target.kind == "cpu" and linear_tolerance >= _ROUNDED


class Newton:
    """Solves for the state at which the residual vanishes, but for prescribed unknowns.

    `product`: of the equations' matrix with more than its rows hold; by default the rows' own.
    """

    def __init__(
        self,
        equations: Equations,
        shared: SharedNodes,
        preconditioner: Preconditioner,
        settings: NewtonSettings,
        *,
        product: Product | None = None,
    ) -> None:
        self.equations, self._shared, self._settings = equations, shared, settings  # As given
        self._preconditioner = preconditioner
        rows = equations.rows
        self._product = product or SharedProduct(rows, shared)
        self._rounded: SharedProduct | None = None
        if product is None and rounds(rows.device, settings.linear_tolerance):
            self._rounded = SharedProduct(rows, shared, single=True)
        self._sums = None if shared.alone else shared.sums(rows.size)
        owned = shared.owned
        self._gmres = FlexibleGmres(
            *(rows.device, rows.size, owned, settings.restart),
            *(None if shared.alone else shared.world, shared.transport),
        )
        self._residual, self._change = rows.vector(), rows.vector()
        self._fixed: NDArray[np.int64] | None = None

    def solve(
        self, state: Array, past: Array, fixed: NDArray[np.integer], load: Array | None = None
    ) -> NewtonHistory:
        """Bring a state to where the equations hold; given values are in it from the start."""
        settings = self._settings
        self._set_fixed(fixed)
        history = NewtonHistory()
        wanted = 0
        for number in range(settings.iterations + 1):
            last = number == settings.iterations
            length = self._form(state, past, load, linearised=not last)
            history.residuals.append(length)
            if not math.isfinite(length):
                raise SolutionError(
                    f"the residual of Newton's iteration {number} is not finite",
                    remedy="take a shorter time step, or start from a state nearer to the solution",
                )
            if last or length <= settings.tolerance * history.residuals[0] or length == 0.0:
                break
            if self._fix is not None:
                self._fix()
            if self._rounded is not None:
                with _SOLVING:
                    self._rounded.update()
            kept = settings.keep_preconditioner and wanted > 0 and history.falls
            solved, wanted = self._solve(length, wanted if kept else 0)
            history.linear.append(solved)
            # The change is that of the residual itself, not of its negative.
            state -= self._change
        return history

    def length(
        self, state: Array, past: Array, fixed: NDArray[np.integer], load: Array | None = None
    ) -> float:
        """Length of the residual of a state; all is as for :meth:`solve`."""
        self._set_fixed(fixed)
        return self._form(state, past, load, linearised=False)

    def _form(self, state: Array, past: Array, load: Array | None, *, linearised: bool) -> float:
        """Form the residual, sum it over sharers, leave out fixed unknowns; its length over all ranks."""
        with _FORMING:
            form = self.equations.linearise if linearised else self.equations.residual
            form(state, past, self._residual)
            if load is not None:
                self._residual += load
            if self._sums is not None:
                self._sums.swap(self._residual)
            self._clear()
            return self._gmres.length(self._residual)

    def _set_fixed(self, fixed: NDArray[np.integer]) -> None:
        """Prescribe unknowns, with launches on the same arrays while these stay the same."""
        if self._fixed is not None and np.array_equal(self._fixed, fixed):
            return
        rows, self._fixed = self.equations.rows, np.array(fixed, np.int64)
        self._clear = clearing(rows.device, self._fixed, self._residual)
        # Makes the matrix's rows of these unknowns those of the identity.
        owned = self._shared.owned
        self._fix = rows.fixing(self._fixed, owned) if len(self._fixed) else None

    def _solve(self, length: float, wanted: int) -> tuple[LinearSolution, int]:
        """Solve for the change."""
        most = self._settings.linear_iterations
        first: LinearSolution | None = None
        if wanted:
            few = int(_FEW * wanted) + 2
            first = self._gmres_from(length, min(few, most), from_zero=True)
            if first.reason != MOST_ITERATIONS or few >= most:
                return first, wanted if first.converged else 0
            most -= first.iterations
        with _PRECONDITIONING:
            self._preconditioner.update()
        solved = self._gmres_from(length, most, from_zero=first is None)
        wanted = solved.iterations if solved.converged else 0
        if first is None:
            return solved, wanted
        both = replace(
            solved,
            iterations=first.iterations + solved.iterations,
            history=first.history + solved.history[1:],
        )
        return both, wanted

    def _gmres_from(self, length: float, most: int, *, from_zero: bool) -> LinearSolution:
        with _SOLVING:
            return self._gmres.solve(
                self._product,
                self._preconditioner,
                self._residual,
                self._change,
                tolerance=self._settings.linear_tolerance,
                most_iterations=most,
                from_zero=from_zero,
                rounded=self._rounded,
                length=length,
            )
