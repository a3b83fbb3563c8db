"""The far field of a run: sums taken on a surface while it goes on, patterns and powers at its end.

The transforms of the fields are divided by that of a waveform over the same samples, with the same
weights. So amplitudes are those of the steady state in which this waveform has the amplitude 1,
be it a pulse or a sine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError, counted
from haloscope.exchange.plan import all_rows
from haloscope.io.figures.spectrum_pictures import prefixed
from haloscope.mesh.hexes.hexes import Integers, point_text
from haloscope.mesh.hexes.shared_meshes import Surroundings
from haloscope.numerics.spectrum import RunningTransform
from haloscope.solvers.interface import saved_numbers
from haloscope.solvers.maxwell.case import FIELD_NAMES, MaxwellTable
from haloscope.solvers.maxwell.meshes import SetUp
from haloscope.solvers.maxwell.outputs.far_field import (
    FarField,
    MirrorPlane,
    enclosing_faces,
    extinction_cross_section,
    far_field,
    in_front,
    power,
    scattering_cross_section,
    sphere_quadrature,
    surface,
)
from haloscope.solvers.maxwell.outputs.surface_walls import (
    OPEN,
    face_kinds,
    mirror_planes,
    unmirrored_walls,
    wall_faces,
)
from haloscope.solvers.maxwell.terms.additions import (
    PlacedAdditions,
    end,
    highest_frequency,
    main_end,
)
from haloscope.solvers.maxwell.terms.incident import PlacedWave
from haloscope.solvers.maxwell.terms.sources import PlacedDipole, PointDipole, in_regions
from haloscope.solvers.maxwell.terms.waveforms import RampedSine, Waveform

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_SAMPLES_A_PERIOD = 12
# The sampling rate over the sum of the highest frequencies asked for and there.
_ABOVE_ALIASES = 1.1
# A waveform whose transform is below this part of the integral of its absolute value has nothing at
# that frequency.
_LEAST_CONTENT = 1e-4
# Polar angles of the integral over all directions; where more are needed it is left out.
_MORE_THAN_SIZE, _MOST_POLAR = 10, 48
# Part of an amplitude that the end of a run may cut off, and periods of a sine that a window needs.
_LARGEST_TAIL, _FEWEST_PERIODS = 0.02, 4
# Steps up to which a waveform's content is checked before the run.
_MOST_STEPS = 1 << 24
_NAMES = ("sums", "faces", "reference", "taken", "settings")


@dataclass(frozen=True, eq=False)
class Powers:
    """Power through the surface and of the pattern, for each frequency.

    Natural units, at the waveform's amplitude 1. A wave makes the second group.
    """

    radiated: Floats  # Power out through the surface, (frequencies,)
    # The same by an integral over the pattern; None where that would take too long.
    of_pattern: Floats | None
    # Of a single point dipole in the unbounded medium; None with other sources.
    dipole_alone: Floats | None
    # Cross sections; None without a wave, or with more than one source of any kind. No extinction
    # over a wall: the optical theorem is that of free space.
    scattering: Floats | None
    extinction: Floats | None


def frequency_text(table: MaxwellTable, frequency: float) -> str:
    """A frequency with its unit; natural ones have none."""
    return prefixed(frequency, "Hz") if table.units == "si" else f"{frequency:.6g}"


class Radiation:
    """Settings of a table [maxwell.far_field]."""

    def __init__(self, table: MaxwellTable, set_up: SetUp) -> None:
        assert table.far_field is not None
        self._wanted, self._speed = table.far_field, table.speed
        self._time_unit = " s" if table.units == "si" else ""
        self._names = [frequency_text(table, one) for one in table.far_field.frequencies]
        self._world, self._device = set_up.world, set_up.device
        added, part = set_up.added, set_up.part
        _, self._currents, _ = table.additions()
        self._waves = [drive for drive in added.drives if isinstance(drive, PlacedWave)]
        self._scattered_alone = not any(wave.wave.boundaries for wave in self._waves)
        self.notices: list[str] = []
        """Warnings about the surface, a line each."""
        kinds = face_kinds(set_up.around.mesh, table.kinds())
        faces, outside, inside = self._enclose(set_up.around, added, kinds)
        self.planes = self._close(set_up.around, kinds, faces, outside, inside)
        """Walls at which the surface ends; images stand for them."""
        self._permittivity, self._permeability = self._medium(faces[:, 0], set_up.around, added)
        self._note_sources(set_up.around, added, faces, inside)
        self._note_beyond(set_up.around, added, kinds, inside)
        # All faces in the order of the whole mesh, and who has them.
        faces = faces[np.lexsort((faces[:, 1], part.elements[faces[:, 0]]))]
        rank = np.full(len(faces), self._world.rank)
        known = np.stack([part.elements[faces[:, 0]], faces[:, 1], rank], axis=1)
        everywhere = all_rows(self._world, known)
        everywhere = everywhere[np.lexsort((everywhere[:, 1], everywhere[:, 0]))]
        self._faces, self._owners = everywhere[:, :2], everywhere[:, 2]
        places = set_up.places
        order = places.shape[1] - 1
        self._on = surface(part.mesh, order, faces, places=places, from_outside=outside)
        self._indices = self._device.from_host(self._on.indices(len(FIELD_NAMES)).ravel())
        self.frequencies = np.array(self._wanted.frequencies) / table.speed
        """In oscillations a unit of length."""

    def _enclose(
        self, around: Surroundings, added: PlacedAdditions, kinds: Integers
    ) -> tuple[Integers, bool, NDArray[np.bool_]]:
        """Own faces of the surface, whether fields are taken outside it, and what it encloses."""
        wanted, world, mesh, own = self._wanted, self._world, around.mesh, around.own
        total = np.zeros(mesh.count, bool)
        for wave in self._waves:
            total |= wave.inside
        if wanted.box is not None:
            low, high = np.array(wanted.box, float)
            centres = mesh.centres
            inside = np.asarray(((centres > low) & (centres < high)).all(axis=1))
        elif wanted.regions:
            try:
                inside = in_regions(mesh, wanted.regions)
            except InputError as error:
                raise error.within("maxwell.far_field.regions") from None
        else:
            free = np.asarray(~added.axes.any(axis=1), bool)
            inside = total if world.any(bool(total.any())) else free
        walls = kinds != OPEN
        faces = enclosing_faces(mesh, inside, walls=walls, world=world, own=own)
        outside = world.any(bool(total[faces[:, 0]].any()))
        if outside:
            faces = enclosing_faces(
                mesh, inside, from_outside=True, walls=walls, world=world, own=own
            )
        if world.any(bool((total & ~inside).any())):
            raise InputError(
                "the surface leaves out elements that hold the total field of a wave",
                location="maxwell.far_field",
                remedy="enclose all of them, or remove box and regions",
            )
        return faces, outside, inside

    def _close(
        self,
        around: Surroundings,
        kinds: Integers,
        faces: Integers,
        outside: bool,
        inside: NDArray[np.bool_],
    ) -> list[MirrorPlane]:
        """Planes whose images close the surface; none of one that is closed already."""
        walls = wall_faces(around.mesh, kinds, inside, around.own)
        planes = mirror_planes(self._world, around, kinds, faces, walls)
        if planes and outside:
            raise InputError(
                "the surface around the total field of a wave ends at a wall, where the reflection of the "
                "wave itself would count as scattered",
                location="maxwell.far_field",
                remedy="keep the total field off walls, or let the wave enter through a boundary "
                "(maxwell.waves boundaries)",
            )
        for plane in planes:
            self.notices.append(
                f"far field: image sources stand for the {'magnetic' if plane.magnetic else 'electric'} "
                f"wall {plane}; pattern and powers are those of the half space in front of it"
            )
        return planes

    def _first(self, around: Surroundings, elements: Integers) -> tuple[int, str]:
        """Number of elements of all ranks, and the number and place of the first of them."""
        rows = np.column_stack([around.numbers[elements], around.mesh.centres[elements]])
        rows = all_rows(self._world, rows.astype(np.float64))
        if not len(rows):
            return 0, ""
        first = rows[rows[:, 0].argmin()]
        return len(rows), f"element {int(first[0])} at {point_text(first[1:])} m"

    def _note_sources(
        self,
        around: Surroundings,
        added: PlacedAdditions,
        faces: Integers,
        inside: NDArray[np.bool_],
    ) -> None:
        """Warn of currents outside the surface, and of dipoles in elements that it touches."""
        own = around.own
        driven = np.zeros(own, bool)
        singular = np.zeros(own, bool)
        for drive in added.drives:
            if not isinstance(drive, PlacedWave):
                driven |= drive.concerned[:own]
            if isinstance(drive, PlacedDipole):
                singular |= drive.concerned[:own]
        count, place = self._first(around, np.flatnonzero(driven & ~inside[:own]))
        if count:
            self.notices.append(
                f"warning: maxwell.far_field: sources lie in {counted(count, 'element')} outside the "
                "surface, and their waves are missing from the far field; enclose "
                f"{place} (box or regions)"
            )
        at_surface = np.zeros(own, bool)
        at_surface[faces[:, 0]] = True
        count, place = self._first(around, np.flatnonzero(singular & at_surface))
        if count:
            self.notices.append(
                f"warning: maxwell.far_field: a dipole lies in an element at the surface, {place}, where its "
                "own field is not resolved; keep an element between them"
            )

    def _note_beyond(
        self,
        around: Surroundings,
        added: PlacedAdditions,
        kinds: Integers,
        inside: NDArray[np.bool_],
    ) -> None:
        """Warn of what lies beyond the surface and is not the uniform medium that F assumes."""
        own = slice(0, around.own)
        beyond = ~inside[own] & ~added.axes[own].any(axis=1)
        lossy = [number for number, medium in added.media.items() if not medium.plain]
        other = np.isin(added.regions[own], lossy) | (added.permittivity[own] != self._permittivity)
        other |= added.permeability[own] != self._permeability
        count, place = self._first(around, np.flatnonzero(~inside[own] & other))
        if count:
            self.notices.append(
                f"warning: maxwell.far_field: {counted(count, 'element')} outside the surface "
                f"{'has' if count == 1 else 'have'} another medium than the surface; the first is "
                f"{place}. Waves that they reflect are missing from the far field; enclose them"
            )
        names = unmirrored_walls(self._world, around, kinds, beyond, self.planes)
        if names:
            self.notices.append(
                f"warning: maxwell.far_field: the walls {', '.join(map(repr, names))} lie outside the "
                "surface, and waves that they reflect are missing from the far field; extend the surface to "
                "the walls, or use absorbing boundaries there"
            )

    def _medium(
        self, elements: Integers, around: Surroundings, added: PlacedAdditions
    ) -> tuple[float, float]:
        """Permittivity and permeability of elements at the surface, of all ranks."""
        world = self._world
        count, place = self._first(around, elements[added.axes[elements].any(axis=1)])
        if count:
            raise InputError(
                f"the surface runs through the absorbing layer at {place}",
                location="maxwell.far_field",
                remedy="enclose only elements inside the layer",
            )
        lossy = [number for number, medium in added.media.items() if not medium.plain]
        constants = [of[elements] for of in (added.permittivity, added.permeability)]
        most = [world.largest(float(of.max(initial=0.0))) for of in constants]
        other = np.isin(added.regions[elements], lossy)
        for of, one in zip(constants, most, strict=True):
            other |= of != one
        count, place = self._first(around, elements[other])
        if count:
            raise InputError(
                f"the surface runs through several media, or one with loss or memory: {place} (relative "
                f"permittivity and permeability at most {most[0]:g}, {most[1]:g} elsewhere on it)",
                location="maxwell.far_field",
                remedy="move the surface (box or regions) into one medium without loss",
            )
        return most[0], most[1]

    # Samples

    @property
    def _waveform(self) -> Waveform:
        """The waveform with amplitude 1."""
        waveforms = [wave.wave.waveform for wave in self._waves]
        return [*waveforms, *(current.waveform for current in self._currents)][0]

    @property
    def _waveforms(self) -> list[Waveform]:
        return [current.waveform for current in (*(w.wave for w in self._waves), *self._currents)]

    def set_step(self, dt: float, last_step: int) -> None:
        """Choose when samples are taken, and forget what there is."""
        top = float(self.frequencies.max())
        content = max(highest_frequency(waveform) for waveform in self._waveforms)
        apart = min(1 / (_SAMPLES_A_PERIOD * top), 1 / (_ABOVE_ALIASES * (top + content)))
        self.interval = self._wanted.interval or max(1, int(apart / dt))
        self._dt, self._end = dt, last_step * dt
        self._start = self._wanted.start * self._speed
        rises = [waveform.rise for waveform in self._waveforms if isinstance(waveform, RampedSine)]
        self._steady = bool(rises)
        if self._steady and self._start < max(rises):
            raise InputError(
                "it is before a sine has risen",
                location=f"maxwell.far_field.start = {self._wanted.start:g}",
                allowed=f"times above {max(rises) / self._speed:g} from which the fields are steady",
            )
        rates = 2 * np.pi * self.frequencies
        count = self._on.points.shape[0] * len(FIELD_NAMES)
        self._transform = RunningTransform(self._device, count, rates, self.interval * dt)
        self._reference = np.zeros(len(rates), complex)
        self._latest: deque[Array] = deque(maxlen=_SAMPLES_A_PERIOD // 3)
        self._require_content(last_step)

    def _require_content(self, last_step: int) -> None:
        if self._start > last_step // self.interval * self.interval * self._dt:
            raise InputError(
                "it is after the run's end",
                location=f"maxwell.far_field.start = {self._wanted.start:g}",
                allowed=f"times before {self._end / self._speed:g}",
                remedy="lower it, or run longer",
            )
        # A pulse counts to its end: a run that ends before has no result.
        ends = last_step if self._steady else math.ceil(end(self._waveform) / self._dt)
        self.leaves_charges = False
        if ends > _MOST_STEPS:
            return
        steps = np.arange(self.interval, max(ends, self.interval) + 1, self.interval)
        times = steps[steps * self._dt >= self._start] * self._dt
        values = self._weight(times) * self._waveform(times)
        # A pulse of a current whose integral is not 0 leaves charges, and their field, behind.
        mean = abs(float(values.sum())) / max(float(np.abs(values).sum()), 1e-300)
        self.leaves_charges = not self._steady and bool(self._currents) and mean > _LEAST_CONTENT
        for frequency, asked in zip(self.frequencies, self._wanted.frequencies, strict=True):
            content = abs((values * np.exp(2j * np.pi * frequency * times)).sum())
            if not content > _LEAST_CONTENT * np.abs(values).sum():
                raise InputError(
                    f"at {asked:g} the waveform has no content "
                    f"({content / max(float(np.abs(values).sum()), 1e-300):.1g} of its size)",
                    location="maxwell.far_field.frequencies",
                    remedy="choose a frequency within the band of the source",
                )

    def _weight(self, times: ArrayLike) -> Floats:
        """Weights of samples; a steady oscillation is faded in and out by Hann's window."""
        t = np.asarray(times, np.float64)
        if not self._steady:
            return np.full(t.shape, self.interval * self._dt)
        share = (t - self._start) / (self._end - self._start)
        window = np.where((share > 0) & (share < 1), np.sin(np.pi * share) ** 2, 0.0)
        return np.asarray(window * self.interval * self._dt)

    def sample(self, fields: Array, step: int) -> None:
        """Take the fields of a step whose number is a multiple of the interval."""
        t = step * self._dt
        if t < self._start:
            return
        weight = float(self._weight(t))
        values = fields[self._indices]
        self._transform.accumulate(values, t, weight)
        self._latest.append(values)
        phases = np.exp(2j * np.pi * self.frequencies * t)
        self._reference += weight * float(self._waveform(t)) * phases

    # Checkpoints

    def extras(self) -> dict[str, NDArray[np.generic]]:
        """Sums of all faces on rank 0, and what they belong to."""
        state = self._transform.state()
        values = len(FIELD_NAMES) * self._on.nodes.shape[1]
        own = state["sums"].reshape(len(state["sums"]), len(self._on.faces), values)
        own = np.ascontiguousarray(np.moveaxis(own, 1, 0))
        if not self._world.is_root:
            if len(own):
                self._world.send(own, 0)
            return {}
        sums = np.empty((len(self._faces), len(state["sums"]), values))
        for rank in range(self._world.size):
            rows = np.flatnonzero(self._owners == rank)
            if rank == 0:
                sums[rows] = own
            elif len(rows):
                sums[rows] = self._world.receive((len(rows), *sums.shape[1:]), np.float64, rank)
        fields = (sums, self._faces, self._reference, state["taken"], self._settings())
        return {f"far_field_{name}": np.asarray(a) for name, a in zip(_NAMES, fields, strict=True)}

    def _settings(self) -> Floats:
        return np.array([self.interval, self._start, self._end, *self.frequencies])

    def restore(self, extras: Mapping[str, NDArray[np.generic]], step: int) -> None:
        """Go on from a checkpoint."""
        saved = {name: extras.get(f"far_field_{name}") for name in _NAMES}
        if saved["sums"] is None:
            if step * self._dt <= max(self._start, self.interval * self._dt):
                return
            raise InputError(
                "it holds no far field, which this case computes from "
                f"{self._start / self._speed:g} on",
                location="checkpoint",
                remedy="start again without --restart, or raise maxwell.far_field.start",
            )
        faces, settings = saved["faces"], saved["settings"]
        alike = np.array_equal(np.asarray(faces), self._faces)
        wanted = self._settings()
        alike = alike and settings is not None and settings.shape == wanted.shape
        alike = alike and np.asarray(settings).dtype.kind == "f"
        if alike and not self._steady:
            # Without a window it is no matter where the run ends.
            wanted[2] = np.asarray(settings, np.float64)[2]
        if not alike or not np.allclose(np.asarray(settings, np.float64), wanted, rtol=1e-12):
            raise InputError(
                "its far field is of another surface, other frequencies, samples or times",
                location="checkpoint",
                remedy="restart with the [maxwell.far_field] that wrote it, or start again without --restart",
            )
        names = (f"far_field_{name}" for name in ("sums", "taken"))
        shapes = (len(self._faces), 2 * len(self.frequencies), None), (2,)
        whole, taken = (saved_numbers(extras, *entry) for entry in zip(names, shapes, strict=True))
        rows = whole[self._owners == self._world.rank]
        sums = np.moveaxis(rows, 0, 1).reshape(2 * len(self.frequencies), -1)
        self._transform.restore({"sums": np.ascontiguousarray(sums), "taken": taken})
        reference = np.asarray(saved["reference"])
        parts = {"far_field_reference": np.array([reference.real, reference.imag])}
        saved_numbers(parts, "far_field_reference", (2, len(self.frequencies)))
        self._reference = np.array(reference, complex)

    # Results

    def require_ended(self, step: int) -> None:
        """Refuse results while a pulse still goes on; all ranks call this."""
        last = max(main_end(waveform) for waveform in self._waveforms)
        if not self._steady and step * self._dt < last:
            raise InputError(
                f"sources are still on at the end of the run, "
                f"{step * self._dt / self._speed:.4g}{self._time_unit}",
                remedy=f"run beyond {last / self._speed:.4g}{self._time_unit}, until the fields have died away",
            )

    def unfinished(self, fields: Array, step: int, last_step: int) -> list[str]:
        """Warnings about amplitudes that are not final at a step; all ranks call this."""
        if self._steady:
            shortest = (min(step * self._dt, self._end) - self._start) * self.frequencies.min()
            if step < last_step:
                return [
                    f"warning: far field: not final: the run ended at step {step} of {last_step}, "
                    "within the window that weights the samples of a sine"
                ]
            if shortest < _FEWEST_PERIODS:
                return [
                    f"warning: far field: not final: {shortest:.3g} periods of the lowest frequency "
                    f"lie between maxwell.far_field.start and the end; run {_FEWEST_PERIODS} periods or more"
                ]
            return []
        tails = self._tails(fields)
        worst = int(tails.argmax())
        if not tails[worst] > _LARGEST_TAIL:
            return []
        return [
            f"warning: far field at {self._names[worst]}: not final: the fields on "
            "the surface have not died away, and the end of the run cuts off about "
            f"{100 * tails[worst]:.3g} % of the amplitude (allowed: {100 * _LARGEST_TAIL:g} %); run "
            "longer"
        ]

    def _tails(self, fields: Array) -> Floats:
        """Part of each amplitude that the fields of now, cut off, stand for: |u| / (w |U|)."""
        # Fields pass through 0 within a period: the largest of some samples counts.
        latest = [*self._latest, fields[self._indices]]
        now = np.stack([self._device.to_host(values) for values in latest]).astype(np.float64)
        now = np.square(now).reshape(len(latest), -1, len(FIELD_NAMES))
        sums = np.square(np.abs(self._transform.transforms()))
        sums = sums.reshape(len(sums), -1, len(FIELD_NAMES))
        weights = self._on.weights
        halves = []
        for half in (slice(0, 3), slice(3, 6)):
            present = self._world.sum(now[..., half].sum(axis=2) @ weights).max()
            whole = self._world.sum(sums[..., half].sum(axis=2) @ weights)
            halves.append(np.sqrt(present / np.where(whole > 0, whole, 1.0)))
        return np.asarray(np.max(halves, axis=0) / (2 * np.pi * self.frequencies))

    def _amplitudes(self) -> tuple[Complexes, Complexes]:
        """E and H on the own part of the surface, (frequencies, points, 3)."""
        if not (np.abs(self._reference) > 0).all():
            raise InputError(
                "the far field has no samples: the run ended before maxwell.far_field.start, or "
                "before the waveform began",
                remedy="run longer",
            )
        amplitudes = self._transform.transforms() / self._reference[:, None]
        shaped = amplitudes.reshape(len(amplitudes), -1, len(FIELD_NAMES))
        return shaped[..., :3], shaped[..., 3:]

    def pattern(self, theta: ArrayLike, phi: ArrayLike) -> FarField:
        """The far field of all ranks in directions (rad), about the mesh's origin; 0 behind walls."""
        pattern = self._with_images(theta, phi)
        front = in_front(self.planes, pattern.theta, pattern.phi)
        return replace(
            pattern,
            electric_theta=np.where(front, pattern.electric_theta, 0.0),
            electric_phi=np.where(front, pattern.electric_phi, 0.0),
        )

    def _with_images(self, theta: ArrayLike, phi: ArrayLike) -> FarField:
        """The far field as if walls were not there, and their images were."""
        own = far_field(
            self._on,
            *self._amplitudes(),
            2 * np.pi * self.frequencies,
            theta,
            phi,
            permittivity=self._permittivity,
            permeability=self._permeability,
            planes=self.planes,
        )
        parts = np.stack([own.electric_theta, own.electric_phi])
        total = self._world.sum(parts.view(np.float64)).view(np.complex128)
        return replace(own, electric_theta=total[0], electric_phi=total[1])

    @property
    def incident(self) -> tuple[PlacedWave, Complexes] | None:
        """The one wave that comes in, and its amplitude at the origin; None: there is no such."""
        if len(self._waves) != 1 or self._currents:
            return None
        placed = self._waves[0]
        k = 2 * np.pi * self.frequencies * math.sqrt(self._permittivity * self._permeability)
        away = -float(placed.start @ placed.wave.unit_direction)
        size = float(np.linalg.norm(placed.wave.electric))
        return placed, np.asarray(size * np.exp(1j * k * away))

    @property
    def counts_the_wave(self) -> bool:
        """Whether the power through the surface holds an incident wave's as well."""
        return not self._scattered_alone

    def powers(self) -> Powers:
        """Powers and cross sections; all ranks call this."""
        flow = self._world.sum(power(self._on, *self._amplitudes()))
        of_pattern = self._power_of_pattern()
        scattering = extinction = None
        incident = self.incident
        if incident is not None:
            amplitude = incident[1]
            impedance = math.sqrt(self._permeability / self._permittivity)
            scattered = flow if self._scattered_alone else of_pattern
            if scattered is not None:
                scattering = scattering_cross_section(scattered, amplitude, impedance)
        if incident is not None and not self.planes:
            placed, amplitude = incident
            x, y, z = placed.wave.unit_direction
            forward = self.pattern(math.acos(min(1.0, max(-1.0, z))), math.atan2(y, x))
            unit = placed.wave.electric / np.linalg.norm(placed.wave.electric)
            extinction = extinction_cross_section(forward, amplitude, unit)
        return Powers(flow, of_pattern, self._dipole_alone(), scattering, extinction)

    def _power_of_pattern(self) -> Floats | None:
        points = self._on.points
        bounds = [self._world.largest(float(v)) for v in points.max(axis=0, initial=-math.inf)]
        lower = [-self._world.largest(-float(v)) for v in points.min(axis=0, initial=math.inf)]
        middle, half = (np.array(bounds) + lower) / 2, (np.array(bounds) - lower) / 2
        # Images lie as far behind each wall.
        depths = [middle @ p.direction - p.offset + half @ abs(p.direction) for p in self.planes]
        radius = math.hypot(*half, *depths)
        index = math.sqrt(self._permittivity * self._permeability)
        polar = math.ceil(2 * np.pi * float(self.frequencies.max()) * index * radius)
        polar += _MORE_THAN_SIZE
        if polar > _MOST_POLAR:
            return None
        theta, phi, solid = sphere_quadrature(polar)
        everywhere = (self._with_images(theta, phi).intensity * solid).sum(axis=(1, 2))
        return np.asarray(everywhere / 2 ** len(self.planes))

    def _dipole_alone(self) -> Floats | None:
        """Z k^2 |moment|^2 / (12 pi), Jackson eq. 9.24; 1 / Z for a magnetic one."""
        if self._waves or len(self._currents) != 1:
            return None
        dipole = self._currents[0]
        if not isinstance(dipole, PointDipole):
            return None
        impedance = math.sqrt(self._permeability / self._permittivity)
        k = 2 * np.pi * self.frequencies * math.sqrt(self._permittivity * self._permeability)
        square = float(np.sum(np.square(dipole.moment)))
        factor = 1 / impedance if dipole.magnetic else impedance
        return np.asarray(factor * k**2 * square / (12 * np.pi))
