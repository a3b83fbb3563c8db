"""Outlets whose pressure depends on what flows through them, coupled to all of their nodes at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.numerics.krylov.flexible_gmres import Product
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundary_means import BoundaryAreas, exact_sums
from haloscope.solvers.flow.boundary_values import Resistance
from haloscope.solvers.flow.equations import UNKNOWNS

Floats = NDArray[np.float64]


class Windkessel:
    """Pressure behind an outlet as a function of the flow rate, over a step."""

    # c of :class:`haloscope.solvers.flow.boundary_values.Resistance` is exact for a flow rate that is linear in
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
        """What c(span) has from the past, and its derivative by Q."""
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
        """What a restart needs, the same on all ranks: c and flow rate of each, (outlets, 2)."""
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
