"""The command that shows measurements in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def explore(
    folder: Annotated[Path, typer.Argument(help="Measurement folder that was analysed.")],
    other: Annotated[Path | None, typer.Argument(help="A second one to compare with it.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the page with its data into this file instead.")
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            help="Port at 127.0.0.1 to serve on; a free one by default.", min=0, max=65535
        ),
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
) -> None:
    """Look at a measurement, or compare two, in the browser."""
    folders = [folder] if other is None else [folder, other]
    if html is not None:
        from haloscope.scope.explorer.embed import write_page
        from haloscope.scope.explorer.report import Report

        size, left_out = write_page(Report(*folders), html)
        print(f"{html}: {size / 1e6:.1f} MB")
        if left_out:
            print("left out of it: " + "; ".join(left_out), file=sys.stderr)
        return
    from haloscope.scope.explorer.server import explore as serve

    serve(
        folders,
        port=port,
        browser=not no_browser,
        log=lambda text: print(text, file=sys.stderr, flush=True),
    )


def register(app: typer.Typer) -> None:
    """Add the command to the program's."""
    app.command("explore")(explore)
