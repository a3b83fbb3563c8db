"""The keys of a cavity case, and the numbers that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.tables import (
    LARGEST,
    SMALLEST,
    CaseFault,
    CaseTable,
    Coordinate,
    Exclusion,
    NotNegative,
    Positive,
    Table,
)
from haloscope.mesh.blocks import SIDES, Side, Triple
from haloscope.solvers.cavity.heating import (
    NAMED_TEMPERATURES,
    WallRange,
    is_in_kelvin,
    named_walls,
    require_consistent,
    sample_points,
    span_of,
    walls_define_difference,
)

_LEAST_NODES = 6
_MOST_NODES = 65_536
THINNEST_BLOCK = 5
_PLACE = ("x", "y", "z")
_ROOM_TEMPERATURE = 300.0
# With 0.1 the pressure reacts so slowly that a layer heated from below moves as one: it diverges at
# Ra 1.7e3 in a box 8 times as wide as high, at Ra 1e5 in a square. With 0.3 neither does.
_KAPPA, _KAPPA_BELOW = 0.1, 0.3


class Wall(Table):
    """One wall of the box."""

    temperature: float | str = "adiabatic"
    """In K: a number, an expression of x, y, z, "hot", "cold", or "adiabatic"."""
    velocity: tuple[Coordinate, Coordinate, Coordinate] = (0.0, 0.0, 0.0)
    """Velocity of the wall in m/s, [u, v, w]; its component normal to the wall must be 0."""


class HotWall(Wall):
    """The wall that is hot by default."""

    temperature: float | str = "hot"
    """In K: a number, an expression of x, y, z, "hot", "cold", or "adiabatic"."""


class ColdWall(Wall):
    """The wall that is cold by default."""

    temperature: float | str = "cold"
    """In K: a number, an expression of x, y, z, "hot", "cold", or "adiabatic"."""


class Walls(Table):
    """The six walls (2-D flow has no z_low and z_high)."""

    x_low: HotWall = HotWall()
    """Wall at x = 0."""
    x_high: ColdWall = ColdWall()
    """Wall at the largest x."""
    y_low: Wall = Wall()
    """Wall at y = 0."""
    y_high: Wall = Wall()
    """Wall at the largest y."""
    z_low: Wall = Wall()
    """Wall at z = 0."""
    z_high: Wall = Wall()
    """Wall at the largest z."""


class Initial(Table):
    """Fields at step 0: numbers or expressions of x, y, z (m)."""

    p: float | str = 0.0
    """Pressure in Pa."""
    u: float | str = 0.0
    """Velocity along x in m/s."""
    v: float | str = 0.0
    """Velocity along y in m/s."""
    w: float | str = 0.0
    """Velocity along z in m/s."""
    T: float | str = "reference"
    """Temperature in K; "reference" is the reference temperature."""


class CavityTable(Table):
    """The flow in the box."""

    dimensions: Literal[2, 3] = 3
    """2 or 3; 2-D flow lies in the plane of x and y."""
    nodes: int | tuple[int, int, int] | tuple[int, int] = 65
    """Nodes along each axis, walls included: one number, or one for each axis."""
    size: Positive | tuple[float, float, float] | tuple[float, float] = 0.05
    """Edge lengths in m: one number, or one for each axis."""
    rayleigh: Annotated[float, Field(ge=0.0, le=1e12)] | None = None
    """Rayleigh number g beta dT L^3 / (nu alpha). It sets the temperature difference of walls named
    "hot" and "cold". L is the distance between the hot and the cold wall that face each other, else
    the height. Set this or temperature_difference; by default 1e5."""
    temperature_difference: NotNegative | None = None
    """Temperature difference of the walls named "hot" and "cold" in K. Walls in kelvin define it
    themselves."""
    prandtl: Positive | None = None
    """Prandtl number nu / alpha; sets alpha. Set this or thermal_diffusivity; by default 0.71."""
    thermal_diffusivity: Positive | None = None
    """alpha in m^2/s."""
    kinematic_viscosity: Positive = 1.589e-5
    """nu in m^2/s (air at 300 K)."""
    density: Positive = 1.177
    """rho in kg/m^3 (air at 300 K)."""
    expansion: NotNegative = 1.0 / 300.0
    """Thermal expansion beta_T in 1/K."""
    gravity: tuple[Coordinate, Coordinate, Coordinate] = (0.0, -9.81, 0.0)
    """Acceleration of gravity in m/s^2."""
    reference_temperature: Positive | None = None
    """Temperature without buoyancy in K, midway between walls named "hot" and "cold". By default
    midway between walls in kelvin, else 300."""
    kappa: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    """Smallest square of the artificial speed of sound, over the reference velocity squared. By
    default 0.1, or 0.3 if the hot wall lies below the cold one."""
    damping: Annotated[float, Field(ge=0.0, le=0.1)] = 0.01
    """Factor C4 of the fourth-difference pressure damping."""
    cfl: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    """Safety factor of the time step."""
    time_step: Literal["local", "global"] = "local"
    """local: a time step for each node (faster to a steady state); global: one for all nodes, as
    published."""
    rescale_pressure: Literal["output", "step"] = "output"
    """Subtract the pressure at the centre in outputs only (output), or at each step, as published
    (step)."""
    precision: Literal["double", "single"] = "double"
    """Floating-point type of the fields."""
    walls: Walls = Walls()
    """The walls."""
    initial: Initial = Initial()
    """The fields at step 0."""

    @field_validator("size")
    @classmethod
    def _positive_sizes(cls, size: object) -> object:
        if isinstance(size, tuple) and not all(SMALLEST <= s <= LARGEST for s in size):
            raise CaseFault("out of range", allowed=f"lengths from {SMALLEST:g} to {LARGEST:g} m")
        return size

    @model_validator(mode="after")
    def _consistent(self) -> CavityTable:
        for number, name in ((self.nodes, "nodes"), (self.size, "size")):
            if isinstance(number, tuple) and len(number) != self.dimensions:
                raise CaseFault(
                    f"it has {len(number)} numbers in {self.dimensions}-D",
                    location=f"{name} = {list(number)}",
                    allowed=f"one number or {self.dimensions}",
                    remedy="give one number for each of cavity.dimensions",
                )
        counts = self.nodes if isinstance(self.nodes, tuple) else (self.nodes,)
        for count in counts:
            if not _LEAST_NODES <= count <= _MOST_NODES:
                raise CaseFault(
                    f"an axis has {count} nodes",
                    location=f"nodes = {list(counts) if isinstance(self.nodes, tuple) else count}",
                    allowed=f"{_LEAST_NODES} to {_MOST_NODES}",
                )
        for pair in (("rayleigh", "temperature_difference"), ("prandtl", "thermal_diffusivity")):
            if all(getattr(self, name) is not None for name in pair):
                raise CaseFault(
                    f"cavity.{pair[0]} and cavity.{pair[1]} are both set",
                    location=pair[0],
                    remedy="remove one of them",
                )
        if self.dimensions == 2:
            self._refuse_depth()
        for side in SIDES:
            wall: Wall = getattr(self.walls, side.name)
            Flow(self).wall_temperature(side.name)
            if wall.velocity[side.axis] != 0:
                raise CaseFault(
                    f"the wall moves along {'xyz'[side.axis]}, its normal",
                    location=f"walls.{side.name}.velocity = {list(wall.velocity)}",
                    allowed=f"motion within the wall, with a velocity of 0 along {'xyz'[side.axis]}",
                )
        if self.rayleigh and not (self.expansion > 0 and any(self.gravity)):
            raise CaseFault(
                "cavity.gravity or cavity.expansion is 0",
                location=f"rayleigh = {self.rayleigh:g}",
                remedy="set both to values that are not 0, or remove cavity.rayleigh",
            )
        flow = Flow(self)
        require_consistent(
            flow.temperatures,
            flow.kelvin_ranges,
            self.rayleigh,
            self.temperature_difference,
            (flow.hot, flow.cold),
        )
        for name in ("p", "u", "v", "w", "T"):
            flow.initial(name)
        if not SMALLEST <= flow.reference_velocity <= LARGEST:
            raise CaseFault(
                "nothing drives a flow",
                remedy="give two walls different temperatures (cavity.rayleigh > 0 with a wall "
                '"hot" and one "cold", or walls in kelvin), or give a wall a velocity',
            )
        if flow.hot - flow.cold >= 2 * flow.reference_temperature:
            raise CaseFault(
                f"the temperature difference is {flow.hot - flow.cold:.4g} K",
                location=f"reference_temperature = {flow.reference_temperature:g}",
                allowed="differences below twice the reference temperature",
                remedy="lower cavity.rayleigh or cavity.temperature_difference, or enlarge cavity.size",
            )
        return self

    def _refuse_depth(self) -> None:
        """Refuse the walls across z and the components along z that a plane flow does not have."""
        components = (("gravity[2]", self.gravity[2]), ("initial.w", self.initial.w))
        for name, component in components:
            if component != 0:
                raise CaseFault(
                    "a 2-D flow has no component along z",
                    location=f"{name} = {component}",
                    allowed="0",
                    remedy="set it to 0, or cavity.dimensions to 3",
                )
        for side in SIDES:
            wall: Wall = getattr(self.walls, side.name)
            # A study's points hold all keys: a wall as it is by default is no mistake.
            if side.axis == 2 and wall != Wall():
                raise CaseFault(
                    "a 2-D flow has no such wall",
                    location=f"walls.{side.name}",
                    allowed="x_low, x_high, y_low and y_high",
                    remedy="remove it, or set cavity.dimensions to 3",
                )
            if wall.velocity[2] != 0:
                raise CaseFault(
                    "the wall of a 2-D flow moves along z",
                    location=f"walls.{side.name}.velocity = {list(wall.velocity)}",
                    allowed="a velocity of 0 along z",
                    remedy="set it to 0, or cavity.dimensions to 3",
                )


_EXCLUSIONS = (
    Exclusion(
        ("cavity.rayleigh", "cavity.temperature_difference"),
        "both set the temperature difference of the hot and the cold wall",
        ("cavity.rayleigh=1e5", "cavity.temperature_difference=8.0"),
    ),
    Exclusion(
        ("cavity.prandtl", "cavity.thermal_diffusivity"),
        "both set the thermal diffusivity",
        ("cavity.prandtl=0.71", "cavity.thermal_diffusivity=2e-5"),
    ),
    Exclusion(
        ("cavity.rayleigh", "walls in kelvin"),
        "walls in kelvin define the temperature difference; cavity.temperature_difference must equal it",
        (
            "cavity.rayleigh=1e5",
            "cavity.walls.x_low.temperature=301.0",
            "cavity.walls.x_high.temperature=299.0",
        ),
    ),
    Exclusion(
        ('a wall "hot" without one "cold" (or the other way round)', "a wall in kelvin"),
        "a wall in kelvin and a named wall define no temperature difference",
        ("cavity.walls.x_low.temperature=301.0",),
    ),
    Exclusion(
        ('walls "hot" and "cold"', "a wall in kelvin beyond them"),
        "the largest temperature difference would not match cavity.rayleigh",
        ("cavity.walls.y_high.temperature=400.0",),
    ),
    Exclusion(
        ("cavity.rayleigh or cavity.temperature_difference", 'only one of "hot" and "cold"'),
        "a temperature difference needs two walls",
        ("cavity.rayleigh=1e5", "cavity.walls.x_high.temperature=hot"),
    ),
    Exclusion(
        ("cavity.rayleigh", "cavity.gravity or cavity.expansion of 0"),
        "the Rayleigh number would be 0 for any temperature difference",
        ("cavity.rayleigh=1e5", "cavity.gravity=[0.0, 0.0, 0.0]"),
    ),
    Exclusion(
        ("cavity.dimensions = 2", "walls, gravity or velocities along z"),
        "2-D flow lies in the plane of x and y",
        ("cavity.dimensions=2", "cavity.walls.z_low.temperature=300.0"),
    ),
    Exclusion(
        ("cavity.dimensions", "the number of entries of cavity.nodes and cavity.size"),
        "one number an axis",
        ("cavity.dimensions=2", "cavity.nodes=[9, 9, 9]"),
    ),
    Exclusion(
        ("cavity.walls.NAME.velocity", "the wall's normal"),
        "a wall moves only within its plane",
        ("cavity.walls.x_low.velocity=[1.0, 0.0, 0.0]",),
    ),
)


class CavityCase(CaseTable):
    """A case file of the cavity."""

    cuts_blocks = True
    exclusions = _EXCLUSIONS

    solver: Literal["cavity"]
    """"cavity"."""
    cavity: CavityTable = CavityTable.model_construct()
    """The flow in the box."""

    def boundary_conditions(self) -> dict[str, str]:
        """Temperature of each wall, and its velocity if it moves."""
        conditions = {}
        for side in SIDES:
            if side.axis >= self.cavity.dimensions:
                continue
            wall = getattr(self.cavity.walls, side.name)
            temperature = wall.temperature
            text = f"temperature {temperature}" + (" K" if is_in_kelvin(temperature) else "")
            if any(wall.velocity):
                text += f", velocity {list(wall.velocity)} m/s"
            conditions[side.name] = text
        return conditions


@dataclass(frozen=True)
class Flow:
    """Numbers that follow from a case: grid, material, scales."""

    table: CavityTable  # The case's keys

    @property
    def nodes(self) -> Triple:
        """Nodes along x, y, z; one along z in 2-D."""
        nodes = self.table.nodes
        if isinstance(nodes, int):
            return (nodes, nodes, nodes if self.table.dimensions == 3 else 1)
        return (nodes[0], nodes[1], nodes[2] if len(nodes) == 3 else 1)

    @property
    def size(self) -> tuple[float, float, float]:
        """Edge lengths in m; 0 along z in 2-D."""
        size = self.table.size
        if isinstance(size, float):
            return (size, size, size if self.table.dimensions == 3 else 0.0)
        return (size[0], size[1], size[2] if len(size) == 3 else 0.0)

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Distances of nodes in m; along z in 2-D that along x, for output only."""
        n, s = self.nodes, self.size
        hx, hy = s[0] / (n[0] - 1), s[1] / (n[1] - 1)
        return (hx, hy, s[2] / (n[2] - 1) if n[2] > 1 else hx)

    @property
    def alpha(self) -> float:
        """Thermal diffusivity in m^2/s."""
        if self.table.thermal_diffusivity is not None:
            return self.table.thermal_diffusivity
        prandtl = 0.71 if self.table.prandtl is None else self.table.prandtl
        return self.table.kinematic_viscosity / prandtl

    @property
    def gravity(self) -> float:
        """Magnitude of gravity in m/s^2."""
        return math.hypot(*self.table.gravity)

    @property
    def height(self) -> float:
        """Extent in m along the axis that gravity is nearest to; along x without gravity."""
        axes = range(self.table.dimensions)
        return self.size[max(axes, key=lambda axis: (abs(self.table.gravity[axis]), -axis))]

    @cached_property
    def distance(self) -> float:
        """Distance in m of the hot and the cold wall that face each other; else the height."""
        for side in SIDES:
            if self.is_warm(side) is True and self.is_warm(side.opposite) is False:
                return self.size[side.axis]
        return self.height

    @property
    def temperatures(self) -> dict[str, float | str]:
        """Temperatures of the walls as the case has them."""
        sides = [side for side in SIDES if side.axis < self.table.dimensions]
        return {side.name: getattr(self.table.walls, side.name).temperature for side in sides}

    @cached_property
    def kelvin_ranges(self) -> dict[str, WallRange]:
        """Temperatures of the walls in kelvin."""
        ranges = {}
        for side in SIDES:
            temperature = self.temperatures.get(side.name, "adiabatic")
            if is_in_kelvin(temperature):
                key = f"cavity.walls.{side.name}.temperature"
                expression = parse_quantity_or_expression(
                    temperature, key, _PLACE, words=NAMED_TEMPERATURES
                )
                points = sample_points(side, self.size, self.nodes)
                values = expression.evaluate_finite(key, **points)
                with np.errstate(over="ignore"):  # what is refused later may be huge
                    mean = float(np.mean(values))
                ranges[side.name] = WallRange(
                    side, float(np.min(values)), mean, float(np.max(values))
                )
        return ranges

    def is_warm(self, side: Side) -> bool | None:
        """Whether a wall heats the fluid (True) or cools it (False); None where it is adiabatic."""
        temperature = self.temperatures.get(side.name, "adiabatic")
        if temperature in ("hot", "cold"):
            return temperature == "hot"
        if side.name not in self.kelvin_ranges:
            return None
        middle = self.reference_temperature
        if walls_define_difference(self.temperatures):
            means = [wall.mean for wall in self.kelvin_ranges.values()]
            middle = (min(means) + max(means)) / 2
        return self.kelvin_ranges[side.name].mean >= middle

    @property
    def is_heated(self) -> bool:
        """Whether walls of different temperatures drive the flow."""
        return self.temperature_difference > 0 and any(
            temperature != "adiabatic" for temperature in self.temperatures.values()
        )

    @property
    def kappa(self) -> float:
        """Least square of the artificial speed of sound, over the reference velocity squared."""
        if self.table.kappa is not None:
            return self.table.kappa
        return _KAPPA_BELOW if self.heated_from_below else _KAPPA

    @property
    def heated_from_below(self) -> bool:
        """Whether a wall heats the fluid and the one above it, against gravity, cools it."""
        axes = range(self.table.dimensions)
        axis = max(axes, key=lambda axis: abs(self.table.gravity[axis]))
        down = -1 if self.table.gravity[axis] < 0 else 1
        below = Side(axis, down)
        return bool(
            self.temperature_difference > 0
            and self.table.gravity[axis] != 0
            and self.is_warm(below) is True
            and self.is_warm(below.opposite) is False
        )

    @property
    def reference_temperature(self) -> float:
        """Temperature without buoyancy in K."""
        if self.table.reference_temperature is not None:
            return self.table.reference_temperature
        if walls_define_difference(self.temperatures):
            lowest, highest = span_of(self.kelvin_ranges.values())
            return (lowest + highest) / 2
        return _ROOM_TEMPERATURE

    @property
    def _drive(self) -> float:
        """Buoyancy g beta L^3 in m^3/(s^2 K); infinite, not an error, where it is too large."""
        length = self.distance
        return self.gravity * self.table.expansion * length * length * length

    @property
    def temperature_difference(self) -> float:
        """Hottest less coldest wall in K; 0 where no two walls differ.

        Where all walls are adiabatic it is only a scale, see :attr:`is_heated`.
        """
        table = self.table
        if walls_define_difference(self.temperatures):
            lowest, highest = span_of(self.kelvin_ranges.values())
            return highest - lowest
        names = [name for name in ("hot", "cold") if named_walls(self.temperatures, name)]
        if len(names) == 1:
            return 0.0
        if table.temperature_difference is not None:
            return table.temperature_difference
        rayleigh = 1e5 if table.rayleigh is None else table.rayleigh
        if rayleigh == 0 or self._drive == 0:
            return 0.0
        return rayleigh * table.kinematic_viscosity * self.alpha / self._drive

    @property
    def rayleigh(self) -> float:
        """Rayleigh number."""
        return (
            self._drive
            * self.temperature_difference
            / (self.table.kinematic_viscosity * self.alpha)
        )

    @property
    def hot(self) -> float:
        """Temperature of the hot wall in K."""
        return self.reference_temperature + self.temperature_difference / 2

    @property
    def cold(self) -> float:
        """Temperature of the cold wall in K."""
        return self.reference_temperature - self.temperature_difference / 2

    @property
    def lid_velocity(self) -> float:
        """Largest speed of a wall in m/s."""
        return max(math.hypot(*getattr(self.table.walls, side.name).velocity) for side in SIDES)

    @property
    def reference_velocity(self) -> float:
        """sqrt(g beta dT H) with the height H, or the speed of the fastest wall if larger, in m/s."""
        drive = self.gravity * self.table.expansion * self.temperature_difference * self.height
        return max(math.sqrt(drive), self.lid_velocity)

    def wall_temperature(self, name: str) -> Expression | None:
        """Temperature of a wall as an expression of x, y, z; None where it is adiabatic."""
        temperature = getattr(self.table.walls, name).temperature
        if temperature == "adiabatic":
            return None
        temperature = {"hot": self.hot, "cold": self.cold}.get(temperature, temperature)
        return parse_quantity_or_expression(temperature, f"cavity.walls.{name}.temperature", _PLACE)

    def initial(self, name: str) -> Expression:
        """Initial field as an expression of x, y, z."""
        expression = getattr(self.table.initial, name)
        if expression == "reference":
            expression = self.reference_temperature
        return parse_quantity_or_expression(
            expression, f"cavity.initial.{name}", _PLACE, words=("reference",)
        )
