"""The one time loop: steps, diagnostics, output, checkpoints. It knows no physics."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

from haloscope.case import CaseTable, read_case
from haloscope.device import open_device
from haloscope.device.ceilings import Ceilings, measure_ceilings
from haloscope.device.energy import LEAST_SECONDS, EnergyMeter, EnergyTally
from haloscope.device.interface import Device
from haloscope.errors import InputError, MachineError, SolutionError
from haloscope.exchange.block_fields import gathered
from haloscope.exchange.world import World, open_world
from haloscope.folders import make_folder
from haloscope.interrupts import SAME_REQUEST_SECONDS, Interrupted, handled_by
from haloscope.io import checkpoint as checkpoints
from haloscope.io.atomic import write_json, write_text
from haloscope.outputs import append_row, draw_overview, table_row
from haloscope.provenance import provenance
from haloscope.scope.regions import Profile, Region
from haloscope.solvers import registry
from haloscope.solvers.interface import Solver

_STEPS = Region("steps")
_DIAGNOSTICS = Region("diagnostics")
_OUTPUT = Region("output")
_CHECKPOINT = Region("checkpoint")
_RESULTS = Region("results")

_POLL_SECONDS = 0.5


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


class Simulation:
    """A case on its device and ranks, ready to run.

    Parameters
    ----------
    case
        A checked case; :func:`load` makes one from a file.
    name
        Name for output folders; the case file's.
    device
        ``cpu``, ``cuda`` or ``auto`` in place of the case's own; or an opened device.
    world
        The ranks; those that the process was started with by default.

    Attributes
    ----------
    solver
        The solver, with its fields on the device.
    history
        Rows (step, what the solver has followed), one a diagnostic interval.

    Examples
    --------
    >>> import haloscope
    >>> simulation = haloscope.load("cases/cavity-demo.toml", settings=["cavity.nodes=17"])
    >>> summary = simulation.run(steps=100)
    >>> simulation.field("T").shape
    (17, 17, 17)
    """

    def __init__(
        self,
        case: CaseTable,
        *,
        name: str = "case",
        device: str | Device | None = None,
        world: World | None = None,
    ) -> None:
        self.case = case
        self.name = name
        self.world = open_world() if world is None else world
        if device is None or isinstance(device, str):
            kind = device or case.machine.device
            threads = case.machine.threads or None
            device = open_device(kind, local_rank=self.world.local_rank, threads=threads)
        self.device = device
        self._check_memory()
        self.solver: Solver = registry.make_solver(case, device, self.world)
        self.history: list[tuple[int, dict[str, float]]] = []
        self.seconds = 0.0
        self.steps_timed = 0
        self._energy: EnergyTally | None = None
        self._averages: dict[str, Any] = {}
        self._samples = 0
        self._probe_rows: dict[str, list[list[float]]] = {p.name: [] for p in case.output.probes}
        self._last_checkpoint: Path | None = None
        self._signal: int | None = None
        self._signalled = 0.0
        self._check_probes()

    def _check_memory(self) -> None:
        """Refuse a case that cannot fit before anything is allocated."""
        needed = registry.estimate(self.case)["memory_bytes"] / self.world.size
        free, _ = self.device.memory()
        sharing = self.world.local_size if self.device.kind == "cpu" else 1
        if needed > free / sharing:
            raise MachineError(
                f"the case needs about {needed / 1e9:.3g} GB a rank but {free / sharing / 1e9:.3g} "
                f"GB are free on {self.device.name}; use fewer nodes, more ranks or single precision"
            )

    def _check_probes(self) -> None:
        for probe in self.case.output.probes:
            self.solver.places.require_inside(f"probe {probe.name}", probe.position)

    # State for the user

    @property
    def step(self) -> int:
        """Steps taken since the start of the case."""
        return self.solver.step

    def field(self, name: str) -> np.ndarray | None:
        """A whole field on rank 0 as a NumPy array; None on other ranks.

        Its shape is (nz, ny, nx) on a grid, (elements, N + 1, N + 1, N + 1) on elements of order N.

        Raises
        ------
        InputError
            The solver has no such field.
        """
        if name not in self.solver.fields:
            known = ", ".join(self.solver.fields)
            raise InputError(f"there is no field {name!r}; the solver has {known}")
        places = self.solver.places
        return places.collect(self.solver.relative(name), 0, places.shape[0])

    @property
    def fields(self) -> dict[str, np.ndarray | None]:
        """All fields as by :meth:`field`."""
        return {name: self.field(name) for name in self.solver.fields}

    def diagnostics(self) -> dict[str, float]:
        """The solver's diagnostics of the present state."""
        return self.solver.diagnostics()

    # The loop

    def run(
        self,
        steps: int | None = None,
        *,
        out: str | Path | None = None,
        restart: bool = False,
        progress: Progress | None = None,
        ceilings: bool = True,
        profile: bool = False,
    ) -> dict[str, Any]:
        """Run to the case's last step, to steady state, or until a signal.

        SIGINT and SIGTERM end the steps, not what is written after them; a second Ctrl-C ends
        the run where it is, and leaves a short summary.

        Parameters
        ----------
        steps
            Last step, in place of the case's ``run.steps``.
        out
            Folder for outputs, made when absent; without one nothing is written.
        restart
            Go on from the newest checkpoint in `out`.
        progress
            Who is told how far the run is.
        ceilings
            Measure this machine's memory ceilings for the summary.
        profile
            Add the time of each named region to the summary.

        Returns
        -------
        dict
            The summary, as written to ``summary.json``.

        Raises
        ------
        SolutionError
            The solution broke; the last good checkpoint is named.
        InputError, MachineError
            A checkpoint does not fit; a file cannot be written.
        Interrupted
            By a second Ctrl-C.
        """
        begun, out = self.step, None if out is None else Path(out)
        self._signal = None
        with handled_by(self._note_signal):
            try:
                return self._run(
                    steps, out, restart, progress or Silent(), ceilings=ceilings, profile=profile
                )
            except Interrupted as stop:
                if out is not None and self.world.is_root:
                    write_json(out / "summary.json", self._cut_short(begun, out, stop))
                raise

    def _run(
        self,
        steps: int | None,
        out: Path | None,
        restart: bool,
        progress: Progress,
        *,
        ceilings: bool,
        profile: bool,
    ) -> dict[str, Any]:
        if out is not None and self.world.is_root:
            make_folder(out)
        if restart:
            if out is None:
                raise InputError("a restart needs the folder that holds the checkpoint")
            self._restore(out, progress)
        end = self.solver.last_step if steps is None else steps
        begun = self.step
        if begun > end:
            raise InputError(
                f"the state is at step {begun}, past the last step {end}; give --steps or "
                f"run.steps of more than {begun} (steps count from the start of the case)"
            )
        measured = self._ceilings() if ceilings else None
        if measured is not None and end > begun:
            self._tell_time(end - begun, measured, progress)
        meter = EnergyMeter(self.device)
        self._energy = EnergyTally(meter)
        listener = Profile() if profile else None
        with listener or contextlib.nullcontext():
            converged = self._loop(end, out, progress)
        regions = listener.table() if listener else None
        summary = self._summary(begun, converged, measured, regions)
        summary["energy"] = self._energy_used(meter, self._energy, self.step - begun)
        with _RESULTS:
            results = self.solver.finish(out, self._probe_rows)
        summary.update(results.summary)
        summary["headline"] = [*summary["headline"], *results.lines]
        if out is not None:
            self._write_last(out, summary, results.files)
        self._close(out, summary)
        return summary

    def _tell_time(self, steps: int, ceilings: Ceilings, progress: Progress) -> None:
        """Say before the first step how long the steps take at least."""
        total = self._ceiling_of_all(ceilings)
        seconds = steps * self.solver.work.bytes / (total * 1e9)
        progress.line(
            f"{steps} steps take at least {seconds:.2g} s at the {total:.3g} GB/s that this "
            "machine's memory gives now"
        )

    def _ceiling_of_all(self, ceilings: Ceilings) -> float:
        """Bandwidth of all ranks in GB/s; ranks that share a GPU have measured the same memory."""
        gpus = getattr(self.device, "count", self.world.local_size)
        share = min(1.0, gpus / self.world.local_size)
        return float(self.world.sum(np.array([share * ceilings.best]))[0])

    def _loop(self, end: int, out: Path | None, progress: Progress) -> bool:
        """Step from event to event; tells whether the steady state was reached."""
        case, solver = self.case, self.solver
        saved = time.monotonic()
        poll = 1
        residual: float | None = None
        if self.step == 0:
            self._at_events(out)
        while self.step < end and not self._stopped():
            target = min(self._next_event(end), self.step + poll)
            try:
                poll = self._timed_steps(target - self.step)
            except SolutionError as error:
                raise self._broke(error, out) from error
            rate = self._rate_in_words()
            if self.step % case.run.diagnostics_interval == 0 or self.step == end:
                followed = self._look(out, record=True)
                residual = max(followed.values()) if solver.followed.steady else None
                if residual is not None and residual < case.run.tolerance:
                    progress.update(self.step, end, rate, residual)
                    self._at_events(out)
                    self._save_when_due(out, saved, at_end=True)
                    return True
            progress.update(self.step, end, rate, residual)
            self._at_events(out)
            if self._save_when_due(out, saved, at_end=self.step == end):
                saved = time.monotonic()
        if self._stopped() and out is not None:
            self._save(out)  # first of all: who sent a signal may not wait for the other outputs
        return False

    def _rate_in_words(self) -> str:
        """Cells (of the solver's kind) a second since this run began, in a unit that suits them."""
        work = self.solver.work
        rate = work.cells * self.steps_timed / max(self.seconds, 1e-9)
        for size, prefix in ((1e6, "M"), (1e3, "k")):
            if rate >= 10 * size:
                return f"{rate / size:.0f} {prefix}{work.unit}s/s"
        return f"{rate:.4g} {work.unit}s/s"

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        """Turn SIGINT and SIGTERM into a stop after the present steps; a second Ctrl-C is one."""
        now = time.monotonic()
        if self._signal is None:
            self._signal, self._signalled = number, now
        elif number == signal.SIGINT and now - self._signalled > SAME_REQUEST_SECONDS:
            raise Interrupted(number)

    def _stopped(self) -> bool:
        """Whether any rank has got a signal; all ranks ask at the same steps."""
        if self.world.any(self._signal is not None):
            self._signal = self._signal or signal.SIGTERM
            return True
        return False

    def _next_event(self, end: int) -> int:
        case = self.case
        intervals = [case.run.diagnostics_interval, case.output.interval, case.checkpoint.interval]
        if case.output.probes:
            intervals.append(case.output.probe_interval)
        if case.output.average is not None:
            intervals.append(case.output.average.interval)
        return min([end, *((self.step // i + 1) * i for i in intervals if i > 0)])

    def _timed_steps(self, count: int) -> int:
        """Take steps and tell how many more may pass until signals are looked at."""
        if self._energy is not None:
            self._energy.begin()
        with _STEPS:
            self.device.synchronise()
            start = time.perf_counter()
            self.solver.advance(count)
            self.device.synchronise()
            taken = time.perf_counter() - start
        if self._energy is not None:
            self._energy.end(taken)
        self.seconds += taken
        self.steps_timed += count
        slowest = self.world.largest(taken)
        return max(1, int(_POLL_SECONDS * count / max(slowest, 1e-6)))

    def _look(self, out: Path | None, *, record: bool) -> dict[str, float]:
        """What is followed of the present state, which must be sound; recorded or not."""
        with _DIAGNOSTICS:
            try:
                found = self.solver.follow()
            except SolutionError as error:
                raise self._broke(error, out) from error
        if not all(value < self.solver.followed.limit for value in found.values()):
            raise SolutionError(
                f"the solution broke before step {self.step} (values that are not finite or "
                f"change ever faster); {self._kept()}; {self.solver.advice()}"
            )
        if record and (not self.history or self.history[-1][0] != self.step):
            self.history.append((self.step, found))
            if out is not None and self.world.is_root:
                self._append_history(out)
                if self.solver.followed.record is not None:
                    self.solver.followed.record(out)
        return found

    def _kept(self) -> str:
        """What a run that breaks leaves to go on from."""
        if self._last_checkpoint is not None:
            return f"the last good checkpoint is {self._last_checkpoint}"
        return "no checkpoint had been written (set checkpoint.interval)"

    def _broke(self, error: SolutionError, out: Path | None) -> SolutionError:
        """What is told when a solver gives up within a step; its state is kept to look into."""
        kept = self._kept()
        if out is not None:
            path = out / f"broken-{self.step:010d}.h5"
            self._write_state(path)
            kept = f"the state is in {path}, {kept}"
        return SolutionError(f"{error}; {kept}; {self.solver.advice()}")

    def _at_events(self, out: Path | None) -> None:
        """Probes, averages and field files that are due at this step."""
        output = self.case.output
        if output.probes and self.step % output.probe_interval == 0:
            self._sample_probes(out)
        average = output.average
        due = average is not None and self.step >= average.start and self.step > 0
        if average is not None and due and self.step % average.interval == 0:
            self._sample_average()
        if out is not None and output.interval and self.step % output.interval == 0:
            self._write_fields(out / f"fields-{self.step:010d}.vtkhdf")
            with _OUTPUT:
                self.solver.at_output(out)

    # Outputs

    def _sample_probes(self, out: Path | None) -> None:
        probes = self.case.output.probes
        found = self.solver.sample([probe.position for probe in probes])
        for probe, values in zip(probes, found, strict=True):
            known = self._probe_rows[probe.name]
            if known and known[-1][0] == self.step:
                continue
            known.append([*self._now(), *values])
            if out is not None and self.world.is_root:
                header = ",".join([*self._now_names(), *self.solver.fields])
                append_row(out / f"probe-{probe.name}.csv", header, known)

    def _now(self) -> list[float]:
        """The step, and the time where the solver has one, at the head of a table's row."""
        time_now = self.solver.time
        return [float(self.step)] if time_now is None else [float(self.step), time_now]

    def _now_names(self) -> list[str]:
        return ["step"] if self.solver.time is None else ["step", "time"]

    def _sample_average(self) -> None:
        solver, xp = self.solver, self.device.xp
        for name in solver.fields:
            now = self.device.from_host(solver.relative(name))
            if name not in self._averages:
                self._averages[name] = self.device.zeros(now.shape, "f8")
            total = self._averages[name]
            xp.add(total, now, out=total)
        self._samples += 1

    def _append_history(self, out: Path) -> None:
        header = ",".join(["step", *self.history[-1][1]])
        rows = [[float(step), *values.values()] for step, values in self.history]
        append_row(out / self.solver.followed.file, header, rows)

    def _write_fields(self, path: Path, values: Callable[[str], np.ndarray] | None = None) -> None:
        solver = self.solver
        values = values or solver.relative
        given = {name: partial(values, name) for name in solver.fields}
        with _OUTPUT:
            moment = float(self.step) if solver.time is None else solver.time
            solver.places.write(path, given, solver.vectors, moment)

    def _save_when_due(self, out: Path | None, saved: float, *, at_end: bool) -> bool:
        """Write a checkpoint when steps, minutes or the end of the run ask for one."""
        if out is None:
            return False
        wanted = self.case.checkpoint
        due = wanted.interval > 0 and self.step % wanted.interval == 0
        late = wanted.minutes > 0 and self.world.any(time.monotonic() - saved > 60 * wanted.minutes)
        if not (due or late or (at_end and wanted.at_end)):
            return False
        self._save(out)
        return True

    def _save(self, out: Path) -> None:
        """Write a checkpoint of a state that was seen to be good, and drop old ones."""
        self._look(out, record=False)
        path = checkpoints.checkpoint_path(out, self.step)
        self._write_state(path)
        self._last_checkpoint = path
        if self.world.is_root:
            for old in checkpoints.list_checkpoints(out)[: -self.case.checkpoint.keep]:
                old.unlink(missing_ok=True)

    def _write_state(self, path: Path) -> None:
        """Write all that a restart needs."""
        solver = self.solver
        content = {
            "scalars": {key: value.hex() for key, value in solver.scalars().items()},
            "history": self.history,
            "probes": self._probe_rows,
            "samples": self._samples,
            "seconds": self.seconds,
        }
        with _CHECKPOINT, contextlib.ExitStack() as stack:
            extras = solver.extras()
            write = None
            if self.world.is_root:
                write = stack.enter_context(
                    checkpoints.writing(
                        path,
                        solver=solver.name,
                        shape=solver.places.shape,
                        step=self.step,
                        content=content,
                        extras=extras,
                    )
                )
            for name in solver.stored:
                self._store(write, name, solver.owned(name))
            for name, total in self._averages.items():
                self._store(write, f"sum of {name}", self.device.to_host(total))

    def _store(self, write: Any, name: str, owned: np.ndarray) -> None:
        parts = gathered(self.solver.places, owned)
        if write is not None:
            write(name, owned.dtype, ((begin, p) for begin, p in parts if p is not None))
        else:
            for _ in parts:
                pass

    def _restore(self, out: Path, progress: Progress) -> None:
        """Take over the newest checkpoint of a folder."""
        found = checkpoints.list_checkpoints(out)
        if not found:
            raise InputError(
                f"{out} holds no checkpoint (checkpoint-<step>.h5); run without --restart first"
            )
        solver = self.solver
        with checkpoints.Checkpoint(
            found[-1],
            solver=solver.name,
            shape=solver.places.shape,
            fields=solver.stored,
            dtype=solver.dtype,
        ) as saved:
            try:
                content = saved.content
                scalars = {key: float.fromhex(v) for key, v in content["scalars"].items()}
                self.history = [(int(step), dict(values)) for step, values in content["history"]]
                for name, rows in content["probes"].items():
                    if name in self._probe_rows:
                        self._probe_rows[name] = [list(map(float, row)) for row in rows]
                self._samples = int(content["samples"])
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise InputError(
                    f"checkpoint {found[-1]} is damaged; delete it to restart from the one before"
                ) from error

            def own(name: str) -> np.ndarray:
                return solver.places.own(partial(saved.read, name))

            solver.restore(saved.step, scalars, own)
            solver.restore_extras(saved.extras())
            for name in solver.fields:
                if saved.has(f"sum of {name}"):
                    self._averages[name] = self.device.from_host(own(f"sum of {name}"))
        self._last_checkpoint = found[-1]
        if self.world.is_root:
            self._rewrite_tables(out)
        progress.line(f"restarted from {found[-1]} at step {self.step}")

    def _rewrite_tables(self, out: Path) -> None:
        """Bring the tables back to the step of the checkpoint."""
        tables = {}
        if self.history:
            followed = [[float(s), *v.values()] for s, v in self.history]
            tables[self.solver.followed.file] = (["step", *self.history[0][1]], followed)
        probed = [*self._now_names(), *self.solver.fields]
        tables.update({f"probe-{n}.csv": (probed, rows) for n, rows in self._probe_rows.items()})
        for name, (header, rows) in tables.items():
            if rows:
                write_text(out / name, "\n".join([",".join(header), *map(table_row, rows)]) + "\n")

    def _write_last(self, out: Path, summary: dict[str, Any], results: Mapping[str, Path]) -> None:
        """Fields, averages, picture and summary at the end of a run, beside the solver's results."""
        output, solver = self.case.output, self.solver
        files: dict[str, str] = {}
        if output.fields:
            path = out / "fields.vtkhdf"
            self._write_fields(path)
            files["fields"] = str(path)
        if self._samples:
            path = out / "average.vtkhdf"
            self._write_fields(
                path, lambda name: self.device.to_host(self._averages[name]) / self._samples
            )
            files["average"] = str(path)
        if output.picture:
            path = out / "overview.png"
            plane = solver.picture()
            if plane is not None:
                with _OUTPUT:
                    tolerance = self.case.run.tolerance
                    draw_overview(path, plane, summary, self.history, solver.followed, tolerance)
            files["picture"] = str(path)
        for name in self._probe_rows:
            files[f"probe {name}"] = str(out / f"probe-{name}.csv")
        if self.history:
            table = solver.followed.file
            files[Path(table).stem] = str(out / table)
        files.update({name: str(path) for name, path in results.items()})
        files["summary"] = str(out / "summary.json")
        summary["files"] = files

    def _close(self, out: Path | None, summary: dict[str, Any]) -> None:
        """Note a signal that came after the last step, too, and write the summary."""
        stopped = self._stopped()
        summary["stopped_by"] = signal.Signals(self._signal).name if self._signal else None
        if out is None:
            return
        if stopped and self._last_checkpoint != checkpoints.checkpoint_path(out, self.step):
            self._save(out)
        if self._last_checkpoint is not None:
            summary["files"]["checkpoint"] = str(self._last_checkpoint)
        if self.world.is_root:
            write_json(out / "summary.json", summary)

    # Summary

    def _cut_short(self, begun: int, out: Path, stop: Interrupted) -> dict[str, Any]:
        """What is known without asking other ranks when a run ends where it is."""
        files = {"summary": str(out / "summary.json")}
        if self._last_checkpoint is not None:
            files["checkpoint"] = str(self._last_checkpoint)
        return {
            "solver": self.solver.name,
            "case": self.name,
            "title": self.case.title,
            "device": self.device.name,
            "ranks": self.world.size,
            "steps": self.step,
            "steps_this_run": self.step - begun,
            "seconds": self.seconds,
            "converged": False,
            "stopped_by": str(stop),
            "files": files,
        }

    def _ceilings(self) -> Ceilings:
        """Ceilings of this rank's share of the machine, all ranks measuring at once."""
        self.world.barrier()
        return measure_ceilings(self.device, sharing=self.world.local_size)

    def _energy_used(
        self, meter: EnergyMeter, tally: EnergyTally, steps: int
    ) -> dict[str, Any] | None:
        """Energy of the steps of this run on all ranks; a device that ranks share counts once."""
        world = self.world
        tally.close()
        places = world.gather_texts(self.device.identity)
        share = tally.joules / places.count(self.device.identity)
        joules = float(world.sum(np.array([share]))[0])
        seconds = world.largest(tally.seconds)
        if world.any(not tally.known):
            return None
        devices = len(set(places))
        source = meter.source + (f", {devices} of them in all" if devices > 1 else "")
        if seconds < LEAST_SECONDS:
            source += f"; no figures, as the steps took less than {LEAST_SECONDS:g} s"
            return dict.fromkeys(("joules", "joules_per_cell_step", "watts")) | {"source": source}
        return {
            "joules": joules,
            "joules_per_cell_step": joules / (self.solver.work.cells * steps),
            "watts": joules / seconds,
            "source": source,
        }

    def _summary(
        self,
        begun: int,
        converged: bool,
        ceilings: Ceilings | None,
        regions: dict[str, Any] | None,
    ) -> dict[str, Any]:
        solver, world, work = self.solver, self.world, self.solver.work
        seconds = max(world.largest(self.seconds), 1e-9)
        per_second = self.steps_timed / seconds
        with _DIAGNOSTICS:
            found = solver.diagnostics()
        summary: dict[str, Any] = {
            "solver": solver.name,
            "case": self.name,
            "title": self.case.title,
            "device": self.device.name,
            "ranks": world.size,
            "decomposition": solver.places.parts,
            "transport": solver.transport,
            "notices": list(solver.notices),
            "steps": self.step,
            "steps_this_run": self.step - begun,
            "seconds": self.seconds,
            "converged": converged,
            "rate": {"value": work.cells * per_second / 1e6, "unit": f"M{work.unit}s/s"},
            "ssspnt": 1e-7 * work.size * per_second / world.size,
            "gflop_s": work.flops * per_second / 1e9,
            "memory_bytes": work.memory,
            "diagnostics": found,
            "headline": solver.headline(found),
            solver.followed.name: self.history[-1][1] if self.history else None,
            "checks": {},
        }
        achieved = work.bytes * per_second / 1e9
        summary["bandwidth"] = {"achieved_gb_s": achieved}
        if ceilings is not None:
            total = self._ceiling_of_all(ceilings)
            summary["bandwidth"].update(
                {
                    "ceiling_gb_s": total,
                    "fraction": achieved / total,
                    "measured": ceilings.as_dict(),
                }
            )
        if regions is not None:
            summary["regions"] = regions
        summary["provenance"] = provenance(self.case, self.device, solver, world)
        return summary


def load(
    path: str | Path,
    *,
    settings: list[str] | tuple[str, ...] = (),
    device: str | None = None,
    world: World | None = None,
) -> Simulation:
    """Make a simulation from a case file.

    Parameters
    ----------
    path
        TOML case file.
    settings
        ``table.key=value`` overrides.
    device
        ``cpu``, ``cuda`` or ``auto`` in place of the case's own.
    world
        The ranks; those that the process was started with by default.

    Raises
    ------
    InputError
        The case is wrong: names the key, the file, what was given and what is allowed.
    MachineError
        The machine lacks something.
    """
    path = Path(path)
    case = read_case(path, settings, registry.case_model)
    return Simulation(case, name=path.stem, device=device, world=world)


__all__ = ["Progress", "Silent", "Simulation", "load"]
