"""Tables of a Maxwell case: meshes, media, sources, waves, layers and results; and what they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast

import numpy as np
from pydantic import Field, model_validator

from haloscope.case.expressions import parse_quantity_or_expression
from haloscope.case.tables import (
    SMALLEST,
    CaseFault,
    Coordinate,
    Count,
    Name,
    NotNegative,
    Position,
    Positive,
    Table,
)
from haloscope.errors import InputError
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Debye, Drude, Lorentz, Medium
from haloscope.solvers.maxwell.terms.sources import (
    Current,
    PlaneWave,
    PointDipole,
    SheetCurrent,
    VolumeCurrent,
)
from haloscope.solvers.maxwell.terms.terms import Floats
from haloscope.solvers.maxwell.terms.waveforms import (
    Gaussian,
    ModulatedGaussian,
    RampedSine,
    Ricker,
    Waveform,
)
from haloscope.solvers.maxwell.terms.waveforms import Table as Sampled

Density = tuple[float | str, float | str, float | str]
PLACE = ("x", "y", "z")
_LEAST_SAMPLES = 4
_Kinds = dict[str, tuple[Callable[..., Any], dict[str, int]]]
Made = TypeVar("Made")
T = TypeVar("T")


@dataclass(frozen=True)
class Units:
    """Factors from numbers of the case to natural units."""

    # Of light and of vacuum in the case's units.
    speed: float
    impedance: float


@contextmanager
def located(key: str, table: str = "") -> Iterator[None]:
    """Put a key before the location of a fault, and with the key's table before other errors."""
    try:
        yield
    except CaseFault as fault:
        fault.location = f"{key}.{fault.location}" if fault.location else key
        raise
    except InputError as error:
        if not table:
            raise
        raise error.within(f"{table}.{key}") from None


def made_of(
    key: str, tables: Sequence[Made], make: Callable[[Made], T], table: str = ""
) -> list[T]:
    """Make something of each table of a list; faults tell its place in the list."""
    results = []
    for number, one in enumerate(tables):
        with located(f"{key}.{number}", table):
            results.append(make(one))
    return results


class PoleTable(Table):
    """A term of the permittivity of a dispersive medium, for fields proportional to exp(-i w t)."""

    kind: Literal["drude", "lorentz", "debye"]
    """drude: -plasma_frequency**2 / (w (w + i collision_rate)); lorentz: strength resonance**2 /
    (resonance**2 - i damping w - w**2); debye: strength / (1 - i w relaxation_time)."""
    plasma_frequency: Positive | None = None
    """drude: plasma frequency in rad/s."""
    collision_rate: NotNegative | None = None
    """drude: collision rate in 1/s; 0 by default."""
    strength: Coordinate | None = None
    """lorentz and debye: contribution to the static permittivity."""
    resonance: Positive | None = None
    """lorentz: resonance frequency in rad/s."""
    damping: NotNegative | None = None
    """lorentz: damping rate in 1/s; 0 by default."""
    relaxation_time: Positive | None = None
    """debye: relaxation time in s."""


# What a kind becomes, and its keys: 1 are times, -1 rates, 0 numbers without a unit.
_POLES: _Kinds = {
    "drude": (Drude, {"plasma_frequency": -1, "collision_rate": -1}),
    "lorentz": (Lorentz, {"strength": 0, "resonance": -1, "damping": -1}),
    "debye": (Debye, {"strength": 0, "relaxation_time": 1}),
}
_WAVEFORMS: _Kinds = {
    "gaussian": (Gaussian, {"centre": 1, "width": 1}),
    "modulated-gaussian": (
        ModulatedGaussian,
        {"centre": 1, "width": 1, "frequency": -1, "phase": 0},
    ),
    "ricker": (Ricker, {"centre": 1, "frequency": -1}),
    "sine": (RampedSine, {"frequency": -1, "rise": 1, "phase": 0}),
}
_ZERO_BY_DEFAULT = ("collision_rate", "damping", "phase")
_KEYS_OF_SOURCES = {
    "dipole": ("position", "moment"),
    "volume": ("density", "regions"),
    "sheet": ("density", "surface"),
}
_KEYS_OF_ALL_SOURCES = ("waveform", "magnetic")


def _refuse_foreign(
    table: PoleTable | WaveformTable | SourceTable, name: str, own: tuple[str, ...]
) -> None:
    """Refuse keys of the other kinds of a table, which would have no effect.

    A key as it is by default is no mistake: the points of a study hold all keys.
    """
    for key, field in type(table).model_fields.items():
        if key not in ("kind", *own) and getattr(table, key) != field.default:
            raise CaseFault(f"{name} has no key {key}", location=key, allowed=", ".join(own))


def _of(table: PoleTable | WaveformTable, key: str) -> Any:
    """A key that this kind of a table needs."""
    value = getattr(table, key)
    if value is None and key not in _ZERO_BY_DEFAULT:
        raise CaseFault(f"kind = {table.kind!r} needs this key", location=key, remedy="add it")
    return value or 0.0


def _made(table: PoleTable | WaveformTable, noun: str, kinds: _Kinds, units: Units) -> Any:
    """The object that a table describes, in natural units, by its kind."""
    make, keys = kinds[table.kind]
    _refuse_foreign(table, f"a {table.kind} {noun}", tuple(keys))
    c, values = units.speed, {key: _of(table, key) for key in keys}
    return make(
        *(
            values[key] * c if power > 0 else values[key] / c if power < 0 else values[key]
            for key, power in keys.items()
        )
    )


class MaterialTable(Table):
    """Medium of a region."""

    region: Annotated[str, Field(max_length=200)] = ""
    """Name of a volume of the mesh; not needed in a mesh with one region."""
    permittivity: Annotated[float, Field(ge=SMALLEST, le=1e12)] = 1.0
    """Relative; of a medium with poles, the limit at high frequency."""
    permeability: Annotated[float, Field(ge=SMALLEST, le=1e12)] = 1.0
    """Relative."""
    conductivity: NotNegative = 0.0
    """In S/m."""
    magnetic_conductivity: NotNegative = 0.0
    """In ohm/m."""
    poles: Annotated[tuple[PoleTable, ...], Field(max_length=16)] = ()
    """Terms that depend on frequency: [[maxwell.materials.poles]] tables."""

    def material(self, units: Units) -> Material:
        """The medium in natural units."""
        poles = made_of("poles", self.poles, lambda pole: _made(pole, "pole", _POLES, units))
        loss = self.conductivity * units.impedance, self.magnetic_conductivity / units.impedance
        if not any(loss) and not self.poles:
            return Material(self.permittivity, self.permeability)
        return Medium(self.permittivity, self.permeability, *loss, tuple(poles))


class WaveformTable(Table):
    """Amplitude of a source or wave over time."""

    kind: Literal["gaussian", "modulated-gaussian", "ricker", "sine", "expression", "table"]
    """gaussian: exp(-((t - centre)/width)**2); modulated-gaussian: gaussian times sin(2 pi frequency (t -
    centre) + phase); ricker: second derivative of a Gaussian, (1 - 2 s**2) exp(-s**2) with s = pi
    frequency (t - centre); sine: sin(2 pi frequency t + phase), which rises smoothly within rise;
    expression: a formula of t; table: values of a CSV file."""
    centre: Coordinate | None = None
    """Time of the centre of a pulse, in s."""
    width: Positive | None = None
    """Width of a Gaussian, in s."""
    frequency: Positive | None = None
    """Frequency in Hz."""
    phase: Coordinate | None = None
    """Phase in radians; 0 by default."""
    rise: Positive | None = None
    """Time in s in which a sine reaches its full amplitude."""
    expression: str | None = None
    """Formula of t in s."""
    file: str | None = None
    """CSV file with two columns: time in s, value."""
    until: Positive | None = None
    """expression: time in s after which the waveform is 0."""
    samples: Annotated[int, Field(ge=_LEAST_SAMPLES, le=1 << 24)] = 4096
    """expression and table: number of values for cubic interpolation in time."""

    def waveform(self, units: Units) -> Waveform:
        """The waveform in natural units."""
        if self.kind in _WAVEFORMS:
            return cast(Waveform, _made(self, "waveform", _WAVEFORMS, units))
        from haloscope.case.expressions import Table as Csv

        c, own = units.speed, ("file",) if self.kind == "table" else ("expression", "until")
        _refuse_foreign(self, f"a {self.kind} waveform", (*own, "samples"))
        if self.kind == "table":
            table = Csv.from_csv(_of(self, "file"))
            times = np.linspace(table.coordinate[0], table.coordinate[-1], self.samples)
            return Sampled.of_times(times * c, table(times))
        formula = parse_quantity_or_expression(_of(self, "expression"), "expression", ("t",))
        until = _of(self, "until")

        def values(t: Floats) -> Floats:
            return formula.evaluate_finite("expression", t=t / c)

        return Sampled.sampled(values, until * c, until * c / (self.samples - 1))


class SourceTable(Table):
    """A current."""

    kind: Literal["dipole", "volume", "sheet"]
    """dipole: at a point; volume: a density in regions; sheet: on a named surface inside the mesh."""
    waveform: WaveformTable
    """Amplitude over time."""
    magnetic: bool = False
    """true: a magnetic current, which drives H; its units have V in place of A."""
    position: Position | None = None
    """dipole: position in m."""
    moment: tuple[Coordinate, Coordinate, Coordinate] | None = None
    """dipole: current times length, in A m."""
    density: Density | None = None
    """volume (A/m**2) and sheet (A/m): current density, numbers or expressions of x, y, z."""
    regions: tuple[Name, ...] | None = None
    """volume: regions with the current; all by default."""
    surface: Name | None = None
    """sheet: name of a surface inside the mesh."""

    def current(self, units: Units) -> Current:
        """The current in natural units."""
        own = (*_KEYS_OF_SOURCES[self.kind], *_KEYS_OF_ALL_SOURCES)
        _refuse_foreign(self, f"a {self.kind} source", own)
        factor = 1.0 if self.magnetic else units.impedance
        with located("waveform"):
            waveform = self.waveform.waveform(units)
        if self.kind == "dipole":
            if self.position is None or self.moment is None:
                raise CaseFault("a dipole needs the keys position and moment", remedy="add them")
            x, y, z = (factor * part for part in self.moment)
            return PointDipole(self.position, (x, y, z), waveform, self.magnetic)
        if self.density is None:
            raise CaseFault(
                f"a {self.kind} current needs this key", location="density", remedy="add it"
            )
        parts = [
            parse_quantity_or_expression(part, f"density[{axis}]", PLACE)
            for axis, part in enumerate(self.density)
        ]

        def distribution(points: Floats) -> Floats:
            x, y, z = np.moveaxis(points, -1, 0)
            parts_at = [part.evaluate_finite("density", x=x, y=y, z=z) for part in parts]
            return factor * np.stack(
                [np.broadcast_to(values, x.shape) for values in parts_at], axis=-1
            )

        if self.kind == "volume":
            return VolumeCurrent(distribution, waveform, self.regions, self.magnetic)
        if self.surface is None:
            raise CaseFault("a sheet current needs this key", location="surface", remedy="add it")
        return SheetCurrent(self.surface, distribution, waveform, self.magnetic)


class WaveTable(Table):
    """An incident plane wave. Set one of inside, box and boundaries."""

    direction: tuple[Coordinate, Coordinate, Coordinate]
    """Direction of propagation, of any length."""
    polarisation: tuple[Coordinate, Coordinate, Coordinate]
    """Electric field in V/m for a waveform of 1; normal to the direction."""
    waveform: WaveformTable
    """Amplitude over time."""
    inside: tuple[Name, ...] = ()
    """Regions with the total field; all others have only the scattered field."""
    box: tuple[Position, Position] | None = None
    """Lower and upper corner in m: elements with centres between them have the total field."""
    boundaries: tuple[Name, ...] = ()
    """Absorbing surfaces through which the wave enters."""
    start: Position | None = None
    """Point in m at which the time of the waveform is the time of the run; by default the point where
    the wave first meets the surface."""

    def wave(self, units: Units) -> PlaneWave:
        """The wave in natural units."""
        with located("waveform"):
            waveform = self.waveform.waveform(units)
        return PlaneWave(
            self.direction,
            self.polarisation,
            waveform,
            inside=self.inside,
            box=self.box,
            boundaries=self.boundaries,
            start=self.start,
        )


class LayerTable(Table):
    """Perfectly matched layers inside the sides of the bounding box of the mesh."""

    thickness: dict[Literal["x-", "x+", "y-", "y+", "z-", "z+"], Positive]
    """Thickness at each side, inwards, in m; a layer begins at the face of an element."""
    grading: Annotated[float, Field(ge=1.0, le=8.0)] = 3.0
    """Exponent of the growth of absorption from the beginning of the layer."""
    reflection: Annotated[float, Field(gt=0.0, lt=1.0)] = 1e-6
    """Relative amplitude of a wave at normal incidence after its way through the layer and back."""

    def layer(self) -> Layer:
        """The layer; lengths are the same in all units."""
        sides: dict[str, float] = {side: depth for side, depth in self.thickness.items()}  # noqa: C416
        return Layer(sides, self.grading, self.reflection)


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
