"""Resolution of waves by a case's mesh, places of its sources, and the longest stable time step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.case.expressions import Table, times_in_milliseconds
from haloscope.device.interface import Array, Device
from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh, point_text
from haloscope.mesh.hexes.shared_meshes import bounds
from haloscope.numerics.elements.element_maps import tangents
from haloscope.numerics.time_integration import LSERK4, KrylovSpace, Operator, step_limits
from haloscope.solvers.maxwell.case import MaxwellTable
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.meshes import SetUp, first_of
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
    frequency: float = 0.0
    wavelength: float = (
        np.inf
    )  # Shortest at this frequency in any medium before the absorbing layer, in m
    # Least number of nodes per wavelength in any element there: order times wavelength over the
    # longest edge.
    nodes: float = np.inf
    place: str = ""  # Number and place of that element
    width: float = 0.0  # Longest edge of all elements before the layer, in m
    vacuum: float = np.inf  # Wavelength in vacuum, in m

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


def _edge_lengths(mesh: HexMesh, elements: Integers) -> Floats:
    corners = mesh.corners[elements]
    return np.asarray(np.linalg.norm(corners[:, _EDGES[:, 0]] - corners[:, _EDGES[:, 1]], axis=-1))


def _least(set_up: SetUp, elements: Integers, values: Floats, more: Floats) -> Floats | None:
    """Value, number, centre and what more there is, of the element of all ranks with the least value.

    None without any element; all ranks call this. `elements`: own ones; `more`: (elements, columns).
    """
    numbers = set_up.around.numbers[elements]
    rows = np.column_stack([values, numbers, set_up.around.mesh.centres[elements], more])
    rows = all_rows(set_up.world, rows[np.lexsort((numbers, values))[:1]])
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))[0]] if len(rows) else None


def resolution(table: MaxwellTable, set_up: SetUp) -> Resolution:
    """Find the element with the fewest nodes per wavelength; all ranks call this."""
    world, added, mesh, own = set_up.world, set_up.added, set_up.around.mesh, set_up.around.own
    lower, upper = bounds(world, mesh.coordinates[:own])
    x, y, z = (upper - lower).tolist()
    _, currents, waves = table.additions()
    waveforms = [source.waveform for source in (*currents, *waves)]
    natural = max([0.0, *(span_of(waveform).main_frequency for waveform in waveforms)])
    if not natural:
        return Resolution((x, y, z))
    indices = np.array([_index(medium, 2 * np.pi * natural) for medium in set_up.materials])
    free = np.flatnonzero(~added.axes[:own].any(axis=1))
    widths = _edge_lengths(mesh, free).max(axis=1, initial=0.0)
    lengths = 1 / (natural * indices[mesh.regions[free]])
    least = _least(set_up, free, table.order * lengths / widths, np.zeros((len(free), 0)))
    shortest = -world.largest(-float(lengths.min(initial=np.inf)))
    widest = world.largest(float(widths.max(initial=0.0)))
    if least is None:
        return Resolution((x, y, z), natural * table.speed)
    place = f"element {int(least[1])} at {point_text(least[2:5])} m"
    return Resolution(
        (x, y, z), natural * table.speed, shortest, float(least[0]), place, widest, 1 / natural
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


def source_warnings(table: MaxwellTable, set_up: SetUp) -> list[str]:
    """Warn of currents in conductors or in the absorbing layer, and of a layer that reflects.

    All ranks call this.
    """
    added, own, lines = set_up.added, set_up.around.own, []
    if table.layer is not None and table.layer.reflection > _LARGEST_REFLECTION:
        lines.append(
            f"warning: maxwell.layer.reflection = {table.layer.reflection:g}: the layer reflects "
            f"{100 * table.layer.reflection:.3g} % of a wave's amplitude at normal incidence, and more at "
            "an angle; set it to 1e-3 or less"
        )
    layer = added.axes[:own].any(axis=1)
    currents = [drive for drive in added.drives if not isinstance(drive.source, PlaneWave)]
    for number, current in enumerate(currents):
        w = 2 * np.pi * span_of(current.source.waveform).main_frequency
        conductors = [region for region, medium in added.media.items() if _conducts(medium, w)]
        lossy = np.isin(added.regions[:own], conductors)
        for where, name in ((lossy, "a conducting medium"), (layer, "the absorbing layer")):
            count, _, place = first_of(set_up.world, set_up.around, current.concerned[:own] & where)
            if count:
                lines.append(
                    f"warning: maxwell.sources[{number}] lies in {name}, at "
                    f"{place}, which absorbs its waves; move the source"
                )
    for number, source in enumerate(table.sources):
        if source.kind == "dipole" and source.moment is not None and not any(source.moment):
            lines.append(
                f"warning: maxwell.sources[{number}].moment is 0, so the source radiates nothing"
            )
    # Tables of waveforms whose times are likely not in the case's unit.
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


def limit_text(table: MaxwellTable, set_up: SetUp, longest: Floats) -> str:
    """Which part of a case limits its time step; all ranks call this.

    `longest`: longest step of each own element by its shape and medium, in m.
    """
    mesh, added, elements = set_up.around.mesh, set_up.added, np.arange(set_up.around.own)
    shortest = _edge_lengths(mesh, elements).min(axis=1)
    more = np.column_stack([shortest, mesh.regions[elements]])
    least = _least(set_up, elements, longest, more)
    assert least is not None
    rates = {n: m.fastest for n, m in added.media.items() if not m.plain}
    layer = added.layer.fastest if added.layer is not None else 0.0
    fastest = max([layer, *rates.values()])
    if fastest / LSERK4.imaginary_limit > 1 / least[0]:
        if layer == fastest:
            return "the absorbing layer (make maxwell.layer.thickness larger or raise maxwell.layer.reflection)"
        region = max(rates, key=lambda one: rates[one])
        return _medium_text(table, mesh.region_names[region], added.media[region])
    medium, name = set_up.materials[int(least[6])], mesh.region_names[int(least[6])]
    text = f"element {int(least[1])} at {point_text(least[2:5])} m, whose shortest edge is "
    text += f"{least[5]:.4g} m"
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


MARGIN = 0.95
"""Largest share of the bound that a step may take."""

# Bounds on cubes of width h over h / c, upwind flux; from order 5 on the faces' eigenvalue
# -2 N (N + 1) c / h alone decides.
_LOW_ORDERS = {1: 0.809, 2: 0.322, 3: 0.179, 4: 0.114}
# Arnoldi steps at once, for that many vectors of fields are stored; and in all, least and most.
_DIMENSION, _LEAST_EVALUATIONS, _MOST_EVALUATIONS = 8, 80, 160
# Rounds end when the bound changes by no more; then it may still fall by about as much.
_CHANGE = 0.005
# Ritz vectors that allow steps up to this times the shortest have a share in the next start.
_WIDER = 1.15
_NODES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class StepBound:
    """How long a stable time step may be."""

    # What the shape of the elements suggests; safe unless they are sheared strongly.
    geometric: float
    limit: float  # What the eigenvalues found so far allow
    converged: bool  # Whether the last of them were no stricter than those before
    evaluations: int  # Of the right-hand side, to find that out

    @property
    def largest(self) -> float:
        """The bound; steps above :data:`MARGIN` of it are refused."""
        return self.limit if self.converged else min(self.limit, self.geometric)


def cube_factor(order: int) -> float:
    """Bound on cubes of width h, over h / c."""
    return _LOW_ORDERS.get(order, LSERK4.real_limit / (2 * order * (order + 1)))


def geometric_bounds(coordinates: Floats, speed: ArrayLike) -> Floats:
    """Bound of each element by the upwind flux at its corners.

    `speed`: of light in each element, (elements,) or one for all.
    """
    # A node where faces of normals n_d meet loses tangential components at the rate c N (N + 1) / 2
    # times M = sum_d |grad r_d| (I - n_d n_d^T), n_d along grad r_d (r_d from -1 to 1), if the
    # neighbours have the opposite sign. On a cube the largest eigenvalue of M is 4 / h; the bound
    # of cubes is scaled by it. It is taken over all nodes, so that bent faces count.
    elements, size = coordinates.shape[:2]
    speeds = np.broadcast_to(np.asarray(speed, np.float64), (elements,))
    rate = np.empty(elements)
    step = max(1, _NODES_AT_ONCE // size**3)
    for first in range(0, elements, step):
        span = slice(first, min(first + step, elements))
        gradients = np.linalg.inv(np.stack(tangents(coordinates[span]), axis=-2))
        length = np.linalg.norm(gradients, axis=-2)
        along = np.einsum("...xd,...yd->...xy", gradients / length[..., None, :], gradients)
        matrix = length.sum(axis=-1)[..., None, None] * np.eye(3) - along
        largest = np.linalg.eigvalsh(matrix)[..., -1]
        rate[span] = largest.reshape(len(largest), -1).max(axis=1)
    return cube_factor(size - 1) * 4 / (speeds * rate)


def find_bound(
    operator: Operator,
    start: Array,
    geometric: float,
    device: Device,
    world: World | None = None,
    dimension: int = _DIMENSION,
) -> StepBound:
    """Longest step that the operator's own eigenvalues allow."""
    # An Arnoldi process of few steps, begun again with what of its start belongs to those Ritz
    # values that leave the region of stability first (explicit restarts: Saad, Numerical methods
    # for large eigenvalue problems, 2nd edition, 2011, section 6.4), until the bound stays where it
    # is. It comes out up to some percent above the true one, which :data:`MARGIN` covers. With a
    # start that is the same for any number of ranks, all but its last bits are the same too.
    ranks = world or World()
    space = KrylovSpace(device, len(start), dimension, start.dtype, ranks)
    next_start = device.zeros((len(start),), start.dtype)
    next_start[:] = start
    limit, evaluations, converged = np.inf, 0, False
    while evaluations < _MOST_EVALUATIONS:
        basis = space.build(operator, next_start)
        evaluations += basis.dimension
        ritz = basis.ritz
        limits = step_limits(LSERK4, ritz.values)
        shortest = float(limits.min(initial=np.inf))
        # All ranks decide by the root's.
        now = min(limit, float(ranks.broadcast(np.array([shortest]))[0]))
        stayed = now >= (1 - _CHANGE) * limit
        limit = now
        converged = basis.next == 0.0 or (stayed and evaluations >= _LEAST_EVALUATIONS)
        if converged:
            break
        # A function of the projected matrix times e_1: real, and the last bits change it little.
        share = np.clip((_WIDER * shortest - limits) / ((_WIDER - 1) * shortest), 0.0, 1.0)
        first = np.linalg.lstsq(ritz.vectors, np.eye(len(share), 1)[:, 0], rcond=None)[0]
        factors = np.ascontiguousarray((ritz.vectors @ (share * first)).real)
        space.combine(ranks.broadcast(factors), next_start)
    least = -ranks.largest(-geometric)
    return StepBound(least, limit, converged, evaluations)


def random_start(elements: NDArray[np.integer], values: int) -> Floats:
    """Numbers from -1 to 1 that depend on an element's number alone, not on the rank that has it.

    Made by the function splitmix64 (Steele, Lea and Flood, OOPSLA 2014) of each value's place.
    `elements`: numbers in the whole mesh, (own,).
    """
    # The annotations of NumPy take these for floating-point numbers.
    place: Any = np.asarray(elements, np.uint64)[:, None] * np.uint64(values)
    mixed: Any = place + np.arange(1, values + 1, dtype=np.uint64)
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-52 - 1.0)


def require_stable(dt: float, bound: float, unit: str = "") -> None:
    """Refuse a time step above :data:`MARGIN` of the bound."""
    # As it is told, so that what is told is allowed.
    most = float(f"{MARGIN * bound:.4g}")
    if not 0 < dt <= most:
        unit_text = f" {unit}" if unit else ""
        raise InputError(
            "out of range",
            location=f"time step {dt:g}{unit_text}",
            allowed=f"above 0 and at most {most:g}{unit_text} ({MARGIN:g} of the bound "
            f"{bound:.4g}{unit_text}, above which this mesh, order and media are unstable)",
            remedy="remove maxwell.time_step for an automatic step",
        )
