"""The far field of a run: sums taken on a surface while it goes on; patterns, powers and files at its end.

The transforms of the fields are divided by that of a waveform over the same samples, with the same
weights. So amplitudes are those of the steady state in which this waveform has the amplitude 1,
be it a pulse or a sine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.plan import all_rows
from haloscope.io.figures.spectrum_pictures import prefixed, save_pattern, write_columns
from haloscope.mesh.hexes.shared_meshes import bounds
from haloscope.numerics.spectrum import RunningTransform
from haloscope.solvers.interface import Results, saved_numbers
from haloscope.solvers.maxwell.case import MaxwellTable
from haloscope.solvers.maxwell.elements import FIELD_NAMES
from haloscope.solvers.maxwell.meshes import SetUp
from haloscope.solvers.maxwell.outputs.far_field import (
    FarField,
    extinction_cross_section,
    far_field,
    in_front,
    power,
    scattering_cross_section,
    sphere_quadrature,
    surface,
)
from haloscope.solvers.maxwell.outputs.radiation_surface import RadiationSurface
from haloscope.solvers.maxwell.terms.sources import PlaneWave, PointDipole
from haloscope.solvers.maxwell.terms.waveforms import RampedSine, span_of

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
# Most curves of the picture, and most frequencies that a message lists.
_MOST_CURVES = 6
_MOST_LISTED = 3
# Difference of the power through the surface and that of the pattern above which both are doubted.
_POWERS_APART = 0.05
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


class Radiation:
    """Settings of a table [maxwell.far_field]."""

    def __init__(self, table: MaxwellTable, set_up: SetUp) -> None:
        assert table.far_field is not None
        self._table, self._wanted, self._speed = table, table.far_field, table.speed
        self._second, self._watt = (" s", " W") if table.units == "si" else ("", "")
        # Frequencies with their unit; natural ones have none.
        self._names = [
            prefixed(one, "Hz") if table.units == "si" else f"{one:.6g}"
            for one in table.far_field.frequencies
        ]
        self._world, self._device = set_up.world, set_up.device
        part, places = set_up.part, set_up.places
        _, self._currents, _ = table.additions()
        drives = set_up.added.drives
        self._waves = [(d.source, d.place) for d in drives if isinstance(d.source, PlaneWave)]
        sources = (*(wave for wave, _ in self._waves), *self._currents)
        # The first has the amplitude 1.
        self._waveforms = [source.waveform for source in sources]
        self._scattered_alone = not any(wave.boundaries for wave, _ in self._waves)
        around = RadiationSurface(table, set_up)
        self.notices = around.notices
        """Warnings about the surface, a line each."""
        self.planes = around.planes
        """Walls at which the surface ends; images stand for them."""
        self._permittivity, self._permeability = around.permittivity, around.permeability
        # All faces in the order of the whole mesh, and who has them.
        faces = around.faces
        faces = faces[np.lexsort((faces[:, 1], part.elements[faces[:, 0]]))]
        rank = np.full(len(faces), self._world.rank)
        known = np.stack([part.elements[faces[:, 0]], faces[:, 1], rank], axis=1)
        everywhere = all_rows(self._world, known)
        everywhere = everywhere[np.lexsort((everywhere[:, 1], everywhere[:, 0]))]
        self._faces, self._owners = everywhere[:, :2], everywhere[:, 2]
        order = places.shape[1] - 1
        self._on = surface(part.mesh, order, faces, places=places, from_outside=around.outside)
        self._indices = self._device.from_host(self._on.indices(len(FIELD_NAMES)).ravel())
        self.frequencies = np.array(self._wanted.frequencies) / table.speed
        """In oscillations a unit of length."""
        self._impedance = math.sqrt(self._permeability / self._permittivity)
        index = math.sqrt(self._permittivity * self._permeability)
        self._wavenumbers = 2 * np.pi * self.frequencies * index

    # Samples

    def set_step(self, dt: float, last_step: int) -> None:
        """Choose when samples are taken, and forget what there is."""
        top = float(self.frequencies.max())
        content = max(span_of(waveform).highest_frequency for waveform in self._waveforms)
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
        ends = last_step if self._steady else math.ceil(span_of(self._waveforms[0]).end / self._dt)
        self.leaves_charges = False
        if ends > _MOST_STEPS:
            return
        steps = np.arange(self.interval, max(ends, self.interval) + 1, self.interval)
        times = steps[steps * self._dt >= self._start] * self._dt
        values = self._weight(times) * self._waveforms[0](times)
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
        self._reference += weight * float(self._waveforms[0](t)) * phases

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
        if "far_field_sums" not in extras:
            if step * self._dt <= max(self._start, self.interval * self._dt):
                return
            raise InputError(
                "it holds no far field, which this case computes from "
                f"{self._start / self._speed:g} on",
                location="checkpoint",
                remedy="start again without --restart, or raise maxwell.far_field.start",
            )
        faces, settings = (np.asarray(extras.get(f"far_field_{n}")) for n in ("faces", "settings"))
        wanted = self._settings()
        alike = np.array_equal(faces, self._faces) and settings.shape == wanted.shape
        alike = alike and settings.dtype.kind == "f"
        if alike and not self._steady:
            # Without a window it is no matter where the run ends.
            wanted[2] = settings[2]
        if not alike or not np.allclose(settings, wanted, rtol=1e-12):
            raise InputError(
                "its far field is of another surface, other frequencies, samples or times",
                location="checkpoint",
                remedy="restart with the [maxwell.far_field] that wrote it, or start again without --restart",
            )
        shape = len(self._faces), 2 * len(self.frequencies), None
        whole = saved_numbers(extras, "far_field_sums", shape)
        taken = saved_numbers(extras, "far_field_taken", (2,))
        rows = whole[self._owners == self._world.rank]
        sums = np.moveaxis(rows, 0, 1).reshape(2 * len(self.frequencies), -1)
        self._transform.restore({"sums": np.ascontiguousarray(sums), "taken": taken})
        reference = np.asarray(extras.get("far_field_reference"))
        parts = {"far_field_reference": np.array([reference.real, reference.imag])}
        saved_numbers(parts, "far_field_reference", (2, len(self.frequencies)))
        self._reference = np.array(reference, complex)

    # Results

    def _require_ended(self, step: int) -> None:
        """Refuse results while a pulse still goes on; all ranks call this."""
        last = max(span_of(waveform).main_end for waveform in self._waveforms)
        if not self._steady and step * self._dt < last:
            raise InputError(
                f"sources are still on at the end of the run, "
                f"{step * self._dt / self._speed:.4g}{self._second}",
                remedy=f"run beyond {last / self._speed:.4g}{self._second}, until the fields have died away",
            )

    def _unfinished(self, fields: Array, step: int, last_step: int) -> list[str]:
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
    def incident(self) -> tuple[PlaneWave, Complexes] | None:
        """The one wave that comes in, and its amplitude at the origin; None: there is no such."""
        if len(self._waves) != 1 or self._currents:
            return None
        wave, start = self._waves[0]
        away = -float(start @ wave.unit_direction)
        size = float(np.linalg.norm(wave.electric))
        return wave, np.asarray(size * np.exp(1j * self._wavenumbers * away))

    def powers(self) -> Powers:
        """Powers and cross sections; all ranks call this."""
        flow = self._world.sum(power(self._on, *self._amplitudes()))
        of_pattern = self._power_of_pattern()
        scattering = extinction = None
        incident = self.incident
        if incident is not None:
            amplitude = incident[1]
            scattered = flow if self._scattered_alone else of_pattern
            if scattered is not None:
                scattering = scattering_cross_section(scattered, amplitude, self._impedance)
        if incident is not None and not self.planes:
            wave, amplitude = incident
            x, y, z = wave.unit_direction
            forward = self.pattern(math.acos(min(1.0, max(-1.0, z))), math.atan2(y, x))
            unit = wave.electric / np.linalg.norm(wave.electric)
            extinction = extinction_cross_section(forward, amplitude, unit)
        return Powers(flow, of_pattern, self._dipole_alone(), scattering, extinction)

    def _power_of_pattern(self) -> Floats | None:
        lower, upper = bounds(self._world, self._on.points)
        middle, half = (upper + lower) / 2, (upper - lower) / 2
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
        square = float(np.sum(np.square(dipole.moment)))
        factor = 1 / self._impedance if dipole.magnetic else self._impedance
        return np.asarray(factor * self._wavenumbers**2 * square / (12 * np.pi))

    # Output

    def finish(
        self, out: Path | None, fields: Array, step: int, last_step: int, title: str
    ) -> Results:
        """The far field, with files where there is a folder; all ranks call this."""
        unfinished: list[str] = []
        try:
            self._require_ended(step)
            # Fields of charges stay, however long a run is: they have a line of their own.
            if not self.leaves_charges:
                unfinished = self._unfinished(fields, step, last_step)
            results = self._results(out, title)
        except (InputError, SolutionError) as error:
            # The run itself is good: its other results are kept.
            notices = [*unfinished, f"warning: no far field: {error}"]
            return Results({"far_field": []}, notices=notices)
        return replace(results, notices=[*unfinished, *results.notices])

    def _results(self, out: Path | None, title: str) -> Results:
        theta, phi = np.linspace(0, np.pi, self._wanted.theta), np.radians(self._wanted.phi)
        # The second half goes round behind, for the picture.
        field = self.pattern(theta[:, None], np.concatenate([phi, phi + np.pi]))
        powers, incident = self.powers(), self.incident
        if incident is not None:
            values = field.cross_section(incident[1])
            quantity, label = "cross_section", "cross section (dB m²)"
        else:
            values = field.directivity(powers.radiated)
            quantity, label = "directivity", "directivity (dBi)"
        summary = self._summary(powers, values[:, :, : len(phi)], theta, phi, quantity)
        files: dict[str, Path] = {}
        if out is not None:
            files = {"far field": out / "far-field.csv", "far field picture": out / "far-field.png"}
            if self._world.is_root:
                self._write_table(files["far field"], field, values, quantity)
                self._draw(files["far field picture"], theta, values, label, title)
        # With a wave's own field on the surface the power through it is that of both.
        notices = self.differing_powers(powers) if self._scattered_alone else []
        if self.leaves_charges:
            notices.insert(
                0,
                "warning: far field: the integral of the current over time is not 0, so charges remain and their "
                "field disturbs the far field; use a waveform without a mean, for example ricker",
            )
        return Results({"far_field": summary}, files, self._lines(summary), notices)

    def differing_powers(self, powers: Powers) -> list[str]:
        """A warning where the surface and the pattern disagree about the power."""
        if powers.of_pattern is None:
            return [
                "far field: the power of the pattern is not computed, since the surface is too many "
                "wavelengths wide; the radiated power is not checked"
            ]
        largest = np.maximum(np.abs(powers.radiated), powers.of_pattern)
        apart = np.abs(powers.radiated - powers.of_pattern) / np.where(largest > 0, largest, 1.0)
        at = int(apart.argmax())
        if not apart[at] > _POWERS_APART:
            return []
        impedance = self._table.impedance
        return [
            f"warning: far field at {self._names[at]}: the power "
            f"through the surface, {powers.radiated[at] / impedance:.4g}, and the power of the pattern, "
            f"{powers.of_pattern[at] / impedance:.4g}, differ by {100 * apart[at]:.3g} % (allowed: "
            f"{100 * _POWERS_APART:g} %); run until the fields have died away, refine the mesh, or look "
            "for sources and reflecting bodies outside the surface"
        ]

    def _summary(
        self, powers: Powers, values: Floats, theta: Floats, phi: Floats, quantity: str
    ) -> list[dict[str, Any]]:
        """A row for each frequency, in the units of the case."""
        if self.incident is not None:
            known = {
                "extinction_cross_section": powers.extinction,
                "scattering_cross_section": powers.scattering,
            }
        else:
            watts = {
                "radiated_power": powers.radiated,
                "power_of_pattern": powers.of_pattern,
                "power_of_dipole_alone": powers.dipole_alone,
            }
            known = {k: v if v is None else v / self._table.impedance for k, v in watts.items()}
        rows = []
        for number, frequency in enumerate(self._wanted.frequencies):
            row: dict[str, Any] = {"frequency": frequency}
            row |= {name: float(of[number]) for name, of in known.items() if of is not None}
            here = values[number]
            at = np.unravel_index(int(here.argmax()), here.shape)
            row[f"largest_{quantity}"] = float(here[at])
            row["at_theta"] = math.degrees(theta[at[0]])
            row["at_phi"] = math.degrees(phi[at[1]])
            rows.append(row)
        return rows

    def _lines(self, rows: list[dict[str, Any]]) -> list[str]:
        watt, area = self._watt, " m²"
        lines = []
        for row, name in zip(rows[:_MOST_LISTED], self._names, strict=False):
            said = [f"far field at {name}:"]
            if "radiated_power" in row:
                said.append(f"radiated power {row['radiated_power']:.6g}{watt}")
                if "power_of_dipole_alone" in row:
                    said.append(f"(a dipole alone: {row['power_of_dipole_alone']:.6g}{watt}),")
                largest = row["largest_directivity"]
                said.append(f"directivity {largest:.5g} ({10 * math.log10(largest):.2f} dBi)")
            else:
                if "scattering_cross_section" in row:
                    said.append(
                        f"cross sections: scattering {row['scattering_cross_section']:.5g},"
                    )
                if "extinction_cross_section" in row:
                    said.append(f"extinction {row['extinction_cross_section']:.5g}{area},")
                said.append(f"largest bistatic {row['largest_cross_section']:.5g}{area}")
            said.append(f"at theta {row['at_theta']:g}°, phi {row['at_phi']:g}°")
            lines.append(" ".join(said))
        if len(rows) > _MOST_LISTED:
            lines.append(
                f"far field at {len(rows) - _MOST_LISTED} more frequencies: see summary.json"
            )
        return lines

    def _write_table(self, path: Path, field: FarField, values: Floats, quantity: str) -> None:
        table, wanted = self._table, self._wanted
        cuts = len(wanted.phi)
        shape = (len(wanted.frequencies), wanted.theta, cuts)
        frequency = np.array(wanted.frequencies)[:, None, None]
        theta = np.linspace(0, 180, wanted.theta)[:, None]
        si = table.units == "si"
        hz, volt, watt, area = ("_Hz", "_V", "_W_per_sr", "_m2") if si else ("", "", "", "")
        columns = {
            f"frequency{hz}": np.broadcast_to(frequency, shape),
            "theta_degrees": np.broadcast_to(theta, shape),
            "phi_degrees": np.broadcast_to(np.array(wanted.phi), shape),
            f"E_theta{volt}": field.electric_theta[:, :, :cuts],
            f"E_phi{volt}": field.electric_phi[:, :, :cuts],
            f"intensity{watt}": field.intensity[:, :, :cuts] / table.impedance,
            f"{quantity}{area if quantity == 'cross_section' else ''}": values[:, :, :cuts],
        }
        write_columns(
            path,
            columns,
            "E = (E_theta, E_phi) exp(i k r) / r for fields as exp(-i w t), r from the origin of the "
            "mesh,\nwhere the waveform has the amplitude 1",
        )

    def _draw(self, path: Path, theta: Floats, values: Floats, label: str, title: str) -> None:
        table, wanted = self._table, self._wanted
        cuts = len(wanted.phi)
        curves: dict[str, Floats] = {}
        for number, frequency in enumerate(wanted.frequencies):
            for cut, angle in enumerate(wanted.phi):
                behind = values[number, :0:-1, cuts + cut]
                name = f"phi = {angle:g}°"
                if len(wanted.frequencies) > 1:
                    hertz = prefixed(frequency, "Hz") if table.units == "si" else f"{frequency:.4g}"
                    name = f"{hertz}, {name}"
                curves[name] = np.concatenate([behind, values[number, :, cut]])
        shown = dict(list(curves.items())[:_MOST_CURVES])
        left = len(curves) - len(shown)
        save_pattern(
            path,
            angles=np.concatenate([-theta[:0:-1], theta]),
            series=shown,
            label=label,
            title=title,
            subtitle="angle theta" + (f"; {left} more curves in the table" if left else ""),
        )
