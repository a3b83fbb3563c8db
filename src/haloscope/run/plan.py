"""A dry run: mesh, memory, least time and boundary conditions of a case, without a time step."""

from __future__ import annotations

from typing import Any

from haloscope.run.state import Progress, RunState
from haloscope.run.summary import (
    ceiling_of_all,
    ceilings_of_share,
    least_seconds,
    log_least_time,
    note_crowded_cores,
)


def plan(state: RunState, steps: int | None, progress: Progress) -> dict[str, Any]:
    """Numbers of a run that has not begun; all ranks call this.

    `steps`: last step in place of the case's. `progress` gets the lines that a run prints before its
    first step.
    """
    solver, case = state.solver, state.case
    end = solver.last_step if steps is None else steps
    ceilings = ceilings_of_share(state)
    note_crowded_cores(state, progress)
    if end > 0:
        log_least_time(state, end, ceilings, progress)
    return {
        "solver": solver.name,
        "case": state.name,
        "title": case.title,
        "device": state.device.name,
        "ranks": state.world.size,
        "decomposition": solver.layout.parts,
        "mesh": solver.layout.describe(),
        "memory_bytes": solver.work.memory,
        "steps": end,
        "least_seconds": least_seconds(state, end, ceilings),
        "bandwidth_gb_s": ceiling_of_all(state, ceilings),
        "derived": {
            number.name: {"value": number.value, "unit": number.unit} for number in solver.derived()
        },
        "boundaries": case.boundary_conditions(),
        "notices": [*solver.notices, *state.notices],
    }
