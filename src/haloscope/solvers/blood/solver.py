"""The blood solver: sets up a rank's points and cells and takes time steps with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from haloscope.device import jit
from haloscope.device.interface import Device
from haloscope.device.program import Program
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import CellArrays
from haloscope.mesh.field_layouts import Position
from haloscope.mesh.lattice.point_fields import PointFields
from haloscope.regions import Region as TimedRegion
from haloscope.regions import SetupPhase
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cell_in_outflow import CellInOutflow
from haloscope.solvers.blood.compressibility import (
    DensityRange,
    range_line,
    range_warnings,
    require_small_range,
)
from haloscope.solvers.blood.drive import Drive, Tweezers
from haloscope.solvers.blood.filling.filling import left_out_line, starting_cells
from haloscope.solvers.blood.filling.packing import Cells, LeftOut
from haloscope.solvers.blood.fluid.fluid import SOURCE
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS
from haloscope.solvers.blood.fluid_with_cells import MANY, FluidWithCells
from haloscope.solvers.blood.membranes.meshes import COLLAPSING, SMOOTHING_STEPS
from haloscope.solvers.blood.outlets import OutletRecord, outlet_lines, reactions
from haloscope.solvers.blood.outputs.cell_outputs import CellOutputs
from haloscope.solvers.blood.outputs.pictures import flow_picture, require_plane, vessel_geometry
from haloscope.solvers.blood.outputs.results import (
    AT_WALLS,
    Flows,
    RunResults,
    flow_lines,
    wall_warnings,
)
from haloscope.solvers.blood.sizing import (
    FLOPS_A_POINT,
    becomes_steady,
    bytes_a_step,
    derived_numbers,
    settled_change,
    time_step_limit,
)
from haloscope.solvers.blood.soundness import (
    REFUSED_MACH,
    check_mach,
    check_pressure,
    report,
    require_bearable,
    scales,
    too_stiff,
)
from haloscope.solvers.blood.units import SOUND_SPEED
from haloscope.solvers.blood.vessels.vessels import (
    distances_from_walls,
    fluid_openings,
    open_vessel,
    relative_velocities,
    wall_links,
)
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

Floats = NDArray[np.float64]

_SETUP = TimedRegion("set-up")
_OPENING = SetupPhase("finding the lattice points in the vessel")
_PLACING = SetupPhase("placing the cells")
_FEEDING = SetupPhase("filling the feeders of the inlets")
_NAMES = ("u", "v", "w", "p")
_INSIDE = "inside"
# Relative difference of time steps that are one: a step that was copied in another unit differs by rounding.
_SAME_STEP = 1e-12
# Looks at openings within the longest time between two counts of cells.
_LOOKS = 5
# Most steps between them, and the largest velocity of an opening over what the case gives, or more.
_LOOK_EVERY, _PEAK = 10, 2.0
# Of the density: smaller changes of a vessel without openings are not printed.
_NOTICEABLE = 5e-3
# Spacings that cells go between two looks where more steps are taken.
_LITTLE = 0.25
_POPULATIONS = tuple(f"f{i:02d}" for i in range(DIRECTIONS))


class BloodSolver(Solver):
    """One rank's part of a blood case."""

    _case: BloodCase
    layout: PointFields
    name = "blood"
    followed = Monitor(
        name="change",
        file="change.csv",
        label="relative change of the velocity in a step",
        title="Convergence to a steady flow",
        steady=True,
    )

    def __init__(self, case: BloodCase, device: Device, world: World) -> None:
        super().__init__(case, device, world)
        self._table = table = case.blood
        self.units = table.units
        self.dtype = np.dtype(np.float64 if table.precision == "double" else np.float32)
        self.fields = {**VELOCITIES, "p": Field("p", "Pa", "pressure above that of rest")}
        self.vectors = {"velocity": ["u", "v", "w"]}
        self.stored = _POPULATIONS
        self.last_step = table.steps(case.run.steps)
        with _SETUP:
            self._open()

    def _open(self) -> None:
        table, world, device = self._table, self._world, self._device
        with _OPENING:
            self.vessel = vessel = open_vessel(table, world)
        lattice = vessel.lattice
        self.notices += lattice.notices
        require_plane(lattice, table.slice)
        until = self.last_step * table.units.time_step
        self._expected = scales(table, vessel, until)
        self.notices += report(table, vessel, self._expected, until)
        self.followed = replace(
            self.followed,
            settled=settled_change(table, vessel),
            warn_unsteady=becomes_steady(table, vessel),
        )
        self.notices += [line for kind in table.cells for line in kind.notices()]
        with _PLACING:
            cells = self._starting_cells()
        self._left_out = self._cells_left_out(cells)
        starting = self._starting_pressures()
        self.medium = medium = FluidWithCells(
            self._case,
            device,
            world,
            lattice,
            cells=cells,
            openings=lambda part: fluid_openings(
                vessel, part, self.units, table.viscosity / table.density_kg_m3
            ),
            reactions=reactions(table, vessel, starting, until),
            walls=lambda part: wall_links(table, vessel, part, self.units),
            distances=lambda part, reach: distances_from_walls(vessel, part, reach),
            log=self.notices.append,
        )
        self.part, self.fluid, self.flow = medium.part, medium.fluid, medium.flow
        self.suspension = medium.suspension
        self.layout = medium.layout_of(slice(self.part.owned))
        self.transport = self.flow.transport or "none"
        self.kernel_hash = jit.kernel_hash(SOURCE, self.fluid.constants)
        self._flows = Flows(medium, vessel)
        self._outlets: OutletRecord | None = None
        if self.fluid.outlets is not None:
            self._outlets = OutletRecord(self.fluid.outlets, vessel, self.units)
            self.followed = replace(self.followed, record=self._record_outlets)
        with _FEEDING:
            self.traffic = self._open_traffic()
        self._drive = Drive(
            table,
            vessel.openings,
            self.fluid,
            starting,
            set_by_feeders=() if self.traffic is None else self.traffic.sets_velocities,
        )
        self._tweezers = Tweezers(table, self.suspension)
        self._steps_between_checks = self._steps_between_looks()
        self._set_drive(0)
        self._tweezers.set(0)
        self._set_initial()
        self._set_cells()
        if self.traffic is not None:
            self.traffic.start(self._drive.inflow())
        self._set_results()
        self.work = self._count_work()
        self._kept: tuple[int, Floats] = (-1, np.empty(0))
        self._before: tuple[int, Floats] | None = None

    def _starting_cells(self) -> Cells | None:
        """Where cells start; None where there are none."""
        table = self._table
        if not table.cells:
            return None
        lattice = self.vessel.lattice
        fed = any(opening.feeds for opening in self.vessel.openings)
        return starting_cells(table.cells, lattice, table.seed, self._world, self._device, fed=fed)

    def _cells_left_out(self, cells: Cells | None) -> dict[str, LeftOut]:
        """Cells of lists that have no room in the vessel, by kind; reported."""
        if cells is None:
            return {}
        pairs = zip(self._table.cells, cells.left_out, strict=True)
        lists = [(kind, counts) for kind, counts in pairs if kind.positions is not None]
        self.notices += [
            f"blood.cells {kind.name}: {left_out_line(kind, counts)}" for kind, counts in lists
        ]
        return {kind.name: counts for kind, counts in lists}

    def _open_traffic(self) -> CellInOutflow | None:
        """Opens the vessel's inflow and outflow of cells."""
        if self.suspension is None or not self.vessel.openings:
            return None
        return CellInOutflow(self.medium, self.vessel.openings, self.notices.append)

    def _set_cells(self) -> None:
        """Let the cells of the case begin to push, and get ready to write them."""
        self._cell_outputs: CellOutputs | None = None
        if self.suspension is None:
            return
        self.medium.start()
        output = self._case.output
        self._cell_outputs = CellOutputs(
            self.suspension,
            self.vessel,
            self.medium.region,
            self.units,
            self._world,
            title=self._case.title or "Cells in blood",
            fields=output.fields,
            picture=output.picture,
            left_out=self._left_out,
        )
        if self._table.inside_tau is not None:
            self.stored = (*_POPULATIONS, _INSIDE)

    def _set_results(self) -> None:
        """Get ready for what is worked out of the run."""
        self._results = RunResults(
            self._case,
            self.medium,
            self.vessel,
            cell_outputs=self._cell_outputs,
            traffic=self.traffic,
        )

    def _steps_between_looks(self) -> int:
        """Steps in which no cell goes far at an opening, where the flow is as fast as the case says."""
        lattice, fastest = self.vessel.lattice, 0.0
        for points, table in zip(lattice.openings, self.vessel.openings, strict=True):
            if table.kind == "velocity":
                peak = np.abs(relative_velocities(table, points, lattice)).max(initial=_PEAK)
                fastest = max(fastest, peak * abs(table.value) / self.units.velocity)
        if not all(opening.time_signal().steady for opening in self.vessel.openings):
            # How far a signal goes is not known for all times: beyond this no run goes on.
            fastest = max(fastest, REFUSED_MACH * SOUND_SPEED)
        interval = self._table.cell_interval
        most = max(1, min(_LOOK_EVERY, interval // _LOOKS))
        if most * fastest > 1.0:
            return max(1, int(1.0 / fastest))
        if not fastest or self._driven_by_pressures():
            return most
        return max(most, min(interval, int(_LITTLE / fastest)))

    def _driven_by_pressures(self) -> bool:
        """Whether fluid may flow that does not come in at a given velocity."""
        openings = self.vessel.openings
        pressures = {
            opening.name if opening.reacts else opening.value
            for opening in openings
            if opening.kind == "pressure"
        }
        return len(pressures) > 1 or any(self._table.pressure_gradient_pa_m)

    def _let_cells_pass(self) -> None:
        """Cells go out and come in where the vessel is open."""
        if (
            self.traffic is None
            or self.suspension is None
            or self.step % self._steps_between_checks
        ):
            return
        if self.traffic.look(self._drive.inflow()):
            # Those that have come may be faster than the ones that were there when others were last handed over.
            self.suspension.migrate()
            # Cells that have gone push no more in the next step, and those that have come do, as after a
            # restart from here.
            self.suspension.put_forces()

    def _smooth(self) -> None:
        """Smooth creases out of cells, but not of those on their way in, which follow others."""
        cells, traffic = self.suspension, self.traffic
        if cells is None or not self._table.smooth_creases or self.step % SMOOTHING_STEPS:
            return
        none = np.zeros(0, np.int64)
        entering = [
            none if traffic is None else traffic.entering(k) for k in range(len(cells.kinds))
        ]
        cells.smooth(COLLAPSING, entering)

    # Time

    @property
    def time(self) -> float:
        """Time in s."""
        return self.step * self.units.time_step

    @property
    def program(self) -> Program:
        """The fluid's part of a step."""
        return self.fluid.program

    def _set_drive(self, step: int) -> None:
        """Set what drives the flow in a step."""
        self._drive.set(step)

    def advance(self, steps: int) -> None:
        """Take steps."""
        end = self.step + steps
        while self.step < end:
            self._set_drive(self.step)
            self._tweezers.set(self.step + 1)
            if self.traffic is not None:
                after = self.step + 1
                another = after < end and bool(after % self._steps_between_checks)
                self.traffic.before_step(self._drive.inflow(), another=another)
            self.step += self.medium.stepping.take(self._undisturbed(end))
            if self.suspension is not None:
                self._see_to_cells()
            self._results.after_step(self.step)

    def _undisturbed(self, end: int) -> int:
        """Steps from now, at most to an end, between which nothing but the flow goes on."""
        if self.suspension is not None or not self._drive.steady:
            return 1
        most = min(end - self.step, MANY)
        disturbed = (self._results.is_due(self.step + n) for n in range(1, most))
        return next((n for n, due in enumerate(disturbed, 1) if due), most)

    def _see_to_cells(self) -> None:
        """Let cells pass openings, smooth them and mark what is inside them, when it is time."""
        self._let_cells_pass()
        self._smooth()
        if self.step % self._table.inside_interval == 0:
            self.medium.mark_inside()

    # State

    def _starting_pressures(self) -> list[float]:
        """Mean pressures at the openings at the start, in Pa."""
        field, lattice = self._table.initial_field("p"), self.vessel.lattice
        pressures = []
        for opening in lattice.openings:
            x, y, z = lattice.positions(opening.numbers).T
            pressures.append(
                float(np.mean(field.evaluate_finite("blood.initial.p", x=x, y=y, z=z)))
            )
        return pressures

    def _set_initial(self) -> None:
        table, lattice, part = self._table, self.vessel.lattice, self.part
        x, y, z = lattice.positions(part.numbers[: part.owned]).T
        fields = [
            np.broadcast_to(
                table.initial_field(name).evaluate_finite(f"blood.initial.{name}", x=x, y=y, z=z),
                x.shape,
            )
            for name in _NAMES
        ]
        speed = float(np.sqrt(sum(component**2 for component in fields[:3])).max(initial=0.0))
        check_mach(table, self._world.largest(speed), "blood.initial.u, v, w")
        high = self._world.largest(float(fields[3].max(initial=0.0)))
        low = -self._world.largest(float((-fields[3]).max(initial=0.0)))
        check_pressure(table, high if high >= -low else low, "blood.initial.p")
        density = 1.0 + fields[3] / self.units.pressure / SOUND_SPEED**2
        self.fluid.set_equilibrium(density, np.stack(fields[:3]) / self.units.velocity)

    def _state(self, name: str) -> np.ndarray:
        """Own points' values of a stored name."""
        if self._kept[0] != self.step:
            self._kept = (self.step, self.fluid.populations())
        values: np.ndarray = self._kept[1][_POPULATIONS.index(name)]
        return values

    def owned(self, name: str) -> np.ndarray:
        """Host copy of own values: populations less their weights, or a field in SI units."""
        if name in _POPULATIONS:
            return self._state(name).astype(self.dtype)
        if name == _INSIDE:
            flags: np.ndarray = self._device.to_host(self.fluid.inside[: self.part.owned])
            return flags.astype(self.dtype)
        return self.relative(name)

    def _moments(self) -> Floats:
        """u, v, w in m/s and p in Pa of own points, (4, owned)."""
        density, velocity = self.fluid.moments()
        pressure = (density - 1.0) * SOUND_SPEED**2 * self.units.pressure
        return np.concatenate([velocity * self.units.velocity, pressure[None]])

    def relative(self, name: str) -> np.ndarray:
        """Own values of a field in SI units."""
        values: np.ndarray = self._moments()[_NAMES.index(name)]
        return values.astype(self.dtype)

    def scalars(self) -> dict[str, float]:
        """Numbers beside the fields that a restart needs."""
        return {"time_step": self.units.time_step}

    def restore(
        self, step: int, scalars: Mapping[str, float], own: Callable[[str], np.ndarray]
    ) -> None:
        """Take over a saved state; see :class:`haloscope.solvers.interface.Solver`."""
        before, wanted = scalars["time_step"], self.units.time_step
        if not math.isclose(before, wanted, rel_tol=_SAME_STEP, abs_tol=0.0):
            raise InputError(
                f"its time step is {before!r} s and that of this case is {wanted!r} s; its lattice units depend on "
                "the time step",
                location="checkpoint",
                remedy="restart with the case that wrote it, or begin anew without --restart",
            )
        values = np.stack([own(name) for name in _POPULATIONS])
        self._require_finite([values])
        self.fluid.set_populations(values)
        if _INSIDE in self.stored:
            flags = self._device.from_host((own(_INSIDE) != 0).astype(np.uint8))
            self.fluid.inside[: self.part.owned] = flags
        self.step = step
        # Of the step that led here: half of its force counts in velocities.
        self._set_drive(max(step - 1, 0))
        self._tweezers.set(step)
        self._before = None
        self._kept = (-1, np.empty(0))

    def extras(self) -> Mapping[str, np.ndarray]:
        """Cells by number: their vertices and the velocities of these, in lattice units."""
        extras: dict[str, np.ndarray] = {}
        for part in (self.suspension, self.traffic):
            if part is not None:
                extras |= part.state()
        if self._cell_outputs is not None:
            extras |= self._cell_outputs.extras()
        if self._outlets is not None:
            extras |= self._outlets.state()
        return {**extras, **self._results.extras()}

    def restore_extras(self, extras: Mapping[str, np.ndarray]) -> None:
        """Take them over."""
        if self.suspension is not None:
            self.suspension.restore(extras)
        if self.traffic is not None:
            self.traffic.restore(extras, self.step)
        if self._outlets is not None:
            self._outlets.restore(extras)
        if self._cell_outputs is not None:
            self._cell_outputs.restore(extras)
        left_out = self._results.restore(extras, self.step)
        if left_out:
            self.notices.append(left_out)
        # What is followed next is the change since here, as in a run that was not stopped.
        self._before = (self.step, self._moments()[:3])

    def at_restart(self, out: Path) -> None:
        """Go on with the table of cells."""
        lost = "" if self._cell_outputs is None else self._cell_outputs.resume(out, self.step)
        if lost:
            self.notices.append(lost)

    def cell_columns(self) -> Mapping[str, np.ndarray] | None:
        """Columns of the table of cells on rank 0; all ranks call this."""
        return self._outputs_of_cells("cells").columns(self.step)

    def membranes(self) -> CellArrays | None:
        """Membranes of all cells on rank 0; all ranks call this."""
        return self._outputs_of_cells("membranes").membranes(self.step)

    def _outputs_of_cells(self, location: str) -> CellOutputs:
        if self._cell_outputs is None:
            raise InputError(
                "the case has no cells", location=location, remedy="add a table [[blood.cells]]"
            )
        return self._cell_outputs

    def at_output(self, out: Path) -> None:
        """Write cells beside the fields."""
        if self._cell_outputs is not None:
            self._cell_outputs.at_step(out, self.step)

    def finish(self, out: Path | None, probes: Mapping[str, Sequence[Sequence[float]]]) -> Results:
        """Work out what the run was made for."""
        results = self._results.finish(out, self.step)
        moments = self._moments()
        warnings = range_warnings(self._flows.densities(moments), self.advice())
        warnings += wall_warnings(self._flows.rates(moments), self._table)
        return replace(results, notices=[*results.notices, *warnings])

    def sample(self, positions: Sequence[Position]) -> list[list[float]]:
        """Values of all fields at points, the same on every rank."""
        samples = [self.layout.sample(positions, values) for values in self._moments()]
        return [list(row) for row in zip(*samples, strict=True)]

    # What people look at

    def follow(self) -> dict[str, float]:
        """Change of the velocity a step since the last look, relative to the velocity."""
        if self.suspension is not None:
            self.suspension.require_sound()
        if self.traffic is not None:
            self.traffic.require_sound()
        fields = self._moments()
        velocity = fields[:3]
        fastest = math.sqrt(float((velocity**2).sum(axis=0).max(initial=0.0)))
        require_bearable(self._table, self._world.largest(fastest))
        density = self._flows.densities(fields)
        require_small_range(density, self.step, self.vessel.lattice)
        square = float((velocity**2).sum())
        changed, steps = math.nan, 1
        if self._before is not None and self._before[0] != self.step:
            steps = self.step - self._before[0]
            changed = float(((velocity - self._before[1]) ** 2).sum())
        elif self._before is None:
            changed = square
        else:
            changed = 0.0
        self._before = (self.step, velocity)
        square, changed = self._world.sum(np.array([square, changed])).tolist()
        if not math.isfinite(square):
            return {"velocity": math.nan}
        if square == 0.0:
            return {"velocity": 1.0 if self.step == 0 else 0.0}
        return {"velocity": math.sqrt(changed / square) / steps}

    def diagnostics(self) -> dict[str, float]:
        """Time, speeds, what they are on the lattice, and flow through openings."""
        fields = self._moments()
        speed = np.sqrt((fields[:3] ** 2).sum(axis=0))
        largest = self._world.largest(float(speed.max(initial=0.0)))
        sums = self._world.sum(np.append(fields.sum(axis=1), float(len(speed))))
        mean = sums[:4] / sums[4]
        density = self._flows.densities(fields)
        numbers = {
            "time": self.time,
            "time_step": self.units.time_step,
            "relaxation_time": self._table.tau,
            "largest_speed": largest,
            "mach": largest / self.units.velocity / SOUND_SPEED,
            "mean_u": float(mean[0]),
            "mean_v": float(mean[1]),
            "mean_w": float(mean[2]),
            "mean_p": float(mean[3]),
            "density_low": density.low,
            "density_high": density.high,
        }
        numbers |= self._flows.rates(fields)
        return numbers if self._outlets is None else numbers | self._outlets.numbers()

    def _record_outlets(self, out: Path) -> None:
        assert self._outlets is not None
        self._outlets.write(out, self.step)

    def derived(self) -> list[DerivedNumber]:
        """Lattice, size of the vessel, and the flow that is expected."""
        return derived_numbers(self._table, self.vessel, self._expected)

    def time_step_limit(self) -> str:
        """The time step, what sets it, and the part of the case that limits a longer one."""
        return time_step_limit(self._table, self._expected)

    def advice(self) -> str:
        """Change of the case to try when the solution breaks."""
        stiff = [modulus for kind in self._table.cells for modulus in too_stiff(kind)]
        stiff += ["stretch.force_pn" for kind in self._table.cells if kind.stretch is not None][:1]
        softer = f"{' and '.join(stiff)}, " if stiff else ""
        step = (
            "blood.time_step_us"
            if self._table.relaxation_time is None
            else "blood.relaxation_time (which shortens the time step)"
        )
        return f"lower {softer}{step}, the driving force or blood.spacing_um"

    def keep_cells_frame(self) -> None:
        """Keep a picture of the present cells."""
        if self._cell_outputs is not None:
            self._cell_outputs.keep_frame(self.step)

    def geometry(self) -> Geometry:
        """Walls, openings and the cells at the start."""
        return vessel_geometry(self.medium, self.vessel, self._case.boundary_conditions())

    def picture(self) -> SlicesPicture | None:
        """Velocity and pressure on a plane, with the outlines of cells."""
        subtitle = f"time {self.time * 1e3:.4g} ms, {self.layout.describe()}"
        return flow_picture(
            self.medium, self._moments(), self._table.slice, self._case.title, subtitle
        )

    def headline(self, numbers: Mapping[str, float]) -> list[str]:
        """Time, speed and flow."""
        lines = [
            f"time {numbers['time'] * 1e3:.6g} ms, largest speed {numbers['largest_speed'] * 1e3:.4g} "
            f"mm/s (lattice Mach number {numbers['mach']:.2g})"
        ]
        lines += outlet_lines(numbers)
        interpolated = self._table.walls.kind == "interpolated"
        half = self._table.storage == "half"
        lines += flow_lines(numbers, interpolated=interpolated, half=half)
        if not self.vessel.openings and interpolated:
            gained = numbers["mean_p"] / self.units.pressure / SOUND_SPEED**2
            mass = self.vessel.lattice.count * self.units.density * self.units.spacing**3
            rate = numbers[AT_WALLS] * self.units.time_step / mass
            lines.append(
                f"mean density {gained:+.2g} relative to that at rest (interpolated walls do not conserve mass: "
                f"{rate:+.2g} in the last step)"
            )
        density = DensityRange(numbers["density_low"], numbers["density_high"])
        if self.vessel.openings or density.change > _NOTICEABLE:
            lines.append(range_line(density))
        return lines

    def _count_work(self) -> Work:
        table = self._table
        media = [self.medium, *(() if self.traffic is None else self.traffic.media)]
        # What feeds is updated as well as the vessel.
        count = sum(medium.lattice.count for medium in media)
        held = sum(medium.fluid.nbytes for medium in media)
        [memory] = self._sums(held)
        return Work(
            cells=count,
            size=count,
            bytes=float(count * bytes_a_step(table)),
            flops=float(count * FLOPS_A_POINT[table.collision]),
            memory=memory,
            unit="lattice update",
        )
