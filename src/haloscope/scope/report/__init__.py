"""The report of an analysis as Markdown and on the terminal: the answer first, then the evidence.

Names in it come from the measured program and are escaped. Imported by commands and analysis;
imports analysis, diagnosis, gpu, maps and trace.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.scope import maps
from haloscope.scope.analysis.metrics import BY_NAME, Metric, children
from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import answer
from haloscope.scope.diagnosis import findings as wording
from haloscope.scope.diagnosis.conditions import Intrusion, lacks_cores
from haloscope.scope.diagnosis.findings import Finding, View, headings
from haloscope.scope.diagnosis.waits import WAITS
from haloscope.scope.maps import Distances, Traffic
from haloscope.scope.maps.placement import Placement
from haloscope.scope.report import gpus
from haloscope.scope.report.comparison import Comparison, sentences
from haloscope.scope.report.gpus import cell, table

if TYPE_CHECKING:
    from rich.text import Text

MOST_PATHS = 12
MOST_ROUTINES = 8
_LEAST_SHARE = 0.0005  # of all time, for a row of the tree
_EFFICIENCIES = (
    ("parallel_efficiency", "Parallel efficiency", "mean computation time over run time"),
    ("load_balance", "= load balance", "mean over maximum of the computation time of ranks"),
    ("communication_efficiency", "x communication", "largest computation time over run time"),
    ("serialisation_efficiency", "= serialisation", "largest computation time over run time on an "
     "ideal network"),
    ("transfer_efficiency", "x transfer", "run time on an ideal network over run time"),
)  # fmt: skip


@dataclass
class Analysis:
    """All that an analysis has to tell; the report, the terminal and JSON show parts of it."""

    name: str  # The measured program, or the folder
    result: Result  # What the replay or the profile gave
    findings: list[Finding]  # Of the diagnosis, most expensive first
    hosts: tuple[str, ...]  # Host of each rank, empty where it is not known
    # Messages of the run, and of the routines that send.
    traffic: Traffic
    routines: list[Traffic]
    # Of the messages, and a better placement of ranks if there is one.
    distances: Distances
    placement: Placement | None
    # Names of pictures relative to the report, by (title of the traffic, kind): kinds are ``map``
    # and ``receivers``.
    pictures: list[tuple[str, str, str]] = field(default_factory=list)
    # Predictions, if they were asked for.
    what_if: list[dict[str, Any]] = field(default_factory=list)
    comparison: Comparison | None = None  # With an earlier measurement, if that was asked for
    files: dict[str, str] = field(default_factory=dict)  # What was written, by name
    # What to know when reading the figures; what was not written, and why.
    notes: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """Missing or broken parts, one line each."""
        return [str(line) for line in self.result.about.get("warnings") or []]

    @property
    def partial(self) -> bool:
        """Whether something is missing in the measurement."""
        return bool(self.result.about.get("partial"))

    @property
    def answer(self) -> list[str]:
        """The diagnosis in three sentences."""
        return answer(self.result, self.findings)

    @property
    def intrusion(self) -> Intrusion:
        """Section on the cost of the measurement."""
        return Intrusion.of(self.result)


def page(analysis: Analysis) -> str:
    """The whole report."""
    result = analysis.result
    parts = [f"# Where {wording.code(analysis.name, 100)} spends its time", ""]
    parts += [" ".join(analysis.answer), ""]
    took = analysis.intrusion
    if took.sentence:
        parts += [took.figure if lacks_cores(result) else took.sentence, ""]
    if analysis.partial:
        parts += [
            "> **Partial.** Parts of the measurement are missing; the figures cover the rest. "
            "[Missing parts](#the-measurement)",
            "",
        ]
    view = View.of(result)
    if analysis.findings:
        parts += ["## Findings", "", *_findings(analysis.findings, view)]
    if analysis.what_if:
        parts += ["## Predictions", "", *_predictions(analysis.what_if)]
    if analysis.comparison is not None:
        before = wording.code(analysis.comparison.before, 100)
        parts += [f"## Comparison with {before}", "", " ".join(sentences(analysis.comparison)), ""]
        parts += ["[By metric and by call path](compare.md)", ""]
    parts += ["## Time by metric", "", *_tree(view), *_efficiencies(result)]
    parts += gpus.section(result)
    parts += ["## Call paths", "", *_call_paths(view)]
    if len(result.pairs) or result.total("messages_sent"):
        parts += ["## Messages", "", *_messages(analysis)]
    parts += ["## Ranks", "", *_ranks(view)]
    parts += ["## The measurement", "", *_measurement(analysis)]
    return "\n".join(parts).rstrip() + "\n"


def _findings(findings: Sequence[Finding], view: View) -> list[str]:
    lines = []
    above = headings(one.once for one in findings)
    for number, (one, heading) in enumerate(zip(findings, above, strict=True), 1):
        if heading:
            lines += [heading, ""]
        lines += [
            f"### {number}. {one.title}",
            "",
            f"**{wording.percent(one.share)} of the time** ({wording.seconds(one.seconds)}), "
            f"{view.in_words(one.ranks)}"
            + (f", in {wording.code(one.where)}" if one.where else "")
            + ".",
            "",
            f"{wording.begun(one.figure)}. {one.cause}".strip(),
            "",
            f"*Remedy:* {one.remedy}",
            "",
        ]
    return lines


def _predictions(predictions: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (
            cell(str(one.get("name", ""))),
            wording.seconds(float(one.get("seconds", 0.0))),
            wording.seconds(float(one.get("predicted", 0.0))),
            _change(float(one.get("seconds", 0.0)), float(one.get("predicted", 0.0))),
        )
        for one in predictions
    ]
    notes = [
        f"- {cell(str(one.get('name', '')))}: {wording.markdown(str(note), 300)}"
        for one in predictions
        for note in one.get("notes", ())
    ]
    return [
        *table(("change", "measured", "predicted", "difference"), rows),
        *notes,
        *([""] if notes else []),
    ]


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.3g} %" if before > 0 else ""


def _tree(view: View) -> list[str]:
    """The tree of time with shares; branches below a two-thousandth are left out."""
    rows: list[tuple[str, ...]] = []

    def walk(metric: Metric, depth: int) -> None:
        total = view.result.total(metric.name)
        if metric.name != "time" and view.share(total) < _LEAST_SHARE:
            return
        by_rank = view.result.by_rank(metric.name)
        low, high = int(np.argmin(by_rank)), int(np.argmax(by_rank))
        rows.append(
            (
                "&emsp;" * depth + metric.title,
                wording.seconds(total),
                wording.percent(view.share(total)),
                f"{wording.seconds(float(by_rank[low]))} ({low})",
                f"{wording.seconds(float(by_rank[high]))} ({high})",
            )
        )
        for child in children(metric.name):
            walk(child, depth + 1)

    walk(BY_NAME["time"], 0)
    lines = [
        "Sums over all threads and ranks; minimum and maximum of a rank with its number.",
        *gpus.left_out(view.result),
        "",
    ]
    return lines + table(("", "seconds", "share", "minimum (rank)", "maximum (rank)"), rows)


def _efficiencies(result: Result) -> list[str]:
    efficiencies = result.about.get("pop") or {}
    if lacks_cores(result):
        return ["Efficiencies are left out: ranks lack cores, which determines the figures.", ""]
    rows = [
        (title, wording.percent(float(efficiencies[name])), meaning)
        for name, title, meaning in _EFFICIENCIES
        if isinstance(efficiencies.get(name), int | float)
    ]
    if not rows:
        return []
    lines = [
        "Efficiencies as defined by the POP project, for the time outside MPI_Init and "
        "MPI_Finalize:",
        "",
    ]
    header = "| | | meaning |\n|---|---:|---|"
    return [*lines, header, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _call_paths(view: View) -> list[str]:
    result = view.result
    time = result.value("time").sum(axis=1)
    waiting = sum((result.value(name).sum(axis=1) for name in WAITS), np.zeros_like(time))
    visits = result.value("visits").sum(axis=1)
    delay = result.value("delay").sum(axis=1)
    rows = []
    for seconds, nodes in view.same_paths(time)[:MOST_PATHS]:
        by_rank = view.by_rank(result.value("time")[nodes].sum(axis=0))
        most = int(np.argmax(by_rank))
        row = [
            cell(view.path(nodes[0])),
            wording.seconds(seconds),
            wording.percent(view.share(seconds)),
            wording.count(float(visits[nodes].sum())),
            f"{wording.seconds(float(by_rank[most]))} ({most})",
        ]
        if result.waits.size or waiting.any():
            row += [
                wording.seconds(float(waiting[nodes].sum())) if waiting[nodes].any() else "",
                wording.seconds(float(delay[nodes].sum())) if delay[nodes].any() else "",
            ]
        rows.append(row)
    header = ["call path", "seconds", "share", "visits", "maximum (rank)"]
    if result.waits.size or waiting.any():
        header += ["waits in it", "waits of other ranks for it"]
    lines = ["Own time of each call path without called functions, longest first.", ""]
    return lines + table(header, rows)


def _messages(analysis: Analysis) -> list[str]:
    result, traffic = analysis.result, analysis.traffic
    quiet = maps.silence(traffic)
    messages, empty = result.total("messages_sent"), result.total("empty_messages_sent")
    lines = [
        f"{wording.things(messages, 'message')} with {wording.size(result.total('bytes_sent'))}; "
        f"{wording.count(empty)} of them ({wording.percent(empty / max(messages, 1))}) are empty."
    ]
    if quiet.pairs:
        lines.append(
            f"{wording.percent(quiet.share)} of {wording.count(quiet.pairs)} pairs of ranks exchange "
            "no data"
            + (
                f"; {wording.percent(quiet.only_empty / quiet.pairs)} exchange only empty messages."
                if quiet.only_empty
                else "."
            )
        )
    lines.append("")
    for title, kind, name in analysis.pictures[:2]:
        lines += [f"![{_KINDS[kind]}: {wording.markdown(title, 60)}]({name})", ""]
    lines += _sizes(result.sizes)
    lines += _routines(analysis)
    lines += _where_to(analysis)
    return lines


_KINDS = {"map": "communication matrix", "receivers": "receivers, sorted"}


def _sizes(sizes: NDArray[np.int64]) -> list[str]:
    if not sizes.size or not sizes.any():
        return []
    counts = sizes.sum(axis=0)
    whole = int(counts.sum())
    rows = []
    for index in np.flatnonzero(counts).tolist():
        upper = "empty" if index == 0 else f"up to {wording.size(2 ** (index - 1))}"
        share = counts[index] / whole
        bar = "█" * max(1, round(30 * share))
        rows.append((upper, wording.count(float(counts[index])), wording.percent(share), bar))
    header = "| size | messages | share | |\n|---|---:|---:|:---|"
    return [header, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _routines(analysis: Analysis) -> list[str]:
    if len(analysis.routines) < 1:
        return []
    rows = []
    for one in analysis.routines[:MOST_ROUTINES]:
        messages, empty = one.total("messages"), one.total("empty")
        quiet = maps.silence(one)
        pictures = " ".join(
            f"[{kind}]({name})"
            for title, kind, name in analysis.pictures
            if title == wording.path(one.path)
        )
        rows.append(
            (
                cell(wording.path(one.path)),
                wording.count(messages),
                wording.percent(empty / max(messages, 1)),
                wording.size(one.total("bytes")),
                wording.seconds(one.total("receive_seconds")) if one.timed else "",
                wording.percent(quiet.share),
                pictures,
            )
        )
    header = ("routine", "messages", "empty", "bytes", "receive time", "silent pairs", "pictures")
    return table(header, rows)


def _where_to(analysis: Analysis) -> list[str]:
    """The messages against hosts and Cartesian communicators, and a better placement."""
    far = analysis.distances
    lines = []
    if far.hosts > 1:
        whole = max(far.inside + far.across, 1)
        lines.append(
            f"On {far.hosts} hosts: {wording.size(far.inside)} stay within a host, "
            f"{wording.size(far.across)} ({wording.percent(far.across / whole)}) cross hosts."
        )
    for name, dims, hops in far.cartesian:
        grid = " x ".join(map(str, dims))
        lines.append(
            f"On the {grid} grid of {wording.code(name, 60)}, a byte travels {hops:.3g} hop{'' if hops == 1 else 's'} on average."
        )
    placement = analysis.placement
    if placement is not None:
        lines += [
            "",
            f"**A better placement.** With ranks on other hosts, {wording.size(placement.after)} "
            f"instead of {wording.size(placement.before)} would cross hosts "
            f"({wording.percent(placement.saved)} less). Start the program again with",
            "",
            "    mpiexec -f maps/placement-hosts.txt ...                       # MPICH",
            "    mpirun --hostfile maps/placement-hosts.txt --map-by seq ...   # Open MPI",
            "    mpirun --rankfile maps/placement-rankfile.txt ...             # Open MPI, a core each",
            "    SLURM_HOSTFILE=maps/placement-hosts.txt srun -m arbitrary ... # Slurm",
        ]
    return [*lines, ""] if lines else []


def _ranks(view: View) -> list[str]:
    result = view.result
    waiting = np.zeros(result.size)
    for name in WAITS:
        waiting = waiting + result.by_rank(name)
    columns: list[tuple[str, NDArray[np.float64], Any]] = [
        ("Computation", result.by_rank("computation"), wording.seconds),
        ("MPI", result.by_rank("mpi"), wording.seconds),
        ("Waiting for other ranks", waiting, wording.seconds),
        ("Waiting of other ranks for it", result.by_rank("delay"), wording.seconds),
        ("GPU calls", result.by_rank("gpu"), wording.seconds),
        ("Overhead of the measurement", result.by_rank("overhead"), wording.seconds),
        ("Messages sent", result.by_rank("messages_sent"), wording.count),
        ("Bytes sent", result.by_rank("bytes_sent"), wording.size),
    ]
    heap = result.about.get("heap_bytes_by_rank")
    if isinstance(heap, list) and len(heap) == result.size:
        columns.append(("Maximum heap in use", np.array(heap, np.float64), wording.size))
    rows = [
        (
            title,
            f"{spelled(float(values.min()))} ({int(np.argmin(values))})",
            spelled(float(values.mean())),
            f"{spelled(float(values.max()))} ({int(np.argmax(values))})",
            f"{float(values.max() / values.mean()):.2f}",
        )
        for title, values, spelled in columns
        if values.any()
    ]
    header = ("by rank", "minimum (rank)", "mean", "maximum (rank)", "maximum / mean")
    return table(header, rows)


def _measurement(analysis: Analysis) -> list[str]:
    about = analysis.result.about
    lines = []
    command = about.get("command")
    if command:
        text = " ".join(map(str, command)) if isinstance(command, list) else str(command)
        lines.append(f"- Command: {wording.code(text, 300)}")
    where = wording.things(analysis.result.size, "rank")
    if analysis.hosts and all(analysis.hosts):
        where += f" on {wording.things(len(set(analysis.hosts)), 'host')}"
    lines.append(f"- {where}")
    mode = about.get("mode")
    if mode == "trace" and about.get("events"):
        lines.append(f"- Trace of {wording.count(float(about['events']))} events")
    elif mode:
        lines.append(f"- Measured as {wording.code(str(mode), 20)}")
    clocks = about.get("clock_violations")
    if isinstance(clocks, dict) and clocks.get("before"):
        lines.append(
            f"- Messages that arrive before they are sent: {clocks.get('before')} with measured "
            f"clocks, {clocks.get('after')} with corrected clocks"
        )
    lines += [f"- {wording.markdown(line, 300)}" for line in (*analysis.warnings, *analysis.notes)]
    names = [f"[{wording.markdown(name)}]({name})" for name in analysis.files.values()]
    if names:
        lines.append(f"- Files: {', '.join(names)}")
    return [*lines, ""]


WIDTH = 80
_INDENT = 4
_MOST_WARNINGS = 5


def show(analysis: Analysis, *, colour: bool | None = None) -> str:
    """The analysis as lines of at most :data:`WIDTH` columns.

    `colour`: with the terminal's colours; by default where standard output is a terminal.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    coloured = sys.stdout.isatty() if colour is None else colour
    console = Console(
        file=io.StringIO(),
        width=WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        legacy_windows=False,
    )

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style))

    result = analysis.result
    mode = str(result.about.get("mode") or "measurement")
    ranks = wording.things(result.size, "rank")
    say(f"{wording.plain(analysis.name, 50)}: {mode} of {ranks}", "bold")
    missing = "partial" if analysis.partial else "note"
    listed = [(missing, line) for line in analysis.warnings]
    listed += [("note", line) for line in analysis.notes]
    for kind, line in listed[:_MOST_WARNINGS]:
        say(f"{kind}: {wording.plain(line, 300)}", "yellow")
    if len(listed) > _MOST_WARNINGS:
        say(f"note: {len(listed) - _MOST_WARNINGS} more in report.md")
    say(" ".join(analysis.answer))
    took = analysis.intrusion
    scarce = lacks_cores(result)
    if took.sentence:
        say(took.figure if scarce else took.sentence, "yellow" if took.is_large else "")
    view = View.of(result)
    above = headings(one.once for one in analysis.findings)
    for number, (one, heading) in enumerate(zip(analysis.findings, above, strict=True), 1):
        console.print()
        if heading:
            say(f"{heading}\n")
        head = Text(f"{number:>2}. ")
        head.append(one.title, style="bold")
        head.append(f"  {wording.percent(one.share)}, {wording.seconds(one.seconds)}", "red")
        console.print(_hanging(head))
        place = wording.begun(view.in_words(one.ranks))
        if one.where:
            place += f", {one.where}"
        body = Text(f"{place}\n")
        body.stylize("dim")
        body.append(f"{wording.begun(one.figure)}. {one.cause}".strip() + "\n")
        body.append("Remedy: ", style="bold")
        body.append(one.remedy)
        console.print(Padding(body, (0, 0, 0, _INDENT)))
    efficiencies = None if scarce else _efficiency_line(analysis)
    if efficiencies is not None:
        console.print()
        console.print(efficiencies)
    for change in analysis.what_if:
        after, now = (float(change.get(key, 0.0)) for key in ("predicted", "seconds"))
        name = wording.plain(str(change.get("name")))
        say(f"What if {name}: {wording.seconds(after)} instead of {wording.seconds(now)}", "bold")
        for note in change.get("notes", ()):
            console.print(
                Padding(Text(wording.plain(str(note), 300), style="dim"), (0, 0, 0, _INDENT))
            )
    if analysis.comparison is not None:
        before = wording.plain(analysis.comparison.before, 50)
        say(f"\nComparison with {before}: {' '.join(sentences(analysis.comparison))}")
    if analysis.placement is not None and not scarce:
        say(
            f"Placement: {wording.percent(analysis.placement.saved)} fewer bytes across hosts with "
            "maps/placement-hosts.txt (see report.md)."
        )
    console.print()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.rstrip() for line in text.splitlines()]
    lines += [f"{name}: {wording.plain(path, 4096)}" for name, path in analysis.files.items()]
    return "\n".join(lines)


def _hanging(head: Text) -> Text:
    """A headline whose further lines stand under its text."""
    from rich.console import Console

    lines = head.wrap(Console(width=WIDTH), WIDTH - _INDENT)
    for line in lines[1:]:
        line.pad_left(_INDENT)
    return type(head)("\n").join(lines)


def _efficiency_line(analysis: Analysis) -> Text | None:
    from rich.text import Text

    efficiencies = analysis.result.about.get("pop") or {}
    if "parallel_efficiency" not in efficiencies:
        return None
    text = f"Efficiency {wording.percent(efficiencies['parallel_efficiency'])}"
    parts = [
        f"{title} {wording.percent(efficiencies[name])}"
        for name, title in (
            ("load_balance", "load balance"),
            ("serialisation_efficiency", "serialisation"),
            ("transfer_efficiency", "transfer"),
        )
        if name in efficiencies
    ]
    if (
        "serialisation_efficiency" not in efficiencies
        and "communication_efficiency" in efficiencies
    ):
        parts.append(f"communication {wording.percent(efficiencies['communication_efficiency'])}")
    return Text(f"{text} = {' x '.join(parts)}" if parts else text)
