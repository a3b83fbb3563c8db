"""The commands `haloscope analyze`, `haloscope explore` and `haloscope show`: read options, call the analysis or serve a page, print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from haloscope.commands.options import NoBrowser, Port, open_world
from haloscope.errors import raw_stream

_MOST_THREADS = 1024


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(short_help="Find wait states of a measurement and their causes.")(analyze)
    app.command()(explore)
    app.command(short_help="Show a finished run in the browser.")(show)


def analyze(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a measurement.")],
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="Predict the wall time after a change (repeatable)."
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Compare with an earlier measurement.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the report (default: the folder of the measurement)."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Number of threads; 0: one a core.", min=0, max=_MOST_THREADS)
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only one JSON object on standard output.")
    ] = False,
) -> None:
    """Analyse a measurement: wait states, their causes, maps and predictions.

    All processes of an MPI launcher (mpiexec -n 4 haloscope analyze DIR) replay a trace together.
    """
    from haloscope.exchange.ranks.launch import started_by_launcher
    from haloscope.run.records import make_folder
    from haloscope.scope import report
    from haloscope.scope.analysis import analyze as work

    world = open_world() if started_by_launcher() else None
    if world is not None and not world.is_root:
        work.assist(folder, world, threads)
        return
    if out is not None:
        make_folder(out)
    watched = sys.stderr.isatty() and not as_json

    def show(events: float) -> None:
        print(f"\r{events / 1e6:.0f} M events", end="", file=raw_stream(sys.stderr), flush=True)

    try:
        analysis = work.analyze(
            folder,
            what_if=what_if or (),
            threads=threads,
            against=against,
            out=out,
            progress=show if watched else None,
            processes=world if world is not None and world.size > 1 else None,
        )
    finally:
        if watched:
            print("\r\033[K", end="", file=raw_stream(sys.stderr), flush=True)
    if as_json:
        print(json.dumps(work.as_json(analysis)), flush=True)
    else:
        print(report.show(analysis), file=raw_stream(sys.stdout), flush=True)


def explore(
    folder: Annotated[Path, typer.Argument(help="Folder of an analysed measurement.")],
    other: Annotated[
        Path | None, typer.Argument(help="Folder of a second measurement to compare with it.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one HTML file with the data instead of serving it.")
    ] = None,
    port: Port = 0,
    no_browser: NoBrowser = False,
) -> None:
    """Show a measurement, or compare two, in the browser."""
    folders = [folder] if other is None else [folder, other]
    if html is not None:
        from haloscope.scope.explorer.page import write_page
        from haloscope.scope.explorer.report import Report

        size, left_out = write_page(Report(*folders), html)
        print(f"{html}: {size / 1e6:.1f} MB")
        if left_out:
            print("left out: " + "; ".join(left_out), file=sys.stderr)
        return
    from haloscope.scope.explorer.server import explore as serve

    serve(
        folders,
        port=port,
        browser=not no_browser,
        log=lambda text: print(text, file=sys.stderr, flush=True),
    )


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished run.")],
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write one HTML file with the pictures instead of serving it."
        ),
    ] = None,
    port: Port = 0,
    no_browser: NoBrowser = False,
) -> None:
    """Show pictures, numbers and tables of a finished run in the browser."""
    from haloscope.run.finished import read_summary
    from haloscope.run.results_page import list_files, results_page

    summary = read_summary(folder)
    files = list_files(folder)
    page = results_page(folder, summary, files, embedded=html is not None)
    if html is not None:
        from haloscope.io.atomic import write_text

        write_text(html, page)
        print(f"{html}: {len(page.encode()) / 1e6:.1f} MB")
        return
    from haloscope.commands.results_server import ResultsServer
    from haloscope.scope.explorer import serve_session

    with ResultsServer(page, files.pictures, port) as server:
        serve_session(
            server,
            "results",
            browser=not no_browser,
            log=lambda text: print(text, file=sys.stderr, flush=True),
        )
