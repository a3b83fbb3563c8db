"""Prints what `haloscope run --check` has to say: a case before its first step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from haloscope.commands.options import QuietProgress, say
from haloscope.errors import InputError

if TYPE_CHECKING:
    from haloscope.run import Simulation


def require_alone(used: Mapping[str, bool]) -> None:
    """Refuse options that have no effect on a dry run; `used`: whether each is there."""
    for option, is_used in used.items():
        if is_used:
            raise InputError(
                "a dry run writes nothing",
                location=f"--check with {option}",
                remedy="leave one of them out",
            )


def check(simulation: Simulation, steps: int | None, *, quiet: bool, as_json: bool) -> None:
    """Measure the bandwidth, and print mesh, memory, least time and boundary conditions."""
    from haloscope.run.plan import plan
    from haloscope.run.state import Silent

    # Lines of a run are in the plan; with --quiet only warnings are printed.
    numbers = plan(simulation, steps, Silent())
    if not simulation.world.is_root:
        return
    if as_json:
        print(json.dumps(numbers), flush=True)
    elif quiet:
        for notice in numbers["notices"]:
            QuietProgress().line(notice)
    else:
        derived = [str(number) for number in simulation.solver.derived()]
        print("\n".join(_lines(numbers, derived)), flush=True)
        if numbers["notices"]:
            say("\n".join(numbers["notices"]))


def _lines(numbers: dict[str, Any], derived: list[str]) -> list[str]:
    title = f": {numbers['title']}" if numbers["title"] else ""
    ranks = f", {numbers['ranks']} ranks" if numbers["ranks"] > 1 else ""
    rows = {
        "case": f"{numbers['case']}{title}",
        "solver": f"{numbers['solver']}, on {numbers['device']}{ranks}",
        "mesh": numbers["mesh"],
        "memory": f"{numbers['memory_bytes'] / 1e6:.4g} MB",
        "steps": f"{numbers['steps']}, in at least {numbers['least_seconds']:.2g} s at "
        f"{numbers['bandwidth_gb_s']:.3g} GB/s",
    }
    lines = [f"{name:<12}{text}" for name, text in rows.items()]
    lines += [f"{'' if number else 'derived':<12}{text}" for number, text in enumerate(derived)]
    width = max((len(name) for name in numbers["boundaries"]), default=0)
    lines.append("boundaries" if numbers["boundaries"] else "boundaries  none")
    lines += [f"  {name:<{width}}  {text}" for name, text in numbers["boundaries"].items()]
    return [*lines, "no step was taken and nothing was written"]
