"""Cases of plasma alone in channels and tubes, and what their flows miss exact solutions by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.blood.verification import exact

Floats = NDArray[np.float64]
Solve = Callable[[dict[str, Any]], Any]

VISCOSITY, DENSITY = 1.2e-3, 1025.0
"""Of plasma, in Pa s and kg/m^3."""
MICRO = 1e-6
WIDTH = 8.0
"""Of channels and tubes in um."""
# Largest velocities on the lattice, far below its speed of sound.
_SPEED = 0.02
# Of a flow along which the pressure, and so the density, falls.
_SLOW = 0.001
# Points along an axis on which nothing changes.
_THIN = 2
_LENGTH = 2
_ALMOST_STEADY = 1e-8
_PERIODS = 12
_PHASES = 8


def case_of(
    spacing_um: float, run: dict[str, Any], *, relaxation_time: float = 0.9, **keys: Any
) -> dict[str, Any]:
    """Data of a case with plasma, whose other keys are given."""
    return {
        "solver": "blood",
        "blood": {
            "spacing_um": spacing_um,
            "relaxation_time": relaxation_time,
            "viscosity_mpa_s": VISCOSITY / 1e-3,
            "density_kg_m3": DENSITY,
            **keys,
        },
        "run": run,
    }


def step_of(spacing_um: float, relaxation_time: float = 0.9) -> float:
    """Time step in s of such a case."""
    return (relaxation_time - 0.5) / 3 * (spacing_um * MICRO) ** 2 * DENSITY / VISCOSITY


def to_steady_state(points: float, tolerance: float = 1e-14) -> dict[str, Any]:
    """Keys of a run that ends when the flow across so many points changes no more in a step."""
    return {"steps": int(60 * points**2), "tolerance": tolerance, "diagnostics_interval": 100}


def places_and_velocities(simulation: Any) -> tuple[Floats, Floats]:
    """Positions in m and velocities in m/s of all points, both (points, 3); of one rank."""
    solver = simulation.solver
    own = solver.part.numbers[: solver.part.owned]
    return solver.vessel.lattice.positions(own), solver.fluid.moments()[1].T * solver.units.velocity


def _error(velocity: Floats, true: Floats) -> float:
    """Root of the mean squared error, over that of the true values."""
    return float(np.sqrt(((velocity - true) ** 2).sum() / (true**2).sum()))


def observed_order(errors: Sequence[float]) -> float:
    """Of errors on lattices of which each has half the spacing of the one before."""
    return math.log2(errors[-2] / errors[-1])


def channel_error(points: int, solve: Solve, **keys: Any) -> float:
    """Flow between plates so many spacings apart, driven by a pressure gradient."""
    spacing = WIDTH / points
    fastest = _SPEED * 8 / points * spacing * MICRO / step_of(spacing)
    gradient = 8 * VISCOSITY * fastest / (WIDTH * MICRO) ** 2
    case = case_of(
        spacing,
        to_steady_state(points),
        channel={"size_um": [_THIN * spacing, WIDTH, _THIN * spacing], "periodic": ["x", "z"]},
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        **keys,
    )
    x, u = places_and_velocities(solve(case))
    return _error(u[:, 0], exact.between_plates(x[:, 1], WIDTH * MICRO, gradient, VISCOSITY))


def tube_error(points: int, walls: str, solve: Solve, **keys: Any) -> float:
    """Flow in a round tube so many spacings wide, driven by a pressure gradient."""
    spacing, radius = WIDTH / points, WIDTH / 2 * MICRO
    # Interpolated walls lose mass with the square of the velocity: here next to none.
    fastest = _SLOW * 8 / points * spacing * MICRO / step_of(spacing)
    gradient = 4 * VISCOSITY * fastest / radius**2
    case = case_of(
        spacing,
        to_steady_state(points, _ALMOST_STEADY),
        tube={"radius_um": WIDTH / 2, "length_um": _THIN * spacing},
        walls={"kind": walls},
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        **keys,
    )
    x, u = places_and_velocities(solve(case))
    true = exact.in_tube(np.hypot(x[:, 1], x[:, 2]), radius, gradient, VISCOSITY)
    return _error(u[:, 0], true)


def couette_error(points: int, solve: Solve) -> float:
    """Flow between plates of which the upper one moves along x and z."""
    spacing = WIDTH / points
    speed = _SPEED * spacing * MICRO / step_of(spacing)
    moving = np.array([speed, 0.0, -0.5 * speed])
    case = case_of(
        spacing,
        to_steady_state(points),
        channel={"size_um": [_THIN * spacing, WIDTH, _THIN * spacing], "periodic": ["x", "z"]},
        walls={"velocity_m_s": {"y_high": moving.tolist()}},
    )
    x, u = places_and_velocities(solve(case))
    return _error(u, x[:, 1:2] / (WIDTH * MICRO) * moving)


def pulsating_error(points: int, solve: Solve, *, womersley: float = 4.0) -> float:
    """Flow between plates whose drive is a cosine of time, at eight instants of a period."""
    spacing, height = WIDTH / points, WIDTH * MICRO
    omega = (2 * womersley / height) ** 2 * VISCOSITY / DENSITY
    # A period in whole steps, so that the instants are those of steps.
    wanted = 2 * math.pi / omega / step_of(spacing)
    steps = _PHASES * max(1, round(wanted / _PHASES))
    tau = 0.5 + 0.4 * wanted / steps
    period = steps * step_of(spacing, tau)
    speed = _SPEED * 8 / points * spacing * MICRO / step_of(spacing)
    gradient = speed * DENSITY * omega
    case = case_of(
        spacing,
        {"steps": _PERIODS * steps, "diagnostics_interval": _PERIODS * steps},
        relaxation_time=tau,
        channel={"size_um": [_THIN * spacing, WIDTH, _THIN * spacing], "periodic": ["x", "z"]},
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        drive=f"cos(2*pi*t/{period!r})",
    )
    simulation = solve(case)
    velocities, true = [], []
    for _ in range(_PHASES):
        simulation.solver.advance(steps // _PHASES)
        x, u = places_and_velocities(simulation)
        velocities.append(u[:, 0])
        true.append(
            exact.pulsating_between_plates(
                x[:, 1],
                simulation.solver.time,
                height,
                gradient,
                VISCOSITY,
                DENSITY,
                1 / period,
            )
        )
    return _error(np.array(velocities), np.array(true))


def open_channel(points: int, solve: Solve) -> tuple[float, float]:
    """Flow from an inlet of given velocity to an outlet of given pressure, two widths on."""
    spacing, height = WIDTH / points, WIDTH * MICRO
    mean = _SLOW * spacing * MICRO / step_of(spacing)
    case = case_of(
        spacing,
        to_steady_state(_LENGTH * points, _ALMOST_STEADY),
        channel={
            "size_um": [_LENGTH * WIDTH, WIDTH, _THIN * spacing],
            "periodic": ["z"],
            "open": ["x"],
        },
        openings=[
            {"name": "x_low", "kind": "velocity", "value": mean},
            {"name": "x_high", "kind": "pressure", "value": 0.0},
        ],
    )
    simulation = solve(case)
    x, u = places_and_velocities(simulation)
    middle = np.abs(x[:, 0] - _LENGTH / 2 * height) < height / 2
    gradient = 12 * VISCOSITY * mean / height**2
    true = exact.between_plates(x[middle, 1], height, gradient, VISCOSITY)
    pressure = simulation.solver.relative("p")[middle]
    fall = -np.polyfit(x[middle, 0], pressure, 1)[0]
    return _error(u[middle, 0], true), float(fall / gradient)
