"""Waveforms of sources and incident waves: closed forms and tables, evaluated on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError

Floats = NDArray[np.float64]

NUMBERS = 4
"""Numbers that a waveform has on the device."""
_LEAST_SAMPLES = 4
_EVEN = 1e-6


def _require(key: str, value: float, *, positive: bool = False) -> None:
    if not math.isfinite(value) or (positive and value <= 0):
        allowed = "a finite number above 0" if positive else "a finite number"
        raise InputError("out of range", location=f"waveform: {key} = {value:g}", allowed=allowed)


@dataclass(frozen=True)
class Gaussian:
    """``exp(-((t - centre) / width)^2)``."""

    # Times; at the centre the value is 1, one width away 1/e.
    centre: float
    width: float
    kind: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _require("centre", self.centre)
        _require("width", self.width, positive=True)

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

    def __post_init__(self) -> None:
        _require("centre", self.centre)
        _require("width", self.width, positive=True)
        _require("frequency", self.frequency, positive=True)
        _require("phase", self.phase)

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

    def __post_init__(self) -> None:
        _require("centre", self.centre)
        _require("frequency", self.frequency, positive=True)

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

    def __post_init__(self) -> None:
        _require("frequency", self.frequency, positive=True)
        _require("rise", self.rise, positive=True)
        _require("phase", self.phase)

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

    def __post_init__(self) -> None:
        _require("start", self.start)
        _require("spacing", self.spacing, positive=True)
        values = np.asarray(self.values)
        if values.ndim != 1 or len(values) < _LEAST_SAMPLES or not np.isfinite(values).all():
            raise InputError(
                f"the values have the shape {values.shape} or are not finite",
                location="waveform: table",
                allowed=f"a list of {_LEAST_SAMPLES} finite numbers or more",
            )

    @classmethod
    def of_times(cls, times: ArrayLike, values: ArrayLike) -> Table:
        """Table from times, which must have equal distances, and as many values."""
        t = np.asarray(times, np.float64)
        v = np.asarray(values, np.float64)
        if t.ndim != 1 or t.shape != v.shape or len(t) < _LEAST_SAMPLES:
            raise InputError(
                f"it has {t.size} times and {v.size} values",
                location="waveform: table",
                allowed=f"as many times as values, {_LEAST_SAMPLES} or more",
            )
        spacing = float(t[-1] - t[0]) / (len(t) - 1)
        even = t[0] + spacing * np.arange(len(t))
        if not spacing > 0 or np.abs(t - even).max() > _EVEN * spacing:
            raise InputError(
                "its times are not evenly spaced",
                location="waveform: table",
                remedy="sample the waveform at even distances",
            )
        return cls(float(t[0]), spacing, v)

    @classmethod
    def sampled(cls, function: Callable[[Floats], Floats], until: float, spacing: float) -> Table:
        """Table of a function of time from 0 to some time."""
        _require("until", until, positive=True)
        _require("spacing", spacing, positive=True)
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
