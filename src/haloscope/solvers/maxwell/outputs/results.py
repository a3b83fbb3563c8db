"""Results of a Maxwell run: spectra and resonances at probes, the far field, and the balance of energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError, SolutionError, counted
from haloscope.io.figures.spectrum_pictures import prefixed, save_spectrum, write_columns
from haloscope.mesh.hexes.shared_meshes import bounds
from haloscope.numerics.spectrum import (
    FEWEST_PERIODS,
    SHORTEST,
    Resonance,
    Spectrum,
    resonances,
    spectrum,
)
from haloscope.solvers.interface import Results
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.elements import FIELD_NAMES
from haloscope.solvers.maxwell.meshes import SetUp
from haloscope.solvers.maxwell.outputs.radiation import Radiation
from haloscope.solvers.maxwell.terms.additions import sources_end

Floats = NDArray[np.float64]

_PADDING = 4
# A component below this part of the largest one is rounding.
_SILENT = 1e-9
# Peaks of a component in the summary, and of a probe on the screen: the strongest.
_MOST_PEAKS = 20
_MOST_LISTED = 3
# Peaks whose frequency is less certain than this part of it, or of the band's width where that is
# less, are fits to noise; those that fall to 1/e within a period (Q below pi) are pulses. They stand in
# the tables with their errors, not on the screen.
_SURE = 0.01
_OF_PEAKS = (
    *("frequency", "frequency_error", "quality", "quality_error", "decay_rate"),
    *("decay_rate_error", "amplitude", "phase"),
)
# The last part of a series, and the part of the largest value below which it has died away.
_LATE, _DIED_AWAY = 20, 0.01
# The picture and the table of the spectrum reach beyond the band by this part of its width.
_BEYOND = 0.1
# Times are equal if they differ by less than this part of a time step.
_SLACK = 1e-6


@dataclass(frozen=True)
class _Series:
    """Evenly spaced samples of the six fields at a probe, in the units of the case."""

    interval: float
    values: Floats


class ProbeSpectra:
    """Settings of a table [maxwell.spectrum]."""

    def __init__(self, case: MaxwellCase, dt: float, last_step: int, sources_end: float) -> None:
        table = case.maxwell.spectrum
        assert table is not None
        self._table, self._dt = table, dt
        self._last_step, self._sources_end = last_step, sources_end
        self._si = case.maxwell.units == "si"
        self._second, self._hertz = (" s", " Hz") if self._si else ("", "")
        self._natural = np.repeat([1.0, case.maxwell.impedance], 3)
        known = [probe.name for probe in case.output.probes]
        for name in table.probes:
            if name not in known:
                raise InputError(
                    f"there is no probe {name!r}",
                    location="maxwell.spectrum.probes",
                    allowed=", ".join(known) or "none, since the case has no probes",
                )
        if not known:
            raise InputError(
                "the case has no probe",
                location="maxwell.spectrum",
                remedy="add an [[output.probes]] table",
            )
        self._probes = list(table.probes) or known
        self._start = sources_end if table.start is None else table.start
        if math.isinf(self._start):
            raise InputError(
                "a source never ends",
                location="maxwell.spectrum",
                remedy="set maxwell.spectrum.start, the time from which the series at the probes count",
            )
        self._require_samples(case.output.probe_interval, last_step)

    def _require_samples(self, every: int, last_step: int) -> None:
        """Refuse a band that the probes' samples cannot resolve."""
        low, high = self._table.band
        interval = every * self._dt
        if high > 0.5 / interval:
            most = int(0.5 / (high * self._dt))
            remedy = f"set output.probe_interval to {most} or less" if most else "lower the band"
            raise InputError(
                f"output.probe_interval = {every} steps of {self._dt:.4g}{self._second} is too long for it",
                location=f"maxwell.spectrum.band = {[low, high]}",
                allowed=f"frequencies up to {0.5 / interval:.4g}{self._hertz}",
                remedy=remedy,
            )
        lasts = last_step * self._dt - self._start
        needed = max((SHORTEST + 1) * interval, FEWEST_PERIODS * 2 / (low + high))
        if lasts < needed:
            raise InputError(
                f"the series lasts {max(lasts, 0.0):.4g}{self._second}, from its start at "
                f"{self._start:.4g}{self._second} to the end of "
                f"the run at {last_step * self._dt:.4g}{self._second}",
                location="maxwell.spectrum",
                allowed=f"at least {needed:.4g}{self._second}, for the band and output.probe_interval",
                remedy="run longer or sample more often",
            )

    def finish(
        self,
        out: Path | None,
        probes: Mapping[str, Sequence[Sequence[float]]],
        title: str,
        step: int,
    ) -> Results:
        """Spectra and resonances of all probes at a step, and files where there is a folder."""
        notices = self._unfinished(step)
        summary: dict[str, Any] = {}
        files: dict[str, Path] = {}
        lines: list[str] = []
        for name in self._probes:
            try:
                series = self._series(probes[name])
                audible = self._audible(series)
                peaks = {
                    component: resonances(values, series.interval, self._table.band)
                    for component, values in audible.items()
                }
                spectra = {
                    component: spectrum(
                        values, series.interval, window=self._table.window, padding=_PADDING
                    )
                    for component, values in audible.items()
                }
                if out is not None:
                    files |= self._write(out, name, peaks, spectra, title)
            except (InputError, SolutionError) as error:
                # The run itself is good: its other results are kept.
                notices.append(f"warning: no spectrum at probe {name}: {error}")
                continue
            notices += self._cut_off(name, series)
            summary[name] = {key: _strongest(own) for key, own in peaks.items()}
            lines.append(self._headline_of(name, peaks, len(series.values) * series.interval))
        return Results({"spectrum": summary}, files, lines, notices)

    def _unfinished(self, step: int) -> list[str]:
        """Warnings of series that are shorter than planned, or of driven fields."""
        notices = []
        if step < self._last_step:
            notices.append(
                f"warning: spectra and resonances are not final: the run ended at step {step} of "
                f"{self._last_step}, so the series at the probes are shorter than planned"
            )
        if self._start < self._sources_end < math.inf:
            notices.append(
                f"warning: spectra and resonances count from {self._start:.4g}{self._second}, before the "
                f"sources end at {self._sources_end:.4g}{self._second}, so lines may come from the sources; raise "
                "maxwell.spectrum.start, or remove it"
            )
        return notices

    def _cut_off(self, probe: str, series: _Series) -> list[str]:
        """A warning where the spectrum without a window ends before the fields have died away."""
        if self._table.window != "none":
            return []
        heights = np.abs(series.values * self._natural).max(axis=1)
        late = heights[-max(1, len(heights) // _LATE) :].max()
        share = float(late / heights.max()) if heights.max() > 0 else 0.0
        if share <= _DIED_AWAY:
            return []
        return [
            f"warning: spectrum at probe {probe}: not final: at the end the fields are still at "
            f"{100 * share:.3g} % of their largest value, and the window 'none' cuts them off; run "
            "longer, or set window = 'fade'"
        ]

    def _series(self, rows: Sequence[Sequence[float]]) -> _Series:
        table = np.array(rows, np.float64).reshape(-1, 2 + len(FIELD_NAMES))
        table = table[table[:, 1] >= self._start - _SLACK * self._dt]
        steps = np.diff(table[:, 0])
        if len(steps) < SHORTEST:
            raise InputError(
                f"the series has {len(table)} samples from {self._start:.4g} on",
                allowed=f"at least {SHORTEST + 1}",
                remedy="run longer",
            )
        if (steps != steps[0]).any():
            raise InputError(
                "the samples are not evenly spaced, since output.probe_interval changed at a restart",
                remedy="start again without --restart, or raise maxwell.spectrum.start",
            )
        return _Series(float(steps[0]) * self._dt, table[:, 2:])

    def _audible(self, series: _Series) -> dict[str, Floats]:
        """Components that are more than rounding."""
        heights = np.abs(series.values * self._natural).max(axis=0)
        if not np.isfinite(heights).all():
            raise SolutionError(
                "values at the probe are not finite",
                remedy="look for the place where the solution broke",
            )
        return {
            name: series.values[:, number]
            for number, name in enumerate(FIELD_NAMES)
            if heights[number] > _SILENT * heights.max()
        }

    def _frequency_text(self, peak: Resonance, digits: int) -> str:
        if not self._si:
            return f"{peak.frequency:.{digits}g}"
        return prefixed(peak.frequency, "Hz", digits)

    def _by_strength(
        self, resonances: Mapping[str, list[Resonance]], duration: float
    ) -> list[tuple[str, Resonance]]:
        """Peaks of all components with a small error, the strongest first; each frequency once."""
        factors = dict(zip(FIELD_NAMES, self._natural, strict=True))
        peaks = [
            (name, peak) for name, peaks in resonances.items() for peak in peaks if self._sure(peak)
        ]
        peaks.sort(key=lambda entry: -entry[1].amplitude * factors[entry[0]])
        chosen: list[tuple[str, Resonance]] = []
        for name, peak in peaks:
            if all(abs(peak.frequency - other.frequency) > 0.5 / duration for _, other in chosen):
                chosen.append((name, peak))
        return chosen

    def _sure(self, peak: Resonance) -> bool:
        low, high = self._table.band
        certain = peak.frequency_error <= _SURE * min(peak.frequency, high - low)
        return certain and abs(peak.decay_rate) < peak.frequency

    def _headline_of(
        self, probe: str, resonances: Mapping[str, list[Resonance]], duration: float
    ) -> str:
        strongest = self._by_strength(resonances, duration)[:_MOST_LISTED]
        unsure = sum(not self._sure(peak) for peaks in resonances.values() for peak in peaks)
        left_out = ""
        if unsure:
            left_out = (
                f"; {counted(unsure, 'line')} left out, uncertain by more than {100 * _SURE:g} % "
                f"or with Q below 3 (see resonances-{probe}.csv)"
            )
        if not strongest:
            return f"probe {probe}: no resonance in the band{left_out}"
        line = ", ".join(
            f"{self._frequency_text(peak, 7)} ({name}, {_quality_text(peak) or 'no decay seen'})"
            for name, peak in strongest
        )
        return f"probe {probe} rings at {line}{left_out}"

    def _write(
        self,
        out: Path,
        probe: str,
        resonances: Mapping[str, list[Resonance]],
        spectra: Mapping[str, Spectrum],
        title: str,
    ) -> dict[str, Path]:
        paths = {
            f"spectrum {probe}": out / f"spectrum-{probe}.csv",
            f"resonances {probe}": out / f"resonances-{probe}.csv",
            f"spectrum picture {probe}": out / f"spectrum-{probe}.png",
        }
        table, peaks_table, picture = paths.values()
        self._write_resonances(peaks_table, resonances)
        if not spectra:
            return {f"resonances {probe}": peaks_table}
        every = next(iter(spectra.values())).frequencies
        low, high = self._table.band
        margin = _BEYOND * (high - low)
        band = (every >= low - margin) & (every <= high + margin)
        shown = every[band]
        hz, per = ("_Hz", "per_Hz") if self._si else ("", "")
        columns: dict[str, Any] = {f"frequency{hz}": shown}
        for name, curve in spectra.items():
            unit = f"_{_unit_of(name)}_{per}".rstrip("_") if self._si else ""
            columns[f"{name}{unit}"] = curve.values[band]
        note = (
            f"integral of field exp(+2 pi i f t) dt from the time {self._start:.8g}, "
            f"window {self._table.window}"
        )
        write_columns(table, columns, note)
        kind = "E" if any(name[0] == "E" for name in spectra) else "H"
        duration = 1 / float(every[1]) / _PADDING
        own = {name: peaks for name, peaks in resonances.items() if name[0] == kind}
        unit = f" ({_unit_of(kind).replace('_per_', '/')}/Hz)" if self._si else ""
        save_spectrum(
            picture,
            frequencies=shown,
            series={
                name: spectrum.magnitude[band]
                for name, spectrum in spectra.items()
                if name[0] == kind
            },
            ylabel=f"|{kind}|{unit}",
            title=f"Spectrum at probe {probe}",
            subtitle=title,
            peaks=[
                (peak.frequency, f"{self._frequency_text(peak, 4)} {_quality_text(peak)}".rstrip())
                for _, peak in self._by_strength(own, duration)
            ],
            unit="Hz" if self._si else "1/m",
        )
        return paths

    def _write_resonances(self, path: Path, resonances: Mapping[str, list[Resonance]]) -> None:
        rows = [(name, peak) for name, peaks in resonances.items() for peak in peaks]
        hz, per_s = ("_Hz", "_per_s") if self._si else ("", "")
        units = {"frequency": hz, "decay_rate": per_s, "phase": "_rad"}
        columns = {"component": np.array([name for name, _ in rows], dtype=str)}
        for key in _OF_PEAKS:
            unit = units.get(key.removesuffix("_error"), "")
            columns[f"{key}{unit}"] = np.array([getattr(peak, key) for _, peak in rows])
        note = (
            "amplitude exp(-decay_rate s) cos(2 pi frequency s + phase), s counted from the time "
            f"{self._start:.8g}"
        )
        write_columns(path, columns, f"{note}; amplitudes in V/m and A/m" if self._si else note)


def _unit_of(component: str) -> str:
    return "V_per_m" if component[0] == "E" else "A_per_m"


def _quality_text(peak: Resonance) -> str:
    """The quality factor where a decay is seen."""
    if peak.decay_rate <= 2 * peak.decay_rate_error:
        return ""
    return f"Q = {peak.quality:.4g}"


def _strongest(peaks: Sequence[Resonance]) -> list[dict[str, float | None]]:
    """The strongest peaks by frequency, as JSON holds them."""
    chosen = sorted(peaks, key=lambda peak: -peak.amplitude)[:_MOST_PEAKS]
    return [
        {key: value if math.isfinite(value := getattr(peak, key)) else None for key in _OF_PEAKS}
        for peak in sorted(chosen, key=lambda peak: peak.frequency)
    ]


# Growth of the energy that is warned of: by rounding and the method's own oscillations it is less;
# media with memory and absorbing layers give energy back to the fields.
_DOUBTFUL, _DOUBTFUL_WITH_MEMORY = 1.01, 4.0
# Below this part of what the sources have given, energy is rounding.
_ROUNDING = 1e-9
# Growth at which a run is given up: after the sources, and while time doubles under sources that never
# end. The latter is warned of from _UNSTABLE on: fields grow in proportion to time at most, as in a
# cavity at its resonance.
_UNSTABLE, _UNSTABLE_IF_DRIVEN = 100.0, 1e4
# Energies before that such growth is counted from: a single one may be that of a beat's node.
_FEWEST_SAMPLES = 4
_REMEDY = (
    'set maxwell.curl = "covariant" and flux = "upwind", lower maxwell.cfl, or repair the mesh'
)


class EnergyBalance:
    """Follows the energy of a run."""

    def __init__(
        self, sources_end: float, *, memory: bool, driven: bool = False, steady_from: float = 0.0
    ) -> None:
        self._sources_end = sources_end
        self._driven, self._steady_from = driven, steady_from
        self._octaves: dict[int, tuple[int, float]] = {}
        self._latest, self._largest = 0.0, 0.0
        self._doubtful = _DOUBTFUL_WITH_MEMORY if memory else _DOUBTFUL
        self._largest_before = 0.0
        self._first = math.nan
        self._least = math.inf
        self._growth = 1.0

    def add(self, time: float, energy: float) -> None:
        """Take the energy at a time; times ascend."""
        self._latest, self._largest = time, max(self._largest, energy)
        if math.isinf(self._sources_end) and time > 0 and time >= self._steady_from:
            octave = math.floor(math.log2(time / (self._steady_from or 1.0)))
            count, largest = self._octaves.get(octave, (0, 0.0))
            self._octaves[octave] = (count + 1, max(largest, energy))
            growth = self._growth_of_octaves()
            if growth > _UNSTABLE_IF_DRIVEN:
                raise SolutionError(
                    f"the solution is unstable: the energy has grown by a factor of {growth:.3g} while time "
                    "doubled",
                    allowed="a factor of 4 at most with steady sources",
                )
        if time < self._sources_end:
            self._largest_before = max(self._largest_before, energy)
            return
        if math.isnan(self._first):
            self._first = energy
        reference = max(self._first, self._largest_before)
        self._least = min(self._least, max(energy, _ROUNDING * reference))
        if self._least > 0:
            self._growth = max(self._growth, energy / self._least)
        if reference > 0 and energy > _UNSTABLE * reference:
            raise SolutionError(
                f"the solution is unstable: the energy has grown to {energy / reference:.3g} times its value "
                "when the sources ended, though nothing drives the fields"
            )

    def _growth_of_octaves(self) -> float:
        """Largest energy while time doubles over the largest before, where that is of some samples."""
        growth, before, count = 0.0, 0.0, 0
        for octave in sorted(self._octaves):
            samples, largest = self._octaves[octave]
            if count >= _FEWEST_SAMPLES and before > 0:
                growth = max(growth, largest / before)
            before, count = max(before, largest), count + samples
        return growth

    def warnings(self) -> list[str]:
        """A line where the energy has grown, or stayed 0 in spite of sources."""
        if self._driven and self._latest > 0 and self._largest == 0:
            return [
                "warning: the energy is 0 at all times, so the sources radiate nothing; check their moments "
                "and densities"
            ]
        growth = self._growth_of_octaves()
        if growth > _UNSTABLE:
            return [
                f"warning: the solution is unstable: the energy grows by a factor of {growth:.4g} while time "
                f"doubles (at most 4 with steady sources); {_REMEDY}"
            ]
        if self._growth <= self._doubtful:
            return []
        return [
            f"warning: the solution is unstable: the energy has grown by a factor of {self._growth:.4g} "
            f"after the sources ended, though nothing drives the fields; {_REMEDY}"
        ]


class RunResults:
    """Spectra at probes and the far field, where the case asks for them."""

    def __init__(self, case: MaxwellCase, set_up: SetUp) -> None:
        self._case, self._world = case, set_up.world
        world, added = set_up.world, set_up.added
        product = (added.permittivity * added.permeability).max(initial=0.0)
        slowness = math.sqrt(world.largest(float(product)))
        lower, upper = bounds(world, set_up.part.mesh.coordinates)
        self.across = slowness * float(np.linalg.norm(upper - lower))
        """Longest time in which a wave crosses the mesh."""
        self._spectra: ProbeSpectra | None = None
        self.radiation: Radiation | None = None
        """The far field; None where none is asked for."""
        self.notices: list[str] = []
        """Warnings of the set-up."""
        if case.maxwell.far_field is not None:
            self.radiation = Radiation(case.maxwell, set_up)
            self.notices += self.radiation.notices

    def set_step(self, dt: float, last_step: int) -> None:
        """Know the time step, in the units of the case, and where the run ends."""
        table = self._case.maxwell
        self._last_step = last_step
        if table.spectrum is not None:
            _, currents, waves = table.additions()
            ends = sources_end(currents, waves, self.across) / table.speed
            self._spectra = ProbeSpectra(self._case, dt, last_step, ends)
        if self.radiation is not None:
            self.radiation.set_step(dt * table.speed, last_step)

    def advance(self, step: int, count: int, take: Callable[[int], None], fields: Array) -> None:
        """Take steps, with stops for samples."""
        if self.radiation is None:
            take(count)
            return
        interval, end = self.radiation.interval, step + count
        while step < end:
            target = min(end, (step // interval + 1) * interval)
            take(target - step)
            step = target
            if step % interval == 0:
                self.radiation.sample(fields, step)

    def finish(
        self,
        out: Path | None,
        probes: Mapping[str, Sequence[Sequence[float]]],
        fields: Array,
        step: int,
    ) -> Results:
        """See :class:`haloscope.solvers.interface.Solver`; with the fields and steps at the end."""
        results = []
        title = self._case.title
        if self._spectra is not None:
            folder = out if self._world.is_root else None
            results.append(self._spectra.finish(folder, probes, title, step))
        if self.radiation is not None:
            title = title or "Far field"
            results.append(self.radiation.finish(out, fields, step, self._last_step, title))
        return Results.joined(results)
