"""Resolution of a case's waves by its mesh, size of the mesh, and the part that limits the time step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from haloscope.case.expressions import Table, times_in_milliseconds
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh, point_text
from haloscope.numerics.runge_kutta import LSERK4
from haloscope.solvers.maxwell.case import MaxwellTable
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.additions import PlacedAdditions
from haloscope.solvers.maxwell.terms.media import Medium
from haloscope.solvers.maxwell.terms.sources import PlaneWave
from haloscope.solvers.maxwell.terms.terms import Floats, Integers
from haloscope.solvers.maxwell.terms.waveforms import (
    Gaussian,
    ModulatedGaussian,
    RampedSine,
    Ricker,
    largest_cut,
    span_of,
)

FEWEST_NODES = 7.0
"""Nodes per wavelength that are enough at order 7; below, waves are slow and damped."""
_NO_WAVE = 2.0
# Elements as wide as that many wavelengths, or a mesh as small a part of one: a unit is wrong.
_ABSURD_WIDTH, _ABSURD_PART = 3.0, 1e-3
# Extents over the wavelength between which a scale is plausible.
_PLAUSIBLE = (0.03, 300.0)
_SCALES = (1e-9, 1e-6, 1e-3, 1e-2, 1e2, 1e3, 1e6)
# Reflection of an absorbing layer, and jump of a waveform over its peak, that are warned of. A
# Gaussian that begins 2 widths before its centre jumps by 1.8 %.
_LARGEST_REFLECTION, _LARGEST_CUT = 0.01, 0.02
_EDGES = np.array(
    [
        *([0, 1], [2, 3], [4, 5], [6, 7]),
        *([0, 2], [1, 3], [4, 6], [5, 7]),
        *([0, 4], [1, 5], [2, 6], [3, 7]),
    ]
)


@dataclass(frozen=True, eq=False)
class Resolution:
    """Size of a mesh beside the shortest wave that its sources send."""

    extent: tuple[float, float, float]  # Of the whole mesh along x, y, z, in m
    # The highest of the sources (see :class:`Span`), in the units of the case; 0 without
    # sources.
    frequency: float
    wavelength: float  # Shortest at this frequency in any medium before the absorbing layer, in m
    # Least number of nodes per wavelength in any element there: order times wavelength over the
    # longest edge.
    nodes: float
    place: str  # Number and place of that element
    width: float  # Longest edge of all elements before the layer, in m
    vacuum: float  # Wavelength in vacuum, in m

    def warnings(self, table: MaxwellTable) -> list[str]:
        """A line where the mesh is too coarse for the waves, or its unit of length is wrong."""
        if not self.frequency:
            return []
        size = " x ".join(f"{width:.4g}" for width in self.extent)
        unit = "Hz" if table.units == "si" else "per m"
        wide = self.width / self.vacuum
        largest = max(self.extent) / self.vacuum
        if wide > _ABSURD_WIDTH or largest < _ABSURD_PART:
            problem = (
                f"an element is {wide:.4g} wavelengths wide"
                if wide > _ABSURD_WIDTH
                else f"the whole mesh is {largest:.3g} wavelengths wide"
            )
            return [
                f"warning: the mesh measures {size} m and {problem}: the wavelength is "
                f"{self.vacuum:.4g} m at the highest source frequency, {self.frequency:.4g} "
                f"{unit}; {self._remedy(table)}"
            ]
        counted = _counted_frequency(table)
        judged = min(self.frequency, counted)
        nodes = self.nodes * self.frequency / judged
        if nodes >= FEWEST_NODES:
            return []
        problem = "waves are inaccurate"
        if nodes < _NO_WAVE:
            problem = "waves are not resolved and results are meaningless"
        of = "source frequency" if judged == self.frequency else "requested frequency"
        return [
            f"warning: {nodes:.3g} nodes per wavelength in {self.place}, at the highest {of}, "
            f"{judged:.4g} {unit}: {problem}; use {FEWEST_NODES:g} or more: refine the mesh, raise "
            "maxwell.order, or lower the frequency"
        ]

    def _remedy(self, table: MaxwellTable) -> str:
        """The scale that makes the mesh some wavelengths wide, by the kind of mesh."""
        now = table.mesh.scale if table.mesh is not None else 1.0
        for scale in sorted(_SCALES, key=lambda one: abs(np.log(one))):
            wide = max(self.extent) * scale / self.vacuum
            fine = scale * self.width / self.vacuum <= 1.0
            if _PLAUSIBLE[0] <= wide <= _PLAUSIBLE[1] and fine:
                names = {1e-9: "nanometres", 1e-6: "micrometres", 1e-3: "millimetres"}
                known = scale in names and now == 1.0
                unit = f" if they are in {names[scale]}" if known else ""
                if table.mesh is not None:
                    return (
                        f"maxwell.mesh.scale = {now:g} converts lengths in the file to metres: set it "
                        f"to {now * scale:g}{unit}, or correct the source's frequency"
                    )
                return (
                    f"lengths of the case are in metres: multiply them by {scale:g}{unit}, or correct "
                    "the source's frequency"
                )
        return (
            "lengths are in metres, frequencies in Hz: correct the mesh or the source's frequency"
        )


def _counted_frequency(table: MaxwellTable) -> float:
    """Highest frequency at which results are asked for; inf where fields themselves are.

    Fields are linear: what a source sends above it, and the mesh does not resolve, leaves results
    at lower frequencies as they are.
    """
    asked = [] if table.far_field is None else [max(table.far_field.frequencies)]
    if table.spectrum is not None:
        asked.append(table.spectrum.band[1])
    return max(asked, default=np.inf)


def resolution(
    table: MaxwellTable,
    world: World,
    mesh: HexMesh,
    numbers: Integers,
    added: PlacedAdditions,
    materials: Sequence[Material],
) -> Resolution:
    """Find the element with the fewest nodes per wavelength; all ranks call this.

    `mesh`, `numbers`: this rank's elements first, and their numbers in the whole mesh, (own,).
    """
    own = len(numbers)
    points = mesh.coordinates[:own].reshape(-1, 3)
    ends = np.stack([points, -points]).max(axis=1, initial=-np.inf).ravel()
    x, y, z = np.array([world.largest(float(end)) for end in ends]).reshape(2, 3).sum(axis=0)
    extent = (float(x), float(y), float(z))
    _, currents, waves = table.additions()
    natural = max(
        [0.0, *(span_of(source.waveform).main_frequency for source in (*currents, *waves))]
    )
    if not natural:
        return Resolution(extent, 0.0, np.inf, np.inf, "", 0.0, np.inf)
    indices = np.array([_index(medium, 2 * np.pi * natural) for medium in materials])
    free = np.flatnonzero(~added.axes[:own].any(axis=1))
    corners = mesh.corners[free]
    widths = np.linalg.norm(corners[:, _EDGES[:, 0]] - corners[:, _EDGES[:, 1]], axis=-1)
    widths = widths.max(axis=1, initial=0.0)
    lengths = 1 / (natural * indices[mesh.regions[free]])
    nodes = table.order * lengths / widths
    row = np.zeros((0, 7))
    if len(free):
        at = int(np.lexsort((numbers[free], nodes))[0])
        row = np.array(
            [[nodes[at], numbers[free[at]], widths.max(), lengths.min(), *mesh.centres[free[at]]]]
        )
    rows = all_rows(world, row)
    if not len(rows):
        return Resolution(extent, natural * table.speed, np.inf, np.inf, "", 0.0, np.inf)
    least = rows[np.lexsort((rows[:, 1], rows[:, 0]))[0]]
    place = f"element {int(least[1])} at {point_text(least[4:])} m"
    return Resolution(
        extent,
        natural * table.speed,
        float(rows[:, 3].min()),
        float(least[0]),
        place,
        float(rows[:, 2].max()),
        1 / natural,
    )


def _index(medium: Material, w: float) -> float:
    """Magnitude of the refractive index: of waves, or of how fast fields decay in a conductor."""
    permittivity = medium.permittivity_at(w) if isinstance(medium, Medium) else medium.permittivity
    return float(np.sqrt(abs(complex(permittivity)) * medium.permeability)) or 1.0


def _conducts(medium: Medium, w: float) -> bool:
    """Whether waves decay within a wavelength: losses above all else, or no waves at all."""
    if not w:
        return False
    permittivity = complex(medium.permittivity_at(w))
    lossy = permittivity.real < 0 or permittivity.imag > permittivity.real
    return lossy or medium.magnetic_rate > w


def _layer_warnings(table: MaxwellTable) -> list[str]:
    """A line where the absorbing layer is asked to reflect."""
    if table.layer is None or table.layer.reflection <= _LARGEST_REFLECTION:
        return []
    return [
        f"warning: maxwell.layer.reflection = {table.layer.reflection:g}: the layer reflects "
        f"{100 * table.layer.reflection:.3g} % of a wave's amplitude at normal incidence, and more at "
        "an angle; set it to 1e-3 or less"
    ]


def timing_warnings(table: MaxwellTable, end: float) -> tuple[list[str], bool]:
    """Warn of waveforms that a run misses or cuts."""
    second = " s" if table.units == "si" else ""
    _, currents, waves = table.additions()
    waveforms = [
        (f"maxwell.sources[{n}].waveform", source.waveform) for n, source in enumerate(currents)
    ]
    # The clock of a wave with a start of its own is another one.
    waveforms += [
        (f"maxwell.waves[{n}].waveform", wave.waveform)
        for n, wave in enumerate(waves)
        if wave.start is None
    ]
    driven = any(wave.start is not None for wave in waves)
    lines = []

    def text(time: float) -> str:
        return f"{time / table.speed:.4g}{second}"

    for key, waveform in waveforms:
        begin = span_of(waveform).main_begin
        if begin >= end:
            reason = (
                f"is below 1 % of its peak until {text(begin)}, after the run's end at {text(end)}"
            )
            if np.isinf(begin):
                reason = "is 0 at all times"
            lines.append(
                f"warning: {key} {reason}, so it radiates nothing; start it earlier, or run longer"
            )
            continue
        driven = True
        if isinstance(waveform, RampedSine) and waveform.rise > end:
            lines.append(
                f"warning: {key} rises until {text(waveform.rise)}, after the run's end at "
                f"{text(end)}, so the sine does not reach its amplitude; run longer, or shorten rise"
            )
        cut = largest_cut(waveform)
        if cut > _LARGEST_CUT:
            remedy = "let its table begin and end near 0"
            if isinstance(waveform, Ricker | Gaussian | ModulatedGaussian):
                least = waveform.centre - begin
                remedy = f"set centre to {float(f'{least / table.speed:.2e}'):g} or more"
            lines.append(
                f"warning: {key} jumps by {100 * cut:.3g} % of its peak where it begins or ends, which "
                f"excites waves that no mesh resolves; {remedy}"
            )
    return lines, driven


def source_warnings(
    table: MaxwellTable, world: World, mesh: HexMesh, numbers: Integers, added: PlacedAdditions
) -> list[str]:
    """Warn of currents in conductors or in the absorbing layer, and of a layer that reflects.

    All ranks call this.

    Parameters as for :func:`resolution`.
    """
    own = len(numbers)
    layer = added.axes[:own].any(axis=1)
    lines = _layer_warnings(table)
    currents = [drive for drive in added.drives if not isinstance(drive.source, PlaneWave)]
    for number, (drive, current) in enumerate(zip(currents, table.additions()[1], strict=True)):
        w = 2 * np.pi * span_of(current.waveform).main_frequency
        conductors = [region for region, medium in added.media.items() if _conducts(medium, w)]
        lossy = np.isin(added.regions[:own], conductors)
        for where, name in ((lossy, "a conducting medium"), (layer, "the absorbing layer")):
            bad = np.flatnonzero(drive.concerned[:own] & where)
            rows = np.column_stack([numbers[bad], mesh.centres[bad]]).astype(np.float64)
            rows = all_rows(world, rows)
            if len(rows):
                first = rows[rows[:, 0].argmin()]
                lines.append(
                    f"warning: maxwell.sources[{number}] lies in {name}, at "
                    f"{point_text(first[1:])} m, which absorbs its waves; move the source"
                )
    for number, source in enumerate(table.sources):
        if source.kind == "dipole" and source.moment is not None and not any(source.moment):
            lines.append(
                f"warning: maxwell.sources[{number}].moment is 0, so the source radiates nothing"
            )
    return lines + _waveforms_beyond_the_end(table)


def _waveforms_beyond_the_end(table: MaxwellTable) -> list[str]:
    """Warn of tables of waveforms whose times are likely not in the case's unit."""
    lines = []
    drives = {f"sources[{n}]": source.waveform for n, source in enumerate(table.sources)}
    drives |= {f"waves[{n}]": source.waveform for n, source in enumerate(table.waves)}
    for name, waveform in drives.items():
        if table.end_time is None or waveform.file is None:
            continue
        times = Table.from_csv(waveform.file)
        if times_in_milliseconds(times, table.end_time):
            lines.append(
                f"warning: maxwell.{name}.waveform.file: the times of {waveform.file} reach "
                f"{times.coordinate[-1]:g}, and the run ends at {table.end_time:g}; write the times in s, not "
                "in milliseconds or nanoseconds"
            )
    return lines


def limit_text(
    table: MaxwellTable,
    world: World,
    mesh: HexMesh,
    numbers: Integers,
    bounds: Floats,
    added: PlacedAdditions,
    materials: Sequence[Material],
) -> str:
    """Which part of a case limits its time step; all ranks call this.

    `bounds`: longest step of each own element by its shape and medium, in m.
    """
    own = len(numbers)
    row = np.zeros((0, 7))
    if own:
        corners = mesh.corners[:own]
        edges = np.linalg.norm(corners[:, _EDGES[:, 0]] - corners[:, _EDGES[:, 1]], axis=-1)
        at = int(np.lexsort((numbers, bounds))[0])
        region = mesh.regions[at]
        row = np.array([[bounds[at], numbers[at], edges[at].min(), region, *mesh.centres[at]]])
    rows = all_rows(world, row.astype(np.float64))
    least = rows[np.lexsort((rows[:, 1], rows[:, 0]))[0]]
    rates = {n: m.fastest for n, m in added.media.items() if not m.plain}
    layer = added.layer.fastest if added.layer is not None else 0.0
    fastest = max([layer, *rates.values()])
    if fastest / LSERK4.imaginary_limit > 1 / least[0]:
        if layer == fastest:
            return "the absorbing layer (make maxwell.layer.thickness larger or raise maxwell.layer.reflection)"
        region = max(rates, key=lambda one: rates[one])
        return _medium_text(table, mesh.region_names[region], added.media[region])
    medium = materials[int(least[3])]
    name = mesh.region_names[int(least[3])]
    text = f"element {int(least[1])} at {point_text(least[4:])} m, whose shortest edge is "
    text += f"{least[2]:.4g} m"
    index = (medium.permittivity * medium.permeability) ** 0.5
    if index != 1.0:
        text += f", in {name!r} (waves {1 / index:.3g} times as fast as in vacuum)"
    return text


def _medium_text(table: MaxwellTable, region: str, medium: Medium) -> str:
    """The constant of a medium that dictates the time step."""
    if (
        medium.fastest
        <= max(medium.conductivity / medium.permittivity, medium.magnetic_rate) * 1.01
    ):
        if medium.magnetic_rate > medium.conductivity / medium.permittivity:
            value = f"{medium.magnetic_conductivity * table.impedance:.4g} ohm/m"
            return f"the magnetic conductivity of {region!r}, {value}"
        value = f"{medium.conductivity / table.impedance:.4g} S/m"
        return f"the conductivity of {region!r}, {value}"
    rates = [(max(pole.rates), type(pole).__name__) for pole in medium.poles]
    rate, kind = max(rates)
    return f"the {kind} pole of {region!r} with the rate {rate * table.speed:.4g} per s"
