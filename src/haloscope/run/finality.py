"""Whether the numbers that a run ends with are final: warnings, and the failure of a diverging run."""

from __future__ import annotations

from haloscope.errors import SolutionError, counted
from haloscope.run.state import RunState

GROWTH = 10.0
"""A run has diverged if its residual ends this many times above its first recorded value."""
SMALL_RESIDUAL = 0.01
"""First values below this count as this: a small perturbation of an unstable flow may grow."""


def not_final(
    state: RunState, end: int, *, converged: bool, stopped_by: str | None = None
) -> list[str]:
    """Warnings about results that are not final, one a reason; the same on every rank."""
    if state.step == 0:
        return ["warning: no step was taken: all numbers are of the initial fields"]
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
            f"warning: not steady: {followed.name} {residual:.1e} at step {state.step} "
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
    name = state.solver.followed.name
    return SolutionError(
        f"the solution does not converge: {name} {residual:.1e} after {counted(state.step, 'step')}, "
        f"above {first:.1e} at step {first_step}; {place} not a solution; {state.solver.advice()}"
    )


def _residual(state: RunState) -> float | None:
    """The last recorded residual; None where a solver follows something else."""
    if not state.solver.followed.steady or not state.history:
        return None
    return max(state.history[-1][1].values())
