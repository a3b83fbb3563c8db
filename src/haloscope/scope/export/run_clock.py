"""Puts the ticks of all ranks on one clock of whole ticks, as other formats want them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.replay.logical_clock import correct
from haloscope.scope.trace.measurement import Measurement

_NANOSECONDS = 10**9  # in a second


class RunClock:
    """Ticks of each rank's clock as ticks of one clock, which begins with the run."""

    # Offsets between the ranks are taken out, and where messages between hosts would arrive before
    # they were sent, the logical clock shifts them (:func:`haloscope.scope.replay.logical_clock.correct`), as the
    # analysis does.

    def __init__(self, measurement: Measurement) -> None:
        ranks = measurement.ranks.values()
        rates = {float(said.opening["ticks_per_second"]) for said in ranks}
        self.ticks_per_second = max(1, round(max(rates)))
        self._measurement = measurement
        is_one = rates == {float(self.ticks_per_second)} and not any(
            said.offsets or said.rate for said in ranks
        )
        # Whole numbers need no rounding where all ranks share one clock.
        epochs = [int(said.opening.get("epoch", 0)) for said in ranks]
        self._shift = min(epochs) if is_one else None
        self._knots = {
            measurement.locations[index].rank: knots
            for index, knots in correct(measurement).knots.items()
        }

    def ticks(self, rank: int, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks since the begin of the run, never negative, in the order of the events."""
        knots = self._knots.get(rank)
        if knots is not None:
            shifts = np.interp(ticks, knots[:, 0], knots[:, 1])
            ticks = ticks + np.rint(shifts).astype(np.int64)
        if self._shift is not None:
            return np.asarray(np.maximum(ticks - self._shift, 0), np.int64)
        rate, zero = self._measurement.ticks_to_seconds(rank)
        epoch = int(self._measurement.ranks[rank].opening.get("epoch", 0))
        # Few digits are left of a product of absolute ticks: count from the epoch.
        seconds = (ticks - epoch) * rate + (epoch * rate + zero)
        rounded = np.maximum(np.rint(seconds * self.ticks_per_second), 0)
        return np.asarray(rounded, np.int64)

    def nanoseconds(self, rank: int, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nanoseconds since the begin of the run, rounded, never negative."""
        whole = self.ticks(rank, ticks)
        if self.ticks_per_second == _NANOSECONDS:
            return whole
        seconds, rest = np.divmod(whole, self.ticks_per_second)
        part = np.rint(rest * (_NANOSECONDS / self.ticks_per_second))
        return np.asarray(seconds * _NANOSECONDS + part.astype(np.int64), np.int64)
