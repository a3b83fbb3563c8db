"""Spectra of evenly sampled series, the damped oscillations that they consist of, transforms summed up during a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError, SolutionError

# y[q] = sum of c_k exp(s_k q). The exponents are found by ESPRIT on the series' Hankel matrix
# (R. Roy, T. Kailath, IEEE Trans. ASSP 37 (1989) 984; the matrix pencil of Y. Hua, T. K. Sarkar,
# ibid. 38 (1990) 814, gives the same), then polished by least squares on the series itself, which
# is the most likely answer if the noise is white.

Complexes = NDArray[np.complex128]
Floats = NDArray[np.float64]

# Rows of the Hankel matrix, in parts of the series: the exponents are least noisy from 1/3 to 2/3.
_ROWS = 2 / 3
# A singular value below this part of the largest, and of the matrix' size, is rounding.
_ROUNDING = 4 * np.finfo(float).eps
# A singular value this far above their median may be more than noise. 2.858 would be the best
# threshold on its own (Gavish, Donoho); a lower one misses less, and chance is weeded out later.
_NOISE_ABOVE_MEDIAN = 1.6
# An exponential stays if it lowers the misfit by more than chance does, in terms of Schwarz'
# criterion, times this.
_CAUTION = 1.2
# Growth and decay over one sample, and growth over the series, that are no signal (logarithms).
_FASTEST, _GREATEST = 7.0, 30.0
_POLISHING_STEPS = 8
# Logarithm of what is as good as 0.
_LEAST = -150.0


@dataclass(frozen=True, eq=False)
class Exponentials:
    """Terms c exp(s q), q = 0, 1, ... counting samples."""

    exponents: Complexes  # s, complex (terms,); imaginary parts from -pi to pi
    amplitudes: Complexes  # c, complex (terms,)
    errors: Floats  # Standard deviations of either part of s
    noise: float  # Root of the mean square of what the terms do not explain


def fit_exponentials(series: Complexes) -> Exponentials:
    """Find the exponentials of a series, some 16 to 500 samples long.

    `series`: (samples,) complex or real.
    """
    # Singular values that stand above the median say how many there may be (M. Gavish, D. L.
    # Donoho, IEEE Trans. Inf. Theory 60 (2014) 5040); those that explain no more than chance would
    # are left out again.
    scale = float(np.abs(series).max())
    if not scale > 0:
        none = np.zeros(0, complex)
        return Exponentials(none, none, np.zeros(0), 0.0)
    y: Complexes = (series / scale).astype(np.complex128)
    likely = _without_chance(y, _subspace_exponents(y))
    exponents = _without_chance(y, _polished(y, likely))
    amplitudes, misfit = _amplitudes(y, exponents)
    errors = _errors(y, exponents, amplitudes, misfit)
    noise = scale * math.sqrt(misfit / len(y))
    return Exponentials(exponents, scale * amplitudes, errors, noise)


def _subspace_exponents(y: Complexes) -> Complexes:
    """Exponents by ESPRIT: how the space that the columns span turns from row to row."""
    rows = max(2, round(_ROWS * len(y)))
    hankel = np.lib.stride_tricks.sliding_window_view(y, len(y) - rows + 1)
    left, values, _ = np.linalg.svd(hankel, full_matrices=False)
    least = max(_NOISE_ABOVE_MEDIAN * float(np.median(values)), _ROUNDING * rows * float(values[0]))
    count = min(int((values > least).sum()), len(values) - 1)
    if not count:
        return np.zeros(0, complex)
    space = left[:, :count]
    turned = np.linalg.lstsq(space[:-1], space[1:], rcond=None)[0]
    factors = np.linalg.eigvals(turned)
    exponents = np.log(np.where(factors == 0, np.exp(-2 * _FASTEST), factors))
    slow = np.abs(exponents.real) < _FASTEST
    return np.asarray(exponents[slow & (exponents.real * len(y) < _GREATEST)])


def _basis(length: int, exponents: Complexes) -> Complexes:
    logarithms = np.outer(np.arange(length), exponents)
    # Denormal numbers would make the algebra a hundred times slower.
    logarithms.real = np.maximum(logarithms.real, _LEAST)
    return np.asarray(np.exp(logarithms))


def _amplitudes(y: Complexes, exponents: Complexes) -> tuple[Complexes, float]:
    """Amplitudes by least squares, and the sum of squares that remains."""
    if not len(exponents):
        return np.zeros(0, complex), float(np.vdot(y, y).real)
    basis = _basis(len(y), exponents)
    size = np.linalg.norm(basis, axis=0)
    amplitudes = np.linalg.lstsq(basis / size, y, rcond=None)[0] / size
    rest = y - basis @ amplitudes
    return amplitudes, float(np.vdot(rest, rest).real)


def _without_chance(y: Complexes, exponents: Complexes) -> Complexes:
    """Leave out, one after the other, what explains no more of the series than chance would."""
    length = len(y)
    basis = _basis(length, exponents)
    basis /= np.linalg.norm(basis, axis=0)
    while len(exponents):
        freedom = length - 2 * len(exponents)
        space, triangle = np.linalg.qr(basis)
        parts = space.conj().T @ y
        if freedom < 1 or np.abs(np.diagonal(triangle)).min() < _ROUNDING * length:
            # There are too many, or some cannot be told apart: the last of those goes.
            least = int(np.abs(np.diagonal(triangle)).argmin())
        else:
            rest = y - space @ parts
            misfit = float(np.vdot(rest, rest).real)
            inverse = np.linalg.inv(triangle)
            # What the misfit gains if one is left out and the others are fitted anew.
            gains = np.abs(inverse @ parts) ** 2 / (np.abs(inverse) ** 2).sum(axis=1)
            least = int(gains.argmin())
            if gains[least] > 2 * _CAUTION * math.log(2 * length) * misfit / freedom:
                break
        exponents, basis = np.delete(exponents, least), np.delete(basis, least, axis=1)
    return exponents


def _jacobian(length: int, exponents: Complexes, amplitudes: Complexes) -> Complexes:
    """Derivatives of the series by the exponents, times 1 / length, and by the amplitudes."""
    basis = _basis(length, exponents)
    place = np.arange(length)[:, None] / length
    return np.concatenate([place * basis * amplitudes, basis], axis=1)


def _polished(y: Complexes, exponents: Complexes) -> Complexes:
    """Least squares in exponents and amplitudes by the steps of Gauss and Newton."""
    if not len(exponents):
        return exponents
    length, count = len(y), len(exponents)
    amplitudes, misfit = _amplitudes(y, exponents)
    for _ in range(_POLISHING_STEPS):
        jacobian = _jacobian(length, exponents, amplitudes)
        size = np.linalg.norm(jacobian, axis=0)
        size[size == 0] = 1.0
        rest = y - _basis(length, exponents) @ amplitudes
        step = np.linalg.lstsq(jacobian / size, rest, rcond=None)[0] / size
        moved = exponents + step[:count] / length
        if not np.isfinite(moved).all() or (moved.real * length > _GREATEST).any():
            break
        new_amplitudes, new_misfit = _amplitudes(y, moved)
        if not new_misfit < misfit:
            break
        exponents, amplitudes, misfit = moved, new_amplitudes, new_misfit
    return exponents


def _errors(y: Complexes, exponents: Complexes, amplitudes: Complexes, misfit: float) -> Floats:
    """Standard deviations of the parts of each exponent, if what remains is white noise."""
    count = len(exponents)
    if not count:
        return np.zeros(0)
    jacobian = _jacobian(len(y), exponents, amplitudes)
    size = np.linalg.norm(jacobian, axis=0)
    size[size == 0] = 1.0
    inverse = np.linalg.pinv(jacobian / size)
    spread = np.linalg.norm(inverse, axis=1) / size
    variance = misfit / max(1, len(y) - 2 * count)
    # Half of the variance of a complex number lies in either part.
    return np.asarray(np.sqrt(variance / 2) * spread[:count] / len(y))


# `spectrum` is the windowed Fourier transform. `resonances` finds frequencies and quality factors
# far below the resolution of that, by harmonic inversion: the series is taken for a sum
# v(t) = sum of A exp(-a t) cos(2 pi f t + phase), and f, a, A and the phase are fitted.
#
# Times, frequencies and rates are in one system of units, such as s, Hz and 1/s.

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
        raise InputError(
            "unknown value", location=f"spectrum: window = {window!r}", allowed=", ".join(WINDOWS)
        )
    if padding < 1:
        raise InputError(
            "out of range", location=f"spectrum: padding = {padding}", allowed="1 and above"
        )
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
    values: ArrayLike, interval: float, band: tuple[float, float], *, least: float = 1e-6
) -> list[Resonance]:
    """Damped oscillations in a band, by harmonic inversion of the filtered series.

    `values`: (samples,) real; `least`: oscillations of less than this part of the largest absolute
    value are left out.
    """
    # The band is cut into such parts that each, filtered and thinned out, has some 250 samples; a
    # filter leaves a sum of exponentials one, with known factors. Each is inverted by
    # `haloscope.numerics.spectrum.fit_exponentials`. To cut the band is the idea of M. R.
    # Wall, D. Neuhauser, J. Chem. Phys. 102 (1995) 8011. Modes that die early are looked for in
    # shorter beginnings of the series.
    #
    # Give the series from where the source has ended.
    series = _checked(values, interval, SHORTEST)
    low, high = band
    if not 0 <= low < high <= 0.5 / interval:
        raise InputError(
            "out of range",
            location=f"harmonic inversion: band {low:g} to {high:g}",
            allowed=f"a band within 0 to {0.5 / interval:g}, half the sampling rate",
            remedy="sample more often or correct the band",
        )
    duration, needed = len(series) * interval, FEWEST_PERIODS * 2 / (low + high)
    if duration < needed:
        raise InputError(
            f"the series lasts {duration:g}, too short for the band {low:g} to {high:g}",
            location="harmonic inversion",
            allowed=f"at least {needed:g} ({FEWEST_PERIODS:g} periods)",
            remedy="run longer",
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
            f"the series has the shape {series.shape}",
            location="spectrum",
            allowed=f"one series of at least {shortest} samples",
            remedy="run longer or sample more often",
        )
    if not (math.isfinite(interval) and interval > 0):
        raise InputError(
            f"the time between samples is {interval:g}",
            location="spectrum",
            allowed="a positive time",
        )
    broken = int(np.count_nonzero(~np.isfinite(series)))
    if broken:
        raise SolutionError(
            f"{broken} of {len(series)} samples are nan or inf",
            location="spectrum",
            allowed="finite samples",
            remedy="look for the place where the solution broke",
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


# A near-to-far-field transform, or a map of the field at a frequency, needs no history of the fields
# where transforms are summed up while a run goes on. Sums are kept on the device, in double precision
# whatever the fields are in.
#
# Fields vary as exp(-i w t), v(t) = Re[V exp(-i w t)], so a transform is V(w) = integral of v(t)
# exp(+i w t) dt, summed as v(t_n) exp(i w t_n) times a weight (the step between samples; half of it at
# either end makes the trapezoidal rule). For a pulse that begins and ends at rest the sum converges
# faster than any power of the step once the pulse is resolved.


class RunningTransform:
    """Transforms of a set of values at some frequencies."""

    def __init__(
        self,
        device: Device,
        count: int,
        angular_frequencies: Sequence[float] | Floats,
        interval: float,
    ) -> None:
        rates = np.asarray(angular_frequencies, np.float64)
        if rates.ndim != 1 or not len(rates) or not (np.isfinite(rates) & (rates > 0)).all():
            raise InputError(
                "out of range",
                location=f"running transform: angular frequencies {rates.tolist()}",
                allowed="one or more positive numbers",
            )
        if not (math.isfinite(interval) and 0 < interval * rates.max() < math.pi):
            raise InputError(
                f"samples are {interval:g} apart, too far for the highest angular frequency {rates.max():g}",
                location="running transform",
                allowed=f"less than {math.pi / rates.max():g} apart",
                remedy="sample more often or lower the frequency",
            )
        self.angular_frequencies = rates
        self.interval = float(interval)
        self.samples = 0
        self.duration = 0.0
        self._device = device
        # Cosine and sine sums of each frequency.
        self._sums = device.zeros((2 * len(rates), count), np.float64)
        self._product = device.empty((count,), np.float64)
        # cos(w t - pi / 2) is the sine.
        self._phases = [(rate, shift) for rate in rates.tolist() for shift in (0.0, math.pi / 2)]

    def accumulate(self, values: Array, t: float, weight: float | None = None) -> None:
        """Add a sample.

        `values`: the device's array with `count` numbers, in any shape. It is read by the main
        stream in order, so the caller may change it right after.
        """
        xp = self._device.xp
        weight = self.interval if weight is None else weight
        flat = values.reshape(-1)
        for total, (rate, shift) in zip(self._sums, self._phases, strict=True):
            factor = weight * math.cos(rate * t - shift)
            xp.multiply(flat, factor, out=self._product, dtype=np.float64)
            xp.add(total, self._product, out=total)
        self.samples += 1
        self.duration += weight

    def transforms(self) -> Complexes:
        """The integrals of v exp(i w t) dt so far, on the host: (frequencies, count)."""
        sums = self._device.to_host(self._sums)
        return np.asarray(sums[0::2] + 1j * sums[1::2])

    def state(self) -> dict[str, NDArray[np.float64]]:
        """State for a checkpoint: ``sums`` (2 frequencies, count) and ``taken`` (2,)."""
        taken = np.array([float(self.samples), self.duration])
        return {"sums": self._device.to_host(self._sums), "taken": taken}

    def restore(self, state: dict[str, NDArray[np.float64]]) -> None:
        """Go on from what `state` gave."""
        shape = state["sums"].shape
        if shape != self._sums.shape:
            raise InputError(
                f"the checkpoint holds sums of shape {shape}, this run {self._sums.shape}",
                location="running transform",
                remedy="continue with the same frequencies and the same surface",
            )
        self._sums[...] = self._device.from_host(np.ascontiguousarray(state["sums"], np.float64))
        self.samples, self.duration = int(state["taken"][0]), float(state["taken"][1])
