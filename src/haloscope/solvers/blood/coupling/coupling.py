"""Immersed-boundary coupling on a rank: fluid velocities to vertices, forces of vertices to points.

Lattice units throughout. Both couplings use the same kernel (:data:`KERNELS`), so that spreading is
the adjoint of interpolation: what the fluid does to vertices, they do to the fluid. Where the
kernel reaches into a wall, the fluid's velocity there is 0 (no slip) and the force is left to the
wall: it is dropped, not put on other points. Forces of vertices whose support lies in the fluid
arrive in full, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.program import View
from haloscope.device.targets import KernelFile, Target
from haloscope.errors import InputError

SOURCE = Path(__file__).with_name("coupling.cpp")

KERNELS = {"linear": 2, "roma": 3, "cosine": 4, "peskin": 4}
"""Regularised delta functions and the lattice points that each covers along an axis."""

LEAST_HALO = 2
"""Points that a vertex of a rank's own box can reach beyond that box."""

SIZES = {"THREADS_A_BLOCK": 256, "SCAN_BLOCKS": 256, "BLOCKS_TOGETHER": 4}
"""Constants of bins.hpp: threads of a GPU's blocks, blocks that add up bins, and those of a processor that make lists
together."""

# As in coupling_cores.hpp.
_ROW = 4
_VERTICES_A_BATCH = 32

# Vertices that a block of a GPU takes one after the other, where there are enough of them: neighbours in
# a cell, which share what they read, and so few that processors end at about the same time.
_IN_TURN = 192
_BLOCKS_A_PROCESSOR = 4
_WIDTH, _BLOCKS = SIZES["THREADS_A_BLOCK"], SIZES["SCAN_BLOCKS"]


def threads_together(device: Device) -> int:
    """Most threads of a GPU's launch whose blocks wait for each other."""
    return device.multiprocessors * SIZES["BLOCKS_TOGETHER"] * SIZES["THREADS_A_BLOCK"]


@dataclass(frozen=True, eq=False)
class SomeCells:
    """Some of the cells whose vertices an array holds."""

    # int32, on the device: numbers of cells, of which those from place span[0] up to span[1] are
    # meant.
    rows: Array
    span: Array
    vertices: int  # Of a cell: those of cell c are at c vertices and after it
    # Whether as many others get their velocities on another stream meanwhile: then these take half
    # of a GPU's room, so that the others begin at once. Many of their vertices lie outside of the
    # own box, and leave a block with little to do.
    beside: bool = False
    # The arrays with the vertices of these cells, where others are worked on at the same time.
    positions: View | Array | None = None
    velocities: View | Array | None = None


@dataclass(frozen=True)
class OwnBox:
    """The box of lattice points that a rank owns, and the whole lattice around it."""

    # First own point and first beyond, (x, y, z).
    low: tuple[int, int, int]
    high: tuple[int, int, int]
    shape: tuple[int, int, int]  # Points of the whole lattice, (nx, ny, nz)
    periodic: tuple[bool, bool, bool]  # Which of its axes are periodic

    def __post_init__(self) -> None:
        for axis, points, periodic in zip("xyz", self.shape, self.periodic, strict=True):
            if periodic and points < max(KERNELS.values()):
                raise InputError(
                    f"{points} points along the periodic axis {axis} are too few for cells",
                    allowed=f"{max(KERNELS.values())} points or more, so that no delta function overlaps itself",
                    remedy="use a longer vessel or a finer spacing",
                )

    @property
    def counts(self) -> tuple[int, int, int]:
        """Own points along x, y, z."""
        (a, b, c), (d, e, f) = self.low, self.high
        return d - a, e - b, f - c

    def numbers(self) -> NDArray[np.int32]:
        """Numbers for kernels (own_box.hpp): first points, counts, periods, nine numbers."""
        periods = np.where(self.periodic, self.shape, 0)
        return np.concatenate([self.low, self.counts, periods]).astype(np.int32)


def kernel_files(target: Target, kernel: str) -> list[KernelFile]:
    """The kernels of this module for a smoothed delta function; on GPUs with wide tiles and with narrow ones."""
    constants = {"real": "double", "DELTA": kernel.upper()}
    if target.kind == "cpu":
        return [KernelFile(SOURCE, constants)]
    return [
        KernelFile(SOURCE, {**constants, **SIZES, **tile.constants()}) for tile in (WIDE, NARROW)
    ]


class Coupling:
    """Interpolation and spreading between a rank's lattice points and the vertices it holds.

    `table`: number of the point at each place of the extended box, -1 where the fluid has none:
    int32 (z, y, x), wrapped along periodic axes. A host array.
    """

    # A rank holds whole cells, also such as reach beyond its box. Each vertex gets its velocity
    # from the rank that owns the lattice point nearest to it (periodic images are one point), and 0
    # from all others: the sum over ranks is exact. Vertices outside the lattice, and such as have
    # no number as position, get 0 everywhere and spread nothing.
    #
    # Spreading adds to own points only. At each point the shares are added in the order of calls,
    # and of vertices within a call, so that they are the same bits for any number of threads and
    # any division into ranks.

    def __init__(
        self,
        device: Device,
        box: OwnBox,
        halo: int,
        table: NDArray[np.int32],
        stride: int,
        *,
        kernel: str = "cosine",
    ) -> None:
        # Distance between components of the fluid's arrays, which are flat: velocity (3, stride)
        # and force (3, stride).
        self.device, self.box, self.halo, self.stride = device, box, halo, stride
        on_cores = device.kind == "cpu"
        # Where the fluid has its points: arguments of kernels by name.
        self._fluid: dict[str, Any] = {
            "stride": stride,
            "points": device.from_host(np.ascontiguousarray(table, np.int32)),
            "box_numbers": device.from_host(box.numbers()),
            "halo": halo,
        }
        # Only cores take rows.
        self._rows = device.from_host(row_starts(table)) if on_cores else None
        files = kernel_files(device, kernel)
        fills = int(np.count_nonzero(table >= 0)) >= WIDE.points * WARPS * device.multiprocessors
        source, constants = files[0] if on_cores or fills else files[1]
        self._kernels = {
            name: device.kernel(source, name, constants)
            for name in ("interpolate", *(("spread",) if on_cores else (KEEPING, SUMMING)))
        }
        self._lists: TileLists | None = None
        if not on_cores:
            self._lists = TileLists(device, box, self._kernels, WIDE if fills else NARROW)
        self._launches: dict[tuple[object, ...], tuple[int, Callable[[], None]]] = {}

    def interpolate(
        self,
        velocity: Array,
        positions: Array,
        velocities: Array,
        count: int,
        chosen: SomeCells | None = None,
        stream: Any = None,
    ) -> None:
        """Give vertices the fluid's velocity: V = sum over points of u delta(x - X).

        `positions`, `velocities`: of vertices, lattice units, flat or (3, n) in C order: component
        c of vertex i at c n + i. Positions go on over periodic ends.
        """
        # `count`: vertices, the first ones of n; with `chosen`, at most so many.
        name = "interpolate beside" if chosen and chosen.beside else "interpolate"

        def bind(*_: Array | int) -> Launch:
            return self._gather(velocity, positions, velocities, count, chosen, stream)

        cells = (chosen.rows, chosen.span) if chosen else ()
        self._launch(name, bind, velocity, positions, velocities, *cells, count)

    def spread(
        self, force: Array, positions: Array, forces: Array, count: int, *, afresh: bool = False
    ) -> None:
        """Add the forces of vertices to own points: g += sum over vertices of F delta(x - X)."""
        by_summing = self._lists is not None and count > 0
        if afresh and not by_summing:
            force.fill(0)
        anew = afresh and by_summing
        name, bind = "spread afresh" if anew else "spread", partial(self._all_in_turn, anew)
        self._launch(name, bind, force, positions, forces, count)

    def fills_device(self, vertices: int) -> bool:
        """Whether to interpolate so many vertices takes all of a GPU's room."""
        at_once = _BLOCKS_A_PROCESSOR * self.device.multiprocessors * _IN_TURN
        return self.device.kind != "cpu" and vertices >= at_once

    def forget(self, positions: Array) -> None:
        """Let go of vertices that will not be given again, and of what was bound for them."""
        address = self.device.address(positions)
        self._launches = {key: one for key, one in self._launches.items() if address not in key}
        if self._lists is not None:
            self._lists.forget(positions)

    def renew(self) -> None:
        """Make lists that are kept anew the next time, so that all ranks do so in the same step."""
        if self._lists is not None:
            self._lists.renew()

    def _launch(
        self, name: str, bind: Callable[..., Callable[[], None]], *arguments: Array | int
    ) -> None:
        """Bind what was not bound before, and start it; :meth:`forget` lets go of the arrays."""
        *arrays, count = arguments
        if count == 0:
            return
        key = (name, *(self.device.address(array) for array in arrays))
        bound_for, launch = self._launches.get(key, (0, None))
        if launch is None or bound_for != count:
            launch = bind(*arguments)
            self._launches[key] = count, launch
        launch()

    def _gather(
        self,
        velocity: Array,
        positions: Array,
        velocities: Array,
        count: int,
        chosen: SomeCells | None,
        stream: Any,
    ) -> Launch:
        options: dict[str, Any] = {"extent": (count,), "stream": stream}
        of_cells = (chosen.positions, chosen.velocities) if chosen else (None, None)
        if self.device.kind != "cpu":
            at_once = _WIDTH // 4
            share = count // (_BLOCKS_A_PROCESSOR * self.device.multiprocessors)
            in_turn = at_once * max(1, min(_IN_TURN, share) // at_once)
            blocks = -(-count // in_turn)
            if chosen and chosen.beside:
                blocks = min(blocks, _BLOCKS_A_PROCESSOR // 2 * self.device.multiprocessors)
            extent = (blocks * _WIDTH,)
            options = {"in_turn": in_turn, "extent": extent, "block": (_WIDTH,), "stream": stream}
        return self._kernels["interpolate"].bind(
            velocity=velocity,
            **self._fluid,
            rows=self._rows,
            positions=positions if of_cells[0] is None else of_cells[0],
            velocities=velocities if of_cells[1] is None else of_cells[1],
            vertices=vertices_of(positions),
            count=count,
            cells=chosen.rows if chosen else None,
            span=chosen.span if chosen else None,
            a_cell=chosen.vertices if chosen else 0,
            **options,
        )

    def _all_in_turn(
        self, afresh: bool, force: Array, positions: Array, forces: Array, count: int
    ) -> Callable[[], None]:
        launches = tuple(self.spreading(force, positions, forces, count, afresh=afresh).values())

        def all_in_turn() -> None:
            for launch in launches:
                launch()

        return all_in_turn

    def spreading(
        self, force: Array, positions: Array, forces: Array, count: int, *, afresh: bool = False
    ) -> dict[str, Launch]:
        """The launches of :meth:`spread` by the names of their kernels, in turn."""
        if self._lists is None:
            return self._slabs(force, positions, forces, count)
        fluid, room = {"force": force, **self._fluid}, vertices_of(positions)
        return self._lists.bind(fluid, positions, forces, room, count, afresh=afresh)

    def _slabs(
        self, force: Array, positions: Array, forces: Array, count: int
    ) -> dict[str, Launch]:
        parts, planes = self.device.multiprocessors, self.box.counts[2]
        batches = -(-count // _VERTICES_A_BATCH)
        sizes = {"extents": 2 * batches, "histogram": parts * planes, "slabs": parts + 1}
        spread = self._kernels["spread"].bind(
            force=force,
            **self._fluid,
            rows=self._rows,
            positions=positions,
            forces=forces,
            vertices=vertices_of(positions),
            count=count,
            **{name: self.device.zeros((size,), np.int32) for name, size in sizes.items()},
            parts=parts,
            extent=(count,),
        )
        return {"spread": spread}


def vertices_of(positions: Array) -> int:
    """Vertices that an array (3, n), or a flat one, has room for."""
    return int(math.prod(positions.shape)) // 3


def row_starts(table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Mark where a row of points is contiguous, as long as cores take it in one register.

    `table`: (z, y, x) numbers of points, -1 for none; Returns: int32, the shape of the table: its
    number where four points follow each other there along x, -1 elsewhere.
    """
    rows = np.full(table.shape, -1, np.int32)
    width = table.shape[2] - _ROW + 1
    first = table[:, :, :width]
    follows = first >= 0
    for step in range(1, _ROW):
        follows &= table[:, :, step : step + width] == first + step
    rows[:, :, :width] = np.where(follows, first, -1)
    return rows


MARGIN = 0.45
"""Lattice units by which a vertex may move before lists are made anew; below 0.5, so that supports
meet one point more along an axis at most."""

_LANES = 32
WARPS = 28
"""Warps that a processor of a GPU has room for while they spread."""


@dataclass(frozen=True)
class Tile:
    """Points that one warp of a GPU spreads to."""

    # Of a lane: columns along x and y, and points of each along z.
    columns: tuple[int, int]
    slots: int

    @property
    def edges(self) -> tuple[int, int, int]:
        """Points along each axis."""
        return 4 * self.columns[0], 4 * self.columns[1], 2 * self.slots

    @property
    def points(self) -> int:
        """All of them."""
        return math.prod(self.edges)

    def constants(self) -> dict[str, int | float]:
        """Constants of coupling_lists.hpp and coupling_warps.hpp, at compile time."""
        return {
            "MARGIN": MARGIN,
            "COLUMNS_X": self.columns[0],
            "COLUMNS_Y": self.columns[1],
            "SLOTS": self.slots,
            "WARPS_TOGETHER": WARPS,
        }


WIDE = Tile((2, 2), 2)
"""Tiles of lattices that fill a GPU: a vertex spreads to few of them."""

NARROW = Tile((1, 1), 1)
"""Tiles of others: as many warps as there can be share the vertices, whose lists are short then."""

KEEPING = "keep_lists"
"""Kernel of coupling_lists.hpp that makes lists where vertices have moved too far."""

SUMMING = "spread_by_warps"
"""Kernel of coupling_warps.hpp that adds up what lists hold, a warp a tile."""

# A little less, for rounding.
_FAR = 0.99 * MARGIN
_SUPPORT = 4


class TileLists:
    """Spreads from lists of vertices near tiles."""

    def __init__(
        self, device: Device, box: OwnBox, kernels: Mapping[str, Kernel], tile: Tile
    ) -> None:
        self._device, self._kernels = device, kernels
        # Along a short periodic axis a support must not begin at one end of a tile and end in it again.
        self.edges = tuple(
            max(1, min(most, points - _SUPPORT + 1)) if periodic else most
            for most, points, periodic in zip(tile.edges, box.shape, box.periodic, strict=True)
        )
        along = [-(-n // edge) for n, edge in zip(box.counts, self.edges, strict=True)]
        self.tiles = int(np.prod(along, dtype=np.int64))
        self._met = [
            most_met(n, edge, n == points and periodic)
            for n, edge, points, periodic in zip(
                box.counts, self.edges, box.shape, box.periodic, strict=True
            )
        ]
        self._tiling = device.from_host(np.array([*self.edges, *along], np.int32))
        # Of positions by their address: whether lists are to be made anew.
        self._wanted: dict[int, Array] = {}

    @property
    def entries(self) -> int:
        """Most tiles that are near one vertex."""
        return int(np.prod(self._met))

    def renew(self) -> None:
        """Make all lists anew the next time."""
        for wanted in self._wanted.values():
            wanted[:1] = 1

    def forget(self, positions: Array) -> None:
        """Let go of vertices that will not be given again."""
        self._wanted.pop(self._device.address(positions), None)

    def bind(
        self,
        fluid: Mapping[str, Any],
        positions: Array,
        forces: Array,
        vertices: int,
        count: int,
        *,
        afresh: bool,
    ) -> dict[str, Launch]:
        """All launches by name, in turn; `fluid`: arguments of the last one, by name."""
        device, bins = self._device, self.tiles
        counts, sums = (device.zeros((size,), np.int32) for size in (bins, _BLOCKS))
        starts = device.zeros((bins + 1,), np.int64)
        items = device.zeros((count * self.entries,), np.int32)
        then = device.zeros((3 * count,), np.float32)
        # Whether lists are wanted, and how many blocks have arrived where all wait.
        wanted = device.from_host(np.array([1, 0], np.int32))
        self._wanted[device.address(positions)] = wanted
        arguments = {"positions": positions, "vertices": vertices}
        lists = {"starts": starts, "items": items, "bins": bins}
        keep = self._kernels[KEEPING].bind(
            wanted=wanted,
            box_numbers=fluid["box_numbers"],
            tiling=self._tiling,
            **arguments,
            count=count,
            far=_FAR,
            then=then,
            counts=counts,
            sums=sums,
            **lists,
            extent=(min(count, threads_together(device)),),
            block=(_WIDTH,),
            together=True,
        )
        spread = self._kernels[SUMMING].bind(
            **fluid,
            **arguments,
            forces=forces,
            tiling=self._tiling,
            **lists,
            afresh=int(afresh),
            wanted=wanted,
            extent=(bins * _LANES,),
            block=(_LANES,),
        )
        return {KEEPING: keep, SUMMING: spread}


def most_met(points: int, edge: int, whole: bool) -> int:
    """Most tiles along an axis that a support, and one point more, can meet."""
    at = np.arange(points)[:, None] + np.arange(_SUPPORT + 1)
    tile = np.where(at < points, at, at % points if whole else -1) // edge
    return max(len(set(row) - {-1}) for row in tile.tolist())
