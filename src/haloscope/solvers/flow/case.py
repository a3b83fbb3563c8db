"""The keys of a flow case, and the numbers that follow from them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.tables import CaseFault, CaseTable, Exclusion, Position, Run, Table
from haloscope.solvers.flow.case_domain import (
    Boundary,
    BoundaryTable,
    Box,
    Component,
    CylinderChannel,
    CylinderSlice,
    MeshFile,
    Name,
    Positive,
)
from haloscope.solvers.flow.equations.equations import Carreau, Medium
from haloscope.solvers.flow.pump_mesh import Pump

FIELD_NAMES = ("u", "v", "w", "p")
_PLACE = ("x", "y", "z")
_MOST_STEPS = 2**40
_MESHES = ("box", "cylinder_channel", "cylinder_slice", "pump", "mesh")

Tolerance = Annotated[float, Field(ge=0.0, lt=1.0)]
Iterations = Annotated[int, Field(ge=1, le=100_000)]


class CarreauTable(Table):
    """How the viscosity falls with the shear rate: mu_inf + (mu - mu_inf) (1 + (lambda g)^2)^((n-1)/2)."""

    at_high_shear: Positive
    """mu_inf in Pa s; the fluid's viscosity is that at rest."""
    time: Positive
    """lambda in s."""
    exponent: Annotated[float, Field(gt=0.0, le=2.0)]
    """n; below 1 the fluid gets thinner."""


class Fluid(Table):
    """What flows."""

    density: Positive
    """In kg/m^3."""
    viscosity: Positive
    """Dynamic, in Pa s; with flow.fluid.carreau that at rest."""
    carreau: CarreauTable | None = None
    """Viscosity that depends on the shear rate: a [flow.fluid.carreau] table."""
    force: Position = (0.0, 0.0, 0.0)
    """Body force per mass in m/s^2, such as gravity."""


class Zone(Table):
    """What differs in a zone of the mesh from flow.fluid, and the frame in which it is seen."""

    density: Positive | None = None
    """In kg/m^3."""
    viscosity: Positive | None = None
    """In Pa s."""
    force: Position | None = None
    """Body force per mass in m/s^2."""
    rotation: Position = (0.0, 0.0, 0.0)
    """Angular velocity of the zone's frame, along x, y, z in rad/s: a rotor's zone turns with it.
    Velocities are those of the frame at rest."""
    centre: Position = (0.0, 0.0, 0.0)
    """A point on the axis, in m."""

    @model_validator(mode="after")
    def _consistent(self) -> Zone:
        if any(self.centre) and not any(self.rotation):
            raise CaseFault(
                "the centre is a point on the axis of a rotation, and the rotation is 0",
                location=f"centre = {list(self.centre)}",
                remedy="set rotation, too",
            )
        return self


class Initial(Table):
    """Velocity and pressure at the start: numbers or expressions of x, y, z (m)."""

    u: float | str = 0.0
    """In m/s."""
    v: float | str = 0.0
    """In m/s."""
    w: float | str = 0.0
    """In m/s."""
    p: float | str = 0.0
    """In Pa."""


class Time(Table):
    """Steady flow, or steps in time."""

    scheme: Literal["steady", "bdf2", "generalised-alpha", "space-time"] = "steady"
    """steady: a step is one of Newton's iterations on the flow that does not change any more; it ends
    where the residual over the first falls below run.tolerance (here 1e-8 by default), or below 1e-12
    of that of a fluid at rest, or after run.steps (100) of them. bdf2: backward differences of second order. generalised-alpha: of second
    order, too, and kinder to waves; see radius. space-time: elements in space and time, third order in
    time, with twice the unknowns."""
    radius: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Of generalised-alpha: what a step leaves of the shortest waves; 0: nothing, 1: all."""
    time_step: Positive | None = None
    """In s, of unsteady flow; it is shortened to meet the end. A restart may take another."""
    end: Positive | None = None
    """In s, of unsteady flow."""
    pseudo_time_step: Positive | None = None
    """In s: the first of steps in time that grow as the residual falls, by which steady flow that
    Newton's method does not reach from its start is approached. Left out: none."""


class NewtonTable(Table):
    """When Newton's method ends in a time step."""

    iterations: Iterations = 10
    """Most of them."""
    tolerance: Tolerance = 1e-4
    """Of the residual over that at the start of the step. 0: all iterations are done."""
    linearise_tau: bool = False
    """Whether the matrix has the derivatives of tau, too. The solution is the same; residuals then fall
    quadratically down to rounding, where else each is at best about a hundredth of the one before. It
    pays only where linear systems are solved to much less than a hundredth."""


class LinearTable(Table):
    """The linear solver: restarted flexible GMRES."""

    tolerance: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-2
    """Of the residual over that at its start."""
    iterations: Iterations = 600
    """Most of them."""
    restart: Annotated[int, Field(ge=1, le=1000)] = 60
    """Iterations after which it starts again from the residual; two vectors are kept for each."""
    keep_preconditioner: bool = True
    """Whether the preconditioner follows the matrix once in a time step, and again only where Newton's
    residual falls less than tenfold or iterations grow by half."""
    preconditioner: Literal["auto", "two-level", "block-ilu", "coloured-ilu", "point-blocks"] = (
        "auto"
    )
    """two-level: a coarse space for what groups of nodes have in common, and a smoother: iterations
    hardly grow with the ranks. block-ilu: incomplete factors without fill of each rank's nodes (cores
    only). coloured-ilu: the same in an order that has much to do at once. point-blocks: inverses of
    the nodes' own blocks, which do not depend on the ranks. auto: two-level."""
    product: Literal["stored", "matrix-free"] = "stored"
    """matrix-free: the matrix is not stored, and each product takes the elements' derivatives again.
    It takes a fifth of the matrix's memory, beside 64 bytes a node for each iteration of restart, and
    products take some eight times as long on cores. For point-blocks, without slip or slabs."""

    @model_validator(mode="after")
    def _stored_for_preconditioner(self) -> LinearTable:
        if self.product == "matrix-free" and self.preconditioner != "point-blocks":
            raise CaseFault(
                "it needs a stored matrix",
                location=f'preconditioner = "{self.preconditioner}"',
                remedy='set preconditioner = "point-blocks", or product = "stored"',
            )
        return self


class Force(Table):
    """Force and moment of the flow on boundaries, a row of forces-<name>.csv each step."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """Of the table (letters, digits, _ and -)."""
    boundaries: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    """On which it acts together."""
    centre: Position = (0.0, 0.0, 0.0)
    """About which moments are taken, in m."""
    velocity: Positive | None = None
    """U of the coefficients F / (density U^2 A / 2), in m/s."""
    area: Positive | None = None
    """A of the coefficients, in m^2."""

    @model_validator(mode="after")
    def _consistent(self) -> Force:
        if (self.velocity is None) != (self.area is None):
            raise CaseFault(
                "velocity and area are not both set",
                remedy="set both velocity and area, or neither",
            )
        return self


class Head(Table):
    """Rise of the pressure from one boundary to another, such as a pump's."""

    inlet: Name
    """Where fluid comes in."""
    outlet: Name
    """Where it leaves."""

    @model_validator(mode="after")
    def _consistent(self) -> Head:
        if self.inlet == self.outlet:
            raise CaseFault(
                f"inlet and outlet are the same boundary {self.inlet!r}",
                allowed="two different boundaries",
            )
        return self


class Shear(Table):
    """Shear stress on walls and in the fluid, and where this stands: shear.vtkhdf and the summary."""

    thresholds: Annotated[tuple[Positive, ...], Field(max_length=100)] = ()
    """Scalar shear stresses in Pa, ascending: the summary tells the shares of the volume between."""
    stagnation_speed: Positive | None = None
    """In m/s: fluid that is slower, seen from its zone's frame, stands."""
    stagnation_rate: Positive | None = None
    """In 1/s: fluid that is sheared less stands; with both, both must be low."""

    @model_validator(mode="after")
    def _consistent(self) -> Shear:
        if list(self.thresholds) != sorted(set(self.thresholds)):
            raise CaseFault(
                "the thresholds do not ascend",
                location=f"thresholds = {list(self.thresholds)}",
                allowed="ascending numbers, each once",
            )
        return self


class Slice(Table):
    """The plane of the picture."""

    axis: Literal["x", "y", "z"] = "z"
    """Its normal."""
    offset: Component | None = None
    """Where it is on that axis in m; through the middle of the mesh when left out."""
    points: Annotated[int, Field(ge=2, le=2000)] = 400
    """Samples along its longer side."""


class FlowTable(Table):
    """Incompressible flow by stabilised finite elements on tetrahedra."""

    box: Box | None = None
    """Mesh: a box."""
    cylinder_channel: CylinderChannel | None = None
    """Mesh: a channel with a cylinder across it."""
    cylinder_slice: CylinderSlice | None = None
    """Mesh: a thin slice of a channel around a cylinder."""
    pump: Pump | None = None
    """Mesh: an axial blood pump, made with gmsh when it is first asked for and kept."""
    mesh: MeshFile | None = None
    """Mesh: a file."""
    fluid: Fluid
    """What flows: a [flow.fluid] table."""
    zones: dict[Name, Zone] = Field(default_factory=dict)
    """Zones of the mesh that differ, by name: [flow.zones.rotor] tables."""
    boundaries: dict[Name, Boundary] = Field(default_factory=dict)
    """What is given on each boundary, by its name: "no-slip" (a wall at rest), "slip" (a plane that
    nothing crosses and that holds nothing back), "open" (no pressure outside), or a table."""
    pressure_at: Position | None = None
    """The node nearest to this point (m) has the pressure 0: needed where no boundary has a pressure
    from outside, and only there."""
    initial: Initial = Initial()
    """Velocity and pressure at the start."""
    time: Time = Time()
    """Steady flow, or steps in time: a [flow.time] table."""
    newton: NewtonTable = NewtonTable()
    """Newton's method: a [flow.newton] table."""
    linear: LinearTable = LinearTable()
    """The linear solver: a [flow.linear] table."""
    messages: Literal["neighbours", "neighbours-blocking", "all-pairs"] = "neighbours"
    """Who gets messages, and how; the last two are for studies on cores. neighbours: ranks that share
    nodes, while work goes on; neighbours-blocking: these one after the other; all-pairs: every other
    rank, with messages of no size to most, as XNS first did."""
    lsic: bool = True
    """Whether a least-squares term acts on the divergence of the velocity, which makes coarse meshes
    robust."""
    forces: Annotated[tuple[Force, ...], Field(max_length=100)] = ()
    """Forces on boundaries: [[flow.forces]] tables."""
    head: Head | None = None
    """Pressure head: a [flow.head] table."""
    shear: Shear | None = None
    """Shear and stagnation at the end: a [flow.shear] table."""
    slice: Slice = Slice()
    """The plane of the picture."""
    partition: Literal["auto", "graph", "coordinates"] = "auto"
    """How elements are shared out over ranks: graph (METIS), coordinates (bisection), or auto: the
    one that cuts fewer faces."""

    @model_validator(mode="after")
    def _consistent(self) -> FlowTable:
        meshes = [name for name in _MESHES if getattr(self, name) is not None]
        if len(meshes) != 1:
            problem = f"{' and '.join(meshes)} are set" if meshes else "the case has no mesh"
            raise CaseFault(
                problem,
                allowed=f"one of {', '.join(f'flow.{n}' for n in _MESHES)}",
            )
        self._check_time()
        for name in FIELD_NAMES:
            self.initial_field(name)
        for name, boundary in self.boundaries.items():
            if isinstance(boundary, BoundaryTable):
                boundary.components(f"flow.boundaries.{name}.")
                boundary.course(f"flow.boundaries.{name}.")
        names = [force.name for force in self.forces]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise CaseFault(
                f"two tables have the name {min(twice)!r}",
                location="forces",
                remedy="give each a name of its own",
            )
        self._check_reference()
        return self

    def _check_reference(self) -> None:
        """Refuse a second reference of the pressure."""
        for name, boundary in self.boundaries.items():
            if self.pressure_at is not None and (
                boundary == "open" or (isinstance(boundary, BoundaryTable) and boundary.is_open)
            ):
                raise CaseFault(
                    f"it is for vessels without an outside pressure, and flow.boundaries.{name} has one",
                    location="pressure_at",
                    remedy="leave flow.pressure_at out",
                )

    def _check_time(self) -> None:
        time = self.time
        if time.scheme != "generalised-alpha" and time.radius != Time().radius:
            raise CaseFault(
                f'the scheme "{time.scheme}" has no such parameter',
                location=f"time.radius = {time.radius:g}",
                remedy='leave it out, or set flow.time.scheme = "generalised-alpha"',
            )
        if time.scheme == "steady":
            if time.time_step is not None or time.end is not None:
                raise CaseFault(
                    "flow.time.time_step and flow.time.end are for unsteady flow",
                    location='time.scheme = "steady"',
                    remedy='set flow.time.scheme = "bdf2", or leave them out',
                )
            for name, boundary in self.boundaries.items():
                law = boundary.resistance if isinstance(boundary, BoundaryTable) else None
                if law is not None and law.start:
                    raise CaseFault(
                        "it is for unsteady flow",
                        location=f"boundaries.{name}.resistance.start = {law.start:g}",
                        remedy="leave it out",
                    )
            return
        if time.scheme == "space-time":
            self._check_slabs()
        if time.time_step is None or time.end is None:
            raise CaseFault(
                "unsteady flow needs flow.time.time_step and flow.time.end",
                location=f'time.scheme = "{time.scheme}"',
                remedy="set both, in s",
            )
        if time.time_step > time.end:
            raise CaseFault(
                f"it is longer than flow.time.end = {time.end:g}",
                location=f"time.time_step = {time.time_step:g}",
                remedy="shorten it",
            )
        if time.end / time.time_step > _MOST_STEPS:
            raise CaseFault(
                f"it takes {time.end / time.time_step:.2g} steps of flow.time.time_step = "
                f"{time.time_step:g}",
                location=f"time.end = {time.end:g}",
                allowed=f"at most {_MOST_STEPS:.2g} steps",
                remedy="lengthen flow.time.time_step",
            )
        if time.pseudo_time_step is not None:
            raise CaseFault(
                "it is for steady flow",
                location=f"time.pseudo_time_step = {time.pseudo_time_step:g}",
                remedy="leave it out",
            )

    def _check_slabs(self) -> None:
        """Refuse keys that space-time slabs do not support."""
        if self.linear.product == "matrix-free":
            raise CaseFault(
                "space-time slabs need a stored matrix",
                location='linear.product = "matrix-free"',
                remedy='set flow.linear.product = "stored"',
            )
        for name, boundary in self.boundaries.items():
            if isinstance(boundary, BoundaryTable):
                keys = [k for k in ("resistance", "straight", "backflow") if getattr(boundary, k)]
                if keys:
                    raise CaseFault(
                        "space-time slabs do not support it",
                        location=f"boundaries.{name}.{keys[0]}",
                        remedy='set flow.time.scheme = "bdf2" or "generalised-alpha"',
                    )

    @property
    def steady(self) -> bool:
        """Whether the flow does not change in time."""
        return self.time.scheme == "steady"

    def stopped(self) -> list[str]:
        """Notices of what depends on time where the flow is steady, one line each."""
        if not self.steady:
            return []
        return [
            f"{key} depends on t, and steady flow has no time: its value at t = 0 is "
            'taken; give flow.time.scheme = "bdf2", time_step and end for flow that changes'
            for key in self.changes()
        ]

    def changes(self) -> list[str]:
        """Keys of boundaries under which something depends on t."""
        return [
            f"flow.boundaries.{name}.{key}"
            for name, boundary in self.boundaries.items()
            if isinstance(boundary, BoundaryTable)
            for key in boundary.changes(f"flow.boundaries.{name}.")
        ]

    def is_wall(self, name: str) -> bool:
        """Whether fluid sticks to a boundary."""
        condition = self.boundaries.get(name)
        moving = isinstance(condition, BoundaryTable) and condition.moving is not None
        return condition == "no-slip" or moving

    def steps(self) -> int:
        """Steps in time to the end of unsteady flow."""
        assert self.time.time_step is not None
        assert self.time.end is not None
        return max(1, math.ceil(self.time.end / self.time.time_step * (1 - 1e-12)))

    def initial_field(self, name: str) -> Expression:
        """Initial field as an expression of x, y, z."""
        return parse_quantity_or_expression(
            getattr(self.initial, name), f"flow.initial.{name}", _PLACE
        )

    def medium(self, zone: str) -> Medium:
        """What fills a zone."""
        fluid, own = self.fluid, self.zones.get(zone, Zone())
        law = fluid.carreau
        return Medium(
            density=own.density or fluid.density,
            viscosity=own.viscosity or fluid.viscosity,
            force=fluid.force if own.force is None else own.force,
            rotation=own.rotation,
            centre=own.centre,
            carreau=None if law is None else Carreau(law.at_high_shear, law.time, law.exponent),
        )


class FlowRun(Run):
    """How long to run: as of other solvers, with what suits implicit steps by default."""

    steps: Annotated[int, Field(ge=0, le=2**40)] = 100
    """Most of Newton's iterations on steady flow; unsteady flow runs to flow.time.end."""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 1e-8
    """Of steady flow: stop when the residual over the first falls below this."""
    diagnostics_interval: Annotated[int, Field(ge=1, le=2**40)] = 1
    """Steps between two looks at the solution."""


_UNSTEADY = ("flow.time.scheme=bdf2", "flow.time.time_step=0.1", "flow.time.end=1.0")
_EXCLUSIONS = (
    Exclusion(
        ("flow.box", "flow.cylinder_channel, cylinder_slice, pump or mesh"),
        "a case has one mesh",
        ("flow.box.cells=[2, 2, 2]",),
    ),
    Exclusion(
        (
            "flow.boundaries.NAME.velocity",
            "speed, flow_rate, moving, pressure, traction or resistance of the same boundary",
        ),
        "a boundary has one kind of condition",
        ("flow.boundaries.inlet.velocity=[1.0, 0.0, 0.0]",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.signal", "velocity, moving, traction or resistance"),
        "a signal is a factor on speed, flow_rate or pressure",
        ("flow.boundaries.outlet={traction=[0.0, 0.0, 0.0], signal=a.csv}",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.profile", "a kind other than speed and flow_rate"),
        "other kinds give no mean velocity to distribute",
        ("flow.boundaries.outlet={pressure=0.0, profile=uniform}",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.backflow", "velocity, speed, flow_rate or moving"),
        "where the velocity is given nothing is held back",
        ("flow.boundaries.inlet.backflow=0.5",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.straight", "a kind other than pressure and resistance"),
        "only there the direction is free and the stress is normal",
        ("flow.boundaries.inlet.straight=true",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.moving.centre", "no moving.rotation"),
        "the centre is a point on the axis of the rotation; so is that of a zone",
        ("flow.boundaries.walls={moving={centre=[1.0, 0.0, 0.0]}}",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.resistance.start", "no compliance, or steady flow"),
        "it is the pressure of the compliance at the start",
        ("flow.boundaries.outlet={resistance={proximal=1.0, start=1.0}}",),
    ),
    Exclusion(
        ("flow.pressure_at", 'a boundary "open" or with pressure, traction or resistance'),
        "both are the reference of the pressure",
        ("flow.pressure_at=[0.0, 0.0, 0.0]",),
    ),
    Exclusion(
        ("flow.time.time_step", "steady flow"),
        "steady flow takes no steps in time; so flow.time.end",
        ("flow.time.time_step=0.1",),
    ),
    Exclusion(
        ("flow.time.pseudo_time_step", "unsteady flow"),
        "pseudo time steps lead to a steady flow",
        (*_UNSTEADY, "flow.time.pseudo_time_step=0.1"),
    ),
    Exclusion(
        ("flow.time.radius", 'a flow.time.scheme other than "generalised-alpha"'),
        "other schemes have no such parameter",
        (*_UNSTEADY, "flow.time.radius=0.5"),
    ),
    Exclusion(
        ("run.steps", "unsteady flow of more steps"),
        "flow.time.end and flow.time.time_step set the number of steps",
        (*_UNSTEADY, "run.steps=7"),
    ),
    Exclusion(
        ("run.tolerance", "unsteady flow"),
        "the tolerance ends steady flow; that of a time step is flow.newton.tolerance",
        (*_UNSTEADY, "run.tolerance=1e-3"),
    ),
    Exclusion(
        ('flow.linear.product = "matrix-free"', "a preconditioner other than point-blocks"),
        "others need the stored matrix",
        ("flow.linear.product=matrix-free", "flow.linear.preconditioner=block-ilu"),
    ),
    Exclusion(
        ('flow.time.scheme = "space-time"', "matrix-free products, resistance, straight, backflow"),
        "space-time slabs do not have them",
        (
            *_UNSTEADY[1:],
            "flow.time.scheme=space-time",
            "flow.linear.product=matrix-free",
            "flow.linear.preconditioner=point-blocks",
        ),
    ),
    Exclusion(
        ("flow.forces.N.velocity", "no area (or the other way round)"),
        "coefficients need both",
        ("flow.forces=[{name=a, boundaries=[walls], velocity=1.0}]",),
    ),
    Exclusion(
        ("flow.head.inlet", "the same boundary as flow.head.outlet"),
        "a head is between two boundaries",
        ("flow.head={inlet=inlet, outlet=inlet}",),
    ),
)


class FlowCase(CaseTable):
    """A case file of incompressible flow on tetrahedra."""

    exclusions = _EXCLUSIONS

    solver: Literal["flow"]
    """"flow"."""
    run: FlowRun = FlowRun()
    flow: FlowTable
    """Incompressible flow by stabilised finite elements on tetrahedra."""

    @model_validator(mode="after")
    def _one_end(self) -> FlowCase:
        run, usual = self.run, FlowRun()
        if self.flow.steady:
            return self
        if run.steps != usual.steps and run.steps < self.flow.steps():
            raise CaseFault(
                f"unsteady flow takes {self.flow.steps()} steps to flow.time.end",
                location=f"run.steps = {run.steps}",
                remedy="leave run.steps out (--steps N ends a run earlier)",
            )
        if run.tolerance not in (0.0, usual.tolerance):
            raise CaseFault(
                "it is for steady flow",
                location=f"run.tolerance = {run.tolerance:g}",
                remedy="leave it out, or set flow.newton.tolerance",
            )
        return self


__all__ = ["FlowCase", "FlowTable"]
