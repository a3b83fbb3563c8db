"""State of a run: steps taken, progress, phases, requests to stop."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from haloscope.case.tables import CaseTable
from haloscope.device.interface import Device
from haloscope.errors import message_line
from haloscope.exchange.ranks.launch import requested_signal
from haloscope.exchange.ranks.world import World
from haloscope.io.figures.animations import Frames
from haloscope.io.interrupts import SAME_REQUEST_SECONDS, Interrupted
from haloscope.io.notebooks import html_table
from haloscope.numerics.reduce import grid_marks
from haloscope.regions import Region
from haloscope.solvers.interface import Solver

STEPS = Region("steps")
DIAGNOSTICS = Region("diagnostics")
OUTPUT = Region("output")
CHECKPOINT = Region("checkpoint")
RESULTS = Region("results")


class Progress(Protocol):
    """Shows how far a run is; :class:`Silent` shows nothing."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Tell steps done and wanted, the rate in words, and the largest residual."""

    def line(self, text: str) -> None:
        """Tell something once."""


class Silent:
    """Progress that nobody watches."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show nothing."""

    def line(self, text: str) -> None:
        """Show nothing."""


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
        # What the animation is drawn from, on rank 0.
        self.frames = Frames()
        # Rows of each probe's table.
        self.probe_rows: dict[str, list[list[float]]] = {p.name: [] for p in case.output.probes}
        # What users should know of how a restart went, beside what the solver has to tell.
        self.notices: list[str] = []
        # Whether ranks take turns on cores, so that rates are not those of the machine; and how many
        # of them share a core of this rank: each measures the bandwidth of the core while it has it.
        self.ranks_exceed_cores = False
        self.ranks_per_core = 1.0
        self.last_checkpoint: Path | None = None  # The newest checkpoint that was written or read
        self._marks: dict[str, Any] | None = None

    def grid_marks(self) -> dict[str, Any]:
        """Identification of the grid in checkpoints; all ranks call this."""
        if self._marks is None:
            self._marks = grid_marks(self.world, self.solver.layout)
        return self._marks

    @property
    def step(self) -> int:
        """Steps taken since the start of the case."""
        return self.solver.step

    # No rank asks another one here: a notebook shows what is on rank 0.

    def __repr__(self) -> str:
        solver = self.solver
        about = f"{solver.name} on {self.device.name}, step {solver.step} of {solver.last_step}"
        return message_line(f"<simulation {self.name}: {about}>")

    def _repr_html_(self) -> str:
        solver, fields = self.solver, self.solver.fields.values()
        rows = [
            ("solver", solver.name),
            ("device", self.device.name),
            ("ranks", self.world.size),
            ("mesh", solver.layout.describe()),
            ("step", f"{solver.step} of {solver.last_step}"),
        ]
        if solver.time is not None:
            rows.append(("time", f"{solver.time:.4g} s"))
        rows += [(field.name, f"{field.meaning} ({field.unit})") for field in fields]
        return html_table(f"simulation {self.name}: {self.case.title}".rstrip(": "), rows)


# Of the signals of several ranks the last one here counts.
_BY_WEIGHT = (None, signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """The signal that asks a run to stop, if one came."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._since = 0.0

    def note(self, number: int, frame: FrameType | None) -> None:
        """Turn SIGINT and SIGTERM into a stop after the present steps; a second Ctrl-C is one."""
        now = time.monotonic()
        if self._number is None:
            self._number, self._since = requested_signal(number), now
        elif number == signal.SIGINT and now - self._since > SAME_REQUEST_SECONDS:
            raise Interrupted(number)

    def reached(self, world: World) -> bool:
        """Whether any rank has got a signal; all ranks ask at the same steps."""
        # One number for all ranks: some may not know of a Ctrl-C, or have got no signal.
        agreed = _BY_WEIGHT[int(world.largest(_BY_WEIGHT.index(self._number)))]
        if agreed is None:  # a signal that came meanwhile stays
            return False
        self._number = agreed
        return True

    @property
    def name(self) -> str | None:
        """Name of the signal; None where none came."""
        return signal.Signals(self._number).name if self._number else None
