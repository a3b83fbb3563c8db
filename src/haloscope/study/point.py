"""What the ranks of a study do: run points one after the other, timed and digested."""

from __future__ import annotations

import datetime
import faulthandler
import gc
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.errors import HaloscopeError, MachineError, SolutionError
from haloscope.exchange.ranks.cores import threads_of_rank
from haloscope.exchange.ranks.world import World
from haloscope.exchange.transports.contract import TransportUnavailable
from haloscope.numerics.reduce import field_digest, field_sketch
from haloscope.run import Simulation
from haloscope.run.summary import needed_and_free, version
from haloscope.solvers import registry
from haloscope.solvers.interface import Solver
from haloscope.study import phases
from haloscope.study.ledger import Ledger, Record
from haloscope.study.sweep import Point

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
        "parts": solver.places.parts,
        "nodes": list(reversed(solver.places.shape)),
        "size": solver.work.size,
        "cells": solver.work.cells,
        "transport": solver.transport,
        "digest": {
            name: field_digest(world, solver.places, solver.owned(name)) for name in solver.fields
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
        record["phases"] = phases.measure(world, device.synchronise, solver.advance, point.steps)
        record["movement"] = phases.moving(record["phases"])
    _insist_on_a_solution(solver)
    joules = _joules(simulation, min(times)) if point.energy else None
    return {**record, "seconds": times, "joules_per_step": joules}


def _sketches(solver: Solver, world: World) -> dict[str, list[float]]:
    """Of fields by their units: components of a vector are as large as it is together."""
    sketches: dict[str, list[float]] = {}
    for name, field in solver.fields.items():
        sketch = field_sketch(world, solver.places, solver.owned(name))
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
        raise SolutionError(f"the solution broke before step {solver.step}; {solver.advice()}")


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
