"""The flow solver: sets up a rank's part of a case and takes steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from haloscope.device import jit
from haloscope.device.interface import Array, Device
from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.numerics.elements.node_fields import NodeFields, TetPoints
from haloscope.regions import Region
from haloscope.solvers.flow.case import FIELD_NAMES, FlowCase
from haloscope.solvers.flow.conditions import signal_notices
from haloscope.solvers.flow.derived_fields import shear_results
from haloscope.solvers.flow.equations.equations import UNKNOWNS
from haloscope.solvers.flow.equations.time_steps import Clock
from haloscope.solvers.flow.meshes import boundary_geometry
from haloscope.solvers.flow.results import RunResults, flow_picture, require_plane
from haloscope.solvers.flow.scales import FlowScales, moving_wall_warnings
from haloscope.solvers.flow.steps import SteadySteps, Steps, UnsteadySteps, WorkModel, start_state
from haloscope.solvers.flow.system import make_system
from haloscope.solvers.interface import (
    VELOCITIES,
    DerivedNumber,
    Field,
    Monitor,
    Results,
    Solver,
    Work,
)

if TYPE_CHECKING:
    from haloscope.io.figures.field_pictures import SlicesPicture
    from haloscope.io.figures.geometry_views import Geometry

Position = tuple[float, float, float]
Floats = NDArray[np.float64]

_SETUP = Region("set-up")
_SOURCE = Path(__file__).with_name("equations") / "flow.cpp"
_FIELDS = {**VELOCITIES, "p": Field("p", "Pa", "pressure")}
_LARGEST_RESIDUAL = 1e6
# Scalars of a checkpoint that those of before steps could change do not have.
_NOT_IN_OLD_CHECKPOINTS = frozenset({"asked", "since", "begun", "step_before"})
KEPT: Mapping[str, tuple[str, ...]] = {
    "steady": (),
    "bdf2": ("before",),
    "generalised-alpha": ("acceleration",),
    "space-time": (),
}
"""What the methods in time keep beside the state, 3 numbers a node: velocities before, du/dt."""


class FlowSolver(Solver):
    """One rank's part of a flow case."""

    _case: FlowCase
    layout: NodeFields
    name = "flow"

    def __init__(self, case: FlowCase, device: Device, world: World) -> None:
        super().__init__(case, device, world)
        self._table = table = case.flow
        self.dtype = np.dtype(np.float64)
        self.fields = {name: _FIELDS[name] for name in FIELD_NAMES}
        self.vectors = {"velocity": ["u", "v", "w"]}
        self._kept = {
            f"{kept} {axis}": (kept, number)
            for kept in KEPT[table.time.scheme]
            for number, axis in enumerate("xyz")
        }
        self.stored = (*FIELD_NAMES, *self._kept)
        self.followed = replace(_followed(steady=table.steady), record=self._record)
        self._clock = None if table.steady else Clock.of(table)
        if self._clock is not None:
            self.last_step = self._clock.last_step
        self._change: tuple[int, float, float, float] | None = None
        with _SETUP:
            self._open()

    def _open(self) -> None:
        table, world = self._table, self._world
        self.system = system = make_system(table, self._case.machine, self._device, world)
        self.notices += [*table.stopped(), *signal_notices(table), *system.lines]
        self.layout = NodeFields(world, system.part)
        if self._case.output.picture:
            require_plane(world, system.part.nodes, table.slice)
        self.transport = "none" if system.shared.alone else system.shared.sums(UNKNOWNS).transport
        self.kernel_hash = jit.kernel_hash(_SOURCE, {})
        self._own = self._device.from_host(self.layout.own_nodes)
        self.state: Array = start_state(table, system)
        start = self._device.to_host(self.state)
        self._scales = FlowScales(table, system, start, self._clock)
        self.notices += self._scales.warnings()
        self.notices += moving_wall_warnings(table, system)
        self._steps = self._make_steps()
        self.results = RunResults(table, system)
        self._model = WorkModel(system, table.linear.restart)
        self.work = self._count_work()
        self._masses = self._device.from_host(self._lumped_masses())
        self._seconds, self._taken = 0.0, 0
        self._probes: dict[tuple[Position, ...], tuple[NDArray[np.int64], TetPoints]] = {}

    def _make_steps(self) -> Steps:
        if self._clock is None:
            tolerance = self._case.run.tolerance
            return SteadySteps(self._table, self.system, self.state, tolerance)
        return UnsteadySteps(self._table, self.system, self.state, self._clock)

    def _lumped_masses(self) -> Floats:
        """Contributions of own elements to the masses of nodes, in kg."""
        part = self.system.part
        corners = part.nodes[part.tets]
        edges = corners[:, 1:] - corners[:, :1]
        volumes = np.einsum("ex,ex->e", edges[:, 0], np.cross(edges[:, 1], edges[:, 2])) / 6
        densities = np.array([self._table.medium(zone).density for zone in part.zone_names])
        shares = np.repeat(volumes * densities[part.zones] / 4, 4)
        return np.asarray(np.bincount(part.tets.ravel(), shares, len(part.nodes)), np.float64)

    # Steps

    @property
    def time(self) -> float | None:
        """Time in s; None of steady flow."""
        return None if self._clock is None else self._clock.at(self.step)

    def _count_work(self) -> Work:
        """Of a step with as many iterations as there were so far."""
        return self._model.of(self.results.done)

    def advance(self, steps: int) -> None:
        """Take steps."""
        for _ in range(steps):
            begun = time.perf_counter()
            with self.results.phases:
                history = self._steps.advance(self.step)
                self._device.synchronise()
            self._seconds += time.perf_counter() - begun
            self._taken += 1
            self.step += 1
            self.results.record(self.step, self.time or 0.0, history, self._steps)
            self.work = self._count_work()

    # State

    def owned(self, name: str) -> np.ndarray:
        """Host copy of this rank's own values, those of the nodes that it owns."""
        if name in self._kept:
            kept, number = self._kept[name]
            held = self._steps.stored().get(kept)
            if held is None:
                return np.zeros(len(self.layout.own_nodes))
            values = held.reshape(-1, 3)[self._own, number]
        else:
            values = self._rows[self._own, FIELD_NAMES.index(name)]
        return np.ascontiguousarray(self._device.to_host(values))

    @property
    def _rows(self) -> Array:
        return self.state.reshape(-1, UNKNOWNS)

    def scalars(self) -> dict[str, float]:
        """Numbers beside the fields that a restart needs."""
        return self._steps.scalars()

    def restore(
        self, step: int, scalars: Mapping[str, float], own: Callable[[str], np.ndarray]
    ) -> None:
        """Take over a saved state; see :class:`haloscope.solvers.interface.Solver`."""
        values = [own(name) for name in FIELD_NAMES]
        self._require_finite(values)
        if self._table.steady == ("dt" in scalars):
            kinds = ("unsteady", "steady") if self._table.steady else ("steady", "unsteady")
            raise InputError(
                f"it is of {kinds[0]} flow, and the case is of {kinds[1]} flow",
                location="checkpoint",
                remedy="restart with the case of this checkpoint",
            )
        needed = self._steps.scalars().keys() - _NOT_IN_OLD_CHECKPOINTS
        missing = sorted(needed - scalars.keys())
        if missing:
            raise InputError(
                f"it does not hold {', '.join(missing)}; it is of a case with other outlets or "
                "another method for the steady state",
                location="checkpoint",
                remedy="restart with the case of this checkpoint",
            )
        self.state[:] = self._from_owners(values)
        self.step = step
        if self._clock is not None:
            self._clock = Clock.resumed(scalars, step, self._table)
            self.last_step = self._clock.last_step
            self._scales.clock = self._clock
            self._steps = self._make_steps()
            self._note_change(scalars["dt"], self._clock)
        stored: dict[str, Array] = {}
        if step:
            for kept in dict.fromkeys(kept for kept, _ in self._kept.values()):
                stored[kept] = self._from_owners([own(f"{kept} {axis}") for axis in "xyz"])
        self._steps.resume(stored, scalars)

    def _note_change(self, before: float, clock: Clock) -> None:
        """Say that steps from now on are of another length than those of the checkpoint."""
        now, after = clock.at(self.step), clock.time_step
        self._change = None if after == before else (self.step, now, before, after)
        if self._change is None:
            return
        self.notices.append(
            f"the time step changes from {before:.6g} to {after:.6g} s after step {self.step}, at "
            f"{now:.6g} s; intervals of outputs and checkpoints are still in steps"
        )

    def _from_owners(self, values: Sequence[np.ndarray]) -> Array:
        """A vector with some numbers a node from those of own nodes."""
        whole = np.zeros((len(self.system.part.nodes), len(values)))
        whole[self.layout.own_nodes] = np.stack(values, axis=1)
        vector = self._device.from_host(whole.ravel())
        self.system.shared.take_owners(vector, len(values))
        return vector

    def extras(self) -> Mapping[str, np.ndarray]:
        """Tables; see :class:`haloscope.solvers.interface.Solver`."""
        return self.results.extras()

    def restore_extras(self, extras: Mapping[str, np.ndarray]) -> None:
        """Take them over."""
        self.results.restore(extras)
        self.work = self._count_work()
        if self._change is not None:
            self.results.time_steps.append([*self._change])

    def at_output(self, out: Path) -> None:
        """Write the tables as they are now."""
        if self._world.is_root:
            self.results.write(out)

    def _record(self, out: Path) -> None:
        self.results.append(out)

    def finish(self, out: Path | None, probes: Mapping[str, Sequence[Sequence[float]]]) -> Results:
        """Tables, flow rates, pressure head, and what the time went to."""
        folder = out if self._world.is_root else None
        results = self.results.finish(
            folder, self.state, self._seconds, self._taken, self._scales.velocity
        )
        if self._table.shear is None:
            return results
        path = None if out is None else out / "shear.vtkhdf"
        state = self._device.to_host(self.state)
        more = shear_results(
            self._table, self.system, self.layout, state, path, self.time or float(self.step)
        )
        return Results.joined([results, more])

    def sample(self, positions: Sequence[Position]) -> list[list[float]]:
        """Values of all fields at points, the same on every rank."""
        key = tuple(positions)
        if key not in self._probes:
            mine, located = self.layout.locate(positions)
            self._probes[key] = (
                mine,
                TetPoints(located.elements[mine], located.nodes[mine], located.weights[mine]),
            )
        mine, located = self._probes[key]
        near = self._rows[self._device.from_host(located.nodes.ravel())]
        corners = self._device.to_host(near).reshape(-1, 4, UNKNOWNS)
        result = np.zeros((len(positions), UNKNOWNS))
        result[mine] = np.einsum("pc,pcf->pf", located.weights, corners)
        rows: list[list[float]] = self._world.sum(result).tolist()
        return rows

    # What people look at

    def follow(self) -> dict[str, float]:
        """Residual of steady flow; kinetic energy of unsteady flow."""
        if isinstance(self._steps, SteadySteps):
            return {"residual": self._steps.residual if self.step else 1.0}
        return {"kinetic_energy": self._kinetic_energy()}

    def _kinetic_energy(self) -> float:
        """Of nodes with lumped masses, in J."""
        squares = (self._rows[:, :3] ** 2).sum(axis=1)
        own = float((self._masses * squares).sum()) / 2
        return float(self._world.sum(np.array([own]))[0])

    def diagnostics(self) -> dict[str, float]:
        """Energy, the fastest node, the range of the pressure, and the sum of all openings."""
        own = self._rows
        speed = float((own[:, :3] ** 2).sum(axis=1).max()) ** 0.5
        numbers = {
            "kinetic_energy": self._kinetic_energy(),
            "largest_speed": self._world.largest(speed),
            "highest_pressure": self._world.largest(float(own[:, 3].max())),
            "lowest_pressure": -self._world.largest(-float(own[:, 3].min())),
            "newton_iterations": float(self.results.done.newton),
            "gmres_iterations": float(self.results.done.linear),
        }
        openings = self.results.openings(self.state)
        if openings:
            numbers["net_outflow"] = sum(opening["flow_rate"] for opening in openings.values())
        if isinstance(self._steps, SteadySteps):
            numbers["residual"] = self._steps.residual
        elif self._clock is not None:
            numbers |= {"time": self._clock.at(self.step), "time_step": self._clock.time_step}
        for name, row in self.results.last_forces().items():
            labels = ("Fx", "Fy", "Fz", "Mx", "My", "Mz", "cx", "cy", "cz")
            numbers |= {f"{name}_{label}": v for label, v in zip(labels, row, strict=False)}
        return numbers

    def derived(self) -> list[DerivedNumber]:
        """Extent, material, scales, Reynolds and Courant number."""
        return self._scales.derived()

    def time_step_limit(self) -> str:
        """The time step, and its Courant number in the thinnest element."""
        return self._scales.time_step_limit()

    def advice(self) -> str:
        """Change of the case to try when the solution breaks."""
        if self._table.time.pseudo_time_step is not None:
            return (
                f"shorten flow.time.pseudo_time_step (now {self._table.time.pseudo_time_step:g}), "
                "start from a state nearer to the solution (flow.initial), or refine the mesh"
            )
        if self._clock is None:
            return (
                "set flow.time.pseudo_time_step (about the element size over the speed), start from "
                "a state nearer to the solution (flow.initial), or refine the mesh"
            )
        return (
            f"shorten flow.time.time_step (now {self._clock.time_step:g}; a restart may take another), "
            "raise flow.newton.iterations or flow.linear.iterations, or refine the mesh"
        )

    def picture(self) -> SlicesPicture | None:
        """Speed and pressure on a plane."""
        at = "" if self.time is None else f"time {self.time:.4g} s, "
        return flow_picture(
            self.layout,
            self._table.slice,
            self._device.to_host(self._rows),
            self._case.title or "Flow",
            f"{at}{self.layout.describe()}",
        )

    def geometry(self) -> Geometry:
        """Own triangles of the boundaries."""
        return boundary_geometry(self.system.part, self._case.boundary_conditions())

    def headline(self, numbers: Mapping[str, float]) -> list[str]:
        """Progress of the run, and forces."""
        if self._table.steady:
            residual, limit = numbers["residual"], self._case.run.tolerance
            line = f"residual over the first {residual:.3g} after {counted(self.step, 'iteration')}"
            lines = [
                line if residual < limit else f"{line}; not yet below run.tolerance = {limit:g}"
            ]
        else:
            lines = [
                f"time {numbers['time']:.6g} s, kinetic energy {numbers['kinetic_energy']:.6g} J, "
                f"largest speed {numbers['largest_speed']:.6g} m/s"
            ]
        for name, row in self.results.last_forces().items():
            text = ", ".join(f"{value:.6g}" for value in row[:3])
            line = f"force on {name} ({text}) N"
            if len(row) > 6:
                line += ", coefficients " + ", ".join(f"{value:.6g}" for value in row[6:])
            lines.append(line)
        return lines


def _followed(*, steady: bool) -> Monitor:
    if steady:
        return Monitor(
            name="residuals",
            file="residuals.csv",
            label="residual over the first",
            title="Residual of Newton iterations",
            steady=True,
            limit=_LARGEST_RESIDUAL,
            first=1.0,
        )
    return Monitor(
        name="kinetic_energy", file="energy.csv", label="kinetic energy (J)", title="Kinetic energy"
    )
