"""The kernels that take a rank's points through each kind of step, with what they work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.program import Field
from haloscope.solvers.blood.fluid.boundaries import LatticePart
from haloscope.solvers.blood.fluid.gpu_layout import LINE, SKIPPED, KernelVariant, neighbours
from haloscope.solvers.blood.fluid.lattice import rows_and_points
from haloscope.solvers.blood.fluid.populations import Turn, pushed

_GPU_BLOCK = (256,)
# As OPENINGS_BOUNDS of fluid_threads.hpp: their kernel holds whole points in registers.
_OPENINGS_BLOCK = (128,)


@dataclass(frozen=True)
class Orders:
    """In which order points of the bulk are taken."""

    # What kernels read, arguments by name: of steps that do not need neighbours and of those that do,
    # each for the edge and for the interior.
    tables: tuple[list[dict[str, Any]], list[dict[str, Any]]]
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
            here: list[dict[str, Any]] = []
            for rows in chosen:
                order = rows_and_points(rows, sources, stride, part.rows)
                here.append(
                    {
                        "blocks": give(order.blocks),
                        "count": len(order.blocks) - 1,
                        "rows": give(order.rows),
                        "row_places": give(order.row_places),
                        "points": give(order.points),
                        "point_sources": give(order.point_sources),
                        "streamed": int(sources is not None),
                    }
                )
            taken.append(here)
        read = [one for order in taken[1] for one in order.values() if np.ndim(one)]
        listed = sum(table.nbytes for table in read) / max(1, part.bulk)
        return Orders((taken[0], taken[1]), listed, way)
    edge = _whole_lines(edge, itemsize)
    chosen = np.flatnonzero(edge), np.flatnonzero(~edge)
    orders = neighbours(part.sources[:, : part.bulk], way, part.rows)
    way = way.laid_out(compact=orders.mask_bits > 0)
    # Points that all go together need no list.
    points: list[dict[str, Any]] = [
        {
            "points": None if len(rows) == part.bulk else give(rows.astype(np.int32)),
            "count": len(rows),
        }
        for rows in chosen
    ]
    where = {
        "kinds": give(orders.kinds),
        "distances": give(orders.distances),
        "pitch": orders.pitch,
        "mask_bits": orders.mask_bits,
    }
    with_neighbours = [entry | where for entry in points]
    if way.kinds and edge.any() and len(chosen[1]):
        # Nor do those of the interior where each has a kind that can say that it is not one of them.
        kept = np.where(edge, SKIPPED, orders.kinds).astype(np.int32)
        with_neighbours[1] |= {"points": None, "count": part.bulk, "kinds": give(kept)}
        chosen = chosen[0], np.where(edge, -1, np.arange(part.bulk))
    return Orders((points, with_neighbours), orders.bytes_a_point, way, chosen)


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
class Calls:
    """Kernels of one kind of step and their arguments; none where there are no such points."""

    # Points of the bulk beside ghosts (with what is taken with them), and the others.
    edge: list[dict[str, Any]] = field(default_factory=list)
    interior: list[dict[str, Any]] = field(default_factory=list)
    # Points in openings.
    openings: list[dict[str, Any]] = field(default_factory=list)
    # What walls that move or do not lie halfway send back.
    walls: list[dict[str, Any]] = field(default_factory=list)


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
    # Arguments by name, see fluid.cpp: of all kernels for points, and those of `openings`.
    common: dict[str, Any]
    velocity: Field
    opening_tables: dict[str, Array]
    # Links to walls after steps that leave populations in own slots, and after those that leave
    # them with neighbours; empty where there are none.
    corrections: tuple[dict[str, Any], ...]
    # What steps between two buffers read of links to walls, for the edge and for the interior;
    # empty where there are none.
    wall_link_tables: tuple[dict[str, Any], ...]
    alone: bool  # Whether nothing goes to other ranks

    def _arguments(self, turn: Turn, fields: tuple[Field, ...], part: str) -> dict[str, Any]:
        """Arguments of kernels that take some of the points through a step between two arrays."""
        slots = pushed(part) if turn.pushed else part
        fresh = fields[turn.destination][slots]
        old = fresh if turn.in_place else fields[turn.source].array
        return self.common | {"old": old, "fresh": fresh, "velocity": self.velocity[part]}

    def calls(self, turn: Turn, fields: tuple[Field, ...], orders: Orders) -> Calls:
        """Kernels of one kind of step, with its buffers."""
        more = {} if self.device.kind == "cpu" else {"backward": int(turn.backward)}
        calls = Calls()
        kernel = self._kernel(_kernel_of(turn, self.device.kind != "cpu"))
        within = self.wall_link_tables if turn.streamed and not turn.pushed else ({}, {})
        tables = orders.tables[int(turn.streamed or turn.pushed)]
        groups = (("edge", calls.edge), ("interior", calls.interior))
        for (part, taken), order, walls in zip(groups, tables, within, strict=True):
            if order["count"]:
                arguments = self._arguments(turn, fields, part) | more
                if turn.in_place:
                    arguments["f"] = arguments.pop("fresh")
                    del arguments["old"]
                taken.append(
                    {
                        "kernel": kernel,
                        **arguments,
                        **order,
                        **walls,
                        "extent": (order["count"],),
                        "block": (self.way.threads,),
                        "early": self.way.early and self.alone,
                    }
                )
        if self.in_openings:
            calls.openings.append(
                {
                    "kernel": self._kernel("openings"),
                    **self._arguments(turn, fields, "openings"),
                    "first": self.bulk,
                    "count": self.in_openings,
                    **self.opening_tables,
                    "streamed": int(turn.streamed),
                    "pushed": int(turn.pushed),
                    "extent": (self.in_openings,),
                    "block": _OPENINGS_BLOCK,
                }
            )
        if self.corrections:
            # What steps leave with neighbours lies elsewhere than what they leave in own slots.
            links = self.corrections[int(turn.pushed)]
            calls.walls.append(
                {
                    "kernel": self._kernel("correct_walls"),
                    "f": fields[turn.destination][turn.parts],
                    **links,
                    "extent": (links["count"],),
                    "block": _GPU_BLOCK,
                }
            )
        return calls

    def _kernel(self, name: str) -> Any:
        return self.device.kernel(self.file, name, self.constants)


def _kernel_of(turn: Turn, on_gpu: bool) -> str:
    """Name of the kernel that takes points which are in no opening through a step."""
    if not on_gpu:
        return "advance"
    if not turn.streamed:
        return "advance_pushing" if turn.pushed else "advance_here"
    return "advance_along" if turn.in_place else "advance_across"
