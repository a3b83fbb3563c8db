"""When the steps of a run are: the time step, and since when it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from haloscope.solvers.flow.case import FlowTable

# Of a step: what sums of steps may miss the end of a case by.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Clock:
    """Steps of one length since a step."""

    time_step: float  # Their length in s
    asked: float  # The case's own in s, of which that is as much as meets the end
    last_step: int  # That at the end of the case
    # Step after which they are so long, and its time in s.
    since: int = 0
    begun: float = 0.0

    @classmethod
    def of(cls, table: FlowTable) -> Clock:
        """From the start of a case of unsteady flow on."""
        asked, end = _asked(table)
        steps = table.steps()
        return cls(end / steps, asked, steps)

    def at(self, step: int) -> float:
        """Time in s after a step."""
        return self.begun + (step - self.since) * self.time_step

    def scalars(self) -> dict[str, float]:
        """What a restart needs."""
        return {
            "dt": self.time_step,
            "asked": self.asked,
            "since": float(self.since),
            "begun": self.begun,
        }

    @classmethod
    def resumed(cls, scalars: Mapping[str, float], step: int, table: FlowTable) -> Clock:
        """That of a restart after a step."""
        # Where the steps of the checkpoint meet the case's end, and are as many as the case asks
        # for, they go on to the last bit. Else what is left is divided anew, from the checkpoint's
        # time on; past the end there is nothing to divide, and steps are as long as the case says.
        asked, end = _asked(table)
        time_step = scalars["dt"]
        since, begun = int(scalars.get("since", 0)), scalars.get("begun", 0.0)
        own = cls.of(table).time_step == time_step
        asked_before = scalars.get("asked", asked if own else time_step)
        now = cls(time_step, asked_before, 0, since, begun).at(step)
        left = (end - now) / time_step
        same = step + round(left)
        if left <= _ROUNDING:
            if asked == asked_before:
                return cls(time_step, asked, same, since, begun)
            return cls(asked, asked, same, step, now)
        steps = max(1, math.ceil((end - now) / asked - _ROUNDING))
        if step + steps == same and abs(left - round(left)) <= _ROUNDING:
            return cls(time_step, asked, same, since, begun)
        return cls((end - now) / steps, asked, step + steps, step, now)


def _asked(table: FlowTable) -> tuple[float, float]:
    """The time step that a case of unsteady flow gives, and its end, in s."""
    time_step, end = table.time.time_step, table.time.end
    assert time_step is not None
    assert end is not None
    return time_step, end
