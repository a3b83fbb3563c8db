"""Keys of a Maxwell case for media, absorbing layers, currents and waves, and what they become."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from haloscope.case.expressions import parse_quantity_or_expression
from haloscope.case.tables import (
    SMALLEST,
    CaseFault,
    Coordinate,
    Name,
    NotNegative,
    Position,
    Positive,
    Table,
)
from haloscope.errors import InputError
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Debye, Drude, Lorentz, Medium, Pole
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
_PLACE = ("x", "y", "z")
_LEAST_SAMPLES = 4


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

    def pole(self, units: Units) -> Pole:
        """The pole in natural units."""
        c = units.speed
        if self.kind == "drude":
            return Drude(_of(self, "plasma_frequency") / c, _of(self, "collision_rate", 0.0) / c)
        if self.kind == "lorentz":
            return Lorentz(
                _of(self, "strength"), _of(self, "resonance") / c, _of(self, "damping", 0.0) / c
            )
        return Debye(_of(self, "strength"), _of(self, "relaxation_time") * c)


_KEYS_OF_POLES = {
    "drude": ("plasma_frequency", "collision_rate"),
    "lorentz": ("strength", "resonance", "damping"),
    "debye": ("strength", "relaxation_time"),
}
_KEYS_OF_WAVEFORMS = {
    "gaussian": ("centre", "width"),
    "modulated-gaussian": ("centre", "width", "frequency", "phase"),
    "ricker": ("centre", "frequency"),
    "sine": ("frequency", "rise", "phase"),
    "expression": ("expression", "until", "samples"),
    "table": ("file", "samples"),
}
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


def _of(table: PoleTable | WaveformTable, key: str, otherwise: float | None = None) -> float:
    """A key that this kind of a table needs."""
    value = getattr(table, key)
    if value is None:
        value = otherwise
    if value is None:
        raise CaseFault(f"kind = {table.kind!r} needs this key", location=key, remedy="add it")
    return float(value)


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
        for number, pole in enumerate(self.poles):
            with located(f"poles.{number}"):
                _refuse_foreign(pole, f"a {pole.kind} pole", _KEYS_OF_POLES[pole.kind])
        loss = self.conductivity * units.impedance, self.magnetic_conductivity / units.impedance
        if not any(loss) and not self.poles:
            return Material(self.permittivity, self.permeability)
        poles = []
        for number, pole in enumerate(self.poles):
            with located(f"poles.{number}"):
                poles.append(pole.pole(units))
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
        _refuse_foreign(self, f"a {self.kind} waveform", _KEYS_OF_WAVEFORMS[self.kind])
        c = units.speed
        if self.kind == "gaussian":
            return Gaussian(_of(self, "centre") * c, _of(self, "width") * c)
        if self.kind == "modulated-gaussian":
            return ModulatedGaussian(
                _of(self, "centre") * c,
                _of(self, "width") * c,
                _of(self, "frequency") / c,
                _of(self, "phase", 0.0),
            )
        if self.kind == "ricker":
            return Ricker(_of(self, "centre") * c, _of(self, "frequency") / c)
        if self.kind == "sine":
            return RampedSine(
                _of(self, "frequency") / c, _of(self, "rise") * c, _of(self, "phase", 0.0)
            )
        return self._sampled(c)

    def _sampled(self, c: float) -> Waveform:
        from haloscope.case.expressions import Table as Csv

        if self.kind == "table":
            if self.file is None:
                raise CaseFault("kind = 'table' needs this key", location="file", remedy="add it")
            table = Csv.from_csv(self.file)
            times = np.linspace(table.coordinate[0], table.coordinate[-1], self.samples)
            return Sampled.of_times(times * c, table(times))
        if self.expression is None:
            raise CaseFault(
                "kind = 'expression' needs this key", location="expression", remedy="add it"
            )
        formula = parse_quantity_or_expression(self.expression, "expression", ("t",))
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
            parse_quantity_or_expression(part, f"density[{axis}]", _PLACE)
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
