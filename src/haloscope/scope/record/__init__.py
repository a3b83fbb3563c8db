"""The tracer: C sources that are preloaded into measured programs, their build, and the measuring run.

Imported by commands, trace, replay, analysis and export; imports trace, device and io.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

RECORDER_SOURCES: tuple[Path, ...] = tuple(
    _HERE / name
    for name in (
        "recorder.c",
        "addresses.c",
        "arena.c",
        "buffers.c",
        "clock.c",
        "counters.c",
        "definitions.c",
        "ending.c",
        "environment.c",
        "events.c",
        "gpu_streams.c",
        "hooks.c",
        "openmp.c",
        "profile.c",
        "rank_files.c",
        "rehearsal.c",
        "skips.c",
        "symbols.c",
        "text.c",
        "unwind.c",
    )
)
RECORDER_HEADERS: tuple[Path, ...] = (
    *(_HERE / name for name in ("recorder.h", "location.h", "gpu_streams.h")),
    _HERE / "events.h",
)
