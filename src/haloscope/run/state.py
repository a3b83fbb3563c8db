"""What the parts of a run share: a case on its device and ranks, and what was recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from haloscope.case import CaseTable
from haloscope.device.interface import Device
from haloscope.exchange.world import World
from haloscope.numerics.landmarks import grid_marks
from haloscope.solvers.interface import Solver


class RunState:
    """A case on its device and ranks, and what its runs have recorded so far.

    Attributes
    ----------
    case, name
        The checked case, and its name in summaries.
    device, world, solver
        Where it is computed, the ranks, and the solver with its fields.
    history
        Rows (step, what the solver has followed), one a diagnostic interval.
    seconds, steps_timed
        Time of this rank's steps in s, and how many steps it is of.
    averages, samples
        Sums of owned values by field, in arrays of the device, and over how many states.
    probe_rows
        Rows of each probe's table.
    notices
        What users should know of how a restart went, beside what the solver has to tell.
    last_checkpoint
        The newest checkpoint that was written or read.
    """

    def __init__(
        self, case: CaseTable, name: str, device: Device, world: World, solver: Solver
    ) -> None:
        self.case = case
        self.name = name
        self.device = device
        self.world = world
        self.solver = solver
        self.history: list[tuple[int, dict[str, float]]] = []
        self.seconds = 0.0
        self.steps_timed = 0
        self.averages: dict[str, Any] = {}
        self.samples = 0
        self.probe_rows: dict[str, list[list[float]]] = {p.name: [] for p in case.output.probes}
        self.notices: list[str] = []
        self.last_checkpoint: Path | None = None
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
