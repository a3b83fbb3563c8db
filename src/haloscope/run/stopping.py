"""What SIGINT and SIGTERM mean to a run: stop in order, or at once when somebody insists."""

from __future__ import annotations

import signal
import time
from types import FrameType

from haloscope.exchange.ranks.world import World
from haloscope.io.interrupts import SAME_REQUEST_SECONDS, Interrupted


class StopRequest:
    """The signal that asks a run to stop, if one came."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._since = 0.0

    def note(self, number: int, frame: FrameType | None) -> None:
        """Turn SIGINT and SIGTERM into a stop after the present steps; a second Ctrl-C is one."""
        now = time.monotonic()
        if self._number is None:
            self._number, self._since = number, now
        elif number == signal.SIGINT and now - self._since > SAME_REQUEST_SECONDS:
            raise Interrupted(number)

    def reached(self, world: World) -> bool:
        """Whether any rank has got a signal; all ranks ask at the same steps."""
        if world.any(self._number is not None):
            self._number = self._number or signal.SIGTERM
            return True
        return False

    @property
    def name(self) -> str | None:
        """Name of the signal; None where none came."""
        return signal.Signals(self._number).name if self._number else None
