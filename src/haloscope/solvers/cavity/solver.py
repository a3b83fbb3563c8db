"""The cavity solver: one rank's part of a case."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from haloscope.device import jit
from haloscope.device.interface import Array, Device
from haloscope.device.program import Program
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import BlockFields, collect, whole
from haloscope.numerics.reduce import NOT_FINITE, ChangeNorm
from haloscope.regions import Region
from haloscope.solvers.cavity import diagnostics
from haloscope.solvers.cavity.block_nodes import SOURCE, BlockNodes, allocate, axes_of, partition
from haloscope.solvers.cavity.case import CavityCase, Flow
from haloscope.solvers.cavity.diagnostics import CentrePressure
from haloscope.solvers.cavity.stepping import Stepping, TimeStep
from haloscope.solvers.cavity.updates import Ghosts, Updates
from haloscope.solvers.cavity.walls import Walls, walls_geometry
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
    from haloscope.io.figures.geometry_views import Geometry
    from haloscope.io.figures.pictures import PlanePicture

_FIELDS = {
    "p": Field("p", "Pa", "pressure minus the pressure at the centre"),
    **VELOCITIES,
    "T": Field("T", "K", "temperature"),
}
_STEP_INTERVAL = 50
_FLOPS = {2: 99, 3: 172}
# A dimensionless rate of change that no flow has: impulsive starts stay below 1e3.
_DIVERGED = 1e6
# Where run.tolerance is 0: the tolerance of the template.
_SETTLED = 1e-4
# In K: below it convection could not be measured.
_LEAST_DIFFERENCE = 1e-4
# Reynolds number of a spacing above which the grid resolves nothing of the flow.
_UNRESOLVED = 1e4
# Of the heat, relative: a coarse grid loses some of it between walls.
_HEAT_IMBALANCE = 0.05

_TIME_STEP = Region("time step")


class CavitySolver(Solver):
    """One rank's part of a cavity case."""

    _case: CavityCase
    layout: BlockFields
    name = "cavity"
    followed = Monitor(
        name="residual",
        file="residuals.csv",
        label="residual (dimensionless rate of change)",
        title="Convergence to the steady state",
        steady=True,
        limit=_DIVERGED,
        settled=_SETTLED,
    )

    def __init__(self, case: CavityCase, device: Device, world: World) -> None:
        super().__init__(case, device, world)
        self.flow = flow = Flow(case.cavity)
        self.dtype = np.dtype(np.float32 if case.cavity.precision == "single" else np.float64)
        names = [name for name in _FIELDS if name != "w" or case.cavity.dimensions == 3]
        self.fields = {name: _FIELDS[name] for name in names}
        self.stored = tuple(names)
        self.vectors = {"velocity": [name for name in "uvw" if name in names]}
        self.spacing = flow.spacing
        self.blocks = partition(case, world.size)
        self.block = self.blocks.block(world.rank)
        self.layout = BlockFields(world, self.blocks, self.spacing)
        self.notices = list(self._warnings())
        self._set_up()
        self._set_initial()
        self.stepping.complete()
        if flow.table.time_step == "global":
            self._set_time_step()
        self.stepping.choose_passes()
        self.work = self._count_work()

    @property
    def program(self) -> Program:
        """The steps that :meth:`advance` takes."""
        return self.stepping.program

    def _set_up(self) -> None:
        """The parts of a step, and what they work on."""
        case, flow, device, world = self._case, self.flow, self._device, self._world
        dimensions = flow.table.dimensions
        axes = axes_of(case, self.blocks, device.kind)
        self.nodes = BlockNodes(self.block, dimensions, self.dtype, device.kind, axes)
        # Neighbours may store into the states of a GPU, see DirectHalo and UnpackedExchange.
        shared = device.kind != "cpu" and self.blocks.count > 1
        self.operands = operands = allocate(flow, device, self.nodes, shared=shared)
        self.kernel_hash = jit.kernel_hash(SOURCE, operands.constants)
        ghosts = Ghosts(case.machine, operands, self.blocks, world, self.notices.append)
        updates = Updates(operands, case.machine.packing)
        ghosts.open_direct(updates)
        self.transport = ghosts.transport
        self.time_step = TimeStep(operands, world)
        start, stop = self.nodes.updated()
        first, box = self.nodes.index(*start), self.nodes.box(start, stop)
        self._norm = ChangeNorm(device, world, self.dtype, first, box, self.nodes.distances)
        self.centre = CentrePressure(flow.nodes, operands, world)
        self.walls = Walls(flow, operands)
        self.stepping = Stepping(
            flow,
            case.machine,
            operands,
            ghosts=ghosts,
            updates=updates,
            centre=self.centre,
            walls=self.walls,
        )

    def _set_initial(self) -> None:
        """Fill both states: initial fields, then the values that walls prescribe."""
        where = self.nodes.coordinates(self.spacing)
        shape = tuple(reversed(self.block.shape))
        for name in self.fields:
            values = np.empty(shape, self.dtype)
            values[...] = self.flow.initial(name).evaluate_finite(f"cavity.initial.{name}", **where)
            self.walls.prescribe(name, values, where)
            self._fill(name, values)

    def _warnings(self) -> Iterator[str]:
        """Doubts about the case: its drive, its units, its grid, its outputs."""
        flow, output = self.flow, self._case.output
        difference, extent = flow.temperature_difference, max(flow.size)
        if not flow.is_heated and not flow.lid_velocity > 0:
            yield (
                "warning: nothing drives a flow: all walls are adiabatic and at rest, and cavity.rayleigh "
                "or cavity.temperature_difference only sets scales; make one wall "
                '"hot" and one "cold", or give a wall a velocity'
            )
        # The box and the temperature difference are far from any experiment.
        if flow.is_heated and difference < _LEAST_DIFFERENCE:
            smaller = [f"{extent * factor:g}" for factor in (0.01, 0.001)]
            yield (
                f"warning: a temperature difference of {difference:.2g} K over {flow.distance:g} m is "
                f"implausible (Ra = {flow.rayleigh:.3g}): cavity.size is in m; centimetres or millimetres? "
                f"set cavity.size = {smaller[0]} or {smaller[1]}"
            )
        speed, viscosity = flow.reference_velocity, flow.table.kinematic_viscosity
        spacing = max(self.spacing)
        of_spacing = speed * spacing / viscosity
        # Such a flow then seems steady early.
        if of_spacing > _UNRESOLVED:
            yield (
                "warning: the grid does not resolve this flow: the Reynolds number is "
                f"{speed * extent / viscosity:.3g}, and {of_spacing:.3g} with the spacing of "
                f"{spacing:.3g} m; check the velocity ({speed:.3g} m/s), cavity.size "
                f"({extent:g} m) and cavity.kinematic_viscosity ({viscosity:g} m^2/s), or raise "
                "cavity.nodes"
            )
        keys = [f"output.{k}" for k in ("interval", "probes", "average") if getattr(output, k)]
        if keys:
            yield (
                f"{' and '.join(keys)}: steps advance a pseudo-time, not time in seconds; only the steady "
                "state is physical"
            )

    def _fill(self, name: str, values: np.ndarray) -> None:
        """Put own values of a field into both states."""
        for state in self.operands.states:
            self.view(name, state)[...] = self._device.from_host(values)

    def _count_work(self) -> Work:
        own = math.prod(self.nodes.box(*self.nodes.updated()))
        held = sum(state.nbytes for state in self.operands.states)
        cells, memory = self._sums(own, held)
        values = 2 * len(self.fields) * self.dtype.itemsize
        flops = _FLOPS[self.flow.table.dimensions]
        size = int(np.prod(np.array(self.flow.nodes, np.int64)))
        return Work(cells, size, float(cells * values), float(cells * flops), memory)

    # Steps

    def _set_time_step(self) -> None:
        with _TIME_STEP:
            self.time_step.set(self.time_step.stable(self.stepping.current))

    def advance(self, steps: int) -> None:
        """Take steps. The global time step is renewed at fixed steps, whatever the calls."""
        end = self.step + steps
        while self.step < end:
            until = min(end, (self.step // _STEP_INTERVAL + 1) * _STEP_INTERVAL)
            if self.flow.table.time_step == "local":
                until = end
            self.stepping.take(until - self.step)
            self.step = until
            if self.step % _STEP_INTERVAL == 0 and self.flow.table.time_step == "global":
                self._set_time_step()

    def follow(self) -> dict[str, float]:
        """Root mean square of each field's change in the last step, made dimensionless."""
        # The change is divided by the smallest time step of the grid and multiplied by L / V_ref;
        # pressure is taken relative to the centre and scaled by rho V_ref^2, velocities by V_ref,
        # temperature by the temperature difference (1 K where there is none).
        fresh, old, current = self.stepping.state, self.stepping.before, self.stepping.current
        speed = self.flow.reference_velocity
        scales = {"p": self.flow.table.density * speed**2, "u": speed, "v": speed, "w": speed}
        scales["T"] = self.flow.temperature_difference or 1.0
        fastest = self.time_step.fastest(current)
        if not 0.0 < fastest < NOT_FINITE:
            return dict.fromkeys(self.fields, float("inf"))
        factor = self.flow.distance / speed / self.time_step.stable(current)
        shift = self.centre.of(fresh) - self.centre.of(old)
        values = {}
        for number, name in enumerate(self.fields):
            begin = number * self.nodes.layout.field_stride
            relative = shift if name == "p" else 0.0
            change = self._norm.rms(fresh[begin:], old[begin:], relative)
            values[name] = change * factor / scales[name]
        return values

    def derived(self) -> list[DerivedNumber]:
        """Scales of the case, by which slips in its units show."""
        flow = self.flow
        numbers = []
        if flow.is_heated:
            numbers = [
                DerivedNumber("temperature difference", flow.temperature_difference, "K"),
                DerivedNumber("Rayleigh number", flow.rayleigh),
                DerivedNumber("Prandtl number", flow.table.kinematic_viscosity / flow.alpha),
            ]
        if flow.lid_velocity > 0:
            reynolds = flow.lid_velocity * flow.size[0] / flow.table.kinematic_viscosity
            numbers.append(DerivedNumber("Reynolds number", reynolds))
        numbers.append(DerivedNumber("reference velocity", flow.reference_velocity, "m/s"))
        return numbers

    def time_step_limit(self) -> str:
        """The steps are those of a pseudo-time."""
        return "whose number the grid and run.tolerance determine; a coarser grid needs fewer"

    def advice(self) -> str:
        """Change of the case to try when the solution breaks."""
        table = self.flow.table
        higher = min(100.0, max(1.0, 5 * self.flow.kappa))
        return (
            f"raise cavity.kappa (now {self.flow.kappa:g}; try {higher:g}), lower cavity.cfl (now "
            f"{table.cfl:g}), or raise cavity.nodes (now {table.nodes})"
        )

    # Values

    def view(self, name: str, state: Array | None = None) -> Array:
        """Owned values of a field on the device, shape (nz, ny, nx), without a copy."""
        flat = self.stepping.state if state is None else state
        return self.nodes.view(self._device, flat, list(self.fields).index(name))

    def owned(self, name: str) -> np.ndarray:
        """Owned values on the host, edges of walls filled in; pressure as the steps have it."""
        values = self._device.to_host(self.view(name))
        self.walls.fill_edges(name, values)
        return values

    def relative(self, name: str) -> np.ndarray:
        """As :meth:`owned`, with the pressure at the centre subtracted from a pressure."""
        values = self.owned(name)
        if name == "p":
            values -= values.dtype.type(self.centre.of(self.stepping.state))
        return values

    def sample(self, positions: Sequence[tuple[float, float, float]]) -> list[list[float]]:
        """Values of all fields at points, the same on every rank."""
        fields = [self.layout.sample(positions, self.relative(name)) for name in self.fields]
        return [list(values) for values in zip(*fields, strict=True)]

    # Restarts

    def scalars(self) -> dict[str, float]:
        """The global time step (0 where each node has its own), and the factor that chose it."""
        return {"dt": self.time_step.dt, "cfl": self.flow.table.cfl}

    def restore(
        self, step: int, scalars: Mapping[str, float], own: Callable[[str], np.ndarray]
    ) -> None:
        """Take over a saved state; see :class:`haloscope.solvers.interface.Solver`."""
        where = self.nodes.coordinates(self.spacing)
        for name in self.fields:
            values = own(name)
            # The case decides on walls: a restart may go on with others.
            self.walls.prescribe(name, values, where)
            if not np.isfinite(values).all():
                raise InputError(
                    f"the field {name} holds values that are not finite",
                    location="checkpoint",
                    remedy="restart from an earlier one",
                )
            self._fill(name, values)
        self.step = step
        self.stepping.complete()
        self.time_step.set(scalars["dt"])
        table = self.flow.table
        kept = scalars["dt"] > 0.0 and scalars.get("cfl", table.cfl) == table.cfl
        if table.time_step == "global" and not kept:
            self._set_time_step()

    # Results

    def diagnostics(self) -> dict[str, float]:
        """Nusselt numbers and velocity maxima; see :mod:`.diagnostics`."""
        return diagnostics.measure(self)

    def midplane_fields(self) -> dict[str, np.ndarray] | None:
        """Fields on the plane z = Lz / 2 on rank 0, each of shape (ny, nx); None on other ranks."""
        nz = self.flow.nodes[2]
        x, y, _ = whole(self.blocks)
        region = (x, y, slice((nz - 1) // 2, nz // 2 + 1))
        planes = {}
        for name in self.fields:
            plane = collect(self._world, self.blocks, self.relative(name), region)
            if plane is not None:
                planes[name] = plane.astype("f8").mean(axis=0)
        return planes or None

    def picture(self) -> PlanePicture | None:
        """Temperature (or speed, where all is of one temperature) and flow on the mid-plane."""
        planes = self.midplane_fields()
        if planes is None:
            return None
        flow = self.flow
        ny, nx = planes["u"].shape
        viscosity = flow.table.kinematic_viscosity
        if flow.is_heated:
            scalar, label = planes["T"], "temperature (K)"
            subtitle = f"Ra = {flow.rayleigh:.3g}, Pr = {viscosity / flow.alpha:.3g}"
        else:
            scalar, label = np.hypot(planes["u"], planes["v"]), "speed (m/s)"
            subtitle = f"Re = {flow.lid_velocity * flow.size[0] / viscosity:.4g}"
        where = "" if flow.table.dimensions == 2 else " at mid-depth"
        nodes = " x ".join(str(n) for n in flow.nodes[: flow.table.dimensions])
        return {
            "x": np.arange(nx) * flow.spacing[0],
            "y": np.arange(ny) * flow.spacing[1],
            "scalar": scalar,
            "scalar_label": label,
            "u": planes["u"],
            "v": planes["v"],
            "title": self._case.title or f"Flow in a cavity{where}",
            "subtitle": f"{subtitle}, {nodes} nodes, step {self.step}",
        }

    def geometry(self) -> Geometry:
        """The walls."""
        conditions = self._case.boundary_conditions()
        return walls_geometry(self.flow, conditions, is_root=self._world.is_root)

    def headline(self, numbers: Mapping[str, float]) -> list[str]:
        """The mean Nusselt number beside the published one, and the largest velocities."""
        settled = self._is_steady(max(self.follow().values()))
        return diagnostics.headline(self.flow, numbers, begun=self.step > 0, settled=settled)

    def finish(self, out: Path | None, probes: Mapping[str, Sequence[Sequence[float]]]) -> Results:
        """A warning if heat is not conserved; results are in the diagnostics."""
        notices = []
        settled = self._is_steady(max(self.follow().values())) if self.step else False
        imbalance = diagnostics.heat_imbalance(self) if settled else 0.0
        if abs(imbalance) > _HEAT_IMBALANCE:
            notices.append(
                f"warning: the heat flows into and out of the fluid differ by "
                f"{100 * abs(imbalance):.2g} %: the Nusselt numbers are not resolved; raise "
                f"cavity.nodes (now {self.flow.table.nodes})"
            )
        return Results(notices=notices)

    def _is_steady(self, residual: float) -> bool:
        return residual < (self._case.run.tolerance or self.followed.settled)
