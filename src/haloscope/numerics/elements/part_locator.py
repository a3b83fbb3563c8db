"""Where points lie in a rank's elements, told by their numbers in the whole mesh."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from haloscope.mesh.hexes.hexes import HexMesh, Integers
from haloscope.mesh.hexes.mesh_parts import mesh_of
from haloscope.numerics.elements.locate import Located, Locator, Nearest


class PartLocator(Locator):
    """Finds points in a rank's elements; where several meet the one with the lowest number has it."""

    def __init__(
        self, mesh: HexMesh, order: int, numbers: Integers, elements: Integers | None = None
    ) -> None:
        chosen = np.arange(len(numbers)) if elements is None else elements
        self._rows = chosen[np.argsort(numbers[chosen], kind="stable")]
        self._numbers = numbers[self._rows]
        super().__init__(mesh_of(mesh, self._rows), order)

    def find(self, points: ArrayLike) -> Located:
        """Find elements by their numbers in the whole mesh, and by their rows on this rank."""
        located = super().find(points)
        if not len(self._rows):
            return located
        inside = located.inside
        return Located(
            np.where(inside, self._numbers[located.rows], -1),
            np.where(inside, self._rows[located.rows], -1),
            located.reference,
        )

    def nearest(self, points: ArrayLike) -> Nearest:
        """As :meth:`Locator.nearest`, with numbers in the whole mesh."""
        nearest = super().nearest(points)
        known = nearest.elements >= 0
        numbers = np.where(known, self._numbers[nearest.elements], -1) if known.any() else -1
        return replace(nearest, elements=np.broadcast_to(numbers, known.shape))
