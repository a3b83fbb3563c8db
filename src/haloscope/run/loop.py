"""The one time loop: steps, diagnostics, output, checkpoints. It knows no physics."""

from __future__ import annotations

import time
from pathlib import Path

from haloscope.device.meters import EnergyTally
from haloscope.errors import SolutionError
from haloscope.io import checkpoint as checkpoints
from haloscope.run.checkpointing import write_state
from haloscope.run.records import (
    append_history,
    keep_frame,
    sample_average,
    sample_probes,
    write_fields,
)
from haloscope.run.state import DIAGNOSTICS, OUTPUT, STEPS, Progress, RunState, StopRequest
from haloscope.run.summary import rate_in_words

_POLL_SECONDS = 0.5


class TimeLoop:
    """Takes the steps of one run, and does what is due between them."""

    def __init__(
        self,
        state: RunState,
        out: Path | None,
        stop: StopRequest,
        tally: EnergyTally,
        progress: Progress,
    ) -> None:
        self._state = state
        self._out = out
        self._stop = stop
        self._tally = tally
        self._progress = progress
        # Steps between two frames of the animation, from the step at which the run begins; 0: none.
        self._frame_interval = self._begun = 0

    def run(self, end: int) -> bool:
        """Step from event to event; tells whether the steady state was reached."""
        state, progress = self._state, self._progress
        case, solver = state.case, state.solver
        saved = time.monotonic()
        poll = 1
        residual: float | None = None
        frames = case.output.frames if self._out is not None else 0
        self._begun = state.step
        self._frame_interval = max(1, -(-(end - state.step) // frames)) if frames else 0
        if self._frame_interval:
            keep_frame(state)
        if state.step == 0:
            self._at_events()
        while state.step < end and not self._stop.reached(state.world):
            target = min(self._next_event(end), state.step + poll)
            try:
                poll = self._timed_steps(target - state.step)
            except SolutionError as error:
                raise self._broke(error) from error
            rate = rate_in_words(state)
            if state.step % case.run.diagnostics_interval == 0 or state.step == end:
                followed = self._look(record=True)
                residual = max(followed.values()) if solver.followed.steady else None
                if residual is not None and residual < case.run.tolerance:
                    progress.update(state.step, end, rate, residual)
                    self._at_events()
                    self._save_when_due(saved, at_end=True)
                    return True
            progress.update(state.step, end, rate, residual)
            self._at_events()
            if self._save_when_due(saved, at_end=state.step == end):
                saved = time.monotonic()
        if self._stop.reached(state.world) and self._out is not None:
            # First of all: who sent a signal may not wait for the other outputs.
            self.save(self._out)
        return False

    def _next_event(self, end: int) -> int:
        case = self._state.case
        intervals = [case.run.diagnostics_interval, case.output.interval, case.checkpoint.interval]
        if case.output.probes:
            intervals.append(case.output.probe_interval)
        if case.output.average is not None:
            intervals.append(case.output.average.interval)
        step = self._state.step
        events = [end, *((step // i + 1) * i for i in intervals if i > 0)]
        if self._frame_interval:
            taken = (step - self._begun) // self._frame_interval
            events.append(self._begun + (taken + 1) * self._frame_interval)
        return min(events)

    def _timed_steps(self, count: int) -> int:
        """Take steps and tell how many more may pass until signals are looked at."""
        self._tally.begin()
        with STEPS:
            self._state.device.synchronise()
            start = time.perf_counter()
            self._state.solver.advance(count)
            self._state.device.synchronise()
            taken = time.perf_counter() - start
        self._tally.end(taken)
        self._state.seconds += taken
        self._state.steps_timed += count
        slowest = self._state.world.largest(taken)
        return max(1, int(_POLL_SECONDS * count / max(slowest, 1e-6)))

    def _look(self, *, record: bool) -> dict[str, float]:
        """Monitored values of the present state, which must be sound; recorded or not."""
        with DIAGNOSTICS:
            try:
                values = self._state.solver.follow()
            except SolutionError as error:
                raise self._broke(error) from error
        if not all(value < self._state.solver.followed.limit for value in values.values()):
            raise SolutionError(
                f"the solution broke before step {self._state.step} (values are not finite or change "
                f"ever faster); {self._kept()}",
                remedy=self._state.solver.advice(),
            )
        if record and (not self._state.history or self._state.history[-1][0] != self._state.step):
            self._state.history.append((self._state.step, values))
            if self._out is not None and self._state.world.is_root:
                append_history(self._state, self._out)
                if self._state.solver.followed.record is not None:
                    self._state.solver.followed.record(self._out)
        return values

    def _kept(self) -> str:
        """Checkpoint from which a broken run can continue."""
        if self._state.last_checkpoint is not None:
            return f"the last good checkpoint is {self._state.last_checkpoint}"
        return "no checkpoint was written (set checkpoint.interval)"

    def _broke(self, error: SolutionError) -> SolutionError:
        """Error of a solver that gives up within a step; its state is kept for inspection."""
        kept = self._kept()
        if self._out is not None:
            path = self._out / f"broken-{self._state.step:010d}.h5"
            write_state(self._state, path)
            kept = f"the state is in {path}, {kept}"
        return SolutionError(
            f"{error.problem}; {kept}",
            location=error.location,
            allowed=error.allowed,
            remedy="; ".join(filter(None, (error.remedy, self._state.solver.advice()))),
        )

    def _at_events(self) -> None:
        state, out = self._state, self._out
        output = state.case.output
        if output.probes and state.step % output.probe_interval == 0:
            sample_probes(state, out)
        average = output.average
        due = average is not None and state.step >= average.start and state.step > 0
        if average is not None and due and state.step % average.interval == 0:
            sample_average(state)
        frames = self._frame_interval
        if frames and state.step > self._begun and (state.step - self._begun) % frames == 0:
            keep_frame(state)
        if out is not None and output.interval and state.step % output.interval == 0:
            write_fields(state, out / f"fields-{state.step:010d}.vtkhdf")
            with OUTPUT:
                state.solver.at_output(out)

    def _save_when_due(self, saved: float, *, at_end: bool) -> bool:
        """Write a checkpoint when steps, minutes or the end of the run ask for one."""
        if self._out is None:
            return False
        wanted = self._state.case.checkpoint
        due = wanted.interval > 0 and self._state.step % wanted.interval == 0
        late = wanted.minutes > 0 and self._state.world.any(
            time.monotonic() - saved > 60 * wanted.minutes
        )
        if not (due or late or (at_end and wanted.at_end)):
            return False
        self.save(self._out)
        return True

    def save(self, out: Path) -> None:
        """Write a checkpoint of a state that was seen to be good, and drop old ones."""
        self._look(record=False)
        path = checkpoints.checkpoint_path(out, self._state.step)
        write_state(self._state, path)
        self._state.last_checkpoint = path
        if self._state.world.is_root:
            checkpoints.prune(out, self._state.case.checkpoint.keep)
