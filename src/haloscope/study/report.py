"""The report of a study: progress lines, and a page with table, missing points, pictures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from haloscope.errors import counted
from haloscope.io.atomic import write_text
from haloscope.solvers import registry
from haloscope.solvers.sweeping import Columns
from haloscope.study.plots import describe_peaks, draw, draw_sizes
from haloscope.study.point import HEADING
from haloscope.study.sweep import Row, Study
from haloscope.study.table import NAME as TABLE
from haloscope.study.table import Record, Values, csv_text, efficiency, line_of, read_published

NAME = "report.md"

# Columns that the page shows where they differ from row to row, before those of the solver.
_OPTIONS = ("device", "host", "device_name", "mpi", "ranks_per_node", "growth")
_HEADS = {
    "seconds_per_step": "ms a step",
    "speedup": "speed-up",
    "ok": "bits of one rank",
    "published": "published efficiency",
}
_HALF = (
    "n_1/2 is the size at which one rank reaches half of its largest measured rate. Times between two "
    "measured sizes are interpolated linearly."
)
# What the terminal's table calls a column.
_SHORT = {"decomposition": "blocks"}


def progress(row: Row | None, record: Record, base: Record | None) -> str:
    """A line on a point that has ended."""
    if row is None:
        label = "reference on one rank"
    else:
        ranks = counted(row.point.ranks, "rank")
        line = line_of(row)
        series = f"{row.series}: {line}" if line else row.series
        label = ", ".join([series, ranks, row.layout.description])
    if record["status"] != "done":
        return f"{label}: {record['status']}: {record['reason']}"
    if "seconds" not in record:
        return f"{label}: done"
    parallel = efficiency(record, base)
    suffix = "" if parallel is None else f", efficiency {parallel:.3f}"
    return f"{label}: {1e3 * statistics.median(record['seconds']):.4g} ms a step{suffix}"


def write(
    folder: Path, study: Study, path: Path, rows: Sequence[Values], phases: str = ""
) -> Values:
    """Write table, pictures and report; give the result of the study."""
    numbers = read_published(path.parent / study.published.file) if study.published else []
    files = {"table": str(folder / TABLE), "points": str(folder / "points.jsonl")}
    write_text(folder / TABLE, csv_text(rows, study.solver))
    name = study.published.name if study.published else ""
    own = registry.sweeping(study.solver).COLUMNS
    pictures = [
        *draw(folder, study.title, rows, numbers, name, own.panel),
        *draw_sizes(folder, study.title, rows, own),
    ]
    files.update({picture.stem: str(picture) for picture in pictures})
    files["report"] = str(folder / NAME)
    write_text(folder / NAME, _report(study, path, rows, numbers, pictures, phases))
    checks = {
        f"{_name(row)}, {row['id']}": {
            "value": row["ok"],
            "reference": True,
            "tolerance": 0,
            "ok": row["ok"],
        }
        for row in rows
        if row["ok"] is not None
    }
    failed = [row for row in rows if row["status"] == "failed"]
    return {
        "study": study.title,
        "points": list(rows),
        "left_out": [row for row in rows if row["status"] == "left out"],
        "failed": failed,
        "checks": checks,
        "files": files,
        "ok": not failed and all(check["ok"] for check in checks.values()),
    }


def _report(
    study: Study,
    path: Path,
    rows: Sequence[Values],
    numbers: Sequence[Values],
    pictures: Sequence[Path],
    phases: str,
) -> str:
    done = [row for row in rows if row["status"] == "done"]
    parts = [f"# {study.title}"]
    if study.about:
        parts.append(study.about.strip())
    parts.append(_conditions(study, path, done))
    parts += [f"![{picture.stem}]({picture.name})" for picture in pictures]
    if done:
        parts += ["## Measurements", _markdown(study.solver, done, numbers)]
    if phases:
        parts += [f"## {HEADING}", phases]
    peaks = describe_peaks(rows, registry.sweeping(study.solver).COLUMNS)
    if peaks:
        parts += ["## Size at half of the peak rate", _HALF, peaks]
    parts += ["## Comparison with one rank", _verdict(rows, study)]
    for status, heading in (
        ("failed", "Failed points"),
        ("left out", "Points left out"),
        ("waiting", "Points not run"),
    ):
        missing = [row for row in rows if row["status"] == status]
        if missing:
            parts += [f"## {heading}", "\n".join(_reasons(missing))]
    if numbers and study.published is not None:
        parts += [f"## {study.published.name}", _published(numbers)]
    return "\n\n".join(parts) + "\n"


def _conditions(study: Study, path: Path, done: Sequence[Values]) -> str:
    """How and where it was measured."""
    lines = [
        f"Study `{path.name}`, solver {study.solver}. Each time is the median of {study.repeats} "
        f"blocks of {counted(study.steps, 'step')}, on the slowest rank; spread is the difference of the "
        f"slowest and the fastest block over the median. {registry.sweeping(study.solver).COLUMNS.meaning}"
    ]
    machines = sorted({(row["host"], row["device_name"]) for row in done})
    for host, device in machines:
        own = [row for row in done if (row["host"], row["device_name"]) == (host, device)]
        loads = [row["load"] for row in own]
        dates = sorted(row["date"][:10] for row in own)
        days = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        versions = ", ".join(sorted({row["version"] for row in own}))
        lines.append(
            f"- {device} on {host}, {days}, haloscope {versions}, load {min(loads):.2f} to "
            f"{max(loads):.2f}"
        )
    return "\n".join([lines[0], "", *lines[1:]]) if machines else lines[0]


def _shown_columns(own: Columns, rows: Sequence[Values], numbers: Sequence[Values]) -> list[str]:
    """Columns of the page: of the options those in which rows differ."""
    several = [row for row in rows if row["ranks"] > 1]
    names = [*_OPTIONS, *(option.name for option in own.options)]
    options = [key for key in names if len({row[key] for row in several}) > 1]
    if all(row["ranks"] == row["ranks_per_node"] for row in rows):
        options = [key for key in options if key != "ranks_per_node"]
    energy = [own.energy.name] if any(row[own.energy.name] for row in rows) else []
    published = ["published"] if numbers else []
    return [
        *("series", "ranks"),
        *(column.name for column in own.problem),
        *options,
        *("seconds_per_step", "spread"),
        *(column.name for column in own.rates),
        *("speedup", "efficiency"),
        *published,
        *energy,
        "ok",
    ]


def _markdown(solver: str, rows: Sequence[Values], numbers: Sequence[Values]) -> str:
    own = registry.sweeping(solver).COLUMNS
    columns = _shown_columns(own, rows, numbers)
    heads = _HEADS | {c.name: c.head for c in (*own.rates, own.energy) if c.head}
    if own.nearness is not None:
        heads["ok"] = "as on one rank"
    published = {(row["label"], row["decomposition"], row["ranks"]): row for row in numbers}
    lines = [
        "| " + " | ".join(heads.get(key, key.replace("_", " ")) for key in columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for row in _once(rows):
        theirs = published.get((row["series"], row.get("decomposition"), row["ranks"]), {})
        values = {**row, "published": theirs.get("efficiency")}
        cells = [_shown(key, values[key]) for key in columns]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _once(rows: Sequence[Values]) -> Iterator[Values]:
    """The rows, points of one rank once: most of what series ask for makes no difference there."""
    known = set()
    for row in rows:
        key = (row["id"], row["host"])
        if row["ranks"] > 1 or key not in known:
            known.add(key)
            yield row


def _shown(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("seconds_per_step",):
        return f"{1e3 * value:.4g}"
    if key.startswith("joules_per_"):
        return f"{1e9 * value:.3g}"
    if key == "spread":
        return f"{100 * value:.1f} %"
    if key in ("efficiency", "published", "speedup"):
        return f"{value:.3f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _verdict(rows: Sequence[Values], study: Study) -> str:
    steps = study.check_steps
    if not steps:
        return "Nothing was compared with one rank: check_steps = 0."
    done = [row for row in rows if row["status"] == "done"]
    same = sum(row["ok"] is True for row in done)
    if registry.sweeping(study.solver).COLUMNS.nearness is None:
        verdict = "equal those of one rank bitwise"
    else:
        verdict = "equal those of one rank within the solver's tolerance"
    lines = [
        f"After {counted(steps, 'step')} the fields of {same} of {counted(len(done), 'row')} {verdict}."
    ]
    for row in done:
        if row["ok"] is False:
            lines.append(f"- {_name(row)}: **its fields differ from those of one rank**")
        if row["ok"] is None:
            lines.append(f"- {_name(row)}: not compared: one rank could not compute its grid")
    return "\n".join([lines[0], "", *lines[1:]]) if len(lines) > 1 else lines[0]


def _reasons(rows: Sequence[Values]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row["reason"], []).append(_name(row))
    for reason, names in by_reason.items():
        yield f"- {reason}: {'; '.join(names)}"


def _name(row: Values) -> str:
    line = f" ({row['line']})" if row["line"] else ""
    return f"{row['series']}{line}, {counted(row['ranks'], 'rank')}"


def _published(numbers: Sequence[Values]) -> str:
    columns = ("label", "decomposition", "ranks", "ssspnt", "efficiency")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_shown(key, row[key]) for key in columns) + " |" for row in numbers]
    return "\n".join(lines)


def listing(listed: Values) -> str:
    """Text of :func:`haloscope.study.campaign.listing` for a terminal."""
    rows = {row["id"] for row in listed["points"] if row["status"] == "waiting"}
    others = listed["to_run"] - len(rows)
    beside = f", {others} of them on one rank for comparison" if others else ""
    return f"{text(listed['points'])}\nto run: {counted(listed['to_run'], 'point')}{beside}"


def text(rows: Sequence[Values]) -> str:
    """The rows in a table for a terminal: what was measured, or what would be."""
    problem = [c.name for c in registry.sweeping(rows[0]["solver"]).COLUMNS.problem] if rows else []
    head = ["series", "ranks", *(_SHORT.get(name, name) for name in problem)]
    first = len(head)
    near = bool(rows) and registry.sweeping(rows[0]["solver"]).COLUMNS.nearness is not None
    head += ["ms a step", "speed-up", "efficiency", "fields" if near else "bits"]
    body = []
    for row in _once(rows):
        name = ": ".join(filter(None, (row["series"], row["line"])))
        known = [name, str(row["ranks"]), *(str(row[key]) for key in problem)]
        if row["status"] == "done":
            numbers = [_shown(k, row[k]) for k in ("seconds_per_step", "speedup", "efficiency")]
            body.append([*known, *numbers, {True: "same", False: "DIFFER"}.get(row["ok"], "?")])
        elif row["status"] == "waiting":
            body.append([*known, row["reason"]])
        else:
            body.append([*known, f"{row['status']}: {row['reason']}"])
    lines = [head, *body]
    widths = [max(len(line[i]) for line in lines) for i in range(first)]
    return "\n".join(
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(c.rjust(width) for c, width in zip(line[1:first], widths[1:], strict=True)),
                *(cell.rjust(10) for cell in line[first:]),
            ]
        ).rstrip()
        for line in lines
    )
