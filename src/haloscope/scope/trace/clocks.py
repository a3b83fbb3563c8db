"""Puts the clocks of all ranks on one by linear offsets.

Offsets are measured against rank 0 at the begin and at the end of a run; between them the drift
is taken as constant (linear interpolation). Where messages still arrive before they were sent,
the replay shifts events by the controlled logical clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haloscope.scope.trace.measurement import Measurement, RankDefinitions


def line_through(
    measurement: Measurement, rank: int, begin: float | None = None
) -> tuple[float, float]:
    """Rate and zero of a rank's clock: seconds on the run's clock = ticks * rate + zero."""
    # The run's clock begins at the earliest epoch of all ranks that are on this machine's clock, so
    # that seconds stay small and keep their digits. Offsets were measured while only the rate of
    # the first line was known; where a better one was told at the end, that of rank 0 corrects the
    # run's clock, and a rank without offsets is corrected by its own.
    rate, zero = _line_of(measurement, measurement.ranks[rank])
    return rate, zero - (run_begin(measurement) if begin is None else begin)


def run_begin(measurement: Measurement) -> float:
    """The earliest epoch of all ranks, in seconds on the clock of rank 0."""
    return min(
        rate * int(other.opening.get("epoch", 0)) + zero
        for other in measurement.ranks.values()
        for rate, zero in [_line_of(measurement, other)]
    )


def _line_of(measurement: Measurement, said: RankDefinitions) -> tuple[float, float]:
    """The line of a rank before the run's begin is taken off."""
    rate = 1.0 / float(said.opening["ticks_per_second"])
    if not said.offsets:
        return _better(said, rate, 0.0)
    (first_tick, first), (last_tick, last) = said.offsets[0], said.offsets[-1]
    slope = (last - first) / ((last_tick - first_tick) * rate) if last_tick > first_tick else 0.0
    rate, zero = rate * (1.0 + slope), first - slope * first_tick * rate
    reference = measurement.ranks.get(0)
    if reference is None:
        return rate, zero
    # Seconds of rank 0's first rate, through its ticks, to seconds of its better one.
    stated_rate = float(reference.opening["ticks_per_second"])
    better, shift = _better(reference, 1.0 / stated_rate, 0.0)
    return rate * stated_rate * better, zero * stated_rate * better + shift


def _better(said: RankDefinitions, rate: float, zero: float) -> tuple[float, float]:
    """The line with the rate that was found at the end; it meets the old one at its tick."""
    if said.rate is None:
        return rate, zero
    at, better = said.rate
    return 1.0 / better, zero + at * (rate - 1.0 / better)
