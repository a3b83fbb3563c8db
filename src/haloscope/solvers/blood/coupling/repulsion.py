"""Repulsion at short range, so that cells neither touch each other nor stick to walls.

Lattice units throughout. The law is an inverse distance with a cutoff r0 (repulsion.cpp):
F = k (r0 / r - 1) below r0 and nothing beyond, limited below r0 / 10. Forces of pairs are exactly
opposite. What pairs add is rounded to whole multiples of a unit of about k 2^-42, so that sums of it
are exact: the same bits in any order, for any number of threads or ranks. Lists of what is near are
kept over several steps (repulsion_lists.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile, Target
from haloscope.errors import InputError
from haloscope.solvers.blood.coupling.coupling import LEAST_HALO, SIZES, OwnBox, vertices_of
from haloscope.solvers.blood.coupling.repulsion_lists import (
    LAUNCHED,
    LAUNCHED_ON_GPU,
    MARGIN,
    ListsOnGpu,
    NearLists,
    VerticesOfKind,
)

SOURCE = Path(__file__).with_name("repulsion.cpp")

MOST_CUTOFF = 3.0
"""Lattice units; what is farther costs too many pairs."""

FAR_FROM_WALLS = 2.0
"""Distances are needed where they are below the cutoff plus this."""

_WIDTH, _BLOCKS = SIZES["THREADS_A_BLOCK"], SIZES["SCAN_BLOCKS"]
_MOST_BINS = 2**31 - 1
# Sums of 2^11 times the strength are exact, of some 200 pairs that are as near as can be.
_BITS_BELOW_STRENGTH = 42
# Plans that are kept, with the arrays that they were bound to.
_MOST_PLANS = 16


@dataclass(frozen=True)
class RepulsionLaw:
    """Force k (r0 / r - 1) at distances r below r0."""

    strength: float  # k, the force at half the cutoff, in lattice units
    cutoff: float  # r0, in lattice units


@dataclass(frozen=True, eq=False)
class CellsOfKind:
    """Vertices of the cells of one kind that a rank holds."""

    # Flat or (3, n): component c of vertex v of cell m at c n + m vertices + v. Cells come in the
    # order of their numbers.
    positions: Array
    forces: Array
    cells: int  # Cells that are there, the first ones of the arrays
    vertices: int  # Of one cell


class Repulsion:
    """Adds repulsion to the forces of the vertices that can spread to a rank's own points.

    Others get nothing: their force is another rank's business. So a rank must hold all cells that
    come within 2 + cutoff of its own box; then each vertex that counts meets all its neighbours.
    """

    def __init__(self, device: Device, box: OwnBox, between_cells: RepulsionLaw) -> None:
        self.device, self.law = device, between_cells
        cutoff, on_cores = between_cells.cutoff, device.kind == "cpu"
        self.reach = math.ceil(cutoff)
        for axis, points, periodic in zip("xyz", box.shape, box.periodic, strict=True):
            if periodic and points < 2 * self.reach + 1:
                raise InputError(
                    f"{points} points along the periodic axis {axis} are too few for a repulsion "
                    f"with cutoff {cutoff:g}",
                    allowed=f"{2 * self.reach + 1} points or more",
                    remedy="use a longer vessel or a finer spacing",
                )
        periods = [n for n, again in zip(box.shape, box.periodic, strict=True) if again]
        most = min(((n - 1) // 2 for n in periods), default=self.reach + 1)
        self.margin = min(MARGIN, most - cutoff)
        self.reach = min(math.ceil(cutoff + self.margin), most)
        region = self._region(box)
        self._bins = int(np.prod(region[3:6], dtype=np.int64))
        if self._bins > _MOST_BINS:
            raise InputError(
                f"the box of a rank has {self._bins} bins for the repulsion of cells",
                allowed=f"at most {_MOST_BINS} bins",
                remedy="use more ranks",
            )
        self._box = device.from_host(region)
        self._counts = device.zeros((0 if on_cores else self._bins,), np.int32)
        self._sums = device.zeros((max(_BLOCKS, device.multiprocessors),), np.int32)
        self._starts = device.zeros((self._bins + 1,), np.int32)
        names = ("place", "collect", "sort_bins", *LAUNCHED) if on_cores else LAUNCHED_ON_GPU
        source, constants = kernel_file(device)
        self._kernels = {name: device.kernel(source, name, constants) for name in names}
        # Numbers next to it are as far apart as what forces are whole multiples of.
        _, exponent = math.frexp(between_cells.strength)
        self._anchor = 1.5 * 2.0 ** (52 + exponent - _BITS_BELOW_STRENGTH)
        self._plans: dict[
            tuple[int, ...], tuple[list[tuple[int, int]], NearLists | ListsOnGpu]
        ] = {}
        # How often :meth:`grow` found more room: a graph from before must not be replayed.
        self.times_grown = 0

    def _region(self, box: OwnBox) -> NDArray[np.int32]:
        """Bins of what own points can get forces from, as the numbers of an own box."""
        # Supports of 4 points meet own points from 2 below them to 1 above; and one bin more.
        # What is listed may have come from half a margin farther away.
        beyond = self.reach + math.ceil(self.margin / 2)
        first, counts = [], []
        for low, high, points, periodic in zip(
            box.low, box.high, box.shape, box.periodic, strict=True
        ):
            start, count = low - LEAST_HALO - beyond, high - low + 3 + 2 * beyond
            whole = periodic and count >= points
            first.append(0 if whole else start)
            counts.append(points if whole else count)
        return np.concatenate([[*first, *counts], box.numbers()[6:]]).astype(np.int32)

    def apply(self, kinds: Sequence[CellsOfKind], *, looked: bool = False) -> None:
        """Add the forces between vertices of different cells, of the same kind or another."""
        plan = self._planned(kinds)
        if plan is not None:
            if not looked:
                plan.look()
            plan.repel()

    def look(self, kinds: Sequence[CellsOfKind]) -> None:
        """See what is near, as :meth:`apply` does before it adds forces; positions alone are read."""
        plan = self._planned(kinds)
        if plan is not None:
            plan.look()

    def _planned(self, kinds: Sequence[CellsOfKind]) -> NearLists | ListsOnGpu | None:
        """Launches bound to these cells; None if nothing repels."""
        kinds = [kind for kind in kinds if kind.cells * kind.vertices]
        if not kinds or self.law.strength == 0:
            return None
        plan = self._plan_of(kinds)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._bound(kinds)
            self._plans[_addresses(self.device, kinds)] = _sizes(kinds), plan
        return plan

    def _plan_of(self, kinds: Sequence[CellsOfKind]) -> NearLists | ListsOnGpu | None:
        """Launches bound to these cells before."""
        bound_for, plan = self._plans.get(_addresses(self.device, kinds), ([], None))
        return plan if bound_for == _sizes(kinds) else None

    def renew(self) -> None:
        """Make lists that are kept anew the next time, so that all ranks do so in the same step."""
        for _, plan in self._plans.values():
            plan.renew()

    def forget(self, positions: Array) -> None:
        """Let go of vertices that will not be given again, and of what was bound for them."""
        address = self.device.address(positions)
        self._plans = {key: one for key, one in self._plans.items() if address not in key}

    def grow(self, kinds: Sequence[CellsOfKind]) -> None:
        """Give lists on a GPU more room if cells have crowded together; between two steps."""
        plan = self._plan_of([kind for kind in kinds if kind.cells * kind.vertices])
        if isinstance(plan, ListsOnGpu):
            self.times_grown += plan.grow()

    def _bound(self, kinds: Sequence[CellsOfKind]) -> NearLists | ListsOnGpu:
        """Launches for arrays of these sizes at these addresses, which they keep alive."""
        numbered, first, first_cell = [], 0, 0
        for kind in kinds:
            count, room = kind.cells * kind.vertices, vertices_of(kind.positions)
            arrays = (kind.positions, kind.forces, room)
            numbered.append(VerticesOfKind(*arrays, count, first, first_cell, kind.vertices))
            first += count
            first_cell += kind.cells
        strength, cutoff = self.law.strength, self.law.cutoff
        law = {"strength": strength, "cutoff": cutoff, "anchor": self._anchor}
        if self.device.kind == "cpu":
            bins = self._binned(numbered, first)
            return NearLists(self.device, self._kernels, *bins, numbered, law, self.margin)
        of_bins = {"box_numbers": self._box, "bins": self._bins, "reach": self.reach}
        of_bins |= {"counts": self._counts, "sums": self._sums, "starts": self._starts}
        return ListsOnGpu(self.device, self._kernels, of_bins, numbered, law, self.margin)

    def _binned(
        self, kinds: Sequence[VerticesOfKind], total: int
    ) -> tuple[Callable[[], None], dict[str, Any]]:
        """Puts all vertices into the bins of cores; these as arguments of kernels by name."""
        device, kernels = self.device, self._kernels
        places, items, cells = (device.zeros((total,), np.int32) for _ in range(3))
        positions = device.zeros((3 * total,), np.float64)
        place = [
            kernels["place"].bind(
                box_numbers=self._box,
                positions=kind.positions,
                **kind.numbers,
                places=places,
                extent=(kind.count,),
            )
            for kind in kinds
        ]
        bins = {"starts": self._starts, "bins": self._bins, "items": items}
        collect = [
            kernels["collect"].bind(
                positions=kind.positions,
                **kind.numbers,
                **kind.of_cells,
                **bins,
                sorted=positions,
                cells=cells,
                room=total,
                extent=(total,),
            )
            for kind in kinds
        ]
        sort = kernels["sort_bins"].bind(
            places=places,
            count=total,
            **bins,
            sums=self._sums,
            parts=device.multiprocessors,
            extent=(total,),
        )
        launches = [*place, sort, *collect]

        def fill() -> None:
            for launch in launches:
                launch()

        # Bin of each vertex, first item of each bin; number, position and cell of each item.
        return fill, {
            "places": places,
            "starts": self._starts,
            "items": items,
            "sorted": positions,
            "cells": cells,
            "total": total,
            "box_numbers": self._box,
            "reach": self.reach,
        }


class WallRepulsion:
    """Adds repulsion from walls to the forces of vertices."""

    # The distance from the wall is trilinear between lattice points, and the force goes along its
    # gradient. A point that is no fluid counts as one lattice unit further out than the nearest to
    # the wall of the fluid points around the vertex: exact for plane walls along the lattice.

    def __init__(
        self,
        device: Device,
        box: OwnBox,
        halo: int,
        table: NDArray[np.int32],
        distance: NDArray[np.floating],
        law: RepulsionLaw,
    ) -> None:
        self.law = law
        self._halo = halo
        self._box = device.from_host(box.numbers())
        self._table = device.from_host(np.ascontiguousarray(table, np.int32))
        self._distance = device.from_host(np.ascontiguousarray(distance, np.float64))
        near = _near_walls(table, distance, law.cutoff)
        # Whether any place of the table is near a wall: without one nothing is launched.
        self.within_reach = bool(near.any())
        self._near = device.from_host(near)
        source, constants = kernel_file(device)
        self._kernel = device.kernel(source, "repel_walls", constants)
        self._device = device
        self._launches: dict[tuple[int, ...], tuple[int, Launch]] = {}

    def apply(self, kinds: Sequence[CellsOfKind]) -> None:
        """Add the forces of walls on vertices in the own box and its halo."""
        if self.law.strength == 0 or not self.within_reach:
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

    def forget(self, positions: Array) -> None:
        """Let go of vertices that will not be given again."""
        address = self._device.address(positions)
        self._launches = {key: one for key, one in self._launches.items() if address not in key}

    def _bound(self, kind: CellsOfKind, count: int) -> Launch:
        return self._kernel.bind(
            box_numbers=self._box,
            points=self._table,
            halo=self._halo,
            distance=self._distance,
            near=self._near,
            positions=kind.positions,
            forces=kind.forces,
            vertices=vertices_of(kind.positions),
            count=count,
            strength=self.law.strength,
            cutoff=self.law.cutoff,
            extent=(count,),
            block=(_WIDTH,),
        )


def _near_walls(
    table: NDArray[np.int32], distance: NDArray[np.floating], cutoff: float
) -> NDArray[np.uint8]:
    """Flag the lattice cells, by their lowest corner, in which some place may be near a wall."""
    if len(distance) == 0:
        return np.zeros(table.shape, np.uint8)
    cells = tuple(n - 1 for n in table.shape)
    lowest, missing = np.full(cells, np.inf), np.zeros(cells, bool)
    for corner in itertools.product((0, 1), repeat=3):
        points = table[tuple(slice(a, a + n) for a, n in zip(corner, cells, strict=True))]
        there = points >= 0
        lowest = np.minimum(lowest, np.where(there, distance[points], np.inf))
        missing |= ~there
    near = np.zeros(table.shape, np.uint8)
    # A corner without fluid counts as 1 less than the lowest; and a little more, for rounding.
    near[:-1, :-1, :-1] = lowest - missing < 1.001 * cutoff + 0.001
    return near


def _addresses(device: Device, kinds: Sequence[CellsOfKind]) -> tuple[int, ...]:
    arrays = (array for kind in kinds for array in (kind.positions, kind.forces))
    return tuple(device.address(array) for array in arrays)


def _sizes(kinds: Sequence[CellsOfKind]) -> list[tuple[int, int]]:
    return [(kind.cells, kind.vertices) for kind in kinds]


def kernel_file(target: Target) -> KernelFile:
    """The kernels of this module."""
    return KernelFile(SOURCE, {"real": "double", **({} if target.kind == "cpu" else SIZES)})
