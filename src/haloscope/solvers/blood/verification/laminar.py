"""Checks of laminar flows of plasma: a pulsating tube."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import jv

from haloscope.solvers.blood.outputs.wall_stress import WallStress
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification.flows import (
    DENSITY,
    VISCOSITY,
    WIDTH,
    case_of,
    places_and_velocities,
    step_of,
)
from haloscope.solvers.verification import Check, Comparison, Solve, relative

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_TAU = 0.7
_THIN = 2
"""Points along an axis on which nothing changes."""
_PHASES = 16
_PULSE_SPEED = 0.01
"""Of steady flow under the same gradient, on the lattice."""
_SLOWEST = 5.783
"""First zero of J_0, squared: a start decays with its product with nu/R^2."""
_FORGOTTEN = 1e-4
RINGS = (0.0, 0.5, 0.9)
"""Distances from the axis over the radius at which velocities are compared."""
_RING = 1.0
"""Half the width of a ring in spacings."""


@dataclass(frozen=True)
class Womersley:
    """Complex amplitudes to a gradient G cos(omega t), long after its start.

    J. R. Womersley, J. Physiol. 127 (1955) 553; `alpha`: R sqrt(omega rho/mu).
    """

    alpha: float

    @property
    def _k(self) -> complex:
        return self.alpha * cmath.exp(0.75j * math.pi)

    def velocity(self, r: Floats) -> Complexes:
        """Over G R^2/(4 mu), at distances from the axis over the radius."""
        shape: Complexes = 1 - jv(0, self._k * r) / jv(0, self._k)
        return 4 / (1j * self.alpha**2) * shape

    @property
    def flow(self) -> complex:
        """Over pi G R^4/(8 mu)."""
        return complex(8 / (1j * self.alpha**2) * (1 - self.wall_shear))

    @property
    def wall_shear(self) -> complex:
        """Over G R/2."""
        return complex(2 * jv(1, self._k) / (self._k * jv(0, self._k)))


@dataclass(frozen=True)
class Pulse:
    """Measured complex amplitudes, over those of steady flow."""

    velocities: tuple[complex, ...]  # At RINGS
    flow: complex
    wall_shear: complex


def pulsating_tube(alpha: float, points: int, solve: Solve) -> Pulse:
    """Flow in a round tube under a gradient that is a cosine of time; `points`: in a radius."""
    spacing, radius = WIDTH / 2 / points, WIDTH / 2 * MICRO
    omega = (alpha / radius) ** 2 * VISCOSITY / DENSITY
    # A period in whole steps, so that the instants are those of steps.
    wanted = 2 * math.pi / omega / step_of(spacing, _TAU)
    steps = _PHASES * max(1, round(wanted / _PHASES))
    tau = 0.5 + (_TAU - 0.5) * wanted / steps
    step = step_of(spacing, tau)
    gradient = 4 * VISCOSITY * _PULSE_SPEED * spacing * MICRO / step / radius**2
    periods = math.ceil(-math.log(_FORGOTTEN) * alpha**2 / (2 * math.pi * _SLOWEST))
    case = case_of(
        spacing,
        {"steps": periods * steps, "diagnostics_interval": periods * steps},
        relaxation_time=tau,
        tube={"radius_um": WIDTH / 2, "length_um": _THIN * spacing},
        walls={"kind": "interpolated"},
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        drive=f"cos({omega!r}*t)",
    )
    simulation = solve(case)
    solver = simulation.solver
    walls = WallStress(solver.medium, solver.vessel)
    push = np.array([gradient, 0.0, 0.0]) / solver.units.force_density
    first: Complexes = np.zeros(1, np.complex128)
    shear = 0j
    for _ in range(_PHASES):
        solver.advance(steps // _PHASES)
        share = 2 / _PHASES * cmath.exp(-1j * omega * solver.time)
        x, u = places_and_velocities(simulation)
        first = first + share * u[:, 0]
        walls.clear()
        walls.sample(push * math.cos(omega * (solver.time - step)))
        shear += share * float(walls.numbers()["mean_vector_pa"][0])
    r = np.hypot(x[:, 1], x[:, 2]) / radius
    steady = gradient * radius**2 / (4 * VISCOSITY)
    flow = first.sum() * (spacing * MICRO) ** 2 / _THIN
    return Pulse(
        _at_rings(Womersley(alpha), r, first / steady, _RING / points),
        complex(flow / (math.pi * radius**2 * steady / 2)),
        complex(shear / (gradient * radius / 2)),
    )


def _at_rings(exact: Womersley, r: Floats, velocity: Complexes, half: float) -> tuple[complex, ...]:
    """Velocities at RINGS, from the points near each: their ratio to the exact one hardly changes there."""
    ratio = velocity / exact.velocity(r)
    rings = []
    for ring in RINGS:
        near = np.abs(r - ring) < half
        fit = np.polyfit(r[near] - ring, ratio[near], 1 if ring else 0)
        rings.append(complex(fit[-1] * exact.velocity(np.array(ring))))
    return tuple(rings)


_WITHIN, _DEGREES = 0.02, 2.0
_BOUNDARY_LAYER = (16, 24)
"""Points in a radius from which the wall shear is extrapolated, with the square of the spacing.

At 8 the layer in which the stress falls is two spacings thick at the first of them.
"""


def _compared(quantity: str, value: complex, exact: complex) -> dict[str, Comparison]:
    """An amplitude, and its phase in degrees."""
    degrees = math.degrees(cmath.phase(exact))
    behind = math.degrees(cmath.phase(value / exact))
    return {
        f"amplitude, {quantity}": relative(abs(value), abs(exact), _WITHIN),
        f"phase in degrees, {quantity}": Comparison(degrees + behind, degrees, _DEGREES),
    }


def pulsating_tube_check(solve: Solve) -> dict[str, Comparison]:
    """Velocities at three distances from the axis, flow rate and wall shear."""
    comparisons: dict[str, Comparison] = {}
    for alpha in (3.0, 8.0):
        exact, pulses = Womersley(alpha), [pulsating_tube(alpha, _BOUNDARY_LAYER[0], solve)]
        shear, name = pulses[0].wall_shear, "wall shear"
        if alpha == 8.0:
            pulses.append(pulsating_tube(alpha, _BOUNDARY_LAYER[1], solve))
            coarse, fine = (points**2 for points in _BOUNDARY_LAYER)
            shear = (fine * pulses[1].wall_shear - coarse * shear) / (fine - coarse)
            name = "wall shear, extrapolated"
        measured = dict(
            zip(
                ("axis", "R/2", "0.9 R"),
                zip(pulses[0].velocities, _exact_rings(exact), strict=True),
                strict=True,
            )
        )
        measured |= {"flow": (pulses[0].flow, exact.flow), name: (shear, exact.wall_shear)}
        for quantity, (value, true) in measured.items():
            comparisons |= _compared(f"alpha {alpha:g}, {quantity}", value, true)
    return comparisons


def _exact_rings(exact: Womersley) -> list[complex]:
    return [complex(velocity) for velocity in exact.velocity(np.array(RINGS))]


CHECKS = (
    Check(
        "blood-womersley",
        "flow in a round tube under a pulsating pressure gradient, 16 points in a radius, Womersley numbers 3 and 8",
        "J. R. Womersley, J. Physiol. 127 (1955) 553",
        pulsating_tube_check,
    ),
)
