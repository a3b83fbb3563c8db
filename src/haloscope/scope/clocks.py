"""Puts the clocks of all ranks on one: linear offsets, then a logical clock where messages say so.

Offsets are measured against rank 0 at the begin and at the end of a run; between them the drift
is taken as constant (linear interpolation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haloscope.scope.measurement import Measurement


def line_through(measurement: Measurement, rank: int) -> tuple[float, float]:
    """Rate and zero of a rank's clock: seconds on the run's clock = ticks * rate + zero.

    The run's clock begins at the earliest epoch of all ranks that are on this machine's clock,
    so that seconds stay small and keep their digits.

    Parameters
    ----------
    measurement
        The folder's definitions.
    rank
        A rank that it holds.
    """
    said = measurement.ranks[rank]
    rate = 1.0 / float(said.opening["ticks_per_second"])
    offsets = said.offsets
    origin = min(
        int(other.opening.get("epoch", 0)) / float(other.opening["ticks_per_second"])
        + (other.offsets[0][1] if other.offsets else 0.0)
        for other in measurement.ranks.values()
    )
    if not offsets:
        return rate, -origin
    (first_tick, first), (last_tick, last) = offsets[0], offsets[-1]
    if last_tick <= first_tick:
        return rate, first - origin
    slope = (last - first) / ((last_tick - first_tick) * rate)
    return rate * (1.0 + slope), first - slope * first_tick * rate - origin
