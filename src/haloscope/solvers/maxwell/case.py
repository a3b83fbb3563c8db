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
from haloscope.case.tables import (
    CaseFault,
    CaseTable,
    Coordinate,
    Count,
    Exclusion,
    Name,
    NotNegative,
    Position,
    Positive,
    Table,
    in_words,
)
from haloscope.solvers.maxwell.case_exclusions import (
    EXCLUSIONS,
    require_no_contradiction,
    require_one_end,
)
from haloscope.solvers.maxwell.case_media import (
    LayerTable,
    MaterialTable,
    SourceTable,
    Units,
    WaveTable,
    located,
)
from haloscope.solvers.maxwell.elements import BOUNDARIES, FACE_VALUES, FACES, Material
from haloscope.solvers.maxwell.exact import TimeHarmonic, named
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.sources import Current, PlaneWave

Degrees = Annotated[float, Field(ge=-360.0, le=360.0)]


class SpectrumTable(Table):
    """Spectra and resonances at probes."""

    band: tuple[NotNegative, Positive]
    """Lowest and highest frequency in Hz (natural units: oscillations per metre of c t)."""
    start: NotNegative | None = None
    """Start of the evaluated series, in s; by default the end of the last source, or 0."""
    probes: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    """Names of probes; all by default."""
    window: Literal["none", "hann", "fade"] = "fade"
    """Window of the series for the spectrum (not for the resonances). none: for fields that have
    decayed; hann: for a steady oscillation; fade, from 1 to 0: for fields that still oscillate at the
    end."""

    @model_validator(mode="after")
    def _consistent(self) -> SpectrumTable:
        if not self.band[0] < self.band[1]:
            raise CaseFault(
                "the lowest frequency is not below the highest",
                location=f"band = {list(self.band)}",
                allowed="[low, high]",
            )
        return self


class FarFieldTable(Table):
    """Far field, from the fields on a closed surface in a uniform medium.

    The surface may end at complete plane walls (pec or pmc), which are replaced by image currents.

    Amplitudes belong to a steady state in which the waveform of the first wave has the amplitude 1;
    without waves, the waveform of the first source.
    """

    frequencies: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=1000)]
    """Frequencies in Hz (natural units: oscillations per metre of c t)."""
    box: tuple[Position, Position] | None = None
    """Surface around the elements with centres between this lower and upper corner, in m."""
    regions: tuple[Name, ...] = ()
    """Surface around these regions. Without box and regions: around the total field of a wave, or,
    without waves, around all elements outside the absorbing layer."""
    theta: Annotated[int, Field(ge=2, le=3601)] = 91
    """Number of angles from +z, evenly spaced from 0 to 180 degrees."""
    phi: Annotated[tuple[Degrees, ...], Field(min_length=1, max_length=720)] = (0.0, 90.0)
    """Angles from +x in degrees."""
    start: NotNegative = 0.0
    """Start of the transform of the fields, in s; for a sine, a time from which the fields are steady."""
    interval: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Steps between two samples; by default at least 12 samples in the shortest period."""

    @model_validator(mode="after")
    def _consistent(self) -> FarFieldTable:
        if self.box is not None and self.regions:
            raise CaseFault(
                "box and regions are both set", allowed="one of them", remedy="remove one"
            )
        return self


LIGHT = 299_792_458.0
"""Speed of light in vacuum, m/s (exact)."""
IMPEDANCE = 376.730313412
"""Impedance of vacuum, ohm (CODATA 2022)."""
HIGHEST_ORDER = 15
FIELD_NAMES = ("Ex", "Ey", "Ez", "Hx", "Hy", "Hz")

_PLACE = ("x", "y", "z")
# Of a node: coordinates, a Jacobian and a share of the mesh.
_HOST_BYTES = 5 * 8.0

Triple = tuple[Count, Count, Count]
Axis = Literal["x", "y", "z"]


class Box(Table):
    """A box of bricks; its surfaces are x-, x+, y-, y+, z-, z+."""

    elements: Triple
    """Along x, y, z."""
    lower: Position = (0.0, 0.0, 0.0)
    """Corner in m."""
    upper: Position = (1.0, 1.0, 1.0)
    """The opposite corner in m."""
    periodic: tuple[Axis, ...] = ()
    """Periodic axes."""
    grading: Position = (1.0, 1.0, 1.0)
    """Size of the last element over that of the first along each axis."""
    warp: Annotated[float, Field(ge=-0.12, le=0.12)] = 0.0
    """Amplitude of a smooth distortion of the elements, in units of the box."""


class Cylinder(Table):
    """A circular cylinder around the z axis; its surfaces are wall, bottom and top."""

    radius: Positive
    """Radius in m."""
    bottom: Coordinate = 0.0
    """Lower end along z in m."""
    top: Coordinate
    """Upper end along z in m."""
    core: Count = 2
    """Elements along each side of the square core."""
    rings: Count = 2
    """Elements from the core to the wall."""
    layers: Count = 1
    """Elements along z."""
    periodic: bool = False
    """true: periodic along z."""


class Sphere(Table):
    """A sphere, alone or within a larger sphere or a cube; its regions are inner, outer and margin."""

    radius: Positive
    """Radius in m."""
    core: Count = 2
    """Elements along each side of the central cube."""
    rings: Count = 2
    """Elements from the central cube to the radius."""
    outer_radius: Positive | None = None
    """Radius of a sphere around the sphere, in m; the surface of the mesh is then wall."""
    box_half_width: Positive | None = None
    """Half the side of a cube around the sphere, in m; the surfaces of the mesh are then x-, x+, ..."""
    outer_rings: Count = 2
    """Elements from the radius to the outer sphere or cube."""
    margin: NotNegative = 0.0
    """Thickness of plain bricks around the cube, in m."""
    margin_layers: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Elements across the margin."""
    centre: Position = (0.0, 0.0, 0.0)
    """Centre in m."""

    @model_validator(mode="after")
    def _one_surrounding(self) -> Sphere:
        if self.outer_radius is not None and self.box_half_width is not None:
            raise CaseFault(
                f"outer_radius = {self.outer_radius:g} and box_half_width = {self.box_half_width:g} are both "
                "set",
                allowed="one of them: a sphere or a cube around the sphere",
                remedy="remove one",
            )
        return self


class PeriodicPair(Table):
    """Two periodic surfaces of a mesh file."""

    first: Name
    """Name of the first surface."""
    second: Name
    """Name of the second surface."""
    translation: Position | None = None
    """Vector from the first to the second surface, in m; by default between their centres."""


class MeshFile(Table):
    """A mesh of hexahedra in a file, of any geometric order."""

    file: Name
    """Path of a Gmsh file (.msh), or of a file with the ending .vtu, .vtk, .xdmf, .xmf, .med, .inp, .mesh, .meshb,
    .bdf, .fem, .nas, .su2, .avs or .ugrid; physical groups name surfaces and volumes."""
    scale: Positive = 1.0
    """Factor from lengths of the file to metres: 0.001 for millimetres."""
    periodic: Annotated[tuple[PeriodicPair, ...], Field(max_length=100)] = ()
    """Pairs of surfaces: [[maxwell.mesh.periodic]] tables."""


class LossyWall(Table):
    """A wall with a surface impedance."""

    impedance: Positive
    """Surface impedance in ohm (of a good conductor at the frequency f: sqrt(pi f mu / sigma))."""


class Initial(Table):
    """Fields at step 0: numbers or expressions of x, y, z (m)."""

    Ex: float | str = 0.0
    """In V/m."""
    Ey: float | str = 0.0
    """In V/m."""
    Ez: float | str = 0.0
    """In V/m."""
    Hx: float | str = 0.0
    """In A/m."""
    Hy: float | str = 0.0
    """In A/m."""
    Hz: float | str = 0.0
    """In A/m."""


class Slice(Table):
    """The plane of the picture."""

    axis: Literal["auto", "x", "y", "z"] = "auto"
    """Normal of the plane; auto: the shortest side of the mesh, z if offset is set."""
    offset: Coordinate | None = None
    """Position on the axis in m; by default the middle of the mesh."""
    points: Annotated[int, Field(ge=2, le=2000)] = 200
    """Samples along the longer side."""


class Krylov(Table):
    """Space and accuracy of the exponential integrator."""

    dimension: Annotated[int, Field(ge=2, le=200)] = 24
    """Largest number of vectors in the space; each is as large as the fields."""
    tolerance: Annotated[float, Field(ge=1e-14, le=1e-2)] = 1e-10
    """Largest error of a step over the norm of the fields; steps with a larger error are cut."""


class Exact(Table):
    """A known solution: it sets the fields at step 0, and errors are computed against it."""

    solution: Name
    """periodic-box, conducting-box, cavity-te101, waveguide-tm01, sphere-tm11 and other modes of these
    shapes (te or tm and the numbers of the mode)."""
    radius: Positive = 1.0
    """Radius of a waveguide or sphere in m."""
    length: Positive = 1.0
    """Edge of a cube, or the period of a waveguide, in m."""
    size: tuple[Positive, Positive, Positive] = (1.0, 1.0, 1.0)
    """Edges of a cavity in m."""


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
        for number, material in enumerate(self.materials):
            with located(f"materials.{number}", "maxwell"):
                material.material(self.unit_system)
        names = [material.region for material in self.materials]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise CaseFault(
                f"region {min(twice)!r} has two tables",
                location="materials",
                allowed="one table for each region",
                remedy="remove one",
            )
        require_no_contradiction(self)
        return self

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
            getattr(self.initial, name), f"maxwell.initial.{name}", _PLACE
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
                return material.material(self.unit_system)
        return Material()

    def additions(self) -> tuple[Layer | None, list[Current], list[PlaneWave]]:
        """Absorbing layer, currents and waves in natural units."""
        layer = None
        if self.layer is not None:
            with located("layer", "maxwell"):
                layer = self.layer.layer()
        currents: list[Current] = []
        waves: list[PlaneWave] = []
        for number, source in enumerate(self.sources):
            with located(f"sources.{number}", "maxwell"):
                currents.append(source.current(self.unit_system))
        for number, wave in enumerate(self.waves):
            with located(f"waves.{number}", "maxwell"):
                waves.append(wave.wave(self.unit_system))
        return layer, currents, waves


_MESHES = ("box", "cylinder", "sphere", "mesh")


class MaxwellCase(CaseTable):
    """A case file of Maxwell's equations."""

    solver: Literal["maxwell"]
    """"maxwell"."""
    maxwell: MaxwellTable
    """Electromagnetic fields in the time domain."""
    exclusions: ClassVar[tuple[Exclusion, ...]] = EXCLUSIONS

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
        require_one_end(self)
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


__all__ = ["BOUNDARIES", "MaxwellCase", "MaxwellTable"]
