"""Keys of a Maxwell case, and the numbers that follow from them."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from haloscope.case.expressions import Expression, parse_quantity_or_expression
from haloscope.case.tables import CaseFault, CaseTable, Exclusion, Name, Positive, Table, in_words
from haloscope.solvers.maxwell.case_tables import (
    PLACE,
    Box,
    Cylinder,
    Exact,
    FarFieldTable,
    Initial,
    Krylov,
    LayerTable,
    LossyWall,
    MaterialTable,
    MeshFile,
    Slice,
    SourceTable,
    SpectrumTable,
    Sphere,
    Units,
    WaveTable,
    located,
    made_of,
)
from haloscope.solvers.maxwell.elements import BOUNDARIES, FACE_VALUES, FACES, FIELD_NAMES, Material
from haloscope.solvers.maxwell.exact import TimeHarmonic, named
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Medium
from haloscope.solvers.maxwell.terms.sources import Current, PlaneWave

LIGHT = 299_792_458.0
"""Speed of light in vacuum, m/s (exact)."""
IMPEDANCE = 376.730313412
"""Impedance of vacuum, ohm (CODATA 2022)."""
HIGHEST_ORDER = 15

# Of a node: coordinates, a Jacobian and a share of the mesh.
_HOST_BYTES = 5 * 8.0

_SOURCE = (
    "maxwell.sources=[{kind='dipole', position=[0.1, 0.1, 0.1], moment=[0.0, 0.0, 1e-3], "
    "waveform={kind='ricker', centre=2e-9, frequency=1e9}}]"
)
_WAVE = (
    "maxwell.waves=[{{direction=[1.0, 0.0, 0.0], polarisation=[0.0, 0.0, 1.0], "
    "waveform={{kind='gaussian', centre=1e-9, width=2e-10}}, {}}}]"
)

_EXCLUSIONS = (
    Exclusion(
        ("maxwell.box", "maxwell.cylinder, maxwell.sphere or maxwell.mesh"),
        "a case has one mesh",
        ("maxwell.cylinder.radius=0.1", "maxwell.cylinder.top=0.3"),
    ),
    Exclusion(
        ("maxwell.initial", "maxwell.exact"),
        "both set the fields at step 0",
        ("maxwell.exact.solution=cavity-te101",),
    ),
    Exclusion(
        ("maxwell.exact", "sources, waves, a layer or materials"),
        "the known solutions are fields in vacuum without sources",
        ("maxwell.initial.Ez=0.0", "maxwell.exact.solution=cavity-te101", _SOURCE),
    ),
    Exclusion(("maxwell.end_time", "run.steps"), "both set the end of the run", ("run.steps=500",)),
    Exclusion(
        ("maxwell.time_step", "maxwell.cfl"),
        "cfl only affects the automatic step",
        ("maxwell.time_step=1e-12", "maxwell.cfl=0.5"),
    ),
    Exclusion(
        ("maxwell.cfl", 'maxwell.integrator = "exponential"'),
        "steps of the exponential integrator have no stability bound",
        ("maxwell.integrator=exponential", "maxwell.cfl=0.5"),
    ),
    Exclusion(
        ("maxwell.krylov", 'maxwell.integrator = "runge-kutta"'),
        "krylov holds settings of the exponential integrator",
        ("maxwell.krylov.dimension=10",),
    ),
    Exclusion(
        (
            'maxwell.integrator = "exponential"',
            "sources, waves, a layer, or materials that conduct or have poles",
        ),
        "the exponential integrator does not support them",
        ("maxwell.integrator=exponential", _SOURCE),
    ),
    Exclusion(
        ("maxwell.far_field.box", "maxwell.far_field.regions"),
        "both choose the surface",
        (
            _SOURCE,
            "maxwell.far_field={frequencies=[1e9], regions=['volume'], "
            "box=[[0.05, 0.05, 0.05], [0.25, 0.15, 0.15]]}",
        ),
    ),
    Exclusion(
        ("maxwell.waves.inside", "maxwell.waves.box", "maxwell.waves.boundaries"),
        "each sets where a wave enters",
        (_WAVE.format("inside=['volume'], boundaries=['x-']"),),
    ),
    Exclusion(
        ("maxwell.waves.boundaries", "a boundary there that does not absorb"),
        "a wave enters only through absorbing boundaries",
        (_WAVE.format("boundaries=['x-']"),),
    ),
    Exclusion(
        ("maxwell.sphere.outer_radius", "maxwell.sphere.box_half_width"),
        "a sphere or a cube surrounds the sphere",
        ("maxwell.sphere={radius=0.1, outer_radius=0.2, box_half_width=0.2}",),
    ),
)


class MaxwellTable(Table):
    """Electromagnetic fields in the time domain."""

    order: Annotated[int, Field(ge=1, le=HIGHEST_ORDER)] = 7
    """Polynomial order N of the elements."""
    units: Literal["si", "natural"] = "si"
    """si: m, s, V/m, A/m; natural: speed of light and impedance of vacuum are 1."""
    flux: Literal["upwind", "central"] = "upwind"
    """upwind damps unresolved waves; central conserves energy."""
    curl: Literal["covariant", "chain-rule"] = "covariant"
    """covariant is stable on curved elements; chain-rule, the form published for NekCEM, is not."""
    precision: Literal["double", "single"] = "double"
    """Floating-point type of the fields."""
    time_step: Literal["auto"] | Positive = "auto"
    """In s; at most 0.95 of the stability bound. auto: cfl times the bound."""
    cfl: Annotated[float, Field(gt=0.0, le=0.95)] = 0.9
    """Automatic time step over the stability bound."""
    integrator: Literal["runge-kutta", "exponential"] = "runge-kutta"
    """runge-kutta: fourth order, low storage. exponential: the exponential of the operator in a Krylov
    space, for steps of any length; the automatic step is ten times the bound. exponential does not
    support conducting and dispersive media, layers, sources and waves."""
    krylov: Krylov = Krylov()
    """Settings of the exponential integrator."""
    end_time: Positive | None = None
    """End of the run in s, in place of run.steps; the time step is shortened to meet it."""
    box: Box | None = None
    """Mesh: a box."""
    cylinder: Cylinder | None = None
    """Mesh: a cylinder."""
    sphere: Sphere | None = None
    """Mesh: a sphere."""
    mesh: MeshFile | None = None
    """Mesh: a file."""
    boundaries: dict[Name, Literal["pec", "pmc", "absorbing"] | LossyWall] = Field(
        default_factory=dict
    )
    """Kind of each surface by its name: pec (perfect electric conductor), pmc (perfect magnetic
    conductor), absorbing (Silver-Mueller), or { impedance = 50.0 } for a lossy wall."""
    materials: Annotated[tuple[MaterialTable, ...], Field(max_length=1000)] = ()
    """Media of regions: [[maxwell.materials]] tables; regions without one are vacuum."""
    initial: Initial = Initial()
    """The fields at step 0."""
    sources: Annotated[tuple[SourceTable, ...], Field(max_length=1000)] = ()
    """Currents: [[maxwell.sources]] tables."""
    waves: Annotated[tuple[WaveTable, ...], Field(max_length=100)] = ()
    """Incident plane waves: [[maxwell.waves]] tables."""
    layer: LayerTable | None = None
    """Perfectly matched layers: a [maxwell.layer] table."""
    slice: Slice = Slice()
    """The plane of the picture."""
    spectrum: SpectrumTable | None = None
    """Spectra and resonances at probes: a [maxwell.spectrum] table."""
    far_field: FarFieldTable | None = None
    """Radiation and scattering: a [maxwell.far_field] table."""
    exact: Exact | None = None
    """A known solution, in place of maxwell.initial."""
    partition: Literal["auto", "graph", "coordinates"] = "auto"
    """Partitioning of the elements over ranks: graph (METIS), coordinates (bisection), or auto: the
    method that cuts fewer faces."""

    @field_validator("time_step", mode="wrap")
    @classmethod
    def _length_or_auto(cls, value: object, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError:
            raise CaseFault("wrong value", allowed='"auto" or a number above 0') from None

    @field_validator("boundaries", mode="wrap")
    @classmethod
    def _kinds_of_surfaces(cls, value: object, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError as error:
            place = error.errors()[0]["loc"]
            if not isinstance(value, dict) or "[key]" in place:
                raise
            name = place[0]
            raise CaseFault(
                f"the surface {name!r} cannot be {value[name]!r}",
                location=str(name),
                allowed=f"{', '.join(map(repr, BOUNDARIES))} or {{ impedance = 50.0 }}, a number of ohm "
                "above 0",
            ) from None

    @model_validator(mode="after")
    def _consistent(self) -> MaxwellTable:
        meshes = [name for name in _MESHES if getattr(self, name) is not None]
        if len(meshes) != 1:
            problem = f"{' and '.join(meshes)} are set" if meshes else "the case has no mesh"
            raise CaseFault(
                problem, allowed=f"one of the tables {', '.join(f'maxwell.{n}' for n in _MESHES)}"
            )
        for name in FIELD_NAMES:
            self.initial_field(name)
        if self.exact is not None and self.initial != Initial():
            raise CaseFault(
                "maxwell.initial and maxwell.exact are both set",
                allowed="one of them",
                remedy="remove one",
            )
        self.solution()
        self.additions()
        if self.krylov != Krylov() and self.integrator != "exponential":
            raise CaseFault(
                f"it belongs to the exponential integrator, but maxwell.integrator is {self.integrator!r}",
                location="krylov",
                remedy='remove it, or set maxwell.integrator = "exponential"',
            )
        if self.far_field is not None and not self.sources and not self.waves:
            raise CaseFault(
                "the case has no sources and no waves, so there is no far field",
                location="far_field",
                remedy="add [[maxwell.sources]] or [[maxwell.waves]]",
            )
        media = made_of("materials", self.materials, self._material, "maxwell")
        names = [material.region for material in self.materials]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise CaseFault(
                f"region {min(twice)!r} has two tables",
                location="materials",
                allowed="one table for each region",
                remedy="remove one",
            )
        _require_no_contradiction(self, media)
        return self

    def _material(self, material: MaterialTable) -> Material:
        return material.material(self.unit_system)

    @property
    def real(self) -> np.dtype[np.floating]:
        """Type of the fields."""
        return np.dtype(np.float32 if self.precision == "single" else np.float64)

    @property
    def speed(self) -> float:
        """Speed of light in the case's units."""
        return LIGHT if self.units == "si" else 1.0

    @property
    def impedance(self) -> float:
        """Impedance of vacuum in the case's units."""
        return IMPEDANCE if self.units == "si" else 1.0

    def initial_field(self, name: str) -> Expression:
        """Initial field as an expression of x, y, z."""
        return parse_quantity_or_expression(
            getattr(self.initial, name), f"maxwell.initial.{name}", PLACE
        )

    def solution(self) -> TimeHarmonic | None:
        """The known solution, in natural units."""
        exact = self.exact
        if exact is None:
            return None
        with located("exact", "maxwell"):
            return named(exact.solution, radius=exact.radius, length=exact.length, size=exact.size)

    def kinds(self) -> dict[str, str | float]:
        """Of each boundary a name of `BOUNDARIES`, or its surface impedance over that of vacuum."""
        return {
            name: kind if isinstance(kind, str) else kind.impedance / self.impedance
            for name, kind in self.boundaries.items()
        }

    @property
    def unit_system(self) -> Units:
        """Factors from numbers of the case to natural units."""
        return Units(self.speed, self.impedance)

    def material(self, region: str, only: bool) -> Material:
        """Medium of a region; `only` says that it is the only one."""
        for material in self.materials:
            if material.region == region or (only and material.region == ""):
                return self._material(material)
        return Material()

    def additions(self) -> tuple[Layer | None, list[Current], list[PlaneWave]]:
        """Absorbing layer, currents and waves in natural units."""
        layer = None
        if self.layer is not None:
            with located("layer", "maxwell"):
                layer = self.layer.layer()
        units = self.unit_system
        currents = made_of("sources", self.sources, lambda one: one.current(units), "maxwell")
        waves = made_of("waves", self.waves, lambda one: one.wave(units), "maxwell")
        return layer, currents, waves


def _require_no_contradiction(table: MaxwellTable, media: list[Material]) -> None:
    """Refuse keys that contradict each other within [maxwell]."""
    additions = {
        "maxwell.sources": bool(table.sources),
        "maxwell.waves": bool(table.waves),
        "maxwell.layer": table.layer is not None,
    }
    lossy = any(isinstance(medium, Medium) and not medium.plain for medium in media)
    other = any(medium.permittivity != 1 or medium.permeability != 1 for medium in media)
    if table.exact is not None:
        driven = additions | {"maxwell.materials": lossy or other}
        for name, present in driven.items():
            if present:
                raise CaseFault(
                    f"it is a solution without sources in vacuum, but {name} is set",
                    location="exact",
                    remedy=f"remove it or {name} (maxwell.initial sets fields at step 0)",
                )
    default = type(table).model_fields["cfl"].default
    if table.cfl != default and table.time_step != "auto":
        raise CaseFault(
            f"maxwell.time_step = {table.time_step:g} and maxwell.cfl = {table.cfl:g} are both set, but "
            "cfl only affects the automatic step",
            allowed="one of them",
            remedy="remove one",
        )
    if table.integrator == "exponential":
        if table.cfl != default:
            raise CaseFault(
                'it has no effect with maxwell.integrator = "exponential", whose steps have no stability bound',
                location=f"cfl = {table.cfl:g}",
                remedy="remove it, or set maxwell.time_step",
            )
        for name, present in (additions | {"maxwell.materials": lossy}).items():
            if present:
                raise CaseFault(
                    "the exponential integrator does not support conducting or dispersive media, layers, "
                    f"sources or waves, but {name} is set",
                    location='integrator = "exponential"',
                    remedy='set maxwell.integrator = "runge-kutta"',
                )
    for number, wave in enumerate(table.waves):
        for name in wave.boundaries:
            kind = table.boundaries.get(name, "absorbing")
            if kind != "absorbing":
                raise CaseFault(
                    f"a wave cannot enter at {name!r}, which is "
                    f"{kind if isinstance(kind, str) else 'a lossy wall'!r}",
                    location=f"waves.{number}.boundaries",
                    allowed="absorbing boundaries",
                    remedy=f'set maxwell.boundaries."{name}" = "absorbing"',
                )


_MESHES = ("box", "cylinder", "sphere", "mesh")


class MaxwellCase(CaseTable):
    """A case file of Maxwell's equations."""

    solver: Literal["maxwell"]
    """"maxwell"."""
    maxwell: MaxwellTable
    """Electromagnetic fields in the time domain."""
    exclusions: ClassVar[tuple[Exclusion, ...]] = _EXCLUSIONS

    def boundary_conditions(self) -> dict[str, str]:
        """Kind of each surface."""
        return {
            name: kind if isinstance(kind, str) else in_words(kind, {"impedance": "ohm"})
            for name, kind in self.maxwell.boundaries.items()
        }

    @model_validator(mode="after")
    def _no_keys_without_effect(self) -> MaxwellCase:
        if self.run.tolerance > 0:
            raise CaseFault(
                "fields in the time domain have no steady state at which to stop",
                location=f"run.tolerance = {self.run.tolerance:g}",
                remedy="remove it, and set maxwell.end_time or run.steps",
            )
        # A number of steps as it is by default is no mistake.
        default = type(self.run).model_fields["steps"].default
        if self.maxwell.end_time is not None and self.run.steps != default:
            raise CaseFault(
                f"maxwell.end_time = {self.maxwell.end_time:g} and run.steps = {self.run.steps} both set "
                "the end of the run",
                allowed="one of them",
                remedy="remove one (--steps N ends one run after N steps)",
            )
        return self


def generated_elements(table: MaxwellTable) -> int | None:
    """Elements of a generated mesh, without making it; None for a file."""
    if table.box is not None:
        return math.prod(table.box.elements)
    if table.cylinder is not None:
        it = table.cylinder
        return (it.core**2 + 4 * it.core * it.rings) * it.layers
    if table.sphere is not None:
        ball = table.sphere
        rings = ball.rings
        if ball.outer_radius is not None or ball.box_half_width is not None:
            rings += ball.outer_rings
        wide = ball.core + 2 * ball.margin_layers
        return ball.core**3 + 6 * ball.core**2 * rings + wide**3 - ball.core**3
    return None


def bytes_a_node(order: int, single: bool) -> float:
    """Device memory of a node: fields, increments, geometry and its share of faces.

    Of these traces of both sides and, on cores, three numbers of the shape of a point.
    """
    faces = FACES * (2 * FACE_VALUES + 3) / (order + 1)
    return (4 if single else 8) * (2 * 6 + 10 + faces)


def bytes_a_step(order: int, single: bool, geometry: float = 10.0) -> float:
    """Least bytes of a node and stage: fields, increments, geometry, own and other traces."""
    traces = 2 * FACES * FACE_VALUES / (order + 1)
    return (4 if single else 8) * (4 * 6 + geometry + traces)


def flops_a_step(order: int) -> int:
    """Operations of a node and step, as NekCEM's authors count them: 180 (N + 1) + 420."""
    return 180 * (order + 1) + 420
