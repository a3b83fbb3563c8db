"""Waveforms of sources and incident waves: closed forms and tables, evaluated on the device; their spans."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

NUMBERS = 4
"""Numbers that a waveform has on the device."""
_LEAST_SAMPLES = 4
_EVEN = 1e-6

# Times are finite, widths, frequencies and spacings above 0: a case has no others.


@dataclass(frozen=True)
class Gaussian:
    """``exp(-((t - centre) / width)^2)``."""

    # Times; at the centre the value is 1, one width away 1/e.
    centre: float
    width: float
    kind: ClassVar[int] = 0

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the device reads them."""
        return self.centre, 1 / self.width, 0.0, 0.0

    def __call__(self, t: ArrayLike) -> Floats:
        """The value at times."""
        return np.asarray(np.exp(-(((np.asarray(t) - self.centre) / self.width) ** 2)))


@dataclass(frozen=True)
class ModulatedGaussian:
    """``exp(-((t - centre) / width)^2) sin(2 pi frequency (t - centre) + phase)``."""

    # Times.
    centre: float
    width: float
    frequency: float  # Oscillations a unit of time
    phase: float = 0.0  # Radians
    kind: ClassVar[int] = 1

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the device reads them."""
        return self.centre, 1 / self.width, 2 * math.pi * self.frequency, self.phase

    def __call__(self, t: ArrayLike) -> Floats:
        """The value at times."""
        s = np.asarray(t) - self.centre
        carrier = np.sin(2 * math.pi * self.frequency * s + self.phase)
        return np.asarray(np.exp(-((s / self.width) ** 2)) * carrier)


@dataclass(frozen=True)
class Ricker:
    """``(1 - 2 s^2) exp(-s^2)`` with ``s = pi frequency (t - centre)``."""

    centre: float  # Time of the highest value, 1
    frequency: float  # Where its spectrum is highest, in oscillations a unit of time
    kind: ClassVar[int] = 2

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the device reads them."""
        return self.centre, math.pi * self.frequency, 0.0, 0.0

    def __call__(self, t: ArrayLike) -> Floats:
        """The value at times."""
        s = (np.asarray(t) - self.centre) * math.pi * self.frequency
        return np.asarray((1 - 2 * s**2) * np.exp(-(s**2)))


@dataclass(frozen=True)
class RampedSine:
    """``sin(2 pi frequency t + phase)``, smoothly risen from 0.

    The ramp is the polynomial of degree 7 in t / rise whose first three derivatives vanish at both
    ends; before 0 the value is 0.
    """

    frequency: float  # Oscillations a unit of time
    rise: float  # Time after which the amplitude is 1
    phase: float = 0.0  # Radians
    kind: ClassVar[int] = 3

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the device reads them."""
        return 0.0, 1 / self.rise, 2 * math.pi * self.frequency, self.phase

    def __call__(self, t: ArrayLike) -> Floats:
        """The value at times."""
        t = np.asarray(t, np.float64)
        x = np.clip(t / self.rise, 0.0, 1.0)
        ramp = x**4 * (35 + x * (-84 + x * (70 - 20 * x)))
        return np.asarray(ramp * np.sin(2 * math.pi * self.frequency * t + self.phase))


@dataclass(frozen=True, eq=False)
class Table:
    """Values at times of equal distance, and cubics through the four nearest between them.

    Before the first time and after the last one the value is 0.
    """

    # The first time, and the distance of times.
    start: float
    spacing: float
    values: Floats  # Four or more
    kind: ClassVar[int] = 4

    @classmethod
    def of_times(cls, times: Floats, values: Floats) -> Table:
        """Table from times of equal distance, and as many values."""
        return cls(float(times[0]), float(times[-1] - times[0]) / (len(times) - 1), values)

    @classmethod
    def sampled(cls, function: Callable[[Floats], Floats], until: float, spacing: float) -> Table:
        """Table of a function of time from 0 to some time."""
        count = max(_LEAST_SAMPLES, math.ceil(until / spacing * (1 - _EVEN)) + 1)
        times = np.linspace(0.0, until, count)
        values = np.broadcast_to(np.asarray(function(times), np.float64), times.shape)
        return cls(0.0, until / (count - 1), values)

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the device reads them."""
        return self.start, 1 / self.spacing, float(len(self.values)), 0.0

    def __call__(self, t: ArrayLike) -> Floats:
        """The value at times."""
        s = (np.asarray(t, np.float64) - self.start) / self.spacing
        v = np.asarray(self.values, np.float64)
        first = np.clip(np.floor(s) - 1, 0, len(v) - 4).astype(np.int64)
        a = s - first
        b, c, d = a - 1, a - 2, a - 3
        values = (
            -b * c * d * v[first] / 6
            + a * c * d * v[first + 1] / 2
            - a * b * d * v[first + 2] / 2
            + a * b * c * v[first + 3] / 6
        )
        return np.where((s < -_EVEN) | (s > len(v) - 1 + _EVEN), 0.0, values)


Waveform = Gaussian | ModulatedGaussian | Ricker | RampedSine | Table


# exp(-s^2) is below 2e-11 from here on; its spectrum exp(-(pi f w)^2) at pi f w likewise.
_FADED = 5.0
# The same for (1 - 2 s^2) exp(-s^2).
_FADED_RICKER = 5.4
# Of a table's spectrum what is below this part of its largest value counts for nothing.
_LEAST = 1e-8
# Where a spectrum has fallen to 1 % of its peak: exp(-s^2) and, for Ricker's, s^2 exp(1 - s^2). The
# same of the pulses themselves in time.
_MAIN = 0.01
_MAIN_GAUSSIAN = math.sqrt(-math.log(_MAIN))
_MAIN_RICKER = 2.764
_MAIN_RICKER_TIME = 2.684
# Times at which a pulse is looked at for its largest value.
_LOOKS = 1000


class Span(NamedTuple):
    """Where a waveform has content."""

    # Times up to and from which it stays below 1 % of its peak: inf for one that is 0 throughout, or
    # goes on.
    main_begin: float
    main_end: float
    end: float  # Time from which it is 0; inf for one that goes on
    # Where its spectrum has fallen to 1 % of its peak, and above which there is nothing.
    main_frequency: float
    highest_frequency: float


def span_of(waveform: Waveform) -> Span:
    """The times and frequencies at which a waveform has content."""
    if isinstance(waveform, RampedSine):
        return Span(0.0, math.inf, math.inf, waveform.frequency, waveform.frequency)
    if isinstance(waveform, Table):
        start, spacing, heights = waveform.start, waveform.spacing, np.abs(waveform.values)
        loud = np.flatnonzero(heights > _MAIN * heights.max())
        begin, main_end = math.inf, start
        if len(loud):
            begin, main_end = (start + spacing * float(n) for n in (loud[0], loud[-1]))
        end = start + spacing * (len(heights) - 1)
        spectrum = np.abs(np.fft.rfft(waveform.values))
        main, highest = (_last(spectrum, share) for share in (_MAIN, _LEAST))
        duration = len(heights) * spacing
        return Span(begin, main_end, end, main / duration, highest / duration)
    if isinstance(waveform, Ricker):
        rate, frequency = math.pi * waveform.frequency, waveform.frequency
        main, faded = _MAIN_RICKER_TIME / rate, _FADED_RICKER / rate
        frequencies = frequency * _MAIN_RICKER, frequency * _FADED
    else:
        main, faded = _MAIN_GAUSSIAN * waveform.width, _FADED * waveform.width
        carrier = waveform.frequency if isinstance(waveform, ModulatedGaussian) else 0.0
        rate = math.pi * waveform.width
        frequencies = carrier + _MAIN_GAUSSIAN / rate, carrier + _FADED / rate
    centre = waveform.centre
    return Span(centre - main, centre + main, centre + faded, *frequencies)


def _last(spectrum: Floats, share: float) -> float:
    """The last line of a spectrum that is not below a share of its largest; 0 of an empty one."""
    return float(np.flatnonzero(spectrum >= share * spectrum.max())[-1]) if spectrum.any() else 0.0


def largest_cut(waveform: Waveform) -> float:
    """Part of its peak at which a waveform jumps: where time 0 cuts it, or where its table ends."""
    span = span_of(waveform)
    if isinstance(waveform, RampedSine) or math.isinf(span.main_begin):
        return 0.0
    if isinstance(waveform, Table):
        heights = np.abs(waveform.values)
        ends = [heights[0], heights[-1]]
        times = waveform.start + waveform.spacing * np.arange(len(heights))
        return float(max(*ends, heights[times <= 0].max(initial=0.0)) / heights.max())
    before = np.linspace(min(span.main_begin, 0.0), 0.0, _LOOKS)
    heights = np.abs(waveform(np.linspace(span.main_begin, span.main_end, _LOOKS)))
    return float(np.abs(waveform(before)).max() / heights.max())
