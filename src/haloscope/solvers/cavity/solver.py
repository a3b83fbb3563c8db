"""The cavity solver: sets up a block of the grid and takes time steps on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haloscope.device import jit
from haloscope.device.interface import Array, ByValue, Device, Graph, Launch
from haloscope.domain.blocks import SIDES, Side, Triple
from haloscope.errors import InputError, MachineError
from haloscope.exchange.block_fields import BlockFields
from haloscope.exchange.direct import DirectHalo
from haloscope.exchange.halo import Layout
from haloscope.exchange.ladder import PACKED_AXES, open_halo
from haloscope.exchange.progress import ProgressThread
from haloscope.exchange.world import World
from haloscope.numerics.reduce import NOT_FINITE, ChangeNorm, Largest
from haloscope.scope.regions import Region
from haloscope.solvers.cavity import diagnostics
from haloscope.solvers.cavity.case import CavityCase, Flow, partition
from haloscope.solvers.interface import Field, Followed, Results, Work

if TYPE_CHECKING:
    from haloscope.io.pictures import PlanePicture

NodeBox = tuple[Triple, Triple]
"""First node of a box and the one after its last, in the block's numbers."""

SOURCE = Path(__file__).with_name("cavity.cpp")

PHYSICS = (
    *("ax", "ay", "az", "nx", "ny", "nz", "n0", "tx", "ty", "tz", "t0", "dx", "dy", "dz"),
    *("gx", "gy", "gz", "bx", "by", "bz", "tref", "floor2", "rho", "cfl", "diffusive", "cell"),
)
"""Names of the values of cavity.cpp's struct Physics, in order."""

_GHOSTS = 2
_WALL_GHOSTS = 1
_STEP_INTERVAL = 50
_GRAPH_PAIRS = 10
_GPU_PARTS = 1 << 18
_GPU_BLOCK = (128, 4, 1)
_GPU_LONGEST_CHUNK = 64
_GPU_BLOCKS_WANTED = 4
_GPU_PLANES_AHEAD = 4
_GPU_COPY_ENGINE = True
_GPU_TILES = {"double": (64, 8), "float": (128, 8)}
_GPU_AHEAD = 2
_GPU_BEFORE = {"double": 16, "float": 0}
_GPU_LEAST_BLOCKS = 1
_GPU_DRIFT = 4
_GPU_SECTOR = 32  # bytes
_GPU_POLLS = 100
_GPU_SHELLS = (128, 32, 64)
_GPU_SHELL = 8
_PORTIONS = 8
_CACHE_BYTES = 1 << 20
_TWICE_FROM_BYTES = 16 << 20
_TWICE_CACHE_BYTES = 2 << 20
_TWICE_LEAST_ROWS = 8
_TWICE_SLOTS = 24
_TRIALS = 3
_FLOPS = {2: 99, 3: 172}
# A dimensionless rate of change that no flow has: impulsive starts stay below 1e3.
_DIVERGED = 1e6

_BOUNDARY = Region("boundary")
_INTERIOR = Region("interior")
_WALLS = Region("walls")
_TIME_STEP = Region("time step")


def kernel_constants(flow: Flow, device_kind: str = "cpu") -> dict[str, int | float | str]:
    """Compile-time constants of cavity.cpp for a case."""
    table = flow.table
    active = [g != 0 and table.expansion > 0 for g in table.gravity]
    constants: dict[str, int | float | str] = {
        "real": "float" if table.precision == "single" else "double",
        "DIMENSIONS": table.dimensions,
        "PHYSICS_VALUES": len(PHYSICS),
        "LOCAL_STEP": int(table.time_step == "local"),
        "RESCALE": int(table.rescale_pressure == "step"),
        "GRAVITY_X": int(active[0]),
        "GRAVITY_Y": int(active[1]),
        "GRAVITY_Z": int(active[2]),
    }
    if device_kind != "cpu":
        constants["BLOCK_THREADS"] = _GPU_BLOCK[0] * _GPU_BLOCK[1]
        constants["LEAST_BLOCKS"] = _GPU_LEAST_BLOCKS
        constants["TILE_X"], constants["TILE_Y"] = _GPU_TILES[str(constants["real"])]
        constants["AHEAD"] = _GPU_AHEAD
        constants["DRIFT"], constants["MOST_POLLS"] = _GPU_DRIFT, _GPU_POLLS
    return constants


def physics_values(flow: Flow) -> dict[str, float]:
    """Values of cavity.cpp's struct Physics for a case."""
    table = flow.table
    h = flow.spacing
    axes = range(table.dimensions)
    q = dict.fromkeys(PHYSICS, 0.0)
    nu, alpha = table.kinematic_viscosity, flow.alpha
    for i in axes:
        axis = "xyz"[i]
        q[f"a{axis}"] = 0.5 / h[i]
        q[f"n{axis}"] = nu / h[i] ** 2
        q[f"t{axis}"] = alpha / h[i] ** 2
        q[f"d{axis}"] = 0.5 * table.damping / h[i]
        q[f"g{axis}"] = 0.5 / (h[i] * table.density)
        q[f"b{axis}"] = -table.expansion * table.gravity[i]
    q["n0"] = -2 * (q["nx"] + q["ny"] + q["nz"])
    q["t0"] = -2 * (q["tx"] + q["ty"] + q["tz"])
    q["tref"] = table.reference_temperature
    q["floor2"] = table.kappa * flow.reference_velocity**2
    q["rho"] = table.density
    q["cfl"] = table.cfl
    spread = sum(1 / h[i] ** 2 for i in axes)
    q["diffusive"] = 1 / (2 * max(nu, alpha) * spread)
    q["cell"] = 2 * min(nu, alpha) / max(h[i] for i in axes) ** 2
    return q


class CavitySolver:
    """One rank's part of a cavity case.

    Parameters
    ----------
    case
        The checked case.
    device, world
        Where to compute, and the ranks.

    Raises
    ------
    InputError
        The grid is too thin for the ranks, or an expression gives values that are not finite.
    """

    name = "cavity"
    time = None
    followed = Followed(
        name="residual",
        file="residuals.csv",
        label="residual (dimensionless rate of change)",
        title="Way to the steady state",
        steady=True,
        limit=_DIVERGED,
    )

    def __init__(self, case: CavityCase, device: Device, world: World) -> None:
        self._case, self._device, self._world = case, device, world
        self.flow = flow = Flow(case.cavity)
        self.step = 0
        self.dtype = np.dtype(np.float32 if case.cavity.precision == "single" else np.float64)
        names = ("p", "u", "v", "T") if case.cavity.dimensions == 2 else ("p", "u", "v", "w", "T")
        described = {
            "p": Field("p", "Pa", "pressure less that at the centre"),
            "u": Field("u", "m/s", "velocity along x"),
            "v": Field("v", "m/s", "velocity along y"),
            "w": Field("w", "m/s", "velocity along z"),
            "T": Field("T", "K", "temperature"),
        }
        self.fields = {name: described[name] for name in names}
        self.stored = names
        self.vectors = {"velocity": [name for name in "uvw" if name in names]}
        self.last_step = case.run.steps
        self._real = "float" if self.dtype == np.float32 else "double"
        self._tile = _GPU_TILES[self._real]
        self.spacing = flow.spacing
        self.blocks = partition(case, world.size)
        self.block = self.blocks.block(world.rank)
        self.places = BlockFields(world, self.blocks, self.spacing)
        self.layout = self._plan_layout()
        self._centre: Triple = tuple(n // 2 for n in flow.nodes)  # type: ignore[assignment]
        self._overlap = self._may_overlap()
        self._state: list[Array] = [self._allocate() for _ in range(2)]
        self._current = 0
        self._reference = device.zeros((1,), self.dtype)
        self._values = physics_values(flow)
        self._physics = ByValue(np.array([self._values[name] for name in PHYSICS], self.dtype))
        self._dt = 0.0
        self._step_size = device.zeros((1,), self.dtype)
        self._constants = kernel_constants(flow, device.kind)
        self.kernel_hash = jit.kernel_hash(SOURCE, self._constants)
        self.notices: list[str] = []
        self._exchange = open_halo(
            world,
            device,
            self.block,
            self.layout,
            [2] + [1] * (len(names) - 1),
            self._state,
            case.machine,
            stream=device.side if self._overlap else None,
            tell=self.notices.append,
        )
        self.transport = "none"
        if self._exchange is not None:
            self.transport = self._exchange.transport
            self._exchange.prepare(*self._state)
        self._progress = None
        if self._exchange and self._overlap and case.machine.progress == "thread":
            self._progress = ProgressThread(world, self._exchange.progress)
        self._direct: DirectHalo | None = None
        self._bind_kernels()
        self._direct = self._open_direct()
        if self._direct is not None:
            self.transport += ", direct"
        self._bind()
        self._set_initial()
        self._complete()
        if flow.table.time_step == "global":
            self._set_time_step()
        self._choose_passes()
        self.work = self._count_work()

    # Set-up

    def _plan_layout(self) -> Layout:
        """Where the fields lie: (field, z, y, x) on cores, (z, y, field, x) on GPUs.

        On cores each field is a stream that the prefetchers follow; the fields start at different
        places of a page. On GPUs a tile of a plane touches one or two pages instead of one a
        field, which is worth 6 %; rows are an odd number of cache lines long so that their starts
        spread over a page. The first node that is updated lies on a cache line; on GPUs, in double
        precision, the wall and the ghost before it do: what a wall needs lies together, and rows
        of tiles begin at whole sectors (4 %).
        """
        nx, ny, nz = self.block.shape
        cut = {side.axis for side in self.block.neighbours}
        gx, gy, gz = (_GHOSTS if axis in cut else _WALL_GHOSTS for axis in range(3))
        if self.flow.table.dimensions == 2:
            gz = 0
        line = 64 // self.dtype.itemsize
        pitch = -(-(nx + 2 * gx) // line) * line
        lead = -(gx + self._skip(0, -1)) % line
        if self._device.kind == "cpu":
            plane = pitch * (ny + 2 * gy)
            first = lead + gx + gy * pitch + gz * plane
            apart = plane * (nz + 2 * gz) + 9 * line
            return Layout((nx, ny, nz), (1, pitch, plane), first, apart, (gx, gy, gz))
        if pitch // line % 2 == 0:
            pitch += line
        lead = (lead + _GPU_BEFORE[self._real] // self.dtype.itemsize) % line
        row = pitch * len(self.fields)
        plane = row * (ny + 2 * gy)
        first = lead + gx + gy * row + gz * plane
        return Layout((nx, ny, nz), (1, row, plane), first, pitch, (gx, gy, gz))

    def _allocate(self) -> Array:
        """Zeros for one state, with room behind for the shift of the first node."""
        deep = self.layout.shape[2] + 2 * self.layout.ghosts[2]
        plane, apart = self.layout.strides[2], self.layout.field_stride
        count = max(plane * deep, apart * len(self.fields)) + 64 // self.dtype.itemsize
        # Neighbours may store into it, see DirectHalo and UnpackedExchange.
        if self._device.kind != "cpu" and self.blocks.count > 1:
            return self._device.shared_zeros((count,), self.dtype)
        return self._device.zeros((count,), self.dtype)

    def _may_overlap(self) -> bool:
        """Whether work and exchange may overlap.

        On a GPU a block cut along x is faster in one piece (5 to 20 %): a rim along x is thin, and
        ghosts beyond it are faster packed than stored one by one.
        """
        machine = self._case.machine
        in_one_piece = self._device.kind != "cpu" and machine.packing == "auto"
        if self.blocks.parts[0] > 1 and self.flow.table.dimensions == 3 and in_one_piece:
            return False
        return machine.overlap and bool(self.blocks.count > 1)

    def _skip(self, axis: int, direction: int) -> int:
        """Owned nodes at a side that are not updated: one at a wall, none at a cut."""
        if axis >= self.flow.table.dimensions:
            return 0
        return 0 if Side(axis, direction) in self.block.neighbours else 1

    def _walls(self) -> list[Side]:
        """Sides of this block that are walls of the box."""
        return [side for side in self.block.walls if side.axis < self.flow.table.dimensions]

    def _index(self, x: int, y: int, z: int) -> int:
        """Place of an owned node within a field, from its number in the block."""
        _, sy, sz = self.layout.strides
        return self.layout.first + x + y * sy + z * sz

    def _updated(self) -> tuple[Triple, Triple]:
        """First and last-but-one node of the block that a step updates, in block numbers."""
        start = tuple(self._skip(axis, -1) for axis in range(3))
        stop = tuple(n - self._skip(axis, 1) for axis, n in enumerate(self.block.shape))
        return start, stop  # type: ignore[return-value]

    def _split(self) -> tuple[list[NodeBox], list[NodeBox]]:
        """Boxes next to cuts, whose values neighbours wait for, and the rest."""
        start, stop = self._updated()
        if not self._overlap or self._direct is not None:
            return [], [(start, stop)]
        shells: list[NodeBox] = []
        low, high = list(start), list(stop)
        for axis in (2, 1, 0):
            cut = [d for d in (-1, 1) if Side(axis, d) in self.block.neighbours]
            for direction in cut:
                begin, end = low.copy(), high.copy()
                depth = self._shell_depth(axis, direction, low, high, len(cut))
                if direction < 0:
                    end[axis] = low[axis] = begin[axis] + depth
                else:
                    begin[axis] = high[axis] = end[axis] - depth
                if all(b > a for a, b in zip(begin, end, strict=True)):
                    shells.append((_triple(begin), _triple(end)))
        if any(b <= a for a, b in zip(low, high, strict=True)):
            return shells, []
        return shells, self._portions(_triple(low), _triple(high))

    def _shell_depth(
        self, axis: int, direction: int, low: list[int], high: list[int], sides: int
    ) -> int:
        """Nodes along an axis that are computed before messages leave.

        Cores take no more than messages hold. A GPU takes what it computes at full speed: whole
        tiles, and a good part of a march along z.
        """
        nodes = high[axis] - low[axis]
        if self._device.kind == "cpu" or self.flow.table.dimensions == 2:
            return min(_GHOSTS, nodes)
        share = nodes // (sides + 1)
        unit = (*self._tile, _GPU_SHELL)[axis]
        wanted = min(_GPU_SHELLS[axis], share) // unit * unit
        # Rows of tiles begin at whole cache lines: a shell at the upper end takes what is left.
        left = (nodes - wanted) // unit * unit
        depth = nodes - left if axis == 0 and direction > 0 else wanted
        return nodes if wanted == 0 or nodes - depth < unit else depth

    def _portions(self, low: Triple, high: Triple) -> list[NodeBox]:
        """The interior, in parts where MPI is to be tested in between."""
        if self._case.machine.progress != "test" or self._device.kind != "cpu":
            return [(low, high)]
        axis = 2 if self.flow.table.dimensions == 3 else 1
        parts = max(1, min(_PORTIONS, (high[axis] - low[axis]) // 4))
        found = []
        for part in range(parts):
            ends = [
                low[axis] + (high[axis] - low[axis]) * (part + more) // parts for more in (0, 1)
            ]
            begin, end = list(low), list(high)
            begin[axis], end[axis] = ends
            found.append((_triple(begin), _triple(end)))
        return found

    def _bind_updates(self, start: Triple, stop: Triple, stream: Any = None) -> list[Launch]:
        """The update of a box, bound from the first state to the second and back."""
        nx, ny, nz = (b - a for a, b in zip(start, stop, strict=True))
        _, sy, sz = self.layout.strides
        device, states = self._device, self._state
        kernel, rows, chunk = self._update, 1, 1
        options: dict[str, Any] = {"stream": stream}
        progress: list[Any] = []
        if device.kind == "cpu":
            rows, chunk = self._tiles(nx, ny, nz)
            options["extent"] = (nx, ny, nz)
        elif self._update_tiles is not None and self._fits_tiles(start, nx):
            kernel = self._update_tiles
            chunk, columns = self._gpu_columns(nx, ny, nz)
            blocks = min(columns, device.multiprocessors)
            counters = -(-columns // blocks) * chunk
            progress = [device.zeros((counters,), np.int64) for _ in range(2)]
            options |= {"block": (*self._tile, 1), "shared": self._tile_bytes()}
            options["extent"] = (self._tile[0] * blocks, *self._tile[1:])
        else:
            chunk = self._gpu_chunk(nx, ny, nz)
            options |= {"block": _GPU_BLOCK, "extent": (nx, ny, -(-nz // chunk))}
        launches = []
        for turn in range(2):
            more: list[Any] = []
            if progress:
                more = [*self._fills(start, stop)]
                more += [progress[turn], progress[1 - turn], len(progress[0])]
                more += self._cuts(start, stop, chunk, 1 - turn)
            launches.append(
                kernel.bind(
                    states[turn],
                    states[1 - turn],
                    self._physics,
                    self._step_size,
                    self._reference,
                    self._index(*start),
                    nx,
                    ny,
                    nz,
                    sy,
                    sz,
                    self.layout.field_stride,
                    rows,
                    chunk,
                    *more,
                    **options,
                )
            )
        return launches

    def _cuts(self, start: Triple, stop: Triple, chunk: int, turn: int) -> list[Any]:
        """Arguments of update_tiles for ghosts that it fills itself: struct Cuts and counters."""
        nx, ny, nz = (b - a for a, b in zip(start, stop, strict=True))
        tiles_x, tiles_y = -(-nx // self._tile[0]), -(-ny // self._tile[1])
        marches = -(-nz // chunk)
        # A side's two layers may lie in two tiles or marches.
        at_side = {
            Side(1, -1): tiles_x * marches,
            Side(1, 1): tiles_x * marches * (tiles_y - max(0, ny - 2) // self._tile[1]),
            Side(2, -1): tiles_x * tiles_y * -(-min(2, nz) // chunk),
            Side(2, 1): tiles_x * tiles_y * (marches - max(0, nz - 2) // chunk),
        }
        direct = self._direct
        if direct is None:
            return [ByValue(np.zeros(5 * len(at_side), np.int64)), 0, 0]
        values: list[int] = []
        for side, columns in at_side.items():
            base, plane, mine, theirs = direct.cut(side, turn)
            # The box begins at its first updated node, not at the block's first.
            strides = (1, self.layout.strides[1], plane)
            offset = sum(a * stride for a, stride in zip(start, strides, strict=True))
            base += offset * self.dtype.itemsize if base else 0
            values += (base, plane, mine, theirs, columns)
        return [ByValue(np.array(values, np.int64)), direct.epoch, direct.arrivals]

    def _fills(self, start: Triple, stop: Triple) -> tuple[int, int]:
        """Values before and behind each row of a box that the update stores too, see cavity.cpp.

        They belong to walls or ghosts, whose values come later, or to nobody. In a box that ends
        inside of the block they are other nodes, and ghosts that travel unpacked may come earlier.
        It pays where rows end within a sector, in double precision: 10 %. Elsewhere it costs 2 to 5.
        """
        sector = _GPU_SECTOR // self.dtype.itemsize
        low, high = self._index(*start) % sector, -self._index(*stop) % sector
        own = tuple(ends[0] for ends in self._updated())
        packed = 0 in PACKED_AXES[self._case.machine.packing]
        free = packed or all(side.axis > 0 for side in self.block.neighbours)
        # Behind the last node there is a wall with its ghost, or two ghosts, then padding.
        room = self.layout.field_stride - _GHOSTS - (stop[0] - own[0])
        last_tile = (stop[0] - start[0] - 1) % self._tile[0] + 1
        if stop[0] < own[1] or not free or high > min(room, last_tile) or self._real == "float":
            return 0, 0
        if start[0] > own[0] or low > _GHOSTS or high == 0:
            low = 0
        return low, high

    def _gpu_columns(self, nx: int, ny: int, nz: int) -> tuple[int, int]:
        """Planes of a march and number of columns (tiles times marches) of the tiled GPU kernel.

        A multiprocessor takes one column after the other. It reads a few planes before its first
        result, hence the planes that are added to each.
        """
        tiles = -(-nx // self._tile[0]) * -(-ny // self._tile[1])

        def cost(marches: int) -> tuple[int, int]:
            rounds = -(-tiles * marches // self._device.multiprocessors)
            return (rounds * (-(-nz // marches) + _GPU_PLANES_AHEAD), marches)

        marches = min(range(1, nz + 1), key=cost)
        chunk = -(-nz // marches)
        return chunk, tiles * -(-nz // chunk)

    def _gpu_chunk(self, nx: int, ny: int, nz: int) -> int:
        """Planes that a block of the plain GPU kernel marches through: enough blocks to fill it."""
        tiles = -(-nx // _GPU_BLOCK[0]) * -(-ny // _GPU_BLOCK[1])
        wanted = _GPU_BLOCKS_WANTED * self._device.multiprocessors
        return max(1, min(_GPU_LONGEST_CHUNK, nz * tiles // wanted))

    def _fits_tiles(self, start: Triple, nx: int) -> bool:
        """Whether the tiled GPU kernel can take a box: rows that start at multiples of 16 bytes."""
        _, sy, sz = self.layout.strides
        places = (self._index(*start), sy, sz, self.layout.field_stride)
        aligned = all(n * self.dtype.itemsize % 16 == 0 for n in places)
        return aligned and nx >= self._tile[0] // 2

    def _tile_bytes(self) -> int:
        """Shared memory of the tiled GPU kernel's block: see `tiles` in cavity.cpp."""
        width, rows = self._tile[0] + 2 * 16 // self.dtype.itemsize, self._tile[1]
        values = (3 + _GPU_AHEAD) * (rows + 4) + 4 * (2 + _GPU_AHEAD) * (rows + 2)
        return values * width * self.dtype.itemsize

    def _tiles(self, nx: int, ny: int, nz: int) -> tuple[int, int]:
        """Rows of a tile and planes of a chunk: equal shares, planes that stay in the cache."""
        threads = getattr(self._device, "threads", 1)
        layers = 5 + 3 * (len(self.fields) - 1)
        fitting = max(4, _CACHE_BYTES // (layers * (nx + 4) * self.dtype.itemsize))
        cuts = 1
        while ny * cuts < 8 * threads and nz // (2 * cuts) >= 4:
            cuts *= 2
        shares = max(1, threads // cuts)
        tiles = shares
        while -(-ny // tiles) > fitting and tiles < ny:
            tiles += shares
        return max(1, -(-ny // tiles)), max(1, -(-nz // cuts))

    def _bind_kernels(self) -> None:
        device = self._device
        self._update = device.kernel(SOURCE, "update", self._constants)
        self._update_tiles = None
        if device.copy_engine and _GPU_COPY_ENGINE and self.flow.table.dimensions == 3:
            self._update_tiles = device.kernel(SOURCE, "update_tiles", self._constants)

    def _open_direct(self) -> DirectHalo | None:
        """Let the update fill the neighbours' ghosts, where it can on every rank."""
        if self._exchange is None or not self._overlap or self._case.machine.packing != "auto":
            return None
        if self._exchange.transport != "peer" or self.flow.table.rescale_pressure == "step":
            return None
        start, stop = self._updated()
        suits = self._update_tiles is not None and self._fits_tiles(start, stop[0] - start[0])
        if self._world.any(not suits):
            return None
        try:
            return DirectHalo(self._world, self._device, self.block, self.layout, self._state)
        except MachineError as error:
            self.notices.append(f"{error}; ghosts travel as messages")
            return None

    def _bind(self) -> None:
        device, layout = self._device, self.layout
        wave = device.kernel(SOURCE, "fastest_wave", self._constants)
        keep = device.kernel(SOURCE, "keep_reference", self._constants)
        shells, inside = self._split()
        pairs = ((self._state[0], self._state[1]), (self._state[1], self._state[0]))
        boundary = [self._bind_updates(*box, device.side) for box in shells]
        interior = [self._bind_updates(*box) for box in inside]
        self._launch_boundary = [[pair[turn] for pair in boundary] for turn in range(2)]
        self._launch_interior = [[pair[turn] for pair in interior] for turn in range(2)]
        self._launch_walls = self._bind_walls()
        start, stop = self._updated()
        shape: Triple = tuple(b - a for a, b in zip(start, stop, strict=True))  # type: ignore[assignment]
        _, sy, sz = layout.strides
        first = self._index(*start)
        parts = min(4096, max(1, shape[1] * shape[2])) if device.kind == "cpu" else _GPU_PARTS
        self._wave_parts = device.zeros((parts,), "f8")
        self._fastest_part = Largest(device, self._wave_parts)
        self._launch_wave = [
            wave.bind(
                state,
                self._physics,
                first,
                *shape,
                sy,
                sz,
                layout.field_stride,
                self._wave_parts,
                parts,
                extent=(parts,),
            )
            for state in self._state
        ]
        self._norm = ChangeNorm(device, self._world, self.dtype, first, shape, (sy, sz))
        inside_block = all(
            a <= c < b
            for a, c, b in zip(self.block.start, self._centre, self.block.stop, strict=True)
        )
        self._owns_centre = inside_block
        self._centre_owner = int(
            self._world.sum(np.array([self._world.rank if inside_block else 0], np.int64))[0]
        )
        place = 0
        if inside_block:
            local = (c - a for c, a in zip(self._centre, self.block.start, strict=True))
            place = self._index(*local)
        self._launch_keep = [
            keep.bind(state, self._reference, place, extent=(1,)) for state in self._state
        ]
        self._graphs: dict[tuple[int, int], Graph] = {}
        self._launch_twice = self._bind_twice(pairs, first, shape)

    def _bind_walls(self) -> list[Launch]:
        """The walls of each state."""
        device, sides = self._device, self._side_table()
        kernel = device.kernel(SOURCE, "walls", self._constants)
        # On GPUs four lanes work on a node of a wall along x.
        lanes = np.where(np.abs(sides[:, 1]) == 1, 4, 1)
        extent = (
            int((lanes * sides[:, 4]).max(initial=1)),
            int(sides[:, 5].max(initial=1)),
            max(1, len(sides)),
        )
        table = device.from_host(sides)
        return [
            kernel.bind(state, table, len(sides), self.layout.field_stride, extent=extent)
            for state in self._state
        ]

    def _close_walls(self, number: int) -> None:
        """Give the walls of a state the values that its inner nodes imply."""
        with _WALLS:
            self._launch_walls[number]()

    def _bind_twice(
        self, pairs: tuple[tuple[Array, Array], ...], first: int, shape: Triple
    ) -> list[Launch]:
        """Launches of two steps in one pass over memory, where that pays; else none.

        It pays on cores for a whole 3-D grid that is larger than the caches.
        """
        device = self._device
        table = self.flow.table
        rows = self._twice_rows(shape)
        if (
            device.kind != "cpu"
            or self._exchange is not None
            or table.dimensions == 2
            or table.rescale_pressure == "step"
            or self._state[0].nbytes < _TWICE_FROM_BYTES
            or rows == 0
        ):
            return []
        flags = np.array([self.flow.wall_temperature(side.name) is None for side in SIDES], "i8")
        _, sy, sz = self.layout.strides
        each = _TWICE_SLOTS * (rows + 8) * sy + 16 * 64
        scratch = device.zeros((each * device.multiprocessors,), self.dtype)
        kernel = device.kernel(SOURCE, "update_twice", self._constants)
        return [
            kernel.bind(
                old,
                fresh,
                self._physics,
                self._step_size,
                first,
                *shape,
                sy,
                sz,
                self.layout.field_stride,
                rows,
                device.from_host(flags),
                scratch,
                each,
                extent=shape,
            )
            for old, fresh in pairs
        ]

    def _choose_passes(self) -> None:
        """Keep the two-step kernel only where it is the faster one here: same bits either way.

        Both read the current state and write inner nodes of the other, which nothing has read.
        """
        if not self._launch_twice:
            return
        single, twice = self._launch_interior[self._current], self._launch_twice[self._current]

        def seconds(launch: Launch) -> float:
            return min(self._device.seconds(launch) for _ in range(_TRIALS))

        if seconds(twice) >= 2 * sum(seconds(launch) for launch in single):
            self._launch_twice = []

    def _twice_rows(self, shape: Triple) -> int:
        """Rows of a tile of the two-step kernel: equal shares whose planes stay in the cache.

        The cache holds the scratch of the first step and the rows it reads; 0 where no tile of
        at least eight rows fits or the last tile would be thinner than walls need.
        """
        _, ny, nz = shape
        row_bytes = self.layout.strides[1] * self.dtype.itemsize
        threads = self._device.multiprocessors
        tiles = threads
        while tiles <= ny // _TWICE_LEAST_ROWS:
            rows = -(-ny // tiles)
            held = _TWICE_SLOTS * (rows + 8) + 17 * (rows + 4)
            if held * row_bytes <= _TWICE_CACHE_BYTES and ny - (tiles - 1) * rows >= 2:
                return rows if nz >= 6 else 0
            tiles += threads
        return 0

    def _side_table(self) -> np.ndarray:
        """Rows for the walls kernel: nodes of each wall without its edges."""
        start, stop = self._updated()
        rows = []
        for side in self._walls():
            corner = list(start)
            corner[side.axis] = 0 if side.direction < 0 else self.block.shape[side.axis] - 1
            a, b = (axis for axis in range(3) if axis != side.axis)
            strides = self.layout.strides
            rows.append(
                (
                    self._index(*corner),
                    -side.direction * strides[side.axis],
                    strides[a],
                    strides[b],
                    stop[a] - start[a],
                    stop[b] - start[b],
                    int(self.flow.wall_temperature(side.name) is None),
                )
            )
        return np.array(rows, np.int64).reshape(len(rows), 7)

    def view(self, name: str, state: Array | None = None) -> Array:
        """Owned values of a field on the device, shape (nz, ny, nx), without a copy."""
        layout = self.layout
        flat = self._state[self._current] if state is None else state
        begin = layout.first + list(self.fields).index(name) * layout.field_stride
        nx, ny, nz = layout.shape
        size = self.dtype.itemsize
        strides = tuple(size * stride for stride in reversed(layout.strides))
        return self._device.xp.lib.stride_tricks.as_strided(flat[begin:], (nz, ny, nx), strides)

    def _coordinates(self) -> dict[str, np.ndarray]:
        axes = [
            np.arange(a, b) * h
            for a, b, h in zip(self.block.start, self.block.stop, self.spacing, strict=True)
        ]
        z, y, x = np.meshgrid(axes[2], axes[1], axes[0], indexing="ij", sparse=True)
        return {"x": x, "y": y, "z": z}

    def _on_side(self, side: Side) -> tuple[slice, slice, slice]:
        """Slices (z, y, x) of the owned nodes on a side."""
        cut = [slice(None)] * 3
        cut[2 - side.axis] = slice(0, 1) if side.direction < 0 else slice(-1, None)
        return (cut[0], cut[1], cut[2])

    def _set_initial(self) -> None:
        """Fill both buffers: initial fields, then the values that walls prescribe."""
        where = self._coordinates()
        shape = tuple(reversed(self.block.shape))
        for name in self.fields:
            values = np.empty(shape, self.dtype)
            values[...] = self.flow.initial(name).evaluate_finite(f"cavity.initial.{name}", **where)
            for side in self._walls():
                self._prescribe(name, side, values, where)
            for state in self._state:
                self.view(name, state)[...] = self._device.from_host(values)

    def _prescribe(
        self, name: str, side: Side, values: np.ndarray, where: dict[str, np.ndarray]
    ) -> None:
        """Put what a wall prescribes for a field on the wall's nodes."""
        cut = self._on_side(side)
        if name in "uvw":
            wall = getattr(self.flow.table.walls, side.name)
            speed = wall.velocity["uvw".index(name)]
            # A moving wall does not drag its edges: they belong to the walls that stand.
            inner = [slice(None)] * 3
            for other in self._walls():
                if other.axis != side.axis:
                    inner[2 - other.axis] = _without_edge(inner[2 - other.axis], other.direction)
            values[cut] = 0.0
            inner[2 - side.axis] = cut[2 - side.axis]
            values[tuple(inner)] = speed
        elif name == "T":
            temperature = self.flow.wall_temperature(side.name)
            if temperature is not None:
                here = {
                    axis: array if array.shape[2 - i] == 1 or i != side.axis else array[cut]
                    for i, (axis, array) in enumerate(where.items())
                }
                key = f"cavity.walls.{side.name}.temperature"
                values[cut] = temperature.evaluate_finite(key, **here)

    def _complete(self) -> None:
        """Give walls and ghosts of the current state the values that its inner nodes imply."""
        self._close_walls(self._current)
        if self._exchange is not None:
            self._device.fork()
            self._exchange.swap(self._state[self._current])
            self._device.join()

    def _count_work(self) -> Work:
        start, stop = self._updated()
        own = np.array([np.prod([b - a for a, b in zip(start, stop, strict=True)])], np.int64)
        cells = int(self._world.sum(own)[0])
        held = sum(state.nbytes for state in self._state)
        memory = int(self._world.sum(np.array([held], np.int64))[0])
        values = 2 * len(self.fields) * self.dtype.itemsize
        flops = _FLOPS[self.flow.table.dimensions]
        size = int(np.prod(np.array(self.flow.nodes, np.int64)))
        return Work(cells, size, float(cells * values), float(cells * flops), memory)

    # Time steps

    def _fastest(self) -> float:
        """Largest lambda / h of all nodes, in 1/s."""
        self._launch_wave[self._current]()
        return self._world.largest(self._fastest_part())

    def _stable_step(self) -> float:
        """The global time step for the current state, in s; NaN where the solution broke."""
        fastest = self._fastest()
        slow = 1.0 / fastest if fastest > 0.0 else float("nan")
        q = self._values
        return q["cfl"] * min(slow, q["diffusive"], q["cell"] * slow * slow)

    def _set_time_step(self) -> None:
        with _TIME_STEP:
            self._upload(dt=self._stable_step())

    def _upload(self, dt: float) -> None:
        self._dt = dt
        self._step_size[...] = self._device.from_host(np.array([dt], self.dtype))

    def _one_step(self) -> None:
        """One step: nodes that neighbours wait for, messages, the other nodes, walls."""
        now = self._current
        fresh = self._state[1 - now]
        if self.flow.table.rescale_pressure == "step":
            self._share_reference()
        if self._direct is not None:
            with _INTERIOR:
                self._launch_interior[now][0]()
            self._close_walls(1 - now)
        elif self._overlap and self._exchange is not None:
            self._device.fork()
            with _BOUNDARY:
                for launch in self._launch_boundary[now]:
                    launch()
            self._exchange.start(fresh)
            self._inside_beside_messages(now)
            self._exchange.finish(fresh)
            self._device.join()
            self._close_walls(1 - now)
        else:
            with _INTERIOR:
                for launch in self._launch_interior[now]:
                    launch()
            self._close_walls(1 - now)
            if self._exchange is not None:
                self._exchange.swap(fresh)
        self._current = 1 - now

    def _inside_beside_messages(self, now: int) -> None:
        """The nodes that no neighbour waits for, while messages travel."""
        tested = self._case.machine.progress == "test" and self._exchange is not None
        with _INTERIOR, self._progress or contextlib.nullcontext():
            for launch in self._launch_interior[now]:
                launch()
                if tested:
                    self._exchange.progress()  # type: ignore[union-attr]

    def _share_reference(self) -> None:
        """Bring the pressure at the centre to every rank, for the kernel to subtract."""
        if self._owns_centre:
            self._launch_keep[self._current]()
        if self._world.size > 1:
            value = self._device.to_host(self._reference)
            self._reference[...] = self._device.from_host(
                self._world.broadcast(value, self._centre_owner)
            )

    def _captured(self) -> bool:
        """Whether steps need no host in between, so that they can be replayed as a graph."""
        if self._device.kind == "cpu" or not self._case.machine.graphs:
            return False
        if self._exchange is None:
            return True
        return self._exchange.capturable and self.flow.table.rescale_pressure != "step"

    def _steps(self, count: int) -> None:
        """Take steps; on a GPU that needs no host in between they are replayed as a graph."""
        if self._captured():
            for pairs in (_GRAPH_PAIRS, 1):
                while count >= 2 * pairs:
                    self._graph(pairs).replay()
                    count -= 2 * pairs
        if self._launch_twice:
            # The last step is a single one: residuals compare two states that are a step apart.
            for _ in range((count - 1) // 2):
                with _INTERIOR:
                    self._launch_twice[self._current]()
                self._current = 1 - self._current
                self._close_walls(self._current)
            count -= max(0, (count - 1) // 2 * 2)
        for _ in range(count):
            self._one_step()

    def _graph(self, pairs: int) -> Graph:
        key = (pairs, self._current)
        if key not in self._graphs:

            def work() -> None:
                for _ in range(2 * pairs):
                    self._one_step()

            self._graphs[key] = self._device.graph(work)
        return self._graphs[key]

    def advance(self, steps: int) -> None:
        """Take steps. The global time step is renewed at fixed steps, whatever the calls."""
        end = self.step + steps
        while self.step < end:
            until = min(end, (self.step // _STEP_INTERVAL + 1) * _STEP_INTERVAL)
            if self.flow.table.time_step == "local":
                until = end
            self._steps(until - self.step)
            self.step = until
            if self.step % _STEP_INTERVAL == 0 and self.flow.table.time_step == "global":
                self._set_time_step()

    # What the time loop asks

    def centre_pressure(self, state: Array | None = None) -> float:
        """Pressure at the centre node on every rank, in Pa."""
        value = np.zeros(1)
        if self._owns_centre:
            x, y, z = (c - a for c, a in zip(self._centre, self.block.start, strict=True))
            picked = self.view("p", state)[z : z + 1, y, x]
            value = self._device.to_host(picked).astype("f8")
        return float(self._world.broadcast(value, self._centre_owner)[0])

    def follow(self) -> dict[str, float]:
        """Root mean square of each field's change in the last step, made dimensionless.

        The change is divided by the smallest time step of the grid and multiplied by L / V_ref;
        pressure is taken relative to the centre and scaled by rho V_ref^2, velocities by V_ref,
        temperature by the temperature difference (1 K where there is none).
        """
        fresh, old = self._state[self._current], self._state[1 - self._current]
        speed = self.flow.reference_velocity
        scales = {"p": self.flow.table.density * speed**2, "u": speed, "v": speed, "w": speed}
        scales["T"] = self.flow.temperature_difference or 1.0
        fastest = self._fastest()
        if not 0.0 < fastest < NOT_FINITE:
            return dict.fromkeys(self.fields, float("inf"))
        factor = self.flow.size[0] / speed / self._stable_step()
        shift = self.centre_pressure(fresh) - self.centre_pressure(old)
        found = {}
        for number, name in enumerate(self.fields):
            begin = number * self.layout.field_stride
            relative = shift if name == "p" else 0.0
            change = self._norm.rms(fresh[begin:], old[begin:], relative)
            found[name] = change * factor / scales[name]
        return found

    def diagnostics(self) -> dict[str, float]:
        """Nusselt numbers and velocity maxima; see :mod:`.diagnostics`."""
        return diagnostics.measure(self)

    def owned(self, name: str) -> np.ndarray:
        """Owned values on the host; edges of walls filled in, pressure relative to the centre."""
        values = self._device.to_host(self.view(name))
        if name in ("p", "T"):
            for side in self._walls():
                if name == "p" or self.flow.wall_temperature(side.name) is None:
                    self._fill_edges(name, side, values)
        return values

    def relative(self, name: str) -> np.ndarray:
        """As :meth:`owned`, with the pressure at the centre subtracted from a pressure."""
        values = self.owned(name)
        if name == "p":
            values -= values.dtype.type(self.centre_pressure())
        return values

    def _fill_edges(self, name: str, side: Side, values: np.ndarray) -> None:
        """Extrapolate to a wall's nodes, edges included, which the walls kernel leaves out."""
        axis = 2 - side.axis
        line = values if side.direction < 0 else np.flip(values, axis)
        line = np.moveaxis(line, axis, 0)
        wall = 2 * line[1] - line[2] if name == "p" else (4 * line[1] - line[2]) / 3
        if name == "T":
            keep = self._prescribed_edges(side, wall.shape)
            wall = np.where(keep, line[0], wall)
        line[0] = wall

    def _prescribed_edges(self, side: Side, shape: tuple[int, ...]) -> np.ndarray:
        """Nodes of a wall's plane that also lie on a wall with a prescribed temperature."""
        keep = np.zeros(shape, bool)
        remaining = [axis for axis in (2, 1, 0) if axis != side.axis]
        for other in self._walls():
            if other.axis != side.axis and self.flow.wall_temperature(other.name) is not None:
                cut: list[Any] = [slice(None)] * 2
                cut[remaining.index(other.axis)] = 0 if other.direction < 0 else -1
                keep[tuple(cut)] = True
        return keep

    def scalars(self) -> dict[str, float]:
        """The global time step."""
        return {"dt": self._dt}

    def restore(
        self,
        step: int,
        scalars: Mapping[str, float],
        own: Callable[[str], np.ndarray],
    ) -> None:
        """Take over a saved state; see :class:`haloscope.solvers.interface.Solver`."""
        where = self._coordinates()
        for name in self.fields:
            values = own(name)
            # The case decides on walls: a restart may go on with others.
            for side in self._walls():
                self._prescribe(name, side, values, where)
            if not np.isfinite(values).all():
                raise InputError(
                    f"the checkpoint's field {name} holds values that are not finite; restart "
                    "from an earlier one"
                )
            for state in self._state:
                self.view(name, state)[...] = self._device.from_host(values)
        self.step = step
        self._complete()
        self._upload(dt=scalars["dt"])

    def sample(self, positions: Sequence[tuple[float, float, float]]) -> list[list[float]]:
        """Values of all fields at points, the same on every rank."""
        fields = [self.places.sample(positions, self.relative(name)) for name in self.fields]
        return [list(values) for values in zip(*fields, strict=True)]

    def advice(self) -> str:
        """What to change when the solution breaks."""
        table = self.flow.table
        return f"lower cavity.cfl (now {table.cfl:g}) or refine cavity.nodes (now {table.nodes})"

    def extras(self) -> dict[str, np.ndarray]:
        """Nothing: a restart needs the fields and the time step only."""
        return {}

    def restore_extras(self, extras: Mapping[str, np.ndarray]) -> None:
        """Take over nothing."""

    def at_output(self, out: Path) -> None:
        """Nothing goes beside the fields."""

    def finish(self, out: Path | None, probes: Mapping[str, Sequence[Sequence[float]]]) -> Results:
        """Nothing: the diagnostics are the results."""
        return Results()

    def picture(self) -> PlanePicture | None:
        """Temperature (or speed, where all is of one temperature) and flow on the mid-plane."""
        return diagnostics.midplane(self)

    def headline(self, found: Mapping[str, float]) -> list[str]:
        """The mean Nusselt number beside the published one, or the lid's Reynolds number."""
        return diagnostics.headline(self.flow, found)


def _triple(numbers: list[int]) -> Triple:
    return (numbers[0], numbers[1], numbers[2])


def _without_edge(cut: slice, direction: int) -> slice:
    """A slice with its first or last element left out."""
    return slice(1, cut.stop) if direction < 0 else slice(cut.start, -1)


__all__ = ["PHYSICS", "SOURCE", "CavitySolver", "kernel_constants"]
