"""Cells that a rank holds, and those that it owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.cells.shared_vertices import SharedVertices
from haloscope.solvers.blood.cells.sharing import CellOwnership, Region
from haloscope.solvers.blood.membranes.cell_shapes import CellShapes
from haloscope.solvers.blood.membranes.membranes import OWN, SHARED, MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh


@dataclass(frozen=True)
class CellKind:
    """Mesh and laws of a kind of cells, in lattice units."""

    name: str  # For people
    mesh: MembraneMesh  # Shape at rest
    law: MembraneLaw  # Of the membrane
    elements: Literal["loop", "linear"] = "loop"  # ``loop`` or ``linear``
    contrast: bool = False  # Whether the fluid inside is more or less viscous


@dataclass
class LocalCells:
    """The cells of one kind that are present on a rank: own ones, and copies of others'."""

    kind: CellKind  # What they are made of
    membranes: Membranes  # Positions, velocities and forces of their vertices
    held: CellOwnership  # Which cells these are, and who else holds them
    total: int = 0  # How many there are on all ranks
    # Rows of the arrays that are worked on: those of the cells present, and some in which a cell is
    # parked outside all lattices, so that launches suit other numbers of cells, too.
    rows: int = 0
    # What gives copies of cells the velocities and forces of vertices that another rank knows.
    shared: SharedVertices | None = None

    @property
    def ids(self) -> np.ndarray:
        """Numbers of the cells present, ascending."""
        return self.held.ids

    @property
    def own(self) -> np.ndarray:
        """Which of them are this rank's own."""
        return self.held.own

    @property
    def count(self) -> int:
        """Cells present."""
        return len(self.held.ids)

    def has(self, part: int) -> bool:
        """Whether there is any cell of a part."""
        parts = self.membranes.parts
        return any(parts[OWN:]) if part == SHARED else parts[part] > 0

    @property
    def vertices(self) -> int:
        """Of all rows that are worked on."""
        return self.rows * self.membranes.vertices


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OwnCells:
    """The n own cells of one kind, by number, in lattice units."""

    ids: NDArray[np.int64]  # (n,) their numbers
    # (n, V, 3) of their vertices; cells are moved by whole periods so that their centres lie in the
    # box. Forces are those of the membrane alone.
    positions: Floats
    velocities: Floats
    forces: Floats
    shapes: CellShapes  # Volumes, areas, centres (in the box) and moments
    # (n,) energies.
    elastic: Floats
    bending: Floats
    folds: Floats

    @property
    def stress(self) -> Floats:
        """(n, 3, 3) stress that membranes add to the suspension, on the cells' volumes."""
        # The stresslet of the forces F that the vertices at x exert on the fluid, over the volume:
        # -sum (x F + F x)/2 (G. K. Batchelor, J. Fluid Mech. 41, 1970, 545, without the term of a
        # different viscosity inside). Multiplied by the share of cells in the volume it is their
        # part of the mean stress.
        arms = self.positions - self.shapes.centre[:, None]
        moments = -np.einsum("nvi,nvj->nij", arms, self.forces)
        with np.errstate(divide="ignore", invalid="ignore"):
            stress: Floats = (moments + moments.swapaxes(1, 2)) / (
                2 * self.shapes.volume[:, None, None]
            )
        return stress


def own_cells(local: LocalCells, region: Region) -> OwnCells:
    """Bring the own cells of a kind to the host."""
    m, own, count = local.membranes, local.own, local.count
    # What was spread to the fluid holds repulsion too, and that only of vertices in this rank's box.
    spread = m.forces.copy()
    m.compute_forces(count)
    positions, velocities, forces = (
        m.on_host(array, count)[own] for array in (m.positions, m.velocities, m.forces)
    )
    m.forces[...] = spread
    shapes = _chosen(m.shapes(count), own)
    energies = m.energies(count)
    shift = region.wrapped(shapes.centre) - shapes.centre
    centred = CellShapes(
        shapes.volume, shapes.area, shapes.centre + shift, shapes.covariance, shapes.quality
    )
    return OwnCells(
        local.ids[own],
        positions + shift[:, None],
        velocities,
        forces,
        centred,
        energies["elastic"][own],
        energies["bending"][own],
        energies["folds"][own],
    )


def _chosen(shapes: CellShapes, own: NDArray[Any]) -> CellShapes:
    return CellShapes(
        shapes.volume[own],
        shapes.area[own],
        shapes.centre[own],
        shapes.covariance[own],
        shapes.quality[own],
    )
