"""The keys of a blood case, the numbers that follow from them, and keys that exclude each other."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.tables import CaseFault, CaseTable, Coordinate, Exclusion, Positive, Table
from haloscope.solvers.blood.case_cells import CellsTable, RepulsionTable, is_set
from haloscope.solvers.blood.case_vessels import (
    Bifurcation,
    Channel,
    OpeningTable,
    SurfaceFile,
    Tree,
    Tube,
    WallsTable,
)
from haloscope.solvers.blood.coupling.coupling import LEAST_HALO
from haloscope.solvers.blood.coupling.repulsion import MOST_CUTOFF
from haloscope.solvers.blood.signals import Signal, read_signal
from haloscope.solvers.blood.units import (
    LEAST_SPACING_UM,
    LEAST_TAU,
    MICRO,
    MOST_HEMATOCRIT,
    MOST_TAU,
    LatticeUnits,
    within_limit,
)
from haloscope.solvers.carreau import Carreau

_OPEN = 'blood.channel={size_um=[19.2, 12.0, 12.0], periodic=[], open=["x"]}'
_INLET = 'name="x_low", kind="velocity", value=1e-3'
_OUTLET = 'name="x_high", kind="pressure"'


def _openings(*tables: str) -> tuple[str, ...]:
    return (_OPEN, f"blood.openings=[{', '.join('{' + table + '}' for table in tables)}]")


EXCLUSIONS = (
    Exclusion(
        ("blood.channel", "blood.tube, bifurcation, tree or surface"),
        "a case has one vessel",
        ("blood.tube={radius_um=10.0, length_um=40.0}",),
    ),
    Exclusion(
        ("blood.relaxation_time", "blood.time_step_us"),
        "both set the time step",
        ("blood.time_step_us=0.05",),
    ),
    Exclusion(
        ("blood.end_time_ms", "run.steps"),
        "both set the end of the run",
        ("blood.end_time_ms=1.0", "run.steps=2000"),
    ),
    Exclusion(
        ("blood.drive", "blood.pressure_gradient_pa_m of 0"),
        "the factor has no effect",
        ("blood.drive=0.5", "blood.pressure_gradient_pa_m=[0.0, 0.0, 0.0]"),
    ),
    Exclusion(
        ("blood.magic", 'blood.collision = "bgk"'),
        "bgk has one relaxation time",
        ("blood.collision=bgk", "blood.magic=0.25"),
    ),
    Exclusion(
        ("blood.storage", 'blood.precision = "double"'),
        "half storage computes in single precision",
        ("blood.storage=half", "blood.precision=double"),
    ),
    Exclusion(
        ("blood.carreau", "blood.cells"),
        "the viscosity of whole blood includes the cells",
        ("blood.carreau={}",),
    ),
    Exclusion(
        ("blood.channel.periodic", "blood.channel.open"),
        "an axis is periodic or open",
        ('blood.channel.open=["x"]',),
    ),
    Exclusion(
        ("blood.walls.velocity_m_s", "an axis that is periodic or open, or another vessel"),
        "only walls of a channel move",
        ("blood.walls.velocity_m_s={x_low=[0.0, 1e-3, 0.0]}",),
    ),
    Exclusion(
        ("blood.walls.velocity_m_s", "the wall's normal"),
        "a wall moves only within its plane",
        ("blood.walls.velocity_m_s={y_low=[0.0, 1e-3, 0.0]}",),
    ),
    Exclusion(
        ("blood.openings.feeds", 'blood.openings.kind = "pressure"'),
        "cells enter with a prescribed velocity",
        _openings(_INLET, f"{_OUTLET}, feeds=true"),
    ),
    Exclusion(
        ("blood.openings.feeds", "a case without blood.cells"),
        "there are no cells that could enter",
        (*_openings(f"{_INLET}, feeds=true", _OUTLET), "blood.cells=[]"),
    ),
    Exclusion(
        ("blood.openings.profile", 'blood.openings.kind = "pressure"'),
        "profiles are for velocities",
        _openings(_INLET, f'{_OUTLET}, profile="uniform"'),
    ),
    Exclusion(
        ("blood.openings.period_s", "a blood.openings.signal that is a number"),
        "a number has no period",
        _openings(f"{_INLET}, period_s=0.1", _OUTLET),
    ),
    Exclusion(
        ("blood.openings.resistance or split", 'blood.openings.kind = "velocity"'),
        "both set what passes the opening",
        _openings(f"{_INLET}, resistance={{proximal=1e15}}", _OUTLET),
    ),
    Exclusion(
        ("blood.openings.resistance", "blood.openings.value, signal or split"),
        "all of them set the pressure",
        _openings(_INLET, f"{_OUTLET}, value=1.0, resistance={{proximal=1e15}}"),
    ),
    Exclusion(
        ("blood.openings.split", "blood.openings.signal"),
        "the pressure follows the flow",
        _openings(_INLET, f'{_OUTLET}, split=1.0, signal="1+t"'),
    ),
    Exclusion(
        ("blood.openings.split", "an outlet with resistance or without split"),
        "shares are those of all outlets",
        _openings(_INLET, f"{_OUTLET}, split=0.5"),
    ),
    Exclusion(
        ("blood.openings.interpolation", "a blood.openings.signal without rows or period_s"),
        "smooth curves go through the rows of a period",
        _openings(f'{_INLET}, interpolation="periodic"', _OUTLET),
    ),
    Exclusion(
        ("blood.openings.profile", "womersley without blood.openings.period_s, or with feeds"),
        "it is the flow of a periodic signal",
        _openings(f'{_INLET}, profile="womersley", signal="1+t"', _OUTLET),
    ),
    Exclusion(
        ("blood.openings.profile", "womersley with blood.carreau"),
        "modes of a flow are independent only at one viscosity",
        (
            *_openings(f'{_INLET}, profile="womersley", signal="1+t", period_s=1.0', _OUTLET),
            "blood.cells=[]",
            "blood.carreau={}",
        ),
    ),
    Exclusion(
        ("blood.openings.modes", "a signal that is no Fourier series"),
        "other curves have none",
        _openings(f"{_INLET}, modes=4", _OUTLET),
    ),
    Exclusion(
        ("blood.openings.value_unit", 'blood.openings.kind = "pressure"'),
        "the unit is that of a velocity",
        _openings(_INLET, f'{_OUTLET}, value_unit="m3/s"'),
    ),
    Exclusion(
        ("blood.openings.normal", "blood.openings without position_um"),
        "a plane needs both",
        _openings(f"{_INLET}, normal=[-1.0, 0.0, 0.0]", _OUTLET),
    ),
    Exclusion(
        ("blood.openings.position_um", "a vessel other than blood.surface"),
        "planes cut surfaces; other vessels are open at their own ends",
        _openings(f"{_INLET}, position_um=[0.0, 6.0, 6.0], normal=[-1.0, 0.0, 0.0]", _OUTLET),
    ),
    Exclusion(
        ("blood.cells.hematocrit", "blood.cells.placed"),
        "both set where cells start",
        ("blood.cells.0.hematocrit=0.1",),
    ),
    Exclusion(
        ("blood.cells.positions", "blood.cells.hematocrit or placed"),
        "they also set where cells start",
        ("blood.cells.0.positions=cells.pos",),
    ),
    Exclusion(
        ("blood.cells.offset_um", "blood.cells without positions"),
        "it moves the cells of the list",
        ("blood.cells.0.offset_um=[1.0, 0.0, 0.0]",),
    ),
    Exclusion(
        ("blood.cells.area_ratio", 'blood.cells.law = "neo-hookean"'),
        "it is a parameter of the Skalak law",
        ("blood.cells.0.law=neo-hookean", "blood.cells.0.area_ratio=5.0"),
    ),
    Exclusion(
        ("blood.cells.stretch", "blood.openings.feeds"),
        "cells are pulled in the vessel, not in the flow before an inlet",
        (*_openings(f"{_INLET}, feeds=true", _OUTLET), "blood.cells.0.stretch={force_pn=10.0}"),
    ),
    Exclusion(
        ("blood.cells.stretch.period_s", "a blood.cells.stretch.signal that is a number"),
        "a number has no period",
        ("blood.cells.0.stretch={force_pn=10.0, period_s=0.1}",),
    ),
    Exclusion(
        ("blood.cells.vertices", "a file as blood.cells.shape"),
        "the mesh in the file has its own vertices",
        ("blood.cells.0.shape=cell.stl", "blood.cells.0.vertices=92"),
    ),
    Exclusion(
        ("blood.cells.thickness", 'a blood.cells.shape other than "oblate"'),
        "the proportions of other shapes are fixed",
        ("blood.cells.0.thickness=0.5",),
    ),
)


DIRECTIONS = 19


RelaxationTime = Annotated[float, BeforeValidator(within_limit), Field(ge=LEAST_TAU, le=MOST_TAU)]
Shape = Channel | Tube | Bifurcation | Tree | SurfaceFile


class Initial(Table):
    """The flow at step 0: numbers or expressions of x, y, z (m)."""

    u: float | str = 0.0
    """Velocity along x in m/s."""
    v: float | str = 0.0
    """Velocity along y in m/s."""
    w: float | str = 0.0
    """Velocity along z in m/s."""
    p: float | str = 0.0
    """Pressure in Pa, relative to the fluid at rest."""


class CarreauTable(Table):
    """Viscosity that falls with the shear rate: mu_inf + (mu_0 - mu_inf)(1 + (lambda g)^a)^((n-1)/a)."""

    zero_shear_mpa_s: Positive = 56.0
    """mu_0 in mPa s."""
    infinite_shear_mpa_s: Positive = 3.45
    """mu_inf in mPa s."""
    time_s: Positive = 3.313
    """lambda in s."""
    exponent: Annotated[float, Field(gt=0.0, le=1.0)] = 0.3568
    """n."""
    a: Annotated[float, Field(ge=0.2, le=4.0)] = 2.0
    """Yasuda's exponent; 2: the law of Carreau."""

    @model_validator(mode="after")
    def _thinning(self) -> CarreauTable:
        if self.zero_shear_mpa_s < self.infinite_shear_mpa_s:
            raise CaseFault(
                "the viscosity would rise with the shear rate",
                location=f"zero_shear_mpa_s = {self.zero_shear_mpa_s:g}",
                allowed=f"at least infinite_shear_mpa_s = {self.infinite_shear_mpa_s:g}",
                remedy="swap the two keys",
            )
        return self

    def law(self, units: LatticeUnits) -> Carreau:
        """Kinematic viscosity in spacings^2 a step."""
        factor = 1e-3 / units.density * units.time_step / units.spacing**2
        return Carreau(
            self.zero_shear_mpa_s * factor,
            self.infinite_shear_mpa_s * factor,
            self.time_s / units.time_step,
            self.exponent,
            self.a,
        )


class Slice(Table):
    """The plane of the picture."""

    axis: Literal["auto", "x", "y", "z"] = "auto"
    """Axis of its normal; auto: the shortest side of the vessel, z if offset_um is set."""
    offset_um: Coordinate | None = None
    """Coordinate of the plane on this axis; by default the middle of the vessel."""


class Profile(Table):
    """Time averages of velocity and hematocrit against the distance from an axis or a wall."""

    start: Annotated[int, Field(ge=0)] = 0
    """First step of the average."""
    interval: Annotated[int, Field(ge=1)] = 100
    """Steps between two samples."""
    bins: Annotated[int, Field(ge=2, le=10_000)] = 24
    """Number of rings around the axis, or of layers in a channel."""


class BloodTable(Table):
    """Plasma and cells in a vessel."""

    spacing_um: Annotated[float, Field(ge=LEAST_SPACING_UM, le=1e6)] = 0.5
    """Distance between lattice points in um; a red cell is 7.8 um wide."""
    viscosity_mpa_s: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.2
    """Dynamic viscosity of the fluid (plasma)."""
    density_kg_m3: Annotated[float, Field(ge=1e-3, le=1e6)] = 1025.0
    """Density of the fluid inside and outside cells."""
    relaxation_time: RelaxationTime | None = None
    """Relaxation time of the fluid in steps, which sets the time step; 1.0 without this key and
    time_step_us."""
    time_step_us: Positive | None = None
    """Time step in us; set this or relaxation_time."""
    collision: Literal["trt", "bgk"] = "trt"
    """trt: two relaxation times, the position of walls does not depend on the viscosity; bgk: one relaxation
    time, as in the published code."""
    magic: Annotated[float, Field(gt=0.0, le=1.0)] = 3.0 / 16.0
    """Magic parameter of trt, which relates its second relaxation time to the first."""
    precision: Literal["double", "single"] = "double"
    """Floating-point type of the fluid; cells are always in double precision."""
    storage: Literal["full", "half"] = "full"
    """half: store populations in half precision, which halves their memory and traffic, and compute in
    single precision."""
    streaming: Literal["auto", "in place", "two buffers", "push"] = "auto"
    """Streaming of populations on a GPU: in place, or between two buffers, which take twice the memory and are
    faster for large lattices. auto: two buffers if they fill less than a third of the free memory and leave
    room for cells; in place if a buffer takes 0.3 to 4 times the second-level cache and no wall moves or is
    interpolated.
    push, for studies: two buffers, populations are written to neighbours instead of read from them."""
    pressure_gradient_pa_m: tuple[Coordinate, Coordinate, Coordinate] = (0.0, 0.0, 0.0)
    """Body force per volume that drives the flow, along x, y, z."""
    drive: str | float = 1.0
    """Factor on pressure_gradient_pa_m: a number, an expression of t (s), or the path of a CSV file with
    two columns: time in s, factor."""
    channel: Channel | None = None
    """Vessel: a box whose axes are periodic, lie between walls, or are open."""
    tube: Tube | None = None
    """Vessel: a straight round tube."""
    bifurcation: Bifurcation | None = None
    """Vessel: a parent that splits into two daughters."""
    tree: Tree | None = None
    """Vessel: a small tree of several generations."""
    surface: SurfaceFile | None = None
    """Vessel: a closed surface in an STL or OBJ file."""
    walls: WallsTable = WallsTable()
    """Boundary condition at walls, and velocities of the walls of a channel."""
    openings: Annotated[tuple[OpeningTable, ...], Field(max_length=64)] = ()
    """Inlets and outlets: [[blood.openings]] tables."""
    carreau: CarreauTable | None = None
    """Viscosity of whole blood in place of viscosity_mpa_s; only without cells."""
    cells: Annotated[tuple[CellsTable, ...], Field(max_length=16)] = ()
    """Kinds of cells: [[blood.cells]] tables."""
    delta: Literal["linear", "roma", "cosine", "peskin"] = "linear"
    """Smoothed delta function that couples cells and fluid, over 2 points (linear), 3 (roma) or 4
    (cosine, peskin). Fluid does not pass between membranes nearer than about half of its width: in dense
    suspensions fewer points overestimate the viscosity less; more points give smoother motion."""
    repulsion: RepulsionTable = RepulsionTable()
    """Force that keeps cells apart and off walls."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the random positions and directions of cells."""
    cell_interval: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Largest number of steps between two checks of cells. A check stops the run if a position is not finite,
    counts the cells, and plans their next migration to other ranks. Openings are checked five times as
    often, and at least every ten steps. If only velocities at openings drive the flow, they are checked
    less often: at most this many steps apart, and before a cell can move a quarter of a spacing."""
    smooth_creases: bool = True
    """Every 100 steps, smooth cells with creases that the mesh does not resolve: the quality of their worst
    triangle is below 0.06 (1: equilateral, below 0: folded), or below 0.15 in the periodic flow before an
    inlet. Volumes stay the same, and the run reports how often it smoothed. false: creases stay, and the run
    stops when a membrane has folded over."""
    inside_interval: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Steps between two updates of the lattice points inside cells, if the fluid inside is more viscous."""
    initial: Initial = Initial()
    """The flow at step 0."""
    end_time_ms: Positive | None = None
    """Run until this time, in place of run.steps."""
    slice: Slice = Slice()
    """The plane of the picture."""
    profile: Profile | None = None
    """Mean profiles, apparent viscosity and cell-free layer: a [blood.profile] table."""

    @model_validator(mode="after")
    def _consistent(self) -> BloodTable:
        shapes = [name for name in _SHAPES if getattr(self, name) is not None]
        if len(shapes) != 1:
            raise CaseFault(
                f"the case has {' and '.join(shapes) or 'no vessel'}",
                allowed=f"one of the tables {', '.join(f'blood.{n}' for n in _SHAPES)}",
                remedy="keep one of them" if shapes else "add one of them",
            )
        if self.relaxation_time is not None and self.time_step_us is not None:
            raise CaseFault(
                "blood.relaxation_time also sets the time step",
                location=f"time_step_us = {self.time_step_us:g}",
                remedy="leave one of the two keys out",
            )
        if not LEAST_TAU <= self.tau <= MOST_TAU:
            raise CaseFault(
                f"the relaxation time is {self.tau:.4g} steps",
                location=f"time_step_us = {self.time_step_us:g}",
                allowed=f"{LEAST_TAU:g} to {MOST_TAU:g} steps",
                remedy=f"set blood.time_step_us to {self._step_of(LEAST_TAU) / MICRO:.3g} to "
                f"{self._step_of(MOST_TAU) / MICRO:.3g} us",
            )
        if self.carreau is not None and self.cells:
            raise CaseFault(
                "the case has cells, and this viscosity is for whole blood without cells",
                location="carreau",
                remedy="leave blood.carreau or blood.cells out",
            )
        if self.storage == "half" and self.precision != "single":
            raise CaseFault(
                f'blood.precision is "{self.precision}"',
                location='storage = "half"',
                allowed='half storage with blood.precision = "single"',
                remedy='set blood.precision = "single", or leave blood.storage out',
            )
        if is_set(self, "magic") and self.collision == "bgk":
            raise CaseFault(
                'blood.collision = "bgk" has one relaxation time, and this key relates two',
                location=f"magic = {self.magic:g}",
                remedy="leave blood.magic out",
            )
        self._check_walls()
        ratios = {kind.viscosity_ratio for kind in self.cells} - {1.0}
        if len(ratios) > 1:
            raise CaseFault(
                f"the viscosity ratios are {' and '.join(f'{r:g}' for r in sorted(ratios))}",
                location="cells",
                allowed="one ratio other than 1",
                remedy="give these cells the same viscosity_ratio",
            )
        hematocrit = sum(kind.hematocrit for kind in self.cells)
        if hematocrit >= MOST_HEMATOCRIT:
            parts = " + ".join(f"{kind.hematocrit:g} ({kind.name})" for kind in self.cells)
            raise CaseFault(
                f"the hematocrits add up to {parts} = {hematocrit:g}",
                location="cells",
                allowed=f"a sum below {MOST_HEMATOCRIT:g} (red cells pack to about 0.5)",
                remedy="lower them",
            )
        if self.surface is not None and self.surface.periodic and self.openings:
            raise CaseFault(
                "blood.surface.periodic joins the ends of a vessel that is driven by a pressure gradient",
                location="openings",
                allowed="none with blood.surface.periodic",
                remedy="set blood.pressure_gradient_pa_m and leave blood.openings out, or leave "
                "blood.surface.periodic out",
            )
        for number, opening in enumerate(self.openings):
            if opening.position_um is not None and self.surface is None:
                raise CaseFault(
                    f"position_um and normal of {opening.name!r} define a plane that cuts a surface, but this "
                    "vessel has openings only at its own ends",
                    location=f"openings.{number}",
                    remedy="leave position_um and normal out",
                )
            if opening.profile == "womersley" and self.carreau is not None:
                raise CaseFault(
                    f"the profile of {opening.name!r} is that of a fluid with one viscosity, and blood.carreau changes it",
                    location=f"openings.{number}.profile",
                    remedy='set profile = "parabolic", or leave blood.carreau out',
                )
            if opening.feeds and not self.cells:
                raise CaseFault(
                    f"the opening {opening.name!r} feeds cells, but the case has none",
                    location=f"openings.{number}.feeds",
                    remedy="add a [[blood.cells]] table, or leave feeds out",
                )
            if opening.feeds and any(cell.stretch for cell in self.cells):
                raise CaseFault(
                    "cells with stretch cannot enter through an opening",
                    location=f"openings.{number}.feeds",
                    remedy="leave feeds or blood.cells.stretch out",
                )
        for cell in self.cells:
            if cell.radius_um < self.spacing_um:
                raise CaseFault(
                    f"too coarse for cells {cell.name!r} with a radius of {cell.radius_um:g} um",
                    location=f"spacing_um = {self.spacing_um:g}",
                    allowed=f"at most {cell.radius_um:g}",
                    remedy=f"set blood.spacing_um to {cell.radius_um / 5:.3g} for accurate results",
                )
        if self.cells and self.repulsion.range_um > MOST_CUTOFF * self.spacing_um:
            raise CaseFault(
                "out of range",
                location=f"repulsion.range_um = {self.repulsion.range_um:g}",
                allowed=f"at most {MOST_CUTOFF:g} spacings, {MOST_CUTOFF * self.spacing_um:g} um",
            )
        for name in ("u", "v", "w", "p"):
            self.initial_field(name)
        self.drive_signal()
        if is_set(self, "drive") and not any(self.pressure_gradient_pa_m):
            raise CaseFault(
                "this factor has no effect: blood.pressure_gradient_pa_m is 0",
                location="drive",
                remedy="set blood.pressure_gradient_pa_m, or leave blood.drive out",
            )
        self._check_shares()
        for key, tables in (("openings", self.openings), ("cells", self.cells)):
            counts = Counter(table.name for table in tables)
            for name, count in counts.items():
                if count > 1:
                    raise CaseFault(
                        f"{count} tables have the name {name!r}",
                        location=key,
                        remedy="give each table its own name",
                    )
        return self

    def _check_shares(self) -> None:
        """Refuse shares of the outflow that are not those of all outlets."""
        outlets = [opening for opening in self.openings if opening.split is not None]
        if not outlets:
            return
        shares = [opening.split or 0.0 for opening in outlets]
        if abs(sum(shares) - 1.0) > _WHOLE:
            texts = " + ".join(f"{one.split:g} ({one.name})" for one in outlets)
            raise CaseFault(
                f"the shares of the outflow add up to {texts} = {sum(shares):g}",
                location="openings.split",
                allowed="a sum of 1",
            )
        fed = any(opening.kind == "velocity" for opening in self.openings)
        for opening in self.openings:
            if opening.resistance is not None or (
                fed and opening.kind == "pressure" and opening.split is None
            ):
                raise CaseFault(
                    f"{opening.name!r} has no share, and {outlets[0].name!r} has one of {shares[0]:g}",
                    location="openings.split",
                    allowed="shares for all outlets, or for none",
                    remedy=f"set split of {opening.name!r}, or leave split out",
                )
        values = {opening.value for opening in outlets}
        if len(values) > 1:
            raise CaseFault(
                "the outlets with a share have different pressures: "
                + ", ".join(f"{one.value:g} ({one.name})" for one in outlets),
                location="openings.value",
                allowed="one value: the mean of their pressures weighted with their shares",
                remedy="give these outlets the same value",
            )

    def _check_walls(self) -> None:
        """Refuse walls that move where there are none, or out of their plane."""
        channel = self.channel
        for name, velocity in self.walls.velocity_m_s.items():
            axis = name[0]
            if channel is None:
                raise CaseFault(
                    "only walls of a channel can move",
                    location="walls.velocity_m_s",
                    remedy="leave blood.walls.velocity_m_s out",
                )
            if axis in channel.periodic or axis in channel.open:
                kind = "periodic" if axis in channel.periodic else "open"
                raise CaseFault(
                    f"there is no wall at {name}: the axis {axis} is {kind}",
                    location=f"walls.velocity_m_s.{name}",
                    remedy=f"leave it out, or remove {axis} from blood.channel.{kind}",
                )
            if speed := velocity["xyz".index(axis)]:
                raise CaseFault(
                    f"the wall at {name} moves out of its plane by {speed:g} m/s along {axis}",
                    location=f"walls.velocity_m_s.{name}",
                    allowed=f"0 along {axis}",
                )

    @property
    def vessel(self) -> Shape:
        """The table that describes the vessel."""
        chosen: Shape = next(
            shape for name in _SHAPES if (shape := getattr(self, name)) is not None
        )
        return chosen

    @property
    def spacing(self) -> float:
        """Distance of points in m."""
        return self.spacing_um * MICRO

    @property
    def viscosity(self) -> float:
        """Dynamic viscosity in Pa s."""
        return self.viscosity_mpa_s * 1e-3

    @property
    def tau(self) -> float:
        """Relaxation time in steps."""
        if self.time_step_us is None:
            return 1.0 if self.relaxation_time is None else self.relaxation_time
        units = LatticeUnits(self.spacing, self.time_step_us * MICRO, self.density_kg_m3)
        return units.relaxation_time(self.viscosity)

    def _step_of(self, tau: float) -> float:
        return LatticeUnits.from_relaxation_time(
            self.spacing, self.viscosity, self.density_kg_m3, tau
        ).time_step

    @property
    def units(self) -> LatticeUnits:
        """Size of the lattice units."""
        if self.time_step_us is not None:
            return LatticeUnits(self.spacing, self.time_step_us * MICRO, self.density_kg_m3)
        return LatticeUnits.from_relaxation_time(
            self.spacing, self.viscosity, self.density_kg_m3, self.tau
        )

    @property
    def stored_bytes(self) -> int:
        """Bytes of a stored population."""
        if self.storage == "half":
            return 2
        return 8 if self.precision == "double" else 4

    @property
    def halo(self) -> int:
        """Layers of points of others that a rank holds: one for the fluid, two with cells."""
        return LEAST_HALO if self.cells else 1

    @property
    def inside_tau(self) -> float | None:
        """Relaxation time inside cells; None where it is that outside."""
        ratio = max((k.viscosity_ratio for k in self.cells), key=lambda r: abs(r - 1), default=1.0)
        return None if ratio == 1.0 else 0.5 + ratio * (self.tau - 0.5)

    def initial_field(self, name: str) -> Expression:
        """Initial field as an expression of x, y, z in SI units."""
        return parse_quantity_or_expression(
            getattr(self.initial, name), f"blood.initial.{name}", ("x", "y", "z")
        )

    def drive_signal(self) -> Signal:
        """Factor on the pressure gradient over time."""
        return read_signal(self.drive, "blood.drive")

    def steps(self, steps: int) -> int:
        """Last step: from the end time where it is given."""
        if self.end_time_ms is None:
            return steps
        return max(1, math.ceil(self.end_time_ms * 1e-3 / self.units.time_step * (1 - 1e-12)))


LONGEST_SEGMENT = 4.0
"""Most length of a periodic flow before an inlet over the diameter of the widest cell."""
# Of shares: what rounding of decimal numbers may leave of a sum of 1.
_WHOLE = 1e-6
_SHAPES = ("channel", "tube", "bifurcation", "tree", "surface")


class BloodCase(CaseTable):
    """A case file of blood flow."""

    exclusions = EXCLUSIONS

    solver: Literal["blood"]
    """"blood"."""
    blood: BloodTable
    """Plasma and cells in a vessel."""

    def boundary_conditions(self) -> dict[str, str]:
        """Conditions at walls and openings; all ends that are no openings are periodic or walls."""
        walls = self.blood.walls
        conditions = {"walls": f"no slip, {walls.kind}"}
        conditions |= {
            f"wall {side}": f"velocity {list(velocity)} m/s"
            for side, velocity in walls.velocity_m_s.items()
        }
        periodic = getattr(self.blood.vessel, "periodic", ())
        if isinstance(self.blood.vessel, SurfaceFile) and periodic:
            conditions["ends"] = f"periodic from {periodic[0]} to {periodic[1]}"
        elif periodic:
            conditions["ends"] = "periodic" + (
                f" along {', '.join(periodic)}" if isinstance(periodic, tuple) else ""
            )
        for opening in self.blood.openings:
            unit = opening.value_unit if opening.kind == "velocity" else "Pa"
            text = f"{opening.kind} {opening.value:g} {unit}"
            if opening.resistance is not None:
                law = opening.resistance
                text = (
                    f"pressure {law.outside:g} Pa + resistance {law.total:g} Pa s/m^3 times the outflow, "
                    f"compliance {law.compliance:g} m^3/Pa"
                )
            text += f", share {opening.split:g} of the outflow" if opening.split is not None else ""
            text += f", {opening.profile}" if opening.kind == "velocity" else ""
            text += f", times {opening.signal}" if opening.signal != 1.0 else ""
            conditions[opening.name] = text + (", cells enter" if opening.feeds else "")
        return conditions

    @model_validator(mode="after")
    def _one_end(self) -> BloodCase:
        steps, default = self.run.steps, type(self.run).model_fields["steps"].default
        if self.blood.end_time_ms is not None and steps != default:
            raise CaseFault(
                f"blood.end_time_ms = {self.blood.end_time_ms:g} also sets the end of the run",
                location=f"run.steps = {steps}",
                remedy="leave one of the two keys out",
            )
        return self
