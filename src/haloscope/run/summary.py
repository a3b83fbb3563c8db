"""What a run tells of itself: its summary, rates and energy, beside the ceilings of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from haloscope.counted import counted
from haloscope.device.ceilings import Ceilings, measure_ceilings
from haloscope.device.energy import LEAST_SECONDS, EnergyMeter, EnergyTally
from haloscope.io.interrupts import Interrupted
from haloscope.run.phases import DIAGNOSTICS
from haloscope.run.progress import Progress
from haloscope.run.provenance import provenance
from haloscope.run.state import RunState

LONG_RUN_SECONDS = 3600.0
"""A run whose steps take longer gets a warning that names the limit of its time step."""


def ceilings_of_share(state: RunState) -> Ceilings:
    """Ceilings of this rank's share of the machine, all ranks measuring at once."""
    state.world.barrier()
    return measure_ceilings(state.device, sharing=state.world.local_size)


def log_least_time(state: RunState, steps: int, ceilings: Ceilings, progress: Progress) -> None:
    """Say before the first step how long the steps take at least."""
    total = ceiling_of_all(state, ceilings)
    seconds = steps * state.solver.work.bytes / (total * 1e9)
    progress.line(
        f"{counted(steps, 'step takes', 'steps take')} at least {seconds:.2g} s at the "
        f"{total:.3g} GB/s that this machine's memory gives now"
    )
    if seconds > LONG_RUN_SECONDS:
        warning = (
            f"warning: the run takes at least {_duration(seconds)}: {counted(steps, 'step')}, "
            f"{state.solver.time_step_limit()}"
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
    """Bandwidth of all ranks in GB/s; ranks that share a GPU have measured the same memory."""
    share = 1.0
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
    source = meter.source + (f", {devices} of them in all" if devices > 1 else "")
    if seconds < LEAST_SECONDS:
        source += f"; no figures, as the steps took less than {LEAST_SECONDS:g} s"
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
        "decomposition": solver.places.parts,
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
                "fraction": achieved / total,
                "measured": ceilings.as_dict(),
            }
        )
    if regions is not None:
        summary["regions"] = regions
    summary["provenance"] = provenance(state.case, state.device, solver, world)
    return summary


def cut_short(state: RunState, begun: int, out: Path, stop: Interrupted) -> dict[str, Any]:
    """What is known without asking other ranks when a run ends where it is."""
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
