"""Open ends whose load depends on the flow: backflow stabilisation and outlets with a resistance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.numerics.krylov.flexible_gmres import Product
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundaries.conditions import Resistance
from haloscope.solvers.flow.boundaries.integrals import BoundaryAreas, exact_sums
from haloscope.solvers.flow.equations.equations import UNKNOWNS

Floats = NDArray[np.float64]


class Windkessel:
    """Pressure behind an outlet as a function of the flow rate, over a step."""

    # c of :class:`haloscope.solvers.flow.boundaries.conditions.Resistance` is exact for a flow rate that is linear in
    # time: with h = t/(distal * compliance) and E = exp(-h),
    #
    #     c(t) = E c_n + distal (Q_n ((1 - E)/h - E) + Q (1 - (1 - E)/h))

    def __init__(self, law: Resistance) -> None:
        self._law = law
        # c in Pa and flow rate in m^3/s at the end of the last step.
        self.held, self.flow = law.start, 0.0
        # Pressure is offset + resistance Q at the level of this step, in Pa and Pa s/m^3.
        self.resistance, self.offset = law.proximal + law.distal, law.outside

    def _over(self, span: float) -> tuple[float, float]:
        """Contribution of the past to c(span), and its derivative by Q."""
        law = self._law
        if law.compliance == 0.0:
            return 0.0, law.distal
        h = span / (law.distal * law.compliance)
        fall = math.exp(-h)
        mean = -math.expm1(-h) / h
        return fall * self.held + law.distal * self.flow * (mean - fall), law.distal * (1 - mean)

    def begin(self, span: float) -> None:
        """Prepare the pressure at a time `span` in s after the end of the last step."""
        past, factor = self._over(span)
        self.offset = self._law.outside + past
        self.resistance = self._law.proximal + factor

    def end(self, time_step: float, flow: float) -> None:
        """Take the flow rate at the end of a step."""
        past, factor = self._over(time_step)
        self.held, self.flow = past + factor * flow, flow


@dataclass(frozen=True)
class Outlet:
    """One end with a resistance."""

    areas: BoundaryAreas  # Shares of its nodes
    # What a pressure of 1 Pa adds to the equations of its nodes, those that are left after what is
    # given and slip: like `areas.vectors`.
    acts: Floats
    law: Windkessel  # Its pressure


class Resistances:
    """All outlets with a resistance; all ranks make one together, and call it together."""

    def __init__(self, shared: SharedNodes, outlets: Sequence[Outlet]) -> None:
        self.outlets, self._shared = tuple(outlets), shared
        device = shared.device
        self._places = [_velocities_of(one.areas.nodes) for one in self.outlets]
        counted = [
            places[one.areas.counted].ravel()
            for one, places in zip(self.outlets, self._places, strict=True)
        ]
        self._counted = device.from_host(np.array([n for p in counted for n in p], np.int64))
        self._columns = self._normal_columns()
        self._at = [device.from_host(places.ravel()) for places in self._places]
        self._own = [device.from_host(one.areas.own.ravel()) for one in self.outlets]
        self._acts = [device.from_host(one.acts.ravel()) for one in self.outlets]

    def __len__(self) -> int:
        return len(self.outlets)

    def _normal_columns(self) -> Floats:
        """Shares of area that belong to the counted velocities, a column for each outlet."""
        blocks = [one.areas.vectors[one.areas.counted].ravel() for one in self.outlets]
        columns = np.zeros((sum(map(len, blocks)), len(blocks)))
        begin = 0
        for number, block in enumerate(blocks):
            columns[begin : begin + len(block), number] = block
            begin += len(block)
        return columns

    def flows(self, vector: Array) -> Floats:
        """Flow rates of a vector of unknowns through each outlet, (outlets,)."""
        taken = self._shared.device.to_host(vector[self._counted])
        return exact_sums(self._shared.world, self._columns * taken[:, None])

    def add_to(self, state: Array, residual: Array) -> None:
        """Add the pressures at a state to the residual of own elements."""
        if not self.outlets:
            return
        flows = self.flows(state).tolist()
        for one, flow, at, own in zip(self.outlets, flows, self._at, self._own, strict=True):
            residual[at] += (one.law.offset + one.law.resistance * flow) * own

    def add_actions(self, pressures: Floats, y: Array) -> None:
        """Add what pressures (outlets,) add to the equations that are left, complete, to y."""
        for pressure, at, acts in zip(pressures.tolist(), self._at, self._acts, strict=True):
            y[at] += pressure * acts

    @property
    def factors(self) -> Floats:
        """Derivatives of the pressures by the flow rates, (outlets,)."""
        return np.array([one.law.resistance for one in self.outlets])

    def begin(self, span: float) -> None:
        """Prepare pressures for equations that hold `span` seconds after the last step's end."""
        for one in self.outlets:
            one.law.begin(span)

    def end(self, time_step: float, state: Array) -> None:
        """Take the flow rates at the end of a step."""
        if self.outlets:
            for one, flow in zip(self.outlets, self.flows(state).tolist(), strict=True):
                one.law.end(time_step, flow)

    def stored(self) -> Floats:
        """State for a restart, the same on all ranks: c and flow rate of each, (outlets, 2)."""
        return np.array([[one.law.held, one.law.flow] for one in self.outlets]).reshape(-1, 2)

    def restore(self, stored: Floats) -> None:
        """Take what :meth:`stored` gave."""
        for one, (held, flow) in zip(self.outlets, stored.tolist(), strict=True):
            one.law.held, one.law.flow = held, flow


class CoupledProduct:
    """``y = A x + sum over outlets of resistance (b.x) b``: Newton's matrix with all derivatives.

    A preconditioner of A alone does: each outlet adds one direction, found by one iteration more.
    """

    def __init__(self, product: Product, resistances: Resistances) -> None:
        self._product, self._resistances = product, resistances

    def __call__(self, x: Array, y: Array) -> None:
        """Multiply, as :class:`haloscope.numerics.shared_nodes.SharedProduct` does."""
        self._product(x, y)
        resistances = self._resistances
        resistances.add_actions(resistances.factors * resistances.flows(x), y)


def _velocities_of(nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(UNKNOWNS * nodes[:, None] + np.arange(3))


_SOURCE = Path(__file__).with_name("boundaries.cpp")


def kernel_file() -> KernelFile:
    """Kernels of outlets and of slip."""
    return KernelFile(_SOURCE, {})


class Equations(Protocol):
    """Equations for Newton's method; see :class:`haloscope.solvers.flow.equations.equations.FlowEquations`.

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
    # :class:`haloscope.solvers.flow.boundaries.outlets.CoupledProduct`.

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
        source, constants = kernel_file()
        self._kernels = {
            name: self.device.kernel(source, name, constants)
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
                extent=(self._count,),
                nodes=self._nodes,
                pushes=self._pushes,
                count=self._count,
                q=state,
                diagonal=rows.diagonal,
                A=rows.values,
            )()

    def _add(self, state: Array, residual: Array) -> None:
        self._resistances.add_to(state, residual)
        if self._count:
            self._kernels["add_backflow"].bind(
                extent=(self._count,),
                nodes=self._nodes,
                pushes=self._pushes,
                count=self._count,
                q=state,
                R=residual,
            )()
