"""Results of a flow run: forces, convergence, openings, warnings about unsettled numbers, and the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import counted
from haloscope.exchange.ranks.world import World
from haloscope.io.atomic import append_text, write_text
from haloscope.io.figures.figure import length_unit
from haloscope.numerics.elements.element_fields import plane_raster
from haloscope.numerics.elements.node_fields import NodeFields
from haloscope.solvers.flow.boundary_integrals import (
    BoundaryAreas,
    boundary_areas,
    boundary_means,
    force_and_moment,
)
from haloscope.solvers.flow.case import FlowTable, Force, Slice
from haloscope.solvers.flow.case_domain import BoundaryTable
from haloscope.solvers.flow.equations.newton import NewtonHistory
from haloscope.solvers.flow.steps import AWAITED, COMPONENTS, Iterations, PhaseTimes, Steps
from haloscope.solvers.flow.system import System
from haloscope.solvers.interface import Results, saved_counts, saved_numbers

if TYPE_CHECKING:
    from haloscope.io.figures.field_pictures import FieldPanel, SlicesPicture


Row = Sequence[float]

# Share of the throughflow that may be missing, or enter where fluid leaves.
_SHARE = 0.01
# Of the velocity scale times the area of openings: flows below it are rounding.
_ROUNDING = 1e-9
# Fall of Newton's residual in a time step below which the step is not solved.
_LEAST_FALL = 100.0
# Residuals below this part of the largest of a run are rounding.
_ROUNDED_RESIDUAL = 1e-11
# Change of a mean over thirds of a run, over the root mean square, from which it has not settled.
_SETTLED = 0.05
# Steps in a third of a run, below which means say nothing.
_LEAST_STEPS = 4


def balance_warnings(openings: Mapping[str, Mapping[str, float]], velocity: float) -> list[str]:
    """A warning if flows through all openings do not add up to nothing.

    `velocity`: velocity scale of the case in m/s.
    """
    flows = [values["flow_rate"] for values in openings.values()]
    through = max(
        math.fsum(max(flow, 0.0) for flow in flows), -math.fsum(min(f, 0.0) for f in flows)
    )
    area = math.fsum(values["area"] for values in openings.values())
    net = math.fsum(flows)
    if through <= _ROUNDING * velocity * area or abs(net) <= _SHARE * through:
        return []
    return [
        f"warning: flows through openings do not balance: the outflow minus the inflow is "
        f"{net:.3g} m^3/s, {100 * abs(net) / through:.3g} % of the throughflow {through:.4g} m^3/s; flow rates, "
        "heads and forces are not final: allow more Newton and GMRES iterations"
    ]


def backflow_warnings(
    openings: Mapping[str, Mapping[str, float]], held: Mapping[str, bool], velocity: float
) -> list[str]:
    """Warnings about openings with a pressure or a traction through which fluid goes both ways."""
    warnings = []
    for name, holds in held.items():
        values = openings[name]
        entering = -values["inflow"]
        leaving = values["flow_rate"] + entering
        less, more = sorted((entering, leaving))
        if more <= _ROUNDING * velocity * values["area"] or less <= _SHARE * more:
            continue
        back = "enters again" if leaving >= entering else "leaves again"
        remedy = (
            "move it farther away" if holds else "set its backflow = 0.5, or move it farther away"
        )
        warnings.append(
            f"warning: backflow at {name!r}: {100 * less / more:.3g} % of the flow through it {back}; the "
            f"pressure there is not the pressure in the vessel beyond: {remedy}"
        )
    return warnings


def newton_warnings(rows: Sequence[Row], unconverged: int) -> list[str]:
    """Warnings about steps in time that Newton's method and GMRES did not solve."""
    if not rows:
        return []
    steps = np.array([row[0] for row in rows])
    residuals = np.array([row[3] for row in rows])
    begins = np.flatnonzero(np.diff(steps, prepend=-1.0))
    ends = np.append(begins[1:], len(steps)) - 1
    first, last = residuals[begins], residuals[ends]
    loose = (last * _LEAST_FALL > first) & (last > _ROUNDED_RESIDUAL * residuals.max())
    if not loose.any():
        return []
    missed = (
        f" and GMRES missed its tolerance {counted(unconverged, 'time')}" if unconverged else ""
    )
    worst = float((last[loose] / first[loose]).max())
    return [
        f"warning: in {loose.sum()} of {counted(len(first), 'time step')} Newton's residual fell less "
        f"than a hundredfold (worst: to {worst:.2g} of its first value){missed}: lower "
        "flow.newton.tolerance, or raise flow.newton.iterations and flow.linear.iterations"
    ]


def settling_warnings(name: str, values: Sequence[Row]) -> list[str]:
    """A warning if the mean over the last third of a run differs from that over the third before."""
    third = len(values) // 3
    if third < _LEAST_STEPS:
        return []
    before, last = np.array(values[-2 * third : -third]), np.array(values[-third:])
    size = float(np.sqrt((last**2).sum(axis=1).mean()))
    change = float(np.linalg.norm(last.mean(axis=0) - before.mean(axis=0)))
    if not size or change <= _SETTLED * size:
        return []
    return [
        f"warning: {name} has not settled: its mean over the last third of the steps differs by "
        f"{100 * change / size:.3g} % from its mean over the third before; raise flow.time.end"
    ]


_NO_ROWS = np.empty(0)
_FORCE_HEAD = ("step", "time", "Fx", "Fy", "Fz", "Mx", "My", "Mz")
_NEWTON_HEAD = ("step", "time", "iteration", "residual", "gmres_iterations", "gmres_residual")
_GMRES_HEAD = ("step", "iteration", "gmres_iteration", "residual")
# Head, rows, and which columns hold whole numbers.
_Table = tuple[Sequence[str], list[list[float]], tuple[int, ...]]
# Steps whose GMRES residuals are kept, the last ones.
_STEPS_OF_GMRES = 20
_UNCONVERGED = "raise flow.linear.iterations or flow.linear.restart"
_PASCAL_PER_MMHG = 133.322387415
_SECONDS_AN_HOUR = 3600.0


class RunResults:
    """Tables of a run that grow with its steps, and its summary."""

    def __init__(self, table: FlowTable, system: System) -> None:
        self._table, self._system = table, system
        self.done = Iterations()
        self._on_host = system.device.kind == "cpu"
        self.phases = PhaseTimes(COMPONENTS if self._on_host else AWAITED)
        # Step, time, force and moment of each step, and coefficients, by name.
        self.force_rows: dict[str, list[list[float]]] = {force.name: [] for force in table.forces}
        # Step, time, number, residual and GMRES' iterations and residual of Newton's iterations.
        self.newton_rows: list[list[float]] = []
        self._gmres: list[list[float]] = []
        self._unconverged = 0
        # Step, time in s, time step before and after each change of it by a restart.
        self.time_steps: list[list[float]] = []
        # Pressure heads whenever somebody looked at openings, since this run began.
        self._rises: list[float] = []
        self._appended: dict[Path, int] = {}
        self._openings: dict[str, BoundaryAreas] = {
            name: boundary_areas(system.part, system.shared, name)
            for name in sorted(table.boundaries)
            if _is_opening(table, name)
        }

    # Each step

    def record(self, step: int, time: float, history: NewtonHistory, steps: Steps) -> None:
        """Add a step; all ranks call this."""
        self.done.steps += 1
        self.done.newton += len(history.linear)
        self.done.linear += sum(solve.iterations for solve in history.linear)
        self._unconverged += sum(not solve.converged for solve in history.linear)
        for number, residual in enumerate(history.residuals):
            solved = history.linear[number] if number < len(history.linear) else None
            own = [0.0, math.nan] if solved is None else [solved.iterations, solved.residual]
            self.newton_rows.append([step, time, number, residual, *own])
        oldest = step - _STEPS_OF_GMRES
        if self._gmres and self._gmres[0][0] <= oldest:
            self._gmres = [row for row in self._gmres if row[0] > oldest]
        for number, solved in enumerate(history.linear):
            self._gmres += [
                [step, number, k, residual] for k, residual in enumerate(solved.history)
            ]
        for force in self._table.forces:
            self.force_rows[force.name].append([step, time, *self._force(force, steps)])

    def _force(self, force: Force, steps: Steps) -> list[float]:
        """Force, moment and, where they are asked for, coefficients."""
        system = self._system
        nodes = np.unique(
            np.concatenate([system.boundary_values.nodes[name] for name in force.boundaries])
        )
        force_vector, moment = force_and_moment(
            system.reactions,
            system.shared,
            steps.level_state,
            steps.past,
            system.part.nodes,
            nodes,
            force.centre,
            steps.load,
        )
        row = [*force_vector.tolist(), *moment.tolist()]
        if force.velocity is not None and force.area is not None:
            pressure = self._table.fluid.density * force.velocity**2 / 2
            row += (force_vector / (pressure * force.area)).tolist()
        return row

    def last_forces(self) -> dict[str, list[float]]:
        """Rows of the last step, without step and time."""
        return {name: rows[-1][2:] for name, rows in self.force_rows.items() if rows}

    def openings(self, state: Any) -> dict[str, dict[str, float]]:
        """Area, flow rate (outward), mean pressure and inflow of boundaries that fluid crosses."""
        rows = {}
        for name, areas in self._openings.items():
            rows[name] = vars(boundary_means(self._system.shared, areas, state))
        if self._table.head is not None:
            head = self._table.head
            self._rises.append(rows[head.outlet]["pressure"] - rows[head.inlet]["pressure"])
        return rows

    # Restarts

    def extras(self) -> dict[str, NDArray[np.generic]]:
        """Tables so far; the same on every rank."""
        extras: dict[str, NDArray[np.generic]] = {
            f"forces {name}": np.array(rows, np.float64) for name, rows in self.force_rows.items()
        }
        counts = [self.done.steps, self.done.newton, self.done.linear, self._unconverged]
        if self.time_steps:
            extras["time steps"] = np.array(self.time_steps, np.float64)
        return extras | {
            "newton": np.array(self.newton_rows, np.float64),
            "gmres": np.array(self._gmres, np.float64),
            "iterations": np.array(counts, np.int64),
        }

    def restore(self, extras: Mapping[str, NDArray[np.generic]]) -> None:
        """Take over the tables of a checkpoint; those that it does not have like this begin now."""
        for force in self._table.forces:
            rows = np.asarray(extras.get(f"forces {force.name}", ()), np.float64)
            fits = rows.ndim == 2 and rows.shape[1] == len(_force_head(force))
            self.force_rows[force.name] = rows.tolist() if fits else []
        self.newton_rows = _saved_rows(extras, "newton", len(_NEWTON_HEAD))
        # Checkpoints of before have neither of the others.
        self._gmres = _saved_rows({"gmres": _NO_ROWS, **extras}, "gmres", len(_GMRES_HEAD))
        counts = saved_counts(extras, "iterations", (4,)).tolist()
        self.done = Iterations(*counts[:3])
        self._unconverged = counts[3]
        self.time_steps = _saved_rows({"time steps": _NO_ROWS, **extras}, "time steps", 4)

    # Files and the end

    def append(self, out: Path) -> None:
        """Bring tables that grow up to date, on one rank: what a run that is killed leaves."""
        for name, (head, rows, whole) in self._growing().items():
            path = out / f"{name}.csv"
            known = self._appended.get(path)
            if known is None:
                _write(path, head, rows, whole)
            else:
                append_text(path, _lines(rows[known:], whole))
            self._appended[path] = len(rows)

    def _growing(self) -> dict[str, _Table]:
        """By names of files."""
        tables: dict[str, _Table] = {}
        for force in self._table.forces:
            tables[f"forces-{force.name}"] = _force_head(force), self.force_rows[force.name], (0,)
        tables["newton"] = _NEWTON_HEAD, self.newton_rows, (0, 2, 4)
        return tables

    def write(self, out: Path) -> dict[str, Path]:
        """Write all tables, on one rank."""
        files = {}
        for name, (head, rows, whole) in self._growing().items():
            path = _write(out / f"{name}.csv", head, rows, whole)
            files[name.replace("-", " ", 1)] = path
            self._appended[path] = len(rows)
        files["gmres"] = _write(out / "gmres.csv", _GMRES_HEAD, self._gmres, (0, 1, 2))
        return files

    def finish(
        self, out: Path | None, state: Any, seconds: float, taken: int, velocity: float = 0.0
    ) -> Results:
        """The end's numbers; all ranks call this.

        `velocity`: velocity scale of the case in m/s.
        """
        files = {} if out is None else self.write(out)
        done, openings = self.done, self.openings(state)
        summary: dict[str, Any] = {
            "iterations": {
                "newton": done.newton,
                "gmres": done.linear,
                "newton_a_step": done.newton_a_step,
                "gmres_a_newton": done.linear_a_newton,
                "gmres_unconverged": self._unconverged,
            },
            "openings": openings,
            "forces": self._force_summary(),
        }
        if self.time_steps:
            summary["time_step_changes"] = [
                {"step": int(step), "time": at, "from": before, "to": after}
                for step, at, before, after in self.time_steps
            ]
        # Costs come last: a picture shows the first lines.
        lines = [
            f"{name}: {values['flow_rate']:.6g} m^3/s outward, mean pressure "
            f"{values['pressure']:.6g} Pa"
            for name, values in openings.items()
        ]
        head = self._table.head
        if head is not None:
            rise = openings[head.outlet]["pressure"] - openings[head.inlet]["pressure"]
            summary["pressure_head"] = rise
            lines.append(
                f"pressure head {rise:.6g} Pa ({rise / _PASCAL_PER_MMHG:.4g} mmHg) from "
                f"{head.inlet} to {head.outlet}"
            )
        lines += [
            counted(done.newton, "Newton iteration")
            + (
                f", {done.linear_a_newton:.1f} GMRES iterations a Newton iteration"
                if done.newton
                else ""
            )
            + (
                f"; GMRES did not converge {counted(self._unconverged, 'time')}: {_UNCONVERGED}"
                if self._unconverged
                else ""
            )
        ]
        if taken and seconds > 0:
            summary["components"] = self.phases.table(seconds)
            unit = "Newton iterations" if self._table.steady else "timesteps"
            key = f"{unit.lower().replace(' ', '_')}_per_hour"
            summary[key] = _SECONDS_AN_HOUR * taken / seconds
            lines.append(
                f"{_SECONDS_AN_HOUR * taken / seconds:.4g} {unit}/hour, {seconds:.3g} s in total"
            )
            lines.append(
                "time of each component with all components inside it; the preconditioner's includes "
                "its set-up, which precedes GMRES:"
                if self._on_host
                else "time of each component (on GPUs GMRES includes the preconditioner's set-up, "
                "products and messages, which run in its graphs):"
            )
            lines += [
                f"  {name:<28}{row['seconds']:>10.3g} s{100 * row['share']:>7.1f} %"
                for name, row in self.phases.table(seconds).items()
            ]
        return Results({"flow": summary}, files, lines, self._warnings(openings, velocity))

    def _warnings(self, openings: dict[str, dict[str, float]], velocity: float) -> list[str]:
        """Warnings about these numbers; all ranks get the same."""
        table = self._table
        held = {
            name: isinstance(condition, BoundaryTable) and condition.backflow > 0
            for name, condition in table.boundaries.items()
            if condition == "open" or (isinstance(condition, BoundaryTable) and condition.is_open)
        }
        warnings = []
        if not any(isinstance(b, BoundaryTable) and b.moving for b in table.boundaries.values()):
            warnings += balance_warnings(openings, velocity)
        warnings += backflow_warnings(openings, held, velocity)
        if table.steady:
            return warnings
        warnings += newton_warnings(self.newton_rows, self._unconverged)
        if table.changes():
            return warnings
        for name, rows in self.force_rows.items():
            warnings += settling_warnings(f"force on {name}", [row[2:5] for row in rows])
        return warnings + settling_warnings("pressure head", [[rise] for rise in self._rises])

    def _force_summary(self) -> dict[str, dict[str, list[float]]]:
        rows = {}
        for name, row in self.last_forces().items():
            rows[name] = {"force": row[:3], "moment": row[3:6]}
            if len(row) > 6:
                rows[name]["coefficients"] = row[6:]
        return rows


def _is_opening(table: FlowTable, name: str) -> bool:
    """Whether fluid may cross a boundary, or its mean pressure is asked for."""
    condition = table.boundaries[name]
    if table.head is not None and name in (table.head.inlet, table.head.outlet):
        return True
    return condition == "open" or (
        isinstance(condition, BoundaryTable) and condition.moving is None
    )


def _saved_rows(
    extras: Mapping[str, NDArray[np.generic]], name: str, columns: int
) -> list[list[float]]:
    """Rows of a table, nan where there is no value; one that has no rows has no columns either."""
    if name in extras and extras[name].shape == _NO_ROWS.shape:
        return []
    rows: list[list[float]] = saved_numbers(extras, name, (None, columns), finite=False).tolist()
    return rows


def _force_head(force: Force) -> tuple[str, ...]:
    return _FORCE_HEAD if force.velocity is None else (*_FORCE_HEAD, "cx", "cy", "cz")


def _write(
    path: Path, head: Sequence[str], rows: Sequence[Sequence[float]], whole: tuple[int, ...]
) -> Path:
    """A table as CSV, afresh."""
    write_text(path, ",".join(head) + "\n" + _lines(rows, whole))
    return path


def _lines(rows: Sequence[Sequence[float]], whole: tuple[int, ...]) -> str:
    return "".join(
        ",".join(str(int(v)) if n in whole else repr(float(v)) for n, v in enumerate(row)) + "\n"
        for row in rows
    )


def require_plane(world: World, nodes: NDArray[np.float64], wanted: Slice) -> None:
    """Refuse a plane that misses the mesh, before the run; all ranks call this."""
    lower = -np.array([world.largest(float(at)) for at in (-nodes).max(axis=0)])
    upper = np.array([world.largest(float(at)) for at in nodes.max(axis=0)])
    plane_raster(lower, upper, wanted.axis, wanted.offset, wanted.points)


def flow_picture(
    places: NodeFields, wanted: Slice, state: NDArray[np.float64], title: str, subtitle: str
) -> SlicesPicture | None:
    """Draw the state (nodes of this rank, 4), on rank 0; all ranks call this."""
    raster, located = places.sample_plane(wanted.axis, wanted.offset, wanted.points, state)
    if located is None:
        return None
    panels: list[FieldPanel] = [
        {
            "values": np.sqrt((located[:3] ** 2).sum(axis=0)),
            "label": "speed (m/s)",
            "quantity": "u",
            "scale": "magnitude",
        },
        {"values": located[3], "label": "pressure (Pa)", "quantity": "p", "scale": "range"},
    ]
    factor, unit = length_unit(max(np.ptp(raster.first), np.ptp(raster.second)))
    return {
        "x": raster.first * factor,
        "y": raster.second * factor,
        "x_label": f"{raster.names[0]} ({unit})",
        "y_label": f"{raster.names[1]} ({unit})",
        "panels": panels,
        "title": title,
        "subtitle": f"{raster.axis} = {raster.offset:.4g} m, {subtitle}",
    }
