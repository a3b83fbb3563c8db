"""Options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, or auto: a GPU when there is one."),
]
