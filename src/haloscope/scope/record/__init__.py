"""The tracer: C sources that are preloaded into measured programs, their build, and the measuring run.

Imported by commands, trace, replay, analysis and export; imports trace, device and io.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

RECORDER_SOURCES = tuple(
    _HERE / f"{name}.c"
    for name in (
        *("recorder", "buffers", "clock", "counters", "definitions", "ending", "environment"),
        *("events", "gpu_streams", "hooks", "openmp", "profile", "symbols", "text", "unwind"),
    )
)
RECORDER_HEADERS = tuple(_HERE / name for name in ("recorder.h", "location.h", "events.h"))
