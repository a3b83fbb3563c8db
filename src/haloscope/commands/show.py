"""The command `haloscope show`: results of a finished run in the browser, served or as one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from haloscope.commands.options import NoBrowser, Port


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(short_help="Show a finished run in the browser.")(show)


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
