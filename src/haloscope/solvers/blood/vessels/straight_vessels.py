"""Straight tubes and channels: axis, walls, distances across, and the viscosity of blood in tubes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import Channel, Tube
from haloscope.solvers.blood.fluid.flow import permeability
from haloscope.solvers.blood.units import MICRO
from haloscope.solvers.blood.vessels.vessels import Vessel

_REFERENCE_HEMATOCRIT = 0.45
# Terms of the series of a duct: the last is below 1e-9 of the first.
_TERMS = 200


def pries_viscosity(diameter: float, hematocrit: float) -> float:
    """Apparent viscosity of human blood in a glass tube over that of plasma.

    `diameter`: d in um.
    """
    # A. R. Pries, D. Neuhaus, P. Gaehtgens, Am. J. Physiol. Heart Circ. Physiol. 263 (1992) H1770:
    # 1 + (mu_45 - 1) ((1 - H)^C - 1)/((1 - 0.45)^C - 1), with mu_45 the value at H = 0.45.
    at_reference = 220 * math.exp(-1.3 * diameter) + 3.2 - 2.44 * math.exp(-0.06 * diameter**0.645)
    wide = 1 / (1 + 1e-11 * diameter**12)
    power = (0.8 + math.exp(-0.075 * diameter)) * (wide - 1) + wide
    if abs(power) < 1e-12:
        share = math.log1p(-hematocrit) / math.log1p(-_REFERENCE_HEMATOCRIT)
    else:
        share = math.expm1(power * math.log1p(-hematocrit)) / math.expm1(
            power * math.log1p(-_REFERENCE_HEMATOCRIT)
        )
    return 1 + (at_reference - 1) * share


def tube_permeability(radius: float) -> float:
    """Mean speed in a round tube over G/mu: R^2/8 (Hagen and Poiseuille).

    G is the pressure gradient that drives the flow, and mu the viscosity.
    """
    return radius**2 / 8


def duct_permeability(height: float, width: float) -> float:
    """The same between plates, h^2/12, or in a duct of rectangular cross-section."""
    # J. Boussinesq, J. Math. Pures Appl. 13 (1868) 377; with a >= b the factor on plates is 1 -
    # (192 b / (pi^5 a)) sum over odd n of tanh(n pi a / (2 b)) / n^5.
    short, long = sorted((height, width))
    between_plates = short**2 / 12
    if math.isinf(long):
        return between_plates
    terms = (math.tanh(n * math.pi * long / (2 * short)) / n**5 for n in range(1, 2 * _TERMS, 2))
    return between_plates * (1 - 192 * short / (math.pi**5 * long) * sum(terms))


Floats = NDArray[np.float64]

# Ways in which the edge of the cells in a tube is looked at, over a full turn.
_VIEWS = 32
# A gradient below this part of that which the flow would need as plasma is none.
_NO_GRADIENT = 1e-6
# Square of the first zero of the Bessel function J0.
_SLOWEST_IN_TUBE = 5.783185962946785


@dataclass(frozen=True, eq=False)
class StraightVessel:
    """A tube or a channel with flow along an axis; lengths in m."""

    axis: int  # Of the flow: 0, 1 or 2
    across: int | None  # Axis of a channel's profile, between its nearer walls; None: a tube
    # A tube's radius, or the distance of these walls. That of halfway walls is as the lattice has
    # it: the radius follows from the area of the cross-section.
    height: float
    width: float  # Distance of a channel's other walls; infinite: there are none
    wall: float  # Radius, or distance of walls, of the geometry itself
    # Of the cross-section; of a channel without other walls for one period.
    area: float
    perimeter: float
    # Mean speed of a plain fluid over G/mu, its pressure gradient and viscosity, in m^2. In a tube
    # with halfway walls it is that of the lattice's own cross-section with its steps.
    permeability: float
    # First plane of points along the axis that counts, and the one after the last: all, or the
    # middle half of a vessel that is open at its ends.
    planes: tuple[int, int]
    closed: bool  # Whether its ends are joined

    @property
    def diameter(self) -> float:
        """Of a tube, or the distance of a channel's nearer walls."""
        return self.height * (2 if self.across is None else 1)

    def startup_time(self, viscosity: float) -> float:
        """Time in s in which the slowest part of what is left of a start-up falls by a factor of e.

        R^2 / (5.78 nu) in a tube (P. Szymanski, J. Math. Pures Appl. 11 (1932) 67), h^2 / (pi^2 nu)
        between plates.
        """
        # `viscosity`: kinematic viscosity nu of the fluid in m^2/s.
        if self.across is None:
            return self.height**2 / (_SLOWEST_IN_TUBE * viscosity)
        return 1 / (math.pi**2 * viscosity * (self.height**-2 + self.width**-2))

    def distances(self, positions: Floats) -> Floats:
        """Distances (n,) of positions (n, 3) from the tube's axis or the channel's first wall."""
        if self.across is not None:
            return np.asarray(positions[:, self.across], np.float64)
        return np.asarray(np.linalg.norm(np.delete(positions, self.axis, axis=1), axis=1))

    def plasma_speed(self, gradient: float, viscosity: float) -> float:
        """Mean speed in m/s of a plain fluid driven by a pressure gradient in Pa/m."""
        return self.permeability * gradient / viscosity

    def has_gradient(self, gradient: float, speed: float, viscosity: float) -> bool:
        """Whether a flow with a mean speed has a pressure gradient beyond rounding."""
        needed = abs(speed) * _NO_GRADIENT
        return abs(self.plasma_speed(gradient, viscosity)) > needed > 0

    def wall_stress(self, gradient: float) -> float:
        """Mean shear stress on the walls in Pa that balances a pressure gradient in Pa/m."""
        return gradient * self.area / self.perimeter

    def parabola(self, distances: Floats, mean: float) -> Floats | None:
        """Speeds of a plain fluid with a mean speed; None for a channel with four walls."""
        if self.across is None:
            return 2 * mean * (1 - (distances / self.height) ** 2)
        if math.isfinite(self.width):
            return None
        depth = distances + (self.height - self.wall) / 2
        return 6 * mean * depth * (self.height - depth) / self.height**2

    @property
    def views(self) -> tuple[Floats, Floats]:
        """Directions (n, 3) toward walls, and how far from the origin the wall is in each, (n,)."""
        if self.across is not None:
            toward = np.zeros((2, 3))
            toward[:, self.across] = -1.0, 1.0
            return toward, np.array([0.0, self.wall])
        one, two = (axis for axis in range(3) if axis != self.axis)
        turns = 2 * np.pi * np.arange(_VIEWS) / _VIEWS
        toward = np.zeros((_VIEWS, 3))
        toward[:, one], toward[:, two] = np.cos(turns), np.sin(turns)
        return toward, np.full(_VIEWS, self.wall)

    def describe(self) -> str:
        """Its size, for people."""
        if self.across is None:
            return f"tube of {2 * self.height / MICRO:.4g} um"
        if math.isinf(self.width):
            return f"walls {self.height / MICRO:.4g} um apart"
        return f"channel of {self.height / MICRO:.4g} x {self.width / MICRO:.4g} um"


def straight_vessel(table: BloodTable, vessel: Vessel) -> StraightVessel:
    """The straight vessel of a case with a profile."""
    shape, lattice = table.vessel, vessel.lattice
    h, interpolated = lattice.spacing, table.walls.kind == "interpolated"
    if isinstance(shape, Tube):
        axis = "xyz".index(shape.axis)
        wall = shape.radius_um * MICRO
        area = lattice.count / lattice.shape[axis] * h**2
        radius = wall if interpolated else math.sqrt(area / math.pi)
        planes, closed = _planes(lattice.shape[axis], shape.periodic)
        return StraightVessel(
            axis,
            None,
            radius,
            math.inf,
            wall,
            math.pi * radius**2,
            2 * math.pi * radius,
            tube_permeability(wall) if interpolated else permeability(lattice, axis),
            planes,
            closed,
        )
    if not isinstance(shape, Channel):
        raise InputError(
            "the vessel is not straight",
            location="blood.profile",
            allowed="blood.tube and blood.channel",
            remedy="leave blood.profile out",
        )
    axis = _flow_axis(table, shape)
    walled = [a for a, name in enumerate("xyz") if name not in (*shape.periodic, *shape.open)]
    if not walled:
        raise InputError(
            "the channel has no walls",
            location="blood.profile",
            remedy="leave blood.profile out",
        )
    sizes = [
        size * MICRO if interpolated or a not in walled else lattice.shape[a] * h
        for a, size in enumerate(shape.size_um)
    ]
    across = min(walled, key=lambda a: sizes[a])
    other = 3 - axis - across
    width = sizes[other] if other in walled else math.inf
    perimeter = 2 * (sizes[other] + (sizes[across] if other in walled else 0.0))
    planes, closed = _planes(lattice.shape[axis], "xyz"[axis] in shape.periodic)
    return StraightVessel(
        axis,
        across,
        sizes[across],
        width,
        shape.size_um[across] * MICRO,
        sizes[across] * sizes[other],
        perimeter,
        duct_permeability(sizes[across], width),
        planes,
        closed,
    )


def _planes(count: int, closed: bool) -> tuple[tuple[int, int], bool]:
    return ((0, count) if closed else (count // 4, count - count // 4)), closed


def _flow_axis(table: BloodTable, channel: Channel) -> int:
    """Along the pressure gradient, between openings, with moving walls, or along the first axis."""
    free = ["xyz".index(name) for name in (*channel.open, *channel.periodic)]
    if not free:
        raise InputError(
            "the channel is closed on all sides",
            location="blood.profile",
            remedy="leave blood.profile out",
        )
    speeds = np.abs(list(table.walls.velocity_m_s.values()) or [(0.0, 0.0, 0.0)]).max(axis=0)
    for drive in (np.abs(table.pressure_gradient_pa_m), speeds):
        axis = max(free, key=lambda a: drive[a])
        if drive[axis] and not channel.open:
            return axis
    return free[0]
