"""Ranks that are not there: one rank of many is set up as if the others said what it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haloscope.exchange.ranks.world import World


class AbsentWorld(World):
    """Rank 0 of a number of ranks of one host, without MPI and without the others."""

    # Every collective is answered at once: the others have sent what this rank has sent, or nothing
    # in an :meth:`exchange`, and sums are this rank's own. That suffices to open an exchange, and
    # for nothing that computes.

    library = "no MPI (ranks that are not there)"
    present = False

    def __init__(self, size: int) -> None:
        self.size = self.local_size = size

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Give this rank what it has for itself, and nothing from the others."""
        return [parts[0].copy(), *(part[:0].copy() for part in parts[1:])]

    def gather_texts(self, text: str) -> list[str]:
        """Give this rank's text once for each rank."""
        return [text] * self.size
