"""The nodes of a rank's block: where their values lie in memory, and which of them a step updates."""

from __future__ import annotations

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.domain.blocks import Block, Side, Triple
from haloscope.exchange.halo import Layout

NodeBox = tuple[Triple, Triple]
"""First node of a box and the one after its last, in the block's numbers."""

GHOSTS = 2
"""Layers beyond a cut that the stencil of the pressure reads."""

_WALL_GHOSTS = 1
_LINE = 64  # bytes of a cache line
_GPU_BEFORE = {"double": 16, "float": 0}  # bytes


class BlockNodes:
    """The nodes of a rank's block.

    Parameters
    ----------
    block
        What the rank owns of the grid.
    dimensions
        2 or 3.
    dtype
        Type of the values.
    device_kind
        ``cpu`` or ``cuda``.

    Attributes
    ----------
    field_count
        How many there are: pressure, velocities, temperature.
    real
        What kernels call the type of the values.
    layout
        Where values lie.
    walls
        Sides of the block that are walls of the box.
    """

    def __init__(self, block: Block, dimensions: int, dtype: np.dtype, device_kind: str) -> None:
        self.block, self.dimensions, self.dtype = block, dimensions, dtype
        self.field_count = dimensions + 2
        self.real = "float" if dtype == np.float32 else "double"
        self.layout = self._plan_layout(device_kind)
        self.walls = [side for side in block.walls if side.axis < dimensions]

    def _plan_layout(self, device_kind: str) -> Layout:
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
        gx, gy, gz = (GHOSTS if axis in cut else _WALL_GHOSTS for axis in range(3))
        if self.dimensions == 2:
            gz = 0
        line = _LINE // self.dtype.itemsize
        pitch = -(-(nx + 2 * gx) // line) * line
        lead = -(gx + self._skipped(0, -1)) % line
        if device_kind == "cpu":
            plane = pitch * (ny + 2 * gy)
            first = lead + gx + gy * pitch + gz * plane
            apart = plane * (nz + 2 * gz) + 9 * line
            return Layout((nx, ny, nz), (1, pitch, plane), first, apart, (gx, gy, gz))
        if pitch // line % 2 == 0:
            pitch += line
        lead = (lead + _GPU_BEFORE[self.real] // self.dtype.itemsize) % line
        row = pitch * self.field_count
        plane = row * (ny + 2 * gy)
        first = lead + gx + gy * row + gz * plane
        return Layout((nx, ny, nz), (1, row, plane), first, pitch, (gx, gy, gz))

    def allocate(self, device: Device, *, shared: bool) -> Array:
        """Zeros for one state, with room behind for the shift of the first node.

        Other processes of this host can map it where it is shared.
        """
        deep = self.layout.shape[2] + 2 * self.layout.ghosts[2]
        plane, apart = self.layout.strides[2], self.layout.field_stride
        count = max(plane * deep, apart * self.field_count) + _LINE // self.dtype.itemsize
        return (device.shared_zeros if shared else device.zeros)((count,), self.dtype)

    def index(self, x: int, y: int, z: int) -> int:
        """Place of an owned node within a field, from its number in the block."""
        _, sy, sz = self.layout.strides
        return self.layout.first + x + y * sy + z * sz

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


def box_shape(start: Triple, stop: Triple) -> Triple:
    """Nodes of a box along x, y, z."""
    return (stop[0] - start[0], stop[1] - start[1], stop[2] - start[2])
