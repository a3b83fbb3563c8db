"""Options that commands share, the ranks that they run on, and progress of long work."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from haloscope.errors import WARNING, InputError, message_line, raw_stream

if TYPE_CHECKING:
    from haloscope.exchange.ranks.world import World


Json = Annotated[
    bool, typer.Option("--json", help="Print only one JSON object on standard output.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda or auto (a GPU if there is one)."),
]

CaseFile = Annotated[
    Path,
    typer.Argument(
        metavar="CASE", help="Case file (TOML), or the name of a shipped case (haloscope cases)."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only warnings and errors.")]
Port = Annotated[
    int,
    typer.Option(help="Port to serve on at 127.0.0.1 (default: a free port).", min=0, max=65535),
]
NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
]

_BETWEEN_LINES = 10.0  # seconds between two lines of progress in a log

# The argument of a command that is a program to be started, with arguments of its own.
_PROGRAM = "command"


class TextGroup(TyperGroup):
    """Refuses empty arguments of its commands, as variables of a shell that are not set give them.

    A path made of one would be the working folder. They are looked at as the command's own parser
    sees them: ``--out=`` is empty, too, and arguments of a measured program are its own.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Give the command's name, the command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            own = type(ctx)(command, info_name=name, parent=ctx, **command.context_settings)
            values, _, _ = command.make_parser(own).parse_args(args=list(rest))
            for parameter in command.params:
                _require_text(parameter, values.get(parameter.name))
        return name, command, rest


def _require_text(parameter: Any, value: Any) -> None:
    texts = list(value) if isinstance(value, list | tuple) else [value]
    if parameter.name == _PROGRAM:
        del texts[1:]
    if not any(isinstance(text, str) and not text.strip() for text in texts):
        return
    option = parameter.opts[0] if parameter.opts[0].startswith("-") else ""
    advice = ", or leave the option out" if option else ""
    raise InputError(
        "the value is empty (is a shell variable unset?)",
        location=option or f"argument {parameter.name}",
        remedy=f"give a value{advice}",
    )


_world: World | None = None


def open_world() -> World:
    """The ranks of this command: MPI's where a launcher started it, else this process alone."""
    global _world
    if _world is None:
        from haloscope.exchange.ranks import world

        _world = world.open_world()
    return _world


def opened_world() -> World | None:
    """The same where it has been opened, else None: MPI is not touched for it."""
    return _world


def say(text: str) -> None:
    """Tell the user something that is no result."""
    world = opened_world()
    if world is None or world.is_root:
        lines = "\n".join(message_line(line) for line in text.split("\n"))
        # Work goes on where nobody can be told of it.
        with contextlib.suppress(OSError):
            print(lines, file=sys.stderr, flush=True)


class QuietProgress:
    """Prints warnings, and no progress."""

    def update(self, step: int, end: int, rate: str, residual: float | None) -> None:
        """Show nothing."""

    def line(self, text: str) -> None:
        """Print a line if it is a warning."""
        if text.startswith(WARNING):
            say(text)

    def close(self) -> None:
        """Nothing was shown."""


class Bar:
    """Progress on a terminal as a bar, elsewhere as lines: every tenth of the way, every 10 s."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._tenth = 0
        self._last_line = time.monotonic()
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
        elif end > 0 and self._is_line_due(step * 10 // end):
            say(f"step {step}/{end}, {rate}{change}")

    def _is_line_due(self, tenth: int) -> bool:
        now = time.monotonic()
        if tenth <= self._tenth and now - self._last_line < _BETWEEN_LINES:
            return False
        self._tenth, self._last_line = tenth, now
        return True

    def line(self, text: str) -> None:
        """Tell something once."""
        say(text)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
