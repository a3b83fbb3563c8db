"""The cells of one kind that are on a rank: what they are made of, where they are and whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from haloscope.solvers.blood.cells.shared_vertices import SharedVertices
from haloscope.solvers.blood.cells.sharing import CellOwnership
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

ALONE, OWN, COPIES, SHARED = range(4)
"""Parts of the cells of a rank: own ones that no other rank holds, others of its own, copies of
others', and the last two together."""


@dataclass(frozen=True)
class CellKind:
    """What cells of a kind are made of, in lattice units."""

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
