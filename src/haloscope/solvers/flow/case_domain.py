"""Keys of a flow case for its mesh, its fluid and its boundaries."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, model_validator

from haloscope.case.expressions import SPACE_AND_TIME, Expression, parse_quantity_or_expression
from haloscope.case.tables import (
    CaseFault,
    Coordinate,
    Count,
    Name,
    Position,
    Positive,
    Table,
)
from haloscope.errors import counted
from haloscope.solvers.windkessel import ResistanceTable

_Ratio = Annotated[float, Field(ge=1.0, le=1000.0)]
_Resolution = Annotated[int, Field(ge=4, le=10_000)]
_TETS_OF_A_BRICK = 6


class Box(Table):
    """A box of bricks, each cut into six tetrahedra; boundaries x_low, x_high, ..., z_high."""

    cells: tuple[Count, Count, Count]
    """Bricks along x, y, z."""
    lower: Position = (0.0, 0.0, 0.0)
    """Lower corner in m."""
    upper: Position = (1.0, 1.0, 1.0)
    """Upper corner in m."""
    grading: Position = (1.0, 1.0, 1.0)
    """Size of the last brick over the size of the first along each axis."""
    to_walls: Annotated[float, Field(ge=0.0, le=0.99)] = 0.0
    """Refinement towards both ends of each axis; 0: none."""

    def tetrahedra(self) -> int:
        """How many there are."""
        x, y, z = self.cells
        return _TETS_OF_A_BRICK * x * y * z


class CylinderChannel(Table):
    """Channel with a cylinder across it, 2.5 m x 0.41 m x 0.41 m, D = 0.1 m: DFG 3D-1Z to 3D-3Z.

    Boundaries: inlet, outlet, walls, cylinder.
    """

    resolution: _Resolution = 14
    """Cells from wall to wall, and on each quarter of the cylinder; 14 makes 118,440 elements with
    15 layers, 29 about a million."""
    layers: Count | None = None
    """Layers of cells along the cylinder; by default the resolution."""
    rings: Count | None = None
    """Rings of cells around the cylinder; by default the resolution."""
    growth: _Ratio = 6.0
    """Thickness of the outermost ring over the thickness of the innermost."""
    stretch: _Ratio = 6.0
    """Length of the last cell before the outlet over the length of the first behind the cylinder's
    block."""


class CylinderSlice(Table):
    """Thin slice of a channel around a cylinder, 2.2 m x 0.41 m, D = 0.1 m: DFG 2D-2.

    Boundaries: inlet, outlet, walls, cylinder, back (z = 0), front.
    """

    resolution: _Resolution = 24
    """Cells from wall to wall, and on each quarter of the cylinder."""
    layers: Count = 1
    """Layers of cells along z."""
    thickness: Positive | None = None
    """Thickness along z in m; by default layers are as thick as cells are high."""
    rings: Count | None = None
    """Rings of cells around the cylinder; by default the resolution."""
    growth: _Ratio = 8.0
    """Thickness of the outermost ring over the thickness of the innermost."""
    stretch: _Ratio = 3.0
    """Length of the last cell before the outlet over the length of the first behind the cylinder's
    block."""


class MeshFile(Table):
    """A mesh of tetrahedra in a file; physical groups name boundaries and zones."""

    file: Name
    """Path of a Gmsh file (.msh, 2.2 or 4.1), or of a .vtu or .vtk file."""
    scale: Positive = 1.0
    """Length unit of the file in m: 0.001 for millimetres."""
    smallest_quality: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
    """Elements with a lower quality (Gmsh's SICN: 1 is regular, 0 is flat) are refused as slivers."""


Plain = Literal["no-slip", "slip", "open"]
"""Boundaries that need no numbers."""
Quantity = Coordinate | Annotated[str, Field(min_length=1)]
_KINDS = ("velocity", "speed", "flow_rate", "moving", "pressure", "traction", "resistance")
_OF_TIME = ("speed", "flow_rate")
_WITH_SIGNAL = (*_OF_TIME, "pressure")
_OPEN = ("pressure", "traction", "resistance")


_Turning = TypeVar("_Turning", "Moving", "Zone")


def _with_rotation(table: _Turning) -> _Turning:
    """A table, if its centre is that of a rotation."""
    if any(table.centre) and not any(table.rotation):
        raise CaseFault(
            "the centre is a point on the axis of a rotation, and the rotation is 0",
            location=f"centre = {list(table.centre)}",
            remedy="set rotation, too",
        )
    return table


class Moving(Table):
    """Motion of a wall within its surface: a translation and a rotation about an axis."""

    velocity: Position = (0.0, 0.0, 0.0)
    """Velocity along x, y, z in m/s."""
    rotation: Position = (0.0, 0.0, 0.0)
    """Angular velocity along x, y, z in rad/s."""
    centre: Position = (0.0, 0.0, 0.0)
    """A point on the axis of rotation, in m."""

    @model_validator(mode="after")
    def _consistent(self) -> Moving:
        return _with_rotation(self)


class FlowResistanceTable(ResistanceTable):
    """Windkessel model of the vessels behind an outlet: p = outside + proximal Q + c.

    c is the pressure across the compliance and the distal resistance.
    """

    start: Coordinate = 0.0
    """c at the start, in Pa."""

    @model_validator(mode="after")
    def _consistent(self) -> FlowResistanceTable:
        self.require_compliance(self.start)
        return self


class BoundaryTable(Table):
    """Condition of a boundary: one of the keys down to resistance, and options."""

    velocity: tuple[Quantity, Quantity, Quantity] | None = None
    """Velocity along x, y, z in m/s: numbers, or expressions of x, y, z (m) and t (s)."""
    speed: Quantity | None = None
    """Mean inward velocity across a plane boundary in m/s: a number or an expression of t. Negative
    values are outward."""
    flow_rate: Quantity | None = None
    """Inward volume flow rate across a plane boundary in m^3/s: a number or an expression of t."""
    moving: Moving | None = None
    """A no-slip wall that moves within its surface, for example a rotor's."""
    pressure: Quantity | None = None
    """Outside pressure in Pa, without friction: a number or an expression of x, y, z, t. For
    boundaries through which fluid leaves; a flow that enters or leaves needs at least one."""
    traction: tuple[Quantity, Quantity, Quantity] | None = None
    """Outside stress along x, y, z in Pa (-p n for a pressure p): numbers or expressions of
    x, y, z, t."""
    resistance: FlowResistanceTable | None = None
    """Outside pressure that rises with the outflow."""
    profile: Literal["developed", "uniform"] = "developed"
    """Profile of speed and flow_rate. developed: profile of a long straight pipe of this
    cross-section (a parabola for a round pipe), zero at the edge; uniform: constant."""
    signal: Name | None = None
    """CSV file of two columns: time in s, and a factor on speed, flow_rate or pressure; linear
    between its rows."""
    straight: bool = False
    """Whether fluid crosses a boundary with pressure or resistance at right angles, as in a long
    straight pipe."""
    backflow: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Factor of the stress backflow rho (u.n) u that resists fluid entering through a boundary with
    pressure, traction or resistance. 0: no resistance; 0.5 and more: the fluid brings no energy."""

    @model_validator(mode="after")
    def _consistent(self) -> BoundaryTable:
        kinds = [name for name in _KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            problem = f"{' and '.join(kinds)} are set" if kinds else "no condition is set"
            raise CaseFault(problem, allowed=f"one of {', '.join(_KINDS)}")
        kind = kinds[0]
        options: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ("signal", "signal", _WITH_SIGNAL),
            ("backflow", f"backflow = {self.backflow:g}", _OPEN),
            ("straight", "straight = true", ("pressure", "resistance")),
            ("profile", f'profile = "{self.profile}"', _OF_TIME),
        )
        for name, shown, allowed in options:
            if kind not in allowed and getattr(self, name) != type(self).model_fields[name].default:
                raise CaseFault(
                    f"it has no effect on {kind}",
                    location=shown,
                    allowed=f"with {(', ' if len(allowed) > 2 else ' and ').join(allowed)}",
                )
        return self

    def components(self, key: str) -> list[Expression]:
        """Velocity or traction as expressions of x, y, z, t; none where neither is given."""
        name = "velocity" if self.traction is None else "traction"
        return [
            parse_quantity_or_expression(value, f"{key}{name}", SPACE_AND_TIME)
            for value in getattr(self, name) or ()
        ]

    def course(self, key: str) -> Expression | None:
        """Speed or flow rate as an expression of t, or pressure as one of x, y, z, t."""
        for name in _WITH_SIGNAL:
            value = getattr(self, name)
            if value is not None:
                variables = ("t",) if name in _OF_TIME else SPACE_AND_TIME
                return parse_quantity_or_expression(value, f"{key}{name}", variables)
        return None

    @property
    def is_open(self) -> bool:
        """Whether the velocity is left free."""
        return any(getattr(self, name) is not None for name in _OPEN)

    def changes(self, key: str) -> list[str]:
        """Keys under which something depends on t."""
        kind = next(name for name in _KINDS if getattr(self, name) is not None)
        course = self.course(key)
        components = self.components(key) if course is None else [course]
        varying = [kind] if any("t" in component.uses for component in components) else []
        return [*varying, "signal"] if self.signal is not None else varying


def _form(form: Any) -> str:
    return "[table]" if isinstance(form, dict | BoundaryTable) else "[words]"


# Faults are told of the form that was given. Names with a bracket are no keys.
Boundary = Annotated[
    Annotated[Plain, Tag("[words]")] | Annotated[BoundaryTable, Tag("[table]")],
    Discriminator(_form),
]
"""What is given on a boundary, in a word or as a table."""


# A pipe holds a hub with a nose and a tail. Along it come straight vanes, the rotor's blades with a gap
# to the housing, and vanes that take the swirl out again. Each row stands in a zone of its own, so that
# the rotor's zone can be seen from a turning frame; flat annuli part the zones. The axis is z, along
# which the fluid is to flow, and the rotor turns about it by the right-hand rule.

PUMP_ZONES = ("straightener", "rotor", "diffuser")
BY_BLADES = 0.6
"""Elements along blades are smaller than others by this, unless it is said otherwise."""
# Shares of the hub's circumference that vanes may take, and of its radius that half of one may.
_CROWDED, _BROAD = 0.7, 0.6
_FINEST, _COARSEST = 1 / 40, 1 / 2  # element sizes over the housing's radius

Length = Annotated[float, Field(gt=0.0, le=1000.0)]
Angle = Annotated[float, Field(ge=-75.0, le=75.0)]


class Vanes(Table):
    """A row of vanes or blades. The tangent of their angle changes linearly along the axis."""

    count: Annotated[int, Field(ge=1, le=12)]
    """Number of vanes."""
    length_mm: Length
    """Length along the axis."""
    thickness_mm: Length
    """Thickness of a vane at the mean radius."""
    leading_angle: Angle
    """Angle from the axis at the mean radius and the upstream end, in degrees. Blades lean against the
    rotation, other vanes with it. The pitch is 2 pi mean radius / tan(angle)."""
    trailing_angle: Angle
    """Angle from the axis at the mean radius and the downstream end, in degrees."""


def _row(count: int, length: float, leading: float, trailing: float) -> Vanes:
    return Vanes(
        count=count,
        length_mm=length,
        thickness_mm=0.5,
        leading_angle=leading,
        trailing_angle=trailing,
    )


class Pump(Table):
    """An axial pump.

    Its boundaries are inlet, outlet, housing, straightener_hub, straightener_vanes, rotor_hub, blades,
    diffuser_hub and diffuser_vanes, its zones straightener, rotor and diffuser, and the surfaces between
    them straightener_to_rotor and rotor_to_diffuser.
    """

    housing_radius_mm: Length = 6.0
    """Inner radius of the pipe."""
    hub_radius_mm: Length = 3.0
    """Radius of the hub between nose and tail."""
    tip_gap_mm: Length = 0.3
    """Gap between the tips of the rotor's blades and the housing."""
    straightener: Vanes = _row(4, 8.0, 0.0, 0.0)
    """Fixed vanes before the rotor, from hub to housing."""
    rotor: Vanes = _row(3, 10.0, 65.0, 48.0)
    """Blades on the rotating part of the hub."""
    diffuser: Vanes = _row(3, 10.0, 60.0, 0.0)
    """Fixed vanes behind the rotor, from hub to housing."""
    inlet_length_mm: Length = 8.0
    """Length of the empty pipe before the nose."""
    nose_length_mm: Length = 4.0
    """Length of the hub's nose, half an ellipsoid."""
    clearance_mm: Length = 1.0
    """Distance along the axis between a row of vanes and the next zone."""
    tail_length_mm: Length = 8.0
    """Length of the hub's tail, half an ellipsoid."""
    outlet_length_mm: Length = 12.0
    """Length of the empty pipe behind the tail."""
    mesh_size_mm: Length = 1.0
    """Edge length of elements away from vanes."""
    blade_mesh_size_mm: Length | None = None
    """Edge length of elements along vanes; 0.6 of mesh_size_mm by default."""
    gap_layers: Annotated[int, Field(ge=1, le=10)] = 2
    """Layers of elements between the tip of a blade and the housing."""

    @model_validator(mode="after")
    def _fits(self) -> Pump:
        housing, hub = self.housing_radius_mm, self.hub_radius_mm
        _require("hub_radius_mm", hub, 0.1 * housing, 0.9 * housing)
        _require("tip_gap_mm", self.tip_gap_mm, 0.01 * (housing - hub), 0.3 * (housing - hub))
        _require("mesh_size_mm", self.mesh_size_mm, _FINEST * housing, _COARSEST * housing)
        if self.blade_mesh_size_mm is not None:
            low = BY_BLADES * _FINEST * housing
            _require("blade_mesh_size_mm", self.blade_mesh_size_mm, low, self.mesh_size_mm)
        for name in PUMP_ZONES:
            vanes: Vanes = getattr(self, name)
            steepest = max(abs(vanes.leading_angle), abs(vanes.trailing_angle))
            broad = vanes.thickness_mm / math.cos(math.radians(steepest))
            most = min(2 * math.pi * hub * _CROWDED / vanes.count, 2 * hub * _BROAD)
            if broad > most:
                raise CaseFault(
                    f"{counted(vanes.count, 'vane')} of {broad:.3g} mm around the hub, where the "
                    "angle is steepest, are too wide",
                    location=name,
                    allowed=f"at most {most:.3g} mm",
                    remedy="take fewer or thinner vanes, or smaller angles",
                )
        return self

    @property
    def mean_radius_mm(self) -> float:
        """Of hub and housing."""
        return (self.hub_radius_mm + self.housing_radius_mm) / 2

    @property
    def ends_mm(self) -> tuple[float, float, float, float]:
        """Where the zones begin and end along the axis; the inlet is at 0."""
        gap = self.clearance_mm
        first = self.inlet_length_mm + self.nose_length_mm + self.straightener.length_mm + gap
        second = first + self.rotor.length_mm + 2 * gap
        hub = second + gap + self.diffuser.length_mm + self.tail_length_mm
        return 0.0, first, second, hub + self.outlet_length_mm


def _require(name: str, size: float, low: float, high: float) -> None:
    if not low <= size <= high:
        raise CaseFault(
            "out of range",
            location=f"{name} = {size:g}",
            allowed=f"{low:.3g} to {high:.3g} with the other dimensions",
        )


class CarreauTable(Table):
    """Carreau viscosity at the shear rate g: mu_inf + (mu - mu_inf) (1 + (lambda g)^2)^((n-1)/2)."""

    at_high_shear: Positive
    """mu_inf in Pa s; mu is the fluid's viscosity."""
    time: Positive
    """lambda in s."""
    exponent: Annotated[float, Field(gt=0.0, le=2.0)]
    """n; below 1 the viscosity falls with the shear rate."""


class Fluid(Table):
    """The fluid."""

    density: Positive
    """Density in kg/m^3."""
    viscosity: Positive
    """Dynamic viscosity in Pa s; with flow.fluid.carreau the viscosity at rest."""
    carreau: CarreauTable | None = None
    """Viscosity that depends on the shear rate: a [flow.fluid.carreau] table."""
    force: Position = (0.0, 0.0, 0.0)
    """Body force per mass in m/s^2, for example gravity."""


class Zone(Table):
    """Properties of a zone of the mesh that differ from flow.fluid, and its frame of reference."""

    density: Positive | None = None
    """Density in kg/m^3."""
    viscosity: Positive | None = None
    """Dynamic viscosity in Pa s."""
    force: Position | None = None
    """Body force per mass in m/s^2."""
    rotation: Position = (0.0, 0.0, 0.0)
    """Angular velocity of the zone's frame along x, y, z in rad/s; the frame of a rotor's zone turns
    with the rotor. Velocities in the case and in results are relative to the frame at rest."""
    centre: Position = (0.0, 0.0, 0.0)
    """A point on the axis of rotation, in m."""

    @model_validator(mode="after")
    def _consistent(self) -> Zone:
        return _with_rotation(self)


class Initial(Table):
    """Velocity and pressure at the start: numbers or expressions of x, y, z (m)."""

    u: float | str = 0.0
    """Velocity along x in m/s."""
    v: float | str = 0.0
    """Velocity along y in m/s."""
    w: float | str = 0.0
    """Velocity along z in m/s."""
    p: float | str = 0.0
    """Pressure in Pa."""
