"""What a command tells about its work while it goes on, apart from its result."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from haloscope.commands.options import opened_world
from haloscope.errors import message_line, raw_stream


def say(text: str) -> None:
    """Tell the user something that is no result."""
    world = opened_world()
    if world is None or world.is_root:
        lines = "\n".join(message_line(line) for line in text.split("\n"))
        # Work goes on where nobody can be told of it.
        with contextlib.suppress(OSError):
            print(lines, file=sys.stderr, flush=True)


class Bar:
    """Progress on a terminal as a bar, elsewhere as a line every tenth of the way."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._tenth = 0
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("left{task.fields[residual]}"),
                console=Console(file=raw_stream(sys.stderr)),
                transient=True,
            )
            self._bar.start()

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show steps done and wanted, the rate, and the largest residual."""
        change = f", residual {residual:.1e}" if residual is not None else ""
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("", total=end, rate=rate, residual=change)
            self._bar.update(self._task, completed=step, rate=rate, residual=change)
        elif end > 0 and step * 10 // end > self._tenth:
            self._tenth = step * 10 // end
            say(f"step {step}/{end}, {rate}{change}")

    def line(self, text: str) -> None:
        """Tell something once."""
        say(text)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
