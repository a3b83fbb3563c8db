"""The walls of the box: prescribed values, values that inner nodes imply on them, and their picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from haloscope.io.figures.geometry_views import Geometry, Part, box_side
from haloscope.mesh.blocks import SIDES, Side
from haloscope.solvers.cavity.block_nodes import Operands
from haloscope.solvers.cavity.case import Flow

_PARTS = ("core walls", "rim walls")
_WARP = 32


class Walls:
    """The walls that a rank's block has a part of."""

    def __init__(self, flow: Flow, operands: Operands) -> None:
        self._flow, self._nodes = flow, operands.nodes
        # The kernel that gives walls of a state the values that its inner nodes imply, and its calls.
        self.kernel, self.calls = operands.kernel("walls"), self._calls(operands)
        self.launches = [self.kernel.bind(**call) for call in self.calls]

    # On the device

    def _calls(self, operands: Operands) -> list[dict[str, Any]]:
        device, sides = operands.device, self._side_table()
        # On GPUs four lanes work on a node of a wall at ends of rows, and walls begin with whole warps.
        lanes = np.where(np.abs(sides[:, 1]) == 1, 4, 1)
        warps = -(-lanes * sides[:, 4] * sides[:, 5] // _WARP)
        begins = _WARP * np.concatenate([[0], np.cumsum(warps)])
        threads = int(begins[-1])
        sides = np.column_stack([sides, begins[:-1]])
        table = device.from_host(sides)
        return [
            {
                "extent": (max(1, threads),),
                "state": field["core", "rim", *_PARTS].but_writes(*_PARTS),
                "sides": table,
                "count": len(sides),
                "fs": self._nodes.layout.field_stride,
                "threads": threads,
            }
            for field in operands.fields
        ]

    def _side_table(self) -> np.ndarray:
        """Rows for the walls kernel: nodes of each wall without its edges."""
        nodes = self._nodes
        start, stop = nodes.updated()
        rows = []
        for side in nodes.walls:
            corner = list(start)
            corner[side.axis] = 0 if side.direction < 0 else nodes.block.shape[side.axis] - 1
            a, b = (axis for axis in nodes.layout.axes if axis != side.axis)
            strides = nodes.layout.strides
            rows.append(
                (
                    nodes.index(*corner),
                    -side.direction * strides[side.axis],
                    strides[a],
                    strides[b],
                    stop[a] - start[a],
                    stop[b] - start[b],
                    int(self._flow.wall_temperature(side.name) is None),
                )
            )
        return np.array(rows, np.int64).reshape(len(rows), 7)

    # On the host, shape (nz, ny, nx)

    def prescribe(self, name: str, values: np.ndarray, where: dict[str, np.ndarray]) -> None:
        """Put what walls prescribe for a field on their nodes; `where` holds the coordinates."""
        for side in self._nodes.walls:
            if name in "uvw":
                self._prescribe_velocity(name, side, values)
            elif name == "T":
                self._prescribe_temperature(side, values, where)

    def _prescribe_velocity(self, name: str, side: Side, values: np.ndarray) -> None:
        cut = _on_side(side)
        wall = getattr(self._flow.table.walls, side.name)
        # A moving wall does not drag its edges: they belong to the walls that stand.
        inner = [slice(None)] * 3
        for other in self._nodes.walls:
            if other.axis != side.axis:
                edges = inner[2 - other.axis]
                inner[2 - other.axis] = (
                    slice(1, edges.stop) if other.direction < 0 else slice(edges.start, -1)
                )
        values[cut] = 0.0
        inner[2 - side.axis] = cut[2 - side.axis]
        values[tuple(inner)] = wall.velocity["uvw".index(name)]

    def _prescribe_temperature(
        self, side: Side, values: np.ndarray, where: dict[str, np.ndarray]
    ) -> None:
        cut = _on_side(side)
        temperature = self._flow.wall_temperature(side.name)
        if temperature is not None:
            here = {
                axis: array if array.shape[2 - i] == 1 or i != side.axis else array[cut]
                for i, (axis, array) in enumerate(where.items())
            }
            key = f"cavity.walls.{side.name}.temperature"
            values[cut] = temperature.evaluate_finite(key, **here)

    def fill_edges(self, name: str, values: np.ndarray) -> None:
        """Extrapolate to the nodes of walls, edges included, which the kernel leaves out."""
        if name not in ("p", "T"):
            return
        for side in self._nodes.walls:
            if name == "p" or self._flow.wall_temperature(side.name) is None:
                self._extrapolate(name, side, values)

    def _extrapolate(self, name: str, side: Side, values: np.ndarray) -> None:
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
        for other in self._nodes.walls:
            if other.axis != side.axis and self._flow.wall_temperature(other.name) is not None:
                cut: list[Any] = [slice(None)] * 2
                cut[remaining.index(other.axis)] = 0 if other.direction < 0 else -1
                keep[tuple(cut)] = True
        return keep


def _on_side(side: Side) -> tuple[slice, slice, slice]:
    """Slices (z, y, x) of the owned nodes on a side."""
    cut = [slice(None)] * 3
    cut[2 - side.axis] = slice(0, 1) if side.direction < 0 else slice(-1, None)
    return (cut[0], cut[1], cut[2])


def walls_geometry(flow: Flow, conditions: Mapping[str, str], *, is_root: bool) -> Geometry:
    """The walls with their conditions; lines in two dimensions. Rank 0 alone has them."""
    upper = np.array(flow.size)
    parts = []
    for side in SIDES:
        if side.name not in conditions:
            continue
        if flow.table.dimensions == 2:
            ends = np.tile(upper * (side.direction > 0), (2, 1))
            ends[:, 1 - side.axis] = 0.0, upper[1 - side.axis]
            corners = ends[None]
        else:
            corners = box_side(np.zeros(3), upper, side.axis, side.direction)
        parts.append(Part(side.name, conditions[side.name], corners if is_root else corners[:0]))
    return Geometry(tuple(parts))
