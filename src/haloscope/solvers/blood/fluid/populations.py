"""Populations of a rank's points: buffers, slots, ways of streaming, and the kernels that take them through each kind of step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.program import Field
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.solvers.blood.fluid.gpu_layout import (
    LINE,
    SKIPPED,
    KernelVariant,
    faster_in_place,
    fastest_way,
    neighbours,
    room_for_two,
)
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE, rows_and_points

HALF_SCALE = 2.0**15
"""Factor with which populations are kept in half precision (Lehmann, Krause, Amati, Sega, Harting and
Gekle, Phys. Rev. E 106 (2022) 015308, their FP16S). A power of two costs no digits. What is kept is
f_i - w_i, which stays far below 1 in sound flow: numbers up to 1.999 in size fit below the largest half,
65504, and all 11 digits are there down to 2^-29."""

# Slots start at different lines of a 4 KiB page, 19 of them spread over it; lines of GPUs are longer,
# and what a warp writes should not begin in the middle of one.
_PAGE = 4096
_LINES, _SHIFTS = {"cpu": 64, "cuda": 128}, {"cpu": 192, "cuda": 384}


@dataclass(frozen=True)
class Turn:
    """Use of the buffers in one step."""

    streamed: bool  # Whether it fetches what has arrived from the slots of neighbours: an odd step
    # Whether it leaves what goes out where it arrives, in the slots of neighbours: an odd step in
    # place, and one that pushes.
    pushed: bool
    # Buffers that it reads and writes.
    source: int
    destination: int
    following: int  # Number of the next step's turn
    # Whether a GPU takes the last points first: those that the step before has left last are still
    # in its cache.
    backward: bool = False

    @property
    def in_place(self) -> bool:
        """Whether what leaves takes the place of what has arrived."""
        return self.source == self.destination

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the populations that it writes, as :data:`PARTS`."""
        return tuple(map(pushed, PARTS)) if self.pushed else PARTS


PARTS = ("edge", "interior", "openings", "ghosts")
"""Points beside ghosts, other points, points in openings, and points of other ranks."""


def pushed(part: str) -> str:
    """Name of a part after steps that leave populations in slots of neighbours: slots by who writes them."""
    return f"pushed {part}"


def turns(buffers: int, *, pushing: bool = False) -> tuple[Turn, ...]:
    """Steps that are unlike each other; the first of them follows a state that was set.

    In one buffer even and odd steps take turns. With two buffers each step but the first reads as an odd
    step does and writes as an even one; or, pushing, each reads as an even step and writes as an odd one.
    """
    first = Turn(streamed=False, pushed=False, source=0, destination=0, following=1)
    if buffers == 1:
        second = Turn(
            streamed=True, pushed=True, source=0, destination=0, following=0, backward=True
        )
        return first, second
    if pushing:
        return (
            Turn(streamed=False, pushed=True, source=0, destination=1, following=1),
            Turn(streamed=False, pushed=True, source=1, destination=0, following=0),
        )
    return (
        first,
        Turn(streamed=True, pushed=False, source=0, destination=1, following=2, backward=True),
        Turn(streamed=True, pushed=False, source=1, destination=0, following=1),
    )


class Populations:
    """Populations of own points and ghosts on the device, less their weights.

    `sources`: (18, owned); see LatticePart.
    """

    def __init__(
        self,
        device: Device,
        sources: NDArray[np.int32],
        count: int,
        *,
        computed: np.dtype[Any],
        stored: np.dtype[Any],
        buffers: int = 1,
        pushing: bool = False,
    ) -> None:
        self._device, self._sources, self._computed = device, sources, computed
        self._owned = sources.shape[1]
        self._scale = HALF_SCALE if stored == np.float16 else 1.0
        # Slot i of point p is at ``i * stride + p`` of a buffer.
        self.stride = stride_of(count, stored.itemsize, device.kind)
        size = DIRECTIONS * self.stride
        whole = device.zeros((buffers * size,), stored)
        self.buffers = tuple(whole[n * size : (n + 1) * size] for n in range(buffers))
        self.fields = tuple(
            Field(f"populations {n}", buffer, own=PARTS, pushed=map(pushed, PARTS))
            for n, buffer in enumerate(self.buffers)
        )
        self.turns = turns(buffers, pushing=pushing)  # See :func:`turns`
        self.phase = 0  # Number of the next step's turn
        self.stepped = False  # Whether a step led to this state, which else was set

    @property
    def turn(self) -> Turn:
        """Use of the buffers in the next step."""
        return self.turns[self.phase]

    @property
    def source(self) -> Array:
        """The buffer in which the present state lies."""
        return self.buffers[self.turn.source]

    @property
    def destination(self) -> Array:
        """The buffer that the next step writes."""
        return self.buffers[self.turn.destination]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(int(buffer.nbytes) for buffer in self.buffers)

    def go_on(self) -> None:
        """Take note that a step has been done."""
        self.phase = self.turn.following
        self.stepped = True

    def numbers(self, stored: Array) -> Array:
        """Stored populations, in the type of the computation."""
        if self._scale == 1.0:
            return stored
        return stored.astype(self._computed) * self._computed.type(1 / self._scale)

    def set(self, values: Iterable[NDArray[Any]]) -> None:
        """Start from values (19, owned) that have arrived, taken one row after the other."""
        self.phase, self.stepped = 0, False
        slots = self.source.reshape(DIRECTIONS, self.stride)[:, : self._owned]
        for slot, row in zip(slots, values, strict=True):
            scaled = self._device.xp.asarray(row, dtype=self._computed)
            if self._scale != 1.0:
                scaled = scaled * self._computed.type(self._scale)
            slot[...] = scaled

    def arrived_from(
        self, points: NDArray[np.int64], directions: NDArray[np.int64], sources: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Populations on the host that arrived at points along directions from the points that are their sources."""
        here, there = (points, directions), (sources, OPPOSITE[directions])
        point, slot = there if self.turn.streamed else here
        addresses = self._device.from_host(slot * self.stride + point)
        values = self._device.to_host(self.numbers(self.source[addresses]))
        return np.asarray(values, np.float64)

    def arrived(self, i: int) -> Array:
        """Populations that arrived along direction i at all own points."""
        f, xp = self.source, self._device.xp
        own = f[i * self.stride : i * self.stride + self._owned]
        if not self.turn.streamed or i == 0:
            return self.numbers(own)
        sources = xp.asarray(self._sources[i - 1])
        # Of that slot alone: flat addresses of large lattices do not fit the type of the sources.
        slot = int(OPPOSITE[i]) * self.stride
        there = f[slot : slot + self.stride][sources]
        return self.numbers(xp.where(sources < 0, own, there))


def stride_of(count: int, itemsize: int, kind: str) -> int:
    """Distance of slots: at least `count`, whole lines, and not a multiple of a page."""
    line = _LINES[kind]
    least = -(-count * itemsize // line) * line
    return (least + (_SHIFTS[kind] - least) % _PAGE) // itemsize


Streaming = Literal["auto", "in place", "two buffers", "push"]


def possible_ways(device_kind: str, streaming: Streaming, itemsize: int) -> list[KernelVariant]:
    """All ways that :func:`choose_way` may choose; it looks at a GPU's memory where there are two."""
    if device_kind == "cpu" and streaming in ("two buffers", "push"):
        raise InputError(
            "the device is a CPU, and this streaming needs a GPU",
            location=f'blood.streaming = "{streaming}"',
            allowed='"auto" or "in place"',
            remedy="leave blood.streaming out, or run with --device cuda",
        )
    if device_kind == "cpu" or streaming == "in place":
        return [fastest_way(itemsize)]
    if streaming == "push":
        return [KernelVariant(buffers=2, pushing=True)]
    return [fastest_way(itemsize, n) for n in ((2,) if streaming == "two buffers" else (1, 2))]


def choose_way(
    device: Device,
    world: World,
    streaming: Streaming,
    points: int,
    itemsize: int,
    log: Callable[[str], None],
    beside: float = 0.0,
    links: bool = False,
) -> KernelVariant:
    """Choose the way through a step, the same on all ranks; all ranks call this.

    `itemsize`: bytes of a stored value; `beside`: bytes that a rank needs for all else, cells
    included.
    """
    ways = possible_ways(device.kind, streaming, itemsize)
    if device.kind == "cpu":
        return ways[0]
    if streaming != "auto":
        log(f"populations stream {_said(streaming)} (blood.streaming)")
        return ways[0]
    in_place, between_two = ways
    sharing = world.sharing(device.identity)
    free = device.memory()[0]
    scarce = world.any(not room_for_two(free, points, itemsize, sharing, beside))
    buffer = world.largest(float(DIRECTIONS * points * itemsize))
    takes = f"a buffer takes {buffer / 1e9:.3g} GB at most"
    cache = -world.largest(-device.cache_bytes / sharing)
    if not scarce and not links and faster_in_place(cache, buffer):
        log(
            f"populations stream in place: {takes}, and one buffer makes better use of a cache of "
            f"{cache / 1e9:.2g} GB"
        )
        return in_place
    chosen = "in place" if scarce else "two buffers"
    least = -world.largest(-free / sharing)
    log(
        f"populations stream {_said(chosen)}: {takes}, "
        f"a rank has at least {least / 1e9:.3g} GB free, and the rest takes about {beside / 1e9:.3g} GB"
    )
    return in_place if scarce else between_two


def _said(streaming: str) -> str:
    if streaming == "push":
        return "by a push between two buffers"
    return "between two buffers" if streaming == "two buffers" else streaming


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
                tables = {name: give(table) for name, table in vars(order).items()}
                counts = {"count": len(order.blocks) - 1, "streamed": int(sources is not None)}
                here.append(tables | counts)
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
    if edge.any() and len(chosen[1]):
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


def kernel_of(turn: Turn, on_gpu: bool) -> str:
    """Name of the kernel that takes points which are in no opening through a step."""
    if not on_gpu:
        return "advance"
    if not turn.streamed:
        return "advance_pushing" if turn.pushed else "advance_here"
    return "advance_along" if turn.in_place else "advance_across"
