"""Spectra of evenly sampled series, and the damped oscillations that they are made of.

`spectrum` is the windowed Fourier transform. `resonances` finds frequencies and quality factors
far below the resolution of that, by harmonic inversion: the series is taken for a sum
v(t) = sum of A exp(-a t) cos(2 pi f t + phase), and f, a, A and the phase are fitted.

Times, frequencies and rates are in one system of units, such as s, Hz and 1/s.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, SolutionError
from haloscope.numerics.matrix_pencil import Exponentials, fit_exponentials

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

WINDOWS = ("none", "hann", "fade")
SHORTEST = 32
"""Fewest samples that are inverted."""
FEWEST_PERIODS = 2.0
"""Of the band's middle frequency, that a series must hold to be inverted."""

# Samples of a filtered band: so many are fitted at once.
_SAMPLES_AT_ONCE = 256
# The filter lets pass this part of the band that its own sampling holds.
_PASSED = 0.7
# Attenuation in dB outside, so that what lies there and appears elsewhere is below rounding.
_ATTENUATION = 160.0
_ROWS_AT_ONCE = 64
# A part whose samples are all below this part of what is looked for holds nothing.
_SILENT = 0.01
# A mode that decays by more e-folds than this within the series is hidden by the filter; it is
# looked for at the beginning of the series, the first of so many parts.
_MOST_FOLDS = 20.0
_SHORTER = 4
# Results of two fits are the same mode if they differ by less than this part of the resolution,
# or by three standard deviations up to half of it.
_SAME, _SAME_AT_MOST = 0.05, 0.5


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Fourier transform of a series."""

    frequencies: Floats  # From 0 to half the sampling rate, evenly
    # Complex: the integral of window(t) v(t) exp(+2 pi i f t) dt over the mean of the window, t
    # from the first sample. For v in V/m and t in s it is in V/m/Hz. A negative frequency has the
    # complex conjugate; nothing is doubled to account for it.
    values: Complexes

    @property
    def magnitude(self) -> Floats:
        """Absolute values, such as in V/m/Hz."""
        return np.abs(self.values)


@dataclass(frozen=True)
class Resonance:
    """A damped oscillation A exp(-a t) cos(2 pi f t + phase), t from the first sample."""

    frequency: float  # f
    decay_rate: float  # a; negative where the oscillation grows
    amplitude: float  # A > 0, at the first sample
    phase: float  # In rad, from -pi to pi
    # Standard deviations as the misfit of the fit tells them; a rough measure.
    frequency_error: float
    decay_rate_error: float

    @property
    def quality(self) -> float:
        """Q = pi f / a, inf without decay; of either sign where a is within its error."""
        return math.pi * self.frequency / self.decay_rate if self.decay_rate else math.inf

    @property
    def quality_error(self) -> float:
        """Standard deviation of Q."""
        if not self.decay_rate:
            return math.inf
        parts = (self.decay_rate_error / self.decay_rate, self.frequency_error / self.frequency)
        return abs(self.quality) * math.hypot(*parts)


def spectrum(
    values: ArrayLike, interval: float, *, window: str = "none", padding: int = 1
) -> Spectrum:
    """Fourier transform of a series.

    `values`: (samples,) real.
    """
    series = _checked(values, interval, 2)
    if window not in WINDOWS:
        raise InputError(f"spectrum: given the window {window!r}; allowed are {', '.join(WINDOWS)}")
    if padding < 1:
        raise InputError(f"spectrum: given padding {padding}; allowed are 1 and above")
    place = np.arange(len(series)) / (len(series) - 1)
    shapes = {
        "none": np.ones(len(series)),
        "hann": np.sin(np.pi * place) ** 2,
        "fade": np.cos(np.pi / 2 * place) ** 2,
    }
    factors = shapes[window] / shapes[window].mean()
    length = padding * len(series)
    # NumPy's transform has exp(-i w t); the series is real.
    return Spectrum(
        np.asarray(np.fft.rfftfreq(length, interval), np.float64),
        interval * np.fft.rfft(factors * series, length).conj(),
    )


def resonances(
    values: ArrayLike,
    interval: float,
    band: tuple[float, float],
    *,
    least: float = 1e-6,
) -> list[Resonance]:
    """Damped oscillations in a band, by harmonic inversion of the filtered series.

    `values`: (samples,) real; `least`: oscillations of less than this part of the largest absolute
    value are left out.
    """
    # The band is cut into such parts that each, filtered and thinned out, has some 250 samples; a
    # filter leaves a sum of exponentials one, with known factors. Each is inverted by
    # `haloscope.numerics.matrix_pencil.fit_exponentials`. To cut the band is the idea of M. R.
    # Wall, D. Neuhauser, J. Chem. Phys. 102 (1995) 8011. Modes that die early are looked for in
    # shorter beginnings of the series.
    #
    # Give the series from where the source has ended.
    series = _checked(values, interval, SHORTEST)
    low, high = band
    if not 0 <= low < high <= 0.5 / interval:
        raise InputError(
            f"harmonic inversion: given the band {low:g} to {high:g}; allowed is one within 0 to "
            f"{0.5 / interval:g}, half the sampling rate: sample more often or correct the band"
        )
    duration, needed = len(series) * interval, FEWEST_PERIODS * 2 / (low + high)
    if duration < needed:
        raise InputError(
            f"harmonic inversion: the series lasts {duration:g}; the band {low:g} to {high:g} "
            f"needs at least {needed:g} ({FEWEST_PERIODS:g} periods): run longer"
        )
    weakest = least * float(np.abs(series).max())
    peaks: list[Resonance] = []
    slowest = -math.inf
    while len(series) >= SHORTEST:
        thinning = max(1, len(series) // _SAMPLES_AT_ONCE)
        duration = len(series) * interval
        fastest = _MOST_FOLDS / duration if thinning > 1 else math.inf
        decays = (slowest, fastest)
        for part in _parts(band, _PASSED / (thinning * interval) if thinning > 1 else math.inf):
            new = _of_part(series, interval, part, thinning, weakest)
            peaks += [
                peak
                for peak in new
                if decays[0] <= peak.decay_rate < decays[1]
                and low <= peak.frequency <= high
                and not any(_same(peak, known, duration) for known in peaks)
            ]
        if thinning == 1:
            break
        series, slowest = series[: len(series) // _SHORTER], 0.9 * fastest
    return sorted(peaks, key=lambda peak: peak.frequency)


def _parts(band: tuple[float, float], width: float) -> list[tuple[float, float]]:
    """Equal parts of a band, none wider than `width`."""
    count = max(1, math.ceil((band[1] - band[0]) / width))
    edges = np.linspace(*band, count + 1).tolist()
    return list(itertools.pairwise(edges))


def _same(one: Resonance, other: Resonance, duration: float) -> bool:
    errors = 3 * (one.frequency_error + other.frequency_error) * duration
    within = min(max(_SAME, errors), _SAME_AT_MOST) / duration
    apart = (one.decay_rate - other.decay_rate) / (2 * math.pi)
    return abs(one.frequency - other.frequency) < within and abs(apart) < within


def _checked(values: ArrayLike, interval: float, shortest: int) -> Floats:
    series = np.asarray(values, np.float64)
    if series.ndim != 1 or len(series) < shortest:
        raise InputError(
            f"spectrum: given a series of shape {series.shape}; allowed is one of at least "
            f"{shortest} samples: run longer or sample more often"
        )
    if not (math.isfinite(interval) and interval > 0):
        raise InputError(
            f"spectrum: given {interval:g} between samples; allowed is a positive time"
        )
    broken = int(np.count_nonzero(~np.isfinite(series)))
    if broken:
        raise SolutionError(
            f"spectrum: nan or inf in {broken} of {len(series)} samples; a spectrum needs finite "
            f"values: look for where the solution broke"
        )
    return series


def _of_part(
    series: Floats, interval: float, part: tuple[float, float], thinning: int, least: float
) -> list[Resonance]:
    """Oscillations in a part of the band."""
    centre = 2 * np.pi * (part[0] + part[1]) / 2
    taps = _filter(thinning)
    carrier = taps * np.exp(-1j * centre * interval * np.arange(len(taps)))
    filtered = _thinned(series, carrier, thinning)
    if 2 * float(np.abs(filtered).max()) < _SILENT * least:
        return []
    step = thinning * interval
    fitted = fit_exponentials(filtered)
    # A thinned series knows frequencies but for multiples of its sampling rate.
    turn = 2 * np.pi / step
    rates = fitted.exponents / step
    rates = rates + 1j * turn * np.round((centre - rates.imag) / turn)
    gain = np.exp(np.outer(rates * interval, np.arange(len(taps)))) @ carrier
    # A mode at an edge may be found on the far side of it, in either part.
    margin = _SAME / (len(series) * interval)
    inside = (rates.imag / (2 * np.pi) > part[0] - margin) & (
        rates.imag / (2 * np.pi) < part[1] + margin
    )
    # The real series holds half of each with the frequency's sign turned.
    amplitudes = 2 * fitted.amplitudes / gain
    inside &= (rates.imag > 0) & (np.abs(amplitudes) >= least) & (least > 0)
    return [
        _resonance(rates[number], amplitudes[number], fitted, number, step)
        for number in np.flatnonzero(inside).tolist()
    ]


def _resonance(
    rate: complex, amplitude: complex, fitted: Exponentials, number: int, step: float
) -> Resonance:
    error = float(fitted.errors[number]) / step
    rounding = float(np.finfo(float).eps * abs(rate))
    return Resonance(
        frequency=float(rate.imag) / (2 * math.pi),
        decay_rate=-float(rate.real),
        amplitude=float(abs(amplitude)),
        phase=float(np.angle(amplitude)),
        frequency_error=(error + rounding) / (2 * math.pi),
        decay_rate_error=error + rounding,
    )


@cache
def _filter(thinning: int) -> Floats:
    """Low-pass taps of a Kaiser window, for a thinned series: J. F. Kaiser's formulas.

    A. V. Oppenheim, R. W. Schafer, Discrete-Time Signal Processing, 3rd ed., sec. 7.6.1.
    """
    if thinning == 1:
        return np.ones(1)
    transition = 2 * np.pi * (1 - _PASSED) / thinning
    count = math.ceil((_ATTENUATION - 8) / (2.285 * transition)) + 1
    place = np.arange(count) - (count - 1) / 2
    ideal = np.sinc(place / thinning) / thinning
    return np.asarray(ideal * np.kaiser(count, 0.1102 * (_ATTENUATION - 8.7)))


def _thinned(series: Floats, carrier: Complexes, thinning: int) -> Complexes:
    """Sums of carrier[m] series[thinning q + m] for all q that have all samples."""
    windows = np.lib.stride_tricks.sliding_window_view(series, len(carrier))[::thinning]
    both = np.stack([carrier.real, carrier.imag], axis=1)
    pieces = [
        np.ascontiguousarray(windows[begin : begin + _ROWS_AT_ONCE]) @ both
        for begin in range(0, len(windows), _ROWS_AT_ONCE)
    ]
    sums = np.concatenate(pieces)
    return np.asarray(sums[:, 0] + 1j * sums[:, 1])
