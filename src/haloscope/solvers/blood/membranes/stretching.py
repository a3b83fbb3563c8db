"""Cells pulled apart at two ends, as by optical tweezers: the ends, their forces, and diameters along and across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError, counted
from haloscope.solvers.blood.membranes.membranes import Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Ends = tuple[Integers, Integers]

SOURCE = Path(__file__).with_name("stretching.cpp")
SHARE = 0.05
"""Share of the vertices in each end: of a red cell a patch 2.6 um by 2.3 um on the rim.

Mills et al. give a contact of 2 um. A patch holds its shape, as on a stiff bead. Were each of its
vertices pulled by itself, tips would be drawn out and the cell be 8 to 22 % longer.
"""
HOLDING = 0.05
"""Stiffness that holds the shape of ends in a fluid, in rho dx^3 / dt^2: a hundred times a red cell's modulus of
dilation at 0.5 um and a relaxation time of 1. Cells of 642 to 10,242 vertices bore it at 1 um and relaxation times of
0.6 to 2, and their ends changed by less than 0.05 um at 200 pN; with 0.5 those of 2562 vertices broke."""
# Three points are a body that can turn about every axis.
_FEWEST = 3
# Width of an end over its length below which its vertices lie on a line.
_THIN = 1e-3
# Mirror images are equally far but for rounding: all or none of them belong to an end.
_AS_FAR = 1e-9
_LANES = 32


@dataclass(frozen=True, eq=False)
class Stretch:
    """Where cells of a kind are pulled, and how firmly their ends are held, in consistent units."""

    force: float  # Whole force on each end
    ends: Ends  # Vertices of the two ends
    # Vertices at the ends across them, in the plane of the cell.
    sides: Ends
    stiffness: float  # Of the springs that hold the ends' shapes, force by length

    @classmethod
    def of_mesh(
        cls,
        mesh: MembraneMesh,
        force: float,
        stiffness: float,
        *,
        direction: Sequence[float] = (1.0, 0.0, 0.0),
        share: float = SHARE,
    ) -> Stretch:
        """Ends of a cell at rest, with its axis along z, in a direction from its centre."""
        along = np.array(direction) / np.linalg.norm(direction)
        across = np.cross((0.0, 0.0, 1.0), along)
        if not across.any():
            across = np.array([0.0, 1.0, 0.0])
        across /= np.linalg.norm(across)
        ends, sides = (
            (_end(mesh.vertices, -way, share), _end(mesh.vertices, way, share))
            for way in (along, across)
        )
        return cls(force, ends, sides, stiffness)

    def diameters(self, positions: Floats) -> tuple[Floats, Floats]:
        """Extents (n,) of cells (n, V, 3) along the line between their ends, and across it."""
        along = _between(positions, self.ends)
        across = _between(positions, self.sides)
        across -= (across * along).sum(axis=1, keepdims=True) * along
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        axial, transverse = (
            np.ptp(np.einsum("nvd,nd->nv", positions, way), axis=1) for way in (along, across)
        )
        return axial, transverse


def _end(vertices: Floats, way: Floats, share: float) -> Integers:
    """The vertices on this side nearest to the point on the axis as far out as the cell reaches."""
    height = vertices @ way
    distance = np.linalg.norm(vertices - height.max() * way, axis=1)
    # Through a thin cell those of the other side may be nearer.
    distance[height <= 0.0] = np.inf
    count = min(max(_FEWEST, round(len(vertices) * share)), int((height > 0.0).sum()))
    chosen = np.flatnonzero(distance <= np.sort(distance)[count - 1] * (1 + _AS_FAR))
    centred = vertices[chosen] - vertices[chosen].mean(axis=0)
    length, width, _ = np.linalg.svd(centred, compute_uv=False)
    if width < _THIN * length:
        raise InputError(
            f"{counted(count, 'vertex lies', 'vertices lie')} on a line",
            location="blood.cells.stretch.share",
            remedy="raise it, or set another direction",
        )
    return chosen


def _between(positions: Floats, ends: Ends) -> Floats:
    """Unit vectors (n, 3) from the mean of the first end's vertices to that of the second's."""
    first, second = (positions[:, end].mean(axis=1) for end in ends)
    away = second - first
    unit: Floats = away / np.linalg.norm(away, axis=1, keepdims=True)
    return unit


class Pull:
    """Pulls the ends of cells of a kind on a device.

    `cells`: cells with a force of their own, by row; 0: all have the same.
    """

    def __init__(
        self, device: Device, stretch: Stretch, mesh: MembraneMesh, *, cells: int = 0
    ) -> None:
        self._device, self._stretch = device, stretch
        file = kernel_file()
        self._kernel = device.kernel(file.source, "pull_ends", file.constants)
        rest = [mesh.vertices[end] - mesh.vertices[end].mean(axis=0) for end in stretch.ends]
        begins = np.cumsum([0, *map(len, stretch.ends)])
        self._force: Array = device.zeros((max(cells, 1),), np.float64)
        # Arguments of the kernel by name.
        self._fixed: dict[str, Any] = {
            "vertices": device.from_host(np.concatenate(stretch.ends).astype(np.int32)),
            "begins": device.from_host(begins.astype(np.int32)),
            "rest": device.from_host(np.ascontiguousarray(np.concatenate(rest).T).ravel()),
            "pull": self._force,
            "apart": int(cells > 0),
            "stiffness": stretch.stiffness,
        }
        self.force = 0.0  # Now, where all cells have the same
        self._cells: Membranes | None = None
        self._launches: dict[int, Launch] = {}

    def set(self, factor: float) -> None:
        """Set the force of the coming launches to a multiple of the kind's."""
        force = factor * self._stretch.force
        if force != self.force:
            self._force[...] = self.force = force

    def set_forces(self, forces: Floats) -> None:
        """Set forces of cells' own, by row."""
        self._force[...] = self._device.from_host(forces)

    def apply(self, cells: Membranes, part: int, stream: Any = None) -> None:
        """Add the pull to the forces of the cells of a part, and make their ends stiff."""
        if cells is not self._cells:
            self._cells = cells
            self._launches.clear()
        if part not in self._launches:
            rows, span = cells.part(part)
            self._launches[part] = self._kernel.bind(
                positions=cells.view(cells.positions, part),
                forces=cells.view(cells.forces, part),
                **self._fixed,
                rows=rows,
                span=span,
                capacity=cells.capacity,
                V=cells.vertices,
                extent=(cells.capacity * _LANES,),
                block=(_LANES,),
                stream=stream,
            )
        self._launches[part]()


def kernel_file() -> KernelFile:
    """The kernel that pulls ends of cells."""
    return KernelFile(SOURCE, {"real": "double"})
