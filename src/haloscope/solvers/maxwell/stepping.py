"""Fields on the device and their time steps: Runge-Kutta, or the exponential of the operator in a Krylov space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel
from haloscope.device.program import MAIN, SIDE, Field, Program, Step
from haloscope.device.targets import Target
from haloscope.exchange.entries import Placement, open_pairing
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import MeshPart, Range, take
from haloscope.numerics.elements.element_maps import derivative_matrix, jacobians, volume_weights
from haloscope.numerics.time_integration import LSERK4, KrylovSpace
from haloscope.regions import Region
from haloscope.solvers.maxwell.elements import (
    FACE_VALUES,
    FACES,
    FIELD_NAMES,
    STORED,
    Material,
    faces,
    geometry,
)
from haloscope.solvers.maxwell.gpu_shapes import Shape, check_room, launch_shape
from haloscope.solvers.maxwell.terms.additions import PointwiseAdditions

SOURCE = Path(__file__).with_name("maxwell.cpp")
Floats = NDArray[np.float64]

_WARP = 32
_MOST_THREADS = 512
# From this order on, cores take the shape of faces from memory rather than compute it.
_FACE_SHAPES_FROM = 3
# Steps of the graphs that a GPU replays: many pairs, then single ones. After two steps, ten stages,
# traces lie where they lay before.
_GRAPH_PAIRS = 10
# Nodes whose energy is summed at once on the device.
_NODES_AT_ONCE = 1 << 21

_BOUNDARY = Region("boundary elements")
_INTERIOR = Region("interior elements")


def kind_of(mode: int, added: bool) -> int:
    """Kind of elements by how their shape is known, and whether anything is added in them."""
    return 2 * mode + int(added)


def stage_shape(
    target: Target, order: int, real: np.dtype[Any], mode: int, *, upwind: bool, chain_rule: bool
) -> Shape:
    """The launch of a stage on elements whose shape is known in one way, with all constants of :data:`SOURCE`."""
    size, nodes = real.itemsize, (order + 1) ** 3
    if target.kind == "cpu":
        faces_too = {"FACE_SHAPES": int(mode == STORED and order >= _FACE_SHAPES_FROM)}
        shape = Shape(1, 0, 0, {"GEOMETRY": mode, **({} if chain_rule else faces_too)})
    elif chain_rule:
        threads = min(_MOST_THREADS, -(-nodes // _WARP) * _WARP)
        constants = {"GEOMETRY": mode, "THREADS_A_BLOCK": threads, "BLOCKS_A_PROCESSOR": 1}
        shape = Shape(threads, 0, (6 * nodes + (order + 1) ** 2) * size, constants)
        check_room(order, size, shape.shared, target.block_memory)
    else:
        shape = launch_shape(
            order, size, mode, copy_engine=target.copy_engine, block_memory=target.block_memory
        )
    common: dict[str, int | str] = {
        "real": "float" if real == np.float32 else "double",
        "N": order,
        "UPWIND": int(upwind),
        "CHAIN_RULE": int(chain_rule),
    }
    return shape._replace(constants={**common, **shape.constants})


@dataclass(frozen=True)
class _Shapes:
    """Elements whose shape is known in one way: their kernels, and where their shapes lie."""

    # The kernels; the last stage of a step may leave the increments as they are.
    stage: Kernel
    last_stage: Kernel
    first_traces: Kernel
    geometry: Array  # Shapes, one element after the other
    values: int  # Numbers of an element there
    # Place of the first element of each range, by the range's first element.
    begins: Mapping[int, int]
    launch: Shape


PARTS = ("waited for", "rest")
"""Parts of fields and traces: elements whose traces other ranks wait for, and the others."""


class Stepping:
    """The fields of all elements of this rank, and time steps.

    `coordinates`: their nodes (elements, N + 1, N + 1, N + 1, 3); `regions_elsewhere`: region of
    what lies behind each face on another rank, (elements, 6).
    """

    def __init__(
        self,
        part: MeshPart | HexMesh,
        coordinates: Floats,
        order: int,
        device: Device,
        *,
        materials: Sequence[Material] = (Material(),),
        boundaries: Mapping[str, str | float] | None = None,
        upwind: bool = True,
        chain_rule: bool = False,
        dtype: type = np.float64,
        world: World | None = None,
        regions_elsewhere: NDArray[np.integer] | None = None,
        transport: str = "auto",
        overlap: bool = True,
        graphs: bool = True,
        log: Callable[[str], None] | None = None,
    ) -> None:
        if isinstance(part, HexMesh):
            part = take(part, np.arange(part.count))
        self.part, self.order, self.elements = part, order, part.mesh.count
        self._device, self._overlap, self._graphs_wanted = device, overlap, graphs
        self._real = np.dtype(dtype)
        self._nodes = (order + 1) ** 3
        self.jacobian = jacobians(coordinates).reshape(self.elements, -1)
        self._set_materials(materials, boundaries or {}, regions_elsewhere)
        count = self.elements * len(FIELD_NAMES) * self._nodes
        self.fields = device.zeros((count,), self._real)
        self.increments = device.zeros((count,), self._real)
        self._own_fields = Field("fields", self.fields, elements=PARTS)
        self._own_increments = Field("increments", self.increments, elements=PARTS)
        D = derivative_matrix(order)
        self._D, self._DT = self._put(D), self._put(D.T)
        self._open_kernels(coordinates, upwind, chain_rule)
        self._open_traces(world, transport, log)
        self.additions: PointwiseAdditions | None = None
        # Turn k begins with traces k; five stages end with the other ones.
        self._new_program = partial(
            Program, device, "Maxwell", cycle=(1, 0), block=_GRAPH_PAIRS, graphs=graphs
        )
        self.program = self._new_program()

    def _put(self, values: NDArray[np.generic]) -> Array:
        return self._device.from_host(np.ascontiguousarray(values, self._real).ravel())

    def _set_materials(
        self,
        materials: Sequence[Material],
        boundaries: Mapping[str, str | float],
        elsewhere: NDArray[np.integer] | None,
    ) -> None:
        of = np.array([[m.permittivity, m.permeability, m.impedance] for m in materials])
        several = len(materials) > 1
        mesh = self.part.mesh
        own = of[mesh.regions if several else np.zeros(mesh.count, np.int64)]
        behind = np.zeros((mesh.count, FACES), np.int64)
        if elsewhere is not None and several:
            behind = np.where(self.part.partners >= 0, elsewhere, 0)
        table = np.stack([1 / own[:, 0], 1 / own[:, 1], own[:, 2], 1 / own[:, 2]], axis=1)
        met = faces(self.part, own[:, 2], of[behind, 2], boundaries, self._real)
        self._materials = self._put(table)
        self._faces = self._device.from_host(met.view(np.uint8).ravel())
        self._energy_weights = 0.5 * own[:, :2]

    def _open_kernels(self, coordinates: Floats, upwind: bool, chain_rule: bool) -> None:
        """Kernels and shapes of elements, by how their shape is known."""
        device, order = self._device, self.order
        self.constants: dict[str, int | str] = {}
        self._shapes: dict[int, _Shapes] = {}
        ranges = self.part.ranges
        modes = [STORED if chain_rule else group.kind // 2 for group in ranges]
        for mode in sorted(set(modes)):
            launch = stage_shape(
                device, order, self._real, mode, upwind=upwind, chain_rule=chain_rule
            )
            constants = launch.constants
            own = [group for group, of in zip(ranges, modes, strict=True) if of == mode]
            ends = np.cumsum([group.count for group in own]).tolist()
            face_shapes = bool(constants.get("FACE_SHAPES", 0))
            parts = [
                geometry(
                    coordinates[group.first : group.first + group.count], order, mode, face_shapes
                ).reshape(group.count, -1)
                for group in own
            ]
            stage = device.kernel(SOURCE, "stage", constants)
            no_next = device.kind != "cpu" and not chain_rule
            self._shapes[mode] = _Shapes(
                stage,
                device.kernel(SOURCE, "last_stage", constants) if no_next else stage,
                device.kernel(SOURCE, "first_traces", constants),
                self._put(np.concatenate(parts)),
                parts[0].shape[1],
                dict(zip((group.first for group in own), [0, *ends], strict=False)),
                launch,
            )
            self.constants |= constants
        self._shapes_of = {
            group.first: self._shapes[mode] for group, mode in zip(ranges, modes, strict=True)
        }

    def _open_traces(
        self, world: World | None, transport: str, log: Callable[[str], None] | None
    ) -> None:
        """Two sets of traces, own ones and behind them those of other ranks; and their exchange."""
        device = self._device
        points = (self.order + 1) ** 2
        own = self.elements * FACES * FACE_VALUES * points
        sent = self.part.waited_for * FACES * FACE_VALUES * points
        self._traces = [device.zeros((own + sent,), self._real) for _ in range(2)]
        self._trace_fields = [
            Field(f"traces {turn}", trace, elements=(*PARTS, "incoming"))
            for turn, trace in enumerate(self._traces)
        ]
        self._outgoing = [trace[:own] for trace in self._traces]
        self._incoming = [trace[own:] for trace in self._traces]
        self._exchange: Any = None
        self.transport = "none"
        if world is None or world.size == 1:
            return
        numbers = self.part.face_numbers[: self.part.waited_for]
        at = np.arange(points)
        ids = np.where(numbers[..., None] > 0, (numbers[..., None] - 1) * points + at + 1, 0)
        # A face's values: four fields of so many points each; the last face's other fields need
        # no positions of their own.
        every = np.zeros((*numbers.shape, FACE_VALUES * points), np.int64)
        every[..., :points] = ids
        every = every.ravel()[: max(0, every.size - (FACE_VALUES - 1) * points)]
        self._exchange = open_pairing(
            world,
            device,
            every,
            FACE_VALUES,
            self._real,
            transport,
            placement=Placement(0, 1, points),
            state=self._outgoing[0],
            stream=device.side if self._overlap else None,
            graphs=self._graphs_wanted,
            log=log,
            across_only=True,
        )
        self.transport = self._exchange.transport

    def _elements_of(self, group: Range) -> dict[str, Any]:
        """Arguments and launch shape that all kernels share for a range of elements."""
        known = self._shapes_of[group.first]
        return {
            "fields": self.fields,
            "geometry": known.geometry[known.begins[group.first] * known.values :],
            "D": self._D,
            "DT": self._DT,
            "first": group.first,
            "elements": group.count,
            "extent": known.launch.extent(group.count, self._device.multiprocessors),
            "block": (known.launch.threads,),
        }

    def _call(
        self, group: Range, turn: int, *, dt: float, rka: float, rkb: float, last: bool = False
    ) -> dict[str, Any]:
        """The stage of a range of elements that reads the traces of a turn and writes the other set."""
        known = self._shapes_of[group.first]
        part = PARTS[0 if group.waited_for else 1]
        return {
            "kernel": known.last_stage if last else known.stage,
            **self._elements_of(group),
            "fields": self._own_fields[part],
            "increments": self._own_increments[part],
            "materials": self._materials,
            "faces": self._faces,
            "traces_before": self._traces[turn],
            "traces_after": self._trace_fields[1 - turn][part],
            "dt": dt,
            "rka": rka,
            "rkb": rkb,
            "shared": known.launch.shared,
        }

    @property
    def shape_values(self) -> int:
        """Numbers that the shapes of this rank's elements take."""
        return sum(len(shape.geometry) for shape in self._shapes.values())

    @property
    def nbytes(self) -> int:
        """Bytes of fields, increments, shapes and traces on this rank's device."""
        values = self.shape_values + sum(len(trace) for trace in self._traces)
        return int(2 * self.fields.nbytes + values * self._real.itemsize)

    # Time

    @property
    def _current(self) -> int:
        """Number of the present set of traces."""
        return self.program.next

    def set_step(self, dt: float) -> None:
        """Use a time step from now on."""
        if self.additions is not None:
            self.additions.bind(self.fields, self.increments, dt)
        current, self.program = self._current, self._new_program()
        self.program.next = current
        written = [self._own_fields, self._own_increments]
        for turn in range(2):
            step, now = self.program.turn(turn), turn
            for stage in range(LSERK4.stages + 1):
                # Behind the last stage time goes on.
                for name, launch in self.additions.before(stage) if self.additions else ():
                    step.launch(name, launch, writes=written)
                if stage < LSERK4.stages:
                    self._add_stage(step, now, stage, dt)
                now = 1 - now

    def _add_stage(self, step: Step, turn: int, stage: int, dt: float) -> None:
        """Elements that others wait for, their messages, the rest meanwhile."""
        exchange, field = self._exchange, self._trace_fields[1 - turn]
        overlaps = exchange is not None and self._overlap
        on = SIDE if overlaps else MAIN
        boundary, interior = (None, None) if exchange is None else (_BOUNDARY, _INTERIOR)
        waited_for = [group for group in self.part.ranges if group.waited_for]
        rest = [group for group in self.part.ranges if not group.waited_for]
        prepared = self.additions.kinds if self.additions is not None else ()

        def call(group: Range) -> dict[str, Any]:
            rka = 1.0 if group.kind in prepared else LSERK4.a[stage]
            last = stage == LSERK4.stages - 1
            return self._call(group, turn, dt=dt, rka=rka, rkb=LSERK4.b[stage], last=last)

        for group in waited_for:
            step.kernel(on=on, region=boundary, **call(group))
        if exchange is not None:
            sent = field["waited for"].of(self._outgoing[1 - turn])
            step.start(exchange, sent, into=field["incoming"].of(self._incoming[1 - turn]), on=on)
            if not overlaps:
                step.finish(exchange, on=on)
        for group in rest:
            step.kernel(region=interior, **call(group))
        if overlaps:
            step.finish(exchange, on=on)

    def advance(self, steps: int) -> None:
        """Take time steps; on a GPU that needs no host in between they are replayed as graphs."""
        self.program.advance(steps)

    # State

    def set_fields(self, values: Floats) -> None:
        """Take fields over, (elements, 6, (N + 1)^3), in the order of :data:`FIELD_NAMES`."""
        self.fields[:] = self._put(values)
        self.renew_traces()

    def renew_traces(self) -> None:
        """Make the traces those of the present fields, on all ranks."""
        for group in self.part.ranges:
            kernel = self._shapes_of[group.first].first_traces
            kernel.bind(**self._elements_of(group), traces=self._traces[self._current])()
        if self._exchange is not None:
            outgoing, incoming = self._outgoing[self._current], self._incoming[self._current]
            self._device.fork()
            self._exchange.swap(outgoing, into=incoming)
            self._device.join()

    def right_hand_side(self, values: Array) -> Array:
        """Time derivative of fields, without additions; overwrites this object's own fields."""
        self.fields[:] = values
        self.renew_traces()
        for group in self.part.ranges:
            call = self._call(group, self._current, dt=1.0, rka=0.0, rkb=0.0)
            call.pop("kernel").bind(**call)()
        return self.increments

    def values(self) -> Floats:
        """The fields on the host, (elements, 6, (N + 1)^3)."""
        host = self._device.to_host(self.fields).astype(np.float64)
        return host.reshape(self.elements, len(FIELD_NAMES), -1)

    def energies(self) -> Floats:
        """Energy of the electric and of the magnetic field of each element, (elements, 2)."""
        xp = self._device.xp
        weights = volume_weights(self.order).ravel()
        fields = self.fields.reshape(self.elements, len(FIELD_NAMES), -1)
        result = np.empty((self.elements, 2))
        step = max(1, _NODES_AT_ONCE // self._nodes)
        for first in range(0, self.elements, step):
            span = slice(first, min(first + step, self.elements))
            measure = self._device.from_host(weights * self.jacobian[span])
            # A solution that breaks overflows; its energy is no number, which is told elsewhere.
            with np.errstate(over="ignore", invalid="ignore"):
                for half in range(2):
                    part = fields[span, 3 * half : 3 * half + 3].astype("f8")
                    sums = (xp.square(part).sum(axis=1) * measure).sum(axis=1)
                    result[span, half] = self._device.to_host(sums)
        return result * self._energy_weights

    def energy(self) -> float:
        """Energy of the field of this rank: half the integral of eps E^2 + mu H^2."""
        return float(self.energies().sum())


class ExponentialSteps:
    """Takes steps ``u <- exp(dt A) u``, exact but for the Krylov space and the mesh.

    Sums over ranks enter, so fields depend on the number of ranks in their last bits.
    """

    def __init__(
        self, stepping: Stepping, device: Device, world: World, dimension: int, tolerance: float
    ) -> None:
        self._stepping, self._tolerance = stepping, tolerance
        fields = stepping.fields
        self._space = KrylovSpace(device, len(fields), dimension, fields.dtype, world)
        self._state = device.zeros((len(fields),), fields.dtype)
        self.substeps = 0

    def advance(self, steps: int, dt: float) -> None:
        """Take steps; a step whose error would be too large is cut."""
        stepping = self._stepping
        self._state[:] = stepping.fields
        for _ in range(steps):
            substeps, _ = self._space.exponential(
                stepping.right_hand_side, self._state, dt, self._tolerance
            )
            self.substeps += substeps
        stepping.fields[:] = self._state
        stepping.renew_traces()
