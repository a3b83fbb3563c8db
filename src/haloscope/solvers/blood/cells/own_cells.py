"""A rank's own cells on the host, as outputs need them: whole, and wrapped into the box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.cells.local_cells import LocalCells
from haloscope.solvers.blood.cells.sharing import Region
from haloscope.solvers.blood.membranes.cell_shapes import CellShapes

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
