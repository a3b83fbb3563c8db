"""Steps of one rank's block: time step, boundary, messages, interior, walls; one by one, in pairs or as graphs."""

from __future__ import annotations

import numpy as np

from haloscope.case.tables import Machine
from haloscope.device.interface import Array, Device, Launch
from haloscope.device.program import SIDE, Field, Program, Step
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import Side, Triple
from haloscope.numerics.reduce import Largest
from haloscope.regions import Region
from haloscope.solvers.cavity import block_nodes
from haloscope.solvers.cavity.block_nodes import GHOSTS, BlockNodes, NodeBox, Operands
from haloscope.solvers.cavity.case import Flow
from haloscope.solvers.cavity.diagnostics import CentrePressure
from haloscope.solvers.cavity.updates import Ghosts, Updates
from haloscope.solvers.cavity.walls import Walls

# Nodes of a GPU's boundary along rows, across them and in planes, and planes of a march that is fast.
_GPU_DEPTHS = (128, 32, 48)
_GPU_PLANES = 8
_PORTIONS = 8


def split(
    nodes: BlockNodes, device_kind: str, *, tested: bool
) -> tuple[list[NodeBox], list[NodeBox]]:
    """Boxes of the nodes that a step updates."""
    start, stop = nodes.updated()
    shells: list[NodeBox] = []
    low, high = list(start), list(stop)
    axes = nodes.layout.axes
    for axis in reversed(axes):
        cut = [d for d in (-1, 1) if Side(axis, d) in nodes.block.neighbours]
        for direction in cut:
            begin, end = low.copy(), high.copy()
            here = high[axis] - low[axis]
            depth = _depth(nodes, device_kind, Side(axis, direction), here, len(cut))
            if direction < 0:
                end[axis] = low[axis] = begin[axis] + depth
            else:
                begin[axis] = high[axis] = end[axis] - depth
            if all(b > a for a, b in zip(begin, end, strict=True)):
                shells.append((_triple(begin), _triple(end)))
    if any(b <= a for a, b in zip(low, high, strict=True)):
        return shells, []
    if tested and device_kind == "cpu":
        return shells, _portions(low, high, axis=axes[nodes.dimensions - 1])
    return shells, [(_triple(low), _triple(high))]


def _depth(nodes: BlockNodes, device_kind: str, side: Side, here: int, cuts: int) -> int:
    """Nodes next to a side that are computed before messages leave, of those that are here.

    Cores take no more than messages hold. A GPU takes what it computes at full speed: whole
    tiles, and a good part of a march from plane to plane.
    """
    if device_kind == "cpu" or nodes.dimensions == 2:
        return min(GHOSTS, here)
    share = here // (cuts + 1)
    tile = block_nodes.TILES[nodes.real]
    place = nodes.layout.axes.index(side.axis)
    unit = (tile.x, tile.y, _GPU_PLANES)[place]
    wanted = min(_GPU_DEPTHS[place], share) // unit * unit
    # Rows of tiles begin at whole cache lines: a shell at the upper end takes what is left.
    left = (here - wanted) // unit * unit
    depth = here - left if place == 0 and side.direction > 0 else wanted
    return here if wanted == 0 or here - depth < unit else depth


def _portions(low: list[int], high: list[int], *, axis: int) -> list[NodeBox]:
    """A box in parts along an axis."""
    nodes = high[axis] - low[axis]
    parts = max(1, min(_PORTIONS, nodes // 4))
    portions = []
    for part in range(parts):
        begin, end = list(low), list(high)
        begin[axis] = low[axis] + nodes * part // parts
        end[axis] = low[axis] + nodes * (part + 1) // parts
        portions.append((_triple(begin), _triple(end)))
    return portions


def _triple(numbers: list[int]) -> Triple:
    return (numbers[0], numbers[1], numbers[2])


_MOST_CORE_PARTS = 4096
_GPU_PARTS = 1 << 18


class TimeStep:
    """The time step that all nodes have in common."""

    def __init__(self, operands: Operands, world: World) -> None:
        self._operands, self._world = operands, world
        self.dt = 0.0  # The size that steps take, in s; 0 where each node has its own
        device, nodes = operands.device, operands.nodes
        wave = operands.kernel("fastest_wave")
        start, stop = nodes.updated()
        shape = nodes.box(start, stop)
        parts = _GPU_PARTS
        if device.kind == "cpu":
            parts = min(_MOST_CORE_PARTS, max(1, shape[1] * shape[2]))
        partial = device.zeros((parts,), "f8")
        self._fastest_part = Largest(device, partial)
        self._launches = [
            wave.bind(
                extent=(parts,),
                state=state,
                physics=operands.physics,
                **nodes.loop(start, stop),
                parts=partial,
                n=parts,
            )
            for state in operands.states
        ]

    def fastest(self, number: int) -> float:
        """Largest lambda / h of all nodes of a state, in 1/s; all ranks call this."""
        self._launches[number]()
        return self._world.largest(self._fastest_part())

    def stable(self, number: int) -> float:
        """The longest step for a state, in s; NaN where the solution broke."""
        fastest = self.fastest(number)
        slow = 1.0 / fastest if fastest > 0.0 else float("nan")
        q = self._operands.physics
        return q["cfl"] * min(slow, q["diffusive"], q["cell"] * slow * slow)

    def set(self, dt: float) -> None:
        """Let steps take a size, in s."""
        self.dt = dt
        operands = self._operands
        size = np.array([dt], operands.nodes.dtype)
        operands.step_size[...] = operands.device.from_host(size)


_FROM_BYTES = 16 << 20
_CACHE_BYTES = 2 << 20
_LEAST_ROWS = 8
_SLOTS = 24
_TRIALS = 3


def bind_update_twice(flow: Flow, operands: Operands) -> list[Launch]:
    """Launches of two steps in one pass, from the first state to the second and back.

    None where it cannot pay or cannot be done. The block must be the whole grid.
    """
    device, nodes, table = operands.device, operands.nodes, flow.table
    if device.kind != "cpu" or table.dimensions == 2 or table.rescale_pressure == "step":
        return []
    start, stop = nodes.updated()
    shape = nodes.box(start, stop)
    rows = _rows(nodes, ny=shape[1], nz=shape[2], threads=device.multiprocessors)
    if operands.states[0].nbytes < _FROM_BYTES or rows == 0:
        return []
    sides = (Side(axis, direction) for axis in nodes.layout.axes for direction in (-1, 1))
    flags = np.array([flow.wall_temperature(side.name) is None for side in sides], "i8")
    shared_bytes = _SLOTS * (rows + 8) * nodes.distances[0] + 16 * 64
    scratch = device.zeros((shared_bytes * device.multiprocessors,), nodes.dtype)
    kernel = operands.kernel("update_twice")
    return [
        kernel.bind(
            extent=shape,
            old=operands.states[turn],
            fresh=operands.states[1 - turn],
            physics=operands.physics,
            step=operands.step_size,
            **nodes.loop(start, stop),
            rows=rows,
            adiabatic=device.from_host(flags),
            scratch=scratch,
            scratch_stride=shared_bytes,
        )
        for turn in range(2)
    ]


def _rows(nodes: BlockNodes, *, ny: int, nz: int, threads: int) -> int:
    """Rows of a tile: equal shares whose planes stay in the cache.

    The cache holds the scratch of the first step and the rows it reads; 0 where no tile of
    at least eight rows fits or the last tile would be thinner than walls need.
    """
    row_bytes = nodes.distances[0] * nodes.dtype.itemsize
    tiles = threads
    while tiles <= ny // _LEAST_ROWS:
        rows = -(-ny // tiles)
        held = _SLOTS * (rows + 8) + 17 * (rows + 4)
        if held * row_bytes <= _CACHE_BYTES and ny - (tiles - 1) * rows >= 2:
            return rows if nz >= 6 else 0
        tiles += threads
    return 0


def pay(device: Device, twice: Launch, single: list[Launch]) -> bool:
    """Whether a pass of two steps takes less time here than two passes of one.

    Both read the current state and write inner nodes of the other, which nothing has read.
    """

    def seconds(launch: Launch) -> float:
        return min(device.seconds(launch) for _ in range(_TRIALS))

    return seconds(twice) < 2 * sum(seconds(launch) for launch in single)


_GRAPH_PAIRS = 10  # pairs of steps that a graph holds

_BOUNDARY = Region("boundary")
_INTERIOR = Region("interior")
_WALLS = Region("walls")
_SENT = ("rim", "rim walls")


class Stepping:
    """Takes steps from one of two states to the other."""

    def __init__(
        self,
        flow: Flow,
        machine: Machine,
        operands: Operands,
        *,
        ghosts: Ghosts,
        updates: Updates,
        centre: CentrePressure,
        walls: Walls,
    ) -> None:
        self._machine, self._device, self._nodes = machine, operands.device, operands.nodes
        self._states, self._fields = operands.states, operands.fields
        self._ghosts, self._exchange = ghosts, ghosts.exchange
        self._walls = walls
        # Turn k reads state k and writes the other.
        self.program = Program(
            self._device,
            "cavity",
            cycle=(1, 0),
            block=_GRAPH_PAIRS,
            graphs=machine.graphs,
            progress=machine.progress,
            thread=ghosts.progress,
        )
        shells, inside = self._split()
        part = "core" if shells else None
        self._rim = [updates.calls(*box, part="rim") for box in shells]
        self._core = [updates.calls(*box, part=part, direct=ghosts.direct) for box in inside]
        for turn, (old, fresh) in enumerate((self._fields, self._fields[::-1])):
            step = self.program.turn(turn)
            if flow.table.rescale_pressure == "step":
                centre.add_to(step, old)
            self._add_step(step, turn, fresh)
        # Launches of two steps in one pass, by the state that they read; empty where steps are
        # taken one by one.
        self.twice = bind_update_twice(flow, operands) if self._exchange is None else []

    def _add_step(self, step: Step, turn: int, fresh: Field) -> None:
        """One step: nodes that neighbours wait for, messages, the other nodes, walls."""
        exchange, sent, ghosts = self._exchange, fresh[_SENT], fresh["ghosts"]
        overlaps = exchange is not None and self._ghosts.overlap and self._ghosts.direct is None
        for kernel, calls in self._rim:
            step.kernel(kernel, on=SIDE, region=_BOUNDARY, **calls[turn])
        if overlaps and exchange is not None:
            step.start(exchange, sent, into=ghosts)
        for kernel, calls in self._core:
            step.kernel(kernel, region=_INTERIOR, **calls[turn])
        if overlaps and exchange is not None:
            step.finish(exchange)
        step.kernel(self._walls.kernel, region=_WALLS, **self._walls.calls[1 - turn])
        if exchange is not None and not self._ghosts.overlap:
            step.swap(exchange, sent, into=ghosts)

    def _split(self) -> tuple[list[NodeBox], list[NodeBox]]:
        """Boxes next to cuts, whose values neighbours wait for, and the rest."""
        if not self._ghosts.overlap or self._ghosts.direct is not None:
            return [], [self._nodes.updated()]
        return split(self._nodes, self._device.kind, tested=self._machine.progress == "test")

    @property
    def current(self) -> int:
        """Number of the present state."""
        return self.program.next

    @current.setter
    def current(self, number: int) -> None:
        self.program.next = number

    @property
    def interior(self) -> list[list[Launch]]:
        """Launches for nodes that no neighbour waits for, by the state that they read."""
        return [
            [node.run for node in step.nodes if node.region is _INTERIOR]
            for step in self.program.steps
        ]

    def choose_passes(self) -> None:
        """Keep the two-step kernel only where it is the faster one here: same bits either way."""
        if self.twice:
            twice, single = self.twice[self.current], self.interior[self.current]
            if not pay(self._device, twice, single):
                self.twice = []

    @property
    def state(self) -> Array:
        """The present state."""
        return self._states[self.current]

    @property
    def before(self) -> Array:
        """The state a step before, or what was taken over with the present one."""
        return self._states[1 - self.current]

    def complete(self) -> None:
        """Give walls and ghosts of the present state the values that its inner nodes imply."""
        self._close_walls(self.current)
        if self._exchange is not None:
            self._device.fork()
            self._exchange.swap(self.state)
            self._device.join()

    def _close_walls(self, number: int) -> None:
        """Give the walls of a state the values that its inner nodes imply."""
        with _WALLS:
            self._walls.launches[number]()

    def take(self, count: int) -> None:
        """Take steps; on a GPU that needs no host in between they are replayed as a graph."""
        if self.twice:
            # The last step is a single one: residuals compare two states that are a step apart.
            for _ in range((count - 1) // 2):
                with _INTERIOR:
                    self.twice[self.current]()
                self.current = 1 - self.current
                self._close_walls(self.current)
            count -= max(0, (count - 1) // 2 * 2)
        self.program.advance(count)
