"""Replay of a trace, all ranks side by side: waits, partners and causes.

:func:`analyse` is the entry: ``inputs.py`` maps a measurement into memory, ``waits.cpp`` finds wait
states, ``causes.cpp`` their causes, ``patterns.py`` fills the result. ``causal.py`` makes a table
of messages; all match them in ``channels.h``. Imported by analysis, explorer and export; imports
record, trace and analysis/result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from haloscope.device.cpu import host_memory
from haloscope.errors import InputError, counted
from haloscope.scope.analysis.result import Result, efficiencies
from haloscope.scope.replay.gpus import add_gpus
from haloscope.scope.replay.inputs import Processes, make_inputs, shared, threads_per_process
from haloscope.scope.replay.patterns import Replayed, fill, take_part
from haloscope.scope.trace.measurement import Measurement
from haloscope.scope.trace.profiles import leave_helpers_out

# Root causes need all wait states at hand; this is what they take where nearly every message waits.
BYTES_A_WORD_FOR_CAUSES = 24


def analyse(
    measurement: Measurement,
    threads: int = 0,
    *,
    causes: bool | None = None,
    correct_clocks: bool = True,
    progress: Callable[[float], None] | None = None,
    processes: Processes | None = None,
) -> Result:
    """Analyse a trace.

    `causes`: find root causes, critical path and imbalance too; by default where the wait states,
    which are all needed for that, fit into the memory that is free.
    """
    if not any(place.events for place in measurement.locations):
        raise InputError(
            "wait states need a trace; this measurement holds no events",
            location=str(measurement.folder),
            remedy="measure again with haloscope measure --trace",
        )
    knots = None
    about: dict[str, object] = {}
    if correct_clocks:
        from haloscope.scope.replay import causal

        correction = causal.correct(measurement)
        knots = correction.knots or None
        about["clock_violations"] = {"before": correction.before, "after": correction.after}
    if processes is not None:
        threads = threads_per_process(processes, threads)
    inputs = make_inputs(measurement, threads, knots)
    needed, (free, _) = BYTES_A_WORD_FOR_CAUSES * inputs.events, host_memory()
    if causes is None:
        causes = needed <= free
    if processes is not None:
        tables = {index: table.tolist() for index, table in (knots or {}).items()}
        shared(processes, {"causes": causes, "knots": tables})
    replayed = Replayed(inputs, causes, progress, processes)
    result = Result.empty(measurement)
    fill(result, measurement, replayed)
    add_gpus(result, measurement, knots)
    leave_helpers_out(result)
    counts = replayed.counts
    cut = _cut(measurement, replayed)
    warnings = [*measurement.warnings, *cut, *_warnings(counts)]
    if not causes:
        warnings.append(
            f"root causes are left out: they may need {needed / 1e9:.1f} GB of memory, and only "
            f"{free / 1e9:.1f} GB are free"
        )
    used = np.array([bool(place.events) for place in measurement.locations])
    begin = float(replayed.begins[used].min()) if used.any() else 0.0
    end = float(replayed.ends[used].max()) if used.any() else 0.0
    result.about |= about
    result.about |= {
        "mode": "trace",
        "events": counts["events"],
        "begin": begin,
        "span": end - begin,
        "partial": bool(measurement.warnings) or bool(cut) or _lost(counts),
        "warnings": warnings,
        "missing_ranks": measurement.missing,
        **{name: counts[name] for name in ("unmatched_sends", "unmatched_receives")},
        **{name: counts[name] for name in ("skipped_sends", "skipped_receives")},
        "channels_without_pairs": inputs.shifts.unknown,
        **{name: counts[name] for name in ("skipped_collectives", "scans", "scans_synchronising")},
        "critical_path": replayed.critical_path,
        "causes_explained": replayed.explained,
        "pop": efficiencies(result),
    }
    return result


def assist(measurement: Measurement, processes: Processes, threads: int = 0) -> None:
    """Replay a part of a trace while the first process calls :func:`analyse`."""
    threads = threads_per_process(processes, threads)
    gathered = shared(processes, None)
    knots = {int(index): np.array(table, np.int64) for index, table in gathered["knots"].items()}
    take_part(make_inputs(measurement, threads, knots or None), gathered["causes"], processes)


def _cut(measurement: Measurement, replayed: Replayed) -> list[str]:
    """Ranks that ended in order but whose first thread's events do not, one line each."""
    return [
        f"rank {place.rank} ended in order, but its events stop within a call"
        for index, place in enumerate(measurement.locations)
        if place.number == 0 and replayed.open[index] and measurement.ranks[place.rank].ended
    ]


def _lost(counts: dict[str, int]) -> bool:
    lost = ("broken", "unmatched_sends", "unmatched_receives", "incomplete_collectives", "unknown")
    return any(counts[name] for name in lost)


def _warnings(counts: dict[str, int]) -> list[str]:
    """Inconsistencies of a trace, one line each."""
    said = {
        "broken": ("event file", "with an incomplete or unknown event"),
        "unmatched_sends": ("send", "without a receive"),
        "unmatched_receives": ("receive", "without a send"),
        "incomplete_collectives": ("collective operation", "that some ranks did not enter"),
        "unknown": ("event", "without a definition"),
    }
    return [
        f"{counted(counts[name], noun)} {text}"
        for name, (noun, text) in said.items()
        if counts[name]
    ]
