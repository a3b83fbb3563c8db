"""Steadiness of the flow in a straight vessel, judged from samples over time.

Sums are kept by stretches of samples that follow one another. When all are full, neighbours are put
together, so that runs of any length take the same memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.numerics.reduce import total

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STRETCHES = 64
"""Sums that are kept; even."""
MOST_CHANGE = 0.01
"""Of flow, pressure gradient and drive, relative, in a flow that is called steady."""
_PARTS = 4
# Parts of the samples whose means are compared.
_STARTUPS = 5.0
# Of start-up times: less than exp(-5) = 0.7 % is left of the slowest part of the start-up.
_DIAMETERS = 25.0
# Way in which cells that were spread evenly come to their places across a vessel: D. Katanov,
# G. Gompper, D. A. Fedosov, Microvasc. Res. 99 (2015) 57.


def stretch_length(samples: int) -> int:
    """How many samples make a stretch: the least power of 2 with which there is room for all."""
    return 1 << max(0, -(-samples // STRETCHES) - 1).bit_length()


def add_sample(sums: Integers, taken: int, added: Integers) -> None:
    """Add a sample to sums over stretches, in place; samples come in their order.

    `sums`: (2, STRETCHES), as :func:`haloscope.numerics.reduce.exact_sum` gives them; `added`:
    the sample, (2,).
    """
    length = stretch_length(taken + 1)
    if length > stretch_length(taken):
        half = STRETCHES // 2
        sums[:, :half] = sums[:, ::2] + sums[:, 1::2]
        sums[:, half:] = 0
    sums[:, taken // length] += added


def means_of_parts(sums: Integers, samples: int) -> tuple[Floats, Floats]:
    """Means over quarters of the samples, or over fewer parts of fewer samples.

    `sums`: over stretches of all ranks, (2, STRETCHES); `samples`: how many they hold, at least 1;
    Returns: (parts,) each; a middle is the mean number, from 0, of a part's samples.
    """
    length = stretch_length(samples)
    filled = -(-samples // length)
    parts = np.array_split(np.arange(filled), min(_PARTS, filled))
    begins = np.array([part[0] for part in parts]) * length
    ends = np.append(begins[1:], samples)
    values = total(sums)
    means = np.array([values[part].sum() for part in parts]) / (ends - begins)
    return means, (begins + ends - 1) / 2


def largest_change(means: Floats, times: Floats, startup_time: float) -> tuple[float, float]:
    """How much the means of parts change, and within which time.

    `means`, `times`: of parts of the samples, (parts,), times in s; `startup_time`: in s. Where the
    parts lie within less, the fastest change goes on for so long.
    """
    if len(means) < 2:
        return math.nan, startup_time
    span = float(times[-1] - times[0])
    if span < startup_time:
        rates = np.diff(means) / np.diff(times)
        return float(rates[np.abs(rates).argmax()]) * startup_time, startup_time
    low, high = int(means.argmin()), int(means.argmax())
    return float(means[max(low, high)] - means[min(low, high)]), span


@dataclass(frozen=True)
class Steadiness:
    """How far a flow is from being steady."""

    # Relative changes of flow and pressure gradient between quarters of the samples, or within the
    # start-up time where that is longer; nan where they cannot be told.
    flow_change: float
    gradient_change: float
    change_time: float  # Within which these changes come about, in s
    drive_change: float  # Relative change over the samples of what the case drives the flow with
    # In s; see
    # :meth:`haloscope.solvers.blood.vessels.straight_vessels.StraightVessel.startup_time`.
    startup_time: float
    age: float  # From step 0 to the last sample, in s
    # Way of the mean flow in that time over the diameter; None without cells.
    diameters: float | None = None
    # Of a vessel with open ends over its diameter: blood that has gone so far is new.
    length: float = math.inf

    @property
    def steady(self) -> bool | None:
        """Whether the flow is steady; None: the samples do not tell."""
        if self.reasons():
            return False
        return None if math.isnan(self.flow_change) else True

    def reasons(self) -> list[str]:
        """Reasons why the flow is not steady, in words; empty where nothing shows that."""
        reasons = []
        if self.drive_change > MOST_CHANGE:
            reasons.append(
                f"its driving force changes by {100 * self.drive_change:.3g} % meanwhile"
            )
        for subject, change in (
            ("it", self.flow_change),
            ("its pressure gradient", self.gradient_change),
        ):
            if abs(change) > MOST_CHANGE:
                reasons.append(
                    f"{subject} changes by {_percent(change)} in {_time(self.change_time)}"
                )
        needed = _STARTUPS * self.startup_time
        if self.age < needed:
            reasons.append(f"its age is {_time(self.age)} and its start-up takes {_time(needed)}")
        way = min(_DIAMETERS, self.length)
        if self.diameters is not None and not self.diameters >= way:
            reasons.append(
                f"blood has travelled {self.diameters:.3g} of the {way:.3g} diameters in which the distribution "
                "of cells develops"
            )
        return reasons

    def describe(self) -> str:
        """Whether the flow is steady, for people."""
        reasons = self.reasons()
        if reasons:
            line = "the flow is not steady: " + ", ".join(reasons)
            if self.drive_change > MOST_CHANGE:
                return line
            return f"{line}; run longer or raise blood.profile.start"
        if self.steady is None:
            return (
                "whether the flow is steady is unknown from one sample; lower blood.profile.start or "
                "blood.profile.interval"
            )
        changes = f"{_percent(self.flow_change)} in {_time(self.change_time)}"
        return f"the flow is steady: it changes by {changes}"


def _percent(change: float) -> str:
    """A relative change of 3 digits, or of more in whole numbers."""
    return f"{100 * change:+.3g} %" if abs(change) < 9.99 else f"{100 * change:+.0f} %"


def _time(seconds: float) -> str:
    """A time of 3 digits in a unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
