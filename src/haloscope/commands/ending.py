"""Ends of commands: exit codes, error lines, signals."""

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
from typing import NoReturn

from haloscope.commands.options import opened_world
from haloscope.errors import ERROR_LENGTH, MachineError, message_line
from haloscope.io import interrupts
from haloscope.io.interrupts import STOPPING, Interrupted

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


__all__ = ["after_ranks", "before_the_first_step", "continuation", "leave_summary", "where_it_was"]
