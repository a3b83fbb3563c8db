"""When cells are looked at, and when they are handed over to other ranks, by how fast they are."""

from __future__ import annotations

import sys

from haloscope.solvers.blood.cells.shared_vertices import MARGIN

FIRST_STEPS = 4
"""Steps after the start, in which cells may gain any sound speed."""

# Speeds in spacings a step below which it does not matter how slow vertices are.
_STILL = 1e-6


class CellTimetable:
    """Says at which steps cells are looked at and handed over.

    Looks tell the largest speed. Cells are handed over before a vertex at twice that can have left
    the margin since they were handed over last; as long as it cannot have, a look is enough.
    """

    def __init__(self, interval: int, *, hands_over: bool) -> None:
        self._interval, self._hands_over = interval, hands_over
        # Steps after which cells are to be handed over, and after which they are to be looked at;
        # :data:`sys.maxsize`: not before the other.
        self.due, self.look_at = 0, sys.maxsize
        # Steps that were thought of last, and spacings that a vertex may have moved since a hand-over
        # when the next look is due.
        self._last, self._moved = FIRST_STEPS, 0.0
        self._margin = MARGIN

    def handed_over(self, step: int, fastest: float, margin: float = MARGIN) -> None:
        """Take note that cells were handed over after a step, with this largest speed and margin."""
        self._moved, self._margin = 0.0, margin
        if step or not self._hands_over:
            self.looked(step, fastest)
        else:
            self.due, self.look_at = FIRST_STEPS, sys.maxsize

    def looked(self, step: int, fastest: float) -> None:
        """Take note that cells were looked at."""
        pace = max(2 * fastest, _STILL)
        # Speeds grow no faster than this looks again.
        steps = min(self._interval, 2 * max(self._last, FIRST_STEPS))
        self._last = max(1, min(steps, int(self._margin / pace)))
        left = int((self._margin - self._moved) / pace)
        self.due = self.look_at = sys.maxsize
        if self._hands_over and left <= steps:
            self.due = step + max(1, left)
        else:
            self.look_at = step + steps
            self._moved += steps * pace
