"""The keys of a flow case, and the numbers that follow from them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.tables import (
    CaseFault,
    CaseTable,
    Coordinate,
    Exclusion,
    Name,
    Position,
    Positive,
    Run,
    Table,
    in_words,
)
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.case_domain import (
    Boundary,
    BoundaryTable,
    Box,
    CylinderChannel,
    CylinderSlice,
    Fluid,
    Initial,
    MeshFile,
    Pump,
    Zone,
)
from haloscope.solvers.flow.equations.equations import Medium

FIELD_NAMES = ("u", "v", "w", "p")
_PLACE = ("x", "y", "z")
_MOST_STEPS = 2**40
_MESHES = ("box", "cylinder_channel", "cylinder_slice", "pump", "mesh")

Tolerance = Annotated[float, Field(ge=0.0, lt=1.0)]
Iterations = Annotated[int, Field(ge=1, le=100_000)]


class Time(Table):
    """Steady flow, or steps in time."""

    scheme: Literal["steady", "bdf2", "generalised-alpha", "space-time"] = "steady"
    """steady: steady flow; a step is one Newton iteration. The run ends when the residual over the
    first falls below run.tolerance (here 1e-8 by default), when it falls below 1e-12 of the residual
    of a fluid at rest, or after run.steps (100) iterations. bdf2: backward differences of second
    order. generalised-alpha: second order with less damping of waves; see radius. space-time:
    elements in space and time, third order in time, with twice the unknowns."""
    radius: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Spectral radius of generalised-alpha: the share of the shortest waves that a step keeps; 0: none,
    1: all."""
    time_step: Positive | None = None
    """Time step of unsteady flow in s; it is shortened to meet the end. A restart may use another."""
    end: Positive | None = None
    """End of unsteady flow in s."""
    pseudo_time_step: Positive | None = None
    """First pseudo time step in s, for steady flow that Newton's method does not reach from its start:
    about the element size over the speed. Pseudo time steps grow as the residual falls. By default there
    are none."""


class NewtonTable(Table):
    """Limits of Newton's method in a time step."""

    iterations: Iterations = 10
    """Largest number of iterations."""
    tolerance: Tolerance = 1e-4
    """Newton's method ends when the residual over the residual at the start of the step falls below
    this. 0: all iterations are done."""
    linearise_tau: bool = False
    """Include the derivatives of tau in the matrix. The solution is the same. With them
    residuals fall quadratically down to rounding; without them a residual is at best about a
    hundredth of the previous one. Useful only with flow.linear.tolerance far below 0.01."""


class LinearTable(Table):
    """The linear solver: restarted flexible GMRES."""

    tolerance: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-2
    """GMRES ends when the residual over the first residual falls below this."""
    iterations: Iterations = 600
    """Largest number of iterations."""
    restart: Annotated[int, Field(ge=1, le=1000)] = 60
    """Iterations between restarts of GMRES; two vectors are kept for each iteration."""
    keep_preconditioner: bool = True
    """Update the preconditioner once a time step, and again only if Newton's residual falls less than
    tenfold or the iterations grow by half. false: update it in each Newton iteration."""
    preconditioner: Literal["auto", "two-level", "block-ilu", "coloured-ilu", "point-blocks"] = (
        "auto"
    )
    """two-level: a coarse space of groups of nodes and a smoother; iterations hardly grow with the
    ranks. block-ilu: incomplete LU factors without fill of each rank's nodes (cores only).
    coloured-ilu: incomplete LU factors in a coloured order with more parallelism. point-blocks:
    inverses of the nodes' own blocks, which do not depend on the ranks. auto: two-level."""
    product: Literal["stored", "matrix-free"] = "stored"
    """stored: the matrix is stored. matrix-free: each product computes the elements' derivatives
    again. It needs a fifth of the matrix's memory, beside 64 bytes a node for each iteration of
    restart, and products take some eight times as long on cores. It works with point-blocks, and not
    with slip or space-time slabs."""

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
    """Name in forces-<name>.csv and in the summary (letters, digits, _ and -)."""
    boundaries: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    """Boundaries whose forces are added."""
    centre: Position = (0.0, 0.0, 0.0)
    """Centre of moments in m."""
    velocity: Positive | None = None
    """U of the force coefficients F / (density U^2 A / 2), in m/s."""
    area: Positive | None = None
    """A of the force coefficients, in m^2."""

    @model_validator(mode="after")
    def _consistent(self) -> Force:
        if (self.velocity is None) != (self.area is None):
            raise CaseFault(
                "velocity and area are not both set",
                remedy="set both velocity and area, or neither",
            )
        return self


class Head(Table):
    """Rise of the pressure from one boundary to another, for example of a pump."""

    inlet: Name
    """Boundary through which fluid enters."""
    outlet: Name
    """Boundary through which fluid leaves."""

    @model_validator(mode="after")
    def _consistent(self) -> Head:
        if self.inlet == self.outlet:
            raise CaseFault(
                f"inlet and outlet are the same boundary {self.inlet!r}",
                allowed="two different boundaries",
            )
        return self


class Shear(Table):
    """Shear stress on walls and in the fluid, and stagnation: shear.vtkhdf and the summary."""

    thresholds: Annotated[tuple[Positive, ...], Field(max_length=100)] = ()
    """Scalar shear stresses in Pa, ascending. The summary has the shares of the volume below, between
    and above them."""
    stagnation_speed: Positive | None = None
    """Fluid slower than this stagnates, in m/s relative to its zone's frame."""
    stagnation_rate: Positive | None = None
    """Fluid with a lower shear rate stagnates, in 1/s. If both limits are set, fluid below both
    stagnates."""

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

    axis: Literal["auto", "x", "y", "z"] = "auto"
    """Normal of the plane; auto: the shortest side of the mesh, z if offset is set."""
    offset: Coordinate | None = None
    """Position of the plane on this axis in m; by default the middle of the mesh."""
    points: Annotated[int, Field(ge=2, le=2000)] = 400
    """Samples along the longer side of the plane."""


class FlowTable(Table):
    """Incompressible flow by stabilised finite elements on tetrahedra."""

    box: Box | None = None
    """Mesh: a box."""
    cylinder_channel: CylinderChannel | None = None
    """Mesh: a channel with a cylinder across it."""
    cylinder_slice: CylinderSlice | None = None
    """Mesh: a thin slice of a channel around a cylinder."""
    pump: Pump | None = None
    """Mesh: an axial blood pump, made with Gmsh at its first use and then kept."""
    mesh: MeshFile | None = None
    """Mesh: a file."""
    fluid: Fluid
    """The fluid: a [flow.fluid] table."""
    zones: dict[Name, Zone] = Field(default_factory=dict)
    """Zones of the mesh with properties of their own, by name: [flow.zones.rotor] tables."""
    boundaries: dict[Name, Boundary] = Field(default_factory=dict)
    """Condition of each boundary, by its name: "no-slip" (a wall at rest), "slip" (no flow across and
    no friction), "open" (no pressure outside), or a table."""
    pressure_at: Position | None = None
    """The node nearest to this point (m) has the pressure 0. It is required if no boundary has an
    outside pressure, and refused otherwise."""
    initial: Initial = Initial()
    """Velocity and pressure at the start."""
    time: Time = Time()
    """Steady flow, or steps in time: a [flow.time] table."""
    newton: NewtonTable = NewtonTable()
    """Newton's method: a [flow.newton] table."""
    linear: LinearTable = LinearTable()
    """The linear solver: a [flow.linear] table."""
    messages: Literal["neighbours", "neighbours-blocking", "all-pairs"] = "neighbours"
    """Recipients and order of messages. neighbours: ranks that share nodes, overlapped with computation.
    For studies on cores: neighbours-blocking: ranks that share nodes, one after the other; all-pairs:
    all other ranks, mostly with empty messages, as in the first version of XNS."""
    lsic: bool = True
    """Add a least-squares term for the divergence of the velocity. It makes the solution on coarse
    meshes robust."""
    forces: Annotated[tuple[Force, ...], Field(max_length=100)] = ()
    """Forces on boundaries: [[flow.forces]] tables."""
    head: Head | None = None
    """Pressure head: a [flow.head] table."""
    shear: Shear | None = None
    """Shear and stagnation at the end: a [flow.shear] table."""
    slice: Slice = Slice()
    """The plane of the picture."""
    partition: Literal["auto", "graph", "coordinates"] = "auto"
    """Partitioning of the elements over ranks: graph (METIS), coordinates (bisection), or auto: the
    method that cuts fewer faces."""

    @model_validator(mode="after")
    def _consistent(self) -> FlowTable:
        meshes = [name for name in _MESHES if getattr(self, name) is not None]
        if len(meshes) != 1:
            problem = f"{' and '.join(meshes)} are set" if meshes else "the case has no mesh"
            raise CaseFault(problem, allowed=f"one of {', '.join(f'flow.{n}' for n in _MESHES)}")
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
        """Notices of keys that depend on time in a steady flow, one line each."""
        if not self.steady:
            return []
        return [
            f"{key} depends on t, and steady flow has no time: its value at t = 0 is "
            'used; for unsteady flow set flow.time.scheme = "bdf2", time_step and end'
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
        """The medium of a zone."""
        fluid, own = self.fluid, self.zones.get(zone, Zone())
        law, viscosity = fluid.carreau, own.viscosity or fluid.viscosity
        return Medium(
            density=own.density or fluid.density,
            viscosity=viscosity,
            force=fluid.force if own.force is None else own.force,
            rotation=own.rotation,
            centre=own.centre,
            carreau=None
            if law is None
            else Carreau(viscosity, law.at_high_shear, law.time, law.exponent),
        )


class FlowRun(Run):
    """How long to run, with defaults for implicit steps."""

    steps: Annotated[int, Field(ge=0, le=2**40)] = 100
    """Largest number of Newton iterations on steady flow; unsteady flow runs to flow.time.end."""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 1e-8
    """Steady flow: stop when the residual over the first falls below this."""
    diagnostics_interval: Annotated[int, Field(ge=1, le=2**40)] = 1
    """Steps between two checks of the solution."""


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
        "a profile distributes a mean velocity",
        ("flow.boundaries.outlet={pressure=0.0, profile=uniform}",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.backflow", "velocity, speed, flow_rate or moving"),
        "backflow is controlled only where the velocity is free",
        ("flow.boundaries.inlet.backflow=0.5",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.straight", "a kind other than pressure and resistance"),
        "only these conditions leave the direction free and have a normal stress",
        ("flow.boundaries.inlet.straight=true",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.moving.centre", "no moving.rotation"),
        "the centre is a point on the axis of the rotation; likewise for a zone",
        ("flow.boundaries.walls={moving={centre=[1.0, 0.0, 0.0]}}",),
    ),
    Exclusion(
        ("flow.boundaries.NAME.resistance.start", "no compliance, or steady flow"),
        "it is the pressure of the compliance at the start",
        ("flow.boundaries.outlet={resistance={proximal=1.0, start=1.0}}",),
    ),
    Exclusion(
        ("flow.pressure_at", 'a boundary "open" or with pressure, traction or resistance'),
        "both set the reference of the pressure",
        ("flow.pressure_at=[0.0, 0.0, 0.0]",),
    ),
    Exclusion(
        ("flow.time.time_step", "steady flow"),
        "steady flow has no time steps; likewise flow.time.end",
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
        "the tolerance ends steady flow; flow.newton.tolerance is for time steps",
        (*_UNSTEADY, "run.tolerance=1e-3"),
    ),
    Exclusion(
        ('flow.linear.product = "matrix-free"', "a preconditioner other than point-blocks"),
        "other preconditioners need the stored matrix",
        ("flow.linear.product=matrix-free", "flow.linear.preconditioner=block-ilu"),
    ),
    Exclusion(
        ('flow.time.scheme = "space-time"', "matrix-free products, resistance, straight, backflow"),
        "space-time slabs do not support them",
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
        "a pressure head is between two boundaries",
        ("flow.head={inlet=inlet, outlet=inlet}",),
    ),
)


_UNITS = {
    "velocity": "m/s",
    "speed": "m/s",
    "flow_rate": "m^3/s",
    "pressure": "Pa",
    "traction": "Pa",
}


class FlowCase(CaseTable):
    """A case file of incompressible flow on tetrahedra."""

    exclusions = _EXCLUSIONS

    solver: Literal["flow"]
    """"flow"."""
    run: FlowRun = FlowRun()
    flow: FlowTable
    """Incompressible flow by stabilised finite elements on tetrahedra."""

    def boundary_conditions(self) -> dict[str, str]:
        """Condition of each boundary of the mesh, in its words or with its keys."""
        return {
            name: in_words(boundary, _UNITS) if isinstance(boundary, Table) else boundary
            for name, boundary in self.flow.boundaries.items()
        }

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
