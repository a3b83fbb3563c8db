"""Cells in simple shear between moving plates: their steady shapes, and how their membranes turn."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import SolutionError
from haloscope.solvers.blood.membranes.meshes import sphere
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.verification.plasma import DENSITY, VISCOSITY, case_of, step_of

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
_DATA = "capsules_in_shear.csv"
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
    text = resources.files("haloscope.solvers.blood.verification").joinpath(_DATA).read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [
        Published(
            float(row["capillary_number"]),
            float(row["deformation"]),
            float(row["angle_over_pi"] or "nan"),
        )
        for row in rows
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


def red_cell(
    *,
    capillary_number: float = 1.0,
    resolution: float = 6.0,
    box: Box = (6.0, 7.0, 5.0),
    reynolds: float = 0.05,
    strain: float = 20.0,
    vertices: int = 642,
) -> Shear:
    """A red cell with its axis tilted in the plane of the flow, at the same viscosity inside.

    The shear rate that a capillary number of 1 takes in plasma is 530 per s; here it is that of
    the Reynolds number, and moduli are larger in proportion.
    """
    radius = 3.91
    rate = reynolds * VISCOSITY / DENSITY / (radius * MICRO) ** 2
    scale = VISCOSITY * rate * radius * MICRO / capillary_number / (RED_CELL_MODULUS * MICRO)
    cell = {
        "name": "red-cell",
        "vertices": vertices,
        "shear_modulus_un_m": RED_CELL_MODULUS * scale,
        "bending_modulus_j": 2e-19 * scale,
        "volume_modulus_pa": 2000.0 * scale,
        "area_modulus_un_m": 100.0 * scale,
        "place": {"axis": [-0.5, 1.0, 0.0]},
    }
    return shear(
        cell, radius_um=radius, resolution=resolution, box=box, reynolds=reynolds, strain=strain
    )
