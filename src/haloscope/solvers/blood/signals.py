"""Signals over time and profiles across openings, from expressions or from tables in CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.case.expressions import (
    Expression,
    Table,
    parse_quantity_or_expression,
    times_in_milliseconds,
)
from haloscope.errors import InputError

Floats = NDArray[np.float64]

_TABLE = ".csv"
_LOOKED_AT = 1001
"""Times at which an expression is taken to find its largest value."""
_LONG = 20.0
"""In s: tables that end before this are not taken for ones in milliseconds, however short the run."""


@dataclass(frozen=True, eq=False)
class Signal:
    """A factor over time."""

    key: str  # Of the case, for messages
    source: Expression | Table  # An expression of t, or a table over t, in s
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

    def in_milliseconds(self, until: float) -> str:
        """Warning of a table whose times are likely in ms, by its period or the end of the run in s."""
        if isinstance(self.source, Expression):
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


def read_signal(source: str | float, key: str, period: float | None = None) -> Signal:
    """Read a number, an expression of t, or the path of a table of t."""
    if not is_table(source):
        return Signal(key, parse_quantity_or_expression(source, key, ("t",)), period)
    table = read_table(str(source), key)
    first, last = float(table.coordinate[0]), float(table.coordinate[-1])
    if period is not None and (first > 0 or last < period * (1 - 1e-9)):
        raise InputError(
            f"the table covers {first:g} to {last:g} s and its period is {period:g} s",
            location=key,
            remedy="give a table from 0 s to the period, or set another period_s",
        )
    return Signal(key, table, period)
