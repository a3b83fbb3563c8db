"""The flow equations with what acts at open ends and depends on the flow: backflow, resistances."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.solvers.flow.resistances import Resistances

Floats = NDArray[np.float64]

SOURCE = Path(__file__).with_name("boundaries.cpp")


class Equations(Protocol):
    """What Newton's method solves; see :class:`haloscope.solvers.flow.equations.FlowEquations`.

    Each rank gives what its own elements add.
    """

    @property
    def device(self) -> Device:
        """Where vectors lie."""

    @property
    def rows(self) -> BlockRows:
        """The matrix."""

    def set_time(self, alpha: float, by_dt: float) -> None:
        """Set the factor of u in its time derivative, and 1 over the time step that tau knows."""

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put the residual of a state into an array."""

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """As :meth:`residual`, and put the derivatives in the matrix."""


class LoadedEquations:
    """Equations with terms of open ends; all ranks make one together, and call it together.

    `nodes`, `pushes`: own nodes that this rank owns on outlets with stabilisation, and b rho times
    their shares of outward area in kg/m, (nodes, 3).
    """

    # Where fluid enters through an outlet, an outside pressure alone lets its kinetic energy grow
    # without limit. The stress b rho (u.n)_- u, with (u.n)_- the velocity if it is inward, takes
    # out what enters if b is 1/2 or more (M. Esmaily Moghadam and others, Comput. Mech. 48 (2011)
    # 277, eq. 8). Its integral is a sum over nodes here, each with its share of the area.
    #
    # Derivatives by velocities at the same node go to the matrix; those of resistances, which join
    # all nodes of an outlet, are added in products:
    # :class:`haloscope.solvers.flow.resistances.CoupledProduct`.

    def __init__(
        self,
        equations: Equations,
        nodes: NDArray[np.integer],
        pushes: Floats,
        resistances: Resistances,
    ) -> None:
        # Of the equations.
        self.device, self.rows = equations.device, equations.rows
        self._inner, self._resistances = equations, resistances
        self._count = len(nodes)
        self._nodes = self.device.from_host(np.asarray(nodes, np.int32))
        self._pushes = self.device.from_host(np.ascontiguousarray(pushes, np.float64).ravel())
        self._kernels = {
            name: self.device.kernel(SOURCE, name, {})
            for name in ("add_backflow", "add_backflow_derivatives")
        }

    def set_time(self, alpha: float, by_dt: float) -> None:
        """See :class:`Equations`."""
        self._inner.set_time(alpha, by_dt)

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """See :class:`Equations`."""
        self._inner.residual(state, past, residual)
        self._add(state, residual)

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """See :class:`Equations`."""
        self._inner.linearise(state, past, residual)
        self._add(state, residual)
        if self._count:
            rows = self.rows
            self._kernels["add_backflow_derivatives"].bind(
                *(self._nodes, self._pushes, self._count, state, rows.diagonal, rows.values),
                extent=(self._count,),
            )()

    def _add(self, state: Array, residual: Array) -> None:
        self._resistances.add_to(state, residual)
        if self._count:
            self._kernels["add_backflow"].bind(
                *(self._nodes, self._pushes, self._count, state, residual),
                extent=(self._count,),
            )()
