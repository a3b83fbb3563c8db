"""Compares two analyses: text and tables of faster and slower parts.

Call paths are matched by the names of their regions. MPI functions count to the routine that calls
them, since a changed routine often calls other ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haloscope.scope.analysis.metrics import BY_NAME, METRICS, with_ancestors
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import findings
from haloscope.scope.report.gpus import cell, table

MOST_PATHS = 12
_ROUNDING = 1e-9
_WORTH_TELLING = 0.005  # share of the time before
_REPORTED = (
    *("p2p_synchronisation", "late_sender", "late_receiver", "wait_at_barrier", "wait_at_nxn"),
    *("late_broadcast", "early_reduce", "early_scan", "scan_completion", "computation", "mpi_io"),
    *("gpu_wait", "gpu_launch", "overhead", "mpi_management", "rma_synchronisation"),
)
_SPELLED: dict[str, Callable[[float], str]] = {
    "s": findings.seconds,
    "#": findings.count,
    "B": findings.size,
}


@dataclass(frozen=True)
class Change:
    """A quantity before and after."""

    name: str  # Of the metric, or the call path in words
    # Sums over all ranks, or means of a rank where the numbers of ranks differ.
    before: float
    after: float
    metric: str = ""  # For a call path, the metric below time that has changed most in it

    @property
    def change(self) -> float:
        """After less before; rounding of sums is none."""
        change = self.after - self.before
        return change if abs(change) > _ROUNDING * max(self.before, self.after) else 0.0

    def as_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {"name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Comparison:
    """Two analyses side by side; `per_rank` where means of a rank are compared, not sums."""

    before: str
    after: str
    spans: tuple[float, float]
    sizes: tuple[int, int]
    per_rank: bool
    metrics: list[Change]
    paths: list[Change]

    def as_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {
            "before": self.before,
            "after": self.after,
            "seconds": list(self.spans),
            "ranks": list(self.sizes),
            "per_rank": self.per_rank,
            "metrics": {one.name: [one.before, one.after] for one in self.metrics},
            "call_paths": [one.as_json() for one in self.paths],
            "answer": sentences(self),
        }


def compare(before: Result, after: Result, names: tuple[str, str]) -> Comparison:
    """Compare an analysis with an earlier one."""
    per_rank = before.size != after.size
    scale = (1 / before.size, 1 / after.size) if per_rank else (1.0, 1.0)
    metrics = [
        Change(one.name, before.total(one.name) * scale[0], after.total(one.name) * scale[1])
        for one in METRICS
    ]
    sides = [
        _by_routine(result, factor) for result, factor in zip((before, after), scale, strict=True)
    ]
    paths = []
    for path in dict.fromkeys([*sides[0], *sides[1]]):
        old, new = sides[0].get(path, {}), sides[1].get(path, {})
        changes = {
            name: new.get(name, 0.0) - old.get(name, 0.0) for name in {*old, *new} - {"time"}
        }
        largest = max(sorted(changes), key=lambda name: abs(changes[name]), default="")
        paths.append(
            Change(findings.path(path), old.get("time", 0.0), new.get("time", 0.0), largest)
        )
    paths.sort(key=lambda one: (-abs(one.change), one.name))
    spans = (float(before.about.get("span") or 0.0), float(after.about.get("span") or 0.0))
    return Comparison(
        *names,
        spans,
        (before.size, after.size),
        per_rank,
        [m for m in metrics if m.before or m.after],
        paths,
    )


def _by_routine(result: Result, scale: float) -> dict[tuple[str, ...], dict[str, float]]:
    """Sums of time by routine and by metric, MPI functions counted to their callers."""
    seconds: dict[tuple[str, ...], dict[str, float]] = {}
    sums = {
        name: result.exclusive(name).sum(axis=1) * scale
        for name in (one.name for one in METRICS if "time" in with_ancestors(one.name))
        if name in result.values
    }
    whole = result.value("time").sum(axis=1) * scale
    for number, node in enumerate(result.nodes):
        paradigm = result.region_of(number).paradigm
        owner = node.parent if paradigm == "mpi" and node.parent >= 0 else number
        row = seconds.setdefault(result.path_of(owner), {})
        row["time"] = row.get("time", 0.0) + float(whole[number])
        for name, values in sums.items():
            if name != "time" and values[number]:
                row[name] = row.get(name, 0.0) + float(values[number])
    return seconds


def sentences(comparison: Comparison) -> list[str]:
    """The changes in a few sentences."""
    old, new = comparison.spans
    metrics = {one.name: one for one in comparison.metrics}
    time = metrics.get("time", Change("time", 0.0, 0.0))
    if old > 0 and new > 0:
        ratio = old / new
        word = (
            "as long as before"
            if abs(ratio - 1) < 0.02
            else f"{ratio:.3g} times as fast as before"
            if ratio > 1
            else f"{1 / ratio:.3g} times as long as before"
        )
        lines = [
            f"The run takes {findings.seconds(new)} instead of {findings.seconds(old)}: {word}."
        ]
    else:
        lines = []
    if comparison.per_rank:
        lines.append(
            f"Ranks differ ({comparison.sizes[0]} and {comparison.sizes[1]}), so the following "
            "values are means of the ranks."
        )
    least = _WORTH_TELLING * max(time.before, time.after)
    chosen = [metrics[name] for name in _REPORTED if name in metrics]
    falls = sorted((one for one in chosen if one.change < -least), key=lambda one: one.change)
    rises = sorted((one for one in chosen if one.change > least), key=lambda one: -one.change)
    if falls:
        lines.append(f"Less: {findings.joined([_spelled(one) for one in falls[:3]])}.")
    if rises:
        lines.append(f"More: {findings.joined([_spelled(one) for one in rises[:3]])}.")
    if not falls and not rises:
        lines.append("No metric of time changed much.")
    moved = [one for one in comparison.paths if abs(one.change) > least][:2]
    if moved:
        parts = [
            f"{findings.code(one.name)} ({findings.seconds(one.before)} to "
            f"{findings.seconds(one.after)})"
            for one in moved
        ]
        lines.append(f"The change is largest in {findings.joined(parts)}.")
    empty = metrics.get("empty_messages_sent")
    if empty is not None and empty.change:
        lines.append(
            f"Empty messages: {findings.count(empty.before)} before, "
            f"{findings.count(empty.after)} now."
        )
    return lines


def _spelled(one: Change) -> str:
    title = BY_NAME[one.name].title
    share = f", {100 * one.change / one.before:+.3g} %" if one.before > 0 else ""
    return f"{title} ({findings.seconds(one.before)} to {findings.seconds(one.after)}{share})"


def page(comparison: Comparison) -> str:
    """The comparison as a page of Markdown."""
    header = ("", "before", "after", "change", "")
    rows = []
    for one in comparison.metrics:
        metric = BY_NAME[one.name]
        spelled = _SPELLED[metric.unit]
        depth = len(with_ancestors(one.name)) - 1
        rows.append(("&emsp;" * depth + metric.title, *_cells(one, spelled)))
    paths = [
        (
            cell(one.name),
            *_cells(one, findings.seconds),
            BY_NAME[one.metric].title if one.metric else "",
        )
        for one in comparison.paths[:MOST_PATHS]
        if one.before or one.after
    ]
    kind = "Means of the ranks" if comparison.per_rank else "Sums over all ranks"
    parts = [
        f"# {findings.code(comparison.after, 80)} compared with "
        f"{findings.code(comparison.before, 80)}",
        "",
        " ".join(sentences(comparison)),
        "",
        "## By call path",
        "",
        f"{kind}. Time in MPI functions is included in the calling routine; the last column is the "
        "metric with the largest change.",
        "",
        *table(("call path", "before", "after", "change", "", "largest change"), paths),
        "## By metric",
        "",
        *table(header, rows),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _cells(one: Change, spelled: Callable[[float], str]) -> tuple[str, str, str, str]:
    sign = "+" if one.change > 0 else "-" if one.change < 0 else ""
    share = f"{100 * one.change / one.before:+.3g} %" if one.before and one.change else ""
    return (
        spelled(one.before) if one.before else "",
        spelled(one.after) if one.after else "",
        f"{sign}{spelled(abs(one.change))}" if one.change else "",
        share,
    )
