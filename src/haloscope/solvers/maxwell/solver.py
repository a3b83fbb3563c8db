"""The Maxwell solver: sets up a rank's elements and takes time steps on them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from haloscope.device import jit
from haloscope.device.interface import Array, Device
from haloscope.device.program import Program
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.io.figures.figure import length_unit
from haloscope.mesh.field_layouts import Position
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.elements.element_fields import ElementFields, LocatedPoints
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.regions import Region, SetupPhase
from haloscope.solvers.interface import DerivedNumber, Field, Monitor, Results, Solver, Work
from haloscope.solvers.maxwell.case import MaxwellCase, bytes_a_step, flops_a_step
from haloscope.solvers.maxwell.elements import AFFINE, CORNERS, FACES, FIELD_NAMES, STORED, known_by
from haloscope.solvers.maxwell.meshes import SetUp, mesh_geometry, place_in, share_out
from haloscope.solvers.maxwell.outputs.results import EnergyBalance, RunResults
from haloscope.solvers.maxwell.resolution import (
    find_bound,
    geometric_bounds,
    limit_text,
    random_start,
    require_stable,
    resolution,
    source_warnings,
    timing_warnings,
)
from haloscope.solvers.maxwell.stepping import SOURCE, ExponentialSteps, Stepping, kind_of
from haloscope.solvers.maxwell.terms.additions import (
    PlacedAdditions,
    PointwiseAdditions,
    sources_end,
)
from haloscope.solvers.maxwell.terms.waveforms import RampedSine, span_of

if TYPE_CHECKING:
    from haloscope.io.figures.field_pictures import FieldPanel, SlicesPicture
    from haloscope.io.figures.geometry_views import Geometry

_SETUP = Region("set-up")
_MESHING = SetupPhase("making and sharing out the mesh")
_MEANINGS = {"E": ("V/m", "electric field"), "H": ("A/m", "magnetic field")}
_STAGES = 5
_NODES_AT_ONCE = 1 << 20
# Vectors of the space in which the bound of the time step is sought; what is found counts to so
# many digits after the first. Without memory for them the guess from the shape is halved: it may be
# that much too long on sheared elements.
_DIMENSION = 6
_DIGITS = 3
_CAUTION = 0.5
# By what part a checkpoint's time step may differ from the case's: kept and told, and not told.
_SAME_STEP = 0.01
_ROUNDING = 1e-9
# The automatic step of the exponential integrator over the bound of the other.
_LONG_STEP = 10.0
# More crossings of the mesh in a long run make its end doubtful.
_MANY_CROSSINGS = 1e4


class MaxwellSolver(Solver):
    """One rank's part of a Maxwell case."""

    _case: MaxwellCase
    layout: ElementFields
    name = "maxwell"
    followed = Monitor(
        name="field_energy", file="energy.csv", label="energy", title="Energy of the fields"
    )

    def __init__(self, case: MaxwellCase, device: Device, world: World) -> None:
        super().__init__(case, device, world)
        self._table = table = case.maxwell
        self.dtype = table.real
        self.fields = {
            name: Field(name, _MEANINGS[name[0]][0], f"{_MEANINGS[name[0]][1]} along {name[1]}")
            for name in FIELD_NAMES
        }
        self.vectors = {kind: [f"{kind}{axis}" for axis in "xyz"] for kind in "EH"}
        self.stored = tuple(FIELD_NAMES)
        with _SETUP:
            self._open()

    def _open(self) -> None:
        table, world, device = self._table, self._world, self._device
        with _MESHING:
            share = share_out(table, world)
        self.materials = share.materials
        self.notices += share.notices
        self.part = part = share.rows.part(self._kinds(share.rows.mesh, share.concerned))
        around = share.surroundings(world, part)
        added = place_in(table, world, around, self.materials, share.layer)
        del share
        self.layout = ElementFields(world, part, table.order)
        self.coordinates = nodes(part.mesh, table.order)
        machine = self._case.machine
        self.stepping = Stepping(
            part,
            self.coordinates,
            table.order,
            device,
            materials=self.materials,
            boundaries=table.kinds(),
            upwind=table.flux == "upwind",
            chain_rule=table.curl == "chain-rule",
            dtype=self.dtype.type,
            world=world,
            regions_elsewhere=around.mesh.regions[around.part.partners // FACES],
            transport=machine.transport,
            overlap=machine.overlap,
            graphs=machine.graphs,
            log=self.notices.append,
        )
        self.transport = self.stepping.transport
        self.kernel_hash = jit.kernel_hash(SOURCE, self.stepping.constants)
        self._add(added, around.part)
        set_up = SetUp(part, self.coordinates, around, added, self.materials, world, device)
        self.results = RunResults(self._case, set_up)
        self.notices += self.results.notices
        self._units = np.repeat([1.0, 1 / table.impedance], 3)
        self.resolution = resolution(table, set_up)
        self.notices += self.resolution.warnings(table)
        self.notices += source_warnings(table, set_up)
        media = [self.materials[region] for region in part.mesh.regions]
        speeds = [1 / math.sqrt(medium.permittivity * medium.permeability) for medium in media]
        longest = geometric_bounds(self.coordinates, speeds)
        self._guess = -world.largest(-float(longest.min(initial=math.inf)))
        self._limit = limit_text(table, set_up, longest)
        self._choose_step()
        self._set_initial()
        self._balance = self._open_balance(added)
        self.work = self._count_work()
        self._probes: dict[tuple[Position, ...], LocatedPoints] = {}

    def _kinds(self, mesh: HexMesh, added: np.ndarray) -> np.ndarray:
        """Kinds of own elements."""
        table = self._table
        kinds = kind_of(STORED, added=False) + added.astype(np.int64)
        if table.curl != "covariant":
            return kinds
        step = max(1, _NODES_AT_ONCE // (table.order + 1) ** 3)
        for begin in range(0, mesh.count, step):
            chosen = np.arange(begin, min(begin + step, mesh.count))
            modes = known_by(nodes(mesh, table.order, chosen), self._device.kind == "cpu")
            for mode in (CORNERS, AFFINE):
                those = chosen[modes == mode]
                kinds[those] = kind_of(mode, added=False) + added[those]
        return kinds

    def _add(self, added: PlacedAdditions, part: MeshPart) -> None:
        """Media with memory, layers, currents and waves, in the numbers of a part."""
        self._additions: PointwiseAdditions | None = None
        self._fastest_addition = 0.0
        self._widths: dict[str, int] = {}
        if not self._world.any(bool(added.concerned[part.elements].any())):
            return
        self._additions = PointwiseAdditions(
            added,
            part,
            self.coordinates,
            tuple(kind_of(mode, added=True) for mode in (STORED, CORNERS, AFFINE)),
            self._device,
            dtype=self.dtype.type,
            upwind=self._table.flux == "upwind",
        )
        self.stepping.additions = self._additions
        self._fastest_addition = added.fastest
        widths: dict[str, int] = {}
        for text in self._world.gather_texts(json.dumps(self._additions.widths)):
            widths |= json.loads(text)
        self._widths = dict(sorted(widths.items()))
        states = (f"{name} {value}" for name, n in self._widths.items() for value in range(n))
        self.stored = (*FIELD_NAMES, *states)

    # Time

    @property
    def program(self) -> Program | None:
        """The steps that :meth:`advance` takes; None where they are exponentials."""
        return self.stepping.program if self._exponential is None else None

    def _choose_step(self) -> None:
        """The time step: the case's own, or a share of the bound; shortened to meet the end."""
        table = self._table
        bound = self._find_bound() / table.speed
        exponential = table.integrator == "exponential"
        if table.time_step == "auto":
            dt = bound * (_LONG_STEP if exponential else table.cfl)
        else:
            dt = table.time_step
            if not exponential:
                require_stable(dt, bound, "s" if table.units == "si" else "")
        if table.end_time is not None:
            self.last_step = max(1, math.ceil(table.end_time / dt * (1 - 1e-12)))
            dt = table.end_time / self.last_step
        self.bound = bound
        self._set_step(dt)
        self._exponential: ExponentialSteps | None = None
        if exponential:
            krylov = table.krylov
            self._exponential = ExponentialSteps(
                self.stepping, self._device, self._world, krylov.dimension, krylov.tolerance
            )

    def _set_step(self, dt: float) -> None:
        self.dt = dt
        self.stepping.set_step(dt * self._table.speed)
        self.results.set_step(dt, self.last_step)

    def _keep_step(self, dt: float) -> None:
        """Go on with a checkpoint's time step where this case's is about the same.

        It is a little different where another end is met, or another device found the bound.
        """
        table, wanted = self._table, self.dt
        unit = " s" if table.units == "si" else ""
        differs = abs(dt - wanted) / wanted
        if differs > _SAME_STEP:
            raise InputError(
                f"the checkpoint's time step is {dt:.6g}{unit} and this case's {wanted:.6g}{unit}, but the "
                "records of probes and sources need one time step throughout",
                location="checkpoint",
                remedy=f"restart with maxwell.time_step = {dt!r}, or start again without --restart",
            )
        if table.end_time is not None:
            self.last_step = max(1, math.ceil(table.end_time / dt * (1 - 1e-12)))
        if differs > _ROUNDING:
            self.notices.append(
                f"the checkpoint's time step is kept: {dt:.8g}{unit} in place of this case's own "
                f"{wanted:.8g}{unit}"
            )
        self._set_step(dt)

    def _find_bound(self) -> float:
        """Longest stable step in m, the same bits for any number of ranks."""
        least = self._guess
        free, _ = self._device.memory()
        free //= self._world.sharing(self._device.identity)
        if self._world.any((_DIMENSION + 3) * self.stepping.fields.nbytes > free / 2):
            self.notices.append(
                "there is too little memory to compute the stability bound of the time step; half of the "
                "estimate from the shape of the elements is used"
            )
            return self._with_additions(_CAUTION * least)
        values = len(FIELD_NAMES) * (self._table.order + 1) ** 3
        start = random_start(self.part.elements, values).ravel().astype(self.dtype)
        bound = find_bound(
            self.stepping.right_hand_side,
            self._device.from_host(start),
            least,
            self._device,
            self._world,
            dimension=_DIMENSION,
        ).largest
        # Sums over ranks differ in their last bits.
        unit = 10.0 ** (math.floor(math.log10(bound)) - _DIGITS)
        return self._with_additions(math.floor(bound / unit) * unit)

    def _with_additions(self, bound: float) -> float:
        """A bound for the curl and what is added, as if their eigenvalues fell together."""
        return 1 / (1 / bound + self._fastest_addition / LSERK4.imaginary_limit)

    @property
    def time(self) -> float:
        """Time in s."""
        return self.step * self.dt

    def advance(self, steps: int) -> None:
        """Take steps."""
        if self._exponential is not None:
            self._exponential.advance(steps, self.dt * self._table.speed)
        else:
            take, fields = self.stepping.advance, self.stepping.fields
            self.results.advance(self.step, steps, take, fields)
        self.step += steps

    # State

    def _places(self) -> np.ndarray:
        """Of the nodes, (3, elements, nodes)."""
        return np.moveaxis(self.coordinates.reshape(self.part.mesh.count, -1, 3), 2, 0)

    def _solution(self, time: float) -> np.ndarray | None:
        """Fields (elements, 6, nodes) of the known solution at a time in m; None without one."""
        solution = self._table.solution()
        return None if solution is None else np.moveaxis(solution(self._places(), time), 0, 1)

    def _by_element(self) -> Array:
        """Fields on the device, (elements, 6, nodes)."""
        return self.stepping.fields.reshape(self.stepping.elements, len(FIELD_NAMES), -1)

    def _set_initial(self) -> None:
        values = self._solution(0.0)
        if values is None:
            x, y, z = self._places()
            values = np.empty((len(x), len(FIELD_NAMES), x.shape[1]))
            for number, name in enumerate(FIELD_NAMES):
                expression, key = self._table.initial_field(name), f"maxwell.initial.{name}"
                values[:, number] = expression.evaluate_finite(key, x=x, y=y, z=z)
            values /= self._units[:, None]
        # `haloscope build` has no fields to look at later.
        self._has_initial_field = self._world.any(bool(values.any()))
        self.stepping.set_fields(values)

    def _open_balance(self, added: PlacedAdditions) -> EnergyBalance:
        """Opens the balance of energy; warns of a run that nothing drives."""
        table = self._table
        _, currents, waves = table.additions()
        if not currents and not waves and not self._has_initial_field:
            self.notices.append(
                "warning: there is no source, no wave and no initial field: all fields stay 0; add "
                "[[maxwell.sources]], [[maxwell.waves]], [maxwell.initial] or [maxwell.exact]"
            )
        ends = sources_end(currents, waves, self.results.across)
        keeps = added.layer is not None or any(not m.plain for m in added.media.values())
        lines, driven = timing_warnings(table, self.last_step * self.dt * table.speed)
        self.notices += lines
        waveforms = [source.waveform for source in (*currents, *waves)]
        steady = [
            waveform.rise if isinstance(waveform, RampedSine) else span_of(waveform).end
            for waveform in waveforms
        ]
        return EnergyBalance(
            ends, memory=keeps, driven=driven, steady_from=max(steady, default=0.0)
        )

    def _largest_error(self) -> float | None:
        """Largest error of any component, in natural units; None without a known solution."""
        wanted = self._solution(self.time * self._table.speed)
        if wanted is None:
            return None
        own = np.abs(self.stepping.values() - wanted).max(initial=0.0)
        return self._world.largest(float(own))

    def owned(self, name: str) -> np.ndarray:
        """Host copy of own values as they are computed (natural units), [element, k, j, i]."""
        if name not in FIELD_NAMES:
            # One value of what media and layers remember; 0 in elements without.
            assert self._additions is not None
            term, value = name.split()
            states = np.zeros((self.stepping.elements, *self.layout.shape[1:]), self.dtype)
            if term in self._additions.widths:
                own = self._additions.state(term)[:, int(value)]
                states[:] = own.reshape(states.shape)
            return states
        host = self._device.to_host(self._by_element()[:, FIELD_NAMES.index(name)])
        values: np.ndarray = np.ascontiguousarray(host).reshape(-1, *self.layout.shape[1:])
        return values

    def relative(self, name: str) -> np.ndarray:
        """As `owned`, in the units of the case."""
        values: np.ndarray = self.owned(name) * self.dtype.type(
            self._units[FIELD_NAMES.index(name)]
        )
        return values

    def scalars(self) -> dict[str, float]:
        """Numbers beside the fields that a restart needs."""
        return {"dt": self.dt}

    def restore(
        self, step: int, scalars: Mapping[str, float], own: Callable[[str], np.ndarray]
    ) -> None:
        """Take over a saved state; see :class:`haloscope.solvers.interface.Solver`."""
        values = np.stack(
            [own(name).reshape(self.stepping.elements, -1) for name in FIELD_NAMES], axis=1
        )
        self._require_finite([values])
        self.stepping.set_fields(values)
        if scalars["dt"] != self.dt:
            if self._exponential is None and scalars["dt"] > self.bound * (1 + 1e-12):
                raise InputError(
                    f"its time step {scalars['dt']:.6g} s is above the stability bound of this case",
                    location="checkpoint",
                    allowed=f"at most {self.bound:.6g} s",
                    remedy="restart with the case that wrote the checkpoint",
                )
            self._keep_step(scalars["dt"])
        self.step = step
        if self._additions is not None:
            self._additions.restore(
                {
                    name: np.stack(
                        [own(f"{name} {n}").reshape(len(values), -1) for n in range(width)], 1
                    )
                    for name, width in self._widths.items()
                }
            )
            self._additions.set_steps(step)

    def extras(self) -> Mapping[str, np.ndarray]:
        """Sums of the far field; see :class:`haloscope.solvers.interface.Solver`."""
        radiation = self.results.radiation
        return {} if radiation is None else radiation.extras()

    def restore_extras(self, extras: Mapping[str, np.ndarray]) -> None:
        """Take them over."""
        if self.results.radiation is not None:
            self.results.radiation.restore(extras, self.step)

    def finish(self, out: Path | None, probes: Mapping[str, Sequence[Sequence[float]]]) -> Results:
        """Spectra and resonances at probes, and the far field."""
        results = self.results.finish(out, probes, self.stepping.fields, self.step)
        return replace(results, notices=[*results.notices, *self._balance.warnings()])

    def sample(self, positions: Sequence[Position]) -> list[list[float]]:
        """Values of all fields at points, the same on every rank."""
        key = tuple(positions)
        if key not in self._probes:
            self._probes[key] = self.layout.locate(positions)
        samples = self._probes[key]
        fields = self._by_element()
        result = np.zeros((len(positions), len(FIELD_NAMES)))
        for point, row, weights in zip(samples.points, samples.rows, samples.weights, strict=True):
            near = self._device.to_host(fields[int(row)]).astype(np.float64)
            near = near.reshape(len(FIELD_NAMES), *self.layout.shape[1:])
            result[point] = np.einsum("fkji,k,j,i->f", near, *weights[::-1]) * self._units
        rows: list[list[float]] = self._world.sum(result).tolist()
        return rows

    # What people look at

    def _energies(self) -> np.ndarray:
        """Electric and magnetic energy of all ranks, in J (natural units: as computed)."""
        own = self.stepping.energies().sum(axis=0)
        # eps0 E^2 = E^2 / (c Z0) in SI.
        total: np.ndarray = self._world.sum(own) / (self._table.speed * self._table.impedance)
        return total

    def follow(self) -> dict[str, float]:
        """Energy of the fields."""
        electric, magnetic = self._energies()
        self._balance.add(self.time * self._table.speed, float(electric + magnetic))
        return {"electric": float(electric), "magnetic": float(magnetic)}

    def diagnostics(self) -> dict[str, float]:
        """Energy, time and what the time step is against its bound."""
        electric, magnetic = self._energies()
        numbers = {
            "time": self.time,
            "time_step": self.dt,
            "step_over_bound": self.dt / self.bound,
            "electric_energy": float(electric),
            "magnetic_energy": float(magnetic),
            "energy": float(electric + magnetic),
        }
        error = self._largest_error()
        return numbers if error is None else numbers | {"largest_error": error}

    def derived(self) -> list[DerivedNumber]:
        """Extent of the mesh, the shortest wave and its resolution, and the steps."""
        hertz, second = ("Hz", "s") if self._table.units == "si" else ("", "")
        size = self.resolution
        numbers = [
            DerivedNumber(f"extent along {axis}", width, "m")
            for axis, width in zip("xyz", size.extent, strict=True)
        ]
        if size.frequency:
            numbers += [
                DerivedNumber("highest source frequency", size.frequency, hertz),
                DerivedNumber("shortest wavelength", size.wavelength, "m"),
                DerivedNumber("nodes per wavelength", size.nodes),
            ]
        return [
            *numbers,
            DerivedNumber("time step", self.dt, second),
            DerivedNumber("steps", self.last_step),
            DerivedNumber("end time", self.last_step * self.dt, second),
        ]

    def time_step_limit(self) -> str:
        """The time step and what limits it, and how far waves get until the end."""
        table = self._table
        unit = " s" if table.units == "si" else ""
        is_below_bound = table.time_step != "auto" and self.dt < table.cfl * self.bound
        limit = "by maxwell.time_step" if is_below_bound else f"by {self._limit}"
        text = f"time step {self.dt:.3g}{unit}, limited {limit}"
        if table.end_time is not None:
            across = table.end_time * table.speed / max(self.resolution.extent)
            if across > _MANY_CROSSINGS:
                text += (
                    f"; waves cross the mesh {across:.3g} times until maxwell.end_time = "
                    f"{table.end_time:g}{unit}: check the end time"
                )
        return text

    def advice(self) -> str:
        """Change of the case to try when the solution breaks."""
        return f"lower maxwell.cfl (now {self._table.cfl:g}) or repair the mesh"

    def picture(self) -> SlicesPicture | None:
        """All components on a plane."""
        wanted = self._table.slice
        fields = self._by_element()

        def values(rows: np.ndarray) -> np.ndarray:
            values = self._device.to_host(fields[self._device.from_host(rows)])
            return values.reshape(len(rows), len(FIELD_NAMES), *self.layout.shape[1:])

        raster, samples = self.layout.sample_plane(
            wanted.axis, wanted.offset, wanted.points, values
        )
        if samples is None:
            return None
        second = "s" if self._table.units == "si" else "(natural units)"
        panels: list[FieldPanel] = []
        for kind, number in (("E", 0), ("H", 3)):
            parts = dict(
                zip("xyz", samples[number : number + 3] * self._units[number], strict=True)
            )
            field_unit = self.fields[f"{kind}x"].unit
            panels += [
                {"values": part, "label": f"{kind}{axis} ({field_unit})", "quantity": kind}
                for axis, part in parts.items()
            ]
            along = parts[raster.names[0]], parts[raster.names[1]]
            panels.append(
                {
                    "values": np.hypot(*along),
                    "label": f"{kind} along the plane ({field_unit})",
                    "quantity": kind,
                    "scale": "magnitude",
                    "vectors": along,
                }
            )
        factor, unit = length_unit(max(np.ptp(raster.first), np.ptp(raster.second)))
        return {
            "x": raster.first * factor,
            "y": raster.second * factor,
            "x_label": f"{raster.names[0]} ({unit})",
            "y_label": f"{raster.names[1]} ({unit})",
            "panels": panels,
            "title": self._case.title or "Electromagnetic fields",
            "subtitle": f"{raster.axis} = {raster.offset:.4g} m, time {self.time:.4g} {second}, "
            f"{self.layout.describe()}",
        }

    def geometry(self) -> Geometry:
        """Own faces of the boundaries, regions of other media, layers, sources and waves."""
        return mesh_geometry(self._case, self.part.mesh, self.coordinates, self._world)

    def headline(self, numbers: Mapping[str, float]) -> list[str]:
        """Energy and time."""
        error = numbers.get("largest_error")
        lines = [] if error is None else [f"largest error {error:.3g} against the exact solution"]
        joules = "J" if self._table.units == "si" else "(natural units)"
        seconds = "s" if self._table.units == "si" else ""
        return [
            f"time {numbers['time']:.6g} {seconds}".rstrip()
            + f", energy {numbers['energy']:.8g} {joules}, time step "
            f"{100 * numbers['step_over_bound']:.0f} % of the stability bound",
            *lines,
        ]

    def _count_work(self) -> Work:
        table = self._table
        count = self.part.whole * (table.order + 1) ** 3
        shapes, memory = self._sums(self.stepping.shape_values, self.stepping.nbytes)
        single = table.precision == "single"
        return Work(
            cells=count,
            size=count,
            bytes=float(_STAGES * count * bytes_a_step(table.order, single, shapes / count)),
            flops=float(count * flops_a_step(table.order)),
            memory=memory,
            unit="node",
        )
