"""Steps of a flow case: a Newton iteration of steady flow or a step in time; their work and the time of their parts."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from haloscope import regions
from haloscope.device.interface import Array
from haloscope.errors import SolutionError, counted
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.regions import Region
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.equations.equations import UNKNOWNS
from haloscope.solvers.flow.equations.newton import NewtonHistory
from haloscope.solvers.flow.equations.time_steps import (
    BackwardDifferences,
    Clock,
    GeneralisedAlpha,
    SpaceTimeSlabs,
    TimeSteps,
    velocities,
)
from haloscope.solvers.flow.system import System
from haloscope.solvers.interface import Work
from haloscope.solvers.windkessel import Windkessel

FORMING = "form left and right sides"
SOLVING = "GMRES"
PRODUCT = "matrix-vector product"
GATHER, SCATTER = "gather", "scatter"
COMPONENTS = (FORMING, SOLVING, PRODUCT, GATHER, SCATTER, "preconditioner", "reductions")
"""Names of regions, each with all that is inside it, as Wylie, Geimer, Nicolai and Probst name the
parts of XNS ("Performance analysis and tuning of the XNS CFD solver on Blue Gene/L", 2007), and two
more: reductions are what inner products take over all ranks."""
AWAITED = (FORMING, SOLVING)
"""Those at whose ends the host waits for the device. Others lie within graphs that GPUs replay by
themselves, or are launched and not waited for: what the host sees of them is not their time."""


class PhaseTimes:
    """Adds up the seconds of named regions while it listens: ``with phases: ...``, again and again.

    A region within one of the same name counts once.
    """

    def __init__(self, names: Sequence[str] = COMPONENTS) -> None:
        self._numbers = {Region(name).number: name for name in names}
        self.seconds = dict.fromkeys(names, 0.0)
        self.visits = dict.fromkeys(names, 0)
        self._open: dict[int, tuple[int, float]] = {}

    def __enter__(self) -> PhaseTimes:
        regions.attach(self._on_enter, self._on_leave)
        return self

    def __exit__(self, *unused: object) -> None:
        regions.detach()

    def _on_enter(self, number: int) -> None:
        if number in self._numbers:
            depth, begun = self._open.get(number, (0, 0.0))
            self._open[number] = (depth + 1, begun if depth else time.perf_counter())

    def _on_leave(self, number: int) -> None:
        if number not in self._open:
            return
        depth, begun = self._open.pop(number)
        if depth > 1:
            self._open[number] = (depth - 1, begun)
            return
        name = self._numbers[number]
        self.seconds[name] += time.perf_counter() - begun
        self.visits[name] += 1

    def table(self, whole: float) -> Mapping[str, Mapping[str, float]]:
        """Seconds, share of a whole time, and visits of the components that were met."""
        return {
            name: {"seconds": s, "share": s / whole, "visits": self.visits[name]}
            for name, s in self.seconds.items()
            if self.visits[name]
        }


_WORD = 8
BYTES_OF_A_FACTOR = 4 * UNKNOWNS**2 + 4
"""Of a block stored in single precision, with a number beside it."""
# Of a row's node in forming it: state, what the time derivative has beside, position, residual.
_WORDS_OF_A_NODE = UNKNOWNS + 3 + 3 + UNKNOWNS
_BYTES_OF_A_TET = 17


def bytes_of_forming(rows: BlockRows, tets: int) -> int:
    """Least bytes that forming matrix and residual moves: elements read, blocks written."""
    blocks = rows.pattern.blocks * _WORD * rows.size**2
    return rows.nodes * _WORDS_OF_A_NODE * _WORD + tets * _BYTES_OF_A_TET + blocks


@dataclass
class Iterations:
    """How many there were."""

    # Steps, Newton's iterations in all of them, and GMRES' in all of these.
    steps: int = 0
    newton: int = 0
    linear: int = 0

    @property
    def newton_a_step(self) -> float:
        """Mean; one before the first step."""
        return self.newton / self.steps if self.steps else 1.0

    @property
    def linear_a_newton(self) -> float:
        """Mean; one before the first step."""
        return self.linear / self.newton if self.newton else 1.0


class WorkModel:
    """Bytes and operations of steps; all ranks make one together."""

    # A Newton iteration forms matrix and residual (elements read, blocks written). An iteration of
    # GMRES multiplies by the matrix, applies the preconditioner, and reads half of a cycle's
    # vectors twice: for products, and to take them off.

    def __init__(self, system: System, restart: int) -> None:
        self._system, self._restart = system, restart
        rows, size = system.rows, system.rows.size
        nodes, blocks, tets = rows.nodes, rows.pattern.blocks, len(system.part.tets)
        matrix = blocks * _WORD * size**2
        factors = blocks * (4 * size**2 + 4) if system.preconditioner != "point-blocks" else 0
        vector = nodes * size * _WORD
        own = np.array(
            [
                bytes_of_forming(rows, tets),
                rows.bytes_of_product + factors + 2 * vector,
                2 * vector,
                blocks * 2 * size**2 * (2 if factors else 1),
                4 * nodes * size,
                matrix + factors + factors * 2 + (2 * restart + 9) * vector,
            ],
            np.float64,
        )
        whole = system.shared.world.sum(own).tolist()
        self._form, self._iterate, self._a_vector, self._flops, self._flops_a_vector = whole[:5]
        self._memory = int(whole[5])

    def of(self, done: Iterations) -> Work:
        """Work of a step with the mean numbers of iterations."""
        newton, linear = done.newton_a_step, done.linear_a_newton
        vectors = min(linear, self._restart) / 2
        return Work(
            cells=self._system.part.whole_nodes,
            size=self._system.part.whole_nodes,
            bytes=newton * (self._form + linear * (self._iterate + vectors * self._a_vector)),
            flops=newton * linear * (self._flops + vectors * self._flops_a_vector),
            memory=self._memory,
            unit="node",
        )


# Residuals below this part of the largest of a run are rounding: no step need reduce them.
_ROUNDING = 1e-11
# Steady flow is found where so little is left of the residual of a fluid at rest.
_SOLVED_TO = 1e-12
# Residuals of steady flow that are as many times the first do not come down again.
_EXPLODED = 1e6
# By how much a pseudo time step grows at most from one to the next.
_GROWTH = 4.0


class Steps(ABC):
    """Steps of a case from a state, which is always the same array: 4 a node, on the device."""

    past: Array  # As in :class:`haloscope.solvers.flow.equations.time_steps.TimeSteps`

    def __init__(self, table: FlowTable, system: System, state: Array) -> None:
        self._table, self._system, self.state = table, system, state
        # What acted from outside in the last step.
        self.load = system.device.from_host(system.boundary_values.loads(0.0))

    @property
    def level_state(self) -> Array:
        """As in :class:`haloscope.solvers.flow.equations.time_steps.TimeSteps`."""
        return self.state

    @abstractmethod
    def advance(self, step: int) -> NewtonHistory:
        """Take the step that follows `step` others; one that fails leaves all as it was."""

    def stored(self) -> dict[str, Array]:
        """State for a restart beside the fields, 3 numbers a node each."""
        return {}

    @abstractmethod
    def scalars(self) -> dict[str, float]:
        """Numbers that a restart needs."""

    @abstractmethod
    def resume(self, stored: Mapping[str, Array], scalars: Mapping[str, float]) -> None:
        """Go on from a state that was put in place."""


class SteadySteps(Steps):
    """Newton's iterations on steady flow, at first held back by a pseudo time step where one is given.

    That grows as the residual falls (switched evolution relaxation: W. A. Mulder, B. van Leer, J.
    Comput. Phys. 59 (1985) 232), at most fourfold a step.
    """

    # `tolerance`: of the residual over the first, at which the run ends. A first one that is
    # rounding, since the start solves the equations, would never fall so far: at least that counts
    # as the first from which it falls to 1e-12 of the residual of a fluid at rest.

    def __init__(
        self, table: FlowTable, system: System, state: Array, tolerance: float = 0.0
    ) -> None:
        super().__init__(table, system, state)
        self._tolerance = tolerance
        self._fixed_numbers = system.boundary_values.numbers
        self._on_device = system.device.from_host(self._fixed_numbers)
        self._values = system.device.from_host(system.boundary_values.values(0.0))
        self.load = system.device.from_host(system.boundary_values.loads(0.0))
        self._first_pseudo_step = table.time.pseudo_time_step
        self._scalars = {"first": 0.0, "before": 0.0, "residual": math.inf, "pseudo_step": math.inf}
        if self._first_pseudo_step is not None:
            self._scalars["pseudo_step"] = self._first_pseudo_step
        self.past = 0.0 * velocities(state)

    @property
    def residual(self) -> float:
        """Of the last iteration over the first, or over what counts as it."""
        first = self._scalars["first"]
        return self._scalars["residual"] / first if first else 0.0

    def advance(self, step: int) -> NewtonHistory:
        """See :class:`Steps`."""
        saved = self.state.copy()
        self.state[self._on_device] = self._values
        least = 0.0 if self._scalars["first"] else self._least_first()
        alpha = 1.0 / self._scalars["pseudo_step"]
        self._system.newton.equations.set_time(alpha, 0.0)
        try:
            history = self._system.newton.solve(
                self.state, -alpha * velocities(self.state), self._fixed_numbers, self.load
            )
            self._require_bounded(history, least)
        except SolutionError:
            self.state[:] = saved
            raise
        finally:
            # What is asked of the equations between steps is about steady flow.
            self._system.newton.equations.set_time(0.0, 0.0)
        self._follow(history, least)
        return history

    def _least_first(self) -> float:
        """Lower bound of the first residual; see the tolerance."""
        if not self._tolerance:
            return 0.0
        rest = 0.0 * self.state
        rest[self._on_device] = self._values
        if self._system.conditions is not None:
            self._system.conditions.enforce(rest)
        length = self._system.newton.length(rest, self.past, self._fixed_numbers, self.load)
        return length * min(1.0, _SOLVED_TO / self._tolerance)

    def _require_bounded(self, history: NewtonHistory, least: float) -> None:
        """Refuse an iteration after which the residual is far beyond the first."""
        before, after = history.residuals[0], history.residuals[-1]
        first = self._scalars["first"] or max(before, least)
        if max(before, after) <= _EXPLODED * first:
            return
        raise SolutionError(
            f"Newton's method diverges: the residual was {first:.3g} at first, {before:.3g} "
            f"before this iteration and {after:.3g} after it"
            + gmres_notices(history, self._table.linear.tolerance)
        )

    def _follow(self, history: NewtonHistory, least: float) -> None:
        """Compare residuals; those of the flow itself are the ones before an iteration."""
        scalars, pseudo_step = self._scalars, self._scalars["pseudo_step"]
        before, after = history.residuals[0], history.residuals[-1]
        if not scalars["first"]:
            scalars["first"] = max(before, least)
        elif math.isfinite(pseudo_step):
            ratio = scalars["before"] / before if before else _GROWTH
            scalars["pseudo_step"] = pseudo_step * min(max(ratio, 1 / _GROWTH), _GROWTH)
        scalars["before"] = before
        scalars["residual"] = before if math.isfinite(pseudo_step) else after

    def scalars(self) -> dict[str, float]:
        """Residuals so far."""
        return dict(self._scalars)

    def resume(self, stored: Mapping[str, Array], scalars: Mapping[str, float]) -> None:
        """See :class:`Steps`; a case that has got or lost a pseudo time step since has its own way."""
        own = self._scalars["pseudo_step"]
        self._scalars.update(scalars)
        if math.isfinite(own) != math.isfinite(self._scalars["pseudo_step"]):
            self._scalars["pseudo_step"] = own


class UnsteadySteps(Steps):
    """Steps in time by one of the methods."""

    def __init__(self, table: FlowTable, system: System, state: Array, clock: Clock) -> None:
        super().__init__(table, system, state)
        self._clock = clock
        self._dt = self._step_before = clock.time_step
        self._largest = 0.0
        self._make({})

    def _make(self, stored: Mapping[str, Array]) -> None:
        newton, time = self._system.newton, self._table.time
        self._method: TimeSteps
        if time.scheme == "space-time":
            self._method = SpaceTimeSlabs(newton, self.state, self._dt)
        elif time.scheme == "bdf2":
            self._method = BackwardDifferences(
                newton, self.state, self._dt, step_before=self._step_before, **stored
            )
        else:
            self._method = GeneralisedAlpha(
                newton, self.state, self._dt, radius=time.radius, **stored
            )

    @property
    def past(self) -> Array:
        """See :class:`Steps`."""
        return self._method.past

    @property
    def level_state(self) -> Array:
        """See :class:`Steps`."""
        return self._method.level_state

    def advance(self, step: int) -> NewtonHistory:
        """See :class:`Steps`."""
        saved, stored = self.state.copy(), self._method.stored()
        conditions = self._system.conditions
        try:
            if conditions is not None:
                conditions.resistances.begin(self._method.level * self._dt)
            history = self._method.step(self._system.boundary_values.numbers, *self._acting(step))
            self._largest = max(self._largest, history.residuals[0])
            self._require_solution(history)
        except SolutionError:
            self.state[:] = saved
            self._make(stored)
            raise
        if conditions is not None:
            conditions.resistances.end(self._dt, self.state)
        self._step_before = self._dt
        return history

    def _acting(self, step: int) -> tuple[Array, Array]:
        """Values and loads on boundaries in a step; of a slab at both times that it asks for."""
        boundary_values, device = self._system.boundary_values, self._system.device
        start = self._clock.at(step)
        if isinstance(self._method, SpaceTimeSlabs):
            times = self._method.times(start)
            loads = np.stack([boundary_values.loads(time) for time in times])
            self.load = device.from_host(loads[1])
            values = np.stack([boundary_values.values(time) for time in times])
            return device.from_host(values), device.from_host(loads)
        if boundary_values.loads_change:
            self.load = device.from_host(
                boundary_values.loads(start + self._method.level * self._dt)
            )
        return device.from_host(boundary_values.values(start + self._dt)), self.load

    def _require_solution(self, history: NewtonHistory) -> None:
        """Refuse a step on which Newton's method gave up."""
        first, last = history.residuals[0], history.residuals[-1]
        tolerance = self._table.newton.tolerance
        # With tolerance 0 all iterations are done, and they must not raise the residual.
        limit = tolerance * first if tolerance else first
        if last <= max(limit, _ROUNDING * self._largest):
            return
        residuals = ", ".join(f"{residual:.3g}" for residual in history.residuals)
        raise SolutionError(
            f"Newton's method did not converge in {counted(len(history.linear), 'iteration')}: residuals "
            f"{residuals}; the limit is {limit:.3g}"
            + gmres_notices(history, self._table.linear.tolerance)
        )

    def stored(self) -> dict[str, Array]:
        """Stored state of the method."""
        return self._method.stored()

    def scalars(self) -> dict[str, float]:
        """The clock, the last step, the largest residual, what outlets with a resistance hold."""
        scalars = self._clock.scalars()
        scalars |= {"step_before": self._step_before, "largest": self._largest}
        for number, law in enumerate(self._laws()):
            scalars[f"held {number}"], scalars[f"flow {number}"] = law.held, law.flow
        return scalars

    def _laws(self) -> list[Windkessel]:
        """Of outlets with a resistance."""
        conditions = self._system.conditions
        if conditions is None:
            return []
        return [outlet.law for outlet in conditions.resistances.outlets]

    def resume(self, stored: Mapping[str, Array], scalars: Mapping[str, float]) -> None:
        """See :class:`Steps`."""
        self._largest = scalars["largest"]
        self._step_before = scalars.get("step_before", scalars["dt"])
        for number, law in enumerate(self._laws()):
            law.held, law.flow = scalars[f"held {number}"], scalars[f"flow {number}"]
        self._make(stored)


def gmres_notices(history: NewtonHistory, tolerance: float) -> str:
    """Part of a problem where the linear solver did not converge; empty where it did."""
    failed = [solve for solve in history.linear if not solve.converged]
    if not failed:
        return ""
    worst = max(failed, key=lambda solve: solve.residual)
    return (
        f"; in {len(failed)} of them GMRES ended by '{worst.reason}' after up to "
        f"{counted(max(solve.iterations for solve in failed), 'iteration')} at {worst.residual:.3g} of its "
        f"first residual; its tolerance is {tolerance:.3g}"
    )


def start_state(table: FlowTable, system: System) -> Array:
    """State of a case at the start: its initial fields, and what is given on boundaries."""
    x, y, z = system.part.nodes.T
    fields = [
        table.initial_field(name).evaluate_finite(f"flow.initial.{name}", x=x, y=y, z=z)
        for name in ("u", "v", "w", "p")
    ]
    state = np.stack(fields, axis=1).ravel()
    state[system.boundary_values.numbers] = system.boundary_values.values(0.0)
    result = system.device.from_host(state)
    if system.conditions is not None:
        system.conditions.enforce(result)
    return result
