"""Runs the checks that solvers declare beside their published numbers."""

from __future__ import annotations

import difflib
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from haloscope.case.tables import check as check_case
from haloscope.device import open_device
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.io.interrupts import Interrupted
from haloscope.run import Simulation
from haloscope.run.state import Progress, Silent
from haloscope.run.summary import version
from haloscope.solvers import registry
from haloscope.solvers.verification import Check, Solve

_MOST_STEPS = 10_000_000
# Checks of a solver that a message lists.
_MOST_NAMED = 20


def all_checks() -> dict[str, Check]:
    """Checks of all solvers by name."""
    return {check.name: check for name in registry.NAMES for check in registry.checks(name).CHECKS}


def select(names: Sequence[str], *, slow: bool, on_gpu: bool = True) -> list[Check]:
    """Checks by solver or by name; without names those of all solvers.

    `slow`: also those that take long; `on_gpu`: of these also such as take hours on cores.
    """

    def is_meant(check: Check) -> bool:
        return not check.slow or (slow and (on_gpu or not check.gpu_sized))

    known = all_checks()
    if not names:
        return [check for check in known.values() if is_meant(check)]
    chosen: dict[str, Check] = {}
    for name in names:
        if name in known:
            chosen[name] = known[name]
        elif name in registry.NAMES:
            own = registry.checks(name).CHECKS
            chosen.update({c.name: c for c in own if is_meant(c)})
        else:
            near = difflib.get_close_matches(name, [*registry.NAMES, *known], 1)
            solver = name.partition("-")[0]
            # All checks are more than a line holds.
            checks = [check for check in known if check.startswith(f"{solver}-")]
            checks[_MOST_NAMED:] = ["and others (haloscope verify --list)"] * (
                len(checks) > _MOST_NAMED
            )
            raise InputError(
                f"{name!r} is not a solver or a check",
                allowed=", ".join(
                    [*registry.NAMES, *(checks or ["or a check, for example cavity-order"])]
                ),
                remedy=f"did you mean {near[0]}?" if near else "",
            )
    return list(chosen.values())


def solve_with(device: str, progress: Progress) -> Solve:
    """Function with which a check runs a case to its steady state."""

    def solve(data: dict[str, Any]) -> Simulation:
        case = check_case(data, registry.case_model(data["solver"]), "check")
        simulation = Simulation(case, name="check", device=device, world=World())
        has_end = (
            "steps" in case.run.model_fields_set or simulation.solver.last_step != case.run.steps
        )
        steps = None if has_end else _MOST_STEPS
        summary = simulation.run(steps, progress=progress, ceilings=False)
        if summary["stopped_by"]:
            raise Interrupted(signal.Signals[summary["stopped_by"]])
        if case.run.tolerance > 0 and not summary["converged"]:
            raise SolutionError(
                f"the case of a check did not reach its steady state in {simulation.step} steps"
            )
        return simulation

    # Checks that need no case of their own run on this device, too.
    solve.device = device  # type: ignore[attr-defined]
    return solve


def verify(
    names: Sequence[str] = (),
    *,
    slow: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    on_done: Callable[[Check, dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Run verification checks.

    Parameters
    ----------
    names
        Solvers or checks; all solvers by default.
    slow
        Include the slow checks.
    device
        Where to run.
    progress
        Shows how far a run is: an object with the methods of
        :class:`haloscope.run.state.Progress`.
    on_done
        Called after each check with its results.

    Returns
    -------
    dict
        ``checks``: ``{"check: quantity": {value, reference, tolerance, ok, source}}``; ``runs``:
        ``{"check": {claim, slow, haloscope, device, seconds}}``, with the version of Haloscope;
        ``left_out``: slow checks that were left out because they take hours on cores; ``ok``: whether all
        hold; ``seconds``.
    """
    progress = progress or Silent()
    begun = time.perf_counter()
    opened = open_device(device)
    chosen = select(names, slow=slow, on_gpu=opened.kind != "cpu")
    device_name = opened.name
    results: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    for check in chosen:
        start = time.perf_counter()
        compared = check.run(solve_with(device, progress))
        comparisons = {
            f"{check.name}: {quantity}": {**comparison.as_dict(), "source": check.source}
            for quantity, comparison in compared.items()
        }
        results.update(comparisons)
        seconds = time.perf_counter() - start
        runs[check.name] = {
            "claim": check.about,
            "slow": check.slow,
            "haloscope": version(),
            "device": device_name,
            "seconds": seconds,
        }
        if on_done is not None:
            on_done(check, {"seconds": seconds, "checks": comparisons})
    return {
        "checks": results,
        "runs": runs,
        "left_out": [one.name for one in select(names, slow=slow) if one not in chosen],
        "ok": all(result["ok"] for result in results.values()),
        "seconds": time.perf_counter() - begun,
    }
