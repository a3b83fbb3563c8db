"""Cells as closed surfaces: lattice points inside them, their volumes in motion, and how far they reach.

The closed surfaces are cut by the lattice's rows along x. A surface that is entered adds 1 to the
points behind, one that is left takes 1 away: each point gets its winding number, exactly, since
triangles that share an edge share the very numbers of where it is cut, and a row through a vertex
belongs to one side of it. Cells that overlap do not cancel each other.

The cost is that of the cuts, some hundred nanoseconds a triangle on one core, and of two passes over the
own box (inside.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.solvers.blood.coupling.coupling import OwnBox, vertices_of

SOURCE = Path(__file__).with_name("inside.cpp")

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KERNELS = ("find_images", "cut_rows", "add_up_rows", "flag_points")
_WIDTH = 128


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Closed surfaces of cells of one kind, where they are computed."""

    # (3, n) or flat, lattice units: component c of vertex v of cell m at c n + m V + v.
    positions: Array
    # Cells that are there, the first ones of the array, and V.
    cells: int
    vertices: int
    triangles: Array  # int32 (triangles, 3): of a cell, counter-clockwise seen from outside


def kernel_file() -> KernelFile:
    """The kernels of this module."""
    return KernelFile(SOURCE, {"real": "double"})


class Insides:
    """Flags the own points of a rank that lie inside cells.

    Each rank finds the same cuts, whatever its box is.
    """

    def __init__(self, device: Device, box: OwnBox, halo: int, table: NDArray[np.int32]) -> None:
        self._device, self._counts, self._halo = device, box.counts, halo
        self._box = device.from_host(box.numbers())
        self._table = device.from_host(np.ascontiguousarray(table, np.int32))
        nx, ny, nz = box.counts
        self._steps = device.zeros((nz * ny * (nx + 1),), np.int32)
        source, constants = kernel_file()
        self._kernels = {name: device.kernel(source, name, constants) for name in _KERNELS}

    def mark(self, kinds: Sequence[Surfaces], flags: Array) -> None:
        """Set the flags of own points: 1 inside some cell, 0 outside; either on a surface."""
        self._add_cuts(kinds)
        table = {"points": self._table, "halo": self._halo}
        self._by_rows("flag_points", **table, windings=self._steps, flags=flags)

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
                "home": self._device.zeros((3 * kind.cells,), np.float64),
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


# So many values of triangles at once stay in the caches.
_VALUES = 1 << 18


def moved_volumes(
    positions: Floats, velocities: Floats, triangles: NDArray[np.integer], axis: int
) -> tuple[Floats, Floats, Floats]:
    """Volumes of closed surfaces, their centroids, and volumes times the centroids' velocities.

    `positions`, `velocities`: of vertices, (n, V, 3); `triangles`: (E, 3), counter-clockwise seen
    from outside; Returns: volumes V (n,), centroids x_c (n,), and V dx_c/dt (n,).
    """
    # With x the position along the axis, x_c that of the centroid and u_n the velocity along the
    # outward normal, V dx_c/dt is the integral of (x - x_c) u_n over the surface (Reynolds'
    # transport theorem); exact for flat triangles with velocities that are linear on each.
    volumes = np.empty((3, len(positions)))
    portion = max(1, _VALUES // len(triangles))
    for first in range(0, len(positions), portion):
        span = slice(first, first + portion)
        volumes[:, span] = _moved(positions[span], velocities[span], triangles, axis)
    volume, centre, moved = volumes
    return volume, centre, moved


def _moved(x: Floats, u: Floats, triangles: NDArray[np.integer], axis: int) -> list[Floats]:
    start = x[:, :1]
    corners = [np.ascontiguousarray((x - start)[:, triangles[:, k]]) for k in range(3)]
    # Normals as long as twice the triangles' areas.
    normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    volume = (corners[0] * normal).sum(axis=2).sum(axis=1) / 6
    a, b, c = (np.ascontiguousarray(corner[..., axis]) for corner in corners)
    square = a * a + b * b + c * c + a * b + b * c + c * a
    centre = (np.ascontiguousarray(normal[..., axis]) * square).sum(axis=1) / 24 / volume
    a, b, c = (along - centre[:, None] for along in (a, b, c))
    p, q, r = ((u[:, triangles[:, k]] * normal).sum(axis=2) for k in range(3))
    swept = (a + b + c) * (p + q + r) + a * p + b * q + c * r
    return [volume, centre + start[:, 0, axis], swept.sum(axis=1) / 24]


def outermost(
    positions: Floats,
    along: Floats,
    edges: NDArray[np.integer],
    toward: Floats,
    slices: int,
    closed: bool,
) -> Floats:
    """How far surfaces reach in given directions, slice by slice along a vessel.

    A surface of flat triangles reaches farthest within a slice at a vertex or where an edge passes
    into the next slice.
    """
    # `positions`: of vertices, (n, V, 3).
    # `along`: where they are along the vessel, in slices, (n, V).
    # `edges`: (E, 2), vertices at the ends of each edge.
    # `toward`: directions, (k, 3), each of length 1.
    # Returns: (slices, k); -inf where a slice holds no surface.
    outermost = np.full((slices, len(toward)), -np.inf)
    vertices = positions.shape[1]
    points, places = positions.reshape(-1, 3), along.reshape(-1)
    ends = (np.arange(len(positions))[:, None, None] * vertices + edges).reshape(-1, 2)
    a, b = places[ends[:, 0]], places[ends[:, 1]]
    first = np.ceil(np.minimum(a, b)).astype(np.int64)
    count = np.maximum(np.floor(np.maximum(a, b)).astype(np.int64) - first + 1, 0)
    edge = np.repeat(np.arange(len(ends)), count)
    border = first[edge] + np.arange(len(edge)) - (np.cumsum(count) - count)[edge]
    start, stop, a, b = ends[edge, 0], ends[edge, 1], a[edge], b[edge]
    part = np.where(a == b, 0.0, (border - a) / np.where(a == b, 1.0, b - a))
    number = np.concatenate([np.floor(places).astype(np.int64), border - 1, border])
    if closed:
        number %= slices
    order = np.argsort(number, kind="stable")
    order = order[(number[order] >= 0) & (number[order] < slices)]
    present, begin = np.unique(number[order], return_index=True)
    if not len(present):
        return outermost
    for view, direction in enumerate(toward):
        # A product of each coordinate on its own: the same bits for any number of points.
        x, y, z = (points[:, axis] * direction[axis] for axis in range(3))
        reach = x + y + z
        crossing = reach[start] + part * (reach[stop] - reach[start])
        values = np.concatenate([reach, crossing, crossing])[order]
        outermost[present, view] = np.maximum.reduceat(values, begin)
    return outermost
