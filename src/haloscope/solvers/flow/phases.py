"""How long the parts of time steps took: the components that a run reports at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from haloscope import regions
from haloscope.regions import Region

FORMING = "form left and right sides"
SOLVING = "GMRES"
PRODUCT = "matrix-vector product"
GATHER, SCATTER = "gather", "scatter"
COMPONENTS = (FORMING, SOLVING, PRODUCT, GATHER, SCATTER, "preconditioner", "reductions")
"""Names of regions, each with all that is inside it, as Wylie, Geimer, Nicolai and Probst name the
parts of XNS ("Performance analysis and tuning of the XNS CFD solver on Blue Gene/L", 2007), and two
more: reductions are what inner products take over all ranks."""
AWAITED = (FORMING, SOLVING)
"""Those at whose ends the host waits for the device. Others lie within graphs that GPUs replay by
themselves, or are launched and not waited for: what the host sees of them is not their time."""


class PhaseTimes:
    """Adds up the seconds of named regions while it listens: ``with phases: ...``, again and again.

    A region within one of the same name counts once.
    """

    def __init__(self, names: Sequence[str] = COMPONENTS) -> None:
        self._numbers = {Region(name).number: name for name in names}
        self.seconds = dict.fromkeys(names, 0.0)
        self.visits = dict.fromkeys(names, 0)
        self._open: dict[int, tuple[int, float]] = {}

    def __enter__(self) -> PhaseTimes:
        regions.attach(self._on_enter, self._on_leave)
        return self

    def __exit__(self, *unused: object) -> None:
        regions.detach()

    def _on_enter(self, number: int) -> None:
        if number in self._numbers:
            depth, begun = self._open.get(number, (0, 0.0))
            self._open[number] = (depth + 1, begun if depth else time.perf_counter())

    def _on_leave(self, number: int) -> None:
        if number not in self._open:
            return
        depth, begun = self._open.pop(number)
        if depth > 1:
            self._open[number] = (depth - 1, begun)
            return
        name = self._numbers[number]
        self.seconds[name] += time.perf_counter() - begun
        self.visits[name] += 1

    def table(self, whole: float) -> Mapping[str, Mapping[str, float]]:
        """Seconds, share of a whole time, and visits of the components that were met."""
        return {
            name: {"seconds": s, "share": s / whole, "visits": self.visits[name]}
            for name, s in self.seconds.items()
            if self.visits[name]
        }
