"""Openings: the answer of a Windkessel to a step, how flow splits at a bifurcation, an inlet that oscillates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.units import MICRO, SOUND_SPEED
from haloscope.solvers.blood.verification.flows import (
    DENSITY,
    VISCOSITY,
    case_of,
    places_and_velocities,
    step_of,
)
from haloscope.solvers.verification import Solve

TIMES = (0.5, 1.0, 2.0, 5.0)
"""Of the answer to a step, over distal resistance times compliance."""
PROXIMAL = 0.25
"""Proximal resistance over the distal one."""

_TAU = 0.9
_SPACING = 1.0  # In um
# Of the tube in um, and its mean velocity on the lattice: its pressure hardly changes the density.
_RADIUS, _LENGTH, _SPEED = 3.0, 6.0, 1e-4
# Steps in which the compliance fills, and this compliance over that of the fluid on the lattice.
_FILLING, _OVER_LATTICE = 10_000, 1e4


def exact_answer(time: float) -> float:
    """Pressure over that of long after a step of the flow rate; `time`: over distal resistance times compliance."""
    return (PROXIMAL - math.expm1(-time)) / (PROXIMAL + 1.0)


def answers_to_a_step(solve: Solve) -> list[float]:
    """Pressures at the outlet of a short tube at the times, over the flow rate times both resistances."""
    step = step_of(_SPACING, _TAU)
    unit = _SPACING * MICRO / step
    speed = _SPEED * unit
    volume = math.pi * _RADIUS**2 * (_LENGTH + 1) * MICRO**3
    compliance = _OVER_LATTICE * volume / (DENSITY * (SOUND_SPEED * unit) ** 2)
    distal = _FILLING * step / compliance
    law = {"proximal": PROXIMAL * distal, "distal": distal, "compliance": compliance, "start": 0.0}
    profile = f"{2 * speed!r}*(1 - (y**2 + z**2)/{(_RADIUS * MICRO) ** 2!r})"
    case = case_of(
        _SPACING,
        {"steps": 0},
        relaxation_time=_TAU,
        tube={"radius_um": _RADIUS, "length_um": _LENGTH, "periodic": False},
        openings=[
            {"name": "inlet", "kind": "velocity", "value": speed},
            {"name": "outlet", "kind": "pressure", "resistance": law},
        ],
        initial={"u": profile},
    )
    solver = solve(case).solver
    flow = solver.diagnostics()["flow_inlet"]
    answers = []
    for time in TIMES:
        solver.advance(round(time * _FILLING) - solver.step)
        pressure = solver.diagnostics()["outlet_pressure_outlet"]
        answers.append(pressure / (flow * distal * (1 + PROXIMAL)))
    return answers


# Of the bifurcation in um, the mean velocity of its parent on the lattice, and steps until it is steady.
_PARENT = {"radius_um": 5.0, "parent_length_um": 10.0, "daughter_length_um": 24.0}
_SLOW, _SETTLING = 2e-4, 3000


def _flows(solve: Solve, *outlets: dict[str, Any]) -> tuple[float, float]:
    """Flow rates in m^3/s out of both daughters of a symmetric bifurcation, once they are steady."""
    speed = _SLOW * _SPACING * MICRO / step_of(_SPACING, _TAU)
    openings = [
        {"name": f"outlet-{number}", "kind": "pressure", **outlet}
        for number, outlet in enumerate(outlets, 1)
    ]
    case = case_of(
        _SPACING,
        {"steps": _SETTLING, "diagnostics_interval": _SETTLING},
        relaxation_time=_TAU,
        bifurcation=_PARENT,
        openings=[{"name": "inlet", "kind": "velocity", "value": speed}, *openings],
    )
    numbers = solve(case).solver.diagnostics()
    return -numbers["flow_outlet-1"], -numbers["flow_outlet-2"]


def daughter_resistances(solve: Solve) -> tuple[float, float]:
    """Resistances of the daughters in Pa s/m^3, from flows with and without a fall in pressure between outlets."""
    # The lattice does not fit both daughters alike. R_2 Q_2 - R_1 Q_1 is the fall.
    even = _flows(solve, {}, {})
    fall = VISCOSITY * _SLOW / step_of(_SPACING, _TAU)
    one, other = _flows(solve, {"value": fall}, {})
    ratio = even[0] / even[1]
    first = fall / (ratio * other - one)
    return first, ratio * first


def share_with_resistances(solve: Solve, first: float, second: float) -> float:
    """Share of the first daughter in the outflow, with resistances behind both in Pa s/m^3."""
    one, other = _flows(
        solve, {"resistance": {"proximal": first}}, {"resistance": {"proximal": second}}
    )
    return one / (one + other)


def share_as_wanted(solve: Solve, share: float) -> float:
    """Share of the first daughter in the outflow where the case gives the share."""
    one, other = _flows(solve, {"split": share}, {"split": 1 - share})
    return one / (one + other)


# Of a channel whose inlet oscillates: Womersley number, spacings in half of its height, length in heights, height in um,
# mean velocity on the lattice, relaxation time, and instants in a period, which is long beside the time of sound.
_WOMERSLEY, _POINTS, _LONG = 4.0, 10, 1.0
_HEIGHT, _OSCILLATING, _THIN = 8.0, 2e-3, 0.55
_PHASES, _BEFORE = 8, 2


def oscillating_flow(y: NDArray[np.float64], phase: float) -> NDArray[np.float64]:
    """Velocity over its mean between plates, of a flow of 1 + cos(phase).

    `y`: distances from the middle over half of the height.
    """
    k = 1j**0.5 * _WOMERSLEY
    shape = (1 - np.cosh(k * y) / np.cosh(k)) / (1 - np.tanh(k) / k)
    return np.asarray(1.5 * (1 - y**2) + (shape * np.exp(1j * phase)).real)


def oscillating_inlet(solve: Solve, profile: str = "womersley") -> tuple[float, float, float]:
    """Error within half a height of the inlet, and in the middle there amplitude over the exact one, phase in degrees."""
    spacing, half = _HEIGHT / 2 / _POINTS, _HEIGHT / 2 * MICRO
    omega = (_WOMERSLEY / half) ** 2 * VISCOSITY / DENSITY
    # A period in whole steps, so that the instants are those of steps.
    wanted = 2 * math.pi / omega / step_of(spacing, _THIN)
    steps = _PHASES * round(wanted / _PHASES)
    tau = 0.5 + (_THIN - 0.5) * wanted / steps
    period = steps * step_of(spacing, tau)
    mean = _OSCILLATING * spacing * MICRO / step_of(spacing, tau)
    inlet = {"value": mean, "signal": f"1 + cos(2*pi*t/{period!r})", "period_s": period}
    case = case_of(
        spacing,
        {"steps": _BEFORE * steps, "diagnostics_interval": _BEFORE * steps},
        relaxation_time=tau,
        channel={
            "size_um": [_LONG * _HEIGHT, _HEIGHT, 2 * spacing],
            "periodic": ["z"],
            "open": ["x"],
        },
        openings=[
            {"name": "x_low", "kind": "velocity", "profile": profile, **inlet},
            {"name": "x_high", "kind": "pressure"},
        ],
    )
    simulation = solve(case)
    errors, sizes, middle, exact = [], [], [], []
    for _ in range(_PHASES):
        simulation.solver.advance(steps // _PHASES)
        x, u = places_and_velocities(simulation)
        near = x[:, 0] < half
        y = x[near, 1] / half - 1
        true = mean * oscillating_flow(y, omega * simulation.solver.time)
        errors.append(((u[near, 0] - true) ** 2).sum())
        sizes.append((true**2).sum())
        axis = np.abs(y) < 1 / _POINTS
        middle.append(u[near, 0][axis].mean())
        exact.append(true[axis].mean())
    turns = np.exp(-2j * np.pi * np.arange(1, _PHASES + 1) / _PHASES)
    ratio = (middle @ turns) / (exact @ turns)
    error = math.sqrt(sum(errors) / sum(sizes))
    return error, float(abs(ratio)), float(np.degrees(np.angle(ratio)))
