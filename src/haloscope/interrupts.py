"""Who is told of SIGINT and SIGTERM while something runs that can be stopped in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM)


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
