"""Signals over time and profiles across openings, from expressions or from tables in CSV files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.case.expressions import (
    Expression,
    Table,
    parse_quantity_or_expression,
    times_in_milliseconds,
)
from haloscope.errors import InputError, counted

Floats = NDArray[np.float64]

_TABLE = ".csv"
_LOOKED_AT = 1001
"""Times at which an expression is taken to find its largest value."""
# Relative rounding of a period.
_WHOLE = 1e-9
_LONG = 20.0
"""In s: tables that end before this are not taken for ones in milliseconds, however short the run."""


Interpolation = Literal["linear", "periodic", "fourier"]
MODES = 8
"""Of Fourier series, beside the mean, where the case gives no number."""
# Values in a period of which Fourier modes are taken.
_SAMPLES = 4096


@dataclass(frozen=True, eq=False)
class SmoothTable:
    """A periodic smooth curve through the rows of a table: a cubic spline, or its first Fourier modes."""

    coordinate: Floats  # Times of the rows from 0 to the period, (rows,), in s
    value: Floats  # (rows,)
    period: float  # In s
    modes: int | None = None  # None: a spline

    @cached_property
    def _spline(self) -> Any:
        from scipy.interpolate import CubicSpline

        # A row at the end of the period stands for the first one.
        inside = self.coordinate < self.period * (1 - _WHOLE)
        times, values = self.coordinate[inside], self.value[inside]
        times = np.append(times, times[0] + self.period)
        return CubicSpline(times, np.append(values, values[0]), bc_type="periodic")

    @cached_property
    def amplitudes(self) -> NDArray[np.complex128]:
        """Of the Fourier series: c_0 to c_modes."""
        return fourier_modes(self._spline, self.period, self.modes or 0)

    def __call__(self, at: ArrayLike) -> Floats:
        """Values at times in s."""
        times = np.asarray(at, np.float64)
        if self.modes is None:
            return np.asarray(self._spline(times))
        return series_at(self.amplitudes, times / self.period)

    def miss(self) -> float:
        """Largest difference from the rows."""
        return float(np.abs(self(self.coordinate % self.period) - self.value).max())


def fourier_modes(
    curve: Callable[[Floats], Floats], period: float, count: int
) -> NDArray[np.complex128]:
    """Amplitudes c_0 to c_count of a curve that is the sum of Re(c_k exp(2 pi i k t/period))."""
    times = np.linspace(0.0, period, _SAMPLES, endpoint=False)
    values = np.broadcast_to(np.asarray(curve(times), np.float64), times.shape)
    amplitudes = np.fft.rfft(values) / _SAMPLES
    amplitudes[1:] *= 2
    first: NDArray[np.complex128] = amplitudes[: count + 1]
    return first


def series_at(amplitudes: NDArray[np.complex128], turns: Floats) -> Floats:
    """Values of a Fourier series at times over the period."""
    phases = np.exp(2j * np.pi * np.multiply.outer(turns, np.arange(len(amplitudes))))
    return np.asarray((phases * amplitudes).sum(axis=-1).real)


@dataclass(frozen=True, eq=False)
class Signal:
    """A factor over time."""

    key: str  # Of the case, for messages
    source: Expression | Table | SmoothTable  # An expression of t, or a table over t, in s
    period: float | None = None  # In s: the time after which it begins again; None: it does not

    @property
    def steady(self) -> bool:
        """Whether it has one value at all times."""
        return isinstance(self.source, Expression) and "t" not in self.source.uses

    def __call__(self, t: float) -> float:
        """Value at a time in s."""
        if self.period is not None:
            t %= self.period
        if isinstance(self.source, Expression):
            return float(self.source.evaluate_finite(self.key, t=t))
        return float(self.source(t))

    def largest(self, until: float) -> float:
        """Largest size of its values from 0 to a time in s; those of an expression at some times."""
        return float(np.abs(self._values(0.0, until)).max(initial=0.0))

    def change(self, since: float, until: float) -> float:
        """Largest less least value between two times in s, over the largest size."""
        values = self._values(since, until)
        largest = float(np.abs(values).max(initial=0.0))
        return float(np.ptp(values)) / largest if largest else 0.0

    def mean(self, until: float) -> float:
        """Mean over a period, or from 0 to a time in s."""
        end = until if self.period is None else self.period
        times = (np.arange(_LOOKED_AT) + 0.5) * (end / _LOOKED_AT)
        values = np.asarray(
            self.source(t=times) if isinstance(self.source, Expression) else self.source(times)
        )
        finite = values[np.isfinite(values)]
        return float(finite.mean()) if finite.size else 0.0

    def as_series(self, modes: int | None) -> Signal:
        """The Fourier series of a periodic signal."""
        assert self.period is not None
        source = self.source
        if isinstance(source, Expression):
            times = np.linspace(0.0, self.period, _LOOKED_AT)
            known = source.evaluate_finite(self.key, t=times[:-1])
            values = np.broadcast_to(np.asarray(known, np.float64), times[:-1].shape)
            curve = SmoothTable(times, np.append(values, values[0]), self.period, modes or MODES)
            return replace(self, source=curve)
        if isinstance(source, SmoothTable):
            return replace(self, source=replace(source, modes=modes or source.modes or MODES))
        return replace(self, source=_smooth(source, self.key, self.period, "fourier", modes))

    def phasors(self, t: float) -> NDArray[np.complex128]:
        """Amplitudes of the Fourier series with their phases at a time in s; their real parts add up to the value."""
        assert isinstance(self.source, SmoothTable)
        turns = np.arange(len(self.source.amplitudes)) * (t / self.source.period % 1.0)
        return np.asarray(self.source.amplitudes * np.exp(2j * np.pi * turns))

    def smoothness(self) -> str:
        """Line on a smooth curve and how far it misses the rows of its table; empty for other signals."""
        if not isinstance(self.source, SmoothTable):
            return ""
        rows, modes = self.source.value, self.source.modes
        curve = "periodic cubic curve" if modes is None else f"Fourier series of {modes} modes"
        share = self.source.miss() / (float(np.abs(rows).max()) or 1.0)
        return (
            f"{self.key}: {curve} through {counted(len(rows), 'row')}, which it misses by at most "
            f"{self.source.miss():.2g} ({100 * share:.2g} % of the largest)"
        )

    def in_milliseconds(self, until: float) -> str:
        """Warning of a table whose times are likely in ms, by its period or the end of the run in s."""
        if not isinstance(self.source, Table):
            return ""
        last = float(self.source.coordinate[-1])
        end = until if self.period is None else self.period
        # Most runs end within a beat of the heart, beyond which its table goes on.
        if not times_in_milliseconds(self.source, end) or (self.period is None and last < _LONG):
            return ""
        by = f"the run ends at {end:.3g} s" if self.period is None else f"its period is {end:g} s"
        return (
            f"{self.key}: the table extends to {last:g} s and {by}; if its times are in milliseconds, "
            "convert them to s"
        )

    def _values(self, since: float, until: float) -> Floats:
        """Finite values between two times: of a table at its rows, of an expression at some times."""
        begin, end = since, until
        if self.period is not None:
            whole = until - since >= self.period
            begin = 0.0 if whole else since % self.period
            end = self.period if whole else begin + until - since
        if isinstance(self.source, Expression):
            times = np.linspace(begin, end, _LOOKED_AT)
        else:
            rows = self.source.coordinate
            if isinstance(self.source, SmoothTable):
                # The largest value may lie between rows.
                rows = np.linspace(0.0, self.source.period, _LOOKED_AT)
            if self.period is not None:
                rows = np.append(rows, rows + self.period)
            times = np.append(rows[(rows > begin) & (rows < end)], [begin, end])
        if self.period is not None:
            times = np.where(times > self.period, times - self.period, times)
        values = self.source(t=times) if isinstance(self.source, Expression) else self.source(times)
        return values[np.isfinite(values)]


def is_table(source: str | float) -> bool:
    """Whether a value of a case is the path of a table; no expression ends so."""
    return isinstance(source, str) and source.strip().lower().endswith(_TABLE)


def read_table(source: str, key: str) -> Table:
    """Read a table of two columns."""
    try:
        return Table.from_csv(Path(source.strip()))
    except InputError as error:
        raise error.within(key) from None


def read_signal(
    source: str | float,
    key: str,
    period: float | None = None,
    interpolation: Interpolation = "linear",
    modes: int | None = None,
) -> Signal:
    """Read a number, an expression of t, or the path of a table of t."""
    if not is_table(source):
        return Signal(key, parse_quantity_or_expression(source, key, ("t",)), period)
    table = read_table(str(source), key)
    first, last = float(table.coordinate[0]), float(table.coordinate[-1])
    if period is not None and (first > 0 or last < period * (1 - _WHOLE)):
        raise InputError(
            f"the table covers {first:g} to {last:g} s and its period is {period:g} s",
            location=key,
            remedy="give a table from 0 s to the period, or set another period_s",
        )
    if interpolation == "linear" or period is None:
        return Signal(key, table, period)
    return Signal(key, _smooth(table, key, period, interpolation, modes), period)


def _smooth(
    table: Table, key: str, period: float, interpolation: Interpolation, modes: int | None
) -> SmoothTable:
    inside = (table.coordinate >= 0) & (table.coordinate <= period * (1 + _WHOLE))
    times, values = table.coordinate[inside], table.value[inside]
    count = None if interpolation == "periodic" else (modes or MODES)
    least = 3 if count is None else 2 * count + 1
    rows = int(np.count_nonzero(times < period * (1 - _WHOLE)))
    if rows < least:
        raise InputError(
            f"the table has {counted(rows, 'row')} in a period of {period:g} s",
            location=key,
            allowed=f"at least {least} for "
            + ("a periodic cubic curve" if count is None else f"{count} Fourier modes"),
            remedy="convert its times from milliseconds to s"
            if times_in_milliseconds(table, period)
            else 'add rows, or set interpolation = "linear"'
            + ("" if count is None else " or fewer modes"),
        )
    return SmoothTable(times, values, period, count)
