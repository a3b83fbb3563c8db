"""Fields on the device, and the steps that take them forward in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Graph, Launch
from haloscope.domain.hexes import HexMesh
from haloscope.domain.mesh_parts import MeshPart, Range, take
from haloscope.exchange.copies import Placement
from haloscope.exchange.gather_scatter import open_pairing
from haloscope.exchange.world import World
from haloscope.numerics.basis import derivative_matrix
from haloscope.numerics.element_geometry import volume_weights
from haloscope.numerics.timestep import LSERK4
from haloscope.scope.regions import Region
from haloscope.solvers.maxwell.elements import FACE_VALUES, FACES, Material, faces, geometry

SOURCE = Path(__file__).with_name("maxwell.cpp")
FIELDS = ("Ex", "Ey", "Ez", "Hx", "Hy", "Hz")

Floats = NDArray[np.float64]

_WARP = 32
_MOST_THREADS = 512
# Steps of the graphs that a GPU replays: many pairs, then single ones. After two steps, ten stages,
# traces lie where they lay before.
_GRAPH_PAIRS = 10
# Nodes whose energy is summed at once on the device.
_NODES_AT_ONCE = 1 << 21

_BOUNDARY = Region("boundary elements")
_INTERIOR = Region("interior elements")


class Additions(Protocol):
    """What a stage does not know: media with memory, currents, waves that come in.

    Before each stage it sets the increments of the elements it concerns to
    ``k = a k + dt * addition``; the stage then adds its part with a = 1.
    """

    kinds: Sequence[int]
    """Kinds of elements concerned, as in :class:`haloscope.domain.mesh_parts.Range`."""

    def bind(self, fields: Array, increments: Array, dt: float) -> None:
        """Take the arrays and a time step from now on."""

    def before(self, stage: int) -> None:
        """Launch what goes before a stage."""

    def after_step(self) -> None:
        """Launch what ends a step: time goes on."""


class Stepping:
    """The fields of all elements of this rank, and time steps.

    Parameters
    ----------
    part
        This rank's elements; a mesh that is whole here will do.
    coordinates
        Their nodes (elements, N + 1, N + 1, N + 1, 3).
    order
        Polynomial order N.
    device
        Where to compute.
    materials
        One for each region of the mesh.
    boundaries
        By each boundary's name its kind or surface impedance, see
        :func:`haloscope.solvers.maxwell.elements.faces`.
    upwind
        Upwind flux, or the central one.
    chain_rule
        The curl by the chain rule, which is not stable on curved elements.
    dtype
        Of the fields.
    world
        The ranks; without it this is the only one.
    regions_elsewhere
        Region of what lies behind each face on another rank, (elements, 6).
    transport, overlap, graphs, tell
        As in the case's table machine; `tell` is told lines on the choice of a transport.
    """

    # How a GPU runs a stage: threads of a block (0: one a node, as far as they fit), and how many
    # blocks a multiprocessor is to hold at least.
    threads = 0
    blocks_a_processor = 1

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
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if isinstance(part, HexMesh):
            part = take(part, np.arange(part.count))
        self.part, self.order, self.elements = part, order, part.mesh.count
        self._device, self._overlap, self._graphs_wanted = device, overlap, graphs
        self._real = np.dtype(dtype)
        self._nodes = (order + 1) ** 3
        shape = geometry(coordinates, order)
        self.jacobian = 1 / shape[:, 9]
        self._set_materials(materials, boundaries or {}, regions_elsewhere)
        count = self.elements * len(FIELDS) * self._nodes
        self.fields = device.zeros((count,), self._real)
        self.increments = device.zeros((count,), self._real)
        self._geometry = self._put(shape)
        D = derivative_matrix(order)
        self._D, self._DT = self._put(D), self._put(D.T)
        self._open_kernels(upwind, chain_rule)
        self._open_traces(world, transport, tell)
        self.additions: Additions | None = None
        self._current = 0
        self._launches: list[list[tuple[list[Launch], list[Launch]]]] = []
        self._captured: dict[tuple[int, int], Graph] = {}

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

    def _open_kernels(self, upwind: bool, chain_rule: bool) -> None:
        device, order = self._device, self.order
        self.constants: dict[str, int | float | str] = {
            "real": "float" if self._real == np.float32 else "double",
            "N": order,
            "UPWIND": int(upwind),
            "CHAIN_RULE": int(chain_rule),
        }
        self._threads = 1
        self._options: dict[str, Any] = {}
        if device.kind != "cpu":
            whole_warps = -(-self._nodes // _WARP) * _WARP
            self._threads = self.threads or min(_MOST_THREADS, whole_warps)
            self.constants["THREADS_A_BLOCK"] = self._threads
            self.constants["BLOCKS_A_PROCESSOR"] = self.blocks_a_processor
            shared = 6 * self._nodes + (order + 1) ** 2
            self._options["shared"] = shared * self._real.itemsize
        self._stage = device.kernel(SOURCE, "stage", self.constants)
        self._first_traces = device.kernel(SOURCE, "first_traces", self.constants)

    def _open_traces(
        self, world: World | None, transport: str, tell: Callable[[str], None] | None
    ) -> None:
        """Two sets of traces, own ones and behind them those of other ranks; and their exchange."""
        device = self._device
        points = (self.order + 1) ** 2
        own = self.elements * FACES * FACE_VALUES * points
        sent = self.part.waited_for * FACES * FACE_VALUES * points
        self._traces = [device.zeros((own + sent,), self._real) for _ in range(2)]
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
            tell=tell,
            across_only=True,
        )
        self.transport = self._exchange.transport
        for outgoing, incoming in zip(self._outgoing, self._incoming, strict=True):
            self._exchange.prepare(outgoing, into=incoming)

    def _bound(self, each: Range, name: str, *rest: Any, stream: Any = None) -> Launch:
        """A kernel for a range of elements, with the arguments that follow the geometry."""
        size = len(self._geometry) // max(1, self.elements)
        shape = self._geometry[each.first * size :]
        grid: dict[str, Any] = {"extent": (each.count * self._threads,), "block": (self._threads,)}
        if name == "first_traces":
            return self._first_traces.bind(
                self.fields, shape, *rest, each.first, each.count, stream=stream, **grid
            )
        trace_before, trace_after, *numbers = rest
        return self._stage.bind(
            *(self.fields, self.increments, shape, self._materials, self._faces),
            *(trace_before, trace_after, self._D, self._DT, each.first, each.count, *numbers),
            stream=stream,
            **grid,
            **self._options,
        )

    # Time

    def set_step(self, dt: float) -> None:
        """Use a time step from now on."""
        if self.additions is not None:
            self.additions.bind(self.fields, self.increments, dt)
        self._launches = [
            [self._bound_stage(turn, stage, dt) for stage in range(LSERK4.stages)]
            for turn in range(2)
        ]
        self._captured = {}

    def _bound_stage(self, turn: int, stage: int, dt: float) -> tuple[list[Launch], list[Launch]]:
        """Launches for the elements that others wait for, and for the rest."""
        prepared = self.additions.kinds if self.additions is not None else ()
        found: tuple[list[Launch], list[Launch]] = ([], [])
        for each in self.part.ranges:
            a = 1.0 if each.kind in prepared else LSERK4.a[stage]
            side = each.waited_for and self._overlap and self._exchange is not None
            launch = self._bound(
                each,
                "stage",
                *(self._traces[turn], self._traces[1 - turn], float(dt), float(a), LSERK4.b[stage]),
                stream=self._device.side if side else None,
            )
            found[0 if each.waited_for else 1].append(launch)
        return found

    def _do_stage(self, waited_for: Sequence[Launch], rest: Sequence[Launch]) -> None:
        """Elements that others wait for, their messages, the rest meanwhile."""
        after = 1 - self._current
        if self._exchange is None:
            for launch in (*waited_for, *rest):
                launch()
        else:
            if self._overlap:
                self._device.fork()
            with _BOUNDARY:
                for launch in waited_for:
                    launch()
            self._exchange.start(self._outgoing[after])
            if not self._overlap:
                self._exchange.finish(self._outgoing[after], self._incoming[after])
            with _INTERIOR:
                for launch in rest:
                    launch()
            if self._overlap:
                self._exchange.finish(self._outgoing[after], self._incoming[after])
                self._device.join()
        self._current = after

    def _one_step(self) -> None:
        for stage in range(LSERK4.stages):
            if self.additions is not None:
                self.additions.before(stage)
            self._do_stage(*self._launches[self._current][stage])
        if self.additions is not None:
            self.additions.after_step()

    def advance(self, steps: int) -> None:
        """Take time steps; on a GPU that needs no host in between they are replayed as graphs."""
        if self._capturable:
            for pairs in (_GRAPH_PAIRS, 1):
                while steps >= 2 * pairs:
                    self._graph(pairs).replay()
                    steps -= 2 * pairs
        for _ in range(steps):
            self._one_step()

    @property
    def _capturable(self) -> bool:
        if self._device.kind == "cpu" or not self._graphs_wanted:
            return False
        return self._exchange is None or bool(self._exchange.capturable)

    def _graph(self, pairs: int) -> Graph:
        key = self._current, pairs
        if key not in self._captured:

            def work() -> None:
                for _ in range(2 * pairs):
                    self._one_step()

            self._captured[key] = self._device.graph(work)
        return self._captured[key]

    # State

    def set_fields(self, values: Floats) -> None:
        """Take fields over, (elements, 6, (N + 1)^3), in the order of :data:`FIELDS`."""
        self.fields[:] = self._put(values)
        self.renew_traces()

    def renew_traces(self) -> None:
        """Make the traces those of the present fields, on all ranks."""
        for each in self.part.ranges:
            self._bound(each, "first_traces", self._traces[self._current])()
        if self._exchange is not None:
            outgoing, incoming = self._outgoing[self._current], self._incoming[self._current]
            self._device.fork()
            self._exchange.swap(outgoing, into=incoming)
            self._device.join()

    def right_hand_side(self, values: Array) -> Array:
        """Time derivative of fields, without additions; overwrites this object's own fields.

        Parameters
        ----------
        values
            Device array of the size and type of :attr:`fields`.

        Returns
        -------
        array
            :attr:`increments`, which the next call overwrites.
        """
        self.fields[:] = values
        self.renew_traces()
        for each in self.part.ranges:
            traces = self._traces[self._current], self._traces[1 - self._current]
            self._bound(each, "stage", *traces, 1.0, 0.0, 0.0)()
        return self.increments

    def values(self) -> Floats:
        """The fields on the host, (elements, 6, (N + 1)^3)."""
        host = self._device.to_host(self.fields).astype(np.float64)
        return host.reshape(self.elements, len(FIELDS), -1)

    def energies(self) -> Floats:
        """Energy of the electric and of the magnetic field of each element, (elements, 2)."""
        xp = self._device.xp
        weights = volume_weights(self.order).ravel()
        fields = self.fields.reshape(self.elements, len(FIELDS), -1)
        result = np.empty((self.elements, 2))
        step = max(1, _NODES_AT_ONCE // self._nodes)
        for first in range(0, self.elements, step):
            some = slice(first, min(first + step, self.elements))
            measure = self._device.from_host(weights * self.jacobian[some])
            # A solution that breaks overflows; its energy is no number, which is told elsewhere.
            with np.errstate(over="ignore", invalid="ignore"):
                for half in range(2):
                    part = fields[some, 3 * half : 3 * half + 3].astype("f8")
                    sums = (xp.square(part).sum(axis=1) * measure).sum(axis=1)
                    result[some, half] = self._device.to_host(sums)
        return result * self._energy_weights

    def energy(self) -> float:
        """Energy of the field of this rank: half the integral of eps E^2 + mu H^2."""
        return float(self.energies().sum())
