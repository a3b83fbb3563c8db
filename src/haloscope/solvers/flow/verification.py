"""Runs of the flow solver compared with exact and published flows: cases as data, and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.verification import Solve

Floats = NDArray[np.float64]

_A, _D = math.pi / 4, math.pi / 2


def ethier_steinman(x: Floats, time: float, viscosity: float) -> Floats:
    """Unsteady flow in a cube from -1 to 1 whose terms all count (a = pi/4, d = pi/2).

    C. R. Ethier, D. A. Steinman, Int. J. Numer. Methods Fluids 19 (1994) 369, for a density of 1.
    `x`: points, (n, 3); Returns: velocity and pressure, (n, 4).
    """
    decay = math.exp(-viscosity * _D**2 * time)
    velocity = []
    for axis in range(3):
        p, q, r = (x[:, (axis + k) % 3] for k in range(3))
        growing = np.exp(_A * p) * np.sin(_A * q + _D * r)
        turning = np.exp(_A * r) * np.cos(_A * p + _D * q)
        velocity.append(-_A * decay * (growing + turning))
    pressure = np.zeros(len(x))
    for axis in range(3):
        p, q, r = (x[:, (axis + k) % 3] for k in range(3))
        mixed = np.sin(_A * p + _D * q) * np.cos(_A * r + _D * p) * np.exp(_A * (q + r))
        pressure += np.exp(2 * _A * p) + 2 * mixed
    return np.stack([*velocity, -(_A**2) / 2 * decay**2 * pressure], axis=1)


def taylor_green(x: Floats, time: float, viscosity: float) -> Floats:
    """Decaying vortices in planes of constant z, each pi wide, for a density of 1.

    Through lines at multiples of pi along x and y nothing flows, and there is no friction: the flow
    fills a box with slip. G. I. Taylor, A. E. Green, Proc. R. Soc. Lond. A 158 (1937) 499.
    """
    # `x`: points, (n, 3).
    # Returns: velocity and pressure, (n, 4).
    decay = math.exp(-2 * viscosity * time)
    (sx, sy), (cx, cy) = np.sin(x[:, :2]).T, np.cos(x[:, :2]).T
    u, v = decay * sx * cy, -decay * cx * sy
    pressure = decay**2 / 4 * (np.cos(2 * x[:, 0]) + np.cos(2 * x[:, 1]))
    return np.stack([u, v, 0 * u, pressure], axis=1)


SIDES = ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")
# Points and weight of the quadrature of second degree on a tetrahedron.
_NEAR, _FAR = (5 + 3 * math.sqrt(5)) / 20, (5 - math.sqrt(5)) / 20
_ETHIER_VISCOSITY, _ETHIER_STEP, _ETHIER_END = 0.01, 0.01, 0.1
_TAYLOR_VISCOSITY, _TAYLOR_END = 0.1, 1.0
_TURNING_RATE, _TURNING_END = 1.2, 1.0
# From when on vortices behind the cylinder are alike, in s.
_SHEDDING_FROM = 4.5


def relative_errors(simulation: Any, exact: Callable[[Floats], Floats]) -> tuple[float, float]:
    """Errors of velocity and pressure over the volume, relative to the exact ones; on one rank.

    The pressure's is without its mean.
    `exact`: gives (n, 4) at points (n, 3).
    """
    solver = simulation.solver
    part = solver.system.part
    state = simulation.device.to_host(solver.state).reshape(-1, 4)[part.tets]
    corners = part.nodes[part.tets]
    edges = corners[:, 1:] - corners[:, :1]
    volumes = np.abs(np.linalg.det(edges)) / 6
    missed, whole = [], []
    for point in range(4):
        weights = np.full(4, _FAR)
        weights[point] = _NEAR
        values = np.einsum("c,ecf->ef", weights, state)
        wanted = exact(np.einsum("c,ecx->ex", weights, corners))
        missed.append(values - wanted)
        whole.append(wanted)
    errors, fields = np.stack(missed), np.stack(whole)
    mean = (volumes * errors[..., 3]).sum() / (4 * volumes.sum())
    errors[..., 3] -= mean
    squares = [np.einsum("e,qef->f", volumes, values**2) for values in (errors, fields)]
    velocity = math.sqrt(squares[0][:3].sum() / squares[1][:3].sum())
    return velocity, math.sqrt(squares[0][3] / squares[1][3])


def _ethier_texts() -> list[str]:
    """Velocity of Ethier and Steinman's flow as expressions of x, y, z, t."""
    a, d = "(pi/4)", "(pi/2)"
    decay = f"exp(-{_ETHIER_VISCOSITY}*{d}**2*t)"
    texts = []
    for axis in range(3):
        p, q, r = ("xyz"[(axis + k) % 3] for k in range(3))
        growing = f"exp({a}*{p})*sin({a}*{q}+{d}*{r})"
        turning = f"exp({a}*{r})*cos({a}*{p}+{d}*{q})"
        texts.append(f"-{a}*({growing}+{turning})*{decay}")
    return texts


def ethier_errors(cells: int, solve: Solve) -> tuple[float, float]:
    """Errors of Ethier and Steinman's flow at t = 0.1 in a cube of 6 cells^3 tetrahedra."""
    velocity = _ethier_texts()
    start = [text.replace("*t)", "*0)") for text in velocity]
    simulation = solve(
        {
            "solver": "flow",
            "flow": {
                "box": {"cells": [cells] * 3, "lower": [-1.0] * 3, "upper": [1.0] * 3},
                "fluid": {"density": 1.0, "viscosity": _ETHIER_VISCOSITY},
                "boundaries": {side: {"velocity": velocity} for side in SIDES},
                "pressure_at": [-1.0] * 3,
                "initial": dict(zip("uvw", start, strict=True)),
                "time": {"scheme": "bdf2", "time_step": _ETHIER_STEP, "end": _ETHIER_END},
            },
            "run": {"tolerance": 0.0},
        }
    )
    return relative_errors(simulation, lambda x: ethier_steinman(x, _ETHIER_END, _ETHIER_VISCOSITY))


def cylinder_coefficients(
    channel: dict[str, Any], solve: Solve, **more: Any
) -> tuple[float, float]:
    """Drag coefficient and pressure difference of the DFG benchmark 3D-1Z on a channel's mesh."""
    simulation = solve(
        {
            "solver": "flow",
            "flow": {
                "cylinder_channel": channel,
                "fluid": {"density": 1.0, "viscosity": 1e-3},
                "boundaries": {
                    "inlet": {"velocity": ["16*0.45*y*z*(0.41-y)*(0.41-z)/0.41**4", 0.0, 0.0]},
                    "outlet": "open",
                    "walls": "no-slip",
                    "cylinder": "no-slip",
                },
                "forces": [
                    {"name": "it", "boundaries": ["cylinder"], "velocity": 0.2, "area": 0.041}
                ],
                **more,
            },
            "run": {"tolerance": 1e-6},
        }
    )
    front, back = simulation.solver.sample([(0.45, 0.2, 0.205), (0.55, 0.2, 0.205)])
    return simulation.diagnostics()["it_cx"], front[3] - back[3]


def lid_driven(cells: int, to_walls: float, solve: Solve) -> Any:
    """Steady flow in a cube whose upper wall moves along x at Re = 1000."""
    boundaries: dict[str, Any] = dict.fromkeys(SIDES, "no-slip")
    return solve(
        {
            "solver": "flow",
            "flow": {
                "box": {"cells": [cells] * 3, "to_walls": to_walls},
                "fluid": {"density": 1.0, "viscosity": 1e-3},
                "boundaries": boundaries | {"y_high": {"moving": {"velocity": [1.0, 0.0, 0.0]}}},
                "pressure_at": [0.0, 0.0, 0.0],
                "time": {"scheme": "steady", "pseudo_time_step": 0.5},
            },
            "run": {"tolerance": 1e-5},
        }
    )


def taylor_green_run(cells: int, steps: int, solve: Solve) -> Any:
    """Decay of Taylor and Green's vortices between planes of symmetry, pi wide, one layer thick."""
    start = {"u": "sin(x)*cos(y)", "v": "-cos(x)*sin(y)"}
    return solve(
        {
            "solver": "flow",
            "flow": {
                "box": {
                    "cells": [cells, cells, 1],
                    "upper": [math.pi, math.pi, math.pi / cells],
                },
                "fluid": {"density": 1.0, "viscosity": _TAYLOR_VISCOSITY},
                "boundaries": dict.fromkeys(SIDES, "slip"),
                "pressure_at": [0.0, 0.0, 0.0],
                "initial": start,
                "time": {
                    "scheme": "bdf2",
                    "time_step": _TAYLOR_END / steps,
                    "end": _TAYLOR_END,
                },
            },
            "run": {"tolerance": 0.0},
        }
    )


def taylor_green_rate(cells: int, steps: int, solve: Solve) -> tuple[float, float]:
    """Rate at which the kinetic energy falls over the exact 4 nu, and the velocity's error."""
    simulation = taylor_green_run(cells, steps, solve)
    energies = [values["kinetic_energy"] for _, values in simulation.history]
    # From the first step on: that is one of backward Euler.
    span = _TAYLOR_END * (len(energies) - 1) / len(energies)
    rate = math.log(energies[0] / energies[-1]) / span / (4 * _TAYLOR_VISCOSITY)
    error, _ = relative_errors(
        simulation, lambda x: taylor_green(x, _TAYLOR_END, _TAYLOR_VISCOSITY)
    )
    return rate, error


def turning_shear_error(slabs: int, solve: Solve) -> float:
    """Largest error in m/s of a velocity after 1 s in space-time slabs; it is due to time alone.

    A shear flow, du/dy = 1/s and du/dz = 0.5/s, is seen from a frame that turns about z: there it
    turns with time, at the boundaries too, and stays linear in space, without a pressure.
    """
    rate, end = _TURNING_RATE, _TURNING_END
    turned = f"(sin({rate}*t)*x + cos({rate}*t)*y + 0.5*z)"
    velocity = [f"cos({rate}*t)*{turned}", f"-sin({rate}*t)*{turned}", 0.0]
    simulation = solve(
        {
            "solver": "flow",
            "flow": {
                "box": {"cells": [6, 6, 6], "lower": [-0.5] * 3, "upper": [0.5, 0.6, 0.7]},
                "fluid": {"density": 1.3, "viscosity": 0.02},
                "zones": {"volume": {"rotation": [0.0, 0.0, rate]}},
                "boundaries": {side: {"velocity": velocity} for side in SIDES},
                "pressure_at": [-0.5] * 3,
                "initial": {"u": "y + 0.5*z"},
                "time": {"scheme": "space-time", "time_step": end / slabs, "end": end},
                "newton": {"iterations": 8, "tolerance": 1e-10},
                "linear": {"tolerance": 1e-6},
            },
            "run": {"tolerance": 0.0},
        }
    )
    solver = simulation.solver
    x, y, z = solver.system.part.nodes.T
    sine, cosine = math.sin(rate * end), math.cos(rate * end)
    shear = sine * x + cosine * y + 0.5 * z
    exact = np.stack([cosine * shear, -sine * shear, 0.0 * shear], axis=1)
    computed = simulation.device.to_host(solver.state).reshape(-1, 4)[:, :3]
    return float(np.abs(computed - exact).max())


def newton_residuals(solve: Solve, *, linearise_tau: bool) -> list[float]:
    """Newton's residuals of steady flow in a small cube over the first; linear systems are solved."""
    boundaries: dict[str, Any] = dict.fromkeys(SIDES, "no-slip")
    simulation = solve(
        {
            "solver": "flow",
            "flow": {
                "box": {"cells": [5] * 3},
                "fluid": {"density": 1.0, "viscosity": 0.05},
                "boundaries": boundaries | {"y_high": {"moving": {"velocity": [1.0, 0.0, 0.0]}}},
                "pressure_at": [0.0, 0.0, 0.0],
                "newton": {"linearise_tau": linearise_tau},
                "linear": {"tolerance": 1e-11, "iterations": 400, "restart": 200},
            },
            "run": {"tolerance": 1e-13 if linearise_tau else 1e-10},
        }
    )
    rows = simulation.solver.results.newton_rows
    residuals = [row[3] for row in rows if row[2] == 0] + [rows[-1][3]]
    return [residual / residuals[0] for residual in residuals]


def strouhal_number(solve: Solve, *, resolution: int = 20, step: float = 0.005) -> float:
    """Frequency of the lift of a cylinder in a thin slice at Re = 100, from its last periods."""
    profile = "4*1.5*y*(0.41-y)/0.41**2"
    simulation = solve(
        {
            "solver": "flow",
            "flow": {
                "cylinder_slice": {"resolution": resolution},
                "fluid": {"density": 1.0, "viscosity": 1e-3},
                "boundaries": {
                    "inlet": {"velocity": [profile, 0.0, 0.0]},
                    "outlet": "open",
                    "walls": "no-slip",
                    "cylinder": "no-slip",
                    "back": "slip",
                    "front": "slip",
                },
                # Vortices come sooner from a flow that is not even.
                "initial": {"u": profile, "v": "0.2*sin(10*x)"},
                "time": {"scheme": "bdf2", "time_step": step, "end": 6.0},
                "newton": {"iterations": 4, "tolerance": 1e-4},
                "forces": [{"name": "it", "boundaries": ["cylinder"]}],
            },
            "run": {"tolerance": 0.0},
        }
    )
    rows = np.array(simulation.solver.results.force_rows["it"])
    time, lift = rows[:, 1], rows[:, 3]
    late = time > _SHEDDING_FROM
    time, lift = time[late], lift[late] - lift[late].mean()
    rises = np.flatnonzero((lift[:-1] < 0) & (lift[1:] >= 0))
    shares = lift[rises] / (lift[rises] - lift[rises + 1])
    crossings = time[rises] + shares * (time[rises + 1] - time[rises])
    # St = f D / U with D = 0.1 m and U = 1 m/s.
    return float(0.1 * (len(crossings) - 1) / (crossings[-1] - crossings[0]))
