"""The summary of a run: rates, memory, versions, and warnings about numbers that are not final."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.case.tables import CaseTable
from haloscope.device.cpu import available_cores
from haloscope.device.interface import Device
from haloscope.device.meters import (
    LEAST_SECONDS,
    Ceilings,
    EnergyMeter,
    EnergyTally,
    measure_ceilings,
)
from haloscope.errors import MachineError, SolutionError, counted
from haloscope.exchange.ranks.world import World, ranks_on_these_cores
from haloscope.io.interrupts import Interrupted
from haloscope.run.state import DIAGNOSTICS, Progress, RunState
from haloscope.solvers import registry
from haloscope.solvers.interface import Solver

GROWTH = 10.0
"""A run has diverged if its residual ends this many times above its first recorded value."""
SMALL_RESIDUAL = 0.01
"""First values below this count as this: a small perturbation of an unstable flow may grow."""


def not_final(
    state: RunState, end: int, *, converged: bool, stopped_by: str | None = None
) -> list[str]:
    """Warnings about results that are not final, one a reason; the same on every rank."""
    if state.step == 0:
        return ["warning: no step was taken: all numbers describe the initial fields"]
    warnings = []
    if stopped_by is not None and state.step < end:
        warnings.append(
            f"warning: stopped at step {state.step} of {end}: the numbers are not final; "
            "continue with --restart"
        )
    residual = _residual(state)
    if converged or residual is None or not state.solver.followed.warn_unsteady:
        return warnings
    followed, tolerance = state.solver.followed, state.case.run.tolerance
    limit = tolerance or followed.settled
    if not residual < limit:
        origin = (
            f"run.tolerance = {limit:g}" if tolerance else f"{limit:g}; run.tolerance is not set"
        )
        warnings.append(
            f"warning: not steady: {followed.name.removesuffix('s')} {residual:.1e} at step {state.step} "
            f"(steady below {origin}): the numbers are not final; raise run.steps"
        )
    return warnings


def divergence(state: RunState, place: str) -> SolutionError | None:
    """The failure of a steady run whose residual ends far above its first value.

    A flow that never becomes steady, as with a pulsating inflow, may change ever so much.
    """
    residual = _residual(state)
    if residual is None or state.step == 0 or not state.solver.followed.warn_unsteady:
        return None
    first_step, first_row = state.history[0]
    first = max(first_row.values())
    if state.solver.followed.first is not None:
        first_step, first = 0, state.solver.followed.first
    if not residual > GROWTH * max(first, SMALL_RESIDUAL):
        return None
    name = state.solver.followed.name.removesuffix("s")
    return SolutionError(
        f"the solution does not converge: {name} is {residual:.1e} after "
        f"{counted(state.step, 'step')}, above {first:.1e} at step {first_step}; {place} not a solution",
        remedy=state.solver.advice(),
    )


def _residual(state: RunState) -> float | None:
    """The last recorded residual; None where a solver follows something else."""
    if not state.solver.followed.steady or not state.history:
        return None
    return max(state.history[-1][1].values())


def require_memory(case: CaseTable, device: Device, world: World) -> None:
    """Refuse on all ranks, before anything is allocated, a case that cannot fit on one."""
    needed, free = needed_and_free(case, device, world)
    if needed > free:
        more = "hosts" if device.kind == "cpu" else "GPUs"
        raise MachineError(
            f"the case needs about {needed / 1e9:.3g} GB a rank, and {free / 1e9:.3g} GB are free on "
            f"{device.name}",
            remedy=f"use a coarser grid or mesh, ranks on more {more}, or single precision where the "
            "solver has it",
        )


def needed_and_free(case: CaseTable, device: Device, world: World) -> tuple[float, float]:
    """Bytes that a rank needs, and that are free for the rank that has least; all ranks call this.

    None returns before all have seen what is free.
    """
    estimate = registry.estimate(case)
    needed = estimate["memory_bytes"]
    if device.kind == "cpu":
        needed += estimate.get("host_bytes", 0.0)
    free, _ = device.memory()
    return needed / world.size, -world.largest(-free / world.sharing(device.identity))


def provenance(case: CaseTable, device: Device, solver: Solver, world: World) -> dict[str, Any]:
    """Versions, compiler, kernel hash and the whole case: what a result came from."""
    versions = {"haloscope": version(), "python": platform.python_version()}
    for package in ("numpy", "scipy", "h5py", "mpi4py", "cupy-cuda13x", "cupy-cuda12x"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    text = case.model_dump_json()
    return {
        "versions": versions,
        "mpi": world.library,
        "kernel": solver.kernel_hash,
        "compiler": _compiler_name(device),
        "case_hash": hashlib.sha256(text.encode()).hexdigest()[:12],
        "case": json.loads(text),
        "load": os.getloadavg()[0],
    }


def _compiler_name(device: Device) -> str:
    if device.kind != "cpu":
        return "NVRTC"
    from haloscope.device.jit import find_compiler

    return find_compiler().name


def version() -> str:
    """Version of the installed package; 'source' when run from a checkout."""
    try:
        return importlib.metadata.version("haloscope")
    except importlib.metadata.PackageNotFoundError:
        return "source"


_ABSURD_SECONDS = 30 * 86400.0
LONG_RUN_SECONDS = 3600.0
"""A run whose steps take longer gets a warning that names the limit of its time step."""


def ceilings_of_share(state: RunState) -> Ceilings:
    """Ceilings of this rank's share of the machine, all ranks measuring at once."""
    state.world.barrier()
    return measure_ceilings(state.device, sharing=state.world.local_size)


def note_crowded_cores(state: RunState, progress: Progress) -> None:
    """Say if there are more ranks or threads than cores; all ranks call this."""
    if state.device.kind != "cpu":
        return
    ranks, cores = ranks_on_these_cores(state.world), available_cores()
    threads = ranks * state.device.multiprocessors
    if state.world.largest(threads - cores) <= 0:
        return
    if state.world.largest(ranks - cores) <= 0:
        notice = (
            f"more threads than cores ({threads} on {cores}): they take turns; lower machine.threads "
            f"(now {state.device.multiprocessors}), OMP_NUM_THREADS or --ranks"
        )
    else:
        state.ranks_exceed_cores = True
        state.ranks_per_core = max(1.0, ranks / cores)
        notice = (
            f"more ranks than cores ({ranks} on {cores}): they take turns, and the rates are not those of "
            "this machine"
        )
    state.notices.append(notice)
    progress.line(notice)


def least_seconds(state: RunState, steps: int, ceilings: Ceilings) -> float:
    """Time of steps at the memory bandwidth of all ranks; all ranks call this."""
    return steps * state.solver.work.bytes / (ceiling_of_all(state, ceilings) * 1e9)


def log_least_time(state: RunState, steps: int, ceilings: Ceilings, progress: Progress) -> None:
    """Say before the first step how long the steps take at least."""
    total = ceiling_of_all(state, ceilings)
    seconds = least_seconds(state, steps, ceilings)
    least = f"{counted(steps, 'step takes', 'steps take')} at least {seconds:.2g} s"
    if not state.ranks_exceed_cores:
        least += f" at the measured memory bandwidth of {total:.3g} GB/s"
    all_needed = ", if all are needed" if state.case.run.tolerance else ""
    progress.line(least + all_needed)
    if seconds > LONG_RUN_SECONDS:
        warning = (
            f"warning: the run takes at least {_duration(seconds)}: {counted(steps, 'step')}"
            f"{all_needed}, {state.solver.time_step_limit()}"
            + ("; is so long a run meant?" if seconds > _ABSURD_SECONDS else "")
        )
        state.notices.append(warning)
        progress.line(warning)


def _duration(seconds: float) -> str:
    """A long time in hours, days or years."""
    for unit, length in (("year", 365.25 * 86400), ("day", 86400.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}s"
    return f"{seconds / 3600:.3g} hours"


def ceiling_of_all(state: RunState, ceilings: Ceilings) -> float:
    """Bandwidth of all ranks in GB/s; ranks that share a GPU have measured the same memory.

    Ranks that take turns on a core have each measured that core alone.
    """
    share = 1.0 / state.ranks_per_core
    if state.device.kind == "cuda":
        share /= state.world.sharing(state.device.identity)
    return float(state.world.sum(np.array([share * ceilings.best]))[0])


def rate_in_words(state: RunState) -> str:
    """Cells (of the solver's kind) a second since this run began, in a unit that suits them."""
    work = state.solver.work
    rate = work.cells * state.steps_timed / max(state.seconds, 1e-9)
    for size, prefix in ((1e6, "M"), (1e3, "k")):
        if rate >= 10 * size:
            return f"{rate / size:.0f} {prefix}{work.unit}s/s"
    return f"{rate:.4g} {work.unit}s/s"


def energy_used(
    state: RunState, meter: EnergyMeter, tally: EnergyTally, steps: int
) -> dict[str, Any] | None:
    """Energy of the steps of this run on all ranks; a device that ranks share counts once."""
    world = state.world
    tally.close()
    places = world.gather_texts(state.device.identity)
    share = tally.joules / places.count(state.device.identity)
    joules = float(world.sum(np.array([share]))[0])
    seconds = world.largest(tally.seconds)
    if world.any(not tally.known):
        return None
    devices = len(set(places))
    source = meter.source + (f", {devices} devices" if devices > 1 else "")
    if seconds < LEAST_SECONDS:
        source += f"; no values: the steps took less than {LEAST_SECONDS:g} s"
        return dict.fromkeys(("joules", "joules_per_cell_step", "watts")) | {"source": source}
    return {
        "joules": joules,
        "joules_per_cell_step": joules / (state.solver.work.cells * steps),
        "watts": joules / seconds,
        "source": source,
    }


def summarise(
    state: RunState,
    begun: int,
    converged: bool,
    ceilings: Ceilings | None,
    regions: dict[str, Any] | None,
) -> dict[str, Any]:
    """The summary of a run but for its energy and what the solver adds at its end."""
    solver, world, work = state.solver, state.world, state.solver.work
    seconds = max(world.largest(state.seconds), 1e-9)
    per_second = state.steps_timed / seconds
    with DIAGNOSTICS:
        numbers = solver.diagnostics()
    summary: dict[str, Any] = {
        "solver": solver.name,
        "case": state.name,
        "title": state.case.title,
        "device": state.device.name,
        "ranks": world.size,
        "decomposition": solver.layout.parts,
        "transport": solver.transport,
        "notices": [*solver.notices, *state.notices],
        "derived": {
            number.name: {"value": number.value, "unit": number.unit} for number in solver.derived()
        },
        "steps": state.step,
        "steps_this_run": state.step - begun,
        "seconds": state.seconds,
        "converged": converged,
        "rate": {"value": work.cells * per_second / 1e6, "unit": f"M{work.unit}s/s"},
        "ssspnt": 1e-7 * work.size * per_second / world.size,
        "gflop_s": work.flops * per_second / 1e9,
        "memory_bytes": work.memory,
        "diagnostics": numbers,
        "headline": solver.headline(numbers),
        solver.followed.name: state.history[-1][1] if state.history else None,
        "checks": {},
    }
    achieved = work.bytes * per_second / 1e9
    summary["bandwidth"] = {"achieved_gb_s": achieved}
    if ceilings is not None:
        total = ceiling_of_all(state, ceilings)
        summary["bandwidth"].update(
            {
                "ceiling_gb_s": total,
                "fraction": None if state.ranks_exceed_cores else achieved / total,
                "measured": ceilings.as_dict(),
            }
        )
    if regions is not None:
        summary["regions"] = regions
    summary["provenance"] = provenance(state.case, state.device, solver, world)
    return summary


def cut_short(state: RunState, begun: int, out: Path, stop: Interrupted) -> dict[str, Any]:
    """Summary of a run that ends where it is, without asking other ranks."""
    files = {"summary": str(out / "summary.json")}
    if state.last_checkpoint is not None:
        files["checkpoint"] = str(state.last_checkpoint)
    return {
        "solver": state.solver.name,
        "case": state.name,
        "title": state.case.title,
        "device": state.device.name,
        "ranks": state.world.size,
        "steps": state.step,
        "steps_this_run": state.step - begun,
        "seconds": state.seconds,
        "converged": False,
        "stopped_by": str(stop),
        "files": files,
    }
