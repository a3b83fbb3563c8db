"""What the parts of a run share: a case on its device and ranks, and what was recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haloscope.case.tables import CaseTable
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.numerics.elements.landmarks import grid_marks
from haloscope.solvers.interface import Solver


class RunState:
    """A case on its device and ranks, and what its runs have recorded so far."""

    def __init__(
        self, case: CaseTable, name: str, device: Device, world: World, solver: Solver
    ) -> None:
        # The checked case, and its name in summaries.
        self.case = case
        self.name = name
        # Where it is computed, the ranks, and the solver with its fields.
        self.device = device
        self.world = world
        self.solver = solver
        # Rows (step, what the solver has followed), one a diagnostic interval.
        self.history: list[tuple[int, dict[str, float]]] = []
        # Time of this rank's steps in s, and how many steps it is of.
        self.seconds = 0.0
        self.steps_timed = 0
        # Sums of owned values by field, in arrays of the device, and over how many states.
        self.averages: dict[str, Any] = {}
        self.samples = 0
        # Rows of each probe's table.
        self.probe_rows: dict[str, list[list[float]]] = {p.name: [] for p in case.output.probes}
        # What users should know of how a restart went, beside what the solver has to tell.
        self.notices: list[str] = []
        self.last_checkpoint: Path | None = None  # The newest checkpoint that was written or read
        self._marks: dict[str, Any] | None = None

    def grid_marks(self) -> dict[str, Any]:
        """What checkpoints keep of the grid; all ranks call this."""
        if self._marks is None:
            self._marks = grid_marks(self.world, self.solver.places)
        return self._marks

    @property
    def step(self) -> int:
        """Steps taken since the start of the case."""
        return self.solver.step
