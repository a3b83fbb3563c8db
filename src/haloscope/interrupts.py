"""Who is told of SIGINT and SIGTERM while something runs that can be stopped in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)
# Batch systems and `timeout` send one request several times: a Ctrl-C that means more than the
# first comes later than that.
SAME_REQUEST_SECONDS = 1.0


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM, raised where it came.

    Attributes
    ----------
    number
        Which of them.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler have SIGINT and SIGTERM within a block; in other threads signals stay."""
    before: dict[signal.Signals, Any] = {}
    for number in STOPPING:
        with contextlib.suppress(ValueError):  # not in the main thread
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, kept in before.items():
            signal.signal(number, kept)


@contextlib.contextmanager
def raised() -> Iterator[list[Interrupted]]:
    """Let SIGINT and SIGTERM raise :class:`Interrupted` within a block; gives those that came."""
    came: list[Interrupted] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(Interrupted(number))
        raise came[-1]

    with handled_by(end):
        yield came
