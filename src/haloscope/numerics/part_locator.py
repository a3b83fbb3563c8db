"""Where points lie in a rank's elements, told by their numbers in the whole mesh."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from haloscope.domain.hexes import HexMesh, Integers
from haloscope.domain.mesh_parts import some_of
from haloscope.numerics.locate import Located, Locator, Nearest


class PartLocator(Locator):
    """Finds points in a rank's elements; where several meet the one with the lowest number has it."""

    def __init__(
        self, mesh: HexMesh, order: int, numbers: Integers, some: Integers | None = None
    ) -> None:
        chosen = np.arange(len(numbers)) if some is None else some
        self._rows = chosen[np.argsort(numbers[chosen], kind="stable")]
        self._numbers = numbers[self._rows]
        super().__init__(some_of(mesh, self._rows), order)

    def find(self, points: ArrayLike) -> Located:
        """Find elements by their numbers in the whole mesh, and by their rows on this rank."""
        found = super().find(points)
        if not len(self._rows):
            return found
        inside = found.inside
        return Located(
            np.where(inside, self._numbers[found.rows], -1),
            np.where(inside, self._rows[found.rows], -1),
            found.reference,
        )

    def nearest(self, points: ArrayLike) -> Nearest:
        """As :meth:`Locator.nearest`, with numbers in the whole mesh."""
        found = super().nearest(points)
        known = found.elements >= 0
        numbers = np.where(known, self._numbers[found.elements], -1) if known.any() else -1
        return replace(found, elements=np.broadcast_to(numbers, known.shape))
