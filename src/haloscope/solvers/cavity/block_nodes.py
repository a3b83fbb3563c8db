"""The nodes of a rank's block: where their values lie in memory, and which of them a step updates."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.mesh.grid.blocks import Block, Blocks, Side, Triple
from haloscope.mesh.grid.halo import Layout

NodeBox = tuple[Triple, Triple]
"""First node of a box and the one after its last, in the block's numbers."""

GHOSTS = 2
"""Layers beyond a cut that the stencil of the pressure reads."""

_WALL_GHOSTS = 1
_LONG_ROW = 64  # nodes that are updated, which tiles of GPUs take in any precision
_SHORT_ROW = 32  # with fewer a step takes up to 1.4 times as long on cores, and GPUs have no tiles
_LINE = 64  # bytes of a cache line
_GPU_BEFORE = {"double": 16, "float": 0}  # bytes


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
