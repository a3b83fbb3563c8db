"""Checks of flows without cells: a pulsating tube, channels with shear thinning, and a bend."""

from __future__ import annotations

import cmath
import math
import tempfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import jv

from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.surfaces.surfaces import Surface, make_surface
from haloscope.solvers.blood.outputs.wall_stress import WallStress
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification.flows import (
    DENSITY,
    VISCOSITY,
    WIDTH,
    case_of,
    places_and_velocities,
    step_of,
    to_steady_state,
)
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.verification import Check, Comparison, Solve, relative

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_TAU = 0.7
_THIN = 2
"""Points along an axis on which nothing changes."""
_PHASES = 16
_STEADY = 1e-9
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


_MPA_S = 1e-3
AT_REST, AT_HIGH_SHEAR = 0.056, 0.00345
"""Viscosities of blood in Pa s (Y. I. Cho, K. R. Kensey, Biorheology 28 (1991) 241)."""
THINNING = {"Carreau": (3.313, 0.3568, 2.0), "Carreau-Yasuda": (1.902, 0.22, 1.25)}
"""Time in s, n and a of two fits to the same measurements."""
_GRADIENTS = (100.0, 1000.0, 10000.0)
HALF_WIDTH = 1e-3
"""Of the channel in m."""
_ACROSS, _THINNED_TAU, _CHANNEL_SPEED = 32, 0.8, 0.05
"""Points across, relaxation time at the least viscosity, and the largest velocity on the lattice."""
_NODES = 400
_PROFILE_WITHIN = 0.005


def law_of(name: str) -> Carreau:
    """One of the fits, in Pa s and s."""
    return Carreau(AT_REST, AT_HIGH_SHEAR, *THINNING[name])


def thinned_channel(law: Carreau, gradient: float) -> tuple[float, float]:
    """Largest and mean velocity in m/s between plates, from the stress at each height."""
    # With y from the middle mu(g) g = G y. By parts, u_max is the integral of h - y over g, and h times
    # the mean half of that of h^2 - y^2: y follows from g, and only g at the wall needs a root.
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    fastest = brentq(
        lambda g: float(law.viscosity(np.array(g))) * g - gradient * HALF_WIDTH,
        0.0,
        gradient * HALF_WIDTH / law.at_high_shear,
        xtol=1e-300,
        rtol=1e-14,
    )
    rate = fastest * (nodes + 1) / 2
    y = law.viscosity(rate) * rate / gradient
    share = weights / 2 * fastest
    peak = float((share * (HALF_WIDTH - y)).sum())
    mean = float((share * (HALF_WIDTH**2 - y**2)).sum()) / (2 * HALF_WIDTH)
    return peak, mean


def measured_channel(name: str, gradient: float, points: int, solve: Solve) -> tuple[float, float]:
    """The same of a run with so many points across."""
    spacing = 2 * HALF_WIDTH / points
    # Nothing but the viscosity acts in steady flow between plates: the density sets the time step.
    fastest = thinned_channel(law_of(name), gradient)[0]
    step = _CHANNEL_SPEED * spacing / fastest
    density = step * AT_HIGH_SHEAR / spacing**2 * 3 / (_THINNED_TAU - 0.5)
    time, exponent, a = THINNING[name]
    case = case_of(
        spacing / MICRO,
        to_steady_state(20 * points, _STEADY),
        relaxation_time=_THINNED_TAU,
        channel={
            "size_um": [_THIN * spacing / MICRO, 2 * HALF_WIDTH / MICRO, _THIN * spacing / MICRO],
            "periodic": ["x", "z"],
        },
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        carreau={
            "zero_shear_mpa_s": AT_REST / _MPA_S,
            "infinite_shear_mpa_s": AT_HIGH_SHEAR / _MPA_S,
            "time_s": time,
            "exponent": exponent,
            "a": a,
        },
    )
    case["blood"] |= {"viscosity_mpa_s": AT_HIGH_SHEAR / _MPA_S, "density_kg_m3": density}
    x, u = places_and_velocities(solve(case))
    away = np.abs(x[:, 1] - HALF_WIDTH) / spacing
    near, next_to = (float(u[np.abs(away - n) < 0.25, 0].mean()) for n in (0.5, 1.5))
    # A parabola through the four points in the middle.
    return near + (near - next_to) / 8, float(u[:, 0].mean())


def thinning_check(solve: Solve) -> dict[str, Comparison]:
    """Largest velocity, and how blunt the profile is, with both laws at three gradients."""
    comparisons: dict[str, Comparison] = {}
    for name in THINNING:
        for gradient in _GRADIENTS:
            peak, mean = measured_channel(name, gradient, _ACROSS, solve)
            true, true_mean = thinned_channel(law_of(name), gradient)
            row = f"{name}, {gradient:g} Pa/m"
            comparisons |= {
                f"largest velocity in m/s, {row}": relative(peak, true, _PROFILE_WITHIN),
                f"largest over mean velocity, {row}": relative(
                    peak / mean, true / true_mean, _PROFILE_WITHIN
                ),
            }
    return comparisons


_SIDES, _RINGS = 48, 96
"""Of the bend's surface: sides of its outline, and pieces along it."""
_CURVATURE, _TURN = 3.0, math.pi
"""Radius of the centreline over that of the tube, and the angle from end to end."""
_DEVELOPED = (math.pi / 2, 5 * math.pi / 6)
"""Between which angles the fall of the pressure is taken."""
_BEND_POINTS = 8
_UNCURVED = 5.0
"""A Dean number at which a bend flows as a straight tube does."""
_DEAN = (20.0, 30.0)
_BEND_SPEED, _CHANGE = 0.025, 1e-6
_NEAR_WHITE = 0.15


def friction_in_bend(dean: float) -> float:
    """Friction of long, gently curved pipes over that of straight ones at Re sqrt(d/(2 R_c)).

    C. M. White, Proc. R. Soc. Lond. A 123 (1929) 645.
    """
    if dean <= 11.6:
        return 1.0
    return float(1 / (1 - (1 - (11.6 / dean) ** 0.45) ** (1 / 0.45)))


def bend(radius: float) -> Surface:
    """A tube around the z axis in the plane z = 0, from the x axis on; radius in m."""
    around = np.arange(_SIDES) * 2 * math.pi / _SIDES
    along = np.linspace(0.0, _TURN, _RINGS + 1)[:, None]
    # The outline has the area of the circle.
    outer = radius * math.sqrt(2 * math.pi / _SIDES / math.sin(2 * math.pi / _SIDES))
    away = _CURVATURE * radius + outer * np.cos(around)
    height = np.broadcast_to(outer * np.sin(around), (_RINGS + 1, _SIDES))
    rings = np.stack([away * np.cos(along), away * np.sin(along), height], axis=2)
    a, b = rings[:-1], rings[1:]
    a_next, b_next = np.roll(a, -1, axis=1), np.roll(b, -1, axis=1)
    triangles = [np.stack(corners, axis=2) for corners in ((a, b, b_next), (a, b_next, a_next))]
    wall = [triangle.reshape(-1, 3, 3) for triangle in triangles]
    ends = []
    for ring, order in ((rings[0], (0, 1, 2)), (rings[-1], (0, 2, 1))):
        middle = np.broadcast_to(ring.mean(axis=0), ring.shape)
        ends.append(np.stack([middle, ring, np.roll(ring, -1, axis=0)], axis=1)[:, order])
    groups = np.repeat([0, 1, 2], [2 * _RINGS * _SIDES, _SIDES, _SIDES])
    corners = np.concatenate([*wall, *ends])
    return make_surface(corners, groups, ("wall", "inlet", "outlet"), unit=MICROMETRE)


def bend_friction(dean: float, points: int, solve: Solve) -> float:
    """Fall of the pressure along the bend over that in a straight tube; `points`: in a radius."""
    spacing, radius = WIDTH / 2 / points, WIDTH / 2 * MICRO
    reynolds = dean * math.sqrt(_CURVATURE)
    tau = 0.5 + 3 * _BEND_SPEED * 2 * points / reynolds
    mean = _BEND_SPEED * spacing * MICRO / step_of(spacing, tau)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/bend.stl"
        write_stl(file, bend(radius))
        case = case_of(
            spacing,
            to_steady_state(20 * points, _CHANGE),
            relaxation_time=tau,
            surface={"file": file, "scale_um": 1 / MICRO},
            walls={"kind": "interpolated"},
            openings=[
                {"name": "inlet", "kind": "velocity", "value": mean},
                {"name": "outlet", "kind": "pressure", "value": 0.0},
            ],
        )
        simulation = solve(case)
        x, _ = places_and_velocities(simulation)
        pressure = simulation.solver.relative("p")
    angle = np.arctan2(x[:, 1], x[:, 0])
    low, high = _DEVELOPED
    within = (angle > low) & (angle < high)
    fall = -np.polyfit(angle[within] * _CURVATURE * radius, pressure[within], 1)[0]
    return float(fall / (8 * VISCOSITY * mean / radius**2))


def bend_check(solve: Solve) -> dict[str, Comparison]:
    """Friction over that of a bend that flows slowly, which has the same wall in steps."""
    slow = bend_friction(_UNCURVED, _BEND_POINTS, solve)
    ratios = [bend_friction(dean, _BEND_POINTS, solve) / slow for dean in _DEAN]
    published = [friction_in_bend(dean) for dean in _DEAN]
    rise = published[1] - published[0]
    return {
        **{
            f"friction over that at Dean number {_UNCURVED:g}, Dean number {dean:g}": Comparison(
                ratio, true, _NEAR_WHITE
            )
            for dean, ratio, true in zip(_DEAN, ratios, published, strict=True)
        },
        # More than nothing.
        "rise between the two": relative(ratios[1] - ratios[0], rise, 1.0),
    }


CHECKS = (
    Check(
        "blood-bend",
        "friction in a bend of 180 degrees, three radii from its axis: a trend, for the reference is of longer bends",
        "C. M. White, Proc. R. Soc. Lond. A 123 (1929) 645: long, gently curved pipes",
        bend_check,
        slow=True,
    ),
    Check(
        "blood-shear-thinning",
        "flow between plates 2 mm apart with the laws of Carreau and of Carreau and Yasuda, 32 points across",
        "exact: the stress is linear, so that the law alone gives the shear rate at each height",
        thinning_check,
    ),
    Check(
        "blood-womersley",
        "flow in a round tube under a pulsating pressure gradient, 16 points in a radius, Womersley numbers 3 and 8",
        "J. R. Womersley, J. Physiol. 127 (1955) 553",
        pulsating_tube_check,
    ),
)
