"""Single cells: in shear between plates, under optical tweezers, and what their forces lose when they spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import SolutionError
from haloscope.solvers.blood.coupling.coupling import Coupling, OwnBox
from haloscope.solvers.blood.membranes.membranes import ALONE, MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell, sphere
from haloscope.solvers.blood.membranes.stretching import Pull, Stretch
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification.flows import DENSITY, VISCOSITY, case_of, rows_of, step_of

Floats = NDArray[np.float64]
Box = tuple[float, float, float]

NEAR, WIDE = (8.0, 8.0, 6.0), (10.0, 10.0, 8.0)
"""Boxes in radii of the cell: along the flow, between the plates, along the vortex axis."""
CAPSULE_RADIUS = 3.0
"""In um."""
RED_CELL_MODULUS = 2.5
"""In uN/m, with the Skalak law."""
STIFF = 0.03
"""A capillary number at which strains are small."""
_TAU = 2.0
# Of a capsule, in moduli of shear over its radius. What is inside stays there: without it interpolation
# loses 0.5 % at a strain of 10 and a radius of 16 spacings.
_VOLUME_MODULUS = 50.0
# Looks at a turning membrane in a unit of strain, and how far from the plane of the flow vertices
# may lie, in radii.
_LOOKS = 4
# Of capsules with a viscous membrane: the step, and the spring, several times as stiff as the capsule.
_TAU_OF_VISCOUS, _SPRING = 0.6, 0.01
_IN_PLANE = 0.15


@dataclass(frozen=True)
class Published:
    """Published state of a capsule; the angle over pi is NaN where it is not given."""

    capillary_number: float
    deformation: float
    angle: float


def published(law: str) -> list[Published]:
    """Steady capsules of a law, ``neo-hookean`` or ``skalak``, by capillary number."""
    return [
        Published(
            float(row["capillary_number"]),
            float(row["deformation"]),
            float(row["angle_over_pi"] or "nan"),
        )
        for row in rows_of("capsules_in_shear.csv")
        if row["law"] == law
    ]


@dataclass(frozen=True)
class Shear:
    """A cell in a simple shear flow."""

    rate: float  # Of shear in 1/s
    case: dict[str, Any]  # Data of the case; it runs until the strain asked for

    def steps(self, strain: float) -> int:
        """Steps in which the fluid is strained by so much."""
        keys = self.case["blood"]
        return round(strain / (self.rate * step_of(keys["spacing_um"], keys["relaxation_time"])))


def shear(
    cell: dict[str, Any],
    *,
    radius_um: float,
    resolution: float,
    box: Box,
    reynolds: float,
    strain: float,
) -> Shear:
    """A cell in the middle between plates that move against each other.

    `radius_um`, `resolution`: its radius in um and in spacings.
    """
    radius, spacing = radius_um * MICRO, radius_um / resolution
    rate = reynolds * VISCOSITY / DENSITY / radius**2
    size = [round(edge * resolution) * spacing for edge in box]
    speed = rate * size[1] * MICRO / 2
    placed = {"position_um": [edge / 2 for edge in size], **cell.pop("place", {})}
    case = case_of(
        spacing,
        {},
        relaxation_time=_TAU,
        channel={"size_um": size, "periodic": ["x", "z"]},
        walls={"velocity_m_s": {"y_low": [-speed, 0.0, 0.0], "y_high": [speed, 0.0, 0.0]}},
        initial={"u": f"{rate!r}*(y-{size[1] * MICRO / 2!r})"},
        cells=[{"radius_um": radius_um, "placed": [placed], **cell}],
    )
    flow = Shear(rate, case)
    steps = flow.steps(strain)
    case["run"] = {"steps": steps, "diagnostics_interval": steps}
    return flow


def capsule(
    law: str,
    capillary_number: float,
    resolution: float,
    *,
    box: Box = NEAR,
    reynolds: float = 0.1,
    strain: float | None = None,
    delta: str = "peskin",
) -> Shear:
    """A spherical capsule, with C = 1 for the Skalak law.

    `resolution`, `box`, `reynolds`, `strain`: as for :func:`shear`; by default the strain is enough
    for a steady shape.
    """
    rate = reynolds * VISCOSITY / DENSITY / (CAPSULE_RADIUS * MICRO) ** 2
    modulus = VISCOSITY * rate * CAPSULE_RADIUS * MICRO / capillary_number
    cell = {
        "name": "capsule",
        "shape": "sphere",
        "vertices": vertices_for(resolution),
        "law": law,
        "shear_modulus_un_m": modulus / MICRO,
        "bending_modulus_j": 0.0,
        "volume_modulus_pa": _VOLUME_MODULUS * modulus / (CAPSULE_RADIUS * MICRO),
        "area_modulus_un_m": 0.0,
        **({"area_ratio": 1.0} if law == "skalak" else {}),
    }
    flow = shear(
        cell,
        radius_um=CAPSULE_RADIUS,
        resolution=resolution,
        box=box,
        reynolds=reynolds,
        strain=min(3 + 8 * capillary_number, 10.0) if strain is None else strain,
    )
    flow.case["blood"]["delta"] = delta
    return flow


def viscous_capsule(viscous: float) -> tuple[Shear, float]:
    """A stiff Skalak capsule whose membrane has a viscosity, and by how much its spring is late."""
    flow = capsule("skalak", STIFF, 4.0, box=(6.0, 6.0, 6.0), reynolds=0.2, strain=6.0)
    keys = flow.case["blood"]
    keys |= {"delta": "linear", "relaxation_time": _TAU_OF_VISCOUS}
    steps = flow.steps(6.0)
    flow.case["run"] = {"steps": steps, "diagnostics_interval": steps}
    cell = keys["cells"][0]
    cell["membrane_viscosity_un_s_m"] = viscous * cell["shear_modulus_un_m"] / flow.rate
    cell["volume_modulus_pa"] /= 10
    cell["viscous_stiffness"] = _SPRING
    step, spacing = step_of(keys["spacing_um"], _TAU_OF_VISCOUS), keys["spacing_um"] * MICRO
    modulus = cell["shear_modulus_un_m"] * MICRO / (DENSITY * spacing**3 / step**2)
    return flow, viscous * modulus / _SPRING


def vertices_for(resolution: float) -> int:
    """Vertices of a sphere that are about one spacing apart, its radius in spacings given."""
    return 10 * math.ceil(1.2 * resolution) ** 2 + 2


@dataclass(frozen=True)
class Deformed:
    """A cell in the shear flow."""

    deformation: float  # Taylor's (L - B)/(L + B), of the ellipsoid of the same inertia
    angle: float  # Of its long axis with the flow, over pi
    # Its semi-axes in the plane of the flow, in spacings.
    long: float
    short: float
    volume: float  # In spacings^3


def shape_of(simulation: Any) -> Deformed:
    """The first cell's shape."""
    shapes = simulation.solver.suspension.kinds[0].membranes.shapes(1)
    deformation = float(shapes.taylor_deformation()[0])
    xx, yy, xy = (shapes.covariance[0][at] for at in ((0, 0), (1, 1), (0, 1)))
    mean, half = (xx + yy) / 2, math.hypot((xx - yy) / 2, xy)
    return Deformed(
        deformation,
        float(shapes.inclination()[0]) / math.pi,
        math.sqrt(5 * (mean + half)),
        math.sqrt(5 * (mean - half)),
        float(shapes.volume[0]),
    )


def volume_at_rest(resolution: float) -> float:
    """Of a capsule's mesh, in spacings^3."""
    return sphere(vertices_for(resolution), resolution).volume()


def at_no_spacing(resolutions: Sequence[float], values: Sequence[float]) -> float:
    """Where two values go as the spacing goes to 0.

    The smoothed delta function lets vertices lag behind their own forces by a length of the order
    of the spacing, so that shapes converge with its first power.
    """
    # `resolutions`: radius in spacings, of the coarser and the finer lattice.
    coarse, fine = resolutions
    return values[1] + (values[1] - values[0]) * coarse / (fine - coarse)


@dataclass(frozen=True)
class Turning:
    """A membrane that goes around its cell."""

    turns: float  # In a unit of strain: frequency over shear rate
    shapes: Sequence[Deformed]  # Meanwhile


def turning(flow: Shear, simulation: Any, most: float) -> Turning:
    """Go on until each vertex near the plane of the flow has gone around by half.

    Opposite ends of the cell are alike, so that the other half takes as long.
    """
    solver = simulation.solver
    looks, steps = [_vertices(solver)], flow.steps(1 / _LOOKS)
    size = np.abs(looks[0]).max()
    chosen = np.abs(looks[0][:, 2]) < _IN_PLANE * size
    shapes = [shape_of(simulation)]
    strain_a_look = steps / flow.steps(1.0)
    while len(looks) * strain_a_look < most:
        solver.advance(steps)
        looks.append(_vertices(solver))
        shapes.append(shape_of(simulation))
        x, y, _ = np.moveaxis(np.array(looks)[:, chosen], 2, 0)
        # Vertices turn with the clock.
        angles = -np.unwrap(np.arctan2(y, x), axis=0)
        angles -= angles[0]
        if angles[-1].min() > math.pi:
            halves = [np.interp(math.pi, one, np.arange(len(one))) for one in angles.T]
            return Turning(0.5 / (float(np.mean(halves)) * strain_a_look), shapes)
    raise SolutionError(
        f"the membrane has turned by less than half a revolution at a strain of {most:g}",
        remedy="use a higher shear rate or a softer membrane",
    )


def _vertices(solver: Any) -> Floats:
    """Vertices of the first cell about their mean, (V, 3), in spacings."""
    _, state = solver.suspension.table(0)
    x: Floats = state[0, 0]
    centred: Floats = x - x.mean(axis=0)
    return centred


def red_cell_in_shear() -> Shear:
    """A red cell with its axis tilted in the plane of the flow, at the same viscosity inside.

    The shear rate that a capillary number of 1 takes in plasma is 530 per s; here it is that of
    the Reynolds number, and moduli are larger in proportion.
    """
    radius, reynolds = 3.91, 0.05
    rate = reynolds * VISCOSITY / DENSITY / (radius * MICRO) ** 2
    scale = VISCOSITY * rate * radius * MICRO / (RED_CELL_MODULUS * MICRO)
    cell = {
        "name": "red-cell",
        "vertices": 642,
        "shear_modulus_un_m": RED_CELL_MODULUS * scale,
        "bending_modulus_j": 2e-19 * scale,
        "volume_modulus_pa": 2000.0 * scale,
        "area_modulus_un_m": 100.0 * scale,
        "place": {"axis": [-0.5, 1.0, 0.0]},
    }
    box = (6.0, 7.0, 5.0)
    return shear(cell, radius_um=radius, resolution=6.0, box=box, reynolds=reynolds, strain=20.0)


# FIRE with its authors' parameters: E. Bitzek et al., Phys. Rev. Lett. 97 (2006) 170201.
_DELAY, _FASTER, _SLOWER, _MIXING, _LESS_MIXING = 5, 1.1, 0.5, 0.1, 0.99
_LONGEST_STEP = 0.4
"""Pseudo-time by the period of a mesh whose stiffness is the modulus of dilation, at mass 1."""
_FARTHEST = 0.1
"""Distance in um that a vertex may go in a step."""
_MOST_STEPS = 20_000
_AREA_MODULUS = 100.0
# C of the Skalak law; largest force on a vertex of a cell at rest over the mean one of a patch.
_DILATION, _TOLERANCE = 10.0, 0.01
_CELL_VOLUME_MODULUS = 1000.0


@dataclass(frozen=True)
class Measured:
    """Ranges of measured diameters, each (n,) in um, at forces (n,) in pN."""

    force: np.ndarray
    axial_range: tuple[np.ndarray, np.ndarray]
    transverse_range: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Stretched:
    """Computed diameters (n,) along the forces, and across them in the plane of the cell, in um."""

    axial: np.ndarray
    transverse: np.ndarray


def measured() -> Measured:
    """The measurements of Mills et al., Mech. Chem. Biosyst. 1 (2004) 169."""
    rows = [list(row.values()) for row in rows_of("red_cell_stretching_mills2004.csv")]
    force, _, a0, a1, _, t0, t1 = np.array(rows, float).T
    return Measured(force, (a0, a1), (t0, t1))


def stretch(
    device: Device, forces: Sequence[float] | np.ndarray, *, shear_modulus: float = 2.5
) -> Stretched:
    """Shapes of a red cell in equilibrium with forces on two patches at opposite ends.

    `forces`: (n,) whole force on each patch, in pN; `shear_modulus`: G of the Skalak law in pN/um.
    """
    pull = np.asarray(forces, np.float64)
    count = len(pull)
    mesh = red_cell(642)
    law = MembraneLaw(
        shear_modulus,
        dilation=_DILATION,
        bending_modulus=0.2,
        area_modulus=_AREA_MODULUS,
        volume_modulus=_CELL_VOLUME_MODULUS,
    )
    cells = Membranes(device, mesh, count, law)
    cells.divide(np.arange(count))
    pulled = Stretch.of_mesh(mesh, 1.0, shear_modulus)
    pulls = Pull(device, pulled, mesh, cells=count)
    pulls.set_forces(pull)

    def forces_at(x: np.ndarray) -> np.ndarray:
        cells.set_cells(0, x)
        cells.compute_forces_of(ALONE)
        pulls.apply(cells, ALONE)
        return cells.on_host(cells.forces, count)

    enough = _TOLERANCE * np.maximum(pull, 1.0) / len(pulled.ends[0])
    longest = _LONGEST_STEP / math.sqrt(shear_modulus * (1 + 2 * _DILATION))
    start = np.repeat(mesh.vertices[None], count, axis=0)
    x = _relax(start, forces_at, enough, longest)
    cells.require_sound(count)
    return Stretched(*pulled.diameters(x))


# Of a thin fluid, in which a cell comes to rest in fewer steps.
_THIN = {"spacing_um": 0.75, "relaxation_time": 1.5, "viscosity_mpa_s": 0.3}
_STEPS_TO_REST = 12_000


def stretched_cell(force: float) -> dict[str, Any]:
    """Data of a case: the red cell of :func:`stretch` in a fluid, its ends pulled apart by a force in pN."""
    case = case_of(
        _THIN["spacing_um"],
        {"steps": _STEPS_TO_REST, "diagnostics_interval": _STEPS_TO_REST},
        channel={"size_um": [24.0, 15.0, 15.0], "periodic": ["x", "y", "z"]},
        cells=[
            {
                "placed": [{"position_um": [12.0, 7.5, 7.5]}],
                "shear_modulus_un_m": RED_CELL_MODULUS,
                "area_ratio": _DILATION,
                "bending_modulus_j": 2e-19,
                "spontaneous_curvature": "none",
                "area_modulus_un_m": _AREA_MODULUS,
                "volume_modulus_pa": _CELL_VOLUME_MODULUS,
                "fold_guard": 0.0,
                "stretch": {"force_pn": force},
            }
        ],
    )
    case["blood"] |= _THIN
    return case


def diameters_of(simulation: Any) -> tuple[float, float]:
    """Diameters of the first cell along and across its pull, in um."""
    columns = simulation.solver.cell_columns()
    return float(columns["axial_um"][0]), float(columns["transverse_um"][0])


def _relax(
    x: np.ndarray, forces_at: Callable[[np.ndarray], np.ndarray], enough: np.ndarray, longest: float
) -> np.ndarray:
    """Equilibrium of n cells by the fast inertial relaxation engine, each at its own pace.

    `x`: (n, V, 3) positions to start from; `forces_at`: gives the forces at positions, both (n, V,
    3); `enough`: (n,) largest force on a vertex with which a cell counts as at rest.
    """

    def per_vertex(values: np.ndarray) -> np.ndarray:
        return values[:, None, None]

    v = np.zeros_like(x)
    dt, mixing = np.full(len(x), 0.1 * longest), np.full(len(x), _MIXING)
    downhill_since = np.zeros(len(x), int)
    for _ in range(_MOST_STEPS):
        f = forces_at(x)
        size = np.linalg.norm(f, axis=2)
        residual = size.max(axis=1)
        if (residual <= enough).all():
            return x
        downhill = (f * v).sum(axis=(1, 2)) > 0
        downhill_since = np.where(downhill, downhill_since + 1, 0)
        steady = downhill & (downhill_since > _DELAY)
        ratio = np.linalg.norm(v, axis=(1, 2)) / np.maximum(np.linalg.norm(size, axis=1), 1e-300)
        v *= per_vertex(np.where(downhill, 1 - mixing, 0.0))
        v += per_vertex(np.where(downhill, mixing * ratio, 0.0)) * f
        dt = np.where(steady, np.minimum(dt * _FASTER, longest), dt)
        dt = np.where(downhill, dt, dt * _SLOWER)
        mixing = np.where(steady, mixing * _LESS_MIXING, np.where(downhill, mixing, _MIXING))
        v += per_vertex(dt) * f
        farthest = dt * np.linalg.norm(v, axis=2).max(axis=1)
        x = x + per_vertex(dt * np.minimum(1.0, _FARTHEST / np.maximum(farthest, _FARTHEST))) * v
    raise SolutionError(
        f"the stretched cell is not at rest after {_MOST_STEPS} steps: the residual force on a vertex is "
        f"{residual.max():.3g} pN",
        remedy="use a finer mesh or a smaller force",
    )


_SPACING = 0.6
_SIZE = 15
"""Of the periodic box, in um."""
_STEPS = 20


def pulled_cell() -> dict[str, Any]:
    """Data of a case: a red cell that meets a flow that it does not move with."""
    return case_of(
        _SPACING,
        {"steps": _STEPS, "diagnostics_interval": _STEPS},
        channel={"size_um": [_SIZE] * 3, "periodic": ["x", "y", "z"]},
        initial={"u": f"1e-3*sin(2*pi*y/{_SIZE}e-6)", "v": f"2e-3*sin(2*pi*x/{_SIZE}e-6)"},
        cells=[{"placed": [{"position_um": [7.0, 7.5, 14.0], "axis": [0.2, 0.4, 1.0]}]}],
    )


def missed_in_a_run(simulation: Any) -> float:
    """Forces on the fluid of a run less those of the membranes, over their sum."""
    solver = simulation.solver
    local = solver.suspension.kinds[0]
    forces = local.membranes.on_host(local.membranes.forces, local.count)
    spread = _on_points(simulation, solver.fluid.force)
    return _missed(spread.sum(axis=1), forces.sum(axis=(0, 1)), np.abs(forces).sum())


def missed_with(simulation: Any, kernel: str) -> tuple[float, float]:
    """The same of random forces on the vertices of a run, whose sum does not vanish; and of their work.

    Work: that on points with any velocity, and on vertices with the same interpolated.
    """
    device, part = simulation.device, simulation.solver.part
    membranes = simulation.solver.suspension.kinds[0].membranes
    stride, count = simulation.solver.fluid.stride, membranes.vertices
    lattice = simulation.solver.vessel.lattice
    box = OwnBox(part.box[0], part.box[1], lattice.shape, lattice.periodic)
    coupling = Coupling(device, box, part.halo, part.table, stride, kernel=kernel)
    random = np.random.default_rng(1)
    positions = membranes.on_host(membranes.positions, 1)[0].T
    forces = random.standard_normal((3, count)) + 1.0
    u = random.standard_normal((3, stride))
    x, F, V, velocity, g = (
        device.from_host(np.ascontiguousarray(values).ravel())
        for values in (positions, forces, 0 * forces, u, 0 * u)
    )
    coupling.spread(g, x, F, count)
    coupling.interpolate(velocity, x, V, count)
    force = _on_points(simulation, g)
    interpolated = device.to_host(V).reshape(3, count)
    power = forces * interpolated
    return (
        _missed(force.sum(axis=1), forces.sum(axis=1), np.abs(forces).sum()),
        _missed((force * u[:, : part.owned]).sum(), power.sum(), np.abs(power).sum()),
    )


def _on_points(simulation: Any, array: Any) -> Floats:
    solver = simulation.solver
    values: Floats = simulation.device.to_host(array).reshape(3, solver.fluid.stride)
    return values[:, : solver.part.owned]


def _missed(values: Any, true: Any, size: float) -> float:
    return float(np.abs(values - true).max() / size)
