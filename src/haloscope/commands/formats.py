"""The commands `haloscope export` and `haloscope import`: measurements in formats of other tools."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from haloscope.commands.options import Json, Quiet
from haloscope.errors import InputError, counted, raw_stream

_BETWEEN_LINES = 10.0  # seconds between two lines of progress where there is no terminal
_MOST_LISTED = 5  # kinds of what was left out


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("export")(export)
    app.command("import")(import_)


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a measurement.")],
    otf2: Annotated[
        bool, typer.Option("--otf2", help="Write the trace as an OTF2 archive (Vampir, Scalasca).")
    ] = False,
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="Write the trace as JSON for ui.perfetto.dev.")
    ] = False,
    cubex: Annotated[
        bool, typer.Option("--cubex", help="Write the analysis as a Cube report.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Output file, or folder for --otf2 (default: DIR/timeline.json.gz, "
            "DIR/report.cubex or DIR/otf2).",
        ),
    ] = None,
    begin: Annotated[
        float | None,
        typer.Option(
            "--from", metavar="SECONDS", help="Start of the exported part (with --perfetto)."
        ),
    ] = None,
    end: Annotated[
        float | None,
        typer.Option("--to", metavar="SECONDS", help="End of the exported part (with --perfetto)."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a measurement in the format of another tool."""
    formats = {"--otf2": otf2, "--perfetto": perfetto, "--cubex": cubex}
    chosen = [name for name, is_on in formats.items() if is_on]
    if len(chosen) != 1:
        problem = f"{' and '.join(chosen)} exclude each other" if chosen else "no format is chosen"
        raise InputError(problem, remedy="give one of --otf2, --perfetto and --cubex")
    if not perfetto and (begin is not None or end is not None):
        raise InputError(
            "only --perfetto exports a part of the run",
            location="--from, --to",
            remedy=f"omit --from and --to with {chosen[0]}",
        )
    from haloscope.io.atomic import is_special
    from haloscope.scope.analysis.analyze import measurement_in

    folder = measurement_in(folder)
    if perfetto:
        done = _perfetto(folder, out, begin, end, quiet)
    else:
        done = _otf2(folder, out, quiet) if otf2 else _cubex(folder, out)
    lines = done.pop("told")
    # Where the export itself goes to standard output nothing is to follow it there.
    where = sys.stderr if out is not None and is_special(out) else sys.stdout
    if as_json or not quiet:
        print(json.dumps(done) if as_json else lines, file=where, flush=True)


def import_(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE.otf2", help="Anchor file of an OTF2 archive.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="New or empty folder (default: imported-N in the current folder)."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Convert an OTF2 trace of another tool into a measurement folder."""
    from haloscope.run.records import new_folder
    from haloscope.scope.export.otf2_import import import_otf2

    folder = out or new_folder(Path(), "imported")
    try:
        with _Progress("events", quiet) as progress:
            counts = import_otf2(trace, folder, progress.show)
    except BaseException:
        if out is None:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    _say_left_out(counts.left_out)
    lines = (
        f"read {counts.events:,} events of {counted(counts.ranks, 'rank')} into {folder}; next: "
        f"haloscope analyze {folder}"
    )
    done = {
        "folder": str(folder),
        "ranks": counts.ranks,
        "locations": counts.locations,
        "events": counts.events,
        "left_out": dict(counts.left_out),
    }
    if as_json or not quiet:
        print(json.dumps(done) if as_json else lines, flush=True)


def _otf2(folder: Path, out: Path | None, quiet: bool) -> dict[str, Any]:
    from haloscope.scope.export.otf2_export import export_otf2
    from haloscope.scope.trace.measurement import open_measurement

    measurement = open_measurement(folder)
    _warn(measurement.warnings)
    with _Progress("bytes of events", quiet) as progress:
        written = export_otf2(measurement, out or folder / "otf2", progress.show)
    _say_left_out(written.left_out)
    return {
        "told": f"wrote {written.anchor} with {written.events:,} events of "
        f"{counted(written.locations, 'thread or stream', 'threads and streams')}",
        "file": str(written.anchor),
        "events": written.events,
        "locations": written.locations,
        "left_out": dict(written.left_out),
    }


def _perfetto(
    folder: Path, out: Path | None, begin: float | None, end: float | None, quiet: bool
) -> dict[str, Any]:
    import math

    from haloscope.scope.analysis.result import FILE, Result
    from haloscope.scope.export.perfetto import export_perfetto
    from haloscope.scope.trace.measurement import open_measurement

    measurement = open_measurement(folder)
    _warn(measurement.warnings)
    analysis = folder / FILE
    result = Result.load(analysis, values=False) if analysis.is_file() else None
    with _Progress("bytes of events", quiet) as progress:
        written = export_perfetto(
            measurement,
            out or folder / "timeline.json.gz",
            begin=begin if begin is not None else 0.0,
            end=end if end is not None else math.inf,
            result=result,
            progress=progress.show,
            warn=_say,
        )
    return {
        "told": f"wrote {written.path} with {written.slices:,} slices, {written.arrows:,} arrows "
        f"and {written.waits:,} waits; open it at ui.perfetto.dev",
        "file": str(written.path),
        "slices": written.slices,
        "arrows": written.arrows,
        "waits": written.waits,
        "bytes": written.bytes,
    }


def _cubex(folder: Path, out: Path | None) -> dict[str, Any]:
    from haloscope.scope.analysis.result import FILE, Result
    from haloscope.scope.export.cubex import write_cubex

    path = out or folder / "report.cubex"
    result = Result.load(folder / FILE)
    hosts = result.about.get("hosts")
    named = dict(enumerate(map(str, hosts))) if isinstance(hosts, list) and all(hosts) else None
    write_cubex(result, path, named)
    return {"told": f"wrote {path}; open it with Cube", "file": str(path)}


class _Progress:
    """How far a long command is: a line that is written over, or one every few seconds."""

    def __init__(self, source: str, quiet: bool) -> None:
        self._source = source
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty() and not quiet
        self._begun = time.monotonic()
        self._last = self._begun

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._quiet or (not self._is_terminal and now - self._last < _BETWEEN_LINES):
            return
        self._last = now
        part = f"{100 * done // total} %" if total else ""
        rate = done / max(now - self._begun, 1e-9)
        left = f", {max(total - done, 0) / rate:.0f} s left" if rate else ""
        text = f"{done / 1e6:.1f} M of {total / 1e6:.1f} M {self._source}, {part}{left}"
        if self._is_terminal:
            print(f"\r{text}\033[K", end="", file=raw_stream(sys.stderr), flush=True)
        else:
            _say(text)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=raw_stream(sys.stderr), flush=True)


def _say(text: str) -> None:
    print(f"haloscope: {text}", file=sys.stderr, flush=True)


def _warn(warnings: list[str]) -> None:
    """Tell what is missing in a measurement: what is there is written all the same."""
    for text in warnings[:_MOST_LISTED]:
        _say(text)
    if len(warnings) > _MOST_LISTED:
        _say(f"{len(warnings) - _MOST_LISTED} more warnings")


def _say_left_out(left_out: Counter[str]) -> None:
    if left_out:
        contents = ", ".join(
            f"{count:,} {unit}" for unit, count in left_out.most_common(_MOST_LISTED)
        )
        more = len(left_out) - _MOST_LISTED
        _say(f"left out: {contents}" + (f", and {more} other kinds" if more > 0 else ""))
