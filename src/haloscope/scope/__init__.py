"""The measurement system: record, trace, replay, gpu, analysis, diagnosis, maps, report, explorer, export.

Imported by commands only; imports device, io and errors, and nothing of the programs that it
measures. The rest of Haloscope imports `haloscope.regions` instead.

In Python: ``haloscope.scope.open(folder)`` gives a measurement as arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from haloscope.scope.analysis.recorded_run import RecordedRun

__all__ = ["open"]


def open(folder: Path | str) -> RecordedRun:
    """Open a measurement; see :func:`haloscope.scope.analysis.recorded_run.open_run`."""
    from haloscope.scope.analysis.recorded_run import open_run

    return open_run(folder)
