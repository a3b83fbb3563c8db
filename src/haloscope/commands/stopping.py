"""What is said, and left behind, of a run that a signal ended out of order."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

from haloscope.io.interrupts import STOPPING, Interrupted


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
    from haloscope.run.folders import make_folder

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


def where_it_was(stop: Interrupted, folder: Path) -> str:
    """Say that a run was ended at once, and whether it can go on."""
    from haloscope.io.checkpoint import list_checkpoints

    saved = list_checkpoints(folder)
    more = (
        f"go on with --restart --out {folder}" if saved else "there is no checkpoint to go on from"
    )
    return f"stopped at once by {stop}; {more}"


__all__ = ["after_ranks", "before_the_first_step", "leave_summary", "where_it_was"]
