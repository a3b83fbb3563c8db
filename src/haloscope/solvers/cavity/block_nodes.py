"""Nodes of a rank's block: their place in memory, a GPU's tiles of them, and what kernels take of both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from haloscope.device.declarations import Constants
from haloscope.device.interface import Array, Device, Kernel
from haloscope.device.program import Field
from haloscope.device.targets import Target
from haloscope.mesh.blocks import Block, Blocks, Layout, Side, Triple, arrange
from haloscope.solvers.cavity.case import THINNEST_BLOCK, CavityCase, Flow

NodeBox = tuple[Triple, Triple]
"""First node of a box and the one after its last, in the block's numbers."""

GHOSTS = 2
"""Layers beyond a cut that the stencil of the pressure reads."""

_WALL_GHOSTS = 1
_LONG_ROW = 64  # nodes that are updated, which tiles of GPUs take in any precision
_SHORT_ROW = 32  # with fewer a step takes up to 1.4 times as long on cores, and GPUs have no tiles
_LINE = 64  # bytes of a cache line
_GPU_BEFORE = {"double": 16, "float": 0}  # bytes


def partition(case: CavityCase, ranks: int) -> Blocks:
    """Blocks of a case for a number of ranks; walls need blocks at least 5 nodes thick."""
    return arrange(
        Flow(case.cavity).nodes, ranks, case.machine.decomposition, thinnest=THINNEST_BLOCK
    )


def choose_axes(blocks: Blocks, dimensions: int, device_kind: str) -> Triple:
    """Axes in the order in which memory has them: rows, rows of a plane, planes."""
    # Rows lie along x. Where blocks are cut along x, ghosts would be the ends of rows, values a row
    # apart, and rows shorter than need be; there another axis that is not cut changes places with
    # x: of those the one with most nodes, z where both have as many. It keeps its place where its
    # rows would be shorter than those along x and than 64 nodes between walls. In a box that is
    # thin along x z changes places with it, since planes may be few and not rows.
    #
    # On GPUs an axis that alone is cut goes across rows where it can: there each plane has some of
    # the ghosts that an update stores at the neighbours. Where two planes had all of them, a step
    # took 2 % longer.
    if dimensions == 2:
        return (0, 1, 2)
    cut = [axis for axis in range(3) if blocks.parts[axis] > 1]
    alone = cut[0] if device_kind != "cpu" and len(cut) == 1 else None
    rows = 1 if alone == 0 and blocks.nodes[1] - 2 >= _LONG_ROW else _rows_of(blocks)
    if rows == 0 and alone == 2:
        return (0, 2, 1)
    return {0: (0, 1, 2), 1: (1, 0, 2), 2: (2, 1, 0)}[rows]


def axes_of(case: CavityCase, blocks: Blocks, device_kind: str) -> Triple:
    """Axes in the order in which memory has them for a case."""
    # Rungs of the ladder have the rows that their authors had.
    if (case.machine.packing, case.machine.widths) != ("auto", "fields"):
        return (0, 1, 2)
    return choose_axes(blocks, case.cavity.dimensions, device_kind)


def _rows_of(blocks: Blocks) -> int:
    """The axis along which rows lie, whatever is to go across them."""
    nodes, parts = blocks.nodes, blocks.parts
    if parts[0] == 1 and nodes[0] - 2 >= _SHORT_ROW:
        return 0
    long_enough = min(_LONG_ROW, nodes[0] // parts[0])
    candidates = (1, 2) if parts[0] > 1 else (2,)
    others = [a for a in candidates if parts[a] == 1 and nodes[a] - 2 >= long_enough]
    return max(others, key=lambda axis: (nodes[axis], axis), default=0)


class BlockNodes:
    """The nodes of a rank's block."""

    def __init__(
        self,
        block: Block,
        dimensions: int,
        dtype: np.dtype,
        device_kind: str,
        axes: Triple = (0, 1, 2),
    ) -> None:
        self.block, self.dimensions, self.dtype = block, dimensions, dtype
        self.field_count = dimensions + 2  # How many there are: pressure, velocities, temperature
        # What kernels call the type of the values.
        self.real = "float" if dtype == np.float32 else "double"
        self.layout = self._plan_layout(device_kind, axes)  # Where values lie
        # Sides of the block that are walls of the box.
        self.walls = [side for side in block.walls if side.axis < dimensions]

    def _plan_layout(self, device_kind: str, axes: Triple) -> Layout:
        """Where the fields lie: (field, z, y, x) on cores, (z, y, field, x) on GPUs."""
        # That is where rows lie along x; elsewhere the axes have changed places. On cores each
        # field is a stream that the prefetchers follow; the fields start at different places of a
        # page. On GPUs a tile of a plane touches one or two pages instead of one a field, which is
        # worth 6 %; rows are an odd number of cache lines long so that their starts spread over a
        # page. The first node that is updated lies on a cache line; on GPUs, in double precision,
        # the wall and the ghost before it do: what a wall needs lies together, and rows of tiles
        # begin at whole sectors (4 %).
        shape = self.block.shape
        cut = {side.axis for side in self.block.neighbours}
        ghosts = [GHOSTS if axis in cut else _WALL_GHOSTS for axis in range(3)]
        if self.dimensions == 2:
            ghosts[2] = 0
        n, g = [shape[axis] for axis in axes], [ghosts[axis] for axis in axes]
        line = _LINE // self.dtype.itemsize
        pitch = row = -(-(n[0] + 2 * g[0]) // line) * line
        lead = -(g[0] + self._skipped(axes[0], -1)) % line
        if device_kind != "cpu":
            if pitch // line % 2 == 0:
                pitch += line
            lead = (lead + _GPU_BEFORE[self.real] // self.dtype.itemsize) % line
            row = pitch * self.field_count
        plane = row * (n[1] + 2 * g[1])
        apart = pitch if device_kind != "cpu" else plane * (n[2] + 2 * g[2]) + 9 * line
        distances = dict(zip(axes, (1, row, plane), strict=True))
        strides = (distances[0], distances[1], distances[2])
        first = lead + g[0] + g[1] * row + g[2] * plane
        return Layout(shape, strides, first, apart, (ghosts[0], ghosts[1], ghosts[2]), axes)

    def allocate(self, device: Device, *, shared: bool) -> Array:
        """Zeros for one state, with room behind for the shift of the first node.

        Other processes of this host can map it where it is shared.
        """
        planes = self.layout.axes[2]
        deep = self.layout.shape[planes] + 2 * self.layout.ghosts[planes]
        plane, apart = self.layout.strides[planes], self.layout.field_stride
        count = max(plane * deep, apart * self.field_count) + _LINE // self.dtype.itemsize
        return (device.shared_zeros if shared else device.zeros)((count,), self.dtype)

    def index(self, x: int, y: int, z: int) -> int:
        """Place of an owned node within a field, from its number in the block."""
        sx, sy, sz = self.layout.strides
        return self.layout.first + x * sx + y * sy + z * sz

    @property
    def distances(self) -> tuple[int, int]:
        """Values between neighbouring rows and between neighbouring planes."""
        _, row, plane = (self.layout.strides[axis] for axis in self.layout.axes)
        return row, plane

    def box(self, start: Triple, stop: Triple) -> Triple:
        """Nodes of a box along a row, rows of a plane, and planes."""
        a, b, c = self.layout.axes
        return (stop[a] - start[a], stop[b] - start[b], stop[c] - start[c])

    def loop(self, start: Triple, stop: Triple) -> dict[str, Any]:
        """Arguments of kernels that go through a box: its first node, counts, distances of rows, planes, fields."""
        nx, ny, nz = self.box(start, stop)
        sy, sz = self.distances
        first, fs = self.index(*start), self.layout.field_stride
        return {"first": first, "nx": nx, "ny": ny, "nz": nz, "sy": sy, "sz": sz, "fs": fs}

    def _skipped(self, axis: int, direction: int) -> int:
        """Owned nodes at a side that are not updated: one at a wall, none at a cut."""
        if axis >= self.dimensions:
            return 0
        return 0 if Side(axis, direction) in self.block.neighbours else 1

    def updated(self) -> NodeBox:
        """The nodes that a step updates: all but those on walls."""
        start = tuple(self._skipped(axis, -1) for axis in range(3))
        stop = tuple(n - self._skipped(axis, 1) for axis, n in enumerate(self.block.shape))
        return start, stop  # type: ignore[return-value]

    def coordinates(self, spacing: tuple[float, float, float]) -> dict[str, np.ndarray]:
        """Coordinates x, y, z of the owned nodes in m, each along its own axis of (z, y, x)."""
        axes = [
            np.arange(a, b) * h
            for a, b, h in zip(self.block.start, self.block.stop, spacing, strict=True)
        ]
        z, y, x = np.meshgrid(axes[2], axes[1], axes[0], indexing="ij", sparse=True)
        return {"x": x, "y": y, "z": z}

    def view(self, device: Device, state: Array, field: int) -> Array:
        """Owned values of a field of a state, shape (nz, ny, nx), without a copy."""
        layout = self.layout
        begin = layout.first + field * layout.field_stride
        nx, ny, nz = layout.shape
        strides = tuple(self.dtype.itemsize * stride for stride in reversed(layout.strides))
        return device.xp.lib.stride_tricks.as_strided(state[begin:], (nz, ny, nx), strides)


class Tile(NamedTuple):
    """Nodes of a plane that a block of threads computes."""

    # Nodes of a row, and rows.
    x: int
    y: int
    nodes: int  # Nodes of a thread, in a row

    @property
    def threads(self) -> Triple:
        """Threads of a block."""
        return (self.x // self.nodes, self.y, 1)

    def across(self, shape: Triple) -> tuple[int, int]:
        """Tiles of a box along its rows and across them."""
        return -(-shape[0] // self.x), -(-shape[1] // self.y)


TILES = {"double": Tile(64, 8, 1), "float": Tile(128, 8, 2)}
"""Tiles of most boxes, by the type of the values."""

LARGE_TILES = {"double": Tile(128, 8, 2), "float": Tile(256, 8, 4)}
"""Tiles of boxes with much work for each multiprocessor: they read less, but begin later."""

LARGE_FROM = 100
"""Planes of large tiles for a multiprocessor from which these are the faster ones."""

LEAST_FILLED = 0.8
"""Part of the width of large tiles that a box must fill."""

AHEAD = 2
"""Planes that are asked for before their use."""

DRIFT = 2
"""Planes that a block of threads may be ahead of the last one."""

PLAIN_BLOCK = (128, 4, 1)
"""Threads of a block of the plain kernel, which takes what tiles do not fit."""

_POLLS = 100
_LEAST_BLOCKS = 1
_PLANES_BEFORE = 4
_LONGEST_CHUNK = 64
_BLOCKS_WANTED = 4
_ALIGNED = 16  # bytes that the copy engine takes at once
_GATE = 8  # bytes of what tells that they have come
_PACE = 24  # bytes of what the first thread keeps


def _gpu_constants(real: str) -> dict[str, int | float | str]:
    """Constants of cavity.cpp that only GPUs know, for a type of the values."""
    return {
        "BLOCK_THREADS": PLAIN_BLOCK[0] * PLAIN_BLOCK[1],
        "LEAST_BLOCKS": _LEAST_BLOCKS,
        "AHEAD": AHEAD,
        "DRIFT": DRIFT,
        "MOST_POLLS": _POLLS,
        **tile_constants(TILES[real]),
    }


def tiles_for(target: Target, real: str, dimensions: int) -> list[Tile]:
    """Tiles that a GPU has the memory for, and a copy engine; none in two dimensions."""
    if not target.copy_engine or dimensions == 2:
        return []
    itemsize = np.dtype("f4" if real == "float" else "f8").itemsize
    tiles = (TILES[real], LARGE_TILES[real])
    return [tile for tile in tiles if fits_block(tile, itemsize, target.block_memory)]


def tile_constants(tile: Tile) -> dict[str, int | float | str]:
    """Compile-time constants of a block of threads."""
    return {"TILE_X": tile.x, "TILE_Y": tile.y, "NODES_A_THREAD": tile.nodes}


def fit(nodes: BlockNodes, start: Triple, nx: int) -> bool:
    """Whether the tiled kernel can take a box: rows that start at multiples of 16 bytes."""
    places = (nodes.index(*start), *nodes.distances, nodes.layout.field_stride)
    aligned = all(n * nodes.dtype.itemsize % _ALIGNED == 0 for n in places)
    return aligned and nx >= TILES[nodes.real].x // 2


def choose(shape: Triple, real: str, multiprocessors: int) -> Tile:
    """The tiles with which a box takes less time, as measured; see docs/archive/performance/cavity.md."""
    large = LARGE_TILES[real]
    across = large.across(shape)
    planes = across[0] * across[1] * shape[2] / multiprocessors
    filled = shape[0] >= LEAST_FILLED * across[0] * large.x
    return large if planes >= LARGE_FROM and filled else TILES[real]


class TileSchedule(NamedTuple):
    """How tiles of a box go through its planes; see `columns` in cavity_gpu.hpp."""

    tiles: int  # How many there are
    planes: int  # Planes of the box
    whole: int  # Tiles, the first ones, that go through all planes in one march
    chunk: int  # Most planes of a march of the others

    @property
    def shares(self) -> int:
        """Marches of a tile that is not one of the first."""
        return -(-self.planes // self.chunk)

    @property
    def columns(self) -> int:
        """Marches in all: what blocks of threads take one by one."""
        return self.whole + (self.tiles - self.whole) * self.shares

    def starts(self) -> list[int]:
        """First plane of each march of a tile that is not one of the first, and the one after the last.

        Equal shares, since blocks keep in step: where the last march had fewer planes than the others,
        these waited at each plane that it lacked, 18 us on an H100.
        """
        return [march * self.planes // self.shares for march in range(self.shares + 1)]

    def lines(self, blocks: int) -> int:
        """Counters that tell how many of so many blocks have reached each plane of their column."""
        rounds = -(-(self.columns - self.whole) // blocks)
        return self.whole // blocks * self.planes + rounds * self.chunk

    def of_tiles(self, first: int, stop: int) -> int:
        """Marches of some tiles."""
        whole = max(0, min(stop, self.whole) - first)
        return whole + (stop - first - whole) * self.shares

    def at_low_end(self, layers: int) -> int:
        """Marches that have one of the first planes."""
        tiles = sum(start < layers for start in self.starts()[:-1])
        return self.whole + (self.tiles - self.whole) * tiles

    def at_high_end(self, layers: int) -> int:
        """Marches that have one of the last planes."""
        tiles = sum(stop > self.planes - layers for stop in self.starts()[1:])
        return self.whole + (self.tiles - self.whole) * tiles


def plan_marches(shape: Triple, tile: Tile, multiprocessors: int) -> TileSchedule:
    """Marches with which the tiled kernel takes least time."""
    # A multiprocessor takes one column after the other. It reads a few planes before its first
    # result, hence the planes that are added to each. Where a few tiles more than multiprocessors
    # would make some of these go twice, the tiles beyond are cut into more marches than the first
    # ones: 4 to 8 % of a step from 360^3 to 384^3 nodes on an H100.
    nz = shape[2]
    across = tile.across(shape)
    tiles = across[0] * across[1]

    def planes(whole: int, marches: int) -> int:
        rounds = -(-(tiles - whole) * marches // multiprocessors)
        passes = whole // multiprocessors * (nz + _PLANES_BEFORE)
        return passes + rounds * (-(-nz // marches) + _PLANES_BEFORE)

    wholes = range(0, tiles, multiprocessors)
    whole, marches = min(
        ((whole, marches) for whole in wholes for marches in range(1, nz + 1)),
        key=lambda plan: (planes(*plan), plan),
    )
    return TileSchedule(tiles, nz, whole, -(-nz // marches))


def plain_chunk(shape: Triple, multiprocessors: int) -> int:
    """Planes that a block of the plain kernel marches through: enough blocks to fill the GPU."""
    nx, ny, nz = shape
    tiles = -(-nx // PLAIN_BLOCK[0]) * -(-ny // PLAIN_BLOCK[1])
    wanted = _BLOCKS_WANTED * multiprocessors
    return max(1, min(_LONGEST_CHUNK, nz * tiles // wanted))


def fits_block(tile: Tile, itemsize: int, block_memory: int) -> bool:
    """Whether a GPU has the shared memory for a block of the tiled kernel, gates and pace included."""
    return shared_bytes(tile, itemsize) + _GATE * AHEAD + _PACE <= block_memory


def shared_bytes(tile: Tile, itemsize: int) -> int:
    """Shared memory of a block of the tiled kernel: see `tiles` in cavity_gpu.hpp."""
    width = tile.x + 2 * _ALIGNED // itemsize
    values = (3 + AHEAD) * (tile.y + 4) + 4 * (2 + AHEAD) * (tile.y + 2)
    return values * width * itemsize


SOURCE = Path(__file__).with_name("cavity.cpp")

PHYSICS = (
    *("ax", "ay", "az", "nx", "ny", "nz", "n0", "tx", "ty", "tz", "t0", "dx", "dy", "dz"),
    *("gx", "gy", "gz", "bx", "by", "bz", "tref", "floor2", "rho", "cfl", "diffusive", "cell"),
)
"""Members of cavity.cpp's struct Physics."""

PARTS = ("core", "rim", "core walls", "rim walls", "ghosts")
"""Parts of a state: nodes near a cut, whose values neighbours wait for, are the rim; walls at the ends of
their rows, which a GPU's update may store beside them, are apart from those of the core."""

LEAST_ROOT = {"double": 2.0**-970, "single": 2.0**-101}
"""Least number that root_of_normal of the kernels' dialect takes, by precision."""


def kernel_constants(
    flow: Flow, device_kind: str, axes: Triple = (0, 1, 2), cut: Collection[int] = ()
) -> dict[str, int | float | str]:
    """Compile-time constants of cavity.cpp for a case."""
    table = flow.table
    active = [g != 0 and table.expansion > 0 for g in table.gravity]
    real = "float" if table.precision == "single" else "double"
    constants: dict[str, int | float | str] = {
        "real": real,
        "DIMENSIONS": table.dimensions,
        "ROWS_ALONG": axes[0],
        "PLANES_ALONG": axes[2],
        "LOCAL_STEP": int(table.time_step == "local"),
        "RESCALE": int(table.rescale_pressure == "step"),
        "GRAVITY_X": int(active[0]),
        "GRAVITY_Y": int(active[1]),
        "GRAVITY_Z": int(active[2]),
    }
    if device_kind != "cpu":
        constants |= _gpu_constants(real)
        # Code for cuts takes registers, which cases without any do without.
        constants |= {"CUT_Y": int(axes[1] in cut), "CUT_Z": int(axes[2] in cut)}
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
    q["tref"] = flow.reference_temperature
    # Under roots are four times the square of the artificial speed of sound, and that in 1 / (2 h).
    coarse = max(1.0, 2 * min(h[i] for i in axes)) ** 2
    least = LEAST_ROOT[table.precision] / 4 * coarse
    q["floor2"] = max(flow.kappa * flow.reference_velocity**2, least)
    q["rho"] = table.density
    q["cfl"] = table.cfl
    spread = sum(1 / h[i] ** 2 for i in axes)
    q["diffusive"] = 1 / (2 * max(nu, alpha) * spread)
    q["cell"] = 2 * min(nu, alpha) / max(h[i] for i in axes) ** 2
    return q


@dataclass(frozen=True)
class Operands:
    """Compile-time constants and arguments of the kernels."""

    # Where values lie.
    device: Device
    nodes: BlockNodes
    constants: Constants  # Compile-time constants of cavity.cpp
    states: tuple[Array, Array]  # Two arrays of all fields; a step reads one and writes the other
    fields: tuple[Field, Field]  # The same with their parts; see PARTS
    physics: dict[str, float]  # Members of struct Physics
    step_size: Array  # The global time step in s, one value on the device
    # Pressure at the centre in Pa, which a step may subtract; one value on the device.
    reference: Array

    def kernel(self, name: str, others: Constants | None = None) -> Kernel:
        """A kernel of cavity.cpp, with other values of some constants where these are given."""
        return self.device.kernel(SOURCE, name, {**self.constants, **(others or {})})


def allocate(flow: Flow, device: Device, nodes: BlockNodes, *, shared: bool) -> Operands:
    """Operands of a case; other processes of this host can map shared states."""
    dtype = nodes.dtype
    states = nodes.allocate(device, shared=shared), nodes.allocate(device, shared=shared)
    old, fresh = (Field(f"state {n}", state, place=PARTS) for n, state in enumerate(states))
    cut = {side.axis for side in nodes.block.neighbours}
    return Operands(
        device=device,
        nodes=nodes,
        constants=kernel_constants(flow, device.kind, nodes.layout.axes, cut),
        states=states,
        fields=(old, fresh),
        physics=physics_values(flow),
        step_size=device.zeros((1,), dtype),
        reference=device.zeros((1,), dtype),
    )
