"""Flows of plasma and blood in channels, tubes and around spheres, with exact solutions."""

from __future__ import annotations

import cmath
import csv
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import SolutionError
from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.surfaces.surfaces import Surface, make_surface
from haloscope.solvers.blood.fluid.fluid import Fluid, WallLinks
from haloscope.solvers.blood.fluid.lattice import VELOCITIES, whole_part
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.verification import Solve

Floats = NDArray[np.float64]


def between_plates(y: Floats, height: float, gradient: float, viscosity: float) -> Floats:
    """Steady velocity in m/s at heights y over the lower of two plates (Poiseuille).

    `y`: in m; `height`: of the gap in m; `gradient`: fall of the pressure along the flow in Pa/m;
    `viscosity`: in Pa s.
    """
    return gradient / (2 * viscosity) * y * (height - y)


def in_tube(r: Floats, radius: float, gradient: float, viscosity: float) -> Floats:
    """Steady velocity in m/s at distances r in m from the axis of a round tube (Poiseuille)."""
    return gradient / (4 * viscosity) * (radius**2 - r**2)


def pulsating_between_plates(
    y: Floats,
    time: float,
    height: float,
    gradient: float,
    viscosity: float,
    density: float,
    frequency: float,
) -> Floats:
    """Velocity in m/s between plates under a gradient times cos(2 pi f t), long after its start.

    The plane form of J. R. Womersley, J. Physiol. 127 (1955) 553.
    `time`, `frequency`: t in s, f in Hz.
    """
    omega = 2 * math.pi * frequency
    k = np.sqrt(1j * omega * density / viscosity)
    shape = 1 - np.cosh(k * (y - height / 2)) / np.cosh(k * height / 2)
    velocity: Floats = (gradient / (1j * omega * density) * shape * np.exp(1j * omega * time)).real
    return velocity


def layers(y: Floats, height: float, edge: float, push: float, ratio: float) -> Floats:
    """Velocity between plates of a fluid with another viscosity in the middle.

    Stress is continuous at y = edge and y = height - edge, and so is the velocity.
    """

    def parabola(at: Floats | float) -> Floats | float:
        return push / 2 * at * (height - at)

    there = parabola(edge)
    inside = (y > edge) & (y < height - edge)
    return np.where(inside, there + (parabola(y) - there) / ratio, parabola(y))


def viscous_capsule(
    capillary_number: float, dilation: float, viscous: float, late: float
) -> tuple[float, float]:
    """Deformation (L - B)/(L + B) and inclination in radians of a stiff spherical capsule in shear."""
    # Where strains are small the deformation is 5/8 mu k a (3/G + 1/K) at half a right angle (D.
    # Barthes-Biesel, J. M. Rallison, J. Fluid Mech. 113 (1981) 251). The membrane goes around once
    # in a vorticity of 4 pi/k and meets the same strain twice, so that its viscosity makes of G a
    # complex modulus at the frequency k (viscous membranes: D. Barthes-Biesel, H. Sgaier, J. Fluid
    # Mech. 160 (1985) 119), that of Maxwell's model in parallel with G where a spring is in series.
    shear = 1 + 1j * viscous / (1 + 1j * late)
    deformation = 5 / 8 * capillary_number * (3 / shear + 1 / dilation)
    return abs(deformation), math.pi / 4 + cmath.phase(deformation) / 2


def tank_treading(long: float, short: float) -> tuple[float, float]:
    """Inclination in radians, and turns of the membrane a unit of shear, of an ellipsoid in shear."""
    # S. R. Keller, R. Skalak, J. Fluid Mech. 120 (1982) 27, at the same viscosity inside and
    # outside and without resistance of the membrane. Then their balance is solved by tan(theta) =
    # b/a and a rate of the membrane of shear rate times a b/(a^2 + b^2), whatever the third axis.
    return math.atan2(short, long), long * short / (long**2 + short**2) / (2 * math.pi)


# No case has such an inside without a cell around it: the lattice and its flags are made here.

_TAU = 0.8
# On the lattice, of the fluid alone between the plates.
_SPEED = 1e-3
_ALONG = 4
_STEADY = 1e-12
_MOST_STEPS = 400_000


def error_of_layers(device: Device, ratio: float, points: int) -> float:
    """Root mean square error of the steady velocity over its mean."""
    shape = (_ALONG, points, _ALONG)
    part = whole_part(np.arange(points * _ALONG**2), shape, (True, False, True))
    viscosity = (_TAU - 0.5) / 3
    push = 12 * viscosity * _SPEED / points**2
    fluid = Fluid(
        device,
        part,
        tau=_TAU,
        with_cells=True,
        inside_tau=0.5 + 3 * ratio * viscosity,
        body_force=(push, 0.0, 0.0),
    )
    y = part.coordinates[: part.owned, 1].astype(np.float64) + 0.5
    middle = np.abs(y - points / 2) < points / 4
    fluid.inside[: part.owned] = device.from_host(middle.astype(np.uint8))
    true = layers(y, float(points), points / 4, push / viscosity, ratio)
    velocity = np.zeros_like(true)
    for _ in range(_MOST_STEPS // 500):
        for _ in range(500):
            fluid.step()
        before, velocity = velocity, fluid.moments()[1][0]
        if np.abs(velocity - before).max() < _STEADY * np.abs(velocity).max():
            return float(np.sqrt(((velocity - true) ** 2).mean()) / true.mean())
    raise SolutionError(
        f"the flow between plates is not steady after {_MOST_STEPS} steps",
        remedy="use fewer points",
    )


# No case has spheres for walls: the lattice is made here.

_DATA = "sphere_drag_zick_homsy1982.csv"
_SPHERE_TAU = 1.2
# On the lattice: the Reynolds number is below 1e-3.
_SPHERE_SPEED = 1e-5
_CLOSED = (True, True, True)
_SPHERE_MOST_STEPS = 100_000


def rows_of(file: str) -> list[dict[str, str]]:
    """Rows of a table of published numbers, by the names of their columns."""
    text = resources.files("haloscope.solvers.blood.verification").joinpath(file).read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def published() -> dict[float, float]:
    """Drag over that of Stokes by the spheres' share of the volume (Zick and Homsy, 1982)."""
    return {float(row["share"]): float(row["drag"]) for row in rows_of(_DATA)}


def sphere_drag(device: Device, share: float, points: int) -> float:
    """Drag on a sphere of a simple cubic array over that of Stokes, 6 pi mu a U."""
    # U is the mean velocity over the whole volume, spheres included, and the drag the fall of the
    # mean pressure times that volume, as Zick and Homsy have both. A body force g stands for the
    # pressure gradient here: the fluid's momentum balance gives the sphere g times the volume of
    # the fluid, and the gradient would add g times that of the sphere.
    radius = points * (3 * share / (4 * math.pi)) ** (1 / 3)
    shape = (points, points, points)
    # A centre off the lattice's own symmetry, so that links of all lengths occur.
    centre = points / 2 - np.array([0.37, 0.21, 0.44])
    part = _around_a_sphere(shape, centre, radius)
    nu = (_SPHERE_TAU - 0.5) / 3
    stokes = 6 * math.pi * nu * radius * _SPHERE_SPEED
    links, push = _links(part, shape, centre, radius), (stokes / points**3, 0.0, 0.0)
    fluid = Fluid(device, part, tau=_SPHERE_TAU, walls=links, body_force=push)
    drag = math.inf
    for _ in range(_SPHERE_MOST_STEPS // 100):
        for _ in range(100):
            fluid.step()
        before = drag
        drag = _SPHERE_SPEED * points**3 / float(fluid.moments()[1][0].sum())
        if abs(drag - before) < 1e-6 * abs(drag):
            return drag
    raise SolutionError(
        f"the flow around spheres is not steady after {_SPHERE_MOST_STEPS} steps",
        remedy="use fewer points",
    )


def _from_centre(x: Floats, centre: Floats, edge: int) -> Floats:
    """Vectors from the nearest image of the sphere's centre."""
    away: Floats = x - centre
    return away - edge * np.round(away / edge)


def _around_a_sphere(shape: tuple[int, int, int], centre: Floats, radius: float) -> LatticePart:
    numbers = np.arange(math.prod(shape))
    places = np.unravel_index(numbers, shape[::-1])[::-1]
    x = np.stack(places, axis=1).astype(np.float64)
    outside = (_from_centre(x, centre, shape[0]) ** 2).sum(axis=1) > radius**2
    return whole_part(numbers[outside], shape, _CLOSED)


def _links(
    part: LatticePart, shape: tuple[int, int, int], centre: Floats, radius: float
) -> WallLinks:
    """Where links meet the sphere: the nearer root of |x - s c - centre| = radius."""
    rows, points = np.nonzero(part.sources == -1)
    c = VELOCITIES[rows + 1]
    away = _from_centre(part.coordinates[points].astype(np.float64), centre, shape[0])
    a, b = (c**2).sum(axis=1), (away * c).sum(axis=1)
    fractions = (b - np.sqrt(b**2 - a * ((away**2).sum(axis=1) - radius**2))) / a
    return WallLinks(points, rows + 1, np.clip(fractions, 1e-6, 1.0), np.zeros((len(points), 3)))


VISCOSITY, DENSITY = 1.2e-3, 1025.0
"""Of plasma, in Pa s and kg/m^3."""
WIDTH = 8.0
"""Of channels and tubes in um."""
# Largest velocities on the lattice, far below its speed of sound.
_PLASMA_SPEED = 0.02
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
    fastest = _PLASMA_SPEED * 8 / points * spacing * MICRO / step_of(spacing)
    gradient = 8 * VISCOSITY * fastest / (WIDTH * MICRO) ** 2
    case = case_of(
        spacing,
        to_steady_state(points),
        channel={"size_um": [_THIN * spacing, WIDTH, _THIN * spacing], "periodic": ["x", "z"]},
        pressure_gradient_pa_m=[gradient, 0.0, 0.0],
        **keys,
    )
    x, u = places_and_velocities(solve(case))
    return _error(u[:, 0], between_plates(x[:, 1], WIDTH * MICRO, gradient, VISCOSITY))


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
    true = in_tube(np.hypot(x[:, 1], x[:, 2]), radius, gradient, VISCOSITY)
    return _error(u[:, 0], true)


def couette_error(points: int, solve: Solve) -> float:
    """Flow between plates of which the upper one moves along x and z."""
    spacing = WIDTH / points
    speed = _PLASMA_SPEED * spacing * MICRO / step_of(spacing)
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
    speed = _PLASMA_SPEED * 8 / points * spacing * MICRO / step_of(spacing)
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
            pulsating_between_plates(
                x[:, 1], simulation.solver.time, height, gradient, VISCOSITY, DENSITY, 1 / period
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
    true = between_plates(x[middle, 1], height, gradient, VISCOSITY)
    pressure = simulation.solver.relative("p")[middle]
    fall = -np.polyfit(x[middle, 0], pressure, 1)[0]
    return _error(u[middle, 0], true), float(fall / gradient)


# Of a tube askew to the axes: sides of its outline, its length over its radius, and how near to an
# end counts as at it, in radii.
_SIDES, _LONG, _AT_END = 96, 8.0, 1.0


def tilted_tube(normal: Sequence[float], radius: float) -> Surface:
    """A round tube from the origin along a direction, open at both ends' groups; radius and result in m."""
    n = np.asarray(normal) / np.linalg.norm(normal)
    one = np.cross(n, np.eye(3)[np.abs(n).argmin()])
    one /= np.linalg.norm(one)
    turns = np.arange(_SIDES) * 2 * math.pi / _SIDES
    # The outline has the area of the circle.
    outer = radius * math.sqrt(2 * math.pi / _SIDES / math.sin(2 * math.pi / _SIDES))
    ring = outer * (np.cos(turns)[:, None] * one + np.sin(turns)[:, None] * np.cross(n, one))
    after, far = np.roll(ring, -1, axis=0), _LONG * radius * n
    wall = [
        np.stack([ring, after, after + far], axis=1),
        np.stack([ring, after + far, ring + far], axis=1),
    ]
    middle = np.zeros_like(ring)
    ends = [np.stack([middle, after, ring], axis=1), np.stack([middle, ring, after], axis=1) + far]
    corners = np.concatenate([*wall, *ends])
    groups = np.repeat([0, 0, 1, 2], _SIDES)
    return make_surface(corners, groups, ("wall", "inlet", "outlet"), unit=MICROMETRE)


def tilted_tube_errors(normal: Sequence[float], points: float, solve: Solve) -> tuple[float, float]:
    """Errors of the velocity in the middle, and within a radius of the outlet; `points`: in a radius."""
    spacing, radius = WIDTH / 2 / points, WIDTH / 2 * MICRO
    mean = _SLOW * spacing * MICRO / step_of(spacing, 1.0)
    n = np.asarray(normal) / np.linalg.norm(normal)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/tube.stl"
        write_stl(file, tilted_tube(normal, radius))
        case = case_of(
            spacing,
            to_steady_state(_LONG * points, _ALMOST_STEADY),
            relaxation_time=1.0,
            surface={"file": file, "scale_um": 1 / MICRO},
            walls={"kind": "interpolated"},
            openings=[
                {"name": "inlet", "kind": "velocity", "value": mean},
                {"name": "outlet", "kind": "pressure", "value": 0.0},
            ],
        )
        x, u = places_and_velocities(solve(case))
    along = x @ n
    square = (x**2).sum(axis=1) - along**2
    true = 2 * mean * (1 - square / radius**2)[:, None] * n
    middle = np.abs(along - _LONG / 2 * radius) < radius
    at_end = along > (_LONG - _AT_END) * radius
    return _error(u[middle], true[middle]), _error(u[at_end], true[at_end])


_DENSITY = 25 * 1025.0
"""In kg/m^3: inertia plays next to no part, and heavy fluid takes long steps at the same viscosity.

The Reynolds number of the flow stays below 1.
"""
_FLOW = 2e-3
"""Mean velocity in m/s at which plasma would flow: 100 diameters a second in the wider tube, faster than
where aggregation matters, or than where cells tumble."""
_VERTICES = {0.5: 252, 0.4: 362}
"""Of a cell by the spacing: 1.4 spacings apart. The fluid hardly feels how nearer ones move against each other."""
_DELTA = "linear"
"""Membranes that come nearer than half its support move as one, so that the narrowest is the least too
viscous (at 0.5 um, 4 points give 1.5 times, 3 points 1.2 times what is published for 10 um)."""


@dataclass(frozen=True)
class Tube:
    """Blood in a periodic tube under a pressure gradient."""

    # In um.
    diameter: float
    length: float
    hematocrit: float  # Share of the volume that is cells
    spacing: float = 0.5
    # Distances in um that the mean flow of plasma would go before and while it is measured.
    settling: float = 500.0
    averaging: float = 150.0

    @property
    def gradient(self) -> float:
        """Fall of the pressure in Pa/m."""
        return 32 * VISCOSITY * _FLOW / (self.diameter * MICRO) ** 2

    def case(self) -> dict[str, Any]:
        """Data of the case, until the flow has settled."""
        data = case_of(
            self.spacing,
            {},
            relaxation_time=1.0,
            tube={"radius_um": self.diameter / 2, "length_um": self.length},
            walls={"kind": "interpolated"},
            pressure_gradient_pa_m=[self.gradient, 0.0, 0.0],
            delta=_DELTA,
            cells=[{"hematocrit": self.hematocrit, "vertices": _VERTICES[self.spacing]}],
        )
        data["blood"]["density_kg_m3"] = _DENSITY
        steps = self.steps(self.settling)
        data["run"] = {"steps": steps, "diagnostics_interval": max(1, steps // 20)}
        return data

    def steps(self, distance: float) -> int:
        """Steps in which the mean flow of plasma goes so far in um."""
        step = 0.5 / 3 * (self.spacing * MICRO) ** 2 * _DENSITY / VISCOSITY
        return round(distance * MICRO / _FLOW / step)


@dataclass(frozen=True)
class Measured:
    """Measured values of a tube."""

    viscosity: float  # Apparent, over that of plasma
    discharged: float  # Hematocrit at discharge: share of the flow that is cells
    hematocrit: float  # Of the tube as it was filled
    # Change of the viscosity from the first to the second half of the time of averaging.
    drift: float


def measure(tube: Tube, solve: Solve, samples: int = 200) -> Measured:
    """Run a tube and measure its flow."""
    # The apparent viscosity is that with which the whole flow would be Poiseuille's. Cells pass at
    # the rate at which their centres move; what they carry over the whole flow is the hematocrit at
    # discharge.
    simulation = solve(tube.case())
    solver = simulation.solver
    lattice, spacing = solver.vessel.lattice, tube.spacing * MICRO
    layers = lattice.shape[0]

    def cells() -> tuple[float, float]:
        """Sum of volumes times positions of centres along the tube, and of volumes, in m."""
        local = solver.suspension.kinds[0]
        shapes = local.membranes.shapes(local.count)
        volume = shapes.volume * spacing**3
        return float((volume * shapes.centre[:, 0]).sum()) * spacing, float(volume.sum())

    flows = []
    begun, (start, _) = solver.time, cells()
    steps = max(1, tube.steps(tube.averaging) // samples)
    for _ in range(samples):
        solver.advance(steps)
        u = solver.fluid.moments()[1][0] * solver.units.velocity
        flows.append(float(u.sum()) * spacing**2 / layers)
    end, volume = cells()
    length = tube.length * MICRO
    cell_flow = (end - start) / (solver.time - begun) / length
    radius = tube.diameter / 2 * MICRO
    plasma = math.pi * radius**4 * tube.gradient / (8 * VISCOSITY)
    first, second = (plasma / float(np.mean(half)) for half in np.array_split(flows, 2))
    flow = float(np.mean(flows))
    return Measured(
        plasma / flow, cell_flow / flow, volume / (math.pi * radius**2 * length), second - first
    )


_FED_SPEED = 1.25e-3
_RADIUS, _FED_LENGTH = 8.0, 30.0
"""In um."""
_STEPS, _FIRST = 60_000, 30_000
"""In the first half of which the flow goes once through the tube."""


@dataclass(frozen=True)
class Fed:
    """Measured values of a fed tube."""

    hematocrit: float  # Share of the tube that is cells, mean of the later steps
    # Cells that are there less those of the start and those that came in, plus those that left.
    missing: int
    passed: float  # Cells that left over those that came in
    flow: float  # Volume that leaves over what enters, at the end


def measure_fed_tube(hematocrit: float, solve: Solve) -> Fed:
    """Run a tube of 16 um with red cells, into which 1.25 mm/s flow."""
    data = case_of(
        0.5,
        {"steps": _STEPS, "diagnostics_interval": _STEPS // 20},
        relaxation_time=1.0,
        tube={"radius_um": _RADIUS, "length_um": _FED_LENGTH, "periodic": False},
        walls={"kind": "interpolated"},
        openings=[
            {"name": "inlet", "kind": "velocity", "value": _FED_SPEED, "feeds": True},
            {"name": "outlet", "kind": "pressure"},
        ],
        cells=[{"hematocrit": hematocrit, "vertices": 252}],
        profile={"start": _FIRST},
        seed=3,
    )
    data["blood"]["density_kg_m3"] = _DENSITY
    solver = solve(data).solver
    numbers = solver.diagnostics()
    traffic, there = solver.traffic, solver.suspension.kinds[0].total
    started = traffic.started[0]
    results = solver.finish(None, {}).summary
    return Fed(
        results["profile"]["tube_hematocrit"],
        there - (started + traffic.entered[0] - traffic.left[0]),
        traffic.left[0] / traffic.entered[0],
        -numbers["flow_outlet"] / numbers["flow_inlet"],
    )
