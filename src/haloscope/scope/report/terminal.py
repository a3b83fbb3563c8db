"""Shows an analysis on the terminal: the answer, the largest costs, the files."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from haloscope.scope.diagnosis import findings
from haloscope.scope.diagnosis.conditions import lacks_cores
from haloscope.scope.diagnosis.findings import View, headings
from haloscope.scope.report.comparison import sentences

if TYPE_CHECKING:
    from rich.text import Text

    from haloscope.scope.report import Analysis

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
    result = analysis.result
    mode = str(result.about.get("mode") or "measurement")
    ranks = findings.things(result.size, "rank")
    console.print(Text(f"{findings.plain(analysis.name, 50)}: {mode} of {ranks}", style="bold"))
    missing = "partial" if analysis.partial else "note"
    listed = [(missing, line) for line in analysis.warnings]
    listed += [("note", line) for line in analysis.notes]
    for kind, line in listed[:_MOST_WARNINGS]:
        console.print(Text(f"{kind}: {findings.plain(line, 300)}", style="yellow"))
    if len(listed) > _MOST_WARNINGS:
        console.print(Text(f"note: {len(listed) - _MOST_WARNINGS} more in report.md"))
    console.print(Text(" ".join(analysis.answer)))
    took = analysis.intrusion
    scarce = lacks_cores(result)
    if took.sentence:
        sentence = took.figure if scarce else took.sentence
        console.print(Text(sentence, style="yellow" if took.is_large else ""))
    view = View.of(result)
    above = headings(one.once for one in analysis.findings)
    for number, (one, heading) in enumerate(zip(analysis.findings, above, strict=True), 1):
        console.print()
        if heading:
            console.print(Text(f"{heading}\n"))
        head = Text(f"{number:>2}. ")
        head.append(one.title, style="bold")
        head.append(f"  {findings.percent(one.share)}, {findings.seconds(one.seconds)}", "red")
        console.print(_hanging(head))
        place = findings.begun(view.in_words(one.ranks))
        if one.where:
            place += f", {one.where}"
        body = Text(f"{place}\n", style="")
        body.stylize("dim")
        body.append(f"{findings.begun(one.figure)}. {one.cause}".strip() + "\n")
        body.append("Remedy: ", style="bold")
        body.append(one.remedy)
        console.print(Padding(body, (0, 0, 0, _INDENT)))
    efficiencies = None if scarce else _efficiencies(analysis)
    if efficiencies is not None:
        console.print()
        console.print(efficiencies)
    for change in analysis.what_if:
        console.print(
            Text(
                f"What if {findings.plain(str(change.get('name')))}: {findings.seconds(float(change.get('predicted', 0.0)))} "
                f"instead of {findings.seconds(float(change.get('seconds', 0.0)))}",
                style="bold",
            )
        )
        for note in change.get("notes", ()):
            console.print(
                Padding(Text(findings.plain(str(note), 300), style="dim"), (0, 0, 0, _INDENT))
            )
    if analysis.comparison is not None:
        before = findings.plain(analysis.comparison.before, 50)
        console.print(
            Text(f"\nComparison with {before}: {' '.join(sentences(analysis.comparison))}")
        )
    if analysis.placement is not None and not scarce:
        placement = analysis.placement
        console.print(
            Text(
                f"Placement: {findings.percent(placement.saved)} fewer bytes across hosts with "
                "maps/placement-hosts.txt (see report.md)."
            )
        )
    console.print()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.rstrip() for line in text.splitlines()]
    lines += [f"{name}: {findings.plain(path, 4096)}" for name, path in analysis.files.items()]
    return "\n".join(lines)


def _hanging(head: Text) -> Text:
    """A headline whose further lines stand under its text."""
    from rich.console import Console

    lines = head.wrap(Console(width=WIDTH), WIDTH - _INDENT)
    for line in lines[1:]:
        line.pad_left(_INDENT)
    return type(head)("\n").join(lines)


def _efficiencies(analysis: Analysis) -> Text | None:
    from rich.text import Text

    efficiencies = analysis.result.about.get("pop") or {}
    if "parallel_efficiency" not in efficiencies:
        return None
    text = f"Efficiency {findings.percent(efficiencies['parallel_efficiency'])}"
    parts = [
        f"{title} {findings.percent(efficiencies[name])}"
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
        parts.append(f"communication {findings.percent(efficiencies['communication_efficiency'])}")
    return Text(f"{text} = {' x '.join(parts)}" if parts else text)
