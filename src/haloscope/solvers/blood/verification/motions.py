"""Checks of how cells move: stiff spheroids in shear, red cells with a viscous inside in shear and in vessels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import SolutionError
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification import single_cells
from haloscope.solvers.blood.verification.flows import DENSITY, VISCOSITY, step_of
from haloscope.solvers.blood.verification.single_cells import CAPSULE_RADIUS, Box, Shear
from haloscope.solvers.verification import Check, Comparison, Solve, below, relative

Floats = NDArray[np.float64]

# Stiff spheroids

_NARROW: Box = (6.0, 6.0, 5.0)
_SETTLED = 0.5
"""Strain in which the flow around a spheroid settles."""
_LOOKS = 8
"""Looks at a spheroid in a unit of strain."""
_AXIS = (0.5, math.sqrt(0.75), 0.0)
"""Of symmetry, at the start: in the plane of the flow, on its way to the slow part of the turn."""
# Of the membrane of a spheroid, in moduli of shear times powers of its radius. Without bending stiffness
# the rim buckles, and the cell turns up to 2.5 % faster.
_BENDING, _FIRM = 0.01, 10.0
_ORBIT_WITHIN, _SAME = 0.03, 0.01


@dataclass(frozen=True)
class Orbit:
    """A spheroid that turns in a shear flow."""

    period: float  # Times shear rate
    speeds: float  # Fastest over slowest rate of turning


def jeffery(aspect: float) -> Orbit:
    """A rigid spheroid without walls and inertia, its axis in the plane of the flow.

    G. B. Jeffery, Proc. R. Soc. Lond. A 102 (1922) 161; `aspect`: of its axes.
    """
    return Orbit(2 * math.pi * (aspect + 1 / aspect), aspect**2)


@dataclass(frozen=True)
class Spheroid:
    """An oblate capsule whose membrane hardly gives way, and the lattices that its orbit is taken from."""

    aspect: float
    capillary_number: float
    # Radii in spacings, whose orbits are extrapolated with the square of the spacing.
    resolutions: tuple[float, float]
    # Radius in spacings for the effect of walls and of inertia, and the side of the wide box over the narrow.
    coarse: float
    coarse_reynolds: float
    widening: float
    reynolds: float = 0.2


def spheroid(one: Spheroid, resolution: float, box: Box, reynolds: float) -> Shear:
    """The capsule in shear; its case ends once the flow has settled."""
    rate = reynolds * VISCOSITY / DENSITY / (CAPSULE_RADIUS * MICRO) ** 2
    radius = CAPSULE_RADIUS * MICRO
    modulus = VISCOSITY * rate * radius / one.capillary_number
    cell = {
        "name": "spheroid",
        "shape": "oblate",
        "thickness": 1 / one.aspect,
        "vertices": single_cells.vertices_for(resolution),
        "shear_modulus_un_m": modulus / MICRO,
        "area_ratio": 1.0,
        "bending_modulus_j": _BENDING * modulus * radius**2,
        "volume_modulus_pa": _FIRM * modulus / radius,
        "area_modulus_un_m": 0.0,
        "place": {"axis": list(_AXIS)},
    }
    return single_cells.shear(
        cell,
        radius_um=CAPSULE_RADIUS,
        resolution=resolution,
        box=box,
        reynolds=reynolds,
        strain=_SETTLED,
    )


def orbit(one: Spheroid, resolution: float, box: Box, reynolds: float, solve: Solve) -> Orbit:
    """Half a turn of a spheroid."""
    flow = spheroid(one, resolution, box, reynolds)
    simulation = solve(flow.case)
    steps = max(1, flow.steps(1 / _LOOKS))
    keys = flow.case["blood"]
    strain = steps * flow.rate * step_of(keys["spacing_um"], keys["relaxation_time"])
    angles = [single_cells.shape_of(simulation).angle * math.pi]
    # Spheroids with the thinnest rims turn slowest.
    for _ in range(math.ceil(jeffery(one.aspect).period / strain)):
        simulation.solver.advance(steps)
        angles.append(single_cells.shape_of(simulation).angle * math.pi)
        turned = turned_by(angles)
        if turned[-1] > math.pi:
            return orbit_of(turned, strain)
    raise SolutionError(
        f"the spheroid has turned by less than half a revolution at a strain of {strain * len(angles):g}",
        remedy="use a stiffer membrane",
    )


def turned_by(angles: Sequence[float]) -> Floats:
    """Angles in radians by which an axis has turned with the clock, from its inclinations in +- pi/2."""
    clockwise = -np.unwrap(2 * np.asarray(angles)) / 2
    turned: Floats = clockwise - clockwise[0]
    return turned


def orbit_of(turned: Floats, strain: float) -> Orbit:
    """An orbit from angles a strain apart, of which the last is beyond pi."""
    half = float(np.interp(math.pi, turned, strain * np.arange(len(turned))))
    # The rate is a constant and a part that goes with twice the angle.
    rate, middle = np.gradient(turned, strain)[1:-1], turned[1:-1]
    terms = np.stack([np.ones_like(middle), np.cos(2 * middle), np.sin(2 * middle)], axis=1)
    mean, c, s = np.linalg.lstsq(terms, rate, rcond=None)[0].tolist()
    swing = math.hypot(c, s)
    return Orbit(2 * half, (mean + swing) / (mean - swing))


def jeffery_check(one: Spheroid, solve: Solve) -> dict[str, Comparison]:
    """Period and speeds where the spacing goes to 0 and walls go away, and how little inertia matters."""
    wide: Box = tuple(edge * one.widening for edge in _NARROW)  # type: ignore[assignment]
    coarse, fine = (orbit(one, n, _NARROW, one.reynolds, solve) for n in one.resolutions)
    near, far = (orbit(one, one.coarse, box, one.coarse_reynolds, solve) for box in (_NARROW, wide))
    slow = orbit(one, one.coarse, _NARROW, one.coarse_reynolds / 2, solve)
    exact = jeffery(one.aspect)
    name = f"aspect ratio {one.aspect:g}"
    period, speeds = (
        without_walls(
            at_no_spacing(one.resolutions, [getattr(n, quantity) for n in (coarse, fine)]),
            [getattr(n, quantity) for n in (near, far)],
            one.widening,
        )
        for quantity in ("period", "speeds")
    )
    return {
        f"period times shear rate, {name}": relative(period, exact.period, _ORBIT_WITHIN),
        f"fastest over slowest turning, {name}": relative(speeds, exact.speeds, _ORBIT_WITHIN),
        f"change of the period with half the Reynolds number, {name}": below(
            slow.period / near.period - 1, _SAME
        ),
    }


def at_no_spacing(resolutions: Sequence[float], values: Sequence[float]) -> float:
    """Where values on a coarse and a fine lattice go with the square of the spacing."""
    coarse, fine = (n**2 for n in resolutions)
    return values[1] + (values[1] - values[0]) * coarse / (fine - coarse)


def without_walls(value: float, boxes: Sequence[float], widening: float) -> float:
    """A value in the narrow box, times what the way from it to no walls does, from both boxes' values.

    What walls and neighbours do to a cell goes with the third power of its size over their distance.
    """
    near, far = boxes
    return value * (far + (far - near) / (widening**3 - 1)) / near


_FLAT = Spheroid(2.0, 0.02, (20 / 3, 25 / 3), 4.0, 0.2, 2.0)
_FLATTER = Spheroid(4.0, 0.05, (10.0, 40 / 3), 20 / 3, 0.1, 1.5)


CHECKS = (
    *(
        Check(
            f"blood-jeffery-{one.aspect:g}",
            f"a stiff oblate spheroid in simple shear, aspect ratio {one.aspect:g}, extrapolated to no spacing and no walls",
            "G. B. Jeffery, Proc. R. Soc. Lond. A 102 (1922) 161",
            partial(jeffery_check, one),
            slow=True,
        )
        for one in (_FLAT, _FLATTER)
    ),
)
