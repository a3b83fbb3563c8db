"""Slow flow through a simple cubic array of spheres: the drag on each, by the balance of momentum.

No case has spheres for walls: the lattice is made here.
"""

from __future__ import annotations

import csv
import math
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import SolutionError
from haloscope.mesh.lattice.lattice_parts import LatticePart, take
from haloscope.solvers.blood.fluid.d3q19 import VELOCITIES
from haloscope.solvers.blood.fluid.fluid import Fluid, WallLinks

Floats = NDArray[np.float64]

_DATA = "sphere_drag_zick_homsy1982.csv"
_TAU = 1.2
# On the lattice: the Reynolds number is below 1e-3.
_SPEED = 1e-5
_CLOSED = (True, True, True)
_MOST_STEPS = 100_000


def published() -> dict[float, float]:
    """Drag over that of Stokes by the spheres' share of the volume (Zick and Homsy, 1982)."""
    text = resources.files("haloscope.solvers.blood.verification").joinpath(_DATA).read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {float(row["share"]): float(row["drag"]) for row in rows}


def sphere_drag(
    device: Device,
    share: float,
    points: int,
    *,
    walls: str = "interpolated",
    tolerance: float = 1e-6,
) -> float:
    """Drag on a sphere of a simple cubic array over that of Stokes, 6 pi mu a U.

    `walls`: ``interpolated`` (Bouzidi) or ``halfway``.
    """
    # U is the mean velocity over the whole volume, spheres included, and the drag the fall of the
    # mean pressure times that volume, as Zick and Homsy have both. A body force g stands for the
    # pressure gradient here: the fluid's momentum balance gives the sphere g times the volume of
    # the fluid, and the gradient would add g times that of the sphere.
    radius = points * (3 * share / (4 * math.pi)) ** (1 / 3)
    shape = (points, points, points)
    # A centre off the lattice's own symmetry, so that links of all lengths occur.
    centre = points / 2 - np.array([0.37, 0.21, 0.44])
    part = _around_a_sphere(shape, centre, radius)
    nu = (_TAU - 0.5) / 3
    stokes = 6 * math.pi * nu * radius * _SPEED
    links = _links(part, shape, centre, radius) if walls == "interpolated" else None
    fluid = Fluid(device, part, tau=_TAU, walls=links, body_force=(stokes / points**3, 0.0, 0.0))
    drag = math.inf
    for _ in range(_MOST_STEPS // 100):
        for _ in range(100):
            fluid.step()
        before = drag
        drag = _SPEED * points**3 / float(fluid.moments()[1][0].sum())
        if abs(drag - before) < tolerance * abs(drag):
            return drag
    raise SolutionError(
        f"the flow around spheres is not steady after {_MOST_STEPS} steps; take fewer points"
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
    return take(numbers[outside], shape, ((0, 0, 0), shape), 1, VELOCITIES[1:], periodic=_CLOSED)


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
