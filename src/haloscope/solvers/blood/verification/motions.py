"""Checks of how cells move: stiff spheroids in shear, red cells with a viscous inside in shear and in vessels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import SolutionError
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification import single_cells
from haloscope.solvers.blood.verification.flows import DENSITY, VISCOSITY, Tube, case_of, step_of
from haloscope.solvers.blood.verification.single_cells import CAPSULE_RADIUS, Box, Shear
from haloscope.solvers.verification import Check, Comparison, Solve, below, relative

Floats = NDArray[np.float64]

# Stiff spheroids

_NARROW: Box = (1.0, 1.0, 5 / 6)
"""Sides over the first one."""
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
    # Radius in spacings for the effect of walls and of inertia.
    coarse: float
    side: float  # Of the narrow box in radii
    widening: float  # Side of the wide box over that of the narrow one
    reynolds: float
    # A rim that is thin beside a spacing gives way where it turns fastest.
    speeds_within: float

    def box(self, widening: float = 1.0) -> Box:
        """Sides in radii."""
        x, y, z = (edge * self.side * widening for edge in _NARROW)
        return x, y, z


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
    coarse, fine = (orbit(one, n, one.box(), one.reynolds, solve) for n in one.resolutions)
    near, far = (
        orbit(one, one.coarse, box, one.reynolds, solve)
        for box in (one.box(), one.box(one.widening))
    )
    slow = orbit(one, one.coarse, one.box(), one.reynolds / 2, solve)
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
        f"fastest over slowest turning, {name}": relative(speeds, exact.speeds, one.speeds_within),
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

    The effect of walls and neighbours on a cell grows with the third power of its size over their distance.
    """
    near, far = boxes
    return value * (far + (far - near) / (widening**3 - 1)) / near


# Red cells with a viscous inside, in shear

VISCOUS_INSIDE = 5.0
"""Viscosity inside over that of plasma."""
_RED_CELL_RADIUS = 3.91
"""In um."""
_STATES_TAU, _STATES_REYNOLDS, _STATES_POINTS = 0.8, 0.3, 5.0
_STATES_BOX: Box = (6.0, 7.0, 5.0)
_STRAIN = 30.0
"""In which a disc turns over three times."""
_RATES = (10.0, 40.0, 400.0)
"""Shear rates in plasma, in 1/s, at which red cells tumble, roll, and are discs no longer."""
_STIFFEST = 20.0
"""Below this shear rate the constraints of area and volume are softened, for the step's sake: strains are small there."""
_LITTLE = 0.005
_TILTED = (0.5, 0.5, 0.7)
"""Axis of the disc at the start: neither in the plane of the flow nor across it."""


def red_cell_in_shear(rate: float) -> Shear:
    """A red cell with moduli for its Reynolds number, so that its shape is that at a shear rate in plasma."""
    radius = _RED_CELL_RADIUS * MICRO
    own = _STATES_REYNOLDS * VISCOSITY / DENSITY / radius**2
    scale = own / rate
    area, volume, ratio = (10.0, 100.0, 5.0) if rate < _STIFFEST else (100.0, 500.0, 10.0)
    cell = {
        "name": "red-cell",
        "vertices": 362,
        "shear_modulus_un_m": single_cells.RED_CELL_MODULUS * scale,
        "area_ratio": ratio,
        "bending_modulus_j": 2e-19 * scale,
        "volume_modulus_pa": volume * scale,
        "area_modulus_un_m": area * scale,
        "viscosity_ratio": VISCOUS_INSIDE,
        "place": {"axis": list(_TILTED)},
    }
    flow = single_cells.shear(
        cell,
        radius_um=_RED_CELL_RADIUS,
        resolution=_STATES_POINTS,
        box=_STATES_BOX,
        reynolds=_STATES_REYNOLDS,
        strain=_STRAIN / 2,
    )
    keys = flow.case["blood"]
    keys["relaxation_time"] = _STATES_TAU
    steps = flow.steps(_STRAIN / 2)
    flow.case["run"] = {"steps": steps, "diagnostics_interval": steps}
    return flow


@dataclass(frozen=True)
class State:
    """A red cell over some turns."""

    rolling: float  # Largest part of its axis along the vorticity: 1 where it rolls like a wheel
    roundness: float  # Mean of its middle axis over its longest: 1 of a disc, less of all that is drawn out


def state_of(covariances: Floats) -> State:
    """State from second moments of the volume at some looks, (n, 3, 3); vorticity along z."""
    squares, axes = np.linalg.eigh(covariances)
    return State(
        float(np.abs(axes[:, 2, 0]).max()), float(np.sqrt(squares[:, 1] / squares[:, 2]).mean())
    )


def sheared_state(rate: float, solve: Solve) -> State:
    """A red cell in the second half of the strain."""
    flow = red_cell_in_shear(rate)
    solver = solve(flow.case).solver
    covariances = []
    for _ in range(round(_STRAIN / 2 * _LOOKS)):
        solver.advance(flow.steps(1 / _LOOKS))
        shapes = solver.suspension.kinds[0].membranes.shapes(1)
        covariances.append(shapes.covariance[0])
    return state_of(np.array(covariances))


def above(value: float) -> Comparison:
    """A difference of numbers between 0 and 1 that is to be more than next to nothing."""
    return Comparison(value, 0.5 + _LITTLE, 0.5)


def states_check(solve: Solve) -> dict[str, Comparison]:
    """With the shear rate cells go from tumbling to rolling, and then are discs no longer."""
    slow, middle, fast = (sheared_state(rate, solve) for rate in _RATES)
    low, high, highest = (f"{rate:g}/s" for rate in _RATES)
    return {
        f"axis along the vorticity, {high} less {low}": above(middle.rolling - slow.rolling),
        f"roundness of the disc, {low} less {high}": above(slow.roundness - middle.roundness),
        f"roundness of the disc, {high} less {highest}": above(middle.roundness - fast.roundness),
    }


# A red cell with a viscous inside, in a capillary

_CAPILLARY = (24.0, 12.0, 10.0)
"""Box in um: periodic along x, between walls across y and z."""
_PLASMA_SPEED = 1.3e-3
"""Mean velocity in m/s at which plasma would flow: cells go at 2 mm/s, where no other shape is stable."""
_HEAVY = 75.0 * DENSITY
"""Density in kg/m^3: steps are as long as the membrane bears, at a Reynolds number of 1."""
_CAPILLARY_TAU = 0.8
_SPACINGS = (2 / 3, 0.5)
"""In um; vertices of the cell by the spacing."""
_CAPILLARY_VERTICES = {2 / 3: 362, 0.5: 492}
_BESIDE = 1.5
"""Of the second start, in um."""
_PASSED, _WATCHED = 240.0, 60.0
"""Ways of plasma in um before and while the cell is looked at."""
_CAPILLARY_LOOKS = 12
_HOLLOW, _CENTRED, _SPEED_WITHIN = 0.2, 1.0, 0.05


@dataclass(frozen=True)
class Passage:
    """A red cell that goes through a capillary, as means over its way."""

    speed: float  # Over the mean velocity of plasma
    beside: float  # Distance of the vertices' mean from the middle across the wider side, in um
    hollow: float  # Skewness of the vertices along the flow: positive with a dent in the rear


def capillary(spacing: float, beside: float) -> dict[str, Any]:
    """Data of a case with one cell; `spacing`, `beside` (of the start): in um."""
    length, wide, high = _CAPILLARY
    # Between the plates, less what the side walls take: exact to 1 % at this ratio of the sides.
    share = 1 - 0.63 * high / wide
    gradient = 12 * VISCOSITY * _PLASMA_SPEED / (high * MICRO) ** 2 / share
    middle = [length / 2, wide / 2 + beside, high / 2]
    cell = {
        "vertices": _CAPILLARY_VERTICES[spacing],
        "viscosity_ratio": VISCOUS_INSIDE,
        # The disc's face looks along the flow, nearly.
        "placed": [{"position_um": middle, "axis": [1.0, 0.15, 0.0]}],
    }
    case = case_of(
        spacing,
        {},
        relaxation_time=_CAPILLARY_TAU,
        channel={"size_um": list(_CAPILLARY), "periodic": ["x"]},
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        cells=[cell],
    )
    case["blood"]["density_kg_m3"] = _HEAVY
    steps = _capillary_steps(spacing, _PASSED)
    case["run"] = {"steps": steps, "diagnostics_interval": max(1, steps // 20)}
    return case


def _capillary_steps(spacing: float, way: float) -> int:
    """Steps in which plasma goes so far in um."""
    step = step_of(spacing, _CAPILLARY_TAU) * _HEAVY / DENSITY
    return round(way * MICRO / _PLASMA_SPEED / step)


def passage(spacing: float, beside: float, solve: Solve) -> Passage:
    """A red cell in the capillary, once it has its shape."""
    solver = solve(capillary(spacing, beside)).solver
    looks, steps = [], _capillary_steps(spacing, _WATCHED / _CAPILLARY_LOOKS)
    for turn in range(_CAPILLARY_LOOKS + 1):
        if turn:
            solver.advance(steps)
        looks.append(solver.suspension.table(0)[1][0, 0])
    lattice = solver.vessel.lattice
    vertices = np.array(looks) * spacing + lattice.origin / MICRO
    return passage_of(vertices, steps * solver.units.time_step)


def passage_of(vertices: Floats, interval: float) -> Passage:
    """A passage from vertices (n, V, 3) in um at looks an interval in s apart, none across the period."""
    centres = vertices.mean(axis=1)
    length, wide, _ = _CAPILLARY
    way = np.diff(centres[:, 0])
    # The cell may leave the periodic box at one end and come back at the other.
    way = np.mod(way, length)
    x = vertices[:, :, 0] - centres[:, :1]
    hollow = (x**3).mean(axis=1) / (x**2).mean(axis=1) ** 1.5
    return Passage(
        float(way.mean()) * MICRO / interval / _PLASMA_SPEED,
        float(np.abs(centres[:, 1] - wide / 2).mean()),
        float(hollow.mean()),
    )


def capillary_check(solve: Solve) -> dict[str, Comparison]:
    """A croissant from two starts, and its speed on two lattices."""
    coarse, fine = (passage(spacing, 0.0, solve) for spacing in _SPACINGS)
    beside = passage(_SPACINGS[0], _BESIDE, solve)
    return {
        "speed over that from the finer lattice": relative(
            coarse.speed / fine.speed, 1.0, _SPEED_WITHIN
        ),
        "speed from a start beside the middle over that from the middle": relative(
            beside.speed / coarse.speed, 1.0, _SPEED_WITHIN
        ),
        "distance from the middle in um": below(fine.beside, _CENTRED),
        "distance from the middle in um, from a start beside it": below(beside.beside, _CENTRED),
        f"skewness along the flow less {_HOLLOW:g}": above(fine.hollow - _HOLLOW),
    }


# Crowds of red cells with a viscous inside, in a tube

_TUBE_TAU, _TUBE_SPACING = 0.8, 0.5
_THIN_BLOOD, _THICK_BLOOD = 0.15, 0.45
"""Hematocrits of a tube of 20 um, and how far in um plasma would go before and while it is measured."""
_DIAMETER, _SETTLING, _AVERAGING = 20.0, 250.0, 100.0
_SAMPLES = 200


@dataclass(frozen=True)
class Layer:
    """Measured values of blood in a tube."""

    thickness: float  # Of the layer without cells at the wall, in um
    hematocrit: float  # Of the tube


def crowd(hematocrit: float) -> dict[str, Any]:
    """Data of a case with blood in a tube."""
    tube = Tube(_DIAMETER, 2 * _DIAMETER, hematocrit, _TUBE_SPACING)
    case = tube.case()
    keys = case["blood"]
    keys["relaxation_time"] = _TUBE_TAU
    keys["cells"][0]["viscosity_ratio"] = VISCOUS_INSIDE
    # The tube counts steps of another length.
    longer = 0.5 / (_TUBE_TAU - 0.5)
    start, last = (round(longer * tube.steps(way)) for way in (_SETTLING, _SETTLING + _AVERAGING))
    keys["profile"] = {"start": start, "interval": max(1, (last - start) // _SAMPLES)}
    case["run"] = {"steps": last, "diagnostics_interval": max(1, last // 20)}
    return case


def free_layer(hematocrit: float, solve: Solve) -> Layer:
    """Blood in a tube, as its profile has it."""
    profile = solve(crowd(hematocrit)).solver.finish(None, {}).summary["profile"]
    return Layer(profile["cell_free_layer_um"], profile["tube_hematocrit"])


def free_layer_check(solve: Solve) -> dict[str, Comparison]:
    """The layer is thinner in thicker blood."""
    thin, thick = (free_layer(hematocrit, solve) for hematocrit in (_THIN_BLOOD, _THICK_BLOOD))
    return {
        f"layer over diameter, hematocrit {_THIN_BLOOD:g} less {_THICK_BLOOD:g}": above(
            (thin.thickness - thick.thickness) / _DIAMETER
        ),
        **{
            f"hematocrit, {asked:g} at the start": relative(layer.hematocrit, asked, 0.05)
            for asked, layer in ((_THIN_BLOOD, thin), (_THICK_BLOOD, thick))
        },
    }


_FLAT = Spheroid(2.0, 0.02, (20 / 3, 25 / 3), 4.0, 6.0, 2.0, 0.2, 0.03)
_FLATTER = Spheroid(4.0, 0.03, (10.0, 40 / 3), 20 / 3, 9.0, 1.5, 0.1, 0.03)


CHECKS = (
    *(
        Check(
            f"blood-jeffery-{one.aspect:g}",
            f"a stiff oblate spheroid in simple shear, aspect ratio {one.aspect:g}, extrapolated to no spacing and no walls",
            "G. B. Jeffery, Proc. R. Soc. Lond. A 102 (1922) 161",
            partial(jeffery_check, one),
            slow=True,
            gpu_sized=one is _FLATTER,
        )
        for one in (_FLAT, _FLATTER)
    ),
    Check(
        "blood-red-cell-states",
        "a red cell with an inside five times as viscous as plasma, in shear at 10, 40 and 400/s: order of its states",
        "order only: J. Mauer et al., Phys. Rev. Lett. 121 (2018) 118103",
        states_check,
        slow=True,
    ),
    Check(
        "blood-cell-free-layer",
        "red cells with an inside five times as viscous as plasma in a tube of 20 um: the layer without cells falls with the hematocrit",
        "trend only: D. A. Fedosov et al., Microcirculation 17 (2010) 615",
        free_layer_check,
        slow=True,
        gpu_sized=True,
    ),
    Check(
        "blood-capillary",
        "a red cell with an inside five times as viscous as plasma in a capillary of 12 um by 10 um at 2 mm/s: a croissant in the middle",
        "own convergence; only croissants are stable at 1 to 3 mm/s: A. Guckenberger et al., arXiv:1711.06986",
        capillary_check,
        slow=True,
        gpu_sized=True,
    ),
)
