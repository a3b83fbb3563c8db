"""Progress of a run that Python code started: one line in a notebook or a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from haloscope.errors import WARNING, message_line, raw_stream
from haloscope.exchange.ranks.world import World
from haloscope.io.notebooks import in_notebook
from haloscope.run.state import Progress, Silent

_FIRST_SECONDS = 1.0  # A shorter run shows nothing.
_BETWEEN_SECONDS = 0.25


class ProgressLine:
    """A line that is written over itself, and warnings; notebooks and terminals show both."""

    # Without rich, whose progress needs ipywidgets in a notebook: a carriage return does not.

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = time.monotonic()
        self._shown = self._begun + _FIRST_SECONDS - _BETWEEN_SECONDS
        self._first: int | None = None
        self._steps_begun = 0.0
        self._width = 0

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show steps done and wanted, the rate, the time left and the largest residual."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._steps_begun = step, now
        if now - self._shown < _BETWEEN_SECONDS and not (self._width and step >= end):
            return
        self._shown = now
        parts = [f"step {step}/{end}", rate]
        if residual is not None:
            parts.append(f"residual {residual:.1e}")
        if self._first < step < end:
            left = (now - self._steps_begun) / (step - self._first) * (end - step)
            parts.append(f"{left:.0f} s left")
        text = message_line(", ".join(parts))
        self._write(f"\r{text:<{self._width}}")
        self._width = len(text)

    def line(self, text: str) -> None:
        """Print a warning."""
        if text.startswith(WARNING):
            self._write(f"\r{message_line(text):<{self._width}}\n")
            self._width = 0

    def close(self) -> None:
        """Leave the last line as it is."""
        if self._width:
            self._write("\n")

    def _write(self, text: str) -> None:
        # The run goes on where nobody can read of it.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


@contextlib.contextmanager
def shown(progress: Progress | bool | None, world: World) -> Iterator[Progress]:
    """Progress of a run, as :meth:`Simulation.run` takes it."""
    if progress is not None and not isinstance(progress, bool):
        yield progress
        return
    stream = None
    if world.is_root and progress is not False:
        if in_notebook():
            stream = sys.stdout
        elif progress and sys.stderr.isatty():
            stream = raw_stream(sys.stderr)
    if stream is None:
        yield Silent()
        return
    line = ProgressLine(stream)
    try:
        yield line
    finally:
        line.close()
