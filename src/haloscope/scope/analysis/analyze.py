"""The work of `haloscope analyze`: reads a measurement folder, finds where time is lost, writes it.

Everything that the command prints and writes comes from :func:`analyze`; a folder that holds an
analysis already gets the new one in its place.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.errors import InputError, MachineError, counted
from haloscope.io.atomic import write_json, write_text
from haloscope.scope import maps, report
from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.analysis.score import seconds_of_recording
from haloscope.scope.diagnosis import conditions, diagnose, findings
from haloscope.scope.diagnosis.conditions import RECORDING
from haloscope.scope.export.cubex import write_cubex
from haloscope.scope.maps.pictures import write_maps
from haloscope.scope.maps.placement import suggest
from haloscope.scope.replay.inputs import Processes
from haloscope.scope.report import Analysis, comparison
from haloscope.scope.trace.measurement import Measurement, open_measurement
from haloscope.scope.trace.profiles import analyse_profile, totals
from haloscope.scope.trace.profiles import in_words as counters_in_words

REPORT = "report.md"
FINDINGS = "findings.json"
CUBEX = "report.cubex"
COMPARISON = "compare.md"
_MUCH_WITHOUT_CORE = 0.05  # of the ranks' time


def analyze(
    folder: Path | str,
    *,
    what_if: Sequence[str] = (),
    threads: int = 0,
    against: Path | str | None = None,
    out: Path | None = None,
    progress: Callable[[float], None] | None = None,
    processes: Processes | None = None,
) -> Analysis:
    """Analyse a measurement folder and write the result into it.

    `out`: folder for the report and all else that is written; by default `folder`.
    """
    folder = measurement_in(Path(folder))
    measurement = open_measurement(folder)
    _require_writable(out or folder)
    earlier = _earlier(Path(against), threads) if against is not None else None
    changes = [_change(measurement, text) for text in what_if]
    result = result_of(measurement, threads, progress, processes)
    predictions = [_predict(measurement, *change, threads) for change in changes]
    hosts = _hosts(measurement)
    result.about["hosts"] = list(hosts)
    without_core = [_without_core(measurement, rank) for rank in range(measurement.size)]
    result.about["without_core"] = without_core
    result.about["aborts"] = _aborts(measurement)
    result.about["counters"] = counters = totals(measurement, result)
    seconds, is_at_least = seconds_of_recording(measurement, result)
    result.about[RECORDING] = {"seconds": seconds, "is_at_least": is_at_least}
    traffic = maps.whole_run(result)
    analysis = Analysis(
        _name(measurement),
        result,
        diagnose(result),
        hosts,
        traffic,
        maps.routines(result),
        maps.distances(traffic, hosts, result.comms),
        # Advice is withheld where ranks lack cores.
        None if conditions.lacks_cores(result) else suggest(traffic, hosts),
        what_if=predictions,
        notes=[*_lack_of_cores(result), *_not_recorded(result), *counters_in_words(counters)],
    )
    _write(analysis, out or folder, earlier, str(against))
    return analysis


def measurement_in(folder: Path) -> Path:
    """The measurement folder that is meant: the folder itself, or the one of a run in it."""
    inner = folder / "measurement"
    if inner.is_dir() and not any(folder.glob("rank-*.def")):
        return inner
    return folder


def result_of(
    measurement: Measurement,
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
    processes: Processes | None = None,
) -> Result:
    """Result of a trace (replayed) or a profile (summed up); nothing is written."""
    if measurement.mode != "trace":
        return analyse_profile(measurement)
    from haloscope.scope import replay

    return replay.analyse(measurement, threads, progress=progress, processes=processes)


def assist(folder: Path | str, processes: Processes, threads: int = 0) -> None:
    """Take part in the replay of a trace, as a process other than the first."""
    measurement = open_measurement(measurement_in(Path(folder)))
    if measurement.mode == "trace":
        from haloscope.scope import replay

        replay.assist(measurement, processes, threads)


def _earlier(folder: Path, threads: int) -> Result:
    folder = measurement_in(folder)
    if (folder / FILE).is_file():
        return Result.load(folder / FILE)
    return result_of(open_measurement(folder), threads)


def _change(measurement: Measurement, text: str) -> tuple[str, str | None]:
    """Name and value of a change that can be predicted."""
    from haloscope.scope.analysis import whatif

    name, _, value = text.partition("=")
    change = name.strip(), value.strip() or None
    whatif.check(measurement, *change)
    return change


def _predict(
    measurement: Measurement, name: str, value: str | None, threads: int
) -> dict[str, Any]:
    from haloscope.scope.analysis.whatif import predict

    prediction = predict(measurement, name, value, threads)
    return {
        "name": prediction.name,
        "seconds": prediction.measured,
        "predicted": prediction.predicted,
        "model_error": prediction.model_error,
        "gain_unmeasured": None
        if math.isnan(prediction.gain_unmeasured)
        else prediction.gain_unmeasured,
        "notes": list(prediction.notes),
    }


def _hosts(measurement: Measurement) -> tuple[str, ...]:
    """Host of each rank, empty where the rank is missing."""
    said = measurement.ranks
    return tuple(
        str(said[rank].opening.get("host") or "") if rank in said else ""
        for rank in range(measurement.size)
    )


def _without_core(measurement: Measurement, rank: int) -> float:
    """Seconds for which a rank was ready to run but had no core; 0 where nothing says so."""
    said = measurement.ranks.get(rank)
    for note in said.notes if said is not None else ():
        seconds = note.get("without_core")
        if isinstance(seconds, int | float) and 0 <= seconds < math.inf:
            return float(seconds)
    return 0.0


def _aborts(measurement: Measurement) -> list[list[int]]:
    """Ranks that have called MPI_Abort, with their error codes."""
    return [
        [rank, code]
        for rank, said in sorted(measurement.ranks.items())
        for note in said.notes
        if isinstance(code := note.get("abort"), int)
    ]


def _require_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK):
        raise MachineError(
            "the report cannot be written into this folder",
            location=str(folder),
            remedy="give another folder with --out DIR",
        )


def _lack_of_cores(result: Result) -> list[str]:
    """Note on ranks that share cores: their waits and messages seem to take longer."""
    lost, share = conditions.seconds_without_core(result)
    if not _MUCH_WITHOUT_CORE <= share < conditions.MUCH:
        return []
    return [
        f"ranks were ready to run but had no core for {findings.seconds(lost)}, "
        f"{findings.percent(share)} of their time (rank {int(np.argmax(result.about['without_core']))} "
        "most): there are fewer cores than ranks, ranks are bound to the same cores, or other "
        "programs run; waits and message times include this time"
    ]


def _not_recorded(result: Result) -> list[str]:
    """Messages and collectives that only count in the order of others, in one line."""
    nouns = {"sends": "send", "receives": "receive", "collectives": "collective operation"}
    counts = [
        counted(number, noun)
        for category, noun in nouns.items()
        if isinstance(number := result.about.get(f"skipped_{category}"), int) and number
    ]
    notes = []
    if unknown := result.about.get("channels_without_pairs"):
        notes.append(
            f"{counted(unknown, 'channel')} of messages without waits: the trace does not count "
            "messages during pauses, and no pause explains the missing messages; measure again"
        )
    if counts:
        listed = " and ".join([", ".join(counts[:-1]), counts[-1]] if counts[1:] else counts)
        notes.append(
            f"skipped: {listed}, not recorded since the measurement was paused, the call filtered or "
            "its request freed; they show no waits, and all other messages are paired as in the run"
        )
    return notes


def _name(measurement: Measurement) -> str:
    command = measurement.about.get("command")
    if isinstance(command, list) and command:
        return " ".join((Path(str(command[0])).name, *map(str, command[1:])))
    if isinstance(command, str) and command:
        return command
    program = next(iter(measurement.ranks.values())).opening.get("program")
    return str(program) if program else measurement.folder.name


def _write(analysis: Analysis, folder: Path, earlier: Result | None, name: str) -> None:
    result = analysis.result
    hosts = dict(enumerate(analysis.hosts)) if all(analysis.hosts) else None
    analysis.files = {"report": str(folder / REPORT)}
    result.save(folder / FILE)
    analysis.pictures = write_maps(folder, analysis.traffic, analysis.routines, analysis.placement)
    analysis.files |= {"maps": str(folder / "maps"), "result": str(folder / FILE)}
    try:
        write_cubex(result, folder / CUBEX, hosts)
        analysis.files["cubex"] = str(folder / CUBEX)
    except InputError as error:
        # Without values, or too large for the format: all other files are written, with a note.
        (folder / CUBEX).unlink(missing_ok=True)
        analysis.notes.append(f"{CUBEX} is not written: {error}")
    write_json(folder / FINDINGS, _diagnosis(analysis))
    if earlier is not None:
        compared = comparison.compare(earlier, result, (name, str(folder)))
        analysis.comparison = compared
        write_text(folder / COMPARISON, comparison.page(compared))
        analysis.files["comparison"] = str(folder / COMPARISON)
    relative = {key: Path(path).name for key, path in analysis.files.items() if key != "report"}
    write_text(folder / REPORT, report.page(replace(analysis, files=relative)))


def _diagnosis(analysis: Analysis) -> dict[str, Any]:
    """Diagnosis in the form that the explorer and others read."""
    return {
        "notes": analysis.notes,
        "answer": analysis.answer,
        "measuring": analysis.intrusion.as_json(),
        "findings": [one.as_json() for one in analysis.findings],
    }


def as_json(analysis: Analysis) -> dict[str, Any]:
    """Output of ``haloscope analyze --json``."""
    result, traffic = analysis.result, analysis.traffic
    quiet = maps.silence(traffic)
    placement = analysis.placement
    summary: dict[str, Any] = {
        "mode": result.about.get("mode"),
        "ranks": result.size,
        "seconds": result.about.get("span"),
        "partial": analysis.partial,
        "missing_ranks": result.about.get("missing_ranks") or [],
        "warnings": analysis.warnings,
        **_diagnosis(analysis),
        "metrics": {
            one.name: {
                "total": result.total(one.name),
                "unit": one.unit,
                "by_rank": result.by_rank(one.name).tolist(),
            }
            for one in METRICS
        },
        "messages": {
            "count": round(result.total("messages_sent")),
            "zero_sized": round(result.total("empty_messages_sent")),
            "bytes": round(result.total("bytes_sent")),
            "by_rank": _whole(result.by_rank("messages_sent")),
            "zero_sized_by_rank": _whole(result.by_rank("empty_messages_sent")),
            "received_by_rank": _whole(result.by_rank("messages_received")),
            "bytes_by_rank": _whole(result.by_rank("bytes_sent")),
            "skipped": {
                category: result.about.get(f"skipped_{category}", 0)
                for category in ("sends", "receives", "collectives")
            },
            "sizes": result.sizes.sum(axis=0).tolist() if result.sizes.size else [],
            "pairs": {
                "all": quiet.pairs,
                "with_data": quiet.with_data,
                "only_empty": quiet.only_empty,
                "silent_share": quiet.share,
            },
        },
        "efficiencies": {} if conditions.lacks_cores(result) else result.about.get("pop") or {},
        "critical_path": result.about.get("critical_path"),
        "clock_violations": result.about.get("clock_violations"),
        "hosts": {
            "count": analysis.distances.hosts,
            "bytes_inside": analysis.distances.inside,
            "bytes_across": analysis.distances.across,
        },
        "placement": None
        if placement is None
        else {
            "bytes_across": placement.before,
            "predicted": placement.after,
            "hosts": list(placement.hosts),
        },
        "files": analysis.files,
    }
    summary["counters"] = result.about.get("counters") or {}
    if report.gpus.has_gpus(result):
        summary["gpu"] = report.gpus.as_json(result)
    if analysis.what_if:
        summary["what_if"] = analysis.what_if
    if analysis.comparison is not None:
        summary["comparison"] = analysis.comparison.as_json()
    return summary


def _whole(values: Any) -> list[int]:
    return [int(value) for value in np.rint(values)]
