"""Options that commands share, the ranks that they run on, progress of long work, and ends: exit codes, error lines, signals."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from haloscope.errors import (
    ERROR_LENGTH,
    WARNING,
    InputError,
    MachineError,
    message_line,
    raw_stream,
)
from haloscope.io import interrupts
from haloscope.io.interrupts import STOPPING, Interrupted

if TYPE_CHECKING:
    from haloscope.exchange.ranks.world import World

Json = Annotated[
    bool, typer.Option("--json", help="Print only one JSON object on standard output.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or auto (a GPU if there is one).")
]

CaseFile = Annotated[
    Path,
    typer.Argument(
        metavar="CASE", help="Case file (TOML), or the name of a shipped case (haloscope cases)."
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a key: table.key=value, table.list.0.key=value (repeatable)."
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


_ROOT_FIRST_SECONDS = 1.0
_COMMAND_LENGTH = ERROR_LENGTH - 100  # leaves room for the rest of an error line
# Of output that cannot be written.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def fail(message: str, code: int) -> NoReturn:
    """Print an error once and end all ranks with a code."""
    world = opened_world()
    parallel = world is not None and world.size > 1
    if parallel and world is not None and not world.is_root:
        # Most errors are met by every rank: rank 0 tells them and ends the others meanwhile.
        time.sleep(_ROOT_FIRST_SECONDS)
    with contextlib.suppress(OSError):
        print(f"haloscope: error: {message_line(message)}", file=sys.stderr, flush=True)
    if parallel and world is not None:
        world.abort(code)
    raise SystemExit(code)


def open_closed_streams() -> None:
    """Let what was closed before the start take text, which nobody reads: Python has None there."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            # Commands that are started get it, too: a file that they open must not take its place.
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            else:
                os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def fail_without_output(error: OSError) -> NoReturn:
    """End since standard output cannot be written; raise the error again if it is about something else."""
    if error.filename is not None or error.errno not in _FULL:
        raise error
    # What is still buffered would fail once more at the end.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    fail(
        f"standard output cannot be written ({error.strerror}); free disk space or redirect it",
        MachineError.exit_code,
    )


@contextlib.contextmanager
def interrupts_raised() -> Iterator[list[interrupts.Interrupted]]:
    """`interrupts.raised`, but for ranks: who has started them says that it ends them."""
    from haloscope.exchange.ranks.guard import RANK_NUMBERS

    if any(name in os.environ for name in RANK_NUMBERS):
        yield []
    else:
        with interrupts.raised() as came:
            yield came


def before_the_first_step(stop: Interrupted, case: Path, out: Path | None) -> str:
    """Leave a summary in the folder that was named, and say what became of the run."""
    if out is not None:
        leave_summary(128 + stop.number, case, out, 1)
    kept = f"see {out / 'summary.json'}" if out is not None else "nothing was written"
    return f"stopped by {stop} during set-up, before the first step; {kept}"


def leave_summary(code: int, case: Path, folder: Path, ranks: int) -> bool:
    """Write the summary of a run that a signal ended during its set-up, if none is there.

    Gives whether that is so.
    """
    from haloscope.io.atomic import write_json
    from haloscope.run.records import make_folder

    path = folder / "summary.json"
    if code - 128 not in STOPPING or path.exists():
        return False
    make_folder(folder)
    summary = {
        "case": case.stem,
        "ranks": ranks,
        "steps": None,
        "steps_this_run": 0,
        "seconds": 0.0,
        "converged": False,
        "stopped_by": signal.Signals(code - 128).name,
        "files": {"summary": str(path)},
    }
    write_json(path, summary)
    return True


def after_ranks(code: int, case: Path, folder: Path, ranks: int) -> str | None:
    """Leave a summary, and give the line that ranks ended by a signal have not printed themselves.

    Parameters are those of :func:`leave_summary`.
    """
    if code - 128 not in STOPPING:
        return None
    name, path = signal.Signals(code - 128).name, folder / "summary.json"
    if leave_summary(code, case, folder, ranks):
        return f"stopped by {name} during set-up, before the first step; see {path}"
    with contextlib.suppress(OSError, ValueError, KeyError):
        if json.loads(path.read_bytes())["stopped_by"] is not None:
            return None
    return f"stopped by {name} after the last step; see {path}"


def continuation(
    case: Path,
    folder: Path,
    *,
    ranks: int,
    device: str | None,
    settings: Sequence[str],
    steps: int | None,
) -> str:
    """The command that continues a run, with all that a restart needs of the first command."""
    name = f"./{case}" if str(case).startswith("-") else str(case)
    words = ["haloscope", "run", name]
    words += ["--ranks", str(ranks)] if ranks > 1 else []
    words += ["--device", device] if device else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--steps", str(steps)] if steps is not None else []
    end = ["--restart", "--out", str(folder)]
    command = shlex.join([*words, *end])
    # A command that is cut in the middle is none.
    return command if len(command) <= _COMMAND_LENGTH else f"the same options and {shlex.join(end)}"


def where_it_was(stop: Interrupted, folder: Path, command: str) -> str:
    """Say that a run was ended at once, and whether it can go on."""
    from haloscope.io.checkpoint import list_checkpoints

    saved = list_checkpoints(folder)
    more = f"continue with: {command}" if saved else "there is no checkpoint to restart from"
    return f"stopped immediately by {stop}; {more}"
