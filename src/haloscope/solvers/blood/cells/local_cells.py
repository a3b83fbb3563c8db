"""Cells that a rank holds, their owners and other holders; own cells on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.shared_vertices import SharedVertices
from haloscope.solvers.blood.membranes.cell_shapes import CellShapes
from haloscope.solvers.blood.membranes.membranes import OWN, SHARED, MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class CellKind:
    """Mesh and laws of a kind of cells, in lattice units."""

    name: str  # For people
    mesh: MembraneMesh  # Shape at rest
    law: MembraneLaw  # Of the membrane
    elements: Literal["loop", "linear"] = "loop"  # ``loop`` or ``linear``
    contrast: bool = False  # Whether the fluid inside is more or less viscous


@dataclass(eq=False)
class LocalCells:
    """The n cells of one kind that are present on a rank: own ones, and copies of others'."""

    kind: CellKind  # What they are made of
    membranes: Membranes  # Positions, velocities and forces of their vertices
    rank: int
    ids: Integers  # (n,) their numbers, ascending; another array after each change
    owners: Integers  # (n,) ranks, the same on all that hold the cell; -1: it is taken out
    holders: Flags  # (n, ranks) which ranks hold them, this one included; the same on all of these
    total: int = 0  # How many there are on all ranks
    # Rows of the arrays that are worked on: those of the cells present, and some in which a cell is
    # parked outside all lattices, so that launches suit other numbers of cells, too.
    rows: int = 0
    # What gives copies of cells the velocities and forces of vertices that another rank knows.
    shared: SharedVertices | None = None

    @classmethod
    def none(cls, kind: CellKind, membranes: Membranes, world: World) -> LocalCells:
        """No cell of a kind."""
        return cls(kind, membranes, world.rank, *_nothing(world.size))

    def clear(self) -> None:
        """Hold no cell from now on."""
        self.total = 0
        self.ids, self.owners, self.holders = _nothing(self.holders.shape[1])

    def disown(self, gone: Flags) -> None:
        """Take cells out at the next migration: what nobody owns is held by nobody after it."""
        self.owners = np.where(gone & self.own, -1, self.owners)

    @property
    def own(self) -> Flags:
        """Which cells are this rank's own, (n,)."""
        own: Flags = self.owners == self.rank
        return own

    @property
    def count(self) -> int:
        """Cells present."""
        return len(self.ids)

    @property
    def vertices(self) -> int:
        """Of all rows that are worked on."""
        return self.rows * self.membranes.vertices

    def has(self, part: int) -> bool:
        """Whether there is any cell of a part."""
        parts = self.membranes.parts
        return any(parts[OWN:]) if part == SHARED else parts[part] > 0

    def parts(self) -> tuple[Integers, Integers, Integers]:
        """Rows of own cells that no other rank holds, of own cells that others hold, too, and of others'."""
        shared = self.holders.sum(axis=1) > 1
        parts = ~shared, shared & self.own, shared & ~self.own
        alone, own, copies = (np.flatnonzero(part) for part in parts)
        return alone, own, copies

    def sharing(self) -> tuple[dict[int, Integers], Integers]:
        """Rows of the cells that each other rank holds, too, by rank; and the owners of all cells."""
        others = np.flatnonzero(self.holders.any(axis=0)).tolist()
        rows = {rank: np.flatnonzero(self.holders[:, rank]) for rank in others if rank != self.rank}
        return rows, self.owners

    def fits_messages(self) -> bool:
        """Whether there is room in messages for the cells that are shared."""
        rows, owners = self.sharing()
        return not rows or (self.shared is not None and self.shared.fits(rows, owners))


def _nothing(ranks: int) -> tuple[Integers, Integers, Flags]:
    """Numbers, owners and holders of no cells."""
    none = np.zeros(0, np.int64)
    return none, none, np.zeros((0, ranks), bool)


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
