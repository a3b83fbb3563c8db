"""Lattice points inside cells, for the viscosity of the liquid in cells.

The closed surfaces are cut by the lattice's rows along x. A surface that is entered adds 1 to the
points behind, one that is left takes 1 away: each point gets its winding number, exactly, since
triangles that share an edge share the very numbers of where it is cut, and a row through a vertex
belongs to one side of it. Cells that overlap do not cancel each other.

The cost is that of the cuts, some hundred nanoseconds a triangle on one core, and of two passes over the
own box (inside.cpp).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.solvers.blood.coupling.coupling import OwnBox, vertices_of

SOURCE = Path(__file__).with_name("inside.cpp")

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KERNELS = ("find_images", "cut_rows", "add_up_rows", "flag_points")
_WIDTH = 128


@dataclass(frozen=True, eq=False)
class ClosedCells:
    """Cells of one kind as closed surfaces."""

    # Host array (3, cells, vertices), lattice units; they go on over periodic ends.
    positions: Floats
    # Vertices of each triangle (triangles, 3), counter-clockwise seen from outside.
    triangles: Integers

    def __post_init__(self) -> None:
        edges = self.triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
        there = np.unique(edges, axis=0)
        back = np.unique(edges[:, ::-1], axis=0)
        if len(there) != len(edges) or not np.array_equal(there, back):
            raise InputError(
                "the surface of a cell is not closed or not oriented",
                allowed="edges of two triangles that run through them in opposite directions",
            )


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Closed surfaces of cells of one kind, where they are computed."""

    # (3, n) or flat, lattice units: component c of vertex v of cell m at c n + m V + v.
    positions: Array
    # Cells that are there, the first ones of the array, and V.
    cells: int
    vertices: int
    triangles: Array  # int32 (triangles, 3): of a cell, as for :class:`ClosedCells`


def kernel_file(dtype: DTypeLike = np.float64) -> KernelFile:
    """The kernels of this module for positions of a type."""
    return KernelFile(SOURCE, {"real": "double" if np.dtype(dtype) == np.float64 else "float"})


class Insides:
    """Flags the own points of a rank that lie inside cells.

    Each rank finds the same cuts, whatever its box is.
    `dtype`: float64 or float32, of positions.
    """

    def __init__(
        self,
        device: Device,
        box: OwnBox,
        halo: int,
        table: NDArray[np.int32],
        *,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self._device, self._counts, self._halo = device, box.counts, halo
        self._dtype = np.dtype(dtype)
        self._box = device.from_host(box.numbers())
        self._table = device.from_host(np.ascontiguousarray(table, np.int32))
        nx, ny, nz = box.counts
        self._steps = device.zeros((nz * ny * (nx + 1),), np.int32)
        source, constants = kernel_file(dtype)
        self._kernels = {name: device.kernel(source, name, constants) for name in _KERNELS}

    def mark(self, kinds: Sequence[Surfaces], flags: Array) -> None:
        """Set the flags of own points: 1 inside some cell, 0 outside; either on a surface."""
        self._add_cuts(kinds)
        table = {"points": self._table, "halo": self._halo}
        self._by_rows("flag_points", **table, windings=self._steps, flags=flags)

    def windings(self, kinds: Sequence[Surfaces]) -> NDArray[np.int32]:
        """How many cells each place of the own box lies in, (z, y, x)."""
        self._add_cuts(kinds)
        nx, ny, nz = self._counts
        windings: NDArray[np.int32] = self._device.to_host(self._steps).reshape(nz, ny, nx + 1)
        self._steps.fill(0)
        return windings[:, :, :-1]

    def _add_cuts(self, kinds: Sequence[Surfaces]) -> None:
        for kind in kinds:
            if kind.cells == 0:
                continue
            arguments: dict[str, Any] = {
                "box_numbers": self._box,
                "positions": kind.positions,
                "vertices": vertices_of(kind.positions),
                "cells": kind.cells,
                "a_cell": kind.vertices,
                "home": self._device.zeros((3 * kind.cells,), self._dtype),
                "images": self._device.zeros((6 * kind.cells,), np.int32),
            }
            self._kernels["find_images"].bind(**arguments, extent=(kind.cells,), block=(_WIDTH,))()
            triangles = len(kind.triangles)
            self._kernels["cut_rows"].bind(
                **arguments,
                triangles=kind.triangles,
                count=triangles,
                steps=self._steps,
                extent=(kind.cells * triangles,),
                block=(_WIDTH,),
            )()
        self._by_rows("add_up_rows", steps=self._steps)

    def _by_rows(self, name: str, **arguments: Any) -> None:
        extent = (math.prod(self._counts[1:]),)
        self._kernels[name].bind(
            box_numbers=self._box, **arguments, extent=extent, block=(_WIDTH,)
        )()


def inside_flags(
    kinds: Sequence[ClosedCells],
    box: OwnBox,
    halo: int,
    table: NDArray[np.int32],
    owned: int,
    device: Device | None = None,
) -> NDArray[np.uint8]:
    """Flag the own points that lie inside some cell, once.

    Returns: (owned,) uint8: 1 inside, 0 outside. A point on a surface may be either.
    """
    where = _cores() if device is None else device
    flags = where.zeros((owned,), np.uint8)
    Insides(where, box, halo, table).mark(_brought(kinds, where), flags)
    host_flags: NDArray[np.uint8] = where.to_host(flags)
    return host_flags


def _brought(kinds: Sequence[ClosedCells], device: Device) -> list[Surfaces]:
    pieces = []
    for kind in kinds:
        _, cells, vertices = kind.positions.shape
        positions = device.from_host(np.ascontiguousarray(kind.positions, np.float64))
        triangles = device.from_host(kind.triangles.astype(np.int32))
        pieces.append(Surfaces(positions, cells, vertices, triangles))
    return pieces


@functools.cache
def _cores() -> CpuDevice:
    return CpuDevice()
