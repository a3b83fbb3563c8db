"""Verification of the flow solver: exact flows, published drag, profiles and shedding, observed orders."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.solvers.verification import (
    Check,
    Comparison,
    Solve,
    below,
    lid_driven_cube,
    relative,
)

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


_LID: dict[str, Any] = {
    **dict.fromkeys(SIDES, "no-slip"),
    "y_high": {"moving": {"velocity": [1.0, 0.0, 0.0]}},
}


def _run(solve: Solve, *, fluid: dict[str, float], tolerance: float = 0.0, **table: Any) -> Any:
    """Run a case with keys of the table flow; the fluid's density is 1 kg/m^3 by default."""
    flow = {**table, "fluid": {"density": 1.0, **fluid}}
    return solve({"solver": "flow", "flow": flow, "run": {"tolerance": tolerance}})


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
    simulation = _run(
        solve,
        box={"cells": [cells] * 3, "lower": [-1.0] * 3, "upper": [1.0] * 3},
        fluid={"viscosity": _ETHIER_VISCOSITY},
        boundaries={side: {"velocity": velocity} for side in SIDES},
        pressure_at=[-1.0] * 3,
        initial=dict(zip("uvw", start, strict=True)),
        time={"scheme": "bdf2", "time_step": _ETHIER_STEP, "end": _ETHIER_END},
    )
    return relative_errors(simulation, lambda x: ethier_steinman(x, _ETHIER_END, _ETHIER_VISCOSITY))


def cylinder_coefficients(
    channel: dict[str, Any], solve: Solve, **more: Any
) -> tuple[float, float]:
    """Drag coefficient and pressure difference of the DFG benchmark 3D-1Z on a channel's mesh."""
    simulation = _run(
        solve,
        cylinder_channel=channel,
        fluid={"viscosity": 1e-3},
        boundaries={
            "inlet": {"velocity": ["16*0.45*y*z*(0.41-y)*(0.41-z)/0.41**4", 0.0, 0.0]},
            "outlet": "open",
            "walls": "no-slip",
            "cylinder": "no-slip",
        },
        forces=[{"name": "it", "boundaries": ["cylinder"], "velocity": 0.2, "area": 0.041}],
        **more,
        tolerance=1e-6,
    )
    front, back = simulation.solver.sample([(0.45, 0.2, 0.205), (0.55, 0.2, 0.205)])
    return simulation.diagnostics()["it_cx"], front[3] - back[3]


def lid_driven(cells: int, to_walls: float, solve: Solve) -> Any:
    """Steady flow in a cube whose upper wall moves along x at Re = 1000."""
    return _run(
        solve,
        box={"cells": [cells] * 3, "to_walls": to_walls},
        fluid={"viscosity": 1e-3},
        boundaries=_LID,
        pressure_at=[0.0, 0.0, 0.0],
        time={"scheme": "steady", "pseudo_time_step": 0.5},
        tolerance=1e-5,
    )


def taylor_green_rate(cells: int, steps: int, solve: Solve) -> tuple[float, float]:
    """Rate at which the kinetic energy falls over the exact 4 nu, and the velocity's error.

    Of Taylor and Green's vortices between planes of symmetry, pi wide, one layer thick.
    """
    start = {"u": "sin(x)*cos(y)", "v": "-cos(x)*sin(y)"}
    simulation = _run(
        solve,
        box={"cells": [cells, cells, 1], "upper": [math.pi, math.pi, math.pi / cells]},
        fluid={"viscosity": _TAYLOR_VISCOSITY},
        boundaries=dict.fromkeys(SIDES, "slip"),
        pressure_at=[0.0, 0.0, 0.0],
        initial=start,
        time={"scheme": "bdf2", "time_step": _TAYLOR_END / steps, "end": _TAYLOR_END},
    )
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
    simulation = _run(
        solve,
        box={"cells": [6, 6, 6], "lower": [-0.5] * 3, "upper": [0.5, 0.6, 0.7]},
        fluid={"density": 1.3, "viscosity": 0.02},
        zones={"volume": {"rotation": [0.0, 0.0, rate]}},
        boundaries={side: {"velocity": velocity} for side in SIDES},
        pressure_at=[-0.5] * 3,
        initial={"u": "y + 0.5*z"},
        time={"scheme": "space-time", "time_step": end / slabs, "end": end},
        newton={"iterations": 8, "tolerance": 1e-10},
        linear={"tolerance": 1e-6},
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
    simulation = _run(
        solve,
        box={"cells": [5] * 3},
        fluid={"viscosity": 0.05},
        boundaries=_LID,
        pressure_at=[0.0, 0.0, 0.0],
        newton={"linearise_tau": linearise_tau},
        linear={"tolerance": 1e-11, "iterations": 400, "restart": 200},
        tolerance=1e-13 if linearise_tau else 1e-10,
    )
    rows = simulation.solver.results.newton_rows
    residuals = [row[3] for row in rows if row[2] == 0] + [rows[-1][3]]
    return [residual / residuals[0] for residual in residuals]


def strouhal_number(solve: Solve) -> float:
    """Frequency of the lift of a cylinder in a thin slice at Re = 100, from its last periods."""
    profile = "4*1.5*y*(0.41-y)/0.41**2"
    simulation = _run(
        solve,
        cylinder_slice={"resolution": 20},
        fluid={"viscosity": 1e-3},
        boundaries={
            "inlet": {"velocity": [profile, 0.0, 0.0]},
            "outlet": "open",
            "walls": "no-slip",
            "cylinder": "no-slip",
            "back": "slip",
            "front": "slip",
        },
        # Vortices come sooner from a flow that is not even.
        initial={"u": profile, "v": "0.2*sin(10*x)"},
        time={"scheme": "bdf2", "time_step": 0.005, "end": 6.0},
        newton={"iterations": 4, "tolerance": 1e-4},
        forces=[{"name": "it", "boundaries": ["cylinder"]}],
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


# Relative L2 errors of velocity and pressure by cells along an edge: a separate P1/P1 code with the
# same tau and BDF2, from the exact velocities at -dt and 0.
ETHIER = {8: (3.95e-2, 0.304), 16: (1.22e-2, 0.0566), 24: (6.06e-3, 0.0222)}
_ROUNDING = 1.005
_LEAST_ORDER = 1.7
_LEAST_THIRD_ORDER = 2.8
# Of Newton's residuals over the first: below it they are rounding.
_LEAST_RESIDUAL = 1e-13
DRAG, PRESSURE = 6.18533, 0.1710
STROUHAL = (0.295, 0.305)

_TURNING = "C. R. Ethier, D. A. Steinman, Int. J. Numer. Methods Fluids 19 (1994) 369-375"
_DFG = "M. Schaefer, S. Turek, Notes on Numerical Fluid Mechanics 52 (1996) 547-566"
_BRAACK = "M. Braack, T. Richter, Computers and Fluids 35 (2006) 372-392"
_TAYLOR = "G. I. Taylor, A. E. Green, Proc. R. Soc. Lond. A 158 (1937) 499-521"
_SLABS = "K. Eriksson, C. Johnson, V. Thomee, RAIRO Model. Math. Anal. Numer. 19 (1985) 611-643"
_TAU = "derivatives of all terms but tau are exact (README.md of the solver)"
_QUADRATIC = "L. V. Kantorovich, Uspekhi Mat. Nauk 3 (1948) 89: Newton's method is of second order"
_ALBENSOEDER = "S. Albensoeder, H. C. Kuhlmann, J. Comput. Phys. 206 (2005) 536-558"


def _order(order: float, formal: float = 2.0, least: float = _LEAST_ORDER) -> Comparison:
    """An observed order, at least 1.7 by default; meshes that are still coarse may show more than 2."""
    return Comparison(min(order, formal), formal, formal - least)


def ethier_check(meshes: tuple[int, ...], solve: Solve) -> dict[str, Comparison]:
    """Errors on some meshes at or below the table's."""
    comparisons = {}
    for cells in meshes:
        velocity, pressure = ethier_errors(cells, solve)
        comparisons[f"velocity error, {cells}^3"] = below(velocity, _ROUNDING * ETHIER[cells][0])
        comparisons[f"pressure error, {cells}^3"] = below(pressure, _ROUNDING * ETHIER[cells][1])
    return comparisons


def ethier_order_check(solve: Solve) -> dict[str, Comparison]:
    """The same on two finer meshes, and the order between them."""
    comparisons = ethier_check((16, 24), solve)
    coarse, fine = (comparisons[f"velocity error, {cells}^3"].value for cells in (16, 24))
    order = math.log(coarse / fine) / math.log(24 / 16)
    return comparisons | {"order of the velocity": _order(order)}


def cylinder_check(
    channel: dict[str, Any], of_drag: float, of_pressure: float, solve: Solve
) -> dict[str, Comparison]:
    """Drag and pressure difference of a cylinder at Re = 20.

    Without the least-squares term, which this smooth flow does not need: on 118,440 tetrahedra the
    drag is 0.8 % too high with it, and 0.3 % too low without, the difference 3.9 and 1.7 % too low.
    """
    drag, pressure = cylinder_coefficients(channel, solve, lsic=False)
    return {
        "drag coefficient": relative(drag, DRAG, of_drag),
        "pressure difference in Pa": relative(pressure, PRESSURE, of_pressure),
    }


def taylor_green_check(solve: Solve) -> dict[str, Comparison]:
    """The rate of decay tends to the exact one with an order, and so does the velocity."""
    (coarse, before), (fine, error) = (
        taylor_green_rate(cells, steps, solve) for cells, steps in ((8, 5), (16, 10))
    )
    return {
        "rate of decay over 4 nu, 16^2": Comparison(fine, 1.0, 0.05),
        "order of the rate": _order(math.log2((coarse - 1) / (fine - 1))),
        "velocity error, 16^2": below(error, 0.02),
        "order of the velocity": _order(math.log2(before / error)),
    }


def slabs_check(solve: Solve) -> dict[str, Comparison]:
    """Velocities at the ends of slabs tend to the exact ones with third order as slabs are halved."""
    slabs = (4, 8, 16)
    errors = [turning_shear_error(count, solve) for count in slabs]
    comparisons = {
        f"order from {few} to {2 * few} slabs": _order(
            math.log2(before / now), 3.0, _LEAST_THIRD_ORDER
        )
        for few, (before, now) in zip(slabs, itertools.pairwise(errors), strict=False)
    }
    return comparisons | {f"velocity error in m/s, {slabs[-1]} slabs": below(errors[-1], 5e-6)}


def newton_check(solve: Solve) -> dict[str, Comparison]:
    """Newton's residuals of a small flow whose linear systems are solved exactly."""
    residuals = newton_residuals(solve, linearise_tau=False)
    falls = [now / before for before, now in itertools.pairwise(residuals[2:])]
    return {
        "order at first": _order(_order_of_fall(residuals[:3])),
        "slowest fall after that": below(max(falls), 0.01),
    }


def quadratic_check(solve: Solve) -> dict[str, Comparison]:
    """The same with tau linearised, down to where rounding is all that is left."""
    residuals = newton_residuals(solve, linearise_tau=True)
    tail = [residual for residual in residuals if residual > _LEAST_RESIDUAL]
    over_squares = [now / before**2 for before, now in itertools.pairwise(tail)]
    return {
        "order of the tail": _order(_order_of_fall(tail[-3:])),
        "largest over the square before": below(max(over_squares), 1.0),
        "last residual over the first": below(residuals[-1], _LEAST_RESIDUAL),
    }


def _order_of_fall(residuals: Sequence[float]) -> float:
    """How much steeper the second of two falls is than the first, by their logarithms."""
    first, second, third = residuals
    return math.log(third / second) / math.log(second / first)


def lid_check(cells: int, to_walls: float, within: float, solve: Solve) -> dict[str, Comparison]:
    """Velocities on the centre lines of a lid-driven cube."""
    rows = lid_driven_cube()
    simulation = lid_driven(cells, to_walls, solve)
    comparisons = {}
    for name, column, line in (
        ("u", 0, lambda at: (0.5, at, 0.5)),
        ("v", 1, lambda at: (at, 0.5, 0.5)),
    ):
        at = [line(position) for velocity, position, _ in rows if velocity == name]
        values = np.array(simulation.solver.sample(at))[:, column]
        wanted = np.array([value for velocity, _, value in rows if velocity == name])
        comparisons[f"largest miss of {name}"] = below(float(np.abs(values - wanted).max()), within)
    return comparisons


def shedding_check(solve: Solve) -> dict[str, Comparison]:
    """Frequency of the lift of a cylinder at Re = 100."""
    low, high = STROUHAL
    measured = strouhal_number(solve)
    return {"Strouhal number": Comparison(measured, (low + high) / 2, (high - low) / 2)}


CHECKS = (
    Check(
        "flow-ethier-steinman",
        "exact unsteady flow in a cube with all terms, 8^3 and 16^3 cells: errors",
        _TURNING,
        partial(ethier_check, (8, 16)),
    ),
    Check(
        "flow-ethier-steinman-order",
        "exact unsteady flow in a cube on 16^3 and 24^3 cells: errors, and order of the velocity",
        _TURNING,
        ethier_order_check,
        slow=True,
    ),
    Check(
        "flow-taylor-green",
        "decay of vortices between planes of symmetry: rate, and second order",
        _TAYLOR,
        taylor_green_check,
    ),
    Check(
        "flow-space-time",
        "shear flow that rotates in time, in space-time slabs: third order at the ends of slabs",
        _SLABS,
        slabs_check,
    ),
    Check(
        "flow-newton",
        "Newton residuals: quadratic convergence, then 100-fold an iteration with tau not linearised",
        _TAU,
        newton_check,
    ),
    Check(
        "flow-newton-quadratic",
        "Newton residuals with flow.newton.linearise_tau: quadratic convergence down to rounding",
        _QUADRATIC,
        quadratic_check,
    ),
    Check(
        "flow-cylinder",
        "cylinder in a channel at Re = 20, about 120,000 tetrahedra: drag, pressure difference",
        f"{_DFG}; {_BRAACK}",
        partial(cylinder_check, {"resolution": 14, "layers": 15}, 0.02, 0.02),
    ),
    Check(
        "flow-cylinder-fine",
        "cylinder in a channel at Re = 20, about a million tetrahedra: drag, pressure difference",
        f"{_DFG}; {_BRAACK}",
        partial(cylinder_check, {"resolution": 29}, 0.01, 0.015),
        slow=True,
    ),
    Check(
        "flow-lid-cube",
        "lid-driven cube at Re = 1000: velocities on the centre lines",
        _ALBENSOEDER,
        partial(lid_check, 32, 0.6, 0.02),
        slow=True,
    ),
    Check(
        "flow-shedding",
        "cylinder in a thin slice of a channel at Re = 100: frequency of the vortices",
        _DFG,
        shedding_check,
        slow=True,
    ),
)
