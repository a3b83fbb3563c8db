"""Warnings about numbers of a flow run: flows that do not balance, backflow, values not settled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from haloscope.errors import counted

Row = Sequence[float]

# Share of the throughflow that may be missing, or enter where fluid leaves.
_SHARE = 0.01
# Of the velocity scale times the area of openings: flows below it are rounding.
_ROUNDING = 1e-9
# Fall of Newton's residual in a time step below which the step is not solved.
_LEAST_FALL = 100.0
# Residuals below this part of the largest of a run are rounding.
_ROUNDED_RESIDUAL = 1e-11
# Change of a mean over thirds of a run, over the root mean square, from which it has not settled.
_SETTLED = 0.05
# Steps in a third of a run, below which means say nothing.
_LEAST_STEPS = 4


def balance_warnings(openings: Mapping[str, Mapping[str, float]], velocity: float) -> list[str]:
    """A warning if flows through all openings do not add up to nothing.

    `velocity`: velocity scale of the case in m/s.
    """
    flows = [values["flow_rate"] for values in openings.values()]
    through = max(
        math.fsum(max(flow, 0.0) for flow in flows), -math.fsum(min(f, 0.0) for f in flows)
    )
    area = math.fsum(values["area"] for values in openings.values())
    net = math.fsum(flows)
    if through <= _ROUNDING * velocity * area or abs(net) <= _SHARE * through:
        return []
    return [
        f"warning: flows through openings do not balance: {net:.3g} m^3/s more leave than enter, "
        f"{100 * abs(net) / through:.3g} % of the throughflow {through:.4g} m^3/s; flow rates, heads and "
        "forces are not final: allow more Newton and GMRES iterations"
    ]


def backflow_warnings(
    openings: Mapping[str, Mapping[str, float]], held: Mapping[str, bool], velocity: float
) -> list[str]:
    """Warnings about openings with a pressure or a traction through which fluid goes both ways."""
    warnings = []
    for name, holds in held.items():
        values = openings[name]
        entering = -values["inflow"]
        leaving = values["flow_rate"] + entering
        less, more = sorted((entering, leaving))
        if more <= _ROUNDING * velocity * values["area"] or less <= _SHARE * more:
            continue
        back = "enters again" if leaving >= entering else "leaves again"
        remedy = (
            "move it farther away" if holds else "set its backflow = 0.5, or move it farther away"
        )
        warnings.append(
            f"warning: backflow at {name!r}: {100 * less / more:.3g} % of the flow through it {back}; the "
            f"pressure there is not that of the vessel beyond: {remedy}"
        )
    return warnings


def newton_warnings(rows: Sequence[Row], unconverged: int) -> list[str]:
    """Warnings about steps in time that Newton's method and GMRES did not solve."""
    if not rows:
        return []
    steps = np.array([row[0] for row in rows])
    residuals = np.array([row[3] for row in rows])
    begins = np.flatnonzero(np.diff(steps, prepend=-1.0))
    ends = np.append(begins[1:], len(steps)) - 1
    first, last = residuals[begins], residuals[ends]
    loose = (last * _LEAST_FALL > first) & (last > _ROUNDED_RESIDUAL * residuals.max())
    if not loose.any():
        return []
    missed = f" and GMRES missed its tolerance {unconverged} times" if unconverged else ""
    worst = float((last[loose] / first[loose]).max())
    return [
        f"warning: in {loose.sum()} of {counted(len(first), 'time step')} Newton's residual fell less "
        f"than a hundredfold (worst: to {worst:.2g} of its start){missed}: lower flow.newton.tolerance, "
        "or allow more flow.newton.iterations and flow.linear.iterations"
    ]


def settling_warnings(name: str, values: Sequence[Row]) -> list[str]:
    """A warning if the mean over the last third of a run differs from that over the third before."""
    third = len(values) // 3
    if third < _LEAST_STEPS:
        return []
    before, last = np.array(values[-2 * third : -third]), np.array(values[-third:])
    size = float(np.sqrt((last**2).sum(axis=1).mean()))
    change = float(np.linalg.norm(last.mean(axis=0) - before.mean(axis=0)))
    if not size or change <= _SETTLED * size:
        return []
    return [
        f"warning: {name} has not settled: its mean over the last third of the steps differs by "
        f"{100 * change / size:.3g} % from that over the third before; lengthen flow.time.end"
    ]
