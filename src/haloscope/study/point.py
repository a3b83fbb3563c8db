"""Points of a study on their ranks: run one after the other, timed by phase and digested."""

from __future__ import annotations

import csv
import datetime
import faulthandler
import gc
import io
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.errors import HaloscopeError, MachineError, SolutionError, counted
from haloscope.exchange.engine import TransportUnavailable
from haloscope.exchange.ranks.world import World, threads_of_rank
from haloscope.io.atomic import write_text
from haloscope.numerics.reduce import field_digest, field_sketch
from haloscope.regions import Profile, movement
from haloscope.run import Simulation
from haloscope.run.summary import needed_and_free, version
from haloscope.solvers import registry
from haloscope.solvers.interface import Solver
from haloscope.study.sweep import Point, Row
from haloscope.study.table import Ledger, Record, line_of

NAME = "phases.csv"
HEADING = "Time by phase"
REST = "rest"
"""Of a step that is in no phase."""

_COLUMNS = ("series", "line", "id", "ranks", "device", "phase", "seconds_per_step", "share")
_LEAST_SHARE = 0.01
# Of points measured by versions that did not note which phases move data.
_UNKNOWN = "not noted"


class _Finished(Profile):
    """Adds up regions that end when the device has done what they asked of it."""

    def __init__(self, synchronise: Callable[[], None]) -> None:
        super().__init__()
        self._synchronise = synchronise

    def _on_enter(self, number: int) -> None:
        self._synchronise()
        super()._on_enter(number)

    def _on_leave(self, number: int) -> None:
        self._synchronise()
        super()._on_leave(number)


def measure(
    world: World, synchronise: Callable[[], None], advance: Callable[[int], None], steps: int
) -> dict[str, float]:
    """Take steps whose phases wait for the device, one after the other; all ranks call this.

    Returns: seconds a step of each phase without those inside it, the mean of all ranks; what is
    left of the step is :data:`REST`. The sum is the mean time of a step.
    """
    world.barrier()
    begin = time.perf_counter()
    with _Finished(synchronise) as profile:
        advance(steps)
        synchronise()
    taken = time.perf_counter() - begin
    mine = {name: entry["seconds"] for name, entry in profile.table().items()}
    mine[REST] = taken - sum(mine.values())
    phase_seconds: dict[str, float] = {}
    for text in world.gather_texts(json.dumps(mine)):
        for name, seconds in json.loads(text).items():
            phase_seconds[name] = phase_seconds.get(name, 0.0) + seconds / (steps * world.size)
    return phase_seconds


def moving(phases: Mapping[str, float]) -> list[str]:
    """Names of the phases that move data between ranks, as their regions say of themselves."""
    return sorted(movement() & phases.keys())


def write(folder: Path, rows: Sequence[Row], records: Mapping[str, Record]) -> Path:
    """Write all phases of all points as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row, phases in _described(rows, records):
        point, whole = row.point, sum(phases.values())
        about = (row.series, line_of(row), point.id, point.ranks, point.device)
        for name, seconds in phases.items():
            writer.writerow((*about, name, f"{seconds:.9g}", f"{seconds / whole:.6g}"))
    path = folder / NAME
    write_text(path, out.getvalue())
    return path


def describe(rows: Sequence[Row], records: Mapping[str, Record]) -> str:
    """A table of the shares of phases, a row for each point; empty where there are none."""
    rows_with_phases = _described(rows, records)
    if not rows_with_phases:
        return ""
    names = _names(rows_with_phases)
    head = ["point", "ms a step", "movement of data", *names]
    lines = [head, ["---"] * len(head)]
    for row, phases in rows_with_phases:
        whole = sum(phases.values())
        line = line_of(row)
        ranks = counted(row.point.ranks, "rank")
        moves = records[row.point.id].get("movement")
        shares = [phases.get(name, 0.0) for name in names]
        moved = None if moves is None else sum(phases[name] for name in moves)
        label = ", ".join(filter(None, (row.series, line, ranks)))
        described_shares = (
            _UNKNOWN if s is None else f"{100 * s / whole:.1f} %" for s in (moved, *shares)
        )
        lines.append([label, f"{1e3 * whole:.4g}", *described_shares])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        "These steps are a separate block in which the host waits for the device at the begin and end "
        "of each phase. They take longer than the steps above, and no phases overlap. Times are means "
        "of all ranks. The time of a phase excludes the phases inside it. Phases below 1 % at every "
        f"point are left out.\n\n{text}"
    )


def _described(
    rows: Sequence[Row], records: Mapping[str, Record]
) -> list[tuple[Row, dict[str, float]]]:
    """Points of which phases are known, each once."""
    shares: dict[str, tuple[Row, dict[str, float]]] = {}
    for row in rows:
        phases: Any = records.get(row.point.id, {}).get("phases")
        if phases:
            shares.setdefault(row.point.id, (row, phases))
    return list(shares.values())


def _names(shares: Sequence[tuple[Row, dict[str, float]]]) -> list[str]:
    """Phases that take a hundredth of any point at least, those that take most first."""
    largest: dict[str, float] = {}
    for _, phases in shares:
        whole = sum(phases.values())
        for name, seconds in phases.items():
            largest[name] = max(largest.get(name, 0.0), seconds / whole)
    worth_it = [name for name, share in largest.items() if share >= _LEAST_SHARE]
    return sorted(worth_it, key=lambda name: -largest[name])


_STDERR = 2
_ROOT_FIRST_SECONDS = 1.0
# Meters of energy count in steps of up to a tenth of a second.
_ENERGY_SECONDS = 1.0


def run_points(
    points: Sequence[Point],
    ledger: Ledger,
    world: World,
    *,
    point_seconds: float,
    on_done: Callable[[Point, Record], None] | None = None,
) -> None:
    """Run points on the ranks of a world; rank 0 notes each in the ledger as it ends."""
    # A point that fails is noted, too. What the other ranks are doing then is not known: where
    # there are others all are ended, with exit code 1, and who started them can go on with the
    # points that are left.
    for point in points:
        if world.is_root:
            ledger.add({"id": point.id, "status": "started"})
        try:
            with _time_limit(point_seconds):
                record = run_point(point, world)
        except TransportUnavailable as error:
            # All ranks were told, so all go on.
            record = _failure(point, error)
            if world.is_root:
                ledger.add(record)
        except Exception as error:
            record = _failure(point, error)
            _note_failure(record, ledger, world)
            if world.size > 1 or not isinstance(error, HaloscopeError):
                world.abort(1)
        else:
            if world.is_root:
                ledger.add(record)
        if world.is_root and on_done is not None:
            on_done(point, record)
        _give_memory_back(point.device)


def run_point(point: Point, world: World) -> Record:
    """Run one point; all ranks call this."""
    model = registry.case_model(point.case["solver"])
    case = check(point.case, model, f"point {point.id}")
    threads = case.machine.threads or threads_of_rank(world)
    device = open_device(case.machine.device, local_rank=world.local_rank, threads=threads)
    record = {
        "id": point.id,
        "kind": point.kind,
        "device": device.kind,
        "device_name": device.name,
        "host": platform.node(),
        "ranks": world.size,
        "ranks_per_node": world.local_size,
        "library": world.library,
        "load": os.getloadavg()[0],
        "version": version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    needed, free = needed_and_free(case, device, world)
    if needed > free:
        lacking = f"needs {needed / 1e9:.3g} GB a rank where {free / 1e9:.3g} GB are free on {device.name}"
        return {**record, "status": "left out", "reason": lacking}
    simulation = Simulation(case, name=point.id, device=device, world=world)
    return {**record, **_measure(point, simulation), "status": "done"}


def _measure(point: Point, simulation: Simulation) -> Record:
    """Digests after the steps of the check; then, of a timed point, its times."""
    solver, device, world = simulation.solver, simulation.device, simulation.world
    solver.advance(point.check_steps)
    _insist_on_a_solution(solver)
    record: Record = {
        "parts": solver.layout.parts,
        "nodes": list(reversed(solver.layout.shape)),
        "size": solver.work.size,
        "cells": solver.work.cells,
        "transport": solver.transport,
        "digest": {
            name: field_digest(world, solver.layout, solver.owned(name)) for name in solver.fields
        },
    }
    if registry.sweeping(solver.name).COLUMNS.nearness is not None:
        record["sketch"] = _sketches(solver, world)
    if point.kind == "reference":
        return record
    solver.advance(point.warmup)
    times = []
    for _ in range(point.repeats):
        device.synchronise()
        world.barrier()
        begin = time.perf_counter()
        solver.advance(point.steps)
        device.synchronise()
        times.append(world.largest(time.perf_counter() - begin) / point.steps)
    if point.phases:
        record["phases"] = measure(world, device.synchronise, solver.advance, point.steps)
        record["movement"] = moving(record["phases"])
    _insist_on_a_solution(solver)
    joules = _joules(simulation, min(times)) if point.energy else None
    return {**record, "seconds": times, "joules_per_step": joules}


def _sketches(solver: Solver, world: World) -> dict[str, list[float]]:
    """Of fields by their units: components of a vector are as large as it is together."""
    sketches: dict[str, list[float]] = {}
    for name, field in solver.fields.items():
        sketch = field_sketch(world, solver.layout, solver.owned(name))
        sketches.setdefault(field.unit, []).extend(sketch)
    return sketches


def _joules(simulation: Simulation, seconds_per_step: float) -> float | None:
    """Energy of a step on all ranks in J, where the machine has a meter for it."""
    used: float | None = None
    # One step tells whether there is a meter.
    for steps in (1, math.ceil(_ENERGY_SECONDS / max(seconds_per_step, 1e-7))):
        summary = simulation.run(simulation.step + steps, ceilings=False)
        energy = summary.get("energy") or {}
        joules = simulation.world.largest(energy.get("joules") or 0.0)
        if not simulation.world.any(bool(energy)):
            return None
        used = joules / steps
    return used


def _insist_on_a_solution(solver: Solver) -> None:
    """Refuse to time numbers that are none: processors may be faster or slower with them."""
    if not all(math.isfinite(value) for value in solver.follow().values()):
        raise SolutionError(f"the solution broke before step {solver.step}", remedy=solver.advice())


def _give_memory_back(kind: str) -> None:
    """Free what the last point held, so that the next one finds all of the memory."""
    gc.collect()
    if kind == "cuda":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def _failure(point: Point, error: Exception) -> Record:
    """The record of a point that ended with an error; what the machine lacks is no failure."""
    kind = "" if isinstance(error, HaloscopeError) else f"{type(error).__name__}: "
    return {
        "id": point.id,
        "kind": point.kind,
        "status": "left out" if isinstance(error, MachineError) else "failed",
        "reason": " ".join(f"{kind}{error}".split()),
        "host": platform.node(),
    }


def _note_failure(record: Record, ledger: Ledger, world: World) -> None:
    """Most errors are met by every rank; then rank 0 notes its own."""
    if not world.is_root:
        time.sleep(_ROOT_FIRST_SECONDS)
        ledger.read()
        if record["id"] not in ledger.started:
            return
    ledger.add(record)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """End this process when the time is over, even where it hangs outside of Python."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
