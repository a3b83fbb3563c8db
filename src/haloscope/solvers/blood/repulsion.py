"""Repulsion at short range, so that cells neither touch each other nor stick to walls.

Lattice units throughout. The law is an inverse distance with a cutoff r0 (repulsion.cpp):
F = k (r0 / r - 1) below r0 and nothing beyond, limited below r0 / 10. Forces of pairs are exactly
opposite, and have the same bits for any number of threads or ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.jit import Constants
from haloscope.errors import InputError
from haloscope.solvers.blood.coupling import LEAST_HALO, SIZES, OwnBox, vertices_of

SOURCE = Path(__file__).with_name("repulsion.cpp")

MOST_CUTOFF = 3.0
"""Lattice units; what is farther costs too many pairs."""

FAR_FROM_WALLS = 2.0
"""Distances are needed where they are below the cutoff plus this."""

_WIDTH, _BLOCKS = SIZES["THREADS_A_BLOCK"], SIZES["SCAN_BLOCKS"]
_MOST_BINS = 2**31 - 1
# Plans that are kept, with the arrays that they were bound to.
_MOST_PLANS = 16


@dataclass(frozen=True)
class RepulsionLaw:
    """Force k (r0 / r - 1) at distances r below r0.

    Attributes
    ----------
    strength
        k, the force at half the cutoff, in lattice units.
    cutoff
        r0, in lattice units.
    """

    strength: float
    cutoff: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise InputError(
                f"strength = {self.strength:g} of a repulsion is out of range; give 0 or more"
            )
        if not 0 < self.cutoff <= MOST_CUTOFF:
            raise InputError(
                f"cutoff = {self.cutoff:g} of a repulsion is out of range; give more than 0 and at "
                f"most {MOST_CUTOFF:g} lattice units"
            )


@dataclass(frozen=True, eq=False)
class CellsOfKind:
    """Vertices of the cells of one kind that a rank holds.

    Attributes
    ----------
    positions, forces
        Flat or (3, n): component c of vertex v of cell m at c n + m vertices + v. Cells come in
        the order of their numbers.
    cells
        Cells that are there, the first ones of the arrays.
    vertices
        Of one cell.
    """

    positions: Array
    forces: Array
    cells: int
    vertices: int


class Repulsion:
    """Adds repulsion to the forces of the vertices that can spread to a rank's own points.

    Others get nothing: their force is another rank's business. So a rank must hold all cells that
    come within 2 + cutoff of its own box; then each vertex that counts meets all its neighbours.

    Parameters
    ----------
    device
        Where the arrays lie.
    box
        The rank's own points within the lattice.
    between_cells
        The law between vertices of different cells; None for no such force.
    dtype
        float64 or float32, of all arrays.

    Raises
    ------
    InputError
        A periodic axis is so short that a vertex would meet another one twice, or the box too
        large.
    """

    def __init__(
        self,
        device: Device,
        box: OwnBox,
        between_cells: RepulsionLaw,
        *,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.device, self.law = device, between_cells
        self.dtype = np.dtype(dtype)
        self.reach = math.ceil(between_cells.cutoff)
        first, counts, periods = [], [], []
        axes = zip("xyz", box.low, box.high, box.shape, box.periodic, strict=True)
        for axis, low, high, points, periodic in axes:
            if periodic and points < 2 * self.reach + 1:
                raise InputError(
                    f"{points} points along the periodic axis {axis} are too few for a repulsion "
                    f"with cutoff {between_cells.cutoff:g}; give {2 * self.reach + 1} or more"
                )
            # Supports of 4 points meet own points from 2 below them to 1 above; and one bin more.
            start, count = low - LEAST_HALO - self.reach, high - low + 3 + 2 * self.reach
            whole = periodic and count >= points
            first.append(0 if whole else start)
            counts.append(points if whole else count)
            periods.append(points if periodic else 0)
        self._bins = math.prod(counts)
        if self._bins > _MOST_BINS:
            raise InputError(
                f"a box of {self._bins} bins for the repulsion of cells is too large; at most "
                f"{_MOST_BINS} fit: use more ranks"
            )
        self._box = device.from_host(np.array([*first, *counts, *periods], np.int32))
        self._counts = device.zeros((self._bins,), np.int32)
        self._sums = device.zeros((max(_BLOCKS, device.multiprocessors),), np.int32)
        self._starts = device.zeros((self._bins + 1,), np.int32)
        self._constants = constants(dtype)
        self._place, self._collect, self._repel = (
            self._kernel(name) for name in ("place", "collect", "repel")
        )
        names = ["sort_bins"]
        if device.kind != "cpu":
            names = ["sum_bins", "scan_bins", "fill_bins", "order_bins"]
        self._sort = [self._kernel(name) for name in names]
        self._plans: dict[tuple[int, ...], tuple[list[tuple[int, int]], list[Launch]]] = {}

    def apply(self, kinds: Sequence[CellsOfKind]) -> None:
        """Add the forces between vertices of different cells, of the same kind or another.

        Parameters
        ----------
        kinds
            All cells of the rank, always in the same order of kinds.
        """
        kinds = [kind for kind in kinds if kind.cells * kind.vertices]
        if not kinds or self.law.strength == 0:
            return
        sizes = [(kind.cells, kind.vertices) for kind in kinds]
        key = _addresses(self.device, kinds)
        bound_for, plan = self._plans.get(key, ([], []))
        if bound_for != sizes:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._bound(kinds)
            self._plans[key] = sizes, plan
        for launch in plan:
            launch()

    def _kernel(self, name: str) -> Kernel:
        return self.device.kernel(SOURCE, name, self._constants)

    def _bound(self, kinds: Sequence[CellsOfKind]) -> list[Launch]:
        """What is launched for arrays of these sizes at these places, which it keeps alive."""
        device = self.device
        total = sum(kind.cells * kind.vertices for kind in kinds)
        places, items, cells = (device.zeros((total,), np.int32) for _ in range(3))
        positions = device.zeros((3 * total,), self.dtype)
        before: list[Launch] = []
        after: list[Launch] = []
        last: list[Launch] = []
        first = first_cell = 0
        for kind in kinds:
            count, vertices = kind.cells * kind.vertices, vertices_of(kind.positions)
            numbers = (vertices, count, first)
            before.append(
                self._place.bind(
                    self._box,
                    kind.positions,
                    *numbers,
                    places,
                    self._counts,
                    extent=(count,),
                    block=(_WIDTH,),
                )
            )
            which = (*numbers, first_cell, kind.vertices)
            bins = (self._starts, self._bins, items, positions, cells, total)
            after.append(
                self._collect.bind(kind.positions, *which, *bins, extent=(total,), block=(_WIDTH,))
            )
            found = (places, self._starts, positions, cells, total)
            law = (self.reach, self.law.strength, self.law.cutoff)
            last.append(
                self._repel.bind(
                    self._box,
                    kind.positions,
                    kind.forces,
                    *which,
                    *found,
                    *law,
                    extent=(count,),
                    block=(_WIDTH,),
                )
            )
            first += count
            first_cell += kind.cells
        return [*before, *self._sorting(places, items, total), *after, *last]

    def _sorting(self, places: Array, items: Array, total: int) -> list[Launch]:
        counts, sums, starts, bins = self._counts, self._sums, self._starts, self._bins
        if self.device.kind == "cpu":
            parts = self.device.multiprocessors
            return [
                self._sort[0].bind(places, total, bins, starts, items, sums, parts, extent=(total,))
            ]
        add, scan, fill, order = self._sort
        wide, block = (_BLOCKS * _WIDTH,), (_WIDTH,)
        return [
            add.bind(counts, bins, sums, extent=wide, block=block),
            scan.bind(counts, bins, sums, starts, extent=wide, block=block),
            fill.bind(places, total, starts, counts, items, extent=(total,), block=block),
            order.bind(starts, counts, bins, items, extent=(bins,), block=block),
        ]


class WallRepulsion:
    """Adds repulsion from walls to the forces of vertices.

    The distance from the wall is trilinear between lattice points, and the force goes along its
    gradient. A point that is no fluid counts as one lattice unit further out than the nearest to
    the wall of the fluid points around the vertex: exact for plane walls along the lattice.

    Parameters
    ----------
    device
        Where the arrays lie.
    box, halo, table
        The rank's own points, and the numbers of points around them; see
        :class:`haloscope.solvers.blood.coupling.Coupling`.
    distance
        Of each point of the table from the nearest wall, 0 or more, by its number; infinity where
        it is more than the cutoff plus :data:`FAR_FROM_WALLS`. A host array.
    law
        The force.
    dtype
        float64 or float32, of all arrays.
    """

    def __init__(
        self,
        device: Device,
        box: OwnBox,
        halo: int,
        table: NDArray[np.int32],
        distance: NDArray[np.floating],
        law: RepulsionLaw,
        *,
        dtype: DTypeLike = np.float64,
    ) -> None:
        if len(distance) <= table.max(initial=-1):
            raise InputError(
                f"distances from walls are given for {len(distance)} points; the table names "
                f"{table.max() + 1}"
            )
        if not np.all(distance >= 0):
            raise InputError("a distance from walls is negative or no number; give 0 or more")
        self.law = law
        self._halo = halo
        self._box = device.from_host(box.numbers())
        self._table = device.from_host(np.ascontiguousarray(table, np.int32))
        self._distance = device.from_host(np.ascontiguousarray(distance, dtype))
        self._kernel = device.kernel(SOURCE, "repel_walls", constants(dtype))
        self._device = device
        self._launches: dict[tuple[int, ...], tuple[int, Launch]] = {}

    def apply(self, kinds: Sequence[CellsOfKind]) -> None:
        """Add the forces of walls on vertices in the own box and its halo."""
        if self.law.strength == 0:
            return
        for kind in kinds:
            count = kind.cells * kind.vertices
            if count == 0:
                continue
            key = _addresses(self._device, [kind])
            bound_for, launch = self._launches.get(key, (0, None))
            if launch is None or bound_for != count:
                if len(self._launches) >= _MOST_PLANS:
                    self._launches.clear()
                launch = self._bound(kind, count)
                self._launches[key] = count, launch
            launch()

    def _bound(self, kind: CellsOfKind, count: int) -> Launch:
        vertices = (kind.positions, kind.forces, vertices_of(kind.positions), count)
        where = (self._box, self._table, self._halo, self._distance)
        law = (self.law.strength, self.law.cutoff)
        return self._kernel.bind(*where, *vertices, *law, extent=(count,), block=(_WIDTH,))


def _addresses(device: Device, kinds: Sequence[CellsOfKind]) -> tuple[int, ...]:
    arrays = (array for kind in kinds for array in (kind.positions, kind.forces))
    return tuple(device.address(array) for array in arrays)


def constants(dtype: DTypeLike) -> Constants:
    """Compile-time constants of repulsion.cpp."""
    return {"real": "double" if np.dtype(dtype) == np.float64 else "float", **SIZES}
