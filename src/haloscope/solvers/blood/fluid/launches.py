"""The kernels that take a rank's points through each kind of step, bound to what they work on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, ByValue, Device, Launch
from haloscope.solvers.blood.fluid.boundaries import LatticePart
from haloscope.solvers.blood.fluid.gpu_layout import LINE, SKIPPED, KernelVariant, neighbours
from haloscope.solvers.blood.fluid.lattice import rows_and_points
from haloscope.solvers.blood.fluid.populations import Turn

_GPU_BLOCK = (256,)
# As OPENINGS_BOUNDS of fluid_threads.hpp: their kernel holds whole points in registers.
_OPENINGS_BLOCK = (128,)


@dataclass(frozen=True)
class Orders:
    """In which order points of the bulk are taken."""

    # What kernels read, of steps that do and that do not need neighbours, each for the edge and for
    # the interior.
    tables: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]
    # Bytes that a step that needs neighbours reads for a point, on average, to know where they lie.
    listed: float
    # How a GPU reads where neighbours lie: compact kinds only where these are less to read.
    way: KernelVariant
    # Of steps that need neighbours, for the edge and for the interior, the points in their order:
    # (points,) indices, -1 where a point is left out. On GPUs alone.
    launched: tuple[NDArray[np.int64], ...] = ()


def orders(
    device: Device,
    part: LatticePart,
    edge: NDArray[np.bool_],
    way: KernelVariant,
    itemsize: int,
    stride: int,
) -> Orders:
    """Lay out the order in which points are taken.

    `itemsize`: bytes of a stored population.
    """
    give = device.from_host
    if device.kind == "cpu":
        chosen, taken = (np.flatnonzero(edge), np.flatnonzero(~edge)), []
        for sources in (None, part.sources):
            here: list[tuple[Any, ...]] = []
            for rows in chosen:
                order = rows_and_points(rows, sources, stride, part.rows)
                tables = (order.rows, order.row_places, order.points, order.point_sources)
                lists = tuple(give(table) for table in tables)
                streamed = int(sources is not None)
                here.append((give(order.blocks), len(order.blocks) - 1, *lists, streamed))
            taken.append(here)
        read = [one for order in taken[1] for one in order if np.ndim(one)]
        listed = sum(table.nbytes for table in read) / max(1, part.bulk)
        return Orders((taken[0], taken[1]), listed, way)
    edge = _whole_lines(edge, itemsize)
    chosen = np.flatnonzero(edge), np.flatnonzero(~edge)
    orders = neighbours(part.sources[:, : part.bulk], way, part.rows)
    if way.compact:
        way = replace(way, kinds=True, compact=orders.mask_bits > 0)
    where = (give(orders.distances), orders.pitch, orders.mask_bits)
    # Points that all go together need no list.
    named = [0 if len(rows) == part.bulk else give(rows.astype(np.int32)) for rows in chosen]
    points: list[tuple[Any, ...]] = [
        (one, len(rows)) for one, rows in zip(named, chosen, strict=True)
    ]
    kinds = give(orders.kinds)
    with_kinds = [(*entry, kinds) for entry in points]
    if way.kinds and edge.any() and len(chosen[1]):
        # Nor do those of the interior where each has a kind that can say that it is not one of them.
        kept = np.where(edge, SKIPPED, orders.kinds).astype(np.int32)
        with_kinds[1] = (0, part.bulk, give(kept))
        chosen = chosen[0], np.where(edge, -1, np.arange(part.bulk))
    of_neighbours = [(*entry, *where) for entry in with_kinds]
    return Orders((points, of_neighbours), orders.bytes_a_point, way, chosen)


def _whole_lines(edge: NDArray[np.bool_], itemsize: int) -> NDArray[np.bool_]:
    """Let all points whose values share a line of memory with one of the edge go with it.

    Where the lattice is cut across its rows, single points of each would be read and written with
    most of their lines in vain, and those of the rest again.
    """
    line_rows = LINE // itemsize
    lines = -(-len(edge) // line_rows)
    padded = np.zeros(lines * line_rows, bool)
    padded[: len(edge)] = edge
    whole = np.repeat(padded.reshape(lines, line_rows).any(axis=1), line_rows)
    return whole[: len(edge)]


@dataclass(frozen=True)
class Launches:
    """Launches of one kind of step; none where there are no such points."""

    # Points of the bulk beside ghosts (with what is taken with them), and the others.
    edge: list[Launch] = field(default_factory=list)
    interior: list[Launch] = field(default_factory=list)
    # Points in openings, on the device's side stream.
    openings: list[Launch] = field(default_factory=list)
    # What walls that move or do not lie halfway send back.
    walls: list[Launch] = field(default_factory=list)


@dataclass(frozen=True)
class Binder:
    """Common arguments of the launches of all kinds of steps."""

    # Kernels and how they are launched.
    device: Device
    file: Any
    constants: dict[str, int | float | str]
    way: KernelVariant
    # Own points that lie in no opening, and that do.
    bulk: int
    in_openings: int
    # Arguments of the kernels for points; see fluid.cpp.
    stride: int
    physics: ByValue
    body_force: Array
    cells: tuple[Array, ...]
    # Sources and other tables of points in openings; empty where there are none.
    opening_tables: tuple[Array, ...]
    # Links to walls after steps that leave populations in own slots, and after those that leave
    # them with neighbours; empty where there are none.
    corrections: tuple[tuple[Any, ...], ...]
    # What steps between two buffers read of links to walls, for the edge and for the interior;
    # empty where there are none.
    wall_link_tables: tuple[tuple[Any, ...], ...]
    aside: bool  # Whether the edge is taken on the device's side stream
    alone: bool  # Whether nothing goes to other ranks

    def bind(self, turn: Turn, buffers: tuple[Array, ...], orders: Orders) -> Launches:
        """Bind one kind of step to its buffers."""
        source, destination = buffers[turn.source], buffers[turn.destination]
        f = (source,) if turn.in_place else (source, destination)
        common = (self.stride, self.physics, self.body_force)
        bound = Launches()
        kernel = self._kernel(_kernel_of(turn, self.device.kind != "cpu"))
        last: tuple[Any, ...] = () if self.device.kind == "cpu" else (int(turn.backward),)
        within = self.wall_link_tables if turn.streamed and not turn.pushed else ((), ())
        tables = orders.tables[int(turn.streamed or turn.pushed)]
        streams = (self.device.side if self.aside else None, None)
        rows = zip((bound.edge, bound.interior), tables, streams, within, strict=True)
        for launches, order, stream, walls in rows:
            if order[1]:
                launches.append(
                    kernel.bind(
                        *(*f, *common, *order, *self.cells, *last, *walls),
                        extent=(int(order[1]),),
                        block=(self.way.threads,),
                        stream=stream,
                        early=self.way.early and self.alone,
                    )
                )
        if self.in_openings:
            bound.openings.append(
                self._kernel("openings").bind(
                    *(source, destination, *common, self.bulk, self.in_openings),
                    *(*self.opening_tables, int(turn.streamed), int(turn.pushed), *self.cells),
                    extent=(self.in_openings,),
                    block=_OPENINGS_BLOCK,
                    stream=self.device.side,
                )
            )
        if self.corrections:
            # What steps leave with neighbours lies elsewhere than what they leave in own slots.
            links = self.corrections[int(turn.pushed)]
            bound.walls.append(
                self._kernel("correct_walls").bind(
                    destination, *links, extent=(links[-1],), block=_GPU_BLOCK
                )
            )
        return bound

    def _kernel(self, name: str) -> Any:
        return self.device.kernel(self.file, name, self.constants)


def _kernel_of(turn: Turn, on_gpu: bool) -> str:
    """Name of the kernel that takes points which are in no opening through a step."""
    if not on_gpu:
        return "advance"
    if not turn.streamed:
        return "advance_pushing" if turn.pushed else "advance_here"
    return "advance_along" if turn.in_place else "advance_across"
