"""The page of a finished run: pictures, numbers, notices, first rows of tables and versions, as HTML without a script."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haloscope.errors import WARNING, InputError, counted, printable, shortened

MOST_BYTES = 32 << 20
"""A larger picture is left out."""
_MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif"}
_FIRST_PICTURE = "overview.png"
_TABLE_BYTES = 1 << 16  # read of a table
_MOST_ROWS = 10
_MOST_COLUMNS = 40
_CELL_LENGTH = 60
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1100px; padding: 16px 24px 48px;
  font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { margin: 0 0 4px; font-size: 24px; overflow-wrap: anywhere; }
h2 { margin: 32px 0 8px; font-size: 18px; }
h3 { margin: 20px 0 6px; font-size: 15px; }
.muted { color: GrayText; overflow-wrap: anywhere; }
.warning { margin: 8px 0; padding: 6px 12px; border-left: 4px solid #d9822b;
  background: rgba(217, 130, 43, 0.14); overflow-wrap: anywhere; }
pre { margin: 0; overflow-x: auto; font: 13.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
li { overflow-wrap: anywhere; }
figure { margin: 12px 0 20px; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff; }
figcaption { font-size: 13px; color: GrayText; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 14px 3px 0; text-align: left; vertical-align: top; }
tr { border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
thead th { white-space: nowrap; }
tbody th { font-weight: normal; color: GrayText; }
"""


@dataclass(frozen=True)
class Picture:
    """A picture of the folder of a run."""

    path: Path
    media_type: str

    def read(self) -> bytes:
        """Its content."""
        try:
            return _read(self.path, MOST_BYTES)
        except OSError as error:
            raise InputError(
                f"the picture cannot be read ({error.strerror or error})", location=str(self.path)
            ) from error


@dataclass(frozen=True)
class RunFiles:
    """Files of a run that its page shows, and a line for each that it leaves out."""

    pictures: dict[str, Picture]
    """By their address beside the page."""
    tables: list[Path]
    left_out: list[str]


def list_files(folder: Path) -> RunFiles:
    """Pictures and tables in the folder of a run: plain files, no links, which may lead elsewhere."""
    try:
        names = sorted(os.listdir(folder), key=lambda name: (name != _FIRST_PICTURE, name))
    except OSError as error:
        raise InputError(
            f"the folder cannot be read ({error.strerror})", location=str(folder)
        ) from error
    files = RunFiles({}, [], [])
    for name in names:
        path = folder / name
        if name.startswith(".") or path.suffix not in (*_MEDIA_TYPES, ".csv"):
            continue
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            files.left_out.append(f"{name}: a link or no file")
        elif path.suffix == ".csv":
            files.tables.append(path)
        elif status.st_size > MOST_BYTES:
            files.left_out.append(f"{name}: {status.st_size / 1e6:.0f} MB")
        else:
            address = f"picture-{len(files.pictures) + 1}{path.suffix}"
            files.pictures[address] = Picture(path, _MEDIA_TYPES[path.suffix])
    return files


def results_page(
    folder: Path, summary: Mapping[str, Any], files: RunFiles, *, embedded: bool
) -> str:
    """The page as HTML; `embedded`: with its pictures inside, else with their addresses beside it."""
    title = _text(summary.get("title") or summary.get("case") or folder.name)
    notices = summary_lines(summary, "notices")
    sections = [
        _opening(summary, title, folder),
        _headline(summary),
        _pictures(files.pictures, embedded),
        _section("Numbers", _pairs(_numbers(summary)) + _derived(summary)),
        _section("Checks", _pairs((name, words(row)) for name, row in _items(summary, "checks"))),
        _section("Notices", _list([line for line in notices if not line.startswith(WARNING)])),
        _section("Tables", "".join(_table(path) for path in files.tables)),
        _section("Versions", _pairs(_versions(summary))),
        _section("Not shown", _list(files.left_out)),
    ]
    style = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    sources = "data:" if embedded else "'self' data:"
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; img-src {sources}; base-uri 'none'; "
        "form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title} - Haloscope</title>
<style>{_STYLE}</style>
</head>
<body>
{"".join(sections)}
</body>
</html>
"""


# -- parts of the page ---------------------------------------------------------------------------


def _opening(summary: Mapping[str, Any], title: str, folder: Path) -> str:
    ranks = summary.get("ranks")
    parts = [
        f"solver {summary.get('solver')}",
        f"case {summary.get('case')}",
        f"on {summary.get('device')}",
        counted(ranks, "rank") if ranks else "",
        f"folder {folder}",
    ]
    line = _text(", ".join(part for part in parts if part))
    return f'<h1>{title}</h1>\n<p class="muted">{line}</p>\n'


def _headline(summary: Mapping[str, Any]) -> str:
    warnings = "".join(
        f'<p class="warning">{_text(notice)}</p>\n'
        for notice in summary_lines(summary, "notices")
        if notice.startswith(WARNING)
    )
    lines = _text("\n".join(summary_lines(summary, "headline")))
    return _section("Results", warnings + (f"<pre>{lines}</pre>\n" if lines else ""))


def _pictures(pictures: Mapping[str, Picture], embedded: bool) -> str:
    figures = []
    for address, picture in pictures.items():
        name, source = _text(picture.path.name), address
        if embedded:
            data = base64.b64encode(picture.read()).decode()
            source = f"data:{picture.media_type};base64,{data}"
        figures.append(
            f'<figure><img src="{source}" alt="{name}"><figcaption>{name}</figcaption></figure>\n'
        )
    return _section("Pictures", "".join(figures))


def _numbers(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    state = "last step reached"
    if summary.get("stopped_by"):
        state = f"stopped by {summary['stopped_by']}"
    elif summary.get("diverged"):
        state = "diverged"
    elif summary.get("converged"):
        state = "steady state reached"
    rows = [("end", state), ("steps", words(summary.get("steps")))]
    if "seconds" in summary:
        rows.append(("time of stepping", f"{words(summary['seconds'])} s"))
    if "rate" in summary:
        rows.append(("rate", words(summary["rate"])))
    bandwidth, energy = dict(_items(summary, "bandwidth")), dict(_items(summary, "energy"))
    if "achieved_gb_s" in bandwidth:
        text = f"{words(bandwidth['achieved_gb_s'])} GB/s"
        if isinstance(bandwidth.get("fraction"), float):
            text += (
                f", {100 * bandwidth['fraction']:.0f} % of the "
                f"{words(bandwidth.get('ceiling_gb_s'))} GB/s measured in the same run"
            )
        rows.append(("memory bandwidth", text))
    if isinstance(energy.get("joules"), float):
        rows.append(("energy", f"{words(energy['joules'])} J ({energy.get('source')})"))
    memory = summary.get("memory_bytes")
    if isinstance(memory, int | float):
        rows.append(("memory of the fields", f"{memory / 1e6:.4g} MB"))
    return rows


def _derived(summary: Mapping[str, Any]) -> str:
    rows = _pairs((name, words(number)) for name, number in _items(summary, "derived"))
    return f"<h3>From the case</h3>\n{rows}" if rows else ""


def _versions(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    provenance = dict(_items(summary, "provenance"))
    names = {
        "mpi": "MPI",
        "compiler": "compiler",
        "kernel": "kernels (hash)",
        "case_hash": "case (hash)",
    }
    rows = [(name, words(text)) for name, text in _items(provenance, "versions")]
    return rows + [
        (name, words(provenance[key])) for key, name in names.items() if key in provenance
    ]


def _table(path: Path) -> str:
    """First rows of a table, of which only the beginning is read."""
    heading = f"<h3>{_text(path.name)}</h3>\n"
    try:
        data = _read(path, _TABLE_BYTES, cut=True)
        is_cut = len(data) > _TABLE_BYTES
        lines = data[:_TABLE_BYTES].decode("utf-8", "replace").splitlines()
        rows = list(csv.reader(lines[:-1] if is_cut else lines))
    except (OSError, csv.Error) as error:
        return f"{heading}<p>It cannot be read ({_text(error)}).</p>\n"
    if not rows:
        return f"{heading}<p>It is empty.</p>\n"
    names, *rows = rows
    notes = []
    if is_cut or len(rows) > _MOST_ROWS:
        notes.append(counted(min(len(rows), _MOST_ROWS), "row"))
    if len(names) > _MOST_COLUMNS:
        notes.append(f"{_MOST_COLUMNS} of {len(names)} columns")
    head = _cells(names, "th")
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>\n" for row in rows[:_MOST_ROWS])
    note = f'<p class="muted">The first {" and ".join(notes)}.</p>\n' if notes else ""
    return (
        f'{heading}<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>'
        f"</table></div>\n{note}"
    )


def _cells(texts: list[str], tag: str) -> str:
    return "".join(
        f"<{tag}>{_text(shortened(text, _CELL_LENGTH))}</{tag}>" for text in texts[:_MOST_COLUMNS]
    )


def _section(heading: str, content: str) -> str:
    """A part with its heading; nothing without content."""
    return f"<section>\n<h2>{heading}</h2>\n{content}</section>\n" if content else ""


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    lines = [
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(text)}</td></tr>\n'
        for name, text in rows
    ]
    return f"<table><tbody>\n{''.join(lines)}</tbody></table>\n" if lines else ""


def _list(lines: list[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>\n" for line in lines)
    return f"<ul>\n{items}</ul>\n" if items else ""


# -- a summary may come from anywhere ------------------------------------------------------------


def _text(text: object) -> str:
    """A text as HTML: no markup in it, control characters as escapes."""
    return html.escape(printable(str(text)))


def _items(table: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    """Entries of a table within a table; none where there is something else."""
    value = table.get(key)
    return list(value.items()) if isinstance(value, dict) else []


def summary_lines(summary: Mapping[str, Any], key: str) -> list[str]:
    """Lines of a list in a summary; none where there is something else."""
    value = summary.get(key)
    return [str(line) for line in value] if isinstance(value, list) else []


def words(value: Any) -> str:
    """A number, a number with its unit, or a row of numbers with their names."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        if set(value) == {"value", "unit"}:
            return f"{words(value['value'])} {value['unit']}".rstrip()
        return ", ".join(f"{name} {words(part)}" for name, part in value.items())
    return str(value)


def _read(path: Path, most: int, *, cut: bool = False) -> bytes:
    """A plain file as it is now; `cut`: one byte more than `most` shows that there is more."""
    # A link or a pipe may have come in its place.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or (status.st_size > most and not cut):
            raise OSError(f"{path.name} is not a file of at most {most} bytes")
        return file.read(most + 1)
